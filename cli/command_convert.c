/* SPDX-License-Identifier: Apache-2.0 */
/*
 * command_convert.c - `reshard convert`: converts a checkpoint to another split, format or dtype.
 */
#include "cli/commands.h"
#include "cli/common/failure.h"
#include "cli/common/ranks.h"
#include "cli/common/sizes.h"
#include "cli/common/work.h"
#include "cli/converting.h"
#include "cli/plan_page.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

/* One run of the command: what was asked for, the conversion, and its timing. */
typedef struct conversion {
    cli_work work;
    const char *target;
    cli_conversion_options options;
    int dry_run, prints; /* prints: this rank prints text */
    cli_conversion made;
    double seconds;       /* measured or, with dry_run, estimated */
    cli_tracing *tracing; /* NULL: no trace */
    reshard_trace *trace;
} conversion;

static void print_json(const conversion *c)
{
    cli_json json = {.stream = stdout};
    cli_json_begin_object(&json, NULL);
    cli_conversion_write(&c->made, &json);
    cli_json_seconds(&json, c->dry_run ? "seconds_estimated" : "seconds", c->seconds);
    cli_json_end_object(&json);
    putchar('\n');
}

static void print_text(const conversion *c)
{
    char rate[CLI_SIZE_TEXT];
    double written = (double)c->made.report.bytes_written;
    if (c->dry_run) {
        printf("about %.1f s; nothing was written\n", c->seconds);
        return;
    }
    cli_conversion_print_report(&c->made);
    printf("done in %.1f s, %s/s\n", c->seconds,
           cli_size_text((uint64_t)(written / (c->seconds + 1e-9)), rate));
}

/* ---- one process, or each rank of mpirun ----------------------------------------------------- */

/* The first rank estimates for all, since they write to the same disk. */
static reshard_status estimate(conversion *c, reshard_group *group)
{
    reshard_status status = RESHARD_OK;
    if (cli_ranks_are_first())
        status = reshard_conversion_estimate(c->made.conversion, c->target, &c->options.running,
                                             &c->seconds);
    return group != NULL ? reshard_group_agree(group, status) : status;
}

/* A single process writes its trace even after a failure. The original error text is preserved. */
static reshard_status write_trace(const conversion *c, reshard_group *group, reshard_status status)
{
    char words[4096]; /* as long as the library's error texts */
    if (c->trace == NULL || (status != RESHARD_OK && group != NULL))
        return status;
    (void)snprintf(words, sizeof words, "%s", reshard_error_text());
    reshard_status written = reshard_trace_write(c->trace);
    return status == RESHARD_OK ? written : reshard_error_set(status, words);
}

static reshard_status convert_rank(void *user, reshard_group *group)
{
    conversion *c = user;
    double started = cli_seconds();
    c->options.planning.group = group;
    reshard_status status = cli_conversion_plan(c->work.context, &c->options, &c->made);
    /* Print the plan before the progress bar starts, so the user can interrupt a wrong one. */
    if (status == RESHARD_OK && c->prints) {
        cli_work_hide_bar();
        cli_conversion_print(&c->made, c->target);
        fflush(stdout);
    }
    if (status == RESHARD_OK && c->dry_run) {
        status = estimate(c, group);
    } else if (status == RESHARD_OK) {
        status = reshard_conversion_run(c->made.conversion, c->target, &c->options.running,
                                        &c->made.report);
        c->seconds = cli_seconds() - started;
    }
    return status;
}

static reshard_status convert_traced(void *user, reshard_group *group)
{
    conversion *c = user;
    reshard_status status = RESHARD_OK;
    if (c->tracing != NULL)
        status = cli_tracing_create(c->tracing, group, &c->trace);
    if (status != RESHARD_OK)
        return status;
    c->options.planning.trace = c->trace;
    return write_trace(c, group, convert_rank(c, group));
}

