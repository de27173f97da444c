/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine.h - carries routes out: threads take blocks in turn, read what the block has of each
 * source piece, bring it into the order of each target piece, and hand that to a sink.
 *
 * Memory: each thread has its own buffer, allocated once; a block never needs more. Threads share
 * nothing but the number of the next block.
 */
#ifndef RS_CHECKPOINT_ENGINE_ENGINE_H
#define RS_CHECKPOINT_ENGINE_ENGINE_H

#include "checkpoint/engine/blocks.h"
#include "checkpoint/engine/entry_sums.h"
#include "checkpoint/engine/sums.h"
#include "trace/record.h"

#include <stdatomic.h>

/* What becomes of a block (sink.h). */
typedef struct rs_sink rs_sink;
/* Written to the target's files; direct routes are left to the kernel where that can copy. */
extern const rs_sink rs_sink_file;
/* Compared with the target's files; without a target, as rs_sink_sum. Errors: CHECK when they
 * differ, naming files and element. */
extern const rs_sink rs_sink_compare;
/* Brought to its place in memory. Nothing is summed. */
extern const rs_sink rs_sink_memory;
/* Read, and summed. */
extern const rs_sink rs_sink_sum;

typedef struct rs_engine {
    reshard_context *context;
    const rs_sink *sink;
    const char *what;        /* for the progress bar; NULL: none */
    const rs_blocks *blocks; /* not owned */
    rs_file *const *sources; /* by the `file` of pieces */
    rs_file *const *targets; /* likewise */
    void *const *memory;     /* likewise: of the memory sink, in place of files */
    int32_t threads;         /* 1 or more */
    rs_ledger *ledger; /* blocks that are done are passed over; NULL: nobody asks. Not owned */
    rs_sums *sums;     /* by route; NULL: nobody asks. Not owned */
    /* Of what the file sink writes; needs blocks that are not direct. NULL: nobody asks. Not
     * owned. */
    rs_entry_sums *entry_sums;
    /* Called now and then by the calling thread, with the bytes done so far; may be NULL. */
    reshard_status (*pause)(void *user, uint64_t bytes_done);
    void *user;
    int64_t block_begin, block_end; /* those that run does */
    reshard_trace *trace; /* where threads record what they do; NULL: nowhere. Not owned */
    int32_t trace_rank;   /* as a rank of all */
    /* Ranks that go on beside this one, as fast as it does, are shown as well: what was done beyond
     * shown_from counts this often. 0: once. */
    uint64_t shown_from, shown_factor;
    /* What was done, in all runs. */
    atomic_uint_fast64_t bytes_done, bytes_read, bytes_written, bytes_shared;
    atomic_uint_fast64_t values_overflowed; /* by casts: finite before, and not after */
} rs_engine;

#define RS_ENGINE_BYTES_MIN ((size_t)1 << 20) /* for one thread */

/* How many threads fit into memory_bytes, and what each may use. *threads is what the user asked
 * for; adapts: fewer are better than small blocks. */
void rs_engine_share_memory(size_t memory_bytes, bool adapts, int32_t *threads,
                            size_t *out_thread_bytes);
/* Runs blocks from block_begin to before block_end. The first error of any thread is returned, with
 * its words. */
reshard_status rs_engine_run(rs_engine *engine);
/* Runs all blocks, shared by the ranks of a team. Collective. */
reshard_status rs_engine_run_shared(rs_engine *engine, const rs_team *team);
/* Compares all boxes that the checkpoint stores more than once. `what`: as in rs_engine. Errors:
 * CHECK, naming tensor, files and element. Collective. */
reshard_status rs_engine_check_copies(const reshard_checkpoint *checkpoint, const rs_team *team,
                                      const char *what, int32_t threads, size_t thread_bytes);
/* Does every range of the source whose CRC is known still have it? Ranges are dealt out to the
 * ranks. Errors: CHECK, naming file and place. Collective. */
reshard_status rs_engine_check_crcs(const reshard_checkpoint *checkpoint, const rs_team *team);
/* From now on the progress bar counts the other ranks too. */
void rs_engine_show_together(rs_engine *engine, const rs_team *team);

#endif
