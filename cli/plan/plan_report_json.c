/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_report_json.c - prints a plan as JSON: one object on one line. The order of fields is fixed;
 * later versions may add fields, but remove none.
 */
#include "cli/common/failure.h"
#include "cli/common/input.h"
#include "cli/plan/plan_report.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void write_stats(cli_json *json, const reshard_plan_stats *stats)
{
    cli_json_unsigned(json, "bytes_total", stats->bytes_total);
    cli_json_unsigned(json, "bytes_moved", stats->bytes_moved);
    cli_json_unsigned(json, "bytes_kept", stats->bytes_kept);
    cli_json_unsigned(json, "moves", stats->moves);
    cli_json_integer(json, "stages", stats->stages);
    cli_json_unsigned(json, "staging_bytes_peak", stats->staging_bytes_peak);
    cli_json_unsigned(json, "records", stats->records);
    cli_json_unsigned(json, "bytes_in_max", stats->bytes_in_max);
    cli_json_unsigned(json, "bytes_out_max", stats->bytes_out_max);
}

static int write_layout(cli_json *json, const char *key, const reshard_layout *layout)
{
    char *text = NULL;
    int code = cli_layout_text(layout, &text);
    if (code == CLI_DONE)
        cli_json_text(json, key, text);
    free(text);
    return code;
}

static int write_inputs(cli_json *json, const cli_plan_report *report)
{
    reshard_plan_info plan = cli_plan_info(report->plan);
    char hex[33];
    cli_json_integer(json, "ranks", plan.rank_count);
    cli_json_integers(json, "shape", report->shape.ndim, report->shape.extents);
    cli_json_text(json, "dtype", reshard_dtype_name(report->dtype));
    int code = write_layout(json, "from", report->source);
    if (code == CLI_DONE)
        code = write_layout(json, "to", report->target);
    cli_json_begin_list(json, "intermediates");
    for (int32_t i = 0; i < plan.intermediate_count && code == CLI_DONE; i++)
        code = write_layout(json, NULL, plan.intermediates[i]);
    cli_json_end_list(json);
    cli_json_unsigned(json, "segment_bytes", plan.segment_bytes);
    snprintf(hex, sizeof hex, "%016" PRIx64 "%016" PRIx64, plan.digest[0], plan.digest[1]);
    cli_json_text(json, "digest", hex);
    return code;
}

static void write_relabelling(cli_json *json, const cli_plan_report *report)
{
    reshard_plan_info plan = cli_plan_info(report->plan);
    cli_json_begin_list(json, "relabel");
    for (int32_t i = 0; i < plan.relabelling_count; i++)
        cli_json_integer(json, NULL, plan.relabelling[i]);
    cli_json_end_list(json);
    if (report->has_stats)
        cli_json_unsigned(json, "bytes_moved_without_relabel", report->bytes_moved_unrelabelled);
}

static void write_part(cli_json *json, const cli_plan_part *part)
{
    cli_json_begin_object(json, NULL);
    cli_json_integer(json, "rank", part->rank);
    cli_json_unsigned(json, "bytes_in", part->stats.bytes_in);
    cli_json_unsigned(json, "bytes_out", part->stats.bytes_out);
    cli_json_unsigned(json, "bytes_kept", part->stats.bytes_kept);
    cli_json_unsigned(json, "moves", part->stats.moves);
    cli_json_unsigned(json, "records", part->stats.records);
    cli_json_unsigned(json, "staging_bytes_peak", part->stats.staging_bytes_peak);
    if (part->text != NULL)
        cli_json_begin_list(json, "lines");
    for (const char *line = part->text; line != NULL && *line != '\0';) {
        size_t length = strcspn(line, "\n");
        cli_json_text_part(json, NULL, line, length);
        line += line[length] == '\n' ? length + 1 : length;
    }
    if (part->text != NULL)
        cli_json_end_list(json);
    cli_json_end_object(json);
}

static void write_matrix(cli_json *json, const cli_plan_report *report)
{
    int32_t n = cli_plan_info(report->plan).rank_count;
    cli_json_begin_list(json, "matrix");
    for (int32_t s = 0; s < n; s++) {
        cli_json_begin_list(json, NULL);
        for (int32_t t = 0; t < n; t++)
            cli_json_unsigned(json, NULL, report->matrix[s * n + t]);
        cli_json_end_list(json);
    }
    cli_json_end_list(json);
}

int cli_plan_report_write_fields(const cli_plan_report *report, cli_json *json)
{
    if (report->has_stats)
        write_stats(json, &report->stats);
    else
        cli_json_integer(json, "stages", cli_plan_info(report->plan).stage_count);
    int code = write_inputs(json, report);
    if (report->relabel)
        write_relabelling(json, report);
    if (report->checked)
        cli_json_true(json, "checked");
    if (report->note[0] != '\0')
        cli_json_text(json, "note", report->note);
    if (report->prediction != NULL)
        cli_prediction_write_json(json, report->prediction, report->plan);
    return code;
}

int cli_plan_report_print_json(const cli_plan_report *report)
{
    cli_json json = {.stream = stdout};
    cli_json_begin_object(&json, NULL);
    int code = cli_plan_report_write_fields(report, &json);
    if (report->part_count > 0)
        cli_json_begin_list(&json, "parts");
    for (int32_t i = 0; i < report->part_count; i++)
        write_part(&json, &report->parts[i]);
    if (report->part_count > 0)
        cli_json_end_list(&json);
    if (report->matrix != NULL)
        write_matrix(&json, report);
    cli_json_end_object(&json);
    putchar('\n');
    return code;
}
