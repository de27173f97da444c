/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nest.h - the loops of a strided n-d walk over two memories at once, reduced to as few as
 * possible. Copies, casts and combines all start from a nest; they differ in what the innermost
 * loops do.
 */
#ifndef RS_KERNEL_COPY_NEST_H
#define RS_KERNEL_COPY_NEST_H

#include <reshard/base.h>

#include <stdint.h>

#define RS_NEST_MAX 16

/* One loop. Steps are in bytes and may be negative; those of the source may also be zero. */
typedef struct rs_loop {
    int64_t size;
    int64_t source_step, target_step;
} rs_loop;

/* Outermost loop first, by decreasing step of the target, so that the target is written in order.
 * No loop has size 1, and no two loops can be merged. */
typedef struct rs_nest {
    int64_t element_count;
    int32_t count;
    rs_loop loops[RS_NEST_MAX];
} rs_nest;

/* Strides are in elements of source_bytes and target_bytes bytes. A size of 0 makes an empty
 * nest. */
void rs_nest_build(rs_nest *nest, int32_t source_bytes, int32_t target_bytes, int32_t ndim,
                   const int64_t *size, const int64_t *source_strides,
                   const int64_t *target_strides);

/* The index of the loop with exactly these steps, or -1. */
int32_t rs_nest_find(const rs_nest *nest, int64_t source_step, int64_t target_step);
/* The index of the loop with the smallest step on one side, or -1 if there are no loops. */
int32_t rs_nest_least_source(const rs_nest *nest);
int32_t rs_nest_least_target(const rs_nest *nest);
/* Removes a loop and returns it; index -1 gives a loop with one iteration. */
rs_loop rs_nest_take(rs_nest *nest, int32_t index);

/* The number of bytes that are contiguous on one side, whatever the other side does. */
int64_t rs_nest_source_run(const rs_nest *nest, int64_t element_bytes);
int64_t rs_nest_target_run(const rs_nest *nest, int64_t element_bytes);

/* Calls the body for every iteration of the first `count` loops, where the outermost one has
 * outer_size iterations. If count is 0, calls it once. */
typedef void rs_nest_body(const void *what, const unsigned char *source, unsigned char *target);
void rs_nest_walk(const rs_loop *loops, int32_t count, int64_t outer_size, rs_nest_body *body,
                  const void *what, const unsigned char *source, unsigned char *target);

#endif
