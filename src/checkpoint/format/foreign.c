/* SPDX-License-Identifier: Apache-2.0 */
/*
 * foreign.c - recognises formats that reshard does not read, by the endings of names. When one of
 * them joins the list of formats, its row here goes.
 */
#include "checkpoint/format/foreign.h"

#include "base/context.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

/* The first row that matches the end of some name counts. */
static const struct {
    const char *ending, *what;
} rows[] = {
    {".gguf", "GGUF (llama.cpp)"},
    {".h5", "Keras .h5"},
    {".msgpack", "Flax .msgpack"},
    {".onnx", "model graph (.onnx)"},
};
#define ROW_COUNT (sizeof rows / sizeof *rows)

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), end_length = strlen(end);
    return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

bool rs_name_holds_weights(const char *name)
{
    static const char *const own[] = {".safetensors", ".index.json", ".partial", ".rules",
                                      ".npy",         ".npz",        ".distcp",  ".metadata",
                                      ".bin",         ".pt",         ".pth",     ".ckpt"};
    bool holds = strstr(name, ".safetensors.index.") != NULL;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        holds = holds || ends_with(name, own[i]);
    for (size_t i = 0; i < ROW_COUNT; i++)
        holds = holds || ends_with(name, rows[i].ending);
    return holds;
}

static bool has_name(const rs_opening *opening, const char *name)
{
    for (int64_t i = 0; i < opening->name_count; i++) {
        if (strcmp(opening->names[i], name) == 0)
            return true;
    }
    return false;
}

/* ---- the cache of the Hugging Face hub ------------------------------------------------------- */

/* The commit that refs/main names, or else the last snapshot; "" when there is none. */
static reshard_status find_snapshot(const reshard_checkpoint *checkpoint, char out_name[128])
{
    reshard_context *context = checkpoint->context;
    char path[4096], *text = NULL;
    size_t count = 0;
    rs_names names;
    out_name[0] = '\0';
    (void)snprintf(path, sizeof path, "%s/refs/main", checkpoint->path);
    if (rs_file_read_all(context, path, 120, &text, &count) == RESHARD_OK) {
        (void)snprintf(out_name, 128, "%.*s", (int)strcspn(text, "\r\n/"), text);
        rs_release(context, text, count + 1);
        return RESHARD_OK;
    }
    (void)snprintf(path, sizeof path, "%s/snapshots", checkpoint->path);
    reshard_status status = rs_folder_list(context, path, &names);
    if (status != RESHARD_OK)
        return status;
    if (names.count != 0)
        (void)snprintf(out_name, 128, "%.120s", names.items[names.count - 1]);
    rs_names_release(&names);
    return RESHARD_OK;
}

static bool is_hub_root(const reshard_checkpoint *checkpoint, const rs_opening *opening)
{
    const char *slash = strrchr(checkpoint->path, '/');
    const char *name = slash != NULL ? slash + 1 : checkpoint->path;
    return opening->is_folder && has_name(opening, "snapshots") &&
           (strncmp(name, "models--", 8) == 0 || has_name(opening, "refs") ||
            has_name(opening, "blobs"));
}

static reshard_status fail_hub_root(const reshard_checkpoint *checkpoint)
{
    char snapshot[128];
    reshard_status status = find_snapshot(checkpoint, snapshot);
    if (status != RESHARD_OK)
        return status;
    return rs_fail(
        RESHARD_ERR_NOT_FOUND,
        "%s: a model's folder in the cache of the Hugging Face hub, which holds %s%s%s%s",
        checkpoint->path, snapshot[0] != '\0' ? "snapshots; give one of them: " : "none",
        snapshot[0] != '\0' ? checkpoint->path : "", snapshot[0] != '\0' ? "/snapshots/" : "",
        snapshot);
}

/* ---- words ----------------------------------------------------------------------------------- */

static const char *find_foreign(const rs_opening *opening)
{
    for (size_t row = 0; row < ROW_COUNT; row++) {
        for (int64_t i = 0; i < opening->name_count; i++) {
            if (ends_with(opening->names[i], rows[row].ending))
                return rows[row].what;
        }
    }
    return NULL;
}

reshard_status rs_foreign_fail(const reshard_checkpoint *checkpoint, const rs_opening *opening)
{
    char looked_for[512];
    rs_text text;
    const rs_format *format;
    const char *foreign = find_foreign(opening);
    bool is_folder = opening->is_folder;
    bool has_mesh = opening->options->from != NULL;
    if (is_hub_root(checkpoint, opening))
        return fail_hub_root(checkpoint);
    rs_text_init(&text, looked_for, sizeof looked_for);
    for (int32_t i = 0; (format = rs_format_at(i)) != NULL; i++) {
        if (format->needs_mesh == has_mesh)
            rs_text_add(&text, "%s%s (%s)", looked_for[0] == '\0' ? "" : ", ", format->looks_for,
                        format->name);
    }
    if (foreign != NULL)
        return rs_fail(RESHARD_ERR_UNSUPPORTED,
                       "%s: a %s%s %s, which reshard does not read yet; it looked for %s",
                       checkpoint->path, is_folder ? "folder of " : "", foreign,
                       is_folder ? "files" : "file", looked_for);
    return rs_fail(RESHARD_ERR_NOT_FOUND,
                   "%s: this %s is no checkpoint that reshard knows; it looked for %s",
                   checkpoint->path, is_folder ? "folder" : "file", looked_for);
}
