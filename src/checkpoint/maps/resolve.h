/* SPDX-License-Identifier: Apache-2.0 */
/*
 * resolve.h - how a map is resolved on the names and shapes of one side.
 *
 *  1. Claims (claims.c): every tensor that was read finds the one line, place and alternatives that
 *     it belongs to, and the values of the captures.
 *  2. Members (members.c): the claims of a line that agree in the captures which both sides have in
 *     their names. Other captures are stacked: in names on one side, and an axis on the other.
 *  3. Sizes (sizes.c): shapes, `let` and numbers determine the size of every axis of a member.
 *  4. Targets and links (emit.c): the other side's names and shapes, and a link between each tensor
 *     that was read and each target of a member.
 *  5. Constants and copies (constants.c), which only one side has.
 *  6. States of optimizers (states.c), which take the links of their parameters.
 *
 * Invariant: within a member, link space is the product of all axes. Each tensor is that product
 * with stacked axes and sums fixed, so the links of a member are a bijection between the elements
 * of its sources and of its targets. result.c adds up the volumes once more.
 */
#ifndef RS_CHECKPOINT_MAPS_RESOLVE_H
#define RS_CHECKPOINT_MAPS_RESOLVE_H

#include "base/table.h"
#include "checkpoint/maps/map.h"
#include "checkpoint/maps/maps.h"

/* ---- results --------------------------------------------------------------------------------- */

typedef struct rs_map_source {
    rs_slice name;
    reshard_dtype dtype;
    int32_t ndim;
    const int64_t *shape;
    int64_t volume, used; /* elements, and those that go into targets */
    reshard_map_use use;
} rs_map_source;

/* Axes that many links share. */
typedef struct rs_map_axes {
    int32_t count;
    int64_t volume;
    reshard_link_axis *axes;
} rs_map_axes;

typedef struct rs_map_link {
    int64_t source, target;
    const rs_map_axes *axes;
    const int64_t *source_at, *target_at; /* as many as the tensors have dims */
} rs_map_link;

struct reshard_map_result {
    reshard_context *context;
    rs_arena arena; /* holds names, shapes, and what links point to */
    int64_t source_count;
    rs_map_source *sources;
    int64_t target_count, target_capacity;
    reshard_map_target *targets;
    int64_t link_count, link_capacity;
    rs_map_link *links;
};

/* ---- while resolving ------------------------------------------------------------------------- */

/* What one tensor that was read belongs to. */
typedef struct rs_map_claim {
    int32_t line; /* -1: none yet */
    int32_t place;
    uint32_t alternatives; /* bit i: alternative i of the place has this name */
    int64_t next;          /* the next claim of the same member; -1: none */
    int64_t values[RS_MAP_CAPTURES_MAX];
} rs_map_claim;

typedef struct rs_map_member {
    int32_t line;
    uint32_t family;                   /* captures that both sides have in their names */
    uint8_t chosen[RS_MAP_PLACES_MAX]; /* the alternative of each place that is written */
    int64_t values[RS_MAP_CAPTURES_MAX];
    int64_t first, last; /* claims */
} rs_map_member;

typedef struct rs_map_resolver {
    const reshard_map *map;
    reshard_context *context;
    reshard_map_result *result;
    int from, to; /* sides */
    const rs_rules_keys *keys;
    const rs_map_state *states;                               /* NULL: there are none */
    int64_t bounds[RS_MAP_NAMES_MAX], lets[RS_MAP_NAMES_MAX]; /* -1: no value */
    rs_table names;                                           /* of sources: index + 1 */
    rs_table made;                                            /* of targets: index + 1 */
    rs_table texts;                                           /* values of WORD and TEXT */
    int64_t text_count, text_capacity;
    rs_slice *text_values;
    rs_map_claim *claims; /* one for each source */
    rs_table keyed;       /* members: index + 1 */
    int64_t member_count, member_capacity;
    rs_map_member *members;
    const char *file, *file_kept; /* of the last target's line, and its copy in the result */
} rs_map_resolver;

/* Fails with the line in front. */
reshard_status rs_map_fail_line(const rs_map_line *line, reshard_status status, const char *format,
                                ...) RS_PRINTF(3, 4);
reshard_status rs_map_hint_line(const rs_map_line *line, reshard_status status, reshard_hint hint,
                                const char *format, ...) RS_PRINTF(4, 5);

