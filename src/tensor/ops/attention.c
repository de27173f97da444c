/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attention.c - fused causal attention. The probabilities are computed from q and k for one head at
 * a time, used and thrown away, and the backward step computes them again. So memory grows with the
 * square of the length for one head only.
 */
#ifndef REAL
#include "base/error.h"
#include "layout/layout.h"
#include "spec/spec.h"
#include "tensor/dist/spread.h"
#include "tensor/ops/op.h"

#include <inttypes.h>
#include <math.h>

#define RS_REAL_FILE "tensor/ops/attention.c"
#include "tensor/core/real.h"

static reshard_status make_scratch(const reshard_tensor *q, int32_t count, reshard_tensor **scratch)
{
    int64_t shape[] = {q->shape[2], q->shape[2]};
    reshard_status status = RESHARD_OK;
    for (int32_t i = 0; i < count && status == RESHARD_OK; i++)
        status = rs_result(q->dtype, 2, shape, &scratch[i]);
    return status;
}

/* Computes scale q k', then the softmax of each row up to the diagonal. */
static reshard_status find_probabilities(const reshard_tensor *q, const void *q_head,
                                         const void *k_head, double scale, reshard_tensor *p)
{
    int64_t length = q->shape[2], size = q->shape[3];
    rs_product scores = {.dtype = q->dtype,
                         .transpose_b = true,
                         .m = length,
                         .n = length,
                         .k = size,
                         .scale = scale,
                         .a = q_head,
                         .b = k_head,
                         .c = p->data};
    reshard_status status = rs_multiply_matrices(&scores);
    if (status == RESHARD_OK)
        RS_CALL(q->dtype, causal_softmax, p->data, length);
    return status;
}

/* Multiplies p [length, length], or its transpose, by rows [length, size]. */
static reshard_status apply(const reshard_tensor *q, const reshard_tensor *p, bool transpose,
                            const void *rows, double scale, void *output)
{
    int64_t length = q->shape[2], size = q->shape[3];
    rs_product product = {.dtype = q->dtype,
                          .transpose_a = transpose,
                          .m = length,
                          .n = size,
                          .k = length,
                          .scale = scale,
                          .a = p->data,
                          .b = rows,
                          .c = output};
    return rs_multiply_matrices(&product);
}

static reshard_status attend(reshard_tensor *const *values, double scale, reshard_tensor *output)
{
    const reshard_tensor *q = values[0];
    reshard_tensor *p = NULL;
    int64_t heads = q->shape[0] * q->shape[1];
    int64_t bytes = q->shape[2] * q->shape[3] * (int64_t)rs_element_bytes(q->dtype);
    reshard_status status = make_scratch(q, 1, &p);
    for (int64_t h = 0; h < heads && status == RESHARD_OK; h++) {
        status = find_probabilities(q, q->data + h * bytes, values[1]->data + h * bytes, scale, p);
        if (status == RESHARD_OK)
            status = apply(q, p, false, values[2]->data + h * bytes, 1, output->data + h * bytes);
    }
    reshard_tensor_release(p);
    return status;
}

/* With P the probabilities and G the gradient of the output: dV = P'G, dP = G V',
 * dS = P (dP - rowsum(dP P)), dQ = scale dS K, dK = scale dS'Q. */
static reshard_status attend_back(reshard_tensor *const *values, double scale,
                                  const reshard_tensor *gradient, reshard_tensor *const *outputs)
{
    const reshard_tensor *q = values[0];
    reshard_tensor *scratch[2] = {NULL, NULL};
    int64_t heads = q->shape[0] * q->shape[1], length = q->shape[2], size = q->shape[3];
    int64_t bytes = length * size * (int64_t)rs_element_bytes(q->dtype);
    reshard_status status = make_scratch(q, 2, scratch);
    for (int64_t h = 0; h < heads && status == RESHARD_OK; h++) {
        int64_t at = h * bytes;
        rs_product product = {.dtype = q->dtype,
                              .transpose_b = true,
                              .m = length,
                              .n = length,
                              .k = size,
                              .scale = 1,
                              .a = gradient->data + at,
                              .b = values[2]->data + at,
                              .c = scratch[1]->data};
        status = find_probabilities(q, q->data + at, values[1]->data + at, scale, scratch[0]);
        if (status == RESHARD_OK)
            status = apply(q, scratch[0], true, gradient->data + at, 1, outputs[2]->data + at);
        if (status == RESHARD_OK)
            status = rs_multiply_matrices(&product);
        if (status == RESHARD_OK) {
            RS_CALL(q->dtype, causal_softmax_back, scratch[0]->data, scratch[1]->data, length);
            status =
                apply(q, scratch[1], false, values[1]->data + at, scale, outputs[0]->data + at);
        }
        if (status == RESHARD_OK)
            status = apply(q, scratch[1], true, q->data + at, scale, outputs[1]->data + at);
    }
    reshard_tensor_release(scratch[0]);
    reshard_tensor_release(scratch[1]);
    return status;
}

typedef struct attention_facts {
    double scale;
} attention_facts;

