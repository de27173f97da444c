/* SPDX-License-Identifier: Apache-2.0 */
/* pages.c - see pages.h. */
#define _DEFAULT_SOURCE /* madvise and its constants, which _POSIX_C_SOURCE alone hides */
#include "base/pages.h"

#include <assert.h>
#include <stdint.h>
#include <sys/mman.h>
#include <time.h>

/* If the constants were hidden, huge pages would be gone without a word, as they once were. */
#if defined(__linux__) && !defined(MADV_HUGEPAGE)
#error "sys/mman.h does not declare MADV_HUGEPAGE"
#endif
#if defined(__linux__) && !defined(MADV_POPULATE_WRITE)
#define MADV_POPULATE_WRITE 23 /* since Linux 5.14; older C libraries do not declare it */
#endif

/* A huge page that is cleared at less than 1 GB/s takes longer than small pages would. */
#define SLOW_SECONDS ((double)RS_HUGE_PAGE_BYTES / 1e9)
/* How often small pages take the place of a huge one after a slow one; twice as often after each
 * further one, up to 8 doublings. */
#define REST 32u
#define DOUBLINGS_MAX 8u

bool rs_pages_next(rs_pages_record *record)
{
    unsigned rest = atomic_load_explicit(&record->rest, memory_order_relaxed);
    if (rest > 0) {
        atomic_store_explicit(&record->rest, rest - 1, memory_order_relaxed);
        return false;
    }
    if (atomic_load_explicit(&record->fast, memory_order_relaxed))
        return true;
    /* The page is a trial. It is taken to be slow until it has come, so that other threads do not
     * try at the same time. */
    unsigned trials = atomic_fetch_add_explicit(&record->trials, 1, memory_order_relaxed);
    unsigned doublings = trials < DOUBLINGS_MAX ? trials : DOUBLINGS_MAX;
    atomic_store_explicit(&record->rest, REST << doublings, memory_order_relaxed);
    return true;
}

void rs_pages_note(rs_pages_record *record, double seconds)
{
    bool fast = seconds < SLOW_SECONDS;
    bool before = atomic_exchange_explicit(&record->fast, fast, memory_order_relaxed);
    if (fast)
        atomic_store_explicit(&record->trials, 0, memory_order_relaxed);
    if (fast != before)
        atomic_store_explicit(&record->rest, fast ? 0 : REST, memory_order_relaxed);
}

#ifdef __linux__

/* Of this thread alone, so that a page is not slow because others had the processor. */
static double processor_seconds(void)
{
    struct timespec time = {0};
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void make_huge(rs_pages_record *record, char *page)
{
    double began = processor_seconds();
    (void)madvise(page, RS_HUGE_PAGE_BYTES, MADV_POPULATE_WRITE);
    rs_pages_note(record, processor_seconds() - began);
}

/* Advice is given for all that is left, and only when it changes, because giving it waits for the
 * faults of all other threads. */
void rs_pages_make(rs_pages_record *record, void *memory, size_t bytes)
{
    assert((uintptr_t)memory % RS_HUGE_PAGE_BYTES == 0);
    char *page = memory;
    size_t left = bytes;
    int advice = -1;
    for (; left >= RS_HUGE_PAGE_BYTES; left -= RS_HUGE_PAGE_BYTES, page += RS_HUGE_PAGE_BYTES) {
        bool huge = rs_pages_next(record);
        if (advice != (huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE)) {
            advice = huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE;
            (void)madvise(page, left - left % RS_HUGE_PAGE_BYTES, advice);
        }
        if (huge)
            make_huge(record, page);
        else
            (void)madvise(page, RS_HUGE_PAGE_BYTES, MADV_POPULATE_WRITE);
    }
    if (left > 0)
        (void)madvise(page, left, MADV_POPULATE_WRITE);
}

#else

void rs_pages_make(rs_pages_record *record, void *memory, size_t bytes)
{
    (void)record;
    (void)memory;
    (void)bytes;
}

#endif
