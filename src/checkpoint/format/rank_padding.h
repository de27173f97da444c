/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rank_padding.h - padding in rank files, which is cut off when they are read. It is checked first,
 * because a wrong vocab_size would cut off rows that are needed.
 */
#ifndef RS_CHECKPOINT_FORMAT_RANK_PADDING_H
#define RS_CHECKPOINT_FORMAT_RANK_PADDING_H

#include "checkpoint/rules/rules.h"
#include "checkpoint/store/store.h"

/* Statistics over all tensors of a checkpoint so far. Initialise with zeros. */
typedef struct rs_rank_padding {
    bool may_be_any;      /* padding may have any value; else it must be zero */
    bool found;           /* some padding of the current tensor is not zero */
    int64_t tensor_count; /* number of tensors with padding that is not zero */
    int64_t row_count;    /* number of rows cut off these tensors */
    rs_slice first;
    int64_t unknown_count; /* number of tensors of unknown true size, whose padding stays */
    rs_slice first_unknown;
} rs_rank_padding;

/* Checks what a piece of a file holds beyond the tensor's shape. at: where the piece begins in the
 * file. Errors: CHECK if it is not zero, naming file and dimension; IO. */
reshard_status rs_rank_padding_look(rs_rank_padding *padding, const reshard_checkpoint *checkpoint,
                                    const rs_stored_tensor *tensor, const reshard_piece *piece,
                                    int32_t file, uint64_t at);
/* Checks that an array (NULL: none) is zero everywhere. Errors: CHECK, naming the file; IO. */
reshard_status rs_rank_zeros_check(const reshard_checkpoint *checkpoint,
                                   const rs_stored_tensor *tensor, const rs_occurrence *array);
/* Counts a tensor after all its pieces have been checked. */
void rs_rank_padding_count(rs_rank_padding *padding, rs_slice name, const rs_rule_result *result);
/* Adds notes to the checkpoint. */
reshard_status rs_rank_padding_note(const rs_rank_padding *padding, reshard_checkpoint *checkpoint);

#endif
