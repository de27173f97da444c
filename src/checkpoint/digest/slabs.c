/* SPDX-License-Identifier: Apache-2.0 */
/* slabs.c - pieces cut into slabs, read and digested. */
#include "checkpoint/digest/slabs.h"
#include "base/checked.h"

#include <string.h>

void rs_slabs_init(rs_slabs *slabs, const rs_stored_tensor *tensor, const rs_stored_piece *piece,
                   size_t bytes_max)
{
    int64_t most = rs_max(1, (int64_t)bytes_max / tensor->element_bytes);
    int64_t inner = 1; /* elements of the dims that a slab has whole */
    int32_t d = tensor->carried_ndim;
    *slabs = (rs_slabs){.tensor = tensor, .piece = piece, .dim = -1, .count = 1};
    for (int32_t i = 0; i < tensor->carried_ndim; i++) {
        if (piece->size[i] == 0)
            slabs->count = 0;
    }
    if (slabs->count == 0)
        return;
    for (; d > 0 && piece->size[d - 1] <= most / inner; d--)
        inner *= piece->size[d - 1];
    if (d == 0)
        return;
    slabs->dim = d - 1;
    slabs->rows = most / inner;
    slabs->count = rs_divide_up(piece->size[d - 1], slabs->rows);
    for (int32_t i = 0; i < slabs->dim; i++)
        slabs->count *= piece->size[i];
}

void rs_slabs_at(const rs_slabs *slabs, int64_t index, rs_slab *out_slab)
{
    const rs_stored_piece *piece = slabs->piece;
    rs_slab slab = {.element_count = 1};
    for (int32_t d = slabs->tensor->carried_ndim; d-- > 0;) {
        if (d > slabs->dim) {
            slab.size[d] = piece->size[d];
        } else if (d == slabs->dim) {
            int64_t parts = rs_divide_up(piece->size[d], slabs->rows);
            slab.offset[d] = index % parts * slabs->rows;
            slab.size[d] = rs_min(slabs->rows, piece->size[d] - slab.offset[d]);
            index /= parts;
        } else {
            slab.offset[d] = index % piece->size[d];
            slab.size[d] = 1;
            index /= piece->size[d];
        }
        slab.offset[d] += piece->offset != NULL ? piece->offset[d] : 0;
        slab.element_count *= slab.size[d];
    }
    slab.bytes = (size_t)(slab.element_count * slabs->tensor->element_bytes);
    *out_slab = slab;
}

reshard_status rs_slab_read(const reshard_checkpoint *checkpoint, const rs_slabs *slabs,
                            const rs_slab *slab, void *memory, void *scratch, size_t scratch_bytes)
{
    const rs_stored_tensor *tensor = slabs->tensor;
    const rs_stored_piece *piece = slabs->piece;
    rs_file_region region = {.ndim = tensor->carried_ndim, .element_bytes = tensor->element_bytes};
    int64_t at = 0, stride = 1;
    rs_piece_strides(tensor, piece, region.file_strides);
    for (int32_t d = region.ndim; d-- > 0;) {
        int64_t first = piece->offset != NULL ? piece->offset[d] : 0;
        at += (slab->offset[d] - first) * region.file_strides[d];
        region.size[d] = slab->size[d];
        region.memory_strides[d] = stride;
        stride *= slab->size[d];
    }
    return rs_file_region_read(checkpoint->files[piece->file].file,
                               piece->at + (uint64_t)(at * tensor->element_bytes), &region, memory,
                               scratch, scratch_bytes);
}

void rs_box_digest(const rs_stored_tensor *tensor, const int64_t *offset, const int64_t *size,
                   const void *memory, const int64_t *strides, rs_fingerprint_writer *writer)
{
    int64_t places[RESHARD_NDIM_MAX], steps[RESHARD_NDIM_MAX], index[RESHARD_NDIM_MAX] = {0};
    int64_t place = 0, stride = 1, dense = 1, run = 1, count = 1;
    int32_t outer = 0; /* dims before those that a run covers */
    for (int32_t d = tensor->carried_ndim; d-- > 0;) {
        places[d] = stride * tensor->element_bytes;
        steps[d] = (strides != NULL ? strides[d] : dense) * tensor->element_bytes;
        place += offset[d] * places[d];
        /* Rows follow each other in the tensor while all dims behind theirs are whole, and in
         * memory if nothing lies between them. */
        bool follows = run == stride && (size[d] == 1 || steps[d] == run * tensor->element_bytes);
        if (outer == 0 && follows)
            run *= size[d];
        else if (outer == 0)
            outer = d + 1;
        if (outer != 0)
            count *= size[d];
        stride *= tensor->carried_shape[d];
        dense *= size[d];
    }
    size_t run_bytes = (size_t)(run * tensor->element_bytes);
    const char *bytes = memory;
    for (int64_t i = 0; i < count; i++) {
        rs_fingerprint_add_run(writer, (uint64_t)place, bytes, run_bytes);
        for (int32_t d = outer; d-- > 0;) {
            place += places[d];
            bytes += steps[d];
            if (++index[d] < size[d])
                break;
            place -= size[d] * places[d];
            bytes -= size[d] * steps[d];
            index[d] = 0;
        }
    }
}
