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
#include "checkpoint/target/target.h"
#include "layout/flat.h"
#include "layout/layout.h"
#include "spec/spec.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int32_t rs_laying_file(const rs_laying *laying, int32_t rank)
{
    if (laying->source == NULL)
        return rank;
    int32_t position = reshard_mesh_position_of(laying->cuts->book.mesh, rank);
    assert(position >= 0);
    return laying->file_of[position];
}

typedef struct cutting {
    const rs_laying *laying;
    rs_place_fn *place;
    rs_table holdings;     /* by row and dtype */
    rs_rank_holding *kept; /* a list of all holdings */
    rs_arena arena;        /* of holdings, except arrays that entries and pieces point to */
    rs_shares shares;      /* unused for live tensors */
    int64_t padded_count;  /* tensors that rules pad, */
    int64_t padded_rows;   /* by so many rows or columns together */
    rs_slice first_padded;
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
        return rs_fail(RESHARD_ERR_RANGE,
                       "ranks hold %zu pieces of it; at most 2147483647 are allowed", most);
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
    return rs_fail(RESHARD_ERR_OVERLAP, "ranks hold boxes that partly overlap: copies of it are "
                                        "cut at different places, which files cannot express");
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

/* Adds a buffer without boxes for each rank that holds zeros in place of the tensor. */
static reshard_status list_zeros(const cutting *cut, const rs_stored_tensor *tensor,
                                 rs_rank_holding *holding)
{
    const reshard_shards *shards = holding->shards;
    const reshard_spec *spec = holding->layout->spec;
    const reshard_mesh *mesh = spec->mesh;
    reshard_status status = RESHARD_OK;
    for (int32_t i = 0; status == RESHARD_OK && i < mesh->size; i++) {
        int32_t like = i;
        int64_t k = 0;
        if (!rs_spec_zeros_at(spec, i, &like))
            continue;
        while (k < shards->count && shards->items[k].rank != reshard_mesh_rank_at(mesh, like))
            k++;
        assert(k < shards->count);
        rs_rank_buffer *buffer = &holding->buffers[holding->buffer_count++];
        *buffer =
            (rs_rank_buffer){.file = rs_laying_file(cut->laying, reshard_mesh_rank_at(mesh, i))};
        status = add_buffer(cut, tensor, &shards->items[k], holding, buffer);
    }
    return status;
}

static reshard_status list_buffers(cutting *cut, const rs_stored_tensor *tensor, bool zeros,
                                   rs_rank_holding *holding)
{
    const reshard_shards *shards = holding->shards;
    const reshard_spec *spec = holding->layout->spec;
    int64_t most = zeros ? spec->mesh->size : shards->count;
    holding->buffers = rs_arena_allocate_array(&cut->arena, (size_t)most, sizeof *holding->buffers);
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
    return zeros ? list_zeros(cut, tensor, holding) : RESHARD_OK;
}

/* Fills in what ranks hold of a tensor with this layout. zeros: the others hold zeros. */
static reshard_status make_holding(cutting *cut, const rs_stored_tensor *tensor,
                                   const reshard_layout *layout, bool zeros,
                                   rs_rank_holding *holding)
{
    holding->layout = reshard_layout_retain((reshard_layout *)layout);
    holding->is_flat = rs_spec_cuts(layout->spec, true);
    reshard_status status = reshard_layout_shards(layout, RESHARD_ALL_RANKS, &holding->shards);
    if (status == RESHARD_OK)
        status = list_candidates(cut, tensor, holding->shards, holding);
    if (status == RESHARD_OK)
        status = number_boxes(cut, tensor, holding);
    if (status == RESHARD_OK)
        status = list_buffers(cut, tensor, zeros, holding);
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

/* Finds or makes the holding of a tensor that the rules cut this way. Tensors like it share it. */
static reshard_status find_holding(cutting *cut, const rs_cut_row *row,
                                   const rs_stored_tensor *tensor,
                                   const rs_rank_holding **out_holding)
{
    const int64_t key[2] = {(int64_t)(intptr_t)row, tensor->dtype};
    void **place = rs_table_at(&cut->holdings, key, sizeof key);
    if (place == NULL)
        return rs_allocation_status();
    if (*place == NULL) {
        rs_rank_holding *made = rs_arena_allocate(&cut->arena, sizeof *made);
        if (made == NULL)
            return rs_allocation_status();
        *made = (rs_rank_holding){.next = cut->kept};
        cut->kept = made;
        reshard_status status = make_holding(cut, tensor, row->carried, row->zeros, made);
        if (status != RESHARD_OK)
            return status;
        rs_shares_add(&cut->shares, made);
        *place = made;
    }
    *out_holding = *place;
    return RESHARD_OK;
}

static void count_padding(cutting *cut, const rs_cut_row *row, const rs_stored_tensor *tensor)
{
    int64_t rows = 0;
    for (int32_t d = 0; row->padded_shape != NULL && d < tensor->ndim; d++)
        rows += row->padded_shape[d] - tensor->shape[d];
    if (rows != 0 && cut->padded_count++ == 0)
        cut->first_padded = tensor->name;
    cut->padded_rows += rows;
}

/* Files of local arrays hold the padding. In others, it only decides where tensors are cut. */
static reshard_status say_padding(const cutting *cut, rs_target *target)
{
    bool one = cut->padded_count == 1;
    if (cut->padded_count == 0 || !target->format->needs_mesh)
        return RESHARD_OK;
    return rs_target_say(target,
                         "padded: %lld tensor%s by %lld row%s or columns of zeros, as pad() in the "
                         "rules says (\"%.*s\"%s)",
                         (long long)cut->padded_count, one ? "" : "s", (long long)cut->padded_rows,
                         cut->padded_rows == 1 ? "" : "s", RS_SHOWN(cut->first_padded),
                         one ? "" : " and others");
}

static reshard_status add_tensor(cutting *cut, const rs_selected *selected)
{
    rs_target *target = cut->laying->target;
    rs_stored_tensor *tensor = &target->tensors[target->tensor_count];
    const rs_cut_row *row = NULL;
    const rs_rank_holding *holding = NULL;
    reshard_status status =
        rs_store_describe(tensor, &target->arena, selected->name, selected->dtype,
                          selected->stored->ndim, selected->stored->shape);
    if (status == RESHARD_OK)
        status = rs_cuts_find(cut->laying->cuts, selected, tensor, &row);
    if (status != RESHARD_OK)
        return status;
    status = find_holding(cut, row, tensor, &holding);
    if (status == RESHARD_OK)
        status = place_tensor(cut, holding, tensor);
    if (status != RESHARD_OK)
        return rs_fail_within_tensor(status, tensor->name);
    count_padding(cut, row, tensor);
    target->rows[target->tensor_count] = row;
    target->origins[target->tensor_count++] = selected->origin;
    return RESHARD_OK;
}

static reshard_status add_live(cutting *cut, int64_t index)
{
    rs_target *target = cut->laying->target;
    rs_stored_tensor *tensor = &target->tensors[index];
    const reshard_live_tensor *live = &cut->laying->live[index];
    rs_rank_holding holding = {.next = NULL};
    reshard_status status = rs_store_describe(tensor, &target->arena, target->names[index],
                                              live->dtype, live->layout->ndim, live->layout->shape);
    if (status == RESHARD_OK)
        status = make_holding(cut, tensor, live->layout, false, &holding);
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
    rs_table_init(&cut.holdings, target->context);
    rs_arena_init(&cut.arena, target->context);
    if (laying->source != NULL)
        status = rs_shares_init(&cut.shares, laying, &cut.arena);
    int64_t count = laying->source != NULL ? laying->cuts->selection.count : target->name_count;
    for (int64_t i = 0; status == RESHARD_OK && i < count; i++)
        status = laying->source != NULL ? add_tensor(&cut, &laying->cuts->selection.items[i])
                                        : add_live(&cut, i);
    if (status == RESHARD_OK && laying->source != NULL)
        status = rs_shares_say(&cut.shares, &laying->cuts->memo, target);
    if (status == RESHARD_OK)
        status = say_padding(&cut, target);
    for (rs_rank_holding *kept = cut.kept; kept != NULL; kept = kept->next)
        release_holding(kept);
    rs_arena_release(&cut.arena);
    rs_table_release(&cut.holdings);
    return status;
}
