/* SPDX-License-Identifier: Apache-2.0 */
/* partial.c - the folder of a conversion under way. */
#include "checkpoint/convert/partial.h"

#include "base/context.h"
#include "base/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define JOURNAL_NAME ".reshard-journal"
#define JOURNAL_HEAD "reshard conversion 1\n"
#define JOURNAL_BYTES_MAX ((size_t)1 << 30)

enum { BLOCK_DONE = 1, BLOCK_NOTED = 2, BLOCK_RECORDED = 3 };

static reshard_status make_path(rs_partial *partial)
{
    size_t length = strlen(partial->target);
    while (length > 1 && partial->target[length - 1] == '/')
        length--;
    partial->path = rs_allocate(partial->context, length + sizeof ".partial");
    if (partial->path == NULL)
        return rs_allocation_status();
    memcpy(partial->path, partial->target, length);
    memcpy(partial->path + length, ".partial", sizeof ".partial");
    return RESHARD_OK;
}

static char *journal_path(const rs_partial *partial)
{
    return rs_path_join(partial->context, partial->complete ? partial->target : partial->path,
                        JOURNAL_NAME);
}

reshard_status rs_partial_is_complete(reshard_context *context, const char *target, bool *out_is)
{
    rs_path_kind kind = RS_PATH_NONE;
    char *path = rs_path_join(context, target, JOURNAL_NAME);
    if (path == NULL)
        return rs_allocation_status();
    reshard_status status = rs_path_kind_of(path, &kind);
    rs_release(context, path, strlen(path) + 1);
    *out_is = status == RESHARD_OK && kind == RS_PATH_FILE;
    return status;
}

static reshard_status open_journal(rs_partial *partial, bool create)
{
    char *path = journal_path(partial);
    if (path == NULL)
        return rs_allocation_status();
    reshard_status status = create ? rs_file_create(partial->context, path, &partial->journal)
                                   : rs_file_open_write(partial->context, path, &partial->journal);
    rs_release(partial->context, path, strlen(path) + 1);
    if (status == RESHARD_OK)
        status = rs_file_lock(partial->journal);
    return status;
}

/* ---- what an earlier run left ---------------------------------------------------------------- */

static reshard_status read_journal(rs_partial *partial)
{
    uint64_t size = 0;
    reshard_status status = rs_file_size(partial->journal, &size);
    if (status == RESHARD_OK && size > JOURNAL_BYTES_MAX)
        status = rs_fail(RESHARD_ERR_CORRUPT, "%s: the journal is too long", partial->path);
    if (status != RESHARD_OK)
        return status;
    partial->text_bytes = (size_t)size + 1;
    partial->text = rs_allocate(partial->context, partial->text_bytes);
    if (partial->text == NULL)
        return rs_allocation_status();
    status = rs_file_read(partial->journal, partial->text, (size_t)size, 0);
    partial->text[size] = '\0';
    /* What a crash cut off does not count, and is written over. */
    char *end = status == RESHARD_OK ? strrchr(partial->text, '\n') : NULL;
    if (end != NULL)
        end[1] = '\0';
    else
        partial->text[0] = '\0';
    partial->journal_bytes = strlen(partial->text);
    return status;
}

/* Is the journal of this conversion? An empty one is: it was interrupted before it began. */
static reshard_status check_journal(rs_partial *partial)
{
    uint64_t digest[2], thread_bytes = 0;
    size_t head = strlen(JOURNAL_HEAD);
    /* So is one that was cut off in its head. */
    if (strcmp(partial->text, JOURNAL_HEAD) == 0)
        partial->text[partial->journal_bytes = 0] = '\0';
    if (partial->text[0] == '\0')
        return RESHARD_OK;
    if (strncmp(partial->text, JOURNAL_HEAD, head) != 0 ||
        sscanf(partial->text + head, "%16" SCNx64 "%16" SCNx64 " %" SCNu64 "\n", &digest[0],
               &digest[1], &thread_bytes) != 3)
        return rs_fail(RESHARD_ERR_INVALID, "%s: has a journal that is not ours; remove the folder",
                       partial->path);
    if (digest[0] != partial->digest[0] || digest[1] != partial->digest[1])
        return rs_fail(RESHARD_ERR_INVALID,
                       "%s: is of another conversion, or the source or the options have changed "
                       "since; remove it",
                       partial->path);
    partial->thread_bytes = thread_bytes;
    return RESHARD_OK;
}

/* A folder without a journal is ours if there is nothing in it: a conversion that was interrupted
 * between the two left it so. */
