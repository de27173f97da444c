/* SPDX-License-Identifier: Apache-2.0 */
/* converting.c - the options and reports of conversions, planned or carried out. */
#include "cli/converting.h"

#include "cli/common/failure.h"
#include "cli/common/input.h"
#include "cli/common/sizes.h"
#include "cli/common/style.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define FIELD(name) offsetof(cli_converting, name)

const cli_option cli_converting_options[CLI_CONVERTING_OPTIONS] = {
    {"to", CLI_TEXT, FIELD(to), "MESH", 0, "the mesh to split over: tp=4 or dp=2,tp=4"},
    {"rules", CLI_TEXT, FIELD(rules), "R", 0, "rules to split by: llama, gpt2, fsdp, .. or a file"},
    CLI_SET_OPTION(cli_converting, source),
    {"from", CLI_TEXT, FIELD(source.from), "MESH", 0, "the mesh of plain rank files: tp=4"},
    {"from-rules", CLI_TEXT, FIELD(source.rules), "R", 0,
     "how rank files are split, if not by --rules"},
    CLI_FILES_OPTIONS(cli_converting, source),
    {"format", CLI_FORMAT, FIELD(format), NULL, 0,
     "the format to write; auto is hf or, with --to, dcp-safetensors"},
    {"max-shard-size", CLI_SIZE, FIELD(shard_bytes_max), "SIZE", 0,
     "hf: begin another file beyond this (5GB)"},
    {"dtype", CLI_TEXTS, FIELD(dtypes), "[GLOB=]D", 0,
     "cast to f16, bf16, f32, f64, f8_e4m3 or f8_e5m2"},
    {"dequantize", CLI_TEXT, FIELD(dequantize), "D", 0,
     "fp8 and mxfp4 weights become values: bf16, f16 or f32"},
    {"include", CLI_TEXTS, FIELD(includes), "GLOB", 0, "only these tensors"},
    {"exclude", CLI_TEXTS, FIELD(excludes), "GLOB", 0, "not these tensors"},
    {"only", CLI_TEXT, FIELD(only), "NAME", 0,
     "only the part under this name, which is removed: optimizer"},
    {"all", CLI_FLAG, FIELD(all), NULL, 0, "hf: everything in a nested source, not just its model"},
    {"dtensor", CLI_FLAG, FIELD(dtensor), NULL, 0,
     "torch over a mesh: DTensors instead of plain local tensors"},
    {"rename", CLI_TEXTS, FIELD(renames), "GLOB=NAME", 0,
     "new names; {1}, {2}, .. are what the wildcards matched"},
    {"max-memory", CLI_SIZE, FIELD(memory_bytes_max), "SIZE", 0,
     "memory for data in flight (512M; at least 1M)"},
    {"threads", CLI_RANK, FIELD(threads), "N", 0, "threads (one per processor, up to 8)"},
    {"json", CLI_FLAG, FIELD(json), NULL, 0, "one JSON object on one line"},
    {"html", CLI_TEXT, FIELD(html), "FILE", 0, "the plan as a page for browsers (with --dry-run)"},
    {"resume", CLI_FLAG, FIELD(resume), NULL, 0, "continue an interrupted run"},
    {"verify", CLI_FLAG, FIELD(verify), NULL, 0, "read the output back and compare it"},
    {"dry-run", CLI_FLAG, FIELD(dry_run), NULL, 0, "say what would be done"},
    {"link", CLI_FLAG, FIELD(link), NULL, 0, "hard-link files that do not change"},
    {"no-sync", CLI_FLAG, FIELD(no_sync), NULL, 0, "do not wait for the disk; for measurements"},
    {"journal-bytes", CLI_SIZE, FIELD(journal_bytes), "SIZE", 0,
     "sync and record progress every so many bytes (1G)"},
    {"quiet", CLI_FLAG, FIELD(quiet), NULL, 0, "print nothing but errors"},
    CLI_TRACING_OPTIONS(cli_converting, tracing),
};

