/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read.c - reads boxes of tensors from files. A strided region is read in blocks as large as the
 * scratch memory: one read covers many rows, and the wanted parts are then copied out. Parts that
 * are far apart are instead read one by one, straight to where they belong. If they make up a good
 * part of their span, it is announced to the system beforehand, which then fetches uncached data in
 * large pieces.
 */
#include "base/checked.h"
#include "base/context.h"
#include "base/shape.h"
#include "checkpoint/store/formula.h"
#include "kernel/copy/copy.h"
#include "layout/flat.h"

#include <assert.h>
#include <string.h>

/* If the wanted parts are less than 1/SPARSE of a span, the rest is not worth fetching. */
#define SPARSE 4
/* If two runs are at least this far apart, a call for each is cheaper than copying what lies
 * between. */
#define FAR_BYTES 4096
/* How much is announced to the system at a time. */
#define AHEAD_BYTES ((int64_t)4 << 20)

/* Bytes from the first to the last element, ignoring one dim (-1: none). */
static int64_t span_without(const rs_file_region *region, int32_t left_out)
{
    int64_t last = 0;
    for (int32_t d = 0; d < region->ndim; d++) {
        if (d != left_out)
            last += (region->size[d] - 1) * region->file_strides[d];
    }
    return (last + 1) * region->element_bytes;
}

/* Bytes between the end of one run of the file and the beginning of the next. */
static int64_t find_distance(const rs_file_region *region)
{
    int64_t run = 1, next = INT64_MAX; /* length of a run, and the step to the next */
    for (bool grows = true; grows;) {
        grows = false;
        next = INT64_MAX;
        for (int32_t d = 0; d < region->ndim; d++) {
            int64_t stride = region->file_strides[d];
            if (region->size[d] <= 1 || stride < run)
                continue; /* part of the run, or only one element */
            if (stride == run) {
                run *= region->size[d];
                grows = true;
                break;
            }
            next = rs_min(next, stride);
        }
    }
    return next == INT64_MAX ? 0 : (next - run) * region->element_bytes;
}

static reshard_status read_parts(const rs_file *file, uint64_t at, const rs_file_region *region,
                                 bool one_by_one, bool announce, char *memory, void *scratch,
                                 size_t scratch_bytes)
{
    /* Splits along the longest stride, so that elements that lie close together are read
     * together. */
    int32_t d = -1;
    for (int32_t i = 0; i < region->ndim; i++) {
        if (region->size[i] > 1 && (d < 0 || region->file_strides[i] > region->file_strides[d]))
            d = i;
    }
    /* A single element is dense, and was read directly; repeated elements do not make a long
     * span. */
    assert(d >= 0 && region->file_strides[d] > 0);
    int64_t row = span_without(region, d), step = region->file_strides[d] * region->element_bytes;
    int64_t rows = 1, told = 0;
    if (!one_by_one && (int64_t)scratch_bytes >= row)
        rows = rs_min(region->size[d], ((int64_t)scratch_bytes - row) / step + 1);
    for (int64_t first = 0; first < region->size[d]; first += rows) {
        if (announce && first * step >= told) {
            int64_t rest = span_without(region, -1) - told;
            rs_file_announce(file, at + (uint64_t)told, (uint64_t)rs_min(rest, AHEAD_BYTES));
            told += AHEAD_BYTES;
        }
        rs_file_region part = *region;
        part.size[d] = rs_min(rows, region->size[d] - first);
        reshard_status status =
            rs_file_region_read(file, at + (uint64_t)(first * step), &part,
                                memory + first * region->memory_strides[d] * region->element_bytes,
                                scratch, scratch_bytes);
        if (status != RESHARD_OK)
            return status;
    }
    return RESHARD_OK;
}

