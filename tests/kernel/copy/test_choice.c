/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_choice.c - which way large copies go, with times that the test makes up: nothing here
 * depends on how fast the machine is.
 */
#include "kernel/copy/choice.h"

#include "tests/support/check.h"
#include "tests/support/harness.h"

enum { MIB = 1 << 20 };

/* Runs so many copies, which take this long through the caches and around them, in ns for each MiB;
 * every fifth one ten times as long. The number of those that streamed. */
static int run_copies(rs_choice_record *record, int count, uint64_t cached, uint64_t streaming)
{
    static int copies;
    int streamed = 0;
    for (int i = 0; i < count; i++) {
        bool streams = rs_choice_next(record);
        uint64_t time = 16 * (streams ? streaming : cached);
        rs_choice_note(record, streams, (size_t)16 * MIB, copies++ % 5 == 0 ? 10 * time : time);
        streamed += streams;
    }
    return streamed;
}

/* How many of 6400 copies try the slower way again, once the first 64 are over. */
enum { FIRST = RS_CHOICE_AGAIN, MANY = 6400, AGAIN = MANY / RS_CHOICE_AGAIN };

/* Of the first copies only those count that are listed in choice.h: one of each way, and the
 * trials. */
static void test_choice__few_trials(void **state)
{
    (void)state;
    rs_choice_record cached = {0}, streaming = {0}, close = {0};
    assert_int_equal(run_copies(&cached, 4, 1000, 90000), 1);
    assert_int_equal(run_copies(&cached, 1, 1000, 90000), 1);
    assert_int_equal(run_copies(&cached, FIRST - 5, 1000, 90000), 0);
    assert_int_equal(run_copies(&streaming, 4, 90000, 1000), 3);
    assert_int_equal(run_copies(&streaming, 1, 90000, 1000), 0);
    assert_int_equal(run_copies(&streaming, FIRST - 5, 90000, 1000), FIRST - 5);
    assert_int_equal(run_copies(&close, 4, 80000, 98000), 1);
    assert_int_equal(run_copies(&close, FIRST - 4, 80000, 98000), 4);
}

/* What is known without a trial. */
static void test_choice__best(void **state)
{
    (void)state;
    rs_choice_record record = {0};
    assert_false(rs_choice_best(&record));
    rs_choice_note(&record, true, (size_t)MIB, 90000);
    assert_true(rs_choice_best(&record));
    rs_choice_note(&record, false, (size_t)MIB, 89000); /* about the same */
    assert_true(rs_choice_best(&record));
    rs_choice_note(&record, false, (size_t)MIB, 70000);
    assert_false(rs_choice_best(&record));
    assert_int_equal(record.uses, 0);
    rs_choice choice = rs_choice_start(&record);
    rs_choice_stop(&choice, (size_t)MIB);
    assert_int_equal(record.uses, 1);
    assert_int_equal(record.counts[choice.second], choice.second ? 2 : 3);
}

/* The first copy of all touches fresh pages; that it was slow is soon forgotten. */
static void test_choice__misled(void **state)
{
    (void)state;
    rs_choice_record record = {0};
    assert_true(rs_choice_next(&record));
    rs_choice_note(&record, true, (size_t)MIB, 900000);
    for (int i = 1; i < FIRST; i++) {
        bool streams = rs_choice_next(&record);
        assert_int_equal(streams, i >= 4);
        rs_choice_note(&record, streams, (size_t)MIB, streams ? 70000 : 90000);
    }
}

static void test_choice__the_faster_way(void **state)
{
    (void)state;
    rs_choice_record record = {0};
    (void)run_copies(&record, FIRST, 70000, 90000);
    assert_int_equal(run_copies(&record, MANY, 70000, 90000), AGAIN);
    rs_choice_record other = {0};
    (void)run_copies(&other, FIRST, 90000, 70000);
    assert_int_equal(run_copies(&other, MANY, 90000, 70000), MANY - AGAIN);
}

/* Where both are about the same, the caches are left alone; a twentieth is worth them. */
static void test_choice__about_the_same(void **state)
{
    (void)state;
    rs_choice_record record = {0}, better = {0};
    (void)run_copies(&record, FIRST, 80000, 81000);
    assert_int_equal(run_copies(&record, MANY, 80000, 81000), MANY - AGAIN);
    (void)run_copies(&better, FIRST, 80000, 84000);
    assert_int_equal(run_copies(&better, MANY, 80000, 84000), AGAIN);
}

/* The machine becomes another one: others use its caches, say. */
static void test_choice__follows(void **state)
{
    (void)state;
    rs_choice_record record = {0};
    (void)run_copies(&record, MANY, 70000, 90000);
    (void)run_copies(&record, 2 * RS_CHOICE_RECENT, 120000, 90000);
    assert_int_equal(run_copies(&record, MANY, 120000, 90000), MANY - AGAIN);
    (void)run_copies(&record, RS_CHOICE_RECENT * RS_CHOICE_AGAIN, 70000, 90000);
    assert_int_equal(run_copies(&record, MANY, 70000, 90000), AGAIN);
}

/* Times of no length and of years are times as well. */
static void test_choice__odd_times(void **state)
{
    (void)state;
    rs_choice_record record = {0};
    for (int i = 0; i < 4 * RS_CHOICE_RECENT; i++)
        rs_choice_note(&record, i % 2 == 0, (size_t)MIB, i % 2 == 0 ? 0 : UINT64_MAX);
    assert_int_equal(run_copies(&record, 1, 1, 1), 0); /* the first one tries again */
    assert_true(rs_choice_next(&record));
}

/* Sizes by powers of two, and the number of copies that are under way, are measured apart. */
static void test_choice__sizes_and_threads(void **state)
{
    (void)state;
    static const size_t same[] = {(size_t)16 * MIB, (size_t)31 * MIB};
    rs_choice alone = rs_choice_begin_copy(same[0]), second = rs_choice_begin_copy(same[0]);
    rs_choice third = rs_choice_begin_copy(same[0]), fourth = rs_choice_begin_copy(same[0]);
    rs_choice fifth = rs_choice_begin_copy(same[0]);
    assert_ptr_not_equal(alone.record, second.record);
    assert_ptr_not_equal(second.record, third.record);
    assert_ptr_equal(third.record, fourth.record);
    assert_ptr_not_equal(fourth.record, fifth.record);
    const rs_choice *all[] = {&alone, &second, &third, &fourth, &fifth};
    for (int i = 0; i < 5; i++)
        rs_choice_end_copy(all[i], same[0]);
    static const size_t others[] = {1, (size_t)64 << 10, (size_t)32 * MIB, (size_t)1 << 30,
                                    SIZE_MAX};
    for (int i = 0; i < 5; i++) {
        rs_choice other = rs_choice_begin_copy(others[i]);
        assert_ptr_not_equal(other.record, alone.record);
        rs_choice_end_copy(&other, others[i]);
    }
    rs_choice again = rs_choice_begin_copy(same[1]);
    assert_ptr_equal(again.record, alone.record);
    rs_choice_end_copy(&again, same[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choice__few_trials),
        cmocka_unit_test(test_choice__best),
        cmocka_unit_test(test_choice__misled),
        cmocka_unit_test(test_choice__the_faster_way),
        cmocka_unit_test(test_choice__about_the_same),
        cmocka_unit_test(test_choice__follows),
        cmocka_unit_test(test_choice__odd_times),
        cmocka_unit_test(test_choice__sizes_and_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
