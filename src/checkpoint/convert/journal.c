/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/convert/journal.h"

#include "base/context.h"
#include "base/error.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define JOURNAL_HEAD "reshard conversion 1\n"
#define JOURNAL_BYTES_MAX ((size_t)1 << 30)

reshard_status rs_journal_create(rs_journal *journal, reshard_context *context, const char *path)
{
    *journal = (rs_journal){.context = context};
    reshard_status status = rs_file_create(context, path, &journal->file);
    return status == RESHARD_OK ? rs_file_lock(journal->file) : status;
}

void rs_journal_close(rs_journal *journal)
{
    rs_file_close(journal->file);
    rs_release(journal->context, journal->text, journal->text_bytes);
    *journal = (rs_journal){.context = journal->context};
}

/* ---- what an earlier run left ---------------------------------------------------------------- */

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
    journal->text[size] = '\0';
    /* What a crash cut off does not count, and is written over. */
    char *end = status == RESHARD_OK ? strrchr(journal->text, '\n') : NULL;
    *(end != NULL ? end + 1 : journal->text) = '\0';
    /* That goes for a head without its second line, too. */
    if (strcmp(journal->text, JOURNAL_HEAD) == 0)
        journal->text[0] = '\0';
    journal->bytes = strlen(journal->text);
    return status;
}

/* Does the journal belong to this conversion? An empty one does: that run never began. */
static reshard_status check_head(rs_journal *journal, const char *folder, const uint64_t digest[2])
{
    uint64_t found[2], thread_bytes = 0;
    size_t head = strlen(JOURNAL_HEAD);
    if (journal->bytes == 0)
        return RESHARD_OK;
    if (strncmp(journal->text, JOURNAL_HEAD, head) != 0 ||
        sscanf(journal->text + head, "%16" SCNx64 "%16" SCNx64 " %" SCNu64 "\n", &found[0],
               &found[1], &thread_bytes) != 3)
        return rs_fail(RESHARD_ERR_INVALID, "%s: has a journal that is not ours; remove the folder",
                       folder);
    if (found[0] != digest[0] || found[1] != digest[1])
        return rs_fail(RESHARD_ERR_INVALID,
                       "%s: is of another conversion, or the source or the options have changed "
                       "since; remove it",
                       folder);
    journal->thread_bytes = thread_bytes;
    return RESHARD_OK;
}

reshard_status rs_journal_open(rs_journal *journal, reshard_context *context, const char *path,
                               const char *folder, const uint64_t digest[2])
{
    *journal = (rs_journal){.context = context};
    reshard_status status = rs_file_open_write(context, path, &journal->file);
    if (status == RESHARD_OK)
        status = rs_file_lock(journal->file);
    if (status == RESHARD_OK)
        status = read_text(journal, folder);
    return status == RESHARD_OK ? check_head(journal, folder, digest) : status;
}

void rs_journal_recall(const rs_journal *journal, rs_ledger *ledger)
{
    const char *line = journal->text;
    while (line != NULL && *line != '\0') {
        int64_t first = 0, count = 0;
        if (sscanf(line, "done %" SCNd64 " %" SCNd64 "\n", &first, &count) == 2 && first >= 0 &&
            count >= 0 && first <= ledger->count && count <= ledger->count - first)
            rs_ledger_recall(ledger, first, count);
        line = strchr(line, '\n');
        line = line != NULL ? line + 1 : NULL;
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

reshard_status rs_journal_begin(rs_journal *journal, const uint64_t digest[2],
                                uint64_t thread_bytes)
{
    char head[160];
    if (journal->bytes != 0)
        return RESHARD_OK;
    int length = snprintf(head, sizeof head, "%s%016" PRIx64 "%016" PRIx64 " %" PRIu64 "\n",
                          JOURNAL_HEAD, digest[0], digest[1], thread_bytes);
    journal->thread_bytes = thread_bytes;
    return append(journal, head, (size_t)length);
}

reshard_status rs_journal_record(rs_journal *journal, rs_ledger *ledger, bool sync)
{
    assert(journal->bytes != 0);
    reshard_status status = RESHARD_OK;
    bool any = false;
    for (int64_t first = 0, count = 0;
         status == RESHARD_OK && rs_ledger_record(ledger, &first, &count); first += count) {
        char line[64];
        int length = snprintf(line, sizeof line, "done %" PRId64 " %" PRId64 "\n", first, count);
        status = append(journal, line, (size_t)length);
        any = true;
    }
    return status == RESHARD_OK && any && sync ? rs_file_sync(journal->file) : status;
}
