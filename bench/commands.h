/* SPDX-License-Identifier: Apache-2.0 */
/*
 * commands.h - the measurements there are. A new one is a file with its table and its run function,
 * and a line here and in the main function of its program.
 */
#ifndef BENCH_COMMANDS_H
#define BENCH_COMMANDS_H

#include "cli/common/options.h"

extern const cli_command bench_command_plan;
extern const cli_command bench_command_move;
extern const cli_command bench_command_convert;
extern const cli_command bench_command_model;
extern const cli_command bench_command_train;

#endif
