/* SPDX-License-Identifier: Apache-2.0 */
/*
 * commands.h - the list of measurements. A new one is a file with its table and its run function,
 * plus a line here, in its program's main.c, and in cli/commands/bench.c.
 */
#ifndef BENCH_COMMANDS_H
#define BENCH_COMMANDS_H

#include "cli/common/options.h"

extern const cli_command bench_command_plan;
extern const cli_command bench_command_move;
extern const cli_command bench_command_convert;
extern const cli_command bench_command_model;
extern const cli_command bench_command_calibrate;
extern const cli_command bench_command_predict;
extern const cli_command bench_command_redistribute;
extern const cli_command bench_command_train;

#endif
