/* SPDX-License-Identifier: Apache-2.0 */
/* elementwise.c - add, mul (with broadcasting) and scale, for real and complex numbers. The
 * gradient of a complex factor is multiplied by the conjugate of the other one. */
#ifndef REAL
#include "base/error.h"
#include "tensor/dist/spread.h"
#include "tensor/ops/op.h"
#include "tensor/ops/unary.h"

#include <inttypes.h>

#define RS_REAL_FILE "tensor/ops/elementwise.c"
#include "tensor/core/real.h"

/* ---- two inputs ------------------------------------------------------------------------------ */

/* A walk through broadcast inputs: the shape of the result, and strides for each input. */
typedef struct walk {
    int32_t ndim;
    int64_t shape[RESHARD_NDIM_MAX];
    int64_t strides[2][RESHARD_NDIM_MAX];
} walk;

static reshard_status plan_walk(reshard_tensor *const *inputs, walk *out_walk)
{
    int32_t ndim = inputs[0]->ndim > inputs[1]->ndim ? inputs[0]->ndim : inputs[1]->ndim;
    out_walk->ndim = ndim;
    for (int32_t d = 0; d < ndim; d++) {
        out_walk->shape[d] = 1;
        for (int32_t i = 0; i < 2; i++) {
            int32_t own = d - ndim + inputs[i]->ndim;
            int64_t size = own < 0 ? 1 : inputs[i]->shape[own];
            out_walk->strides[i][d] = size == 1 ? 0 : inputs[i]->strides[own];
            if (size == 1)
                continue;
            if (out_walk->shape[d] != 1 && out_walk->shape[d] != size)
                return rs_fail(RESHARD_ERR_INVALID, "%s and %s cannot be broadcast",
                               rs_tensor_describe(inputs[0]).text,
                               rs_tensor_describe(inputs[1]).text);
            out_walk->shape[d] = size;
        }
    }
    return RESHARD_OK;
}

/* If both inputs are dense and have the shape of the result, the walk is a single row. */
static void flatten_walk(reshard_tensor *const *inputs, walk *w)
{
    bool dense = rs_shape_equals(inputs[0], inputs[1]);
    for (int32_t i = 0; i < 2; i++)
        dense = dense && reshard_tensor_is_contiguous(inputs[i]);
    if (!dense)
        return;
    w->ndim = 1;
    w->shape[0] = inputs[0]->volume;
    w->strides[0][0] = w->strides[1][0] = 1;
}

static void run_walk(const walk *w, bool multiplies, reshard_tensor *const *inputs,
                     reshard_tensor *output)
{
    int64_t index[RESHARD_NDIM_MAX] = {0};
    int64_t row = w->ndim > 0 ? w->shape[w->ndim - 1] : 1;
    int64_t step_a = w->ndim > 0 ? w->strides[0][w->ndim - 1] : 0;
    int64_t step_b = w->ndim > 0 ? w->strides[1][w->ndim - 1] : 0;
    int64_t a = 0, b = 0;
    int64_t bytes = (int64_t)rs_element_bytes(output->dtype);
    for (int64_t done = 0; done < output->volume; done += row) {
        const void *x = inputs[0]->data + a * bytes, *y = inputs[1]->data + b * bytes;
        void *z = output->data + done * bytes;
        if (rs_dtype_is_complex(output->dtype))
            RS_CALL(rs_dtype_part(output->dtype), combine_pairs, multiplies, x, step_a, y, step_b,
                    z, row);
        else if (multiplies)
            RS_CALL(output->dtype, multiply_row, x, step_a, y, step_b, z, row);
        else
            RS_CALL(output->dtype, add_row, x, step_a, y, step_b, z, row);
        for (int32_t d = w->ndim - 2; d >= 0; d--) {
            a += w->strides[0][d];
            b += w->strides[1][d];
            if (++index[d] < w->shape[d])
                break;
            a -= w->strides[0][d] * w->shape[d];
            b -= w->strides[1][d] * w->shape[d];
            index[d] = 0;
        }
    }
}

static reshard_status combine(bool multiplies, reshard_tensor *const *inputs,
                              reshard_tensor **out_tensor)
{
    walk w;
    reshard_tensor *output = NULL;
    reshard_status status = rs_check_numbers(2, inputs);
    if (status == RESHARD_OK)
        status = plan_walk(inputs, &w);
    if (status == RESHARD_OK)
        status = rs_result(inputs[0]->dtype, w.ndim, w.shape, &output);
    if (status != RESHARD_OK)
        return status;
    flatten_walk(inputs, &w);
    run_walk(&w, multiplies, inputs, output);
    *out_tensor = output;
    return RESHARD_OK;
}

typedef struct binary_facts {
    bool multiplies;
    rs_extents inputs[2]; /* before they were broadcast */
} binary_facts;

/* Gives the conjugate; for a real tensor, the tensor itself. Not recorded. */
static reshard_tensor *conjugate(reshard_tensor *x)
{
    if (x == NULL || !rs_dtype_is_complex(x->dtype))
        return x;
    reshard_tensor *output = NULL;
    reshard_status status = rs_result(x->dtype, x->ndim, x->shape, &output);
    if (status == RESHARD_OK) {
        rs_tensor_copy(x, output);
        RS_CALL(rs_dtype_part(x->dtype), turn_pairs, output->data, output->volume);
    }
    return rs_scope_finish(status, output);
}

