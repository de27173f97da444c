/* SPDX-License-Identifier: Apache-2.0 */
/* files.c - creates and destroys checkpoints, and opens their files. */
#include "base/context.h"
#include "checkpoint/store/store.h"
#include "text/text.h"

#include <assert.h>
#include <string.h>

reshard_status rs_store_create(reshard_context *context, const char *path,
                               reshard_checkpoint **out_checkpoint)
{
    reshard_checkpoint *checkpoint = rs_allocate_zeroed(context, sizeof *checkpoint);
    if (checkpoint == NULL)
        return rs_allocation_status();
    checkpoint->context = context;
    rs_arena_init(&checkpoint->arena, context);
    checkpoint->path = rs_arena_copy(&checkpoint->arena, path, strlen(path) + 1, 1);
    if (checkpoint->path == NULL) {
        reshard_checkpoint_destroy(checkpoint);
        return rs_allocation_status();
    }
    for (size_t n = strlen(path); n > 1 && checkpoint->path[n - 1] == '/';)
        checkpoint->path[--n] = '\0';
    *out_checkpoint = checkpoint;
    return RESHARD_OK;
}

/* Refuses a git-LFS pointer: the few lines that a clone without git-LFS has in place of a large
 * file. */
static reshard_status check_pointer(const rs_stored_file *file)
{
    static const char first[] = "version https://git-lfs.github.com/spec/";
    char bytes[sizeof first - 1];
    if (file->bytes < sizeof bytes || file->bytes > 1024)
        return RESHARD_OK;
    reshard_status status = rs_file_read(file->file, bytes, sizeof bytes, 0);
    if (status == RESHARD_OK && memcmp(bytes, first, sizeof bytes) == 0)
        status = rs_fail_about(
            RESHARD_ERR_UNSUPPORTED, rs_file_path(file->file),
            "is a git-LFS pointer instead of the file itself; `git lfs pull` fetches it");
    return status;
}

static reshard_status open_file(reshard_checkpoint *checkpoint, rs_stored_file *file)
{
    reshard_context *context = checkpoint->context;
    char *path = rs_path_join(context, checkpoint->folder, file->name);
    if (path == NULL)
        return rs_allocation_status();
    reshard_status status = rs_file_open(context, path, &file->file);
    rs_release(context, path);
    if (status == RESHARD_OK)
        status = rs_file_read_stamp(file->file, &file->stamp);
    if (status == RESHARD_OK)
        file->bytes = file->stamp.bytes;
    return status == RESHARD_OK ? check_pointer(file) : status;
}

/* Whether the user named this file, and not the folder or its index. */
static bool is_named(const reshard_checkpoint *checkpoint, const char *name)
{
    const char *slash = strrchr(checkpoint->path, '/');
    return checkpoint->folder != checkpoint->path &&
           strcmp(slash != NULL ? slash + 1 : checkpoint->path, name) == 0;
}

/* Weights that lie outside the folder are read: folders of links to them are common. But a note
 * says so, because a folder from a stranger may link to any file of this machine. */
static reshard_status note_links(reshard_checkpoint *checkpoint)
{
    reshard_context *context = checkpoint->context;
    reshard_status status = RESHARD_OK;
    char *first = NULL;
    int32_t first_file = 0, count = 0;
    for (int32_t i = 0; status == RESHARD_OK && i < checkpoint->file_count; i++) {
        char *outside = NULL;
        if (is_named(checkpoint, checkpoint->files[i].name))
            continue;
        status = rs_store_follow_link(context, checkpoint->folder,
                                      rs_file_path(checkpoint->files[i].file), &outside);
        if (outside == NULL)
            continue;
        if (count++ == 0) {
            first = outside;
            first_file = i;
        } else {
            rs_text_free(context, outside);
        }
    }
    if (status == RESHARD_OK && count != 0)
        status = rs_store_note(
            checkpoint,
            "files that are links and leave the folder: %d of %d; %.100s leads to %.200s",
            (int)count, (int)checkpoint->file_count, checkpoint->files[first_file].name, first);
    rs_text_free(context, first);
    return status;
}

/* In reverse order, because a file may be made from an earlier one. */
static void close_files(reshard_checkpoint *checkpoint)
{
    for (int32_t i = checkpoint->file_count; i-- > 0;) {
        rs_stored_file *file = &checkpoint->files[i];
        assert(file->body == NULL || file->body_destroy != NULL);
        if (file->body != NULL)
            file->body_destroy(file->body);
        rs_file_close(file->file);
    }
    checkpoint->file_count = checkpoint->named_count = 0;
}

reshard_status rs_store_open_files(reshard_checkpoint *checkpoint, int64_t count,
                                   char *const *names)
{
    assert(checkpoint->folder != NULL && checkpoint->tensor_count == 0);
    close_files(checkpoint); /* of a format that was asked before, and then did not read them */
    if (count > INT32_MAX / 2)
        return rs_fail_about(RESHARD_ERR_RANGE, checkpoint->path, "there are too many files");
    checkpoint->files =
        rs_arena_allocate_array(&checkpoint->arena, (size_t)count, sizeof(rs_stored_file));
    if (checkpoint->files == NULL)
        return rs_allocation_status();
    checkpoint->file_capacity = (int32_t)count;
    for (int64_t i = 0; i < count; i++) {
        rs_stored_file *file = &checkpoint->files[i];
        *file = (rs_stored_file){
            .name = rs_arena_copy(&checkpoint->arena, names[i], strlen(names[i]) + 1, 1)};
        if (file->name == NULL)
            return rs_allocation_status();
        checkpoint->file_count = checkpoint->named_count = (int32_t)i + 1;
        reshard_status status = open_file(checkpoint, file);
        if (status != RESHARD_OK)
            return status;
        if (rs_context_cancelled(checkpoint->context))
            return rs_fail_about(RESHARD_ERR_CANCELLED, checkpoint->path, "cancelled");
    }
    return note_links(checkpoint);
}

