/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_write.c - lays out a GGUF file, and writes what is in front of its data. */
#include "checkpoint/gguf/gguf_write.h"

#include "base/context.h"
#include "base/dtype.h"
#include "base/error.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define VERSION 3
/* Those of the largest vocabularies take some 20 MB. */
#define VALUES_BYTES_MAX ((uint64_t)256 << 20)
/* libllama aborts on files with less. */
#define ALIGNMENT_MIN 32
#define PARTS_MAX 65535 /* their number is a u16 */

/* ---- key-values ------------------------------------------------------------------------------ */

/* The bytes of a key-value in front of its items: its key, its kind, and those of a list. */
static uint64_t head_bytes(const rs_gguf_value *value)
{
    return 8 + value->key.count + 4 + (value->kind == RS_GGUF_LIST ? 12 : 0);
}

static bool is_about_parts(const rs_gguf_value *value)
{
    return strncmp(value->key.bytes, "split.", 6) == 0;
}

static void write_little(char *bytes, uint64_t number, size_t count)
{
    for (size_t i = 0; i < count; i++)
        bytes[i] = (char)(number >> (8 * i) & 0xff);
}

reshard_status rs_gguf_take_values(rs_target *target, const reshard_checkpoint *donor,
                                   int32_t file_type, rs_gguf_plan *plan)
{
    const rs_gguf *gguf = donor->files[0].body;
    const rs_file *file = donor->files[0].file;
    uint64_t bytes = gguf->values_end - gguf->values_at, used = 0;
    if (gguf->alignment < ALIGNMENT_MIN)
        return rs_fail_about(RESHARD_ERR_UNSUPPORTED, rs_file_path(file),
                             "its alignment is %llu; llama.cpp loads files with 32 or more",
                             (unsigned long long)gguf->alignment);
    if (bytes > VALUES_BYTES_MAX)
        return rs_fail_about(RESHARD_ERR_RANGE, rs_file_path(file),
                             "its key-values take %llu bytes; at most %llu can be copied",
                             (unsigned long long)bytes, (unsigned long long)VALUES_BYTES_MAX);
    char *values = rs_arena_allocate(&target->arena, (size_t)bytes + 1);
    if (values == NULL)
        return rs_allocation_status();
    reshard_status status = rs_file_read(file, values, (size_t)bytes, gguf->values_at);
    for (int64_t i = 0; status == RESHARD_OK && i < gguf->value_count; i++) {
        const rs_gguf_value *value = &gguf->values[i];
        uint64_t begin = value->at - head_bytes(value) - gguf->values_at;
        uint64_t count = head_bytes(value) + value->bytes;
        if (is_about_parts(value))
            continue;
        memmove(values + used, values + begin, (size_t)count);
        used += count;
        plan->value_count++;
        if (file_type >= 0 && value->kind == RS_GGUF_U32 &&
            rs_slice_equals(value->key, "general.file_type"))
            write_little(values + used - 4, (uint64_t)file_type, 4);
    }
    plan->alignment = gguf->alignment;
    target->document = (rs_slice){values, (size_t)used};
    return status;
}

/* ---- laying out ------------------------------------------------------------------------------ */

static uint64_t align(uint64_t bytes, uint64_t alignment)
{
    return (bytes + alignment - 1) / alignment * alignment;
}

static uint64_t written_bytes(const rs_selected *item)
{
    const rs_stored_tensor *stored = item->stored;
    return stored->bytes / (uint64_t)stored->element_bytes * rs_element_bytes(item->dtype);
}

/* Divides the tensors among parts, in their order. files: by tensor; items: by order. */
static reshard_status choose_files(const rs_laying *laying, int64_t *items, int32_t *files)
{
    const rs_selection *selection = &laying->cuts->selection;
    const rs_gguf_plan *plan = laying->target->notes;
    uint64_t most = laying->file_bytes_max != 0 ? laying->file_bytes_max : UINT64_MAX, used = 0;
    int32_t file = 0;
    for (int64_t i = 0; i < selection->count; i++)
        items[plan->infos[i].order] = i;
    for (int64_t i = 0; i < selection->count; i++) {
        uint64_t bytes = align(written_bytes(&selection->items[items[i]]), plan->alignment);
        if (used != 0 && (bytes > most || used > most - bytes)) {
            used = 0;
            file++;
        }
        used += bytes;
        files[items[i]] = file;
    }
    laying->target->file_count = file + 1;
    if (file < PARTS_MAX)
        return RESHARD_OK;
    return rs_fail(RESHARD_ERR_RANGE,
                   "there would be %d parts of at most %llu bytes; at most %d are allowed, so make "
                   "them larger",
                   (int)file + 1, (unsigned long long)most, PARTS_MAX);
}

