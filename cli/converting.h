/* SPDX-License-Identifier: Apache-2.0 */
/*
 * converting.h - what `reshard convert` and `reshard plan CKPT` share: their options, and how
 * results are printed.
 */
#ifndef CLI_CONVERTING_H
#define CLI_CONVERTING_H

#include "cli/checkpoint_input.h"
#include "cli/common/json.h"
#include "cli/common/options.h"
#include "cli/common/tracing.h"

#include <reshard/conversion.h>

typedef struct cli_converting {
    cli_checkpoint_source source; /* its path is set by the command */
    const char *to, *rules, *format, *only, *html, *dequantize;
    cli_texts dtypes, includes, excludes, renames;
    size_t shard_bytes_max, memory_bytes_max, journal_bytes;
    int32_t threads;
    int resume, verify, dry_run, link, no_sync, quiet, json, all, dtensor;
    cli_tracing tracing;
} cli_converting;

/* The options that fill a cli_converting. The first CLI_PLANNING_OPTIONS are about the plan, the
 * others about carrying it out. */
enum { CLI_PLANNING_OPTIONS = 21, CLI_CONVERTING_OPTIONS = 30 };
extern const cli_option cli_converting_options[CLI_CONVERTING_OPTIONS];

/* Checks that meshes and dtypes parse, before any checkpoint is opened. Returns CLI_DONE, or
 * another code after a message. */
int cli_converting_check(const cli_converting *values);

/* The same values as options of the library's calls: opening, planning, running. */
typedef struct cli_conversion_options {
    cli_checkpoint_source source;
    reshard_conversion_options planning;
    reshard_conversion_run_options running;
} cli_conversion_options;

/* `values` must outlive the options. */
void cli_converting_fill(const cli_converting *values, cli_conversion_options *out_options);

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
reshard_status cli_conversion_plan(reshard_context *context, const cli_conversion_options *options,
                                   cli_conversion *out_made);
void cli_conversion_release(cli_conversion *made);

/* Prints which rules are used, what is left out, what is read and written, and in how much memory.
 * target may be NULL. */
void cli_conversion_print(const cli_conversion *made, const char *target);
/* Prints what a run did, beyond what cli_conversion_print says. */
void cli_conversion_print_report(const cli_conversion *made);
/* Writes all of this as fields of the open JSON object. */
void cli_conversion_write(const cli_conversion *made, cli_json *json);
/* The same, preceded by the fields that all plans have. */
void cli_conversion_plan_write(const cli_conversion *made, cli_json *json);

/* The table of `reshard plan CKPT`. Its options are written to `options`, which must outlive it. */
enum { CLI_PLAN_CHECKPOINT_OPTIONS = CLI_PLANNING_OPTIONS + 2 };
cli_command cli_plan_checkpoint_command(cli_option options[CLI_PLAN_CHECKPOINT_OPTIONS]);
/* Runs `reshard plan CKPT` with the arguments after the command's name. */
int cli_plan_checkpoint(int argc, char **argv);

#endif
