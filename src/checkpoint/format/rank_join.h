/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rank_join.h - makes tensors from the local arrays in rank files: by the documents in which files
 * describe their split (rank_layout.h), or by a mesh and rules that the caller gives. The kind of
 * the files does not matter here.
 */
#ifndef RS_CHECKPOINT_FORMAT_RANK_JOIN_H
#define RS_CHECKPOINT_FORMAT_RANK_JOIN_H

#include "checkpoint/target/format.h"

/* Checks that there can be one file for each rank. Errors: INVALID. */
reshard_status rs_rank_mesh_check(const reshard_mesh *mesh);

/* Which rank's files these are, where a rank has several. Files are sorted by group. */
typedef struct rs_rank_groups {
    int32_t count;
    const int32_t *of_file; /* by file, from 0 up */
} rs_rank_groups;

/* Makes the checkpoint's tensors. groups: NULL if each rank has one file. documents: by file, the
 * document about its split (RS_LAYOUT_KEY); bytes NULL: none; `documents` may be NULL, too. If no
 * file has one, files belong to the ranks of the mesh in their order. Sorts the list by name;
 * `full` of its items is set where a file gives the shape of a tensor that is cut flat. Errors: as
 * rs_rank_layout_read and rs_rules_recover; INVALID if the numbers of files and ranks differ;
 * CORRUPT if files do not agree; CHECK for padding that is not zero. */
reshard_status rs_rank_join(reshard_checkpoint *checkpoint, const rs_opening *opening,
                            const rs_slice *documents, const rs_rank_groups *groups,
                            rs_occurrences *list);

#endif
