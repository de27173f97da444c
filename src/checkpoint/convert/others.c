/* SPDX-License-Identifier: Apache-2.0 */
/*
 * others.c - what a conversion writes besides tensors: the index, copies of the source's files that
 * hold no weights (config.json, tokenizers), or of those in a folder that the user names for it,
 * and links to files that do not change.
 */
#include "base/context.h"
#include "base/dtype.h"
#include "checkpoint/convert/config_file.h"
#include "checkpoint/convert/conversion.h"
#include "checkpoint/open/open.h"
#include "text/dtype_names.h"
#include "text/text.h"

#include <stdio.h>
#include <string.h>

#define COPY_BYTES ((size_t)1 << 20)
#define CONFIG_NAME "config.json"
#define CONFIG_BYTES_MAX ((size_t)16 << 20)

/* ---- listing --------------------------------------------------------------------------------- */

/* Files and folders beside the checkpoint's own that are treated in the same way: how many, and the
 * first. */
typedef struct kin {
    int64_t count;
    const char *first;
} kin;

typedef struct others {
    kin copied, based, replaced, weights, folders, odd;
} others;

static void add_kin(kin *group, const char *name)
{
    if (group->count++ == 0)
        group->first = name;
}

static bool is_source_file(const reshard_checkpoint *source, const char *name)
{
    for (int32_t i = 0; i < source->file_count; i++) {
        if (strcmp(source->files[i].name, name) == 0)
            return true;
    }
    return false;
}

/* Does it say what the other files are, in the source's own format? */
static bool is_of_format(const reshard_checkpoint *source, const char *name)
{
    const char *const *own = source->own_names;
    while (own != NULL && *own != NULL && strcmp(*own, name) != 0)
        own++;
    return own != NULL && *own != NULL;
}

/* Checks that a file can be copied, and may be: a link that leaves the checkpoint would bring
 * somebody else's file into the output. */
static reshard_status check_other(const reshard_conversion *conversion, const char *folder,
                                  const char *path, rs_path_kind *out_kind)
{
    rs_file *file = NULL;
    char *outside = NULL;
    reshard_status status = rs_store_follow_link(conversion->context, folder, path, &outside);
    if (outside != NULL)
        status = rs_fail_about(RESHARD_ERR_INVALID, path,
                               "a link that leaves the checkpoint, to %.300s; put the file in its "
                               "place, or remove it",
                               outside);
    rs_text_free(conversion->context, outside);
    if (status == RESHARD_OK)
        status = rs_path_kind_of(path, out_kind);
    if (status == RESHARD_OK && *out_kind == RS_PATH_FILE)
        status = rs_file_open(conversion->context, path, &file);
    rs_file_close(file);
    return status;
}

static reshard_status find_kind(const reshard_conversion *conversion, const char *folder,
                                const char *name, rs_path_kind *out_kind)
{
    char *path = rs_path_join(conversion->context, folder, name);
    if (path == NULL)
        return rs_allocation_status();
    reshard_status status = rs_name_holds_weights(name)
                                ? rs_path_kind_of(path, out_kind)
                                : check_other(conversion, folder, path, out_kind);
    rs_release(conversion->context, path);
    return status;
}

static bool is_taken(const reshard_conversion *conversion, const char *name)
{
    for (int64_t i = 0; i < conversion->other_count; i++) {
        if (strcmp(conversion->others[i].name, name) == 0)
            return true;
    }
    return false;
}

static reshard_status take_other(reshard_conversion *conversion, const char *folder,
                                 const char *name, kin *group)
{
    const char *kept = rs_arena_copy(&conversion->arena, name, strlen(name) + 1, 1);
    if (kept == NULL)
        return rs_allocation_status();
    conversion->others[conversion->other_count++] = (rs_other_file){folder, kept};
    add_kin(group, kept);
    return RESHARD_OK;
}

/* Does another file describe the model in the output? */
static bool is_superseded(const reshard_conversion *conversion, const char *name)
{
    const rs_target *target = &conversion->target;
    return (target->made_name != NULL && strcmp(name, target->made_name) == 0) ||
           (target->left_name != NULL && strcmp(name, target->left_name) == 0);
}

