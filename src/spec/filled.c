/* SPDX-License-Identifier: Apache-2.0 */
/*
 * filled.c - checks that pieces fill their shard's buffer, each element once.
 *
 * Let f(x) be the number of pieces that fill element x. We want f = 1 on the buffer. A function
 * that is zero far away is determined by its mixed difference over all dimensions, and the mixed
 * difference of a box is +1 or -1, alternating, at its corners and 0 elsewhere. So the pieces fill
 * the buffer exactly if, at every point, their signed corners add up to those of the buffer: sort
 * all corners and look for a point where they do not.
 *
 * The first such point in row-major order is itself an element at fault. f there is the sum of the
 * differences at all points that are not beyond it in any dimension; all of these except the point
 * itself come earlier in the order and cancel. A positive rest means that the element is filled
 * twice, a negative one that nothing fills it.
 *
 * Time is O(2^m p log p) for p pieces, where m is the number of dimensions in which some piece is
 * shorter than the buffer; the other dimensions take no part. m is 1 for flat shards and rarely
 * more than 2.
 */
#include "base/checked.h"
#include "base/context.h"
#include "base/shape.h"
#include "base/sort.h"
#include "spec/build.h"

#include <assert.h>
#include <inttypes.h>

/* Twice the row-major number of a point, plus 1 if the corner counts -1. Points may lie on the far
 * faces, so each dimension has one more point than elements. The volume is below 2^63, so the
 * number is below 2^71. */
__extension__ typedef unsigned __int128 corner_key;

typedef struct corner_list {
    int32_t ndim; /* dimensions of the buffer */
    int32_t varied_count;
    int32_t varied[RESHARD_NDIM_MAX]; /* the dimensions that take part */
    corner_key weights[RESHARD_NDIM_MAX];
    corner_key *keys;
    size_t count;
} corner_list;

static void choose_dimensions(corner_list *corners, int32_t ndim, const reshard_shard *shard)
{
    bool varied[RESHARD_NDIM_MAX] = {false};
    for (int64_t i = 0; i < shard->piece_count; i++) {
        reshard_box box;
        rs_piece_memory_box(ndim, shard, &shard->pieces[i], &box);
        for (int32_t d = 0; d < shard->ndim; d++)
            varied[d] = varied[d] || box.size[d] != shard->shape[d];
    }
    corners->ndim = shard->ndim;
    corners->varied_count = 0;
    corner_key weight = 1;
    for (int32_t d = shard->ndim - 1; d >= 0; d--) {
        corners->weights[d] = weight;
        if (!varied[d])
            continue;
        corners->varied[corners->varied_count++] = d;
        weight *= (corner_key)shard->shape[d] + 1;
    }
}

static void add_box(corner_list *corners, const reshard_box *box, bool negative)
{
    assert(corners->varied_count >= 0 && corners->varied_count <= RESHARD_NDIM_MAX);
    for (int32_t mask = 0; mask < 1 << corners->varied_count; mask++) {
        corner_key number = 0;
        bool minus = negative;
        for (int32_t i = 0; i < corners->varied_count; i++) {
            int32_t d = corners->varied[i];
            bool beyond = (mask >> i & 1) != 0;
            number +=
                (corner_key)(box->offset[d] + (beyond ? box->size[d] : 0)) * corners->weights[d];
            minus = minus != beyond;
        }
        corners->keys[corners->count++] = number * 2 + (minus ? 1u : 0u);
    }
}

static int compare_keys(const void *a, const void *b)
{
    corner_key x = *(const corner_key *)a;
    corner_key y = *(const corner_key *)b;
    return (x > y) - (x < y);
}

static reshard_status fail_at_point(const corner_list *corners, const reshard_shard *shard,
                                    corner_key number, bool surplus)
{
    char buffer[RESHARD_NDIM_MAX * 24];
    rs_text point;
    rs_text_init(&point, buffer, sizeof buffer);
    for (int32_t d = 0; d < shard->ndim; d++) {
        int64_t coordinate = 0;
        for (int32_t i = 0; i < corners->varied_count; i++) {
            corner_key radix = (corner_key)shard->shape[d] + 1;
            if (corners->varied[i] == d)
                coordinate = (int64_t)(number / corners->weights[d] % radix);
        }
        rs_text_add(&point, d == 0 ? "%" PRId64 : ",%" PRId64, coordinate);
    }
    return rs_fail(RESHARD_ERR_INVALID, "shard of rank %" PRId32 ": %s element (%s) of its memory",
                   shard->rank, surplus ? "more than one piece fills" : "no piece fills", buffer);
}

static reshard_status find_difference(const corner_list *corners, const reshard_shard *shard)
{
    for (size_t i = 0; i < corners->count;) {
        corner_key number = corners->keys[i] / 2;
        int64_t sum = 0;
        for (; i < corners->count && corners->keys[i] / 2 == number; i++)
            sum += corners->keys[i] % 2 == 0 ? 1 : -1;
        if (sum != 0)
            return fail_at_point(corners, shard, number, sum > 0);
    }
    return RESHARD_OK;
}

reshard_status rs_shard_check_filled(reshard_context *context, int32_t ndim,
                                     const reshard_shard *shard)
{
    corner_list corners = {.ndim = shard->ndim};
    reshard_box box = {.ndim = shard->ndim};
    if (rs_volume(shard->ndim, shard->shape) == 0)
        return RESHARD_OK; /* place_piece has refused every piece with elements */
    choose_dimensions(&corners, ndim, shard);
    if (corners.varied_count == 0 && shard->piece_count == 1)
        return RESHARD_OK;
    size_t capacity;
    if (!rs_multiply_size((size_t)shard->piece_count + 1, (size_t)1 << corners.varied_count,
                          &capacity))
        capacity = SIZE_MAX / sizeof *corners.keys; /* more than can be allocated */
    corners.keys = rs_allocate_array(context, capacity, sizeof *corners.keys);
    if (corners.keys == NULL)
        return rs_allocation_status();
    for (int32_t d = 0; d < shard->ndim; d++)
        box.size[d] = shard->shape[d];
    add_box(&corners, &box, true);
    for (int64_t i = 0; i < shard->piece_count; i++) {
        rs_piece_memory_box(ndim, shard, &shard->pieces[i], &box);
        add_box(&corners, &box, false);
    }
    assert(corners.count <= capacity);
    rs_sort(corners.keys, corners.count, sizeof *corners.keys, compare_keys);
    reshard_status status = find_difference(&corners, shard);
    rs_release(context, corners.keys);
    return status;
}
