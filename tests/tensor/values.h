/* SPDX-License-Identifier: Apache-2.0 */
/* values.h - small helpers of the tensor tests: tensors of given or random numbers, and reading
 * them back element by element. */
#ifndef TESTS_TENSOR_VALUES_H
#define TESTS_TENSOR_VALUES_H

#include "tests/support/random.h"
#include "tests/support/ranks.h"

#include <reshard/reshard_nn.h>

#include <stdio.h>
#include <stdlib.h>

#define SHAPE(...)                                                             \
    (int32_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]) \
    {                                                                          \
        __VA_ARGS__                                                            \
    }

static inline reshard_tensor *make_zeros(reshard_dtype dtype, int32_t ndim, const int64_t *shape)
{
    reshard_tensor *tensor = NULL;
    MUST(reshard_tensor_create(NULL, dtype, ndim, shape, &tensor));
    return tensor;
}

/* Numbers between -1 and 1, none of them near 0. */
static inline reshard_tensor *make_random(reshard_dtype dtype, draw_state *draw, int32_t ndim,
                                          const int64_t *shape)
{
    reshard_tensor *tensor = make_zeros(dtype, ndim, shape);
    int64_t index[RESHARD_NDIM_MAX] = {0};
    for (int64_t i = 0; i < reshard_tensor_volume(tensor); i++) {
        double value = 0.05 + 0.95 * (double)draw_below(draw, 1 << 20) / (1 << 20);
        int64_t rest = i;
        for (int32_t d = ndim - 1; d >= 0; d--) {
            index[d] = rest % shape[d];
            rest /= shape[d];
        }
        MUST(reshard_tensor_set(tensor, index, draw_chance(draw, 50) ? value : -value));
    }
    return tensor;
}

/* The row-major i-th element. */
static inline double element(const reshard_tensor *tensor, int64_t i)
{
    int64_t index[RESHARD_NDIM_MAX] = {0};
    double value = 0;
    const int64_t *shape = reshard_tensor_shape(tensor);
    for (int32_t d = reshard_tensor_ndim(tensor) - 1; d >= 0; d--) {
        index[d] = i % shape[d];
        i /= shape[d];
    }
    MUST(reshard_tensor_get(tensor, index, &value));
    return value;
}

static inline void set_element(reshard_tensor *tensor, int64_t i, double value)
{
    int64_t index[RESHARD_NDIM_MAX] = {0};
    const int64_t *shape = reshard_tensor_shape(tensor);
    for (int32_t d = reshard_tensor_ndim(tensor) - 1; d >= 0; d--) {
        index[d] = i % shape[d];
        i /= shape[d];
    }
    MUST(reshard_tensor_set(tensor, index, value));
}

#endif
