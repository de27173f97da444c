/* SPDX-License-Identifier: Apache-2.0 */
/*
 * one_rank.h - one file of a set of rank files by itself, to be looked at: its arrays are the
 * tensors, in the shapes that they have there, and each says what it is a part of if the file does.
 */
#ifndef RS_CHECKPOINT_FORMAT_ONE_RANK_H
#define RS_CHECKPOINT_FORMAT_ONE_RANK_H

#include "checkpoint/body/format.h"

/* Whether one file was named, and its caller wants to look at the file of one rank. */
bool rs_one_rank_is_wanted(const rs_opening *opening);
/* Makes tensors of the file's arrays. document: what a file of ours says of the split (bytes NULL:
 * nothing); else `full` and `offset` of the arrays tell. Errors: as rs_rank_layout_read_one;
 * INVALID when a name occurs twice. */
reshard_status rs_one_rank_keep(reshard_checkpoint *checkpoint, rs_slice document,
                                rs_occurrences *list);

#endif
