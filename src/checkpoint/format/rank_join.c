/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rank_join.c - puts local arrays together, tensor by tensor. If the files say how they are split,
 * that is proved against the shapes in the files. Otherwise rules find the full shape from the
 * local ones, or the files give it, for tensors that are cut flat.
 *
 * A box that several ranks hold becomes one piece, in the first of their files, and copies in the
 * others. Padding is checked (rank_padding.c) and cut off.
 */
#include "checkpoint/format/rank_join.h"

#include "base/checked.h"
#include "base/context.h"
#include "base/shape.h"
#include "base/sort.h"
#include "checkpoint/format/file_names.h"
#include "checkpoint/format/rank_layout.h"
#include "checkpoint/rules/rulebook.h"
#include "spec/spec.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The checkpoint that is read, and how it is split. */
typedef struct rank_reading {
    reshard_checkpoint *checkpoint;
    reshard_mesh *mesh;
    const rs_rulebook *book;    /* NULL: the documents suffice, and tensors keep their names */
    const rs_rank_layout *told; /* from the documents; NULL: there are none */
    const int32_t *file_of;     /* by position in the mesh: the rank's file, or its group */
    const int32_t *group_of;    /* by file: the rank's group of files; NULL: one file each */
    rs_rank_padding padding;
    rs_rank_doubts doubts; /* only if rules decided */
    int64_t dropped_count; /* number of tensors that rules leave out */
    rs_slice dropped;
} rank_reading;

/* ---- one tensor ------------------------------------------------------------------------------ */

static bool local_shape(void *user, int32_t position, int64_t *out_shape)
{
    const rs_rank_arrays *entries = user;
    const rs_occurrence *entry = rs_rank_array_at(entries, position);
    if (entry == NULL)
        return false;
    memcpy(out_shape, entry->shape, (size_t)entry->ndim * sizeof(int64_t));
    return true;
}

/* Keeps a box, clipped to the tensor's own shape, because padding lies outside it. *out_kept is
 * false if nothing is left. */
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

/* Converts a piece of a dense buffer to the strides that the buffer is stored with. */
static reshard_status follow_strides(const rs_occurrence *entry, int32_t ndim, reshard_piece *piece)
{
    int64_t dense[RESHARD_NDIM_MAX], left = piece->at;
    if (entry->strides == NULL)
        return RESHARD_OK;
    rs_dense_strides(entry->ndim, entry->shape, dense);
    piece->at = 0;
    for (int32_t d = 0; d < ndim; d++) {
        if (entry->ndim != ndim || piece->strides[d] % dense[d] != 0)
            return rs_fail(RESHARD_ERR_UNSUPPORTED,
                           "tensor \"%.*s\" is cut flat, but not stored row by row",
                           RS_SHOWN(entry->name));
        piece->at += left / dense[d] * entry->strides[d];
        left %= dense[d];
        piece->strides[d] = piece->strides[d] / dense[d] * entry->strides[d];
    }
    return RESHARD_OK;
}

