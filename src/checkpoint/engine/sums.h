/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sums.h - sums (fingerprint.h) of the bytes that pass through memory along routes.
 *
 * 1. Without a cast, a block has the same sum when it is read and when it is written, whatever the
 *    two splits are. It is summed on the side with the longer rows, which is cheaper.
 * 2. Block 0 and every 16th block after it are summed on both sides. If the two sums differ, memory
 *    or the program has changed bytes in between.
 * 3. With a cast, each side has a sum of its own, and every block is summed on both sides; or, if
 *    the source's digest will not be reported, on the target's side only.
 * 4. Sums add up over blocks, threads and ranks. If all blocks of a tensor passed through memory,
 *    their sum is its digest, without another read. This is not so for blocks that the kernel
 *    copied or that an earlier run wrote.
 * 5. Elements that are written several times are summed once, in the first piece that has them.
 */
#ifndef RS_CHECKPOINT_ENGINE_SUMS_H
#define RS_CHECKPOINT_ENGINE_SUMS_H

#include "checkpoint/engine/file_route.h"
#include "checkpoint/engine/fingerprint.h"
#include "checkpoint/engine/team.h"
#include "system/thread.h"

/* The sums of one route, a plain value like rs_fingerprint. Without a cast, both are equal. */
typedef struct rs_route_sum {
    rs_fingerprint source, target;
} rs_route_sum;

typedef struct rs_sums {
    reshard_context *context;
    rs_fingerprint_code *code;
    int64_t count;
    bool target_only;    /* nobody asks for source sums; set by the caller before threads run */
    rs_mutex mutex;      /* guards items while threads run */
    rs_route_sum *items; /* one for each route */
} rs_sums;

reshard_status rs_sums_create(reshard_context *context, int64_t route_count, rs_sums **out_sums);
/* Takes NULL. */
void rs_sums_destroy(rs_sums *sums);
/* Gives every rank the combined sums of all ranks. Collective. */
reshard_status rs_sums_merge(rs_sums *sums, const rs_team *team);

/* The sums of one block that a thread is working on. */
typedef struct rs_block_sums {
    rs_sums *sums; /* NULL: the calls below do nothing */
    const rs_route *route;
    bool on_source, on_target; /* which sides are summed */
    rs_fingerprint_writer source, target;
} rs_block_sums;

/* number: that of the block, among the blocks of all routes. */
void rs_block_sums_begin(rs_block_sums *block, rs_sums *sums, const rs_route *route,
                         int64_t number);
/* Adds a box of the source tensor, as it was read. Strides are in elements; NULL means dense. */
void rs_block_sums_read(rs_block_sums *block, const int64_t *offset, const int64_t *size,
                        const void *memory, const int64_t *strides);
/* Adds a box of target piece `piece`, as it is about to be written. */
void rs_block_sums_write(rs_block_sums *block, int64_t piece, const int64_t *offset,
                         const int64_t *size, const void *memory, const int64_t *strides);
/* Adds memory that is both source and target, in a block that consists of nothing else. */
void rs_block_sums_pass(rs_block_sums *block, int64_t piece, const int64_t *offset,
                        const int64_t *size, const void *memory);
/* Adds the block's sums to those of its route. Errors: CHECK if the two sides should be equal and
 * are not. */
reshard_status rs_block_sums_end(rs_block_sums *block, int64_t route);

#endif
