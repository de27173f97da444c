/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout_fixed.c - the cases that PyTorch's own tests have, restated, and those that they lack:
 * sizes and offsets of chunks, tilings, overlaps, gaps, bounds, strided shards, errors.
 */
#include "tests/support/ran.h"

#include "layout/layout.h"

#include <reshard/pytorch.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* ---- PyTorch's functions --------------------------------------------------------------------- */

static void test_split_size__values(void **state)
{
    (void)state;
    static const int64_t rows[][3] = {{11, 4, 3},
                                      {12, 4, 3},
                                      {13, 4, 4},
                                      {5, 4, 2},
                                      {11, 1, 11},
                                      {11, 11, 1},
                                      {0, 3, 0},
                                      {INT64_MAX, 1, INT64_MAX},
                                      {INT64_MAX, INT64_MAX, 1},
                                      {INT64_MAX, 2, INT64_MAX / 2 + 1}};
    int64_t size = -1;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(reshard_split_size(rows[i][0], rows[i][1], &size), RESHARD_OK);
        assert_true(size == rows[i][2]);
        ran("test_get_split_size", "%lld, %lld: %lld", (long long)rows[i][0], (long long)rows[i][1],
            (long long)size);
    }
    size = 77;
    assert_int_equal(reshard_split_size(5, 0, &size), RESHARD_ERR_RANGE);
    assert_int_equal(reshard_split_size(-1, 4, &size), RESHARD_ERR_RANGE);
    assert_int_equal(reshard_split_size(5, -2, &size), RESHARD_ERR_RANGE);
    assert_int_equal(size, 77);
}

static void test_chunk_size__values(void **state)
{
    (void)state;
    static const int64_t rows[][4] = {
        {11, 3, 0, 3},        {11, 3, 3, 2}, {13, 4, 0, 4},
        {13, 4, 3, 1},        {5, 2, 3, 0},  {5, 2, 2, 1},
        {0, 0, 0, 0},         {0, 0, 5, 0},  {INT64_MAX, INT64_MAX, 0, INT64_MAX},
        {10, INT64_MAX, 7, 0}};
    int64_t size = -1;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(reshard_chunk_size(rows[i][0], rows[i][1], rows[i][2], &size), RESHARD_OK);
        assert_true(size == rows[i][3]);
        ran("test_get_chunked_dim_size", "%lld, %lld, %lld: %lld", (long long)rows[i][0],
            (long long)rows[i][1], (long long)rows[i][2], (long long)size);
    }
    assert_int_equal(reshard_chunk_size(-1, 3, 0, &size), RESHARD_ERR_RANGE);
    assert_int_equal(reshard_chunk_size(11, 3, -1, &size), RESHARD_ERR_RANGE);
    assert_int_equal(reshard_chunk_size(11, -3, 0, &size), RESHARD_ERR_RANGE);
}

static void test_placement_index__first_of_equals(void **state)
{
    (void)state;
    static const int32_t ranks[] = {3, 1, 3, 0};
    int32_t index = -1;
    assert_int_equal(reshard_placement_index(ranks, 4, 3, &index), RESHARD_OK);
    assert_int_equal(index, 0);
    assert_int_equal(reshard_placement_index(ranks, 4, 0, &index), RESHARD_OK);
    assert_int_equal(index, 3);
    assert_int_equal(reshard_placement_index(ranks, 4, 2, &index), RESHARD_ERR_NOT_FOUND);
    assert_int_equal(reshard_placement_index(NULL, 0, 2, &index), RESHARD_ERR_NOT_FOUND);
    assert_int_equal(index, 3);
}

static void test_build_metadata__errors(void **state)
{
    (void)state;
    static const int64_t shape[] = {10, 20};
    static const int32_t twice[] = {0, 1, 0, 2};
    static const int32_t good[] = {2, 0, 1};
    static const int dims[] = {2, 3, 4, -3, -4, -5};
    int32_t order[4] = {9, 9, 9, 9};
    reshard_shards *shards = NULL;
    assert_int_equal(reshard_build_metadata(NULL, 2, shape, 0, twice, 4, order, &shards),
                     RESHARD_ERR_INVALID);
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++)
        assert_int_equal(reshard_build_metadata(NULL, 2, shape, dims[i], good, 3, order, &shards),
                         RESHARD_ERR_INVALID);
    assert_int_not_equal(reshard_build_metadata(NULL, 0, NULL, 0, good, 3, order, &shards),
                         RESHARD_OK);
    assert_int_not_equal(reshard_build_metadata(NULL, 2, shape, 0, good, 0, order, &shards),
                         RESHARD_OK);
    assert_null(shards);
}

