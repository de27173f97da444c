/* SPDX-License-Identifier: Apache-2.0 */
/*
 * open.c - opens a path: asks one format after the other, and the first that recognises the path
 * reads it.
 */
#include "checkpoint/open/open.h"
#include "base/context.h"
#include "base/options.h"
#include "checkpoint/store/journal_text.h"

#include <assert.h>
#include <string.h>

static reshard_status open_folder(reshard_checkpoint *checkpoint, rs_opening *opening);

/* Opens the sub-folder that a file in this one names. */
static reshard_status open_latest(reshard_checkpoint *checkpoint, rs_opening *opening)
{
    reshard_status status = rs_latest_follow(checkpoint, opening);
    opening->is_latest = true;
    return status == RESHARD_OK ? open_folder(checkpoint, opening) : status;
}

/* A file `latest` may be there for another purpose if the folder holds something that can be read:
 * then it is followed only if it leads to a folder. */
static bool may_follow(reshard_checkpoint *checkpoint, const rs_opening *opening)
{
    const char *path = checkpoint->path;
    reshard_status status = rs_latest_follow(checkpoint, opening);
    return status == RESHARD_OK && checkpoint->path != path;
}

static reshard_status find_format(reshard_checkpoint *checkpoint, rs_opening *opening)
{
    const rs_format *format;
    bool has_mesh = opening->options->from != NULL;
    bool is_named = !opening->is_latest && rs_latest_is_named(checkpoint, opening);
    for (int32_t i = 0; (format = rs_format_at(i)) != NULL; i++) {
        bool is = false;
        if (has_mesh && !format->needs_mesh)
            continue;
        reshard_status status = format->probe(checkpoint, opening, &is);
        if (status != RESHARD_OK)
            return status;
        if (is && format->takes_any && is_named && may_follow(checkpoint, opening)) {
            opening->is_latest = true;
            return open_folder(checkpoint, opening);
        }
        if (is) {
            assert(checkpoint->tensor_count == 0);
            checkpoint->format = format->name;
            return format->read(checkpoint, opening);
        }
    }
    return is_named && checkpoint->file_count == 0 ? open_latest(checkpoint, opening)
                                                   : rs_foreign_fail(checkpoint, opening);
}

/* Fails if whoever writes the folder has not finished: files have their sizes from the beginning,
 * and zeros where nothing was written yet. That holds for each of them by itself, too. */
static reshard_status check_finished(reshard_checkpoint *checkpoint, const rs_opening *opening)
{
    rs_journal_state state = {.finished = false};
    reshard_status status = rs_journal_peek(checkpoint->context, checkpoint->folder, &state);
    if (status == RESHARD_ERR_NOT_FOUND || (status == RESHARD_OK && state.finished))
        return RESHARD_OK;
    checkpoint->is_unfinished = true;
    if (opening->options->unfinished != 0)
        return rs_store_note(checkpoint,
                             "unfinished: the journal in %s does not say that all bytes are there",
                             checkpoint->folder);
    return status != RESHARD_OK
               ? status
               : rs_fail_hint(RESHARD_ERR_UNFINISHED, RESHARD_HINT_FINISH, checkpoint->folder,
                              "%s is unfinished by its journal: a conversion or save is still "
                              "running, or was interrupted; finish it, or remove the folder",
                              checkpoint->folder);
}

static reshard_status read_by_format(reshard_checkpoint *checkpoint, rs_opening *opening)
{
    reshard_status status = check_finished(checkpoint, opening);
    if (status != RESHARD_OK)
        return status;
    status = find_format(checkpoint, opening);
    return status != RESHARD_OK && checkpoint->is_unfinished
               ? rs_fail_within(status, "%s is unfinished", checkpoint->folder)
               : status;
}

/* ---- folders --------------------------------------------------------------------------------- */

/* Opens a model's root in the hub's cache: the checkpoint is one of its snapshots. */
static reshard_status open_snapshot(reshard_checkpoint *checkpoint, rs_opening *opening)
{
    char *path = NULL;
    reshard_status status = rs_hub_find_snapshot(checkpoint->context, checkpoint->path, &path);
    if (status != RESHARD_OK)
        return status;
    checkpoint->path = rs_arena_copy(&checkpoint->arena, path, strlen(path) + 1, 1);
    rs_release(checkpoint->context, path);
    if (checkpoint->path == NULL)
        return rs_allocation_status();
    checkpoint->folder = checkpoint->path;
    opening->is_snapshot = true;
    status = rs_store_note(checkpoint, "reads the snapshot %s", checkpoint->path);
    return status == RESHARD_OK ? open_folder(checkpoint, opening) : status;
}

