/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nest.h - the loops of a strided n-d walk over two memories at once, brought to the fewest.
 * Copies, casts and combines all start from a nest; they differ in what the innermost loops do.
 */
#ifndef RS_KERNEL_NEST_H
#define RS_KERNEL_NEST_H

#include <reshard/plan.h>

#include <stdint.h>

#define RS_NEST_MAX RESHARD_FACTORS_MAX

/* One loop; steps are in bytes and may be negative, or zero on the source's side. */
typedef struct rs_loop {
    int64_t size;
    int64_t source_step, target_step;
} rs_loop;

/* Outermost first, by falling steps of the target, so that the target is written in order. No loop
 * has size 1, and no two could be one. */
typedef struct rs_nest {
    int64_t element_count;
    int32_t count;
    rs_loop loops[RS_NEST_MAX];
} rs_nest;

/* Strides are in elements, source_bytes and target_bytes long. Sizes of 0 make an empty nest. */
void rs_nest_build(rs_nest *nest, int32_t source_bytes, int32_t target_bytes, int32_t ndim,
                   const int64_t *size, const int64_t *source_strides,
                   const int64_t *target_strides);

/* The loop whose steps are exactly these, -1 if there is none. */
int32_t rs_nest_find(const rs_nest *nest, int64_t source_step, int64_t target_step);
/* The loop with the least step on one side, -1 if there are no loops. */
int32_t rs_nest_least_source(const rs_nest *nest);
int32_t rs_nest_least_target(const rs_nest *nest);
/* Takes a loop out and returns it; index -1 gives a loop of one iteration. */
rs_loop rs_nest_take(rs_nest *nest, int32_t index);

/* Bytes that follow each other without a gap on one side, whatever the other side does. */
int64_t rs_nest_source_run(const rs_nest *nest, int64_t element_bytes);
int64_t rs_nest_target_run(const rs_nest *nest, int64_t element_bytes);

/* Calls the body for every iteration of the first `count` loops; the outermost of them goes round
 * outer_size times. count 0: once. */
typedef void rs_nest_body(const void *what, const unsigned char *source, unsigned char *target);
void rs_nest_walk(const rs_loop *loops, int32_t count, int64_t outer_size, rs_nest_body *body,
                  const void *what, const unsigned char *source, unsigned char *target);

#endif
