/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout.h - the struct of layouts, and the questions that the planner asks.
 *
 * A regular layout, made from cuts, is one chain of cuts for each dim, and perhaps one more (flat)
 * that cuts the row-major order of what the others leave. A listed layout, made from boxes, is an
 * array of shards and a partition of the tensor into cells, each held by the same shards
 * throughout, with an index to find them.
 *
 * Both answer in regions: boxes that one set of holders has in common. The regions of a layout are
 * disjoint and do not depend on who asks. That is what lets both ends of a transfer compute the
 * same moves.
 */
#ifndef RS_LAYOUT_LAYOUT_H
#define RS_LAYOUT_LAYOUT_H

#include <reshard/layout.h>

#include "base/arena.h"
#include "base/export.h"
#include "base/references.h"
#include "layout/chain.h"
#include "layout/index.h"
#include "spec/spec.h"

#include <stdbool.h>

typedef enum rs_axis_role {
    RS_AXIS_COPIES,  /* R: all coordinates hold the same elements */
    RS_AXIS_AT,      /* A: the listed coordinates hold the same elements, the others nothing */
    RS_AXIS_PARTIAL, /* P: each coordinate holds a contribution */
    RS_AXIS_CUT      /* S: the axis cuts, as part of one of the chains */
} rs_axis_role;

typedef struct rs_axis {
    rs_axis_role role;
    int32_t size, stride; /* of the axis in the mesh */
    int32_t at_count;     /* AT: number of coordinates */
    const int64_t *at;    /* AT: the coordinates, increasing */
} rs_axis;

/* One of the pieces that hold a cell; listed layouts only. */
typedef struct rs_cell_holder {
    int64_t shard; /* index into layout->shards */
    int64_t piece; /* index into the shard's pieces */
} rs_cell_holder;

typedef struct rs_cell {
    int64_t start[RESHARD_NDIM_MAX];
    int64_t size[RESHARD_NDIM_MAX];
    /* index into layout->cell_holders, where a cell's holders are ordered by shard */
    int64_t first_holder;
    int64_t holder_count;
} rs_cell;

struct reshard_layout {
    reshard_context *context;
    rs_references references;
    rs_arena arena; /* owns the arrays below */
    reshard_spec *spec;
    int32_t ndim;
    int64_t shape[RESHARD_NDIM_MAX];
    int64_t volume;
    uint64_t digest[2]; /* of spec and shape */
    bool listed;
    int32_t rank_count;   /* number of ranks that own a shard */
    const int32_t *ranks; /* increasing; NULL if the mesh is evenly spaced and ranks are computed */

    /* regular layouts */
    const reshard_mesh *mesh;
    int32_t axis_count;
    rs_axis axes[RESHARD_AXES_MAX];
    rs_chain dims[RESHARD_NDIM_MAX];
    rs_chain flat; /* count is 0 if there is no flat cut */
    bool partial;
    reshard_reduction reduction;
    int32_t contributor_count;
    int32_t divisor;

    /* listed layouts */
    int64_t shard_count;
    const reshard_shard *shards; /* ordered by rank, then by index */
    int64_t cell_count;
    const rs_cell *cells;
    const rs_cell_holder *cell_holders;
    /* The cell of each shard's first piece; those of its other pieces follow. NULL if shards may
     * overlap, because pieces are not cells then. */
    const int64_t *first_cells;
    rs_index cell_index;
};

/* ---- regions --------------------------------------------------------------------------------- */

typedef struct rs_region {
    const reshard_layout *layout;
    int64_t start[RESHARD_NDIM_MAX];
    int64_t size[RESHARD_NDIM_MAX];
    /* The holders. In a regular layout they are the coordinates first .. first+count-1 of each
     * axis; for an AT axis, the coordinates with these indices in its list. */
    int32_t first[RESHARD_AXES_MAX];
    int32_t count[RESHARD_AXES_MAX];
    int64_t cell; /* index into layout->cells; listed layouts only */
} rs_region;

/* One holder: a shard of a rank. `copy` numbers the holders of the same contribution. */
typedef struct rs_holder {
    int32_t rank;
    int32_t shard; /* index into the rank's shards */
    int32_t contributor;
    int64_t copy;
} rs_holder;

/* Where a region's first element lies in a holder's shard, and the stride of each dim. */
typedef struct rs_place {
    int64_t at;
    int64_t strides[RESHARD_NDIM_MAX];
} rs_place;

typedef reshard_status (*rs_region_fn)(void *user, const rs_region *region);
typedef reshard_status (*rs_held_fn)(void *user, const rs_region *region, const rs_holder *holder);

/* Visits the regions that touch a box, clipped to the box. Takes time proportional to their
 * number. */
reshard_status rs_layout_visit(const reshard_layout *layout, const int64_t *start,
                               const int64_t *size, rs_region_fn fn, void *user);
