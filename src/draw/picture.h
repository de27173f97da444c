/* SPDX-License-Identifier: Apache-2.0 */
/*
 * picture.h - what a picture shows, before it becomes text or SVG.
 *
 * A picture has three axes: planes, rows and columns. An axis stands for a dim of the tensor, or
 * for none, and then has one segment. Segments lie between the edges where the layout (or one of
 * two layouts) cuts. A cell is one segment of each axis.
 *
 * Invariant: outside of gaps, all elements of a cell have the same holders, however irregular the
 * layout; so it is enough to ask about one element. If there are too many segments, one of them
 * stands for those that are left out: the gap of the axis.
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
    int32_t dim;       /* -1 for none */
    int32_t count;     /* of segments */
    int64_t *edges;    /* count + 1 of them, increasing */
    int32_t gap;       /* the segment that stands for those left out; -1 if none are */
    int64_t gap_parts; /* how many are left out; 0 if not counted */
} rs_picture_axis;

/* The ranks that hold a cell. */
typedef struct rs_rank_set {
    rs_region region;  /* a region that they hold, which says who they are */
    int32_t least;     /* the least of them, which determines the colour */
    const char *label; /* "0,4": see draw.h */
    int32_t key;       /* the letter that stands for a long label, from 0; -1 for none */
} rs_rank_set;

typedef enum rs_stay {
    RS_STAY_NONE, /* every target rank must be sent the cell, or there is no target */
    RS_STAY_SOME, /* some target ranks already hold it, or a contribution to it */
    RS_STAY_ALL   /* no target rank has to be sent it */
} rs_stay;

/* Connected cells of one plane that look the same. The label goes to the widest run of columns, and
 * to all rows that have this run. */
typedef struct rs_block {
    int32_t set;
    rs_stay stay;
    int32_t row, row_count, column, column_count;
} rs_block;

typedef struct rs_side {
    const reshard_layout *layout;
    int32_t set_count;
    rs_rank_set *sets;
    int32_t *cells; /* [plane][row][column]: index of its set; -1 in a gap */
    int32_t block_count;
    rs_block *blocks;
    int32_t *block_of; /* by cell; -1 in a gap */
} rs_side;

typedef struct rs_picture {
    rs_arena edges_arena, cells_arena;
    int32_t side_count;
    rs_side sides[RS_SIDES];
    int32_t ndim;
    int64_t shape[RESHARD_NDIM_MAX];
    int64_t sliced[RESHARD_NDIM_MAX]; /* the index to draw; -1 for all */
    bool is_empty;                    /* the tensor has no elements; nothing below is set */
    rs_picture_axis axes[RS_PICTURE_AXES];
    uint8_t *stays; /* rs_stay, by cell */
} rs_picture;

/* A zeroed picture may be released. The layouts have the same shape and outlive the picture.
 * Errors: those of reshard_layout_draw. */
reshard_status rs_picture_init(rs_picture *picture, int32_t side_count,
                               const reshard_layout *const *layouts,
                               const reshard_draw_options *options);
void rs_picture_release(rs_picture *picture);

/* Leaves at most `count` segments (1 or more). If any are left out, one of those is the gap. */
void rs_picture_fit(rs_picture_axis *axis, int32_t count);
/* May be called again after rs_picture_fit. */
reshard_status rs_picture_fill(rs_picture *picture);
reshard_status rs_picture_join(rs_picture *picture);

static inline int64_t rs_picture_cell(const rs_picture *picture, int32_t plane, int32_t row,
                                      int32_t column)
{
    return ((int64_t)plane * picture->axes[RS_ROWS].count + row) * picture->axes[RS_COLUMNS].count +
           column;
}

/* The block of a cell; -1 in a gap, -2 outside of the plane. */
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

/* Writes ranks, which must increase, as "0..3,8". After about RS_LABEL_TEXT bytes, the rest is only
 * counted. */
enum { RS_LABEL_TEXT = 240 };
void rs_text_add_ranks(rs_text *text, const int32_t *ranks, int64_t count);
/* Sets the label of all holders of a region, in the arena, and the least of them. */
reshard_status rs_region_label(const rs_region *region, rs_arena *arena, const char **out_label,
                               int32_t *out_least);
/* Replaces labels of more than `longest` characters by letters, the same on both sides: a, b, .. z,
 * ba. */
void rs_picture_choose_keys(rs_picture *picture, int32_t longest);
/* The letter if there is one, otherwise the label. */
enum { RS_KEY_TEXT = 8 };
const char *rs_rank_set_shown(const rs_rank_set *set, char buffer[RS_KEY_TEXT]);
/* Calls fn for each line about what the picture does not show by itself: what letters mean, which
 * dims are drawn, what is left out, and who holds nothing. */
typedef reshard_status (*rs_note_fn)(void *user, const char *line);
reshard_status rs_picture_visit_notes(const rs_picture *picture, rs_note_fn fn, void *user);

#endif
