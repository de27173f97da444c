/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store.c - joins the arrays in files into tensors, and checks that the pieces tile them.
 */
#include "checkpoint/store/store.h"

#include "base/checked.h"
#include "base/context.h"
#include "base/shape.h"
#include "base/sort.h"
#include "text/text.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

reshard_status rs_occurrences_add(reshard_context *context, rs_occurrences *list,
                                  const rs_occurrence *item)
{
    assert(item->file >= 0 && item->ndim >= 0 && (item->ndim == 0 || item->shape != NULL));
    reshard_status status =
        rs_grow(context, &list->items, &list->capacity, list->count + 1, sizeof(rs_occurrence));
    if (status == RESHARD_OK)
        list->items[list->count++] = *item;
    return status;
}

void rs_occurrences_release(reshard_context *context, rs_occurrences *list)
{
    rs_release(context, list->items);
    *list = (rs_occurrences){0};
}

reshard_status rs_store_note(reshard_checkpoint *checkpoint, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    reshard_status status = rs_notes_add(&checkpoint->notes, &checkpoint->arena, format, arguments);
    va_end(arguments);
    return status;
}

reshard_status rs_store_warn(reshard_checkpoint *checkpoint, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    reshard_status status =
        rs_notes_add(&checkpoint->warnings, &checkpoint->arena, format, arguments);
    va_end(arguments);
    return status;
}

reshard_status rs_store_note_once(reshard_checkpoint *checkpoint, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    reshard_status status =
        rs_notes_add_once(&checkpoint->notes, &checkpoint->arena, format, arguments);
    va_end(arguments);
    return status;
}

reshard_status rs_store_add_value(reshard_checkpoint *checkpoint, const rs_stored_value *value)
{
    reshard_status status =
        rs_grow(checkpoint->context, &checkpoint->values, &checkpoint->value_capacity,
                checkpoint->value_count + 1, sizeof(rs_stored_value));
    if (status == RESHARD_OK)
        checkpoint->values[checkpoint->value_count++] = *value;
    return status;
}

reshard_status rs_store_keep_unreadable(reshard_checkpoint *checkpoint, reshard_status status,
                                        rs_slice name)
{
    if (status != RESHARD_ERR_UNSUPPORTED || !checkpoint->lists_unreadable)
        return status;
    /* Files of several ranks may hold parts of it. */
    for (int64_t i = checkpoint->unreadable_count - 1; i >= 0; i--) {
        if (rs_slice_compare(checkpoint->unreadable[i].name, name) == 0)
            return RESHARD_OK;
    }
    const char *text = reshard_error_text();
    char *copy = rs_arena_allocate(&checkpoint->arena, name.count + 1);
    const rs_unreadable item = {{copy, name.count},
                                rs_arena_copy(&checkpoint->arena, text, strlen(text) + 1, 1)};
    if (copy == NULL || item.reason == NULL)
        return rs_allocation_status();
    memcpy(copy, name.bytes, name.count);
    copy[name.count] = '\0';
    status = rs_grow(checkpoint->context, &checkpoint->unreadable, &checkpoint->unreadable_capacity,
                     checkpoint->unreadable_count + 1, sizeof item);
    if (status == RESHARD_OK)
        checkpoint->unreadable[checkpoint->unreadable_count++] = item;
    return status;
}

/* ---- tensors --------------------------------------------------------------------------------- */

reshard_status rs_stored_bytes(rs_slice name, reshard_dtype dtype, int32_t ndim,
                               const int64_t *shape, uint64_t *out_bytes)
{
    uint64_t bits = 1;
    bool overflows = false;
    for (int32_t d = 0; d < ndim; d++)
        overflows = overflows || __builtin_mul_overflow(bits, (uint64_t)shape[d], &bits);
    if (overflows || __builtin_mul_overflow(bits, (uint64_t)reshard_dtype_bits(dtype), &bits))
        return rs_fail(RESHARD_ERR_RANGE, "tensor \"%.*s\": its size goes beyond 64 bits",
                       rs_slice_shown(name), name.bytes);
    if (bits % 8 != 0)
        return rs_fail(RESHARD_ERR_INVALID,
                       "tensor \"%.*s\": its elements of %d bits do not end on a whole byte",
                       rs_slice_shown(name), name.bytes, (int)reshard_dtype_bits(dtype));
    *out_bytes = bits / 8;
    return RESHARD_OK;
}

