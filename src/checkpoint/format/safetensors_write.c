/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors_write.c - writes the header of a target's file: metadata and entries, padded with
 * spaces so that the data begins on a page.
 */
#include "base/context.h"
#include "base/dtype.h"
#include "base/error.h"
#include "checkpoint/format/safetensors.h"
#include "checkpoint/target/target.h"

#include <assert.h>
#include <string.h>

static void write_entry(rs_json_writer *writer, const rs_target *target,
                        const rs_target_entry *entry)
{
    reshard_dtype dtype = target->tensors[entry->tensor].dtype;
    const rs_target_array *array = rs_target_array_of(target, entry);
    rs_slice key = rs_target_key(target, entry);
    if (dtype > RESHARD_U64 && writer->status == RESHARD_OK)
        writer->status = rs_fail(RESHARD_ERR_UNSUPPORTED,
                                 "tensor \"%.*s\" is %s, which safetensors does not have",
                                 RS_SHOWN(key), reshard_dtype_name(dtype));
    rs_target_write_key(writer, target, entry);
    rs_json_writer_text(writer, ":{\"dtype\":\"");
    rs_json_writer_text(writer, rs_dtype_safetensors_name(dtype));
    rs_json_writer_text(writer, "\",\"shape\":");
    rs_json_writer_integers(writer, array->ndim, array->shape);
    rs_json_writer_text(writer, ",\"data_offsets\":[");
    rs_json_writer_unsigned(writer, entry->begin);
    rs_json_writer_add(writer, ",", 1);
    rs_json_writer_unsigned(writer, entry->begin + array->bytes);
    rs_json_writer_text(writer, "]}");
}

void rs_safetensors_write_document(rs_json_writer *writer, const char *key, rs_metadata_fn *write,
                                   const rs_target *target, int32_t file)
{
    rs_json_writer_string(writer, rs_slice_of(key));
    rs_json_writer_add(writer, ":", 1);
    rs_json_writer_begin_quoted(writer);
    write(writer, target, file);
    rs_json_writer_end_quoted(writer);
}

void rs_safetensors_write_shapes(rs_json_writer *writer, const rs_target *target, int32_t index)
{
    const rs_target_file *file = &target->files[index];
    bool is_first = true;
    rs_json_writer_add(writer, "{", 1);
    for (int64_t i = 0; i < file->entry_count; i++) {
        const rs_target_entry *entry = &target->entries[file->entry_first + i];
        const rs_stored_tensor *tensor = &target->tensors[entry->tensor];
        if (!rs_target_array_of(target, entry)->hides_shape)
            continue;
        if (!is_first)
            rs_json_writer_add(writer, ",", 1);
        is_first = false;
        rs_target_write_key(writer, target, entry);
        rs_json_writer_add(writer, ":", 1);
        rs_json_writer_integers(writer, tensor->ndim, tensor->shape);
    }
    rs_json_writer_add(writer, "}", 1);
}

/* Writes the source's metadata, then the model's stem if the file names do not show it. */
static void write_carried(rs_json_writer *writer, const rs_target *target)
{
    bool has_format = false;
    for (int64_t i = 0; i < target->metadata_count; i++) {
        const rs_metadatum *item = &target->metadata[i];
        has_format = has_format || rs_slice_equals(item->key, "format");
        if (i != 0)
            rs_json_writer_add(writer, ",", 1);
        rs_json_writer_string(writer, item->key);
        rs_json_writer_add(writer, ":", 1);
        rs_json_writer_string(writer, item->value);
    }
    if (!has_format)
        rs_json_writer_text(writer, target->metadata_count != 0 ? ",\"format\":\"pt\""
                                                                : "\"format\":\"pt\"");
    if (target->format->is_split && strcmp(target->stem, "model") != 0) {
        rs_json_writer_text(writer, ",\"" RS_NAME_KEY "\":");
        rs_json_writer_string(writer, rs_slice_of(target->stem));
    }
}

reshard_status rs_safetensors_write_head(const rs_target *target, int32_t index,
                                         rs_metadata_fn *metadata, rs_json_writer *writer)
{
    const rs_target_file *file = &target->files[index];
    assert(writer->count == 0 && file->name != NULL);
    rs_json_writer_text(writer, "        {\"__metadata__\":{"); /* room for the length, 8 bytes */
    if (metadata != NULL)
        metadata(writer, target, index);
    write_carried(writer, target);
    rs_json_writer_add(writer, "}", 1);
    for (int64_t i = 0; i < file->entry_count; i++) {
        rs_json_writer_add(writer, ",", 1);
        write_entry(writer, target, &target->entries[file->entry_first + i]);
    }
    rs_json_writer_add(writer, "}", 1);
    while (writer->status == RESHARD_OK && (uint64_t)writer->count % RS_DATA_ALIGNMENT != 0) {
        static const char spaces[64] =
            "                                                            "
            "    ";
        uint64_t missing = RS_DATA_ALIGNMENT - (uint64_t)writer->count % RS_DATA_ALIGNMENT;
        rs_json_writer_add(writer, spaces, missing < 64 ? (size_t)missing : 64);
    }
    if (writer->status != RESHARD_OK)
        return writer->status;
    uint64_t length = (uint64_t)writer->count - 8;
    if (length > RS_HEADER_BYTES_MAX)
        return rs_fail(RESHARD_ERR_RANGE,
                       "its header would have %llu bytes; safetensors allows 100000000",
                       (unsigned long long)length);
    for (int i = 0; i < 8 && !writer->counts_only; i++)
        writer->bytes[i] = (char)(length >> (8 * i) & 0xff);
    return RESHARD_OK;
}

reshard_status rs_safetensors_place(rs_target *target, int32_t index)
{
    rs_target_file *file = &target->files[index];
    uint64_t used = 0;
    rs_json_writer writer;
    for (int64_t i = file->entry_first; i < file->entry_first + file->entry_count; i++) {
        target->entries[i].begin = used;
        if (__builtin_add_overflow(used, rs_target_array_of(target, &target->entries[i])->bytes,
                                   &used))
            return rs_fail(RESHARD_ERR_RANGE, "%s would have more than 2^64 bytes", file->name);
    }
    rs_json_writer_init(&writer, target->context);
    writer.counts_only = true;
    reshard_status status = target->format->write_head(target, index, &writer);
    file->data_begin = (uint64_t)writer.count;
    rs_json_writer_release(&writer);
    if (status != RESHARD_OK)
        return rs_fail_within(status, "%s", file->name);
    assert(file->data_begin % RS_DATA_ALIGNMENT == 0);
    file->bytes = file->data_begin + used;
    return RESHARD_OK;
}
