/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text.c - prints a picture in characters.
 *
 * Each plane of each side is a frame: an optional title, a line of column indices, and a lattice in
 * which lines and cells alternate. Frames are placed side by side as far as the window allows.
 * Labels that are too long for their boxes become letters, which are explained below the frames. If
 * even the narrowest columns do not fit, fewer are drawn, with a gap in the middle.
 */
#include "base/checked.h"
#include "base/context.h"
#include "draw/canvas.h"
#include "draw/drawing.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { BETWEEN = 3, LABEL_MAX = 14, WIDTH_ALONE = 40, WIDTH_OF_SEVERAL = 26, HEIGHT_MAX = 9 };
enum { NUMBER_TEXT = 24, TITLE_TEXT = 96 };

typedef struct glyphs {
    uint32_t lines[16];    /* by where lines go from here: up 1, down 2, left 4, right 8 */
    uint32_t across, down; /* mark where columns and rows are left out */
    uint32_t stays[3];     /* by rs_stay */
} glyphs;

static const glyphs unicode = {
    {' ', 0x2502, 0x2502, 0x2502, 0x2500, 0x2518, 0x2510, 0x2524, 0x2500, 0x2514, 0x250C, 0x251C,
     0x2500, 0x2534, 0x252C, 0x253C},
    0x2026,
    0x22EE,
    {' ', 0x00B7, 0x2591},
};
static const glyphs ascii = {
    {' ', '|', '|', '|', '-', '+', '+', '+', '-', '+', '+', '+', '-', '+', '+', '+'},
    '~',
    ':',
    {' ', '\'', ':'},
};

typedef struct frames {
    rs_picture *picture;
    const reshard_draw_options *options;
    const glyphs *glyphs;
    int32_t *widths, *heights; /* of columns and rows */
    int32_t *xs, *ys;          /* of the lattice, 2 * count + 1 each, relative to the frame */
    int32_t width, height;     /* of a frame */
    int32_t top;               /* lines above the lattice */
    bool titled;
} frames;

static int32_t digits_of(int64_t number)
{
    char text[NUMBER_TEXT];
    return (int32_t)snprintf(text, sizeof text, "%" PRId64, number);
}

/* ---- sizes ----------------------------------------------------------------------------------- */

int64_t rs_picture_share(const rs_picture_axis *axis, int64_t wanted, const int32_t *least,
                         int32_t *out_lengths)
{
    double extent = 0;
    int64_t sum = 0;
    for (int32_t i = 0; i < axis->count; i++)
        extent += i == axis->gap ? 0 : (double)(axis->edges[i + 1] - axis->edges[i]);
    for (int32_t i = 0; i < axis->count; i++) {
        double share = (double)wanted * (double)(axis->edges[i + 1] - axis->edges[i]) / extent;
        bool grows = i != axis->gap && share >= least[i] + 1.0;
        out_lengths[i] = grows ? (int32_t)share : least[i];
        sum += out_lengths[i];
    }
    return sum;
}

/* Finds the least widths that show the indices and labels. */
static void find_least_widths(const rs_picture *picture, int32_t *least)
{
    const rs_picture_axis *columns = &picture->axes[RS_COLUMNS];
    char key[RS_KEY_TEXT];
    for (int32_t i = 0; i < columns->count; i++) {
        least[i] = columns->dim < 0 ? 1 : digits_of(columns->edges[i]);
        if (i == columns->gap)
            least[i] = (int32_t)rs_max(least[i], 3);
    }
    for (int32_t s = 0; s < picture->side_count; s++) {
        const rs_side *side = &picture->sides[s];
        for (int32_t b = 0; b < side->block_count; b++) {
            const rs_block *block = &side->blocks[b];
            int32_t length = (int32_t)strlen(rs_rank_set_shown(&side->sets[block->set], key));
            int32_t room = block->column_count - 1; /* the lines between its columns */
            length += block->stay != RS_STAY_NONE;  /* leaves some shade beside the label */
            for (int32_t i = 0; i < block->column_count; i++)
                room += least[block->column + i];
            if (room < length)
                least[block->column + block->column_count - 1] += length - room;
        }
    }
}

/* "from, dim 0 at 4:8" or, in short, "from, 4:8". Returns the length. */
static int32_t write_title(const rs_picture *picture, int32_t plane, int32_t side, bool is_short,
                           char title[TITLE_TEXT])
{
    const rs_picture_axis *planes = &picture->axes[RS_PLANES];
    rs_text text;
    rs_text_init(&text, title, TITLE_TEXT);
    if (picture->side_count > 1)
        rs_text_add(&text, "%s%s", side == 0 ? "from" : "to", planes->count > 1 ? ", " : "");
    if (!is_short && planes->count > 1 && plane != planes->gap)
        rs_text_add(&text, "dim %" PRId32 " at ", planes->dim);
    if (plane == planes->gap)
        rs_text_add(&text, "...");
    else if (planes->count > 1)
        rs_text_add(&text, "%" PRId64 ":%" PRId64, planes->edges[plane], planes->edges[plane + 1]);
    return (int32_t)text.length;
}