static reshard_status begin_in_empty(rs_partial *partial)
{
    rs_names names = {.context = partial->context};
    reshard_status status = rs_folder_list(partial->context, partial->path, &names);
    if (status == RESHARD_OK && names.count != 0)
        status = rs_fail(RESHARD_ERR_INVALID,
                         "%s: is not a folder that a conversion left (it has no journal); remove "
                         "it",
                         partial->path);
    rs_names_release(&names);
    return status == RESHARD_OK ? open_journal(partial, true) : status;
}

static reshard_status take_over(rs_partial *partial)
{
    if (!partial->complete && !rs_folder_is_private(partial->path))
        return rs_fail(RESHARD_ERR_INVALID,
                       "%s: is not a folder that a conversion of this user left; remove it",
                       partial->path);
    reshard_status status = open_journal(partial, false);
    if (status == RESHARD_ERR_NOT_FOUND)
        return begin_in_empty(partial);
    if (status == RESHARD_OK)
        status = read_journal(partial);
    if (status == RESHARD_OK)
        status = check_journal(partial);
    partial->resumed = status == RESHARD_OK;
    return status;
}

reshard_status rs_partial_init(rs_partial *partial, reshard_context *context, const char *target,
                               const uint64_t digest[2], bool resume)
{
    rs_path_kind kind = RS_PATH_NONE;
    *partial = (rs_partial){.context = context, .target = target, .digest = {digest[0], digest[1]}};
    reshard_status status = make_path(partial);
    if (status == RESHARD_OK && resume)
        status = rs_partial_is_complete(context, target, &partial->complete);
    if (status == RESHARD_OK)
        status = rs_path_kind_of(partial->path, &kind);
    if (status != RESHARD_OK)
        return status;
    if (partial->complete)
        return rs_fail_within(take_over(partial), "%s: exists already", target);
    if (kind != RS_PATH_NONE && !resume)
        return rs_fail(RESHARD_ERR_INVALID,
                       "%s: exists, left by a conversion that was interrupted; --resume goes on "
                       "with it, or remove it",
                       partial->path);
    if (kind != RS_PATH_NONE)
        return take_over(partial);
    status = rs_folder_create(partial->context, partial->path);
    return status == RESHARD_OK ? open_journal(partial, true) : status;
}

reshard_status rs_partial_enter(rs_partial *partial, reshard_context *context, const char *target)
{
    *partial = (rs_partial){.context = context, .target = target};
    return make_path(partial);
}

void rs_partial_discard(rs_partial *partial)
{
    char *journal = partial->path != NULL ? journal_path(partial) : NULL;
    if (journal == NULL)
        return;
    rs_file_close(partial->journal);
    partial->journal = NULL;
    (void)rs_path_remove(partial->context, journal);
    (void)rs_folder_remove(partial->context, partial->path);
    rs_release(partial->context, journal, strlen(journal) + 1);
}

void rs_partial_release(rs_partial *partial)
{
    rs_file_close(partial->journal);
    if (partial->text != NULL)
        rs_release(partial->context, partial->text, partial->text_bytes);
    if (partial->path != NULL)
        rs_release(partial->context, partial->path, strlen(partial->path) + 1);
    *partial = (rs_partial){0};
}

/* ---- the journal ----------------------------------------------------------------------------- */

static reshard_status append(rs_partial *partial, const char *line, size_t length)
{
    reshard_status status = rs_file_write(partial->journal, line, length, partial->journal_bytes);
    if (status == RESHARD_OK)
        partial->journal_bytes += length;
    return status;
}

reshard_status rs_partial_begin(rs_partial *partial, uint64_t thread_bytes)
{
    char head[160];
    if (partial->journal_bytes != 0)
        return RESHARD_OK;
    int length = snprintf(head, sizeof head, "%s%016" PRIx64 "%016" PRIx64 " %" PRIu64 "\n",
                          JOURNAL_HEAD, partial->digest[0], partial->digest[1], thread_bytes);
    partial->thread_bytes = thread_bytes;
    return append(partial, head, (size_t)length);
}

int64_t rs_partial_recall(const rs_partial *partial, int64_t block_count, atomic_uchar *done)
{
    int64_t count = 0;
    const char *line = partial->text;
    while (line != NULL && *line != '\0') {
        int64_t first = 0, length = 0;
        if (sscanf(line, "done %" SCNd64 " %" SCNd64 "\n", &first, &length) == 2 && first >= 0 &&
            length >= 0 && first <= block_count && length <= block_count - first) {
            for (int64_t i = first; i < first + length; i++) {
                count += atomic_load(&done[i]) == 0;
                atomic_store(&done[i], BLOCK_RECORDED);
            }
        }
        line = strchr(line, '\n');
        line = line != NULL ? line + 1 : NULL;
    }
    return count;
}

