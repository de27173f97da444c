/* SPDX-License-Identifier: Apache-2.0 */
/*
 * target.c - lays out the files of a conversion: deals tensors out to files, and gives every entry
 * its place.
 */
#include "checkpoint/format/target.h"

#include "base/context.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHARD_BYTES_DEFAULT ((uint64_t)5000000000)

/* ---- whole tensors --------------------------------------------------------------------------- */

reshard_status rs_target_add_entry(rs_target *target, const rs_target_entry *entry)
{
    void *items = target->entries;
    reshard_status status = rs_grow(target->context, &items, &target->entry_capacity,
                                    target->entry_count + 1, sizeof(rs_target_entry));
    target->entries = items;
    if (status == RESHARD_OK)
        target->entries[target->entry_count++] = *entry;
    return status;
}

/* One piece that is the whole tensor, in the given file. */
static reshard_status add_whole(rs_target *target, const rs_stored_tensor *stored,
                                const rs_selected *selected, int32_t file)
{
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

/* Tensors in the order of names; one that does not fit begins another file. */
static reshard_status deal_out(rs_target *target, const reshard_checkpoint *source,
                               const rs_selection *selection, uint64_t shard_bytes_max)
{
    uint64_t limit = shard_bytes_max != 0 ? shard_bytes_max : SHARD_BYTES_DEFAULT;
    uint64_t used = 0;
    target->file_count = 1;
    for (int64_t i = 0; i < selection->count; i++) {
        const rs_selected *selected = &selection->items[i];
        const rs_stored_tensor *stored = &source->tensors[selected->origin];
        uint64_t bytes = stored->bytes / (uint64_t)stored->element_bytes *
                         (stored->opaque ? 1 : (uint64_t)reshard_dtype_bits(selected->dtype) / 8);
        if (used != 0 && (bytes > limit || used > limit - bytes)) {
            target->file_count++;
            used = 0;
        }
        used += bytes;
        reshard_status status = add_whole(target, stored, selected, target->file_count - 1);
        if (status != RESHARD_OK)
            return status;
    }
    return RESHARD_OK;
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
    if (count > 1)
        qsort(order, count, sizeof *order, compare_entries);
    for (size_t i = 0; i < count; i++)
        sorted[i] = *order[i].entry;
    rs_release(target->context, target->entries,
               (size_t)target->entry_capacity * sizeof(rs_target_entry));
    target->entries = sorted;
    target->entry_capacity = 0; /* the arena has them now */
out:
    if (order != NULL)
        rs_release(target->context, order, count * sizeof *order);
    return status;
}

static reshard_status name_file(rs_target *target, int32_t index, int32_t rank, int32_t count)
{
    char name[96];
    rs_target_file *file = &target->files[index];
    if (target->format == RESHARD_FORMAT_HF && count == 1)
        (void)snprintf(name, sizeof name, "model.safetensors");
    else if (target->format == RESHARD_FORMAT_HF)
        (void)snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", (int)index + 1,
                       (int)count);
    else if (target->format == RESHARD_FORMAT_DCP_SAFETENSORS)
        (void)snprintf(name, sizeof name, "shard-%05d-model-00001-of-00001.safetensors",
                       (int)rank + 1);
    else
        (void)snprintf(name, sizeof name, "rank-%05d-of-%05d.safetensors", (int)rank, (int)count);
    file->name = rs_arena_copy(&target->arena, name, strlen(name) + 1, 1);
    return file->name != NULL ? RESHARD_OK : rs_allocation_status();
}

