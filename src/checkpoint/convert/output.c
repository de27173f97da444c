/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/convert/output.h"

#include "base/context.h"
#include "base/error.h"

#include <assert.h>
#include <string.h>

static void release_path(reshard_context *context, char *path)
{
    if (path != NULL)
        rs_release(context, path, strlen(path) + 1);
}

static reshard_status make_paths(rs_output *output, const char *target)
{
    size_t length = strlen(target);
    while (length > 1 && target[length - 1] == '/')
        length--;
    output->target = rs_allocate_zeroed(output->context, length + 1);
    output->path = rs_allocate(output->context, length + sizeof ".partial");
    if (output->target != NULL)
        memcpy(output->target, target, length);
    if (output->path != NULL) {
        memcpy(output->path, target, length);
        memcpy(output->path + length, ".partial", sizeof ".partial");
    }
    return output->target != NULL && output->path != NULL ? RESHARD_OK : rs_allocation_status();
}

reshard_status rs_output_is_complete(reshard_context *context, const char *target, bool *out_is)
{
    rs_path_kind kind = RS_PATH_NONE;
    char *path = rs_path_join(context, target, RS_JOURNAL_NAME);
    if (path == NULL)
        return rs_allocation_status();
    reshard_status status = rs_path_kind_of(path, &kind);
    release_path(context, path);
    *out_is = status == RESHARD_OK && kind == RS_PATH_FILE;
    return status;
}

/* ---- the folder ------------------------------------------------------------------------------ */

/* A folder without a journal is ours if there is nothing in it: a conversion that was interrupted
 * between the two left it so. */
static reshard_status check_empty(const rs_output *output)
{
    rs_names names = {.context = output->context};
    reshard_status status = rs_folder_list(output->context, output->path, &names);
    if (status == RESHARD_OK && names.count != 0)
        status = rs_fail(RESHARD_ERR_INVALID,
                         "%s: is not a folder that a conversion left (it has no journal); remove "
                         "it",
                         output->path);
    rs_names_release(&names);
    return status;
}

static reshard_status take_over(rs_output *output, const char *journal, const uint64_t digest[2])
{
    if (!output->complete && !rs_folder_is_private(output->path))
        return rs_fail(RESHARD_ERR_INVALID,
                       "%s: is not a folder that a conversion of this user left; remove it",
                       output->path);
    reshard_status status =
        rs_journal_open(&output->journal, output->context, journal, output->path, digest);
    output->resumed = status == RESHARD_OK;
    if (status != RESHARD_ERR_NOT_FOUND)
        return status;
    status = check_empty(output);
    return status == RESHARD_OK ? rs_journal_create(&output->journal, output->context, journal)
                                : status;
}

static reshard_status make_folder(rs_output *output, const char *journal)
{
    reshard_status status = rs_folder_create(output->context, output->path);
    return status == RESHARD_OK ? rs_journal_create(&output->journal, output->context, journal)
                                : status;
}

reshard_status rs_output_create(rs_output *output, reshard_context *context, const char *target,
                                const uint64_t digest[2], bool resume)
{
    rs_path_kind kind = RS_PATH_NONE;
    reshard_status status = rs_output_enter(output, context, target);
    if (status == RESHARD_OK && resume)
        status = rs_output_is_complete(context, output->target, &output->complete);
    if (status == RESHARD_OK)
        status = rs_path_kind_of(output->path, &kind);
    if (status != RESHARD_OK)
        return status;
    if (!output->complete && kind != RS_PATH_NONE && !resume)
        return rs_fail(RESHARD_ERR_UNFINISHED,
                       "%s: exists, left by a conversion that was interrupted; resume it, or "
                       "remove it",
                       output->path);
    char *journal =
        rs_path_join(context, output->complete ? output->target : output->path, RS_JOURNAL_NAME);
    if (journal == NULL)
        return rs_allocation_status();
    if (output->complete)
        status = rs_fail_within(take_over(output, journal, digest), "%s: exists already", target);
    else
        status = kind != RS_PATH_NONE ? take_over(output, journal, digest)
                                      : make_folder(output, journal);
    release_path(context, journal);
    return status;
}

reshard_status rs_output_enter(rs_output *output, reshard_context *context, const char *target)
{
    *output = (rs_output){.context = context, .journal.context = context};
    return make_paths(output, target);
}

void rs_output_discard(rs_output *output)
{
    char *journal =
        output->path != NULL ? rs_path_join(output->context, output->path, RS_JOURNAL_NAME) : NULL;
    if (journal == NULL)
        return;
    rs_journal_close(&output->journal);
    (void)rs_path_remove(output->context, journal);
    (void)rs_folder_remove(output->context, output->path);
    release_path(output->context, journal);
}

