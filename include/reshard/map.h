/* SPDX-License-Identifier: Apache-2.0 */
/*
 * map.h - maps: which numbers of one naming of a model are which numbers of another (advanced).
 *
 * Training and serving name, fuse, stack and permute the same weights differently. A map relates
 * two namings by equations between tensors, line by line; docs/maps.md describes the language:
 *
 *     layers.{n}.{gate,up}.weight [f i] = layers.{n}.gate_up.weight [(f + f) i]
 *
 * Resolving a map on the names and shapes of one side gives the tensors of the other side, and the
 * links (plan.h) that fill them. A plan takes these links as they are. Maps and results are
 * immutable and may be shared by threads. All calls are Local.
 */
#ifndef RESHARD_MAP_H
#define RESHARD_MAP_H

#include <reshard/plan.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ==== advanced ===================================================================================
 * Most programs name a naming or a map in options instead (conversion.h, checkpoint.h); these calls
 * are for those who plan with the links themselves.
 */

typedef enum reshard_map_side { RESHARD_MAP_LEFT, RESHARD_MAP_RIGHT } reshard_map_side;

/* ---- maps ------------------------------------------------------------------------------------ */

typedef struct reshard_map reshard_map;

typedef struct reshard_map_options {
    size_t size; /* sizeof(reshard_map_options) */
    /* begins error texts ("hf-vllm.map:3:14: .."); NULL: "map" */
    const char *file_name;
    /* Finds the text of a map that a line `use NAME` asks for: returns it with its length, or NULL
     * if there is none. It must stay valid during the call of reshard_map_parse. */
    const char *(*find)(void *user, const char *name, size_t *out_bytes);
    void *user;
} reshard_map_options;

/* text: `bytes` bytes, which are copied. options NULL: all zero. Errors: SYNTAX, RANGE and others,
 * with line and column. */
RESHARD_API reshard_status reshard_map_parse(reshard_context *context, const char *text,
                                             size_t bytes, const reshard_map_options *options,
                                             reshard_map **out_map);
RESHARD_API void reshard_map_release(reshard_map *map);
/* The naming on one side: "hf". Empty if the map does not say. */
RESHARD_API const char *reshard_map_naming(const reshard_map *map, reshard_map_side side);
/* For programs that show a map: the canonical text, which parses back. Lines of used maps and lists
 * like {k,v} are written out. Writes at most `capacity` bytes, with a NUL, and sets the full
 * length. */
RESHARD_API reshard_status reshard_map_print(const reshard_map *map, char *buffer, size_t capacity,
                                             size_t *out_length);

/* ---- resolving ------------------------------------------------------------------------------- */

typedef struct reshard_map_tensor {
    const char *name;
    reshard_dtype dtype;
    int32_t ndim;
    const int64_t *shape;
} reshard_map_tensor;

typedef struct reshard_map_resolve_options {
    size_t size; /* sizeof(reshard_map_resolve_options) */
    /* Values of $keys: "key=value" each, then config.json in this folder. Both may be left out. */
    int32_t set_count;
    const char *const *sets;
    const char *config_folder;
} reshard_map_resolve_options;

typedef struct reshard_map_result reshard_map_result;

/* For programs that plan by a map of their own. Reads the tensors as those of one side. They, and
 * their names, are copied. options NULL: all zero. Errors: NOT_FOUND (a tensor without a line, a
 * line without a tensor, a size that stays open), INVALID (shapes that do not fit, two lines that
 * claim one name), RANGE; the text names line, tensor and numbers. */
RESHARD_API reshard_status reshard_map_resolve(reshard_map *map, reshard_map_side side,
                                               int64_t tensor_count,
                                               const reshard_map_tensor *tensors,
                                               const reshard_map_resolve_options *options,
                                               reshard_map_result **out_result);
RESHARD_API void reshard_map_result_destroy(reshard_map_result *result);

typedef enum reshard_map_origin {
    RESHARD_MAP_LINKS, /* filled by links, every element exactly once */
    RESHARD_MAP_FILL,  /* every element is `value` */
    RESHARD_MAP_COPY,  /* a second copy of target `copied`, by the same links */
    RESHARD_MAP_OBJECT /* no tensor, but an empty object */
} reshard_map_origin;

/* A tensor of the other side. */
typedef struct reshard_map_target {
    size_t size; /* sizeof(reshard_map_target), set by the caller */
    const char *name;
    reshard_dtype dtype;
    int32_t ndim;
    const int64_t *shape;
    reshard_map_origin origin;
    double value;   /* FILL */
    int64_t copied; /* COPY */
    double added;   /* to every element on its way; 0: nothing */
    int64_t link_first, link_count;
    int32_t line;     /* of the map */
    const char *file; /* which that line is in: the map, or one that it uses */
} reshard_map_target;

typedef struct reshard_map_result_info {
    size_t size; /* sizeof(reshard_map_result_info), set by the caller */
    int64_t target_count, link_count;
} reshard_map_result_info;
/* For programs that plan by a map of their own. Errors: INVALID for a size that no release has. */
RESHARD_API reshard_status reshard_map_result_get_info(const reshard_map_result *result,
                                                       reshard_map_result_info *out_info);
/* Errors: RANGE. */
RESHARD_API reshard_status reshard_map_result_target(const reshard_map_result *result,
                                                     int64_t index, reshard_map_target *out_target);
/* For programs that plan with the links: link `index` of the result, from a tensor that was read to
 * a target, by their indices. Set its size before the call. Errors: RANGE. */
RESHARD_API reshard_status reshard_map_result_link(const reshard_map_result *result, int64_t index,
                                                   reshard_strided_link *out_link);

typedef enum reshard_map_fate {
    RESHARD_MAP_USED,     /* every element goes into a target, except for `surplus` ones */
    RESHARD_MAP_DROPPED,  /* `drop`, or an object */
    RESHARD_MAP_EXPECTED, /* `fill`: every element must be `value`, and is left out */
    RESHARD_MAP_REPEATED  /* `copy`: must equal tensor `same_as`, and is left out */
} reshard_map_fate;

/* What becomes of a tensor that was read. */
typedef struct reshard_map_use {
    size_t size; /* sizeof(reshard_map_use), set by the caller */
    reshard_map_fate fate;
    double value;    /* EXPECTED */
    int64_t same_as; /* REPEATED */
    int64_t surplus; /* elements that pad() cuts off */
    int32_t line;    /* of the map */
} reshard_map_use;

/* Errors: RANGE. */
RESHARD_API reshard_status reshard_map_result_use(const reshard_map_result *result, int64_t tensor,
                                                  reshard_map_use *out_use);

#ifdef __cplusplus
}
#endif
#endif
