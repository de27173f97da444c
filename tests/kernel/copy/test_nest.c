/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_nest.c - nests against the plain loops over indices: the same pairs of places, in whatever
 * order; the fewest loops, by falling steps of the target; and runs as long as the bytes really
 * follow each other.
 */
#include "kernel/copy/nest.h"
#include "tests/support/check.h"
#include "tests/support/harness.h"

#include <stdlib.h>
#include <string.h>

enum { NDIM = 4, EXTENT = 5, PAIRS_MAX = 625, CASES = 4000 };

typedef struct walk {
    int32_t ndim;
    int32_t source_bytes, target_bytes;
    int64_t size[NDIM], source_strides[NDIM], target_strides[NDIM];
} walk;

/* Where one element comes from and goes to, in bytes. */
typedef struct pair {
    int64_t source, target;
} pair;

typedef struct pairs {
    int64_t count;
    pair items[PAIRS_MAX];
} pairs;

static void draw_strides(draw_state *draw, const walk *given, int64_t *strides)
{
    int32_t order[NDIM] = {0, 1, 2, 3};
    draw_shuffle(draw, given->ndim, order);
    int64_t stride = draw_between(draw, 1, 2);
    for (int32_t i = 0; i < given->ndim; i++) {
        strides[order[i]] = draw_chance(draw, 10) ? -stride : stride;
        stride *= given->size[order[i]] + (draw_chance(draw, 20) ? 1 : 0);
    }
}

static void draw_walk(draw_state *draw, walk *made)
{
    memset(made, 0, sizeof *made);
    made->ndim = (int32_t)draw_between(draw, 0, NDIM);
    made->source_bytes = 1 << draw_below(draw, 4);
    made->target_bytes = draw_chance(draw, 70) ? made->source_bytes : 1 << draw_below(draw, 4);
    for (int32_t d = 0; d < made->ndim; d++)
        made->size[d] = draw_chance(draw, 5) ? 0 : draw_between(draw, 1, EXTENT);
    draw_strides(draw, made, made->source_strides);
    draw_strides(draw, made, made->target_strides);
    if (draw_chance(draw, 30)) /* as copies between alike memories have them */
        memcpy(made->target_strides, made->source_strides, sizeof made->source_strides);
    if (made->ndim != 0 && draw_chance(draw, 10))
        made->source_strides[draw_below(draw, made->ndim)] = 0;
}

static void list_plainly(const walk *given, int32_t dim, pair at, pairs *out)
{
    if (dim == given->ndim || dim == NDIM) {
        out->items[out->count++] = at;
        return;
    }
    for (int64_t i = 0; i < given->size[dim]; i++) {
        list_plainly(given, dim + 1, at, out);
        at.source += given->source_strides[dim] * given->source_bytes;
        at.target += given->target_strides[dim] * given->target_bytes;
    }
}

/* What the nest walks over is never touched: addresses are numbers around the middle of this. */
static unsigned char room[2][1 << 17];

static void list_pair(const void *what, const unsigned char *source, unsigned char *target)
{
    pairs *out = *(pairs *const *)what;
    assert_true(out->count < PAIRS_MAX);
    out->items[out->count++] = (pair){source - room[0], target - room[1]};
}

static int compare_pairs(const void *a, const void *b)
{
    const pair *p = a, *q = b;
    int by_target = (p->target > q->target) - (p->target < q->target);
    return by_target != 0 ? by_target : (p->source > q->source) - (p->source < q->source);
}

static void check_pairs(const walk *given, const rs_nest *nest)
{
    static pairs expected, found;
    pairs *out = &found;
    pair start = {sizeof room[0] / 2, sizeof room[1] / 2};
    expected.count = found.count = 0;
    list_plainly(given, 0, start, &expected);
    assert_int_equal(nest->element_count, expected.count);
    if (nest->element_count != 0)
        rs_nest_walk(nest->loops, nest->count, nest->count == 0 ? 1 : nest->loops[0].size,
                     list_pair, &out, room[0] + start.source, room[1] + start.target);
    assert_int_equal(found.count, expected.count);
    qsort(expected.items, (size_t)expected.count, sizeof *expected.items, compare_pairs);
    qsort(found.items, (size_t)found.count, sizeof *found.items, compare_pairs);
    assert_memory_equal(found.items, expected.items, (size_t)found.count * sizeof *found.items);
}