/* How wide frames have to be for their titles. If the window is narrow, titles are short. */
static int32_t find_title_width(const rs_picture *picture, int32_t columns)
{
    char title[TITLE_TEXT];
    int32_t widest[2] = {0, 0};
    for (int32_t plane = 0; plane < picture->axes[RS_PLANES].count; plane++) {
        for (int i = 0; i < 2; i++)
            widest[i] = (int32_t)rs_max(widest[i], write_title(picture, plane, 0, i != 0, title));
    }
    return widest[0] <= columns ? widest[0] : (int32_t)rs_min(widest[1], columns);
}

/* Draws columns to scale if the frame then fits into the window, otherwise as narrow as they can
 * be. Returns whether they fit. */
static bool choose_widths(frames *all, int32_t *least)
{
    rs_picture *picture = all->picture;
    const rs_picture_axis *rows = &picture->axes[RS_ROWS], *columns = &picture->axes[RS_COLUMNS];
    int32_t margin = rows->dim < 0 ? 0
                                   : 1 + (int32_t)rs_max(digits_of(rows->edges[0]),
                                                         digits_of(rows->edges[rows->count]));
    int32_t last = columns->dim < 0 ? 0 : digits_of(columns->edges[columns->count]) - 1;
    int32_t frame_count = picture->side_count * picture->axes[RS_PLANES].count;
    int64_t extent = columns->edges[columns->count] - columns->edges[0];
    int64_t wanted = frame_count == 1 ? WIDTH_ALONE : WIDTH_OF_SEVERAL;
    int64_t around = margin + columns->count + 1 + last;
    wanted = rs_min(rs_min(wanted, all->options->columns - around), rs_max(8, extent * 3));
    find_least_widths(picture, least);
    int64_t sum = rs_picture_share(columns, wanted, least, all->widths);
    if (sum + around > all->options->columns)
        sum = rs_picture_share(columns, 0, least, all->widths);
    all->width = (int32_t)(sum + around);
    all->xs[0] = margin;
    for (int32_t i = 0; i < columns->count; i++) {
        all->xs[2 * i + 1] = all->xs[2 * i] + 1;
        all->xs[2 * i + 2] = all->xs[2 * i + 1] + all->widths[i];
    }
    bool fits = all->width <= all->options->columns;
    all->width = (int32_t)rs_max(all->width, find_title_width(picture, all->options->columns));
    return fits;
}

/* A character is about twice as high as wide. */
static void choose_heights(frames *all, int32_t *least)
{
    const rs_picture *picture = all->picture;
    const rs_picture_axis *rows = &picture->axes[RS_ROWS], *columns = &picture->axes[RS_COLUMNS];
    double across = (double)(columns->edges[columns->count] - columns->edges[0]);
    double down = (double)(rows->edges[rows->count] - rows->edges[0]);
    int32_t width = all->xs[2 * columns->count] - all->xs[0];
    double wanted = (double)width * down / across / 2;
    for (int32_t i = 0; i < rows->count; i++)
        least[i] = 1;
    if (rows->dim < 0)
        wanted = 1;
    (void)rs_picture_share(rows, wanted < HEIGHT_MAX ? (int64_t)wanted : HEIGHT_MAX, least,
                           all->heights);
    all->titled = picture->side_count > 1 || picture->axes[RS_PLANES].count > 1;
    all->top = all->titled + (columns->dim >= 0);
    all->ys[0] = all->top;
    for (int32_t i = 0; i < rows->count; i++) {
        all->ys[2 * i + 1] = all->ys[2 * i] + 1;
        all->ys[2 * i + 2] = all->ys[2 * i + 1] + all->heights[i];
    }
    all->height = all->ys[2 * rows->count] + 1;
}

/* Allocates one array for all sizes. */
static reshard_status allocate_sizes(frames *all, int32_t **out_least)
{
    const rs_picture_axis *axes = all->picture->axes;
    size_t rows = (size_t)axes[RS_ROWS].count, columns = (size_t)axes[RS_COLUMNS].count;
    size_t most = rows > columns ? rows : columns;
    int32_t *room = rs_arena_allocate_array(&all->picture->cells_arena,
                                            3 * rows + 3 * columns + 2 + most, sizeof *room);
    if (room == NULL)
        return rs_allocation_status();
    all->widths = room;
    all->heights = all->widths + columns;
    all->xs = all->heights + rows;
    all->ys = all->xs + 2 * columns + 1;
    *out_least = all->ys + 2 * rows + 1;
    return RESHARD_OK;
}

