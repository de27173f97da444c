/* SPDX-License-Identifier: Apache-2.0 */
/*
 * program.h - what all main functions share, and the folder of the running program.
 */
#ifndef CLI_PROGRAM_H
#define CLI_PROGRAM_H

#include <stddef.h>

/* Writes the folder of the running program, without a slash at the end. Returns 0, or -1 if it
 * cannot be found or the buffer is too small. */
int cli_program_folder(char *buffer, size_t bytes);

/* Prints "reshard 0.3.0". */
void cli_program_print_version(void);

/* Turns a command's exit code into what main returns, after checking that all of standard output
 * was written. A command that a signal stopped returns what shells report for that signal: 130 for
 * SIGINT, 143 for SIGTERM. */
int cli_program_end(int code);

#endif
