/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slabs.h - the pieces of a tensor in parts that fit a buffer. A slab is a box of a piece: whole in
 * the inner dimensions, some rows of one dimension, one index of those before it. The slabs of a
 * piece, in their order, are the piece in row-major order.
 */
#ifndef RS_CHECKPOINT_DIGEST_SLABS_H
#define RS_CHECKPOINT_DIGEST_SLABS_H

#include "checkpoint/digest/fingerprint.h"
#include "checkpoint/store/store.h"

typedef struct rs_slabs {
    const rs_stored_tensor *tensor;
    const rs_stored_piece *piece;
    int32_t dim;   /* that is cut; -1: there is one slab, the whole piece */
    int64_t rows;  /* of that dimension in a slab; the last one may have fewer */
    int64_t count; /* 0 for a piece without elements */
} rs_slabs;

typedef struct rs_slab {
    int64_t offset[RESHARD_NDIM_MAX]; /* in the tensor */
    int64_t size[RESHARD_NDIM_MAX];
    int64_t element_count;
    size_t bytes;
} rs_slab;

/* bytes_max: at least one element. */
void rs_slabs_init(rs_slabs *slabs, const rs_stored_tensor *tensor, const rs_stored_piece *piece,
                   size_t bytes_max);
void rs_slabs_at(const rs_slabs *slabs, int64_t index, rs_slab *out_slab);

/* Reads a slab, dense and row-major. */
reshard_status rs_slab_read(const reshard_checkpoint *checkpoint, const rs_slabs *slabs,
                            const rs_slab *slab, void *memory, void *scratch, size_t scratch_bytes);
/* Adds a box of the tensor that lies in memory to a digest of the tensor. Strides are those of the
 * memory, in elements; NULL: dense and row-major, as a slab is read. */
void rs_box_digest(const rs_stored_tensor *tensor, const int64_t *offset, const int64_t *size,
                   const void *memory, const int64_t *strides, rs_fingerprint_writer *writer);

#endif
