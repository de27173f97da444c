/* SPDX-License-Identifier: Apache-2.0 */
/*
 * own_operations.h - operations as a user would write them (own_operation.h), in f64: a function of
 * one number, a product with a vector, sums of rows, one with two outputs, one that cuts what is
 * replicated, and one on whole distributed tensors.
 */
#ifndef TESTS_TENSOR_OWN_OPERATIONS_H
#define TESTS_TENSOR_OWN_OPERATIONS_H

#include "tests/tensor/values.h"

#include <reshard/own_operation.h>

#include <math.h>

/* A tensor for a gradient, in the innermost scope, with a pointer to its numbers. */
static inline reshard_tensor *own_like(const reshard_tensor *like, double **out_numbers)
{
    reshard_tensor *made = reshard_tensor_clone((reshard_tensor *)like);
    *out_numbers = made != NULL ? reshard_tensor_write(made) : NULL;
    return made;
}

/* ---- tanh, scaled ---------------------------------------------------------------------------- */

static inline reshard_status own_tanh_forward(reshard_operation_call *call,
                                              reshard_tensor *const *inputs,
                                              reshard_tensor **outputs)
{
    double scale = *(const double *)call->data;
    const double *from = reshard_tensor_data(inputs[0]);
    if ((outputs[0] = reshard_operation_result(call, 0)) == NULL)
        return RESHARD_OK;
    double *to = reshard_tensor_write(outputs[0]);
    for (int64_t i = 0; i < reshard_tensor_volume(inputs[0]); i++)
        to[i] = tanh(scale * from[i]);
    return RESHARD_OK;
}

static inline reshard_status own_tanh_backward(reshard_operation_call *call,
                                               reshard_tensor *const *gradients,
                                               reshard_tensor **out_gradients)
{
    double scale = *(const double *)call->data, *to = NULL;
    const double *y = reshard_tensor_data(call->outputs[0]);
    if ((out_gradients[0] = own_like(gradients[0], &to)) == NULL)
        return RESHARD_OK;
    for (int64_t i = 0; i < reshard_tensor_volume(gradients[0]); i++)
        to[i] *= scale * (1 - y[i] * y[i]);
    return RESHARD_OK;
}

static const reshard_operation own_tanh = {.size = sizeof own_tanh,
                                           .name = "own_tanh",
                                           .forward = own_tanh_forward,
                                           .backward = own_tanh_backward,
                                           .saved_outputs = 1,
                                           .data_bytes = sizeof(double)};

static inline reshard_tensor *apply_own_tanh(reshard_tensor *x)
{
    return reshard_operation_run(&own_tanh, &(double){0.75}, &x, NULL);
}

/* ---- x [.., n] times a vector [n] ------------------------------------------------------------ */

static inline reshard_status own_times_forward(reshard_operation_call *call,
                                               reshard_tensor *const *inputs,
                                               reshard_tensor **outputs)
{
    const double *x = reshard_tensor_data(inputs[0]), *w = reshard_tensor_data(inputs[1]);
    int64_t n = reshard_tensor_volume(inputs[1]);
    if ((outputs[0] = reshard_operation_result(call, 0)) == NULL)
        return RESHARD_OK;
    double *to = reshard_tensor_write(outputs[0]);
    for (int64_t i = 0; i < reshard_tensor_volume(inputs[0]); i++)
        to[i] = x[i] * w[i % n];
    return RESHARD_OK;
}