/* Makes room for one more file. Outgrown arrays stay in the arena. */
static reshard_status make_room(reshard_checkpoint *checkpoint)
{
    if (checkpoint->file_count < checkpoint->file_capacity)
        return RESHARD_OK;
    if (checkpoint->file_count > INT32_MAX / 4)
        return rs_fail_about(RESHARD_ERR_RANGE, checkpoint->path, "there are too many files");
    int32_t capacity = 2 * checkpoint->file_count + 16;
    rs_stored_file *files =
        rs_arena_allocate_array(&checkpoint->arena, (size_t)capacity, sizeof *files);
    if (files == NULL)
        return rs_allocation_status();
    if (checkpoint->file_count != 0)
        memcpy(files, checkpoint->files, (size_t)checkpoint->file_count * sizeof *files);
    checkpoint->files = files;
    checkpoint->file_capacity = capacity;
    return RESHARD_OK;
}

reshard_status rs_store_add_file(reshard_checkpoint *checkpoint, rs_slice name, rs_file *file,
                                 int32_t *out_index)
{
    rs_stored_file added = {.file = file};
    char *copy = NULL;
    reshard_status status = make_room(checkpoint);
    if (status == RESHARD_OK)
        status = rs_file_read_stamp(file, &added.stamp);
    added.bytes = added.stamp.bytes;
    if (status == RESHARD_OK &&
        (copy = rs_arena_allocate(&checkpoint->arena, name.count + 1)) == NULL)
        status = rs_allocation_status();
    if (status != RESHARD_OK) {
        rs_file_close(file);
        return status;
    }
    memcpy(copy, name.bytes, name.count);
    copy[name.count] = '\0';
    added.name = copy;
    *out_index = checkpoint->file_count;
    checkpoint->files[checkpoint->file_count++] = added;
    return RESHARD_OK;
}

reshard_status rs_store_add_crc(reshard_checkpoint *checkpoint, const rs_stored_crc *crc)
{
    reshard_status status =
        rs_grow(checkpoint->context, &checkpoint->crcs, &checkpoint->crc_capacity,
                checkpoint->crc_count + 1, sizeof *crc);
    if (status == RESHARD_OK)
        checkpoint->crcs[checkpoint->crc_count++] = *crc;
    return status;
}

void reshard_checkpoint_destroy(reshard_checkpoint *checkpoint)
{
    if (checkpoint == NULL)
        return;
    if (checkpoint->viewed != NULL) {
        rs_arena_release(&checkpoint->arena);
        rs_release(checkpoint->context, checkpoint);
        return;
    }
    close_files(checkpoint);
    rs_release(checkpoint->context, checkpoint->values);
    rs_release(checkpoint->context, checkpoint->unreadable);
    rs_release(checkpoint->context, checkpoint->crcs);
    rs_arena_release(&checkpoint->arena);
    rs_release(checkpoint->context, checkpoint);
}

reshard_status rs_store_open_each(reshard_checkpoint *checkpoint, int64_t count, char *const *names,
                                  reshard_status (*look)(reshard_checkpoint *checkpoint,
                                                         int32_t file))
{
    reshard_status status = rs_store_open_files(checkpoint, count, names);
    for (int32_t i = 0; status == RESHARD_OK && i < checkpoint->named_count; i++) {
        status = look(checkpoint, i);
        if (status == RESHARD_OK && rs_context_cancelled(checkpoint->context))
            return rs_fail_about(RESHARD_ERR_CANCELLED, checkpoint->path, "cancelled");
    }
    return status;
}

reshard_status rs_store_kind_of(const reshard_checkpoint *checkpoint, const char *name,
                                rs_path_kind *out_kind)
{
    char *path = rs_path_join(checkpoint->context, checkpoint->folder, name);
    if (path == NULL)
        return rs_allocation_status();
    reshard_status status = rs_path_kind_of(path, out_kind);
    rs_release(checkpoint->context, path);
    return status;
}

reshard_status rs_store_look_above(reshard_checkpoint *checkpoint, const char *pointer,
                                   bool *out_has)
{
    rs_path_kind kind = RS_PATH_NONE;
    *out_has = true;
    reshard_status status = rs_store_kind_of(checkpoint, "config.json", &kind);
    if (status != RESHARD_OK || kind == RS_PATH_FILE)
        return status;
    status = rs_store_kind_of(checkpoint, pointer, &kind);
    if (status == RESHARD_OK && kind == RS_PATH_FILE)
        status = rs_store_kind_of(checkpoint, "../config.json", &kind);
    *out_has = checkpoint->base != NULL;
    if (status != RESHARD_OK || kind != RS_PATH_FILE)
        return status;
    *out_has = true;
    char *above = rs_path_parent(checkpoint->context, checkpoint->folder);
    if (above == NULL)
        return rs_allocation_status();
    checkpoint->above = rs_arena_copy(&checkpoint->arena, above, strlen(above) + 1, 1);
    rs_release(checkpoint->context, above);
    if (checkpoint->base == NULL)
        checkpoint->base = checkpoint->above;
    return checkpoint->above != NULL ? RESHARD_OK : rs_allocation_status();
}

const char *rs_store_config_folder(const reshard_checkpoint *checkpoint)
{
    return checkpoint->base != NULL ? checkpoint->base : checkpoint->folder;
}
