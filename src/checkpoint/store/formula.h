/* SPDX-License-Identifier: Apache-2.0 */
/*
 * formula.h - tensors that no file holds: quantised weights times their scales. Such a tensor has
 * the shape and dtype that it is made with, and one piece, which is all of it; its bytes are made
 * box by box, when somebody reads them.
 *
 *  scaled: codes of f8, of the same shape. Scales have the first dims of the codes; `blocks` of
 *          each dim says how many elements share one.
 *  mxfp4:  codes [expert, row, group, 16] and scales [expert, row, group] become
 *          [expert, 32 group, row]: GPT-OSS stores what it multiplies by the other way round.
 */
#ifndef RS_CHECKPOINT_STORE_FORMULA_H
#define RS_CHECKPOINT_STORE_FORMULA_H

#include "checkpoint/store/store.h"

typedef struct rs_formula {
    const reshard_checkpoint *checkpoint; /* that has these two */
    const rs_stored_tensor *codes, *scales;
    bool is_mxfp4;
    int64_t blocks[RESHARD_NDIM_MAX]; /* scaled */
    const void *table;                /* mxfp4: rs_mxfp4_table */
} rs_formula;

#define RS_FORMULA_SCRATCH_MIN ((size_t)64 << 10)

/* What reading has cost and found. */
typedef struct rs_formula_tally {
    uint64_t bytes_read;
    int64_t overflows; /* values that are not finite, of codes that are */
} rs_formula_tally;

/* Makes a box of the tensor, dense and row-major, in its dtype. scratch: RS_FORMULA_SCRATCH_MIN
 * bytes or more, on the alignment of malloc; more makes longer reads. */
reshard_status rs_formula_read(const rs_stored_tensor *tensor, const int64_t *offset,
                               const int64_t *size, void *memory, char *scratch,
                               size_t scratch_bytes, rs_formula_tally *tally);

#endif
