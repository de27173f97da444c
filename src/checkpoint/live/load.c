/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load.c - fills the shards of live ranks from a checkpoint.
 *
 * Every rank reads its own shards (shards.c). With read_once, all ranks first read equal shares of
 * a tensor, cut as a line of elements because files usually hold these in long runs. A plan then
 * moves the elements to where they belong.
 */
#include "base/shape.h"
#include "checkpoint/live/live.h"

#include "base/checked.h"
#include "base/context.h"
#include "base/error.h"
#include "base/options.h"
#include "checkpoint/engine/engine.h"
#include "kernel/values/cast.h"
#include "layout/layout.h"
#include "text/text.h"
#include "transport/group.h"

#include <reshard/exec.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

reshard_status rs_live_check_memory(rs_slice name, const reshard_layout *layout, int32_t rank,
                                    void *const *memory)
{
    for (int32_t i = 0; i < rs_layout_shard_count(layout, rank); i++) {
        bool has_memory = memory != NULL && memory[i] != NULL;
        if (!has_memory && rs_layout_one_shard_volume(layout, rank, i) != 0)
            return rs_fail(RESHARD_ERR_INVALID,
                           "tensor \"%.*s\": shard %d of rank %d has no memory", RS_SHOWN(name),
                           (int)i, (int)rank);
    }
    return RESHARD_OK;
}

reshard_status rs_live_check_count(int64_t count)
{
    return count >= 0 ? RESHARD_OK
                      : rs_fail(RESHARD_ERR_RANGE, "a list of %" PRId64 " tensors", count);
}

reshard_status rs_live_check(const reshard_live_tensor *tensor, const reshard_group *group)
{
    const reshard_layout *layout = tensor->layout;
    if (tensor->name == NULL || layout == NULL)
        return rs_fail(RESHARD_ERR_INVALID, "a live tensor has no %s",
                       tensor->name == NULL ? "name" : "layout");
    if (reshard_dtype_bits(tensor->dtype) % 8 != 0 || reshard_dtype_bits(tensor->dtype) == 0)
        return rs_fail(RESHARD_ERR_UNSUPPORTED,
                       "tensor \"%.200s\": its elements are not whole bytes", tensor->name);
    if (layout->partial)
        return rs_fail(RESHARD_ERR_UNSUPPORTED,
                       "tensor \"%.200s\": its layout is partial; redistribute it first",
                       tensor->name);
    for (int32_t i = 0; i < layout->rank_count; i++) {
        int32_t rank = reshard_layout_rank_at(layout, i);
        if (rank >= reshard_group_size(group))
            return rs_fail(RESHARD_ERR_RANGE,
                           "tensor \"%.200s\": its layout has rank %d, the group only %d ranks",
                           tensor->name, rank, reshard_group_size(group));
    }
    return rs_live_check_memory(rs_slice_of(tensor->name), layout, reshard_group_rank(group),
                                tensor->shards);
}

/* ---- one tensor ------------------------------------------------------------------------------ */

static reshard_status check_shape(const reshard_live_tensor *tensor, const rs_stored_tensor *stored)
{
    int32_t ndim = tensor->layout->ndim;
    const int64_t *shape = tensor->layout->shape;
    bool same = ndim == stored->ndim;
    for (int32_t d = 0; same && d < ndim; d++)
        same = shape[d] == stored->shape[d];
    if (same)
        return RESHARD_OK;
    char words[256];
    rs_text text;
    rs_text_init(&text, words, sizeof words);
    rs_text_add_shape(&text, ndim, shape);
    rs_text_add(&text, " here and ");
    rs_text_add_shape(&text, stored->ndim, stored->shape);
    return rs_fail(RESHARD_ERR_MISMATCH, "tensor \"%.200s\": its shape is %s on disk", tensor->name,
                   words);
}

