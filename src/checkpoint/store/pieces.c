/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pieces.c - the pieces of a tensor as a layout over files; finds copies among them, and checks
 * that the rest tile the tensor: every element once, no hole, no overlap.
 */
#include "checkpoint/store/store.h"

#include "base/checked.h"
#include "base/context.h"
#include "base/shape.h"
#include "base/sort.h"
#include "layout/tiling.h"
#include "text/text.h"

#include <assert.h>
#include <string.h>

bool rs_piece_is_whole(const rs_stored_tensor *tensor, const rs_stored_piece *piece)
{
    for (int32_t d = 0; d < tensor->carried_ndim; d++) {
        if (piece->size[d] != tensor->carried_shape[d])
            return false;
    }
    return true;
}

void rs_piece_strides(const rs_stored_tensor *tensor, const rs_stored_piece *piece,
                      int64_t out_strides[RESHARD_NDIM_MAX])
{
    if (piece->strides != NULL)
        memcpy(out_strides, piece->strides, (size_t)tensor->carried_ndim * sizeof(int64_t));
    else
        rs_dense_strides(tensor->carried_ndim, piece->size, out_strides);
}

bool rs_piece_is_empty(const rs_stored_tensor *tensor, const rs_stored_piece *piece)
{
    return rs_volume(tensor->carried_ndim, piece->size) == 0;
}

/* ---- layouts --------------------------------------------------------------------------------- */

/* Describes pieces as dense shards, for the calls of layout.h: one block of *out_bytes, which the
 * caller releases. NULL if out of memory. */
static reshard_shard *describe_shards(reshard_context *context, const rs_stored_tensor *tensor,
                                      const rs_stored_piece *pieces, int64_t count,
                                      int32_t first_rank, size_t *out_bytes)
{
    int32_t ndim = tensor->carried_ndim;
    const size_t each = sizeof(reshard_shard) + sizeof(reshard_piece);
    reshard_shard *shards = rs_allocate_array(context, (size_t)count, each);
    if (shards == NULL)
        return NULL;
    reshard_piece *places = (void *)(shards + count);
    *out_bytes = (size_t)count * each;
    for (int64_t i = 0; i < count; i++) {
        reshard_piece *place = &places[i];
        *place = (reshard_piece){.box.ndim = ndim};
        shards[i] = (reshard_shard){.rank = pieces[i].file + first_rank,
                                    .ndim = ndim,
                                    .contributor_count = 1,
                                    .divisor = 1,
                                    .pieces = place,
                                    .piece_count = !rs_piece_is_empty(tensor, &pieces[i])};
        rs_dense_strides(ndim, pieces[i].size, place->strides);
        for (int32_t d = 0; d < ndim; d++) {
            place->box.offset[d] = pieces[i].offset != NULL ? pieces[i].offset[d] : 0;
            place->box.size[d] = pieces[i].size[d];
            shards[i].shape[d] = pieces[i].size[d];
            shards[i].offset[d] = place->box.offset[d];
        }
    }
    return shards;
}

static reshard_status make_whole_layout(reshard_context *context, const rs_stored_tensor *tensor,
                                        int32_t rank, reshard_layout **out_layout)
{
    reshard_mesh *mesh = NULL;
    reshard_spec *spec = NULL;
    reshard_status status = reshard_mesh_create(context, 1, NULL, &(int32_t){1}, &rank, &mesh);
    if (status == RESHARD_OK)
        status = reshard_spec_create(context, mesh, 0, NULL, &spec);
    if (status == RESHARD_OK)
        status = reshard_layout_create(context, spec, tensor->carried_ndim, tensor->carried_shape,
                                       out_layout);
    reshard_spec_release(spec);
    reshard_mesh_release(mesh);
    return status;
}

reshard_status rs_store_layout(reshard_context *context, const rs_stored_tensor *tensor,
                               const rs_stored_piece *pieces, int64_t piece_count, bool cover,
                               int32_t first_rank, reshard_layout **out_layout)
{
    assert(piece_count > 0 && first_rank >= 0);
    if (piece_count == 1 && rs_piece_is_whole(tensor, &pieces[0]))
        return make_whole_layout(context, tensor, pieces[0].file + first_rank, out_layout);
    size_t bytes = 0;
    reshard_spec *spec = NULL;
    reshard_shard *shards =
        describe_shards(context, tensor, pieces, piece_count, first_rank, &bytes);
    if (shards == NULL)
        return rs_allocation_status();
    reshard_status status = reshard_spec_boxes(context, cover, tensor->carried_ndim,
                                               tensor->carried_shape, piece_count, shards, &spec);
    if (status == RESHARD_OK)
        status = reshard_layout_create(context, spec, tensor->carried_ndim, tensor->carried_shape,
                                       out_layout);
    reshard_spec_release(spec);
    rs_release(context, shards);
    return status;
}

