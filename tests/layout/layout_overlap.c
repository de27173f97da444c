/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout_overlap.c - boxes from strangers: whether any two overlap is what comparing all pairs
 * says, and eight times as many boxes take some eight times as long, in orders that are made to be
 * slow: interleaved, organ pipes, equal keys, lines that cross in all dims, boxes in each other.
 */
#include "base/sort.h"
#include "layout/index.h"
#include "layout/overlap.h"
#include "tests/support/random.h"

#include <reshard/layout.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

/* ---- right ----------------------------------------------------------------------------------- */

enum { SMALL_MAX = 60 };

static bool share(int32_t ndim, const int64_t *a, const int64_t *b)
{
    for (int32_t d = 0; d < ndim; d++) {
        if (a[d] >= a[ndim + d] || b[d] >= b[ndim + d] || a[d] >= b[ndim + d] ||
            b[d] >= a[ndim + d])
            return false;
    }
    return true;
}

static bool any_share(int32_t ndim, int64_t count, const int64_t *boxes)
{
    for (int64_t i = 0; i < count; i++) {
        for (int64_t j = 0; j < i; j++) {
            if (share(ndim, boxes + i * 2 * ndim, boxes + j * 2 * ndim))
                return true;
        }
    }
    return false;
}

/* Draws boxes, leaving out those that touch an earlier one until the last, which may be
 * anything. */
static int64_t draw_boxes(draw_state *draw, int32_t ndim, int64_t *boxes)
{
    int64_t extent = draw_between(draw, 2, 40), count = 0;
    int64_t wanted = draw_between(draw, 1, SMALL_MAX);
    for (int64_t tries = 0; tries < 4 * SMALL_MAX && count < wanted; tries++) {
        int64_t *box = boxes + count * 2 * ndim;
        bool line = draw_below(draw, 2) == 0;
        int64_t along = draw_below(draw, ndim);
        for (int32_t d = 0; d < ndim; d++) {
            box[d] = line && d == along ? 0 : draw_below(draw, extent);
            box[ndim + d] = line && d == along ? extent : box[d] + (line ? 1 : draw_below(draw, 4));
        }
        bool clear = true;
        for (int64_t i = 0; i < count && clear; i++)
            clear = !share(ndim, box, boxes + i * 2 * ndim);
        if (clear || count + 1 == wanted)
            count++;
    }
    return count;
}

static void test_overlap__as_all_pairs_say(void **state)
{
    (void)state;
    int64_t boxes[SMALL_MAX * 8];
    int found_count = 0, none_count = 0;
    draw_state draw;
    draw_seed(&draw, 11);
    for (int round = 0; round < 20000; round++) {
        int32_t ndim = (int32_t)draw_between(&draw, 1, 4);
        int64_t count = draw_boxes(&draw, ndim, boxes);
        bool found = false;
        int64_t pair[2];
        rs_arena arena;
        rs_arena_init(&arena, NULL);
        assert_int_equal(rs_overlap_find(&arena, ndim, count, boxes, &found, pair), RESHARD_OK);
        rs_arena_release(&arena);
        assert_int_equal(found, any_share(ndim, count, boxes));
        if (found) {
            assert_true(0 <= pair[0] && pair[0] < pair[1] && pair[1] < count);
            assert_true(share(ndim, boxes + pair[0] * 2 * ndim, boxes + pair[1] * 2 * ndim));
        }
        found_count += found;
        none_count += !found;
    }
    assert_true(found_count > 1000 && none_count > 1000);
}

/* ---- in time --------------------------------------------------------------------------------- */

typedef enum order {
    SORTED,
    REVERSED,
    INTERLEAVED,
    DEALT,
    ORGAN_PIPE,
    KILLER,
    EQUAL,
    ORDERS
} order;

