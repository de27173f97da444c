/* SPDX-License-Identifier: Apache-2.0 */
/*
 * own_operation.c - two operations of one's own on distributed tensors. `gate` is x * tanh(g),
 * element by element, so it takes any layout. `rotate` turns pairs of numbers by an angle that
 * depends on their position in the sequence (rotary embedding); where the sequence is cut, each
 * rank asks where its part begins. Values and gradients are compared with those on one rank.
 */
#include <reshard/reshard_nn.h>

#include "examples/example.h"

#include <math.h>
#include <stdio.h>

enum { RANKS = 4, LENGTH = 10, WIDTH = 8 };

/* ---- gate ------------------------------------------------------------------------------------ */

static reshard_status gate(reshard_operation_call *call, reshard_tensor *const *inputs,
                           reshard_tensor **outputs)
{
    reshard_tensor *slopes = reshard_tanh(inputs[1]);
    outputs[0] = reshard_mul(inputs[0], slopes);
    return reshard_operation_save(call, 0, slopes);
}

static reshard_status gate_back(reshard_operation_call *call, reshard_tensor *const *gradients,
                                reshard_tensor **out)
{
    reshard_tensor *t = call->saved[0], *y = gradients[0];
    out[0] = reshard_mul(y, t);
    if (call->wants[1]) { /* y x (1 - t^2) */
        reshard_tensor *yx = reshard_mul(y, call->inputs[0]);
        out[1] = reshard_sub(yx, reshard_mul(yx, reshard_mul(t, t)));
    }
    return RESHARD_OK;
}

static const reshard_operation gate_operation = {.size = sizeof gate_operation,
                                                 .name = "gate",
                                                 .input_count = 2,
                                                 .forward = gate,
                                                 .backward = gate_back,
                                                 .saved_inputs = 1,
                                                 .saved_count = 1};

/* ---- rotate ---------------------------------------------------------------------------------- */

/* Turns the pairs of x [length, width], whose first row is at position `first`, by `sign` times
 * their angles. */
static void turn(const double *from, double *to, const int64_t *shape, int64_t first, double base,
                 double sign)
{
    for (int64_t i = 0; i < shape[0] * shape[1] / 2; i++) {
        int64_t row = i / (shape[1] / 2), pair = i % (shape[1] / 2);
        double angle = (double)(first + row) * pow(base, -2.0 * (double)pair / (double)shape[1]);
        double c = cos(angle), s = sign * sin(angle);
        to[2 * i] = c * from[2 * i] - s * from[2 * i + 1];
        to[2 * i + 1] = s * from[2 * i] + c * from[2 * i + 1];
    }
}

static reshard_status rotate(reshard_operation_call *call, reshard_tensor *const *inputs,
                             reshard_tensor **outputs)
{
    reshard_status status = RESHARD_OK;
    int64_t offset[2];
    TRY(reshard_operation_offset(call, 0, 0, offset));
    if ((outputs[0] = reshard_operation_result(call, 0)) == NULL)
        goto out; /* the scope has the error */
    turn(reshard_tensor_data(inputs[0]), reshard_tensor_write(outputs[0]),
         reshard_tensor_shape(inputs[0]), offset[0], *(const double *)call->data, 1);
out:
    return status;
}

/* The way back is the turn in the other direction; nothing has to be saved. */
static reshard_status rotate_back(reshard_operation_call *call, reshard_tensor *const *gradients,
                                  reshard_tensor **out_gradients)
{
    reshard_status status = RESHARD_OK;
    int64_t offset[2];
    TRY(reshard_operation_offset(call, 1, 0, offset));
    if ((out_gradients[0] = reshard_tensor_clone(gradients[0])) == NULL)
        goto out;
    turn(reshard_tensor_data(gradients[0]), reshard_tensor_write(out_gradients[0]),
         reshard_tensor_shape(gradients[0]), offset[0], *(const double *)call->data, -1);
out:
    return status;
}

static const reshard_operation_rule rotate_rules[] = {{"S(0)", "S(0)", NULL}}; /* pairs are whole */
static const reshard_operation rotate_operation = {.size = sizeof rotate_operation,
                                                   .name = "rotate",
                                                   .forward = rotate,
                                                   .backward = rotate_back,
                                                   .data_bytes = sizeof(double),
                                                   .rule_count = 1,
                                                   .rules = rotate_rules};

/* ---- the program ----------------------------------------------------------------------------- */

/* The gradients of both, released by the caller. */
static reshard_status differentiate(reshard_tensor *x, reshard_tensor *g, double *out_loss)
{
    reshard_status status = RESHARD_OK;
    const double base = 100;
    reshard_scope *scope = NULL;
    reshard_tensor *inputs[] = {x, g};
    TRY(reshard_tensor_set_requires_grad(x, 1));
    TRY(reshard_tensor_set_requires_grad(g, 1));
    TRY(reshard_scope_open(NULL, &scope));
    reshard_tensor *y = reshard_operation_run(&gate_operation, NULL, inputs, NULL);
    y = reshard_operation_run(&rotate_operation, &base, &y, NULL);
    reshard_tensor *loss = reshard_mean(reshard_exp(y));
    RESHARD_DO(reshard_backward(loss, NULL, NULL));
    RESHARD_DO(reshard_tensor_value(loss, out_loss));
out:
    status = close_scope(&scope, status);
    return status;
}

static reshard_status run_rank(void *user, reshard_group *group)
{
    reshard_status status = RESHARD_OK;
    const int64_t shape[] = {LENGTH, WIDTH};
    double dense = 0, spread = 0;
    int close[2] = {0, 0};
    reshard_scope *scope = NULL;
    reshard_spec *rows = NULL;
    reshard_tensor *whole[2] = {NULL, NULL}, *cut[2] = {NULL, NULL};
    (void)user;
    TRY(reshard_spec_parse(NULL, "4: S(0)", &rows));
    for (int i = 0; i < 2; i++) {
        TRY(reshard_tensor_create(NULL, RESHARD_F64, 2, shape, &whole[i]));
        TRY(reshard_tensor_fill_random(whole[i], RESHARD_NORMAL, 1 + (uint64_t)i));
        TRY(reshard_tensor_shard(NULL, group, rows, 0, whole[i], &cut[i]));
    }
    TRY(differentiate(whole[0], whole[1], &dense));
    TRY(differentiate(cut[0], cut[1], &spread));
    TRY(reshard_scope_open(NULL, &scope));
    for (int i = 0; i < 2; i++)
        RESHARD_DO(reshard_tensor_allclose(reshard_tensor_full(reshard_tensor_gradient(cut[i])),
                                           reshard_tensor_gradient(whole[i]), 1e-12, 1e-15, 0,
                                           &close[i]));
    TRY(close_scope(&scope, status));
    TRY(check(close[0] && close[1] && fabs(dense - spread) <= 1e-12, "one rank and four differ"));
    if (reshard_group_rank(group) == 0)
        printf("loss %.12f on one rank, %.12f on %d; gradients are equal\n", dense, spread, RANKS);
out:
    status = close_scope(&scope, status);
    for (int i = 0; i < 2; i++) {
        reshard_tensor_release(whole[i]);
        reshard_tensor_release(cut[i]);
    }
    reshard_spec_release(rows);
    return status;
}

int main(void)
{
    reshard_status status = reshard_group_run(NULL, RANKS, run_rank, NULL);
    return finish(status);
}
