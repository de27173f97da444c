/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spec.h - how a tensor is to be split, as the user describes it: meshes, placements, specs.
 *
 * A spec is a mesh (named axes over ranks) and what each axis does to a tensor. It has no shape;
 * together with a shape it becomes a layout (layout.h). A spec can be written as text or built by
 * calls:
 *
 *   4: S(0)                       four ranks, rows in chunks
 *   tp=4[3,1,0,2]: S(1)           columns; rank 3 has the first chunk
 *   dp=2,tp=4: R, S(-1)           two copies, each cut over four ranks along the last dimension
 *   fsdp=4,tp=2: S(0)@tp, S(0)@fsdp     the same dimension cut twice, tp first
 *   boxes 6x6: 0[0:2,0:4] 1[0:4,4:6] 2[2:6,0:4] 3[4:6,4:6]
 *
 * docs/spec.md describes the whole language. All calls are Local. Meshes and specs are immutable
 * and may be shared by threads; create gives one reference, retain adds one, release drops one.
 */
#ifndef RESHARD_SPEC_H
#define RESHARD_SPEC_H

#include <reshard/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ==== simple =====================================================================================
 * A text makes a spec, and a spec a text.
 */

/* ---- shapes ---------------------------------------------------------------------------------- */

/* "10x7", "5", "scalar". Errors: SYNTAX; RANGE for more than 8 dims or a volume beyond 2^63-1. */
RESHARD_API reshard_status reshard_shape_parse(const char *text, int32_t *out_ndim,
                                               int64_t out_shape[RESHARD_NDIM_MAX]);

/* ---- specs as text --------------------------------------------------------------------------- */

typedef struct reshard_spec reshard_spec;

/* Errors: SYNTAX and others; the error text gives the position in the text. */
RESHARD_API reshard_status reshard_spec_parse(reshard_context *context, const char *text,
                                              reshard_spec **out_spec);

/* The canonical text, which parses back to an equal spec. Writes at most `capacity` bytes, NUL
 * included, and sets *out_length to the length of the whole text without NUL; buffer may be NULL
 * when capacity is 0. Errors: UNSUPPORTED for a callback. */
RESHARD_API reshard_status reshard_spec_text(const reshard_spec *spec, char *buffer,
                                             size_t capacity, size_t *out_length);

RESHARD_API reshard_spec *reshard_spec_retain(reshard_spec *spec);
RESHARD_API void reshard_spec_release(reshard_spec *spec);

/* ==== explicit ===================================================================================
 * The same by calls: meshes, cuts, lists of boxes.
 */

#define RESHARD_AXES_MAX 16 /* axes of a mesh */

/* ---- mesh ------------------------------------------------------------------------------------ */

/* Named axes over ranks, row-major: in `dp=2,tp=4` the position of (dp, tp) is dp*4 + tp, and the
 * rank there equals the position unless other ranks were given. Ranks are distinct; in a mesh of
 * one axis a rank may have several positions, and then owns several chunks: `4[0,0,1,1]: S(0)`. */
typedef struct reshard_mesh reshard_mesh;

/* names: axis_count strings, of which NULL or "" stands for an axis without a name; or NULL if no
 * axis has one. sizes: at least 1 each, with a product of at most 2^31-1. ranks: the rank at each
 * position, all different if there are several axes; or NULL for 0, 1, 2, ... The arrays are
 * copied. Errors: INVALID (bad or repeated name, repeated rank), RANGE. */
RESHARD_API reshard_status reshard_mesh_create(reshard_context *context, int32_t axis_count,
                                               const char *const *names, const int32_t *sizes,
                                               const int32_t *ranks, reshard_mesh **out_mesh);
/* Parses the text form: "tp=4", "dp=2,tp=4[0..7]". Errors: SYNTAX and those of create; the error
 * text gives the position. */
RESHARD_API reshard_status reshard_mesh_parse(reshard_context *context, const char *text,
                                              reshard_mesh **out_mesh);
RESHARD_API reshard_mesh *reshard_mesh_retain(reshard_mesh *mesh);
RESHARD_API void reshard_mesh_release(reshard_mesh *mesh);

