/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bag_norm.c - max_norm of embedding_bag: rows that indices name are scaled down to a norm, in
 * place. Ranks exchange a number for each of the weight's rows: whether it is used, if indices are
 * cut, and its norm, if columns are. So replicas stay equal, and all parts of a row are scaled
 * alike.
 */
#ifndef REAL
#include "base/error.h"
#include "tensor/bag/bag.h"
#include "tensor/core/scope.h"
#include "tensor/ops/cut_rows.h"
#include "tensor/ops/op.h"

#include <math.h>

#define RS_REAL_FILE "tensor/bag/bag_norm.c"
#include "tensor/core/real.h"

/* Marks the rows that indices name, padding included, as PyTorch does. */
static reshard_status mark_used(const rs_bag *bag, const rs_bag_view *given, reshard_tensor *used)
{
    reshard_status status = RESHARD_OK;
    rs_bag_view view = *given;
    view.padding = RS_PLACE_PADDING;
    for (int64_t i = 0; i < rs_part_count(used) && status == RESHARD_OK; i++) {
        reshard_tensor *part_used = rs_part_of(used, i);
        double *marks = (void *)part_used->data;
        rs_bag_part part;
        status = rs_bag_open_part(bag, &view, i, &part);
        if (status != RESHARD_OK)
            break;
        const int64_t *places = (const void *)part.places->data;
        for (int64_t k = 0; k < part_used->volume; k++)
            marks[k] = 0;
        for (int64_t k = 0; k < part.places->volume; k++) {
            if (places[k] >= 0)
                marks[places[k]] = 1;
        }
        rs_bag_close(&part);
    }
    return status;
}

/* Powers of the norms of used rows, which ranks that have other columns add to; for the largest
 * element, that. */
static reshard_status measure(const rs_bag *bag, reshard_tensor *used, reshard_tensor *norms)
{
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; i < rs_part_count(norms) && status == RESHARD_OK; i++) {
        reshard_tensor *real = NULL;
        status = rs_real(rs_part_of(bag->tensors[RS_BAG_WEIGHT], i), &real);
        if (status == RESHARD_OK)
            RS_CALL(real->dtype, measure_rows, real->data, real->shape[0], real->shape[1],
                    (const void *)rs_part_of(used, i)->data, bag->norm_type,
                    (void *)rs_part_of(norms, i)->data);
        reshard_tensor_release(real);
    }
    return status;
}

/* Turns powers of norms into factors; 1 for a row that stays. */
static bool find_factors(const rs_bag *bag, reshard_tensor *norms)
{
    double *numbers = (void *)norms->data;
    bool any = false;
    for (int64_t i = 0; i < norms->volume; i++) {
        double norm = isinf(bag->norm_type) ? numbers[i] : pow(numbers[i], 1 / bag->norm_type);
        bool over = norm > bag->max_norm;
        numbers[i] = over ? bag->max_norm / (norm + 1e-7) : 1; /* as PyTorch has it */
        any = any || over;
    }
    return any;
}

static reshard_status scale(reshard_tensor *weight, const double *factors)
{
    reshard_tensor *real = NULL, *back = NULL;
    reshard_status status = rs_real(weight, &real);
    if (status != RESHARD_OK)
        return status;
    (void)reshard_tensor_write(weight);
    RS_CALL(real->dtype, scale_rows, real->data, real->shape[0], real->shape[1], factors);
    if (real == weight) { /* scaled where it is */
        reshard_tensor_release(real);
        return RESHARD_OK;
    }
    status = rs_unreal(real, weight->dtype, &back);
    if (status == RESHARD_OK)
        rs_tensor_copy(back, weight);
    reshard_tensor_release(back);
    return status;
}

reshard_status rs_bag_renorm(const rs_bag *bag, const rs_bag_axes *axes)
{
    reshard_tensor *used = NULL, *norms = NULL, *weight = bag->tensors[RS_BAG_WEIGHT];
    rs_bag_view view;
    reshard_reduction how = isinf(bag->norm_type) ? RESHARD_MAX : RESHARD_SUM;
    reshard_status status = rs_bag_look(bag, &view);
    if (status == RESHARD_OK)
        status = rs_bag_numbers(bag, &axes->used, RESHARD_MAX, 1, &bag->rows, &used);
    if (status == RESHARD_OK)
        status = mark_used(bag, &view, used);
    status = rs_bag_settle(bag, &axes->used, status, &used);
    if (status == RESHARD_OK)
        status = rs_bag_numbers(bag, &axes->norms, how, 1, &bag->rows, &norms);
    if (status == RESHARD_OK)
        status = measure(bag, used, norms);
    status = rs_bag_settle(bag, &axes->norms, status, &norms);
    for (int64_t i = 0; status == RESHARD_OK && i < rs_part_count(norms); i++) {
        reshard_tensor *factors = rs_part_of(norms, i);
        if (find_factors(bag, factors))
            status = scale(rs_part_of(weight, i), (const void *)factors->data);
    }
    reshard_tensor_release(used);
    reshard_tensor_release(norms);
    reshard_shards_destroy(view.shards);
    return status;
}

#else

static void OF(measure_rows)(const void *weight, int64_t rows, int64_t width, const double *used,
                             double p, double *out)
{
    for (int64_t r = 0; r < rows; r++) {
        const REAL *row = (const REAL *)weight + r * width;
        out[r] = 0;
        for (int64_t k = 0; k < width && used[r] != 0; k++) {
            double size = fabs((double)row[k]);
            if (isinf(p))
                out[r] = size > out[r] || isnan(size) ? size : out[r];
            else
                out[r] += p == 2 ? size * size : pow(size, p);
        }
    }
}

static void OF(scale_rows)(void *weight, int64_t rows, int64_t width, const double *factors)
{
    for (int64_t r = 0; r < rows; r++) {
        REAL *row = (REAL *)weight + r * width;
        for (int64_t k = 0; k < width && factors[r] != 1; k++)
            row[k] = (REAL)(row[k] * factors[r]);
    }
}

#endif
