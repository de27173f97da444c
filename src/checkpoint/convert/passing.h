/* SPDX-License-Identifier: Apache-2.0 */
/*
 * passing.h - digests of what passes through memory on its way from the source to the target.
 *
 * 1. Without a cast the digest of a block is the same as it was read and as it is written, whatever
 *    the two splits are. It is taken on the side whose rows are longer, which is cheaper.
 * 2. The first block of all and every 16th from there is digested on both sides. Where the two are
 *    not equal, memory or the program has changed bytes between.
 * 3. With a cast both sides have digests of their own, and all blocks add to both.
 * 4. Sums add up over blocks, threads and ranks. A tensor whose blocks all came by has its digest
 *    then, without another read; one that the kernel copied, or an earlier run wrote, has not.
 * 5. Of elements that are written several times the first is digested.
 */
#ifndef RS_CHECKPOINT_CONVERT_PASSING_H
#define RS_CHECKPOINT_CONVERT_PASSING_H

#include "base/thread.h"
#include "checkpoint/convert/transfer.h"
#include "checkpoint/digest/fingerprint.h"
#include "checkpoint/format/target.h"

/* Of one transfer; a plain value, as rs_fingerprint. Equal without a cast. */
typedef struct rs_passing_sums {
    rs_fingerprint source, target;
} rs_passing_sums;

typedef struct rs_passing {
    reshard_context *context;
    rs_fingerprint_code *code;
    int64_t count;
    rs_mutex mutex; /* guards sums while threads run */
    rs_passing_sums *sums;
} rs_passing;

reshard_status rs_passing_create(reshard_context *context, int64_t transfer_count,
                                 rs_passing **out_passing);
/* Takes NULL. */
void rs_passing_destroy(rs_passing *passing);

/* One block under way, of one thread. */
typedef struct rs_passing_block {
    rs_passing *passing; /* NULL: nothing is digested, and nothing below does anything */
    const rs_transfer *transfer;
    bool on_source, on_target; /* which sides are digested */
    rs_fingerprint_writer source, target;
} rs_passing_block;

/* index: of the block in its transfer. */
void rs_passing_begin(rs_passing_block *block, rs_passing *passing, const rs_transfer *transfer,
                      int64_t index);
/* A box of the source's tensor, as it was read. Strides are in elements; NULL: dense. */
void rs_passing_read(rs_passing_block *block, const int64_t *offset, const int64_t *size,
                     const void *memory, const int64_t *strides);
/* A box of target piece `piece`, as it is written. */
void rs_passing_write(rs_passing_block *block, int64_t piece, const int64_t *offset,
                      const int64_t *size, const void *memory, const int64_t *strides);
/* The same memory for both, in a block that has nothing else. */
void rs_passing_read_and_write(rs_passing_block *block, int64_t piece, const int64_t *offset,
                               const int64_t *size, const void *memory);
/* Adds the block's sums to those of transfer `index`. Errors: CHECK when they ought to be equal and
 * are not. */
reshard_status rs_passing_end(rs_passing_block *block, int64_t index);

/* What became known, once all sums are together. */
typedef struct rs_passing_result {
    uint64_t bytes;                   /* of the source that were digested */
    int64_t tensors;                  /* whose digests are known */
    char source[RS_FINGERPRINT_TEXT]; /* digest of the source if all of it came by; else "" */
    char target[RS_FINGERPRINT_TEXT]; /* likewise */
} rs_passing_result;

/* transfers: those that were summed. Errors: CHECK when sums are of a tensor's size and yet do not
 * tile it. */
reshard_status rs_passing_finish(const rs_passing *passing, const rs_transfer *transfers,
                                 const reshard_checkpoint *source, const rs_target *target,
                                 rs_passing_result *out_result);

#endif