/* Is it about how weights are quantised, which no longer are? */
static bool is_outdated(const reshard_conversion *conversion, const char *name)
{
    return conversion->target.dequantises && strcmp(name, "hf_quant_config.json") == 0;
}

/* Need nothing be said of a file that holds weights? An index holds none, and formats that read
 * safetensors files have notes about those that they leave out. */
static bool is_noted(const reshard_checkpoint *source, const char *name)
{
    bool reads_them = false;
    for (int32_t i = 0; !reads_them && i < source->named_count; i++)
        reads_them = strstr(source->files[i].name, ".safetensors") != NULL;
    return strstr(name, ".index.") != NULL || (reads_them && strstr(name, ".safetensors") != NULL);
}

static reshard_status consider_other(reshard_conversion *conversion, const char *name, others *seen)
{
    const char *folder = conversion->source->folder;
    rs_path_kind kind = RS_PATH_NONE;
    if (is_source_file(conversion->source, name) || is_of_format(conversion->source, name) ||
        is_superseded(conversion, name))
        return RESHARD_OK;
    reshard_status status = find_kind(conversion, folder, name, &kind);
    if (status != RESHARD_OK)
        return status;
    if (kind == RS_PATH_FOLDER) {
        add_kin(&seen->folders, name);
    } else if (kind != RS_PATH_FILE) {
        add_kin(&seen->odd, name);
    } else if (is_outdated(conversion, name)) {
        return rs_target_say(&conversion->target,
                             "left out: %s, which says how weights are quantised", name);
    } else if (rs_name_holds_weights(name)) {
        if (!is_noted(conversion->source, name))
            add_kin(&seen->weights, name);
    } else if (is_taken(conversion, name)) {
        add_kin(&seen->replaced, name);
    } else {
        status = take_other(conversion, folder, name, &seen->copied);
    }
    return status;
}

/* A file beside the config.json that the user wants. Weights and folders there belong to another
 * model, and are nothing that a conversion would leave out; nor is a file that names one of these
 * folders as the newest. */
static reshard_status consider_base(reshard_conversion *conversion, const char *name, others *seen)
{
    const char *folder = conversion->source->base;
    rs_path_kind kind = RS_PATH_NONE;
    if (rs_name_holds_weights(name) || is_outdated(conversion, name) ||
        rs_latest_is_pointer(name) || is_of_format(conversion->source, name) ||
        is_superseded(conversion, name))
        return RESHARD_OK;
    reshard_status status = find_kind(conversion, folder, name, &kind);
    return status == RESHARD_OK && kind == RS_PATH_FILE
               ? take_other(conversion, folder, name, &seen->based)
               : status;
}

static reshard_status note_kin(reshard_conversion *conversion, const kin *group, const char *fate,
                               const char *one, const char *several)
{
    if (group->count == 0)
        return RESHARD_OK;
    return rs_target_say(&conversion->target, "%s %lld %s (\"%.100s\"%s)", fate,
                         (long long)group->count, group->count == 1 ? one : several, group->first,
                         group->count == 1 ? "" : " and others");
}

static reshard_status note_base(reshard_conversion *conversion, const others *seen)
{
    const kin *replaced = &seen->replaced;
    char instead[160] = "";
    if (seen->based.count == 0)
        return RESHARD_OK;
    if (replaced->count != 0)
        (void)snprintf(
            instead, sizeof instead, ", %lld of them in place of the source's own (\"%.80s\"%s)",
            (long long)replaced->count, replaced->first, replaced->count == 1 ? "" : " and others");
    return rs_target_say(&conversion->target, "copied from %.200s: %lld file%s (\"%.100s\"%s)%s",
                         conversion->source->base, (long long)seen->based.count,
                         seen->based.count == 1 ? "" : "s", seen->based.first,
                         seen->based.count == 1 ? "" : " and others", instead);
}

