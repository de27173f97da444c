/* SPDX-License-Identifier: Apache-2.0 */
/* torch_files.h - the torch.save files of a checkpoint: opens them and finds their tensors and
 * values by name. For all formats with this file body. */
#ifndef RS_CHECKPOINT_TORCH_TORCH_FILES_H
#define RS_CHECKPOINT_TORCH_TORCH_FILES_H

#include "checkpoint/format/file_names.h"
#include "checkpoint/target/format.h"
#include "checkpoint/torch/torch_file.h"
#include "checkpoint/torch/torch_walk.h"

/* Does a name end in .pt, .pth, .bin or .ckpt? */
bool rs_torch_name_is(const char *name);
/* The name without its ending. */
rs_slice rs_torch_name_stem(const char *name);
/* An rs_file_name_reader for these endings. */
bool rs_torch_name_read(const char *name, rs_file_name *out_name);
/* Is a file of the checkpoint's folder one of torch.save? Errors: as of files. */
reshard_status rs_torch_probe_file(const reshard_checkpoint *checkpoint, const char *name,
                                   bool *out_is);

/* Opens files of the checkpoint's folder and reads their pickles. */
reshard_status rs_torch_open_named(reshard_checkpoint *checkpoint, int64_t count,
                                   char *const *names);
/* Reads the pickle of one file that the store has opened. */
reshard_status rs_torch_open_file(reshard_checkpoint *checkpoint, int32_t file);
const rs_torch_file *rs_torch_opened(const reshard_checkpoint *checkpoint, int32_t file);

/* Calls `take` for all tensors and values of a file. Adds a note if attributes are left out, one
 * for all files that have the same ones. names: as for rs_torch_walk; what is alone in its file
 * has the name of the file unless they say another one. Errors: as rs_torch_walk. */
reshard_status rs_torch_walk_file(reshard_checkpoint *checkpoint, int32_t file,
                                  const rs_torch_root *names, rs_torch_leaf_fn *take, void *user);
/* Finds where a tensor begins: in its own file or, if its storage is compressed, in a file that is
 * added for the content. Errors: as rs_torch_file_place. */
reshard_status rs_torch_locate(reshard_checkpoint *checkpoint, int32_t file,
                               const rs_torch_tensor *tensor, int32_t *out_file, uint64_t *out_at);
/* Keeps the CRCs of all members of an opened file that have not been checked, and will not be. */
reshard_status rs_torch_keep_crcs(reshard_checkpoint *checkpoint, int32_t file,
                                  const rs_torch_file *opened);
/* A leaf of kind TENSOR as an occurrence: a whole tensor, unless the caller says which box it is.
 * Errors: as rs_torch_tensor_read and rs_torch_file_place, naming tensor and file. */
reshard_status rs_torch_occurrence(reshard_checkpoint *checkpoint, int32_t file,
                                   const rs_torch_leaf *leaf, rs_occurrence *out_occurrence);
/* Adds it to a list. */
reshard_status rs_torch_add(reshard_checkpoint *checkpoint, int32_t file, const rs_torch_leaf *leaf,
                            rs_occurrences *list);
/* A file whose tensors are whole. */
typedef struct rs_torch_whole {
    reshard_checkpoint *checkpoint;
    int32_t file;
    rs_occurrences list;
} rs_torch_whole;
/* An rs_torch_leaf_fn for such a file: keeps values and adds tensors to the list. Errors:
 * UNSUPPORTED for parts of DTensors and ShardedTensors. */
reshard_status rs_torch_take_whole(void *whole, const rs_torch_leaf *leaf);
/* Says what a value is by its node: its type, and in short what it holds. */
reshard_status rs_torch_describe(rs_arena *arena, rs_stored_value *value);

/* Keeps a leaf of kind VALUE with the checkpoint. */
reshard_status rs_torch_keep_value(reshard_checkpoint *checkpoint, int32_t file,
                                   const rs_torch_leaf *leaf);

/* Values that the files of several ranks have in common. Initialise with zeros. */
typedef struct rs_torch_common {
    int64_t next; /* index of the checkpoint's value to compare first */
    int64_t differing;
} rs_torch_common;

/* Keeps a value that the files of other ranks may hold as well, once. is_first: this is the first
 * of these files. Counts the value if it differs from the one kept, or if no earlier file has
 * it. */
reshard_status rs_torch_keep_common(reshard_checkpoint *checkpoint, rs_torch_common *common,
                                    int32_t file, bool is_first, const rs_torch_leaf *leaf);
/* Adds a note with the number of values that were counted, if any. */
reshard_status rs_torch_note_common(reshard_checkpoint *checkpoint, const rs_torch_common *common);

/* Sorts by name. Errors: INVALID if two tensors of one file have the same name. */
reshard_status rs_torch_check_names(const reshard_checkpoint *checkpoint, rs_occurrences *list);
/* Adds notes for names in the pickles that have no meaning here, and warnings for those among them
 * that Python would call. */
reshard_status rs_torch_note_globals(reshard_checkpoint *checkpoint);
/* The same for one file. */
reshard_status rs_torch_note_file_globals(reshard_checkpoint *checkpoint, int32_t file);

#endif
