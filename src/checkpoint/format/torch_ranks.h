/* SPDX-License-Identifier: Apache-2.0 */
/* torch_ranks.h - what the rows of files of ranks share, in format_torch_ranks.c and
 * format_torch_dtensors.c. */
#ifndef RS_CHECKPOINT_FORMAT_TORCH_RANKS_H
#define RS_CHECKPOINT_FORMAT_TORCH_RANKS_H

#include "checkpoint/body/target.h"

/* What the open files say of the split (RS_LAYOUT_KEY), one text for each, in the arena; bytes NULL
 * for those that say nothing. *out_any: some file says something. */
reshard_status rs_torch_ranks_documents(reshard_checkpoint *checkpoint, rs_slice **out_documents,
                                        bool *out_any);
/* Joins their tensors, by the documents or by the mesh that the caller gives. Values are kept once.
 * Errors: as rs_rank_join; INVALID for a DTensor or ShardedTensor, which need no mesh. */
reshard_status rs_torch_ranks_read_plain(reshard_checkpoint *checkpoint, const rs_opening *opening,
                                         const rs_slice *documents);

/* The rank that a file's name tells, and of how many (0: it does not say); false: none. */
bool rs_torch_rank_name(const char *file, int32_t *out_rank, int32_t *out_world);

/* A format's name_file: model_world_size_W_rank_R.pt. */
void rs_torch_ranks_name_file(const rs_target *target, int32_t file, int32_t rank,
                              char out_name[RS_FILE_NAME_BYTES]);

#endif
