/* SPDX-License-Identifier: Apache-2.0 */
/* op.h - what operations share: checks of inputs, and products of matrices. */
#ifndef RS_TENSOR_OPS_OP_H
#define RS_TENSOR_OPS_OP_H

#include <reshard/ops.h>

#include "tensor/core/dense.h"
#include "tensor/grad/node.h"

/* Checks that all inputs have one floating dtype. Errors: UNSUPPORTED, INVALID. */
reshard_status rs_check_floats(int32_t count, reshard_tensor *const *inputs);
/* The same, except that the dtype may be complex. */
reshard_status rs_check_numbers(int32_t count, reshard_tensor *const *inputs);
reshard_status rs_check_indices(const reshard_tensor *indices);
/* Checks that every index is in 0 .. limit-1. The indices are dense. Errors: RANGE. */
reshard_status rs_check_index_range(const reshard_tensor *indices, int64_t limit);

/* Sums the gradient of a broadcast result to the shape of an input, in the innermost scope. */
reshard_tensor *rs_sum_to(reshard_tensor *gradient, int32_t ndim, const int64_t *shape);

/*
 * C = scale A B, or C += scale A B if `add`. After the optional transpositions, A is m by k and B
 * is k by n. All are dense and row-major. Single-threaded. Errors: RANGE for sizes that BLAS cannot
 * count.
 */
typedef struct rs_product {
    reshard_dtype dtype; /* f32, f64 */
    bool transpose_a, transpose_b, add;
    int64_t m, n, k;
    double scale;
    const void *a, *b;
    void *c;
} rs_product;
reshard_status rs_multiply_matrices(const rs_product *product);
/* The same by plain loops, without BLAS. */
void rs_multiply_plainly(const rs_product *product);

#endif
