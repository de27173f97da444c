/* SPDX-License-Identifier: Apache-2.0 */
/*
 * formula.h - tensors that no file holds: quantised weights times their scales. Such a tensor has
 * the computed shape and dtype, and one piece, which is all of it. Its bytes are computed box by
 * box when they are read.
 *
 *  scaled: codes of f8, of the same shape. Scales have the first dims of the codes; `blocks` of
 *          each dim says how many elements share one.
 *  mxfp4:  codes [expert, row, group, 16] and scales [expert, row, group] become
 *          [expert, 32 group, row], because GPT-OSS stores these weights transposed.
 */
#ifndef RS_CHECKPOINT_STORE_FORMULA_H
#define RS_CHECKPOINT_STORE_FORMULA_H

#include "checkpoint/store/store.h"

typedef struct rs_formula {
    const reshard_checkpoint *checkpoint; /* the one that holds codes and scales */
    const rs_stored_tensor *codes, *scales;
    bool is_mxfp4;
    int64_t blocks[RESHARD_NDIM_MAX]; /* scaled only */
    const void *table;                /* mxfp4 only: an rs_mxfp4_table */
} rs_formula;

#define RS_FORMULA_SCRATCH_MIN ((size_t)64 << 10)

/* What reading has cost, and what it found. */
typedef struct rs_formula_tally {
    uint64_t bytes_read;
    int64_t overflows; /* values that are not finite although their codes are */
} rs_formula_tally;

/* Computes a box of the tensor, dense and row-major, in its dtype. scratch: RS_FORMULA_SCRATCH_MIN
 * bytes or more, aligned as by malloc; more memory makes longer reads. */
reshard_status rs_formula_read(const rs_stored_tensor *tensor, const int64_t *offset,
                               const int64_t *size, void *memory, char *scratch,
                               size_t scratch_bytes, rs_formula_tally *tally);

#endif
