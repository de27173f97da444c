/* SPDX-License-Identifier: Apache-2.0 */
/* zero_boxes.c - ranges of flat arrays become pieces. Consecutive ranges tile the tensor, so the
 * pieces need no further check. */
#include "checkpoint/deepspeed/zero.h"

#include "base/context.h"
#include "base/shape.h"
#include "base/sort.h"
#include "layout/flat.h"

#include <assert.h>
#include <string.h>

void rs_zero_boxes_begin(rs_zero_boxes *boxes, int32_t ndim, const int64_t *shape)
{
    boxes->ndim = ndim;
    boxes->shape = shape;
    boxes->next = 0;
    boxes->count = 0;
}

static reshard_status add_box(rs_zero_boxes *boxes, int32_t rank, int64_t at, const int64_t *start,
                              const int64_t *size)
{
    size_t ndim = (size_t)boxes->ndim;
    int64_t *numbers = rs_arena_allocate_array(boxes->arena, 2 * ndim, sizeof(int64_t));
    if (numbers == NULL)
        return rs_allocation_status();
    memcpy(numbers, start, ndim * sizeof(int64_t));
    memcpy(numbers + ndim, size, ndim * sizeof(int64_t));
    reshard_status status = rs_grow(boxes->arena->context, &boxes->items, &boxes->capacity,
                                    boxes->count + 1, sizeof(rs_zero_box));
    if (status == RESHARD_OK)
        boxes->items[boxes->count++] = (rs_zero_box){rank, at, numbers};
    return status;
}

/* A tensor of more dims than boxes can have is carried whole, as a line of bytes. */
static reshard_status add_whole(rs_zero_boxes *boxes, int32_t rank, int64_t at, int64_t count)
{
    if (boxes->next != 0 || count != rs_volume(boxes->ndim, boxes->shape))
        return rs_fail(RESHARD_ERR_UNSUPPORTED,
                       "has %d dimensions and is cut; tensors of more than %d dimensions can only "
                       "be copied whole",
                       (int)boxes->ndim, RESHARD_NDIM_MAX);
    reshard_status status =
        rs_grow(boxes->arena->context, &boxes->items, &boxes->capacity, 1, sizeof(rs_zero_box));
    if (status == RESHARD_OK)
        boxes->items[boxes->count++] = (rs_zero_box){rank, at, NULL};
    return status;
}

reshard_status rs_zero_boxes_add(rs_zero_boxes *boxes, int32_t rank, int64_t at, int64_t count)
{
    rs_flat_boxes found;
    rs_flat_block block = {.ndim = boxes->ndim};
    reshard_status status = RESHARD_OK;
    if (count == 0)
        return RESHARD_OK;
    if (boxes->ndim > RESHARD_NDIM_MAX) {
        status = add_whole(boxes, rank, at, count);
        boxes->next += count;
        return status;
    }
    if (boxes->ndim > 0)
        memcpy(block.shape, boxes->shape, (size_t)boxes->ndim * sizeof(int64_t));
    rs_flat_split(&block, boxes->next, boxes->next + count, &found);
    for (int32_t i = 0; status == RESHARD_OK && i < found.count; i++) {
        status = add_box(boxes, rank, at, found.items[i].start, found.items[i].size);
        at += rs_volume(boxes->ndim, found.items[i].size);
    }
    boxes->next += count;
    return status;
}

/* Invariant 2 of the store. Files are opened in the order of ranks, so pieces are nearly always
 * sorted. */
static void sort_pieces(rs_stored_tensor *tensor)
{
    for (int64_t i = 1; i < tensor->piece_count; i++) {
        if (rs_piece_compare(&tensor->pieces[i - 1], &tensor->pieces[i]) > 0) {
            rs_sort(tensor->pieces, (size_t)tensor->piece_count, sizeof(rs_stored_piece),
                    rs_piece_compare);
            return;
        }
    }
}

reshard_status rs_zero_boxes_tensor(const rs_zero_boxes *boxes, rs_slice name, reshard_dtype dtype,
                                    const rs_zero_flat *flats, int32_t stride,
                                    rs_stored_tensor *out_tensor)
{
    rs_stored_tensor *tensor = out_tensor;
    reshard_status status =
        rs_store_describe(tensor, boxes->arena, name, dtype, boxes->ndim, boxes->shape);
    if (status != RESHARD_OK)
        return status;
    size_t room = boxes->count != 0 ? (size_t)boxes->count : 1;
    tensor->pieces = rs_arena_allocate_array(boxes->arena, room, sizeof(rs_stored_piece));
    if (tensor->pieces == NULL)
        return rs_allocation_status();
    tensor->piece_count = (int64_t)room;
    if (boxes->count == 0) /* no elements, but the tensor belongs to a file */
        tensor->pieces[0] = (rs_stored_piece){.file = flats[0].file, .size = tensor->carried_shape};
    for (int64_t i = 0; i < boxes->count; i++) {
        const rs_zero_box *box = &boxes->items[i];
        const rs_zero_flat *flat = &flats[(int64_t)box->rank * stride];
        bool is_cut = box->numbers != NULL && !tensor->opaque;
        assert(is_cut || boxes->count == 1);
        tensor->pieces[i] = (rs_stored_piece){
            .file = flat->file,
            .at = flat->at + (uint64_t)box->at * (uint64_t)(reshard_dtype_bits(dtype) / 8),
            .offset = is_cut ? box->numbers : NULL,
            .size = is_cut ? box->numbers + boxes->ndim : tensor->carried_shape};
    }
    sort_pieces(tensor);
    return RESHARD_OK;
}

void rs_zero_boxes_release(rs_zero_boxes *boxes)
{
    rs_release(boxes->arena->context, boxes->items);
    boxes->items = NULL;
}
