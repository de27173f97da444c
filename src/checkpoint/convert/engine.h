/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine.h - carries transfers out: threads take blocks in turn, read what the block has of each
 * source piece, bring it into the order of each target piece, and write that, or compare it with
 * what is written already.
 *
 * Memory: each thread has its own buffers, given once; a block never needs more. Threads share
 * nothing but the number of the next block.
 */
#ifndef RS_CHECKPOINT_CONVERT_ENGINE_H
#define RS_CHECKPOINT_CONVERT_ENGINE_H

#include "checkpoint/convert/passing.h"
#include "checkpoint/convert/transfer.h"

#include <stdatomic.h>

typedef enum rs_engine_mode {
    RS_ENGINE_WRITE,
    RS_ENGINE_COMPARE /* errors: CHECK when target and source differ */
} rs_engine_mode;

typedef struct rs_engine {
    reshard_context *context;
    rs_engine_mode mode;
    const char *what; /* for the progress bar; NULL: none */
    rs_file *const *sources;
    rs_file *const *targets;
    int64_t transfer_count;
    rs_transfer *transfers;
    int32_t threads;
    size_t memory_bytes; /* of all threads */
    /* One byte for each block: 1 when it is done. Blocks that are done already are passed over.
     * NULL: nobody asks. */
    atomic_uchar *done;
    /* Digests what passes through memory, by the index of the transfer; NULL: nobody asks. */
    rs_passing *passing;
    /* Called now and then by the calling thread, with the bytes done so far; may be NULL. */
    reshard_status (*pause)(void *user, uint64_t bytes_done);
    void *user;
    /* filled in by prepare */
    int64_t block_count;
    int64_t block_begin, block_end; /* those that run does: all of them, unless changed */
    uint64_t bytes_total;           /* of targets, as the progress counts them */
    size_t thread_bytes; /* given, when blocks must be those of an earlier run; else 0 before */
    /* Ranks that go on beside this one as fast as it does are shown as well: what was done beyond
     * shown_from counts this often. 0: once. */
    uint64_t shown_from, shown_factor;
    /* what was done */
    atomic_uint_fast64_t bytes_done, bytes_read, bytes_written, bytes_shared;
} rs_engine;

#define RS_ENGINE_BYTES_MIN ((size_t)1 << 20) /* for one thread */
/* What a block has of each source piece begins on a multiple of this: a cache line, because string
 * moves, which kernels and C libraries copy with, are several times slower on some processors when
 * the target lies a few bytes behind the source, modulo a page. */
#define RS_ENGINE_ALIGNMENT ((size_t)64)

/* Cuts transfers into blocks and numbers them. Sets threads and thread_bytes from what is given:
 * threads 0 means as many as there are processors, up to 8. Errors: MEMORY_LIMIT when the memory is
 * too small for the number of pieces of a tensor. */
reshard_status rs_engine_prepare(rs_engine *engine);
/* Runs blocks from block_begin to before block_end. The first error of any thread is the one
 * returned, with its words. */
reshard_status rs_engine_run(rs_engine *engine);

/* ---- one block (block.c) --------------------------------------------------------------------- */

typedef struct rs_block_slot rs_block_slot;

/* What one thread works with. */
typedef struct rs_worker {
    rs_engine *engine;
    char *source, *target; /* halves of one buffer of thread_bytes, split for each transfer */
    char *memory;          /* as allocated */
    size_t memory_bytes;
    char *buffer; /* the part of it from the first multiple of the alignment on */
    size_t buffer_bytes;
    char *compare;
    rs_block_slot *slots; /* one for each source piece */
    int64_t slot_capacity;
    rs_passing_block passing;
} rs_worker;

reshard_status rs_worker_init(rs_worker *worker, rs_engine *engine);
void rs_worker_release(rs_worker *worker);
reshard_status rs_worker_run_block(rs_worker *worker, const rs_transfer *transfer, int64_t block);

#endif
