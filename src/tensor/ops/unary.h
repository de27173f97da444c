/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unary.h - operations with one input and an output of the same shape. Each is described by its
 * kernels and what they need; one driver checks, spreads, casts, runs and records all of them.
 */
#ifndef RS_TENSOR_OPS_UNARY_H
#define RS_TENSOR_OPS_UNARY_H

#include "tensor/dist/spread.h"

/* Numbers that are up to the operation. */
enum { RS_UNARY_PARAMETERS = 3 };

/* What kernels work on: dense rows along the last dim, and the operation's numbers. */
typedef struct rs_unary_rows {
    int64_t count, size;
    double parameters[RS_UNARY_PARAMETERS];
} rs_unary_rows;

typedef void (*rs_unary_fn)(const rs_unary_rows *rows, const void *x, void *y);
/* kept: the input or output, whichever the operation asks for; NULL if it keeps nothing. */
typedef void (*rs_unary_back_fn)(const rs_unary_rows *rows, const void *kept, const void *gradient,
                                 void *out);

typedef struct rs_unary {
    const char *name;
    /* Which layouts a distributed input may have. Linear operations also take complex numbers, part
     * by part. */
    rs_spread_kind spread;
    enum { RS_KEEPS_NOTHING, RS_KEEPS_INPUT, RS_KEEPS_OUTPUT } keeps; /* for the backward step */
    rs_unary_fn forward[2];       /* f32, f64: RS_BOTH(kernel) of real.h */
    rs_unary_back_fn backward[2]; /* likewise */
} rs_unary;

/* `unary` must live as long as the program. parameters: RS_UNARY_PARAMETERS numbers; NULL for an
 * operation without any. */
reshard_tensor *rs_unary_run(const rs_unary *unary, reshard_tensor *x, const double *parameters);

#endif
