/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_page.c - writes a plan between two layouts as the data of a page: the fields of --json, the
 * two layouts and the intermediate ones as boxes, and for each stage who hands how much to whom, in
 * which round.
 *
 * The bytes of a pair of ranks are added up from the records of the sender's part. Loops that stay
 * with one peer only multiply; loops that go from peer to peer are walked. So the work grows with
 * the number of pairs, not of single moves.
 */
#include "cli/plan/plan_page.h"

#include "cli/common/failure.h"
#include "cli/common/input.h"
#include "cli/common/memory.h"
#include "cli/page/pieces.h"

#include <stdlib.h>
#include <string.h>

/* Figures of all ranks: who hands how much to whom, and how much memory each needs. */
typedef struct figures {
    int32_t rank_count, stage_count;
    uint64_t **stages; /* a matrix of rank_count x rank_count for each stage */
    int64_t *staging, *source, *target, *between;
} figures;

static uint64_t element_bytes(reshard_dtype dtype)
{
    return (uint64_t)reshard_dtype_bits(dtype) / 8;
}

/* ---- who hands how much to whom -------------------------------------------------------------- */

/* Adds `bytes` for every peer that the loops from `loop` on reach. */
static void add_peers(uint64_t *row, const reshard_move *move, int32_t loop, int32_t peer,
                      uint64_t bytes)
{
    while (loop < move->loop_count && move->loops[loop].peer_step == 0)
        bytes *= (uint64_t)move->loops[loop++].count;
    if (loop == move->loop_count) {
        row[peer] += bytes;
        return;
    }
    for (int64_t i = 0; i < move->loops[loop].count; i++)
        add_peers(row, move, loop + 1, peer + (int32_t)i * move->loops[loop].peer_step, bytes);
}

static void add_moves(uint64_t *row, const reshard_moves *moves, uint64_t bytes_each)
{
    for (int64_t i = 0; i < moves->count; i++) {
        const reshard_move *move = &moves->items[i];
        uint64_t bytes = bytes_each;
        for (int32_t d = 0; d < move->ndim; d++)
            bytes *= (uint64_t)move->size[d];
        if (move->kind != RESHARD_MOVE_FILL) /* a fill has no source */
            add_peers(row, move, 0, move->target_rank, bytes);
    }
}

static void add_stage(figures *f, const cli_plan_report *report, const reshard_part *part,
                      int32_t rank, int32_t stage)
{
    uint64_t *row = f->stages[stage] + (int64_t)rank * f->rank_count;
    int32_t link_count = reshard_plan_stage_link_count(report->plan, stage);
    for (int32_t i = 0; i < link_count; i++) {
        const reshard_part_moves *moves = reshard_part_link(part, stage, i);
        add_moves(row, &moves->sends, element_bytes(report->dtype));
        add_moves(row, &moves->keeps, element_bytes(report->dtype));
    }
}

/* Adds the memory of a rank's shards to *bytes. */
static reshard_status add_shards(const reshard_layout *layout, int32_t rank, reshard_dtype dtype,
                                 int64_t *bytes)
{
    reshard_shards *shards = NULL;
    int64_t piece_count = 0;
    reshard_status status = reshard_layout_shards_head(layout, rank, 1, &piece_count, &shards);
    for (int64_t i = 0; status == RESHARD_OK && i < shards->count; i++) {
        uint64_t shard_bytes = element_bytes(dtype);
        for (int32_t d = 0; d < shards->items[i].ndim; d++)
            shard_bytes *= (uint64_t)shards->items[i].shape[d];
        *bytes += (int64_t)shard_bytes;
    }
    reshard_shards_destroy(shards);
    return status;
}

static reshard_status add_rank(figures *f, reshard_context *context, const cli_plan_report *report,
                               int32_t rank)
{
    reshard_part *part = NULL;
    reshard_part_stats stats = {.size = sizeof stats};
    reshard_plan_info plan = cli_plan_info(report->plan);
    reshard_status status = reshard_part_create(context, report->plan, rank, &part);
    if (status == RESHARD_OK)
        status = reshard_part_get_stats(part, &stats);
    f->staging[rank] = (int64_t)stats.staging_bytes_peak;
    for (int32_t stage = 0; stage < f->stage_count && status == RESHARD_OK; stage++)
        add_stage(f, report, part, rank, stage);
    if (status == RESHARD_OK)
        status = add_shards(report->source, rank, report->dtype, &f->source[rank]);
    if (status == RESHARD_OK)
        status = add_shards(reshard_plan_target_layout(report->plan, 0), rank, report->dtype,
                            &f->target[rank]);
    for (int32_t i = 0; i < plan.intermediate_count && status == RESHARD_OK; i++)
        status = add_shards(plan.intermediates[i], rank, report->dtype, &f->between[rank]);
    reshard_part_destroy(part);
    return status;
}

