/* SPDX-License-Identifier: Apache-2.0 */
/*
 * choice.c - see choice.h. The two ways are compared by the shortest of their recent times, because
 * a copy that was interrupted, or that touched fresh pages, takes longer than the way itself needs.
 */
#include "kernel/copy/choice.h"

#include <time.h>

/* Classes: sizes from 64 KiB to 1 GiB by powers of two, and 1, 2, 3 to 4, or more threads. */
enum { SIZE_FIRST = 16, SIZES = 15, THREADS = 4 };

static rs_choice_record records[SIZES][THREADS];
static atomic_uint under_way; /* copies in progress in this process */

static unsigned find_least(const rs_choice_record *record, bool second)
{
    unsigned least = UINT32_MAX;
    for (int i = 0; i < RS_CHOICE_RECENT; i++) {
        unsigned time = atomic_load_explicit(&record->recent[second][i], memory_order_relaxed);
        if (time != 0 && time < least)
            least = time;
    }
    return least;
}

/* Early on the slower way is tried again, because one use of each may have misled: the first of
 * all touches fresh pages, say. If it is a quarter slower even so, the long run is soon enough for
 * the next time. */
static bool is_trial(unsigned uses, unsigned faster, unsigned slower)
{
    bool is_early = uses >= 4 && (uses & (uses - 1)) == 0;
    bool is_clear = uses > 4 && slower / 5 >= faster / 4;
    return uses % RS_CHOICE_AGAIN == 0 || (is_early && !is_clear);
}

bool rs_choice_best(const rs_choice_record *record)
{
    unsigned first = find_least(record, false), second = find_least(record, true);
    return second != UINT32_MAX && second - second / 32 <= first;
}

bool rs_choice_next(rs_choice_record *record)
{
    unsigned uses = atomic_fetch_add_explicit(&record->uses, 1, memory_order_relaxed);
    unsigned firsts = atomic_load_explicit(&record->counts[false], memory_order_relaxed);
    unsigned seconds = atomic_load_explicit(&record->counts[true], memory_order_relaxed);
    if (firsts == 0 || seconds == 0)
        return seconds <= firsts;
    unsigned first = find_least(record, false), second = find_least(record, true);
    unsigned faster = first < second ? first : second, slower = first < second ? second : first;
    bool best = rs_choice_best(record);
    return is_trial(uses, faster, slower) ? !best : best;
}

void rs_choice_note(rs_choice_record *record, bool second, size_t bytes, uint64_t nanoseconds)
{
    unsigned count = atomic_fetch_add_explicit(&record->counts[second], 1, memory_order_relaxed);
    double time = (double)nanoseconds / (double)bytes * (1 << 20);
    unsigned kept = time < 1 ? 1 : time > 1e9 ? 1000000000 : (unsigned)time;
    atomic_store_explicit(&record->recent[second][count % RS_CHOICE_RECENT], kept,
                          memory_order_relaxed);
}

static uint64_t now(void)
{
    struct timespec time = {0};
    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

rs_choice rs_choice_start(rs_choice_record *record)
{
    bool second = rs_choice_next(record);
    return (rs_choice){record, second, now()};
}

void rs_choice_stop(const rs_choice *choice, size_t bytes)
{
    rs_choice_note(choice->record, choice->second, bytes, now() - choice->began);
}

static rs_choice_record *find_record(size_t bytes, unsigned threads)
{
    int size = 0;
    while (size + 1 < SIZES && bytes >> (SIZE_FIRST + size + 1) != 0)
        size++;
    int crowd = threads <= 2 ? (int)threads - 1 : threads <= 4 ? 2 : 3;
    return &records[size][crowd];
}

rs_choice rs_choice_begin_copy(size_t bytes)
{
    unsigned threads = atomic_fetch_add_explicit(&under_way, 1, memory_order_relaxed) + 1;
    return rs_choice_start(find_record(bytes, threads));
}

void rs_choice_end_copy(const rs_choice *choice, size_t bytes)
{
    rs_choice_stop(choice, bytes);
    (void)atomic_fetch_sub_explicit(&under_way, 1, memory_order_relaxed);
}
