/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spec.h - the structs of meshes and specs, for the layers above. Both are immutable once made.
 */
#ifndef RS_SPEC_SPEC_H
#define RS_SPEC_SPEC_H

#include <reshard/spec.h>

#include "base/arena.h"
#include "base/export.h"
#include "base/references.h"
#include "text/text.h"

#include <stdbool.h>

struct reshard_mesh {
    reshard_context *context;
    rs_references references;
    int32_t axis_count;
    char **names; /* "" for an axis without a name; in the arena */
    int32_t sizes[RESHARD_AXES_MAX];
    int32_t strides[RESHARD_AXES_MAX]; /* position = sum of coordinate * stride */
    int32_t size;
    /* The rank at position p is listed[p], or first + p * step if listed is NULL. */
    int32_t first, step;
    int32_t *listed;
    int32_t *by_rank; /* positions sorted by rank, then by position; NULL if listed is */
    bool repeated;    /* some rank has several positions; only in a mesh of one axis */
    rs_arena arena;
};

/* A copy of the mesh with other ranks: ranks[p] at position p. Used by relabelling. */
reshard_status rs_mesh_with_ranks(const reshard_mesh *mesh, const int32_t *ranks,
                                  reshard_mesh **out_mesh);
/* The axis with that name, or -1. */
int32_t rs_mesh_find_axis(const reshard_mesh *mesh, const char *name);
/* Errors: INVALID if a rank has several positions. */
RS_EXPORT reshard_status rs_mesh_check_distinct(const reshard_mesh *mesh);
/* Prints a mesh, such as "dp=2,tp=4[0..3,8..11]"; the ranks are left out if they are 0..size-1. */
void rs_mesh_text(const reshard_mesh *mesh, rs_text *text);

/* Parses the cuts of a spec without its mesh, such as "S(0, unit=8)". Errors do not name the
 * mesh. */
RS_EXPORT reshard_status rs_cut_parse(reshard_context *context, reshard_mesh *mesh,
                                      const char *text, reshard_spec **out_spec);

struct reshard_spec {
    reshard_context *context;
    rs_references references;
    reshard_spec_kind kind;
    rs_arena arena; /* owns every array below */

    /* CUTS */
    reshard_mesh *mesh;
    int32_t cut_count;
    reshard_cut *cuts; /* in the order in which they apply; no axis occurs twice */

    /* BOXES, COVER: each shard's memory is dense and filled by its pieces. */
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

/* Checks one shard of a tensor of `ndim` dimensions for BOXES, COVER and CALLBACK: boxes inside the
 * shape, sizes not negative, pieces that fill the shard's memory exactly. Copies the shard and its
 * pieces into the arena, leaving out empty pieces. Sets the offset, and leaves the index to the
 * caller. */
reshard_status rs_shard_copy_checked(rs_arena *arena, int32_t ndim, const int64_t *shape,
                                     const reshard_shard *shard, reshard_shard *out_shard);

#endif
