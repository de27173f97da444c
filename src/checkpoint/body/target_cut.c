/* SPDX-License-Identifier: Apache-2.0 */
/*
 * target_cut.c - cuts tensors over a mesh by rules, or takes the layouts of live ones, and lists
 * the boxes that ranks hold. The format then places them in files.
 *
 * Holdings are computed once for all tensors that have the same rule, cuts, shape and dtype. These
 * tensors also share the numbers of their boxes.
 */
#include "base/checked.h"
#include "base/context.h"
#include "base/shape.h"
#include "base/sort.h"
#include "base/table.h"
#include "checkpoint/body/target.h"
#include "checkpoint/rules/memo.h"
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

typedef struct cutting {
    const rs_laying *laying;
    rs_place_fn *place;
    rs_rule_memo memo;
    rs_table holdings;     /* by rule result, dtype and shape */
    rs_rank_holding *kept; /* a list of all holdings */
    rs_arena arena;        /* of holdings, except arrays that entries and pieces point to */
    rs_shares shares;      /* unused for live tensors */
} cutting;

/* ---- boxes ----------------------------------------------------------------------------------- */

static int compare_boxes(const rs_candidate *a, const rs_candidate *b, int32_t ndim)
{
    for (int32_t d = 0; d < ndim; d++) {
        if (a->offset[d] != b->offset[d])
            return a->offset[d] < b->offset[d] ? -1 : 1;
        if (a->size[d] != b->size[d])
            return a->size[d] < b->size[d] ? -1 : 1;
    }
    return 0;
}

/* A candidate and the number of its dims, for sorting. */
typedef struct boxed_candidate {
    rs_candidate *item;
    int32_t ndim;
} boxed_candidate;

static int compare_boxed(const void *a, const void *b)
{
    const boxed_candidate *x = a, *y = b;
    int order = compare_boxes(x->item, y->item, x->ndim);
    return order != 0 ? order : (x->item->file > y->item->file) - (x->item->file < y->item->file);
}

static int compare_by_buffer(const void *a, const void *b)
{
    const rs_candidate *x = *(const rs_candidate *const *)a, *y = *(const rs_candidate *const *)b;
    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    if (x->buffer != y->buffer)
        return x->buffer < y->buffer ? -1 : 1;
    return x->at != y->at ? (x->at > y->at) - (x->at < y->at)
                          : (x->box > y->box) - (x->box < y->box);
}

void rs_candidates_sort(const rs_candidate **items, int64_t count)
{
    bool sorted = true;
    for (int64_t i = 1; sorted && i < count; i++)
        sorted = compare_by_buffer(&items[i - 1], &items[i]) <= 0;
    if (!sorted)
        rs_sort(items, (size_t)count, sizeof *items, compare_by_buffer);
}

/* Cuts a rank's box to the tensor's shape. False if nothing is left of it. */
static bool clip_to_shape(const rs_stored_tensor *tensor, const reshard_box *box, int64_t *offset,
                          int64_t *size)
{
    for (int32_t d = 0; d < tensor->carried_ndim; d++) {
        offset[d] = box->offset[d];
        size[d] = rs_min(box->size[d], tensor->carried_shape[d] - offset[d]);
        if (size[d] <= 0)
            return false;
    }
    return true;
}

static reshard_status add_candidate(const cutting *cut, const rs_stored_tensor *tensor,
                                    const reshard_piece *piece, rs_candidate *item,
                                    rs_rank_holding *holding)
{
    size_t ndim = (size_t)tensor->carried_ndim;
    int64_t numbers[3 * RESHARD_NDIM_MAX];
    assert(piece->box.ndim == tensor->carried_ndim);
    if (!clip_to_shape(tensor, &piece->box, numbers, numbers + ndim))
        return RESHARD_OK;
    bool is_dense = rs_strides_are_dense((int32_t)ndim, numbers + ndim, piece->strides);
    memcpy(numbers + 2 * ndim, piece->strides, ndim * sizeof *numbers);
    int64_t *kept = rs_arena_copy(&cut->laying->target->arena, numbers, (is_dense ? 2 : 3) * ndim,
                                  sizeof *numbers);
    if (kept == NULL)
        return rs_allocation_status();
    item->offset = kept;
    item->size = kept + ndim;
    item->strides = is_dense ? NULL : kept + 2 * ndim;
    item->at = piece->at;
    item->bytes = (uint64_t)rs_volume((int32_t)ndim, item->size) * (uint64_t)tensor->element_bytes;
    holding->by_buffer[holding->count++] = item;
    return RESHARD_OK;
}