/* Visits the regions that one rank holds. */
reshard_status rs_layout_visit_held(const reshard_layout *layout, int32_t rank, rs_held_fn fn,
                                    void *user);

/* The region as it was before it was clipped. */
void rs_region_whole(const rs_region *region, int64_t *out_start, int64_t *out_size);
/* The number of holders of one contribution. */
int64_t rs_region_copy_count(const rs_region *region);
void rs_region_holder(const rs_region *region, int32_t contributor, int64_t copy,
                      rs_holder *out_holder);
/* The first holder on this rank; false if the rank does not hold the region. */
bool rs_region_find(const rs_region *region, int32_t rank, rs_holder *out_holder);
/* Where element `start`, which must be inside the region, lies in the holder's shard. */
void rs_region_place(const rs_region *region, const rs_holder *holder, const int64_t *start,
                     rs_place *out_place);

/* ---- other queries --------------------------------------------------------------------------- */

/* The coordinates of a rank in a regular layout; false if it is not in the mesh, or A leaves it
 * out. */
RS_EXPORT bool rs_layout_coordinates(const reshard_layout *layout, int32_t rank,
                                     int32_t *out_coordinates);
/* The coordinates of the axes that a chain's cuts use, one for each level. */
void rs_chain_coordinates(const rs_chain *chain, const int32_t *coordinates, int32_t *out_by_level);
/* The number of elements of the largest shard. */
int64_t rs_layout_shard_volume_max(const reshard_layout *layout);
/* The number of shards of one rank, of their elements (at most INT64_MAX, as copies may have more),
 * and of the elements of one shard. */
RS_EXPORT int64_t rs_layout_shard_count(const reshard_layout *layout, int32_t rank);
int64_t rs_layout_shard_volume(const reshard_layout *layout, int32_t rank);
int64_t rs_layout_one_shard_volume(const reshard_layout *layout, int32_t rank, int32_t index);
/* The number of elements of all shards of all ranks, counting every copy and contribution; at most
 * INT64_MAX. */
int64_t rs_layout_shard_volume_sum(const reshard_layout *layout);
/* Estimates the number of pieces that a rank has, without enumerating them; at most INT64_MAX.
 * Exact for a listed layout, and if each dim is cut once and nothing is cut flat. */
int64_t rs_layout_piece_estimate(const reshard_layout *layout, int32_t rank);
/* Whether two layouts are equal, by their digests. */
/* The highest rank that takes part; -1 if none does. */
RS_EXPORT int32_t rs_layout_rank_max(const reshard_layout *layout);

RS_EXPORT bool rs_layout_same(const reshard_layout *a, const reshard_layout *b);
/* Rank from[i] becomes to[i]. `from` is increasing; ranks that are not in it keep their number. */
typedef struct rs_rank_map {
    int32_t count;
    const int32_t *from, *to;
} rs_rank_map;
/* The layout with other ranks. The map must not give two ranks of the layout the same number. */
reshard_status rs_layout_map_ranks(const reshard_layout *layout, const rs_rank_map *map,
                                   reshard_layout **out_layout);

/* ---- internal to this folder ----------------------------------------------------------------- */

/* The index of a coordinate among those that the axis allows, or -1 if A leaves it out. */
int32_t rs_axis_index(const rs_axis *axis, int32_t coordinate);

reshard_status rs_regular_init(reshard_layout *layout);
reshard_status rs_regular_visit(const reshard_layout *layout, const int64_t *start,
                                const int64_t *size, rs_region_fn fn, void *user);
reshard_status rs_regular_visit_held(const reshard_layout *layout, int32_t rank, rs_held_fn fn,
                                     void *user);
/* The shard of one rank with its pieces, or the first piece_max of them, in the arena. *out_count
 * is 0 if the rank has no shard, otherwise 1. */
reshard_status rs_regular_shard(const reshard_layout *layout, int32_t rank, int64_t piece_max,
                                rs_arena *arena, reshard_shard *out_shard, int64_t *out_count);
/* The shards of all ranks, in the arena. Errors: RANGE if there are too many pieces to list. */
reshard_status rs_regular_shards(const reshard_layout *layout, rs_arena *arena,
                                 reshard_shard **out_shards, int64_t *out_count);
/* Whether some copies do not share a box exactly (packed parts with |m under another cut), so that
 * the layout cannot be kept as arithmetic. */
bool rs_regular_is_tangled(const reshard_layout *layout);

/* Makes a listed layout of shards that are in the layout's arena, and checks that they tile (or
 * cover) the shape. */
reshard_status rs_listed_init(reshard_layout *layout, int64_t shard_count, reshard_shard *shards,
                              bool cover);

/* The index of the first shard of this rank or a higher one. */
int64_t rs_listed_first_shard(const reshard_layout *layout, int32_t rank);

/* Divides the shape into cells by the pieces of all shards. Errors: GAP, naming a box; RANGE if
 * there are too many cells. */
reshard_status rs_cells_build(reshard_layout *layout);

#endif
