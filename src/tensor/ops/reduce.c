/* SPDX-License-Identifier: Apache-2.0 */
/* reduce.c - sums, means, maxima and minima, of all elements or along dims. Sums are in double, in
 * the order of the elements. Dims that are next to each other count as one. */
#ifndef REAL
#include "base/error.h"
#include "tensor/ops/op.h"
#include "tensor/ops/spread_ops.h"

#include <math.h>

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
        return rs_scope_fail(rs_fail(RESHARD_ERR_INVALID, "mean: the tensor has no elements"));
    return x->distribution != NULL ? rs_spread_mean(x) : rs_mean_of(x, x->volume);
}

/* ---- along dims ------------------------------------------------------------------------------ */

typedef struct max_facts {
    int64_t outer, n, inner;
} max_facts;

/* Elements that are equal to the maximum share its gradient. */
static void backward_max(rs_node *node, reshard_tensor *const *gradients,
                         reshard_tensor **out_gradients)
{
    const max_facts *facts = rs_node_facts(node);
    reshard_tensor *x = rs_node_saved(node, 0), *largest = rs_node_saved(node, 1);
    reshard_tensor *dense = NULL, *gradient = NULL, *output = NULL;
    if (x == NULL || largest == NULL)
        return;
    reshard_status status = rs_real(x, &dense);
    if (status == RESHARD_OK)
        status = rs_real(gradients[0], &gradient);
    if (status == RESHARD_OK)
        status = rs_result(x->dtype, x->ndim, x->shape, &output);
    if (status == RESHARD_OK)
        RS_CALL(x->dtype, share_out, dense->data, largest->data, gradient->data, facts->outer,
                facts->n, facts->inner, output->data);
    reshard_tensor_release(dense);
    reshard_tensor_release(gradient);
    out_gradients[0] = rs_scope_finish(status, output);
}

/* The maximum of no elements is -inf, as on a rank without a part of a cut dim. */
static reshard_tensor *max_over(const char *name, reshard_tensor *x, int64_t outer, int64_t n,
                                int64_t inner, int32_t ndim, const int64_t *shape)
{
    reshard_tensor *dense = NULL, *output = NULL;
    reshard_status status = rs_check_floats(1, &x);
    if (status == RESHARD_OK)
        status = rs_real(x, &dense);
    if (status == RESHARD_OK)
        status = rs_result(x->dtype, ndim, shape, &output);
    if (status == RESHARD_OK)
        RS_CALL(x->dtype, find_largest, dense->data, outer, n, inner, output->data);
    reshard_tensor_release(dense);
    max_facts facts = {outer, n, inner};
    rs_recipe recipe = {name,
                        backward_max,
                        1,
                        &x,
                        2,
                        (reshard_tensor *[]){x, output},
                        .facts = &facts,
                        .facts_bytes = sizeof facts};
    return rs_op_end(&recipe, status, output);
}

static bool is_reduced(uint64_t dims, int32_t d)
{
    return (dims >> d & 1) != 0;
}

/* Moves the reduced dims behind the others, unless they are already next to each other. The others
 * stay in order. */
static reshard_tensor *gather_dims(reshard_tensor *x, uint64_t *dims)
{
    uint64_t lowest = *dims & (~*dims + 1);
    if ((*dims & (*dims + lowest)) == 0)
        return x; /* the bits are a single run, which the addition carries through */
    for (int32_t end = x->ndim - 1; end > 0; end--) {
        for (int32_t d = 0; x != NULL && d < end; d++) {
            if (!is_reduced(*dims, d) || is_reduced(*dims, d + 1))
                continue;
            x = reshard_tensor_transpose(x, d, d + 1);
            *dims ^= UINT64_C(3) << d;
        }
    }
    return x;
}

reshard_tensor *rs_reduce_local(reshard_tensor *x, const rs_reducing *r)
{
    if (x == NULL)
        return NULL; /* a cast failed */
    if (rs_dtype_is_half(x->dtype))
        return reshard_tensor_cast(rs_reduce_local(reshard_tensor_cast(x, RESHARD_F32), r),
                                   x->dtype);
    if (r->reduction == RESHARD_MIN) {
        rs_reducing largest = *r;
        largest.reduction = RESHARD_MAX;
        return reshard_neg(rs_reduce_local(reshard_neg(x), &largest));
    }
    int64_t shape[RESHARD_NDIM_MAX], outer = 1, n = 1, inner = 1;
    int32_t ndim = 0;
    for (int32_t d = 0; d < x->ndim; d++) {
        if (!is_reduced(r->dims, d) || r->keep)
            shape[ndim++] = is_reduced(r->dims, d) ? 1 : x->shape[d];
    }
    uint64_t dims = r->dims;
    x = gather_dims(x, &dims);
    for (int32_t d = 0; x != NULL && d < x->ndim; d++) {
        if (is_reduced(dims, d))
            n *= x->shape[d];
        else if (dims >> d != 0)
            outer *= x->shape[d];
        else
            inner *= x->shape[d];
    }
    if (x == NULL)
        return NULL;
    if (r->reduction == RESHARD_MAX)
        return max_over(r->name, x, outer, n, inner, ndim, shape);
    reshard_tensor *sum = sum_over(r->name, x, outer, n, inner, ndim, shape);
    return r->reduction == RESHARD_AVG && sum != NULL ? reshard_scale(sum, 1.0 / (double)r->count)
                                                      : sum;
}