static reshard_status note_others(reshard_conversion *conversion, const others *seen)
{
    reshard_status status = note_base(conversion, seen);
    if (status == RESHARD_OK)
        status = note_kin(conversion, &seen->copied, "copied along:", "file", "files");
    if (status == RESHARD_OK)
        status =
            note_kin(conversion, &seen->weights, "left out:", "file of weights that is not read",
                     "files of weights that are not read");
    if (status == RESHARD_OK)
        status = note_kin(conversion, &seen->folders, "left out:", "folder", "folders");
    if (status == RESHARD_OK)
        status =
            note_kin(conversion, &seen->odd, "left out:", "thing that is neither file nor folder",
                     "things that are neither files nor folders");
    return status;
}

/* The folder of the config.json that goes along; NULL if none does. */
static const char *find_config(const reshard_conversion *conversion)
{
    for (int64_t i = 0; i < conversion->other_count; i++) {
        if (strcmp(conversion->others[i].name, CONFIG_NAME) == 0)
            return conversion->others[i].folder;
    }
    return NULL;
}

/* Rewrites config.json, and adds a note about it. One that is not valid JSON is copied as it is. */
static reshard_status change_config(reshard_conversion *conversion, rs_slice text)
{
    rs_target *target = &conversion->target;
    const char *dtype = rs_dtype_torch_name(target->cast);
    /* PyTorch has 8-bit dtypes, but no model computes in them. */
    if (!rs_dtype_is_float(target->cast))
        return rs_target_say(target, "config.json keeps its dtype, though most weights become %s",
                             reshard_dtype_name(target->cast));
    rs_config_change change = {.dtype = dtype, .is_dequantised = target->dequantises};
    reshard_status status =
        rs_config_file_rewrite(&conversion->arena, text, &change, &conversion->config_text);
    if (status == RESHARD_ERR_SYNTAX)
        return rs_target_say(target,
                             "config.json is copied as it is, and may name another dtype: %s",
                             reshard_error_text());
    if (status == RESHARD_OK && conversion->config_text.bytes != NULL)
        status = rs_target_say(target, "config.json: the dtype becomes %s%s", dtype,
                               change.quantization_gone ? ", and quantization_config goes" : "");
    return status;
}

/* Has the config.json written that the source's own files stand for, if its names are those of
 * Hugging Face now. */
static reshard_status make_config(reshard_conversion *conversion)
{
    rs_target *target = &conversion->target;
    rs_slice text = rs_slice_of(conversion->source->made_config);
    reshard_status status = RESHARD_OK;
    if (target->mapped == NULL)
        return RESHARD_OK;
    if (target->cast != RESHARD_DTYPE_NONE)
        status = change_config(conversion, text);
    if (conversion->config_text.bytes == NULL)
        conversion->config_text = text;
    if (status == RESHARD_OK)
        status = rs_target_say(target, "config.json is made from what the source says about the "
                                       "model; the tokenizer is not converted");
    return status;
}

static reshard_status rewrite_config(reshard_conversion *conversion)
{
    reshard_context *context = conversion->context;
    char *text = NULL;
    size_t count = 0;
    const char *folder = find_config(conversion);
    if (folder == NULL && conversion->source->made_config != NULL)
        return make_config(conversion);
    if (conversion->target.cast == RESHARD_DTYPE_NONE || folder == NULL)
        return RESHARD_OK;
    char *path = rs_path_join(context, folder, CONFIG_NAME);
    if (path == NULL)
        return rs_allocation_status();
    reshard_status status = rs_file_read_all(context, path, CONFIG_BYTES_MAX, &text, &count);
    if (status == RESHARD_OK)
        status = change_config(conversion, (rs_slice){text, count});
    rs_release(context, text);
    rs_release(context, path);
    return status;
}

/* Lists the names of a folder; none if folder is NULL. */
static reshard_status list_names(const reshard_conversion *conversion, const char *folder,
                                 rs_names *out_names)
{
    *out_names = (rs_names){.context = conversion->context};
    return folder != NULL ? rs_folder_list(conversion->context, folder, out_names) : RESHARD_OK;
}

