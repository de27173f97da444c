/* SPDX-License-Identifier: Apache-2.0 */
/*
 * target_header.c - the text of a target's files: safetensors headers with their metadata, padded
 * so that data begin on a page, and the index of Hugging Face.
 */
#include "checkpoint/format/target.h"

#include "base/context.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void write_dtype(rs_json_writer *writer, reshard_dtype dtype)
{
    const char *name = reshard_dtype_name(dtype);
    rs_json_writer_add(writer, "\"", 1);
    for (; *name != '\0'; name++) {
        char letter = (char)toupper((unsigned char)*name);
        rs_json_writer_add(writer, &letter, 1);
    }
    rs_json_writer_add(writer, "\"", 1);
}

static void write_entry(rs_json_writer *writer, const rs_target *target,
                        const rs_target_entry *entry)
{
    rs_json_writer_string(writer, entry->key);
    rs_json_writer_text(writer, ":{\"dtype\":");
    write_dtype(writer, target->tensors[entry->tensor].dtype);
    rs_json_writer_text(writer, ",\"shape\":");
    rs_json_writer_integers(writer, entry->ndim, entry->shape);
    rs_json_writer_text(writer, ",\"data_offsets\":[");
    rs_json_writer_unsigned(writer, entry->begin);
    rs_json_writer_add(writer, ",", 1);
    rs_json_writer_unsigned(writer, entry->begin + entry->bytes);
    rs_json_writer_text(writer, "]}");
}

static void write_offsets(rs_json_writer *writer, const rs_target *target,
                          const rs_target_entry *entry)
{
    const rs_stored_tensor *tensor = &target->tensors[entry->tensor];
    const int64_t *offset =
        entry->piece_count != 0 ? tensor->pieces[entry->piece_first].offset : NULL;
    rs_json_writer_add(writer, "[", 1);
    for (int32_t d = 0; d < entry->ndim; d++) {
        if (d != 0)
            rs_json_writer_add(writer, ",", 1);
        rs_json_writer_unsigned(writer,
                                offset != NULL && !tensor->opaque ? (uint64_t)offset[d] : 0);
    }
    rs_json_writer_add(writer, "]", 1);
}

/* Which box of its tensor each entry is. */
static void write_sharding(rs_json_writer *writer, const rs_target *target,
                           const rs_target_file *file)
{
    rs_json_writer_add(writer, "{", 1);
    for (int64_t i = 0; i < file->entry_count; i++) {
        const rs_target_entry *entry = &target->entries[file->entry_first + i];
        rs_slice name = target->tensors[entry->tensor].name;
        if (i != 0)
            rs_json_writer_add(writer, ",", 1);
        rs_json_writer_string(writer, entry->key);
        rs_json_writer_text(writer, ":{\"saved_offsets\":");
        write_offsets(writer, target, entry);
        if (rs_slice_compare(name, entry->key) != 0) {
            rs_json_writer_text(writer, ",\"logical_fqn\":");
            rs_json_writer_string(writer, name);
        }
        rs_json_writer_add(writer, "}", 1);
    }
    rs_json_writer_add(writer, "}", 1);
}

/* Of the tensors whose entries do not tell: in rank files, those that are cut flat. */
static void write_shapes(rs_json_writer *writer, const rs_target *target,
                         const rs_target_file *file)
{
    bool is_first = true;
    rs_json_writer_add(writer, "{", 1);
    for (int64_t i = 0; i < file->entry_count; i++) {
        const rs_target_entry *entry = &target->entries[file->entry_first + i];
        const rs_stored_tensor *tensor = &target->tensors[entry->tensor];
        if (target->format == RESHARD_FORMAT_RANK_FILES && !entry->is_flat)
            continue;
        if (!is_first)
            rs_json_writer_add(writer, ",", 1);
        is_first = false;
        rs_json_writer_string(writer, entry->key);
        rs_json_writer_add(writer, ":", 1);
        rs_json_writer_integers(writer, tensor->ndim, tensor->shape);
    }
    rs_json_writer_add(writer, "}", 1);
}

typedef void document_fn(rs_json_writer *writer, const rs_target *target,
                         const rs_target_file *file);

