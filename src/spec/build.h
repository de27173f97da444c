/* SPDX-License-Identifier: Apache-2.0 */
/*
 * build.h - internals of this folder, shared by the parser and the public constructors. Both ways
 * of making a mesh or a spec end here, so both check the same things.
 */
#ifndef RS_SPEC_BUILD_H
#define RS_SPEC_BUILD_H

#include "spec/scan.h"
#include "spec/spec.h"

/* The ranks of a mesh: listed[p] at position p, or first + p * step if listed is NULL. In the
 * second case the caller makes sure that step >= 1 and that all ranks fit int32_t. */
typedef struct rs_ranks {
    const int32_t *listed;
    int32_t first;
    int32_t step;
} rs_ranks;

reshard_status rs_mesh_build(reshard_context *context, int32_t axis_count, const char *const *names,
                             const int32_t *sizes, const rs_ranks *ranks, reshard_mesh **out_mesh);

/* An axis as error texts call it: its name, or its number if it has none. */
rs_excerpt rs_mesh_axis_words(const reshard_mesh *mesh, int32_t axis);

/* Checks that dim is between -NDIM_MAX and NDIM_MAX-1, so RESHARD_DIM_FLAT does not pass. Errors:
 * RANGE. */
reshard_status rs_dim_check(int64_t dim);
/* Checks a cut, whose axis must exist, and copies it in canonical form, with its arrays, into the
 * arena. */
reshard_status rs_cut_copy_checked(rs_arena *arena, const reshard_mesh *mesh,
                                   const reshard_cut *cut, reshard_cut *out_cut);

/* Sets *out_culprit to the index of the cut at fault, or to -1 if the error is not in a single
 * cut. */
reshard_status rs_spec_build_cuts(reshard_context *context, reshard_mesh *mesh, int32_t cut_count,
                                  const reshard_cut *cuts, int32_t *out_culprit,
                                  reshard_spec **out_spec);

/* Makes an empty spec with one reference. */
reshard_status rs_spec_allocate(reshard_context *context, reshard_spec_kind kind,
                                reshard_spec **out_spec);

/* Builds a spec of kind BOXES or COVER shard by shard, so that a parser need not hold all shards
 * twice. Call init, add any number of shards, then finish; release in any case. */
typedef struct rs_boxes_builder {
    reshard_context *context;
    reshard_spec *spec;
    reshard_shard *shards;
    int64_t shard_count;
    int64_t capacity;
} rs_boxes_builder;

reshard_status rs_boxes_init(rs_boxes_builder *builder, reshard_context *context, int cover,
                             int32_t ndim, const int64_t *shape);
reshard_status rs_boxes_add(rs_boxes_builder *builder, const reshard_shard *shard);
reshard_status rs_boxes_finish(rs_boxes_builder *builder, reshard_spec **out_spec);
void rs_boxes_release(rs_boxes_builder *builder);

/* Parses a mesh and the ":" after it or, with `alone`, a mesh and the end of the text. */
reshard_status rs_parse_mesh(reshard_context *context, rs_scan *scan, rs_arena *scratch, bool alone,
                             reshard_mesh **out_mesh);
/* Parses what follows "boxes" or "cover". */
reshard_status rs_parse_boxes(reshard_context *context, rs_scan *scan, int cover,
                              reshard_spec **out_spec);

/* The box of the shard's buffer that a piece of an `ndim`-dimensional tensor fills. The piece must
 * have passed the checks of rs_shard_copy_checked, except for the last one, that pieces fill the
 * buffer. */
void rs_piece_memory_box(int32_t ndim, const reshard_shard *shard, const reshard_piece *piece,
                         reshard_box *out_box);
/* Checks that the pieces fill the shard's buffer, each element once. Errors: INVALID, naming an
 * element. */
reshard_status rs_shard_check_filled(reshard_context *context, int32_t ndim,
                                     const reshard_shard *shard);

#endif
