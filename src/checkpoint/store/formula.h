/* SPDX-License-Identifier: Apache-2.0 */
/*
 * formula.h - tensors that no file holds: quantised weights times their scales, and what maps make.
 * Such a tensor has the computed shape and dtype, and one piece, which is all of it. Its bytes are
 * computed box by box when they are read.
 *
 *  scaled: codes of f8, of the same shape. Scales have the first dims of the codes; `blocks` of
 *          each dim says how many elements share one.
 *  mxfp4:  codes [expert, row, group, 16] and scales [expert, row, group] become
 *          [expert, 32 group, row], because GPT-OSS stores these weights transposed.
 *  linked:  links of a map (reshard/plan.h) from tensors of one dtype, stored or scaled, fill it,
 *          each element once. It has that dtype, unless `added` is not 0: then it may have a wider
 *          one.
 *  constant: every element is the same.
 *  cast:    the elements of another tensor, stored or computed, in another dtype.
 *  held:    all its bytes are in memory; they are few.
 *  encoded: values of another tensor, held by files or one of the kinds above, in blocks of a
 *          quantised type. Its elements are bytes, and its last dim is a block.
 */
#ifndef RS_CHECKPOINT_STORE_FORMULA_H
#define RS_CHECKPOINT_STORE_FORMULA_H

#include "checkpoint/store/store.h"

#include <reshard/plan.h>

/* A strided link, with the axes in the order in which they are walked: first those whose values are
 * taken one by one, then `inner_count` axes of which no two share a dim of the source or the
 * target. These are read together. */
typedef struct rs_formula_link {
    const rs_stored_tensor *source; /* held by files, or computed from codes and scales */
    const int64_t *source_at, *target_at;
    int32_t axis_count, inner_count;
    const reshard_link_axis *axes;
} rs_formula_link;

typedef struct rs_formula {
    const reshard_checkpoint *checkpoint;   /* the one that holds what is read */
    const rs_stored_tensor *codes, *scales; /* scaled and mxfp4 only; else NULL */
    bool is_mxfp4;
    int64_t blocks[RESHARD_NDIM_MAX]; /* scaled only */
    const void *table;                /* mxfp4 only: an rs_mxfp4_table */
    int64_t link_count;               /* linked only; else 0 */
    const rs_formula_link *links;
    double added;                      /* linked only: what is added to each element */
    const void *constant;              /* constant only: one element; else NULL */
    const void *held;                  /* held only; else NULL */
    const rs_stored_tensor *cast_from; /* cast only; else NULL */
    /* encoded only; else NULL */
    const rs_stored_tensor *values;
    const struct rs_block_type *encoding;
} rs_formula;

static inline bool rs_formula_is_quantised(const rs_stored_tensor *tensor)
{
    return tensor->formula != NULL && tensor->formula->codes != NULL;
}

/* Whether a tensor is made of weights that were dequantised. */
static inline bool rs_formula_was_quantised(const rs_stored_tensor *tensor)
{
    const rs_formula *formula = tensor->formula;
    return rs_formula_is_quantised(tensor) || (formula != NULL && formula->link_count != 0 &&
                                               rs_formula_is_quantised(formula->links[0].source));
}

/* Computes a box of an encoded tensor, of whole blocks. scratch: as rs_formula_read. Errors: RANGE,
 * naming the tensor and a value that the type cannot hold. */
struct rs_formula_tally;
reshard_status rs_formula_encode(const rs_stored_tensor *tensor, const int64_t *offset,
                                 const int64_t *size, char *memory, char *scratch,
                                 size_t scratch_bytes, struct rs_formula_tally *tally);

/* Scratch for computing a tensor; one that is made of computed ones needs it for each of them. */
#define RS_FORMULA_SCRATCH_MIN ((size_t)64 << 10)

/* What reading has cost, and what it found. */
typedef struct rs_formula_tally {
    uint64_t bytes_read;
    int64_t overflows; /* values that are not finite although their codes are */
} rs_formula_tally;

/* Chooses the inner axes, and sorts the axes. */
void rs_formula_link_sort(reshard_link_axis *axes, int32_t count, int32_t *out_inner_count);
/* Computes a box of a linked tensor. scratch: as rs_formula_read, and enough. */
reshard_status rs_formula_read_links(const rs_stored_tensor *tensor, const int64_t *offset,
                                     const int64_t *size, char *memory, char *scratch,
                                     size_t scratch_bytes, rs_formula_tally *tally);

/* Computes a box of the tensor, dense and row-major, in its dtype. scratch: aligned as by malloc;
 * more memory makes longer reads. If it is not enough, some is allocated meanwhile. */
reshard_status rs_formula_read(const rs_stored_tensor *tensor, const int64_t *offset,
                               const int64_t *size, void *memory, char *scratch,
                               size_t scratch_bytes, rs_formula_tally *tally);

#endif
