/* SPDX-License-Identifier: Apache-2.0 */
#include "layout/flat.h"

#include "base/shape.h"

#include <assert.h>
#include <string.h>

static void to_coordinates(const rs_flat_block *block, int64_t place, int64_t *out)
{
    for (int32_t d = block->ndim - 1; d >= 0; d--) {
        out[d] = place % block->shape[d];
        place /= block->shape[d];
    }
}

/* Adds one box: coordinates before `dim` are those of `at`, `dim` goes from low to high, later dims
 * are whole. */
static void add_box(const rs_flat_block *block, const int64_t *at, int32_t dim, int64_t low,
                    int64_t high, rs_flat_boxes *boxes)
{
    if (low >= high)
        return;
    rs_flat_box *box = &boxes->items[boxes->count++];
    memset(box, 0, sizeof *box);
    for (int32_t d = 0; d < block->ndim; d++) {
        box->start[d] = d < dim ? at[d] : d == dim ? low : 0;
        box->size[d] = d < dim ? 1 : d == dim ? high - low : block->shape[d];
    }
}

void rs_flat_split(const rs_flat_block *block, int64_t from, int64_t to, rs_flat_boxes *out_boxes)
{
    out_boxes->count = 0;
    if (from >= to)
        return;
    assert(from >= 0);
    if (block->ndim == 0) {
        memset(&out_boxes->items[out_boxes->count++], 0, sizeof out_boxes->items[0]);
        return;
    }
    int64_t first[RESHARD_NDIM_MAX] = {0}, last[RESHARD_NDIM_MAX] = {0};
    to_coordinates(block, from, first);
    to_coordinates(block, to - 1, last);
    int32_t fork = 0; /* the first dim in which the two ends differ, or the last dim */
    while (fork < block->ndim - 1 && first[fork] == last[fork])
        fork++;
    /* Below the fork there is a head, from `first` to the end of its slice, and a tail, from the
     * start of its slice to `last`. A head or tail that is a whole slice joins the middle
     * instead. */
    int32_t head = block->ndim - 1, tail = block->ndim - 1;
    while (head > fork && first[head] == 0)
        head--;
    while (tail > fork && last[tail] == block->shape[tail] - 1)
        tail--;
    for (int32_t d = head; d > fork; d--)
        add_box(block, first, d, d == head ? first[d] : first[d] + 1, block->shape[d], out_boxes);
    add_box(block, first, fork, head == fork ? first[fork] : first[fork] + 1,
            tail == fork ? last[fork] + 1 : last[fork], out_boxes);
    for (int32_t d = fork + 1; d <= tail; d++)
        add_box(block, last, d, 0, d == tail ? last[d] + 1 : last[d], out_boxes);
}

static int64_t to_place(const rs_flat_block *block, const int64_t *coordinates)
{
    int64_t place = 0;
    for (int32_t d = 0; d < block->ndim; d++)
        place = place * block->shape[d] + coordinates[d];
    return place;
}

int64_t rs_flat_next(const rs_flat_block *block, const int64_t *start, const int64_t *size,
                     int64_t from)
{
    if (from >= rs_volume(block->ndim, block->shape))
        return -1;
    int64_t at[RESHARD_NDIM_MAX];
    to_coordinates(block, from, at);
    /* Find the first coordinate that is outside the box; it decides. */
    int32_t d = 0;
    while (d < block->ndim && at[d] >= start[d] && at[d] < start[d] + size[d])
        d++;
    if (d == block->ndim)
        return from;
    if (at[d] >= start[d] + size[d]) {
        /* Past the box in this dim: step forward in the nearest earlier dim that has room. */
        do {
            d--;
        } while (d >= 0 && at[d] + 1 >= start[d] + size[d]);
        if (d < 0)
            return -1;
        at[d++]++;
    }
    for (; d < block->ndim; d++)
        at[d] = start[d];
    return to_place(block, at);
}