reshard_status rs_partial_record(rs_partial *partial, int64_t block_count, atomic_uchar *done,
                                 bool sync)
{
    reshard_status status = RESHARD_OK;
    bool any = false;
    for (int64_t i = 0; status == RESHARD_OK && i < block_count;) {
        int64_t first = i;
        char line[64];
        while (i < block_count && atomic_load(&done[i]) == BLOCK_NOTED)
            atomic_store(&done[i++], BLOCK_RECORDED);
        if (i == first) {
            i++;
            continue;
        }
        any = true;
        int length =
            snprintf(line, sizeof line, "done %" PRId64 " %" PRId64 "\n", first, i - first);
        status = append(partial, line, (size_t)length);
    }
    return status == RESHARD_OK && any && sync ? rs_file_sync(partial->journal) : status;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* What an earlier run left of a file. NOT_FOUND: nothing. */
static reshard_status take_file(const rs_partial *partial, const char *path, rs_file **out_file)
{
    rs_file *file = NULL;
    if (!partial->resumed)
        return RESHARD_ERR_NOT_FOUND;
    reshard_status status = rs_file_open_write(partial->context, path, &file);
    if (status == RESHARD_OK && rs_file_has_links(file)) {
        /* A link to the source, which must not be written. */
        rs_file_close(file);
        status = rs_path_remove(partial->context, path);
        return status == RESHARD_OK ? RESHARD_ERR_NOT_FOUND : status;
    }
    if (status == RESHARD_OK)
        *out_file = file;
    return status;
}

reshard_status rs_partial_file(rs_partial *partial, const char *name, uint64_t bytes, bool begun,
                               const rs_file *like, rs_file **out_file)
{
    rs_file *file = NULL;
    uint64_t size = 0;
    char *path = rs_path_join(partial->context, partial->path, name);
    if (path == NULL)
        return rs_allocation_status();
    reshard_status status = take_file(partial, path, &file);
    if (status == RESHARD_OK)
        status = rs_file_size(file, &size);
    if (begun && (status == RESHARD_ERR_NOT_FOUND || (status == RESHARD_OK && size != bytes)))
        status = rs_fail(RESHARD_ERR_INVALID,
                         "%s: is not as the interrupted conversion left it; remove %s", path,
                         partial->path);
    else if (status == RESHARD_ERR_NOT_FOUND)
        status = rs_file_create(partial->context, path, &file);
    rs_release(partial->context, path, strlen(path) + 1);
    if (status == RESHARD_OK && size != bytes)
        status = rs_file_resize(file, bytes, like == NULL || !rs_file_try_share(like, file));
    if (status != RESHARD_OK) {
        rs_file_close(file);
        return status;
    }
    *out_file = file;
    return RESHARD_OK;
}

/* The journal goes last: until then, resume can go on, whatever name the folder has. A removal that
 * a crash takes back leaves a whole target, so that need not be waited for. */
static reshard_status give_name(const rs_partial *partial, const char *target, const char *parent,
                                const char *journal, bool sync)
{
    reshard_status status = RESHARD_OK;
    if (sync && !partial->complete)
        status = rs_folder_sync(partial->context, partial->path);
    if (status == RESHARD_OK && !partial->complete)
        status = rs_path_rename(partial->context, partial->path, target);
    if (status == RESHARD_OK && sync)
        status = rs_folder_sync(partial->context, parent);
    if (status == RESHARD_OK)
        status = rs_folder_publish(partial->context, target);
    if (status == RESHARD_OK)
        status = rs_path_remove(partial->context, journal);
    if (status == RESHARD_OK && sync)
        (void)rs_folder_sync(partial->context, target);
    return status;
}

reshard_status rs_partial_finish(rs_partial *partial, bool sync)
{
    reshard_context *context = partial->context;
    size_t length = strlen(partial->path) - strlen(".partial");
    char *parent = NULL, *journal = NULL;
    /* All memory first, so that nothing can be missing once the name is given. */
    char *target = rs_allocate(context, length + 1);
    if (target == NULL)
        return rs_allocation_status();
    memcpy(target, partial->path, length);
    target[length] = '\0';
    parent = rs_path_parent(context, target);
    journal = parent != NULL ? rs_path_join(context, target, JOURNAL_NAME) : NULL;
    reshard_status status = journal != NULL ? give_name(partial, target, parent, journal, sync)
                                            : rs_allocation_status();
    if (journal != NULL)
        rs_release(context, journal, strlen(journal) + 1);
    if (parent != NULL)
        rs_release(context, parent, strlen(parent) + 1);
    rs_release(context, target, length + 1);
    return status;
}