static void backward_binary(rs_node *node, reshard_tensor *const *gradients,
                            reshard_tensor **out_gradients)
{
    const binary_facts *facts = rs_node_facts(node);
    for (int32_t i = 0; i < 2; i++) {
        if (!rs_node_wants(node, i))
            continue;
        reshard_tensor *gradient =
            facts->multiplies ? reshard_mul(gradients[0], conjugate(rs_node_saved(node, 1 - i)))
                              : gradients[0];
        out_gradients[i] = rs_sum_to(gradient, facts->inputs[i].ndim, facts->inputs[i].shape);
    }
}

static reshard_tensor *run_binary(bool multiplies, reshard_tensor *a, reshard_tensor *b);

static reshard_tensor *binary_local(reshard_tensor *const *inputs, const void *user)
{
    return run_binary(*(const bool *)user, inputs[0], inputs[1]);
}

static reshard_tensor *run_binary(bool multiplies, reshard_tensor *a, reshard_tensor *b)
{
    const char *name = multiplies ? "mul" : "add";
    reshard_tensor *inputs[] = {a, b}, *output = NULL;
    if (!rs_op_begin(name, 2, inputs))
        return NULL;
    if (rs_any_distributed(2, inputs))
        return rs_spread_alike(name, multiplies ? RS_SPREAD_ANY : RS_SPREAD_LINEAR, 2, inputs,
                               binary_local, &multiplies, sizeof multiplies);
    if (rs_dtype_is_half(a->dtype) && a->dtype == b->dtype)
        return reshard_tensor_cast(run_binary(multiplies, reshard_tensor_cast(a, RESHARD_F32),
                                              reshard_tensor_cast(b, RESHARD_F32)),
                                   a->dtype);
    /* A factor is only saved if the other one wants a gradient. */
    reshard_tensor *saved[] = {reshard_tensor_requires_grad(b) ? a : NULL,
                               reshard_tensor_requires_grad(a) ? b : NULL};
    reshard_status status = combine(multiplies, inputs, &output);
    binary_facts facts = {multiplies, {rs_extents_of(a), rs_extents_of(b)}};
    rs_recipe recipe = {.name = name,
                        .backward = backward_binary,
                        .input_count = 2,
                        .inputs = inputs,
                        .saved_count = multiplies ? 2 : 0,
                        .saved = saved,
                        .facts = &facts,
                        .facts_bytes = sizeof facts};
    return rs_op_end(&recipe, status, output);
}

reshard_tensor *reshard_add(reshard_tensor *a, reshard_tensor *b)
{
    return run_binary(false, a, b);
}

reshard_tensor *reshard_mul(reshard_tensor *a, reshard_tensor *b)
{
    return run_binary(true, a, b);
}

/* ---- scale ----------------------------------------------------------------------------------- */

static const rs_unary scaling = {"scale", RS_SPREAD_LINEAR, RS_KEEPS_NOTHING, RS_BOTH(scale),
                                 RS_BOTH(scale_back)};

reshard_tensor *reshard_scale(reshard_tensor *x, double factor)
{
    return rs_unary_run(&scaling, x, factor);
}

#else

static void OF(add_row)(const void *x, int64_t step_x, const void *y, int64_t step_y, void *z,
                        int64_t n)
{
    const REAL *a = x, *b = y;
    REAL *c = z;
    if (step_x == 1 && step_y == 1) {
        for (int64_t i = 0; i < n; i++)
            c[i] = a[i] + b[i];
    } else {
        for (int64_t i = 0; i < n; i++)
            c[i] = a[i * step_x] + b[i * step_y];
    }
}

static void OF(multiply_row)(const void *x, int64_t step_x, const void *y, int64_t step_y, void *z,
                             int64_t n)
{
    const REAL *a = x, *b = y;
    REAL *c = z;
    if (step_x == 1 && step_y == 1) {
        for (int64_t i = 0; i < n; i++)
            c[i] = a[i] * b[i];
    } else {
        for (int64_t i = 0; i < n; i++)
            c[i] = a[i * step_x] * b[i * step_y];
    }
}

/* Adds or multiplies complex numbers, which are pairs of reals. Steps count pairs. */
static void OF(combine_pairs)(bool multiplies, const void *x, int64_t step_x, const void *y,
                              int64_t step_y, void *z, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const REAL *a = (const REAL *)x + 2 * i * step_x, *b = (const REAL *)y + 2 * i * step_y;
        REAL *c = (REAL *)z + 2 * i;
        c[0] = multiplies ? a[0] * b[0] - a[1] * b[1] : a[0] + b[0];
        c[1] = multiplies ? a[0] * b[1] + a[1] * b[0] : a[1] + b[1];
    }
}

static void OF(turn_pairs)(void *x, int64_t n)
{
    REAL *a = x;
    for (int64_t i = 0; i < n; i++)
        a[2 * i + 1] = -a[2 * i + 1];
}

static void OF(scale)(const rs_unary_rows *rows, const void *x, void *y)
{
    const REAL *a = x;
    REAL *b = y, factor = (REAL)rows->parameter;
    for (int64_t i = 0; i < rows->count * rows->size; i++)
        b[i] = a[i] * factor;
}

static void OF(scale_back)(const rs_unary_rows *rows, const void *kept, const void *gradient,
                           void *out)
{
    (void)kept;
    OF(scale)(rows, gradient, out);
}

#endif
