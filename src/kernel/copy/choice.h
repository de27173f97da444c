/* SPDX-License-Identifier: Apache-2.0 */
/*
 * choice.h - decides between two ways to do the same by how long each took: whether a large copy
 * goes through the caches or around them (streaming stores), and in which order it is read.
 *
 * Which way is faster depends on the machine, on the size of the copy (it may or may not fit the
 * last cache) and on how many threads copy at once. No rule holds everywhere, so copies are timed
 * as they happen. Both ways are tried once. Then the faster one is used, and the other is tried
 * again: at the 5th time; unless it is slower by a quarter, at the 9th, 17th and 33rd as well; and
 * then once in 64, so that programs that copy seldom lose little by it. The measurements are kept
 * for the life of the process. Both ways write the same bytes.
 */
#ifndef RS_KERNEL_COPY_CHOICE_H
#define RS_KERNEL_COPY_CHOICE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* After how many times the slower way is tried again in the long run; how many recent times of each
 * way are compared. */
#define RS_CHOICE_AGAIN 64
#define RS_CHOICE_RECENT 8

/* The measurements of one choice. Threads share them without locks: a lost update costs a little
 * time, nothing else. */
typedef struct rs_choice_record {
    atomic_uint uses;
    atomic_uint counts[2];                   /* timed uses of the first and of the second way */
    atomic_uint recent[2][RS_CHOICE_RECENT]; /* ring of times in ns per MiB; 0 if not yet filled */
} rs_choice_record;

/* Chooses the way of the next use: true for the second one, which is taken if both are about the
 * same. */
bool rs_choice_next(rs_choice_record *record);
/* The same where no time is taken: the faster way as far as is known, or else the first. */
bool rs_choice_best(const rs_choice_record *record);
/* Records how long it took for so many bytes. */
void rs_choice_note(rs_choice_record *record, bool second, size_t bytes, uint64_t nanoseconds);

/* A use in progress. */
typedef struct rs_choice {
    rs_choice_record *record;
    bool second;
    uint64_t began; /* ns */
} rs_choice;

/* Choose, and record the time from one call to the other. */
rs_choice rs_choice_start(rs_choice_record *record);
void rs_choice_stop(const rs_choice *choice, size_t bytes);

/* The same for a whole copy of `bytes` bytes by this thread: the second way is to stream. They use
 * this process's records for the size and for the number of threads that copy. */
rs_choice rs_choice_begin_copy(size_t bytes);
void rs_choice_end_copy(const rs_choice *choice, size_t bytes);

#endif
