/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sums.h - sums (fingerprint.h) of what passes through memory on its way along routes.
 *
 * 1. Without a cast a block has the same sum as it was read and as it is written, whatever the two
 *    splits are. It is summed on the side whose rows are longer, which is cheaper.
 * 2. The first block of all and every 16th from there is summed on both sides. Where the two
 *    differ, memory or the program has changed bytes in between.
 * 3. With a cast each side has its own sum, and all blocks add to both.
 * 4. Sums add up over blocks, threads and ranks. A tensor whose blocks all came by has its digest
 *    then, without another read; one that the kernel copied, or an earlier run wrote, has not.
 * 5. Elements that are written several times are summed once, where they are written first.
 */
#ifndef RS_CHECKPOINT_ENGINE_SUMS_H
#define RS_CHECKPOINT_ENGINE_SUMS_H

#include "checkpoint/engine/file_route.h"
#include "checkpoint/engine/team.h"
#include "checkpoint/fingerprint/fingerprint.h"
#include "system/thread.h"

/* Of one route. A plain value, as rs_fingerprint is. Both are equal without a cast. */
typedef struct rs_route_sum {
    rs_fingerprint source, target;
} rs_route_sum;

typedef struct rs_sums {
    reshard_context *context;
    rs_fingerprint_code *code;
    int64_t count;
    rs_mutex mutex;      /* guards items while threads run */
    rs_route_sum *items; /* by route */
} rs_sums;

reshard_status rs_sums_create(reshard_context *context, int64_t route_count, rs_sums **out_sums);
/* Takes NULL. */
void rs_sums_destroy(rs_sums *sums);
/* Adds the sums of all ranks to each rank's. Collective. */
reshard_status rs_sums_merge(rs_sums *sums, const rs_team *team);

/* One block under way on one thread. */
typedef struct rs_block_sums {
    rs_sums *sums; /* NULL: nothing is summed, and nothing below does anything */
    const rs_route *route;
    bool on_source, on_target; /* which sides are summed */
    rs_fingerprint_writer source, target;
} rs_block_sums;

/* block: its number among those of all routes. */
void rs_block_sums_begin(rs_block_sums *block, rs_sums *sums, const rs_route *route,
                         int64_t number);
/* A box of the source's tensor, as it was read. Strides are in elements; NULL: dense. */
void rs_block_sums_read(rs_block_sums *block, const int64_t *offset, const int64_t *size,
                        const void *memory, const int64_t *strides);
/* A box of target piece `piece`, as it is written. */
void rs_block_sums_write(rs_block_sums *block, int64_t piece, const int64_t *offset,
                         const int64_t *size, const void *memory, const int64_t *strides);
/* The same memory for both sides, in a block that has nothing else. */
void rs_block_sums_pass(rs_block_sums *block, int64_t piece, const int64_t *offset,
                        const int64_t *size, const void *memory);
/* Adds the block's sums to those of its route. Errors: CHECK when the two sides ought to be equal
 * and are not. */
reshard_status rs_block_sums_end(rs_block_sums *block, int64_t route);

#endif