static bool can_be_cut(reshard_dtype dtype, int32_t ndim, const int64_t *shape)
{
    int64_t volume = 1;
    if (reshard_dtype_bits(dtype) % 8 != 0 || ndim > RESHARD_NDIM_MAX)
        return false;
    for (int32_t d = 0; d < ndim; d++) {
        if (!rs_multiply(volume, shape[d] != 0 ? shape[d] : 1, &volume))
            return false;
    }
    return volume <= INT64_MAX / 8;
}

reshard_status rs_store_describe(rs_stored_tensor *tensor, rs_arena *arena, rs_slice name,
                                 reshard_dtype dtype, int32_t ndim, const int64_t *shape)
{
    uint64_t bytes = 0;
    assert(dtype > RESHARD_DTYPE_NONE && dtype < RESHARD_DTYPE_COUNT && ndim >= 0);
    reshard_status status = rs_stored_bytes(name, dtype, ndim, shape, &bytes);
    if (status != RESHARD_OK)
        return status;
    *tensor = (rs_stored_tensor){.name = name,
                                 .dtype = dtype,
                                 .ndim = ndim,
                                 .shape = shape,
                                 .bytes = bytes,
                                 .carried_shape = shape};
    if (can_be_cut(dtype, ndim, shape)) {
        tensor->carried_ndim = (int8_t)ndim;
        tensor->element_bytes = (int8_t)(reshard_dtype_bits(dtype) / 8);
        return RESHARD_OK;
    }
    int64_t line = (int64_t)bytes;
    tensor->opaque = true;
    tensor->carried_ndim = 1;
    tensor->element_bytes = 1;
    tensor->carried_shape = rs_arena_copy(arena, &line, 1, sizeof line);
    return tensor->carried_shape != NULL ? RESHARD_OK : rs_allocation_status();
}

/* ---- joining --------------------------------------------------------------------------------- */

int rs_compare_occurrences(const void *a, const void *b)
{
    const rs_occurrence *x = a, *y = b;
    int order = rs_slice_compare(x->name, y->name);
    return order != 0 ? order : (x->file > y->file) - (x->file < y->file);
}

static int compare_places(const void *a, const void *b)
{
    const rs_occurrence *x = a, *y = b;
    int order = rs_compare_occurrences(a, b);
    return order != 0 ? order : (x->at > y->at) - (x->at < y->at);
}

static reshard_status fail_differs(const reshard_checkpoint *checkpoint, const rs_occurrence *a,
                                   const rs_occurrence *b, const char *what)
{
    return rs_fail(RESHARD_ERR_CORRUPT, "tensor \"%.*s\": %s and %s do not agree on its %s",
                   rs_slice_shown(a->name), a->name.bytes, checkpoint->files[a->file].name,
                   checkpoint->files[b->file].name, what);
}

