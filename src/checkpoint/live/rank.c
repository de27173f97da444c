/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rank.c - reads the shards of one rank of a layout, without a group. All checks are made before
 * the first byte is read.
 */
#include "base/context.h"
#include "base/error.h"
#include "base/options.h"
#include "checkpoint/engine/engine.h"
#include "checkpoint/engine/team.h"
#include "checkpoint/live/live.h"
#include "kernel/values/cast.h"
#include "layout/layout.h"
#include "system/pool.h"
#include "text/text.h"

/* ---- checking -------------------------------------------------------------------------------- */

static reshard_status check_fit(const rs_stored_tensor *stored, const reshard_layout *layout)
{
    int32_t ndim = layout->ndim;
    const int64_t *shape = layout->shape;
    bool fits = ndim == stored->ndim;
    for (int32_t d = 0; fits && d < ndim; d++)
        fits = shape[d] >= stored->shape[d];
    if (fits)
        return RESHARD_OK;
    char words[256];
    rs_text text;
    rs_text_init(&text, words, sizeof words);
    rs_text_add_shape(&text, stored->ndim, stored->shape);
    rs_text_add(&text, ", the layout ");
    rs_text_add_shape(&text, ndim, shape);
    return rs_fail(RESHARD_ERR_MISMATCH, "tensor \"%.*s\" has the shape %s",
                   rs_slice_shown(stored->name), stored->name.bytes, words);
}

static reshard_status check_item(const rs_live_item *item)
{
    const rs_stored_tensor *stored = item->stored;
    const char *problem = NULL;
    if (stored->opaque)
        problem = "cannot be cut as it is stored";
    else if (item->layout->partial)
        problem = "has no partial sums on disk, which the layout asks for";
    if (problem != NULL)
        return rs_fail(RESHARD_ERR_UNSUPPORTED, "tensor \"%.*s\" %s", rs_slice_shown(stored->name),
                       stored->name.bytes, problem);
    if (item->dtype != stored->dtype && !rs_cast_supports(stored->dtype, item->dtype))
        return rs_fail(RESHARD_ERR_UNSUPPORTED,
                       "tensor \"%.*s\": cannot be cast from %s, as it is stored, to %s",
                       rs_slice_shown(stored->name), stored->name.bytes,
                       reshard_dtype_name(stored->dtype), reshard_dtype_name(item->dtype));
    return check_fit(stored, item->layout);
}

static reshard_status make_items(const reshard_checkpoint *checkpoint, int32_t rank, int64_t count,
                                 const reshard_rank_tensor *tensors, rs_live_item *items)
{
    reshard_status status = rs_store_check_readable(checkpoint);
    for (int64_t i = 0; status == RESHARD_OK && i < count; i++) {
        int64_t tensor = tensors[i].tensor;
        if (tensor < 0 || tensor >= checkpoint->tensor_count)
            return rs_fail(RESHARD_ERR_RANGE, "there is no tensor %lld; there are %lld",
                           (long long)tensor, (long long)checkpoint->tensor_count);
        const rs_stored_tensor *stored = &checkpoint->tensors[tensor];
        reshard_dtype dtype = tensors[i].dtype;
        items[i] = (rs_live_item){.stored = stored,
                                  .layout = tensors[i].layout,
                                  .dtype = dtype != RESHARD_DTYPE_NONE ? dtype : stored->dtype,
                                  .memory = tensors[i].shards};
        status = check_item(&items[i]);
        if (status == RESHARD_OK)
            status = rs_live_check_memory(stored->name, items[i].layout, rank, items[i].memory);
    }
    return status;
}

/* ---- reading --------------------------------------------------------------------------------- */

static reshard_status read_tensors(rs_live_reading *reading, int32_t rank, int64_t count,
                                   const reshard_rank_tensor *tensors)
{
    const reshard_checkpoint *checkpoint = reading->checkpoint;
    rs_file **files = NULL;
    rs_arena arena;
    rs_arena_init(&arena, checkpoint->context);
    rs_live_item *items = rs_arena_allocate_array(&arena, (size_t)count, sizeof *items);
    reshard_status status = items != NULL ? RESHARD_OK : rs_allocation_status();
    if (status == RESHARD_OK)
        status = rs_engine_list_files(&arena, checkpoint, &files);
    reading->files = files;
    if (status == RESHARD_OK)
        status = make_items(checkpoint, rank, count, tensors, items);
    if (status == RESHARD_OK)
        status = rs_live_read_shards(reading, rank, count, items);
    rs_arena_release(&arena);
    return status;
}

reshard_status reshard_checkpoint_read_rank(const reshard_checkpoint *checkpoint, int32_t rank,
                                            int64_t count, const reshard_rank_tensor *tensors,
                                            const reshard_read_options *options)
{
    reshard_read_options chosen;
    reshard_status status = rs_options_read("read options", options, &chosen, sizeof chosen);
    if (status != RESHARD_OK)
        return status;
    if (count < 0)
        return rs_fail(RESHARD_ERR_INVALID, "%lld tensors are asked for", (long long)count);
    const rs_team alone = rs_team_of(checkpoint->context, NULL);
    int32_t threads = 0;
    status = rs_team_choose_threads(&alone, chosen.threads, &threads);
    if (status != RESHARD_OK)
        return status;
    uint64_t overflowed = 0;
    rs_live_reading reading = {.checkpoint = checkpoint,
                               .threads = threads,
                               .trace = chosen.trace,
                               .trace_rank = rank,
                               .reports = true,
                               .overflowed = chosen.values_overflowed != NULL ? &overflowed : NULL};
    status = read_tensors(&reading, rank, count, tensors);
    if (status == RESHARD_OK && chosen.values_overflowed != NULL)
        *chosen.values_overflowed = overflowed;
    return status;
}
