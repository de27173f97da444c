/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disk.h - how fast models in a folder are read, written and copied by several threads, page cache
 * warm, as conversions find one that was just downloaded or trained.
 */
#ifndef BENCH_DISK_H
#define BENCH_DISK_H

#include "cli/common/work.h"

/* Bytes a second. */
typedef struct bench_disk {
    int32_t threads;
    double read;  /* a model, to memory and digested, as conversions do it */
    double write; /* new files, from memory */
    double copy;  /* shared by the kernel; where the file system cannot, read and written */
} bench_disk;

/* What is measured, turn by turn: begin, turns, read, end. Calls return CLI_DONE, or print a
 * message and return another code. */
typedef struct bench_disk_turns bench_disk_turns;

/* Makes a model of about so many bytes in a new folder inside this one, which will need as many
 * again. sync: until what was written is on the disk. End it in any case. */
int bench_disk_begin(cli_work *work, const char *inside, size_t bytes, int32_t threads, int sync,
                     bench_disk_turns **out_turns);
/* in_child: in a process of its own, for callers that will fork again, as threads are started. */
int bench_disk_turn(bench_disk_turns *turns, int in_child);
/* The medians of all turns, of which there was one at least. */
bench_disk bench_disk_read(bench_disk_turns *turns);
/* Removes the folder. NULL is fine. */
int bench_disk_end(bench_disk_turns *turns);

/* All of it, in five turns. */
int bench_disk_measure(cli_work *work, const char *inside, size_t bytes, int32_t threads, int sync,
                       bench_disk *out_disk);

#endif
