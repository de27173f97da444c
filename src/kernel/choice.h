/* SPDX-License-Identifier: Apache-2.0 */
/*
 * choice.h - decides whether a large copy goes through the caches or around them (streaming
 * stores).
 *
 * Which way is faster depends on the machine, on the size of the copy (it may or may not fit the
 * last cache) and on how many threads copy at once. No rule holds everywhere, so copies are timed
 * as they happen. For each size class and number of threads, both ways are tried once. Then the
 * faster one is used, and the other is tried again: at the 5th, 9th, 17th and 33rd copy, and then
 * once in 64, so that programs that copy seldom lose little by it. The measurements are kept for
 * the life of the process. Both ways write the same bytes.
 */
#ifndef RS_KERNEL_CHOICE_H
#define RS_KERNEL_CHOICE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* After how many copies the slower way is tried again in the long run; how many recent times of
 * each way are compared. */
#define RS_CHOICE_AGAIN 64
#define RS_CHOICE_RECENT 8

/* The measurements for one size class and number of threads. Threads share them without locks: a
 * lost update costs a little time, nothing else. */
typedef struct rs_choice_record {
    atomic_uint copies;
    atomic_uint counts[2];                   /* timed copies: cached, streaming */
    atomic_uint recent[2][RS_CHOICE_RECENT]; /* ring of times in ns per MiB; 0 if not yet filled */
} rs_choice_record;

/* Chooses the way of the next copy: true to stream. */
bool rs_choice_next(rs_choice_record *record);
/* Records the time of a copy. */
void rs_choice_note(rs_choice_record *record, bool streams, size_t bytes, uint64_t nanoseconds);

/* A copy in progress. */
typedef struct rs_choice {
    rs_choice_record *record;
    bool streams;
    uint64_t began; /* ns */
} rs_choice;

/* Called before and after a copy of `bytes` bytes by this thread. They use this process's
 * records. */
rs_choice rs_choice_begin(size_t bytes);
void rs_choice_end(const rs_choice *choice, size_t bytes);

#endif
