/* SPDX-License-Identifier: Apache-2.0 */
/* hub_cache.c - finds a model's snapshot in the hub's cache. */
#include "checkpoint/open/open.h"

#include "base/context.h"
#include "base/error.h"

#include <string.h>

#define REFERENCE_BYTES_MAX ((size_t)120)

static bool has_name(const rs_names *names, const char *name)
{
    for (int64_t i = 0; i < names->count; i++) {
        if (strcmp(names->items[i], name) == 0)
            return true;
    }
    return false;
}

bool rs_hub_is_root(const char *path, const rs_names *names)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    return has_name(names, "snapshots") && (strncmp(name, "models--", 8) == 0 ||
                                            has_name(names, "refs") || has_name(names, "blobs"));
}

/* Reads refs/main, up to the first end of line or slash; NULL if there is no such file. */
static reshard_status read_main(reshard_context *context, const char *path, char **out_text,
                                size_t *out_count)
{
    char *file = rs_path_join(context, path, "refs/main");
    if (file == NULL)
        return rs_allocation_status();
    reshard_status status =
        rs_file_read_all(context, file, REFERENCE_BYTES_MAX, out_text, out_count);
    rs_release(context, file);
    if (status == RESHARD_ERR_NOT_FOUND)
        return RESHARD_OK;
    if (status == RESHARD_OK)
        (*out_text)[strcspn(*out_text, "\r\n/")] = '\0';
    return status;
}

/* Chooses the only name in the folder of snapshots. */
static reshard_status choose_only(const char *path, const rs_names *names, const char **out_name)
{
    if (names->count == 0)
        return rs_fail_about(RESHARD_ERR_NOT_FOUND, path,
                             "is a model's folder in the cache of the Hugging Face hub, but has no "
                             "snapshot; download the model again");
    if (names->count > 1)
        return rs_fail_about(RESHARD_ERR_INVALID, path,
                             "is a model's folder in the cache of the Hugging Face hub, with %lld "
                             "snapshots and no refs/main; give one of them: %s/snapshots/%s",
                             (long long)names->count, path, names->items[0]);
    *out_name = names->items[0];
    return RESHARD_OK;
}

static reshard_status join(reshard_context *context, const char *folder, const char *name,
                           char **out_path)
{
    rs_path_kind kind = RS_PATH_NONE;
    char *path = rs_path_join(context, folder, name);
    if (path == NULL)
        return rs_allocation_status();
    reshard_status status = rs_path_kind_of(path, &kind);
    if (status == RESHARD_OK && kind != RS_PATH_FOLDER)
        status = rs_fail_about(
            RESHARD_ERR_NOT_FOUND, path,
            "the snapshot that refs/main names does not exist; download the model again");
    if (status == RESHARD_OK)
        *out_path = path;
    else
        rs_release(context, path);
    return status;
}

reshard_status rs_hub_find_snapshot(reshard_context *context, const char *path, char **out_path)
{
    char *text = NULL;
    size_t count = 0;
    const char *name = NULL;
    rs_names names = {.context = context};
    char *folder = rs_path_join(context, path, "snapshots");
    if (folder == NULL)
        return rs_allocation_status();
    reshard_status status = read_main(context, path, &text, &count);
    if (status == RESHARD_OK && text != NULL && text[0] != '\0') {
        name = text;
    } else if (status == RESHARD_OK) {
        status = rs_folder_list(context, folder, &names);
        if (status == RESHARD_OK)
            status = choose_only(path, &names, &name);
    }
    if (status == RESHARD_OK)
        status = join(context, folder, name, out_path);
    rs_names_release(&names);
    rs_release(context, text);
    rs_release(context, folder);
    return status;
}
