/* SPDX-License-Identifier: Apache-2.0 */
/*
 * target_cut.c - cuts tensors over a mesh by rules, or takes the layouts of live ones, and lists
 * the boxes that ranks hold. The format then places them in files.
 */
#include "base/checked.h"
#include "base/context.h"
#include "base/shape.h"
#include "base/sort.h"
#include "checkpoint/body/target.h"
#include "layout/flat.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int32_t rs_laying_file(const rs_laying *laying, int32_t rank)
{
    if (laying->source == NULL)
        return rank;
    int32_t position = reshard_mesh_position_of(laying->book->mesh, rank);
    assert(position >= 0);
    return laying->file_of[position];
}

/* ---- boxes ----------------------------------------------------------------------------------- */

static bool clip_to_shape(const rs_stored_tensor *tensor, reshard_box *box)
{
    for (int32_t d = 0; d < tensor->carried_ndim; d++) {
        box->size[d] = rs_min(box->size[d], tensor->carried_shape[d] - box->offset[d]);
        if (box->size[d] <= 0)
            return false;
    }
    return true;
}

static reshard_status list_candidates(const rs_laying *laying, const rs_stored_tensor *tensor,
                                      const reshard_shards *shards, rs_candidate **out_items,
                                      int64_t *out_count, size_t *out_bytes)
{
    int64_t most = 0, count = 0;
    for (int64_t i = 0; i < shards->count; i++)
        most += shards->items[i].piece_count;
    *out_bytes = (size_t)most * sizeof(rs_candidate);
    rs_candidate *items = rs_allocate_array(laying->target->context, (size_t)most, sizeof *items);
    if (items == NULL)
        return rs_allocation_status();
    for (int64_t i = 0; i < shards->count; i++) {
        const reshard_shard *shard = &shards->items[i];
        for (int64_t j = 0; j < shard->piece_count; j++) {
            const reshard_piece *piece = &shard->pieces[j];
            rs_candidate item = {.file = rs_laying_file(laying, shard->rank),
                                 .shard = i,
                                 .box = piece->box,
                                 .at = piece->at,
                                 .strides = piece->strides};
            if (clip_to_shape(tensor, &item.box))
                items[count++] = item;
        }
    }
    *out_items = items;
    *out_count = count;
    return RESHARD_OK;
}

int rs_box_compare(const reshard_box *a, const reshard_box *b)
{
    for (int32_t d = 0; d < a->ndim; d++) {
        if (a->offset[d] != b->offset[d])
            return a->offset[d] < b->offset[d] ? -1 : 1;
        if (a->size[d] != b->size[d])
            return a->size[d] < b->size[d] ? -1 : 1;
    }
    return 0;
}

static int compare_by_box(const void *a, const void *b)
{
    const rs_candidate *x = a, *y = b;
    int order = rs_box_compare(&x->box, &y->box);
    return order != 0 ? order : (x->file > y->file) - (x->file < y->file);
}

static int compare_by_file(const void *a, const void *b)
{
    const rs_candidate *x = a, *y = b;
    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    if (x->shard != y->shard)
        return x->shard < y->shard ? -1 : 1;
    return x->at != y->at ? (x->at > y->at) - (x->at < y->at) : rs_box_compare(&x->box, &y->box);
}

uint64_t rs_stored_box_bytes(const rs_stored_tensor *tensor, const reshard_box *box)
{
    assert(box->ndim == tensor->carried_ndim);
    return (uint64_t)rs_volume(box->ndim, box->size) * (uint64_t)tensor->element_bytes;
}

void rs_candidates_sort(rs_candidate *items, int64_t count)
{
    rs_sort(items, (size_t)count, sizeof *items, compare_by_file);
}

/* Sorts by box. A box must be on one rank, or whole on several. If one overlaps another in part, as
 * when copies of a part are cut further at different places, files could not tell them apart. All
 * boxes together cover the tensor, so it is enough to count bytes. */
static reshard_status check_boxes(const rs_stored_tensor *tensor, rs_candidate *items,
                                  int64_t count)
{
    uint64_t bytes = 0;
    rs_sort(items, (size_t)count, sizeof *items, compare_by_box);
    for (int64_t i = 0; i < count; i++) {
        if (i == 0 || rs_box_compare(&items[i - 1].box, &items[i].box) != 0)
            bytes += rs_stored_box_bytes(tensor, &items[i].box);
    }
    if (bytes == tensor->bytes)
        return RESHARD_OK;
    return rs_fail(RESHARD_ERR_OVERLAP,
                   "ranks hold boxes that overlap in part: copies of it are cut at different "
                   "places, which files cannot tell");
}

