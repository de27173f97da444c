/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compare.c - compares two checkpoints: pairs their tensors, checks the copies within each, lets
 * the engine compare the bytes of all pairs, reads the first differing elements again to report
 * their values, and has what differs measured if asked. Ranks divide the blocks and merge what they
 * find.
 */
#include "base/context.h"
#include "base/options.h"
#include "checkpoint/check/comparison.h"
#include "kernel/values/cast.h"

#include <string.h>

#define THREAD_BYTES ((size_t)4 << 20)
#define GATHERED_MAX 65536 /* routes gathered at once, because rs_team_gather is for small data */

typedef struct compare_work {
    reshard_comparison *comparison;
    rs_team team;
    int32_t threads;
    rs_arena arena; /* of the arrays below */
    rs_route *routes;
    int64_t route_count;
    rs_compared **items_of_b; /* by tensor of B; NULL: not compared */
    rs_file **files_a, **files_b;
    rs_blocks blocks;
    rs_finding finding;
} compare_work;

/* ---- before reading -------------------------------------------------------------------------- */

/* Checks that all ranks compare the same tensors in the same way. */
static reshard_status compare_ranks(const compare_work *work, reshard_status status,
                                    const reshard_comparison_options *options)
{
    const reshard_comparison *comparison = work->comparison;
    uint64_t words[2];
    rs_digest digest;
    rs_digest_init(&digest);
    rs_digest_u64(&digest, options->by_digest != 0);
    rs_digest_u64(&digest, options->ignore_dropped != 0);
    rs_digest_u64(&digest, options->measure != 0);
    rs_digest_bytes(&digest, &options->tolerance, sizeof options->tolerance);
    rs_digest_bytes(&digest, &options->tolerance_l2, sizeof options->tolerance_l2);
    rs_store_digest(comparison->a, &digest);
    rs_store_digest(comparison->b, &digest);
    for (int64_t i = 0; i < comparison->count; i++) {
        rs_digest_u64(&digest, (uint64_t)comparison->items[i].kind);
        rs_digest_u64(&digest, (uint64_t)comparison->items[i].a);
        rs_digest_u64(&digest, (uint64_t)comparison->items[i].dtype);
    }
    rs_digest_finish(&digest, words);
    return rs_team_compare(&work->team, status, "compare: what is compared", words);
}

static reshard_status plan_routes(compare_work *work)
{
    const reshard_comparison *comparison = work->comparison;
    const reshard_checkpoint *a = comparison->a, *b = comparison->b;
    size_t count = (size_t)b->tensor_count;
    rs_route_cache *cache = rs_arena_allocate(&work->arena, sizeof *cache);
    work->routes = rs_arena_allocate_array(&work->arena, count, sizeof *work->routes);
    work->items_of_b = rs_arena_allocate_array(&work->arena, count, sizeof *work->items_of_b);
    if (cache == NULL || work->routes == NULL || work->items_of_b == NULL)
        return rs_allocation_status();
    memset(cache, 0, sizeof *cache);
    for (int64_t i = 0; i < comparison->count; i++) {
        rs_compared *item = &comparison->items[i];
        if (item->kind != 0 || b->tensors[item->b].bytes == 0)
            continue;
        reshard_status status =
            rs_route_plan(&work->arena, cache, &a->tensors[item->a], &b->tensors[item->b],
                          &work->routes[work->route_count++]);
        if (status == RESHARD_OK && rs_context_cancelled(work->team.context))
            status = rs_fail(RESHARD_ERR_CANCELLED, "cancelled");
        if (status != RESHARD_OK)
            return status;
        work->items_of_b[item->b] = item;
    }
    rs_routes_sort(work->routes, work->route_count);
    return RESHARD_OK;
}

