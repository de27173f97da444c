/* SPDX-License-Identifier: Apache-2.0 */
/*
 * failure.h - error messages and exit codes. A message is one line on standard error that begins
 * with "reshard: ". Whoever finds the cause prints it and returns an exit code; callers pass the
 * code on. With --json, standard output gets the message too, as
 * {"error":{"status":"RANGE","text":"..","hint":"none","subject":".."}}, unless a result is there
 * already.
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

/* Looks for --json among a program's arguments, because wrong usage is an error too. */
void cli_failure_init(int argc, char **argv);

/* Prints "reshard: ..." as one line, whatever bytes the arguments hold, and returns `code`. Under
 * mpirun, until the ranks are connected, all ranks are likely to find the same mistake: the first
 * one prints at once, and the others only if it does not end the job (cli_ranks_outlive_first). */
int cli_fail(int code, const char *format, ...) CLI_PRINTF(2, 3);

/* Prints "reshard: warning: " and the line, in the same way. */
void cli_warn(const char *line);

/* The same for the library's last error: its text, and the options that its hint is about. within:
 * put in front of the text as "within: "; may be NULL. */
int cli_fail_library(reshard_status status, int code, const char *within);
/* The same with the code that follows from the status. */
int cli_fail_status(reshard_status status);

/* Says which checkpoint errors are about from now on: the second of two has options of its own. */
void cli_failure_is_of_second(int is_second);

/* Flushes standard output and returns `code`; if it cannot be written, prints a message and returns
 * CLI_FAILED. */
int cli_finish(int code);

#endif