reshard_status rs_conversion_list_others(reshard_conversion *conversion)
{
    if (conversion->target.format->is_one_file)
        return RESHARD_OK;
    const reshard_checkpoint *source = conversion->source;
    rs_names names, based = {.context = conversion->context};
    others seen = {.copied = {0, NULL}};
    reshard_status status =
        list_names(conversion, source->owns_folder ? source->folder : NULL, &names);
    if (status == RESHARD_OK)
        status = list_names(conversion, source->base, &based);
    if (status == RESHARD_OK) {
        conversion->others = rs_arena_allocate_array(
            &conversion->arena, (size_t)(names.count + based.count), sizeof *conversion->others);
        status = conversion->others != NULL ? RESHARD_OK : rs_allocation_status();
    }
    for (int64_t i = 0; status == RESHARD_OK && i < based.count; i++)
        status = consider_base(conversion, based.items[i], &seen);
    for (int64_t i = 0; status == RESHARD_OK && i < names.count; i++)
        status = consider_other(conversion, names.items[i], &seen);
    if (status == RESHARD_OK)
        status = note_others(conversion, &seen);
    rs_names_release(&based);
    rs_names_release(&names);
    return status == RESHARD_OK ? rewrite_config(conversion) : status;
}

/* ---- copying --------------------------------------------------------------------------------- */

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
    rs_release(context, memory);
    return status;
}

static reshard_status copy_other(rs_conversion_run *run, const rs_other_file *other)
{
    const char *name = other->name;
    rs_file *from = NULL, *to = NULL;
    uint64_t bytes = 0;
    rs_slice text = run->conversion->config_text;
    bool is_rewritten = text.bytes != NULL && strcmp(name, CONFIG_NAME) == 0;
    char *path = rs_path_join(run->context, other->folder, name);
    if (path == NULL)
        return rs_allocation_status();
    reshard_status status = rs_file_open(run->context, path, &from);
    rs_release(run->context, path);
    if (status == RESHARD_OK)
        status = rs_file_size(from, &bytes);
    if (is_rewritten)
        bytes = text.count;
    if (status == RESHARD_OK)
        status = rs_output_file(&run->output, name, bytes, false, NULL, &to);
    if (status == RESHARD_OK)
        status = is_rewritten ? rs_file_write(to, text.bytes, text.count, 0)
                              : copy_bytes(run->context, from, to, bytes);
    if (status == RESHARD_OK)
        status = rs_file_copy_mode(from, to);
    if (status == RESHARD_OK && !run->options.no_sync)
        status = rs_file_sync(to);
    rs_file_close(to);
    rs_file_close(from);
    return status;
}

/* The `make` function of rs_finishing. */
static reshard_status make_file(void *user, const char *name, uint64_t bytes,
                                reshard_status (*write)(const void *data, rs_file *file),
                                const void *data)
{
    rs_conversion_run *run = user;
    rs_file *file = NULL;
    reshard_status status = rs_output_file(&run->output, name, bytes, false, NULL, &file);
    if (status == RESHARD_OK)
        status = write(data, file);
    if (status == RESHARD_OK && !run->options.no_sync)
        status = rs_file_sync(file);
    rs_file_close(file);
    return status;
}

static reshard_status write_slice(const void *data, rs_file *file)
{
    const rs_slice *slice = data;
    return rs_file_write(file, slice->bytes, slice->count, 0);
}

/* The `add` function of rs_finishing. */
static reshard_status add_file(void *user, const char *name, const char *bytes, size_t count)
{
    const rs_slice slice = {bytes, count};
    return make_file(user, name, (uint64_t)count, write_slice, &slice);
}

