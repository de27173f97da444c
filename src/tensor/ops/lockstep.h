/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lockstep.h - walks in lockstep through local inputs that are broadcast to one shape, row by row.
 * Kernels see one row at a time: where each input is, and how far it is to its next element.
 */
#ifndef RS_TENSOR_OPS_LOCKSTEP_H
#define RS_TENSOR_OPS_LOCKSTEP_H

#include "tensor/core/tensor.h"

enum { RS_LOCKSTEP_MAX = 3 };

typedef struct rs_lockstep {
    int32_t count, ndim;
    int64_t shape[RESHARD_NDIM_MAX];
    int64_t strides[RS_LOCKSTEP_MAX][RESHARD_NDIM_MAX];
} rs_lockstep;

typedef struct rs_lockstep_row {
    const void *inputs[RS_LOCKSTEP_MAX];
    int64_t steps[RS_LOCKSTEP_MAX]; /* in elements; 0: the same one again */
    void *output;                   /* dense */
    int64_t size;
} rs_lockstep_row;

/* Finds the shape of the result: aligned at the last dim, with sizes of 1 repeated. Errors:
 * INVALID. */
reshard_status rs_lockstep_plan(int32_t count, reshard_tensor *const *inputs,
                                rs_lockstep *out_walk);
/* Calls `fn` for each row of the output, which is dense and has the walk's shape. */
void rs_lockstep_run(const rs_lockstep *walk, reshard_tensor *const *inputs, reshard_tensor *output,
                     void (*fn)(const rs_lockstep_row *row));

#endif
