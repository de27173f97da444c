/* SPDX-License-Identifier: Apache-2.0 */
/* torch_files.h - the torch.save files of a checkpoint: opening them, and their tensors and values
 * by name. For all formats with this body. */
#ifndef RS_CHECKPOINT_FORMAT_TORCH_FILES_H
#define RS_CHECKPOINT_FORMAT_TORCH_FILES_H

#include "checkpoint/body/format.h"
#include "checkpoint/torch/torch_file.h"
#include "checkpoint/torch/torch_walk.h"

/* Whether a name ends like those of torch.save: .pt, .pth, .bin, .ckpt. */
bool rs_torch_name_is(const char *name);
/* The name without its ending. */
rs_slice rs_torch_name_stem(const char *name);
/* Whether one file of the checkpoint's folder is torch.save's. Errors: as of files. */
reshard_status rs_torch_probe_file(const reshard_checkpoint *checkpoint, const char *name,
                                   bool *out_is);

/* Opens files of the checkpoint's folder and reads their pickles. */
reshard_status rs_torch_open_named(reshard_checkpoint *checkpoint, int64_t count,
                                   char *const *names);
/* Reads the pickle of one file, which the store has opened. */
reshard_status rs_torch_open_file(reshard_checkpoint *checkpoint, int32_t file);
const rs_torch_file *rs_torch_opened(const reshard_checkpoint *checkpoint, int32_t file);

/* Goes through all tensors and values of a file. Names begin with the prefix, where it has
 * bytes. Errors: as rs_torch_walk. */
reshard_status rs_torch_walk_file(reshard_checkpoint *checkpoint, int32_t file, rs_slice prefix,
                                  rs_torch_leaf_fn *take, void *user);
/* Where a tensor begins: in its own file, or, where its storage is compressed, in a file that is
 * added for the content. Errors: as rs_torch_file_place. */
reshard_status rs_torch_locate(reshard_checkpoint *checkpoint, int32_t file,
                               const rs_torch_tensor *tensor, int32_t *out_file, uint64_t *out_at);
/* Keeps the CRCs of an opened file's storages. */
reshard_status rs_torch_keep_crcs(reshard_checkpoint *checkpoint, int32_t file,
                                  const rs_torch_file *opened);
/* A leaf of kind TENSOR as an array of its file: whole, until the caller says which box it is.
 * Errors: as rs_torch_tensor_read and rs_torch_file_place, naming tensor and file. */
reshard_status rs_torch_occurrence(reshard_checkpoint *checkpoint, int32_t file,
                                   const rs_torch_leaf *leaf, rs_occurrence *out_occurrence);
/* A leaf of kind VALUE, kept with the checkpoint. */
reshard_status rs_torch_keep_value(reshard_checkpoint *checkpoint, int32_t file,
                                   const rs_torch_leaf *leaf);

/* Values that files of several ranks hold, of which one is kept. Zero is a good start. */
typedef struct rs_torch_common {
    int64_t next; /* where among the checkpoint's values the next one is looked for first */
    int64_t differing;
} rs_torch_common;

/* The same for a value that the files of other ranks hold as well: it is kept once. is_first: this
 * is the first of these files. One that another rank has otherwise, or not at all, is counted. */
reshard_status rs_torch_keep_common(reshard_checkpoint *checkpoint, rs_torch_common *common,
                                    int32_t file, bool is_first, const rs_torch_leaf *leaf);
/* Notes how many were counted, if any. */
reshard_status rs_torch_note_common(reshard_checkpoint *checkpoint, const rs_torch_common *common);

/* Sorts by name. Errors: INVALID when two tensors of one file have the same name. */
reshard_status rs_torch_check_names(const reshard_checkpoint *checkpoint, rs_occurrences *list);
/* Notes for inspect: names in the pickles that mean nothing here. */
reshard_status rs_torch_note_globals(reshard_checkpoint *checkpoint);

#endif