/* Finds the full shape: as the files give it, or as far as the pieces reach. */
static reshard_status find_shape(reshard_checkpoint *checkpoint, const rs_occurrence *items,
                                 int64_t count, const int64_t **out_shape)
{
    const rs_occurrence *first = &items[0];
    size_t ndim = (size_t)first->ndim;
    const int64_t *full = items[0].full;
    if (count == 1 && full == NULL && items[0].offset == NULL) {
        *out_shape = first->shape;
        return RESHARD_OK;
    }
    int64_t *shape = rs_arena_allocate_array(&checkpoint->arena, ndim, sizeof(int64_t));
    if (shape == NULL)
        return rs_allocation_status();
    memset(shape, 0, ndim * sizeof(int64_t));
    for (int64_t i = 0; i < count; i++) {
        const rs_occurrence *item = &items[i];
        if (item->dtype != first->dtype)
            return fail_differs(checkpoint, first, item, "dtype");
        if (item->ndim != first->ndim)
            return fail_differs(checkpoint, first, item, "number of dimensions");
        if ((item->full == NULL) != (full == NULL) ||
            (full != NULL && memcmp(item->full, full, ndim * sizeof(int64_t)) != 0))
            return fail_differs(checkpoint, first, item, "full shape");
        for (int32_t d = 0; d < item->ndim; d++) {
            int64_t end = item->shape[d];
            if (item->offset != NULL && !rs_add(end, item->offset[d], &end))
                return rs_fail_about(RESHARD_ERR_RANGE, checkpoint->files[item->file].name,
                                     "tensor \"%.*s\": the offset of a piece is out of range",
                                     rs_slice_shown(item->name), item->name.bytes);
            shape[d] = rs_max(shape[d], end);
        }
    }
    for (size_t d = 0; full != NULL && d < ndim; d++) {
        if (shape[d] > full[d])
            return rs_fail(RESHARD_ERR_CORRUPT,
                           "tensor \"%.*s\" (in %s): its pieces reach beyond its full shape",
                           rs_slice_shown(items[0].name), items[0].name.bytes,
                           checkpoint->files[items[0].file].name);
    }
    *out_shape = full != NULL ? full : shape;
    return RESHARD_OK;
}

/* Makes the occurrences pieces of the tensor. pieces: room for `count` of them. */
static void add_pieces(const rs_occurrence *items, int64_t count, rs_stored_piece *pieces,
                       rs_stored_tensor *tensor)
{
    assert(count > 0 && tensor->piece_count == 0);
    tensor->pieces = pieces;
    for (int64_t i = 0; i < count; i++) {
        rs_stored_piece piece = {.file = items[i].file,
                                 .at = items[i].at,
                                 .offset = items[i].offset,
                                 .size = items[i].shape,
                                 .strides = items[i].strides};
        if (tensor->opaque) {
            piece.size = tensor->carried_shape;
            piece.offset = piece.strides = NULL;
        }
        /* DTensors have an empty piece where a rank holds nothing. */
        if (tensor->bytes == 0 ? tensor->piece_count == 0 : !rs_piece_is_empty(tensor, &piece))
            tensor->pieces[tensor->piece_count++] = piece;
    }
    if (tensor->bytes == 0) /* there is nothing to tile, but the tensor belongs to a file */
        tensor->pieces[0] = (rs_stored_piece){
            .file = items[0].file, .at = items[0].at, .size = tensor->carried_shape};
}

/* Checks that a tensor that cannot be cut is one dense array. */
static reshard_status check_opaque(const reshard_checkpoint *checkpoint, const rs_occurrence *items,
                                   int64_t count, const rs_stored_tensor *tensor)
{
    uint64_t bytes = 0;
    reshard_status status =
        rs_stored_bytes(items[0].name, items[0].dtype, items[0].ndim, items[0].shape, &bytes);
    if (status == RESHARD_OK && (count > 1 || bytes != tensor->bytes || items[0].strides != NULL))
        status = rs_fail(RESHARD_ERR_UNSUPPORTED,
                         "tensor \"%.*s\" (in %s) is cut; tensors with less than a byte per "
                         "element or more than 8 dimensions can only be copied whole",
                         rs_slice_shown(items[0].name), items[0].name.bytes,
                         checkpoint->files[items[0].file].name);
    return status;
}

