/* SPDX-License-Identifier: Apache-2.0 */
/*
 * program.h - what the main functions of measuring programs share. Commands have the names that
 * `reshard` gives them, such as "bench plan"; the program itself is called with the second word.
 */
#ifndef BENCH_PROGRAM_H
#define BENCH_PROGRAM_H

#include "cli/common/options.h"

/* Runs the command named by the arguments of main. Returns what main should return. */
int bench_program_run(const char *program, const cli_command *const *commands, int count, int argc,
                      char **argv);

#endif