void rs_output_release(rs_output *output)
{
    rs_journal_close(&output->journal);
    release_path(output->context, output->target);
    release_path(output->context, output->path);
    *output = (rs_output){0};
}

/* ---- files ----------------------------------------------------------------------------------- */

/* What an earlier run left of a file. NOT_FOUND: nothing. */
static reshard_status take_file(const rs_output *output, const char *path, rs_file **out_file)
{
    rs_file *file = NULL;
    if (!output->resumed)
        return RESHARD_ERR_NOT_FOUND;
    reshard_status status = rs_file_open_write(output->context, path, &file);
    if (status == RESHARD_OK && rs_file_has_links(file)) {
        /* A link to the source, which must not be written. */
        rs_file_close(file);
        status = rs_path_remove(output->context, path);
        return status == RESHARD_OK ? RESHARD_ERR_NOT_FOUND : status;
    }
    if (status == RESHARD_OK)
        *out_file = file;
    return status;
}

reshard_status rs_output_file(const rs_output *output, const char *name, uint64_t bytes, bool begun,
                              const rs_file *like, rs_file **out_file)
{
    rs_file *file = NULL;
    uint64_t size = 0;
    char *path = rs_path_join(output->context, output->path, name);
    if (path == NULL)
        return rs_allocation_status();
    reshard_status status = take_file(output, path, &file);
    if (status == RESHARD_OK)
        status = rs_file_size(file, &size);
    if (begun && (status == RESHARD_ERR_NOT_FOUND || (status == RESHARD_OK && size != bytes)))
        status = rs_fail(RESHARD_ERR_INVALID,
                         "%s: is not as the interrupted conversion left it; remove %s", path,
                         output->path);
    else if (status == RESHARD_ERR_NOT_FOUND)
        status = rs_file_create(output->context, path, &file);
    release_path(output->context, path);
    if (status == RESHARD_OK && size != bytes)
        status = rs_file_resize(file, bytes, like == NULL || !rs_file_try_share(like, file));
    if (status == RESHARD_OK)
        *out_file = file;
    else
        rs_file_close(file);
    return status;
}

reshard_status rs_output_open_file(const rs_output *output, const char *name, rs_file **out_file)
{
    reshard_context *context = output->context;
    rs_file *file = NULL;
    char *path = rs_path_join(context, output->path, name);
    if (path == NULL)
        return rs_allocation_status();
    reshard_status status = rs_file_open_write(context, path, &file);
    if (status == RESHARD_OK && rs_file_has_links(file)) {
        /* What the source shares is not written. */
        rs_file_close(file);
        file = NULL;
        status = rs_file_open(context, path, &file);
    }
    release_path(context, path);
    if (status == RESHARD_OK)
        *out_file = file;
    return status;
}

reshard_status rs_output_link(const rs_output *output, const char *name, const rs_file *source,
                              rs_file **out_file)
{
    reshard_context *context = output->context;
    reshard_status status = RESHARD_OK;
    char *path = rs_path_join(context, output->path, name);
    if (path == NULL)
        return rs_allocation_status();
    (void)rs_path_remove(context, path); /* what an earlier run may have left */
    /* Opened for reading: what the source shares is not written, and verify reads it. */
    if (rs_path_link(context, rs_file_path(source), path) == RESHARD_OK)
        status = rs_file_open(context, path, out_file);
    release_path(context, path);
    return status;
}

/* ---- the name -------------------------------------------------------------------------------- */

/* The journal goes last: until then a later run can go on, whatever name the folder has. A removal
 * that a crash takes back leaves a whole target, so there is no need to wait for it. */
static reshard_status give_name(const rs_output *output, const char *parent, const char *journal,
                                bool sync)
{
    reshard_context *context = output->context;
    reshard_status status = RESHARD_OK;
    if (sync && !output->complete)
        status = rs_folder_sync(context, output->path);
    if (status == RESHARD_OK && !output->complete)
        status = rs_path_rename(context, output->path, output->target);
    if (status == RESHARD_OK && sync)
        status = rs_folder_sync(context, parent);
    if (status == RESHARD_OK)
        status = rs_folder_publish(context, output->target);
    if (status == RESHARD_OK)
        status = rs_path_remove(context, journal);
    if (status == RESHARD_OK && sync)
        (void)rs_folder_sync(context, output->target);
    return status;
}

reshard_status rs_output_publish(rs_output *output, bool sync)
{
    assert(output->path != NULL && output->target != NULL);
    /* All memory first, so that nothing can be missing once the name is given. */
    char *parent = rs_path_parent(output->context, output->target);
    char *journal =
        parent != NULL ? rs_path_join(output->context, output->target, RS_JOURNAL_NAME) : NULL;
    reshard_status status =
        journal != NULL ? give_name(output, parent, journal, sync) : rs_allocation_status();
    release_path(output->context, journal);
    release_path(output->context, parent);
    return status;
}
