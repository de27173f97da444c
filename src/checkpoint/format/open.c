/* SPDX-License-Identifier: Apache-2.0 */
/*
 * open.c - finds out what a path holds and opens it: asks one format after the other, and the first
 * that recognises the path reads it.
 */
#include "base/context.h"
#include "base/options.h"
#include "checkpoint/format/foreign.h"
#include "checkpoint/format/format.h"

#include <assert.h>
#include <string.h>

static reshard_status read_by_format(reshard_checkpoint *checkpoint, const rs_opening *opening)
{
    const rs_format *format;
    bool has_mesh = opening->options->from != NULL;
    for (int32_t i = 0; (format = rs_format_at(i)) != NULL; i++) {
        bool is = false;
        if (format->needs_mesh != has_mesh)
            continue;
        reshard_status status = format->probe(checkpoint, opening, &is);
        if (status != RESHARD_OK)
            return status;
        if (is) {
            assert(checkpoint->tensor_count == 0);
            checkpoint->format = format->name;
            return format->read(checkpoint, opening);
        }
    }
    return rs_foreign_fail(checkpoint, opening);
}

static reshard_status open_folder(reshard_checkpoint *checkpoint, rs_opening *opening)
{
    rs_names names;
    checkpoint->folder = checkpoint->path;
    reshard_status status = rs_folder_list(checkpoint->context, checkpoint->folder, &names);
    if (status != RESHARD_OK)
        return status;
    opening->is_folder = true;
    opening->name_count = names.count;
    opening->names = names.items;
    status = read_by_format(checkpoint, opening);
    rs_names_release(&names);
    return status;
}

/* Splits folder/name into the checkpoint's folder and the name, which stays inside the path. */
static reshard_status open_file(reshard_checkpoint *checkpoint, rs_opening *opening)
{
    char *slash = strrchr(checkpoint->path, '/');
    size_t length = slash != NULL ? (size_t)(slash - checkpoint->path) : 1;
    const char *folder = slash != NULL ? checkpoint->path : ".";
    char *name = slash != NULL ? slash + 1 : checkpoint->path;
    if (length == 0)
        length = 1; /* the root */
    checkpoint->folder = rs_arena_allocate(&checkpoint->arena, length + 1);
    if (checkpoint->folder == NULL)
        return rs_allocation_status();
    memcpy(checkpoint->folder, folder, length);
    checkpoint->folder[length] = '\0';
    opening->name_count = 1;
    opening->names = &name;
    return read_by_format(checkpoint, opening);
}

static reshard_status open_path(reshard_checkpoint *checkpoint,
                                const reshard_checkpoint_options *options)
{
    rs_path_kind kind = RS_PATH_NONE;
    rs_opening opening = {.options = options};
    reshard_status status = rs_path_kind_of(checkpoint->path, &kind);
    if (status != RESHARD_OK)
        return status;
    if (kind == RS_PATH_NONE)
        return rs_fail(RESHARD_ERR_NOT_FOUND, "%s: there is no such file or folder",
                       checkpoint->path[0] != '\0' ? checkpoint->path : "\"\"");
    return kind == RS_PATH_FOLDER ? open_folder(checkpoint, &opening)
                                  : open_file(checkpoint, &opening);
}

reshard_status reshard_checkpoint_open(reshard_context *context, const char *path,
                                       const reshard_checkpoint_options *options,
                                       reshard_checkpoint **out_checkpoint)
{
    reshard_checkpoint_options full;
    reshard_checkpoint *checkpoint = NULL;
    reshard_status status = rs_options_read("checkpoint options", options, &full, sizeof full);
    if (status == RESHARD_OK)
        status = rs_store_create(context, path, &checkpoint);
    if (status != RESHARD_OK)
        return status;
    checkpoint->keeps_names = full.keep_names != 0;
    status = open_path(checkpoint, &full);
    if (status != RESHARD_OK) {
        reshard_checkpoint_destroy(checkpoint);
        return status;
    }
    *out_checkpoint = checkpoint;
    return RESHARD_OK;
}