int cli_converting_check(const cli_converting *values)
{
    int code = cli_mesh_check(values->to);
    if (code == CLI_DONE)
        code = cli_mesh_check(values->source.from);
    if (code == CLI_DONE && values->source.rules != NULL && values->source.from == NULL)
        code = cli_fail(CLI_USAGE, "--from-rules is for plain rank files; add their mesh, --from");
    for (int i = 0; code == CLI_DONE && i < values->dtypes.count; i++) {
        const char *equals = strrchr(values->dtypes.items[i], '=');
        reshard_dtype dtype;
        reshard_status status =
            reshard_dtype_parse(equals != NULL ? equals + 1 : values->dtypes.items[i], &dtype);
        if (status != RESHARD_OK)
            code = cli_fail_status(status);
    }
    reshard_dtype dtype;
    if (code == CLI_DONE && values->dequantize != NULL) {
        reshard_status status = reshard_dtype_parse(values->dequantize, &dtype);
        if (status != RESHARD_OK)
            code = cli_fail_status(status);
    }
    return code;
}

void cli_converting_fill(const cli_converting *values, cli_conversion_options *out_options)
{
    *out_options = (cli_conversion_options){
        .source = cli_source_by_rules(&values->source, values->rules),
        .planning = {.size = sizeof out_options->planning,
                     .to = values->to,
                     .rules = values->rules,
                     .set_count = values->source.sets.count,
                     .sets = values->source.sets.items,
                     .format = values->format,
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
                     .only = values->only,
                     .all = values->all,
                     .dtensors = values->dtensor},
        .running = {.size = sizeof out_options->running,
                    .resume = values->resume,
                    .verify = values->verify,
                    .link = values->link,
                    .no_sync = values->no_sync,
                    .journal_bytes = values->journal_bytes},
    };
    /* cli_converting_check has checked that it is a dtype. */
    if (values->dequantize != NULL)
        (void)reshard_dtype_parse(values->dequantize, &out_options->planning.dequantize);
}

reshard_status cli_conversion_plan(reshard_context *context, const cli_conversion_options *options,
                                   cli_conversion *out_made)
{
    reshard_group *group = options->planning.group;
    reshard_status status = cli_checkpoint_open(context, &options->source, &out_made->checkpoint);
    if (group != NULL)
        status = reshard_group_agree(group, status);
    if (status == RESHARD_OK)
        status = reshard_conversion_create(context, out_made->checkpoint, &options->planning,
                                           &out_made->conversion);
    out_made->casts =
        options->planning.dtype_count != 0 || options->planning.dequantize != RESHARD_DTYPE_NONE;
    out_made->stats.size = sizeof out_made->stats;
    if (status == RESHARD_OK)
        status = reshard_conversion_get_stats(out_made->conversion, &out_made->stats);
    if (status != RESHARD_OK)
        return status;
    /* Until a run fills in what was done, the report says what is planned. */
    out_made->report = (reshard_conversion_report){.size = sizeof out_made->report,
                                                   .bytes_read = out_made->stats.bytes_read,
                                                   .bytes_written = out_made->stats.bytes_written,
                                                   .bytes_shared = out_made->stats.bytes_shared};
    return RESHARD_OK;
}

void cli_conversion_release(cli_conversion *made)
{
    reshard_conversion_destroy(made->conversion);
    reshard_checkpoint_destroy(made->checkpoint);
    *made = (cli_conversion){0};
}

/* Notes of the checkpoint come first, then those of the conversion. */
static const char *find_note(const cli_conversion *made, int64_t index)
{
    const char *note;
    int64_t count = 0;
    while ((note = reshard_checkpoint_note(made->checkpoint, count)) != NULL) {
        if (count++ == index)
            return note;
    }
    return reshard_conversion_note(made->conversion, index - count);
}