static reshard_status add_shards(rank_reading *reading, const rs_rank_arrays *entries,
                                 const reshard_shards *shards, rs_stored_tensor *tensor)
{
    reshard_checkpoint *checkpoint = reading->checkpoint;
    int64_t most = 0;
    for (int64_t i = 0; i < shards->count; i++)
        most += shards->items[i].piece_count;
    size_t room = (size_t)rs_max(most, 1);
    tensor->pieces = rs_arena_allocate_array(&checkpoint->arena, room, sizeof(rs_stored_piece));
    if (tensor->pieces == NULL)
        return rs_allocation_status();
    for (int64_t i = 0; i < shards->count; i++) {
        const reshard_shard *shard = &shards->items[i];
        const rs_occurrence *entry =
            rs_rank_array_at(entries, reshard_mesh_position_of(reading->mesh, shard->rank));
        assert(entry != NULL || shard->piece_count == 0); /* proved when the shape was recovered */
        for (int64_t j = 0; j < shard->piece_count; j++) {
            rs_stored_piece piece = {.file = entry->file};
            reshard_piece found = shard->pieces[j];
            bool kept = false;
            reshard_status status = follow_strides(entry, tensor->carried_ndim, &found);
            if (status == RESHARD_OK)
                status = keep_box(&checkpoint->arena, tensor, &found, &piece, &kept);
            piece.at = entry->at + (uint64_t)(found.at * tensor->element_bytes);
            if (status == RESHARD_OK)
                status = rs_rank_padding_look(&reading->padding, checkpoint, tensor, &found,
                                              piece.file, piece.at);
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

/* Adds a tensor that cannot be cut. It is whole in every file that has it. */
static reshard_status add_opaque(reshard_checkpoint *checkpoint, const rs_rank_arrays *entries,
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
                           "tensor \"%.*s\" is cut in %s and %s; tensors with less than a byte per "
                           "element or more than 8 dimensions can only be copied whole",
                           RS_SHOWN(item->name), checkpoint->files[entries->items[0].file].name,
                           checkpoint->files[item->file].name);
        if (item->strides != NULL)
            return rs_fail(
                RESHARD_ERR_UNSUPPORTED,
                "tensor \"%.*s\" is not stored row by row, and has more than 8 dimensions",
                RS_SHOWN(item->name));
        rs_stored_piece piece = {.file = item->file, .at = item->at, .size = tensor->carried_shape};
        if (i == 0)
            tensor->pieces[tensor->piece_count++] = piece;
        else
            tensor->copies[tensor->copy_count++] = piece;
    }
    return RESHARD_OK;
}

/* Checks what ranks hold that are not to have the tensor. */
static reshard_status check_zeros(const rank_reading *reading, const rs_rank_arrays *entries,
                                  const rs_rule_result *result, const rs_stored_tensor *tensor)
{
    reshard_status status = RESHARD_OK;
    for (int32_t i = 0; status == RESHARD_OK && i < reading->mesh->size; i++) {
        int32_t like = i;
        if (rs_spec_zeros_at(result->spec, i, &like))
            status = rs_rank_zeros_check(reading->checkpoint, tensor, rs_rank_array_at(entries, i));
    }
    return status;
}

static reshard_status add_cut(rank_reading *reading, const rs_rank_arrays *entries,
                              const rs_rule_result *result, rs_stored_tensor *tensor)
{
    reshard_checkpoint *checkpoint = reading->checkpoint;
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
        status = reshard_layout_shards(result->layout, RESHARD_ALL_RANKS, &shards);
    if (status == RESHARD_OK)
        status = add_shards(reading, entries, shards, tensor);
    if (status == RESHARD_OK && result->zeros)
        status = check_zeros(reading, entries, result, tensor);
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

static reshard_status find_by_rules(rank_reading *reading, const rs_occurrence *first,
                                    const rs_local_shapes *locals, bool opaque,
                                    rs_rule_result *out_result)
{
    const rs_rulebook *book = reading->book;
    if (opaque) {
        reshard_status status =
            rs_rules_name(book->rules, book->mesh, &book->keys, first->name.bytes,
                          first->name.count, first->ndim, first->shape, out_result);
        if (status == RESHARD_OK && out_result->unmatched)
            status = rs_fail(RESHARD_ERR_NOT_FOUND, "tensor \"%.*s\": no rule matches its name",
                             RS_SHOWN(first->name));
        return status;
    }
    return rs_rules_recover(book->rules, book->mesh, &book->keys, first->name.bytes,
                            first->name.count, locals, out_result);
}

/* Takes what the documents say about a tensor, and proves it against the shapes in the files. */
static reshard_status find_as_told(const rank_reading *reading, const rs_rank_tensor *tensor,
                                   const rs_local_shapes *locals, rs_rule_result *out_result)
{
    reshard_context *context = reading->checkpoint->context;
    size_t bytes = (size_t)tensor->ndim * sizeof(int64_t);
    rs_rule_result result = {.ndim = tensor->ndim, .zeros = tensor->zeros, .context = context};
    reshard_status status = rs_rank_layout_spec(reading->told, context, tensor, &result.spec);
    const int64_t *padded = tensor->padded != NULL ? tensor->padded : tensor->shape;
    if (status == RESHARD_OK)
        status = reshard_layout_create(context, result.spec, tensor->ndim, padded, &result.layout);
    if (status == RESHARD_OK)
        status = rs_rules_check_locals(reading->mesh, locals, &result);
    if (status != RESHARD_OK) {
        rs_rule_result_release(&result);
        return rs_fail_within_tensor(status, tensor->name);
    }
    memcpy(result.shape, tensor->shape, bytes);
    memcpy(result.padded_shape, padded, bytes);
    result.padded = memcmp(tensor->shape, padded, bytes) != 0;
    *out_result = result;
    return RESHARD_OK;
}

/* If the documents say how the tensor is split, the caller's rules may still rename it or leave it
 * out. */
static reshard_status find_result(rank_reading *reading, rs_rank_arrays *entries,
                                  const rs_rank_tensor *told, bool opaque,
                                  rs_rule_result *out_result)
{
    const rs_occurrence *first = &entries->items[0];
    rs_local_shapes locals = {.ndim = first->ndim, .find = local_shape, .user = entries};
    rs_rule_result named = {0};
    reshard_status status = RESHARD_OK;
    if (told == NULL)
        return find_by_rules(reading, first, &locals, opaque, out_result);
    if (reading->book != NULL)
        status = find_by_rules(reading, first, NULL, true, &named);
    if (status == RESHARD_OK && !opaque && !named.drop)
        status = find_as_told(reading, told, &locals, out_result);
    if (status != RESHARD_OK) {
        rs_rule_result_release(&named);
        return status;
    }
    out_result->context = reading->checkpoint->context;
    out_result->drop = named.drop;
    out_result->new_name = named.new_name;
    out_result->new_name_bytes = named.new_name_bytes;
    return RESHARD_OK;
}

static reshard_status add_tensor(rank_reading *reading, rs_rank_arrays *entries,
                                 const rs_rank_tensor *told)
{
    reshard_checkpoint *checkpoint = reading->checkpoint;
    rs_stored_tensor *tensor = &checkpoint->tensors[checkpoint->tensor_count];
    const rs_occurrence *first = &entries->items[0];
    rs_rule_result result = {0};
    reshard_status status = rs_rank_arrays_check(checkpoint, entries);
    if (status == RESHARD_OK)
        status = rs_store_describe(tensor, &checkpoint->arena, first->name, first->dtype,
                                   told != NULL ? told->ndim : first->ndim,
                                   told != NULL ? told->shape : first->shape);
    if (status != RESHARD_OK)
        return status;
    bool opaque = tensor->opaque;
    status = find_result(reading, entries, told, opaque, &result);
    if (status != RESHARD_OK)
        return status;
    if (result.drop && reading->dropped_count++ == 0)
        reading->dropped = first->name;
    if (!result.drop)
        status = opaque ? add_opaque(checkpoint, entries, &result, tensor)
                        : add_cut(reading, entries, &result, tensor);
    if (status == RESHARD_OK && !result.drop && told == NULL)
        status = rs_rank_doubts_look(&reading->doubts, checkpoint, tensor, entries->items,
                                     entries->count);
    if (status == RESHARD_OK && !result.drop) {
        rs_rank_padding_count(&reading->padding, tensor->name, &result);
        tensor->step = first->place.step;
        checkpoint->bytes += tensor->bytes;
        checkpoint->tensor_count++;
    }
    rs_rule_result_release(&result);
    return status;
}

/* ---- all tensors ----------------------------------------------------------------------------- */

/* Finds what the documents say about the tensor of this name; NULL if there are no documents. Names
 * come in sorted order, and *next counts along. */
static reshard_status find_told(const rank_reading *reading, rs_slice name, int64_t *next,
                                const rs_rank_tensor **out_told)
{
    const rs_rank_layout *told = reading->told;
    *out_told = NULL;
    if (told == NULL)
        return RESHARD_OK;
    const rs_rank_tensor *found = *next < told->tensor_count ? &told->tensors[*next] : NULL;
    int order = found != NULL ? rs_slice_compare(found->name, name) : 1;
    if (order < 0)
        return rs_fail(RESHARD_ERR_GAP,
                       "tensor \"%.*s\": the files say that it is there, but none "
                       "of them holds it",
                       RS_SHOWN(found->name));
    if (order > 0)
        return rs_fail(RESHARD_ERR_CORRUPT, "tensor \"%.*s\": the files do not say how it is split",
                       RS_SHOWN(name));
    (*next)++;
    *out_told = found;
    return RESHARD_OK;
}

static reshard_status add_all(rank_reading *reading, const rs_occurrences *list)
{
    reshard_checkpoint *checkpoint = reading->checkpoint;
    const rs_rank_layout *told = reading->told;
    reshard_status status = RESHARD_OK;
    int64_t next_told = 0;
    checkpoint->tensors =
        rs_arena_allocate_array(&checkpoint->arena, (size_t)list->count, sizeof(rs_stored_tensor));
    if (checkpoint->tensors == NULL)
        return rs_allocation_status();
    for (int64_t first = 0, next; status == RESHARD_OK && first < list->count; first = next) {
        const rs_rank_tensor *tensor = NULL;
        for (next = first + 1; next < list->count; next++) {
            if (rs_slice_compare(list->items[first].name, list->items[next].name) != 0)
                break;
        }
        rs_rank_arrays entries = {list->items + first, next - first, reading->file_of,
                                  reading->group_of};
        status = find_told(reading, list->items[first].name, &next_told, &tensor);
        if (status == RESHARD_OK)
            status = add_tensor(reading, &entries, tensor);
    }
    if (status == RESHARD_OK && told != NULL && next_told < told->tensor_count)
        return rs_fail(RESHARD_ERR_GAP,
                       "tensor \"%.*s\": the files say that it is there, but none "
                       "of them holds it",
                       RS_SHOWN(told->tensors[next_told].name));
    return status;
}

static reshard_status sort_tensors(const reshard_checkpoint *checkpoint)
{
    /* Rules may have changed names. */
    rs_sort(checkpoint->tensors, (size_t)checkpoint->tensor_count, sizeof(rs_stored_tensor),
            rs_stored_tensor_compare);
    for (int64_t i = 1; i < checkpoint->tensor_count; i++) {
        rs_slice name = checkpoint->tensors[i].name;
        if (rs_slice_compare(checkpoint->tensors[i - 1].name, name) == 0)
            return rs_fail(RESHARD_ERR_INVALID, "rules give two tensors the name \"%.*s\"",
                           RS_SHOWN(name));
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

reshard_status rs_rank_mesh_check(const reshard_mesh *mesh)
{
    return rs_fail_within(rs_mesh_check_distinct(mesh), "files of ranks hold one part of a tensor");
}

static reshard_status read_rules(const rank_reading *reading, const rs_opening *opening,
                                 rs_occurrences *list, rs_rulebook *book)
{
    const reshard_checkpoint_options *options = opening->options;
    const reshard_checkpoint *checkpoint = reading->checkpoint;
    return rs_rulebook_init(book, checkpoint->context, reading->mesh, options->rules, checkpoint,
                            options->set_count, options->sets, occurrence_name, list);
}

/* Files that other programs wrote say nothing about their number, so only their names may tell
 * which rank's is missing. */
static reshard_status fail_count(const reshard_checkpoint *checkpoint, const rs_opening *opening,
                                 const rs_rank_groups *groups, int32_t ranks)
{
    char missing[64] = "";
    int32_t count = checkpoint->named_count;
    int64_t rank =
        count < ranks ? rs_file_names_missing_number(count, checkpoint->files, 0, ranks) : -1;
    if (groups != NULL)
        return rs_fail_about(RESHARD_ERR_INVALID, checkpoint->path,
                             "holds files of %d rank%s, but the mesh %.100s has %d ranks",
                             (int)groups->count, groups->count == 1 ? "" : "s",
                             opening->options->from, (int)ranks);
    if (rank >= 0)
        (void)snprintf(missing, sizeof missing, "; the file of rank %lld is missing",
                       (long long)rank);
    return rs_fail_about(RESHARD_ERR_INVALID, checkpoint->path,
                         "holds %d file%s, but the mesh %.100s has %d ranks%s", (int)count,
                         count == 1 ? "" : "s", opening->options->from, (int)ranks, missing);
}

/* Reads the caller's mesh and rules, and finds the file of each position. */
static reshard_status prepare_by_rules(rank_reading *reading, const rs_opening *opening,
                                       const rs_rank_groups *groups, rs_occurrences *list,
                                       rs_rulebook *book)
{
    reshard_checkpoint *checkpoint = reading->checkpoint;
    rs_arena *arena = &checkpoint->arena;
    reshard_status status =
        reshard_mesh_parse(checkpoint->context, opening->options->from, &reading->mesh);
    if (status == RESHARD_OK)
        status = rs_rank_mesh_check(reading->mesh);
    if (status == RESHARD_OK)
        status = read_rules(reading, opening, list, book);
    if (status != RESHARD_OK)
        return status;
    reading->book = book;
    reshard_mesh_release(reading->mesh);
    reading->mesh = reshard_mesh_retain(book->mesh);
    int32_t count = reading->mesh->size;
    if (count != (groups != NULL ? groups->count : checkpoint->named_count))
        return fail_count(checkpoint, opening, groups, count);
    int32_t *ranks = rs_arena_allocate_array(arena, (size_t)count, sizeof(int32_t));
    int32_t *file_of = rs_arena_allocate_array(arena, (size_t)count, sizeof(int32_t));
    if (ranks == NULL || file_of == NULL)
        return rs_allocation_status();
    (void)rs_mesh_order_files(reading->mesh, ranks, file_of);
    reading->file_of = file_of;
    return rs_store_note(checkpoint, "split by %s", book->said);
}

/* Reads the documents. Rules that are given together with a mesh describe the source, and may
 * rename tensors. */
static reshard_status prepare_as_told(rank_reading *reading, const rs_opening *opening,
                                      const rs_slice *documents, rs_occurrences *list,
                                      rs_rulebook *book, rs_rank_layout *told)
{
    const reshard_checkpoint_options *options = opening->options;
    reshard_status status =
        rs_rank_layout_read(reading->checkpoint, documents, list->count, options->from, told);
    if (status == RESHARD_OK)
        status = rs_rank_mesh_check(told->mesh);
    if (status != RESHARD_OK)
        return status;
    reading->told = told;
    reading->mesh = reshard_mesh_retain(told->mesh);
    reading->file_of = told->file_of;
    if (options->from != NULL && options->rules != NULL) {
        status = read_rules(reading, opening, list, book);
        reading->book = status == RESHARD_OK ? book : NULL;
    }
    if (status != RESHARD_OK)
        return status;
    return rs_store_note(reading->checkpoint, "split over %.*s, as its files say (rules: %.*s)",
                         RS_SHOWN(told->mesh_text),
                         RS_SHOWN(told->rules) != NULL ? told->rules.bytes : "");
}

static reshard_status add_notes(const rank_reading *reading)
{
    reshard_checkpoint *checkpoint = reading->checkpoint;
    reshard_status status = rs_rank_padding_note(&reading->padding, checkpoint);
    if (status != RESHARD_OK || reading->dropped_count == 0)
        return status;
    return rs_store_note(
        checkpoint, "left out by the rules: %lld tensor%s of the files (\"%.*s\"%s)",
        (long long)reading->dropped_count, reading->dropped_count == 1 ? "" : "s",
        RS_SHOWN(reading->dropped), reading->dropped_count > 1 ? " and others" : "");
}

static bool is_told(const reshard_checkpoint *checkpoint, const rs_slice *documents)
{
    bool any = false;
    for (int32_t i = 0; i < checkpoint->named_count; i++)
        any = any || documents[i].bytes != NULL;
    return any;
}

reshard_status rs_rank_join(reshard_checkpoint *checkpoint, const rs_opening *opening,
                            const rs_slice *documents, const rs_rank_groups *groups,
                            rs_occurrences *list)
{
    rank_reading reading = {.checkpoint = checkpoint,
                            .group_of = groups != NULL ? groups->of_file : NULL,
                            .padding.may_be_any = opening->any_padding};
    rs_rulebook book = {0};
    rs_rank_layout told = {.mesh = NULL};
    rs_sort(list->items, (size_t)list->count, sizeof(rs_occurrence), rs_compare_occurrences);
    reshard_status status = documents != NULL && is_told(checkpoint, documents)
                                ? prepare_as_told(&reading, opening, documents, list, &book, &told)
                                : prepare_by_rules(&reading, opening, groups, list, &book);
    if (status == RESHARD_OK)
        status = add_all(&reading, list);
    if (status == RESHARD_OK)
        status = sort_tensors(checkpoint);
    if (status == RESHARD_OK && reading.told == NULL)
        status = rs_rank_doubts_settle(&reading.doubts, checkpoint, opening->options->from, &book);
    if (status == RESHARD_OK)
        status = add_notes(&reading);
    reshard_mesh_release(reading.mesh);
    rs_rank_layout_release(&told, checkpoint->context);
    rs_rulebook_release(&book);
    return status;
}