static reshard_status find_stored(const reshard_checkpoint *checkpoint, const reshard_group *group,
                                  const reshard_live_tensor *tensor,
                                  const rs_stored_tensor **out_stored)
{
    reshard_status status = rs_live_check(tensor, group);
    if (status != RESHARD_OK)
        return status;
    int64_t index = rs_store_find(checkpoint, (rs_slice){tensor->name, strlen(tensor->name)});
    if (index < 0)
        return rs_fail(RESHARD_ERR_NOT_FOUND, "there is no tensor \"%.200s\" in the checkpoint",
                       tensor->name);
    const rs_stored_tensor *stored = &checkpoint->tensors[index];
    if (stored->opaque)
        return rs_fail(RESHARD_ERR_UNSUPPORTED, "tensor \"%.200s\" cannot be cut as it is stored",
                       tensor->name);
    if (stored->dtype != tensor->dtype && !rs_cast_supports(stored->dtype, tensor->dtype))
        return rs_fail(RESHARD_ERR_UNSUPPORTED,
                       "tensor \"%.200s\": cannot be cast from %s, as it is stored, to %s",
                       tensor->name, reshard_dtype_name(stored->dtype),
                       reshard_dtype_name(tensor->dtype));
    *out_stored = stored;
    return check_shape(tensor, stored);
}

/* The equal shares of a tensor that ranks read if it is read once. */
static reshard_status make_shares(const reshard_checkpoint *checkpoint, const reshard_group *group,
                                  const reshard_live_tensor *tensor, reshard_layout **out_layout)
{
    char spec[64];
    int32_t ndim = tensor->layout->ndim;
    (void)snprintf(spec, sizeof spec, ndim == 0 ? "1: R" : "%d: S(flat)",
                   reshard_group_size(group));
    return reshard_layout_parse(checkpoint->context, spec, ndim, tensor->layout->shape, out_layout);
}

typedef struct sharing {
    reshard_layout *shares;
    reshard_plan *plan;
    reshard_exec *exec;
    void *memory;
    size_t bytes;
} sharing;

/* The plan does not count what its casts do, so each rank counts in the share it has read. */
static void count_overflows(const rs_live_reading *r, const rs_stored_tensor *stored,
                            reshard_dtype dtype, const sharing *s)
{
    _Alignas(64) char cast_values[8192];
    int64_t total = (int64_t)s->bytes / stored->element_bytes, overflows = 0;
    int64_t most = (int64_t)sizeof cast_values / (reshard_dtype_bits(dtype) / 8);
    for (int64_t first = 0; first < total; first += most) {
        const int64_t count = rs_min(most, total - first), step = 1;
        rs_cast cast;
        rs_cast_prepare(&cast, stored->dtype, dtype, 1, &count, &step, &step);
        cast.overflows = &overflows;
        rs_cast_run(&cast, (const char *)s->memory + first * stored->element_bytes, cast_values);
    }
    *r->overflowed += (uint64_t)overflows;
}

static reshard_status read_share(const rs_live_reading *r, reshard_group *group,
                                 const reshard_live_tensor *tensor, const rs_stored_tensor *stored,
                                 sharing *s)
{
    int32_t rank = reshard_group_rank(group);
    reshard_status status = make_shares(r->checkpoint, group, tensor, &s->shares);
    if (status != RESHARD_OK)
        return status;
    /* Casting is left to the plan. */
    reshard_plan_tensor from = {.name = tensor->name, .layout = s->shares, .dtype = stored->dtype};
    reshard_plan_tensor to = {
        .name = tensor->name, .layout = tensor->layout, .dtype = tensor->dtype};
    s->bytes = (size_t)rs_layout_shard_volume(s->shares, rank) * (size_t)stored->element_bytes;
    s->memory = rs_allocate(r->checkpoint->context, s->bytes);
    if (s->memory == NULL)
        return rs_allocation_status();
    reshard_link link = reshard_link_whole(0, 0);
    status =
        reshard_plan_create(r->checkpoint->context, 1, &from, 1, &to, 1, &link, NULL, &s->plan);
    const rs_live_item mine = {
        .stored = stored, .layout = s->shares, .dtype = stored->dtype, .memory = &s->memory};
    if (status == RESHARD_OK)
        status = rs_live_read_shards(r, rank, 1, &mine);
    if (status == RESHARD_OK && r->overflowed != NULL && tensor->dtype != stored->dtype)
        count_overflows(r, stored, tensor->dtype, s);
    return status;
}