static int64_t place(order which, int64_t i, int64_t n)
{
    int64_t side = 200;
    switch (which) {
    case REVERSED:
        return n - 1 - i;
    case INTERLEAVED:
        return i * 2 % n + i * 2 / n;
    case DEALT: /* block-cyclic */
        return i % side * (n / side) + i / side;
    case ORGAN_PIPE:
        return i < n / 2 ? 2 * i : 2 * (n - 1 - i) + 1;
    case KILLER: /* of medians of three */
        return i >= n / 2 ? 2 * (i - n / 2) + 1 : i % 2 == 0 ? i : n / 2 + i - 1 + n / 2 % 2;
    case EQUAL:
        return 0;
    default:
        return i;
    }
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

typedef void job_fn(int64_t n, int which);

/* With 200,000 boxes n log n steps take some 0.1 s, and n squared ones a minute. A bound far from
 * both holds on busy machines; comparing the times of two sizes did not, as the smaller one lies
 * in a cache. */
static void check_scaling(job_fn *job, int which)
{
    double before = seconds();
    job(200000, which);
    double taken = seconds() - before;
    if (taken > 5)
        fail_msg("order %d: %.1f s", which, taken);
}

static int64_t *line_boxes(int64_t n, int which)
{
    int64_t *boxes = malloc((size_t)n * 2 * sizeof *boxes);
    assert_non_null(boxes);
    for (int64_t i = 0; i < n; i++) {
        boxes[2 * i] = place((order)which, i, n);
        boxes[2 * i + 1] = boxes[2 * i] + 1;
    }
    return boxes;
}

static void select_median(int64_t n, int which)
{
    int64_t *values = malloc((size_t)n * sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < n; i++)
        values[i] = place((order)which, i, n);
    int64_t found = rs_select(values, n, n / 2);
    rs_sort(values, (size_t)n, sizeof *values, rs_compare_i64);
    assert_int_equal(found, values[n / 2]);
    free(values);
}

static void build_index(int64_t n, int which)
{
    int64_t *boxes = line_boxes(n, which);
    rs_arena arena;
    rs_index index;
    rs_arena_init(&arena, NULL);
    assert_int_equal(rs_index_build(&index, &arena, 1, n, boxes), RESHARD_OK);
    rs_arena_release(&arena);
    free(boxes);
}

static void find_overlap(int64_t n, int which)
{
    int64_t *boxes = line_boxes(n, which);
    bool found = false;
    int64_t pair[2];
    rs_arena arena;
    rs_arena_init(&arena, NULL);
    assert_int_equal(rs_overlap_find(&arena, 1, n, boxes, &found, pair), RESHARD_OK);
    assert_int_equal(found, which == EQUAL);
    rs_arena_release(&arena);
    free(boxes);
}

static void test_scaling__orders(void **state)
{
    (void)state;
    for (int which = 0; which < ORDERS; which++) {
        check_scaling(select_median, which);
        check_scaling(build_index, which);
        check_scaling(find_overlap, which);
    }
}

/* Lines along each of three dims that pass each other: bounding boxes of any many of them meet. */
static void pass_lines(int64_t n, int which)
{
    (void)which;
    int64_t side = 2;
    while (3 * (side / 2) * (side / 2) < n)
        side += 2;
    int64_t *boxes = calloc((size_t)(3 * side * side), 6 * sizeof *boxes);
    assert_non_null(boxes);
    int64_t *next = boxes, count = 0;
    for (int64_t a = 0; a < side; a += 2) {
        for (int64_t b = 0; b < side; b += 2) {
            int64_t starts[3][3] = {{0, a, b}, {a, 0, b + 1}, {a + 1, b + 1, 0}};
            for (int line = 0; line < 3; line++, count++) {
                for (int d = 0; d < 3; d++, next++) {
                    next[0] = starts[line][d];
                    next[3] = d == line ? side : starts[line][d] + 1;
                }
                next += 3;
            }
        }
    }
    bool found = true;
    int64_t pair[2];
    rs_arena arena;
    rs_arena_init(&arena, NULL);
    assert_int_equal(rs_overlap_find(&arena, 3, count, boxes, &found, pair), RESHARD_OK);
    assert_false(found);
    rs_arena_release(&arena);
    free(boxes);
}

/* All begin at the same place of one dim, and none touches another. */
static void fan_out(int64_t n, int which)
{
    (void)which;
    int64_t *boxes = malloc((size_t)n * 4 * sizeof *boxes);
    assert_non_null(boxes);
    for (int64_t i = 0; i < n; i++) {
        boxes[4 * i] = 0;
        boxes[4 * i + 1] = place(INTERLEAVED, i, n);
        boxes[4 * i + 2] = i + 1;
        boxes[4 * i + 3] = boxes[4 * i + 1] + 1;
    }
    bool found = true;
    int64_t pair[2];
    rs_arena arena;
    rs_arena_init(&arena, NULL);
    assert_int_equal(rs_overlap_find(&arena, 2, n, boxes, &found, pair), RESHARD_OK);
    assert_false(found);
    rs_arena_release(&arena);
    free(boxes);
}

static void test_scaling__crossing(void **state)
{
    (void)state;
    check_scaling(pass_lines, 0);
    check_scaling(fan_out, 0);
}

/* ---- covers ---------------------------------------------------------------------------------- */

/* n boxes inside each other have n * n / 2 owners of cells: too many. */
static void test_cover__nested(void **state)
{
    (void)state;
    enum { N = 20000 };
    reshard_shard *shards = calloc(N, sizeof *shards);
    reshard_piece *pieces = calloc(N, sizeof *pieces);
    assert_non_null(shards);
    assert_non_null(pieces);
    for (int32_t i = 0; i < N; i++) {
        pieces[i].box = (reshard_box){.ndim = 1, .size = {i + 1}};
        pieces[i].strides[0] = 1;
        shards[i] = (reshard_shard){.rank = i,
                                    .ndim = 1,
                                    .shape = {i + 1},
                                    .contributor_count = 1,
                                    .divisor = 1,
                                    .piece_count = 1,
                                    .pieces = &pieces[i]};
    }
    reshard_spec *spec = NULL;
    reshard_layout *layout = NULL;
    int64_t shape = N;
    assert_int_equal(reshard_spec_boxes(NULL, 1, 1, &shape, N, shards, &spec), RESHARD_OK);
    assert_int_equal(reshard_layout_create(NULL, spec, 1, &shape, &layout), RESHARD_ERR_RANGE);
    assert_non_null(strstr(reshard_error_text(), "4000000 owners"));
    reshard_spec_release(spec);
    free(shards);
    free(pieces);
}

/* n rows that cross n columns have n * n cells: 316 of each have few enough, 317 have not. */
static reshard_status cover_grid(int64_t n)
{
    reshard_shard *shards = calloc((size_t)(2 * n), sizeof *shards);
    reshard_piece *pieces = calloc((size_t)(2 * n), sizeof *pieces);
    int64_t shape[2] = {n, n};
    assert_non_null(shards);
    assert_non_null(pieces);
    for (int64_t i = 0; i < 2 * n; i++) {
        int dim = i < n ? 0 : 1;
        pieces[i].box = (reshard_box){.ndim = 2, .size = {n, n}};
        pieces[i].box.offset[dim] = i % n;
        pieces[i].box.size[dim] = 1;
        pieces[i].strides[0] = pieces[i].box.size[1];
        pieces[i].strides[1] = 1;
        shards[i] = (reshard_shard){.rank = (int32_t)i,
                                    .ndim = 2,
                                    .shape = {pieces[i].box.size[0], pieces[i].box.size[1]},
                                    .contributor_count = 1,
                                    .divisor = 1,
                                    .piece_count = 1,
                                    .pieces = &pieces[i]};
    }
    reshard_spec *spec = NULL;
    reshard_layout *layout = NULL;
    assert_int_equal(reshard_spec_boxes(NULL, 1, 2, shape, 2 * n, shards, &spec), RESHARD_OK);
    reshard_status status = reshard_layout_create(NULL, spec, 2, shape, &layout);
    reshard_layout_release(layout);
    reshard_spec_release(spec);
    free(shards);
    free(pieces);
    return status;
}

static void test_cover__cells(void **state)
{
    (void)state;
    assert_int_equal(cover_grid(316), RESHARD_OK);
    assert_int_equal(cover_grid(317), RESHARD_ERR_RANGE);
    assert_non_null(strstr(reshard_error_text(), "100000 different ways"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_overlap__as_all_pairs_say),
        cmocka_unit_test(test_scaling__orders),
        cmocka_unit_test(test_scaling__crossing),
        cmocka_unit_test(test_cover__nested),
        cmocka_unit_test(test_cover__cells),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
