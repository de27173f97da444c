/* SPDX-License-Identifier: Apache-2.0 */
/*
 * real.h - makes kernels for f32 and f64 from one source. A file of operations includes itself
 * twice:
 *
 *     #ifndef REAL
 *     ... operations, after
 *     #define RS_REAL_FILE "tensor/ops/this.c"
 *     #include "tensor/core/real.h"
 *     #else
 *     static void OF(double_it)(const void *x, void *y, int64_t n) { const REAL *a = x; ... }
 *     #endif
 *
 * RS_CALL(dtype, double_it, x, y, n) calls the one for the dtype, and RS_BOTH(double_it)
 * initializes an array of both. Kernels work on dense memory.
 */
#define REAL float
#define OF(name) name##_f32
#include RS_REAL_FILE
#undef REAL
#undef OF
#define REAL double
#define OF(name) name##_f64
#include RS_REAL_FILE
#undef OF

#define RS_BOTH(name)          \
    {                          \
        name##_f32, name##_f64 \
    }
#define RS_CALL(dtype, name, ...) \
    ((dtype) == RESHARD_F32 ? name##_f32(__VA_ARGS__) : name##_f64(__VA_ARGS__))
