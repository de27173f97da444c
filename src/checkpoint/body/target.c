/* SPDX-License-Identifier: Apache-2.0 */
/*
 * target.c - what a conversion shall write, entry by entry: where each lies, the heads of its files
 * and its end. Who lays a target out is in format/target_make.c.
 */
#include "checkpoint/body/target.h"

#include "base/context.h"
#include "base/sort.h"
#include "checkpoint/body/safetensors.h"
#include "text/text.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

reshard_status rs_target_add_entry(rs_target *target, const rs_target_entry *entry)
{
    void *items = target->entries;
    assert(entry->tensor >= 0 && entry->tensor <= target->tensor_count);
    assert(entry->file >= 0 && entry->file < target->file_count);
    reshard_status status = rs_grow(target->context, &items, &target->entry_capacity,
                                    target->entry_count + 1, sizeof(rs_target_entry));
    target->entries = items;
    if (status == RESHARD_OK)
        target->entries[target->entry_count++] = *entry;
    return status;
}

reshard_status rs_target_add_whole(const rs_laying *laying, const rs_selected *selected,
                                   int32_t file)
{
    rs_target *target = laying->target;
    const rs_stored_tensor *stored = selected->stored;
    int64_t index = target->tensor_count;
    rs_stored_tensor *tensor = &target->tensors[index];
    reshard_status status = rs_store_describe(tensor, &target->arena, selected->name,
                                              selected->dtype, stored->ndim, stored->shape);
    if (status != RESHARD_OK)
        return status;
    rs_stored_piece piece = {.file = file, .size = tensor->carried_shape};
    tensor->pieces = rs_arena_copy(&target->arena, &piece, 1, sizeof piece);
    if (tensor->pieces == NULL)
        return rs_allocation_status();
    tensor->piece_count = 1;
    target->origins[index] = selected->origin;
    target->tensor_count++;
    rs_target_entry entry = {.key = tensor->name,
                             .tensor = index,
                             .file = file,
                             .ndim = tensor->ndim,
                             .shape = tensor->shape,
                             .piece_count = 1,
                             .bytes = tensor->bytes};
    return rs_target_add_entry(target, &entry);
}

reshard_status rs_target_say(rs_target *target, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    reshard_status status = rs_notes_add(&target->lines, &target->arena, format, arguments);
    va_end(arguments);
    return status;
}

bool rs_target_keeps(const rs_target *target, rs_slice *name)
{
    rs_slice prefix = target->prefix;
    if (prefix.count == 0)
        return true;
    if (name->count <= prefix.count || memcmp(name->bytes, prefix.bytes, prefix.count) != 0)
        return false;
    *name = (rs_slice){name->bytes + prefix.count, name->count - prefix.count};
    return true;
}

/* ---- places ---------------------------------------------------------------------------------- */

typedef struct entry_order {
    const rs_target *target;
    const rs_target_entry *entry;
    int32_t bits;
} entry_order;

static int compare_entries(const void *a, const void *b)
{
    const entry_order *x = a, *y = b;
    if (x->entry->file != y->entry->file)
        return x->entry->file < y->entry->file ? -1 : 1;
    bool x_last = x->entry->bytes % RS_DATA_ALIGNMENT != 0;
    bool y_last = y->entry->bytes % RS_DATA_ALIGNMENT != 0;
    if (x_last != y_last)
        return x_last ? 1 : -1;
    if (x_last && x->bits != y->bits)
        return x->bits > y->bits ? -1 : 1;
    return rs_slice_compare(x->entry->key, y->entry->key);
}

static reshard_status sort_entries(rs_target *target)
{
    size_t count = (size_t)target->entry_count;
    reshard_status status = RESHARD_OK;
    entry_order *order = rs_allocate_array(target->context, count, sizeof *order);
    rs_target_entry *sorted = rs_arena_allocate_array(&target->arena, count, sizeof *sorted);
    if (order == NULL || sorted == NULL) {
        status = rs_allocation_status();
        goto out;
    }
    for (size_t i = 0; i < count; i++) {
        const rs_target_entry *entry = &target->entries[i];
        order[i] =
            (entry_order){target, entry, reshard_dtype_bits(target->tensors[entry->tensor].dtype)};
    }
    rs_sort(order, count, sizeof *order, compare_entries);
    for (size_t i = 0; i < count; i++)
        sorted[i] = *order[i].entry;
    rs_release(target->context, target->entries,
               (size_t)target->entry_capacity * sizeof(rs_target_entry));
    target->entries = sorted;
    target->entry_capacity = 0; /* they are in the arena now */
out:
    if (order != NULL)
        rs_release(target->context, order, count * sizeof *order);
    return status;
}