/* ---- pieces ---------------------------------------------------------------------------------- */

reshard_status rs_target_keep_piece(rs_target *target, const rs_candidate *item, bool in_buffer,
                                    const rs_stored_tensor *tensor, rs_stored_piece *piece)
{
    size_t ndim = (size_t)item->box.ndim, bytes = ndim * sizeof(int64_t);
    bool strided =
        in_buffer && !rs_strides_are_dense(item->box.ndim, item->box.size, item->strides);
    int64_t *numbers =
        rs_arena_allocate_array(&target->arena, (strided ? 3 : 2) * ndim, sizeof(int64_t));
    if (numbers == NULL)
        return rs_allocation_status();
    memcpy(numbers, item->box.offset, bytes);
    memcpy(numbers + ndim, item->box.size, bytes);
    if (strided)
        memcpy(numbers + 2 * ndim, item->strides, bytes);
    *piece = (rs_stored_piece){.file = item->file,
                               .offset = numbers,
                               .size = numbers + ndim,
                               .strides = strided ? numbers + 2 * ndim : NULL};
    if (in_buffer)
        piece->at = (uint64_t)(item->at * tensor->element_bytes);
    return RESHARD_OK;
}

/* ---- one tensor ------------------------------------------------------------------------------ */

static reshard_status cut_by_layout(const rs_laying *laying, rs_place_fn *place,
                                    const reshard_layout *layout, rs_stored_tensor *tensor)
{
    reshard_context *context = laying->target->context;
    reshard_shards *shards = NULL;
    rs_cut_tensor cut = {.tensor = tensor, .layout = layout};
    size_t bytes = 0;
    reshard_status status = reshard_layout_all_shards(layout, &shards);
    cut.shards = shards;
    if (status == RESHARD_OK)
        status = list_candidates(laying, tensor, shards, &cut.items, &cut.count, &bytes);
    if (status == RESHARD_OK)
        status = check_boxes(tensor, cut.items, cut.count);
    if (status == RESHARD_OK) {
        tensor->pieces = rs_arena_allocate_array(
            &laying->target->arena, (size_t)rs_max(cut.count, 1), sizeof(rs_stored_piece));
        status = tensor->pieces != NULL ? place(laying, &cut) : rs_allocation_status();
    }
    if (cut.items != NULL)
        rs_release(context, cut.items, bytes);
    reshard_shards_destroy(shards);
    return status;
}

static reshard_status cut_tensor(const rs_laying *laying, rs_place_fn *place,
                                 const rs_rule_result *result, rs_stored_tensor *tensor)
{
    reshard_layout *whole = NULL; /* the rules' layout does not know it as a line of bytes */
    reshard_status status = RESHARD_OK;
    if (tensor->opaque)
        status = reshard_layout_create(laying->target->context, result->spec, tensor->carried_ndim,
                                       tensor->carried_shape, &whole);
    if (status == RESHARD_OK)
        status = cut_by_layout(laying, place, tensor->opaque ? whole : result->layout, tensor);
    reshard_layout_release(whole);
    return rs_fail_within(status, "tensor \"%.*s\"", rs_slice_shown(tensor->name),
                          tensor->name.bytes);
}

bool rs_spec_cuts(const reshard_spec *spec, bool flat_only)
{
    for (int32_t i = 0; i < reshard_spec_cut_count(spec); i++) {
        const reshard_cut *cut = reshard_spec_cut(spec, i);
        if (cut->placement.kind == RESHARD_SHARD &&
            (!flat_only || cut->placement.dim == RESHARD_DIM_FLAT) &&
            reshard_mesh_axis_size(reshard_spec_mesh(spec), cut->axis) > 1)
            return true;
    }
    return false;
}

static reshard_status describe(const rs_laying *laying, const rs_selected *selected,
                               const rs_rule_result *result, rs_stored_tensor *tensor)
{
    const rs_stored_tensor *stored = selected->stored;
    reshard_status status = rs_store_describe(tensor, &laying->target->arena, selected->name,
                                              selected->dtype, stored->ndim, stored->shape);
    if (status == RESHARD_OK && tensor->opaque && rs_spec_cuts(result->spec, false))
        return rs_fail(RESHARD_ERR_UNSUPPORTED,
                       "tensor \"%.*s\": line %d of the rules cuts it, but tensors of less than a "
                       "byte an element or more than 8 dimensions are carried whole only",
                       rs_slice_shown(selected->name), selected->name.bytes, (int)result->line);
    return status;
}

