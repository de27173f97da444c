/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout_index.c - the boxes that touch a given one, against comparing all of them: any boxes,
 * overlapping, empty and without dims. How long building takes is in layout_overlap.c.
 */
#include "layout/index.h"
#include "tests/support/check.h"
#include "tests/support/context.h"
#include "tests/support/harness.h"

#include <stdlib.h>
#include <string.h>

enum { BOXES_MAX = 200, CASES = 3000 };

static void draw_box(draw_state *draw, int32_t ndim, int64_t extent, int64_t *box)
{
    for (int32_t d = 0; d < ndim; d++) {
        box[d] = draw_below(draw, extent) - extent / 2;
        box[ndim + d] = box[d] + draw_below(draw, draw_chance(draw, 20) ? extent : 4);
    }
}

static bool touch(int32_t ndim, const int64_t *a, const int64_t *b)
{
    for (int32_t d = 0; d < ndim; d++) {
        int64_t low = a[d] > b[d] ? a[d] : b[d];
        int64_t high = a[ndim + d] < b[ndim + d] ? a[ndim + d] : b[ndim + d];
        if (low >= high)
            return false;
    }
    return true;
}

static reshard_status count_visit(void *user, int64_t box)
{
    ((int *)user)[box]++;
    return RESHARD_OK;
}

static void check_case(uint64_t seed)
{
    draw_state draw;
    draw_seed(&draw, seed);
    int32_t ndim = (int32_t)draw_between(&draw, 0, 4);
    int64_t count = draw_below(&draw, BOXES_MAX + 1), extent = draw_between(&draw, 1, 60);
    int64_t boxes[BOXES_MAX * 8], question[8] = {0};
    for (int64_t i = 0; i < count; i++)
        draw_box(&draw, ndim, extent, boxes + i * 2 * ndim);
    rs_arena arena;
    rs_index index;
    rs_arena_init(&arena, NULL);
    assert_int_equal(rs_index_build(&index, &arena, ndim, count, boxes), RESHARD_OK);
    for (int asked = 0; asked < 8; asked++) {
        int visits[BOXES_MAX] = {0};
        draw_box(&draw, ndim, extent, question);
        assert_int_equal(rs_index_visit(&index, question, question + ndim, count_visit, visits),
                         RESHARD_OK);
        for (int64_t i = 0; i < count; i++) {
            if (visits[i] != touch(ndim, boxes + i * 2 * ndim, question))
                fail_msg("box %lld of %lld visited %d times; repeat with RESHARD_TEST_SEED=%llu "
                         "RESHARD_TEST_SCALE=0",
                         (long long)i, (long long)count, visits[i], (unsigned long long)seed);
        }
    }
    rs_arena_release(&arena);
}

static void test_visit__as_comparing_all_says(void **state)
{
    (void)state;
    for (int64_t i = 0; i < harness_count(CASES); i++)
        check_case(harness_seed() + (uint64_t)i);
}

static reshard_status stop_at_third(void *user, int64_t box)
{
    (void)box;
    return ++*(int *)user == 3 ? RESHARD_ERR_CANCELLED : RESHARD_OK;
}

static void test_visit__stops_at_the_first_failure(void **state)
{
    (void)state;
    int64_t boxes[2 * 50];
    for (int64_t i = 0; i < 50; i++) {
        boxes[2 * i] = i;
        boxes[2 * i + 1] = i + 1;
    }
    rs_arena arena;
    rs_index index;
    rs_arena_init(&arena, NULL);
    assert_int_equal(rs_index_build(&index, &arena, 1, 50, boxes), RESHARD_OK);
    int calls = 0;
    assert_int_equal(rs_index_visit(&index, (int64_t[]){0}, (int64_t[]){50}, stop_at_third, &calls),
                     RESHARD_ERR_CANCELLED);
    assert_int_equal(calls, 3);
    rs_arena_release(&arena);
}

static reshard_status build_lines(reshard_context *context, void *user)
{
    rs_arena arena;
    rs_index index;
    rs_arena_init(&arena, context);
    reshard_status status = rs_index_build(&index, &arena, 1, 50, user);
    rs_arena_release(&arena);
    return status;
}

static void test_build__without_memory(void **state)
{
    (void)state;
    int64_t boxes[2 * 50] = {0};
    for (int64_t i = 0; i < 50; i++)
        boxes[2 * i + 1] = i;
    words said = {0};
    if (!context_fail_each(build_lines, boxes, &said))
        fail_msg("%s", said.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_visit__as_comparing_all_says),
        cmocka_unit_test(test_visit__stops_at_the_first_failure),
        cmocka_unit_test(test_build__without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
