/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cut_softmax.c - softmax and log_softmax of rows that are cut over ranks (cut_rows.h). The
 * backward step exchanges one number for each row.
 */
#ifndef REAL
#include "tensor/ops/cut_rows.h"

#include "tensor/core/move.h"
#include "tensor/ops/op.h"

#include <math.h>

#define RS_REAL_FILE "tensor/ops/cut_softmax.c"
#include "tensor/core/real.h"

typedef struct softmax_facts {
    bool logarithm;
} softmax_facts;

/* Makes a tensor like x from new parts: `fn` gets a part of x, of another tensor with the same
 * parts, and of the rows' numbers. */
typedef void (*part_fn)(const rs_part_rows *part, const void *x, const void *other,
                        const double *numbers, const double *sums, void *out);

static reshard_status run_part(part_fn const fn[2], reshard_tensor *x, reshard_tensor *other,
                               const void *numbers, const void *sums, reshard_tensor **out_part)
{
    reshard_tensor *dense = NULL, *beside = NULL, *made = NULL;
    reshard_status status = rs_real(x, &dense);
    if (status == RESHARD_OK && other != NULL)
        status = rs_real(other, &beside);
    if (status == RESHARD_OK)
        status = rs_result(dense->dtype, x->ndim, x->shape, &made);
    if (status == RESHARD_OK) {
        rs_part_rows part = {.rows = rs_row_count(x), .width = rs_row_size(x)};
        fn[dense->dtype == RESHARD_F64](&part, dense->data, beside != NULL ? beside->data : NULL,
                                        numbers, sums, made->data);
        status = rs_unreal(made, x->dtype, out_part);
    }
    reshard_tensor_release(dense);
    reshard_tensor_release(beside);
    return status;
}

static reshard_status run_parts(part_fn const fn[2], reshard_tensor *x, reshard_tensor *other,
                                reshard_tensor *numbers, reshard_tensor *sums,
                                reshard_tensor **out_tensor)
{
    rs_distribution *d = x->distribution;
    reshard_tensor *part = NULL; /* a layout of cuts gives a rank at most one shard */
    reshard_status status = RESHARD_OK;
    if (d->shard_count > 0)
        status = run_part(fn, d->shards[0], other != NULL ? rs_part_of(other, 0) : NULL,
                          rs_part_of(numbers, 0)->data,
                          sums != NULL ? rs_part_of(sums, 0)->data : NULL, &part);
    if (status == RESHARD_OK)
        status = rs_distributed_wrap(rs_scope_context(), d->cache, d->layout, x->dtype, &part,
                                     out_tensor);
    reshard_tensor_release(part);
    return status;
}

static void backward_softmax(rs_node *node, reshard_tensor *const *gradients,
                             reshard_tensor **out_gradients)
{
    static part_fn const weigh[2][2] = {RS_BOTH(weigh_softmax), RS_BOTH(weigh_logarithm)};
    static part_fn const back[2][2] = {RS_BOTH(softmax_part_back), RS_BOTH(logarithm_part_back)};
    const softmax_facts *facts = rs_node_facts(node);
    reshard_tensor *y = rs_node_saved(node, 0), *gradient = NULL, *numbers = NULL, *dots = NULL;
    reshard_tensor *output = NULL;
    if (y == NULL)
        return;
    reshard_status status = rs_redistribute(rs_scope_context(), gradients[0],
                                            y->distribution->layout, y->dtype, &gradient);
    if (status == RESHARD_OK)
        status = rs_rows_numbers(y, RESHARD_SUM, 1, &numbers);
    for (int64_t i = 0; status == RESHARD_OK && i < rs_part_count(y); i++) {
        reshard_tensor *dense = NULL, *beside = NULL;
        status = rs_real(rs_part_of(y, i), &dense);
        if (status == RESHARD_OK)
            status = rs_real(rs_part_of(gradient, i), &beside);
        if (status == RESHARD_OK) {
            rs_part_rows part = {.rows = rs_row_count(dense), .width = rs_row_size(dense)};
            weigh[facts->logarithm][dense->dtype == RESHARD_F64](
                &part, dense->data, beside->data, NULL, NULL, rs_part_of(numbers, i)->data);
        }
        reshard_tensor_release(dense);
        reshard_tensor_release(beside);
    }
    status = rs_rows_reduce(y, status, numbers, &dots);
    if (status == RESHARD_OK)
        status = run_parts(back[facts->logarithm], y, gradient, dots, NULL, &output);
    reshard_tensor_release(gradient);
    reshard_tensor_release(dots);
    out_gradients[0] = rs_scope_finish(status, output);
}

