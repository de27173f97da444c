/* SPDX-License-Identifier: Apache-2.0 */
/*
 * one_rank.h - reads one file of a set of rank files by itself, for inspection. Its arrays are the
 * tensors, in the shapes they have there, and each says which tensor it is a part of if the file
 * does.
 */
#ifndef RS_CHECKPOINT_FORMAT_ONE_RANK_H
#define RS_CHECKPOINT_FORMAT_ONE_RANK_H

#include "checkpoint/target/format.h"

/* Was one file named, by a caller who wants to look at a single rank's file? */
bool rs_one_rank_is_wanted(const rs_opening *opening);
/* Makes tensors of the file's arrays. document: in which a file of ours describes its split;
 * without one (bytes NULL), `full` and `offset` of the arrays are used. Errors: as
 * rs_rank_layout_read_one; OVERLAP if a name occurs twice. */
reshard_status rs_one_rank_keep(reshard_checkpoint *checkpoint, rs_slice document,
                                rs_occurrences *list);

#endif
