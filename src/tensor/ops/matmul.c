/* SPDX-License-Identifier: Apache-2.0 */
/*
 * matmul.c - products of matrices: matmul and linear. f16 and bf16 inputs are saved as they are,
 * and widened to f32 for each product.
 */
#include "base/error.h"
#include "tensor/dist/spread.h"
#include "tensor/grad/node.h"
#include "tensor/ops/op.h"
#include "tensor/ops/spread_ops.h"

#include <string.h>

/* A product of two tensors into a new one of the given shape, repeated for `batch` consecutive
 * matrices. */
typedef struct job {
    reshard_tensor *a, *b;
    bool transpose_a, transpose_b;
    int64_t batch, m, n, k;
    int32_t ndim;
    const int64_t *shape;
} job;

static reshard_status run_batch(const job *j, const reshard_tensor *a, const reshard_tensor *b,
                                reshard_tensor *c)
{
    int64_t bytes = (int64_t)rs_element_bytes(c->dtype);
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; i < j->batch && status == RESHARD_OK; i++) {
        rs_product product = {.dtype = c->dtype,
                              .transpose_a = j->transpose_a,
                              .transpose_b = j->transpose_b,
                              .m = j->m,
                              .n = j->n,
                              .k = j->k,
                              .scale = 1,
                              .a = a->data + i * j->m * j->k * bytes,
                              .b = b->data + i * j->k * j->n * bytes,
                              .c = c->data + i * j->m * j->n * bytes};
        status = rs_multiply_matrices(&product);
    }
    return status;
}

static reshard_status run_job(const job *j, reshard_tensor **out_tensor)
{
    reshard_tensor *a = NULL, *b = NULL, *c = NULL;
    reshard_status status = rs_real(j->a, &a);
    if (status == RESHARD_OK)
        status = rs_real(j->b, &b);
    if (status == RESHARD_OK)
        status = rs_result(rs_real_dtype(j->a->dtype), j->ndim, j->shape, &c);
    if (status == RESHARD_OK)
        status = run_batch(j, a, b, c);
    reshard_tensor_release(a);
    reshard_tensor_release(b);
    if (status == RESHARD_OK)
        return rs_unreal(c, j->a->dtype, out_tensor);
    reshard_tensor_release(c);
    return status;
}

static reshard_tensor *own_job(const job *j)
{
    reshard_tensor *made = NULL;
    reshard_status status = run_job(j, &made);
    return rs_scope_finish(status, made);
}

/* ---- matmul ---------------------------------------------------------------------------------- */

/* With batch 1, m counts the rows of all leading dims. */
typedef struct matmul_facts {
    int64_t batch, m, n, k;
    int32_t b_ndim;
} matmul_facts;

static void backward_matmul(rs_node *node, reshard_tensor *const *gradients,
                            reshard_tensor **out_gradients)
{
    const matmul_facts *facts = rs_node_facts(node);
    int64_t batch = facts->batch, m = facts->m, n = facts->n, k = facts->k;
    reshard_tensor *a = rs_node_saved(node, 0), *b = rs_node_saved(node, 1);
    if (rs_node_wants(node, 0) && b != NULL) {
        int64_t shape[RESHARD_NDIM_MAX];
        memcpy(shape, gradients[0]->shape, sizeof shape);
        shape[gradients[0]->ndim - 1] = k;
        job j = {gradients[0], b, false, true, batch, m, k, n, gradients[0]->ndim, shape};
        out_gradients[0] = own_job(&j);
    }
    if (rs_node_wants(node, 1) && a != NULL) {
        int64_t shape[RESHARD_NDIM_MAX] = {k, n};
        int32_t ndim = facts->b_ndim;
        if (ndim > 2) {
            memcpy(shape, gradients[0]->shape, sizeof shape);
            shape[ndim - 2] = k;
        }
        job j = {a, gradients[0], true, false, batch, k, n, m, ndim, shape};
        out_gradients[1] = own_job(&j);
    }
}

static reshard_status check_matmul(reshard_tensor *const *inputs)
{
    const reshard_tensor *a = inputs[0], *b = inputs[1];
    bool fits = a->ndim >= 2 && b->ndim >= 2 && (b->ndim == 2 || b->ndim == a->ndim) &&
                a->shape[a->ndim - 1] == b->shape[b->ndim - 2];
    for (int32_t d = 0; fits && b->ndim > 2 && d < b->ndim - 2; d++)
        fits = a->shape[d] == b->shape[d];
    if (!fits)
        return rs_fail(RESHARD_ERR_INVALID, "%s by %s", rs_tensor_describe(a).text,
                       rs_tensor_describe(b).text);
    return rs_check_floats(2, inputs);
}

reshard_tensor *reshard_matmul(reshard_tensor *a, reshard_tensor *b)
{
    reshard_tensor *inputs[] = {a, b}, *output = NULL;
    if (!rs_op_begin("matmul", 2, inputs))
        return NULL;
    reshard_status status = check_matmul(inputs);
    if (status != RESHARD_OK)
        return rs_scope_fail(rs_fail_within(status, "matmul"));
    if (rs_any_distributed(2, inputs))
        return rs_spread_matmul(a, b);
    int64_t shape[RESHARD_NDIM_MAX], n = b->shape[b->ndim - 1], k = a->shape[a->ndim - 1];
    memcpy(shape, a->shape, sizeof shape);
    shape[a->ndim - 1] = n;
    job j = {a, b, false, false, 1, rs_row_count(a), n, k, a->ndim, shape};
    if (b->ndim > 2) {
        j.m = a->shape[a->ndim - 2];
        j.batch = 1;
        for (int32_t d = 0; d < a->ndim - 2; d++)
            j.batch *= a->shape[d];
    }
    status = run_job(&j, &output);
    matmul_facts facts = {j.batch, j.m, j.n, j.k, b->ndim};
    reshard_tensor *saved[] = {rs_tensor_requires_grad(b) ? a : NULL,
                               rs_tensor_requires_grad(a) ? b : NULL};
    rs_recipe recipe = {"matmul",
                        backward_matmul,
                        2,
                        inputs,
                        2,
                        saved,
                        .facts = &facts,
                        .facts_bytes = sizeof facts};
    return rs_op_end(&recipe, status, output);
}

