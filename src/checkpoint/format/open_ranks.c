/* SPDX-License-Identifier: Apache-2.0 */
/*
 * open_ranks.c - plain files of ranks: each holds local shapes and says nothing about the whole. A
 * mesh and rules tell which part each rank has; the full shape is found from the local ones, or, of
 * tensors that are cut flat, told by the files.
 *
 * The file at position i of the mesh is the i-th in the order of the names, numbers in them
 * compared as numbers. A box that several ranks hold becomes one piece, in the first of their
 * files, and copies in the others.
 */
#include "base/checked.h"
#include "base/context.h"
#include "checkpoint/rules/rulebook.h"
#include "checkpoint/store/store.h"

#include <stdlib.h>
#include <string.h>

/* ---- order of files -------------------------------------------------------------------------- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* "rank-2" before "rank-10". */
static int compare_naturally(const char *a, const char *b)
{
    while (*a != '\0' && *b != '\0') {
        if (is_digit(*a) && is_digit(*b)) {
            while (*a == '0')
                a++;
            while (*b == '0')
                b++;
            size_t a_length = strspn(a, "0123456789"), b_length = strspn(b, "0123456789");
            if (a_length != b_length)
                return a_length < b_length ? -1 : 1;
            int order = memcmp(a, b, a_length);
            if (order != 0)
                return order;
            a += a_length;
            b += b_length;
        } else if (*a != *b) {
            return (unsigned char)*a < (unsigned char)*b ? -1 : 1;
        } else {
            a++;
            b++;
        }
    }
    return (*a != '\0') - (*b != '\0');
}

static int compare_files(const void *a, const void *b)
{
    const rs_stored_file *x = a, *y = b;
    int order = compare_naturally(x->name, y->name);
    return order != 0 ? order : strcmp(x->name, y->name);
}

/* ---- one tensor ------------------------------------------------------------------------------ */

/* The entries of one name, by file. */
typedef struct local_entries {
    const rs_occurrence *items;
    int64_t count;
    const int32_t *file_of; /* the file of the rank at each position of the mesh */
} local_entries;

