/* SPDX-License-Identifier: Apache-2.0 */
/*
 * program.h - what the main functions of the measuring programs share. Commands are named as for
 * `reshard`, such as "bench plan"; the program itself is called with the second word only.
 */
#ifndef BENCH_PROGRAM_H
#define BENCH_PROGRAM_H

#include "cli/common/options.h"

/* Runs the command named by the arguments of main. Returns what main should return. */
int bench_program_run(const char *program, const cli_command *const *commands, int count, int argc,
                      char **argv);

#endif
