/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout_tiling.c - whether 100,000 boxes tile a tensor is found out in a second or two, in two and
 * three dimensions; one box grown, shrunk, moved or doubled among them is found.
 */
#include "tests/support/random.h"

#include <reshard/layout.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

/* busy machine, sanitizers; all pairs would take minutes */
enum { COUNT = 100000, SECONDS_MAX = 30 };

typedef struct tiling {
    int32_t ndim;
    int64_t shape[RESHARD_NDIM_MAX];
    int64_t count;
    reshard_piece *pieces;
    reshard_shard *shards;
} tiling;

static void describe(tiling *made, int64_t i)
{
    reshard_shard *shard = &made->shards[i];
    reshard_piece *piece = &made->pieces[i];
    int64_t stride = 1;
    memset(shard, 0, sizeof *shard);
    shard->rank = (int32_t)(i % 1000);
    shard->index = (int32_t)(i / 1000);
    shard->ndim = made->ndim;
    shard->contributor_count = 1;
    shard->piece_count = 1;
    shard->pieces = piece;
    piece->box.ndim = made->ndim;
    for (int32_t d = made->ndim - 1; d >= 0; d--) {
        shard->shape[d] = piece->box.size[d];
        shard->offset[d] = piece->box.offset[d];
        piece->strides[d] = stride;
        stride *= piece->box.size[d];
    }
}

/* Slabs of one or two, cut apart one by one at places of their own, again and again: no grid. */
static void cut(tiling *made, draw_state *draw, int32_t d, reshard_box *box)
{
    if (made->count == COUNT)
        return;
    if (d == made->ndim) {
        made->pieces[made->count++].box = *box;
        return;
    }
    for (int64_t at = 0; at < made->shape[d];) {
        int64_t size = draw_between(draw, 1, 3);
        size = at + size > made->shape[d] ? made->shape[d] - at : size;
        box->offset[d] = at;
        box->size[d] = size;
        cut(made, draw, d + 1, box);
        at += size;
    }
}

static void tiling_init(tiling *made, int32_t ndim, draw_state *draw)
{
    reshard_box box;
    memset(made, 0, sizeof *made);
    memset(&box, 0, sizeof box);
    made->ndim = ndim;
    box.ndim = ndim;
    made->pieces = calloc(COUNT, sizeof *made->pieces);
    made->shards = calloc(COUNT, sizeof *made->shards);
    assert_non_null(made->pieces);
    assert_non_null(made->shards);
    for (int32_t d = 0; d < ndim; d++)
        made->shape[d] = ndim == 2 ? 624 : 92;
    cut(made, draw, 0, &box);
    assert_true(made->count > COUNT * 9 / 10 && made->count < COUNT);
    /* In no order. */
    for (int64_t i = made->count - 1; i > 0; i--) {
        int64_t other = draw_below(draw, i + 1);
        reshard_piece piece = made->pieces[i];
        made->pieces[i] = made->pieces[other];
        made->pieces[other] = piece;
    }
    for (int64_t i = 0; i < made->count; i++)
        describe(made, i);
}

static void tiling_free(tiling *made)
{
    free(made->pieces);
    free(made->shards);
}

static void check(const tiling *given, reshard_status tiles, reshard_status overlaps)
{
    clock_t start = clock();
    reshard_status status =
        reshard_shards_check(NULL, given->ndim, given->shape, given->count, given->shards);
    double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    if (status != tiles)
        fail_msg("%s where %s is right: %s", reshard_status_name(status),
                 reshard_status_name(tiles), reshard_error_text());
    start = clock();
    status = reshard_shards_check(NULL, 0, NULL, given->count, given->shards);
    double overlap_seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    assert_int_equal(status, overlaps);
    print_message("%lld boxes, %d dims, %s: tiling %.3f s, overlap %.3f s\n",
                  (long long)given->count, (int)given->ndim, reshard_status_name(tiles), seconds,
                  overlap_seconds);
    assert_true(seconds < SECONDS_MAX && overlap_seconds < SECONDS_MAX);
}

/* A box that can grow by one along dim d. */
static int64_t find_room(const tiling *given, draw_state *draw, int32_t d)
{
    for (;;) {
        int64_t i = draw_below(draw, given->count);
        const reshard_box *box = &given->pieces[i].box;
        if (box->offset[d] + box->size[d] < given->shape[d])
            return i;
    }
}

static void check_all(int32_t ndim, uint64_t seed)
{
    tiling made;
    draw_state draw;
    draw_seed(&draw, seed);
    tiling_init(&made, ndim, &draw);
    check(&made, RESHARD_OK, RESHARD_OK);
    for (int32_t d = 0; d < ndim; d++) {
        int64_t i = find_room(&made, &draw, d);
        reshard_box before = made.pieces[i].box;
        made.pieces[i].box.size[d]++;
        describe(&made, i);
        check(&made, RESHARD_ERR_OVERLAP, RESHARD_ERR_OVERLAP);
        made.pieces[i].box = before;
        made.pieces[i].box.offset[d]++;
        describe(&made, i);
        check(&made, RESHARD_ERR_OVERLAP, RESHARD_ERR_OVERLAP);
        made.pieces[i].box = before;
        describe(&made, i);
    }
    int64_t last = made.count - 1;
    made.count = last;
    check(&made, RESHARD_ERR_GAP, RESHARD_OK);
    made.count = last + 1;
    made.pieces[last].box = made.pieces[last / 2].box;
    describe(&made, last);
    check(&made, RESHARD_ERR_OVERLAP, RESHARD_ERR_OVERLAP);
    tiling_free(&made);
}

static void test_tiling__flat(void **state)
{
    (void)state;
    check_all(2, 7);
}

static void test_tiling__solid(void **state)
{
    (void)state;
    check_all(3, 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiling__flat),
        cmocka_unit_test(test_tiling__solid),
    };
    return cmocka_run_group_tests_name("layout_tiling", tests, NULL, NULL);
}
