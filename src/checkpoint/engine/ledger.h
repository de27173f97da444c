/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ledger.h - which blocks are done. Every block goes through these states, in this order:
 *
 *     OPEN --mark_done--> DONE --note--> NOTED --record--> RECORDED
 *                                        files are synced here
 *
 * Threads mark blocks done at any time. The thread that keeps the journal notes all blocks that are
 * done so far, syncs the files, and then records the noted ones. A block finished in between stays
 * DONE until the next time, so no block is recorded before it is on disk.
 */
#ifndef RS_CHECKPOINT_ENGINE_LEDGER_H
#define RS_CHECKPOINT_ENGINE_LEDGER_H

#include <reshard/base.h>

#include <stdatomic.h>
#include <stdbool.h>

typedef enum rs_block_state {
    RS_BLOCK_OPEN, /* zero, so that all blocks of a new ledger are open */
    RS_BLOCK_DONE,
    RS_BLOCK_NOTED,
    RS_BLOCK_RECORDED
} rs_block_state;

typedef struct rs_ledger {
    reshard_context *context;
    int64_t count;
    atomic_uchar *states;
} rs_ledger;

/* All blocks start open. Call release in any case, even after an error. */
reshard_status rs_ledger_init(rs_ledger *ledger, reshard_context *context, int64_t count);
void rs_ledger_release(rs_ledger *ledger);

rs_block_state rs_ledger_state(const rs_ledger *ledger, int64_t block);
/* Whether a block needs no more work. */
bool rs_ledger_is_done(const rs_ledger *ledger, int64_t block);
/* Any thread. */
void rs_ledger_mark_done(rs_ledger *ledger, int64_t block);

/* The functions below are for one thread only, the one that keeps the journal. A range is `count`
 * blocks, beginning with `first`. */

/* Notes all blocks that are done. */
void rs_ledger_note(rs_ledger *ledger);
/* Notes a range that another rank has done and synced. */
void rs_ledger_merge(rs_ledger *ledger, int64_t first, int64_t count);
/* Marks a range as recorded: this or another rank's journal has it, or it needs no record. */
void rs_ledger_recall(rs_ledger *ledger, int64_t first, int64_t count);
/* Finds the next run of noted blocks, from *first on, and records it. Returns false if there is
 * none. */
bool rs_ledger_record(rs_ledger *ledger, int64_t *first, int64_t *out_count);

#endif
