/* SPDX-License-Identifier: Apache-2.0 */
/*
 * map.h - a parsed map: lines, terms, names with captures, and axes (docs/maps.md).
 *
 * A line has two sides, a side has places, and a place has alternatives, which are terms. Captures
 * and axes are numbered by line: the same number is the same capture or axis in all its terms. A
 * capture that some term uses as an axis is both, and the axis knows it.
 *
 * Invariants of a parsed line, with terms a and b standing for any alternatives of their places:
 *  1. One side has at most one place. If the other side has several, each alternative of the one
 *     place holds exactly one sum, with as many blocks as there are places; otherwise none does.
 *  2. Within a term, an axis occurs once; in different blocks of a sum it may occur again.
 */
#ifndef RS_CHECKPOINT_MAPS_MAP_H
#define RS_CHECKPOINT_MAPS_MAP_H

#include <reshard/map.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/references.h"
#include "base/slice.h"
#include "checkpoint/rules/number.h"

#include <stdbool.h>

#define RS_MAP_BYTES_MAX ((size_t)16 << 20)
#define RS_MAP_LINES_MAX 4096
#define RS_MAP_CAPTURES_MAX 8
#define RS_MAP_AXES_MAX 24 /* of a line */
#define RS_MAP_PLACES_MAX 16
#define RS_MAP_ALTERNATIVES_MAX 8
#define RS_MAP_ITEMS_MAX 256 /* texts in the list of a capture */
#define RS_MAP_ITEM_BYTES_MAX 256
#define RS_MAP_OPEN_MAX 2   /* captures of any text in one name, which are tried by backtracking */
#define RS_MAP_PARTS_MAX 32 /* of a name */
#define RS_MAP_NAME_BYTES_MAX 4096
#define RS_MAP_NESTING_MAX 8
#define RS_MAP_NAMES_MAX 64 /* in `for` and `let`, each */
#define RS_MAP_USES_MAX 8   /* maps used by maps used by .. */
/* Tensors and links that a map makes, and names that a line without tensors (fill) makes. */
#define RS_MAP_EXPANSION_MAX ((int64_t)1 << 22)
/* Steps of joining two links into one, if their steps do not divide each other. */
#define RS_MAP_COMPOSE_STEPS_MAX ((int64_t)1 << 16)

/* ---- names ----------------------------------------------------------------------------------- */

typedef enum rs_map_capture_kind {
    RS_CAPTURE_NUMBER, /* {n}: digits without leading zeros */
    RS_CAPTURE_CHOICE, /* {s:a,b} */
    RS_CAPTURE_WORD,   /* {x:*}: without a dot */
    RS_CAPTURE_TEXT    /* {x:**} */
} rs_map_capture_kind;

typedef struct rs_map_capture {
    rs_slice name;
    rs_map_capture_kind kind;
    int32_t item_count; /* CHOICE */
    rs_slice *items;
} rs_map_capture;

/* A part of a name: literal text, or a capture. */
typedef struct rs_map_part {
    rs_slice text;      /* without escapes; capture < 0 only */
    rs_slice signature; /* the same with every run of digits as one # */
    int32_t capture;    /* -1: text */
    rs_slice shift;     /* {n+k}: the number k; empty: none */
    bool shift_down;    /* {n-k} */
} rs_map_part;

typedef struct rs_map_pattern {
    rs_slice shown; /* as written */
    int32_t part_count;
    rs_map_part *parts;
    uint32_t captures; /* bit i: it has capture i */
} rs_map_pattern;

/* ---- axes ------------------------------------------------------------------------------------ */

typedef enum rs_map_node_kind {
    RS_NODE_AXIS,
    RS_NODE_PRODUCT, /* of no nodes: a dimension of size 1 */
    RS_NODE_SUM,     /* of blocks, which are products */
    RS_NODE_REST     /* `..`; only as a dimension of its own */
} rs_map_node_kind;

typedef struct rs_map_node {
    rs_map_node_kind kind;
    int32_t axis;
    int32_t count;
    struct rs_map_node *nodes;
} rs_map_node;

typedef struct rs_map_axis {
    rs_slice name;   /* empty for a number */
    int64_t number;  /* its size, if it is a number; otherwise 0 */
    int32_t capture; /* -1: it is none */
} rs_map_axis;

/* ---- lines ----------------------------------------------------------------------------------- */

typedef enum rs_map_word {
    RS_TERM_PLAIN,
    RS_TERM_DROP,
    RS_TERM_FILL,
    RS_TERM_COPY,
    RS_TERM_OBJECT
} rs_map_word;

#define RS_MAP_CONDITIONS_MAX 4

typedef enum rs_map_condition_kind {
    RS_CONDITION_WHEN,
    RS_CONDITION_WITH,
    RS_CONDITION_WITHOUT
} rs_map_condition_kind;

