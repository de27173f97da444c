/* SPDX-License-Identifier: Apache-2.0 */
/*
 * commands.h - the list of commands. A new one is a file with its table and its run function, plus
 * a line here and in main.c.
 */
#ifndef CLI_COMMANDS_COMMANDS_H
#define CLI_COMMANDS_COMMANDS_H

#include "cli/common/options.h"

extern const cli_command cli_command_layout;
extern const cli_command cli_command_plan;
extern const cli_command cli_command_plan_checkpoint; /* `reshard plan CKPT` */
extern const cli_command cli_command_convert;
extern const cli_command cli_command_info;
extern const cli_command cli_command_inspect;
extern const cli_command cli_command_digest;
extern const cli_command cli_command_rules;
extern const cli_command cli_command_verify;

#endif
