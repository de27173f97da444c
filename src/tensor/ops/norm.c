/* SPDX-License-Identifier: Apache-2.0 */
/*
 * norm.c - layernorm and rmsnorm over the last dim. With h = (x - mean) / deviation (rmsnorm:
 * mean 0), y = h weight + bias, and with u = gradient weight
 *   dx = (u - mean(u) - h mean(u h)) / deviation      (rmsnorm: without mean(u))
 */
#ifndef REAL
#include "base/error.h"
#include "tensor/dist/spread.h"
#include "tensor/ops/op.h"
#include "tensor/ops/spread_ops.h"

#include <math.h>

enum { LANES = 8 };

#define RS_REAL_FILE "tensor/ops/norm.c"
#include "tensor/core/real.h"

typedef struct norm {
    const char *name;
    bool centred;
    double epsilon;
} norm;

static reshard_tensor *normalize(const norm *n, reshard_tensor *x, reshard_tensor *weight,
                                 reshard_tensor *bias);

/* The dense real values that a backward step reads, and the results it writes. */
typedef struct back {
    reshard_tensor *x, *weight, *gradient;            /* values */
    reshard_tensor *x_back, *weight_back, *bias_back; /* results */
} back;

static reshard_status prepare_back(reshard_tensor *x, reshard_tensor *weight,
                                   reshard_tensor *gradient, back *b)
{
    int64_t n = rs_row_size(x);
    reshard_status status = rs_real(x, &b->x);
    if (status == RESHARD_OK)
        status = rs_real(weight, &b->weight);
    if (status == RESHARD_OK)
        status = rs_real(gradient, &b->gradient);
    if (status == RESHARD_OK)
        status = rs_result(x->dtype, x->ndim, x->shape, &b->x_back);
    if (status == RESHARD_OK)
        status = rs_result_zeros(x->dtype, 1, &n, &b->weight_back);
    if (status == RESHARD_OK)
        status = rs_result_zeros(x->dtype, 1, &n, &b->bias_back);
    return status;
}

static void backward_norm(rs_node *node, reshard_tensor *const *gradients,
                          reshard_tensor **out_gradients)
{
    reshard_tensor *x = rs_node_saved(node, 0), *weight = rs_node_saved(node, 1);
    const norm *n = rs_node_facts(node);
    back b = {0};
    if (x == NULL || weight == NULL)
        return;
    reshard_status status = prepare_back(x, weight, gradients[0], &b);
    if (status == RESHARD_OK)
        RS_CALL(x->dtype, normalize_back, b.x->data, b.weight->data, b.gradient->data,
                rs_row_count(x), rs_row_size(x), n->centred, n->epsilon, b.x_back->data,
                b.weight_back->data, b.bias_back->data);
    reshard_tensor_release(b.x);
    reshard_tensor_release(b.weight);
    reshard_tensor_release(b.gradient);
    b.x_back = rs_scope_own(b.x_back);
    b.weight_back = rs_scope_own(b.weight_back);
    b.bias_back = rs_scope_own(b.bias_back);
    if (status != RESHARD_OK) {
        (void)rs_scope_fail(status);
        return;
    }
    out_gradients[0] = b.x_back;
    out_gradients[1] = b.weight_back;
    if (node->input_count == 3)
        out_gradients[2] = b.bias_back;
}

static reshard_status check_norm(reshard_tensor *const *inputs, double epsilon)
{
    const reshard_tensor *x = inputs[0];
    for (int32_t i = 1; i < 3; i++) {
        const reshard_tensor *row = inputs[i];
        if (x->ndim < 1 || (row != NULL && (row->ndim != 1 || row->shape[0] != rs_row_size(x))))
            return rs_fail(RESHARD_ERR_INVALID, "x %s with a %s of %s", rs_tensor_describe(x).text,
                           i == 1 ? "weight" : "bias",
                           row != NULL ? rs_tensor_describe(row).text : "nothing");
    }
    if (!(epsilon >= 0))
        return rs_fail(RESHARD_ERR_RANGE, "epsilon is %g", epsilon);
    return rs_check_floats(3, inputs);
}

static reshard_tensor *normalize_local(reshard_tensor *const *inputs, const void *user)
{
    return normalize(user, inputs[0], inputs[1], inputs[2]);
}

static reshard_tensor *normalize_half(const norm *n, reshard_tensor *x, reshard_tensor *weight,
                                      reshard_tensor *bias)
{
    reshard_tensor *wide = bias != NULL ? reshard_tensor_cast(bias, RESHARD_F32) : NULL;
    return reshard_tensor_cast(normalize(n, reshard_tensor_cast(x, RESHARD_F32),
                                         reshard_tensor_cast(weight, RESHARD_F32), wide),
                               x->dtype);
}

static reshard_status forward(const norm *n, reshard_tensor *const *inputs,
                              reshard_tensor **out_tensor)
{
    reshard_tensor *values[3] = {NULL, NULL, NULL}, *output = NULL, *x = inputs[0];
    reshard_status status = RESHARD_OK;
    for (int32_t i = 0; i < 3 && status == RESHARD_OK; i++) {
        if (inputs[i] != NULL)
            status = rs_real(inputs[i], &values[i]);
    }
    if (status == RESHARD_OK)
        status = rs_result(x->dtype, x->ndim, x->shape, &output);
    if (status == RESHARD_OK)
        RS_CALL(x->dtype, normalize, values[0]->data, values[1]->data,
                values[2] != NULL ? values[2]->data : NULL, rs_row_count(x), rs_row_size(x),
                n->centred, n->epsilon, output->data);
    for (int32_t i = 0; i < 3; i++)
        reshard_tensor_release(values[i]);
    if (status == RESHARD_OK)
        *out_tensor = output;
    return status;
}

