/* SPDX-License-Identifier: Apache-2.0 */
/*
 * journal.h - which blocks of a conversion are on disk, for a later run to go on from.
 *
 *  1. A block that the journal calls done is on disk: files are synced before the line is written.
 *  2. The journal says which conversion it belongs to: another one does not go on with it.
 *
 * It is text: a line with a version, one with the digest of the conversion and the bytes of memory
 * that its blocks are cut for, then lines "done FIRST COUNT". A last line without its end was cut
 * off by a crash and does not count.
 */
#ifndef RS_CHECKPOINT_CONVERT_JOURNAL_H
#define RS_CHECKPOINT_CONVERT_JOURNAL_H

#include "base/file.h"
#include "checkpoint/engine/ledger.h"

#define RS_JOURNAL_NAME ".reshard-journal"

typedef struct rs_journal {
    reshard_context *context;
    rs_file *file;         /* NULL: there is none */
    uint64_t bytes;        /* that count; what is added goes behind them */
    uint64_t thread_bytes; /* that its blocks are cut for; 0 until known */
    char *text;            /* as found */
    size_t text_bytes;
} rs_journal;

/* A new one; nobody else may open it until it is closed. close in any case. */
reshard_status rs_journal_create(rs_journal *journal, reshard_context *context, const char *path);
/* That of an earlier run; `folder` is what error texts call the place. close in any case. Errors:
 * NOT_FOUND; INVALID when it is not that of this conversion. */
reshard_status rs_journal_open(rs_journal *journal, reshard_context *context, const char *path,
                               const char *folder, const uint64_t digest[2]);
void rs_journal_close(rs_journal *journal);

/* Writes the head, unless an earlier run did. */
reshard_status rs_journal_begin(rs_journal *journal, const uint64_t digest[2],
                                uint64_t thread_bytes);
/* Recalls the blocks that an earlier run recorded. */
void rs_journal_recall(const rs_journal *journal, rs_ledger *ledger);
/* Records what the ledger has noted, and makes the journal durable. */
reshard_status rs_journal_record(rs_journal *journal, rs_ledger *ledger, bool sync);

#endif