static reshard_status list_candidates(cutting *cut, const rs_stored_tensor *tensor,
                                      const reshard_shards *shards, rs_rank_holding *holding)
{
    size_t most = 0;
    for (int64_t i = 0; i < shards->count; i++)
        most += (size_t)shards->items[i].piece_count;
    if (most > INT32_MAX || shards->count > INT32_MAX)
        return rs_fail(RESHARD_ERR_RANGE, "ranks hold %zu pieces of it; 2147483647 are the most",
                       most);
    rs_candidate *items = rs_arena_allocate_array(&cut->arena, most, sizeof *items);
    holding->by_box = rs_arena_allocate_array(&cut->arena, most, sizeof(void *));
    holding->by_buffer = rs_arena_allocate_array(&cut->arena, most, sizeof(void *));
    holding->chosen = rs_arena_allocate_array(&cut->arena, most, sizeof(void *));
    if (items == NULL || holding->by_box == NULL || holding->by_buffer == NULL ||
        holding->chosen == NULL)
        return rs_allocation_status();
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; status == RESHARD_OK && i < shards->count; i++) {
        const reshard_shard *shard = &shards->items[i];
        for (int64_t j = 0; status == RESHARD_OK && j < shard->piece_count; j++, items++) {
            *items = (rs_candidate){.file = rs_laying_file(cut->laying, shard->rank),
                                    .buffer = (int32_t)i};
            status = add_candidate(cut, tensor, &shard->pieces[j], items, holding);
        }
    }
    return status;
}

/* Adds an array for a single box. */
static reshard_status add_box(const cutting *cut, const rs_stored_tensor *tensor,
                              const rs_candidate *item, int32_t *out_array)
{
    const rs_target_array array = {.ndim = tensor->opaque ? tensor->ndim : tensor->carried_ndim,
                                   .shape = tensor->opaque ? tensor->shape : item->size,
                                   .bytes = item->bytes,
                                   .piece_count = 1,
                                   .hides_shape = true};
    return rs_target_add_array(cut->laying->target, &array, out_array);
}

/* Sorts by box and numbers the boxes. Ranks must hold either the same box or disjoint ones: a
 * partial overlap, as when copies of a part are cut further at different places, cannot be
 * expressed in files. All boxes together cover the tensor, so counting bytes is enough to find
 * one. */
static reshard_status number_boxes(cutting *cut, const rs_stored_tensor *tensor,
                                   rs_rank_holding *holding)
{
    size_t count = (size_t)holding->count;
    uint64_t bytes = 0;
    boxed_candidate *boxed = rs_arena_allocate_array(&cut->arena, count, sizeof *boxed);
    if (boxed == NULL)
        return rs_allocation_status();
    for (size_t i = 0; i < count; i++)
        boxed[i] = (boxed_candidate){(rs_candidate *)holding->by_buffer[i], tensor->carried_ndim};
    rs_sort(boxed, count, sizeof *boxed, compare_boxed);
    int32_t array = 0;
    int64_t box = -1;
    for (size_t i = 0; i < count; i++) {
        rs_candidate *item = boxed[i].item;
        if (i == 0 || compare_boxes(boxed[i - 1].item, item, tensor->carried_ndim) != 0) {
            bytes += item->bytes;
            box++;
            reshard_status status = add_box(cut, tensor, item, &array);
            if (status != RESHARD_OK)
                return status;
        }
        item->box = box;
        item->array = array;
        holding->by_box[i] = item;
    }
    if (bytes == tensor->bytes)
        return RESHARD_OK;
    return rs_fail(RESHARD_ERR_OVERLAP,
                   "ranks hold boxes that overlap in part: copies of it are cut at different "
                   "places, which files cannot tell");
}

/* Adds an array for a rank's buffer. */
static reshard_status add_buffer(const cutting *cut, const rs_stored_tensor *tensor,
                                 const reshard_shard *shard, const rs_rank_holding *holding,
                                 rs_rank_buffer *buffer)
{
    rs_target *target = cut->laying->target;
    rs_target_array array = {.ndim = tensor->opaque ? tensor->ndim : shard->ndim,
                             .piece_count = (int32_t)buffer->count,
                             .hides_shape = holding->is_flat};
    array.shape = rs_arena_copy(&target->arena, tensor->opaque ? tensor->shape : shard->shape,
                                (size_t)array.ndim, sizeof(int64_t));
    if (array.shape == NULL)
        return rs_allocation_status();
    reshard_status status =
        rs_stored_bytes(tensor->name, tensor->dtype, array.ndim, array.shape, &array.bytes);
    return status == RESHARD_OK ? rs_target_add_array(target, &array, &buffer->array) : status;
}

