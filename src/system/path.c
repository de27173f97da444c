/* SPDX-License-Identifier: Apache-2.0 */
/*
 * path.c - operations on paths: what a path is, what a folder contains, rename, link, remove.
 */
#define _GNU_SOURCE /* renameat2 */

#include "base/checked.h"
#include "base/context.h"
#include "base/error.h"
#include "base/sort.h"
#include "system/file.h"
#include "text/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static reshard_status fail(const char *path, const char *what)
{
    reshard_status status = errno == ENOENT ? RESHARD_ERR_NOT_FOUND : RESHARD_ERR_IO;
    return rs_fail_about(status, path, "%s: %s", what, strerror(errno));
}

reshard_status rs_path_kind_of(const char *path, rs_path_kind *out_kind)
{
    struct stat information;
    if (stat(path, &information) == 0) {
        *out_kind = S_ISREG(information.st_mode)   ? RS_PATH_FILE
                    : S_ISDIR(information.st_mode) ? RS_PATH_FOLDER
                                                   : RS_PATH_OTHER;
        return RESHARD_OK;
    }
    if (errno != ENOENT && errno != ENOTDIR)
        return fail(path, "cannot be examined");
    /* A dangling link counts as something that exists. */
    *out_kind = lstat(path, &information) == 0 ? RS_PATH_OTHER : RS_PATH_NONE;
    return RESHARD_OK;
}

bool rs_path_same(const char *a, const char *b)
{
    struct stat of_a, of_b;
    return stat(a, &of_a) == 0 && stat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev &&
           of_a.st_ino == of_b.st_ino;
}

bool rs_path_is_link(const char *path)
{
    struct stat information;
    return lstat(path, &information) == 0 && S_ISLNK(information.st_mode);
}

reshard_status rs_path_resolve(reshard_context *context, const char *path, char **out_path)
{
    char *found = realpath(path, NULL);
    if (found == NULL)
        return fail(path, "leads nowhere");
    *out_path = rs_text_copy(context, found);
    free(found);
    return *out_path != NULL ? RESHARD_OK : rs_allocation_status();
}

char *rs_path_join(reshard_context *context, const char *folder, const char *name)
{
    size_t folder_length = strlen(folder), name_length = strlen(name);
    char *path = rs_allocate(context, folder_length + name_length + 2);
    if (path == NULL)
        return NULL;
    memcpy(path, folder, folder_length);
    path[folder_length] = '/';
    memcpy(path + folder_length + 1, name, name_length + 1);
    return path;
}

reshard_status rs_folder_create(reshard_context *context, const char *path)
{
    if (!rs_file_may(context, "create", path) || mkdir(path, 0700) != 0)
        return fail(path, "the folder cannot be made");
    rs_file_did(context, "create", path, NULL, 0);
    return RESHARD_OK;
}

bool rs_folder_is_private(const char *path)
{
    struct stat information;
    return lstat(path, &information) == 0 && S_ISDIR(information.st_mode) &&
           information.st_uid == geteuid() && (information.st_mode & 077) == 0;
}

reshard_status rs_folder_sync(reshard_context *context, const char *path)
{
    int descriptor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0)
        return fail(path, "the folder cannot be opened");
    int done = rs_file_may(context, "sync", path) ? fsync(descriptor) : -1;
    /* Some network file systems cannot sync folders, but make names durable by themselves. */
    if (done != 0 && errno == EINVAL)
        done = 0;
    reshard_status status =
        done == 0 ? RESHARD_OK : fail(path, "the folder cannot be brought to the disk");
    (void)close(descriptor);
    if (done == 0)
        rs_file_did(context, "sync", path, NULL, 0);
    return status;
}

char *rs_path_parent(reshard_context *context, const char *path)
{
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    while (length > 0 && path[length - 1] != '/')
        length--;
    while (length > 1 && path[length - 1] == '/')
        length--;
    if (length == 0) {
        path = ".";
        length = 1;
    }
    char *parent = rs_allocate(context, length + 1);
    if (parent == NULL)
        return NULL;
    memcpy(parent, path, length);
    parent[length] = '\0';
    return parent;
}

/* Like rename, but fails if the new name exists. */
static int rename_to_new(const char *from, const char *to)
{
#if defined(__linux__) && defined(RENAME_NOREPLACE)
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return -1;
#endif
    struct stat unused;
    if (lstat(to, &unused) == 0) { /* not access(), which does not see a dangling link */
        errno = EEXIST;
        return -1;
    }
    return rename(from, to);
}

reshard_status rs_path_rename(reshard_context *context, const char *from, const char *to)
{
    if (!rs_file_may(context, "rename", to) || rename_to_new(from, to) != 0)
        return fail(to, "cannot be given its name");
    rs_file_did(context, "rename", to, from, 0);
    return RESHARD_OK;
}

