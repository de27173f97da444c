/* SPDX-License-Identifier: Apache-2.0 */
/*
 * choice.c - see choice.h. The two ways are compared by the shortest of their recent times, because
 * a copy that was interrupted, or that touched fresh pages, takes longer than the way itself needs.
 */
#include "kernel/choice.h"

#include <time.h>

/* Classes: sizes from 64 KiB to 1 GiB by powers of two, and 1, 2, 3 to 4, or more threads. */
enum { SIZE_FIRST = 16, SIZES = 15, THREADS = 4 };

static rs_choice_record records[SIZES][THREADS];
static atomic_uint under_way; /* copies in progress in this process */

static unsigned find_least(rs_choice_record *record, bool streams)
{
    unsigned least = UINT32_MAX;
    for (int i = 0; i < RS_CHOICE_RECENT; i++) {
        unsigned time = atomic_load_explicit(&record->recent[streams][i], memory_order_relaxed);
        if (time != 0 && time < least)
            least = time;
    }
    return least;
}

/* Early on the slower way is tried at shrinking rates, because one copy of each may have misled. */
static bool is_trial(unsigned copies)
{
    return copies % RS_CHOICE_AGAIN == 0 || (copies >= 4 && (copies & (copies - 1)) == 0);
}

bool rs_choice_next(rs_choice_record *record)
{
    unsigned copies = atomic_fetch_add_explicit(&record->copies, 1, memory_order_relaxed);
    unsigned cached = atomic_load_explicit(&record->counts[false], memory_order_relaxed);
    unsigned streamed = atomic_load_explicit(&record->counts[true], memory_order_relaxed);
    if (cached == 0 || streamed == 0)
        return streamed <= cached;
    /* If both are about the same, stream, and leave the caches to others. */
    unsigned through = find_least(record, false), around = find_least(record, true);
    bool streams = around - around / 32 <= through;
    return is_trial(copies) ? !streams : streams;
}

void rs_choice_note(rs_choice_record *record, bool streams, size_t bytes, uint64_t nanoseconds)
{
    unsigned count = atomic_fetch_add_explicit(&record->counts[streams], 1, memory_order_relaxed);
    double time = (double)nanoseconds / (double)bytes * (1 << 20);
    unsigned kept = time < 1 ? 1 : time > 1e9 ? 1000000000 : (unsigned)time;
    atomic_store_explicit(&record->recent[streams][count % RS_CHOICE_RECENT], kept,
                          memory_order_relaxed);
}

static uint64_t now(void)
{
    struct timespec time = {0};
    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static rs_choice_record *find_record(size_t bytes, unsigned threads)
{
    int size = 0;
    while (size + 1 < SIZES && bytes >> (SIZE_FIRST + size + 1) != 0)
        size++;
    int crowd = threads <= 2 ? (int)threads - 1 : threads <= 4 ? 2 : 3;
    return &records[size][crowd];
}

rs_choice rs_choice_begin(size_t bytes)
{
    unsigned threads = atomic_fetch_add_explicit(&under_way, 1, memory_order_relaxed) + 1;
    rs_choice_record *record = find_record(bytes, threads);
    bool streams = rs_choice_next(record);
    return (rs_choice){record, streams, now()};
}

void rs_choice_end(const rs_choice *choice, size_t bytes)
{
    rs_choice_note(choice->record, choice->streams, bytes, now() - choice->began);
    (void)atomic_fetch_sub_explicit(&under_way, 1, memory_order_relaxed);
}
