/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file_route.h - where each box of a tensor goes: from the pieces it is stored in to the pieces it
 * shall be stored in. Routes are immutable once made; blocks.h cuts them into blocks that fit into
 * memory.
 *
 * What goes where is a plan whose ranks are files and whose shards are pieces. A route keeps what
 * the plan found: the pieces at both ends of each move, and where the move begins in them.
 */
#ifndef RS_CHECKPOINT_ENGINE_FILE_ROUTE_H
#define RS_CHECKPOINT_ENGINE_FILE_ROUTE_H

#include "checkpoint/store/store.h"

typedef struct rs_route_move {
    int32_t source, target;        /* pieces */
    const int64_t *offset, *size;  /* the box, in the tensor */
    int64_t source_at, target_at;  /* its first element, counted from that of the piece */
    const int64_t *source_strides; /* in elements, as in the files */
    const int64_t *target_strides;
} rs_route_move;

typedef struct rs_route {
    const rs_stored_tensor *source;
    /* of the same carried shape; NULL: goes nowhere, is read only */
    const rs_stored_tensor *target;
    const int64_t *offset, *size; /* the box of the tensor that is carried: mostly all of it */
    int64_t move_count;
    const rs_route_move *moves; /* by target piece, then by source piece */
    const bool *again; /* by target piece: it repeats the box of an earlier one; NULL: none does */
    bool tiles;        /* target pieces, leaving out repeats of earlier ones, tile the tensor */
    bool casts;
    bool direct; /* moves need no buffer: to a file, each is a range that the kernel can copy */
} rs_route;

/* Plans made before. The layers of a model are cut alike, and moves depend on the boxes and strides
 * of the pieces alone, so tensors that have them in common share one list. Zero is an empty
 * cache. */
typedef struct rs_route_cache {
    struct {
        uint64_t digest[2]; /* of the pieces on both sides */
        rs_route route;     /* of a tensor like that; move_count 0: nothing is here */
    } slots[256];
} rs_route_cache;

/* Everything below is allocated in the arena, which must outlive routes and cache; so must the
 * tensors. Tensors have bytes. */

/* Moves for all of the target's pieces. */
reshard_status rs_route_plan(rs_arena *arena, rs_route_cache *cache, const rs_stored_tensor *source,
                             const rs_stored_tensor *target, rs_route *out_route);
/* From the pieces of a tensor to its copies, for comparing them. */
reshard_status rs_route_copies(rs_arena *arena, const rs_stored_tensor *source,
                               rs_route *out_route);
/* From a tensor to one piece of the target, whose box alone is carried. */
reshard_status rs_route_piece(rs_arena *arena, const rs_stored_tensor *source,
                              const rs_stored_tensor *target, int64_t piece, rs_route *out_route);
/* All of a tensor, to nowhere. */
rs_route rs_route_nowhere(const rs_stored_tensor *source);

/* The bytes that a route writes, in the target's dtype. */
uint64_t rs_route_target_bytes(const rs_route *route);

#endif