static reshard_status prepare(compare_work *work)
{
    reshard_status status = rs_engine_list_files(&work->arena, work->comparison->a, &work->files_a);
    if (status == RESHARD_OK)
        status = rs_engine_list_files(&work->arena, work->comparison->b, &work->files_b);
    if (status == RESHARD_OK)
        status = plan_routes(work);
    if (status == RESHARD_OK)
        status = rs_blocks_cut(&work->blocks, &work->arena, work->route_count, work->routes,
                               THREAD_BYTES, false);
    if (status != RESHARD_OK)
        return status;
    work->finding.firsts = rs_arena_allocate_array(&work->arena, (size_t)work->route_count,
                                                   sizeof *work->finding.firsts);
    if (work->finding.firsts == NULL)
        return rs_allocation_status();
    for (int64_t i = 0; i < work->route_count; i++)
        atomic_init(&work->finding.firsts[i], UINT64_MAX);
    return RESHARD_OK;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* Keeps for each route the smallest number that any rank found. Collective. */
static reshard_status merge(compare_work *work, uint64_t *firsts)
{
    reshard_status status = RESHARD_OK;
    for (int64_t from = 0; status == RESHARD_OK && from < work->route_count; from += GATHERED_MAX) {
        int64_t rest = work->route_count - from;
        size_t count = (size_t)(rest < GATHERED_MAX ? rest : GATHERED_MAX);
        size_t bytes = count * sizeof *firsts, ranks = (size_t)work->team.rank_count;
        void *all = NULL;
        status = rs_team_gather(&work->team, firsts + from, bytes, &all);
        if (status != RESHARD_OK)
            return status;
        for (size_t i = 0; i < ranks * count; i++) {
            uint64_t theirs = ((const uint64_t *)all)[i],
                     *mine = &firsts[from + (int64_t)(i % count)];
            *mine = theirs < *mine ? theirs : *mine;
        }
        rs_release(work->team.context, all);
    }
    return status;
}

/* Reads the first differing element from both sides; A's as it is after the conversion. */
static reshard_status read_values(const reshard_comparison *comparison, rs_compared *item)
{
    const rs_stored_tensor *a = &comparison->a->tensors[item->a];
    const rs_stored_tensor *b = &comparison->b->tensors[item->b];
    int64_t index[RESHARD_NDIM_MAX], size[RESHARD_NDIM_MAX];
    unsigned char scratch[RS_VALUE_BYTES], stored[RS_VALUE_BYTES] = {0};
    rs_element_index(b, item->first, index);
    for (int32_t d = 0; d < b->carried_ndim; d++)
        size[d] = 1;
    reshard_status status =
        rs_store_read_box(comparison->a, a, index, size, stored, scratch, sizeof scratch);
    if (status == RESHARD_OK)
        status = rs_store_read_box(comparison->b, b, index, size, item->values[1], scratch,
                                   sizeof scratch);
    if (status == RESHARD_OK && a->dtype != b->dtype)
        rs_cast_reference(a->dtype, b->dtype, stored, item->values[0]);
    else
        memcpy(item->values[0], stored, sizeof stored);
    return status;
}

/* Turns the findings of all ranks into differences. Collective. */
static reshard_status settle(compare_work *work)
{
    const reshard_comparison *comparison = work->comparison;
    size_t count = (size_t)work->route_count;
    uint64_t *firsts = rs_arena_allocate_array(&work->arena, count, sizeof *firsts);
    reshard_status status = firsts != NULL ? RESHARD_OK : rs_allocation_status();
    for (size_t i = 0; status == RESHARD_OK && i < count; i++)
        firsts[i] = atomic_load(&work->finding.firsts[i]);
    status = rs_team_agree(&work->team, status);
    if (status != RESHARD_OK || (status = merge(work, firsts)) != RESHARD_OK)
        return status;
    for (size_t i = 0; status == RESHARD_OK && i < count; i++) {
        if (firsts[i] == UINT64_MAX)
            continue;
        rs_compared *item = work->items_of_b[work->routes[i].target - comparison->b->tensors];
        item->kind = RESHARD_DIFFERENCE_BYTES;
        item->first = (int64_t)firsts[i];
        status = read_values(comparison, item);
    }
    return rs_team_agree(&work->team, status);
}

/* Prefixes an error within one of the two checkpoints with its path. A failed check there means
 * damage. */
static reshard_status blame(const reshard_checkpoint *checkpoint, reshard_status status)
{
    if (status == RESHARD_ERR_CHECK)
        status = rs_fail_as(RESHARD_ERR_CORRUPT);
    return status == RESHARD_OK || rs_error_is_within(checkpoint->path)
               ? status
               : rs_fail_within(status, "%s", checkpoint->path);
}

/* Compares the bytes of all pairs, and the copies and checksums within each checkpoint.
 * `again`: what differs will be read again. Collective. */
static reshard_status compare_bytes(compare_work *work, bool again)
{
    const reshard_comparison *comparison = work->comparison;
    const rs_team *team = &work->team;
    const reshard_checkpoint *sides[2] = {comparison->opened, comparison->b};
    reshard_status status = rs_team_agree(team, prepare(work));
    for (int i = 0; status == RESHARD_OK && i < 2; i++)
        status = blame(sides[i], rs_engine_check_copies(sides[i], team, "comparing copies",
                                                        work->threads, THREAD_BYTES));
    for (int i = 0; status == RESHARD_OK && i < 2; i++)
        status = blame(sides[i], rs_crcs_check_all(sides[i], team));
    for (int i = 0; !again && status == RESHARD_OK && i < 2; i++)
        status = rs_team_agree(team, rs_engine_begin_pass(sides[i]));
    if (status != RESHARD_OK)
        return status;
    work->finding.a = comparison->a;
    work->finding.b = comparison->b;
    work->finding.engine = (rs_engine){.context = team->context,
                                       .sink = &rs_sink_find,
                                       .what = rs_team_leads(team) ? "comparing" : NULL,
                                       .blocks = &work->blocks,
                                       .sources = work->files_a,
                                       .targets = work->files_b,
                                       .threads = work->threads};
    status = rs_engine_run_shared(&work->finding.engine, team);
    return status == RESHARD_OK ? settle(work) : status;
}

/* ---- digests --------------------------------------------------------------------------------- */

static reshard_status check_uncast(const reshard_comparison *comparison)
{
    for (int64_t i = 0; i < comparison->count; i++) {
        const rs_compared *item = &comparison->items[i];
        if (item->a >= 0 && item->dtype != comparison->a->tensors[item->a].dtype)
            return rs_fail(RESHARD_ERR_UNSUPPORTED,
                           "tensor \"%.*s\" was cast to another dtype, so its digest differs; "
                           "compare bytes instead",
                           RS_SHOWN(item->name));
    }
    return RESHARD_OK;
}

/* Compares the digests of all pairs. Collective. */
static reshard_status compare_digests(compare_work *work, const reshard_comparison_options *options)
{
    reshard_comparison *comparison = work->comparison;
    const reshard_digest_options digesting = {.size = sizeof digesting,
                                              .threads = options->threads,
                                              .check_copies = 1,
                                              .group = options->group};
    reshard_digests *a = NULL, *b = NULL;
    reshard_status status = rs_team_agree(&work->team, check_uncast(comparison));
    if (status == RESHARD_OK)
        status = blame(comparison->a, reshard_checkpoint_digest(comparison->a, &digesting, &a));
    if (status == RESHARD_OK)
        status = blame(comparison->b, reshard_checkpoint_digest(comparison->b, &digesting, &b));
    for (int64_t i = 0; status == RESHARD_OK && i < comparison->count; i++) {
        rs_compared *item = &comparison->items[i];
        if (item->kind == 0 && strcmp(a->tensors[item->a], b->tensors[item->b]) != 0)
            item->kind = RESHARD_DIFFERENCE_BYTES;
    }
    if (status == RESHARD_OK) {
        memcpy(comparison->stats.digest_a, a->checkpoint, sizeof a->checkpoint);
        memcpy(comparison->stats.digest_b, b->checkpoint, sizeof b->checkpoint);
    }
    reshard_digests_destroy(b);
    reshard_digests_destroy(a);
    return status;
}

/* ---- results --------------------------------------------------------------------------------- */

static void count_item(reshard_comparison_stats *stats, const reshard_comparison *comparison,
                       const rs_compared *item)
{
    bool compared =
        item->kind == 0 || item->kind == RESHARD_DIFFERENCE_BYTES || item->measure != NULL;
    stats->tensors_compared += compared;
    stats->bytes_compared += compared ? comparison->b->tensors[item->b].bytes : 0;
    stats->tensors_dropped += item->dropped;
    stats->tensors_within += item->is_within;
    stats->tensors_within_dtype += item->is_within && item->kind == RESHARD_DIFFERENCE_DTYPE;
    stats->difference_count += item->kind != 0 && !item->dropped && !item->is_within;
}

/* Counts, and lists the differences, then what is within the tolerance. */
static reshard_status count_all(reshard_comparison *comparison)
{
    reshard_comparison_stats *stats = &comparison->stats;
    for (int64_t i = 0; i < comparison->count; i++)
        count_item(stats, comparison, &comparison->items[i]);
    int64_t listed = stats->difference_count + stats->tensors_within, next[2] = {0};
    rs_compared *list = rs_arena_allocate_array(&comparison->arena, (size_t)listed, sizeof *list);
    if (list == NULL)
        return rs_allocation_status();
    next[1] = stats->difference_count;
    for (int64_t i = 0; i < comparison->count; i++) {
        const rs_compared *item = &comparison->items[i];
        if (item->kind != 0 && !item->dropped)
            list[next[item->is_within]++] = *item;
    }
    comparison->items = list;
    comparison->count = listed;
    if (stats->tensors_compared == 0 && listed == 0 && comparison->a->tensor_count != 0)
        return rs_fail_about(RESHARD_ERR_INVALID, comparison->a->path,
                             "no tensor of %lld would be compared; check what is left out",
                             (long long)comparison->a->tensor_count);
    return RESHARD_OK;
}

static reshard_status read_tolerances(reshard_comparison_options *chosen)
{
    if (!(chosen->tolerance >= 0 && chosen->tolerance_l2 >= 0))
        return rs_fail(RESHARD_ERR_INVALID, "compare: the tolerance is %g; give a number above 0",
                       chosen->tolerance >= 0 ? chosen->tolerance_l2 : chosen->tolerance);
    if (chosen->tolerance > 0 || chosen->tolerance_l2 > 0)
        chosen->measure = 1;
    if (chosen->measure && chosen->by_digest)
        return rs_fail(
            RESHARD_ERR_INVALID,
            "compare: digests cannot tell how far apart numbers are; compare bytes instead");
    return RESHARD_OK;
}

static reshard_status read_options(const reshard_comparison_options *options,
                                   reshard_comparison_options *out_chosen,
                                   reshard_conversion_options *out_conversion)
{
    reshard_status status =
        rs_options_read("comparison options", options, out_chosen, sizeof *out_chosen);
    if (status == RESHARD_OK)
        status = rs_options_read("conversion options", out_chosen->conversion, out_conversion,
                                 sizeof *out_conversion);
    bool has_map = out_conversion->as != NULL || out_conversion->map_file != NULL ||
                   out_conversion->map_text != NULL;
    if (status == RESHARD_OK && out_conversion->dequantize != RESHARD_DTYPE_NONE && !has_map)
        status =
            rs_fail(RESHARD_ERR_UNSUPPORTED, "compare: dequantised weights can only be compared by "
                                             "the conversion that makes them; convert with verify");
    return status == RESHARD_OK ? read_tolerances(out_chosen) : status;
}

static reshard_status compare(compare_work *work, const reshard_comparison_options *options,
                              const reshard_conversion_options *conversion)
{
    reshard_status status = rs_team_choose_threads(&work->team, options->threads, &work->threads);
    if (status == RESHARD_OK)
        status = rs_store_check_readable(work->comparison->a);
    if (status == RESHARD_OK)
        status = rs_store_check_all_readable(work->comparison->b);
    if (status == RESHARD_OK && work->comparison->b->viewed != NULL)
        status = rs_fail_about(RESHARD_ERR_UNSUPPORTED, work->comparison->b->path,
                               "B is a view, and only A may be one; swap the two");
    if (status == RESHARD_OK)
        status = rs_comparison_see(work->comparison, conversion, options->ignore_dropped != 0);
    status = compare_ranks(work, status, options);
    const rs_mapped *mapped = work->comparison->mapped;
    if (status == RESHARD_OK && mapped != NULL)
        status = rs_fail_within(
            rs_mapped_compare(&mapped->made, mapped->check_count, mapped->checks, &work->team),
            "%s", work->comparison->opened->path);
    if (status == RESHARD_OK)
        status = options->by_digest ? compare_digests(work, options)
                                    : compare_bytes(work, options->measure != 0);
    if (status == RESHARD_OK && options->measure)
        status = rs_comparison_measure(work->comparison, &work->team, options, work->threads,
                                       THREAD_BYTES);
    return status == RESHARD_OK ? count_all(work->comparison) : status;
}

reshard_status reshard_checkpoint_compare(const reshard_checkpoint *a, const reshard_checkpoint *b,
                                          const reshard_comparison_options *options,
                                          reshard_comparison **out_comparison)
{
    reshard_comparison_options chosen;
    reshard_conversion_options conversion;
    reshard_status status = read_options(options, &chosen, &conversion);
    if (status != RESHARD_OK)
        return status;
    compare_work work = {.team = rs_team_of(a->context, chosen.group)};
    reshard_comparison *comparison = rs_allocate_zeroed(a->context, sizeof *comparison);
    status = rs_team_agree(&work.team, comparison != NULL ? RESHARD_OK : rs_allocation_status());
    if (comparison == NULL)
        return status;
    *comparison = (reshard_comparison){.context = a->context, .a = a, .b = b, .opened = a};
    rs_arena_init(&comparison->arena, a->context);
    rs_arena_init(&work.arena, a->context);
    work.comparison = comparison;
    if (status == RESHARD_OK)
        status = compare(&work, &chosen, &conversion);
    rs_arena_release(&work.arena);
    if (status == RESHARD_OK)
        *out_comparison = comparison;
    else
        reshard_comparison_destroy(comparison);
    return status;
}

void reshard_comparison_destroy(reshard_comparison *comparison)
{
    if (comparison == NULL)
        return;
    rs_arena_release(&comparison->arena);
    rs_release(comparison->context, comparison);
}

reshard_status reshard_comparison_get_stats(const reshard_comparison *comparison,
                                            reshard_comparison_stats *out_stats)
{
    return rs_report_write("comparison stats", &comparison->stats, sizeof comparison->stats,
                           out_stats);
}

const char *reshard_comparison_note(const reshard_comparison *comparison, int64_t index)
{
    return rs_notes_at(&comparison->notes, index);
}
