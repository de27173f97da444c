/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format_gguf.c - GGUF, the files of llama.cpp: one file, or one in parts that are called
 * NAME-00001-of-00003.gguf. Tensors are whole. Those of a quantised type are tensors of f32, whose
 * values are decoded while they are read (gguf_decode.h). Key-values are the checkpoint's values.
 */
#include "checkpoint/gguf/gguf_format.h"

#include "base/checked.h"
#include "base/context.h"
#include "checkpoint/format/file_names.h"
#include "checkpoint/gguf/gguf_config.h"
#include "checkpoint/gguf/gguf_decode.h"
#include "checkpoint/gguf/gguf_write.h"
#include "text/text.h"

#include <stdio.h>
#include <string.h>

static const char ending[] = ".gguf";
/* split.count is a u16 */
#define PARTS_MAX 65535
#define NAMES_SHOWN 4

/* ---- which files ----------------------------------------------------------------------------- */

static bool is_gguf(const char *name)
{
    rs_file_name parts;
    return rs_file_name_read_as(name, ending, &parts);
}

/* Whether a file with any name begins as GGUF files do, like those in the stores of programs that
 * name them by their hashes. */
static reshard_status has_magic(reshard_checkpoint *checkpoint, const char *name, bool *out_has)
{
    rs_file *file = NULL;
    char magic[4];
    uint64_t bytes = 0;
    char *path = rs_path_join(checkpoint->context, checkpoint->folder, name);
    if (path == NULL)
        return rs_allocation_status();
    reshard_status status = rs_file_open(checkpoint->context, path, &file);
    rs_release(checkpoint->context, path);
    if (status == RESHARD_OK)
        status = rs_file_size(file, &bytes);
    *out_has = false;
    if (status == RESHARD_OK && bytes >= sizeof magic) {
        status = rs_file_read(file, magic, sizeof magic, 0);
        *out_has = status == RESHARD_OK && memcmp(magic, RS_GGUF_MAGIC, sizeof magic) == 0;
    }
    rs_file_close(file);
    return status;
}

/* A folder with safetensors is a model in that format, with a GGUF of it. */
static reshard_status probe(reshard_checkpoint *checkpoint, const rs_opening *opening, bool *out_is)
{
    *out_is = false;
    for (int64_t i = 0; i < opening->name_count; i++) {
        if (opening->is_folder && strstr(opening->names[i], ".safetensors") != NULL) {
            *out_is = false;
            return RESHARD_OK;
        }
        *out_is = *out_is || is_gguf(opening->names[i]);
    }
    if (*out_is || opening->is_folder)
        return RESHARD_OK;
    return has_magic(checkpoint, opening->names[0], out_is);
}

static reshard_status fail_several(const reshard_checkpoint *checkpoint, const rs_opening *opening)
{
    char shown[400];
    rs_text text;
    int64_t count = 0;
    rs_text_init(&text, shown, sizeof shown);
    for (int64_t i = 0; i < opening->name_count; i++) {
        if (is_gguf(opening->names[i]) && count++ < NAMES_SHOWN)
            rs_text_add(&text, "%s%.80s", count == 1 ? "" : ", ", opening->names[i]);
    }
    return rs_fail_about(
        RESHARD_ERR_INVALID, checkpoint->path,
        "holds %lld GGUF files that are not parts of one model (%s%s); give one of them",
        (long long)count, shown, count > NAMES_SHOWN ? ", .." : "");
}

/* Finds the one model that the path holds. Its parts are those that the name of one of them
 * counts. */
static reshard_status find_model(const reshard_checkpoint *checkpoint, const rs_opening *opening,
                                 rs_file_name *out_name)
{
    bool found = false;
    for (int64_t i = 0; i < opening->name_count; i++) {
        rs_file_name name = {.name = opening->names[i]};
        if (!rs_file_name_read_as(name.name, ending, &name) && opening->is_folder)
            continue;
        if (found &&
            (!name.is_numbered || !out_name->is_numbered || name.count != out_name->count ||
             rs_slice_compare(name.stem, out_name->stem) != 0))
            return fail_several(checkpoint, opening);
        if (!found)
            *out_name = name;
        found = true;
    }
    return RESHARD_OK;
}