void cli_conversion_write(const cli_conversion *made, cli_json *json)
{
    const reshard_conversion_stats *stats = &made->stats;
    const reshard_conversion_report *report = &made->report;
    cli_json_text(json, "format", stats->format);
    cli_json_integer(json, "tensors", stats->tensor_count);
    cli_json_integer(json, "files", stats->written_file_count);
    cli_json_unsigned(json, "bytes_read", report->bytes_read);
    cli_json_unsigned(json, "bytes_written", report->bytes_written);
    cli_json_unsigned(json, "bytes_shared", report->bytes_shared);
    cli_json_unsigned(json, "bytes_resumed", report->bytes_resumed);
    cli_json_unsigned(json, "bytes_digested", report->bytes_digested);
    cli_json_integer(json, "tensors_digested", report->tensors_digested);
    if (report->source_digest[0] != '\0')
        cli_json_text(json, "source_digest", report->source_digest);
    if (report->digest[0] != '\0')
        cli_json_text(json, "digest", report->digest);
    cli_json_unsigned(json, "bytes_verified", report->bytes_verified);
    cli_json_unsigned(json, "values_overflowed", report->values_overflowed);
    cli_json_unsigned(json, "memory_bytes", stats->memory_bytes);
    cli_json_integer(json, "threads", stats->threads);
    cli_json_integer(json, "ranks", stats->ranks);
    cli_json_text(json, "rules", stats->rules);
    cli_json_begin_list(json, "notes");
    for (int64_t i = 0; find_note(made, i) != NULL; i++)
        cli_json_text(json, NULL, find_note(made, i));
    cli_json_end_list(json);
}

void cli_conversion_plan_write(const cli_conversion *made, cli_json *json)
{
    cli_json_unsigned(json, "bytes_total", made->stats.bytes_written);
    cli_json_unsigned(json, "bytes_moved", made->stats.bytes_written);
    cli_json_unsigned(json, "bytes_kept", 0);
    cli_json_integer(json, "moves", made->stats.move_count);
    cli_json_integer(json, "stages", 1);
    cli_json_unsigned(json, "staging_bytes_peak", made->stats.memory_bytes);
    cli_conversion_write(made, json);
}

void cli_conversion_print(const cli_conversion *made, const char *target)
{
    const reshard_conversion_stats *stats = &made->stats;
    const reshard_conversion_report *report = &made->report;
    char read[CLI_SIZE_TEXT], written[CLI_SIZE_TEXT], memory[CLI_SIZE_TEXT];
    char shared[CLI_SIZE_TEXT];
    if (stats->rules[0] != '\0') {
        cli_print_shown(stats->rules);
        putchar('\n');
    }
    for (int64_t i = 0; find_note(made, i) != NULL; i++)
        printf("note: %s\n", find_note(made, i));
    if (target != NULL) {
        cli_print_shown(target);
        fputs(": ", stdout);
    }
    printf("%" PRId64 " tensor%s in %" PRId32 " file%s, %s\n", stats->tensor_count,
           stats->tensor_count == 1 ? "" : "s", stats->written_file_count,
           stats->written_file_count == 1 ? "" : "s", stats->format);
    printf("reads %s, writes %s (%s shared if the file system can), %s of memory for %" PRId32
           " thread%s\n",
           cli_size_text(report->bytes_read, read), cli_size_text(report->bytes_written, written),
           cli_size_text(report->bytes_shared, shared), cli_size_text(stats->memory_bytes, memory),
           stats->threads, stats->threads == 1 ? "" : "s");
}

void cli_conversion_print_report(const cli_conversion *made)
{
    const reshard_conversion_report *report = &made->report;
    char size[CLI_SIZE_TEXT];
    int is_partly_seen = made->casts && report->bytes_resumed != 0 && report->bytes_verified == 0;
    if (report->bytes_resumed != 0)
        printf("%s were already done by an earlier run%s\n",
               cli_size_text(report->bytes_resumed, size),
               is_partly_seen ? ", and values that overflowed there are not counted" : "");
    if (report->values_overflowed != 0)
        printf("overflow: %" PRIu64 " value%s finite in the source but not in the output\n",
               report->values_overflowed, report->values_overflowed == 1 ? " is" : "s are");
    if (report->bytes_shared != 0)
        printf("%s were shared with the source's files, or copied by a file server\n",
               cli_size_text(report->bytes_shared, size));
    if (report->digest[0] != '\0')
        printf("digest %s\n", report->digest);
    if (report->bytes_verified != 0)
        printf("verified: %s read back and equal to the converted source\n",
               cli_size_text(report->bytes_verified, size));
}