/* ---- layouts as text ------------------------------------------------------------------------- */

/* Writes "rank:offset+size" for every shard, several pieces as "{..}", for comparing with a row. */
static void describe(const reshard_layout *layout, char *text, size_t capacity)
{
    reshard_shards *shards = NULL;
    int32_t ndim = layout->ndim;
    size_t length = 0;
    assert_int_equal(reshard_layout_shards(layout, RESHARD_ALL_RANKS, &shards), RESHARD_OK);
    text[0] = '\0';
    for (int64_t i = 0; i < shards->count; i++) {
        const reshard_shard *shard = &shards->items[i];
        length += (size_t)snprintf(text + length, capacity - length, "%s%d:", i > 0 ? " " : "",
                                   (int)shard->rank);
        for (int32_t d = 0; d < ndim; d++)
            length += (size_t)snprintf(text + length, capacity - length, "%s%lld", d ? "," : "",
                                       (long long)shard->offset[d]);
        for (int32_t d = 0; d < shard->ndim; d++)
            length += (size_t)snprintf(text + length, capacity - length, "%s%lld", d ? "x" : "+",
                                       (long long)shard->shape[d]);
    }
    reshard_shards_destroy(shards);
}

typedef struct row {
    const char *spec, *shape, *expected; /* expected NULL: refused with status */
    reshard_status status;
} row;

static void check_row(const row *given)
{
    int32_t ndim = -1;
    int64_t shape[RESHARD_NDIM_MAX];
    reshard_layout *layout = NULL;
    char text[4096];
    assert_int_equal(reshard_shape_parse(given->shape, &ndim, shape), RESHARD_OK);
    reshard_status status = reshard_layout_parse(NULL, given->spec, ndim, shape, &layout);
    if (status != given->status)
        fail_msg("'%s' of %s gives %s (%s), not %s", given->spec, given->shape,
                 reshard_status_name(status), status != 0 ? reshard_error_text() : "",
                 reshard_status_name(given->status));
    if (status != RESHARD_OK) {
        assert_null(layout);
        assert_true(reshard_error_text()[0] != '\0');
        return;
    }
    describe(layout, text, sizeof text);
    if (strcmp(text, given->expected) != 0)
        fail_msg("'%s' of %s gives\n%s, not\n%s", given->spec, given->shape, text, given->expected);
    reshard_layout_release(layout);
}

