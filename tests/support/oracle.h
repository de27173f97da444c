/* SPDX-License-Identifier: Apache-2.0 */
/*
 * oracle.h - which element lies where, worked out the slow and obvious way.
 *
 * The oracle shares no code with the library. It knows the spec language from its description only:
 * a cut goes through the list of indices that the earlier cuts left to a rank, asks of each index
 * whose it is, and keeps those that are the rank's own. The result is, for every local buffer, the
 * list of global element numbers (row-major) in the order of memory. The library's enums are used
 * as words, nothing else of it is.
 */
#ifndef TESTS_SUPPORT_ORACLE_H
#define TESTS_SUPPORT_ORACLE_H

#include <reshard/spec.h>

#include <stdbool.h>

enum {
    ORACLE_AXES_MAX = 4,
    ORACLE_NUMBERS_MAX = 8,
    ORACLE_RANKS_MAX = 64,
    ORACLE_PIECES_MAX = 6,
    ORACLE_LISTED_MAX = 40,
    ORACLE_TEXT_MAX = 16384
};

/* ---- specs ----------------------------------------------------------------------------------- */

typedef struct oracle_cut {
    int32_t axis;
    reshard_placement_kind kind;
    reshard_reduction reduction;
    int32_t dim; /* as written: may be negative, or RESHARD_DIM_FLAT */
    reshard_shard_rule rule;
    int64_t factor, unit, max; /* 0: not given */
    int32_t count;
    int64_t values[ORACLE_NUMBERS_MAX];
    int64_t part_max[ORACLE_NUMBERS_MAX]; /* 0: not given */
} oracle_cut;

typedef struct oracle_piece {
    int64_t from[RESHARD_NDIM_MAX], to[RESHARD_NDIM_MAX];
    int32_t
        /* 0: no @. One for each dim: place in the shard. One alone: place in a flat shard */
        at_count;
    int64_t at[RESHARD_NDIM_MAX];
} oracle_piece;

typedef struct oracle_listed {
    int32_t rank;
    int32_t piece_count;
    oracle_piece pieces[ORACLE_PIECES_MAX];
} oracle_listed;

typedef struct oracle_spec {
    reshard_spec_kind kind; /* CUTS, BOXES or COVER */

    int32_t axis_count;
    int32_t sizes[ORACLE_AXES_MAX];
    bool named;
    bool default_ranks;
    int32_t ranks[ORACLE_RANKS_MAX];
    bool
        with_at; /* cuts are written with @ in their order; otherwise one for each axis, in order */
    int32_t cut_count;
    oracle_cut cuts[ORACLE_AXES_MAX];

    int32_t ndim;
    int64_t shape[RESHARD_NDIM_MAX];
    int32_t listed_count;
    oracle_listed listed[ORACLE_LISTED_MAX];
} oracle_spec;

int32_t oracle_mesh_size(const oracle_spec *spec);
/* The text form, not necessarily the canonical one. */
void oracle_spec_text(const oracle_spec *spec, char text[ORACLE_TEXT_MAX]);
/* The same spec made by the library's constructors instead of its parser. */
reshard_status oracle_spec_build(const oracle_spec *spec, reshard_context *context,
                                 reshard_spec **out_spec);

/* ---- layouts --------------------------------------------------------------------------------- */

typedef struct oracle_shard {
    int32_t rank, index, ndim;
    int64_t shape[RESHARD_NDIM_MAX];
    int64_t offset[RESHARD_NDIM_MAX];
    bool offset_known; /* false for empty shards of which nothing says where they are */
    bool partial;
    reshard_reduction reduction;
    int32_t contributor, contributor_count;
    int32_t divisor; /* of the sum, for averages */
    int64_t count;
    int64_t *elements; /* global element numbers in the order of memory */
} oracle_shard;

typedef struct oracle_layout {
    int32_t ndim;
    int64_t shape[RESHARD_NDIM_MAX];
    int64_t volume;
    int32_t rank_max; /* -1 when no rank takes part */
    int64_t shard_count;
    oracle_shard *shards; /* by rank, then by index */
} oracle_layout;

/* NULL when the spec does not suit the shape; *out_why then says why. */
oracle_layout *oracle_layout_create(const oracle_spec *spec, int32_t ndim, const int64_t *shape,
                                    const char **out_why);
void oracle_layout_destroy(oracle_layout *layout);

/* True for the one kind of spec that has a meaning but that the library may refuse as unsupported:
 * partial, with limits on single parts of a dim that another axis cuts as well. */
bool oracle_may_be_refused(const oracle_spec *spec);

/* The length of a dim (or of the flat order) that the cuts so far leave to the first rank; -1 when
 * they do not suit the shape. For making further cuts that do. */
int64_t oracle_length_left(const oracle_spec *spec, int32_t ndim, const int64_t *shape,
                           int32_t dim);

/* [rank * volume + element]: how many of the rank's buffers hold the element. rank_count at least
 * rank_max + 1. To be freed. */
uint8_t *oracle_held(const oracle_layout *layout, int32_t rank_count);

int64_t oracle_volume(int32_t ndim, const int64_t *shape);

#endif
