/* SPDX-License-Identifier: Apache-2.0 */
/* output.c - creates or takes over the folder, its files and its final name. */
#include "checkpoint/convert/output.h"

#include "base/context.h"
#include "base/error.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Most folders inside of each other. */
#define DEPTH_MAX 8

/* ---- the folder ------------------------------------------------------------------------------ */

/* The target without slashes at its end, and with an ending. */
static char *copy_target(reshard_context *context, const char *target, const char *ending)
{
    size_t length = strlen(target), ending_bytes = strlen(ending) + 1;
    while (length > 1 && target[length - 1] == '/')
        length--;
    char *path = rs_allocate(context, length + ending_bytes);
    if (path != NULL) {
        memcpy(path, target, length);
        memcpy(path + length, ending, ending_bytes);
    }
    return path;
}

char *rs_output_partial(reshard_context *context, const char *target)
{
    return copy_target(context, target, ".partial");
}

static reshard_status enter(rs_output *output, reshard_context *context, const char *target,
                            const char *one_file, bool named)
{
    *output = (rs_output){.context = context,
                          .journal.context = context,
                          .names.context = context,
                          .one_file = one_file,
                          .named = named};
    output->target = copy_target(context, target, "");
    output->path = named && one_file == NULL ? copy_target(context, target, "")
                                             : rs_output_partial(context, target);
    return output->target != NULL && output->path != NULL ? RESHARD_OK : rs_allocation_status();
}

/* Whether a file has its final name, and only its folder is left to be removed. */
static reshard_status look_at_file(reshard_context *context, const char *target,
                                   rs_output_kind *out_kind)
{
    rs_names names = {.context = context};
    rs_path_kind kind = RS_PATH_NONE;
    rs_journal_state state = {.finished = false};
    char *partial = rs_output_partial(context, target);
    reshard_status status =
        partial != NULL ? rs_path_kind_of(partial, &kind) : rs_allocation_status();
    *out_kind = RS_OUTPUT_OTHER;
    if (status == RESHARD_OK && kind == RS_PATH_FOLDER)
        status = rs_journal_peek(context, partial, &state);
    if (status == RESHARD_OK && state.finished)
        status = rs_folder_list_all(context, partial, &names);
    if (status == RESHARD_OK && state.finished && names.count == 1)
        *out_kind = RS_OUTPUT_FINISHED;
    rs_names_release(&names);
    rs_release(context, partial);
    return status == RESHARD_ERR_NOT_FOUND ? RESHARD_OK : status;
}

reshard_status rs_output_look(reshard_context *context, const char *target,
                              rs_output_kind *out_kind)
{
    rs_journal_state state = {.finished = false};
    rs_path_kind kind = RS_PATH_NONE;
    reshard_status status = rs_path_kind_of(target, &kind);
    if (status == RESHARD_OK && kind == RS_PATH_FILE)
        return look_at_file(context, target, out_kind);
    if (status == RESHARD_OK)
        status = rs_journal_peek(context, target, &state);
    if (status == RESHARD_OK)
        *out_kind = state.finished ? RS_OUTPUT_FINISHED : RS_OUTPUT_UNFINISHED;
    else if (status == RESHARD_ERR_NOT_FOUND)
        *out_kind = RS_OUTPUT_OTHER;
    return status == RESHARD_ERR_NOT_FOUND ? RESHARD_OK : status;
}

/* Makes the journal and its name durable before any other file is created. The folder's own name is
 * synced too, so that a later run finds what this one did. */
static reshard_status make_journal(rs_output *output, const rs_journal_head *head, bool sync)
{
    reshard_context *context = output->context;
    reshard_status status = rs_journal_create(&output->journal, context, output->path, head);
    if (status != RESHARD_OK || !sync)
        return status;
    char *above = rs_path_parent(context, output->path);
    if (above == NULL)
        return rs_allocation_status();
    status = rs_folder_sync(context, output->path);
    if (status == RESHARD_OK)
        status = rs_folder_sync(context, above);
    rs_release(context, above);
    return status;
}

/* A folder without a journal is ours if it is empty or holds only the beginning of a journal: an
 * interrupted conversion may have left it like this. Removes that beginning. */