/* Pointers live as long as the mesh. */
typedef struct reshard_mesh_info {
    size_t size;            /* sizeof(reshard_mesh_info), set by the caller */
    int32_t position_count; /* the product of the sizes */
    int32_t axis_count;
    const char *const *names; /* "" for an axis without a name */
    const int32_t *sizes;
} reshard_mesh_info;
/* Errors: INVALID for a size that no release has. */
RESHARD_API reshard_status reshard_mesh_get_info(const reshard_mesh *mesh,
                                                 reshard_mesh_info *out_info);
/* The rank at a position, or -1 if there is no such position; the first position of a rank,
 * or -1 if the rank is not in the mesh. */
RESHARD_API int32_t reshard_mesh_rank_at(const reshard_mesh *mesh, int32_t position);
RESHARD_API int32_t reshard_mesh_position_of(const reshard_mesh *mesh, int32_t rank);

/* ---- placements and cuts --------------------------------------------------------------------- */

typedef enum reshard_placement_kind {
    RESHARD_REPLICATE, /* R: every coordinate holds everything */
    /* P(op): every coordinate holds a contribution; the value is the reduction of all of them */
    RESHARD_PARTIAL,
    RESHARD_AT,   /* A(..): whole, at some coordinates only */
    RESHARD_SHARD /* S(..): cut along one dimension, or along the row-major element order */
} reshard_placement_kind;

typedef enum reshard_shard_rule {
    RESHARD_CHUNK,    /* ceil(n/k) each, the last ones shorter or empty */
    RESHARD_BALANCED, /* ~   sizes differ by at most one, larger ones first */
    RESHARD_PACKED,   /* ;   a concatenation of parts, each cut into chunks */
    RESHARD_STRIDED,  /* *q  q chunks, each cut into chunks over the axis */
    RESHARD_RAGGED,   /* =   given sizes */
    RESHARD_CYCLIC    /* /b  blocks of b, dealt out in turn */
} reshard_shard_rule;

#define RESHARD_DIM_FLAT INT32_MIN /* S(flat): cut the row-major order of all elements */

typedef struct reshard_placement {
    reshard_placement_kind kind;
    reshard_reduction reduction; /* PARTIAL */
    int32_t dim;                 /* SHARD: may be negative, or RESHARD_DIM_FLAT */
    reshard_shard_rule rule;     /* SHARD */
    int64_t factor;              /* STRIDED: q. CYCLIC: b. At least 1 */
    int64_t unit;                /* SHARD: cut only at multiples of this; 0 or 1: anywhere */
    int64_t max;                 /* SHARD: at most this many distinct pieces; 0: no limit */
    int32_t count;               /* of values */
    const int64_t *values; /* AT: coordinates, increasing. RAGGED: sizes. PACKED: part lengths */
    /* PACKED: for each part, at most this many distinct pieces (0: no limit); or NULL */
    const int64_t *part_max;
} reshard_placement;

/* What one axis of the mesh does. Cuts apply in the order in which they are listed; axes that are
 * not listed replicate. */
typedef struct reshard_cut {
    int32_t axis;
    reshard_placement placement;
} reshard_cut;

/* ---- boxes and pieces ------------------------------------------------------------------------ */

typedef struct reshard_box {
    int32_t ndim;
    int64_t offset[RESHARD_NDIM_MAX];
    int64_t size[RESHARD_NDIM_MAX];
} reshard_box;

/* A box of the global tensor and where it lies in its shard's memory: `at` is the offset of its
 * first element, and strides are the steps along each dimension of the box, both in elements. */
typedef struct reshard_piece {
    reshard_box box;
    int64_t at;
    int64_t strides[RESHARD_NDIM_MAX];
} reshard_piece;

