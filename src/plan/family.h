/* SPDX-License-Identifier: Apache-2.0 */
/*
 * family.h - turns single moves into records.
 *
 * Moves that follow each other at constant steps become one record with a loop. Records of the same
 * form that follow each other at constant steps become one record with a further loop, and so on
 * (ladder.h), with memory for the records alone.
 */
#ifndef RS_PLAN_FAMILY_H
#define RS_PLAN_FAMILY_H

#include <reshard/plan_inspect.h>

#include "base/arena.h"

#include <stdbool.h>

#define RS_LOOPS_MAX 6

/* The values that change from one member of a loop to the next. */
typedef struct rs_steps {
    int32_t peer;
    int32_t contributor;
    int64_t source_at, target_at;
    int64_t start[RESHARD_FACTORS_MAX];
} rs_steps;

/* A move, or with loops a family of them. All fields but `first` are the same for all members. */
typedef struct rs_move {
    reshard_move_kind kind;
    int32_t mine; /* this rank */
    bool sending; /* the source is mine */
    int32_t source_shard, target_shard;
    int32_t contributor_count;
    reshard_reduction reduction;
    int32_t divisor;
    int32_t ndim;
    int64_t size[RESHARD_FACTORS_MAX];
    int64_t source_strides[RESHARD_FACTORS_MAX];
    int64_t target_strides[RESHARD_FACTORS_MAX];
    int32_t loop_count; /* over members, outermost first */
    struct rs_move_loop {
        int64_t count;
        rs_steps step;
    } loops[RS_LOOPS_MAX];
    rs_steps first; /* values of the first member; peer is a rank, or -1 for none */
} rs_move;

typedef struct rs_family {
    rs_arena *arena; /* where the finished records and their arrays go */
    reshard_context *context;
    struct {
        int64_t count;
        rs_move item;
        rs_steps step;
    } levels[RS_LOOPS_MAX];
    reshard_move *items;
    int64_t count, capacity;
    uint64_t single_count, element_count; /* of moves added; elements end at UINT64_MAX */
} rs_family;

void rs_family_init(rs_family *family, reshard_context *context, rs_arena *arena);
void rs_family_release(rs_family *family);
/* Errors: RANGE for more than RS_RECORDS_MAX records; likewise from rs_family_finish. */
reshard_status rs_family_add(rs_family *family, const rs_move *move);
/* Writes out the pending runs. The records are then in the arena. */
reshard_status rs_family_finish(rs_family *family, reshard_moves *out_moves);

#endif