static figures *create_figures(int32_t rank_count, int32_t stage_count)
{
    figures *f = cli_allocate(1, sizeof *f);
    size_t n = (size_t)rank_count;
    f->rank_count = rank_count;
    f->stage_count = stage_count;
    f->stages = cli_allocate((size_t)stage_count, sizeof *f->stages);
    for (int32_t stage = 0; stage < stage_count; stage++)
        f->stages[stage] = cli_allocate(n * n, sizeof *f->stages[stage]);
    f->staging = cli_allocate(n, sizeof *f->staging);
    f->source = cli_allocate(n, sizeof *f->source);
    f->target = cli_allocate(n, sizeof *f->target);
    f->between = cli_allocate(n, sizeof *f->between);
    return f;
}

static void destroy_figures(figures *f)
{
    if (f == NULL)
        return;
    for (int32_t stage = 0; stage < f->stage_count; stage++)
        free(f->stages[stage]);
    free(f->stages);
    free(f->staging);
    free(f->source);
    free(f->target);
    free(f->between);
    free(f);
}

/* ---- as JSON --------------------------------------------------------------------------------- */

/* In round k, rank r sends to rank r+k. Writes each round's bytes, and those of its busiest
 * pair. */
static void write_rounds(cli_json *json, const uint64_t *matrix, int32_t n)
{
    cli_json_begin_list(json, "rounds");
    for (int32_t round = 1; round < n; round++) {
        uint64_t sum = 0, most = 0;
        for (int32_t s = 0; s < n; s++) {
            uint64_t bytes = matrix[(int64_t)s * n + (s + round) % n];
            sum += bytes;
            most = bytes > most ? bytes : most;
        }
        cli_json_unsigned(json, NULL, sum);
        cli_json_unsigned(json, NULL, most);
    }
    cli_json_end_list(json);
}

static void write_stages(cli_json *json, const figures *f)
{
    cli_json_begin_list(json, "stage_list");
    for (int32_t stage = 0; stage < f->stage_count; stage++) {
        cli_json_begin_object(json, NULL);
        cli_page_matrix(json, "matrix", f->rank_count, f->rank_count, f->stages[stage]);
        write_rounds(json, f->stages[stage], f->rank_count);
        cli_json_end_object(json);
    }
    cli_json_end_list(json);
}

static void write_sums(cli_json *json, const figures *f)
{
    int32_t n = f->rank_count;
    int64_t *in = cli_allocate((size_t)n, sizeof *in), *out = cli_allocate((size_t)n, sizeof *out);
    int64_t *kept = cli_allocate((size_t)n, sizeof *kept);
    for (int32_t stage = 0; stage < f->stage_count; stage++) {
        for (int64_t i = 0; i < (int64_t)n * n; i++) {
            int64_t bytes = (int64_t)f->stages[stage][i], s = i / n, t = i % n;
            if (s == t) {
                kept[s] += bytes;
            } else {
                out[s] += bytes;
                in[t] += bytes;
            }
        }
    }
    cli_json_integers(json, "in", n, in);
    cli_json_integers(json, "out", n, out);
    cli_json_integers(json, "kept", n, kept);
    free(in);
    free(out);
    free(kept);
}

static void write_ranks(cli_json *json, const figures *f)
{
    int32_t n = f->rank_count;
    cli_json_begin_object(json, "rank_list");
    write_sums(json, f);
    cli_json_integers(json, "staging", n, f->staging);
    cli_json_integers(json, "source", n, f->source);
    cli_json_integers(json, "target", n, f->target);
    cli_json_integers(json, "between", n, f->between);
    cli_json_end_object(json);
}

static reshard_status write_layouts(const cli_plan_report *report, cli_page *page)
{
    reshard_plan_info plan = cli_plan_info(report->plan);
    reshard_status status = RESHARD_OK;
    cli_json_begin_list(&page->json, "layouts");
    status = cli_page_layout(page, NULL, report->source);
    for (int32_t i = 0; i < plan.intermediate_count && status == RESHARD_OK; i++)
        status = cli_page_layout(page, NULL, plan.intermediates[i]);
    if (status == RESHARD_OK)
        status = cli_page_layout(page, NULL, reshard_plan_target_layout(report->plan, 0));
    cli_json_end_list(&page->json);
    return status;
}

int cli_plan_page_write(reshard_context *context, const cli_plan_report *report, cli_page *page)
{
    cli_json *json = &page->json;
    int32_t rank_count = cli_plan_info(report->plan).rank_count;
    figures *f = NULL;
    reshard_status status = RESHARD_OK;
    cli_json_text(json, "kind", "plan");
    cli_json_integer(json, "element_bytes", (int64_t)element_bytes(report->dtype));
    cli_json_begin_object(json, "report");
    int code = cli_plan_report_write_fields(report, json);
    cli_json_end_object(json);
    if (code != CLI_DONE)
        return code;
    if (rank_count <= CLI_PAGE_RANKS_MAX) {
        f = create_figures(rank_count, cli_plan_info(report->plan).stage_count);
        for (int32_t rank = 0; rank < rank_count && status == RESHARD_OK; rank++)
            status = add_rank(f, context, report, rank);
        write_stages(json, f);
        write_ranks(json, f);
        destroy_figures(f);
    }
    if (status == RESHARD_OK)
        status = write_layouts(report, page);
    return status == RESHARD_OK ? CLI_DONE : cli_fail_status(status);
}