static reshard_status clear_beginning(const rs_output *output)
{
    rs_names names = {.context = output->context};
    reshard_status status = rs_folder_list_all(output->context, output->path, &names);
    bool begins = names.count == 1 && strcmp(names.items[0], RS_JOURNAL_NEW_NAME) == 0;
    if (status == RESHARD_OK && names.count != 0 && !begins)
        status = rs_fail_about(RESHARD_ERR_INVALID, output->path,
                               "is not a folder that a conversion left (it has no journal); remove "
                               "it");
    rs_names_release(&names);
    if (status != RESHARD_OK || !begins)
        return status;
    char *path = rs_path_join(output->context, output->path, RS_JOURNAL_NEW_NAME);
    status = path != NULL ? rs_path_remove(output->context, path) : rs_allocation_status();
    rs_release(output->context, path);
    return status;
}

static reshard_status take_over(rs_output *output, const rs_journal_head *head, bool sync)
{
    if (!output->named && !rs_folder_is_private(output->path))
        return rs_fail_about(RESHARD_ERR_INVALID, output->path,
                             "is not a folder that a conversion of this user left; remove it");
    reshard_status status = rs_journal_open(&output->journal, output->context, output->path, head);
    output->resumed = status == RESHARD_OK;
    if (status != RESHARD_ERR_NOT_FOUND)
        return status;
    status = clear_beginning(output);
    return status == RESHARD_OK ? make_journal(output, head, sync) : status;
}

/* Fails if something exists where the folder is to be created. */
static reshard_status check_free(reshard_context *context, const char *path)
{
    rs_path_kind kind = RS_PATH_NONE;
    rs_output_kind found = RS_OUTPUT_OTHER;
    reshard_status status = rs_path_kind_of(path, &kind);
    if (status != RESHARD_OK || kind == RS_PATH_NONE)
        return status;
    if (kind != RS_PATH_FOLDER)
        return rs_fail_about(RESHARD_ERR_INVALID, path,
                             "is not a folder that a conversion left; remove it");
    status = rs_journal_check_idle(context, path);
    if (status == RESHARD_OK)
        status = rs_output_look(context, path, &found);
    if (status != RESHARD_OK)
        return status;
    return rs_fail_hint(
        RESHARD_ERR_UNFINISHED, RESHARD_HINT_RESUME, path,
        "%s: exists, left by a conversion that was interrupted%s; resume it, or remove it", path,
        found == RS_OUTPUT_OTHER ? " (or has only just begun)" : "");
}

reshard_status rs_output_check(reshard_context *context, const char *target)
{
    rs_output output;
    reshard_status status = enter(&output, context, target, NULL, false);
    if (status == RESHARD_OK)
        status = check_free(context, output.path);
    rs_output_release(&output);
    return status;
}

reshard_status rs_output_create(rs_output *output, reshard_context *context, const char *target,
                                const char *one_file, const rs_journal_head *head, bool resume,
                                bool sync)
{
    rs_path_kind kind = RS_PATH_NONE;
    rs_output_kind found = RS_OUTPUT_OTHER;
    *output = (rs_output){.context = context};
    reshard_status status = resume ? rs_output_look(context, target, &found) : RESHARD_OK;
    if (status == RESHARD_OK)
        status = enter(output, context, target, one_file, found == RS_OUTPUT_FINISHED);
    if (status == RESHARD_OK)
        status = rs_path_kind_of(output->path, &kind);
    if (status != RESHARD_OK)
        return status;
    if (kind == RS_PATH_FOLDER && resume)
        return take_over(output, head, sync);
    status = check_free(context, output->path);
    if (status == RESHARD_OK)
        status = rs_folder_create(context, output->path);
    if (status != RESHARD_OK)
        return status;
    status = make_journal(output, head, sync);
    if (status != RESHARD_OK)
        rs_output_discard(output); /* it holds nothing to continue from */
    return status;
}

