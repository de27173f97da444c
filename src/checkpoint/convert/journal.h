/* SPDX-License-Identifier: Apache-2.0 */
/*
 * journal.h - records what a conversion has on disk, so that a later run can continue from it.
 * store/journal_text.h shows the lines.
 *
 *  1. The journal comes first: its head is on disk before any other file is created. It is written
 *     under another name and then renamed, so a file of that name without a head is not ours.
 *  2. Data is made durable (synced) before the line that calls it done.
 *  3. The journal says which conversion it belongs to, and no other conversion continues from it.
 */
#ifndef RS_CHECKPOINT_CONVERT_JOURNAL_H
#define RS_CHECKPOINT_CONVERT_JOURNAL_H

#include "checkpoint/engine/ledger.h"
#include "checkpoint/store/journal_text.h"

#define RS_JOURNAL_NEW_NAME ".reshard-journal.new" /* until its head is written */

typedef struct rs_journal {
    reshard_context *context;
    rs_file *file;  /* NULL: no journal */
    uint64_t bytes; /* of complete lines; new lines are written after them */
    rs_journal_head head;
    rs_journal_state state;
    rs_journal_text found; /* when it was opened */
} rs_journal;

/* Creates a journal with its head and its first run, on disk. Its name becomes durable when the
 * folder is synced. No other process can have it open at the same time. Close in any case, even
 * after an error. */
reshard_status rs_journal_create(rs_journal *journal, reshard_context *context, const char *folder,
                                 const rs_journal_head *head);
/* Opens the journal of an earlier run to continue from it, and appends a run of our own, on disk.
 * The thread_bytes of `head` may differ from those of the earlier run. Close in any case. Errors:
 * NOT_FOUND; INVALID if it belongs to another conversion; IO if another process is at work. */
reshard_status rs_journal_open(rs_journal *journal, reshard_context *context, const char *folder,
                               const rs_journal_head *head);
void rs_journal_close(rs_journal *journal);

/* Fails with IO if another process is at work in the folder. A folder without a journal is idle. */
reshard_status rs_journal_check_idle(reshard_context *context, const char *folder);

/* Marks in the ledger the blocks that an earlier run recorded. */
void rs_journal_recall(const rs_journal *journal, rs_ledger *ledger);
/* Records the blocks that the ledger has noted; with `sync`, on disk. */
reshard_status rs_journal_record(rs_journal *journal, rs_ledger *ledger, bool sync);
/* Append "blocks done", with the number of blocks, and "finished". A second call does nothing. All
 * blocks have been recorded. */
reshard_status rs_journal_end_blocks(rs_journal *journal, int64_t count, bool sync);
reshard_status rs_journal_finish(rs_journal *journal, bool sync);

#endif
