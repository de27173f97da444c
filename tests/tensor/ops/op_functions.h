/* SPDX-License-Identifier: Apache-2.0 */
/* op_functions.h - the small operations for the table of test_ops.c: how each is called, and its
 * definition element by element. */
#ifndef TESTS_TENSOR_OPS_OP_FUNCTIONS_H
#define TESTS_TENSOR_OPS_OP_FUNCTIONS_H

#include "tests/tensor/gradients.h"

typedef struct sizes {
    int64_t a, b, c, d;
} sizes;

/* An operation on in[0], in[1].., and the i-th element of what it gives. */
#define OPERATION(name, call, definition)                                             \
    static reshard_tensor *run_##name(reshard_tensor *const *in, const void *user)    \
    {                                                                                 \
        (void)user;                                                                   \
        return call;                                                                  \
    }                                                                                 \
    static double define_##name(reshard_tensor *const *in, const sizes *s, int64_t i) \
    {                                                                                 \
        (void)s;                                                                      \
        return definition;                                                            \
    }

/* The i-th element of an input of the output's shape. */
#define X element(in[0], i)
#define Y element(in[1], i)

OPERATION(neg, reshard_neg(in[0]), -X)
OPERATION(exp, reshard_exp(in[0]), exp(X))
OPERATION(log, reshard_log(in[0]), log(X))
OPERATION(sqrt, reshard_sqrt(in[0]), sqrt(X))
OPERATION(tanh, reshard_tanh(in[0]), (exp(2 * X) - 1) / (exp(2 * X) + 1))
OPERATION(sigmoid, reshard_sigmoid(in[0]), 1 / (1 + exp(-X)))
OPERATION(cube, reshard_pow(in[0], 3), X *X *X)
OPERATION(root, reshard_pow(in[0], -0.5), 1 / sqrt(X))
OPERATION(zeroth, reshard_pow(in[0], 0), X == X)
OPERATION(clamp, reshard_clamp(in[0], -0.5, 0.25), X<-0.5 ? -0.5 : X> 0.25 ? 0.25 : X)
OPERATION(clamp_low, reshard_clamp(in[0], -0.25, INFINITY), X < -0.25 ? -0.25 : X)
OPERATION(nan_to_num, reshard_nan_to_num(in[0], 1, INFINITY, 3), X)
OPERATION(sub, reshard_sub(in[0], in[1]), X - Y)
OPERATION(div, reshard_div(in[0], in[1]), X / Y)
OPERATION(where, reshard_where(in[2], in[0], in[1]), element(in[2], i) != 0 ? X : Y)
OPERATION(fill, reshard_masked_fill(in[0], in[1], -7), Y != 0 ? -7 : X)

/* [a,1,c] with [b,1] gives [a,b,c] */
#define WIDE element(in[0], i / (s->b * s->c) * s->c + i % s->c)
#define HIGH element(in[1], i / s->c % s->b)
OPERATION(sub_broadcast, reshard_sub(in[0], in[1]), WIDE - HIGH)
OPERATION(div_broadcast, reshard_div(in[0], in[1]), WIDE / HIGH)
/* and with a mask [c] */
OPERATION(where_broadcast, reshard_where(in[2], in[0], in[1]),
          element(in[2], i % s->c) != 0 ? WIDE : HIGH)
/* [a,b,c] with a mask [b,1] */
OPERATION(fill_broadcast, reshard_masked_fill(in[0], in[1], 0.5),
          element(in[1], i / s->c % s->b) != 0 ? 0.5 : X)
#undef X
#undef Y
#undef WIDE
#undef HIGH

