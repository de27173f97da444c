/* SPDX-License-Identifier: Apache-2.0 */
/* torch_ranks.h - shared by format_torch_ranks.c, format_torch_dtensors.c, format_consolidated.c
 * and format_torch.c: the names and documents of torch.save rank files. */
#ifndef RS_CHECKPOINT_TORCH_TORCH_RANKS_H
#define RS_CHECKPOINT_TORCH_TORCH_RANKS_H

#include "checkpoint/target/target.h"

/* Reads the documents in which the open files describe their split (RS_LAYOUT_KEY) into the arena,
 * one for each file; bytes NULL if a file has none. *out_any: some file has one. */
reshard_status rs_torch_ranks_documents(reshard_checkpoint *checkpoint, rs_slice **out_documents,
                                        bool *out_any);
/* Joins the tensors of these files, by their documents or by the caller's mesh. Values are kept
 * once. Errors: as rs_rank_join; INVALID for a DTensor or ShardedTensor, which need no mesh. */
reshard_status rs_torch_ranks_read_plain(reshard_checkpoint *checkpoint, const rs_opening *opening,
                                         const rs_slice *documents);

/* The name of what each rank's file holds if that is a single tensor or value: the same for all. */
#define RS_TORCH_RANKS_ALONE "model"

/* Finds the rank in a file's name, and the number of ranks (0: not given). False if there is no
 * rank. */
bool rs_torch_rank_name(const char *file, int32_t *out_rank, int32_t *out_world);

/* For rs_format's name_file: model_world_size_W_rank_R.pt. */
void rs_torch_ranks_name_file(const rs_target *target, int32_t file, int32_t rank,
                              char out_name[RS_FILE_NAME_BYTES]);

/* For rs_format: plain tensors, and a document that says how they are split. */
reshard_status rs_torch_ranks_lay_out(rs_laying *laying);
extern const struct rs_torch_style rs_torch_ranks_style;

#endif
