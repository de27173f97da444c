/* SPDX-License-Identifier: Apache-2.0 */
/* reduce.c - sums and means. Sums are in double, in the order of the elements. */
#ifndef REAL
#include "base/error.h"
#include "tensor/ops/layout_rules.h"
#include "tensor/ops/op.h"

#include <assert.h>

enum { COLUMNS = 64 };

#define RS_REAL_FILE "tensor/ops/reduce.c"
#include "tensor/core/real.h"

/* A sum over the middle dim of [outer, n, inner]. The two parts of complex numbers count in
 * inner. */
typedef struct sum_facts {
    rs_extents input;
    int64_t outer, n, inner;
} sum_facts;

/* Repeats the gradient along the dim: [outer, inner] becomes [outer, n, inner]. */
static void backward_sum(rs_node *node, reshard_tensor *const *gradients,
                         reshard_tensor **out_gradients)
{
    const sum_facts *facts = rs_node_facts(node);
    reshard_tensor *dense = NULL, *output = NULL;
    reshard_status status = rs_real(gradients[0], &dense);
    if (status == RESHARD_OK)
        status = rs_result(gradients[0]->dtype, facts->input.ndim, facts->input.shape, &output);
    if (status == RESHARD_OK)
        RS_CALL(rs_dtype_part(output->dtype), repeat, dense->data, facts->outer, facts->n,
                facts->inner, output->data);
    reshard_tensor_release(dense);
    out_gradients[0] = rs_scope_finish(status, output);
}

/* `shape` is that of the output. */
static reshard_tensor *sum_over(const char *name, reshard_tensor *x, int64_t outer, int64_t n,
                                int64_t inner, int32_t ndim, const int64_t *shape)
{
    reshard_tensor *dense = NULL, *output = NULL;
    reshard_status status = rs_check_numbers(1, &x);
    inner *= rs_dtype_parts(x->dtype);
    if (status == RESHARD_OK)
        status = rs_real(x, &dense);
    if (status == RESHARD_OK)
        status = rs_result(x->dtype, ndim, shape, &output);
    if (status == RESHARD_OK)
        RS_CALL(rs_dtype_part(x->dtype), add_up, dense->data, outer, n, inner, output->data);
    reshard_tensor_release(dense);
    sum_facts facts = {rs_extents_of(x), outer, n, inner};
    rs_recipe recipe = {name, backward_sum, 1, &x, .facts = &facts, .facts_bytes = sizeof facts};
    return rs_op_end(&recipe, status, output);
}

reshard_tensor *reshard_sum(reshard_tensor *x)
{
    if (!rs_op_begin("sum", 1, &x))
        return NULL;
    if (x->distribution != NULL)
        return rs_spread_sum(x);
    if (rs_dtype_is_half(x->dtype))
        return reshard_tensor_cast(reshard_sum(reshard_tensor_cast(x, RESHARD_F32)), x->dtype);
    return sum_over("sum", x, 1, x->volume, 1, 0, NULL);
}

/* f16 and bf16 are divided before they are rounded, because their sum may overflow. */
reshard_tensor *rs_mean_of(reshard_tensor *x, int64_t count)
{
    if (rs_dtype_is_half(x->dtype))
        return reshard_tensor_cast(
            reshard_scale(reshard_sum(reshard_tensor_cast(x, RESHARD_F32)), 1.0 / (double)count),
            x->dtype);
    return reshard_scale(reshard_sum(x), 1.0 / (double)count);
}

reshard_tensor *reshard_mean(reshard_tensor *x)
{
    if (!rs_op_begin("mean", 1, &x))
        return NULL;
    if (x->volume == 0)
        return rs_scope_fail(rs_fail(RESHARD_ERR_INVALID, "mean: of no elements"));
    return x->distribution != NULL ? rs_spread_mean(x) : rs_mean_of(x, x->volume);
}

static reshard_tensor *sum_dim(reshard_tensor *x, int32_t dim, bool keep)
{
    if (!rs_op_begin("sum_dim", 1, &x))
        return NULL;
    if (rs_dtype_is_half(x->dtype) && x->distribution == NULL)
        return reshard_tensor_cast(sum_dim(reshard_tensor_cast(x, RESHARD_F32), dim, keep),
                                   x->dtype);
    int32_t d = 0, ndim = 0;
    reshard_status status = rs_dim_normalize(x->ndim, dim, &d);
    if (status != RESHARD_OK)
        return rs_scope_fail(rs_fail_within(status, "sum_dim"));
    if (x->distribution != NULL) {
        assert(!keep); /* keep is for broadcasting, which distributed tensors do not do */
        return rs_spread_sum_dim(x, d);
    }
    int64_t shape[RESHARD_NDIM_MAX], outer = 1, inner = 1;
    for (int32_t i = 0; i < x->ndim; i++) {
        if (i < d)
            outer *= x->shape[i];
        if (i > d)
            inner *= x->shape[i];
        if (i != d || keep)
            shape[ndim++] = i == d ? 1 : x->shape[i];
    }
    return sum_over("sum_dim", x, outer, x->shape[d], inner, ndim, shape);
}

reshard_tensor *reshard_sum_dim(reshard_tensor *x, int32_t dim)
{
    return sum_dim(x, dim, false);
}

reshard_tensor *rs_sum_to(reshard_tensor *gradient, int32_t ndim, const int64_t *shape)
{
    while (gradient != NULL && gradient->ndim > ndim)
        gradient = sum_dim(gradient, 0, false);
    for (int32_t d = 0; gradient != NULL && d < ndim; d++) {
        if (gradient->shape[d] != shape[d])
            gradient = sum_dim(gradient, d, true);
    }
    return gradient;
}

#else

/* Adds up COLUMNS columns or fewer, row by row, so that memory is read in order and each column is
 * added in order. */
static void OF(add_up_columns)(const REAL *a, int64_t n, int64_t inner, int64_t columns, REAL *b)
{
    double sums[COLUMNS] = {0};
    for (int64_t i = 0; i < n; i++) {
        for (int64_t k = 0; k < columns; k++)
            sums[k] += (double)a[i * inner + k];
    }
    for (int64_t k = 0; k < columns; k++)
        b[k] = (REAL)sums[k];
}

static void OF(add_up)(const void *x, int64_t outer, int64_t n, int64_t inner, void *y)
{
    for (int64_t o = 0; o < outer; o++) {
        const REAL *a = (const REAL *)x + o * n * inner;
        REAL *b = (REAL *)y + o * inner;
        for (int64_t k = 0; k < inner; k += COLUMNS)
            OF(add_up_columns)(a + k, n, inner, inner - k < COLUMNS ? inner - k : COLUMNS, b + k);
    }
}

static void OF(repeat)(const void *x, int64_t outer, int64_t n, int64_t inner, void *y)
{
    const REAL *a = x;
    REAL *b = y;
    for (int64_t o = 0; o < outer; o++) {
        for (int64_t i = 0; i < n; i++) {
            for (int64_t k = 0; k < inner; k++)
                b[(o * n + i) * inner + k] = a[o * inner + k];
        }
    }
}

#endif