static reshard_status list_buffers(cutting *cut, const rs_stored_tensor *tensor,
                                   const reshard_shards *shards, rs_rank_holding *holding)
{
    holding->buffers =
        rs_arena_allocate_array(&cut->arena, (size_t)shards->count, sizeof *holding->buffers);
    if (holding->buffers == NULL)
        return rs_allocation_status();
    rs_candidates_sort(holding->by_buffer, holding->count);
    for (int64_t i = 0, next = 0; i < shards->count; i++) {
        const reshard_shard *shard = &shards->items[i];
        rs_rank_buffer *buffer = &holding->buffers[holding->buffer_count++];
        /* Shards are sorted by rank, and files are in the order of ranks. */
        *buffer = (rs_rank_buffer){.file = rs_laying_file(cut->laying, shard->rank), .first = next};
        while (next < holding->count && holding->by_buffer[next]->buffer == i)
            next++;
        buffer->count = next - buffer->first;
        buffer->first = buffer->count != 0 ? buffer->first : 0;
        reshard_status status = add_buffer(cut, tensor, shard, holding, buffer);
        if (status != RESHARD_OK)
            return status;
    }
    return RESHARD_OK;
}

/* Fills in what ranks hold of a tensor with this layout. */
static reshard_status make_holding(cutting *cut, const rs_stored_tensor *tensor,
                                   const reshard_layout *layout, rs_rank_holding *holding)
{
    holding->layout = reshard_layout_retain((reshard_layout *)layout);
    holding->is_flat = rs_spec_cuts(reshard_layout_spec(layout), true);
    reshard_status status = reshard_layout_all_shards(layout, &holding->shards);
    if (status == RESHARD_OK)
        status = list_candidates(cut, tensor, holding->shards, holding);
    if (status == RESHARD_OK)
        status = number_boxes(cut, tensor, holding);
    if (status == RESHARD_OK)
        status = list_buffers(cut, tensor, holding->shards, holding);
    return status;
}

static void release_holding(rs_rank_holding *holding)
{
    reshard_shards_destroy(holding->shards);
    reshard_layout_release(holding->layout);
}

static reshard_status place_tensor(const cutting *cut, const rs_rank_holding *holding,
                                   rs_stored_tensor *tensor)
{
    const rs_cut_tensor made = {.tensor = tensor, .holding = holding};
    tensor->pieces = rs_arena_allocate_array(
        &cut->laying->target->arena, (size_t)rs_max(holding->count, 1), sizeof(rs_stored_piece));
    return tensor->pieces != NULL ? cut->place(cut->laying, &made) : rs_allocation_status();
}

/* ---- one tensor ------------------------------------------------------------------------------ */

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

/* Keeps the local shape on the first rank that holds part of the tensor. */
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

/* Keeps for reports how the rules cut a tensor. */
static reshard_status keep_row(rs_arena *arena, const rs_rule_result *result, int32_t ndim,
                               const rs_target_row **out_row)
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
    rs_target_row *row = rs_arena_allocate(arena, sizeof *row);
    if (row == NULL)
        return rs_allocation_status();
    *out_row = row;
    *row = (rs_target_row){.cut = cut, .rule_file = file, .rule_line = result->line};
    /* For tensors with too many dims, the layout of the rules has none. */
    if (result->ndim != ndim)
        return RESHARD_OK;
    row->padded_shape = rs_arena_copy(arena, result->padded_shape, (size_t)ndim, sizeof(int64_t));
    if (row->padded_shape == NULL)
        return rs_allocation_status();
    return keep_local_shape(arena, result->layout, row);
}

/* Finds or makes the holding of a tensor that the rules cut this way. Tensors like it share it. */
static reshard_status find_holding(cutting *cut, const rs_rule_result *result,
                                   const rs_stored_tensor *tensor,
                                   const rs_rank_holding **out_holding)
{
    int64_t key[3 + RESHARD_NDIM_MAX] = {(int64_t)(intptr_t)result, tensor->dtype, tensor->ndim};
    void *none = NULL, **place = &none;
    reshard_layout *whole = NULL; /* for an opaque tensor: the layout of its line of bytes */
    reshard_status status = RESHARD_OK;
    if (tensor->ndim <= RESHARD_NDIM_MAX) {
        size_t ndim = (size_t)tensor->ndim;
        memcpy(key + 3, tensor->shape, ndim * sizeof *key);
        place = rs_table_at(&cut->holdings, key, (3 + ndim) * sizeof *key);
    }
    if (place != NULL && *place != NULL) {
        *out_holding = *place;
        return RESHARD_OK;
    }
    rs_rank_holding *made = rs_arena_allocate(&cut->arena, sizeof *made);
    if (place == NULL || made == NULL)
        return rs_allocation_status();
    *made = (rs_rank_holding){.next = cut->kept};
    cut->kept = made;
    if (tensor->opaque)
        status = reshard_layout_create(cut->arena.context, result->spec, tensor->carried_ndim,
                                       tensor->carried_shape, &whole);
    if (status == RESHARD_OK)
        status = make_holding(cut, tensor, tensor->opaque ? whole : result->layout, made);
    if (status == RESHARD_OK)
        status = keep_row(&cut->laying->target->arena, result, tensor->ndim, &made->row);
    reshard_layout_release(whole);
    if (status != RESHARD_OK)
        return status;
    rs_shares_add(&cut->shares, made);
    *out_holding = *place = made;
    return RESHARD_OK;
}

