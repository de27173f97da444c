/* SPDX-License-Identifier: Apache-2.0 */
/*
 * operation.h - a move that is ready to run: its slots, the places in them, and the prepared
 * kernels.
 */
#ifndef RS_EXEC_OPERATION_H
#define RS_EXEC_OPERATION_H

#include <reshard/plan_inspect.h>

#include "kernel/copy/copy.h"
#include "kernel/values/cast.h"
#include "kernel/values/combine.h"

#include <stdbool.h>

_Static_assert(RS_NEST_MAX >= RESHARD_FACTORS_MAX, "a move of a plan fits a nest of loops");

/* What is prepared for a form of moves. Operations of the same form share it: a model has thousands
 * of them and few forms, and these are several times as large as the rest of an operation. */
typedef struct rs_kernels {
    bool casts;
    bool same_steps; /* equal strides on both sides: a copy onto itself can be skipped */
    rs_copy copy;    /* also of the first contribution; for a fill, of one element */
    rs_cast cast;
    rs_combining combining, scaling;
    unsigned char identity[16];
} rs_kernels;

typedef struct rs_operation {
    reshard_move_kind kind;
    int32_t peer;       /* this rank for keeps */
    int32_t peer_index; /* index into the stage's list of peers; -1 for keeps */
    bool pushing;       /* the source is on this rank */
    /* A copy that shares the cache lines of its short side with other copies of its link. */
    bool together;
    int32_t link; /* stage link */
    int32_t contributor, contributor_count, divisor;
    reshard_reduction reduction;
    reshard_dtype source_dtype, target_dtype;
    int64_t source_slot, target_slot;    /* source: -1 for a fill, or RS_SLOT_SCRATCH */
    size_t source_offset, target_offset; /* bytes */
    uint64_t bytes;                      /* in the narrower dtype; for a fill, in the target's */
    const rs_kernels *kernels;
} rs_operation;

/* Whether moves of this kind into one target must run in a fixed order. */
static inline bool rs_move_is_ordered(reshard_move_kind kind)
{
    return kind == RESHARD_MOVE_COMBINE || kind == RESHARD_MOVE_ADD;
}

/* The dims of an operation. */
typedef struct rs_operation_shape {
    int32_t ndim;
    int64_t size[RS_NEST_MAX], source_strides[RS_NEST_MAX], target_strides[RS_NEST_MAX];
    bool many; /* one of many copies that together exceed the caches */
} rs_operation_shape;

/* Prepares `kernels`, which have to live as long as the operation, by the shape and the operation's
 * kind, reduction, divisor and dtypes. Errors: UNSUPPORTED if there is no such cast or reduction
 * for these dtypes. */
reshard_status rs_operation_prepare(rs_operation *operation, rs_kernels *kernels,
                                    const rs_operation_shape *shape);

/* Combinations and additions into one target must run in order: the first contribution is copied,
 * and the last one divides. A copy onto itself, as in collectives in place, is skipped, because
 * peers may be reading that memory. */
void rs_operation_run(const rs_operation *operation, const void *source, void *target);

/* Whether an operation combines one run of memory with another. Such an operation can also run on
 * some of its bytes only, a whole number of elements. */
bool rs_operation_is_one_run(const rs_operation *operation);
void rs_operation_run_bytes(const rs_operation *operation, const void *source, void *target,
                            size_t bytes);

#endif