/* What the first rank that holds some of the tensor has of it. */
static reshard_status keep_local_shape(rs_arena *arena, const reshard_layout *layout,
                                       rs_target_row *row)
{
    reshard_shards *shards = NULL;
    reshard_status status =
        reshard_layout_shards(layout, reshard_layout_rank_at(layout, 0), &shards);
    if (status == RESHARD_OK && shards->count != 0) {
        const reshard_shard *shard = &shards->items[0];
        row->local_ndim = shard->ndim;
        row->local_shape = rs_arena_copy(arena, shard->shape, (size_t)shard->ndim, sizeof(int64_t));
        status = row->local_shape != NULL ? RESHARD_OK : rs_allocation_status();
    }
    reshard_shards_destroy(shards);
    return status;
}

/* Keeps what the rules say of a tensor. */
static reshard_status keep_row(rs_arena *arena, const rs_rule_result *result, int32_t ndim,
                               rs_target_row *row)
{
    char usual[256];
    size_t length = 0;
    reshard_status status = reshard_spec_text(result->spec, usual, sizeof usual, &length);
    char *cut = status == RESHARD_OK ? rs_arena_allocate(arena, length + 1) : NULL;
    char *file = rs_arena_copy(arena, result->file_name, strlen(result->file_name) + 1, 1);
    if (status == RESHARD_OK && (cut == NULL || file == NULL))
        status = rs_allocation_status();
    if (status == RESHARD_OK && length >= sizeof usual)
        status = reshard_spec_text(result->spec, cut, length + 1, &length);
    else if (status == RESHARD_OK)
        memcpy(cut, usual, length + 1);
    if (status != RESHARD_OK)
        return status;
    *row = (rs_target_row){.cut = cut, .rule_file = file, .rule_line = result->line};
    /* Rules give tensors of too many dimensions a layout without any. */
    if (result->ndim != ndim)
        return RESHARD_OK;
    row->padded_shape = rs_arena_copy(arena, result->padded_shape, (size_t)ndim, sizeof(int64_t));
    if (row->padded_shape == NULL)
        return rs_allocation_status();
    return keep_local_shape(arena, result->layout, row);
}

static reshard_status add_tensor(const rs_laying *laying, rs_place_fn *place,
                                 const rs_selected *selected)
{
    const rs_stored_tensor *stored = selected->stored;
    const rs_rulebook *book = laying->book;
    rs_target *target = laying->target;
    rs_stored_tensor *tensor = &target->tensors[target->tensor_count];
    rs_rule_result result = {0};
    reshard_status status =
        selected->needs_no_rule
            ? rs_rules_scalar(book->rules, book->mesh, &result)
            : rs_rules_apply_found(book->rules, book->mesh, &book->keys, selected->rule,
                                   selected->matched.bytes, selected->matched.count, stored->ndim,
                                   stored->shape, &result);
    if (status == RESHARD_OK)
        status = describe(laying, selected, &result, tensor);
    if (status == RESHARD_OK)
        status = cut_tensor(laying, place, &result, tensor);
    if (status == RESHARD_OK)
        status =
            keep_row(&target->arena, &result, stored->ndim, &target->rows[target->tensor_count]);
    if (status == RESHARD_OK)
        target->origins[target->tensor_count++] = selected->origin;
    rs_rule_result_release(&result);
    return status;
}

static reshard_status add_live(const rs_laying *laying, rs_place_fn *place, int64_t index)
{
    rs_target *target = laying->target;
    rs_stored_tensor *tensor = &target->tensors[index];
    const reshard_live_tensor *live = &laying->live[index];
    reshard_status status =
        rs_store_describe(tensor, &target->arena, target->names[index], live->dtype,
                          reshard_layout_ndim(live->layout), reshard_layout_shape(live->layout));
    if (status == RESHARD_OK)
        status = cut_by_layout(laying, place, live->layout, tensor);
    if (status == RESHARD_OK)
        target->origins[target->tensor_count++] = index;
    return rs_fail_within(status, "tensor \"%.200s\"", live->name);
}

/* ---- all of them ----------------------------------------------------------------------------- */

reshard_status rs_target_cut(rs_laying *laying, rs_place_fn *place)
{
    rs_target *target = laying->target;
    size_t files = (size_t)target->file_count;
    reshard_status status = RESHARD_OK;
    laying->loads = rs_arena_allocate_array(&target->arena, files, sizeof(uint64_t));
    if (laying->loads == NULL)
        return rs_allocation_status();
    memset(laying->loads, 0, files * sizeof(uint64_t));
    int64_t count = laying->source != NULL ? laying->selection->count : target->name_count;
    for (int64_t i = 0; status == RESHARD_OK && i < count; i++)
        status = laying->source != NULL ? add_tensor(laying, place, &laying->selection->items[i])
                                        : add_live(laying, place, i);
    return status;
}