static reshard_status add_tensor(cutting *cut, const rs_selected *selected)
{
    const rs_stored_tensor *stored = selected->stored;
    const rs_rulebook *book = cut->laying->book;
    rs_target *target = cut->laying->target;
    rs_stored_tensor *tensor = &target->tensors[target->tensor_count];
    const rs_rule_result *result = NULL;
    const rs_rank_holding *holding = NULL;
    reshard_status status =
        selected->rule == RS_RULE_NONE
            ? rs_rules_apply_none(&cut->memo, book->rules, book->mesh, &result)
            : rs_rules_apply_found(&cut->memo, book->rules, book->mesh, &book->keys, selected->rule,
                                   selected->matched.bytes, selected->matched.count, stored->ndim,
                                   stored->shape, &result);
    if (status == RESHARD_OK)
        status = describe(cut->laying, selected, result, tensor);
    if (status != RESHARD_OK)
        return status;
    status = find_holding(cut, result, tensor, &holding);
    if (status == RESHARD_OK)
        status = place_tensor(cut, holding, tensor);
    if (status != RESHARD_OK)
        return rs_fail_within(status, "tensor \"%.*s\"", rs_slice_shown(tensor->name),
                              tensor->name.bytes);
    target->rows[target->tensor_count] = holding->row;
    target->origins[target->tensor_count++] = selected->origin;
    return RESHARD_OK;
}

static reshard_status add_live(cutting *cut, int64_t index)
{
    rs_target *target = cut->laying->target;
    rs_stored_tensor *tensor = &target->tensors[index];
    const reshard_live_tensor *live = &cut->laying->live[index];
    rs_rank_holding holding = {.row = NULL};
    reshard_status status =
        rs_store_describe(tensor, &target->arena, target->names[index], live->dtype,
                          reshard_layout_ndim(live->layout), reshard_layout_shape(live->layout));
    if (status == RESHARD_OK)
        status = make_holding(cut, tensor, live->layout, &holding);
    if (status == RESHARD_OK)
        status = place_tensor(cut, &holding, tensor);
    if (status == RESHARD_OK)
        target->origins[target->tensor_count++] = index;
    release_holding(&holding);
    rs_arena_release(&cut->arena); /* no other tensor shares the holding */
    return rs_fail_within(status, "tensor \"%.200s\"", live->name);
}

/* ---- all tensors ----------------------------------------------------------------------------- */

reshard_status rs_target_cut(rs_laying *laying, rs_place_fn *place)
{
    rs_target *target = laying->target;
    size_t files = (size_t)target->file_count;
    cutting cut = {.laying = laying, .place = place};
    reshard_status status = RESHARD_OK;
    laying->loads = rs_arena_allocate_array(&target->arena, files, sizeof(uint64_t));
    if (laying->loads == NULL)
        return rs_allocation_status();
    memset(laying->loads, 0, files * sizeof(uint64_t));
    rs_rule_memo_init(&cut.memo, target->context);
    rs_table_init(&cut.holdings, target->context);
    rs_arena_init(&cut.arena, target->context);
    if (laying->source != NULL)
        status = rs_shares_init(&cut.shares, laying, &cut.arena);
    int64_t count = laying->source != NULL ? laying->selection->count : target->name_count;
    for (int64_t i = 0; status == RESHARD_OK && i < count; i++)
        status = laying->source != NULL ? add_tensor(&cut, &laying->selection->items[i])
                                        : add_live(&cut, i);
    if (status == RESHARD_OK && laying->source != NULL)
        status = rs_shares_say(&cut.shares, &cut.memo, target);
    for (rs_rank_holding *kept = cut.kept; kept != NULL; kept = kept->next)
        release_holding(kept);
    rs_arena_release(&cut.arena);
    rs_table_release(&cut.holdings);
    rs_rule_memo_release(&cut.memo);
    return status;
}
