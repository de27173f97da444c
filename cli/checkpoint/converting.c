/* SPDX-License-Identifier: Apache-2.0 */
/* converting.c - plans and reports of conversions, planned or carried out. */
#include "cli/checkpoint/converting.h"

#include "cli/checkpoint/checkpoint_input.h"
#include "cli/common/failure.h"
#include "cli/common/sizes.h"
#include "cli/common/style.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

reshard_status cli_conversion_plan(reshard_context *context, const cli_checkpoint_values *values,
                                   cli_conversion *out_made)
{
    const reshard_conversion_options *planning = &values->planning;
    reshard_group *group = planning->group;
    reshard_status status =
        cli_checkpoint_open(context, values->paths[0], &values->opening, &out_made->checkpoint);
    if (group != NULL)
        status = reshard_group_agree(group, status);
    if (status == RESHARD_OK)
        status = reshard_conversion_create(context, out_made->checkpoint, planning,
                                           &out_made->conversion);
    out_made->casts = planning->dtype_count != 0 || planning->dequantize != RESHARD_DTYPE_NONE;
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
    while ((note = reshard_checkpoint_note(made->checkpoint, RESHARD_NOTE, count)) != NULL) {
        if (count++ == index)
            return note;
    }
    return reshard_conversion_note(made->conversion, RESHARD_NOTE, index - count);
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
    cli_json_integer(json, "crcs_unchecked", report->crcs_unchecked);
    cli_json_unsigned(json, "memory_bytes", stats->memory_bytes);
    cli_json_integer(json, "threads", stats->threads);
    cli_json_integer(json, "ranks", stats->ranks);
    cli_json_text(json, "rules", stats->rules);
    if (stats->naming[0] != '\0')
        cli_json_text(json, "names", stats->naming);
    cli_json_begin_list(json, "notes");
    for (int64_t i = 0; find_note(made, i) != NULL; i++)
        cli_json_text(json, NULL, find_note(made, i));
    cli_json_end_list(json);
    cli_json_begin_list(json, "warnings");
    for (int64_t i = 0; reshard_checkpoint_note(made->checkpoint, RESHARD_WARNING, i) != NULL; i++)
        cli_json_text(json, NULL, reshard_checkpoint_note(made->checkpoint, RESHARD_WARNING, i));
    for (int64_t i = 0; reshard_conversion_note(made->conversion, RESHARD_WARNING, i) != NULL; i++)
        cli_json_text(json, NULL, reshard_conversion_note(made->conversion, RESHARD_WARNING, i));
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

void cli_conversion_warn(const cli_conversion *made)
{
    const char *line;
    for (int64_t i = 0;
         (line = reshard_conversion_note(made->conversion, RESHARD_WARNING, i)) != NULL; i++)
        cli_warn(line);
}

/* Whoever names a target like a file may expect one. */
static void note_folder(const reshard_conversion_stats *stats, const char *target)
{
    static const char *const endings[] = {".safetensors", ".pt", ".pth", ".bin", ".ckpt", ".gguf"};
    size_t length = strlen(target);
    if (stats->written_file_count == 1 && strcmp(stats->format, "gguf") == 0)
        return; /* the one format whose target is a file */
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        size_t n = strlen(endings[i]);
        if (length > n && strcmp(target + length - n, endings[i]) == 0)
            puts("note: the target will be a folder, although it is named like a file");
    }
}

void cli_conversion_print(const cli_conversion *made, const char *target)
{
    const char *note;
    const reshard_conversion_stats *stats = &made->stats;
    const reshard_conversion_report *report = &made->report;
    char read[CLI_SIZE_TEXT], written[CLI_SIZE_TEXT], memory[CLI_SIZE_TEXT];
    char shared[CLI_SIZE_TEXT];
    if (stats->naming[0] != '\0')
        printf("names: %s\n", stats->naming);
    if (stats->rules[0] != '\0') {
        cli_print_shown(stats->rules);
        putchar('\n');
    }
    for (int64_t i = 0; (note = find_note(made, i)) != NULL; i++)
        printf("note: %s\n", note);
    if (target != NULL) {
        note_folder(stats, target);
        cli_print_shown(target);
        fputs(": ", stdout);
    }
    printf("%" PRId64 " tensor%s in %" PRId32 " file%s, %s\n", stats->tensor_count,
           stats->tensor_count == 1 ? "" : "s", stats->written_file_count,
           stats->written_file_count == 1 ? "" : "s", stats->format);
    printf("reads %s, writes %s", cli_size_text(report->bytes_read, read),
           cli_size_text(report->bytes_written, written));
    if (report->bytes_shared != 0)
        printf(" (%s shareable)", cli_size_text(report->bytes_shared, shared));
    printf(", %s of memory for %" PRId32 " thread%s\n", cli_size_text(stats->memory_bytes, memory),
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
    if (report->crcs_unchecked != 0)
        printf("note: %" PRId64 " checksum%s in the source %s not looked at; --verify looks at "
               "all\n",
               report->crcs_unchecked, report->crcs_unchecked == 1 ? "" : "s",
               report->crcs_unchecked == 1 ? "was" : "were");
    if (report->bytes_shared != 0)
        printf("%s were shared with the source's files, or copied by a file server\n",
               cli_size_text(report->bytes_shared, size));
    if (report->digest[0] != '\0')
        printf("digest %s\n", report->digest);
    if (report->bytes_verified != 0)
        printf("verified: %s read back and equal to the converted source\n",
               cli_size_text(report->bytes_verified, size));
}