reshard_status rs_gguf_lay_out(rs_laying *laying)
{
    rs_target *target = laying->target;
    const rs_selection *selection = &laying->cuts->selection;
    const rs_gguf_plan *plan = target->notes;
    size_t count = (size_t)selection->count;
    int64_t *items = rs_arena_allocate_array(&target->arena, count, sizeof *items);
    int32_t *files = rs_arena_allocate_array(&target->arena, count, sizeof *files);
    rs_target_entry *added = rs_arena_allocate_array(&target->arena, count, sizeof *added);
    if (items == NULL || files == NULL || added == NULL)
        return rs_allocation_status();
    reshard_status status = choose_files(laying, items, files);
    for (size_t i = 0; status == RESHARD_OK && i < count; i++)
        status = rs_target_add_whole(laying, &selection->items[i], files[i]);
    if (status != RESHARD_OK || count == 0)
        return status;
    memcpy(added, target->entries, count * sizeof *added);
    for (size_t i = 0; i < count; i++)
        target->entries[plan->infos[added[i].tensor].order] = added[i];
    return RESHARD_OK;
}

void rs_gguf_name_file(const rs_target *target, int32_t file, int32_t rank,
                       char out_name[RS_FILE_NAME_BYTES])
{
    (void)rank;
    if (target->file_count == 1)
        (void)snprintf(out_name, RS_FILE_NAME_BYTES, "%.200s.gguf", target->stem);
    else
        (void)snprintf(out_name, RS_FILE_NAME_BYTES, "%.200s-%05d-of-%05d.gguf", target->stem,
                       (int)file + 1, (int)target->file_count);
}

reshard_status rs_gguf_place(rs_target *target, int32_t index)
{
    rs_target_file *file = &target->files[index];
    const rs_gguf_plan *plan = target->notes;
    uint64_t used = 0;
    rs_json_writer writer;
    for (int64_t i = file->entry_first; i < file->entry_first + file->entry_count; i++) {
        uint64_t bytes = rs_target_array_of(target, &target->entries[i])->bytes;
        target->entries[i].begin = used;
        if (bytes > INT64_MAX || __builtin_add_overflow(used, align(bytes, plan->alignment), &used))
            return rs_fail(RESHARD_ERR_RANGE, "%s would have more than 2^64 bytes", file->name);
    }
    rs_json_writer_init(&writer, target->context);
    writer.counts_only = true;
    reshard_status status = rs_gguf_write_head(target, index, &writer);
    file->data_begin = (uint64_t)writer.count;
    file->bytes = file->data_begin + used;
    rs_json_writer_release(&writer);
    return status;
}

/* ---- the head -------------------------------------------------------------------------------- */

static void add_number(rs_json_writer *writer, uint64_t number, size_t count)
{
    char bytes[8];
    write_little(bytes, number, count);
    rs_json_writer_add(writer, bytes, count);
}

static void add_info(rs_json_writer *writer, const rs_target *target, const rs_target_entry *entry)
{
    const rs_gguf_info *info = &((const rs_gguf_plan *)target->notes)->infos[entry->tensor];
    rs_slice name = target->tensors[entry->tensor].name;
    add_number(writer, name.count, 8);
    rs_json_writer_add(writer, name.bytes, name.count);
    add_number(writer, (uint64_t)info->ndim, 4);
    for (int32_t d = info->ndim; d-- > 0;)
        add_number(writer, (uint64_t)info->shape[d], 8);
    add_number(writer, info->type, 4);
    add_number(writer, entry->begin, 8);
}

static void add_value(rs_json_writer *writer, const char *key, rs_gguf_kind kind, int64_t number)
{
    add_number(writer, strlen(key), 8);
    rs_json_writer_text(writer, key);
    add_number(writer, (uint64_t)kind, 4);
    add_number(writer, (uint64_t)number, rs_gguf_kind_bytes(kind));
}

/* Key-values of the model are in the first part, and each part says which one it is. All of them
 * have the same alignment. */
static void add_values(rs_json_writer *writer, const rs_target *target, int32_t index)
{
    const rs_gguf_plan *plan = target->notes;
    bool has_parts = target->file_count > 1, says_alignment = index > 0 && plan->alignment != 32;
    uint64_t count = index == 0 ? plan->value_count : says_alignment;
    add_number(writer, count + (has_parts ? 3 : 0), 8);
    if (index == 0)
        rs_json_writer_add(writer, target->document.bytes, target->document.count);
    if (says_alignment)
        add_value(writer, "general.alignment", RS_GGUF_U32, (int64_t)plan->alignment);
    if (!has_parts)
        return;
    add_value(writer, "split.no", RS_GGUF_U16, index);
    add_value(writer, "split.count", RS_GGUF_U16, target->file_count);
    add_value(writer, "split.tensors.count", RS_GGUF_I32, target->tensor_count);
}

reshard_status rs_gguf_write_head(const rs_target *target, int32_t index, rs_json_writer *writer)
{
    const rs_target_file *file = &target->files[index];
    const rs_gguf_plan *plan = target->notes;
    assert(writer->count == 0);
    rs_json_writer_add(writer, RS_GGUF_MAGIC, 4);
    add_number(writer, VERSION, 4);
    add_number(writer, (uint64_t)file->entry_count, 8);
    add_values(writer, target, index);
    for (int64_t i = 0; i < file->entry_count; i++)
        add_info(writer, target, &target->entries[file->entry_first + i]);
    while (writer->status == RESHARD_OK && (uint64_t)writer->count % plan->alignment != 0)
        rs_json_writer_add(writer, "", 1); /* its NUL */
    return writer->status;
}