reshard_status rs_run_copy_others(rs_conversion_run *run)
{
    const reshard_conversion *conversion = run->conversion;
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; status == RESHARD_OK && i < conversion->other_count; i++)
        status = copy_other(run, &conversion->others[i]);
    if (status == RESHARD_OK && conversion->config_text.bytes != NULL &&
        find_config(conversion) == NULL)
        status = add_file(run, CONFIG_NAME, conversion->config_text.bytes,
                          conversion->config_text.count);
    const rs_target *target = &conversion->target;
    if (status == RESHARD_OK && target->made_name != NULL)
        status = add_file(run, target->made_name, target->made_text.bytes, target->made_text.count);
    rs_finishing finishing = {run->target_files, add_file, run,
                              run->entry_sums != NULL ? run->entry_sums->items : NULL, make_file};
    return status == RESHARD_OK ? rs_target_finish(&conversion->target, &finishing) : status;
}

/* ---- links ----------------------------------------------------------------------------------- */

/* The source file that has exactly the tensors that a target file will hold, at the same places;
 * -1: none. The caller compares the headers. */
static int32_t find_same(const rs_conversion_run *run, const rs_target_file *file)
{
    const reshard_checkpoint *source = run->conversion->source;
    const rs_target *target = &run->conversion->target;
    int32_t same = -1;
    for (int64_t i = file->entry_first; i < file->entry_first + file->entry_count; i++) {
        const rs_stored_tensor *to = &target->tensors[target->entries[i].tensor];
        const rs_stored_tensor *from = target->stored[target->entries[i].tensor];
        if (to->piece_count != 1 || from->piece_count != 1 || to->dtype != from->dtype ||
            to->pieces[0].at != from->pieces[0].at || from->pieces[0].strides != NULL ||
            (same >= 0 && same != from->pieces[0].file))
            return -1;
        same = from->pieces[0].file;
    }
    return same >= 0 && source->files[same].bytes == file->bytes ? same : -1;
}

static reshard_status has_header(const rs_conversion_run *run, int32_t file, int32_t same,
                                 bool *out_equal)
{
    rs_json_writer writer;
    char *found = NULL;
    size_t count = (size_t)run->conversion->target.files[file].data_begin;
    rs_json_writer_init(&writer, run->context);
    reshard_status status =
        run->conversion->target.format->write_head(&run->conversion->target, file, &writer);
    if (status == RESHARD_OK && (found = rs_allocate(run->context, count)) == NULL)
        status = rs_allocation_status();
    if (status == RESHARD_OK)
        status = rs_file_read(run->conversion->source_files[same], found, count, 0);
    *out_equal = status == RESHARD_OK && memcmp(found, writer.bytes, count) == 0;
    rs_release(run->context, found);
    rs_json_writer_release(&writer);
    return status;
}

/* The blocks of a file that was linked are done. */
static void mark_blocks(rs_conversion_run *run, int32_t file)
{
    const rs_blocks *blocks = &run->blocks;
    for (int64_t i = 0; i < blocks->route_count; i++) {
        if (blocks->routes[i].target->pieces[0].file != file)
            continue;
        for (int64_t j = blocks->firsts[i]; j < blocks->firsts[i + 1]; j++) {
            if (!rs_ledger_is_done(&run->ledger, j))
                rs_ledger_mark_done(&run->ledger, j);
        }
    }
}

static reshard_status link_file(rs_conversion_run *run, int32_t file, int32_t same)
{
    reshard_status status =
        rs_output_link(&run->output, run->conversion->target.files[file].name,
                       run->conversion->source_files[same], &run->target_files[file]);
    /* If no link can be made, the file is written like any other. */
    if (status == RESHARD_OK && run->target_files[file] != NULL)
        mark_blocks(run, file);
    return status;
}

reshard_status rs_run_link(rs_conversion_run *run)
{
    reshard_status status = RESHARD_OK;
    const rs_format *format = run->conversion->target.format;
    /* The heads of archives are written last, so they cannot be compared now. */
    if (format->is_split || format->has_crcs)
        return RESHARD_OK;
    for (int32_t i = 0; status == RESHARD_OK && i < run->conversion->target.file_count; i++) {
        int32_t same = find_same(run, &run->conversion->target.files[i]);
        bool equal = false;
        if (same >= 0)
            status = has_header(run, i, same, &equal);
        if (status == RESHARD_OK && equal)
            status = link_file(run, i, same);
    }
    return status;
}