static void backward_attention(rs_node *node, reshard_tensor *const *gradients,
                               reshard_tensor **out_gradients)
{
    const attention_facts *facts = rs_node_facts(node);
    reshard_tensor *values[3] = {NULL, NULL, NULL}, *gradient = NULL;
    reshard_tensor *outputs[3] = {NULL, NULL, NULL};
    reshard_status status = rs_real(gradients[0], &gradient);
    for (int32_t i = 0; i < 3 && status == RESHARD_OK; i++) {
        reshard_tensor *saved = rs_node_saved(node, i);
        status = saved != NULL ? rs_real(saved, &values[i]) : rs_scope_failed();
        if (status == RESHARD_OK)
            status = rs_result(saved->dtype, saved->ndim, saved->shape, &outputs[i]);
    }
    if (status == RESHARD_OK)
        status = attend_back(values, facts->scale, gradient, outputs);
    reshard_tensor_release(gradient);
    for (int32_t i = 0; i < 3; i++) {
        reshard_tensor_release(values[i]);
        outputs[i] = rs_scope_own(outputs[i]);
        if (status == RESHARD_OK)
            out_gradients[i] = outputs[i];
    }
    if (status != RESHARD_OK)
        (void)rs_scope_fail(status);
}

static reshard_status check_heads(reshard_tensor *const *inputs)
{
    for (int32_t i = 0; i < 3; i++) {
        if (inputs[i]->ndim != 4 || !rs_shape_equals(inputs[i], inputs[0]))
            return rs_fail(RESHARD_ERR_INVALID,
                           "input 0 is %s and input %d is %s; they are [batch, heads, length, "
                           "size], alike",
                           rs_tensor_describe(inputs[0]).text, i,
                           rs_tensor_describe(inputs[i]).text);
    }
    return rs_check_floats(3, inputs);
}

static reshard_tensor *attend_local(reshard_tensor *const *inputs, const void *user)
{
    return reshard_causal_attention(inputs[0], inputs[1], inputs[2], *(const double *)user);
}

static reshard_status check_cuts(reshard_tensor *const *inputs)
{
    reshard_spec *spec =
        inputs[0]->distribution != NULL ? inputs[0]->distribution->layout->spec : NULL;
    for (int32_t i = 0; spec != NULL && i < spec->cut_count; i++) {
        const reshard_placement *p = &spec->cuts[i].placement;
        int32_t dim = p->dim < 0 && p->dim != RESHARD_DIM_FLAT ? p->dim + 4 : p->dim;
        if (p->kind == RESHARD_SHARD && dim != 0 && dim != 1)
            return rs_fail(RESHARD_ERR_INVALID, "q is cut otherwise than over batch and heads");
    }
    if (spec != NULL && spec->kind != RESHARD_SPEC_CUTS)
        return rs_fail(RESHARD_ERR_INVALID, "q is cut otherwise than over batch and heads");
    return RESHARD_OK;
}

reshard_tensor *reshard_causal_attention(reshard_tensor *q, reshard_tensor *k, reshard_tensor *v,
                                         double scale)
{
    reshard_tensor *inputs[] = {q, k, v}, *values[3] = {NULL, NULL, NULL}, *output = NULL;
    if (!rs_op_begin("causal_attention", 3, inputs))
        return NULL;
    reshard_status status = check_heads(inputs);
    if (status == RESHARD_OK)
        status = check_cuts(inputs);
    if (status != RESHARD_OK)
        return rs_scope_fail(rs_fail_within(status, "causal_attention"));
    if (scale == 0 && q->shape[3] > 0)
        scale = 1 / sqrt((double)q->shape[3]);
    if (rs_any_distributed(3, inputs))
        return rs_spread_alike("causal_attention", RS_SPREAD_ANY, 3, inputs, attend_local, &scale,
                               sizeof scale);
    if (rs_dtype_is_half(q->dtype))
        return reshard_tensor_cast(reshard_causal_attention(reshard_tensor_cast(q, RESHARD_F32),
                                                            reshard_tensor_cast(k, RESHARD_F32),
                                                            reshard_tensor_cast(v, RESHARD_F32),
                                                            scale),
                                   q->dtype);
    for (int32_t i = 0; i < 3 && status == RESHARD_OK; i++)
        status = rs_real(inputs[i], &values[i]);
    if (status == RESHARD_OK)
        status = rs_result(q->dtype, 4, q->shape, &output);
    if (status == RESHARD_OK)
        status = attend(values, scale, output);
    for (int32_t i = 0; i < 3; i++)
        reshard_tensor_release(values[i]);
    attention_facts facts = {scale};
    rs_recipe recipe = {"causal_attention", backward_attention,         3, inputs, 3, inputs,
                        .facts = &facts,    .facts_bytes = sizeof facts};
    return rs_op_end(&recipe, status, output);
}

#else

/* Computes the softmax of elements 0..i of each row i in place. The rest become 0. */
static void OF(causal_softmax)(void *scores, int64_t length)
{
    for (int64_t r = 0; r < length; r++) {
        REAL *row = (REAL *)scores + r * length, largest = row[0];
        double sum = 0;
        for (int64_t i = 1; i <= r; i++)
            largest = row[i] > largest ? row[i] : largest;
        for (int64_t i = 0; i <= r; i++) {
            double e = exp((double)row[i] - (double)largest);
            row[i] = (REAL)e;
            sum += e;
        }
        for (int64_t i = 0; i < length; i++)
            row[i] = i <= r ? (REAL)((double)row[i] / sum) : 0;
    }
}

/* Turns the gradient of the probabilities into that of the scores, in place. */
static void OF(causal_softmax_back)(const void *probabilities, void *gradient, int64_t length)
{
    for (int64_t r = 0; r < length; r++) {
        const REAL *p = (const REAL *)probabilities + r * length;
        REAL *g = (REAL *)gradient + r * length;
        double dot = 0;
        for (int64_t i = 0; i <= r; i++)
            dot += (double)p[i] * (double)g[i];
        for (int64_t i = 0; i < length; i++)
            g[i] = i <= r ? (REAL)((double)p[i] * ((double)g[i] - dot)) : 0;
    }
}

#endif
