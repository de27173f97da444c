/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_pages.c - fresh blocks: when huge pages are asked for, with times that the test makes up,
 * and that the system really is asked, by what it says about the block and by counting page faults.
 */
#include "base/context.h"
#include "base/pages.h"
#include "tests/support/check.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#define MIB ((size_t)1 << 20)

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 }; /* their own allocators answer */
#else
enum { SANITIZED = 0 };
#endif

static const double FAST = 0.0003, SLOW = 0.005;

/* Counts how many are small before the next huge page, and lets that one take so long. */
static int count_small(rs_pages_record *record, double seconds)
{
    int small = 0;
    while (!rs_pages_next(record))
        small++;
    rs_pages_note(record, seconds);
    return small;
}

static void test_pages__fast_ones_are_all_huge(void **state)
{
    (void)state;
    rs_pages_record record = {0};
    for (int i = 0; i < 100; i++)
        assert_int_equal(count_small(&record, FAST), 0);
}

static void test_pages__slow_ones_are_tried_seldom(void **state)
{
    (void)state;
    rs_pages_record record = {0};
    assert_int_equal(count_small(&record, SLOW), 0);
    int before = count_small(&record, SLOW), all = before;
    assert_true(before >= 8);
    for (int i = 0; i < 20; i++) {
        int small = count_small(&record, SLOW);
        assert_true(small == 2 * before || (small == before && i >= 7));
        before = small;
        all += small;
    }
    /* Memory comes back to the guest: huge pages at once, and a slow one counts as the first. */
    (void)count_small(&record, FAST);
    assert_int_equal(count_small(&record, FAST), 0);
    assert_int_equal(count_small(&record, SLOW), 0);
    assert_true(count_small(&record, SLOW) < before);
    assert_true(all > 20 * 256);
}

/* While one thread waits for a page that may be slow, others do not ask for one too. */
static void test_pages__one_trial_at_a_time(void **state)
{
    (void)state;
    rs_pages_record record = {0};
    assert_true(rs_pages_next(&record));
    assert_false(rs_pages_next(&record));
    rs_pages_note(&record, FAST);
    assert_true(rs_pages_next(&record));
    assert_true(rs_pages_next(&record));
}

/* The flags that the system shows for the mapping of this address; false if it shows none. */
static bool read_flags(const void *address, char *flags, size_t size)
{
    FILE *file = fopen("/proc/self/smaps", "r");
    bool inside = false, found = false;
    char line[512];
    while (file != NULL && !found && fgets(line, sizeof line, file) != NULL) {
        unsigned long long from, to;
        if (sscanf(line, "%llx-%llx ", &from, &to) == 2)
            inside = from <= (uintptr_t)address && (uintptr_t)address < to;
        found = inside && strncmp(line, "VmFlags:", 8) == 0;
        if (found)
            (void)snprintf(flags, size, "%s", line);
    }
    if (file != NULL)
        (void)fclose(file);
    return found;
}

static bool system_has_huge_pages(void)
{
    FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "r");
    if (file != NULL)
        (void)fclose(file);
    return file != NULL;
}

static void test_pages__the_system_is_asked(void **state)
{
    (void)state;
    char first[512], last[512];
    if (SANITIZED || !system_has_huge_pages())
        skip();
    char *memory = rs_block_allocate(NULL, 64 * MIB);
    assert_non_null(memory);
    bool shown =
        read_flags(memory, first, sizeof first) && read_flags(memory + 62 * MIB, last, sizeof last);
    rs_block_release(NULL, memory, 64 * MIB);
    if (!shown)
        skip();
    assert_non_null(strstr(first, " hg")); /* the first page is always a trial */
    assert_true(strstr(last, " hg") != NULL || strstr(last, " nh") != NULL);
}

static long count_faults(void)
{
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    return usage.ru_minflt;
}

static void test_pages__writing_does_not_fault(void **state)
{
    (void)state;
    rs_pages_record probe = {0};
    static char aligned[2 * RS_HUGE_PAGE_BYTES + RS_HUGE_PAGE_BYTES];
    char *begin = aligned + (RS_HUGE_PAGE_BYTES - (uintptr_t)aligned % RS_HUGE_PAGE_BYTES);
    long before = count_faults();
    rs_pages_make(&probe, begin, RS_HUGE_PAGE_BYTES);
    bool makes = count_faults() > before;
    if (SANITIZED || !makes) /* older than Linux 5.14 */
        skip();
    size_t bytes = 33 * MIB + 4096 + 1;
    char *memory = rs_block_allocate(NULL, bytes);
    assert_non_null(memory);
    before = count_faults();
    for (size_t i = 0; i < bytes; i += 4096)
        memory[i] = 1;
    memory[bytes - 1] = 1;
    long faults = count_faults() - before;
    rs_block_release(NULL, memory, bytes);
    assert_true(faults < 64); /* of 8,450 pages; some belong to others */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pages__fast_ones_are_all_huge),
        cmocka_unit_test(test_pages__slow_ones_are_tried_seldom),
        cmocka_unit_test(test_pages__one_trial_at_a_time),
        cmocka_unit_test(test_pages__the_system_is_asked),
        cmocka_unit_test(test_pages__writing_does_not_fault),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
