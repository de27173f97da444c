/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout_vectors.c - what PyTorch 1.13 computed for 400 pairs of chunk specs, against the functions
 * of the same purpose and against layouts. Empty chunks included: PyTorch's resharding clamps their
 * offsets, as we do.
 */
#include <reshard/pytorch.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "chunk_vectors.inc"

typedef struct vector {
    int32_t ndim, count, dim;
    int64_t shape[RESHARD_NDIM_MAX];
    int32_t ranks[16], order[16];
    int64_t offset[16][RESHARD_NDIM_MAX], size[16][RESHARD_NDIM_MAX]; /* by rank */
} vector;

static const int16_t *read_vector(const int16_t *row, vector *out)
{
    out->ndim = *row++;
    for (int32_t d = 0; d < out->ndim; d++)
        out->shape[d] = *row++;
    out->count = *row++;
    out->dim = *row++;
    for (int32_t i = 0; i < out->count; i++)
        out->ranks[i] = *row++;
    for (int32_t i = 0; i < out->count; i++)
        out->order[i] = *row++;
    for (int32_t i = 0; i < out->count; i++) {
        for (int32_t d = 0; d < out->ndim; d++)
            out->offset[i][d] = *row++;
        for (int32_t d = 0; d < out->ndim; d++)
            out->size[i][d] = *row++;
    }
    return row;
}

static void check_shards(const vector *given, const reshard_shards *shards)
{
    assert_int_equal(shards->count, given->count);
    for (int32_t rank = 0; rank < given->count; rank++) {
        const reshard_shard *shard = &shards->items[rank];
        int64_t volume = 1;
        assert_int_equal(shard->rank, rank);
        assert_int_equal(shard->index, 0);
        assert_int_equal(shard->ndim, given->ndim);
        assert_int_equal(shard->contributor_count, 1);
        assert_false(shard->partial);
        for (int32_t d = 0; d < given->ndim; d++) {
            assert_int_equal(shard->offset[d], given->offset[rank][d]);
            assert_int_equal(shard->shape[d], given->size[rank][d]);
            volume *= shard->shape[d];
        }
        assert_int_equal(shard->piece_count, volume > 0 ? 1 : 0);
        for (int32_t d = 0; volume > 0 && d < given->ndim; d++) {
            assert_int_equal(shard->pieces[0].box.offset[d], given->offset[rank][d]);
            assert_int_equal(shard->pieces[0].box.size[d], given->size[rank][d]);
        }
    }
}

static void check_chunks(const vector *given)
{
    int64_t n = given->shape[given->dim];
    int64_t split = -1, length = -1;
    assert_int_equal(reshard_split_size(n, given->count, &split), RESHARD_OK);
    for (int32_t i = 0; i < given->count; i++) {
        int32_t index = -1;
        assert_int_equal(reshard_chunk_size(n, split, i, &length), RESHARD_OK);
        assert_int_equal(length, given->size[given->ranks[i]][given->dim]);
        assert_int_equal(
            reshard_placement_index(given->ranks, given->count, given->ranks[i], &index),
            RESHARD_OK);
        assert_int_equal(index, i);
    }
    int32_t index = -1;
    assert_int_equal(reshard_placement_index(given->ranks, given->count, given->count, &index),
                     RESHARD_ERR_NOT_FOUND);
}

/* As written and counted from the end, a dim is the same one. */
static void check_layout(const vector *given, int32_t dim)
{
    reshard_spec *spec = NULL;
    reshard_layout *layout = NULL;
    reshard_shards *shards = NULL;
    int32_t order[16];
    assert_int_equal(reshard_build_metadata(NULL, given->ndim, given->shape, dim, given->ranks,
                                            given->count, order, &shards),
                     RESHARD_OK);
    for (int32_t i = 0; i < given->count; i++)
        assert_int_equal(order[i], given->order[i]);
    check_shards(given, shards);
    reshard_shards_destroy(shards);
    shards = NULL;
    assert_int_equal(reshard_spec_chunk(NULL, dim, given->count, given->ranks, &spec), RESHARD_OK);
    assert_int_equal(reshard_layout_create(NULL, spec, given->ndim, given->shape, &layout),
                     RESHARD_OK);
    assert_int_equal(reshard_layout_shards(layout, RESHARD_ALL_RANKS, &shards), RESHARD_OK);
    check_shards(given, shards);
    reshard_shards_destroy(shards);
    reshard_layout_release(layout);
    reshard_spec_release(spec);
}

static void test_layout__pytorch_vectors(void **state)
{
    (void)state;
    const int16_t *row = chunk_vectors;
    for (int i = 0; i < CHUNK_VECTORS; i++) {
        vector given;
        row = read_vector(row, &given);
        check_chunks(&given);
        check_layout(&given, given.dim);
        check_layout(&given, given.dim - given.ndim);
    }
    assert_ptr_equal(row, chunk_vectors + sizeof chunk_vectors / sizeof chunk_vectors[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_layout__pytorch_vectors)};
    return cmocka_run_group_tests_name("layout_vectors", tests, NULL, NULL);
}