/* Tries fewer columns and shorter labels until everything fits. A single gap column always does. */
static reshard_status lay_out(frames *all)
{
    rs_picture *picture = all->picture;
    int32_t columns = RS_SEGMENTS_SHOWN, longest = LABEL_MAX;
    rs_picture_fit(&picture->axes[RS_PLANES], RS_PLANES_SHOWN);
    rs_picture_fit_shown(&picture->axes[RS_ROWS]);
    for (;;) {
        int32_t *least = NULL;
        if (columns == RS_SEGMENTS_SHOWN)
            rs_picture_fit_shown(&picture->axes[RS_COLUMNS]);
        else
            rs_picture_fit(&picture->axes[RS_COLUMNS], columns);
        reshard_status status = rs_picture_fill(picture);
        if (status == RESHARD_OK) {
            rs_picture_choose_keys(picture, longest);
            status = rs_picture_join(picture);
        }
        if (status == RESHARD_OK)
            status = allocate_sizes(all, &least);
        if (status != RESHARD_OK)
            return status;
        bool fits = choose_widths(all, least);
        choose_heights(all, least);
        if (fits || (columns == 1 && longest == 1))
            return RESHARD_OK;
        if (columns > 5 || longest == 1)
            columns =
                picture->axes[RS_COLUMNS].count - 1 > 0 ? picture->axes[RS_COLUMNS].count - 1 : 1;
        else
            longest = longest > 4 ? longest / 2 : 1;
    }
}

/* ---- frames ---------------------------------------------------------------------------------- */

static uint8_t ink_of(const rs_side *side, int32_t block)
{
    if (block < 0)
        return RS_INK_PLAIN;
    return (uint8_t)(RS_INK_RANK + side->sets[side->blocks[block].set].least % RS_INK_RANKS);
}

/* Paints place (i, j) of the lattice: even numbers are lines, odd ones cells. */
static void paint_place(const frames *all, rs_canvas *canvas, const rs_side *side, int32_t plane,
                        int32_t x, int32_t i, int32_t j)
{
    int32_t up = (i + 1) / 2 - 1, down = i / 2, left = (j + 1) / 2 - 1, right = j / 2;
    int32_t up_left = rs_picture_block(all->picture, side, plane, up, left);
    int32_t up_right = rs_picture_block(all->picture, side, plane, up, right);
    int32_t down_left = rs_picture_block(all->picture, side, plane, down, left);
    int32_t down_right = rs_picture_block(all->picture, side, plane, down, right);
    int lines = (up_left != up_right) | (down_left != down_right) << 1 |
                (up_left != down_left) << 2 | (up_right != down_right) << 3;
    int32_t width = j % 2 != 0 ? all->widths[j / 2] : 1;
    int32_t height = i % 2 != 0 ? all->heights[i / 2] : 1;
    uint32_t glyph = all->glyphs->lines[lines];
    uint8_t ink = RS_INK_PLAIN;
    if (lines == 0 && up_left >= 0) {
        glyph = all->glyphs->stays[side->blocks[up_left].stay];
        ink = ink_of(side, up_left);
    }
    rs_canvas_fill(canvas, x + all->xs[j], all->ys[i], width, height, glyph, ink);
}

static void paint_label(const frames *all, rs_canvas *canvas, const rs_side *side, int32_t x,
                        int32_t index)
{
    const rs_block *block = &side->blocks[index];
    char key[RS_KEY_TEXT], padded[LABEL_MAX + 4];
    const char *label = rs_rank_set_shown(&side->sets[block->set], key);
    int32_t left = all->xs[2 * block->column + 1];
    int32_t right = all->xs[2 * (block->column + block->column_count)];
    int32_t top = all->ys[2 * block->row + 1];
    int32_t bottom = all->ys[2 * (block->row + block->row_count)];
    int32_t length = (int32_t)strlen(label);
    if (block->stay != RS_STAY_NONE && length + 2 < right - left) { /* keeps clear of the shade */
        snprintf(padded, sizeof padded, " %s ", label);
        label = padded;
        length += 2;
    }
    rs_canvas_write(canvas, x + left + (right - left - length) / 2, top + (bottom - top - 1) / 2,
                    right - left, label, ink_of(side, index));
}

