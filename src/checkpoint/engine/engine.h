/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine.h - carries out routes. Threads take blocks in turn; for each block they read its share of
 * every source piece, rearrange it into the order of the target pieces, and hand it to a sink.
 *
 * Memory: each thread allocates one buffer up front, and no block needs more than that. Threads
 * share only the number of the next block.
 */
#ifndef RS_CHECKPOINT_ENGINE_ENGINE_H
#define RS_CHECKPOINT_ENGINE_ENGINE_H

#include "checkpoint/engine/blocks.h"
#include "checkpoint/engine/crcs.h"
#include "checkpoint/engine/entry_sums.h"
#include "checkpoint/engine/sums.h"
#include "trace/record.h"

#include <stdatomic.h>

/* What happens to a block once it has been read (sink.h). */
typedef struct rs_sink rs_sink;
/* Writes blocks to the target's files. For direct routes, the kernel copies the bytes if it can. */
extern const rs_sink rs_sink_file;
/* Compares blocks with the target's files. Without a target it works like rs_sink_sum. Errors:
 * CHECK if they differ, naming files and element. */
extern const rs_sink rs_sink_compare;
/* Puts blocks in their places in memory. Computes no sums. */
extern const rs_sink rs_sink_memory;
/* Only reads blocks and sums them. */
extern const rs_sink rs_sink_sum;

typedef struct rs_engine {
    reshard_context *context;
    const rs_sink *sink;
    const char *what;        /* label of the progress bar; NULL: no bar */
    const rs_blocks *blocks; /* not owned */
    rs_file *const *sources; /* indexed by the `file` of source pieces */
    rs_file *const *targets; /* indexed by the `file` of target pieces */
    void *const *memory;     /* the same, for the memory sink, which has no target files */
    int32_t threads;         /* 1 or more */
    rs_ledger *ledger;       /* blocks already done are skipped; may be NULL; not owned */
    rs_sums *sums;           /* one for each route; may be NULL; not owned */
    /* Sums of what the file sink writes; the blocks must not be direct. May be NULL. Not owned. */
    rs_entry_sums *entry_sums;
    rs_crcs *crcs; /* CRCs of what is read; may be NULL; not owned */
    /* Called now and then on the calling thread, with the bytes done so far. May be NULL. */
    reshard_status (*pause)(void *user, uint64_t bytes_done);
    void *user;
    int64_t block_begin, block_end; /* the blocks that rs_engine_run carries out */
    reshard_trace *trace;           /* where threads record what they do; may be NULL; not owned */
    int32_t trace_rank;             /* this rank's number in the trace */
    /* Lets the progress bar stand for all ranks, which are assumed to be as fast as this one: bytes
     * done beyond shown_from count shown_factor times (0 means once). */
    uint64_t shown_from, shown_factor;
    /* Totals over all runs of this engine. */
    atomic_uint_fast64_t bytes_done, bytes_read, bytes_written, bytes_shared;
    /* values that were finite before a cast and are not after it */
    atomic_uint_fast64_t values_overflowed;
} rs_engine;

#define RS_ENGINE_BYTES_MIN ((size_t)1 << 20) /* the least memory for one thread */

/* Finds how many threads fit into memory_bytes, and how much each may use. On entry *threads is the
 * number that the user asked for. `adapts`: use fewer threads rather than small blocks. */
void rs_engine_share_memory(size_t memory_bytes, bool adapts, int32_t *threads,
                            size_t *out_thread_bytes);
/* The open files of a checkpoint by number, as `sources` and `targets` have them; in the arena. */
reshard_status rs_engine_list_files(rs_arena *arena, const reshard_checkpoint *checkpoint,
                                    rs_file ***out_files);
/* Says that the next run reads the checkpoint's files once, and that nobody reads them again right
 * after it, so that they need not stay in the page cache (rs_file_begin_pass). */
reshard_status rs_engine_begin_pass(const reshard_checkpoint *checkpoint);
/* Runs the blocks block_begin .. block_end-1. Returns the first error of any thread, with its
 * text. */
reshard_status rs_engine_run(rs_engine *engine);
/* Runs all blocks, divided among the ranks of a team. Collective. */
reshard_status rs_engine_run_shared(rs_engine *engine, const rs_team *team);
/* Compares all copies in the checkpoint: boxes that it stores more than once. `what`: as in
 * rs_engine. Errors: CHECK, naming tensor, files and element. Collective. */
reshard_status rs_engine_check_copies(const reshard_checkpoint *checkpoint, const rs_team *team,
                                      const char *what, int32_t threads, size_t thread_bytes);
/* From now on the progress bar counts the other ranks as well. */
void rs_engine_show_together(rs_engine *engine, const rs_team *team);

#endif