/* The values that numbers of a line may refer to. */
typedef struct rs_map_words {
    const rs_map_resolver *resolver;
    const rs_map_line *line;
    uint32_t known; /* captures with a value */
    const int64_t *values;
} rs_map_words;
rs_number_scope rs_map_scope(rs_map_words *words);

/* The value of `for`, or -1. */
int64_t rs_map_bound(const rs_map_resolver *r, rs_slice name);
/* The value of `let`, or -1. */
int64_t rs_map_let(const rs_map_resolver *r, rs_slice name);
/* Writes a name; the result is in the arena and ends in a NUL. */
reshard_status rs_map_make_name(rs_map_resolver *r, const rs_map_line *line,
                                const rs_map_pattern *pattern, const int64_t *values,
                                rs_slice *out_name);
/* Whether conditions hold for these values. out_is_open may be NULL. */
reshard_status rs_map_holds(rs_map_resolver *r, const rs_map_line *line, const rs_map_term *term,
                            uint32_t known, const int64_t *values, bool *out_holds,
                            bool *out_is_open);
/* The same for all terms of a line that have no alternatives. */
reshard_status rs_map_line_holds(rs_map_resolver *r, const rs_map_line *line, uint32_t known,
                                 const int64_t *values, bool *out_holds);

reshard_status rs_map_find_claims(rs_map_resolver *r);
reshard_status rs_map_find_members(rs_map_resolver *r);
/* Checks that no number below a bound of `for` is missing. */
reshard_status rs_map_check_members(rs_map_resolver *r);
reshard_status rs_map_emit_member(rs_map_resolver *r, const rs_map_member *member);
reshard_status rs_map_emit_rest(rs_map_resolver *r, int64_t source);
/* Adds targets that only the written side has, and looks at what only the read side has. */
reshard_status rs_map_emit_constants(rs_map_resolver *r);

/* Whether a tensor that was read is a state. */
bool rs_map_is_state(const rs_map_resolver *r, int64_t source);
reshard_status rs_map_emit_states(rs_map_resolver *r);

/* Adds a target whose name nothing else has. */
reshard_status rs_map_add_target(rs_map_resolver *r, const rs_map_line *line,
                                 const reshard_map_target *target);
reshard_status rs_map_add_link(rs_map_resolver *r, const rs_map_link *link);

/* Adds an axis of a link, in the order of the target. */
void rs_map_add_axis(reshard_link_axis *axes, int32_t *count, reshard_link_axis axis);
/* Joins neighbours that continue each other on both sides. Returns how many axes are left. */
int32_t rs_map_join_axes(reshard_link_axis *axes, int32_t count);

/* Goes through all values of some captures: numbers below their bounds, places of lists. */
typedef reshard_status (*rs_map_values_fn)(void *user, const int64_t *values);
reshard_status rs_map_each_value(const rs_map_resolver *r, const rs_map_line *line,
                                 uint32_t captures, int64_t *values, rs_map_values_fn fn,
                                 void *user);

/* ---- sizes ----------------------------------------------------------------------------------- */

typedef struct rs_map_sizes {
    const reshard_map *map;
    const rs_map_line *line;
    int64_t axes[RS_MAP_AXES_MAX]; /* -1: not known yet */
    int32_t rest_count;            /* -1: not known yet */
    int64_t rest[RESHARD_NDIM_MAX];
} rs_map_sizes;

/* Numbers and `let`. */
void rs_map_sizes_init(rs_map_sizes *sizes, const rs_map_resolver *r, const rs_map_line *line);
/* Learns from the shape of a tensor. *out_learned: something new. Errors: INVALID, with both
 * numbers. */
reshard_status rs_map_sizes_learn(rs_map_sizes *sizes, const rs_map_term *term,
                                  const rs_map_source *source, bool *out_learned);
/* Errors: NOT_FOUND for an axis without a size, RANGE. */
reshard_status rs_map_sizes_shape(const rs_map_sizes *sizes, const rs_map_term *term,
                                  int32_t *out_ndim, int64_t *shape);

/* Where the axes of a line lie in a tensor: along which dim, with which step. */
typedef struct rs_map_location {
    int32_t dim[RS_MAP_AXES_MAX]; /* -1: nowhere */
    int64_t step[RS_MAP_AXES_MAX];
    int32_t rest_dim;             /* the first further dimension; -1: none */
    int64_t at[RESHARD_NDIM_MAX]; /* where the block begins */
} rs_map_location;
void rs_map_sizes_locate(const rs_map_sizes *sizes, const rs_map_term *term, int32_t block,
                         rs_map_location *out_location);

#endif
