/* SPDX-License-Identifier: Apache-2.0 */
/*
 * journal.h - what of a conversion is on disk, for a later run to go on from. It is text:
 *
 *     reshard conversion 2
 *     <digest of the conversion, 32 hex digits> <bytes of memory that its blocks are cut for>
 *     run <nonce, 16 hex digits>     a process has begun to work here
 *     done <first> <count>           these blocks are on disk
 *     blocks done                    all of them are; files beside those of tensors may follow
 *     finished                       everything is on disk, under its name in the folder
 *
 *  1. The journal comes first: it has its head, on disk, before any other file is made. It is
 *     written under another name and renamed, so a file of its name without a head is not ours.
 *  2. Data is made durable (synced) before the line that calls it done.
 *  3. The journal says which conversion it belongs to: another one does not go on with it.
 *  4. Lines are only added. A last line without its end was cut off by a crash and does not count.
 */
#ifndef RS_CHECKPOINT_CONVERT_JOURNAL_H
#define RS_CHECKPOINT_CONVERT_JOURNAL_H

#include "checkpoint/engine/ledger.h"
#include "system/file.h"

#define RS_JOURNAL_NAME ".reshard-journal"
#define RS_JOURNAL_NEW_NAME ".reshard-journal.new" /* while its head is written */

typedef struct rs_journal_head {
    uint64_t digest[2];    /* of all that decides what is written */
    uint64_t thread_bytes; /* that blocks are cut for; not 0 */
} rs_journal_head;

/* What the lines say in all. */
typedef struct rs_journal_state {
    uint64_t nonce; /* of the last run */
    bool blocks_done, finished;
} rs_journal_state;

typedef struct rs_journal {
    reshard_context *context;
    rs_file *file;  /* NULL: there is none */
    uint64_t bytes; /* that count; what is added goes behind them */
    rs_journal_head head;
    rs_journal_state state;
    char *text; /* as found */
    size_t text_bytes;
} rs_journal;

/* A new one with its head and its first run, on disk; whose name is as durable as the folder is
 * synced. No other process can have it open at the same time. close in any case. */
reshard_status rs_journal_create(rs_journal *journal, reshard_context *context, const char *folder,
                                 const rs_journal_head *head);
/* That of an earlier run, to go on with: adds a run of our own, on disk. The head's thread_bytes
 * may be another than that run had. close in any case. Errors: NOT_FOUND; INVALID when it is not
 * that of this conversion; IO when another process is at work. */
reshard_status rs_journal_open(rs_journal *journal, reshard_context *context, const char *folder,
                               const rs_journal_head *head);
void rs_journal_close(rs_journal *journal);

/* Looks at the journal of a folder. Errors: NOT_FOUND when there is none; INVALID when it is not
 * ours. */
reshard_status rs_journal_peek(reshard_context *context, const char *folder,
                               rs_journal_state *out_state);

/* Errors: IO when another process is at work in the folder. One without a journal is idle. */
reshard_status rs_journal_check_idle(reshard_context *context, const char *folder);

/* Recalls the blocks that an earlier run recorded. */
void rs_journal_recall(const rs_journal *journal, rs_ledger *ledger);
/* Records what the ledger has noted; with `sync`, on disk. */
reshard_status rs_journal_record(rs_journal *journal, rs_ledger *ledger, bool sync);
/* "blocks done" and "finished". Nothing happens the second time. */
reshard_status rs_journal_end_blocks(rs_journal *journal, bool sync);
reshard_status rs_journal_finish(rs_journal *journal, bool sync);

#endif
