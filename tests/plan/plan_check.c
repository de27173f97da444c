/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_check.c - the proof of a plan on moves that no planner makes. Plans cannot be changed, so
 * the steps of the proof are called by themselves, with moves that are wrong in one number each.
 */
#include "plan/check.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#undef fail
#include <cmocka.h>

/* A move of 2x3 elements from rank 0 to rank 1. */
static reshard_move make_move(const int64_t *start, const int64_t *size)
{
    static const int64_t strides[] = {3, 1};
    return (reshard_move){.kind = RESHARD_MOVE_COPY,
                          .source_rank = 0,
                          .target_rank = 1,
                          .contributor_count = 1,
                          .ndim = 2,
                          .start = start,
                          .size = size,
                          .source_strides = strides,
                          .target_strides = strides};
}

/* What one end sends is not what the other receives if any of its numbers differs. */
static void test_check__both_ends(void **state)
{
    (void)state;
    const int64_t start[] = {1, 2}, size[] = {2, 3};
    for (int wrong = 0; wrong <= 8; wrong++) {
        int64_t other_start[] = {1, 2}, other_size[] = {2, 3};
        reshard_move received = make_move(start, size), sent = make_move(other_start, other_size);
        checker c = {.sent = &sent, .received = &received, .sent_count = 1, .received_count = 1};
        other_start[0] += wrong == 1;
        other_start[1] -= wrong == 2;
        other_size[0] += wrong == 3;
        other_size[1] -= wrong == 4;
        sent.target_rank += wrong == 5;
        sent.source_at += wrong == 6;
        sent.target_at += wrong == 7;
        sent.source_shard += wrong == 8;
        assert_int_equal(check_both_ends(&c), wrong == 0 ? RESHARD_OK : RESHARD_ERR_CHECK);
        if (wrong != 0)
            assert_non_null(strstr(reshard_error_text(), "nobody sends what is received"));
    }
}

/* Nor may one end have a move more than the other. */
static void test_check__more_at_one_end(void **state)
{
    (void)state;
    const int64_t start[] = {1, 2}, size[] = {2, 3};
    reshard_move move = make_move(start, size);
    checker sent = {.sent = &move, .sent_count = 1};
    checker received = {.received = &move, .received_count = 1};
    assert_int_equal(check_both_ends(&sent), RESHARD_ERR_CHECK);
    assert_int_equal(check_both_ends(&received), RESHARD_ERR_CHECK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_check__both_ends),
        cmocka_unit_test(test_check__more_at_one_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
