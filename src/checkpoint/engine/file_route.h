/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file_route.h - where each box of a tensor goes: from the pieces in which it is stored to those in
 * which it will be stored. Routes do not change once made; blocks.h cuts them into blocks that fit
 * into memory.
 *
 * Moves come from a plan in which files are ranks and pieces are shards. A route keeps what the
 * plan found: the pieces at both ends of each move, and where the move begins in them.
 */
#ifndef RS_CHECKPOINT_ENGINE_FILE_ROUTE_H
#define RS_CHECKPOINT_ENGINE_FILE_ROUTE_H

#include "checkpoint/store/store.h"

typedef struct rs_route_move {
    int32_t source, target;       /* indices of pieces */
    const int64_t *offset, *size; /* the box, in the tensor */
    /* first element of the box, counted from the first of the piece */
    int64_t source_at, target_at;
    const int64_t *source_strides; /* in elements, as in the files */
    const int64_t *target_strides;
} rs_route_move;

typedef struct rs_route {
    const rs_stored_tensor *source;
    /* has the same carried shape; NULL: the source is only read */
    const rs_stored_tensor *target;
    const int64_t *offset, *size; /* the box of the tensor that is carried, usually all of it */
    int64_t move_count;
    const rs_route_move *moves; /* sorted by target piece, then by source piece */
    /* by target piece: whether it repeats the box of an earlier one; NULL: none does */
    const bool *again;
    bool tiles; /* target pieces, leaving out repeats of earlier ones, tile the tensor */
    bool casts;
    /* Moves need no buffer. If the target is a file, each is a range of bytes that the kernel can
     * copy. */
    bool direct;
} rs_route;

/* Plans made earlier. The layers of a model are cut alike, and moves depend only on the boxes and
 * strides of the pieces, so tensors that agree in these share one list of moves. All zero is an
 * empty cache. */
typedef struct rs_route_cache {
    struct {
        uint64_t digest[2]; /* of the pieces on both sides */
        rs_route route;     /* of a tensor with these pieces; move_count 0: the slot is empty */
    } slots[256];
} rs_route_cache;

/* Everything below is allocated in the arena, which must outlive routes and cache; so must the
 * tensors. No tensor may be empty. */

/* Plans the moves to all pieces of the target. */
reshard_status rs_route_plan(rs_arena *arena, rs_route_cache *cache, const rs_stored_tensor *source,
                             const rs_stored_tensor *target, rs_route *out_route);
/* Makes the route from a tensor's pieces to its copies, for comparing them. */
reshard_status rs_route_copies(rs_arena *arena, const rs_stored_tensor *source,
                               rs_route *out_route);
/* Makes the route to one piece of the target; only the box of that piece is carried. */
reshard_status rs_route_piece(rs_arena *arena, const rs_stored_tensor *source,
                              const rs_stored_tensor *target, int64_t piece, rs_route *out_route);
/* Makes the route of a tensor that is read as a whole, without a target. */
rs_route rs_route_nowhere(const rs_stored_tensor *source);

/* Sorts routes by place in the source, so that reads go forward. */
void rs_routes_sort(rs_route *routes, int64_t count);

/* The number of bytes that a route writes, in the target's dtype. */
uint64_t rs_route_target_bytes(const rs_route *route);

#endif