static reshard_status name_parts(reshard_checkpoint *checkpoint, const rs_file_name *of,
                                 char **names)
{
    for (uint64_t i = 0; i < of->count; i++) {
        size_t room = of->stem.count + 64;
        rs_path_kind kind = RS_PATH_NONE;
        names[i] = rs_arena_allocate(&checkpoint->arena, room);
        if (names[i] == NULL)
            return rs_allocation_status();
        (void)snprintf(names[i], room, "%.*s-%05llu-of-%05llu%s", (int)of->stem.count,
                       of->stem.bytes, (unsigned long long)i + 1, (unsigned long long)of->count,
                       ending);
        reshard_status status = rs_store_kind_of(checkpoint, names[i], &kind);
        if (status != RESHARD_OK)
            return status;
        if (kind == RS_PATH_NONE)
            return rs_fail_about(RESHARD_ERR_GAP, checkpoint->path,
                                 "%s is missing; by their names, there are %llu parts", names[i],
                                 (unsigned long long)of->count);
    }
    return RESHARD_OK;
}

static reshard_status open_files(reshard_checkpoint *checkpoint, const rs_opening *opening)
{
    rs_file_name model = {.name = NULL};
    reshard_status status = find_model(checkpoint, opening, &model);
    if (status != RESHARD_OK)
        return status;
    if (!model.is_numbered) {
        char *name = (char *)(uintptr_t)model.name;
        return rs_store_open_files(checkpoint, 1, &name);
    }
    if (model.count == 0 || model.count > PARTS_MAX || model.number == 0 ||
        model.number > model.count)
        return rs_fail_about(
            RESHARD_ERR_INVALID, checkpoint->path,
            "%s: its name says part %llu of %llu; parts are numbered from 1 to at most %d",
            model.name, (unsigned long long)model.number, (unsigned long long)model.count,
            PARTS_MAX);
    char **names = rs_arena_allocate_array(&checkpoint->arena, (size_t)model.count, sizeof *names);
    if (names == NULL)
        return rs_allocation_status();
    status = name_parts(checkpoint, &model, names);
    return status == RESHARD_OK ? rs_store_open_files(checkpoint, (int64_t)model.count, names)
                                : status;
}

/* ---- parts ----------------------------------------------------------------------------------- */

static const rs_gguf *body_of(const reshard_checkpoint *checkpoint, int32_t file)
{
    return checkpoint->files[file].body;
}

static reshard_status read_key(const reshard_checkpoint *checkpoint, int32_t file, const char *key,
                               int64_t missing, int64_t *out_number)
{
    const rs_gguf_value *value = rs_gguf_find(body_of(checkpoint, file), key);
    bool is = false;
    reshard_status status = RESHARD_OK;
    *out_number = missing;
    if (value != NULL)
        status = rs_gguf_number(checkpoint->files[file].file, value, 0, out_number, &is);
    if (status == RESHARD_OK && value != NULL && !is)
        status = rs_fail_about(RESHARD_ERR_SYNTAX, rs_file_path(checkpoint->files[file].file),
                               "key \"%s\" must be a whole number", key);
    return status;
}

/* Whether each file is the part that its name says it is. */
static reshard_status check_parts(const reshard_checkpoint *checkpoint)
{
    int64_t parts = checkpoint->named_count, tensors = 0, all = 0;
    for (int32_t i = 0; i < checkpoint->named_count; i++) {
        int64_t count = 1, number = 0;
        const char *path = rs_file_path(checkpoint->files[i].file);
        reshard_status status = read_key(checkpoint, i, "split.count", 1, &count);
        if (status == RESHARD_OK)
            status = read_key(checkpoint, i, "split.no", 0, &number);
        if (status == RESHARD_OK)
            status = read_key(checkpoint, i, "split.tensors.count", -1, &all);
        if (status != RESHARD_OK)
            return status;
        count = rs_max(count, 1); /* 0: it is not split */
        tensors += body_of(checkpoint, i)->tensor_count;
        if (count != parts && parts == 1)
            return rs_fail_about(RESHARD_ERR_GAP, path,
                                 "is part %lld of %lld by its key-values; rename it to end in "
                                 "-%05lld-of-%05lld.gguf, so that the others can be found",
                                 (long long)number + 1, (long long)count, (long long)number + 1,
                                 (long long)count);
        if (count != parts || number != i)
            return rs_fail_about(RESHARD_ERR_CORRUPT, path,
                                 "is part %lld of %lld by its key-values, and %d of %lld by its "
                                 "name",
                                 (long long)number + 1, (long long)count, (int)i + 1,
                                 (long long)parts);
    }
    if (parts > 1 && all >= 0 && all != tensors)
        return rs_fail_about(RESHARD_ERR_GAP, checkpoint->path,
                             "its parts hold %lld tensors, but say that there are %lld",
                             (long long)tensors, (long long)all);
    return RESHARD_OK;
}

