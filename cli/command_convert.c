/* SPDX-License-Identifier: Apache-2.0 */
/*
 * command_convert.c - `reshard convert`: a checkpoint in another split, format or dtype.
 */
#include "commands.h"
#include "failure.h"
#include "json.h"
#include "ranks.h"
#include "sizes.h"
#include "work.h"

#include <reshard/checkpoint.h>

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

typedef struct convert_values {
    const char *to, *rules, *from, *from_rules;
    cli_texts sets, dtypes, includes, excludes, renames;
    int format;
    size_t shard_bytes_max, memory_bytes_max, journal_bytes;
    int32_t threads;
    int resume, verify, dry_run, link, no_sync, quiet, json;
} convert_values;

#define FIELD(name) offsetof(convert_values, name)

static const cli_option options[] = {
    {"to", CLI_TEXT, FIELD(to), "MESH", 0, "the mesh to split over: tp=4 or dp=2,tp=4"},
    {"rules", CLI_TEXT, FIELD(rules), "R", 0,
     "how: llama, gpt2, neox, mixtral, fsdp, .. or a file"},
    {"set", CLI_TEXTS, FIELD(sets), "KEY=N", 0, "a number for rules, before config.json's"},
    {"from", CLI_TEXT, FIELD(from), "MESH", 0, "the mesh of a source of plain rank files"},
    {"from-rules", CLI_TEXT, FIELD(from_rules), "R", 0, "how those are split, if not by --rules"},
    {"format", CLI_CHOICE, FIELD(format), "auto|hf|dcp-safetensors|rank-files", 0,
     "what to write; whole tensors are hf, split ones dcp-safetensors"},
    {"max-shard-size", CLI_SIZE, FIELD(shard_bytes_max), "SIZE", 0,
     "hf: begin another file beyond this (5GB)"},
    {"dtype", CLI_TEXTS, FIELD(dtypes), "[GLOB=]D", 0, "cast to f16, bf16, f32 or f64"},
    {"include", CLI_TEXTS, FIELD(includes), "GLOB", 0, "these tensors only"},
    {"exclude", CLI_TEXTS, FIELD(excludes), "GLOB", 0, "not these tensors"},
    {"rename", CLI_TEXTS, FIELD(renames), "GLOB=NAME", 0,
     "new names; {1}, {2} .. are what wildcards stand for"},
    {"max-memory", CLI_SIZE, FIELD(memory_bytes_max), "SIZE", 0,
     "for data on their way (512M; 1M at least)"},
    {"threads", CLI_RANK, FIELD(threads), "N", 0, "how many (one for each processor, up to 8)"},
    {"resume", CLI_FLAG, FIELD(resume), NULL, 0, "go on with what an interrupted run left"},
    {"verify", CLI_FLAG, FIELD(verify), NULL, 0, "read the output back and compare it"},
    {"dry-run", CLI_FLAG, FIELD(dry_run), NULL, 0, "say what would be done"},
    {"link", CLI_FLAG, FIELD(link), NULL, 0, "hard-link files that do not change"},
    {"no-sync", CLI_FLAG, FIELD(no_sync), NULL, 0, "do not wait for the disk; for measurements"},
    {"journal-bytes", CLI_SIZE, FIELD(journal_bytes), "SIZE", 0,
     "make progress last after so much (1G)"},
    {"quiet", CLI_FLAG, FIELD(quiet), NULL, 0, "print nothing but errors"},
    {"json", CLI_FLAG, FIELD(json), NULL, 0, "one JSON object on one line"},
};

static void print_json(const reshard_convert_report *report, int dry_run, double seconds)
{
    cli_json json = {.stream = stdout};
    cli_json_begin_object(&json, NULL);
    cli_json_text(&json, "format", report->format);
    cli_json_integer(&json, "tensors", report->tensors);
    cli_json_integer(&json, "files", report->files);
    cli_json_unsigned(&json, "bytes_read", report->bytes_read);
    cli_json_unsigned(&json, "bytes_written", report->bytes_written);
    cli_json_unsigned(&json, "bytes_shared", report->bytes_shared);
    cli_json_unsigned(&json, "bytes_resumed", report->bytes_resumed);
    cli_json_unsigned(&json, "memory_bytes", report->memory_bytes);
    cli_json_integer(&json, "threads", report->threads);
    cli_json_integer(&json, "ranks", report->ranks);
    cli_json_text(&json, "rules", report->rules);
    if (dry_run)
        cli_json_seconds(&json, "seconds_estimated", report->seconds_estimated);
    else
        cli_json_seconds(&json, "seconds", seconds);
    cli_json_end_object(&json);
    putchar('\n');
}