/* Marks where rows and columns are left out. */
static void paint_gaps(const frames *all, rs_canvas *canvas, int32_t x)
{
    const rs_picture_axis *rows = &all->picture->axes[RS_ROWS];
    const rs_picture_axis *columns = &all->picture->axes[RS_COLUMNS];
    for (int32_t row = 0; columns->gap >= 0 && row < rows->count; row++) {
        int32_t y = all->ys[2 * row + 1] + (all->heights[row] - 1) / 2;
        rs_canvas_fill(canvas,
                       x + all->xs[2 * columns->gap + 1] + (all->widths[columns->gap] - 1) / 2, y,
                       1, 1, all->glyphs->across, RS_INK_PLAIN);
    }
    for (int32_t column = 0; rows->gap >= 0 && column < columns->count; column++) {
        if (column != columns->gap)
            rs_canvas_fill(canvas, x + all->xs[2 * column + 1] + (all->widths[column] - 1) / 2,
                           all->ys[2 * rows->gap + 1], 1, 1, all->glyphs->down, RS_INK_PLAIN);
    }
}

static void paint_numbers(const frames *all, rs_canvas *canvas, int32_t x)
{
    const rs_picture_axis *rows = &all->picture->axes[RS_ROWS];
    const rs_picture_axis *columns = &all->picture->axes[RS_COLUMNS];
    char number[NUMBER_TEXT];
    for (int32_t i = 0; columns->dim >= 0 && i <= columns->count; i++) {
        snprintf(number, sizeof number, "%" PRId64, columns->edges[i]);
        rs_canvas_write(canvas, x + all->xs[2 * i], all->top - 1, NUMBER_TEXT, number,
                        RS_INK_PLAIN);
    }
    for (int32_t i = 0; rows->dim >= 0 && i <= rows->count; i++) {
        int32_t length = (int32_t)snprintf(number, sizeof number, "%" PRId64, rows->edges[i]);
        rs_canvas_write(canvas, x + all->xs[0] - 1 - length, all->ys[2 * i], NUMBER_TEXT, number,
                        RS_INK_PLAIN);
    }
}

static void paint_title(const frames *all, rs_canvas *canvas, int32_t x, int32_t plane,
                        int32_t side)
{
    char title[TITLE_TEXT];
    if (write_title(all->picture, plane, side, false, title) > all->width)
        (void)write_title(all->picture, plane, side, true, title);
    rs_canvas_write(canvas, x, 0, all->width, title, RS_INK_BOLD);
}

static void paint_frame(const frames *all, rs_canvas *canvas, int32_t x, int32_t plane, int32_t s)
{
    const rs_picture *picture = all->picture;
    const rs_side *side = &picture->sides[s];
    if (all->titled)
        paint_title(all, canvas, x, plane, s);
    paint_numbers(all, canvas, x);
    for (int32_t i = 0; i <= 2 * picture->axes[RS_ROWS].count; i++) {
        for (int32_t j = 0; j <= 2 * picture->axes[RS_COLUMNS].count; j++)
            paint_place(all, canvas, side, plane, x, i, j);
    }
    for (int32_t b = 0; b < side->block_count; b++) {
        const rs_block *block = &side->blocks[b];
        if (rs_picture_block(all->picture, side, plane, block->row, block->column) == b)
            paint_label(all, canvas, side, x, b);
    }
    paint_gaps(all, canvas, x);
}

/* Prints frames side by side, in bands. */
static reshard_status print_frames(const frames *all, rs_text *text)
{
    const rs_picture *picture = all->picture;
    int32_t sides = picture->side_count, count = sides * picture->axes[RS_PLANES].count;
    int32_t step = all->width + BETWEEN;
    int32_t in_band = (int32_t)rs_max(1, (all->options->columns + BETWEEN) / step);
    if (in_band > sides) /* source and target of a plane stay together */
        in_band -= in_band % sides;
    for (int32_t first = 0; first < count; first += in_band) {
        rs_canvas canvas;
        rs_arena arena;
        rs_arena_init(&arena, picture->cells_arena.context);
        reshard_status status = rs_canvas_init(&canvas, &arena, all->options->columns, all->height);
        for (int32_t i = first; status == RESHARD_OK && i < count && i < first + in_band; i++)
            paint_frame(all, &canvas, (i - first) * step, i / sides, i % sides);
        if (status == RESHARD_OK)
            rs_canvas_print(&canvas, all->options->colours != 0, text);
        rs_arena_release(&arena);
        if (status != RESHARD_OK)
            return status;
    }
    return RESHARD_OK;
}

reshard_status rs_picture_print(rs_picture *picture, const rs_heat *heat,
                                const reshard_draw_options *options, rs_text *text)
{
    frames all = {
        .picture = picture, .options = options, .glyphs = options->ascii ? &ascii : &unicode};
    reshard_status status = picture->is_empty ? RESHARD_OK : lay_out(&all);
    if (status == RESHARD_OK && !picture->is_empty)
        status = print_frames(&all, text);
    if (status == RESHARD_OK)
        status = rs_picture_print_notes(picture, options, text);
    if (status == RESHARD_OK && heat != NULL)
        status = rs_heat_print(heat, options, text);
    return status;
}
