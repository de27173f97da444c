/* SPDX-License-Identifier: Apache-2.0 */
/*
 * measure.h - how far two arrays of numbers are apart: the largest and the summed difference, and
 * the sums from which relative L2 and cosine follow.
 */
#ifndef RS_KERNEL_VALUES_MEASURE_H
#define RS_KERNEL_VALUES_MEASURE_H

#include <reshard/base.h>

#include <stdbool.h>

/* A sum with its rounding errors. It has about twice the digits of a double, so that the order in
 * which threads and ranks add to it does not show in the result. */
typedef struct rs_wide_sum {
    double sum, error;
} rs_wide_sum;

/* All zero: nothing was measured. Complex elements count as two numbers. Differences and sums are
 * of numbers that are finite on both sides. */
typedef struct rs_measure {
    int64_t numbers;     /* all */
    int64_t differing;   /* of one dtype: other bits; of two dtypes: other values */
    int64_t nans[2];     /* in A and in B */
    int64_t infinite[2]; /* in A and in B */
    int64_t finite;      /* finite on both sides */
    int64_t unlike;      /* not finite on both sides, and not equal; NaNs are equal */
    double largest;      /* of |a - b| */
    rs_wide_sum difference, difference_square, a_square, b_square, product;
} rs_measure;

/* Whether the dtype has numbers that can be measured: floats of 8 bits and more, integers, bool,
 * complex. */
bool rs_measure_supports(reshard_dtype dtype);
/* Adds `count` contiguous elements of both sides. Differences of integers are exact if both sides
 * have the same dtype; otherwise numbers beyond 2^53 are rounded first. */
void rs_measure_add(rs_measure *measure, reshard_dtype dtype_a, const void *a,
                    reshard_dtype dtype_b, const void *b, int64_t count);
void rs_measure_merge(rs_measure *into, const rs_measure *from);

/* NaN: cannot be computed, because a side is zero or the sums leave the range of a double. */
double rs_measure_mean(const rs_measure *measure);
double rs_measure_relative_l2(const rs_measure *measure);
double rs_measure_cosine(const rs_measure *measure);

#endif
