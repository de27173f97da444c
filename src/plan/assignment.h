/* SPDX-License-Identifier: Apache-2.0 */
/*
 * assignment.h - solves the assignment problem exactly: each of n rows gets one of n columns so
 * that the sum of gains is as large as possible. Uses shortest augmenting paths with potentials
 * (Kuhn 1955, Jonker and Volgenant 1987), O(n^3).
 */
#ifndef RS_PLAN_ASSIGNMENT_H
#define RS_PLAN_ASSIGNMENT_H

#include <reshard/base.h>

/* gains: n * n numbers, row by row. Among equally good assignments, favours those that leave rows
 * on the column of the same number. */
reshard_status rs_assignment_solve(reshard_context *context, int32_t n, const int64_t *gains,
                                   int32_t *out_column_of_row);

#endif