static reshard_status join_one(reshard_checkpoint *checkpoint, const rs_occurrence *items,
                               int64_t count, bool has_copies, rs_stored_piece *pieces)
{
    const int64_t *shape = NULL;
    rs_stored_tensor *tensor = &checkpoint->tensors[checkpoint->tensor_count];
    reshard_status status = find_shape(checkpoint, items, count, &shape);
    if (status == RESHARD_OK)
        status = rs_store_describe(tensor, &checkpoint->arena, items[0].name, items[0].dtype,
                                   items[0].ndim, shape);
    tensor->step = items[0].place.step;
    for (int64_t i = 0; status == RESHARD_OK && tensor->opaque && i < (has_copies ? count : 1); i++)
        status = check_opaque(checkpoint, items + i, has_copies ? 1 : count, tensor);
    if (status == RESHARD_OK && count > INT32_MAX)
        status = rs_fail(RESHARD_ERR_RANGE,
                         "tensor \"%.*s\" has %lld pieces; at most 2147483647 are allowed",
                         rs_slice_shown(items[0].name), items[0].name.bytes, (long long)count);
    if (status == RESHARD_OK)
        add_pieces(items, count, pieces, tensor);
    if (status == RESHARD_OK && has_copies)
        status = rs_store_separate_copies(checkpoint, tensor);
    if (status == RESHARD_OK && tensor->piece_count == 0)
        status = rs_fail(RESHARD_ERR_GAP, "tensor \"%.*s\" (in %s): all its pieces are empty",
                         rs_slice_shown(items[0].name), items[0].name.bytes,
                         checkpoint->files[items[0].file].name);
    if (status == RESHARD_OK && tensor->bytes != 0)
        status = rs_store_check(checkpoint, tensor);
    if (status == RESHARD_OK) {
        checkpoint->tensor_count++;
        checkpoint->bytes += tensor->bytes;
    }
    return status;
}

/* The end of the occurrences that have the same name as the one at `first`. */
static int64_t find_end(const rs_occurrences *list, int64_t first)
{
    int64_t end = first + 1;
    while (end < list->count &&
           rs_slice_compare(list->items[first].name, list->items[end].name) == 0)
        end++;
    return end;
}

/* Sorts by name, then by place. Very long lists are mostly sorted by name already. */
static void sort_occurrences(rs_occurrences *list)
{
    bool are_by_name = true;
    for (int64_t i = 1; are_by_name && i < list->count; i++)
        are_by_name = rs_slice_compare(list->items[i - 1].name, list->items[i].name) <= 0;
    for (int64_t first = 0, end; first < list->count; first = end) {
        end = are_by_name ? find_end(list, first) : list->count;
        rs_sort(list->items + first, (size_t)(end - first), sizeof(rs_occurrence), compare_places);
    }
}

reshard_status rs_store_join(reshard_checkpoint *checkpoint, rs_occurrences *list)
{
    reshard_status status = RESHARD_OK;
    int64_t names = 0;
    assert(checkpoint->tensor_count == 0 && checkpoint->bytes == 0);
    sort_occurrences(list);
    for (int64_t i = 0; i < list->count; i = find_end(list, i))
        names++;
    checkpoint->tensors =
        rs_arena_allocate_array(&checkpoint->arena, (size_t)names, sizeof(rs_stored_tensor));
    rs_stored_piece *pieces =
        rs_arena_allocate_array(&checkpoint->arena, (size_t)list->count, sizeof *pieces);
    if (checkpoint->tensors == NULL || pieces == NULL)
        return rs_allocation_status();
    for (int64_t first = 0, next; status == RESHARD_OK && first < list->count; first = next) {
        next = find_end(list, first);
        status = join_one(checkpoint, list->items + first, next - first, list->has_copies,
                          pieces + first);
    }
    return status;
}

static reshard_status fail_double(const reshard_checkpoint *checkpoint, rs_slice name, int32_t a,
                                  int32_t b, reshard_hint hint, const char *advice)
{
    (void)rs_fail_hint(RESHARD_ERR_OVERLAP, hint, "",
                       "tensor \"%.*s\" is in %s and in %s, and neither file says which part of "
                       "the tensor it holds%s",
                       rs_slice_shown(name), name.bytes, checkpoint->files[a].name,
                       checkpoint->files[b].name, advice);
    rs_error_add_subject(name.bytes, name.count);
    return RESHARD_ERR_OVERLAP;
}

