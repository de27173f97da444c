/* SPDX-License-Identifier: Apache-2.0 */
/*
 * journal_text.h - the text of a journal, which records what a conversion or a save has on disk.
 * Those who write a folder keep it (convert/journal.h), and those who read one ask it whether the
 * folder is complete.
 *
 *     reshard conversion 3
 *     <digest of the conversion, 32 hex digits> <bytes of memory that its blocks are cut for>
 *     run <nonce, 16 hex digits>     a process has begun to work here
 *     done <first> <count>           these blocks are on disk
 *     blocks done <count>            all blocks are; files beside those of tensors may follow
 *     finished                       everything is on disk, under its name in the folder
 *
 *  1. Lines are only appended. A last line without a newline was cut off by a crash and does not
 *     count.
 *  2. "blocks done" counts only if the lines before it name as many blocks, and "finished" only
 *     after a "blocks done" that counts.
 */
#ifndef RS_CHECKPOINT_STORE_JOURNAL_TEXT_H
#define RS_CHECKPOINT_STORE_JOURNAL_TEXT_H

#include "system/file.h"

#include <stdint.h>

#define RS_JOURNAL_NAME ".reshard-journal"
#define RS_JOURNAL_FINISHED "finished\n"

enum { RS_JOURNAL_LINE_BYTES = 128 };

typedef struct rs_journal_head {
    uint64_t digest[2];    /* of everything that decides what is written */
    uint64_t thread_bytes; /* for which blocks are cut; not 0 */
} rs_journal_head;

/* What all lines together say. */
typedef struct rs_journal_state {
    uint64_t nonce; /* of the last run */
    bool blocks_done, finished;
} rs_journal_state;

typedef struct rs_journal_text {
    reshard_context *context;
    char *lines; /* the complete ones, head included; a NUL follows */
    rs_journal_head head;
    rs_journal_state state;
} rs_journal_text;

/* Print a line, or the two of the head. They return its length. */
int rs_journal_print_head(char line[RS_JOURNAL_LINE_BYTES], const rs_journal_head *head);
int rs_journal_print_run(char line[RS_JOURNAL_LINE_BYTES], uint64_t nonce);
int rs_journal_print_done(char line[RS_JOURNAL_LINE_BYTES], int64_t first, int64_t count);
int rs_journal_print_blocks_done(char line[RS_JOURNAL_LINE_BYTES], int64_t count);
/* Whether a line says that blocks are done, and which. */
bool rs_journal_scan_done(const char *line, int64_t *first, int64_t *count);

/* Reads all of a journal. Release in any case. Errors: INVALID if it is not ours. */
reshard_status rs_journal_text_read(rs_journal_text *text, reshard_context *context,
                                    const rs_file *file, const char *folder);
void rs_journal_text_release(rs_journal_text *text);

/* Reads the journal of a folder. Errors: NOT_FOUND if there is none; INVALID if it is not ours. */
reshard_status rs_journal_peek(reshard_context *context, const char *folder,
                               rs_journal_state *out_state);

#endif