reshard_status rs_output_join(rs_output *output, reshard_context *context, const char *target,
                              const char *one_file, bool named, uint64_t nonce)
{
    rs_journal_state state = {.nonce = 0};
    reshard_status status = enter(output, context, target, one_file, named);
    if (status == RESHARD_OK)
        status = rs_journal_peek(context, output->path, &state);
    if (status == RESHARD_ERR_NOT_FOUND || (status == RESHARD_OK && state.nonce != nonce))
        status =
            rs_fail_about(RESHARD_ERR_MISMATCH, output->path,
                          "is not the folder that rank 0 writes into; all ranks have to see the "
                          "same files");
    return status;
}

void rs_output_discard(rs_output *output)
{
    rs_journal_close(&output->journal);
    if (output->path != NULL)
        (void)rs_folder_remove(output->context, output->path);
}

void rs_output_release(rs_output *output)
{
    rs_journal_close(&output->journal);
    rs_names_release(&output->names);
    rs_release(output->context, output->target);
    rs_release(output->context, output->path);
    *output = (rs_output){0};
}

/* ---- names ----------------------------------------------------------------------------------- */

reshard_status rs_output_expect(rs_output *output, const char *name)
{
    return rs_names_add(&output->names, name);
}

/* Adds the files below a folder of the output. front: its name there with a slash, or "". */
static reshard_status list_files(const rs_output *output, const char *front, int depth,
                                 rs_names *found)
{
    reshard_context *context = output->context;
    rs_names names = {.context = context};
    char *folder = rs_path_join(context, output->path, front);
    reshard_status status =
        folder != NULL ? rs_folder_list_all(context, folder, &names) : rs_allocation_status();
    for (int64_t i = 0; status == RESHARD_OK && i < names.count; i++) {
        rs_path_kind kind = RS_PATH_NONE;
        size_t room = strlen(front) + strlen(names.items[i]) + 2;
        char *name = rs_allocate(context, room);
        if (name == NULL) {
            status = rs_allocation_status();
            break;
        }
        (void)snprintf(name, room, "%s%s", front, names.items[i]);
        char *path = rs_path_join(context, output->path, name);
        status = path != NULL ? rs_path_kind_of(path, &kind) : rs_allocation_status();
        bool is_folder = kind == RS_PATH_FOLDER && depth < DEPTH_MAX;
        if (status == RESHARD_OK && is_folder) {
            (void)snprintf(name, room, "%s%s/", front, names.items[i]);
            status = list_files(output, name, depth + 1, found);
        } else if (status == RESHARD_OK) {
            status = rs_names_add(found, name);
        }
        rs_release(context, path);
        rs_release(context, name);
    }
    rs_names_release(&names);
    rs_release(context, folder);
    return status;
}