reshard_status rs_path_link(reshard_context *context, const char *from, const char *to)
{
    /* If `from` is a symbolic link, as in the Hugging Face cache, link to the file that it leads
     * to. */
    if (!rs_file_may(context, "link", to) ||
        linkat(AT_FDCWD, from, AT_FDCWD, to, AT_SYMLINK_FOLLOW) != 0)
        return fail(to, "cannot be made a hard link");
    rs_file_did(context, "link", to, from, 0);
    return RESHARD_OK;
}

reshard_status rs_path_remove(reshard_context *context, const char *path)
{
    if (!rs_file_may(context, "remove", path) || unlink(path) != 0)
        return fail(path, "cannot be removed");
    rs_file_did(context, "remove", path, NULL, 0);
    return RESHARD_OK;
}

reshard_status rs_folder_remove(reshard_context *context, const char *path)
{
    DIR *folder = opendir(path);
    reshard_status status = RESHARD_OK;
    if (folder == NULL)
        return fail(path, "the folder cannot be opened");
    for (struct dirent *entry; status == RESHARD_OK && (entry = readdir(folder)) != NULL;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        char *name = rs_path_join(context, path, entry->d_name);
        if (name == NULL) {
            status = rs_allocation_status();
            break;
        }
        status = rs_path_remove(context, name);
        rs_release(context, name);
    }
    (void)closedir(folder);
    if (status != RESHARD_OK)
        return status;
    if (rmdir(path) != 0)
        return fail(path, "the folder cannot be removed");
    rs_file_did(context, "remove", path, NULL, 0);
    return RESHARD_OK;
}

void rs_file_log_mode(reshard_context *context, const char *path, uint32_t wanted)
{
    const char *why = strerror(errno);
    struct stat information;
    if (stat(path, &information) == 0 && (wanted & ~(uint32_t)information.st_mode) == 0)
        return;
    char line[2048];
    rs_text text;
    rs_text_init(&text, line, sizeof line);
    rs_text_add(&text, "%.1500s: its permissions cannot be set to %03o: %s", path, wanted, why);
    rs_context_log(context, line);
}

reshard_status rs_folder_publish(reshard_context *context, const char *path, const rs_file *like)
{
    rs_file_stamp stamp = {.bytes = 0};
    reshard_status status = rs_file_read_stamp(like, &stamp);
    if (status != RESHARD_OK)
        return status;
    uint32_t mode = stamp.mode | (stamp.mode & 0444) >> 2;
    if (!rs_file_may(context, "publish", path))
        return fail(path, "cannot be made readable");
    if (chmod(path, (mode_t)mode) != 0)
        rs_file_log_mode(context, path, mode);
    rs_file_did(context, "publish", path, NULL, 0);
    return RESHARD_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

reshard_status rs_names_add(rs_names *names, const char *name)
{
    size_t bytes = strlen(name) + 1;
    reshard_status status =
        rs_grow(names->context, &names->items, &names->capacity, names->count + 1, sizeof(char *));
    if (status != RESHARD_OK)
        return status;
    char *copy = rs_allocate(names->context, bytes);
    if (copy == NULL)
        return rs_allocation_status();
    memcpy(copy, name, bytes);
    names->items[names->count++] = copy;
    return RESHARD_OK;
}

void rs_names_sort(rs_names *names)
{
    if (names->count != 0)
        rs_sort(names->items, (size_t)names->count, sizeof(char *), compare_names);
}

bool rs_names_contain(const rs_names *names, const char *name)
{
    return names->count != 0 && bsearch(&name, names->items, (size_t)names->count, sizeof(char *),
                                        compare_names) != NULL;
}

static bool is_listed(const char *name, bool hidden)
{
    return hidden ? strcmp(name, ".") != 0 && strcmp(name, "..") != 0 : name[0] != '.';
}

static reshard_status list(reshard_context *context, const char *path, bool hidden,
                           rs_names *out_names)
{
    rs_names names = {.context = context};
    reshard_status status = RESHARD_OK;
    DIR *folder = opendir(path);
    if (folder == NULL)
        return fail(path, "the folder cannot be opened");
    for (;;) {
        errno = 0;
        struct dirent *entry = readdir(folder);
        if (entry == NULL) {
            if (errno != 0)
                status = fail(path, "the folder cannot be read");
            break;
        }
        if (is_listed(entry->d_name, hidden))
            status = rs_names_add(&names, entry->d_name);
        if (status != RESHARD_OK)
            break;
    }
    (void)closedir(folder);
    if (status != RESHARD_OK) {
        rs_names_release(&names);
        return status;
    }
    rs_names_sort(&names);
    *out_names = names;
    return RESHARD_OK;
}

reshard_status rs_folder_list(reshard_context *context, const char *path, rs_names *out_names)
{
    return list(context, path, false, out_names);
}

reshard_status rs_folder_list_all(reshard_context *context, const char *path, rs_names *out_names)
{
    return list(context, path, true, out_names);
}

void rs_names_release(rs_names *names)
{
    for (int64_t i = 0; i < names->count; i++)
        rs_release(names->context, names->items[i]);
    rs_release(names->context, names->items);
    *names = (rs_names){.context = names->context};
}
