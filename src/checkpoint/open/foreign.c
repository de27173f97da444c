/* SPDX-License-Identifier: Apache-2.0 */
/*
 * foreign.c - recognises formats that reshard does not read, by the endings of names. A format that
 * joins the list in formats.c loses its row here.
 */
#include "checkpoint/format/file_names.h"
#include "checkpoint/open/open.h"

#include "base/context.h"
#include "text/text.h"

#include <string.h>

/* The first row that matches the end of any name wins. */
static const struct {
    const char *ending, *what;
} rows[] = {
    {".h5", "Keras .h5"},
    {".msgpack", "Flax .msgpack"},
    {".onnx", "model graph (.onnx)"},
};
#define ROW_COUNT (sizeof rows / sizeof *rows)

/* Sub-folders with weights that an error names, and how many names of a folder are looked at. */
#define PARTS_SHOWN 16
#define PARTS_BYTES 2048
#define NAMES_LOOKED_AT 1000

bool rs_name_holds_weights(const char *name)
{
    static const char *const own[] = {
        ".safetensors", ".index.json", ".partial", ".rules", ".npy",  ".npz",         ".distcp",
        ".metadata",    ".bin",        ".pt",      ".pth",   ".ckpt", "metadata.pkl", ".gguf"};
    bool holds = strstr(name, ".safetensors.index.") != NULL;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        holds = holds || rs_slice_ends(rs_slice_of(name), own[i]);
    for (size_t i = 0; i < ROW_COUNT; i++)
        holds = holds || rs_slice_ends(rs_slice_of(name), rows[i].ending);
    return holds;
}

/* ---- words ----------------------------------------------------------------------------------- */

static const char *find_foreign(const rs_opening *opening)
{
    for (size_t row = 0; row < ROW_COUNT; row++) {
        for (int64_t i = 0; i < opening->name_count; i++) {
            if (rs_slice_ends(rs_slice_of(opening->names[i]), rows[row].ending))
                return rows[row].what;
        }
    }
    return NULL;
}

/* Has a sub-folder files of weights? */
static bool holds_weights(const reshard_checkpoint *checkpoint, const char *name)
{
    rs_path_kind kind = RS_PATH_NONE;
    rs_names names = {.context = checkpoint->context};
    bool holds = false;
    if (rs_store_kind_of(checkpoint, name, &kind) != RESHARD_OK || kind != RS_PATH_FOLDER)
        return false;
    char *path = rs_path_join(checkpoint->context, checkpoint->folder, name);
    if (path != NULL && rs_folder_list(checkpoint->context, path, &names) == RESHARD_OK) {
        for (int64_t i = 0; !holds && i < names.count; i++)
            holds = rs_name_holds_weights(names.items[i]) &&
                    !rs_slice_ends(rs_slice_of(names.items[i]), ".rules") &&
                    !rs_slice_ends(rs_slice_of(names.items[i]), ".partial");
    }
    rs_names_release(&names);
    rs_release(checkpoint->context, path);
    return holds;
}

/* Lists the sub-folders that hold weights. Returns how many, and the first. */
static int64_t list_parts(const reshard_checkpoint *checkpoint, const rs_opening *opening,
                          char out_list[PARTS_BYTES], const char **out_first)
{
    rs_text text;
    int64_t count = 0;
    rs_text_init(&text, out_list, PARTS_BYTES);
    for (int64_t i = 0; opening->is_folder && i < opening->name_count && i < NAMES_LOOKED_AT; i++) {
        if (!holds_weights(checkpoint, opening->names[i]))
            continue;
        if (count++ == 0)
            *out_first = opening->names[i];
        if (count <= PARTS_SHOWN)
            rs_text_add(&text, "%s%.100s", count == 1 ? "" : ", ", opening->names[i]);
        else if (count == PARTS_SHOWN + 1)
            rs_text_add(&text, ", ..");
    }
    return count;
}

/* A folder of several models, such as the parts of a diffusers pipeline, or of several checkpoints
 * of one. */
static reshard_status fail_parts(const reshard_checkpoint *checkpoint, const rs_opening *opening,
                                 const char *parts, const char *first)
{
    return rs_fail_about(RESHARD_ERR_NOT_FOUND, checkpoint->path,
                         "%s; give one of its folders that hold weights, as in %s/%.100s: %s",
                         rs_opening_has(opening, "model_index.json")
                             ? "is a pipeline of several models (model_index.json), which can only "
                               "be read one at a time"
                             : "holds no weights itself",
                         checkpoint->path, first, parts);
}

reshard_status rs_foreign_fail(const reshard_checkpoint *checkpoint, const rs_opening *opening)
{
    char parts[PARTS_BYTES];
    const char *first = NULL;
    char looked_for[512];
    rs_text text;
    const rs_format *format;
    const char *foreign = find_foreign(opening);
    bool is_folder = opening->is_folder;
    bool has_mesh = opening->options->from != NULL;
    if (foreign == NULL && list_parts(checkpoint, opening, parts, &first) != 0)
        return fail_parts(checkpoint, opening, parts, first);
    rs_text_init(&text, looked_for, sizeof looked_for);
    for (int32_t i = 0; (format = rs_format_at(i)) != NULL; i++) {
        if (format->needs_mesh == has_mesh)
            rs_text_add(&text, "%s%s (%s)", looked_for[0] == '\0' ? "" : ", ", format->looks_for,
                        format->name);
    }
    if (foreign != NULL)
        return rs_fail_about(RESHARD_ERR_UNSUPPORTED, checkpoint->path,
                             "is a %s%s %s, which reshard cannot read yet; it looked for %s",
                             is_folder ? "folder of " : "", foreign, is_folder ? "files" : "file",
                             looked_for);
    const char *config = rs_opening_has(opening, "adapter_config.json") ? "adapter_config.json"
                         : rs_opening_has(opening, "config.json")       ? "config.json"
                                                                        : NULL;
    if (is_folder && config != NULL)
        return rs_fail_about(RESHARD_ERR_NOT_FOUND, checkpoint->path,
                             "has %s, but no weights; perhaps it was not downloaded or copied "
                             "completely; reshard looked for %s",
                             config, looked_for);
    return rs_fail_about(RESHARD_ERR_NOT_FOUND, checkpoint->path,
                         "this %s is not a checkpoint that reshard knows; it looked for %s",
                         is_folder ? "folder" : "file", looked_for);
}
