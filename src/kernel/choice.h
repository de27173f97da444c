/* SPDX-License-Identifier: Apache-2.0 */
/*
 * choice.h - whether large copies go through the caches or around them (streaming stores).
 *
 * Which is faster differs from machine to machine, and on one machine with the size of what is
 * copied (it may fit the last cache or not) and with how many threads copy at once. No rule holds
 * everywhere, so copies are timed as they happen: for each size, by powers of two, and number of
 * threads, both ways are tried a few times, then the faster one is taken, and the other one is
 * tried again now and then. What was measured is kept for the life of the process. The bytes that
 * are written are the same either way.
 */
#ifndef RS_KERNEL_CHOICE_H
#define RS_KERNEL_CHOICE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How often each way is tried at first; in how many copies the slower one is tried once more; how
 * many times of each way are compared. */
#define RS_CHOICE_TRIES 4
#define RS_CHOICE_AGAIN 64
#define RS_CHOICE_RECENT 8

/* What is known of one size and number of threads. Threads share it without locks: a number that is
 * lost costs a little time, nothing else. */
typedef struct rs_choice_record {
    atomic_uint copies;
    atomic_uint counts[2];                   /* of copies that were timed: cached, streaming */
    atomic_uint recent[2][RS_CHOICE_RECENT]; /* ns for each MiB, in turns; 0: none yet */
} rs_choice_record;

/* The way of the next copy: true to stream. */
bool rs_choice_next(rs_choice_record *record);
/* What a copy took. */
void rs_choice_note(rs_choice_record *record, bool streams, size_t bytes, uint64_t nanoseconds);

/* A copy under way. */
typedef struct rs_choice {
    rs_choice_record *record;
    bool streams;
    uint64_t began; /* ns */
} rs_choice;

/* Around a copy of so many bytes by this thread, with this process's records. */
rs_choice rs_choice_begin(size_t bytes);
void rs_choice_end(const rs_choice *choice, size_t bytes);

#endif
