/* SPDX-License-Identifier: Apache-2.0 */
/*
 * converting.h - what `reshard convert` and `reshard plan CKPT` share: planning, and how results
 * are printed.
 */
#ifndef CLI_CHECKPOINT_CONVERTING_H
#define CLI_CHECKPOINT_CONVERTING_H

#include "cli/checkpoint/checkpoint_options.h"
#include "cli/common/json.h"

/* A planned conversion, and what is known about it. */
typedef struct cli_conversion {
    reshard_checkpoint *checkpoint;
    reshard_conversion *conversion;
    reshard_conversion_stats stats;
    reshard_conversion_report report; /* of a run; before it, what is planned */
    int casts;                        /* so values may overflow */
} cli_conversion;

/* Opens the checkpoint and plans. Collective over planning.group, if there is one. Release in any
 * case. */
reshard_status cli_conversion_plan(reshard_context *context, const cli_checkpoint_values *values,
                                   cli_conversion *out_made);
void cli_conversion_release(cli_conversion *made);

/* Prints warnings on standard error. */
void cli_conversion_warn(const cli_conversion *made);
/* Prints which rules are used, what is left out, what is read and written, and in how much memory.
 * target may be NULL. */
void cli_conversion_print(const cli_conversion *made, const char *target);
/* Prints what a run did, beyond what cli_conversion_print says. */
void cli_conversion_print_report(const cli_conversion *made);
/* Writes all of this as fields of the open JSON object. */
void cli_conversion_write(const cli_conversion *made, cli_json *json);
/* The same, preceded by the fields that all plans have. */
void cli_conversion_plan_write(const cli_conversion *made, cli_json *json);

#endif