static const rs_entry *entry_in(const local_entries *entries, int32_t file)
{
    int64_t low = 0, high = entries->count; /* sorted by file */
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (entries->items[middle].file == file)
            return entries->items[middle].entry;
        if (entries->items[middle].file < file)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static bool local_shape(void *user, int32_t position, int64_t *out_shape)
{
    const local_entries *entries = user;
    const rs_entry *entry = entry_in(entries, entries->file_of[position]);
    if (entry == NULL)
        return false;
    memcpy(out_shape, entry->shape, (size_t)entry->ndim * sizeof(int64_t));
    return true;
}

/* Keeps box, cut to the tensor's own shape, which padding may exceed; false when nothing is
 * left. */
static reshard_status keep_box(rs_arena *arena, const rs_stored_tensor *tensor,
                               const reshard_piece *found, rs_stored_piece *piece, bool *out_kept)
{
    int32_t ndim = tensor->carried_ndim;
    int64_t *numbers = rs_arena_allocate_array(arena, 3 * (size_t)ndim, sizeof(int64_t));
    if (numbers == NULL)
        return rs_allocation_status();
    *out_kept = true;
    for (int32_t d = 0; d < ndim; d++) {
        int64_t from = found->box.offset[d];
        int64_t to = rs_min(from + found->box.size[d], tensor->carried_shape[d]);
        *out_kept = *out_kept && to > from;
        numbers[d] = from;
        numbers[ndim + d] = to - from;
        numbers[2 * ndim + d] = found->strides[d];
    }
    piece->offset = numbers;
    piece->size = numbers + ndim;
    piece->strides = numbers + 2 * ndim;
    return RESHARD_OK;
}

static bool same_box(int32_t ndim, const rs_stored_piece *a, const rs_stored_piece *b)
{
    size_t bytes = (size_t)ndim * sizeof(int64_t);
    return memcmp(a->offset, b->offset, bytes) == 0 && memcmp(a->size, b->size, bytes) == 0;
}

/* A piece, or a copy of one that is there already. */
static void add_piece(rs_stored_tensor *tensor, const rs_stored_piece *piece)
{
    for (int64_t i = 0; i < tensor->piece_count; i++) {
        if (same_box(tensor->carried_ndim, &tensor->pieces[i], piece)) {
            tensor->copies[tensor->copy_count++] = *piece;
            return;
        }
    }
    tensor->pieces[tensor->piece_count++] = *piece;
}

static reshard_status add_shards(reshard_checkpoint *checkpoint, const reshard_mesh *mesh,
                                 const local_entries *entries, const reshard_shards *shards,
                                 rs_stored_tensor *tensor)
{
    int64_t most = 0;
    for (int64_t i = 0; i < shards->count; i++)
        most += shards->items[i].piece_count;
    size_t room = (size_t)rs_max(most, 1);
    tensor->pieces = rs_arena_allocate_array(&checkpoint->arena, room, sizeof(rs_stored_piece));
    tensor->copies = rs_arena_allocate_array(&checkpoint->arena, room, sizeof(rs_stored_piece));
    if (tensor->pieces == NULL || tensor->copies == NULL)
        return rs_allocation_status();
    for (int64_t i = 0; i < shards->count; i++) {
        const reshard_shard *shard = &shards->items[i];
        int32_t file = entries->file_of[reshard_mesh_position_of(mesh, shard->rank)];
        const rs_entry *entry = entry_in(entries, file);
        for (int64_t j = 0; j < shard->piece_count; j++) {
            rs_stored_piece piece = {.file = file};
            bool kept = false;
            piece.at = checkpoint->files[file].header->data_begin + entry->begin +
                       (uint64_t)(shard->pieces[j].at * tensor->element_bytes);
            reshard_status status =
                keep_box(&checkpoint->arena, tensor, &shard->pieces[j], &piece, &kept);
            if (status != RESHARD_OK)
                return status;
            if (kept)
                add_piece(tensor, &piece);
        }
    }
    return RESHARD_OK;
}

static reshard_status take_new_name(reshard_checkpoint *checkpoint, const rs_rule_result *result,
                                    rs_slice *name)
{
    if (result->new_name == NULL || checkpoint->keeps_names)
        return RESHARD_OK;
    name->bytes =
        rs_arena_copy(&checkpoint->arena, result->new_name, result->new_name_bytes + 1, 1);
    name->count = result->new_name_bytes;
    return name->bytes != NULL ? RESHARD_OK : rs_allocation_status();
}

/* Tensors that cannot be cut are whole in every file that has them. */
static reshard_status add_opaque(reshard_checkpoint *checkpoint, const local_entries *entries,
                                 const rs_rule_result *result, rs_stored_tensor *tensor)
{
    const rs_entry *first = entries->items[0].entry;
    rs_slice name = entries->items[0].name;
    reshard_status status = take_new_name(checkpoint, result, &name);
    if (status == RESHARD_OK)
        status = rs_store_describe(tensor, &checkpoint->arena, name, first->dtype, first->ndim,
                                   first->shape);
    if (status != RESHARD_OK)
        return status;
    size_t room = (size_t)entries->count;
    tensor->pieces = rs_arena_allocate_array(&checkpoint->arena, room, sizeof(rs_stored_piece));
    tensor->copies = rs_arena_allocate_array(&checkpoint->arena, room, sizeof(rs_stored_piece));
    if (tensor->pieces == NULL || tensor->copies == NULL)
        return rs_allocation_status();
    for (int64_t i = 0; i < entries->count; i++) {
        const rs_occurrence *item = &entries->items[i];
        if (item->entry->ndim != first->ndim ||
            memcmp(item->entry->shape, first->shape, (size_t)first->ndim * sizeof(int64_t)) != 0)
            return rs_fail(RESHARD_ERR_UNSUPPORTED,
                           "tensor \"%.*s\": is cut in %s and %s, but tensors of less than a byte "
                           "an element or more than 8 dimensions are carried whole only",
                           rs_slice_shown(item->name), item->name.bytes,
                           checkpoint->files[entries->items[0].file].name,
                           checkpoint->files[item->file].name);
        rs_stored_piece piece = {.file = item->file,
                                 .at = checkpoint->files[item->file].header->data_begin +
                                       item->entry->begin,
                                 .size = tensor->carried_shape};
        if (i == 0)
            tensor->pieces[tensor->piece_count++] = piece;
        else
            tensor->copies[tensor->copy_count++] = piece;
    }
    return RESHARD_OK;
}

static reshard_status add_cut(reshard_checkpoint *checkpoint, const rs_rulebook *book,
                              const local_entries *entries, const rs_rule_result *result,
                              rs_stored_tensor *tensor)
{
    rs_arena *arena = &checkpoint->arena;
    const rs_occurrence *first = &entries->items[0];
    reshard_layout *layout = NULL;
    reshard_shards *shards = NULL;
    rs_slice name = first->name;
    const int64_t *shape =
        rs_arena_copy(arena, result->shape, (size_t)result->ndim, sizeof(int64_t));
    if (shape == NULL)
        return rs_allocation_status();
    reshard_status status = take_new_name(checkpoint, result, &name);
    if (status == RESHARD_OK)
        status = rs_store_describe(tensor, arena, name, first->entry->dtype, result->ndim, shape);
    if (status == RESHARD_OK)
        status = reshard_layout_create(checkpoint->context, result->spec, result->ndim,
                                       result->padded_shape, &layout);
    if (status == RESHARD_OK)
        status = reshard_layout_all_shards(layout, &shards);
    if (status == RESHARD_OK)
        status = add_shards(checkpoint, book->mesh, entries, shards, tensor);
    if (status == RESHARD_OK && tensor->bytes == 0) {
        tensor->pieces[0] = (rs_stored_piece){.file = first->file, .size = tensor->carried_shape};
        tensor->pieces[0].at =
            checkpoint->files[first->file].header->data_begin + first->entry->begin;
        tensor->piece_count = 1;
    } else if (status == RESHARD_OK) {
        status = rs_store_check(checkpoint, tensor);
    }
    reshard_shards_destroy(shards);
    reshard_layout_release(layout);
    return status;
}

static bool tells_alike(const rs_occurrence *a, const rs_occurrence *b)
{
    return (a->full == NULL) == (b->full == NULL) && a->full_ndim == b->full_ndim &&
           (a->full == NULL ||
            memcmp(a->full, b->full, (size_t)a->full_ndim * sizeof(int64_t)) == 0);
}

static reshard_status check_alike(const reshard_checkpoint *checkpoint,
                                  const local_entries *entries)
{
    const rs_occurrence *first = &entries->items[0];
    for (int64_t i = 1; i < entries->count; i++) {
        const rs_occurrence *item = &entries->items[i];
        bool same_dtype = item->entry->dtype == first->entry->dtype;
        if (!same_dtype || item->entry->ndim != first->entry->ndim)
            return rs_fail(RESHARD_ERR_CORRUPT, "tensor \"%.*s\": %s and %s do not agree on its %s",
                           rs_slice_shown(item->name), item->name.bytes,
                           checkpoint->files[first->file].name, checkpoint->files[item->file].name,
                           same_dtype ? "number of dimensions" : "dtype");
        if (!tells_alike(first, item))
            return rs_fail(RESHARD_ERR_CORRUPT,
                           "tensor \"%.*s\": %s and %s do not agree on its full shape",
                           rs_slice_shown(item->name), item->name.bytes,
                           checkpoint->files[first->file].name, checkpoint->files[item->file].name);
    }
    return RESHARD_OK;
}

static reshard_status add_tensor(reshard_checkpoint *checkpoint, const rs_rulebook *book,
                                 local_entries *entries)
{
    rs_stored_tensor *tensor = &checkpoint->tensors[checkpoint->tensor_count];
    const rs_occurrence *first = &entries->items[0];
    rs_rule_result result = {0};
    rs_local_shapes locals = {.ndim = first->entry->ndim,
                              .find = local_shape,
                              .user = entries,
                              .full_ndim = first->full_ndim,
                              .full = first->full};
    reshard_status status = check_alike(checkpoint, entries);
    if (status != RESHARD_OK)
        return status;
    status = rs_store_describe(tensor, &checkpoint->arena, first->name, first->entry->dtype,
                               first->entry->ndim, first->entry->shape);
    if (status == RESHARD_OK && tensor->opaque) {
        status = rs_rules_name(book->rules, book->mesh, &book->keys, first->name.bytes,
                               first->name.count, first->entry->ndim, first->entry->shape, &result);
        if (status == RESHARD_OK && !result.drop)
            status = add_opaque(checkpoint, entries, &result, tensor);
    } else if (status == RESHARD_OK) {
        status = rs_rules_recover(book->rules, book->mesh, &book->keys, first->name.bytes,
                                  first->name.count, &locals, &result);
        if (status != RESHARD_OK)
            return status;
        if (!result.drop)
            status = add_cut(checkpoint, book, entries, &result, tensor);
    }
    if (status == RESHARD_OK && !result.drop) {
        checkpoint->bytes += tensor->bytes;
        checkpoint->tensor_count++;
    }
    rs_rule_result_release(&result);
    return status;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static int compare_occurrences(const void *a, const void *b)
{
    const rs_occurrence *x = a, *y = b;
    int order = rs_slice_compare(x->name, y->name);
    return order != 0 ? order : (x->file > y->file) - (x->file < y->file);
}

static int compare_tensors(const void *a, const void *b)
{
    return rs_slice_compare(((const rs_stored_tensor *)a)->name,
                            ((const rs_stored_tensor *)b)->name);
}

static reshard_status gather_file(reshard_checkpoint *checkpoint, int32_t file,
                                  rs_occurrences *list)
{
    const rs_header *header = checkpoint->files[file].header;
    size_t count = (size_t)header->entry_count;
    rs_arena scratch;
    rs_arena_init(&scratch, checkpoint->context);
    const int64_t **shapes = rs_arena_allocate_array(&scratch, count, sizeof *shapes);
    int32_t *ndims = rs_arena_allocate_array(&scratch, count, sizeof *ndims);
    reshard_status status = shapes != NULL && ndims != NULL
                                ? rs_store_read_shapes(checkpoint, file, shapes, ndims)
                                : rs_allocation_status();
    for (size_t i = 0; status == RESHARD_OK && i < count; i++) {
        const rs_entry *entry = header->by_name[i];
        rs_occurrence item = {.name = entry->name,
                              .file = file,
                              .entry = entry,
                              .full = shapes[i],
                              .full_ndim = ndims[i]};
        status = rs_occurrences_add(checkpoint->context, list, &item);
    }
    rs_arena_release(&scratch);
    return status;
}

static reshard_status gather(reshard_checkpoint *checkpoint, rs_occurrences *list)
{
    for (int32_t i = 0; i < checkpoint->file_count; i++) {
        reshard_status status = gather_file(checkpoint, i, list);
        if (status != RESHARD_OK)
            return status;
    }
    if (list->count > 1)
        qsort(list->items, (size_t)list->count, sizeof(rs_occurrence), compare_occurrences);
    return RESHARD_OK;
}

static reshard_status add_all(reshard_checkpoint *checkpoint, const rs_rulebook *book,
                              const int32_t *file_of, const rs_occurrences *list)
{
    reshard_status status = RESHARD_OK;
    checkpoint->tensors =
        rs_arena_allocate_array(&checkpoint->arena, (size_t)list->count, sizeof(rs_stored_tensor));
    if (checkpoint->tensors == NULL)
        return rs_allocation_status();
    for (int64_t first = 0, next; status == RESHARD_OK && first < list->count; first = next) {
        for (next = first + 1; next < list->count; next++) {
            if (rs_slice_compare(list->items[first].name, list->items[next].name) != 0)
                break;
        }
        local_entries entries = {list->items + first, next - first, file_of};
        status = add_tensor(checkpoint, book, &entries);
    }
    if (status != RESHARD_OK)
        return status;
    /* Rules may have given other names. */
    if (checkpoint->tensor_count > 1)
        qsort(checkpoint->tensors, (size_t)checkpoint->tensor_count, sizeof(rs_stored_tensor),
              compare_tensors);
    for (int64_t i = 1; i < checkpoint->tensor_count; i++) {
        rs_slice name = checkpoint->tensors[i].name;
        if (rs_slice_compare(checkpoint->tensors[i - 1].name, name) == 0)
            return rs_fail(RESHARD_ERR_INVALID, "rules give two tensors the name \"%.*s\"",
                           rs_slice_shown(name), name.bytes);
    }
    return RESHARD_OK;
}

static const char *occurrence_name(void *user, int64_t index, size_t *out_bytes)
{
    const rs_occurrences *list = user;
    if (index >= list->count)
        return NULL;
    *out_bytes = list->items[index].name.count;
    return list->items[index].name.bytes;
}

reshard_status rs_store_read_ranks(reshard_checkpoint *checkpoint,
                                   const reshard_checkpoint_options *options)
{
    rs_occurrences list = {0};
    rs_rulebook book = {0};
    int32_t *file_of = NULL;
    if (checkpoint->file_count > 1)
        qsort(checkpoint->files, (size_t)checkpoint->file_count, sizeof(rs_stored_file),
              compare_files);
    reshard_status status = gather(checkpoint, &list);
    if (status == RESHARD_OK)
        status = rs_rulebook_init(&book, checkpoint->context, options->from, options->rules,
                                  checkpoint->folder, options->set_count, options->sets,
                                  occurrence_name, &list);
    if (status == RESHARD_OK && reshard_mesh_size(book.mesh) != checkpoint->file_count)
        status = rs_fail(RESHARD_ERR_INVALID,
                         "%s: holds %d safetensors files, but the mesh %.100s "
                         "has %d ranks",
                         checkpoint->path, (int)checkpoint->file_count, options->from,
                         (int)reshard_mesh_size(book.mesh));
    if (status == RESHARD_OK)
        status = rs_store_note(checkpoint, "split by %s", book.said);
    if (status == RESHARD_OK) {
        file_of = rs_arena_allocate_array(&checkpoint->arena, (size_t)checkpoint->file_count,
                                          sizeof(int32_t));
        status = file_of != NULL ? rs_mesh_order_files(checkpoint->context, book.mesh, file_of)
                                 : rs_allocation_status();
    }
    if (status == RESHARD_OK)
        status = add_all(checkpoint, &book, file_of, &list);
    rs_rulebook_release(&book);
    rs_occurrences_release(checkpoint->context, &list);
    return status;
}
