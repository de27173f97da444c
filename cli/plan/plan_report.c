/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_report.c - prints a plan as text: what moves, what stays, who is busiest, and who hands how
 * much to whom.
 */
#include "cli/plan/plan_report.h"

#include "cli/common/failure.h"
#include "cli/common/input.h"
#include "cli/common/sizes.h"
#include "cli/common/table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MATRIX_SHOWN_MAX = 16, RELABEL_SHOWN_MAX = 16 };

static int print_layout_line(const char *label, const reshard_layout *layout)
{
    char *text = NULL;
    char clipped[CLI_SPEC_SHOWN];
    int code = cli_layout_text(layout, &text);
    if (code != CLI_DONE)
        return code;
    printf("%-5s  %s%s%s\n", label, cli_style_begin(CLI_BOLD), cli_text_clip(text, clipped),
           cli_style_end(CLI_BOLD));
    free(text);
    return CLI_DONE;
}

int cli_plan_report_print_header(const cli_plan_report *report)
{
    char shape[CLI_SHAPE_TEXT];
    int32_t rank_count = cli_plan_info(report->plan).rank_count;
    int code = print_layout_line("from", report->source);
    if (code == CLI_DONE)
        code = print_layout_line("to", report->target);
    printf("shape  %s %s, %" PRId32 " rank%s\n\n",
           cli_shape_text(report->shape.ndim, report->shape.extents, shape),
           reshard_dtype_name(report->dtype), rank_count, rank_count == 1 ? "" : "s");
    return code;
}

/* ---- the whole plan -------------------------------------------------------------------------- */

static void add_size(cli_table *table, const char *label, uint64_t bytes, const char *note)
{
    char size[CLI_SIZE_TEXT];
    cli_table_add(table, CLI_PLAIN, "%s", label);
    cli_table_add(table, CLI_PLAIN, "%s", cli_size_text(bytes, size));
    cli_table_add(table, CLI_DIM, "%s", note);
}

static void add_count(cli_table *table, const char *label, uint64_t count, const char *note)
{
    cli_table_add(table, CLI_PLAIN, "%s", label);
    cli_table_add(table, CLI_PLAIN, "%" PRIu64, count);
    cli_table_add(table, CLI_DIM, "%s", note);
}

/* The note is the percentage of all bytes that are moved or kept, over all stages. */
static void add_share(cli_table *table, const char *label, uint64_t bytes,
                      const reshard_plan_stats *stats)
{
    char note[32] = "";
    double handled = (double)stats->bytes_moved + (double)stats->bytes_kept;
    if (handled > 0)
        snprintf(note, sizeof note, "%.1f%%", 100.0 * (double)bytes / handled);
    add_size(table, label, bytes, note);
}

/* Names the first of the busiest ranks, if there is a matrix to find it in. */
static void add_busiest(cli_table *table, const cli_plan_report *report, int sending)
{
    char note[32] = "";
    int32_t n = cli_plan_info(report->plan).rank_count;
    uint64_t most = sending ? report->stats.bytes_out_max : report->stats.bytes_in_max;
    for (int32_t rank = 0; report->matrix != NULL && most != 0 && rank < n && note[0] == '\0';
         rank++) {
        uint64_t sum = 0;
        for (int32_t peer = 0; peer < n; peer++) {
            if (peer != rank)
                sum += report->matrix[sending ? rank * n + peer : peer * n + rank];
        }
        if (sum == most)
            snprintf(note, sizeof note, "rank %" PRId32, rank);
    }
    add_size(table, sending ? "busiest sender" : "busiest receiver", most, note);
}

static void print_stats(const cli_plan_report *report)
{
    const reshard_plan_stats *stats = &report->stats;
    cli_table *table = cli_table_create(3);
    cli_table_align(table, 0, CLI_LEFT);
    cli_table_align(table, 2, CLI_LEFT);
    add_size(table, "total", stats->bytes_total, "written to targets");
    add_share(table, "moved", stats->bytes_moved, stats);
    if (report->relabel)
        add_size(table, "moved otherwise", report->bytes_moved_unrelabelled, "without --relabel");
    add_share(table, "kept", stats->bytes_kept, stats);
    add_count(table, "moves", stats->moves, "");
    add_count(table, "records", stats->records, "for both ends of every move");
    add_busiest(table, report, 1);
    add_busiest(table, report, 0);
    add_size(table, "peak staging", stats->staging_bytes_peak, "on one rank");
    add_count(table, "stages", (uint64_t)stats->stages, "");
    if (report->checked) {
        cli_table_add(table, CLI_PLAIN, "checked");
        cli_table_add(table, CLI_PLAIN, "yes");
        cli_table_add(table, CLI_DIM, "every target element arrives exactly once");
    }
    cli_table_print(table);
    cli_table_destroy(table);
}

static int print_stage(const cli_plan_report *report, int32_t stage)
{
    int32_t link_count = reshard_plan_stage_link_count(report->plan, stage);
    int code = CLI_DONE;
    for (int32_t i = 0; i < link_count && code == CLI_DONE; i++) {
        reshard_stage_link link = {.size = sizeof link};
        char *source = NULL, *target = NULL;
        char source_shown[CLI_SPEC_SHOWN], target_shown[CLI_SPEC_SHOWN];
        reshard_status status = reshard_plan_stage_link(report->plan, stage, i, &link);
        code = status == RESHARD_OK ? CLI_DONE : cli_fail_status(status);
        if (code == CLI_DONE)
            code = cli_layout_text(link.source_layout, &source);
        if (code == CLI_DONE)
            code = cli_layout_text(link.target_layout, &target);
        if (code == CLI_DONE)
            printf("  %" PRId32 "  %s -> %s\n", stage, cli_text_clip(source, source_shown),
                   cli_text_clip(target, target_shown));
        free(source);
        free(target);
    }
    return code;
}

