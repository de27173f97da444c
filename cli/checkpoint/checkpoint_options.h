/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint_options.h - the options of the commands about checkpoints (checkpoint_options.def),
 * parsed straight into the structs that the library takes.
 */
#ifndef CLI_CHECKPOINT_CHECKPOINT_OPTIONS_H
#define CLI_CHECKPOINT_CHECKPOINT_OPTIONS_H

#include "cli/common/drawing.h"
#include "cli/common/options.h"
#include "cli/common/tracing.h"

#include <reshard/comparison.h>
#include <reshard/conversion.h>

/* The commands, as cli_command.takes has them. */
enum {
    CLI_CONVERT = CLI_COMMAND,
    CLI_PLAN = CLI_COMMAND << 1,
    CLI_VERIFY = CLI_COMMAND << 2,
    CLI_DIGEST = CLI_COMMAND << 3,
    CLI_INSPECT = CLI_COMMAND << 4,
    CLI_ALL = CLI_CONVERT | CLI_PLAN | CLI_VERIFY | CLI_DIGEST | CLI_INSPECT
};

/* What the user has said. */
typedef struct cli_checkpoint_values {
    const char *paths[2]; /* the operands */
    reshard_checkpoint_options opening, opening_b;
    reshard_conversion_options planning;
    reshard_conversion_run_options running;
    reshard_comparison_options comparing;
    reshard_digest_options digesting;
    reshard_view_options viewing;
    cli_texts set, dtype, include, exclude, rename; /* what the lists in the structs point to */
    cli_texts tolerances;
    cli_tracing tracing;
    cli_drawing drawing;
    const char *html, *cluster, *drawn; /* drawn: the tensor to draw */
    int dry_run, quiet, json, all, values, tensors, sha256;
} cli_checkpoint_values;

/* The rows of all these commands. */
enum {
    CLI_CHECKPOINT_OPTION_COUNT = 0
#define OPTION(...) +1
#define OPTION_LIST(...) +1
#include "cli/checkpoint/checkpoint_options.def"
#undef OPTION
#undef OPTION_LIST
};
extern const cli_option cli_checkpoint_options[CLI_CHECKPOINT_OPTION_COUNT];

/* Parses the arguments into *values, whose structs have their sizes afterwards. A source that has
 * no rules of its own is split by those of the conversion, and keeps its names then, so that only
 * the conversion renames tensors. `values` must not move afterwards. Returns CLI_DONE, or another
 * code after a message. */
int cli_checkpoint_parse(const cli_command *command, int argc, char **argv,
                         cli_checkpoint_values *values);

#endif
