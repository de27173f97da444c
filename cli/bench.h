/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench.h - `reshard bench ..`. Measurements are programs of their own (the folder bench/),
 * installed beside the command, which becomes one of them: so mpirun's environment survives.
 */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

/* One line for each measurement. */
void cli_bench_print_list(void);
/* Arguments behind `bench`. Returns only when there is nothing to start, with a code. */
int cli_bench_run(int argc, char **argv);
/* The page of `bench`, or of the measurement that the arguments name. Returns as cli_bench_run. */
int cli_bench_print_help(int argc, char **argv);

#endif