static reshard_status find_dims(const reshard_tensor *x, int32_t count, const int32_t *dims,
                                rs_reducing *r)
{
    r->count = 1;
    if (count < 1)
        return rs_fail(RESHARD_ERR_INVALID, "over %d dims; there must be one or more", count);
    for (int32_t i = 0; i < count; i++) {
        int32_t d = 0;
        reshard_status status = rs_dim_normalize(x->ndim, dims[i], &d);
        if (status != RESHARD_OK)
            return status;
        if (is_reduced(r->dims, d))
            return rs_fail(RESHARD_ERR_INVALID, "dimension %d is named twice", d);
        r->dims |= UINT64_C(1) << d;
        r->count *= x->shape[d];
    }
    if (r->count == 0 && r->reduction != RESHARD_SUM)
        return rs_fail(RESHARD_ERR_INVALID, "the reduced dimensions have no elements");
    return RESHARD_OK;
}

reshard_tensor *reshard_reduce_dims(reshard_tensor *x, reshard_reduction reduction, int32_t count,
                                    const int32_t *dims, int keep)
{
    static const char *const names[RESHARD_REDUCTION_COUNT] = {[RESHARD_SUM] = "sum_dims",
                                                               [RESHARD_AVG] = "mean_dims",
                                                               [RESHARD_MIN] = "min_dims",
                                                               [RESHARD_MAX] = "max_dims"};
    bool known =
        (int)reduction >= 0 && reduction < RESHARD_REDUCTION_COUNT && names[reduction] != NULL;
    rs_reducing r = {.name = known ? names[reduction] : "reduce_dims",
                     .reduction = reduction,
                     .keep = keep != 0};
    if (!rs_op_begin(r.name, 1, &x))
        return NULL;
    reshard_status status =
        known ? find_dims(x, count, dims, &r)
              : rs_fail(RESHARD_ERR_UNSUPPORTED, "by %s", reshard_reduction_name(reduction));
    if (status != RESHARD_OK)
        return rs_scope_fail(rs_fail_within(status, "%s", r.name));
    return x->distribution != NULL ? rs_spread_reduce(x, &r) : rs_reduce_local(x, &r);
}

reshard_tensor *rs_sum_to(reshard_tensor *gradient, int32_t ndim, const int64_t *shape)
{
    while (gradient != NULL && gradient->ndim > ndim)
        gradient = reshard_reduce_dims(gradient, RESHARD_SUM, 1, (int32_t[]){0}, 0);
    for (int32_t d = 0; gradient != NULL && d < ndim; d++) {
        if (gradient->shape[d] != shape[d])
            gradient = reshard_reduce_dims(gradient, RESHARD_SUM, 1, &d, 1);
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

static void OF(find_largest)(const void *x, int64_t outer, int64_t n, int64_t inner, void *y)
{
    for (int64_t o = 0; o < outer; o++) {
        const REAL *a = (const REAL *)x + o * n * inner;
        REAL *b = (REAL *)y + o * inner;
        for (int64_t k = 0; k < inner; k++)
            b[k] = n > 0 ? a[k] : -(REAL)INFINITY;
        for (int64_t i = 1; i < n; i++) {
            for (int64_t k = 0; k < inner; k++) {
                REAL value = a[i * inner + k];
                b[k] = value > b[k] || isnan(value) ? value : b[k];
            }
        }
    }
}

static void OF(share_out)(const void *x, const void *largest, const void *g, int64_t outer,
                          int64_t n, int64_t inner, void *out)
{
    for (int64_t o = 0; o < outer * inner; o++) {
        int64_t first = o / inner * n * inner + o % inner, ties = 0;
        const REAL *a = (const REAL *)x + first;
        REAL value = ((const REAL *)largest)[o], gradient = ((const REAL *)g)[o];
        REAL *b = (REAL *)out + first;
        for (int64_t i = 0; i < n; i++)
            ties += a[i * inner] == value;
        REAL share = ties > 0 ? gradient / (REAL)ties : (REAL)NAN; /* none is equal to NaN */
        for (int64_t i = 0; i < n; i++)
            b[i * inner] = a[i * inner] == value || ties == 0 ? share : 0;
    }
}

#endif