/* A JSON document as a string of another one. */
static void write_document(rs_json_writer *writer, const char *key, document_fn *fn,
                           const rs_target *target, const rs_target_file *file)
{
    rs_json_writer document;
    rs_json_writer_init(&document, writer->context);
    fn(&document, target, file);
    rs_json_writer_string(writer, rs_slice_of(key));
    rs_json_writer_add(writer, ":", 1);
    if (document.status == RESHARD_OK)
        rs_json_writer_string(writer, (rs_slice){document.bytes, (size_t)document.count});
    else if (writer->status == RESHARD_OK)
        writer->status = document.status;
    rs_json_writer_release(&document);
}

static void write_metadata(rs_json_writer *writer, const rs_target *target,
                           const rs_target_file *file)
{
    rs_json_writer_text(writer, "\"__metadata__\":{");
    if (target->format == RESHARD_FORMAT_DCP_SAFETENSORS) {
        char count[24];
        (void)snprintf(count, sizeof count, "%d", (int)target->written_count);
        write_document(writer, "DCP_SHARDING_INFO", write_sharding, target, file);
        rs_json_writer_text(writer, ",\"DCP_VERSION\":\"1.0\",");
        write_document(writer, "RESHARD_SHAPES", write_shapes, target, file);
        rs_json_writer_text(writer, ",\"RESHARD_FILES\":");
        rs_json_writer_string(writer, rs_slice_of(count));
        rs_json_writer_add(writer, ",", 1);
    }
    if (file->flat_count != 0) {
        write_document(writer, "RESHARD_SHAPES", write_shapes, target, file);
        rs_json_writer_add(writer, ",", 1);
    }
    rs_json_writer_text(writer, "\"format\":\"pt\"}");
}

reshard_status rs_target_header(const rs_target *target, int32_t index, rs_json_writer *writer)
{
    const rs_target_file *file = &target->files[index];
    rs_json_writer_text(writer, "        {"); /* eight bytes for the length */
    write_metadata(writer, target, file);
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
    for (int i = 0; i < 8; i++)
        writer->bytes[i] = (char)(length >> (8 * i) & 0xff);
    return RESHARD_OK;
}

static int compare_keys(const void *a, const void *b)
{
    return rs_slice_compare((*(const rs_target_entry *const *)a)->key,
                            (*(const rs_target_entry *const *)b)->key);
}

static void write_weight_map(rs_json_writer *writer, const rs_target *target,
                             const rs_target_entry *const *sorted)
{
    for (int64_t i = 0; i < target->entry_count; i++) {
        rs_json_writer_text(writer, i == 0 ? "\n    " : ",\n    ");
        rs_json_writer_string(writer, sorted[i]->key);
        rs_json_writer_text(writer, ": ");
        rs_json_writer_string(writer, rs_slice_of(target->files[sorted[i]->file].name));
    }
}

reshard_status rs_target_index(const rs_target *target, rs_json_writer *writer)
{
    size_t count = (size_t)target->entry_count;
    uint64_t total = 0;
    const rs_target_entry **sorted = rs_allocate_array(target->context, count, sizeof *sorted);
    if (sorted == NULL)
        return rs_allocation_status();
    for (size_t i = 0; i < count; i++) {
        sorted[i] = &target->entries[i];
        total += sorted[i]->bytes;
    }
    if (count > 1)
        qsort((void *)sorted, count, sizeof *sorted, compare_keys);
    rs_json_writer_text(writer, "{\n  \"metadata\": {\n    \"total_size\": ");
    rs_json_writer_unsigned(writer, total);
    rs_json_writer_text(writer, "\n  },\n  \"weight_map\": {");
    write_weight_map(writer, target, sorted);
    rs_json_writer_text(writer, "\n  }\n}\n");
    rs_release(target->context, (void *)sorted, count * sizeof *sorted);
    return writer->status;
}

reshard_status rs_target_write_header(const rs_target *target, int32_t index, rs_file *file)
{
    rs_json_writer writer;
    rs_json_writer_init(&writer, target->context);
    reshard_status status = rs_target_header(target, index, &writer);
    if (status == RESHARD_OK)
        status = rs_file_write(file, writer.bytes, (size_t)writer.count, 0);
    rs_json_writer_release(&writer);
    return status;
}
