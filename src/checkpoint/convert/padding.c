/* SPDX-License-Identifier: Apache-2.0 */
/*
 * padding.c - the bytes of a file's arrays that no tensor fills, because of pad() in rules. They
 * are zero: a conversion writes them, and verifying checks them.
 *
 * An array consists of pieces and padding. The runs of bytes that pieces take up are listed and
 * sorted, and the gaps between them are padding. Most arrays have none, as adding up their pieces
 * shows.
 */
#include "base/checked.h"
#include "base/context.h"
#include "base/shape.h"
#include "base/sort.h"
#include "checkpoint/convert/conversion.h"

#include <inttypes.h>
#include <string.h>

#define PART_BYTES ((size_t)64 << 10)

/* Handles `count` bytes of padding at byte `at` of the file. */
typedef reshard_status gap_fn(rs_file *file, uint64_t at, uint64_t count);

/* A run of bytes in a file that belongs to a piece. */
typedef struct byte_run {
    uint64_t at, count;
} byte_run;

typedef struct byte_runs {
    reshard_context *context;
    int64_t count, capacity;
    byte_run *items;
} byte_runs;

static int compare_runs(const void *a, const void *b)
{
    const byte_run *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

static uint64_t piece_bytes(const rs_stored_tensor *tensor, const rs_stored_piece *piece)
{
    return (uint64_t)rs_volume(tensor->carried_ndim, piece->size) * (uint64_t)tensor->element_bytes;
}

/* Adds the runs of a piece: its innermost dims as far as they are dense, once for each index of the
 * outer dims. */
static reshard_status add_runs(byte_runs *runs, const rs_stored_tensor *tensor,
                               const rs_stored_piece *piece)
{
    int64_t strides[RESHARD_NDIM_MAX], place[RESHARD_NDIM_MAX] = {0}, dense = 1;
    int32_t outer = tensor->carried_ndim;
    rs_piece_strides(tensor, piece, strides);
    while (outer > 0 && (strides[outer - 1] == dense || piece->size[outer - 1] == 1))
        dense *= piece->size[--outer];
    int64_t count = rs_volume(outer, piece->size);
    reshard_status status = rs_grow(runs->context, &runs->items, &runs->capacity,
                                    runs->count + count, sizeof(byte_run));
    for (int64_t i = 0; status == RESHARD_OK && i < count; i++) {
        int64_t at = 0;
        for (int32_t d = 0; d < outer; d++)
            at += place[d] * strides[d];
        runs->items[runs->count++] = (byte_run){piece->at + (uint64_t)(at * tensor->element_bytes),
                                                (uint64_t)(dense * tensor->element_bytes)};
        for (int32_t d = outer - 1; d >= 0 && ++place[d] == piece->size[d]; d--)
            place[d] = 0;
    }
    return status;
}

static reshard_status visit_array(const rs_target *target, const rs_target_entry *entry,
                                  rs_file *file, gap_fn *visit)
{
    const rs_stored_tensor *tensor = &target->tensors[entry->tensor];
    const rs_target_array *array = rs_target_array_of(target, entry);
    const rs_stored_piece *pieces = tensor->pieces + entry->piece_first;
    byte_runs runs = {.context = target->context};
    uint64_t begin = target->files[entry->file].data_begin + entry->begin, filled = 0;
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; i < array->piece_count; i++)
        filled += piece_bytes(tensor, &pieces[i]);
    if (filled == array->bytes)
        return RESHARD_OK;
    for (int64_t i = 0; status == RESHARD_OK && i < array->piece_count; i++)
        status = add_runs(&runs, tensor, &pieces[i]);
    if (status == RESHARD_OK)
        rs_sort(runs.items, (size_t)runs.count, sizeof(byte_run), compare_runs);
    uint64_t end = begin;
    for (int64_t i = 0; status == RESHARD_OK && i < runs.count; i++) {
        if (runs.items[i].at > end)
            status = visit(file, end, runs.items[i].at - end);
        uint64_t run_end = runs.items[i].at + runs.items[i].count;
        end = run_end > end ? run_end : end;
    }
    if (status == RESHARD_OK && end < begin + array->bytes)
        status = visit(file, end, begin + array->bytes - end);
    rs_release(runs.context, runs.items);
    return rs_fail_within_tensor(status, tensor->name);
}

static reshard_status visit_all(const rs_target *target, int32_t index, rs_file *file,
                                gap_fn *visit)
{
    const rs_target_file *written = &target->files[index];
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; status == RESHARD_OK && i < written->entry_count; i++)
        status = visit_array(target, &target->entries[written->entry_first + i], file, visit);
    return status;
}

static reshard_status write_zeros(rs_file *file, uint64_t at, uint64_t count)
{
    static const char zeros[PART_BYTES];
    reshard_status status = RESHARD_OK;
    for (size_t part; status == RESHARD_OK && count != 0; at += part, count -= part) {
        part = count < PART_BYTES ? (size_t)count : PART_BYTES;
        status = rs_file_write(file, zeros, part, at);
    }
    return status;
}

static reshard_status check_zeros(rs_file *file, uint64_t at, uint64_t count)
{
    char found[4096];
    for (size_t part; count != 0; at += part, count -= part) {
        part = count < sizeof found ? (size_t)count : sizeof found;
        reshard_status status = rs_file_read(file, found, part, at);
        if (status != RESHARD_OK)
            return status;
        for (size_t i = 0; i < part; i++) {
            if (found[i] != 0)
                return rs_fail_about(RESHARD_ERR_CHECK, rs_file_path(file),
                                     "byte %" PRIu64 ", which is padding, is not "
                                     "zero",
                                     at + i);
        }
    }
    return RESHARD_OK;
}

reshard_status rs_padding_write(const rs_target *target, int32_t index, rs_file *file)
{
    return visit_all(target, index, file, write_zeros);
}

reshard_status rs_padding_check(const rs_target *target, int32_t index, rs_file *file)
{
    return visit_all(target, index, file, check_zeros);
}
