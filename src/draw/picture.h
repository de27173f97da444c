/* SPDX-License-Identifier: Apache-2.0 */
/*
 * picture.h - what a picture shows, before it is text or SVG.
 *
 * A picture has three axes: planes, rows and columns. Each stands for a dim of the tensor, or for
 * none and has one segment. Segments are bounded by the edges where the layout (or one of two
 * layouts) cuts, so within a cell, one segment of each axis, every element has the same holders.
 * Invariant: this holds for every cell outside of gaps, however irregular the layout; one element
 * of a cell may therefore be asked for all of it. Segments that are too many are replaced by one
 * that stands for them, the axis' gap.
 *
 *   rs_picture_init   which dims are drawn, and their edges     edges.c
 *   rs_picture_fit    at most so many segments                  edges.c
 *   rs_picture_fill   who holds each cell                       cells.c
 *   rs_picture_join   cells of the same holders become blocks   blocks.c
 */
#ifndef RS_DRAW_PICTURE_H
#define RS_DRAW_PICTURE_H

#include <reshard/draw.h>

#include "base/arena.h"
#include "layout/layout.h"
#include "text/text.h"

enum { RS_PLANES, RS_ROWS, RS_COLUMNS, RS_PICTURE_AXES };
enum { RS_SIDES = 2 }; /* one layout, or source and target */

typedef struct rs_picture_axis {
    int32_t dim;       /* -1: none */
    int32_t count;     /* segments */
    int64_t *edges;    /* count + 1 of them, increasing */
    int32_t gap;       /* the segment that stands for what is left out; -1: none */
    int64_t gap_parts; /* how many segments that were; 0: not counted */
} rs_picture_axis;

/* The ranks that hold a cell. */
typedef struct rs_rank_set {
    rs_region region;  /* one that they hold: who they are */
    int32_t least;     /* the least of them, which gives the colour */
    const char *label; /* "0,4": see draw.h */
    int32_t key;       /* the letter that stands for a long label, from 0; -1: none */
} rs_rank_set;

typedef enum rs_stay {
    RS_STAY_NONE, /* every target rank has to be sent the cell, or there is no target */
    RS_STAY_SOME, /* some target ranks hold it already, or a contribution to it */
    RS_STAY_ALL   /* nobody has to be sent it */
} rs_stay;

/* Cells of one plane that hang together and have the same holders. Its label goes to the widest run
 * of columns, and all rows that have this run. */
typedef struct rs_block {
    int32_t set;
    rs_stay stay;
    int32_t row, row_count, column, column_count;
} rs_block;

typedef struct rs_side {
    const reshard_layout *layout;
    int32_t set_count;
    rs_rank_set *sets;
    int32_t *cells; /* [plane][row][column]: its set; -1 in a gap */
    int32_t block_count;
    rs_block *blocks;
    int32_t *block_of; /* of each cell; -1 in a gap */
} rs_side;

typedef struct rs_picture {
    rs_arena edges_arena, cells_arena;
    int32_t side_count;
    rs_side sides[RS_SIDES];
    int32_t ndim;
    int64_t shape[RESHARD_NDIM_MAX];
    int64_t sliced[RESHARD_NDIM_MAX]; /* the index to draw; -1: all */
    bool is_empty;                    /* the tensor has no elements; nothing below is set */
    rs_picture_axis axes[RS_PICTURE_AXES];
    uint8_t *stays; /* rs_stay of each cell */
} rs_picture;

/* Zeroed pictures may be released. layouts have one shape; they outlive the picture. Errors: those
 * of reshard_layout_draw. */
reshard_status rs_picture_init(rs_picture *picture, int32_t side_count,
                               const reshard_layout *const *layouts,
                               const reshard_draw_options *options);
void rs_picture_release(rs_picture *picture);

/* Leaves at most `count` segments, 1 or more of them, one of which is then the gap. */
void rs_picture_fit(rs_picture_axis *axis, int32_t count);
/* May be called again after fitting. */
reshard_status rs_picture_fill(rs_picture *picture);
reshard_status rs_picture_join(rs_picture *picture);

static inline int64_t rs_picture_cell(const rs_picture *picture, int32_t plane, int32_t row,
                                      int32_t column)
{
    return ((int64_t)plane * picture->axes[RS_ROWS].count + row) * picture->axes[RS_COLUMNS].count +
           column;
}

/* The block of a cell of a plane; -1 in a gap, -2 outside. */
static inline int32_t rs_picture_block(const rs_picture *picture, const rs_side *side,
                                       int32_t plane, int32_t row, int32_t column)
{
    if (row < 0 || row >= picture->axes[RS_ROWS].count || column < 0 ||
        column >= picture->axes[RS_COLUMNS].count)
        return -2;
    return side->block_of[rs_picture_cell(picture, plane, row, column)];
}

static inline int64_t rs_picture_cell_count(const rs_picture *picture)
{
    return rs_picture_cell(picture, picture->axes[RS_PLANES].count, 0, 0);
}

/* ---- words (words.c) ------------------------------------------------------------------------- */

/* "0..3,8" of ranks that increase; at most about RS_LABEL_TEXT bytes, the rest is counted. */
enum { RS_LABEL_TEXT = 240 };
void rs_text_add_ranks(rs_text *text, const int32_t *ranks, int64_t count);
/* The label of all holders of a region, in the arena, and the least of them. */
reshard_status rs_region_label(const rs_region *region, rs_arena *arena, const char **out_label,
                               int32_t *out_least);
/* Labels of more than `longest` characters become letters, on both sides the same: a, b, .. z,
 * ba. */
void rs_picture_choose_keys(rs_picture *picture, int32_t longest);
/* The letter, or else the label. */
enum { RS_KEY_TEXT = 8 };
const char *rs_rank_set_shown(const rs_rank_set *set, char buffer[RS_KEY_TEXT]);
/* What the picture does not show by itself, one line each, called with `user`: what letters mean,
 * which dims are drawn, what is left out, who holds nothing. */
typedef reshard_status (*rs_note_fn)(void *user, const char *line);
reshard_status rs_picture_visit_notes(const rs_picture *picture, rs_note_fn fn, void *user);

#endif