/* Opens checkpoint->folder, which has been set. */
static reshard_status open_folder(reshard_checkpoint *checkpoint, rs_opening *opening)
{
    rs_names names;
    reshard_status status = rs_folder_list(checkpoint->context, checkpoint->folder, &names);
    if (status != RESHARD_OK)
        return status;
    bool is_root =
        !opening->is_snapshot && opening->index == NULL && rs_hub_is_root(checkpoint->path, &names);
    checkpoint->owns_folder = true;
    opening->is_folder = true;
    opening->name_count = names.count;
    opening->names = names.items;
    status = is_root ? open_snapshot(checkpoint, opening) : read_by_format(checkpoint, opening);
    rs_names_release(&names);
    return status;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Sets owns_folder if the file's folder has a config.json, or what stands for it, so that the other
 * files there belong to the model. */
static reshard_status find_config(reshard_checkpoint *checkpoint)
{
    static const char *const names[] = {"config.json", "adapter_config.json", "params.json"};
    reshard_status status = RESHARD_OK;
    for (size_t i = 0; status == RESHARD_OK && i < sizeof names / sizeof *names; i++) {
        rs_path_kind kind = RS_PATH_NONE;
        char *path = rs_path_join(checkpoint->context, checkpoint->folder, names[i]);
        if (path == NULL)
            return rs_allocation_status();
        status = rs_path_kind_of(path, &kind);
        rs_release(checkpoint->context, path);
        checkpoint->owns_folder = checkpoint->owns_folder || kind == RS_PATH_FILE;
    }
    return status;
}

/* Splits folder/name into the checkpoint's folder and the name, which stays inside the path. An
 * index file stands for its folder. */
static reshard_status open_file(reshard_checkpoint *checkpoint, rs_opening *opening)
{
    char *slash = strrchr(checkpoint->path, '/');
    size_t length = slash != NULL ? (size_t)(slash - checkpoint->path) : 1;
    const char *folder = slash != NULL ? checkpoint->path : ".";
    char *name = slash != NULL ? slash + 1 : checkpoint->path;
    if (length == 0)
        length = 1; /* the root folder */
    checkpoint->folder = rs_arena_allocate(&checkpoint->arena, length + 1);
    if (checkpoint->folder == NULL)
        return rs_allocation_status();
    memcpy(checkpoint->folder, folder, length);
    checkpoint->folder[length] = '\0';
    if (strstr(name, ".safetensors.index.") != NULL) {
        opening->index = name;
        return open_folder(checkpoint, opening);
    }
    opening->name_count = 1;
    opening->names = &name;
    reshard_status status = find_config(checkpoint);
    return status == RESHARD_OK ? read_by_format(checkpoint, opening) : status;
}

/* ---- config.json from elsewhere -------------------------------------------------------------- */

/* Keeps the path of the folder; a model's root in the hub's cache stands for its snapshot. */
static reshard_status keep_base(reshard_checkpoint *checkpoint, const char *path)
{
    rs_names names = {.context = checkpoint->context};
    char *snapshot = NULL;
    reshard_status status = rs_folder_list(checkpoint->context, path, &names);
    if (status == RESHARD_OK && rs_hub_is_root(path, &names)) {
        rs_names_release(&names);
        status = rs_hub_find_snapshot(checkpoint->context, path, &snapshot);
        path = snapshot;
        if (status == RESHARD_OK)
            status = rs_folder_list(checkpoint->context, path, &names);
    }
    if (status == RESHARD_OK && !rs_names_contain(&names, "config.json"))
        status = rs_fail(RESHARD_ERR_INVALID, "config \"%s\": the folder has no config.json", path);
    if (status == RESHARD_OK)
        checkpoint->base = rs_arena_copy(&checkpoint->arena, path, strlen(path) + 1, 1);
    if (status == RESHARD_OK && checkpoint->base == NULL)
        status = rs_allocation_status();
    rs_release(checkpoint->context, snapshot);
    rs_names_release(&names);
    return status;
}

static reshard_status find_base(reshard_checkpoint *checkpoint, const char *path)
{
    rs_path_kind kind = RS_PATH_NONE;
    reshard_status status = rs_path_kind_of(path, &kind);
    if (status != RESHARD_OK)
        return status;
    if (kind == RS_PATH_NONE)
        return rs_fail(RESHARD_ERR_NOT_FOUND, "config \"%s\": there is no such folder", path);
    if (kind != RS_PATH_FOLDER)
        return rs_fail(RESHARD_ERR_INVALID,
                       "config \"%s\" is not a folder; give the one that holds config.json", path);
    return keep_base(checkpoint, path);
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* Reads the options whose values are words. */
static reshard_status read_words(const reshard_checkpoint_options *options, rs_opening *opening)
{
    static const char *const words[] = {
        [RS_UNLISTED_SKIP] = "skip", [RS_UNLISTED_TAKE] = "take", [RS_UNLISTED_REFUSE] = "refuse"};
    int choice = options->unlisted == NULL ? RS_UNLISTED_SKIP : 0;
    while (options->unlisted != NULL && choice < 3 && strcmp(options->unlisted, words[choice]) != 0)
        choice++;
    if (choice == 3)
        return rs_fail(RESHARD_ERR_INVALID, "unlisted \"%.40s\": give skip, take or refuse",
                       options->unlisted);
    opening->unlisted = (rs_unlisted)choice;
    opening->any_padding = options->padding != NULL && strcmp(options->padding, "any") == 0;
    if (options->padding != NULL && !opening->any_padding && strcmp(options->padding, "zero") != 0)
        return rs_fail(RESHARD_ERR_INVALID, "padding \"%.40s\": give zero or any",
                       options->padding);
    return RESHARD_OK;
}

/* What people give in place of a path: a model's name in the hub, or an address. */
static reshard_status fail_missing(const char *path)
{
    const char *advice = "";
    const char *slash = strchr(path, '/');
    char owner[256];
    rs_path_kind kind = RS_PATH_NONE;
    if (strstr(path, "://") != NULL)
        advice = "; reshard opens files and folders: download it first";
    else if (slash != NULL && slash != path && slash[1] != '\0' && path[0] != '.' &&
             path[0] != '~' && strchr(slash + 1, '/') == NULL &&
             (size_t)(slash - path) < sizeof owner) {
        memcpy(owner, path, (size_t)(slash - path));
        owner[slash - path] = '\0';
        if (rs_path_kind_of(owner, &kind) == RESHARD_OK && kind == RS_PATH_NONE)
            advice = "; if it is a model of Hugging Face's hub, give the folder that hf download "
                     "prints";
    }
    return rs_fail_about(RESHARD_ERR_NOT_FOUND, path[0] != '\0' ? path : "\"\"",
                         "there is no such file or folder%s", advice);
}

static reshard_status open_path(reshard_checkpoint *checkpoint,
                                const reshard_checkpoint_options *options)
{
    rs_path_kind kind = RS_PATH_NONE;
    rs_opening opening = {.options = options};
    reshard_status status = read_words(options, &opening);
    if (status == RESHARD_OK && options->config != NULL)
        status = find_base(checkpoint, options->config);
    if (status == RESHARD_OK)
        status = rs_path_kind_of(checkpoint->path, &kind);
    if (status != RESHARD_OK)
        return status;
    if (kind == RS_PATH_NONE)
        return fail_missing(checkpoint->path);
    if (kind != RS_PATH_FOLDER)
        return open_file(checkpoint, &opening);
    checkpoint->folder = checkpoint->path;
    return open_folder(checkpoint, &opening);
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
    checkpoint->plan_only = full.plan_only != 0;
    checkpoint->lists_unreadable = full.unreadable != 0;
    status = open_path(checkpoint, &full);
    if (status == RESHARD_OK && checkpoint->tensor_count == 0 && checkpoint->unreadable_count != 0)
        status = rs_fail(RESHARD_ERR_UNSUPPORTED, "%s", checkpoint->unreadable[0].reason);
    if (status != RESHARD_OK) {
        reshard_checkpoint_destroy(checkpoint);
        return status;
    }
    *out_checkpoint = checkpoint;
    return RESHARD_OK;
}
