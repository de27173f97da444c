/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout.h - who owns which box of a tensor: a spec applied to a shape.
 *
 * A layout is immutable, holds no data and may be shared by threads. Layouts made from cuts are
 * kept as arithmetic: a layout over 131,072 ranks takes a few hundred bytes, and the cost of a
 * question about one rank or one box grows only with the size of its answer. All calls are Local.
 */
#ifndef RESHARD_LAYOUT_H
#define RESHARD_LAYOUT_H

#include <reshard/spec.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ==== simple =====================================================================================
 * From a text to who owns what.
 */

typedef struct reshard_layout reshard_layout;

/* ---- creating -------------------------------------------------------------------------------- */

/* Everything is checked here, so a layout that exists is valid. Errors: INVALID (a dim that does
 * not exist, parts or sizes that do not add up, a shape other than that of the boxes), RANGE
 * (bounds, overflow), OVERLAP, GAP. */
RESHARD_API reshard_status reshard_layout_create(reshard_context *context, reshard_spec *spec,
                                                 int32_t ndim, const int64_t *shape,
                                                 reshard_layout **out_layout);
/* The same from the spec's text. */
RESHARD_API reshard_status reshard_layout_parse(reshard_context *context, const char *spec_text,
                                                int32_t ndim, const int64_t *shape,
                                                reshard_layout **out_layout);
RESHARD_API reshard_layout *reshard_layout_retain(reshard_layout *layout);
RESHARD_API void reshard_layout_release(reshard_layout *layout);

/* ---- queries --------------------------------------------------------------------------------- */

/* Pointers live as long as the layout. */
typedef struct reshard_layout_info {
    size_t size; /* sizeof(reshard_layout_info), set by the caller */
    int32_t ndim;
    const int64_t *shape;
    reshard_spec *spec; /* not retained */
    int32_t rank_count; /* ranks that take part: they own a shard, possibly an empty one */
} reshard_layout_info;
/* Errors: INVALID for a size that no release has. */
RESHARD_API reshard_status reshard_layout_get_info(const reshard_layout *layout,
                                                   reshard_layout_info *out_info);
/* The index-th of the ranks that take part, in increasing order; -1 beyond the last. */
RESHARD_API int32_t reshard_layout_rank_at(const reshard_layout *layout, int32_t index);
/* Whether the shape and all shards are the same, judged by the specs. Layouts that differ are never
 * equal; layouts whose canonical texts are the same always are, no matter from which end dims are
 * counted. */
RESHARD_API int reshard_layout_equals(const reshard_layout *a, const reshard_layout *b);

#define RESHARD_ALL_RANKS INT32_MIN

/* The shards of one rank, or of RESHARD_ALL_RANKS ordered by rank, with their pieces. A rank that
 * takes no part has none. Errors: RANGE if there are more pieces or ranks than can be listed
 * (docs/limits.md); this is found before listing begins. */
typedef struct reshard_shards {
    int64_t count;
    const reshard_shard *items;
} reshard_shards;
RESHARD_API reshard_status reshard_layout_shards(const reshard_layout *layout, int32_t rank,
                                                 reshard_shards **out_shards);
RESHARD_API void reshard_shards_destroy(reshard_shards *shards);

/* ==== explicit ===================================================================================
 * Lists of shards that come from elsewhere: are they a tensor, and which spec describes them?
 */

/* ---- checking lists of shards ---------------------------------------------------------------- */

/* Checks that shards tile a tensor of this shape; shape NULL: only that no two of them overlap,
 * whatever the shape and ndim. Empty shards overlap nothing. Takes O(n log n) time for n shards.
 * Errors: OVERLAP, naming two shards; GAP; RANGE (out of bounds, or a box that no tensor has);
 * INVALID (a wrong number of dims, no shards to tile with). */
RESHARD_API reshard_status reshard_shards_check(reshard_context *context, int32_t ndim,
                                                const int64_t *shape, int64_t count,
                                                const reshard_shard *shards);
/* Finds the simplest spec that describes exactly these shards: `K[ranks]: S(d)` or another single
 * cut if every offset and size agrees with it, otherwise a grid of cuts if one agrees, otherwise
 * boxes. Errors: those of reshard_shards_check. */
RESHARD_API reshard_status reshard_spec_infer(reshard_context *context, int32_t ndim,
                                              const int64_t *shape, int64_t count,
                                              const reshard_shard *shards, reshard_spec **out_spec);
/* The same for the shards of a layout. If its own spec is made of cuts or has overlaps, returns
 * that one. */
RESHARD_API reshard_status reshard_layout_infer(const reshard_layout *layout,
                                                reshard_spec **out_spec);

/* ==== advanced ===================================================================================
 * For programs that show layouts of any size.
 */

/* Like reshard_layout_shards, but with at most piece_max pieces of the shard if the layout is made
 * of cuts, for ranks that have too many to list. *out_piece_count is how many the rank has in all:
 * exact if every dim is cut once, otherwise an estimate. */
RESHARD_API reshard_status reshard_layout_shards_head(const reshard_layout *layout, int32_t rank,
                                                      int64_t piece_max, int64_t *out_piece_count,
                                                      reshard_shards **out_shards);

#ifdef __cplusplus
}
#endif
#endif
