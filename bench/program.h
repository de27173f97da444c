/* SPDX-License-Identifier: Apache-2.0 */
/*
 * program.h - the main function of a program that measures. Its commands have the names that
 * `reshard` gives them, "bench plan", and the program is called with the second word.
 */
#ifndef BENCH_PROGRAM_H
#define BENCH_PROGRAM_H

#include "cli/common/options.h"

/* Runs the command that the arguments of main name; returns what main returns. */
int bench_program_run(const char *program, const cli_command *const *commands, int count, int argc,
                      char **argv);

#endif
