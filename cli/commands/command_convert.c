/* SPDX-License-Identifier: Apache-2.0 */
/*
 * command_convert.c - `reshard convert`: converts a checkpoint to another split, format or dtype.
 */
#include "cli/checkpoint/converting.h"
#include "cli/commands/commands.h"
#include "cli/common/failure.h"
#include "cli/common/ranks.h"
#include "cli/common/sizes.h"
#include "cli/common/work.h"
#include "cli/plan/plan_page.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

/* One run of the command: what was asked for, the conversion, and its timing. */
typedef struct conversion {
    cli_work work;
    cli_checkpoint_values values;
    const char *target;
    int traces, prints; /* whether there is a trace, and whether this rank prints text */
    cli_conversion made;
    double seconds; /* measured or, of a dry run, estimated */
    reshard_trace *trace;
} conversion;

static void print_json(const conversion *c)
{
    cli_json json = {.stream = stdout};
    cli_json_begin_object(&json, NULL);
    cli_conversion_write(&c->made, &json);
    cli_json_seconds(&json, c->values.dry_run ? "seconds_estimated" : "seconds", c->seconds);
    cli_json_end_object(&json);
    putchar('\n');
}

static void print_text(const conversion *c)
{
    char rate[CLI_SIZE_TEXT];
    double written = (double)c->made.report.bytes_written;
    if (c->values.dry_run) {
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
        status = reshard_conversion_estimate(c->made.conversion, c->target, &c->values.running,
                                             &c->seconds);
    return group != NULL ? reshard_group_agree(group, status) : status;
}

/* A single process writes its trace even after a failure. The original error text is preserved. */
static reshard_status write_trace(const conversion *c, reshard_group *group, reshard_status status)
{
    reshard_error error = {.size = sizeof error};
    char text[4096], subject[1024]; /* as long as the library's */
    if (c->trace == NULL || (status != RESHARD_OK && group != NULL))
        return status;
    (void)reshard_error_get(&error);
    (void)snprintf(text, sizeof text, "%s", error.text);
    (void)snprintf(subject, sizeof subject, "%s", error.subject);
    reshard_status written = reshard_trace_write(c->trace);
    if (status == RESHARD_OK)
        return written;
    error.status = status;
    error.text = text;
    error.subject = subject;
    return reshard_error_put(&error);
}

/* A target that exists is refused before the source is read. A dry run does not mind what an
 * interrupted one left. */
static reshard_status check_target(const conversion *c, reshard_group *group)
{
    reshard_conversion_run_options running = c->values.running;
    reshard_status status = RESHARD_OK;
    running.resume = running.resume || c->values.dry_run;
    if (cli_ranks_are_first())
        status = reshard_conversion_check_target(c->work.context, c->values.paths[0], c->target,
                                                 &running);
    return group != NULL ? reshard_group_agree(group, status) : status;
}

static reshard_status convert_rank(void *user, reshard_group *group)
{
    conversion *c = user;
    double started = cli_seconds();
    c->values.planning.group = group;
    reshard_status status = check_target(c, group);
    if (status == RESHARD_OK)
        status = cli_conversion_plan(c->work.context, &c->values, &c->made);
    if (status == RESHARD_OK && cli_ranks_are_first()) {
        cli_work_hide_bar();
        cli_conversion_warn(&c->made);
    }
    /* Print the plan before the progress bar starts, so the user can interrupt a wrong one. */
    if (status == RESHARD_OK && c->prints) {
        cli_work_hide_bar();
        cli_conversion_print(&c->made, c->target);
        fflush(stdout);
    }
    if (status == RESHARD_OK && c->values.dry_run) {
        status = estimate(c, group);
    } else if (status == RESHARD_OK) {
        status = reshard_conversion_run(c->made.conversion, c->target, &c->values.running,
                                        &c->made.report);
        c->seconds = cli_seconds() - started;
    }
    return status;
}

static reshard_status convert_traced(void *user, reshard_group *group)
{
    conversion *c = user;
    reshard_status status = RESHARD_OK;
    if (c->traces)
        status = cli_tracing_create(&c->values.tracing, group, &c->trace);
    if (status != RESHARD_OK)
        return status;
    c->values.planning.trace = c->trace;
    return write_trace(c, group, convert_rank(c, group));
}

static int write_page(const conversion *c, const char *path, int argc, char **argv)
{
    cli_page page;
    int code = cli_page_begin(&page, path, "convert", argc, argv);
    reshard_status status =
        code == CLI_DONE ? cli_conversion_page_write(&c->made, c->seconds, &page) : RESHARD_OK;
    if (status != RESHARD_OK)
        code = cli_fail_library(status, CLI_FAILED, NULL);
    return cli_page_end(&page, code);
}

static int parse(const cli_command *command, int argc, char **argv, conversion *c)
{
    cli_checkpoint_values *values = &c->values;
    int code = cli_checkpoint_parse(command, argc, argv, values);
    if (code != CLI_DONE)
        return code;
    if (values->html != NULL && !values->dry_run)
        return cli_fail(CLI_USAGE, "convert: --html shows a plan; add --dry-run");
    c->traces = cli_tracing_is_on(&values->tracing);
    if (values->tracing.events_max != 0 && !c->traces)
        return cli_fail(CLI_USAGE, "convert: --trace-events is for a trace; add --trace");
    /* The conversion refuses tensors that cannot be read, unless they are excluded. */
    values->opening.unreadable = 1;
    c->target = values->paths[1];
    return cli_work_begin(&c->work);
}

static int run(const cli_command *command, int argc, char **argv)
{
    conversion c = {.target = NULL};
    const cli_checkpoint_values *values = &c.values;
    int code = parse(command, argc, argv, &c);
    if (code != CLI_DONE)
        return code;
    int speaks = cli_ranks_are_first();
    c.work.in_bytes = 1;
    c.work.logs = 1;
    c.work.in_lines = speaks && !values->quiet;
    if (values->quiet || !speaks)
        c.work.watched = 0;
    /* Exceeding the file size limit should be reported as an error, not kill the process. */
    (void)signal(SIGXFSZ, SIG_IGN);
    c.prints = speaks && !values->json && !values->quiet;
    code = cli_ranks_share(convert_traced, &c, NULL);
    cli_work_settle(&c.work);
    if (speaks && c.trace != NULL)
        cli_tracing_report(&values->tracing, reshard_trace_dropped(c.trace));
    if (speaks && code == CLI_DONE && values->html != NULL)
        code = write_page(&c, values->html, argc, argv);
    speaks = speaks && code == CLI_DONE;
    if (speaks && values->json)
        print_json(&c);
    else if (speaks && !values->quiet)
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
    .options = cli_checkpoint_options,
    .option_count = CLI_CHECKPOINT_OPTION_COUNT,
    .takes = CLI_CONVERT,
    .examples = "  reshard convert run/ hf/ --config base/\n"
                "  reshard convert run/ run16/ --to fsdp=16 --format dcp\n"
                "  reshard convert model/ bf16/ --dtype bf16\n"
                "  reshard convert model/ vllm/ --as vllm --to tp=4\n"
                "  reshard convert model.gguf hf/ --as hf --dequantize bf16\n"
                "  reshard convert model/ model-tp4/ --to tp=4\n"
                "  reshard convert model-tp4/ whole/ --max-shard-size 5GB\n"
                "  reshard convert model/ ranks/ --to tp=4 --format rank-files --dtype bf16\n"
                "  mpirun -n 8 reshard convert model/ model-tp4/ --to tp=4\n"
                "  reshard convert ranks/ whole/ --verify\n",
    .run = run,
};