static void print_text(const reshard_convert_report *report, const char *target, int dry_run,
                       double seconds)
{
    char read[CLI_SIZE_TEXT], written[CLI_SIZE_TEXT], memory[CLI_SIZE_TEXT], rate[CLI_SIZE_TEXT];
    char shared[CLI_SIZE_TEXT];
    if (report->rules[0] != '\0')
        printf("%s\n", report->rules);
    printf("%s: %" PRId64 " tensors in %" PRId32 " file%s, %s\n", target, report->tensors,
           report->files, report->files == 1 ? "" : "s", report->format);
    printf("reads %s, writes %s (%s by the kernel), %s for %" PRId32 " thread%s\n",
           cli_size_text(report->bytes_read, read), cli_size_text(report->bytes_written, written),
           cli_size_text(report->bytes_shared, shared), cli_size_text(report->memory_bytes, memory),
           report->threads, report->threads == 1 ? "" : "s");
    if (report->bytes_resumed != 0)
        printf("%s were done already\n", cli_size_text(report->bytes_resumed, read));
    if (dry_run)
        printf("about %.1f s; nothing was written\n", report->seconds_estimated);
    else
        printf("done in %.1f s, %s/s\n", seconds,
               cli_size_text((uint64_t)((double)report->bytes_written / (seconds + 1e-9)), rate));
}

/* Many files may be open at once: as many as the system lets us. */
static void raise_file_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

static void fill_options(const convert_values *values, reshard_convert_options *converting)
{
    *converting = (reshard_convert_options){
        .size = sizeof *converting,
        .to = values->to,
        .rules = values->rules,
        .from = values->from,
        .from_rules = values->from_rules,
        .set_count = values->sets.count,
        .sets = values->sets.items,
        .format = (reshard_checkpoint_kind)values->format,
        .shard_bytes_max = values->shard_bytes_max,
        .dtype_count = values->dtypes.count,
        .dtypes = values->dtypes.items,
        .include_count = values->includes.count,
        .includes = values->includes.items,
        .exclude_count = values->excludes.count,
        .excludes = values->excludes.items,
        .rename_count = values->renames.count,
        .renames = values->renames.items,
        .memory_bytes_max = values->memory_bytes_max,
        .threads = values->threads,
        .resume = values->resume,
        .verify = values->verify,
        .dry_run = values->dry_run,
        .link = values->link,
        .no_sync = values->no_sync,
        .journal_bytes = values->journal_bytes,
    };
}

/* ---- one process, or each of those that mpirun has started ----------------------------------- */

typedef struct conversion {
    cli_work work;
    const char *source, *target;
    reshard_convert_options options;
    reshard_convert_report report;
} conversion;

static reshard_status convert_rank(void *user, reshard_group *group)
{
    conversion *c = user;
    c->options.group = group;
    return reshard_convert(c->work.context, c->source, c->target, &c->options, &c->report);
}

static int run(const cli_command *command, int argc, char **argv)
{
    convert_values values = {0};
    const char *paths[2] = {NULL, NULL};
    conversion c = {.source = NULL};
    int code = cli_options_parse(command, argc, argv, &values, paths);
    if (code == CLI_DONE)
        code = cli_work_begin(&c.work);
    if (code != CLI_DONE)
        return code;
    int speaks = cli_ranks_are_first();
    c.work.in_bytes = 1;
    c.work.in_lines = speaks && !values.quiet;
    if (values.quiet || !speaks)
        c.work.watched = 0;
    raise_file_limit();
    /* A file that grows beyond its limit is an error to report, not a reason to die. */
    (void)signal(SIGXFSZ, SIG_IGN);
    fill_options(&values, &c.options);
    c.source = paths[0];
    c.target = paths[1];
    double started = cli_seconds();
    code = cli_ranks_share(convert_rank, &c, NULL);
    cli_work_settle(&c.work);
    double seconds = cli_seconds() - started;
    speaks = speaks && code == CLI_DONE;
    if (speaks && values.json)
        print_json(&c.report, values.dry_run, seconds);
    else if (speaks && !values.quiet)
        print_text(&c.report, paths[1], values.dry_run, seconds);
    cli_work_end(&c.work);
    return code;
}

const cli_command cli_command_convert = {
    .name = "convert",
    .summary = "a checkpoint in another split, format or dtype",
    .synopsis = "SRC DST [--to MESH [--rules R]] [OPTIONS]",
    .description =
        "Writes the checkpoint SRC as DST, split over the ranks of MESH by rules, or as whole\n"
        "tensors without --to. DST does not exist until it is complete and on disk: it is\n"
        "written as DST.partial, which --resume goes on with. SRC is only read. Without --rules\n"
        "the family is picked from config.json or the names of the tensors. Under mpirun the\n"
        "ranks share the work; memory and threads are then of each rank.\n",
    .operand = "SRC",
    .second_operand = "DST",
    .shares_work = 1,
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .examples = "  reshard convert model/ model-tp4/ --to tp=4\n"
                "  reshard convert model-tp4/ whole/ --max-shard-size 5GB\n"
                "  reshard convert model/ ranks/ --to tp=4 --format rank-files --dtype bf16\n"
                "  mpirun -n 8 reshard convert model/ model-tp4/ --to tp=4\n"
                "  reshard convert ranks/ whole/ --from tp=4 --rules llama --verify\n",
    .run = run,
};