/* Reductions of [a,b,c]: over the elements whose kept indices are those of output element i. */
static double reduce_by(reshard_tensor *const *in, const sizes *s, int64_t i, const bool *reduced,
                        char how)
{
    int64_t shape[] = {s->a, s->b, s->c}, count = 0;
    double sum = 0, largest = -INFINITY;
    for (int64_t k = 0; k < s->a * s->b * s->c; k++) {
        int64_t index[] = {k / (s->b * s->c), k / s->c % s->b, k % s->c}, to = 0;
        for (int d = 0; d < 3; d++)
            to = reduced[d] ? to : to * shape[d] + index[d];
        if (to != i)
            continue;
        double x = element(in[0], k);
        sum += x;
        count++;
        largest = x > largest ? x : largest;
    }
    return how == 's' ? sum : how == 'm' ? sum / (double)count : largest;
}

#define DIMS(...)                                                              \
    (int32_t)(sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t)), (int32_t[]) \
    {                                                                          \
        __VA_ARGS__                                                            \
    }
#define BY(how, ...) reduce_by(in, s, i, (bool[]){__VA_ARGS__}, how)
OPERATION(sum_dims, reshard_reduce_dims(in[0], RESHARD_SUM, DIMS(1, 2), 0),
          BY('s', false, true, true))
OPERATION(sum_apart, reshard_reduce_dims(in[0], RESHARD_SUM, DIMS(-1, 0), 1),
          BY('s', true, false, true))
OPERATION(mean_dims, reshard_reduce_dims(in[0], RESHARD_AVG, DIMS(0, 2), 0),
          BY('m', true, false, true))
OPERATION(mean_all, reshard_reduce_dims(in[0], RESHARD_AVG, DIMS(0, 1, 2), 1),
          BY('m', true, true, true))
OPERATION(max_dims, reshard_reduce_dims(in[0], RESHARD_MAX, DIMS(0), 1),
          BY('x', true, false, false))
OPERATION(max_apart, reshard_reduce_dims(in[0], RESHARD_MAX, DIMS(2, 0), 0),
          BY('x', true, false, true))
#undef BY

/* Padded, with all labels of one number ignored; in-range labels are below a third of the
 * columns. */
static const reshard_cross_entropy_options padded_options = {
    .size = sizeof padded_options, .ignores = 1, .ignore_index = 1, .classes = 2};
static reshard_tensor *run_padded(reshard_tensor *const *in, const void *user)
{
    (void)user;
    return reshard_cross_entropy(in[0], in[1], &padded_options);
}
static double define_padded(reshard_tensor *const *in, const sizes *s, int64_t i)
{
    double loss = 0, count = 0;
    int64_t columns = reshard_tensor_shape(in[0])[2];
    (void)i;
    for (int64_t r = 0; r < s->a * s->b; r++) {
        double sum = exp(element(in[0], r * columns)) + exp(element(in[0], r * columns + 1));
        if (element(in[1], r) == 1)
            continue;
        loss += log(sum) - element(in[0], r * columns);
        count++;
    }
    return loss / count;
}
static reshard_tensor *run_log_softmax(reshard_tensor *const *in, const void *user)
{
    (void)user;
    return reshard_log_softmax(in[0], 1);
}
static double define_log_softmax(reshard_tensor *const *in, const sizes *s, int64_t i)
{
    double sum = 0;
    for (int64_t k = 0; k < s->b; k++)
        sum += exp(element(in[0], (i / (s->b * s->c) * s->b + k) * s->c + i % s->c));
    return element(in[0], i) - log(sum);
}

/* a [a,c,b] and b [a,d,c], both the other way round */
static double define_bmm(reshard_tensor *const *in, const sizes *s, int64_t i)
{
    int64_t batch = i / (s->b * s->d), m = i / s->d % s->b, n = i % s->d;
    double sum = 0;
    for (int64_t k = 0; k < s->c; k++)
        sum += element(in[0], (batch * s->c + k) * s->b + m) *
               element(in[1], (batch * s->d + n) * s->c + k);
    return sum;
}
static reshard_tensor *run_bmm(reshard_tensor *const *in, const void *user)
{
    (void)user;
    return reshard_bmm(in[0], 1, in[1], 1);
}

#endif
