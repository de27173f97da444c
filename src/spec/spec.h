/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spec.h - what meshes and specs are made of, for the layers above. Both are immutable once made.
 */
#ifndef RS_SPEC_SPEC_H
#define RS_SPEC_SPEC_H

#include <reshard/spec.h>

#include "base/arena.h"
#include "base/export.h"
#include "system/thread.h"
#include "text/text.h"

#include <stdbool.h>

struct reshard_mesh {
    reshard_context *context;
    rs_references references;
    int32_t axis_count;
    char **names; /* "" for none; all in one block with the mesh's arena */
    int32_t sizes[RESHARD_AXES_MAX];
    int32_t strides[RESHARD_AXES_MAX]; /* position = sum of coordinate * stride */
    int32_t size;
    /* Ranks: when listed is NULL, the rank at position p is first + p * step; otherwise
     * listed[p]. */
    int32_t first, step;
    int32_t *listed;
    int32_t *by_rank; /* positions sorted by their rank, then by number; NULL when listed is */
    bool repeated;    /* a rank has several positions; one axis only */
    rs_arena arena;
};

/* The mesh with other ranks: ranks[p] at position p. Used by relabelling. */
reshard_status rs_mesh_with_ranks(const reshard_mesh *mesh, const int32_t *ranks,
                                  reshard_mesh **out_mesh);
/* Errors: INVALID if a rank has several positions. */
RS_EXPORT reshard_status rs_mesh_check_distinct(const reshard_mesh *mesh);
/* "dp=2,tp=4[0..3,8..11]": ranks only where they are not 0..size-1. */
void rs_mesh_text(const reshard_mesh *mesh, rs_text *text);

/* The cuts of a spec alone, without the mesh: "S(0, unit=8)". Errors name no mesh. */
reshard_status rs_cut_parse(reshard_context *context, reshard_mesh *mesh, const char *text,
                            reshard_spec **out_spec);

struct reshard_spec {
    reshard_context *context;
    rs_references references;
    reshard_spec_kind kind;
    rs_arena arena; /* owns every array below */

    /* CUTS */
    reshard_mesh *mesh;
    int32_t cut_count;
    reshard_cut *cuts; /* in the order they apply; no axis twice */

    /* BOXES, COVER: shape and shards, each shard dense and tiled by its pieces. */
    int32_t ndim;
    int64_t shape[RESHARD_NDIM_MAX];
    int64_t shard_count;
    reshard_shard *shards;

    /* CALLBACK */
    int cover;
    reshard_shards_fn fn;
    void *user;
    void (*forget)(void *user);
};

/* Checks one shard of a tensor of `ndim` dimensions as BOXES, COVER and CALLBACK take it (box
 * inside the shape, sizes not negative, pieces dense in the shard's memory, no two of them on the
 * same place), and copies it with its pieces into the arena, empty pieces left out. Fills in
 * offset, and leaves index to the caller. */
reshard_status rs_shard_copy_checked(rs_arena *arena, int32_t ndim, const int64_t *shape,
                                     const reshard_shard *shard, reshard_shard *out_shard);

#endif
