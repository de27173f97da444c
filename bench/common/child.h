/* SPDX-License-Identifier: Apache-2.0 */
/*
 * child.h - work done in a child process, so that its memory can be measured apart from ours. All
 * calls return CLI_DONE, or print a message and return another code; a child stopped by the user's
 * interrupt counts as failed.
 */
#ifndef BENCH_CHILD_H
#define BENCH_CHILD_H

#include "cli/common/work.h"

typedef struct bench_child_report {
    double seconds;      /* from before it started until it had ended */
    double cpu_seconds;  /* of all its threads, in the kernel as well */
    uint64_t peak_bytes; /* the most memory that was resident, code included */
} bench_child_report;

/* A conversion; running NULL: only planned, with a look at the disk. */
int bench_child_convert(cli_work *work, const char *source, const char *target,
                        const reshard_conversion_options *planning,
                        const reshard_conversion_run_options *running,
                        bench_child_report *out_report);
/* Anything else. `what` is for messages; the body prints its own, and returns a code as these
 * do. */
int bench_child_run(cli_work *work, int (*body)(void *user), void *user, const char *what,
                    bench_child_report *out_report);
/* Runs `cp -r`. no_reflink: cp must copy even where it could share blocks. sync: the time includes
 * syncing the copy to disk. */
int bench_child_copy(const char *source, const char *target, int no_reflink, int sync,
                     bench_child_report *out_report);

#endif
