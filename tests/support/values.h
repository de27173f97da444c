/* SPDX-License-Identifier: Apache-2.0 */
/*
 * values.h - what the elements of test tensors hold: small whole numbers, so that sums, products
 * and averages are exact in double whatever their order.
 */
#ifndef TESTS_SUPPORT_VALUES_H
#define TESTS_SUPPORT_VALUES_H

#include "tests/support/oracle.h"
#include "tests/support/simulate.h"

/* The value of each element of a tensor with this layout, which for a partial one is the reduction
 * of its contributions. To be freed. */
double *values_create(const oracle_layout *layout, uint64_t seed);
/* Fills a source's buffers with these values, or with contributions to them. */
bool values_fill(const oracle_layout *layout, uint64_t seed, simulate_tensor *tensor, words *said);
/* A target's buffers hold these values, or contributions that reduce to them. */
bool values_check(const oracle_layout *layout, const double *values, const simulate_tensor *tensor,
                  words *said);

#endif