/* Loads one tensor, of which each rank reads a share. `status`: as below. Collective. */
static reshard_status load_once(const rs_live_reading *r, reshard_status status,
                                reshard_group *group, const reshard_live_tensor *tensor)
{
    reshard_context *context = r->checkpoint->context;
    const rs_stored_tensor *stored = NULL;
    sharing s = {0};
    if (status == RESHARD_OK)
        status = find_stored(r->checkpoint, group, tensor, &stored);
    if (status == RESHARD_OK)
        status = read_share(r, group, tensor, stored, &s);
    status = reshard_group_agree(group, status);
    if (status == RESHARD_OK)
        status =
            reshard_exec_create(context, s.plan, group,
                                RESHARD_OPTIONS(reshard_exec_options, .trace = r->trace), &s.exec);
    const void *const sources[] = {s.memory};
    if (status == RESHARD_OK)
        status = reshard_exec_start(s.exec, sources, tensor->shards);
    if (status == RESHARD_OK)
        status = reshard_exec_wait(s.exec);
    reshard_exec_destroy(s.exec);
    reshard_plan_release(s.plan);
    reshard_layout_release(s.shares);
    rs_release(context, s.memory);
    return status;
}

static reshard_status load_each(const rs_live_reading *r, reshard_group *group, int64_t count,
                                const reshard_live_tensor *tensors)
{
    reshard_context *context = r->checkpoint->context;
    reshard_status status = RESHARD_OK;
    rs_live_item *items = rs_allocate_array(context, (size_t)count, sizeof *items);
    if (items == NULL)
        return rs_allocation_status();
    for (int64_t i = 0; status == RESHARD_OK && i < count; i++) {
        items[i] = (rs_live_item){
            .layout = tensors[i].layout, .dtype = tensors[i].dtype, .memory = tensors[i].shards};
        status = find_stored(r->checkpoint, group, &tensors[i], &items[i].stored);
    }
    if (status == RESHARD_OK)
        status = rs_live_read_shards(r, reshard_group_rank(group), count, items);
    rs_release(context, items);
    return status;
}

/* Collective. `status`: the result of the steps before, on this rank. */
static reshard_status load_all_once(const rs_live_reading *r, reshard_status status,
                                    reshard_group *group, int64_t count,
                                    const reshard_live_tensor *tensors)
{
    for (int64_t i = 0; i < count; i++) {
        status = load_once(r, status, group, &tensors[i]);
        if (status != RESHARD_OK)
            return status; /* all ranks return here */
    }
    return reshard_group_agree(group, status);
}

reshard_status reshard_checkpoint_load(const reshard_checkpoint *checkpoint, reshard_group *group,
                                       int64_t count, const reshard_live_tensor *tensors,
                                       const reshard_checkpoint_load_options *options)
{
    reshard_checkpoint_load_options chosen;
    reshard_status status = rs_group_choose(&group);
    if (status != RESHARD_OK)
        return rs_fail_within(status, "load");
    status = rs_options_read("load options", options, &chosen, sizeof chosen);
    if (status == RESHARD_OK)
        status = rs_live_check_count(count);
    bool once = status == RESHARD_OK && chosen.read_once;
    if (status == RESHARD_OK)
        status = rs_store_check_readable(checkpoint);
    rs_file **files = NULL;
    rs_arena arena;
    rs_arena_init(&arena, checkpoint->context);
    if (status == RESHARD_OK)
        status = rs_engine_list_files(&arena, checkpoint, &files);
    uint64_t overflowed = 0;
    bool counts = status == RESHARD_OK && chosen.values_overflowed != NULL;
    rs_live_reading r = {.checkpoint = checkpoint,
                         .files = files,
                         .trace = status == RESHARD_OK ? chosen.trace : NULL,
                         .trace_rank = rs_group_root_rank(group, reshard_group_rank(group)),
                         .overflowed = counts ? &overflowed : NULL};
    if (once)
        status = load_all_once(&r, status, group, count, tensors);
    else
        status = reshard_group_agree(
            group, status == RESHARD_OK ? load_each(&r, group, count, tensors) : status);
    rs_arena_release(&arena);
    if (status == RESHARD_OK && counts)
        *chosen.values_overflowed = overflowed;
    return status;
}