static void check_loops(const rs_nest *nest)
{
    for (int32_t i = 0; i < nest->count; i++) {
        const rs_loop *a = &nest->loops[i];
        assert_true(a->size > 1);
        if (i > 0)
            assert_true(llabs(nest->loops[i - 1].target_step) >= llabs(a->target_step));
        for (int32_t j = 0; j < nest->count; j++) {
            const rs_loop *b = &nest->loops[j];
            assert_false(i != j && a->source_step == b->source_step * b->size &&
                         a->target_step == b->target_step * b->size);
        }
        int32_t place = rs_nest_find(nest, a->source_step, a->target_step);
        assert_true(place >= 0 && nest->loops[place].source_step == a->source_step);
        int32_t least = rs_nest_least_source(nest);
        assert_true(llabs(nest->loops[least].source_step) <= llabs(a->source_step));
        least = rs_nest_least_target(nest);
        assert_true(llabs(nest->loops[least].target_step) <= llabs(a->target_step));
    }
}

static int compare_places(const void *a, const void *b)
{
    int64_t p = *(const int64_t *)a, q = *(const int64_t *)b;
    return (p > q) - (p < q);
}

/* Every run is a whole number of elements that really follow each other: the places of one side,
 * sorted, come in groups of run / bytes neighbours. */
static void check_run(const walk *given, int64_t run, bool of_source)
{
    static pairs all;
    int64_t places[PAIRS_MAX], bytes = of_source ? given->source_bytes : given->target_bytes;
    all.count = 0;
    list_plainly(given, 0, (pair){0, 0}, &all);
    for (int64_t i = 0; i < all.count; i++)
        places[i] = of_source ? all.items[i].source : all.items[i].target;
    qsort(places, (size_t)all.count, sizeof *places, compare_places);
    assert_int_equal(run % bytes, 0);
    for (int32_t d = 0; d < given->ndim; d++) {
        if (of_source && given->source_strides[d] == 0 && given->size[d] > 1)
            return; /* places repeat */
    }
    int64_t each = run / bytes;
    assert_true(all.count == 0 ? each == 0 : all.count % each == 0);
    for (int64_t i = 0; i < all.count; i++) {
        if (i % each != 0)
            assert_int_equal(places[i], places[i - 1] + bytes);
    }
}

static void check_case(uint64_t seed)
{
    draw_state draw;
    walk given;
    rs_nest nest;
    draw_seed(&draw, seed);
    draw_walk(&draw, &given);
    rs_nest_build(&nest, given.source_bytes, given.target_bytes, given.ndim, given.size,
                  given.source_strides, given.target_strides);
    check_pairs(&given, &nest);
    if (nest.element_count == 0)
        return;
    check_loops(&nest);
    check_run(&given, rs_nest_source_run(&nest, given.source_bytes), true);
    check_run(&given, rs_nest_target_run(&nest, given.target_bytes), false);
}

static void test_nest__as_plain_loops(void **state)
{
    (void)state;
    for (int64_t i = 0; i < harness_count(CASES); i++)
        check_case(harness_seed() + (uint64_t)i);
}

/* A dense box copied into a dense box is one run, however many dims it has. */
static void test_nest__dense_is_one_loop(void **state)
{
    (void)state;
    rs_nest nest;
    const int64_t size[] = {3, 4, 5}, strides[] = {20, 5, 1}, cut[] = {40, 5, 1};
    rs_nest_build(&nest, 4, 4, 3, size, strides, strides);
    assert_int_equal(nest.count, 1);
    assert_int_equal(rs_nest_target_run(&nest, 4), 240);
    rs_nest_build(&nest, 4, 4, 3, size, cut, strides);
    assert_int_equal(nest.count, 2);
    assert_int_equal(rs_nest_source_run(&nest, 4), 80);
    assert_int_equal(rs_nest_target_run(&nest, 4), 240);
    assert_int_equal(rs_nest_find(&nest, 1, 1), -1);
    assert_int_equal(rs_nest_take(&nest, -1).size, 1);
    assert_int_equal(rs_nest_take(&nest, 0).size, 3);
    assert_int_equal(nest.count, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nest__as_plain_loops),
        cmocka_unit_test(test_nest__dense_is_one_loop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