static void test_layout__rows(void **state)
{
    (void)state;
    static const row rows[] = {
        /* chunks; empty ones have their offsets clamped */
        {"4: S(0)", "13", "0:0+4 1:4+4 2:8+4 3:12+1", 0},
        {"4: S(0)", "21", "0:0+6 1:6+6 2:12+6 3:18+3", 0},
        {"4[3,2,1,0]: S(0)", "21", "0:18+3 1:12+6 2:6+6 3:0+6", 0},
        {"4: S(0)", "5", "0:0+2 1:2+2 2:4+1 3:5+0", 0},
        {"4: S(0)", "6", "0:0+2 1:2+2 2:4+2 3:6+0", 0},
        {"4: S(0)", "2", "0:0+1 1:1+1 2:2+0 3:2+0", 0},
        {"4: S(0)", "0", "0:0+0 1:0+0 2:0+0 3:0+0", 0},
        {"3: S(0)", "1", "0:0+1 1:1+0 2:1+0", 0},
        {"5: S(0)", "7", "0:0+2 1:2+2 2:4+2 3:6+1 4:7+0", 0},
        {"4: S(0)", "9x12", "0:0,0+3x12 1:3,0+3x12 2:6,0+3x12 3:9,0+0x12", 0},
        {"4: S(-2)", "10x20", "0:0,0+3x20 1:3,0+3x20 2:6,0+3x20 3:9,0+1x20", 0},
        {"4: S(1)", "10x32", "0:0,0+10x8 1:0,8+10x8 2:0,16+10x8 3:0,24+10x8", 0},
        {"4: S(-1)", "10x32", "0:0,0+10x8 1:0,8+10x8 2:0,16+10x8 3:0,24+10x8", 0},
        {"2[2,3]: S(0)", "10x20", "2:0,0+5x20 3:5,0+5x20", 0},
        {"2[4..5]: S(0)", "2", "4:0+1 5:1+1", 0},
        {"4: S(2)", "10x20", NULL, RESHARD_ERR_INVALID},
        {"4: S(-3)", "10x20", NULL, RESHARD_ERR_INVALID},
        {"4: S(0)", "scalar", NULL, RESHARD_ERR_INVALID},
        {"4: R", "scalar", "0: 1: 2: 3:", 0},
        /* ranks with several chunks, in the order of chunks; PyTorch's gather_uneven,
         * multiple_local_shards and local_tensor_error */
        {"4[0,0,1,1]: S(0)", "13", "0:0+4 0:4+4 1:8+4 1:12+1", 0},
        {"4[1,0,1,0]: S(0)", "5", "0:2+2 0:5+0 1:0+2 1:4+1", 0},
        {"5[0,0,1,1,2]: S(0)", "10x20", "0:0,0+2x20 0:2,0+2x20 1:4,0+2x20 1:6,0+2x20 2:8,0+2x20",
         0},
        {"8[0..3,0..3]: S(0)", "16x20",
         "0:0,0+2x20 0:8,0+2x20 1:2,0+2x20 1:10,0+2x20 2:4,0+2x20 2:12,0+2x20 3:6,0+2x20 "
         "3:14,0+2x20",
         0},
        {"10[0,0,1,1,1,2,2,2,3,3]: S(0)", "24x12",
         "0:0,0+3x12 0:3,0+3x12 1:6,0+3x12 1:9,0+3x12 1:12,0+3x12 2:15,0+3x12 2:18,0+3x12 "
         "2:21,0+3x12 3:24,0+0x12 3:24,0+0x12",
         0},
        {"3[2,2,0]: S(0~)", "5", "0:4+1 2:0+2 2:2+2", 0},
        {"3[2,2,0]: S(0=1,0,4)", "5", "0:1+4 2:0+1 2:1+0", 0},
        {"3[1,0,1]: S(flat)", "2x3", "0:0,0+2 1:0,0+2 1:1,1+2", 0},
        {"4[0,0,1,1]: S(0, max=2)", "4", "0:0+2 0:0+2 1:2+2 1:2+2", 0},
        {"4[0,0,1,1]: R", "3", "0:0+3 1:0+3", 0}, /* of a whole, one copy */
        {"4[0,0,1,1]: A(1,2)", "3", "0:0+3 1:0+3", 0},
        {"4[0,0,1,1]: A(0,1)", "3", "0:0+3", 0},
        {"3[4,4,4]: S(0)", "2x20", "4:0,0+1x20 4:1,0+1x20 4:2,0+0x20", 0},
        {"2,2[0,0,1,1]: S(0), S(1)", "4x4", NULL, RESHARD_ERR_INVALID},
        {"4[0,0,1,1]: P", "4", NULL, RESHARD_ERR_INVALID},
        /* meshes */
        {"dp=2,tp=2: R, S(1)", "2x4", "0:0,0+2x2 1:0,2+2x2 2:0,0+2x2 3:0,2+2x2", 0},
        {"2,2: S(0), S(0)", "5", "0:0+2 1:2+1 2:3+1 3:4+1", 0},
        {"fsdp=2,tp=2: S(0)@tp, S(0)@fsdp", "8", "0:0+2 1:4+2 2:2+2 3:6+2", 0},
        {"pp=3,tp=2: A(1), S(0)", "4", "2:0+2 3:2+2", 0},
        {"tp=4: S(0, unit=2, max=2)", "6", "0:0+4 1:0+4 2:4+2 3:4+2", 0},
        {"2: S(0;2,4)", "6", "0:0+3 1:1+3", 0},
        {"2: S(0~)", "5", "0:0+3 1:3+2", 0},
        {"4: S(0~)", "6", "0:0+2 1:2+2 2:4+1 3:5+1", 0},
        {"3: S(0=1,4,2)", "7", "0:0+1 1:1+4 2:5+2", 0},
        {"2: S(0/2)", "7", "0:0+4 1:2+3", 0},
        {"2: S(0;2,3)", "6", NULL, RESHARD_ERR_INVALID},
        {"2: S(0=2,3)", "6", NULL, RESHARD_ERR_INVALID},
        /* boxes */
        {"boxes 6x6: 0[0:2,0:4] 1[0:4,4:6] 2[2:6,0:4] 3[4:6,4:6]", "6x6",
         "0:0,0+2x4 1:0,4+4x2 2:2,0+4x4 3:4,4+2x2", 0},
        {"boxes 10x5: 0[0:5,0:5] 1[5:10,0:5]", "10x5", "0:0,0+5x5 1:5,0+5x5", 0},
        {"boxes 6x6: 0[0:3,0:3] 1[0:3,3:6] 2[3:6,0:3] 3[3:6,3:6]", "6x6",
         "0:0,0+3x3 1:0,3+3x3 2:3,0+3x3 3:3,3+3x3", 0},
        {"boxes 5x3: 0[0:3,0:3] 1[2:5,0:3]", "5x3", NULL, RESHARD_ERR_OVERLAP},
        {"boxes 10x5: 0[0:5,0:5] 1[5:10,0:5]", "10x10x10", NULL, RESHARD_ERR_INVALID},
        {"boxes 10x5: 0[0:5,0:5] 1[5:10,0:5]", "10x3", NULL, RESHARD_ERR_INVALID},
        {"boxes 10x10: 0[0:5,0:5] 1[5:10,5:10]", "10x10", NULL, RESHARD_ERR_GAP},
        {"boxes 10x10: 0[0:5,0:5] 1[0:5,5:10] 0[5:10,0:5] 3[5:10,5:10]", "10x10",
         "0:0,0+5x5 0:5,0+5x5 1:0,5+5x5 3:5,5+5x5", 0},
        {"boxes 10x5: 0[0:5,0:5] 1[4:10,0:5]", "10x5", NULL, RESHARD_ERR_OVERLAP},
        {"boxes 10x5: 0[0:5,0:5] 1[6:10,0:5]", "10x5", NULL, RESHARD_ERR_GAP},
        {"boxes 10x5: 0[0:5,0:5] 1[5:11,0:5]", "10x5", NULL, RESHARD_ERR_RANGE},
        {"boxes 10x5: 0[0:5,0:5] 1[5:10,0:5]", "10x6", NULL, RESHARD_ERR_INVALID},
        {"boxes 10x5: 0[0:5,0:5] 1[5:10,0:5]", "10", NULL, RESHARD_ERR_INVALID},
        {"cover 4: 0[0:3] 1[1:4]", "4", "0:0+3 1:1+3", 0},
        {"cover 4: 0[0:2] 1[3:4]", "4", NULL, RESHARD_ERR_GAP},
        {"boxes 4: 0[0:3] 1[1:4]", "4", NULL, RESHARD_ERR_OVERLAP},
        {"boxes 4: 0[0:4] 1[2:2]", "4", "0:0+4 1:2+0", 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        check_row(&rows[i]);
        bool boxes = strncmp(rows[i].spec, "boxes", 5) == 0;
        ran(boxes ? "test_enumerable_sharding_spec" : "test_get_chunk_sharding_params", "%s %s",
            rows[i].shape, rows[i].spec);
    }
}

/* Writes the elements of each rank's first buffer in the order of memory, of a tensor of one
 * dim. */
static void list_elements(const char *spec, int64_t n, char *text, size_t capacity)
{
    reshard_layout *layout = NULL;
    reshard_shards *shards = NULL;
    size_t length = 0;
    assert_int_equal(reshard_layout_parse(NULL, spec, 1, &n, &layout), RESHARD_OK);
    assert_int_equal(reshard_layout_shards(layout, RESHARD_ALL_RANKS, &shards), RESHARD_OK);
    text[0] = '\0';
    for (int64_t i = 0; i < shards->count; i++) {
        const reshard_shard *shard = &shards->items[i];
        length += (size_t)snprintf(text + length, capacity - length, "%s{", i > 0 ? "," : "");
        for (int64_t place = 0; place < shard->shape[0]; place++) {
            for (int64_t p = 0; p < shard->piece_count; p++) {
                const reshard_piece *piece = &shard->pieces[p];
                int64_t x = place - piece->at;
                if (piece->strides[0] == 1 && x >= 0 && x < piece->box.size[0])
                    length += (size_t)snprintf(text + length, capacity - length, "%s%lld",
                                               place > 0 ? "," : "",
                                               (long long)(piece->box.offset[0] + x));
            }
        }
        length += (size_t)snprintf(text + length, capacity - length, "}");
    }
    reshard_shards_destroy(shards);
    reshard_layout_release(layout);
}

static void test_layout__elements(void **state)
{
    (void)state;
    static const struct {
        const char *spec;
        int64_t n;
        const char *expected;
    } rows[] = {
        {"4: S(0*2)", 9, "{0,1,5},{2,3,6},{4,7},{8}"},
        {"2,2: S(0*2), S(0)", 8, "{0,1},{4,5},{2,3},{6,7}"},
        {"3: S(0*3)", 7, "{0,3,6},{1,4},{2,5}"},
        /* The shorter of two chunks may give a coordinate more than the longer. */
        {"3,2: S(0*2), S(0)", 13, "{0,1,2},{7,8},{3,4,5},{9,10},{6,11},{12}"},
        {"3,2: S(0*2), S(flat)", 13, "{0,1,2},{7,8},{3,4,5},{9,10},{6,11},{12}"},
        {"2: S(0/1)", 5, "{0,2,4},{1,3}"},
        {"2: S(0;2,4)", 6, "{0,2,3},{1,4,5}"},
        {"4: S(0;4,2|2)", 6, "{0,4},{1,4},{2,5},{3,5}"},
        {"2: S(0/2)", 7, "{0,1,4,5},{2,3,6}"},
        {"boxes 6: 0[4:6]+[0:1] 1[1:4]", 6, "{4,5,0},{1,2,3}"},
        {"boxes 6: 0[4:6]@1+[0:1]@0 1[1:4]", 6, "{0,4,5},{1,2,3}"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[512];
        list_elements(rows[i].spec, rows[i].n, text, sizeof text);
        assert_string_equal(text, rows[i].expected);
    }
}

/* ---- lists of shards ------------------------------------------------------------------------- */

/* Boxes given as offset and size of each dim, one after another. */
static void make_shards(int32_t ndim, int64_t count, const int64_t *numbers, reshard_piece *pieces,
                        reshard_shard *shards)
{
    memset(pieces, 0, sizeof *pieces * (size_t)count);
    memset(shards, 0, sizeof *shards * (size_t)count);
    for (int64_t i = 0; i < count; i++) {
        int64_t stride = 1;
        shards[i].rank = (int32_t)i;
        shards[i].ndim = ndim;
        shards[i].contributor_count = 1;
        shards[i].piece_count = 1;
        shards[i].pieces = &pieces[i];
        pieces[i].box.ndim = ndim;
        for (int32_t d = ndim - 1; d >= 0; d--) {
            int64_t size = numbers[i * 2 * ndim + ndim + d];
            pieces[i].box.offset[d] = numbers[i * 2 * ndim + d];
            pieces[i].box.size[d] = size;
            pieces[i].strides[d] = stride;
            shards[i].shape[d] = size;
            shards[i].offset[d] = pieces[i].box.offset[d];
            stride *= size;
        }
        if (stride == 0)
            shards[i].piece_count = 0;
    }
}

/* Two boxes, and whether they overlap. */
static void test_shards__overlap(void **state)
{
    (void)state;
    static const struct {
        int32_t ndim;
        int64_t numbers[12]; /* offset and size of each */
        bool over;
    } rows[] = {{2, {0, 0, 5, 5, 5, 0, 5, 5}, false},
                {2, {0, 0, 5, 5, 4, 0, 5, 5}, true},
                {2, {0, 0, 5, 5, 0, 4, 5, 5}, true},
                {2, {0, 0, 5, 5, 4, 4, 5, 5}, true},
                {2, {0, 0, 5, 5, 5, 5, 5, 5}, false},
                {3, {5, 0, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5}, false},
                {3, {5, 0, 5, 5, 5, 5, 5, 4, 5, 5, 5, 5}, true},
                {3, {5, 0, 5, 5, 5, 5, 5, 4, 9, 5, 5, 5}, true},
                {3, {0, 0, 0, 5, 5, 5, 5, 5, 5, 5, 5, 5}, false},
                {3, {0, 0, 0, 5, 5, 5, 4, 4, 4, 5, 5, 5}, true}};
    reshard_piece pieces[4];
    reshard_shard shards[4];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        make_shards(rows[i].ndim, 2, rows[i].numbers, pieces, shards);
        assert_int_equal(reshard_shards_check(NULL, 0, NULL, 2, shards),
                         rows[i].over ? RESHARD_ERR_OVERLAP : RESHARD_OK);
        char text[2][80];
        for (int k = 0; k < 2; k++) {
            const reshard_box *box = &pieces[k].box;
            size_t used = 0;
            for (int32_t d = 0; d < box->ndim; d++)
                used += (size_t)snprintf(text[k] + used, sizeof text[k] - used, "%s%lld:%lld",
                                         d > 0 ? "," : "", (long long)box->offset[d],
                                         (long long)(box->offset[d] + box->size[d]));
        }
        ran("test_check_overlapping", "[%s] [%s]", text[0], text[1]);
    }
    static const int64_t inside[] = {0, 0, 5, 5, 2, 2, 0, 3, 0, 5, 5, 5};
    make_shards(2, 3, inside, pieces, shards);
    assert_int_equal(reshard_shards_check(NULL, 0, NULL, 3, shards), RESHARD_OK);
    assert_int_equal(reshard_shards_check(NULL, 0, NULL, 1, shards), RESHARD_OK);
    assert_int_equal(reshard_shards_check(NULL, 0, NULL, 0, NULL), RESHARD_OK);
}

/* Boxes that no tensor has. */
static void test_shards__wrong_boxes(void **state)
{
    (void)state;
    static const int64_t apart[] = {0, 0, 5, 5, 5, 5, 5, 5};
    reshard_piece pieces[2];
    reshard_shard shards[2];
    for (int i = 0; i < 5; i++) {
        make_shards(2, 2, apart, pieces, shards);
        if (i == 0)
            pieces[0].box.ndim = pieces[1].box.ndim = RESHARD_NDIM_MAX + 1;
        else if (i == 1)
            pieces[0].box.ndim = pieces[1].box.ndim = -1;
        else if (i == 2)
            pieces[1].box.offset[1] = INT64_MAX;
        else if (i == 3)
            pieces[1].box.size[0] = -1;
        else
            pieces[1].box.offset[0] = -1;
        if (reshard_shards_check(NULL, 0, NULL, 2, shards) != RESHARD_ERR_RANGE)
            fail_msg("wrong box %d is not refused", i);
    }
    make_shards(2, 2, apart, pieces, shards);
    pieces[1].box.ndim = 1;
    assert_int_equal(reshard_shards_check(NULL, 0, NULL, 2, shards), RESHARD_ERR_INVALID);
}

static void test_shards__tiling(void **state)
{
    (void)state;
    reshard_piece pieces[4];
    reshard_shard shards[4];
    static const int64_t shape[] = {6, 6};
    static const int64_t solid[] = {6, 6, 1};
    static const int64_t wheel[] = {0, 0, 2, 4, 0, 4, 4, 2, 2, 0, 4, 4, 4, 4, 2, 2};
    static const int64_t hole[] = {0, 0, 2, 4, 0, 4, 4, 2, 2, 0, 4, 4, 4, 4, 2, 1};
    static const int64_t out[] = {0, 0, 2, 4, 0, 4, 4, 2, 2, 0, 4, 4, 4, 4, 2, 3};
    static const int64_t over[] = {0, 0, 2, 4, 0, 4, 4, 2, 2, 0, 4, 5, 4, 4, 2, 2};
    make_shards(2, 4, wheel, pieces, shards);
    assert_int_equal(reshard_shards_check(NULL, 2, shape, 4, shards), RESHARD_OK);
    assert_int_equal(reshard_shards_check(NULL, 3, solid, 4, shards), RESHARD_ERR_INVALID);
    assert_int_equal(reshard_shards_check(NULL, 2, shape, 0, shards), RESHARD_ERR_INVALID);
    assert_int_equal(reshard_shards_check(NULL, 2, shape, 3, shards), RESHARD_ERR_GAP);
    make_shards(2, 4, hole, pieces, shards);
    assert_int_equal(reshard_shards_check(NULL, 2, shape, 4, shards), RESHARD_ERR_GAP);
    make_shards(2, 4, out, pieces, shards);
    assert_int_equal(reshard_shards_check(NULL, 2, shape, 4, shards), RESHARD_ERR_RANGE);
    make_shards(2, 4, over, pieces, shards);
    assert_int_equal(reshard_shards_check(NULL, 2, shape, 4, shards), RESHARD_ERR_OVERLAP);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_split_size__values),
        cmocka_unit_test(test_chunk_size__values),
        cmocka_unit_test(test_placement_index__first_of_equals),
        cmocka_unit_test(test_build_metadata__errors),
        cmocka_unit_test(test_layout__rows),
        cmocka_unit_test(test_layout__elements),
        cmocka_unit_test(test_shards__overlap),
        cmocka_unit_test(test_shards__wrong_boxes),
        cmocka_unit_test(test_shards__tiling),
    };
    return cmocka_run_group_tests_name("layout_fixed", tests, NULL, NULL);
}
