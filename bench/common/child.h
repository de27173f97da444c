/* SPDX-License-Identifier: Apache-2.0 */
/*
 * child.h - work done in a child process, so that its memory can be measured separately. All calls
 * return CLI_DONE, or print a message and return another code; a child that the user interrupts
 * counts as failed.
 */
#ifndef BENCH_CHILD_H
#define BENCH_CHILD_H

#include "cli/common/work.h"

typedef struct bench_child_report {
    double seconds;      /* from before its start until it has ended */
    double cpu_seconds;  /* of all its threads, user and system */
    uint64_t peak_bytes; /* peak resident memory, code included */
} bench_child_report;

/* Runs a conversion. running NULL: only plans it and estimates its time. */
int bench_child_convert(cli_work *work, const char *source, const char *target,
                        const reshard_conversion_options *planning,
                        const reshard_conversion_run_options *running,
                        bench_child_report *out_report);
/* Runs anything else. what: a name for messages. The body prints its own messages, and returns a
 * code like these calls. */
int bench_child_run(cli_work *work, int (*body)(void *user), void *user, const char *what,
                    bench_child_report *out_report);
/* Runs `cp -r`. no_reflink: cp must copy even if it could share blocks. sync: the time includes
 * syncing the copy to disk. */
int bench_child_copy(const char *source, const char *target, int no_reflink, int sync,
                     bench_child_report *out_report);

#endif