reshard_status rs_file_region_read(const rs_file *file, uint64_t at, const rs_file_region *region,
                                   void *memory, void *scratch, size_t scratch_bytes)
{
    int64_t wanted = rs_volume(region->ndim, region->size) * region->element_bytes;
    if (wanted == 0)
        return RESHARD_OK;
    assert(memory != NULL && region->element_bytes > 0);
    int64_t span = span_without(region, -1);
    if (rs_strides_are_dense(region->ndim, region->size, region->file_strides) &&
        rs_strides_are_dense(region->ndim, region->size, region->memory_strides))
        return rs_file_read(file, memory, (size_t)wanted, at);
    assert(scratch != NULL && scratch_bytes >= (size_t)region->element_bytes);
    bool sparse = wanted < span / SPARSE, far = find_distance(region) >= FAR_BYTES;
    if (sparse || far || span > (int64_t)scratch_bytes)
        return read_parts(file, at, region, sparse || far, far && !sparse, memory, scratch,
                          scratch_bytes);
    reshard_status status = rs_file_read(file, scratch, (size_t)span, at);
    if (status != RESHARD_OK)
        return status;
    rs_copy copy;
    rs_copy_prepare(&copy, region->element_bytes, region->ndim, region->size, region->file_strides,
                    region->memory_strides);
    rs_copy_run(&copy, scratch, memory);
    return RESHARD_OK;
}

bool rs_piece_clip(const rs_stored_tensor *tensor, const rs_stored_piece *piece,
                   const int64_t *offset, const int64_t *size, rs_clip *out_clip)
{
    int64_t at = 0, last = 0, bytes = tensor->element_bytes;
    rs_piece_strides(tensor, piece, out_clip->strides);
    for (int32_t d = 0; d < tensor->carried_ndim; d++) {
        int64_t box_from = offset != NULL ? offset[d] : 0;
        int64_t piece_from = piece->offset != NULL ? piece->offset[d] : 0;
        int64_t from = rs_max(box_from, piece_from);
        int64_t to = rs_min(box_from + size[d], piece_from + piece->size[d]);
        if (from >= to)
            return false;
        out_clip->offset[d] = from;
        out_clip->size[d] = to - from;
        at += (from - piece_from) * out_clip->strides[d];
        last += (to - from - 1) * out_clip->strides[d];
        bytes *= to - from;
    }
    out_clip->at = piece->at + (uint64_t)(at * tensor->element_bytes);
    out_clip->end = out_clip->at + (uint64_t)((last + 1) * tensor->element_bytes);
    out_clip->bytes = bytes;
    return true;
}

int64_t rs_piece_group(const rs_stored_piece *pieces, int64_t count, int64_t first)
{
    int64_t next = first + 1;
    assert(first >= 0 && first < count);
    while (next < count && pieces[first].strides != NULL && pieces[next].strides != NULL &&
           pieces[next].file == pieces[first].file)
        next++;
    return next - first;
}

reshard_status rs_store_check_readable(const reshard_checkpoint *checkpoint)
{
    if (checkpoint->is_unfinished)
        return rs_fail_about(RESHARD_ERR_UNFINISHED, checkpoint->path,
                             "is unfinished, and was opened for inspection only");
    return !checkpoint->plan_only
               ? RESHARD_OK
               : rs_fail_about(RESHARD_ERR_INVALID, checkpoint->path,
                               "was opened for planning only, so its tensors cannot be read");
}

reshard_status rs_store_check_all_readable(const reshard_checkpoint *checkpoint)
{
    reshard_status status = rs_store_check_readable(checkpoint);
    if (status == RESHARD_OK && checkpoint->unreadable_count != 0)
        status = rs_fail(RESHARD_ERR_UNSUPPORTED, "%s", checkpoint->unreadable[0].reason);
    return status;
}

reshard_status rs_store_read_box(const reshard_checkpoint *checkpoint,
                                 const rs_stored_tensor *tensor, const int64_t *offset,
                                 const int64_t *size, void *memory, void *scratch,
                                 size_t scratch_bytes)
{
    rs_file_region region = {.ndim = tensor->carried_ndim, .element_bytes = tensor->element_bytes};
    if (tensor->formula != NULL) {
        rs_formula_tally tally = {0};
        return rs_formula_read(tensor, offset, size, memory, scratch, scratch_bytes, &tally);
    }
    for (int64_t i = 0; i < tensor->piece_count; i++) {
        const rs_stored_piece *piece = &tensor->pieces[i];
        rs_clip clip;
        int64_t memory_at = 0;
        if (!rs_piece_clip(tensor, piece, offset, size, &clip))
            continue;
        rs_dense_strides(tensor->carried_ndim, size, region.memory_strides);
        for (int32_t d = 0; d < tensor->carried_ndim; d++) {
            region.size[d] = clip.size[d];
            region.file_strides[d] = clip.strides[d];
            memory_at += (clip.offset[d] - offset[d]) * region.memory_strides[d];
        }
        reshard_status status = rs_file_region_read(
            checkpoint->files[piece->file].file, clip.at, &region,
            (char *)memory + memory_at * tensor->element_bytes, scratch, scratch_bytes);
        if (status != RESHARD_OK)
            return rs_fail_within_tensor(status, tensor->name);
    }
    return RESHARD_OK;
}

