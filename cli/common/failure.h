/* SPDX-License-Identifier: Apache-2.0 */
/*
 * failure.h - error messages and exit codes. A message is one line on standard error that begins
 * with "reshard: ". Whoever finds the cause prints it and returns an exit code; callers pass the
 * code on.
 */
#ifndef CLI_FAILURE_H
#define CLI_FAILURE_H

#include <reshard/reshard.h>

enum {
    CLI_DONE = 0,
    CLI_FAILED = 1, /* the machine or the program failed */
    CLI_USAGE = 2   /* the user's input is wrong */
};

#if defined(__GNUC__)
#define CLI_PRINTF(format_index, first) __attribute__((format(printf, format_index, first)))
#else
#define CLI_PRINTF(format_index, first)
#endif

/* Prints "reshard: ..." as one line, whatever bytes the arguments hold, and returns `code`. Under
 * mpirun, only the first rank prints until the ranks are connected. */
int cli_fail(int code, const char *format, ...) CLI_PRINTF(2, 3);

/* The same with the library's text of its last error; the code follows from the status. */
int cli_fail_status(reshard_status status);

/* Flushes standard output and returns `code`; if it cannot be written, prints a message and returns
 * CLI_FAILED. */
int cli_finish(int code);

#endif