static reshard_status add_files(rs_target *target, const int32_t *ranks)
{
    size_t bytes = (size_t)target->file_count * sizeof(rs_target_file);
    target->files = rs_arena_allocate(&target->arena, bytes);
    if (target->files == NULL)
        return rs_allocation_status();
    memset(target->files, 0, bytes);
    for (int64_t i = 0, entry = 0; i < target->file_count; i++) {
        rs_target_file *file = &target->files[i];
        file->entry_first = entry;
        for (; entry < target->entry_count && target->entries[entry].file == i; entry++)
            file->flat_count += target->entries[entry].is_flat;
        file->entry_count = entry - file->entry_first;
        if (file->entry_count == 0 && target->format == RESHARD_FORMAT_DCP_SAFETENSORS &&
            !(i == 0 && target->entry_count == 0))
            continue;
        target->written_count++;
        reshard_status status = name_file(target, (int32_t)i, ranks != NULL ? ranks[i] : (int32_t)i,
                                          target->file_count);
        if (status != RESHARD_OK)
            return status;
    }
    return RESHARD_OK;
}

static reshard_status place_file(rs_target *target, int32_t index)
{
    rs_target_file *file = &target->files[index];
    uint64_t used = 0;
    rs_json_writer writer;
    for (int64_t i = file->entry_first; i < file->entry_first + file->entry_count; i++) {
        target->entries[i].begin = used;
        if (__builtin_add_overflow(used, target->entries[i].bytes, &used))
            return rs_fail(RESHARD_ERR_RANGE, "%s would have more than 2^64 bytes", file->name);
    }
    rs_json_writer_init(&writer, target->context);
    reshard_status status = rs_target_header(target, index, &writer);
    file->data_begin = (uint64_t)writer.count;
    rs_json_writer_release(&writer);
    if (status != RESHARD_OK)
        return rs_fail_within(status, "%s", file->name);
    file->bytes = file->data_begin + used;
    target->bytes += file->bytes;
    for (int64_t i = file->entry_first; i < file->entry_first + file->entry_count; i++) {
        const rs_target_entry *entry = &target->entries[i];
        rs_stored_piece *pieces = target->tensors[entry->tensor].pieces + entry->piece_first;
        for (int64_t j = 0; j < entry->piece_count; j++)
            pieces[j].at += file->data_begin + entry->begin;
    }
    return RESHARD_OK;
}

/* ---- making ---------------------------------------------------------------------------------- */

static reshard_status choose_format(rs_target *target, const reshard_convert_options *options)
{
    reshard_mesh *mesh = NULL;
    int32_t ranks = 1;
    if (options->to != NULL) {
        reshard_status status = reshard_mesh_parse(target->context, options->to, &mesh);
        if (status != RESHARD_OK)
            return status;
        ranks = reshard_mesh_size(mesh);
        reshard_mesh_release(mesh);
    }
    target->format = options->format;
    if (options->format == RESHARD_FORMAT_DEFAULT)
        target->format = ranks == 1 ? RESHARD_FORMAT_HF : RESHARD_FORMAT_DCP_SAFETENSORS;
    if (target->format == RESHARD_FORMAT_HF && ranks != 1)
        return rs_fail(RESHARD_ERR_INVALID,
                       "the format hf holds whole tensors, so it cannot be split over %.100s",
                       options->to);
    if (target->format != RESHARD_FORMAT_HF && options->to == NULL)
        return rs_fail(RESHARD_ERR_INVALID, "the format %s needs a mesh to split over (--to)",
                       target->format == RESHARD_FORMAT_RANK_FILES ? "rank-files"
                                                                   : "dcp-safetensors");
    return RESHARD_OK;
}

