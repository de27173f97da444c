/* SPDX-License-Identifier: Apache-2.0 */
/*
 * program.h - what all main functions share, and the folder of the running program.
 */
#ifndef CLI_PROGRAM_H
#define CLI_PROGRAM_H

#include <stddef.h>

/* Writes the folder of the running program, without a slash at the end. Returns 0, or -1 when the
 * system does not tell or the buffer is too small. */
int cli_program_folder(char *buffer, size_t bytes);

/* Prints "reshard 0.2.0". */
void cli_program_print_version(void);

/* Turns a command's code into what main returns: checks that all of standard output was written.
 * Until the ranks of an mpirun are connected, only the first one may fail. */
int cli_program_end(int code);

#endif
