/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench.h - `reshard bench ..`. Measurements are separate programs (see the folder bench/),
 * installed beside the command, which replaces itself with them (exec), so that they inherit
 * mpirun's environment.
 */
#ifndef CLI_COMMANDS_BENCH_H
#define CLI_COMMANDS_BENCH_H

/* Prints one line for each measurement. */
void cli_bench_print_list(void);
/* Takes the arguments after `bench`. Returns an exit code, but only if no program was started. */
int cli_bench_run(int argc, char **argv);
/* Prints the help page of `bench`, or of the measurement that is named. Returns like
 * cli_bench_run. */
int cli_bench_print_help(int argc, char **argv);
/* Completes the last of the words after `bench`. Returns like cli_bench_run. */
int cli_bench_complete(int argc, char **argv);

#endif
