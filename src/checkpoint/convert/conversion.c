/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conversion.c - plans a conversion and answers questions about it. Everything that can be wrong
 * with source, rules and options is found here, before anything is written.
 */
#include "checkpoint/convert/conversion.h"
#include "checkpoint/convert/target_make.h"
#include "checkpoint/view/mapped.h"

#include "base/context.h"
#include "base/digest.h"
#include "base/options.h"
#include "checkpoint/store/formula.h"
#include "transport/group.h"

#include <assert.h>
#include <string.h>

#define MEMORY_DEFAULT ((size_t)512 << 20)
#define MEMORY_MIN RS_ENGINE_BYTES_MIN

/* ---- what goes where ------------------------------------------------------------------------- */

static reshard_status plan_routes(reshard_conversion *conversion)
{
    const rs_target *target = &conversion->target;
    rs_arena *arena = &conversion->arena;
    rs_route_cache *cache = rs_arena_allocate(arena, sizeof *cache);
    conversion->routes =
        rs_arena_allocate_array(arena, (size_t)target->tensor_count, sizeof(rs_route));
    if (cache == NULL || conversion->routes == NULL)
        return rs_allocation_status();
    memset(cache, 0, sizeof *cache);
    for (int64_t i = 0; i < target->tensor_count; i++) {
        bool is_tied = target->owners != NULL && target->owners[i] >= 0;
        if (target->tensors[i].bytes == 0 || is_tied)
            continue;
        rs_route *route = &conversion->routes[conversion->route_count];
        reshard_status status =
            rs_route_plan(arena, cache, target->stored[i], &target->tensors[i], route);
        if (status == RESHARD_OK && rs_context_cancelled(conversion->context))
            status = rs_fail(RESHARD_ERR_CANCELLED, "cancelled");
        if (status != RESHARD_OK)
            return status;
        /* CRCs are summed in memory, so the kernel cannot copy. */
        route->direct = route->direct && !target->format->has_crcs && !target->format->is_packed;
        conversion->bytes += rs_route_target_bytes(route);
        conversion->route_count++;
        rs_context_progress(conversion->context, "planning", (uint64_t)i + 1,
                            (uint64_t)target->tensor_count);
    }
    rs_routes_sort(conversion->routes, conversion->route_count);
    return RESHARD_OK;
}

static void digest_tensor(rs_digest *digest, const rs_stored_tensor *tensor);

/* Adds what a tensor is computed from. */
static void digest_formula(rs_digest *digest, const rs_stored_tensor *tensor)
{
    const rs_formula *formula = tensor->formula;
    if (formula->codes != NULL) {
        digest_tensor(digest, formula->codes);
        digest_tensor(digest, formula->scales);
        rs_digest_i64s(digest, formula->blocks, RESHARD_NDIM_MAX);
    }
    if (formula->constant != NULL)
        rs_digest_bytes(digest, formula->constant, (size_t)tensor->element_bytes);
    if (formula->held != NULL)
        rs_digest_bytes(digest, formula->held, (size_t)tensor->bytes);
    if (formula->values != NULL)
        digest_tensor(digest, formula->values);
    rs_digest_bytes(digest, &formula->added, sizeof formula->added);
    rs_digest_u64(digest, (uint64_t)formula->link_count);
    for (int64_t i = 0; i < formula->link_count; i++) {
        const rs_formula_link *link = &formula->links[i];
        digest_tensor(digest, link->source);
        rs_digest_i64s(digest, link->source_at, link->source->carried_ndim);
        rs_digest_i64s(digest, link->target_at, tensor->carried_ndim);
        for (int32_t k = 0; k < link->axis_count; k++) {
            const reshard_link_axis *axis = &link->axes[k];
            const int64_t numbers[5] = {axis->size, axis->source_dim, axis->target_dim,
                                        axis->source_step, axis->target_step};
            rs_digest_i64s(digest, numbers, 5);
        }
    }
}

/* Adds a tensor of the source to the digest. Formulas are made of stored tensors, of codes and
 * scales, or of one that is, so this does not recurse far. */
