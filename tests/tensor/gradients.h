/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gradients.h - gradients against finite differences. The loss is the sum of the output weighted
 * with fixed random numbers; it is computed here, from the output's elements, and not by the
 * library.
 */
#ifndef TESTS_TENSOR_GRADIENTS_H
#define TESTS_TENSOR_GRADIENTS_H

#include "tests/support/words.h"
#include "tests/tensor/values.h"

#include <math.h>

enum { GRADIENTS_INPUTS_MAX = 4 };

typedef reshard_tensor *(*gradients_fn)(reshard_tensor *const *inputs, const void *user);

static inline double gradients_weight(int64_t i)
{
    return (double)(draw_hash(7, (uint64_t)i) >> 40) / (1 << 24) - 0.5;
}

static inline double gradients_loss(gradients_fn fn, reshard_tensor *const *inputs,
                                    const void *user)
{
    reshard_scope *scope = NULL;
    double loss = 0;
    MUST(reshard_scope_open(NULL, &scope));
    int enabled = reshard_set_gradients_enabled(0);
    reshard_tensor *output = fn(inputs, user);
    for (int64_t i = 0; output != NULL && i < reshard_tensor_volume(output); i++)
        loss += gradients_weight(i) * element(output, i);
    (void)reshard_set_gradients_enabled(enabled);
    MUST(reshard_scope_close(scope));
    return loss;
}

static inline bool gradients_compare(gradients_fn fn, reshard_tensor *const *inputs,
                                     const void *user, int32_t which, words *said)
{
    reshard_tensor *input = inputs[which], *gradient = reshard_tensor_gradient(input);
    for (int64_t i = 0; i < reshard_tensor_volume(input); i++) {
        const double step = 1e-5;
        double old = element(input, i);
        set_element(input, i, old + step);
        double above = gradients_loss(fn, inputs, user);
        set_element(input, i, old - step);
        double below = gradients_loss(fn, inputs, user);
        set_element(input, i, old);
        double expected = (above - below) / (2 * step);
        double found = gradient != NULL ? element(gradient, i) : 0;
        if (!(fabs(found - expected) <= 1e-6 * (1 + fabs(expected))))
            return words_say(said, "input %d, element %lld: gradient %.12g, differences give %.12g",
                             (int)which, (long long)i, found, expected);
    }
    return true;
}

/* Inputs that are f64 get gradients; others are given as they are. */
static inline bool gradients_check(gradients_fn fn, int32_t count, reshard_tensor *const *inputs,
                                   const void *user, words *said)
{
    reshard_scope *scope = NULL;
    for (int32_t i = 0; i < count; i++) {
        if (reshard_tensor_dtype(inputs[i]) == RESHARD_F64)
            MUST(reshard_tensor_set_requires_grad(inputs[i], 1));
    }
    MUST(reshard_scope_open(NULL, &scope));
    reshard_tensor *output = fn(inputs, user), *weights = NULL;
    if (output != NULL) {
        weights =
            make_zeros(RESHARD_F64, reshard_tensor_ndim(output), reshard_tensor_shape(output));
        for (int64_t i = 0; i < reshard_tensor_volume(output); i++)
            set_element(weights, i, gradients_weight(i));
        (void)reshard_backward(output, weights, NULL);
    }
    reshard_status status = reshard_scope_close(scope);
    reshard_tensor_release(weights);
    if (status != RESHARD_OK)
        return words_say(said, "%s", reshard_error_text());
    bool good = true;
    for (int32_t i = 0; i < count && good; i++) {
        if (reshard_tensor_dtype(inputs[i]) == RESHARD_F64)
            good = gradients_compare(fn, inputs, user, i, said);
    }
    return good;
}

#endif
