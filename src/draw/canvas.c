/* SPDX-License-Identifier: Apache-2.0 */
/*
 * canvas.c - characters and their colours.
 *
 * The colours of ranks are light backgrounds under black letters, which can be read on any
 * terminal. Consecutive ones differ in hue and lightness, but nothing depends on telling them
 * apart: every box has a border and a label. Heat goes from light to dark in one hue.
 */
#include "draw/canvas.h"

#include "base/checked.h"
#include "base/context.h"

/* Numbers among the 256 colours of terminals. */
static const uint8_t rank_colours[RS_INK_RANKS] = {153, 223, 151, 225, 229, 183,
                                                   159, 217, 252, 194, 189, 187};
static const uint8_t heat_colours[RS_HEAT_LEVELS] = {255, 153, 75, 32, 24};

reshard_status rs_canvas_init(rs_canvas *canvas, rs_arena *arena, int32_t width, int32_t height)
{
    size_t count = (size_t)width * (size_t)height;
    *canvas = (rs_canvas){.width = width, .height = height};
    canvas->cells = rs_arena_allocate_array(arena, count, sizeof *canvas->cells);
    if (canvas->cells == NULL)
        return rs_allocation_status();
    rs_canvas_fill(canvas, 0, 0, width, height, ' ', RS_INK_PLAIN);
    return RESHARD_OK;
}

void rs_canvas_fill(rs_canvas *canvas, int32_t x, int32_t y, int32_t width, int32_t height,
                    uint32_t glyph, uint8_t ink)
{
    for (int32_t row = y; row < y + height && row < canvas->height; row++) {
        for (int32_t column = x; column < x + width && column < canvas->width; column++) {
            if (row >= 0 && column >= 0)
                canvas->cells[(int64_t)row * canvas->width + column] =
                    (rs_canvas_cell){.glyph = glyph, .ink = ink};
        }
    }
}

void rs_canvas_write(rs_canvas *canvas, int32_t x, int32_t y, int32_t room, const char *text,
                     uint8_t ink)
{
    for (int32_t i = 0; i < room && text[i] != '\0'; i++)
        rs_canvas_fill(canvas, x + i, y, 1, 1, (uint8_t)text[i], ink);
}

static void add_glyph(rs_text *text, uint32_t glyph)
{
    if (glyph < 0x80)
        rs_text_add(text, "%c", (int)glyph);
    else if (glyph < 0x800)
        rs_text_add(text, "%c%c", (int)(0xC0 | glyph >> 6), (int)(0x80 | (glyph & 0x3F)));
    else
        rs_text_add(text, "%c%c%c", (int)(0xE0 | glyph >> 12), (int)(0x80 | (glyph >> 6 & 0x3F)),
                    (int)(0x80 | (glyph & 0x3F)));
}

static void add_ink(rs_text *text, uint8_t ink)
{
    if (ink == RS_INK_PLAIN)
        rs_text_add(text, "\033[0m");
    else if (ink == RS_INK_DIM)
        rs_text_add(text, "\033[0;2m");
    else if (ink == RS_INK_BOLD)
        rs_text_add(text, "\033[0;1m");
    else if (ink < RS_INK_RANK)
        rs_text_add(text, "\033[0;38;5;%d;48;5;%dm", ink - RS_INK_HEAT < 3 ? 16 : 231,
                    heat_colours[ink - RS_INK_HEAT]);
    else
        rs_text_add(text, "\033[0;38;5;16;48;5;%dm",
                    rank_colours[(ink - RS_INK_RANK) % RS_INK_RANKS]);
}

void rs_canvas_print(const rs_canvas *canvas, bool colours, rs_text *text)
{
    for (int32_t y = 0; y < canvas->height; y++) {
        const rs_canvas_cell *line = canvas->cells + (int64_t)y * canvas->width;
        int32_t width = canvas->width;
        uint8_t ink = RS_INK_PLAIN;
        while (width > 0 && line[width - 1].glyph == ' ' &&
               (!colours || line[width - 1].ink < RS_INK_HEAT))
            width--;
        for (int32_t x = 0; x < width; x++) {
            if (colours && line[x].ink != ink)
                add_ink(text, line[x].ink);
            ink = line[x].ink;
            add_glyph(text, line[x].glyph);
        }
        if (colours && ink != RS_INK_PLAIN)
            add_ink(text, RS_INK_PLAIN);
        rs_text_add(text, "\n");
    }
}
