/* SPDX-License-Identifier: Apache-2.0 */
/*
 * links.c - finds out where symbolic links of a checkpoint's folder lead. A folder from a stranger
 * may link to any file of this machine. Links inside the folder are fine, and so are those of the
 * hub's cache, where a checkpoint is MODEL/snapshots/REVISION and its files link to MODEL/blobs.
 * Callers decide about the others: weights are read and noted (files.c), and files that would be
 * copied are refused (convert/others.c).
 */
#include "checkpoint/store/store.h"
#include "text/text.h"

#include <string.h>

/* The length of the part of a folder's resolved path that links may not leave: all of it or, for a
 * snapshot in the hub's cache, its model's folder. */
static size_t measure_root(const char *folder)
{
    const char *model = strstr(folder, "/models--");
    const char *snapshots = model != NULL ? strstr(model, "/snapshots/") : NULL;
    bool is_snapshot = snapshots != NULL && strchr(model + 1, '/') == snapshots;
    return is_snapshot ? (size_t)(snapshots - folder) : strlen(folder);
}

static bool lies_inside(const char *folder, const char *path)
{
    size_t length = measure_root(folder);
    return strncmp(folder, path, length) == 0 && path[length] == '/';
}

/* Whether a path that begins with the folder may lead out of it. Either its end is a link, or one
 * of the folders on the way may be. */
static bool may_leave(const char *folder, const char *path)
{
    size_t length = strlen(folder);
    bool has_folders = strlen(path) > length && strchr(path + length + 1, '/') != NULL;
    return has_folders || rs_path_is_link(path);
}

reshard_status rs_store_follow_link(reshard_context *context, const char *folder, const char *path,
                                    char **out_outside)
{
    char *root = NULL, *target = NULL;
    *out_outside = NULL;
    if (!may_leave(folder, path))
        return RESHARD_OK;
    reshard_status status = rs_path_resolve(context, folder, &root);
    if (status == RESHARD_OK)
        status = rs_path_resolve(context, path, &target);
    if (status == RESHARD_OK && !lies_inside(root, target)) {
        *out_outside = target;
        target = NULL;
    }
    rs_text_free(context, target);
    rs_text_free(context, root);
    return status;
}
