/* SPDX-License-Identifier: Apache-2.0 */
/*
 * target.c - a conversion's target, entry by entry: where each lies, and the heads and ends of its
 * files. convert/target_make.c lays targets out.
 */
#include "checkpoint/target/target.h"

#include "base/context.h"
#include "base/sort.h"
#include "text/text.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

reshard_status rs_target_add_array(rs_target *target, const rs_target_array *array,
                                   int32_t *out_index)
{
    if (target->array_count == INT32_MAX)
        return rs_fail(RESHARD_ERR_RANGE, "there are more than 2147483647 different arrays");
    reshard_status status = rs_grow(target->context, &target->arrays, &target->array_capacity,
                                    target->array_count + 1, sizeof(rs_target_array));
    if (status != RESHARD_OK)
        return status;
    *out_index = (int32_t)target->array_count++;
    target->arrays[*out_index] = *array;
    return RESHARD_OK;
}

reshard_status rs_target_add_entry(rs_target *target, const rs_target_entry *entry)
{
    assert(entry->tensor >= 0 && entry->tensor <= target->tensor_count);
    assert(entry->file >= 0 && entry->file < target->file_count);
    reshard_status status = rs_grow(target->context, &target->entries, &target->entry_capacity,
                                    target->entry_count + 1, sizeof(rs_target_entry));
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
    const rs_target_array array = {
        .ndim = tensor->ndim, .shape = tensor->shape, .bytes = tensor->bytes, .piece_count = 1};
    rs_target_entry entry = {.tensor = (int32_t)index, .file = file};
    status = rs_target_add_array(target, &array, &entry.array);
    return status == RESHARD_OK ? rs_target_add_entry(target, &entry) : status;
}

reshard_status rs_target_say(rs_target *target, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    reshard_status status = rs_notes_add(&target->lines, &target->arena, format, arguments);
    va_end(arguments);
    return status;
}

