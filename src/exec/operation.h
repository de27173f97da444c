/* SPDX-License-Identifier: Apache-2.0 */
/*
 * operation.h - a move that is ready to run: which slots, where in them, and the prepared kernels.
 */
#ifndef RS_EXEC_OPERATION_H
#define RS_EXEC_OPERATION_H

#include <reshard/plan_inspect.h>

#include "kernel/cast.h"
#include "kernel/combine.h"
#include "kernel/copy.h"

#include <stdbool.h>

typedef struct rs_operation {
    reshard_move_kind kind;
    int32_t peer;       /* this rank itself for keeps */
    int32_t peer_index; /* among the stage's; -1 for keeps */
    bool pushing;       /* the source is mine */
    /* a copy that shares the cache lines of its short side with others of its link */
    bool together;
    int32_t link; /* stage link */
    int32_t contributor, contributor_count, divisor;
    reshard_reduction reduction;
    reshard_dtype source_dtype, target_dtype;
    int64_t source_slot, target_slot;    /* source -1: a fill */
    size_t source_offset, target_offset; /* bytes */
    uint64_t bytes;                      /* in the narrower type; of a fill, in the target's */
    bool casts;
    bool same_steps; /* the same on both sides: then a copy onto itself has nothing to do */
    rs_copy copy;    /* also of the first contribution; of a fill: from the identity, one element */
    rs_cast cast;
    rs_combining combining, scaling;
    unsigned char identity[16];
} rs_operation;

/* Whether the moves into one target must run in the order of their contributors. */
static inline bool rs_move_is_ordered(reshard_move_kind kind)
{
    return kind == RESHARD_MOVE_COMBINE || kind == RESHARD_MOVE_ADD;
}

/* The dims of an operation, and its elements' types. */
typedef struct rs_operation_shape {
    int32_t ndim;
    int64_t size[RS_NEST_MAX], source_strides[RS_NEST_MAX], target_strides[RS_NEST_MAX];
    bool many; /* one of many copies that together are larger than the caches */
} rs_operation_shape;

/* Kind, contributors, reduction, divisor and dtypes are set; prepares the kernels. Errors:
 * UNSUPPORTED when the dtypes have no such cast or reduction. */
reshard_status rs_operation_prepare(rs_operation *operation, const rs_operation_shape *shape);

/* Combinations and additions of one target must run in order. The first contribution is copied, the
 * last one divides. A copy onto itself, as in collectives in place, is left out: peers may be
 * reading. */
void rs_operation_run(const rs_operation *operation, const void *source, void *target);

/* Whether an operation is a combination of one run of memory with another; and such an operation on
 * some of its bytes, a whole number of elements. */
bool rs_operation_is_one_run(const rs_operation *operation);
void rs_operation_run_bytes(const rs_operation *operation, const void *source, void *target,
                            size_t bytes);

#endif