static reshard_tensor *normalize(const norm *n, reshard_tensor *x, reshard_tensor *weight,
                                 reshard_tensor *bias)
{
    reshard_tensor *inputs[] = {x, weight, bias}, *output = NULL;
    if (!rs_op_begin(n->name, 2, inputs))
        return NULL;
    reshard_status status = check_norm(inputs, n->epsilon);
    if (status != RESHARD_OK)
        return rs_scope_fail(rs_fail_within(status, "%s", n->name));
    if (rs_any_distributed(3, inputs))
        return rs_spread_norm(n->name, x, weight, bias, normalize_local, n, sizeof *n);
    if (rs_dtype_is_half(x->dtype))
        return normalize_half(n, x, weight, bias);
    status = forward(n, inputs, &output);
    rs_recipe recipe = {n->name, backward_norm, bias != NULL ? 3 : 2, inputs,
                        2,       inputs,        .facts = n,           .facts_bytes = sizeof *n};
    return rs_op_end(&recipe, status, output);
}

reshard_tensor *reshard_layernorm(reshard_tensor *x, reshard_tensor *weight, reshard_tensor *bias,
                                  double epsilon)
{
    norm n = {"layernorm", true, epsilon};
    return normalize(&n, x, weight, bias);
}

reshard_tensor *reshard_rmsnorm(reshard_tensor *x, reshard_tensor *weight, double epsilon)
{
    norm n = {"rmsnorm", false, epsilon};
    return normalize(&n, x, weight, NULL);
}

#else

/* Sums x[i] - mean, or its square, in double. LANES sums take turns, because a single one would
 * wait for its previous addition at every step. */
static double OF(add_up)(const REAL *x, int64_t n, double mean, bool squared)
{
    double lanes[LANES] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int64_t k = 0; k < LANES; k++) {
            double v = (double)x[i + k] - mean;
            lanes[k] += squared ? v * v : v;
        }
    }
    for (; i < n; i++) {
        double v = (double)x[i] - mean;
        lanes[0] += squared ? v * v : v;
    }
    for (int64_t k = 0; k < LANES; k++)
        sum += lanes[k];
    return sum;
}

/* Computes the mean of a row (0 if not centred) and the inverse of its deviation. */
static void OF(measure)(const REAL *x, int64_t n, bool centred, double epsilon, double *out_mean,
                        double *out_inverse)
{
    double mean = centred && n > 0 ? OF(add_up)(x, n, 0, false) / (double)n : 0;
    *out_mean = mean;
    *out_inverse = 1 / sqrt(OF(add_up)(x, n, mean, true) / (double)n + epsilon);
}

/* Sums are in double; each element is computed in its own precision. */
static void OF(normalize)(const void *x, const void *w, const void *b, int64_t rows, int64_t n,
                          bool centred, double epsilon, void *y)
{
    const REAL *weight = w, *bias = b;
    for (int64_t r = 0; r < rows; r++) {
        const REAL *row = (const REAL *)x + r * n;
        REAL *restrict out = (REAL *)y + r * n;
        double row_mean, row_inverse;
        OF(measure)(row, n, centred, epsilon, &row_mean, &row_inverse);
        REAL mean = (REAL)row_mean, inverse = (REAL)row_inverse;
        for (int64_t i = 0; i < n; i++)
            out[i] = (row[i] - mean) * inverse * weight[i];
        for (int64_t i = 0; i < n && bias != NULL; i++)
            out[i] += bias[i];
    }
}

/* Sums u and u h over a row, and adds to the gradients of weight and bias. */
static void OF(sum_back)(const REAL *restrict row, const REAL *restrict gradient,
                         const REAL *restrict weight, int64_t n, REAL mean, REAL inverse,
                         REAL *restrict weight_back, REAL *restrict bias_back, double out_sums[2])
{
    double u_lanes[LANES] = {0}, uh_lanes[LANES] = {0};
    for (int64_t first = 0; first < n; first += LANES) {
        int64_t count = n - first < LANES ? n - first : LANES;
        for (int64_t k = 0; k < count; k++) {
            int64_t i = first + k;
            REAL h = (row[i] - mean) * inverse, u = gradient[i] * weight[i];
            u_lanes[k] += (double)u;
            uh_lanes[k] += (double)(u * h);
            weight_back[i] += gradient[i] * h;
            bias_back[i] += gradient[i];
        }
    }
    out_sums[0] = out_sums[1] = 0;
    for (int64_t k = 0; k < LANES; k++) {
        out_sums[0] += u_lanes[k];
        out_sums[1] += uh_lanes[k];
    }
}

static void OF(normalize_back)(const void *x, const void *w, const void *g, int64_t rows, int64_t n,
                               bool centred, double epsilon, void *x_back, void *w_back,
                               void *b_back)
{
    const REAL *weight = w;
    for (int64_t r = 0; r < rows; r++) {
        const REAL *row = (const REAL *)x + r * n, *gradient = (const REAL *)g + r * n;
        REAL *restrict out = (REAL *)x_back + r * n;
        double row_mean, row_inverse, sums[2];
        OF(measure)(row, n, centred, epsilon, &row_mean, &row_inverse);
        REAL mean = (REAL)row_mean, inverse = (REAL)row_inverse;
        OF(sum_back)(row, gradient, weight, n, mean, inverse, w_back, b_back, sums);
        REAL mean_u = centred ? (REAL)(sums[0] / (double)n) : 0;
        REAL mean_uh = (REAL)(sums[1] / (double)n);
        for (int64_t i = 0; i < n; i++) {
            REAL h = (row[i] - mean) * inverse, u = gradient[i] * weight[i];
            out[i] = (u - mean_u - h * mean_uh) * inverse;
        }
    }
}

#endif
