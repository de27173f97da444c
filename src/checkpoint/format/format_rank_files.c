/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format_rank_files.c - plain files of ranks: each holds local shapes and says nothing about the
 * whole. A mesh and rules tell which part each rank has. The full shape is found from the local
 * ones; for tensors that are cut flat the files give it (RESHARD_SHAPES).
 *
 * When read, the files are ordered by name, with numbers in names compared as numbers, and belong
 * to the ranks in increasing order. A box that several ranks hold becomes one piece, in the first
 * of their files, and copies in the others. When written, an entry is a rank's whole local buffer,
 * including padding, and its pieces lie in it strided.
 */
#include "base/checked.h"
#include "base/context.h"
#include "base/json.h"
#include "base/sort.h"
#include "base/text.h"
#include "checkpoint/format/safetensors.h"
#include "checkpoint/format/target.h"
#include "checkpoint/rules/rulebook.h"
#include "spec/spec.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- order of files -------------------------------------------------------------------------- */

/* "rank-2" before "rank-10". */
static int compare_naturally(const char *a, const char *b)
{
    while (*a != '\0' && *b != '\0') {
        if (rs_is_digit(*a) && rs_is_digit(*b)) {
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

/* The entries with one name, sorted by file. */
typedef struct local_entries {
    const rs_occurrence *items;
    int64_t count;
    const int32_t *file_of; /* the file of the rank at each position of the mesh */
} local_entries;

static int compare_by_file(const void *a, const void *b)
{
    const rs_occurrence *x = a, *y = b;
    return (x->file > y->file) - (x->file < y->file);
}

static const rs_occurrence *entry_in(const local_entries *entries, int32_t file)
{
    const rs_occurrence key = {.file = file};
    return bsearch(&key, entries->items, (size_t)entries->count, sizeof key, compare_by_file);
}

static bool local_shape(void *user, int32_t position, int64_t *out_shape)
{
    const local_entries *entries = user;
    const rs_occurrence *entry = entry_in(entries, entries->file_of[position]);
    if (entry == NULL)
        return false;
    memcpy(out_shape, entry->shape, (size_t)entry->ndim * sizeof(int64_t));
    return true;
}

/* Keeps a box, clipped to the tensor's own shape (padding lies outside of it). *out_kept is false
 * when nothing is left. */
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

static reshard_status add_shards(reshard_checkpoint *checkpoint, const reshard_mesh *mesh,
                                 const local_entries *entries, const reshard_shards *shards,
                                 rs_stored_tensor *tensor)
{
    int64_t most = 0;
    for (int64_t i = 0; i < shards->count; i++)
        most += shards->items[i].piece_count;
    size_t room = (size_t)rs_max(most, 1);
    tensor->pieces = rs_arena_allocate_array(&checkpoint->arena, room, sizeof(rs_stored_piece));
    if (tensor->pieces == NULL)
        return rs_allocation_status();
    for (int64_t i = 0; i < shards->count; i++) {
        const reshard_shard *shard = &shards->items[i];
        int32_t file = entries->file_of[reshard_mesh_position_of(mesh, shard->rank)];
        const rs_occurrence *entry = entry_in(entries, file);
        assert(entry != NULL || shard->piece_count == 0); /* recovering the shape has proved it */
        for (int64_t j = 0; j < shard->piece_count; j++) {
            rs_stored_piece piece = {.file = file};
            bool kept = false;
            piece.at = entry->at + (uint64_t)(shard->pieces[j].at * tensor->element_bytes);
            reshard_status status =
                keep_box(&checkpoint->arena, tensor, &shard->pieces[j], &piece, &kept);
            if (status != RESHARD_OK)
                return status;
            if (kept)
                tensor->pieces[tensor->piece_count++] = piece;
        }
    }
    return rs_store_separate_copies(checkpoint, tensor);
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

/* A tensor that cannot be cut is whole in every file that has it. */
static reshard_status add_opaque(reshard_checkpoint *checkpoint, const local_entries *entries,
                                 const rs_rule_result *result, rs_stored_tensor *tensor)
{
    const rs_occurrence *first = &entries->items[0];
    rs_slice name = first->name;
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
        if (item->ndim != first->ndim ||
            memcmp(item->shape, first->shape, (size_t)first->ndim * sizeof(int64_t)) != 0)
            return rs_fail(RESHARD_ERR_UNSUPPORTED,
                           "tensor \"%.*s\": is cut in %s and %s, but tensors of less than a byte "
                           "an element or more than 8 dimensions are carried whole only",
                           rs_slice_shown(item->name), item->name.bytes,
                           checkpoint->files[entries->items[0].file].name,
                           checkpoint->files[item->file].name);
        rs_stored_piece piece = {.file = item->file, .at = item->at, .size = tensor->carried_shape};
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
    reshard_shards *shards = NULL;
    rs_slice name = first->name;
    const int64_t *shape =
        rs_arena_copy(arena, result->shape, (size_t)result->ndim, sizeof(int64_t));
    if (shape == NULL)
        return rs_allocation_status();
    reshard_status status = take_new_name(checkpoint, result, &name);
    if (status == RESHARD_OK)
        status = rs_store_describe(tensor, arena, name, first->dtype, result->ndim, shape);
    if (status == RESHARD_OK)
        status = reshard_layout_all_shards(result->layout, &shards);
    if (status == RESHARD_OK)
        status = add_shards(checkpoint, book->mesh, entries, shards, tensor);
    if (status == RESHARD_OK && tensor->bytes == 0) {
        tensor->pieces[0] =
            (rs_stored_piece){.file = first->file, .at = first->at, .size = tensor->carried_shape};
        tensor->piece_count = 1;
    } else if (status == RESHARD_OK) {
        status = rs_store_check(checkpoint, tensor);
    }
    reshard_shards_destroy(shards);
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
    assert(entries->count > 0);
    for (int64_t i = 1; i < entries->count; i++) {
        const rs_occurrence *item = &entries->items[i];
        bool same_dtype = item->dtype == first->dtype;
        if (!same_dtype || item->ndim != first->ndim)
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
    rs_local_shapes locals = {.ndim = first->ndim,
                              .find = local_shape,
                              .user = entries,
                              .full_ndim = first->full_ndim,
                              .full = first->full};
    reshard_status status = check_alike(checkpoint, entries);
    if (status != RESHARD_OK)
        return status;
    status = rs_store_describe(tensor, &checkpoint->arena, first->name, first->dtype, first->ndim,
                               first->shape);
    if (status == RESHARD_OK && tensor->opaque) {
        status = rs_rules_name(book->rules, book->mesh, &book->keys, first->name.bytes,
                               first->name.count, first->ndim, first->shape, &result);
        if (status == RESHARD_OK && result.unmatched)
            status = rs_fail(RESHARD_ERR_NOT_FOUND, "tensor \"%.*s\": no rule matches its name",
                             rs_slice_shown(first->name), first->name.bytes);
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
    return order != 0 ? order : compare_by_file(a, b);
}

/* What RESHARD_SHAPES of one file says, by index into its entries by name. */
typedef struct told_shapes {
    const int64_t **shapes; /* NULL: it does not say */
    int32_t *ndims;
} told_shapes;

/* Reads a list of numbers of any length. */
static reshard_status read_shape(rs_arena *arena, rs_json *json, const rs_json_token *key,
                                 int64_t index, void *user)
{
    told_shapes *told = user;
    rs_json ahead = *json;
    rs_json_token token;
    int32_t ndim = -1;
    if (told->shapes[index] != NULL)
        return rs_json_fail(json, key, "a tensor that occurs twice");
    reshard_status status =
        rs_json_expect(&ahead, RS_JSON_LIST_BEGIN, "a list of numbers is wanted here", &token);
    do {
        ndim++;
        if (status == RESHARD_OK)
            status = rs_json_next(&ahead, &token);
    } while (status == RESHARD_OK && token.kind == RS_JSON_NUMBER && ndim < RESHARD_NDIM_MAX);
    told->ndims[index] = ndim;
    return status == RESHARD_OK ? rs_safetensors_numbers(arena, json, ndim, &told->shapes[index])
                                : status;
}

static reshard_status gather_file(reshard_checkpoint *checkpoint, int32_t file,
                                  rs_occurrences *list)
{
    const rs_header *header = rs_safetensors_header(checkpoint, file);
    size_t count = (size_t)header->entry_count;
    size_t bytes = count * (sizeof(int64_t *) + sizeof(int32_t));
    char *memory = rs_allocate_zeroed(checkpoint->context, bytes);
    if (memory == NULL)
        return rs_allocation_status();
    told_shapes told = {(void *)memory, (void *)(memory + count * sizeof(int64_t *))};
    reshard_status status =
        rs_safetensors_document(checkpoint, file, RS_SHAPES_KEY, read_shape, &told);
    for (size_t i = 0; status == RESHARD_OK && i < count; i++) {
        rs_occurrence item = rs_safetensors_occurrence(checkpoint, file, header->by_name[i]);
        item.full = told.shapes[i];
        item.full_ndim = told.ndims[i];
        status = rs_occurrences_add(checkpoint->context, list, &item);
    }
    rs_release(checkpoint->context, memory, bytes);
    return status;
}

static reshard_status gather(reshard_checkpoint *checkpoint, rs_occurrences *list)
{
    for (int32_t i = 0; i < checkpoint->file_count; i++) {
        reshard_status status = gather_file(checkpoint, i, list);
        if (status != RESHARD_OK)
            return status;
    }
    rs_sort(list->items, (size_t)list->count, sizeof(rs_occurrence), compare_occurrences);
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
    /* Rules may have changed the names. */
    rs_sort(checkpoint->tensors, (size_t)checkpoint->tensor_count, sizeof(rs_stored_tensor),
            rs_stored_tensor_compare);
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

static reshard_status check_mesh(const reshard_mesh *mesh)
{
    return rs_fail_within(rs_mesh_check_distinct(mesh), "files of ranks hold one part of a tensor");
}

/* Reads the mesh that the caller gives and finds rules for it, and the file of each position. */
static reshard_status read_mesh(reshard_checkpoint *checkpoint, const rs_opening *opening,
                                rs_occurrences *list, rs_rulebook *book, int32_t **out_file_of)
{
    const reshard_checkpoint_options *options = opening->options;
    rs_arena *arena = &checkpoint->arena;
    reshard_mesh *mesh = NULL;
    reshard_status status = reshard_mesh_parse(checkpoint->context, options->from, &mesh);
    if (status == RESHARD_OK)
        status = check_mesh(mesh);
    if (status == RESHARD_OK)
        status =
            rs_rulebook_init(book, checkpoint->context, mesh, options->rules, checkpoint->folder,
                             options->set_count, options->sets, occurrence_name, list);
    reshard_mesh_release(mesh);
    if (status != RESHARD_OK)
        return status;
    int32_t count = reshard_mesh_size(book->mesh);
    if (count != checkpoint->file_count)
        return rs_fail(RESHARD_ERR_INVALID,
                       "%s: holds %d safetensors files, but the mesh %.100s has %d ranks",
                       checkpoint->path, (int)checkpoint->file_count, options->from, (int)count);
    int32_t *ranks = rs_arena_allocate_array(arena, (size_t)count, sizeof(int32_t));
    *out_file_of = rs_arena_allocate_array(arena, (size_t)count, sizeof(int32_t));
    if (ranks == NULL || *out_file_of == NULL)
        return rs_allocation_status();
    (void)rs_mesh_order_files(book->mesh, ranks, *out_file_of);
    return rs_store_note(checkpoint, "split by %s", book->said);
}

static reshard_status read_files(reshard_checkpoint *checkpoint, const rs_opening *opening)
{
    rs_occurrences list = {0};
    rs_rulebook book = {0};
    int32_t *file_of = NULL;
    rs_sort(checkpoint->files, (size_t)checkpoint->file_count, sizeof(rs_stored_file),
            compare_files);
    reshard_status status = gather(checkpoint, &list);
    if (status == RESHARD_OK)
        status = read_mesh(checkpoint, opening, &list, &book, &file_of);
    if (status == RESHARD_OK)
        status = add_all(checkpoint, &book, file_of, &list);
    rs_rulebook_release(&book);
    rs_occurrences_release(checkpoint->context, &list);
    return status;
}

/* ---- laying out and writing ------------------------------------------------------------------ */

static reshard_status lay_out(rs_laying *laying)
{
    reshard_status status = check_mesh(laying->book->mesh);
    return status == RESHARD_OK ? rs_target_cut(laying, rs_target_place_local) : status;
}

static void name_file(const rs_target *target, int32_t file, int32_t rank,
                      char out_name[RS_FILE_NAME_BYTES])
{
    (void)file;
    (void)snprintf(out_name, RS_FILE_NAME_BYTES, "rank-%05d-of-%05d.safetensors", (int)rank,
                   (int)target->file_count);
}

static void write_metadata(rs_json_writer *writer, const rs_target *target, int32_t index)
{
    const rs_target_file *file = &target->files[index];
    bool any = false;
    for (int64_t i = 0; i < file->entry_count; i++)
        any = any || target->entries[file->entry_first + i].hides_shape;
    if (!any)
        return;
    rs_safetensors_write_document(writer, RS_SHAPES_KEY, rs_safetensors_write_shapes, target,
                                  index);
    rs_json_writer_add(writer, ",", 1);
}

static reshard_status write_head(const rs_target *target, int32_t file, rs_json_writer *writer)
{
    return rs_safetensors_write_head(target, file, write_metadata, writer);
}

const rs_format rs_format_rank_files = {
    .name = "rank-files",
    .description = "one safetensors file for each rank, with its own copy of all that it holds",
    .looks_for = "*.safetensors, one for each rank of the mesh",
    .needs_mesh = true,
    .probe = rs_safetensors_open,
    .read = read_files,
    .is_split = true,
    .lay_out = lay_out,
    .name_file = name_file,
    .place = rs_safetensors_place,
    .write_head = write_head,
};