static void digest_tensor(rs_digest *digest, const rs_stored_tensor *tensor)
{
    rs_digest_bytes(digest, tensor->name.bytes, tensor->name.count);
    rs_digest_u64(digest, (uint64_t)tensor->dtype);
    rs_digest_u64(digest, (uint64_t)tensor->ndim);
    rs_digest_i64s(digest, tensor->shape, tensor->ndim);
    rs_pieces_digest(digest, tensor);
    if (tensor->formula != NULL)
        digest_formula(digest, tensor);
}

void rs_conversion_digest(const reshard_conversion *conversion, uint64_t out_digest[2])
{
    const reshard_checkpoint *source = conversion->source;
    const rs_target *target = &conversion->target;
    rs_digest digest;
    rs_digest_init(&digest);
    for (int32_t i = 0; i < source->file_count; i++) {
        rs_digest_bytes(&digest, source->files[i].name, strlen(source->files[i].name));
        rs_digest_u64(&digest, source->files[i].bytes);
        rs_digest_u64(&digest, (uint64_t)source->files[i].stamp.modified);
    }
    rs_target_digest(target, &digest);
    if (target->mapped != NULL) {
        rs_digest_u64(&digest, target->mapped->digest[0]);
        rs_digest_u64(&digest, target->mapped->digest[1]);
    }
    for (int64_t i = 0; i < target->tensor_count; i++)
        digest_tensor(&digest, target->stored[i]);
    rs_digest_finish(&digest, out_digest);
}

/* ---- memory ---------------------------------------------------------------------------------- */

reshard_status rs_conversion_fit(const reshard_conversion *conversion, size_t thread_bytes,
                                 int32_t *threads)
{
    assert(thread_bytes != 0);
    size_t fitting = conversion->memory_bytes / thread_bytes;
    if (fitting == 0)
        return rs_fail(RESHARD_ERR_MEMORY_LIMIT,
                       "blocks of an earlier run or of another rank need %zu bytes of memory, but "
                       "only %zu are allowed; allow more",
                       thread_bytes, conversion->memory_bytes);
    *threads = (size_t)conversion->threads < fitting ? conversion->threads : (int32_t)fitting;
    return RESHARD_OK;
}

/* Numbers that the user asked for are taken as they are, or refused. */
static reshard_status check_memory(reshard_conversion *conversion,
                                   const reshard_conversion_options *options)
{
    size_t threads = options->threads > 0 ? (size_t)options->threads : 1;
    if (options->memory_bytes_max != 0 && options->memory_bytes_max / threads < MEMORY_MIN)
        return rs_fail(RESHARD_ERR_INVALID, "%zu bytes of memory are too few: %zu %s at least %zu",
                       options->memory_bytes_max, threads,
                       threads == 1 ? "thread needs" : "threads need",
                       threads * (size_t)MEMORY_MIN);
    return rs_team_choose_threads(&conversion->team, options->threads, &conversion->threads);
}

/* Makes all ranks cut blocks for the leader's memory. `adapts`: the user did not ask for a number
 * of threads. Collective. */
static reshard_status share_memory(reshard_conversion *conversion, bool adapts)
{
    rs_engine_share_memory(conversion->memory_bytes, adapts, &conversion->threads,
                           &conversion->thread_bytes);
    uint64_t thread_bytes = conversion->thread_bytes;
    reshard_status status = rs_team_tell(&conversion->team, RESHARD_OK, &thread_bytes);
    if (status != RESHARD_OK)
        return status;
    conversion->thread_bytes = (size_t)thread_bytes;
    return rs_team_agree(&conversion->team, rs_conversion_fit(conversion, conversion->thread_bytes,
                                                              &conversion->threads));
}

/* ---- making ---------------------------------------------------------------------------------- */

static reshard_status plan(reshard_conversion *conversion,
                           const reshard_conversion_options *options)
{
    reshard_status status = rs_cuts_check_source(conversion->source);
    if (status == RESHARD_OK && conversion->source->viewed != NULL)
        status =
            rs_fail_about(RESHARD_ERR_INVALID, conversion->source->path,
                          "is a view through a map; convert the checkpoint itself with that map");
    if (status == RESHARD_OK)
        status = check_memory(conversion, options);
    if (status == RESHARD_OK)
        status = rs_target_init(&conversion->target, conversion->source, options);
    if (status == RESHARD_OK)
        status =
            rs_engine_list_files(&conversion->arena, conversion->source, &conversion->source_files);
    if (status == RESHARD_OK)
        status = rs_conversion_list_others(conversion);
    if (status == RESHARD_OK)
        status = plan_routes(conversion);
    return status;
}