reshard_status rs_target_warn(rs_target *target, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    reshard_status status = rs_notes_add(&target->warnings, &target->arena, format, arguments);
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

rs_slice rs_target_key(const rs_target *target, const rs_target_entry *entry)
{
    const rs_slice *key = rs_target_array_of(target, entry)->key;
    return key != NULL ? *key : target->tensors[entry->tensor].name;
}

void rs_target_write_key(rs_json_writer *writer, const rs_target *target,
                         const rs_target_entry *entry)
{
    rs_slice key = rs_target_key(target, entry);
    if (target->names_are_plain && rs_target_array_of(target, entry)->key == NULL)
        rs_json_writer_plain(writer, key);
    else
        rs_json_writer_string(writer, key);
}

/* An entry and its key, for sorting. */
typedef struct keyed_entry {
    rs_slice key;
    rs_target_entry entry;
} keyed_entry;

#define BITS_MAX 128

/* Numbers the classes of entries in the order they have in a file: class 0 is for whole pages, the
 * others are by element size. class_of maps bits to classes. Returns their number. */
static int32_t find_classes(const rs_target *target, int32_t class_of[BITS_MAX + 1])
{
    int32_t count = 1;
    memset(class_of, 0, (BITS_MAX + 1) * sizeof *class_of);
    for (int64_t i = 0; i < target->tensor_count; i++) {
        int32_t bits = reshard_dtype_bits(target->tensors[i].dtype);
        assert(bits > 0 && bits <= BITS_MAX);
        class_of[bits] = 1;
    }
    for (int32_t bits = BITS_MAX; bits > 0; bits--) {
        if (class_of[bits] != 0)
            class_of[bits] = count++;
    }
    return count;
}

/* A counting sort. places[i] is the group (file and class) of entry i before the call, and its
 * place after it. groups: zeroed; afterwards the end of each group. */
static void count_places(int64_t group_count, int64_t *groups, int64_t entry_count, int64_t *places)
{
    int64_t first = 0;
    for (int64_t i = 0; i < entry_count; i++)
        groups[places[i]]++;
    for (int64_t i = 0; i < group_count; i++) {
        int64_t count = groups[i];
        groups[i] = first;
        first += count;
    }
    for (int64_t i = 0; i < entry_count; i++)
        places[i] = groups[places[i]]++;
}

/* Moves every entry to its place, following the cycles of the permutation. */
static void permute(rs_target_entry *entries, int64_t count, int64_t *places)
{
    for (int64_t i = 0; i < count; i++) {
        rs_target_entry held = entries[i];
        int64_t at = places[i];
        while (at != i) {
            rs_target_entry next = entries[at];
            int64_t next_at = places[at];
            entries[at] = held;
            places[at] = at;
            held = next;
            at = next_at;
        }
        entries[i] = held;
        places[i] = i;
    }
}

static reshard_status sort_by_key(const rs_target *target, rs_target_entry *entries, size_t count)
{
    keyed_entry *keyed = rs_allocate_array(target->context, count, sizeof *keyed);
    if (keyed == NULL)
        return rs_allocation_status();
    for (size_t i = 0; i < count; i++)
        keyed[i] = (keyed_entry){rs_target_key(target, &entries[i]), entries[i]};
    rs_sort(keyed, count, sizeof *keyed, rs_compare_slices);
    for (size_t i = 0; i < count; i++)
        entries[i] = keyed[i].entry;
    rs_release(target->context, keyed);
    return RESHARD_OK;
}

/* May entry a come before b? Tensors of a source are numbered in the order of their names. */
static bool are_in_order(const rs_target *target, const rs_target_entry *a,
                         const rs_target_entry *b)
{
    bool have_names = rs_target_array_of(target, a)->key == NULL &&
                      rs_target_array_of(target, b)->key == NULL && target->source != NULL;
    if (have_names)
        return a->tensor <= b->tensor;
    return rs_slice_compare(rs_target_key(target, a), rs_target_key(target, b)) <= 0;
}

/* Entries were added in the order of their tensors' names, so most groups are sorted already. */
static reshard_status sort_group(const rs_target *target, rs_target_entry *entries, int64_t count)
{
    for (int64_t i = 1; i < count; i++) {
        if (!are_in_order(target, &entries[i - 1], &entries[i]))
            return sort_by_key(target, entries, (size_t)count);
    }
    return RESHARD_OK;
}

/* Sorts by file, then whole pages first, then by decreasing element size, then by key. */
static reshard_status sort_entries(rs_target *target)
{
    int32_t class_of[BITS_MAX + 1];
    int64_t classes = find_classes(target, class_of);
    int64_t count = target->entry_count, group_count = classes * target->file_count;
    reshard_status status = RESHARD_OK;
    int64_t *places = rs_allocate_array(target->context, (size_t)count, sizeof *places);
    int64_t *groups = rs_allocate_array(target->context, (size_t)group_count, sizeof *groups);
    if (places == NULL || groups == NULL) {
        status = rs_allocation_status();
        goto out;
    }
    memset(groups, 0, (size_t)group_count * sizeof *groups);
    for (int64_t i = 0; i < count; i++) {
        const rs_target_entry *entry = &target->entries[i];
        int32_t bits = reshard_dtype_bits(target->tensors[entry->tensor].dtype);
        bool is_paged = rs_target_array_of(target, entry)->bytes % RS_DATA_ALIGNMENT == 0;
        places[i] = classes * entry->file + (is_paged ? 0 : class_of[bits]);
    }
    count_places(group_count, groups, count, places);
    permute(target->entries, count, places);
    for (int64_t i = 0, first = 0; status == RESHARD_OK && i < group_count; first = groups[i++])
        status = sort_group(target, target->entries + first, groups[i] - first);
out:
    rs_release(target->context, places);
    rs_release(target->context, groups);
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
    int64_t entry = 0;
    for (int32_t i = 0; i < target->file_count; i++) {
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
        if (target->format->file_name != NULL)
            (void)snprintf(name, sizeof name, "%s", target->format->file_name);
        else
            target->format->name_file(target, i, target->ranks != NULL ? target->ranks[i] : i,
                                      name);
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
        const rs_target_array *array = rs_target_array_of(target, entry);
        rs_stored_piece *pieces = target->tensors[entry->tensor].pieces + entry->piece_first;
        assert(file->data_begin + entry->begin + array->bytes <= file->bytes);
        for (int64_t j = 0; j < array->piece_count; j++)
            pieces[j].at += file->data_begin + entry->begin;
    }
    return RESHARD_OK;
}

reshard_status rs_target_place(rs_target *target)
{
    reshard_status status = RESHARD_OK;
    target->names_are_plain = true;
    for (int64_t i = 0; target->names_are_plain && i < target->tensor_count; i++)
        target->names_are_plain = rs_json_is_plain(target->tensors[i].name);
    if (target->entry_count != 0 && !target->format->is_packed)
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
    rs_release(target->context, target->entries);
    rs_release(target->context, target->arrays);
    target->entries = NULL;
    target->arrays = NULL;
    rs_cut_rows_release(target->kept_rows);
    target->kept_rows = NULL;
    rs_arena_release(&target->arena);
}

void rs_pieces_digest(rs_digest *digest, const rs_stored_tensor *tensor)
{
    rs_digest_u64(digest, (uint64_t)tensor->piece_count);
    for (int64_t i = 0; i < tensor->piece_count; i++) {
        const rs_stored_piece *piece = &tensor->pieces[i];
        rs_digest_u64(digest, (uint64_t)piece->file);
        rs_digest_u64(digest, piece->at);
        rs_digest_i64s(digest, piece->size, tensor->carried_ndim);
        if (piece->offset != NULL)
            rs_digest_i64s(digest, piece->offset, tensor->carried_ndim);
        if (piece->strides != NULL)
            rs_digest_i64s(digest, piece->strides, tensor->carried_ndim);
    }
}

void rs_target_digest(const rs_target *target, rs_digest *digest)
{
    rs_digest_bytes(digest, target->format->name, strlen(target->format->name));
    rs_digest_bytes(digest, target->document.bytes, target->document.count);
    for (int32_t i = 0; i < target->file_count; i++) {
        const char *name = target->files[i].name != NULL ? target->files[i].name : "";
        rs_digest_bytes(digest, name, strlen(name));
        rs_digest_u64(digest, target->files[i].bytes);
    }
    for (int64_t i = 0; i < target->tensor_count; i++) {
        const rs_stored_tensor *tensor = &target->tensors[i];
        rs_digest_bytes(digest, tensor->name.bytes, tensor->name.count);
        rs_digest_u64(digest, (uint64_t)tensor->dtype);
        rs_digest_u64(digest, (uint64_t)tensor->ndim);
        rs_digest_i64s(digest, tensor->shape, tensor->ndim);
        rs_pieces_digest(digest, tensor);
    }
    rs_digest_u64(digest, (uint64_t)target->entry_count);
    for (int64_t i = 0; i < target->entry_count; i++) {
        const rs_target_entry *entry = &target->entries[i];
        const rs_target_array *array = rs_target_array_of(target, entry);
        rs_digest_u64(digest, (uint64_t)entry->tensor);
        rs_digest_u64(digest, (uint64_t)entry->file);
        rs_digest_u64(digest, (uint64_t)array->ndim);
        rs_digest_i64s(digest, array->shape, array->ndim);
        rs_digest_u64(digest, entry->begin);
        if (array->key != NULL)
            rs_digest_bytes(digest, array->key->bytes, array->key->count);
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
