/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rank_join.h - the tensors of files of ranks, from the local arrays that these hold: by what the
 * files say of themselves (rank_layout.h), or by a mesh and rules that the caller gives. What kind
 * of files they are does not matter here.
 */
#ifndef RS_CHECKPOINT_FORMAT_RANK_JOIN_H
#define RS_CHECKPOINT_FORMAT_RANK_JOIN_H

#include "checkpoint/body/format.h"

/* Can there be one file for each rank? Errors: INVALID. */
reshard_status rs_rank_mesh_check(const reshard_mesh *mesh);

/* Makes the checkpoint's tensors. documents: what each file says of the split (RS_LAYOUT_KEY);
 * bytes NULL: nothing. Where none does, files belong to the ranks of the mesh in their order. The
 * list is sorted by name; `full` of its items is set where a file gives the shape of a tensor that
 * is cut flat. Errors: as rs_rank_layout_read and rs_rules_recover; INVALID when there are more or
 * fewer files than ranks; CORRUPT when files do not agree; CHECK for padding that is not zero. */
reshard_status rs_rank_join(reshard_checkpoint *checkpoint, const rs_opening *opening,
                            const rs_slice *documents, rs_occurrences *list);

#endif