/* ---- what they hold -------------------------------------------------------------------------- */

static reshard_status show_value(const reshard_checkpoint *checkpoint, const rs_stored_value *value,
                                 int64_t items_max, rs_text *text)
{
    return rs_gguf_show_all(checkpoint->files[value->file].file, value->source, items_max, text);
}

static reshard_status add_values(reshard_checkpoint *checkpoint, int32_t file)
{
    const rs_gguf *gguf = body_of(checkpoint, file);
    for (int64_t i = 0; i < gguf->value_count; i++) {
        const rs_gguf_value *value = &gguf->values[i];
        char shown[RS_GGUF_SHOWN];
        if (file > 0 && strncmp(value->key.bytes, "split.", 6) == 0)
            continue; /* as in the first part */
        reshard_status status = rs_gguf_show(checkpoint->files[file].file, value, shown);
        if (status != RESHARD_OK)
            return status;
        rs_stored_value added = {
            .name = value->key,
            .file = file,
            .type = rs_gguf_type_name(value),
            .is_json = true,
            .item_count = value->kind == RS_GGUF_LIST ? (int64_t)value->count : -1,
            .show = show_value,
            .source = value,
            .text = rs_arena_copy(&checkpoint->arena, shown, strlen(shown) + 1, 1)};
        if (added.text == NULL)
            return rs_allocation_status();
        status = rs_store_add_value(checkpoint, &added);
        if (status != RESHARD_OK)
            return status;
    }
    return RESHARD_OK;
}

static reshard_status refuse_type(const reshard_checkpoint *checkpoint, int32_t file,
                                  const rs_gguf_tensor *tensor)
{
    return rs_fail_about(RESHARD_ERR_UNSUPPORTED, rs_file_path(checkpoint->files[file].file),
                         "tensor \"%.*s\": its type %s cannot be dequantised",
                         rs_slice_shown(tensor->name), tensor->name.bytes,
                         tensor->block_type->name);
}

/* Adds the tensors of a file, and the file of values that its quantised ones are decoded to. */
static reshard_status add_tensors(reshard_checkpoint *checkpoint, int32_t file, uint64_t *places,
                                  rs_occurrences *list)
{
    const rs_gguf *gguf = body_of(checkpoint, file);
    rs_file *decoded = NULL;
    int32_t values = file;
    char name[300];
    reshard_status status =
        rs_gguf_decode(checkpoint->context, checkpoint->files[file].file, gguf, places, &decoded);
    (void)snprintf(name, sizeof name, "%.256s (dequantised)", checkpoint->files[file].name);
    if (status == RESHARD_OK && decoded != NULL)
        status = rs_store_add_file(checkpoint, rs_slice_of(name), decoded, &values);
    for (int64_t i = 0; status == RESHARD_OK && i < gguf->tensor_count; i++) {
        const rs_gguf_tensor *tensor = &gguf->tensors[i];
        bool has_blocks = tensor->block_type != NULL;
        if (has_blocks && tensor->block_type->decode == NULL) {
            status = rs_store_keep_unreadable(checkpoint, refuse_type(checkpoint, file, tensor),
                                              tensor->name);
            continue;
        }
        status = rs_occurrences_add(checkpoint->context, list,
                                    &(rs_occurrence){.name = tensor->name,
                                                     .file = has_blocks ? values : file,
                                                     .dtype = tensor->dtype,
                                                     .ndim = tensor->ndim,
                                                     .shape = tensor->shape,
                                                     .at = has_blocks ? places[i] : tensor->at});
    }
    return status;
}