static reshard_status add_files(rs_target *target)
{
    char name[RS_FILE_NAME_BYTES];
    size_t bytes = (size_t)target->file_count * sizeof(rs_target_file);
    target->files = rs_arena_allocate(&target->arena, bytes);
    if (target->files == NULL)
        return rs_allocation_status();
    memset(target->files, 0, bytes);
    for (int32_t i = 0, entry = 0; i < target->file_count; i++) {
        rs_target_file *file = &target->files[i];
        file->entry_first = entry;
        while (entry < target->entry_count && target->entries[entry].file == i)
            entry++;
        file->entry_count = entry - file->entry_first;
        /* Even a checkpoint without tensors has one file. */
        if (file->entry_count == 0 && target->format->skips_empty &&
            !(i == 0 && target->entry_count == 0))
            continue;
        target->written_count++;
        target->format->name_file(target, i, target->ranks != NULL ? target->ranks[i] : i, name);
        file->name = rs_arena_copy(&target->arena, name, strlen(name) + 1, 1);
        if (file->name == NULL)
            return rs_allocation_status();
    }
    return RESHARD_OK;
}

static reshard_status place_file(rs_target *target, int32_t index)
{
    const rs_target_file *file = &target->files[index];
    reshard_status status = target->format->place(target, index);
    if (status != RESHARD_OK)
        return rs_fail_within(status, "%s", file->name);
    target->bytes += file->bytes;
    for (int64_t i = file->entry_first; i < file->entry_first + file->entry_count; i++) {
        const rs_target_entry *entry = &target->entries[i];
        rs_stored_piece *pieces = target->tensors[entry->tensor].pieces + entry->piece_first;
        assert(file->data_begin + entry->begin + entry->bytes <= file->bytes);
        for (int64_t j = 0; j < entry->piece_count; j++)
            pieces[j].at += file->data_begin + entry->begin;
    }
    return RESHARD_OK;
}

reshard_status rs_target_place(rs_target *target)
{
    reshard_status status = RESHARD_OK;
    if (target->entry_count != 0)
        status = sort_entries(target);
    if (status == RESHARD_OK)
        status = add_files(target);
    for (int32_t i = 0; status == RESHARD_OK && i < target->file_count; i++) {
        if (target->files[i].name != NULL)
            status = place_file(target, i);
    }
    return status;
}

void rs_target_release(rs_target *target)
{
    if (target->entries != NULL && target->entry_capacity != 0)
        rs_release(target->context, target->entries,
                   (size_t)target->entry_capacity * sizeof(rs_target_entry));
    target->entries = NULL;
    rs_arena_release(&target->arena);
}

void rs_target_digest(const rs_target *target, rs_digest *digest)
{
    rs_digest_bytes(digest, target->format->name, strlen(target->format->name));
    for (int32_t i = 0; i < target->file_count; i++) {
        const char *name = target->files[i].name != NULL ? target->files[i].name : "";
        rs_digest_bytes(digest, name, strlen(name));
        rs_digest_u64(digest, target->files[i].bytes);
    }
    rs_digest_u64(digest, (uint64_t)target->entry_count);
    for (int64_t i = 0; i < target->entry_count; i++) {
        const rs_target_entry *entry = &target->entries[i];
        rs_digest_bytes(digest, entry->key.bytes, entry->key.count);
        rs_digest_u64(digest, (uint64_t)target->tensors[entry->tensor].dtype);
        rs_digest_u64(digest, (uint64_t)entry->file);
        rs_digest_u64(digest, (uint64_t)entry->ndim);
        rs_digest_i64s(digest, entry->shape, entry->ndim);
        rs_digest_u64(digest, entry->begin);
    }
}

/* ---- writing --------------------------------------------------------------------------------- */

reshard_status rs_target_write_head(const rs_target *target, int32_t index, rs_file *file)
{
    rs_json_writer writer;
    rs_json_writer_init(&writer, target->context);
    reshard_status status = target->format->write_head(target, index, &writer);
    if (status == RESHARD_OK)
        status = rs_file_write(file, writer.bytes, (size_t)writer.count, 0);
    rs_json_writer_release(&writer);
    return status;
}

reshard_status rs_target_finish(const rs_target *target, const rs_finishing *finishing)
{
    return target->format->finish != NULL ? target->format->finish(target, finishing) : RESHARD_OK;
}
