/* SPDX-License-Identifier: Apache-2.0 */
/*
 * foreign.c - recognises formats that reshard does not read, by the endings of names. A format that
 * joins the list in formats.c loses its row here.
 */
#include "checkpoint/format/foreign.h"
#include "checkpoint/format/formats.h"

#include "text/text.h"

#include <string.h>

/* The first row that matches the end of any name wins. */
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
    static const char *const own[] = {
        ".safetensors", ".index.json", ".partial", ".rules", ".npy",  ".npz",        ".distcp",
        ".metadata",    ".bin",        ".pt",      ".pth",   ".ckpt", "metadata.pkl"};
    bool holds = strstr(name, ".safetensors.index.") != NULL;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        holds = holds || ends_with(name, own[i]);
    for (size_t i = 0; i < ROW_COUNT; i++)
        holds = holds || ends_with(name, rows[i].ending);
    return holds;
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
