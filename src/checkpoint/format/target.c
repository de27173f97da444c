/* SPDX-License-Identifier: Apache-2.0 */
/*
 * target.c - lays out what a conversion shall write: chooses the format and the tensors, lets the
 * format deal them out to files, and gives every entry its place.
 */
#include "checkpoint/format/target.h"

#include "base/context.h"
#include "base/sort.h"
#include "checkpoint/format/safetensors.h"
#include "text/text.h"

/* How many of the values that stay behind are named. */
#define VALUES_SHOWN 4

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

static reshard_status place_all(rs_target *target)
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

/* ---- making ---------------------------------------------------------------------------------- */

static reshard_status choose_format(rs_target *target, const reshard_mesh *mesh,
                                    const reshard_conversion_options *options)
{
    bool is_split = reshard_mesh_size(mesh) != 1;
    target->format = rs_format_default_writer(is_split);
    if (options->format != NULL) {
        reshard_status status = rs_format_find_writer(options->format, &target->format);
        if (status != RESHARD_OK)
            return status;
    }
    if (!target->format->is_split && is_split && target->format->split != NULL)
        target->format = target->format->split;
    if (!target->format->is_split && is_split)
        return rs_fail(RESHARD_ERR_INVALID,
                       "the format %s holds whole tensors, so it cannot be split over %.100s",
                       target->format->name, options->to);
    if (target->format->is_split && options->to == NULL)
        return rs_fail(RESHARD_ERR_INVALID,
                       "the format %s needs a mesh to split over, and none is "
                       "given",
                       target->format->name);
    return RESHARD_OK;
}

/* Whole tensors need no rules. If rules are given, they rename tensors and leave some out. */
static reshard_status read_rules(rs_target *target, const reshard_checkpoint *source,
                                 reshard_mesh *mesh, const reshard_conversion_options *options,
                                 rs_selection *selection, rs_rulebook *book)
{
    reshard_status status = RESHARD_OK;
    if (target->format->is_split || options->rules != NULL) {
        status = rs_rulebook_init(book, target->context, mesh, options->rules, source->folder,
                                  options->set_count, options->sets, rs_selection_name, selection);
        if (status == RESHARD_OK)
            status = rs_selection_apply(selection, &target->arena, book);
        (void)snprintf(target->rules, sizeof target->rules, "%s", book->said);
    }
    if (status == RESHARD_OK && selection->dropped_count != 0)
        status = rs_target_say(
            target, "rules (%s) leave out %lld tensor%s (line %d: \"%.*s\"%s)", book->name,
            (long long)selection->dropped_count, selection->dropped_count == 1 ? "" : "s",
            (int)selection->dropped_line, rs_slice_shown(selection->dropped),
            selection->dropped.bytes, selection->dropped_count == 1 ? "" : " and others");
    if (status == RESHARD_OK)
        status = rs_selection_finish(selection);
    if (status == RESHARD_OK && selection->count == 0 && source->tensor_count != 0)
        status = rs_fail(RESHARD_ERR_INVALID, "%s: of %lld tensors none is left to convert",
                         source->path, (long long)source->tensor_count);
    return status;
}

/* One file for each rank of the mesh, in increasing order. */
static reshard_status order_files(rs_laying *laying, const reshard_mesh *mesh)
{
    rs_target *target = laying->target;
    size_t count = (size_t)reshard_mesh_size(mesh);
    int32_t *ranks = rs_arena_allocate_array(&target->arena, count, sizeof(int32_t));
    int32_t *file_of = rs_arena_allocate_array(&target->arena, count, sizeof(int32_t));
    if (ranks == NULL || file_of == NULL)
        return rs_allocation_status();
    target->file_count = rs_mesh_order_files(mesh, ranks, file_of);
    laying->file_of = file_of;
    target->ranks = ranks;
    return RESHARD_OK;
}

/* Says which values the format cannot hold. */
static reshard_status tell_values(rs_target *target)
{
    const reshard_checkpoint *source = target->source;
    const rs_format *format = target->format;
    char shown[300];
    rs_text text;
    int64_t count = 0;
    rs_text_init(&text, shown, sizeof shown);
    for (int64_t i = 0; i < source->value_count; i++) {
        const rs_stored_value *value = &source->values[i];
        rs_slice name = value->name;
        if (!rs_target_keeps(target, &name) ||
            (format->holds_value != NULL && format->holds_value(value)))
            continue;
        if (count++ < VALUES_SHOWN)
            rs_text_add(&text, "%s%.*s", count == 1 ? "" : ", ", rs_slice_shown(name), name.bytes);
    }
    if (count == 0)
        return RESHARD_OK;
    return rs_target_say(target,
                         "the format %s cannot hold %lld value%s, which stay%s behind: %s%s",
                         format->name, (long long)count, count == 1 ? "" : "s",
                         count == 1 ? "s" : "", shown, count > VALUES_SHOWN ? ", .." : "");
}

/* Says what the selection, and the format, leave behind. */
static reshard_status tell_behind(rs_target *target, const rs_selection *selection)
{
    const reshard_checkpoint *source = target->source;
    int64_t outside = 0;
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; i < source->value_count; i++) {
        rs_slice name = source->values[i].name;
        outside += !rs_target_keeps(target, &name);
    }
    if (selection->prefix.count != 0 && selection->outside_count + outside != 0)
        status = rs_target_say(target,
                               "only \"%.*s\" is taken: %lld tensors (%llu bytes) and %lld other "
                               "values stay behind",
                               (int)selection->prefix.count - 1, selection->prefix.bytes,
                               (long long)selection->outside_count,
                               (unsigned long long)selection->outside_bytes, (long long)outside);
    return status == RESHARD_OK ? tell_values(target) : status;
}

