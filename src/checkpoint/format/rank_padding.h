/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rank_padding.h - what rank files hold beyond the tensors themselves, and is cut off when they are
 * read. It is looked at first: a wrong vocab_size would cut off rows that somebody needs.
 */
#ifndef RS_CHECKPOINT_FORMAT_RANK_PADDING_H
#define RS_CHECKPOINT_FORMAT_RANK_PADDING_H

#include "checkpoint/rules/rules.h"
#include "checkpoint/store/store.h"

/* Of all tensors of a checkpoint so far. Zero is a good start. */
typedef struct rs_rank_padding {
    bool may_be_any;      /* else it must be zero */
    bool found;           /* in the tensor at hand: some of it is not zero */
    int64_t tensor_count; /* with padding that is not zero */
    int64_t row_count;    /* that were cut off these */
    rs_slice first;
    int64_t unknown_count; /* whose true size is not known, so that padding stays */
    rs_slice first_unknown;
} rs_rank_padding;

/* Looks at what a piece of a file holds beyond the tensor's shape; at: where the piece begins in
 * the file. Errors: CHECK when it is not zero, naming file and row; IO. */
reshard_status rs_rank_padding_look(rs_rank_padding *padding, const reshard_checkpoint *checkpoint,
                                    const rs_stored_tensor *tensor, const reshard_piece *piece,
                                    int32_t file, uint64_t at);
/* Counts a tensor, all of whose pieces were looked at. */
void rs_rank_padding_count(rs_rank_padding *padding, rs_slice name, const rs_rule_result *result);
/* Adds lines to the notes of the checkpoint. */
reshard_status rs_rank_padding_note(const rs_rank_padding *padding, reshard_checkpoint *checkpoint);

#endif
