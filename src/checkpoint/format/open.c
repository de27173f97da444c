/* SPDX-License-Identifier: Apache-2.0 */
/*
 * open.c - finds out what a path holds and opens it. An index says which files there are and what
 * they hold; without one, every safetensors file of the folder counts, and its metadata say whether
 * it holds whole tensors or pieces.
 */
#include "base/context.h"
#include "checkpoint/store/store.h"

#include <string.h>

#define INDEX_BYTES_MAX ((size_t)256 << 20)

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), end_length = strlen(end);
    return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

/* model.safetensors.index.json, and with a variant model.safetensors.index.fp16.json. */
static bool is_index(const char *name)
{
    return strstr(name, ".safetensors.index.") != NULL && ends_with(name, ".json");
}

reshard_status rs_store_open_files(reshard_checkpoint *checkpoint, int64_t count,
                                   char *const *names)
{
    reshard_context *context = checkpoint->context;
    checkpoint->files =
        rs_arena_allocate_array(&checkpoint->arena, (size_t)count, sizeof(rs_stored_file));
    if (checkpoint->files == NULL)
        return rs_allocation_status();
    for (int64_t i = 0; i < count; i++) {
        rs_stored_file *file = &checkpoint->files[i];
        *file = (rs_stored_file){
            .name = rs_arena_copy(&checkpoint->arena, names[i], strlen(names[i]) + 1, 1)};
        char *path = rs_path_join(context, checkpoint->folder, names[i]);
        if (file->name == NULL || path == NULL)
            return rs_allocation_status();
        reshard_status status = rs_file_open(context, path, &file->file);
        rs_release(context, path, strlen(path) + 1);
        checkpoint->file_count = (int32_t)i + 1;
        if (status == RESHARD_OK)
            status = rs_header_read(context, file->file, &file->header);
        if (status == RESHARD_OK)
            status = rs_file_stamp(file->file, &file->bytes, &file->changed);
        if (status != RESHARD_OK)
            return status;
        if (rs_context_cancelled(context))
            return rs_fail(RESHARD_ERR_CANCELLED, "%s: cancelled", checkpoint->path);
    }
    return RESHARD_OK;
}

static bool has_sharding(const reshard_checkpoint *checkpoint)
{
    for (int32_t i = 0; i < checkpoint->file_count; i++) {
        if (rs_header_metadata(checkpoint->files[i].header, "DCP_SHARDING_INFO") != NULL)
            return true;
    }
    return false;
}

/* Files that are open, and that no index speaks of. */
static reshard_status read_files(reshard_checkpoint *checkpoint,
                                 const reshard_checkpoint_options *options)
{
    if (options->from != NULL) {
        checkpoint->format = "rank-files";
        return rs_store_read_ranks(checkpoint, options);
    }
    bool is_sharded = has_sharding(checkpoint);
    checkpoint->format = is_sharded ? "dcp-safetensors" : "safetensors";
    return rs_store_read_sharded(checkpoint, is_sharded);
}

static reshard_status open_with_index(reshard_checkpoint *checkpoint, const char *name)
{
    char *text = NULL;
    size_t text_bytes = 0;
    char *path = rs_path_join(checkpoint->context, checkpoint->folder, name);
    if (path == NULL)
        return rs_allocation_status();
    reshard_status status =
        rs_file_read_all(checkpoint->context, path, INDEX_BYTES_MAX, &text, &text_bytes);
    rs_release(checkpoint->context, path, strlen(path) + 1);
    checkpoint->format = "hf";
    if (status == RESHARD_OK)
        status = rs_store_read_index(checkpoint, name, text, text_bytes);
    if (text != NULL)
        rs_release(checkpoint->context, text, text_bytes + 1);
    return status;
}

/* Keeps the safetensors files of the list in front; returns how many. */
static int64_t keep_safetensors(rs_names *names, const char **out_index)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < names->count; i++) {
        char *name = names->items[i];
        if (is_index(name) &&
            (*out_index == NULL || strcmp(name, "model.safetensors.index.json") == 0))
            *out_index = name;
        if (!ends_with(name, ".safetensors"))
            continue;
        names->items[i] = names->items[kept];
        names->items[kept++] = name;
    }
    return kept;
}

static reshard_status open_folder(reshard_checkpoint *checkpoint,
                                  const reshard_checkpoint_options *options)
{
    rs_names names;
    const char *index = NULL;
    reshard_status status = rs_folder_list(checkpoint->context, checkpoint->folder, &names);
    if (status != RESHARD_OK)
        return status;
    int64_t count = keep_safetensors(&names, &index);
    if (options->from != NULL)
        index = NULL;
    if (index != NULL)
        status = open_with_index(checkpoint, index);
    else if (count == 0)
        status = rs_fail(RESHARD_ERR_NOT_FOUND, "%s: no safetensors files in this folder",
                         checkpoint->path);
    else if (count > INT32_MAX / 2)
        status = rs_fail(RESHARD_ERR_RANGE, "%s: too many files", checkpoint->path);
    else
        status = rs_store_open_files(checkpoint, count, names.items);
    rs_names_release(&names);
    if (status != RESHARD_OK || index != NULL)
        return status;
    return read_files(checkpoint, options);
}