static reshard_status plan_traced(reshard_conversion *conversion,
                                  const reshard_conversion_options *options)
{
    rs_trace_track *track = NULL;
    reshard_status status = rs_trace_take(conversion->trace, conversion->trace_rank, 0, 0, &track);
    if (status != RESHARD_OK)
        return status;
    rs_trace_event event = rs_trace_begin(track, RS_TRACE_PLAN);
    status = plan(conversion, options);
    event.bytes = conversion->bytes;
    rs_trace_end(track, &event);
    rs_trace_give_back(track);
    return status;
}

/* Checks that all ranks have made the same plan. Collective. */
static reshard_status compare_plans(const reshard_conversion *conversion, reshard_status status)
{
    uint64_t digest[2] = {0, 0};
    if (status == RESHARD_OK && conversion->team.group != NULL)
        rs_conversion_digest(conversion, digest);
    return rs_team_compare(&conversion->team, status, "convert: the conversion", digest);
}

reshard_status reshard_conversion_create(reshard_context *context,
                                         const reshard_checkpoint *checkpoint,
                                         const reshard_conversion_options *options,
                                         reshard_conversion **out_conversion)
{
    reshard_conversion_options chosen;
    reshard_status status = rs_options_read("conversion options", options, &chosen, sizeof chosen);
    if (status != RESHARD_OK)
        return status;
    rs_team team = rs_team_of(context, chosen.group);
    reshard_conversion *conversion = rs_allocate_zeroed(context, sizeof *conversion);
    if (conversion == NULL)
        return rs_team_agree(&team, rs_allocation_status());
    conversion->context = context;
    conversion->source = checkpoint;
    conversion->team = team;
    if (team.group != NULL)
        (void)reshard_group_retain(team.group);
    conversion->trace = chosen.trace;
    conversion->trace_rank = team.group != NULL ? rs_group_root_rank(team.group, team.rank) : 0;
    conversion->memory_bytes =
        chosen.memory_bytes_max != 0 ? chosen.memory_bytes_max : MEMORY_DEFAULT;
    rs_arena_init(&conversion->arena, context);
    rs_arena_init(&conversion->target.arena, context);
    status = chosen.trace != NULL ? plan_traced(conversion, &chosen) : plan(conversion, &chosen);
    status = compare_plans(conversion, status);
    if (status == RESHARD_OK)
        status = share_memory(conversion, chosen.threads == 0);
    if (status == RESHARD_OK)
        *out_conversion = conversion;
    else
        reshard_conversion_destroy(conversion);
    return status;
}

void reshard_conversion_destroy(reshard_conversion *conversion)
{
    if (conversion == NULL)
        return;
    rs_arena_release(&conversion->arena);
    rs_target_release(&conversion->target);
    reshard_group_release(conversion->team.group);
    rs_release(conversion->context, conversion);
}

/* ---- answers --------------------------------------------------------------------------------- */

reshard_status reshard_conversion_get_stats(const reshard_conversion *conversion,
                                            reshard_conversion_stats *out_stats)
{
    const rs_target *target = &conversion->target;
    reshard_conversion_stats stats = {.format = target->format->name,
                                      .rules = target->rules,
                                      .tensor_count = target->tensor_count,
                                      .source_file_count = conversion->source->file_count,
                                      .target_file_count = target->file_count,
                                      .written_file_count = target->written_count,
                                      .bytes_written = conversion->bytes,
                                      .memory_bytes =
                                          (uint64_t)conversion->threads * conversion->thread_bytes,
                                      .threads = conversion->threads,
                                      .ranks = conversion->team.rank_count,
                                      .naming = target->naming != NULL ? target->naming : ""};
    for (int64_t i = 0; i < conversion->route_count; i++) {
        const rs_route *route = &conversion->routes[i];
        stats.move_count += route->move_count;
        const rs_formula *formula = route->source->formula;
        if (rs_formula_is_quantised(route->source))
            stats.bytes_read += formula->codes->bytes + formula->scales->bytes;
        else if (formula != NULL && formula->values != NULL)
            stats.bytes_read += formula->values->bytes;
        else if (formula == NULL || (formula->constant == NULL && formula->held == NULL))
            stats.bytes_read += route->source->bytes;
        stats.bytes_shared += route->direct ? route->target->bytes : 0;
    }
    return rs_report_write("conversion stats", &stats, sizeof stats, out_stats);
}

