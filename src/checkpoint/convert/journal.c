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

#define JOURNAL_VERSION "reshard conversion 2\n"
#define BLOCKS_DONE "blocks done\n"
#define FINISHED "finished\n"
#define JOURNAL_BYTES_MAX ((size_t)1 << 30)

enum { LINE_BYTES = 128 };

/* ---- lines ----------------------------------------------------------------------------------- */

static int print_head(char text[LINE_BYTES], const rs_journal_head *head)
{
    return snprintf(text, LINE_BYTES, JOURNAL_VERSION "%016" PRIx64 "%016" PRIx64 " %" PRIu64 "\n",
                    head->digest[0], head->digest[1], head->thread_bytes);
}

static int print_run(char line[LINE_BYTES], uint64_t nonce)
{
    return snprintf(line, LINE_BYTES, "run %016" PRIx64 "\n", nonce);
}

static int print_done(char line[LINE_BYTES], int64_t first, int64_t count)
{
    return snprintf(line, LINE_BYTES, "done %" PRId64 " %" PRId64 "\n", first, count);
}

/* A scanned line counts only if printing its values gives exactly the same text. */
static bool begins_with(const char *text, const char *printed)
{
    return strncmp(text, printed, strlen(printed)) == 0;
}

/* The length of the head; 0 if there is none. */
static size_t scan_head(const char *text, rs_journal_head *head)
{
    char printed[LINE_BYTES];
    if (!begins_with(text, JOURNAL_VERSION) ||
        sscanf(text + strlen(JOURNAL_VERSION), "%16" SCNx64 "%16" SCNx64 " %19" SCNu64,
               &head->digest[0], &head->digest[1], &head->thread_bytes) != 3)
        return 0;
    int length = print_head(printed, head);
    return begins_with(text, printed) && head->thread_bytes != 0 ? (size_t)length : 0;
}

static bool scan_done(const char *line, int64_t *first, int64_t *count)
{
    char printed[LINE_BYTES];
    if (sscanf(line, "done %18" SCNd64 " %18" SCNd64, first, count) != 2)
        return false;
    (void)print_done(printed, *first, *count);
    return begins_with(line, printed);
}

static bool scan_run(const char *line, uint64_t *nonce)
{
    char printed[LINE_BYTES];
    if (sscanf(line, "run %16" SCNx64, nonce) != 1)
        return false;
    (void)print_run(printed, *nonce);
    return begins_with(line, printed);
}

/* Reads the whole lines after the head. Returns false if one of them is not ours. */
static bool scan_lines(const char *line, rs_journal_state *state)
{
    int64_t first, count;
    for (; *line != '\0'; line = strchr(line, '\n') + 1) {
        if (begins_with(line, FINISHED))
            state->finished = true;
        else if (begins_with(line, BLOCKS_DONE))
            state->blocks_done = true;
        else if (!scan_run(line, &state->nonce) && !scan_done(line, &first, &count))
            return false;
    }
    return true;
}

/* ---- what an earlier run left ---------------------------------------------------------------- */

/* Reads all of it. An incomplete end that a crash left, which may be zeros, does not count. */
static reshard_status read_text(rs_journal *journal, const char *folder)
{
    uint64_t size = 0;
    reshard_status status = rs_file_size(journal->file, &size);
    if (status == RESHARD_OK && size > JOURNAL_BYTES_MAX)
        status = rs_fail(RESHARD_ERR_CORRUPT, "%s: the journal is too long", folder);
    if (status != RESHARD_OK)
        return status;
    journal->text_bytes = (size_t)size + 1;
    journal->text = rs_allocate(journal->context, journal->text_bytes);
    if (journal->text == NULL)
        return rs_allocation_status();
    status = rs_file_read(journal->file, journal->text, (size_t)size, 0);
    if (status != RESHARD_OK)
        return status;
    journal->text[size] = '\0';
    char *end = strrchr(journal->text, '\n');
    *(end != NULL ? end + 1 : journal->text) = '\0';
    journal->bytes = strlen(journal->text);
    size_t head = scan_head(journal->text, &journal->head);
    if (head == 0 || !scan_lines(journal->text + head, &journal->state))
        return rs_fail(RESHARD_ERR_INVALID,
                       "%s: has a journal that this release of reshard did not write; remove the "
                       "folder",
                       folder);
    return RESHARD_OK;
}