/* ---- tiling ---------------------------------------------------------------------------------- */

int rs_piece_compare(const void *a, const void *b)
{
    const rs_stored_piece *x = a, *y = b;
    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

static const char *file_of(const reshard_checkpoint *checkpoint, const rs_stored_piece *piece)
{
    return checkpoint->files[piece->file].name;
}

/* Names the files of two pieces that overlap. */
static reshard_status fail_overlap(const reshard_checkpoint *checkpoint,
                                   const rs_stored_tensor *tensor, const reshard_shard *shards)
{
    bool found = false;
    rs_cell_holder pair[2];
    reshard_status status = rs_tiling_find_overlap(checkpoint->context, tensor->carried_ndim,
                                                   tensor->piece_count, shards, &found, pair);
    if (status != RESHARD_OK || !found)
        return status != RESHARD_OK ? status : RESHARD_ERR_OVERLAP;
    return rs_fail(RESHARD_ERR_OVERLAP,
                   "tensor \"%.*s\": what %s holds of it overlaps with what %s holds",
                   RS_SHOWN(tensor->name), file_of(checkpoint, &tensor->pieces[pair[1].shard]),
                   file_of(checkpoint, &tensor->pieces[pair[0].shard]));
}

static reshard_status fail_gap(const reshard_checkpoint *checkpoint, const rs_stored_tensor *tensor)
{
    char shape[256];
    rs_text text;
    int64_t held = 0;
    rs_text_init(&text, shape, sizeof shape);
    rs_text_add_shape(&text, tensor->carried_ndim, tensor->carried_shape);
    for (int64_t i = 0; i < tensor->piece_count; i++)
        held += rs_volume(tensor->carried_ndim, tensor->pieces[i].size);
    return rs_fail(RESHARD_ERR_GAP,
                   "tensor \"%.*s\": its files (from %s to %s) hold %lld of the %llu elements of "
                   "shape %s; is a file missing?",
                   RS_SHOWN(tensor->name), file_of(checkpoint, &tensor->pieces[0]),
                   file_of(checkpoint, &tensor->pieces[tensor->piece_count - 1]), (long long)held,
                   (unsigned long long)(tensor->bytes / (uint64_t)tensor->element_bytes), shape);
}

/* The one dim along which pieces are cut, if all other dims are whole in each of them; -1: there
 * are several. */
static int32_t find_cut_dim(const rs_stored_tensor *tensor)
{
    int32_t cut = -1;
    for (int64_t i = 0; i < tensor->piece_count; i++) {
        const rs_stored_piece *piece = &tensor->pieces[i];
        for (int32_t d = 0; d < tensor->carried_ndim; d++) {
            if (d == cut || (piece->size[d] == tensor->carried_shape[d] &&
                             (piece->offset == NULL || piece->offset[d] == 0)))
                continue;
            if (cut >= 0)
                return -1;
            cut = d;
        }
    }
    return cut;
}

typedef struct interval {
    int64_t begin, end;
} interval;

static int compare_intervals(const void *a, const void *b)
{
    const interval *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* Most tensors are cut along one dim. Then it is enough to sort the pieces and check that each
 * begins where the one before ends. If not, *out_tiles is false, and the general check finds the
 * words. */
static reshard_status tiles_in_line(const reshard_checkpoint *checkpoint,
                                    const rs_stored_tensor *tensor, bool *out_tiles)
{
    int32_t d = find_cut_dim(tensor);
    size_t count = (size_t)tensor->piece_count;
    *out_tiles = false;
    if (d < 0)
        return RESHARD_OK;
    interval *intervals = rs_allocate_array(checkpoint->context, count, sizeof *intervals);
    if (intervals == NULL)
        return rs_allocation_status();
    for (size_t i = 0; i < count; i++) {
        const rs_stored_piece *piece = &tensor->pieces[i];
        int64_t begin = piece->offset != NULL ? piece->offset[d] : 0;
        intervals[i] = (interval){begin, rs_add_up(begin, piece->size[d])};
    }
    rs_sort(intervals, count, sizeof *intervals, compare_intervals);
    int64_t end = 0;
    size_t i = 0;
    while (i < count && intervals[i].begin == end && intervals[i].end > end)
        end = intervals[i++].end;
    *out_tiles = i == count && end == tensor->carried_shape[d];
    rs_release(checkpoint->context, intervals);
    return RESHARD_OK;
}

static reshard_status check_tiling(const reshard_checkpoint *checkpoint,
                                   const rs_stored_tensor *tensor)
{
    bool tiles = false;
    size_t bytes = 0;
    reshard_status status = tiles_in_line(checkpoint, tensor, &tiles);
    if (status != RESHARD_OK || tiles)
        return status;
    reshard_shard *shards = describe_shards(checkpoint->context, tensor, tensor->pieces,
                                            tensor->piece_count, 0, &bytes);
    if (shards == NULL)
        return rs_allocation_status();
    status = reshard_shards_check(checkpoint->context, tensor->carried_ndim, tensor->carried_shape,
                                  tensor->piece_count, shards);
    if (status == RESHARD_ERR_OVERLAP)
        status = fail_overlap(checkpoint, tensor, shards);
    rs_release(checkpoint->context, shards);
    if (status == RESHARD_ERR_OVERLAP)
        return status;
    if (status == RESHARD_ERR_GAP)
        return fail_gap(checkpoint, tensor);
    return rs_fail_within(status, "tensor \"%.*s\" (in %s and others)", RS_SHOWN(tensor->name),
                          file_of(checkpoint, &tensor->pieces[0]));
}

reshard_status rs_store_check(const reshard_checkpoint *checkpoint, rs_stored_tensor *tensor)
{
    assert(tensor->piece_count > 0 && tensor->bytes != 0);
    if (tensor->piece_count == 1 && rs_piece_is_whole(tensor, &tensor->pieces[0]))
        return RESHARD_OK;
    rs_sort(tensor->pieces, (size_t)tensor->piece_count, sizeof(rs_stored_piece), rs_piece_compare);
    return check_tiling(checkpoint, tensor);
}

/* ---- copies ---------------------------------------------------------------------------------- */

typedef struct boxed {
    int32_t ndim;
    rs_stored_piece piece;
} boxed;

static int compare_boxes(const boxed *a, const boxed *b)
{
    for (int32_t d = 0; d < a->ndim; d++) {
        int64_t x = a->piece.offset != NULL ? a->piece.offset[d] : 0;
        int64_t y = b->piece.offset != NULL ? b->piece.offset[d] : 0;
        if (x != y)
            return x < y ? -1 : 1;
        if (a->piece.size[d] != b->piece.size[d])
            return a->piece.size[d] < b->piece.size[d] ? -1 : 1;
    }
    return 0;
}

static int compare_boxed(const void *a, const void *b)
{
    const boxed *x = a, *y = b;
    int order = compare_boxes(x, y);
    return order != 0 ? order : rs_piece_compare(&x->piece, &y->piece);
}

reshard_status rs_store_separate_copies(reshard_checkpoint *checkpoint, rs_stored_tensor *tensor)
{
    size_t count = (size_t)tensor->piece_count;
    if (count < 2 || tensor->bytes == 0)
        return RESHARD_OK;
    boxed *items = rs_allocate_array(checkpoint->context, count, sizeof *items);
    rs_stored_piece *copies =
        rs_arena_allocate_array(&checkpoint->arena, count - 1, sizeof *copies);
    if (items != NULL && copies != NULL) {
        for (size_t i = 0; i < count; i++)
            items[i] = (boxed){tensor->carried_ndim, tensor->pieces[i]};
        rs_sort(items, count, sizeof *items, compare_boxed);
        tensor->copies = copies;
        tensor->piece_count = 0;
        for (size_t i = 0; i < count; i++) {
            if (i > 0 && compare_boxes(&items[i - 1], &items[i]) == 0)
                copies[tensor->copy_count++] = items[i].piece;
            else
                tensor->pieces[tensor->piece_count++] = items[i].piece;
        }
        rs_sort(copies, (size_t)tensor->copy_count, sizeof *copies, rs_piece_compare);
    }
    rs_release(checkpoint->context, items);
    return items != NULL && copies != NULL ? RESHARD_OK : rs_allocation_status();
}