static inline reshard_status own_times_backward(reshard_operation_call *call,
                                                reshard_tensor *const *gradients,
                                                reshard_tensor **out_gradients)
{
    reshard_tensor *inputs[] = {call->inputs[0], call->inputs[1]};
    const double *x = reshard_tensor_data(inputs[0]), *w = reshard_tensor_data(inputs[1]);
    const double *g = reshard_tensor_data(gradients[0]);
    int64_t n = reshard_tensor_volume(inputs[1]), count = reshard_tensor_volume(inputs[0]);
    double *to = NULL;
    if (call->wants[0] && (out_gradients[0] = own_like(gradients[0], &to)) != NULL) {
        for (int64_t i = 0; i < count; i++)
            to[i] = g[i] * w[i % n];
    }
    if (call->wants[1] && (out_gradients[1] = own_like(inputs[1], &to)) != NULL) {
        for (int64_t i = 0; i < n; i++)
            to[i] = 0;
        for (int64_t i = 0; i < count; i++)
            to[i % n] += g[i] * x[i];
    }
    return RESHARD_OK;
}

static const reshard_operation_rule own_times_rules[] = {{"S(i), R", "S(i)", NULL},
                                                         {"S(-1), S(0)", "S(-1)", NULL}};
static const reshard_operation own_times = {.size = sizeof own_times,
                                            .name = "own_times",
                                            .input_count = 2,
                                            .forward = own_times_forward,
                                            .backward = own_times_backward,
                                            .saved_inputs = 3,
                                            .rule_count = 2,
                                            .rules = own_times_rules};

/* ---- sums of rows ---------------------------------------------------------------------------- */

static inline reshard_status own_rows_shapes(const void *data, reshard_tensor *const *inputs,
                                             reshard_operation_output *outputs)
{
    (void)data;
    (void)inputs;
    outputs[0].ndim--;
    return RESHARD_OK;
}

static inline reshard_status own_rows_forward(reshard_operation_call *call,
                                              reshard_tensor *const *inputs,
                                              reshard_tensor **outputs)
{
    const double *x = reshard_tensor_data(inputs[0]);
    if ((outputs[0] = reshard_operation_result(call, 0)) == NULL)
        return RESHARD_OK;
    double *to = reshard_tensor_write(outputs[0]);
    int64_t rows = reshard_tensor_volume(outputs[0]);
    for (int64_t i = 0; i < reshard_tensor_volume(inputs[0]); i++)
        to[i / (reshard_tensor_volume(inputs[0]) / rows)] += x[i];
    return RESHARD_OK;
}

static inline reshard_status own_rows_backward(reshard_operation_call *call,
                                               reshard_tensor *const *gradients,
                                               reshard_tensor **out_gradients)
{
    const double *g = reshard_tensor_data(gradients[0]);
    reshard_tensor *x = call->inputs[0];
    double *to = NULL;
    if ((out_gradients[0] = own_like(x, &to)) == NULL)
        return RESHARD_OK;
    int64_t rows = reshard_tensor_volume(gradients[0]);
    for (int64_t i = 0; i < reshard_tensor_volume(x); i++)
        to[i] = g[i / (reshard_tensor_volume(x) / rows)];
    return RESHARD_OK;
}

static const reshard_operation_rule own_rows_rules[] = {{"S(i)", "S(i)", NULL},
                                                        {"S(-1)", "P", NULL}};
static const reshard_operation own_rows = {.size = sizeof own_rows,
                                           .name = "own_rows",
                                           .forward = own_rows_forward,
                                           .backward = own_rows_backward,
                                           .saved_inputs = 1,
                                           .shapes = own_rows_shapes,
                                           .rule_count = 2,
                                           .rules = own_rows_rules};

/* ---- x^2 and x^3, computed by other operations, with one more saved tensor ------------------- */

static inline reshard_status own_powers_forward(reshard_operation_call *call,
                                                reshard_tensor *const *inputs,
                                                reshard_tensor **outputs)
{
    reshard_tensor *x = inputs[0];
    outputs[0] = reshard_mul(x, x);
    outputs[1] = reshard_mul(outputs[0], x);
    return reshard_operation_save(call, 0, reshard_scale(outputs[0], 3));
}