/* folder/name in two: the checkpoint's folder, and the name, which lies in the path. */
static reshard_status split_path(reshard_checkpoint *checkpoint, char **out_name)
{
    char *slash = strrchr(checkpoint->path, '/');
    size_t length = slash != NULL ? (size_t)(slash - checkpoint->path) : 1;
    const char *folder = slash != NULL ? checkpoint->path : ".";
    if (length == 0)
        length = 1; /* the root */
    checkpoint->folder = rs_arena_allocate(&checkpoint->arena, length + 1);
    if (checkpoint->folder == NULL)
        return rs_allocation_status();
    memcpy(checkpoint->folder, folder, length);
    checkpoint->folder[length] = '\0';
    *out_name = slash != NULL ? slash + 1 : checkpoint->path;
    return RESHARD_OK;
}

static reshard_status open_single(reshard_checkpoint *checkpoint,
                                  const reshard_checkpoint_options *options)
{
    char *name = NULL;
    reshard_status status = split_path(checkpoint, &name);
    if (status != RESHARD_OK)
        return status;
    if (is_index(name))
        return open_with_index(checkpoint, name);
    status = rs_store_open_files(checkpoint, 1, &name);
    if (status != RESHARD_OK)
        return status;
    return read_files(checkpoint, options);
}

static reshard_status open_path(reshard_checkpoint *checkpoint,
                                const reshard_checkpoint_options *options)
{
    rs_path_kind kind = RS_PATH_NONE;
    reshard_status status = rs_path_kind_of(checkpoint->path, &kind);
    if (status != RESHARD_OK)
        return status;
    if (kind == RS_PATH_NONE)
        return rs_fail(RESHARD_ERR_NOT_FOUND, "%s: there is no such file or folder",
                       checkpoint->path[0] != '\0' ? checkpoint->path : "\"\"");
    if (kind != RS_PATH_FOLDER)
        return open_single(checkpoint, options);
    checkpoint->folder = checkpoint->path;
    return open_folder(checkpoint, options);
}

reshard_status reshard_checkpoint_open(reshard_context *context, const char *path,
                                       const reshard_checkpoint_options *options,
                                       reshard_checkpoint **out_checkpoint)
{
    return rs_checkpoint_open(context, path, options, false, out_checkpoint);
}

reshard_status rs_checkpoint_open(reshard_context *context, const char *path,
                                  const reshard_checkpoint_options *options, bool keeps_names,
                                  reshard_checkpoint **out_checkpoint)
{
    static const reshard_checkpoint_options defaults = {.size = sizeof defaults};
    if (options != NULL && options->size != sizeof *options)
        return rs_fail(RESHARD_ERR_INVALID, "checkpoint options: size is %zu, not %zu",
                       options->size, sizeof *options);
    reshard_checkpoint *checkpoint = rs_allocate_zeroed(context, sizeof *checkpoint);
    if (checkpoint == NULL)
        return rs_allocation_status();
    checkpoint->context = context;
    checkpoint->keeps_names = keeps_names;
    rs_arena_init(&checkpoint->arena, context);
    checkpoint->path = rs_arena_copy(&checkpoint->arena, path, strlen(path) + 1, 1);
    reshard_status status = checkpoint->path != NULL ? RESHARD_OK : rs_allocation_status();
    for (size_t n = strlen(path); status == RESHARD_OK && n > 1 && checkpoint->path[n - 1] == '/';)
        checkpoint->path[--n] = '\0';
    if (status == RESHARD_OK)
        status = open_path(checkpoint, options != NULL ? options : &defaults);
    if (status != RESHARD_OK) {
        reshard_checkpoint_destroy(checkpoint);
        return status;
    }
    *out_checkpoint = checkpoint;
    return RESHARD_OK;
}

void reshard_checkpoint_destroy(reshard_checkpoint *checkpoint)
{
    if (checkpoint == NULL)
        return;
    for (int32_t i = 0; i < checkpoint->file_count; i++) {
        rs_header_destroy(checkpoint->files[i].header);
        rs_file_close(checkpoint->files[i].file);
    }
    if (checkpoint->notes != NULL)
        rs_release(checkpoint->context, checkpoint->notes,
                   (size_t)checkpoint->note_capacity * sizeof(char *));
    rs_arena_release(&checkpoint->arena);
    rs_release(checkpoint->context, checkpoint, sizeof *checkpoint);
}
