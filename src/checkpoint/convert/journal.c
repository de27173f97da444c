/* SPDX-License-Identifier: Apache-2.0 */
/* journal.c - writes the journal line by line, and reads that of an earlier run. */
#include "checkpoint/convert/journal.h"

#include "base/context.h"
#include "base/digest.h"
#include "base/error.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LINE_BYTES = RS_JOURNAL_LINE_BYTES };

static reshard_status lock(rs_file *file, const char *folder)
{
    reshard_status status = rs_file_lock(file);
    return status == RESHARD_OK
               ? status
               : rs_fail_about(
                     status, folder,
                     "another process is at work here; wait until it is done, or stop it");
}

/* ---- what an earlier run left ---------------------------------------------------------------- */

/* Opens the journal for writing, and reads what is in it. */
static reshard_status open_text(rs_journal *journal, reshard_context *context, const char *folder)
{
    *journal = (rs_journal){.context = context, .found.context = context};
    char *path = rs_path_join(context, folder, RS_JOURNAL_NAME);
    if (path == NULL)
        return rs_allocation_status();
    reshard_status status = rs_file_open_write(context, path, &journal->file);
    rs_release(context, path);
    if (status == RESHARD_OK)
        status = lock(journal->file, folder);
    if (status == RESHARD_OK)
        status = rs_journal_text_read(&journal->found, context, journal->file, folder);
    if (status != RESHARD_OK)
        return status;
    journal->bytes = strlen(journal->found.lines);
    journal->head = journal->found.head;
    journal->state = journal->found.state;
    return RESHARD_OK;
}

reshard_status rs_journal_check_idle(reshard_context *context, const char *folder)
{
    rs_file *file = NULL;
    char *path = rs_path_join(context, folder, RS_JOURNAL_NAME);
    if (path == NULL)
        return rs_allocation_status();
    reshard_status status = rs_file_open(context, path, &file);
    rs_release(context, path);
    if (status == RESHARD_OK)
        status = lock(file, folder); /* closing releases the lock */
    rs_file_close(file);
    return status == RESHARD_ERR_NOT_FOUND ? RESHARD_OK : status;
}

void rs_journal_recall(const rs_journal *journal, rs_ledger *ledger)
{
    int64_t first, count;
    for (const char *line = journal->found.lines; line != NULL && *line != '\0';
         line = strchr(line, '\n') + 1) {
        if (rs_journal_scan_done(line, &first, &count) && first >= 0 && count >= 0 &&
            first <= ledger->count && count <= ledger->count - first)
            rs_ledger_recall(ledger, first, count);
    }
}

/* ---- this run -------------------------------------------------------------------------------- */

static reshard_status append(rs_journal *journal, const char *line, size_t length)
{
    reshard_status status = rs_file_write(journal->file, line, length, journal->bytes);
    if (status == RESHARD_OK)
        journal->bytes += length;
    return status;
}

/* No two runs have the same nonce, so a rank that reads it knows whether it sees the folder of this
 * run, or one of the same name elsewhere. Time and process id are enough for that. */
static uint64_t make_nonce(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return rs_mix(rs_mix((uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec) ^
                  (uint64_t)getpid());
}

static reshard_status append_run(rs_journal *journal)
{
    char line[LINE_BYTES];
    uint64_t nonce = make_nonce();
    reshard_status status = append(journal, line, (size_t)rs_journal_print_run(line, nonce));
    journal->state.nonce = nonce;
    /* Sync in any case: other ranks, maybe on other machines, are about to read this. */
    return status == RESHARD_OK ? rs_file_sync(journal->file) : status;
}

reshard_status rs_journal_create(rs_journal *journal, reshard_context *context, const char *folder,
                                 const rs_journal_head *head)
{
    assert(head->thread_bytes != 0);
    char text[LINE_BYTES];
    *journal = (rs_journal){.context = context, .found.context = context, .head = *head};
    char *path = rs_path_join(context, folder, RS_JOURNAL_NAME);
    char *new_path = path != NULL ? rs_path_join(context, folder, RS_JOURNAL_NEW_NAME) : NULL;
    reshard_status status = new_path != NULL ? rs_file_create(context, new_path, &journal->file)
                                             : rs_allocation_status();
    if (status == RESHARD_OK)
        status = rs_file_lock(journal->file);
    if (status == RESHARD_OK)
        status = append(journal, text, (size_t)rs_journal_print_head(text, head));
    if (status == RESHARD_OK)
        status = append_run(journal);
    if (status == RESHARD_OK)
        status = rs_path_rename(context, new_path, path);
    rs_release(context, new_path);
    rs_release(context, path);
    return status;
}

/* Removes an incomplete end that a crash left, before anything is written in its place. */
static reshard_status cut_off(rs_journal *journal)
{
    uint64_t size = 0;
    reshard_status status = rs_file_size(journal->file, &size);
    if (status != RESHARD_OK || size == journal->bytes)
        return status;
    status = rs_file_resize(journal->file, journal->bytes, false);
    return status != RESHARD_OK ? status : rs_file_sync(journal->file);
}

reshard_status rs_journal_open(rs_journal *journal, reshard_context *context, const char *folder,
                               const rs_journal_head *head)
{
    reshard_status status = open_text(journal, context, folder);
    if (status != RESHARD_OK)
        return status;
    const uint64_t *found = journal->head.digest;
    if (found[0] != head->digest[0] || found[1] != head->digest[1])
        return rs_fail_about(RESHARD_ERR_INVALID, folder,
                             "belongs to another conversion, or the source or the options have "
                             "changed since; remove it");
    status = cut_off(journal);
    return status == RESHARD_OK ? append_run(journal) : status;
}

void rs_journal_close(rs_journal *journal)
{
    rs_file_close(journal->file);
    rs_journal_text_release(&journal->found);
    *journal = (rs_journal){.context = journal->context, .found.context = journal->context};
}

reshard_status rs_journal_record(rs_journal *journal, rs_ledger *ledger, bool sync)
{
    assert(journal->bytes != 0);
    reshard_status status = RESHARD_OK;
    bool any = false;
    for (int64_t first = 0, count = 0;
         status == RESHARD_OK && rs_ledger_record(ledger, &first, &count); first += count) {
        char line[LINE_BYTES];
        status = append(journal, line, (size_t)rs_journal_print_done(line, first, count));
        any = true;
    }
    return status == RESHARD_OK && any && sync ? rs_file_sync(journal->file) : status;
}

static reshard_status append_mark(rs_journal *journal, const char *line, bool *mark, bool sync)
{
    if (*mark)
        return RESHARD_OK;
    reshard_status status = append(journal, line, strlen(line));
    if (status == RESHARD_OK && sync)
        status = rs_file_sync(journal->file);
    *mark = status == RESHARD_OK;
    return status;
}

reshard_status rs_journal_end_blocks(rs_journal *journal, int64_t count, bool sync)
{
    char line[LINE_BYTES];
    (void)rs_journal_print_blocks_done(line, count);
    return append_mark(journal, line, &journal->state.blocks_done, sync);
}

reshard_status rs_journal_finish(rs_journal *journal, bool sync)
{
    assert(journal->state.blocks_done);
    return append_mark(journal, RS_JOURNAL_FINISHED, &journal->state.finished, sync);
}