typedef struct rs_map_condition {
    rs_map_condition_kind kind;
    rs_slice text;          /* inside the parentheses */
    rs_map_pattern pattern; /* WITH, WITHOUT */
} rs_map_condition;

typedef struct rs_map_term {
    rs_map_pattern pattern;
    bool has_axes; /* false: the tensor as it is, like [..] */
    int32_t dim_count;
    rs_map_node *dims;
    uint32_t axes;     /* bit i: it has axis i, outside of sums or in one of their blocks */
    int32_t rest_dim;  /* where `..` is; -1: nowhere */
    int32_t sum_count; /* blocks of its sum; 0: none */
    uint32_t outside;  /* axes outside of the sum */
    uint32_t blocks[RS_MAP_PLACES_MAX]; /* axes of each block */
    rs_map_word word;
    rs_slice number;       /* of fill, as written */
    double value;          /* of fill */
    rs_map_pattern copied; /* COPY */
    bool has_dtype;
    reshard_dtype dtype;
    int32_t pad_axis;    /* -1: none */
    rs_slice add_number; /* as written; empty: none */
    double added;
    bool is_optional;
    int32_t condition_count;
    rs_map_condition conditions[RS_MAP_CONDITIONS_MAX];
} rs_map_term;

typedef struct rs_map_place {
    int32_t count;
    rs_map_term *alternatives;
} rs_map_place;

typedef struct rs_map_line {
    const char *file_name;
    int32_t number; /* of the line in its file */
    int32_t tier;   /* 0: the map itself; lines of maps it uses come after, tier by tier */
    bool is_rest;   /* `* = *` */
    bool is_optional;
    int32_t capture_count, axis_count;
    rs_map_capture captures[RS_MAP_CAPTURES_MAX];
    rs_map_axis axes[RS_MAP_AXES_MAX];
    int32_t place_counts[2]; /* by side */
    rs_map_place *places[2];
} rs_map_line;

/* `for name < number` or `let name = number`. */
typedef struct rs_map_name {
    rs_slice name, number;
} rs_map_name;

struct reshard_map {
    reshard_context *context;
    rs_references references;
    rs_arena arena; /* holds everything below */
    const char *namings[2];
    rs_slice types;
    int32_t bound_count, let_count;
    rs_map_name bounds[RS_MAP_NAMES_MAX], lets[RS_MAP_NAMES_MAX];
    int32_t line_count;
    int64_t line_capacity;
    rs_map_line *lines; /* from the context */
};

/* Error texts about a line begin with this: "hf-vllm.map:3". */
#define RS_MAP_PLACE "%s:%d"
#define RS_MAP_PLACE_OF(line) (line)->file_name, (int)(line)->number

/* ---- between the files of this folder -------------------------------------------------------- */

/* Reads a logical line into `line`, which knows its file and number. Positions in error texts count
 * from `start`, the first byte of the physical line. */
typedef struct rs_map_reader {
    reshard_map *map;
    rs_map_line *line;
    rs_cursor cursor;
    const char *start; /* of the whole text of the file */
    const char *file_name;
} rs_map_reader;

/* Fails with the line and column of `at`. */
reshard_status rs_map_fail(const rs_map_reader *reader, const char *at, reshard_status status,
                           const char *format, ...) RS_PRINTF(4, 5);
void rs_map_skip_spaces(rs_map_reader *reader); /* and comments and ends of lines */
reshard_status rs_map_read_name(rs_map_reader *reader, bool lists, rs_map_pattern *patterns,
                                int32_t *out_count);
reshard_status rs_map_read_axes(rs_map_reader *reader, rs_map_term *term);
reshard_status rs_map_read_words(rs_map_reader *reader, rs_map_term *term);
reshard_status rs_map_read_line(rs_map_reader *reader);
/* Checks the invariants of a line once it has been read. */
reshard_status rs_map_check_line(const rs_map_reader *reader, const char *at);

/* ---- matching -------------------------------------------------------------------------------- */

/* The values of a line's captures. NUMBER: the number itself; CHOICE: the place in its list; WORD
 * and TEXT: what the resolver made of it. */
typedef struct rs_map_values {
    int64_t values[RS_MAP_CAPTURES_MAX];
    rs_slice texts[RS_MAP_CAPTURES_MAX]; /* WORD and TEXT only */
} rs_map_values;

/* Whether a name can match, judged by its signature: every run of digits as one #. */
bool rs_map_may_match(const rs_map_line *line, const rs_map_pattern *pattern, rs_slice signature);
/* shifts: the value of each part's shift. */
bool rs_map_match(const rs_map_line *line, const rs_map_pattern *pattern, const int64_t *shifts,
                  rs_slice text, rs_map_values *out_values);
/* Writes the signature of a text, which is no longer than the text. Returns its length. */
size_t rs_map_signature(rs_slice text, char *out_signature);

#endif
