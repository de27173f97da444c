/* SPDX-License-Identifier: Apache-2.0 */
/*
 * others.c - what a conversion writes beside tensors: the index, the files of the source
 * that hold no weights (config.json, tokenizers), and links to files that do not change.
 */
#include "base/context.h"
#include "checkpoint/convert/convert.h"
#include "checkpoint/format/foreign.h"

#include <string.h>

#define COPY_BYTES ((size_t)1 << 20)

static bool is_source_file(const reshard_checkpoint *source, const char *name)
{
    for (int32_t i = 0; i < source->file_count; i++) {
        if (strcmp(source->files[i].name, name) == 0)
            return true;
    }
    return false;
}

static reshard_status copy_bytes(reshard_context *context, const rs_file *from, rs_file *to,
                                 uint64_t bytes)
{
    uint64_t done = 0;
    reshard_status status = rs_file_copy(from, 0, to, 0, bytes, &done);
    if (status != RESHARD_OK || done == bytes)
        return status;
    char *memory = rs_allocate(context, COPY_BYTES);
    if (memory == NULL)
        return rs_allocation_status();
    for (size_t part; status == RESHARD_OK && done < bytes; done += part) {
        part = bytes - done < COPY_BYTES ? (size_t)(bytes - done) : COPY_BYTES;
        status = rs_file_read(from, memory, part, done);
        if (status == RESHARD_OK)
            status = rs_file_write(to, memory, part, done);
    }
    rs_release(context, memory, COPY_BYTES);
    return status;
}

static reshard_status copy_other(rs_conversion *conversion, const char *name, const char *path)
{
    rs_file *from = NULL, *to = NULL;
    uint64_t bytes = 0;
    reshard_status status = rs_file_open(conversion->context, path, &from);
    if (status == RESHARD_OK)
        status = rs_file_size(from, &bytes);
    if (status == RESHARD_OK)
        status = rs_partial_file(&conversion->partial, name, bytes, false, NULL, &to);
    if (status == RESHARD_OK)
        status = copy_bytes(conversion->context, from, to, bytes);
    if (status == RESHARD_OK && !conversion->options->no_sync)
        status = rs_file_sync(to);
    rs_file_close(to);
    rs_file_close(from);
    return status;
}

static reshard_status consider_other(rs_conversion *conversion, const char *name)
{
    rs_path_kind kind = RS_PATH_NONE;
    if (rs_name_holds_weights(name) || is_source_file(conversion->source, name))
        return RESHARD_OK;
    char *path = rs_path_join(conversion->context, conversion->source->folder, name);
    if (path == NULL)
        return rs_allocation_status();
    reshard_status status = rs_path_kind_of(path, &kind);
    if (status == RESHARD_OK && kind == RS_PATH_FILE)
        status = copy_other(conversion, name, path);
    rs_release(conversion->context, path, strlen(path) + 1);
    return status;
}

/* For rs_finishing. */
static reshard_status add_file(void *user, const char *name, const char *bytes, size_t count)
{
    rs_conversion *conversion = user;
    rs_file *file = NULL;
    reshard_status status =
        rs_partial_file(&conversion->partial, name, (uint64_t)count, false, NULL, &file);
    if (status == RESHARD_OK)
        status = rs_file_write(file, bytes, count, 0);
    if (status == RESHARD_OK && !conversion->options->no_sync)
        status = rs_file_sync(file);
    rs_file_close(file);
    return status;
}

reshard_status rs_conversion_copy_others(rs_conversion *conversion)
{
    const reshard_checkpoint *source = conversion->source;
    rs_names names = {.context = conversion->context};
    reshard_status status = RESHARD_OK;
    /* Beside a single file there may be anything. */
    if (source->folder == source->path)
        status = rs_folder_list(conversion->context, source->folder, &names);
    for (int64_t i = 0; status == RESHARD_OK && i < names.count; i++)
        status = consider_other(conversion, names.items[i]);
    rs_names_release(&names);
    rs_finishing finishing = {conversion->target_files, add_file, conversion};
    return status == RESHARD_OK ? rs_target_finish(&conversion->target, &finishing) : status;
}