static reshard_status check_box(const rs_stored_tensor *tensor, const reshard_box *box,
                                size_t bytes)
{
    bool inside = box->ndim == tensor->carried_ndim;
    for (int32_t d = 0; inside && d < box->ndim; d++) {
        inside = box->offset[d] >= 0 && box->size[d] >= 0 &&
                 box->size[d] <= tensor->carried_shape[d] &&
                 box->offset[d] <= tensor->carried_shape[d] - box->size[d];
    }
    if (!inside)
        return rs_fail(RESHARD_ERR_RANGE, "tensor \"%.*s\": the box is not inside its shape",
                       RS_SHOWN(tensor->name));
    int64_t expected = rs_volume(box->ndim, box->size) * tensor->element_bytes;
    if ((size_t)expected != bytes)
        return rs_fail(RESHARD_ERR_INVALID,
                       "tensor \"%.*s\": the box has %lld bytes, but the memory has %zu",
                       RS_SHOWN(tensor->name), (long long)expected, bytes);
    return RESHARD_OK;
}

#define SCRATCH_BYTES ((size_t)1 << 20)

reshard_status reshard_checkpoint_read(const reshard_checkpoint *checkpoint, int64_t tensor,
                                       const reshard_box *box, void *memory, size_t bytes)
{
    if (tensor < 0 || tensor >= checkpoint->tensor_count)
        return rs_fail(RESHARD_ERR_RANGE, "there is no tensor %lld; there are %lld",
                       (long long)tensor, (long long)checkpoint->tensor_count);
    const rs_stored_tensor *stored = &checkpoint->tensors[tensor];
    reshard_box whole = {.ndim = stored->carried_ndim};
    memcpy(whole.size, stored->carried_shape, (size_t)stored->carried_ndim * sizeof(int64_t));
    if (box == NULL)
        box = &whole;
    reshard_status status = rs_store_check_readable(checkpoint);
    if (status == RESHARD_OK)
        status = check_box(stored, box, bytes);
    if (status != RESHARD_OK || bytes == 0)
        return status;
    size_t scratch_bytes = SCRATCH_BYTES;
    void *scratch = rs_allocate(checkpoint->context, scratch_bytes);
    if (scratch == NULL)
        return rs_allocation_status();
    status = rs_store_read_box(checkpoint, stored, box->offset, box->size, memory, scratch,
                               scratch_bytes);
    rs_release(checkpoint->context, scratch);
    return status;
}

/* ---- mappings -------------------------------------------------------------------------------- */

reshard_status reshard_checkpoint_map_file(const reshard_checkpoint *checkpoint, int32_t file,
                                           void **out_memory, size_t *out_bytes)
{
    if (file < 0 || file >= checkpoint->file_count)
        return rs_fail(RESHARD_ERR_RANGE, "there is no file %d; there are %d", file,
                       checkpoint->file_count);
    const rs_stored_file *stored = &checkpoint->files[file];
    rs_file_mapping mapping;
    reshard_status status = rs_file_map(stored->file, 0, (size_t)stored->bytes, &mapping);
    if (status != RESHARD_OK)
        return status;
    *out_memory = mapping.bytes;
    *out_bytes = mapping.base_count;
    return RESHARD_OK;
}

void reshard_checkpoint_unmap_file(void *memory, size_t bytes)
{
    if (memory != NULL)
        rs_file_unmap(&(rs_file_mapping){.bytes = memory, .base = memory, .base_count = bytes});
}