reshard_status reshard_conversion_get_link(const reshard_conversion *conversion, int64_t tensor,
                                           int64_t index, reshard_strided_link *out_link)
{
    const rs_target *target = &conversion->target;
    const rs_mapped_origin *made = NULL;
    if (target->mapped != NULL && tensor >= 0 && tensor < target->tensor_count &&
        target->origins[tensor] >= 0)
        made = &target->mapped->origins[target->origins[tensor]];
    if (made == NULL || index < 0 || index >= made->link_count)
        return rs_fail(RESHARD_ERR_RANGE, "there is no link %lld of %lld into tensor %lld",
                       (long long)index, (long long)(made != NULL ? made->link_count : 0),
                       (long long)tensor);
    const rs_formula_link *link = &made->links[index];
    reshard_strided_link found = {.source = (int32_t)made->link_sources[index],
                                  .target = (int32_t)tensor,
                                  .axis_count = link->axis_count};
    memcpy(found.source_at, link->source_at, sizeof found.source_at);
    memcpy(found.target_at, link->target_at, sizeof found.target_at);
    memcpy(found.axes, link->axes, (size_t)link->axis_count * sizeof found.axes[0]);
    return rs_report_write("link", &found, sizeof found, out_link);
}

reshard_status reshard_conversion_get_tensor(const reshard_conversion *conversion, int64_t index,
                                             reshard_conversion_tensor *out_tensor)
{
    const rs_target *target = &conversion->target;
    if (index < 0 || index >= target->tensor_count)
        return rs_fail(RESHARD_ERR_RANGE, "there is no tensor %lld; there are %lld",
                       (long long)index, (long long)target->tensor_count);
    int64_t origin = target->origins[index];
    const rs_mapped_origin *made =
        target->mapped != NULL && origin >= 0 ? &target->mapped->origins[origin] : NULL;
    reshard_conversion_tensor found =
        rs_cut_tensor_of(&target->tensors[index], &target->origins[index], target->rows[index]);
    if (origin < 0)
        found.source_count = 0; /* it comes from the file that is followed */
    if (made != NULL) {
        found.source = made->count > 0 ? made->sources[0] : -1;
        found.source_count = made->count;
        found.sources = made->sources;
        found.map_file = made->file;
        found.map_line = made->line;
        found.link_count = made->link_count;
    }
    return rs_report_write("conversion tensor", &found, sizeof found, out_tensor);
}

const char *reshard_conversion_note(const reshard_conversion *conversion, reshard_note_kind kind,
                                    int64_t index)
{
    const rs_target *target = &conversion->target;
    return rs_notes_at(kind == RESHARD_NOTE ? &target->lines : &target->warnings, index);
}

const char *reshard_conversion_file_name(const reshard_conversion *conversion, int32_t file)
{
    const rs_target *target = &conversion->target;
    return file >= 0 && file < target->file_count ? target->files[file].name : NULL;
}

void reshard_conversion_get_matrix(const reshard_conversion *conversion, uint64_t *out_bytes)
{
    size_t columns = (size_t)conversion->target.file_count;
    memset(out_bytes, 0, (size_t)conversion->source->file_count * columns * sizeof *out_bytes);
    for (int64_t i = 0; i < conversion->route_count; i++) {
        const rs_route *route = &conversion->routes[i];
        const rs_formula *formula = route->source->formula;
        if (formula != NULL && formula->constant != NULL)
            continue;
        for (int64_t j = 0; j < route->move_count; j++) {
            const rs_route_move *move = &route->moves[j];
            size_t row = (size_t)route->source->pieces[move->source].file;
            size_t column = (size_t)route->target->pieces[move->target].file;
            out_bytes[row * columns + column] +=
                (uint64_t)(rs_volume(route->target->carried_ndim, move->size) *
                           route->target->element_bytes);
        }
    }
}