static reshard_status lay_out(rs_target *target, const reshard_checkpoint *source,
                              reshard_mesh *mesh, const reshard_conversion_options *options)
{
    rs_selection selection;
    rs_rulebook book = {0};
    rs_laying laying = {.target = target,
                        .source = source,
                        .selection = &selection,
                        .book = &book,
                        .file_bytes_max = options->shard_bytes_max};
    reshard_status status =
        rs_selection_init(&selection, &target->arena, source, options, target->format->takes_model);
    if (status != RESHARD_OK)
        return status;
    target->prefix = selection.prefix;
    status = tell_behind(target, &selection);
    if (status != RESHARD_OK)
        return status;
    size_t count = (size_t)selection.count;
    target->tensors = rs_arena_allocate_array(&target->arena, count, sizeof(rs_stored_tensor));
    target->origins = rs_arena_allocate_array(&target->arena, count, sizeof(int64_t));
    target->stored = rs_arena_allocate_array(&target->arena, count, sizeof *target->stored);
    target->rows = rs_arena_allocate_array(&target->arena, count, sizeof(rs_target_row));
    if (target->tensors == NULL || target->origins == NULL || target->stored == NULL ||
        target->rows == NULL)
        return rs_allocation_status();
    memset(target->rows, 0, count * sizeof(rs_target_row));
    status = read_rules(target, source, mesh, options, &selection, &book);
    if (status == RESHARD_OK && target->format->is_split)
        status = order_files(&laying, mesh);
    if (status == RESHARD_OK)
        status = target->format->lay_out(&laying);
    assert(status != RESHARD_OK || target->tensor_count == selection.count);
    for (int64_t i = 0; status == RESHARD_OK && i < selection.count; i++) {
        assert(target->origins[i] == selection.items[i].origin);
        target->stored[i] = selection.items[i].stored;
    }
    rs_rulebook_release(&book);
    return status == RESHARD_OK ? place_all(target) : status;
}

reshard_status rs_target_init(rs_target *target, const reshard_checkpoint *source,
                              const reshard_conversion_options *options)
{
    reshard_mesh *mesh = NULL;
    *target = (rs_target){.context = source->context,
                          .source = source,
                          .metadata_count = source->metadata_count,
                          .metadata = source->metadata,
                          .stem = source->stem != NULL ? source->stem : "model"};
    rs_arena_init(&target->arena, source->context);
    reshard_status status =
        reshard_mesh_parse(target->context, options->to != NULL ? options->to : "1", &mesh);
    if (status == RESHARD_OK)
        status = choose_format(target, mesh, options);
    if (status == RESHARD_OK)
        status = lay_out(target, source, mesh, options);
    reshard_mesh_release(mesh);
    return status;
}

/* ---- live tensors ---------------------------------------------------------------------------- */

static reshard_status take_names(rs_target *target, int64_t count,
                                 const reshard_live_tensor *tensors)
{
    target->name_count = count;
    target->names = rs_arena_allocate_array(&target->arena, (size_t)count, sizeof(rs_slice));
    target->tensors =
        rs_arena_allocate_array(&target->arena, (size_t)count, sizeof(rs_stored_tensor));
    target->origins = rs_arena_allocate_array(&target->arena, (size_t)count, sizeof(int64_t));
    if (target->names == NULL || target->tensors == NULL || target->origins == NULL)
        return rs_allocation_status();
    for (int64_t i = 0; i < count; i++)
        target->names[i] = (rs_slice){tensors[i].name, strlen(tensors[i].name)};
    return RESHARD_OK;
}

static reshard_status check_names(const rs_target *target)
{
    reshard_status status = RESHARD_OK;
    size_t count = (size_t)target->tensor_count;
    rs_slice *names = rs_allocate_array(target->context, count, sizeof *names);
    if (names == NULL)
        return rs_allocation_status();
    for (size_t i = 0; i < count; i++)
        names[i] = target->tensors[i].name;
    rs_sort(names, count, sizeof *names, rs_compare_slices);
    for (size_t i = 1; status == RESHARD_OK && i < count; i++) {
        if (rs_slice_compare(names[i - 1], names[i]) == 0)
            status = rs_fail(RESHARD_ERR_INVALID, "two tensors are to have the name \"%.*s\"",
                             rs_slice_shown(names[i]), names[i].bytes);
    }
    rs_release(target->context, names, count * sizeof *names);
    return status;
}

reshard_status rs_target_init_live(rs_target *target, reshard_context *context, int32_t file_count,
                                   int64_t count, const reshard_live_tensor *tensors)
{
    *target = (rs_target){.context = context,
                          .format = rs_format_default_writer(true),
                          .file_count = file_count,
                          .stem = "model"};
    rs_laying laying = {.target = target, .live = tensors};
    rs_arena_init(&target->arena, context);
    reshard_status status = take_names(target, count, tensors);
    if (status == RESHARD_OK)
        status = target->format->lay_out(&laying);
    if (status == RESHARD_OK)
        status = check_names(target);
    return status == RESHARD_OK ? place_all(target) : status;
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
