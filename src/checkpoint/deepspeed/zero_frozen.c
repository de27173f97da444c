/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zero_frozen.c - frozen parameters, which are in no optimizer's file. In stage 3 the ranks' model
 * files have parts of them, which are joined here; in stages 1 and 2 they are whole.
 */
#include "checkpoint/deepspeed/zero.h"

#include "base/checked.h"
#include "base/context.h"

#include <string.h>

static reshard_status read_fragment(rs_zero_reading *r, int32_t file, rs_slice told,
                                    const rs_pickle_node *node, reshard_dtype *dtype, bool is_first,
                                    rs_zero_flat *out_flat)
{
    reshard_dtype found = RESHARD_DTYPE_NONE;
    int32_t ndim = 0;
    char what[200];
    rs_slice shown = {told.bytes, (size_t)rs_slice_shown(told)};
    size_t length = shown.count < 150 ? shown.count : 150;
    memcpy(what, "frozen parameter \"", 18);
    memcpy(what + 18, shown.bytes, length);
    memcpy(what + 18 + length, "\"", 2);
    reshard_status status =
        rs_zero_flat_read(r->checkpoint, file, node, what, &found, &ndim, out_flat);
    if (status == RESHARD_OK && is_first)
        *dtype = found;
    if (status == RESHARD_OK && found != *dtype)
        status = rs_fail_about(RESHARD_ERR_CORRUPT, r->checkpoint->files[file].name,
                               "%s has another dtype than in the first rank's file", what);
    return status;
}

/* Adds a frozen parameter: the ranks' parts one after the other, cut to its size. */
static reshard_status add_frozen(rs_zero_reading *r, const rs_zero_part *part,
                                 const rs_zero_parameter *parameter, reshard_dtype dtype,
                                 const rs_zero_flat *flats, rs_zero_boxes *boxes)
{
    reshard_checkpoint *checkpoint = r->checkpoint;
    rs_stored_tensor tensor;
    reshard_status status = RESHARD_OK;
    const rs_value_step *step =
        rs_zero_step(checkpoint, r->model, rs_zero_strip(part, parameter->told));
    rs_slice name = step != NULL ? rs_zero_name(checkpoint, step) : (rs_slice){NULL, 0};
    if (name.bytes == NULL)
        return rs_allocation_status();
    rs_zero_boxes_begin(boxes, parameter->ndim, parameter->shape);
    for (int32_t rank = 0; status == RESHARD_OK && rank < part->rank_count; rank++)
        status = rs_zero_boxes_add(boxes, rank, 0,
                                   rs_min(flats[rank].count, parameter->count - boxes->next));
    if (status == RESHARD_OK && boxes->next != parameter->count)
        status = rs_fail(RESHARD_ERR_CORRUPT,
                         "frozen parameter \"%.*s\" has %lld elements, but the files of %d ranks "
                         "hold %lld",
                         RS_SHOWN(parameter->told), (long long)parameter->count,
                         (int)part->rank_count, (long long)boxes->next);
    if (status == RESHARD_OK)
        status = rs_zero_boxes_tensor(boxes, name, dtype, flats, 1, &tensor);
    if (status != RESHARD_OK)
        return status;
    tensor.step = step;
    tensor.is_fixed = true;
    return rs_zero_add_local(r, &tensor, rs_zero_strip(part, parameter->told), part->mp);
}

/* Reads the parts of all frozen parameters that the ranks' model files hold: by parameter, then by
 * rank. */
static reshard_status read_fragments(rs_zero_reading *r, const rs_zero_part *part,
                                     const rs_zero_parameter *parameters, size_t count,
                                     reshard_dtype *dtypes, rs_zero_flat *flats)
{
    reshard_status status = RESHARD_OK;
    for (int32_t rank = 0; status == RESHARD_OK && rank < part->rank_count; rank++) {
        rs_pickle_index index = {0};
        int64_t at = rs_ds_files_at(&r->files, RS_DS_RANK_MODEL, 0, part->mp, rank);
        int32_t file = r->opened[at];
        status =
            rs_pickle_index_init(&index, r->checkpoint->context,
                                 rs_pickle_get(rs_zero_root(r, file), "frozen_param_fragments"));
        for (size_t i = 0; status == RESHARD_OK && i < count; i++)
            status = read_fragment(r, file, parameters[i].told,
                                   rs_pickle_index_get(&index, parameters[i].told), &dtypes[i],
                                   rank == 0, &flats[i * (size_t)part->rank_count + (size_t)rank]);
        rs_pickle_index_release(&index);
    }
    return status;
}

reshard_status rs_zero_read_frozen(rs_zero_reading *r, const rs_zero_part *part, int32_t file)
{
    const rs_pickle_node *dict =
        rs_pickle_dict(rs_pickle_get(rs_zero_root(r, file), "frozen_param_shapes"));
    size_t count = rs_pickle_count(dict);
    rs_arena *arena = &r->checkpoint->arena;
    rs_zero_boxes boxes = {.arena = arena};
    reshard_status status = RESHARD_OK;
    if (count == 0 || part->stage != 3)
        return RESHARD_OK;
    rs_zero_parameter *parameters = rs_arena_allocate_array(arena, count, sizeof *parameters);
    reshard_dtype *dtypes = rs_arena_allocate_array(arena, count, sizeof *dtypes);
    rs_zero_flat *flats =
        rs_arena_allocate_array(arena, count * (size_t)part->rank_count, sizeof *flats);
    if (parameters == NULL || dtypes == NULL || flats == NULL)
        return rs_allocation_status();
    for (size_t i = 0; status == RESHARD_OK && i < count; i++) {
        parameters[i] = (rs_zero_parameter){0};
        status = rs_zero_read_parameter(r, file, dict->items.nodes[2 * i],
                                        dict->items.nodes[2 * i + 1], &parameters[i]);
    }
    if (status == RESHARD_OK)
        status = read_fragments(r, part, parameters, count, dtypes, flats);
    for (size_t i = 0; status == RESHARD_OK && i < count; i++)
        status = add_frozen(r, part, &parameters[i], dtypes[i],
                            flats + i * (size_t)part->rank_count, &boxes);
    rs_zero_boxes_release(&boxes);
    return status;
}

const rs_zero_local *rs_zero_find_local(const rs_zero_reading *r, int32_t mp, rs_slice name)
{
    for (int64_t i = 0; i < r->local_count; i++) {
        const rs_zero_local *local = &r->locals[i];
        if (local->mp == mp && !local->tensor.is_aside &&
            rs_slice_compare(local->parameter, name) == 0 && local->tensor.step->parent == r->model)
            return local;
    }
    return NULL;
}

reshard_status rs_zero_check_frozen(const rs_zero_reading *r, const rs_zero_part *part,
                                    int32_t file, const rs_pickle_index *held)
{
    const rs_pickle_node *dict =
        rs_pickle_dict(rs_pickle_get(rs_zero_root(r, file), "frozen_param_shapes"));
    for (size_t i = 0; part->stage != 3 && i < rs_pickle_count(dict); i++) {
        rs_slice told;
        if (rs_pickle_text(dict->items.nodes[2 * i], &told) &&
            rs_pickle_index_get(held, told) == NULL &&
            rs_zero_find_local(r, part->mp, rs_zero_strip(part, told)) == NULL)
            return rs_fail_about(RESHARD_ERR_GAP, r->checkpoint->files[file].name,
                                 "lists the frozen parameter \"%.*s\", but does not hold it",
                                 RS_SHOWN(told));
    }
    return RESHARD_OK;
}
