/* SPDX-License-Identifier: Apache-2.0 */
/*
 * assignment.h - the assignment problem, exactly: n rows and n columns, each row gets one column,
 * and the sum of gains is as large as possible. Shortest augmenting paths with potentials (Kuhn
 * 1955, Jonker and Volgenant 1987), O(n^3).
 */
#ifndef RS_PLAN_ASSIGNMENT_H
#define RS_PLAN_ASSIGNMENT_H

#include <reshard/base.h>

/* gains: n * n numbers, row by row. Of several best assignments, prefers one that keeps more rows
 * on the column of the same number. */
reshard_status rs_assignment_solve(reshard_context *context, int32_t n, const int64_t *gains,
                                   int32_t *out_column_of_row);

#endif