static inline reshard_status own_powers_backward(reshard_operation_call *call,
                                                 reshard_tensor *const *gradients,
                                                 reshard_tensor **out_gradients)
{
    reshard_tensor *x = call->inputs[0];
    out_gradients[0] = reshard_add(reshard_mul(reshard_scale(x, 2), gradients[0]),
                                   reshard_mul(call->saved[0], gradients[1]));
    return RESHARD_OK;
}

static const reshard_operation own_powers = {.size = sizeof own_powers,
                                             .name = "own_powers",
                                             .output_count = 2,
                                             .forward = own_powers_forward,
                                             .backward = own_powers_backward,
                                             .saved_inputs = 1,
                                             .saved_count = 1};

/* Uses one output twice and the other not, or both. */
static inline reshard_tensor *apply_own_powers(reshard_tensor *x, int both)
{
    reshard_tensor *outputs[2];
    (void)reshard_operation_run(&own_powers, NULL, &x, outputs);
    return both ? reshard_add(outputs[0], reshard_mul(outputs[1], outputs[1])) : outputs[1];
}

/* ---- each rank's chunk of what all have, times its place ------------------------------------- */

static inline reshard_status own_chunk_forward(reshard_operation_call *call,
                                               reshard_tensor *const *inputs,
                                               reshard_tensor **outputs)
{
    int64_t offset = 0;
    const double *x = reshard_tensor_data(inputs[0]);
    if ((outputs[0] = reshard_operation_result(call, 0)) == NULL)
        return RESHARD_OK;
    TRY(reshard_operation_offset(call, 1, 0, &offset));
    double *to = reshard_tensor_write(outputs[0]);
    for (int64_t i = 0; i < reshard_tensor_volume(outputs[0]); i++)
        to[i] = x[offset + i] * (double)(offset + i + 1);
    return RESHARD_OK;
}

static inline reshard_status own_chunk_backward(reshard_operation_call *call,
                                                reshard_tensor *const *gradients,
                                                reshard_tensor **out_gradients)
{
    int64_t offset = 0;
    double *to = NULL;
    const double *g = reshard_tensor_data(gradients[0]);
    TRY(reshard_operation_offset(call, 1, 0, &offset));
    if ((out_gradients[0] = own_like(call->inputs[0], &to)) == NULL)
        return RESHARD_OK;
    for (int64_t i = 0; i < reshard_tensor_volume(out_gradients[0]); i++) {
        int64_t at = i - offset;
        to[i] = at >= 0 && at < reshard_tensor_volume(gradients[0]) ? g[at] * (double)(i + 1) : 0;
    }
    return RESHARD_OK;
}

static const reshard_operation_rule own_chunk_rules[] = {{"R", "S(0)", NULL}};
static const reshard_operation own_chunk = {.size = sizeof own_chunk,
                                            .name = "own_chunk",
                                            .forward = own_chunk_forward,
                                            .backward = own_chunk_backward,
                                            .saved_inputs = 1,
                                            .rule_count = 1,
                                            .rules = own_chunk_rules};

/* ---- a whole distributed tensor, replicated -------------------------------------------------- */

static inline reshard_status own_gather_forward(reshard_operation_call *call,
                                                reshard_tensor *const *inputs,
                                                reshard_tensor **outputs)
{
    reshard_spec *spec = *(reshard_spec *const *)call->data;
    outputs[0] = reshard_scale(reshard_tensor_redistribute(inputs[0], spec, NULL), 2);
    return RESHARD_OK;
}

static inline reshard_status own_gather_backward(reshard_operation_call *call,
                                                 reshard_tensor *const *gradients,
                                                 reshard_tensor **out_gradients)
{
    (void)call;
    out_gradients[0] = reshard_scale(gradients[0], 2);
    return RESHARD_OK;
}

static const reshard_operation own_gather = {.size = sizeof own_gather,
                                             .name = "own_gather",
                                             .forward = own_gather_forward,
                                             .backward = own_gather_backward,
                                             .data_bytes = sizeof(reshard_spec *),
                                             .whole = 1};

#endif
