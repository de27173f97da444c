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
    double write; /* one new file, from memory */
    double copy;  /* one file to another, by the kernel */
} bench_disk;

/* Works in a new folder inside this one, with two times `bytes`, and removes it. sync: until what
 * was written is on the disk. Returns CLI_DONE, or prints a message and returns another code. */
int bench_disk_measure(cli_work *work, const char *inside, size_t bytes, int32_t threads, int sync,
                       bench_disk *out_disk);

#endif