static int compare_ranks(const void *a, const void *b)
{
    const int32_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* The ranks of the mesh in increasing order: those of the files. */
static reshard_status list_ranks(rs_target *target, const reshard_mesh *mesh, int32_t **out_ranks)
{
    int32_t count = reshard_mesh_size(mesh);
    int32_t *ranks = rs_arena_allocate_array(&target->arena, (size_t)count, sizeof(int32_t));
    if (ranks == NULL)
        return rs_allocation_status();
    for (int32_t i = 0; i < count; i++)
        ranks[i] = reshard_mesh_rank_at(mesh, i);
    qsort(ranks, (size_t)count, sizeof(int32_t), compare_ranks);
    target->file_count = count;
    *out_ranks = ranks;
    return RESHARD_OK;
}

/* Whole tensors need no rules; those that are given say what tensors are called, and which are left
 * out. */
static reshard_status lay_out(rs_target *target, const reshard_checkpoint *source,
                              rs_selection *selection, const reshard_convert_options *options,
                              int32_t **out_ranks)
{
    bool is_whole = target->format == RESHARD_FORMAT_HF;
    bool has_rules = !is_whole || options->rules != NULL;
    rs_rulebook book = {0};
    reshard_status status = RESHARD_OK;
    if (has_rules)
        status = rs_rulebook_init(&book, target->context, options->to != NULL ? options->to : "1",
                                  options->rules, source->folder, options->set_count, options->sets,
                                  rs_selection_name, selection);
    if (status == RESHARD_OK && has_rules) {
        (void)snprintf(target->rules, sizeof target->rules, "%s", book.said);
        status = rs_selection_apply(selection, &target->arena, source, &book);
    }
    if (status == RESHARD_OK)
        status = rs_selection_finish(selection);
    if (status == RESHARD_OK && selection->count == 0 && source->tensor_count != 0)
        status = rs_fail(RESHARD_ERR_INVALID, "%s: of %lld tensors none is left to convert",
                         source->path, (long long)source->tensor_count);
    if (status == RESHARD_OK && is_whole)
        status = deal_out(target, source, selection, options->shard_bytes_max);
    if (status == RESHARD_OK && !is_whole)
        status = list_ranks(target, book.mesh, out_ranks);
    if (status == RESHARD_OK && !is_whole)
        status = rs_target_cut(target, source, &book, selection);
    if (has_rules)
        rs_rulebook_release(&book);
    return status;
}

static reshard_status place_all(rs_target *target, const int32_t *ranks)
{
    reshard_status status = RESHARD_OK;
    if (target->entry_count != 0)
        status = sort_entries(target);
    if (status == RESHARD_OK)
        status = add_files(target, ranks);
    for (int32_t i = 0; status == RESHARD_OK && i < target->file_count; i++) {
        if (target->files[i].name != NULL)
            status = place_file(target, i);
    }
    return status;
}

reshard_status rs_target_init(rs_target *target, const reshard_checkpoint *source,
                              const reshard_convert_options *options)
{
    int32_t *ranks = NULL;
    rs_selection selection;
    *target = (rs_target){.context = source->context};
    rs_arena_init(&target->arena, source->context);
    reshard_status status = choose_format(target, options);
    if (status == RESHARD_OK)
        status = rs_selection_init(&selection, &target->arena, source, options);
    if (status != RESHARD_OK)
        return status;
    size_t count = (size_t)selection.count;
    target->tensors = rs_arena_allocate_array(&target->arena, count, sizeof(rs_stored_tensor));
    target->origins = rs_arena_allocate_array(&target->arena, count, sizeof(int64_t));
    if (target->tensors == NULL || target->origins == NULL)
        return rs_allocation_status();
    status = lay_out(target, source, &selection, options, &ranks);
    return status == RESHARD_OK ? place_all(target, ranks) : status;
}

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

reshard_status rs_target_init_live(rs_target *target, reshard_context *context, int32_t file_count,
                                   int64_t count, const reshard_live_tensor *tensors)
{
    *target = (rs_target){
        .context = context, .format = RESHARD_FORMAT_DCP_SAFETENSORS, .file_count = file_count};
    rs_arena_init(&target->arena, context);
    reshard_status status = take_names(target, count, tensors);
    if (status == RESHARD_OK)
        status = rs_target_cut_live(target, tensors);
    return status == RESHARD_OK ? place_all(target, NULL) : status;
}

void rs_target_release(rs_target *target)
{
    if (target->entries != NULL && target->entry_capacity != 0)
        rs_release(target->context, target->entries,
                   (size_t)target->entry_capacity * sizeof(rs_target_entry));
    target->entries = NULL;
    rs_arena_release(&target->arena);
}