/* The library's error text does not know the command's options. */
static const char *find_hint(reshard_status status)
{
    /* A run that was cancelled before it wrote anything names no partial output. */
    int can_resume =
        status == RESHARD_ERR_UNFINISHED ||
        (status == RESHARD_ERR_CANCELLED && strstr(reshard_error_text(), ".partial") != NULL);
    return can_resume ? "--resume continues it" : NULL;
}

static int write_page(const conversion *c, const char *path, int argc, char **argv)
{
    cli_page page;
    int code = cli_page_begin(&page, path, "convert", argc, argv);
    if (code == CLI_DONE && cli_conversion_page_write(&c->made, c->seconds, &page) != RESHARD_OK)
        code = cli_fail(CLI_FAILED, "%s", reshard_error_text());
    return cli_page_end(&page, code);
}

static int run(const cli_command *command, int argc, char **argv)
{
    cli_converting values = {0};
    const char *paths[2] = {NULL, NULL};
    conversion c = {.target = NULL};
    int code = cli_options_parse(command, argc, argv, &values, paths);
    if (code == CLI_DONE)
        code = cli_converting_check(&values);
    if (code == CLI_DONE && values.html != NULL && !values.dry_run)
        code = cli_fail(CLI_USAGE, "convert: --html shows a plan; add --dry-run");
    if (code == CLI_DONE && values.tracing.events_max != 0 && !cli_tracing_is_on(&values.tracing))
        code = cli_fail(CLI_USAGE, "convert: --trace-events is for a trace; add --trace");
    if (code == CLI_DONE)
        code = cli_work_begin(&c.work);
    if (code != CLI_DONE)
        return code;
    int speaks = cli_ranks_are_first();
    c.work.in_bytes = 1;
    c.work.in_lines = speaks && !values.quiet;
    if (values.quiet || !speaks)
        c.work.watched = 0;
    /* Exceeding the file size limit should be reported as an error, not kill the process. */
    (void)signal(SIGXFSZ, SIG_IGN);
    values.source.path = paths[0];
    cli_converting_fill(&values, &c.options);
    c.target = paths[1];
    c.dry_run = values.dry_run;
    c.prints = speaks && !values.json && !values.quiet;
    c.tracing = cli_tracing_is_on(&values.tracing) ? &values.tracing : NULL;
    code = cli_ranks_share(convert_traced, &c, NULL, find_hint);
    cli_work_settle(&c.work);
    if (speaks && c.trace != NULL)
        cli_tracing_report(c.tracing, reshard_trace_dropped(c.trace));
    if (speaks && code == CLI_DONE && values.html != NULL)
        code = write_page(&c, values.html, argc, argv);
    speaks = speaks && code == CLI_DONE;
    if (speaks && values.json)
        print_json(&c);
    else if (speaks && !values.quiet)
        print_text(&c);
    cli_conversion_release(&c.made);
    reshard_trace_destroy(c.trace);
    cli_work_end(&c.work);
    return code;
}

const cli_command cli_command_convert = {
    .name = "convert",
    .summary = "converts a checkpoint to another split, format or dtype",
    .synopsis = "SRC DST [--to MESH [--rules R]] [OPTIONS]",
    .description =
        "Writes the checkpoint SRC as DST, split over the ranks of MESH by rules or, without\n"
        "--to, as whole tensors. SRC is only read. DST does not exist until it is complete and\n"
        "on disk: until then it is DST.partial, and --resume continues from there. Without\n"
        "--rules, the family is found by config.json or the names of the tensors. Under mpirun\n"
        "the ranks share the work; memory and threads then apply to each rank.\n",
    .operand = "SRC",
    .second_operand = "DST",
    .shares_work = 1,
    .options = cli_converting_options,
    .option_count = CLI_CONVERTING_OPTIONS,
    .examples = "  reshard convert model/ model-tp4/ --to tp=4\n"
                "  reshard convert model-tp4/ whole/ --max-shard-size 5GB\n"
                "  reshard convert model/ ranks/ --to tp=4 --format rank-files --dtype bf16\n"
                "  mpirun -n 8 reshard convert model/ model-tp4/ --to tp=4\n"
                "  reshard convert ranks/ whole/ --verify\n",
    .run = run,
};
