/* SPDX-License-Identifier: Apache-2.0 */
/*
 * child.h - work done by a process of its own, so that its memory can be told from ours. All of
 * these return CLI_DONE, or another code after a message; a child that was stopped by the user's
 * interrupt counts as failed.
 */
#ifndef BENCH_CHILD_H
#define BENCH_CHILD_H

#include "cli/common/work.h"

typedef struct bench_child_report {
    double seconds;      /* from before it began until it had ended */
    double cpu_seconds;  /* of all its threads, in the kernel as well */
    uint64_t peak_bytes; /* the most memory that was resident, code included */
} bench_child_report;

/* A conversion; running NULL: only planned, with a look at the disk. */
int bench_child_convert(cli_work *work, const char *source, const char *target,
                        const reshard_conversion_options *planning,
                        const reshard_conversion_run_options *running,
                        bench_child_report *out_report);
/* `cp -r`, which must copy with `no_reflink` even where it could share; with `sync` the time until
 * the copy is on disk. */
int bench_child_copy(const char *source, const char *target, int no_reflink, int sync,
                     bench_child_report *out_report);

#endif