/* ---- links ----------------------------------------------------------------------------------- */

/* The source file that holds exactly what a target file shall hold, or -1: the same tensors at the
 * same places. The header is compared by the caller. */
static int32_t find_same(const rs_conversion *conversion, const rs_target_file *file)
{
    const reshard_checkpoint *source = conversion->source;
    const rs_target *target = &conversion->target;
    int32_t same = -1;
    for (int64_t i = file->entry_first; i < file->entry_first + file->entry_count; i++) {
        const rs_stored_tensor *to = &target->tensors[target->entries[i].tensor];
        const rs_stored_tensor *from = &source->tensors[target->origins[target->entries[i].tensor]];
        if (to->piece_count != 1 || from->piece_count != 1 || to->dtype != from->dtype ||
            to->pieces[0].at != from->pieces[0].at || from->pieces[0].strides != NULL ||
            (same >= 0 && same != from->pieces[0].file))
            return -1;
        same = from->pieces[0].file;
    }
    return same >= 0 && source->files[same].bytes == file->bytes ? same : -1;
}

static reshard_status has_header(const rs_conversion *conversion, int32_t file, int32_t same,
                                 bool *out_equal)
{
    rs_json_writer writer;
    char *found = NULL;
    size_t count = (size_t)conversion->target.files[file].data_begin;
    rs_json_writer_init(&writer, conversion->context);
    reshard_status status =
        conversion->target.format->write_head(&conversion->target, file, &writer);
    if (status == RESHARD_OK && (found = rs_allocate(conversion->context, count)) == NULL)
        status = rs_allocation_status();
    if (status == RESHARD_OK)
        status = rs_file_read(conversion->source_files[same], found, count, 0);
    *out_equal = status == RESHARD_OK && memcmp(found, writer.bytes, count) == 0;
    if (found != NULL)
        rs_release(conversion->context, found, count);
    rs_json_writer_release(&writer);
    return status;
}

static void mark_done(rs_conversion *conversion, int32_t file)
{
    rs_engine *engine = &conversion->engine;
    for (int64_t i = 0; i < engine->transfer_count; i++) {
        const rs_transfer *transfer = &engine->transfers[i];
        for (int64_t j = 0; transfer->target->pieces[0].file == file && j < transfer->block_count;
             j++)
            /* Recorded, as far as the journal goes: that counts written blocks only. */
            atomic_store(&engine->done[transfer->block_first + j], 3);
    }
}

static reshard_status link_file(rs_conversion *conversion, int32_t file, int32_t same)
{
    const char *name = conversion->target.files[file].name;
    char *path = rs_path_join(conversion->context, conversion->partial.path, name);
    if (path == NULL)
        return rs_allocation_status();
    (void)rs_path_remove(conversion->context, path); /* what an earlier run may have left */
    /* Across file systems, and where links are not allowed, the file is copied as others are. */
    if (rs_path_link(conversion->context, rs_file_path(conversion->source_files[same]), path) ==
        RESHARD_OK) {
        mark_done(conversion, file);
        /* Opened for reading: what the source shares is not written, and verify reads it. */
        reshard_status status =
            rs_file_open(conversion->context, path, &conversion->target_files[file]);
        rs_release(conversion->context, path, strlen(path) + 1);
        return status;
    }
    rs_release(conversion->context, path, strlen(path) + 1);
    return RESHARD_OK;
}

reshard_status rs_conversion_link(rs_conversion *conversion)
{
    reshard_status status = RESHARD_OK;
    if (conversion->target.format->is_split)
        return RESHARD_OK;
    for (int32_t i = 0; status == RESHARD_OK && i < conversion->target.file_count; i++) {
        int32_t same = find_same(conversion, &conversion->target.files[i]);
        bool equal = false;
        if (same >= 0)
            status = has_header(conversion, i, same, &equal);
        if (status == RESHARD_OK && equal)
            status = link_file(conversion, i, same);
    }
    return status;
}