/* Tells each tensor its block type, and where its blocks are, once tensors are joined. */
static reshard_status set_block_types(reshard_checkpoint *checkpoint)
{
    int64_t count = 0;
    for (int32_t f = 0; f < checkpoint->named_count; f++) {
        const rs_gguf *gguf = body_of(checkpoint, f);
        for (int64_t i = 0; i < gguf->tensor_count; i++) {
            const rs_gguf_tensor *tensor = &gguf->tensors[i];
            int64_t index = tensor->block_type != NULL && tensor->block_type->decode != NULL
                                ? rs_store_find(checkpoint, tensor->name)
                                : -1;
            if (index < 0)
                continue;
            const rs_stored_piece blocks = {.file = f, .at = tensor->at};
            checkpoint->tensors[index].block_type = tensor->block_type;
            checkpoint->tensors[index].blocks =
                rs_arena_copy(&checkpoint->arena, &blocks, 1, sizeof blocks);
            if (checkpoint->tensors[index].blocks == NULL)
                return rs_allocation_status();
            count++;
        }
    }
    if (count == 0)
        return RESHARD_OK;
    return rs_store_note(
        checkpoint,
        "%lld tensor%s quantised; they are read as the f32 values that ggml dequantises them to",
        (long long)count, count == 1 ? " is" : "s are");
}

static reshard_status look(reshard_checkpoint *checkpoint, int32_t file)
{
    rs_gguf *gguf = NULL;
    reshard_status status = rs_gguf_read(checkpoint->context, checkpoint->files[file].file, &gguf);
    checkpoint->files[file].body = gguf;
    checkpoint->files[file].body_destroy = rs_gguf_destroy;
    return status;
}

static reshard_status add_file(reshard_checkpoint *checkpoint, int32_t file, rs_occurrences *list)
{
    size_t count = (size_t)body_of(checkpoint, file)->tensor_count;
    uint64_t *places = rs_allocate_array(checkpoint->context, count, sizeof *places);
    reshard_status status = places != NULL ? RESHARD_OK : rs_allocation_status();
    if (status == RESHARD_OK)
        status = add_tensors(checkpoint, file, places, list);
    if (status == RESHARD_OK)
        status = add_values(checkpoint, file);
    rs_release(checkpoint->context, places);
    return status;
}

static reshard_status read_files(reshard_checkpoint *checkpoint, const rs_opening *opening)
{
    rs_occurrences list = {0};
    reshard_status status = open_files(checkpoint, opening);
    for (int32_t i = 0; status == RESHARD_OK && i < checkpoint->named_count; i++)
        status = look(checkpoint, i);
    if (status == RESHARD_OK)
        status = check_parts(checkpoint);
    for (int32_t i = 0; status == RESHARD_OK && i < checkpoint->named_count; i++)
        status = add_file(checkpoint, i, &list);
    if (status == RESHARD_OK)
        status = rs_store_join_whole(checkpoint, &list, RESHARD_HINT_NONE, "");
    if (status == RESHARD_OK)
        status = set_block_types(checkpoint);
    if (status == RESHARD_OK && checkpoint->named_count != 0)
        status = rs_gguf_make_config(checkpoint, checkpoint->files[0].file, body_of(checkpoint, 0));
    rs_occurrences_release(checkpoint->context, &list);
    return status;
}

const rs_format rs_format_gguf = {
    .name = "gguf",
    .description = "GGUF, the files of llama.cpp: one file, or its parts",
    .looks_for = "*.gguf",
    .probe = probe,
    .read = read_files,
    .is_for_engines = true,
    .is_one_file = true,
    .limits_files = true,
    .is_packed = true,
    .takes_model = true,
    .leaves_tied = rs_gguf_leaves_tied,
    .follow = rs_gguf_follow,
    .lay_out = rs_gguf_lay_out,
    .name_file = rs_gguf_name_file,
    .place = rs_gguf_place,
    .write_head = rs_gguf_write_head,
};
