/* SPDX-License-Identifier: Apache-2.0 */
/* rank_padding.c - reads padding in tiles, and checks that it is zero. */
#include "checkpoint/format/rank_join.h"

#include "base/checked.h"
#include "base/context.h"
#include "base/shape.h"

#include <string.h>

#define BUFFER_BYTES ((size_t)1 << 20)

static bool is_zero(const char *bytes, size_t count)
{
    return count == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, count - 1) == 0);
}

/* Reads a box of the file, in tiles that fit into half of the buffer; the other half is scratch.
 * Stops at the first tile with a value that is not zero. */
static reshard_status look_at_box(const rs_stored_file *file, const rs_stored_tensor *tensor,
                                  const reshard_piece *piece, uint64_t at, const int64_t *offset,
                                  const int64_t *size, char *buffer, bool *out_zero)
{
    int32_t ndim = tensor->carried_ndim;
    rs_tiles tiles = rs_tiles_cut(ndim, size, (int64_t)(BUFFER_BYTES / 2) / tensor->element_bytes);
    *out_zero = true;
    for (int64_t i = 0; *out_zero && i < tiles.count; i++) {
        int64_t tile_offset[RESHARD_NDIM_MAX], place = 0;
        rs_file_region region = {.ndim = ndim, .element_bytes = tensor->element_bytes};
        rs_tiles_at(&tiles, i, tile_offset, region.size);
        for (int32_t d = 0; d < ndim; d++)
            place += (offset[d] + tile_offset[d]) * piece->strides[d];
        memcpy(region.file_strides, piece->strides, sizeof region.file_strides);
        rs_dense_strides(ndim, region.size, region.memory_strides);
        reshard_status status =
            rs_file_region_read(file->file, at + (uint64_t)(place * tensor->element_bytes), &region,
                                buffer, buffer + BUFFER_BYTES / 2, BUFFER_BYTES / 2);
        if (status != RESHARD_OK)
            return status;
        *out_zero = is_zero(buffer, (size_t)(rs_volume(ndim, region.size) * tensor->element_bytes));
    }
    return RESHARD_OK;
}

/* Finds the part of a piece that lies beyond the shape in one dimension: its offset in the piece,
 * and its size. False if there is none. */
static bool find_beyond(const rs_stored_tensor *tensor, const reshard_piece *piece, int32_t dim,
                        int64_t *offset, int64_t *size)
{
    int32_t ndim = tensor->carried_ndim;
    int64_t inside = rs_max(tensor->carried_shape[dim] - piece->box.offset[dim], 0);
    memset(offset, 0, (size_t)ndim * sizeof *offset);
    memcpy(size, piece->box.size, (size_t)ndim * sizeof *size);
    if (inside >= size[dim])
        return false;
    offset[dim] = inside;
    size[dim] -= inside;
    return rs_volume(ndim, size) != 0;
}

static reshard_status fail_padding(const reshard_checkpoint *checkpoint,
                                   const rs_stored_tensor *tensor, int32_t file, int32_t dim)
{
    (void)rs_fail_hint(
        RESHARD_ERR_CHECK, RESHARD_HINT_PADDING, "",
        "tensor \"%.*s\": what %s holds beyond its size of %lld in dimension %d is not "
        "zero, so it may not be padding",
        RS_SHOWN(tensor->name), checkpoint->files[file].name, (long long)tensor->carried_shape[dim],
        (int)dim);
    rs_error_add_subject(tensor->name.bytes, tensor->name.count);
    return RESHARD_ERR_CHECK;
}

reshard_status rs_rank_padding_look(rs_rank_padding *padding, const reshard_checkpoint *checkpoint,
                                    const rs_stored_tensor *tensor, const reshard_piece *piece,
                                    int32_t file, uint64_t at)
{
    int64_t offset[RESHARD_NDIM_MAX], size[RESHARD_NDIM_MAX];
    reshard_status status = RESHARD_OK;
    for (int32_t d = 0; status == RESHARD_OK && !padding->found && d < tensor->carried_ndim; d++) {
        bool zero = true;
        if (!find_beyond(tensor, piece, d, offset, size))
            continue;
        char *buffer = rs_allocate(checkpoint->context, BUFFER_BYTES);
        if (buffer == NULL)
            return rs_allocation_status();
        status =
            look_at_box(&checkpoint->files[file], tensor, piece, at, offset, size, buffer, &zero);
        rs_release(checkpoint->context, buffer);
        padding->found = !zero;
        if (status == RESHARD_OK && !zero && !padding->may_be_any)
            return fail_padding(checkpoint, tensor, file, d);
    }
    return status;
}

reshard_status rs_rank_zeros_check(const reshard_checkpoint *checkpoint,
                                   const rs_stored_tensor *tensor, const rs_occurrence *array)
{
    const int64_t none[RESHARD_NDIM_MAX] = {0};
    reshard_piece piece = {.box.ndim = tensor->carried_ndim};
    bool zero = true;
    if (array == NULL || tensor->bytes == 0)
        return RESHARD_OK;
    char *buffer = rs_allocate(checkpoint->context, BUFFER_BYTES);
    if (buffer == NULL)
        return rs_allocation_status();
    rs_dense_strides(array->ndim, array->shape, piece.strides);
    if (array->strides != NULL)
        memcpy(piece.strides, array->strides, (size_t)array->ndim * sizeof(int64_t));
    reshard_status status = look_at_box(&checkpoint->files[array->file], tensor, &piece, array->at,
                                        none, array->shape, buffer, &zero);
    rs_release(checkpoint->context, buffer);
    if (status == RESHARD_OK && !zero)
        status = rs_fail(RESHARD_ERR_CHECK,
                         "tensor \"%.*s\": %s holds values that are not zero, but the rules say "
                         "that this rank has zeros in its place",
                         RS_SHOWN(tensor->name), checkpoint->files[array->file].name);
    return status;
}

void rs_rank_padding_count(rs_rank_padding *padding, rs_slice name, const rs_rule_result *result)
{
    if (result->padding_unknown && padding->unknown_count++ == 0)
        padding->first_unknown = name;
    if (!padding->found)
        return;
    padding->found = false;
    if (padding->tensor_count++ == 0)
        padding->first = name;
    for (int32_t d = 0; d < result->ndim; d++)
        padding->row_count += result->padded_shape[d] - result->shape[d];
}

reshard_status rs_rank_padding_note(const rs_rank_padding *padding, reshard_checkpoint *checkpoint)
{
    reshard_status status = RESHARD_OK;
    if (padding->tensor_count != 0)
        status = rs_store_note(checkpoint,
                               "padding that is not zero is cut off: %lld row%s of %lld tensor%s "
                               "(\"%.*s\"%s)",
                               (long long)padding->row_count, padding->row_count == 1 ? "" : "s",
                               (long long)padding->tensor_count,
                               padding->tensor_count == 1 ? "" : "s", RS_SHOWN(padding->first),
                               padding->tensor_count == 1 ? "" : " and others");
    if (status == RESHARD_OK && padding->unknown_count != 0)
        status = rs_store_note(
            checkpoint,
            "the true size of %lld tensor%s is not known: padding stays, if "
            "there is some (\"%.*s\"%s)",
            (long long)padding->unknown_count, padding->unknown_count == 1 ? "" : "s",
            RS_SHOWN(padding->first_unknown), padding->unknown_count == 1 ? "" : " and others");
    return status;
}
