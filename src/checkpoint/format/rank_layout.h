/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rank_layout.h - the document by which rank files describe themselves, RESHARD_LAYOUT in the
 * metadata of safetensors files, and a record of that name in files of torch.save:
 *
 *   {"version": 2, "rank": 3, "mesh": "tp=4", "conversion": "0123..", "rules": "..",
 *    "groups": [{"shape": [100, 32], "cuts": "S(0)", "padded": [128, 32], "names": [..]}]}
 *
 * It lists the tensors of all ranks, by the names that files give them (names/name_boxes.h): the
 * full shape, the cuts in the language of specs over the mesh, and the shape with padding where
 * that is another. rules is for people only. Files of one conversion have the same id, which
 * depends on the source's files. Version 1, which is still read, has in place of groups
 *
 *   "tensors": {"name": {"shape": [100, 32], "cuts": "S(0)", "padded": [128, 32]}}
 */
#ifndef RS_CHECKPOINT_FORMAT_RANK_LAYOUT_H
#define RS_CHECKPOINT_FORMAT_RANK_LAYOUT_H

#include "checkpoint/body/target.h"

#define RS_LAYOUT_KEY "RESHARD_LAYOUT"

typedef struct rs_rank_tensor {
    rs_slice name;
    int32_t ndim;
    const int64_t *shape;
    const int64_t *padded; /* NULL: as shape */
    rs_slice cuts;
} rs_rank_tensor;

typedef struct rs_rank_layout {
    rs_slice mesh_text, conversion, rules;
    reshard_mesh *mesh;
    int32_t *file_of; /* of the rank at each position of the mesh */
    int64_t tensor_count, tensor_capacity;
    rs_rank_tensor *tensors; /* sorted by name; those of one name come next to each other */
} rs_rank_layout;

/* Reads the documents of all files (bytes NULL: a file without one), which must agree and be one
 * for each rank; they must outlive the layout. The files hold array_count arrays in all, so that
 * there are no more tensors than that. Release in any case. Errors: SYNTAX; UNSUPPORTED for
 * another version; CORRUPT when files do not agree, GAP when some are missing; INVALID when from
 * (may be NULL) is another mesh. */
reshard_status rs_rank_layout_read(reshard_checkpoint *checkpoint, const rs_slice *documents,
                                   int64_t array_count, const char *from, rs_rank_layout *layout);
/* The document of one file alone, of `most` tensors at most, and the rank whose file it is. Errors:
 * the same, but for files that are missing. */
reshard_status rs_rank_layout_read_one(reshard_checkpoint *checkpoint, rs_slice text, int64_t most,
                                       rs_rank_layout *layout, int32_t *out_rank);
void rs_rank_layout_release(rs_rank_layout *layout, reshard_context *context);
/* The spec of a tensor. The caller releases it. */
reshard_status rs_rank_layout_spec(const rs_rank_layout *layout, reshard_context *context,
                                   const rs_rank_tensor *tensor, reshard_spec **out_spec);

/* The canonical text of a mesh, in the arena. */
reshard_status rs_rank_layout_mesh(rs_arena *arena, reshard_mesh *mesh, rs_slice *out_text);

/* Makes what the documents of all files have in common, once the target's tensors are known.
 * as_string: as the inside of a JSON string, so that every file can take it as it is; else as it
 * is. */
reshard_status rs_rank_layout_prepare(rs_laying *laying, bool as_string);
/* The document of a file by itself. */
void rs_rank_layout_write_record(rs_json_writer *writer, const rs_target *target, int32_t file);
/* The document of a file, as a member of __metadata__ with a comma behind it. */
void rs_rank_layout_write(rs_json_writer *writer, const rs_target *target, int32_t file);

#endif