/* One local buffer of one rank: a dense row-major shape, filled by pieces. */
typedef struct reshard_shard {
    int32_t rank;
    int32_t index; /* position among the shards of its rank, from 0 */
    int32_t ndim;  /* of the buffer: 1 for flat shards, otherwise as the tensor */
    int64_t shape[RESHARD_NDIM_MAX];
    int32_t partial; /* non-zero: the values are contributions to a reduction */
    reshard_reduction reduction;
    int32_t contributor; /* if partial, which contribution this is: 0 .. contributor_count-1 */
    int32_t contributor_count; /* 1 if not partial */
    int32_t divisor;           /* the sum is divided by this: more than 1 only for averages */
    int64_t piece_count;       /* pieces are not empty; an empty shard has none */
    const reshard_piece *pieces;
    /* the lowest index of any piece along each dim; clamped to the tensor for an empty shard */
    int64_t offset[RESHARD_NDIM_MAX];
} reshard_shard;

/* ---- specs by calls -------------------------------------------------------------------------- */

typedef enum reshard_spec_kind {
    RESHARD_SPEC_CUTS,    /* a mesh and cuts */
    RESHARD_SPEC_BOXES,   /* listed shards that tile a tensor */
    RESHARD_SPEC_COVER,   /* listed shards that cover a tensor and may overlap */
    RESHARD_SPEC_CALLBACK /* shards supplied by a function, for any shape */
} reshard_spec_kind;

/* cuts: at most one for each axis; they are copied, together with the arrays they point to. If
 * there is one for each axis, in the order of the axes, the spec prints without @. Errors: INVALID,
 * RANGE, UNSUPPORTED (reductions that do not commute). */
RESHARD_API reshard_status reshard_spec_create(reshard_context *context, reshard_mesh *mesh,
                                               int32_t cut_count, const reshard_cut *cuts,
                                               reshard_spec **out_spec);
/* PyTorch's ChunkShardingSpec: chunk i of dim is on ranks[i] (NULL: on rank i). A rank may have
 * several chunks. */
RESHARD_API reshard_status reshard_spec_chunk(reshard_context *context, int32_t dim, int32_t count,
                                              const int32_t *ranks, reshard_spec **out_spec);
/* PyTorch's EnumerableShardingSpec, and more: any number of shards, each of one or more pieces. Of
 * each shard, only rank, ndim, shape, piece_count and pieces are read; the other fields are
 * computed. cover non-zero: shards may overlap. That shards tile (or cover) the shape is checked
 * when a layout is made. Errors: INVALID, RANGE. */
RESHARD_API reshard_status reshard_spec_boxes(reshard_context *context, int cover, int32_t ndim,
                                              const int64_t *shape, int64_t shard_count,
                                              const reshard_shard *shards, reshard_spec **out_spec);

/* Mesh and cuts, not retained, are those of a spec of kind CUTS; NULL and 0 for other kinds. */
typedef struct reshard_spec_info {
    size_t size; /* sizeof(reshard_spec_info), set by the caller */
    reshard_spec_kind kind;
    reshard_mesh *mesh;
    int32_t cut_count;
    const reshard_cut *cuts; /* in the order in which they apply */
} reshard_spec_info;
/* Errors: INVALID for a size that no release has. */
RESHARD_API reshard_status reshard_spec_get_info(const reshard_spec *spec,
                                                 reshard_spec_info *out_info);

/* ==== advanced ===================================================================================
 * Splits that no text describes.
 */

/* ---- shards by a function -------------------------------------------------------------------- */

/* Called when a layout is made. It supplies the shards by calling reshard_shard_sink_add, in any
 * order; if that fails, it must return its status. */
typedef struct reshard_shard_sink reshard_shard_sink;
typedef reshard_status (*reshard_shards_fn)(void *user, int32_t ndim, const int64_t *shape,
                                            reshard_shard_sink *sink);
RESHARD_API reshard_status reshard_shard_sink_add(reshard_shard_sink *sink,
                                                  const reshard_shard *shard);
/* Makes a spec whose shards the caller's function supplies. It has no text form. forget (may be
 * NULL) is called with `user` at the last release. */
RESHARD_API reshard_status reshard_spec_callback(reshard_context *context, int cover,
                                                 reshard_shards_fn fn, void *user,
                                                 void (*forget)(void *user),
                                                 reshard_spec **out_spec);

#ifdef __cplusplus
}
#endif
#endif