reshard_status rs_output_check_names(rs_output *output, bool all)
{
    rs_names found = {.context = output->context};
    reshard_status status = list_files(output, "", 0, &found);
    rs_names_sort(&found);
    rs_names_sort(&output->names);
    for (int64_t i = 0; status == RESHARD_OK && i < found.count; i++) {
        if (strcmp(found.items[i], RS_JOURNAL_NAME) != 0 &&
            !rs_names_contain(&output->names, found.items[i]))
            status = rs_fail(RESHARD_ERR_INVALID, "%s/%s does not belong there; remove it",
                             output->path, found.items[i]);
    }
    for (int64_t i = 0; all && status == RESHARD_OK && i < output->names.count; i++) {
        if (!rs_names_contain(&found, output->names.items[i]))
            status = rs_fail(RESHARD_ERR_INVALID, "%s/%s has disappeared", output->path,
                             output->names.items[i]);
    }
    rs_names_release(&found);
    return status;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Opens a file that an earlier run has written to, if it is as that run left it. */
static reshard_status take_file(const rs_output *output, const char *path, uint64_t bytes,
                                rs_file **out_file)
{
    rs_file *file = NULL;
    uint64_t size = 0;
    reshard_status status = rs_file_open_write(output->context, path, &file);
    if (status == RESHARD_OK)
        status = rs_file_size(file, &size);
    /* A file with links may be the source's, which must not be written. */
    if (status == RESHARD_ERR_NOT_FOUND ||
        (status == RESHARD_OK && (size != bytes || rs_file_has_links(file))))
        status =
            rs_fail_about(RESHARD_ERR_INVALID, path,
                          "is not as the interrupted conversion left it; remove %s", output->path);
    if (status == RESHARD_OK)
        *out_file = file;
    else
        rs_file_close(file);
    return status;
}

/* Creates a file. One that an earlier run left is removed first, so that none of its bytes
 * remain. */
static reshard_status make_file(const rs_output *output, const char *path, uint64_t bytes,
                                const rs_file *like, rs_file **out_file)
{
    rs_file *file = NULL;
    reshard_status status = RESHARD_OK;
    if (output->resumed)
        status = rs_path_remove(output->context, path);
    if (status == RESHARD_OK || status == RESHARD_ERR_NOT_FOUND)
        status = rs_file_create(output->context, path, &file);
    if (status == RESHARD_OK)
        status = rs_file_resize(file, bytes, like == NULL || !rs_file_try_share(like, file));
    if (status == RESHARD_OK)
        *out_file = file;
    else
        rs_file_close(file);
    return status;
}

/* Makes the folders that a name leads through. The output's own is private until the end, so these
 * may have their permissions at once. */
static reshard_status make_folders(const rs_output *output, const char *name)
{
    reshard_context *context = output->context;
    reshard_status status = RESHARD_OK;
    for (const char *slash = strchr(name, '/'); status == RESHARD_OK && slash != NULL;
         slash = strchr(slash + 1, '/')) {
        rs_path_kind kind = RS_PATH_NONE;
        char *path = rs_path_join(context, output->path, name);
        if (path == NULL)
            return rs_allocation_status();
        path[strlen(output->path) + 1 + (size_t)(slash - name)] = '\0';
        status = rs_path_kind_of(path, &kind);
        if (status == RESHARD_OK && kind == RS_PATH_NONE)
            status = rs_folder_create(context, path);
        if (status == RESHARD_OK && kind == RS_PATH_NONE && output->journal.file != NULL)
            status = rs_folder_publish(context, path, output->journal.file);
        rs_release(context, path);
    }
    return status;
}

reshard_status rs_output_sync(const rs_output *output)
{
    reshard_context *context = output->context;
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; status == RESHARD_OK && i < output->names.count; i++) {
        const char *name = output->names.items[i];
        const char *before = i > 0 ? output->names.items[i - 1] : "";
        for (const char *slash = strchr(name, '/'); status == RESHARD_OK && slash != NULL;
             slash = strchr(slash + 1, '/')) {
            size_t length = (size_t)(slash - name) + 1;
            if (strncmp(name, before, length) == 0)
                continue; /* synced for the name before this one */
            char *path = rs_path_join(context, output->path, name);
            if (path == NULL)
                return rs_allocation_status();
            path[strlen(output->path) + length] = '\0';
            status = rs_folder_sync(context, path);
            rs_release(context, path);
        }
    }
    return status == RESHARD_OK ? rs_folder_sync(context, output->path) : status;
}

reshard_status rs_output_file(rs_output *output, const char *name, uint64_t bytes, bool begun,
                              const rs_file *like, rs_file **out_file)
{
    reshard_status status = rs_output_expect(output, name);
    if (status != RESHARD_OK)
        return status;
    char *path = rs_path_join(output->context, output->path, name);
    if (path == NULL)
        return rs_allocation_status();
    status = begun ? RESHARD_OK : make_folders(output, name);
    if (status == RESHARD_OK)
        status = begun ? take_file(output, path, bytes, out_file)
                       : make_file(output, path, bytes, like, out_file);
    rs_release(output->context, path);
    return status;
}

reshard_status rs_output_open_file(const rs_output *output, const char *name, uint64_t bytes,
                                   rs_file **out_file)
{
    reshard_context *context = output->context;
    rs_file *file = NULL;
    uint64_t size = 0;
    bool is_target = output->named && output->one_file != NULL;
    char *path = is_target ? copy_target(context, output->target, "")
                           : rs_path_join(context, output->path, name);
    if (path == NULL)
        return rs_allocation_status();
    reshard_status status = output->named ? rs_file_open(context, path, &file)
                                          : rs_file_open_write(context, path, &file);
    if (status == RESHARD_OK && rs_file_has_links(file)) {
        /* It may be the source's, which must not be written. */
        rs_file_close(file);
        file = NULL;
        status = rs_file_open(context, path, &file);
    }
    if (status == RESHARD_OK)
        status = rs_file_size(file, &size);
    if (status == RESHARD_OK && size != bytes)
        status = rs_fail_about(RESHARD_ERR_INVALID, path, "has %" PRIu64 " bytes, not %" PRIu64,
                               size, bytes);
    rs_release(context, path);
    if (status == RESHARD_OK)
        *out_file = file;
    else
        rs_file_close(file);
    return status;
}