static int print_stages(const cli_plan_report *report)
{
    int32_t stage_count = cli_plan_info(report->plan).stage_count;
    int code = CLI_DONE;
    if (stage_count < 2)
        return CLI_DONE;
    printf("\n%sstages%s\n", cli_style_begin(CLI_BOLD), cli_style_end(CLI_BOLD));
    for (int32_t stage = 0; stage < stage_count && code == CLI_DONE; stage++)
        code = print_stage(report, stage);
    return code;
}

static void print_relabelling(const cli_plan_report *report)
{
    reshard_plan_info plan = cli_plan_info(report->plan);
    int32_t count = plan.relabelling_count;
    if (count == 0)
        return;
    printf("\n%srelabelling%s (rank that takes the place of a target rank)\n ",
           cli_style_begin(CLI_BOLD), cli_style_end(CLI_BOLD));
    for (int32_t i = 0; i < count && i < RELABEL_SHOWN_MAX; i++)
        printf(" %" PRId32 " for %" PRId32 "%s", plan.relabelling[i],
               reshard_layout_rank_at(report->target, i), i + 1 < count ? "," : "\n");
    if (count > RELABEL_SHOWN_MAX)
        printf(" ... %" PRId32 " more, see --json\n", count - RELABEL_SHOWN_MAX);
}

void cli_matrix_print(int32_t rows, int32_t columns, const uint64_t *matrix, int is_square)
{
    char size[CLI_SIZE_TEXT];
    cli_table *table = cli_table_create(columns + 1);
    cli_table_add(table, CLI_PLAIN, "%s", "");
    for (int32_t t = 0; t < columns; t++)
        cli_table_add(table, CLI_BOLD, "%" PRId32, t);
    for (int32_t s = 0; s < rows; s++) {
        cli_table_add(table, CLI_BOLD, "%" PRId32, s);
        for (int32_t t = 0; t < columns; t++) {
            uint64_t bytes = matrix[s * columns + t];
            cli_style style = bytes == 0 || (is_square && s == t) ? CLI_DIM : CLI_PLAIN;
            cli_table_add(table, style, "%s", bytes == 0 ? "-" : cli_size_text(bytes, size));
        }
    }
    cli_table_print(table);
    cli_table_destroy(table);
}

static void print_matrix(const cli_plan_report *report)
{
    int32_t n = cli_plan_info(report->plan).rank_count;
    if (n > MATRIX_SHOWN_MAX) {
        printf(
            "\nThe rank-to-rank matrix is printed for up to %d ranks, with --json for up to %d.\n",
            MATRIX_SHOWN_MAX, CLI_MATRIX_RANKS_MAX);
        return;
    }
    printf("\n%srank to rank%s (rows send to columns, the diagonal stays)\n",
           cli_style_begin(CLI_BOLD), cli_style_end(CLI_BOLD));
    cli_matrix_print(n, n, report->matrix, 1);
}

/* ---- parts ----------------------------------------------------------------------------------- */

static void print_part_stats(const cli_plan_part *part)
{
    char in[CLI_SIZE_TEXT], out[CLI_SIZE_TEXT], kept[CLI_SIZE_TEXT], staging[CLI_SIZE_TEXT];
    printf("  %s in, %s out, %s kept, %" PRIu64 " moves in %" PRIu64 " records, %s staging\n",
           cli_size_text(part->stats.bytes_in, in), cli_size_text(part->stats.bytes_out, out),
           cli_size_text(part->stats.bytes_kept, kept), part->stats.moves, part->stats.records,
           cli_size_text(part->stats.staging_bytes_peak, staging));
}

static void print_part(const cli_plan_part *part)
{
    printf("%srank %" PRId32 "%s\n", cli_style_begin(CLI_BOLD), part->rank,
           cli_style_end(CLI_BOLD));
    print_part_stats(part);
    for (const char *line = part->text; line != NULL && *line != '\0';) {
        int length = (int)strcspn(line, "\n");
        printf("  %.*s\n", length, line);
        line += line[length] == '\n' ? length + 1 : length;
    }
}

void cli_plan_report_print_summary(const cli_plan_report *report)
{
    char moved[CLI_SIZE_TEXT], kept[CLI_SIZE_TEXT];
    if (report->has_stats)
        printf("\n%s moved, %s kept, %" PRId32 " stage%s\n",
               cli_size_text(report->stats.bytes_moved, moved),
               cli_size_text(report->stats.bytes_kept, kept), report->stats.stages,
               report->stats.stages == 1 ? "" : "s");
    print_relabelling(report);
}

int cli_plan_report_print(const cli_plan_report *report)
{
    int code = cli_plan_report_print_header(report);
    if (report->has_stats) {
        print_stats(report);
        if (code == CLI_DONE)
            code = print_stages(report);
        print_relabelling(report);
        print_matrix(report);
    }
    if (report->prediction != NULL)
        cli_prediction_print(report->prediction, report->plan);
    if (report->note[0] != '\0')
        printf("Figures of rank %" PRId32 " only; --rank chooses another. %s.\n\n",
               report->parts[0].rank, report->note);
    for (int32_t i = 0; i < report->part_count; i++) {
        if (report->has_stats || i > 0)
            putchar('\n');
        print_part(&report->parts[i]);
    }
    return code;
}