static reshard_status open_text(rs_journal *journal, reshard_context *context, const char *folder,
                                bool for_writing)
{
    *journal = (rs_journal){.context = context};
    char *path = rs_path_join(context, folder, RS_JOURNAL_NAME);
    if (path == NULL)
        return rs_allocation_status();
    reshard_status status = for_writing ? rs_file_open_write(context, path, &journal->file)
                                        : rs_file_open(context, path, &journal->file);
    rs_release(context, path, strlen(path) + 1);
    if (status == RESHARD_OK && for_writing)
        status = rs_file_lock(journal->file);
    return status == RESHARD_OK ? read_text(journal, folder) : status;
}

reshard_status rs_journal_peek(reshard_context *context, const char *folder,
                               rs_journal_state *out_state)
{
    rs_journal journal;
    reshard_status status = open_text(&journal, context, folder, false);
    if (status == RESHARD_OK)
        *out_state = journal.state;
    rs_journal_close(&journal);
    return status;
}

reshard_status rs_journal_check_idle(reshard_context *context, const char *folder)
{
    rs_file *file = NULL;
    char *path = rs_path_join(context, folder, RS_JOURNAL_NAME);
    if (path == NULL)
        return rs_allocation_status();
    reshard_status status = rs_file_open(context, path, &file);
    rs_release(context, path, strlen(path) + 1);
    if (status == RESHARD_OK)
        status = rs_file_lock(file); /* closing releases the lock */
    rs_file_close(file);
    return status == RESHARD_ERR_NOT_FOUND ? RESHARD_OK : status;
}

void rs_journal_recall(const rs_journal *journal, rs_ledger *ledger)
{
    int64_t first, count;
    for (const char *line = journal->text; line != NULL && *line != '\0';
         line = strchr(line, '\n') + 1) {
        if (scan_done(line, &first, &count) && first >= 0 && count >= 0 && first <= ledger->count &&
            count <= ledger->count - first)
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
    reshard_status status = append(journal, line, (size_t)print_run(line, nonce));
    journal->state.nonce = nonce;
    /* Sync in any case: other ranks, maybe on other machines, are about to read this. */
    return status == RESHARD_OK ? rs_file_sync(journal->file) : status;
}

reshard_status rs_journal_create(rs_journal *journal, reshard_context *context, const char *folder,
                                 const rs_journal_head *head)
{
    assert(head->thread_bytes != 0);
    char text[LINE_BYTES];
    *journal = (rs_journal){.context = context, .head = *head};
    char *path = rs_path_join(context, folder, RS_JOURNAL_NAME);
    char *new_path = path != NULL ? rs_path_join(context, folder, RS_JOURNAL_NEW_NAME) : NULL;
    reshard_status status = new_path != NULL ? rs_file_create(context, new_path, &journal->file)
                                             : rs_allocation_status();
    if (status == RESHARD_OK)
        status = rs_file_lock(journal->file);
    if (status == RESHARD_OK)
        status = append(journal, text, (size_t)print_head(text, head));
    if (status == RESHARD_OK)
        status = append_run(journal);
    if (status == RESHARD_OK)
        status = rs_path_rename(context, new_path, path);
    if (new_path != NULL)
        rs_release(context, new_path, strlen(new_path) + 1);
    if (path != NULL)
        rs_release(context, path, strlen(path) + 1);
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
    reshard_status status = open_text(journal, context, folder, true);
    if (status != RESHARD_OK)
        return status;
    const uint64_t *found = journal->head.digest;
    if (found[0] != head->digest[0] || found[1] != head->digest[1])
        return rs_fail(RESHARD_ERR_INVALID,
                       "%s: is of another conversion, or the source or the options have changed "
                       "since; remove it",
                       folder);
    status = cut_off(journal);
    return status == RESHARD_OK ? append_run(journal) : status;
}

void rs_journal_close(rs_journal *journal)
{
    rs_file_close(journal->file);
    rs_release(journal->context, journal->text, journal->text_bytes);
    *journal = (rs_journal){.context = journal->context};
}

reshard_status rs_journal_record(rs_journal *journal, rs_ledger *ledger, bool sync)
{
    assert(journal->bytes != 0);
    reshard_status status = RESHARD_OK;
    bool any = false;
    for (int64_t first = 0, count = 0;
         status == RESHARD_OK && rs_ledger_record(ledger, &first, &count); first += count) {
        char line[LINE_BYTES];
        status = append(journal, line, (size_t)print_done(line, first, count));
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

reshard_status rs_journal_end_blocks(rs_journal *journal, bool sync)
{
    return append_mark(journal, BLOCKS_DONE, &journal->state.blocks_done, sync);
}

reshard_status rs_journal_finish(rs_journal *journal, bool sync)
{
    return append_mark(journal, FINISHED, &journal->state.finished, sync);
}
