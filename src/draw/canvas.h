/* SPDX-License-Identifier: Apache-2.0 */
/*
 * canvas.h - a rectangle of characters, each with a colour, that is filled in any order and then
 * printed line by line. Whatever lies outside is dropped.
 */
#ifndef RS_DRAW_CANVAS_H
#define RS_DRAW_CANVAS_H

#include "base/arena.h"
#include "text/text.h"

typedef struct rs_canvas_cell {
    uint32_t glyph; /* a code point */
    uint8_t ink;    /* RS_INK_..., or RS_INK_RANK + a number */
    uint8_t unused[3];
} rs_canvas_cell;

enum { RS_INK_PLAIN, RS_INK_DIM, RS_INK_BOLD, RS_INK_HEAT, RS_INK_RANK = RS_INK_HEAT + 5 };
enum { RS_HEAT_LEVELS = 5, RS_INK_RANKS = 12 };

typedef struct rs_canvas {
    int32_t width, height;
    rs_canvas_cell *cells;
} rs_canvas;

/* Makes a blank canvas, in the arena. */
reshard_status rs_canvas_init(rs_canvas *canvas, rs_arena *arena, int32_t width, int32_t height);
void rs_canvas_fill(rs_canvas *canvas, int32_t x, int32_t y, int32_t width, int32_t height,
                    uint32_t glyph, uint8_t ink);
/* Writes ASCII text, at most `room` characters of it. */
void rs_canvas_write(rs_canvas *canvas, int32_t x, int32_t y, int32_t room, const char *text,
                     uint8_t ink);
/* Leaves out spaces at the ends of lines, unless they have a colour. */
void rs_canvas_print(const rs_canvas *canvas, bool colours, rs_text *text);

#endif
