/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transfer.h - one tensor on its way from the pieces it is stored in to the pieces it shall be
 * stored in, cut into blocks that fit into memory.
 *
 * What goes where is a plan whose ranks are files. Blocks are boxes of the tensor, slabs of its
 * outermost dimension that has more than one index: a slab lies together in every dense piece,
 * however the pieces are cut, so that whatever the two layouts are, reads and writes are long.
 */
#ifndef RS_CHECKPOINT_CONVERT_TRANSFER_H
#define RS_CHECKPOINT_CONVERT_TRANSFER_H

#include "checkpoint/store/store.h"

typedef struct rs_transfer_move {
    int32_t source, target; /* pieces */
    const int64_t *offset;  /* of the box, in the tensor; NULL: zeros */
    const int64_t *size;
} rs_transfer_move;

typedef struct rs_transfer {
    const rs_stored_tensor *source, *target; /* of the same carried shape; dtypes may differ */
    int64_t move_count;
    rs_transfer_move *moves; /* by target piece */
    bool casts;
    bool tiles;        /* target pieces that are not again others tile the tensor */
    const bool *again; /* by target piece: it has the box of one before it; NULL: none has */
    bool direct;       /* every move is one long range in both files, for the kernel to copy */
    int64_t tile[RESHARD_NDIM_MAX];
    int64_t block_first, block_count; /* among the blocks of all transfers */
} rs_transfer;

/* Plans made before. The layers of a model are cut alike: moves between pieces depend on the boxes
 * of these alone, so that tensors with equal boxes share one list. Zero is an empty cache. */
typedef struct rs_transfer_cache {
    struct {
        uint64_t digest[2]; /* of the boxes on both sides */
        int64_t move_count; /* 0: nothing is here */
        rs_transfer_move *moves;
        bool tiles;
        const bool *again;
    } slots[256];
} rs_transfer_cache;

/* Moves for all of the target's pieces, in the arena, which must outlive the cache. */
reshard_status rs_transfer_plan(rs_arena *arena, rs_transfer_cache *cache,
                                const rs_stored_tensor *source, const rs_stored_tensor *target,
                                rs_transfer *out_transfer);
/* Moves from pieces to their copies: for comparing them. target has the copies as its pieces. */
reshard_status rs_transfer_copies(rs_arena *arena, const rs_stored_tensor *source,
                                  const rs_stored_tensor *target, rs_transfer *out_transfer);
/* Sets tile and block_count so that the two ends of a block fit into memory of that size. */
void rs_transfer_tile(rs_transfer *transfer, size_t memory_bytes);
/* The box of block `index` of the transfer. */
void rs_transfer_block(const rs_transfer *transfer, int64_t index,
                       int64_t out_offset[RESHARD_NDIM_MAX], int64_t out_size[RESHARD_NDIM_MAX]);
/* Of its box, in the target's dtype. */
uint64_t rs_transfer_block_bytes(const rs_transfer *transfer, int64_t index);

#endif
