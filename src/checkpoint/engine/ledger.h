/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ledger.h - which blocks are done. A block goes one way through these states:
 *
 *     OPEN --mark_done--> DONE --note--> NOTED --record--> RECORDED
 *                                        files are synced here
 *
 * Threads mark blocks done while the others work. Whoever keeps the journal notes what is done so
 * far, makes the files durable, and then records what was noted: a block that a thread finishes in
 * between waits for the next time. So no block is recorded before it is on disk.
 */
#ifndef RS_CHECKPOINT_ENGINE_LEDGER_H
#define RS_CHECKPOINT_ENGINE_LEDGER_H

#include <reshard/base.h>

#include <stdatomic.h>
#include <stdbool.h>

typedef enum rs_block_state {
    RS_BLOCK_OPEN, /* zero: a new ledger is open */
    RS_BLOCK_DONE,
    RS_BLOCK_NOTED,
    RS_BLOCK_RECORDED
} rs_block_state;

typedef struct rs_ledger {
    reshard_context *context;
    int64_t count;
    atomic_uchar *states;
} rs_ledger;

/* All blocks are open. release in any case. */
reshard_status rs_ledger_init(rs_ledger *ledger, reshard_context *context, int64_t count);
void rs_ledger_release(rs_ledger *ledger);

rs_block_state rs_ledger_state(const rs_ledger *ledger, int64_t block);
/* Whether a block need not be done any more. */
bool rs_ledger_is_done(const rs_ledger *ledger, int64_t block);
/* Any thread. */
void rs_ledger_mark_done(rs_ledger *ledger, int64_t block);

/* What follows is for one thread, whoever keeps the journal. Ranges are count blocks from first
 * on. */

/* Notes what is done. */
void rs_ledger_note(rs_ledger *ledger);
/* Notes a range that another rank has done and made durable. */
void rs_ledger_merge(rs_ledger *ledger, int64_t first, int64_t count);
/* Takes a range as recorded: the journal has it, or another rank's has, or it needs none. */
void rs_ledger_recall(rs_ledger *ledger, int64_t first, int64_t count);
/* Finds the next run of noted blocks from *first on, and records it. False when there is none. */
bool rs_ledger_record(rs_ledger *ledger, int64_t *first, int64_t *out_count);

#endif
