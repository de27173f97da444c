/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disk.h - measures how fast several threads read, write and copy models in a folder, with a warm
 * page cache, as conversions find it for a model that was just downloaded or trained.
 */
#ifndef BENCH_DISK_H
#define BENCH_DISK_H

#include "cli/common/work.h"

/* Bytes per second. */
typedef struct bench_disk {
    int32_t threads;
    double read;  /* reading a model into memory and digesting it, as conversions do */
    double write; /* writing new files from memory */
    double copy;  /* sharing by the kernel or, if the file system cannot, reading and writing */
    double cast;  /* f32 to bf16 in a conversion, in bytes of f32, beyond reading and writing */
} bench_disk;

/* A measurement in several turns: begin, turn after turn, read, end. Calls return CLI_DONE, or
 * print a message and return another code. */
typedef struct bench_disk_turns bench_disk_turns;

/* Makes two models of about this many bytes in a new folder inside `inside`; turns need as much
 * space as one of them. sync: times include syncing to disk. End the measurement in any case. */
int bench_disk_begin(cli_work *work, const char *inside, size_t bytes, int32_t threads, int sync,
                     bench_disk_turns **out_turns);
/* in_child: run in a child process, for callers that will fork again, because a turn starts
 * threads. */
int bench_disk_turn(bench_disk_turns *turns, int in_child);
/* The medians of all turns; at least one must have been made. */
bench_disk bench_disk_read(bench_disk_turns *turns);
/* Removes the folder. Does nothing for NULL. */
int bench_disk_end(bench_disk_turns *turns);

/* All of this, with five turns. */
int bench_disk_measure(cli_work *work, const char *inside, size_t bytes, int32_t threads, int sync,
                       bench_disk *out_disk);

#endif