reshard_tensor *rs_cut_softmax(reshard_tensor *x, bool logarithm)
{
    static part_fn const forward[2][2] = {RS_BOTH(softmax_part), RS_BOTH(logarithm_part)};
    reshard_tensor *maxima = NULL, *sums = NULL, *output = NULL;
    rs_columns c = {0};
    reshard_status status = rs_check_floats(1, &x);
    if (status == RESHARD_OK)
        status = rs_columns_find(x, INT64_MAX, &c);
    if (status == RESHARD_OK)
        status = rs_rows_maxima(x, &c, &maxima);
    if (status == RESHARD_OK)
        status = rs_rows_sums(x, &c, maxima, NULL, &sums);
    if (status == RESHARD_OK)
        status = run_parts(forward[logarithm], x, NULL, maxima, sums, &output);
    reshard_tensor_release(maxima);
    reshard_tensor_release(sums);
    rs_columns_forget(&c);
    softmax_facts facts = {logarithm};
    rs_recipe recipe = {.name = logarithm ? "log_softmax" : "softmax",
                        .backward = backward_softmax,
                        .input_count = 1,
                        .inputs = &x,
                        .saved_count = 1,
                        .saved = &output,
                        .facts = &facts,
                        .facts_bytes = sizeof facts,
                        .group = rs_distributed_group(x)};
    return rs_op_end(&recipe, status, output);
}

#else

static void OF(softmax_part)(const rs_part_rows *part, const void *x, const void *other,
                             const double *maxima, const double *sums, void *out)
{
    (void)other;
    for (int64_t i = 0; i < part->rows * part->width; i++) {
        int64_t r = i / part->width;
        ((REAL *)out)[i] = (REAL)(exp((double)((const REAL *)x)[i] - maxima[r]) / sums[2 * r]);
    }
}

static void OF(logarithm_part)(const rs_part_rows *part, const void *x, const void *other,
                               const double *maxima, const double *sums, void *out)
{
    (void)other;
    for (int64_t r = 0; r < part->rows; r++) {
        double shift = log(sums[2 * r]);
        for (int64_t i = r * part->width; i < (r + 1) * part->width; i++)
            ((REAL *)out)[i] = (REAL)((double)((const REAL *)x)[i] - maxima[r] - shift);
    }
}

/* For each row, what the gradients of its rs_columns have in common. */
static void OF(weigh_softmax)(const rs_part_rows *part, const void *y, const void *gradient,
                              const double *numbers, const double *sums, void *out)
{
    const REAL *p = y, *g = gradient;
    (void)numbers;
    (void)sums;
    for (int64_t r = 0; r < part->rows; r++) {
        double sum = 0;
        for (int64_t i = r * part->width; i < (r + 1) * part->width; i++)
            sum += (double)p[i] * (double)g[i];
        ((double *)out)[r] = sum;
    }
}

static void OF(weigh_logarithm)(const rs_part_rows *part, const void *y, const void *gradient,
                                const double *numbers, const double *sums, void *out)
{
    const REAL *g = gradient;
    (void)y;
    (void)numbers;
    (void)sums;
    for (int64_t r = 0; r < part->rows; r++) {
        double sum = 0;
        for (int64_t i = r * part->width; i < (r + 1) * part->width; i++)
            sum += (double)g[i];
        ((double *)out)[r] = sum;
    }
}

static void OF(softmax_part_back)(const rs_part_rows *part, const void *y, const void *gradient,
                                  const double *dots, const double *sums, void *out)
{
    const REAL *p = y, *g = gradient;
    (void)sums;
    for (int64_t i = 0; i < part->rows * part->width; i++)
        ((REAL *)out)[i] = (REAL)((double)p[i] * ((double)g[i] - dots[i / part->width]));
}

static void OF(logarithm_part_back)(const rs_part_rows *part, const void *y, const void *gradient,
                                    const double *dots, const double *sums, void *out)
{
    const REAL *p = y, *g = gradient;
    (void)sums;
    for (int64_t i = 0; i < part->rows * part->width; i++)
        ((REAL *)out)[i] = (REAL)((double)g[i] - exp((double)p[i]) * dots[i / part->width]);
}

#endif
