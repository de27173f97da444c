/* SPDX-License-Identifier: Apache-2.0 */
/*
 * journal.h - records what a conversion has on disk, so that a later run can continue from it. It
 * is text:
 *
 *     reshard conversion 2
 *     <digest of the conversion, 32 hex digits> <bytes of memory that its blocks are cut for>
 *     run <nonce, 16 hex digits>     a process has begun to work here
 *     done <first> <count>           these blocks are on disk
 *     blocks done                    all blocks are; files beside those of tensors may follow
 *     finished                       everything is on disk, under its name in the folder
 *
 *  1. The journal comes first: its head is on disk before any other file is created. It is written
 *     under another name and then renamed, so a file of that name without a head is not ours.
 *  2. Data is made durable (synced) before the line that calls it done.
 *  3. The journal says which conversion it belongs to, and no other conversion continues from it.
 *  4. Lines are only appended. A last line without a newline was cut off by a crash and does not
 *     count.
 */
#ifndef RS_CHECKPOINT_CONVERT_JOURNAL_H
#define RS_CHECKPOINT_CONVERT_JOURNAL_H

#include "checkpoint/engine/ledger.h"
#include "system/file.h"

#define RS_JOURNAL_NAME ".reshard-journal"
#define RS_JOURNAL_NEW_NAME ".reshard-journal.new" /* until its head is written */

typedef struct rs_journal_head {
    uint64_t digest[2];    /* of everything that decides what is written */
    uint64_t thread_bytes; /* for which blocks are cut; not 0 */
} rs_journal_head;

/* What all lines together say. */
typedef struct rs_journal_state {
    uint64_t nonce; /* of the last run */
    bool blocks_done, finished;
} rs_journal_state;

typedef struct rs_journal {
    reshard_context *context;
    rs_file *file;  /* NULL: no journal */
    uint64_t bytes; /* of complete lines; new lines are written after them */
    rs_journal_head head;
    rs_journal_state state;
    char *text; /* as found when opened */
    size_t text_bytes;
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

/* Reads the journal of a folder. Errors: NOT_FOUND if there is none; INVALID if it is not ours. */
reshard_status rs_journal_peek(reshard_context *context, const char *folder,
                               rs_journal_state *out_state);

/* Fails with IO if another process is at work in the folder. A folder without a journal is idle. */
reshard_status rs_journal_check_idle(reshard_context *context, const char *folder);

/* Marks in the ledger the blocks that an earlier run recorded. */
void rs_journal_recall(const rs_journal *journal, rs_ledger *ledger);
/* Records the blocks that the ledger has noted; with `sync`, on disk. */
reshard_status rs_journal_record(rs_journal *journal, rs_ledger *ledger, bool sync);
/* Append "blocks done" and "finished". A second call does nothing. */
reshard_status rs_journal_end_blocks(rs_journal *journal, bool sync);
reshard_status rs_journal_finish(rs_journal *journal, bool sync);

#endif