reshard_status rs_store_fail_double(const reshard_checkpoint *checkpoint, int64_t tensor,
                                    reshard_hint hint, const char *advice)
{
    const rs_stored_tensor *a = &checkpoint->tensors[tensor], *b = a + 1;
    return fail_double(checkpoint, a->name, a->pieces[0].file, b->pieces[0].file, hint, advice);
}

/* The files do not say which part they hold, so a name may occur only once. */
static reshard_status check_single(const reshard_checkpoint *checkpoint, const rs_occurrences *list,
                                   reshard_hint hint, const char *advice)
{
    for (int64_t i = 1; i < list->count; i++) {
        const rs_occurrence *a = &list->items[i - 1], *b = &list->items[i];
        if (rs_slice_compare(a->name, b->name) == 0)
            return fail_double(checkpoint, a->name, a->file, b->file, hint, advice);
    }
    return RESHARD_OK;
}

reshard_status rs_store_join_whole(reshard_checkpoint *checkpoint, rs_occurrences *list,
                                   reshard_hint hint, const char *advice)
{
    reshard_status status = rs_store_join(checkpoint, list);
    /* A name that occurs twice deserves a better error text than joining its pieces gives. */
    if (list->count != checkpoint->tensor_count &&
        (status == RESHARD_OK || status == RESHARD_ERR_OVERLAP || status == RESHARD_ERR_CORRUPT)) {
        reshard_status doubled = check_single(checkpoint, list, hint, advice);
        status = doubled != RESHARD_OK ? doubled : status;
    }
    return status;
}

static int compare_wholes(const void *a, const void *b)
{
    const rs_stored_tensor *x = a, *y = b;
    int order = rs_slice_compare(x->name, y->name);
    return order != 0 ? order : rs_piece_compare(&x->pieces[0], &y->pieces[0]);
}

reshard_status rs_store_take_whole(reshard_checkpoint *checkpoint, int64_t count,
                                   rs_next_whole_fn *next, void *user, int64_t *out_doubled)
{
    reshard_status status = RESHARD_OK;
    rs_occurrence item;
    assert(checkpoint->tensor_count == 0 && checkpoint->bytes == 0);
    checkpoint->tensors =
        rs_arena_allocate_array(&checkpoint->arena, (size_t)count, sizeof(rs_stored_tensor));
    rs_stored_piece *pieces =
        rs_arena_allocate_array(&checkpoint->arena, (size_t)count, sizeof *pieces);
    if (checkpoint->tensors == NULL || pieces == NULL)
        return rs_allocation_status();
    while (status == RESHARD_OK && next(user, &item)) {
        assert(checkpoint->tensor_count < count && item.offset == NULL && item.full == NULL);
        status = join_one(checkpoint, &item, 1, false, pieces + checkpoint->tensor_count);
    }
    if (status != RESHARD_OK)
        return status;
    rs_sort(checkpoint->tensors, (size_t)checkpoint->tensor_count, sizeof(rs_stored_tensor),
            compare_wholes);
    *out_doubled = -1;
    for (int64_t i = 1; *out_doubled < 0 && i < checkpoint->tensor_count; i++) {
        if (rs_stored_tensor_compare(&checkpoint->tensors[i - 1], &checkpoint->tensors[i]) == 0)
            *out_doubled = i - 1;
    }
    return RESHARD_OK;
}

int rs_stored_tensor_compare(const void *a, const void *b)
{
    return rs_slice_compare(((const rs_stored_tensor *)a)->name,
                            ((const rs_stored_tensor *)b)->name);
}

int64_t rs_store_find(const reshard_checkpoint *checkpoint, rs_slice name)
{
    const rs_stored_tensor key = {.name = name}, *found = NULL;
    if (checkpoint->tensor_count != 0)
        found = bsearch(&key, checkpoint->tensors, (size_t)checkpoint->tensor_count, sizeof key,
                        rs_stored_tensor_compare);
    return found != NULL ? found - checkpoint->tensors : -1;
}
