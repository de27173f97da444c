/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cut_rows.c - what rows need of all ranks that they are cut over: their maximum, then the sum of
 * exp(x - maximum), and a label's own logit. Ranks exchange these numbers and no part of the rows.
 */
#ifndef REAL
#include "tensor/ops/cut_rows.h"

#include "base/error.h"
#include "tensor/core/dense.h"
#include "tensor/core/move.h"
#include "tensor/core/scope.h"

#include <reshard/group.h>

#include <math.h>
#include <string.h>

#define RS_REAL_FILE "tensor/ops/cut_rows.c"
#include "tensor/core/real.h"

/* ---- parts ----------------------------------------------------------------------------------- */

int64_t rs_part_count(const reshard_tensor *x)
{
    return x->distribution != NULL ? x->distribution->shard_count : 1;
}

reshard_tensor *rs_part_of(reshard_tensor *x, int64_t i)
{
    return x->distribution != NULL ? x->distribution->shards[i] : x;
}

reshard_status rs_rows_axes(const reshard_tensor *x, reshard_placement placement, rs_axes *out_axes)
{
    rs_axes axes;
    reshard_status status = rs_axes_of(x, &axes);
    if (status != RESHARD_OK)
        return status;
    *out_axes = axes;
    for (int32_t i = 0; i < axes.count; i++) {
        if (axes.cuts[i].placement.kind == RESHARD_PARTIAL)
            return rs_refuse_partial(x);
        if (rs_axes_is_cut(&axes.cuts[i].placement, x->ndim - 1))
            rs_axes_set(out_axes, axes.cuts[i].axis, placement);
    }
    return RESHARD_OK;
}

bool rs_rows_are_cut(const reshard_tensor *x)
{
    rs_axes axes;
    if (x->distribution == NULL || x->ndim < 1 || rs_axes_of(x, &axes) != RESHARD_OK)
        return false;
    for (int32_t i = 0; i < axes.count; i++) {
        if (rs_axes_is_cut(&axes.cuts[i].placement, x->ndim - 1))
            return true;
    }
    return false;
}

reshard_status rs_rows_numbers(reshard_tensor *x, reshard_reduction reduction, int64_t count,
                               reshard_tensor **out_numbers)
{
    int64_t shape[RESHARD_NDIM_MAX];
    reshard_layout *layout = NULL;
    rs_axes axes;
    memcpy(shape, x->shape, sizeof shape);
    shape[x->ndim - 1] = count;
    if (x->distribution == NULL)
        return rs_result(RESHARD_F64, x->ndim, shape, out_numbers);
    reshard_placement partial = rs_placement_partial();
    partial.reduction = reduction;
    reshard_status status = rs_rows_axes(x, partial, &axes);
    if (status == RESHARD_OK)
        status = rs_axes_layout(&axes, x->ndim, shape, &layout);
    if (status == RESHARD_OK)
        status = rs_distributed_make(rs_scope_context(), x->distribution->cache, layout,
                                     RESHARD_F64, out_numbers);
    reshard_layout_release(layout);
    return status;
}

reshard_status rs_rows_reduce(const reshard_tensor *x, reshard_status status,
                              reshard_tensor *numbers, reshard_tensor **out_numbers)
{
    reshard_layout *layout = NULL;
    rs_axes axes;
    if (status == RESHARD_OK && x->distribution == NULL) {
        *out_numbers = numbers;
        return RESHARD_OK;
    }
    if (status == RESHARD_OK)
        status = rs_rows_axes(x, (reshard_placement){.kind = RESHARD_REPLICATE}, &axes);
    if (status == RESHARD_OK)
        status = rs_axes_layout(&axes, numbers->ndim, numbers->shape, &layout);
    if (status == RESHARD_OK)
        status = rs_redistribute(rs_scope_context(), numbers, layout, RESHARD_F64, out_numbers);
    reshard_layout_release(layout);
    reshard_tensor_release(numbers);
    return status;
}

