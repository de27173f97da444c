/* SPDX-License-Identifier: Apache-2.0 */
/*
 * program.h - what main functions share, and where the program that runs lies.
 */
#ifndef CLI_PROGRAM_H
#define CLI_PROGRAM_H

#include <stddef.h>

/* Writes the folder of the program that runs, without a slash at its end. Returns 0, or -1 when the
 * system does not tell or the buffer is too small. */
int cli_program_folder(char *buffer, size_t bytes);

/* "reshard 0.2.0" */
void cli_program_print_version(void);

/* What main returns for a command's code: makes sure that all of standard output was written, and
 * lets only the first of mpirun's ranks fail before they are connected. */
int cli_program_end(int code);

#endif
