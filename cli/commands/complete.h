/* SPDX-License-Identifier: Apache-2.0 */
/*
 * complete.h - `reshard complete WORD..`, which shells call; see cli/common/complete.h.
 */
#ifndef CLI_COMMANDS_COMPLETE_H
#define CLI_COMMANDS_COMPLETE_H

#include "cli/common/options.h"

/* Takes the words after "complete". Returns CLI_DONE, or what the program behind `reshard bench`
 * returns. */
int cli_complete(const cli_command *const *commands, int command_count, int argc, char **argv);

#endif