reshard_status rs_columns_find(reshard_tensor *x, int64_t limit, rs_columns *out_columns)
{
    int64_t width = rs_part_count(x) > 0 ? rs_row_size(rs_part_of(x, 0)) : 0;
    rs_columns c = {.limit = limit};
    reshard_status status = rs_result(RESHARD_I64, 1, &width, &c.global);
    if (status == RESHARD_OK && x->distribution != NULL)
        status = reshard_layout_shards(x->distribution->layout,
                                       reshard_group_rank(rs_distributed_group(x)), &c.shards);
    if (status != RESHARD_OK) {
        reshard_tensor_release(c.global);
        return status;
    }
    int64_t *global = (void *)c.global->data;
    for (int64_t i = 0; i < width; i++)
        global[i] = i;
    int64_t pieces = c.shards != NULL && c.shards->count > 0 ? c.shards->items[0].piece_count : 0;
    for (int64_t i = 0; i < pieces && width > 0; i++) {
        const reshard_piece *piece = &c.shards->items[0].pieces[i];
        int32_t last = x->ndim - 1;
        for (int64_t k = 0; k < piece->box.size[last]; k++)
            global[piece->at % width + k * piece->strides[last]] = piece->box.offset[last] + k;
    }
    *out_columns = c;
    return RESHARD_OK;
}

void rs_columns_forget(rs_columns *c)
{
    reshard_shards_destroy(c->shards);
    reshard_tensor_release(c->global);
}

/* ---- maximum and sum of rows ----------------------------------------------------------------- */

rs_part_rows rs_columns_part(const reshard_tensor *part, const rs_columns *c)
{
    return (rs_part_rows){rs_row_count(part), rs_row_size(part), (const void *)c->global->data,
                          c->limit};
}

reshard_status rs_rows_maxima(reshard_tensor *x, const rs_columns *c, reshard_tensor **out_maxima)
{
    reshard_tensor *numbers = NULL;
    reshard_status status = rs_rows_numbers(x, RESHARD_MAX, 1, &numbers);
    for (int64_t i = 0; status == RESHARD_OK && i < rs_part_count(x); i++) {
        reshard_tensor *dense = NULL;
        status = rs_real(rs_part_of(x, i), &dense);
        if (status == RESHARD_OK) {
            rs_part_rows part = rs_columns_part(dense, c);
            RS_CALL(dense->dtype, largest_of_rows, &part, dense->data,
                    (void *)rs_part_of(numbers, i)->data);
        }
        reshard_tensor_release(dense);
    }
    return rs_rows_reduce(x, status, numbers, out_maxima);
}

reshard_status rs_rows_sums(reshard_tensor *x, const rs_columns *c, reshard_tensor *maxima,
                            const reshard_tensor *places, reshard_tensor **out_sums)
{
    reshard_tensor *numbers = NULL;
    reshard_status status = rs_rows_numbers(x, RESHARD_SUM, 2, &numbers);
    for (int64_t i = 0; status == RESHARD_OK && i < rs_part_count(x); i++) {
        reshard_tensor *dense = NULL;
        status = rs_real(rs_part_of(x, i), &dense);
        if (status == RESHARD_OK) {
            rs_part_rows part = rs_columns_part(dense, c);
            RS_CALL(dense->dtype, sums_of_rows, &part, dense->data,
                    (const void *)rs_part_of(maxima, i)->data,
                    places != NULL ? (const void *)places->data : NULL,
                    (void *)rs_part_of(numbers, i)->data);
        }
        reshard_tensor_release(dense);
    }
    return rs_rows_reduce(x, status, numbers, out_sums);
}

#else

/* Of no columns: -inf, which every other maximum exceeds. */
static void OF(largest_of_rows)(const rs_part_rows *part, const void *x, double *out)
{
    for (int64_t r = 0; r < part->rows; r++) {
        const REAL *row = (const REAL *)x + r * part->width;
        out[r] = -INFINITY;
        for (int64_t i = 0; i < part->width; i++) {
            if (part->global[i] < part->limit && ((double)row[i] > out[r] || isnan(row[i])))
                out[r] = (double)row[i];
        }
    }
}

static void OF(sums_of_rows)(const rs_part_rows *part, const void *x, const double *maxima,
                             const int64_t *places, double *out)
{
    for (int64_t r = 0; r < part->rows; r++) {
        const REAL *row = (const REAL *)x + r * part->width;
        double sum = 0;
        for (int64_t i = 0; i < part->width; i++)
            sum += part->global[i] < part->limit ? exp((double)row[i] - maxima[r]) : 0;
        out[2 * r] = sum;
        out[2 * r + 1] = places != NULL && places[r] >= 0 ? (double)row[places[r]] - maxima[r] : 0;
    }
}

#endif
