/* SPDX-License-Identifier: Apache-2.0 */
/*
 * drawing.h - shared by the files that turn a picture into text or SVG.
 */
#ifndef RS_DRAW_DRAWING_H
#define RS_DRAW_DRAWING_H

#include "draw/picture.h"

/* The most segments that are worth looking at. If some have to be left out, fewer are shown. */
enum { RS_PLANES_SHOWN = 8, RS_SEGMENTS_SHOWN = 24, RS_SEGMENTS_OF_MANY = 13 };

static inline void rs_picture_fit_shown(rs_picture_axis *axis)
{
    bool is_many = axis->count > RS_SEGMENTS_SHOWN || axis->gap >= 0;
    rs_picture_fit(axis, is_many ? RS_SEGMENTS_OF_MANY : RS_SEGMENTS_SHOWN);
}

/* How much ranks hand to each other. If there are many, groups of ranks are summed up. */
typedef struct rs_heat {
    reshard_context *context;
    int32_t rank_count;
    int32_t group;   /* ranks in one row */
    int32_t count;   /* of rows, and of columns */
    uint64_t *bytes; /* count * count; rows hand to columns */
    uint64_t most;   /* the largest of these */
} rs_heat;

/* Allocates from the arena. If the plan has too many ranks, there is no heat map: count is 0. */
reshard_status rs_heat_init(rs_heat *heat, reshard_plan *plan, int32_t count_max, rs_arena *arena);
/* 0 for no bytes, otherwise 1 .. RS_HEAT_LEVELS - 1, in equal steps. */
int rs_heat_level(const rs_heat *heat, uint64_t bytes);
/* "512 B", "1.5 MiB". */
enum { RS_BYTES_TEXT = 32 };
const char *rs_bytes_text(uint64_t bytes, char buffer[RS_BYTES_TEXT]);

reshard_status rs_picture_print_notes(const rs_picture *picture,
                                      const reshard_draw_options *options, rs_text *text);
reshard_status rs_heat_print(const rs_heat *heat, const reshard_draw_options *options,
                             rs_text *text);

/* heat may be NULL. */
reshard_status rs_picture_print(rs_picture *picture, const rs_heat *heat,
                                const reshard_draw_options *options, rs_text *text);
reshard_status rs_picture_print_svg(rs_picture *picture, const rs_heat *heat,
                                    const char *const *titles, rs_text *text);

/* Chooses the lengths of segments: their share of `wanted` in proportion to their extents, but not
 * less than `least`. A gap gets its least. Returns the sum. */
int64_t rs_picture_share(const rs_picture_axis *axis, int64_t wanted, const int32_t *least,
                         int32_t *out_lengths);

#endif
