/* SPDX-License-Identifier: Apache-2.0 */
/* journal_text.c - prints and reads the lines of journals. */
#include "checkpoint/store/journal_text.h"

#include "base/context.h"
#include "base/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define JOURNAL_VERSION "reshard conversion 3\n"
#define JOURNAL_BYTES_MAX ((size_t)1 << 30)

enum { LINE_BYTES = RS_JOURNAL_LINE_BYTES };

/* ---- lines ----------------------------------------------------------------------------------- */

int rs_journal_print_head(char line[LINE_BYTES], const rs_journal_head *head)
{
    return snprintf(line, LINE_BYTES, JOURNAL_VERSION "%016" PRIx64 "%016" PRIx64 " %" PRIu64 "\n",
                    head->digest[0], head->digest[1], head->thread_bytes);
}

int rs_journal_print_run(char line[LINE_BYTES], uint64_t nonce)
{
    return snprintf(line, LINE_BYTES, "run %016" PRIx64 "\n", nonce);
}

int rs_journal_print_done(char line[LINE_BYTES], int64_t first, int64_t count)
{
    return snprintf(line, LINE_BYTES, "done %" PRId64 " %" PRId64 "\n", first, count);
}

int rs_journal_print_blocks_done(char line[LINE_BYTES], int64_t count)
{
    return snprintf(line, LINE_BYTES, "blocks done %" PRId64 "\n", count);
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
    int length = rs_journal_print_head(printed, head);
    return begins_with(text, printed) && head->thread_bytes != 0 ? (size_t)length : 0;
}

bool rs_journal_scan_done(const char *line, int64_t *first, int64_t *count)
{
    char printed[LINE_BYTES];
    if (sscanf(line, "done %18" SCNd64 " %18" SCNd64, first, count) != 2)
        return false;
    (void)rs_journal_print_done(printed, *first, *count);
    return begins_with(line, printed);
}

static bool scan_blocks_done(const char *line, int64_t *count)
{
    char printed[LINE_BYTES];
    if (sscanf(line, "blocks done %18" SCNd64, count) != 1)
        return false;
    (void)rs_journal_print_blocks_done(printed, *count);
    return begins_with(line, printed);
}

static bool scan_run(const char *line, uint64_t *nonce)
{
    char printed[LINE_BYTES];
    if (sscanf(line, "run %16" SCNx64, nonce) != 1)
        return false;
    (void)rs_journal_print_run(printed, *nonce);
    return begins_with(line, printed);
}

/* Reads the lines after the head. Returns false if one of them is not ours. */
static bool scan_lines(const char *line, rs_journal_state *state)
{
    int64_t first, count;
    uint64_t done = 0; /* wraps around only if the journal lies, and then equals nothing */
    for (; *line != '\0'; line = strchr(line, '\n') + 1) {
        if (begins_with(line, RS_JOURNAL_FINISHED))
            state->finished = state->blocks_done;
        else if (rs_journal_scan_done(line, &first, &count))
            done += (uint64_t)count;
        else if (scan_blocks_done(line, &count))
            state->blocks_done = done == (uint64_t)count;
        else if (!scan_run(line, &state->nonce))
            return false;
    }
    return true;
}

/* ---- the whole ------------------------------------------------------------------------------- */

reshard_status rs_journal_text_read(rs_journal_text *text, reshard_context *context,
                                    const rs_file *file, const char *folder)
{
    uint64_t size = 0;
    *text = (rs_journal_text){.context = context};
    reshard_status status = rs_file_size(file, &size);
    if (status == RESHARD_OK && size > JOURNAL_BYTES_MAX)
        status = rs_fail_about(RESHARD_ERR_CORRUPT, folder, "the journal is too long");
    if (status != RESHARD_OK)
        return status;
    text->lines = rs_allocate(context, (size_t)size + 1);
    if (text->lines == NULL)
        return rs_allocation_status();
    status = rs_file_read(file, text->lines, (size_t)size, 0);
    if (status != RESHARD_OK)
        return status;
    text->lines[size] = '\0';
    /* An incomplete end that a crash left, which may be zeros, does not count. */
    char *end = strrchr(text->lines, '\n');
    *(end != NULL ? end + 1 : text->lines) = '\0';
    size_t head = scan_head(text->lines, &text->head);
    if (head == 0 || !scan_lines(text->lines + head, &text->state))
        return rs_fail_about(RESHARD_ERR_INVALID, folder,
                             "has a journal that this release of reshard did not write; remove the "
                             "folder");
    return RESHARD_OK;
}

void rs_journal_text_release(rs_journal_text *text)
{
    rs_release(text->context, text->lines);
    *text = (rs_journal_text){.context = text->context};
}

reshard_status rs_journal_peek(reshard_context *context, const char *folder,
                               rs_journal_state *out_state)
{
    rs_journal_text text = {.context = context};
    rs_file *file = NULL;
    char *path = rs_path_join(context, folder, RS_JOURNAL_NAME);
    if (path == NULL)
        return rs_allocation_status();
    reshard_status status = rs_file_open(context, path, &file);
    rs_release(context, path);
    if (status == RESHARD_OK)
        status = rs_journal_text_read(&text, context, file, folder);
    if (status == RESHARD_OK)
        *out_state = text.state;
    rs_journal_text_release(&text);
    rs_file_close(file);
    return status;
}
