/* SPDX-License-Identifier: Apache-2.0 */
/*
 * converting.h - what `reshard convert` and `reshard plan CKPT` share: the options that say what to
 * write, and how the results are printed.
 */
#ifndef CLI_CONVERTING_H
#define CLI_CONVERTING_H

#include "cli/common/json.h"
#include "cli/common/options.h"
#include "cli/common/tracing.h"

#include <reshard/conversion.h>

typedef struct cli_converting {
    const char *to, *rules, *from, *from_rules, *format, *only, *unlisted, *padding, *html;
    const char *dequantize;
    cli_texts sets, dtypes, includes, excludes, renames;
    size_t shard_bytes_max, memory_bytes_max, journal_bytes;
    int32_t threads;
    int resume, verify, dry_run, link, no_sync, quiet, json, all, dtensor;
    cli_tracing tracing;
} cli_converting;

/* They fill a cli_converting. The first ones are about the plan, the others about carrying it
 * out. */
enum { CLI_PLANNING_OPTIONS = 21, CLI_CONVERTING_OPTIONS = 30 };
extern const cli_option cli_converting_options[CLI_CONVERTING_OPTIONS];

/* Refuses meshes and dtypes that do not parse, before any checkpoint is opened. Returns CLI_DONE,
 * or another code after a message. */
int cli_converting_check(const cli_converting *values);

/* The same for the library's calls, one after the other. */
typedef struct cli_conversion_options {
    reshard_checkpoint_options opening;
    reshard_conversion_options planning;
    reshard_conversion_run_options running;
} cli_conversion_options;

/* `values` must outlive the options. */
void cli_converting_fill(const cli_converting *values, cli_conversion_options *out_options);

/* A conversion that is planned, and what is known of it. */
typedef struct cli_conversion {
    reshard_checkpoint *checkpoint;
    reshard_conversion *conversion;
    reshard_conversion_stats stats;
    reshard_conversion_report report; /* of a run, or what is planned */
    int casts;                        /* values may overflow */
} cli_conversion;

/* Opens the checkpoint and plans. Collective over planning.group, if there is one. Release in any
 * case. */
reshard_status cli_conversion_plan(reshard_context *context, const char *path,
                                   const cli_conversion_options *options, cli_conversion *out_made);
void cli_conversion_release(cli_conversion *made);

/* Prints which rules, what is left out, what is read and written, and in how much memory. target:
 * NULL when there is none. */
void cli_conversion_print(const cli_conversion *made, const char *target);
/* Prints what a run has done beyond that. */
void cli_conversion_print_report(const cli_conversion *made);
/* All of it as fields of an object. */
void cli_conversion_write(const cli_conversion *made, cli_json *json);
/* The same after the fields that all plans have. */
void cli_conversion_plan_write(const cli_conversion *made, cli_json *json);

/* Its table; the options, which it refers to, are written to `options`. */
enum { CLI_PLAN_CHECKPOINT_OPTIONS = CLI_PLANNING_OPTIONS + 2 };
cli_command cli_plan_checkpoint_command(cli_option options[CLI_PLAN_CHECKPOINT_OPTIONS]);
/* `reshard plan` of a checkpoint, with the arguments after the command's name. */
int cli_plan_checkpoint(int argc, char **argv);

#endif