reshard_tensor *reshard_bmm(reshard_tensor *a, int transpose_a, reshard_tensor *b, int transpose_b)
{
    reshard_tensor *inputs[] = {a, b};
    if (!rs_op_begin("bmm", 2, inputs))
        return NULL;
    if (a->ndim != 3 || b->ndim != 3)
        return rs_scope_fail(rs_fail(RESHARD_ERR_INVALID, "bmm: %s by %s; both must have 3 dims",
                                     rs_tensor_describe(a).text, rs_tensor_describe(b).text));
    return reshard_matmul(transpose_a ? reshard_tensor_transpose(a, 1, 2) : a,
                          transpose_b ? reshard_tensor_transpose(b, 1, 2) : b);
}

/* ---- linear ---------------------------------------------------------------------------------- */

/* The gradient of the bias is the sum of all rows. */
static reshard_tensor *sum_rows(reshard_tensor *gradient, int64_t rows, int64_t n)
{
    int64_t shape[] = {rows, n};
    return reshard_reduce_dims(reshard_tensor_reshape(gradient, 2, shape), RESHARD_SUM, 1,
                               (int32_t[]){0}, 0);
}

/* x is m by k, the weight n by k. */
typedef struct linear_facts {
    int64_t m, n, k;
} linear_facts;

static void backward_linear(rs_node *node, reshard_tensor *const *gradients,
                            reshard_tensor **out_gradients)
{
    const linear_facts *facts = rs_node_facts(node);
    int64_t m = facts->m, n = facts->n, k = facts->k;
    reshard_tensor *x = rs_node_saved(node, 0), *weight = rs_node_saved(node, 1);
    reshard_tensor *gradient = gradients[0];
    if (rs_node_wants(node, 0) && weight != NULL) {
        int64_t shape[RESHARD_NDIM_MAX];
        memcpy(shape, gradient->shape, sizeof shape);
        shape[gradient->ndim - 1] = k;
        job j = {gradient, weight, false, false, 1, m, k, n, gradient->ndim, shape};
        out_gradients[0] = own_job(&j);
    }
    if (rs_node_wants(node, 1) && x != NULL) {
        int64_t shape[] = {n, k};
        job j = {gradient, x, true, false, 1, n, k, m, 2, shape};
        out_gradients[1] = own_job(&j);
    }
    if (node->input_count == 3 && rs_node_wants(node, 2))
        out_gradients[2] = sum_rows(gradient, m, n);
}

static reshard_status check_linear(reshard_tensor *const *inputs)
{
    const reshard_tensor *x = inputs[0], *weight = inputs[1], *bias = inputs[2];
    if (x->ndim < 1 || weight->ndim != 2 || x->shape[x->ndim - 1] != weight->shape[1])
        return rs_fail(RESHARD_ERR_INVALID, "x %s by weight %s", rs_tensor_describe(x).text,
                       rs_tensor_describe(weight).text);
    if (bias != NULL && (bias->ndim != 1 || bias->shape[0] != weight->shape[0]))
        return rs_fail(RESHARD_ERR_INVALID, "bias %s for weight %s", rs_tensor_describe(bias).text,
                       rs_tensor_describe(weight).text);
    return rs_check_floats(3, inputs);
}

reshard_tensor *reshard_linear(reshard_tensor *x, reshard_tensor *weight, reshard_tensor *bias)
{
    reshard_tensor *inputs[] = {x, weight, bias}, *output = NULL, *sum = NULL;
    if (!rs_op_begin("linear", 2, inputs))
        return NULL;
    reshard_status status = check_linear(inputs);
    if (status != RESHARD_OK)
        return rs_scope_fail(rs_fail_within(status, "linear"));
    if (rs_any_distributed(3, inputs))
        return rs_spread_linear(x, weight, bias);
    int64_t shape[RESHARD_NDIM_MAX], n = weight->shape[0], k = weight->shape[1];
    memcpy(shape, x->shape, sizeof shape);
    shape[x->ndim - 1] = n;
    job j = {x, weight, false, true, 1, rs_row_count(x), n, k, x->ndim, shape};
    status = run_job(&j, &output);
    if (status == RESHARD_OK && bias != NULL) {
        int enabled = reshard_set_gradients_enabled(0);
        sum = reshard_tensor_retain(reshard_add(output, bias));
        (void)reshard_set_gradients_enabled(enabled);
        reshard_tensor_release(output);
        output = sum;
        status = sum != NULL ? RESHARD_OK : rs_scope_failed();
    }
    linear_facts facts = {j.m, n, k};
    reshard_tensor *saved[] = {rs_tensor_requires_grad(weight) ? x : NULL,
                               rs_tensor_requires_grad(x) ? weight : NULL};
    rs_recipe recipe = {"linear", backward_linear, bias != NULL ? 3 : 2,       inputs, 2,
                        saved,    .facts = &facts, .facts_bytes = sizeof facts};
    return rs_op_end(&recipe, status, output);
}
