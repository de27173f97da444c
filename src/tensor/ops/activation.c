/* SPDX-License-Identifier: Apache-2.0 */
/* activation.c - relu, gelu (x Phi(x), by erf) and silu (x sigmoid(x)). The gradient at 0 of
 * relu is 0. */
#ifndef REAL
#include "base/error.h"
#include "tensor/dist/spread.h"
#include "tensor/ops/op.h"

#include <tgmath.h>

typedef enum activation { RELU, GELU, SILU } activation;

#define RS_REAL_FILE "tensor/ops/activation.c"
#include "tensor/core/real.h"

static const char *const names[] = {"relu", "gelu", "silu"};

static reshard_tensor *activate(reshard_tensor *x, activation which);

static void backward_activation(rs_node *node, reshard_tensor *const *gradients,
                                reshard_tensor **out_gradients)
{
    reshard_tensor *x = rs_node_saved(node, 0), *dense = NULL, *gradient = NULL, *output = NULL;
    if (x == NULL)
        return;
    reshard_status status = rs_real(x, &dense);
    if (status == RESHARD_OK)
        status = rs_real(gradients[0], &gradient);
    if (status == RESHARD_OK)
        status = rs_result(x->dtype, x->ndim, x->shape, &output);
    if (status == RESHARD_OK)
        RS_CALL(x->dtype, activate_back, (activation)node->facts.i[0], dense->data, gradient->data,
                output->data, x->volume);
    reshard_tensor_release(dense);
    reshard_tensor_release(gradient);
    out_gradients[0] =
        status == RESHARD_OK ? rs_scope_own(output) : (reshard_tensor_release(output), NULL);
    if (status != RESHARD_OK)
        (void)rs_scope_fail(status);
}

static reshard_tensor *activate_local(reshard_tensor *const *inputs, const void *user)
{
    return activate(inputs[0], *(const activation *)user);
}

static reshard_tensor *activate(reshard_tensor *x, activation which)
{
    const char *name = names[which];
    if (!rs_op_begin(name, 1, &x))
        return NULL;
    if (x->distribution != NULL)
        return rs_spread_alike(name, RS_SPREAD_ANY, 1, &x, activate_local, &which, sizeof which);
    if (rs_dtype_is_half(x->dtype))
        return reshard_tensor_cast(activate(reshard_tensor_cast(x, RESHARD_F32), which), x->dtype);
    reshard_tensor *dense = NULL, *output = NULL;
    reshard_status status = rs_check_floats(1, &x);
    if (status == RESHARD_OK)
        status = rs_real(x, &dense);
    if (status == RESHARD_OK)
        status = rs_result(x->dtype, x->ndim, x->shape, &output);
    if (status == RESHARD_OK)
        RS_CALL(x->dtype, activate, which, dense->data, output->data, x->volume);
    reshard_tensor_release(dense);
    rs_recipe recipe = {name, backward_activation, 1, &x, 1, &x, .facts = {.i = {(int64_t)which}}};
    return rs_op_end(&recipe, status, output);
}

reshard_tensor *reshard_relu(reshard_tensor *x)
{
    return activate(x, RELU);
}

reshard_tensor *reshard_gelu(reshard_tensor *x)
{
    return activate(x, GELU);
}

reshard_tensor *reshard_silu(reshard_tensor *x)
{
    return activate(x, SILU);
}

#else

static REAL OF(phi)(REAL v) /* of the normal distribution */
{
    return (REAL)0.5 * (1 + erf(v * (REAL)0.70710678118654752440));
}

static void OF(activate)(activation which, const void *x, void *y, int64_t n)
{
    const REAL *a = x;
    REAL *b = y;
    if (which == RELU) {
        for (int64_t i = 0; i < n; i++)
            b[i] = a[i] > 0 ? a[i] : 0;
    } else if (which == GELU) {
        for (int64_t i = 0; i < n; i++)
            b[i] = a[i] * OF(phi)(a[i]);
    } else {
        for (int64_t i = 0; i < n; i++)
            b[i] = a[i] / (1 + exp(-a[i]));
    }
}

static void OF(activate_back)(activation which, const void *x, const void *g, void *y, int64_t n)
{
    const REAL *a = x, *gradient = g;
    REAL *b = y;
    if (which == RELU) {
        for (int64_t i = 0; i < n; i++)
            b[i] = a[i] > 0 ? gradient[i] : 0;
    } else if (which == GELU) {
        for (int64_t i = 0; i < n; i++) {
            REAL density = exp((REAL)-0.5 * a[i] * a[i]) * (REAL)0.39894228040143267794;
            b[i] = gradient[i] * (OF(phi)(a[i]) + a[i] * density);
        }
    } else {
        for (int64_t i = 0; i < n; i++) {
            REAL s = 1 / (1 + exp(-a[i]));
            b[i] = gradient[i] * (s * (1 + a[i] * (1 - s)));
        }
    }
}

#endif
