/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rank_layout.h - the document in which rank files describe their split: RESHARD_LAYOUT in the
 * metadata of safetensors files, and a record of that name in torch.save files:
 *
 *   {"version": 2, "rank": 3, "mesh": "tp=4", "conversion": "0123..", "rules": "..",
 *    "groups": [{"shape": [100, 32], "cuts": "S(0)", "padded": [128, 32], "names": [..]}]}
 *
 * It lists the tensors of all ranks, under their names in the files (names/name_boxes.h): the full
 * shape, the cuts over the mesh in the language of specs, the shape with padding if that differs,
 * and "zeros": 1 if ranks that the cuts leave out hold zeros in the tensor's place. "rules" is for
 * people only. All files of one conversion have the same id, "conversion", which depends on the
 * source's files. Version 1, which is still read, has in place of groups
 *
 *   "tensors": {"name": {"shape": [100, 32], "cuts": "S(0)", "padded": [128, 32]}}
 */
#ifndef RS_CHECKPOINT_FORMAT_RANK_LAYOUT_H
#define RS_CHECKPOINT_FORMAT_RANK_LAYOUT_H

#include "checkpoint/target/target.h"

#define RS_LAYOUT_KEY "RESHARD_LAYOUT"

typedef struct rs_rank_tensor {
    rs_slice name;
    int32_t ndim;
    const int64_t *shape;
    const int64_t *padded; /* NULL: the same as shape */
    rs_slice cuts;
    bool zeros; /* ranks that do not have it hold zeros in its place */
} rs_rank_tensor;

typedef struct rs_rank_layout {
    rs_slice mesh_text, conversion, rules;
    reshard_mesh *mesh;
    int32_t *file_of; /* by position in the mesh: the rank's file */
    int64_t tensor_count, tensor_capacity;
    rs_rank_tensor *tensors; /* sorted by name; equal names are adjacent */
} rs_rank_layout;

/* Reads the documents of all files (bytes NULL: a file without one). They must agree, and there
 * must be one for each rank; they must outlive the layout. array_count, the number of arrays in all
 * files, limits the number of tensors. Release the layout in any case. Errors: SYNTAX; UNSUPPORTED
 * for another version; CORRUPT if files do not agree; GAP if some are missing; INVALID if `from`
 * (may be NULL) is another mesh. */
reshard_status rs_rank_layout_read(reshard_checkpoint *checkpoint, const rs_slice *documents,
                                   int64_t array_count, const char *from, rs_rank_layout *layout);
/* Reads the document of one file alone, with at most `most` tensors, and the rank whose file it is.
 * Errors: the same, but missing files are no error. */
reshard_status rs_rank_layout_read_one(reshard_checkpoint *checkpoint, rs_slice text, int64_t most,
                                       rs_rank_layout *layout, int32_t *out_rank);
void rs_rank_layout_release(rs_rank_layout *layout, reshard_context *context);
/* Makes the spec of a tensor, which the caller releases. */
reshard_status rs_rank_layout_spec(const rs_rank_layout *layout, reshard_context *context,
                                   const rs_rank_tensor *tensor, reshard_spec **out_spec);

/* Makes the canonical text of a mesh, in the arena. */
reshard_status rs_rank_layout_mesh(rs_arena *arena, reshard_mesh *mesh, rs_slice *out_text);

/* Makes the part that the documents of all files share, once the target's tensors are known.
 * as_string: escaped as the inside of a JSON string, so that files can include it unchanged. */
reshard_status rs_rank_layout_prepare(rs_laying *laying, bool as_string);
/* Writes the document of a file by itself. */
void rs_rank_layout_write_record(rs_json_writer *writer, const rs_target *target, int32_t file);
/* Writes the document of a file as a member of __metadata__, followed by a comma. */
void rs_rank_layout_write(rs_json_writer *writer, const rs_target *target, int32_t file);

#endif
