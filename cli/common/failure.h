/* SPDX-License-Identifier: Apache-2.0 */
/*
 * failure.h - how the command says that something is wrong: one line on standard error that begins
 * with "reshard: ", and one of three exit codes. Whoever finds the cause reports it and returns the
 * code; callers pass the code on.
 */
#ifndef CLI_FAILURE_H
#define CLI_FAILURE_H

#include <reshard/reshard.h>

enum {
    CLI_DONE = 0,
    CLI_FAILED = 1, /* the machine failed, or we did */
    CLI_USAGE = 2   /* what the user wrote is wrong */
};

#if defined(__GNUC__)
#define CLI_PRINTF(format_index, first) __attribute__((format(printf, format_index, first)))
#else
#define CLI_PRINTF(format_index, first)
#endif

/* Prints "reshard: ..." as one line, whatever bytes the arguments hold, and returns `code`. Until
 * the ranks of an mpirun are connected, only the first one prints. */
int cli_fail(int code, const char *format, ...) CLI_PRINTF(2, 3);

/* The same with the library's words for its last error; the code follows from the status. */
int cli_fail_status(reshard_status status);

/* Flushes standard output and returns `code`, or reports that it could not be written. */
int cli_finish(int code);

#endif
