/* SPDX-License-Identifier: Apache-2.0 */
/* latest.c - reads the file that names the newest checkpoint of a training run. */
#include "checkpoint/open/open.h"

#include "base/context.h"
#include "spec/scan.h"
#include "text/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NAME_BYTES_MAX 200

/* In this order: Megatron-DeepSpeed writes both, and its folders have DeepSpeed's names. */
static const char *const pointers[] = {"latest", "latest_universal",
                                       "latest_checkpointed_iteration.txt"};

bool rs_latest_is_pointer(const char *name)
{
    bool is = false;
    for (size_t i = 0; !is && i < sizeof pointers / sizeof *pointers; i++)
        is = strcmp(name, pointers[i]) == 0;
    return is;
}

/* NULL if there is none. A folder, or a link to one, is no pointer: users can give it as it is. */
static const char *find_pointer(const reshard_checkpoint *checkpoint, const rs_opening *opening)
{
    for (size_t i = 0; opening->is_folder && i < sizeof pointers / sizeof *pointers; i++) {
        for (int64_t j = 0; j < opening->name_count; j++) {
            rs_path_kind kind = RS_PATH_NONE;
            if (strcmp(opening->names[j], pointers[i]) == 0 &&
                rs_store_kind_of(checkpoint, pointers[i], &kind) == RESHARD_OK &&
                kind == RS_PATH_FILE)
                return pointers[i];
        }
    }
    return NULL;
}

bool rs_latest_is_named(const reshard_checkpoint *checkpoint, const rs_opening *opening)
{
    return find_pointer(checkpoint, opening) != NULL;
}

/* Reads the pointer, without white space at its end. The file comes with the checkpoint, so what it
 * says is not trusted: it has to be a plain name. */
static reshard_status read_pointer(const reshard_checkpoint *checkpoint, const char *pointer,
                                   char out_name[NAME_BYTES_MAX + 1])
{
    char *text = NULL;
    size_t count = 0;
    char *path = rs_path_join(checkpoint->context, checkpoint->folder, pointer);
    if (path == NULL)
        return rs_allocation_status();
    reshard_status status =
        rs_file_read_all(checkpoint->context, path, NAME_BYTES_MAX, &text, &count);
    rs_release(checkpoint->context, path);
    if (status != RESHARD_OK)
        return status;
    size_t length = count;
    while (length > 0 && strchr(" \t\r\n", text[length - 1]) != NULL)
        length--;
    bool is_plain = length != 0 && text[0] != '.';
    for (size_t i = 0; i < length; i++)
        is_plain = is_plain && (unsigned char)text[i] > ' ' && text[i] != '/' && text[i] != 0x7f;
    if (is_plain) {
        memcpy(out_name, text, length);
        out_name[length] = '\0';
    } else {
        status = rs_fail_about(RESHARD_ERR_INVALID, checkpoint->path,
                               "its file %s does not hold the name of a folder beside it; give the "
                               "folder of the checkpoint itself",
                               pointer);
    }
    rs_release(checkpoint->context, text);
    return status;
}

/* Turns Megatron's number of an iteration into the name of its folder. */
static reshard_status name_iteration(const reshard_checkpoint *checkpoint, const char *pointer,
                                     char name[NAME_BYTES_MAX + 1])
{
    size_t length = strlen(name);
    if (strcmp(name, "release") == 0)
        return RESHARD_OK;
    if (strspn(name, "0123456789") != length || length > 18)
        return rs_fail_about(
            RESHARD_ERR_INVALID, checkpoint->path,
            "its file %s holds \"%s\", which is neither the number of an iteration "
            "nor \"release\"",
            pointer, rs_excerpt_of(name, length).text);
    int64_t number = 0;
    for (size_t i = 0; i < length; i++)
        number = number * 10 + (name[i] - '0');
    (void)snprintf(name, NAME_BYTES_MAX + 1, "iter_%07" PRId64, number);
    return RESHARD_OK;
}

/* Checks that the folder is there, and that it is inside of the one that names it. */
static reshard_status check_folder(const reshard_checkpoint *checkpoint, const char *pointer,
                                   const char *name, const char *path)
{
    rs_path_kind kind = RS_PATH_NONE;
    char *outside = NULL;
    reshard_status status = rs_path_kind_of(path, &kind);
    if (status == RESHARD_OK && kind != RS_PATH_FOLDER)
        return rs_fail_about(RESHARD_ERR_NOT_FOUND, checkpoint->path,
                             "its file %s names the folder %s, which does not exist", pointer,
                             name);
    if (status == RESHARD_OK)
        status = rs_store_follow_link(checkpoint->context, checkpoint->folder, path, &outside);
    if (outside != NULL)
        status =
            rs_fail_about(RESHARD_ERR_INVALID, checkpoint->path,
                          "its file %s names %s, a link that leaves the folder, to %.300s; give "
                          "that folder itself",
                          pointer, name, outside);
    rs_text_free(checkpoint->context, outside);
    return status;
}

reshard_status rs_latest_follow(reshard_checkpoint *checkpoint, const rs_opening *opening)
{
    char name[NAME_BYTES_MAX + 1];
    const char *pointer = find_pointer(checkpoint, opening);
    reshard_status status = read_pointer(checkpoint, pointer, name);
    if (status == RESHARD_OK && strcmp(pointer, "latest_checkpointed_iteration.txt") == 0)
        status = name_iteration(checkpoint, pointer, name);
    if (status != RESHARD_OK)
        return status;
    char *joined = rs_path_join(checkpoint->context, checkpoint->folder, name);
    if (joined == NULL)
        return rs_allocation_status();
    char *path = rs_arena_copy(&checkpoint->arena, joined, strlen(joined) + 1, 1);
    rs_release(checkpoint->context, joined);
    if (path == NULL)
        return rs_allocation_status();
    status = check_folder(checkpoint, pointer, name, path);
    if (status != RESHARD_OK)
        return status;
    checkpoint->path = path;
    checkpoint->folder = path;
    return rs_store_note(checkpoint, "reads the folder %s, which %s names", name, pointer);
}