reshard_status rs_output_link(rs_output *output, const char *name, const rs_file *source,
                              rs_file **out_file)
{
    reshard_context *context = output->context;
    reshard_status status = rs_output_expect(output, name);
    if (status != RESHARD_OK)
        return status;
    char *path = rs_path_join(context, output->path, name);
    if (path == NULL)
        return rs_allocation_status();
    (void)rs_path_remove(context, path); /* that an earlier run may have left */
    /* For reading only: it is the source's too. Verifying reads it. */
    if (rs_path_link(context, rs_file_path(source), path) == RESHARD_OK)
        status = rs_file_open(context, path, out_file);
    rs_release(context, path);
    return status;
}

/* ---- the final name -------------------------------------------------------------------------- */

/* Records that everything is there, once all names are durable. */
static reshard_status finish(rs_output *output, bool sync)
{
    if (output->journal.state.finished)
        return RESHARD_OK;
    reshard_status status = rs_output_check_names(output, true);
    if (status == RESHARD_OK && sync)
        status = rs_output_sync(output);
    /* A save has no blocks. Conversions have said so long before. */
    if (status == RESHARD_OK)
        status = rs_journal_end_blocks(&output->journal, 0, false);
    return status == RESHARD_OK ? rs_journal_finish(&output->journal, sync) : status;
}

/* The journal is removed last: until then a later run can continue, whichever name the folder has.
 * If a crash undoes the removal, the target is still complete, so failing to sync it is not an
 * error. */
static reshard_status give_name(rs_output *output, const char *parent, const char *journal,
                                bool sync)
{
    reshard_context *context = output->context;
    reshard_status status = finish(output, sync);
    if (status == RESHARD_OK && !output->named)
        status = rs_path_rename(context, output->path, output->target);
    if (status == RESHARD_OK && sync)
        status = rs_folder_sync(context, parent);
    if (status == RESHARD_OK)
        status = rs_folder_publish(context, output->target, output->journal.file);
    if (status == RESHARD_OK && sync)
        status = rs_folder_sync(context, output->target);
    if (status == RESHARD_OK)
        status = rs_path_remove(context, journal);
    if (status == RESHARD_OK && sync)
        (void)rs_folder_sync(context, output->target);
    return status;
}

/* The same for one file. The folder, and the journal with it, is removed last. */
static reshard_status name_file(rs_output *output, const char *folder, const char *file, bool sync)
{
    reshard_context *context = output->context;
    reshard_status status = finish(output, sync);
    if (status == RESHARD_OK && !output->named)
        status = rs_path_rename(context, file, output->target);
    if (status == RESHARD_OK && sync)
        status = rs_folder_sync(context, folder);
    if (status == RESHARD_OK)
        status = rs_folder_remove(context, output->path);
    if (status == RESHARD_OK && sync)
        (void)rs_folder_sync(context, folder);
    return status;
}

reshard_status rs_output_publish(rs_output *output, bool sync)
{
    assert(output->path != NULL && output->target != NULL && output->journal.file != NULL);
    /* Allocate everything first, so that nothing can fail for lack of memory after the rename. */
    bool is_file = output->one_file != NULL;
    reshard_status status = RESHARD_OK;
    char *parent = rs_path_parent(output->context, output->target);
    char *inside = parent == NULL ? NULL
                   : is_file      ? rs_path_join(output->context, output->path, output->one_file)
                                  : rs_path_join(output->context, output->target, RS_JOURNAL_NAME);
    if (inside == NULL)
        status = rs_allocation_status();
    else
        status = is_file ? name_file(output, parent, inside, sync)
                         : give_name(output, parent, inside, sync);
    rs_release(output->context, inside);
    rs_release(output->context, parent);
    return status;
}
