/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text_below.c - what goes below the boxes of a picture in characters: notes, and the heat map of a
 * plan.
 */
#include "base/context.h"
#include "draw/canvas.h"
#include "draw/drawing.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { NUMBER_TEXT = 24, LINE_TEXT = 2048, SCALE_TEXT = 48 };

/* ---- notes ----------------------------------------------------------------------------------- */

typedef struct note_printer {
    rs_text *text;
    int32_t columns;
    bool any;
} note_printer;

/* Prints a note. Breaks long lines after spaces and commas or, if there are none, anywhere. */
static reshard_status print_note(void *user, const char *line)
{
    note_printer *printer = user;
    size_t room = (size_t)printer->columns, length = strlen(line);
    const char *indent = "";
    if (!printer->any)
        rs_text_add(printer->text, "\n");
    printer->any = true;
    while (length > room) {
        size_t end = room;
        while (end > 0 && line[end - 1] != ' ' && line[end - 1] != ',')
            end--;
        end = end == 0 ? room : end;
        size_t shown = line[end - 1] == ' ' ? end - 1 : end;
        rs_text_add(printer->text, "%s%.*s\n", indent, (int)shown, line);
        line += end;
        length -= end;
        indent = "  ";
        room = (size_t)printer->columns - 2;
    }
    rs_text_add(printer->text, "%s%s\n", indent, line);
    return RESHARD_OK;
}

/* Explains the shades, if there are any. */
static void print_shades(const rs_picture *picture, bool ascii, note_printer *printer)
{
    static const char *const meanings[2][3] = {
        {"", "\u00b7 stays on some of its ranks", "\u2591 stays where it is"},
        {"", "' stays on some of its ranks", ": stays where it is"}};
    bool seen[3] = {false, false, false};
    char line[LINE_TEXT];
    for (int64_t i = 0; !picture->is_empty && i < rs_picture_cell_count(picture); i++)
        seen[picture->stays[i]] = true;
    if (seen[RS_STAY_ALL] || seen[RS_STAY_SOME]) {
        snprintf(line, sizeof line, "%s%s%s", seen[RS_STAY_ALL] ? meanings[ascii][RS_STAY_ALL] : "",
                 seen[RS_STAY_ALL] && seen[RS_STAY_SOME] ? ", " : "",
                 seen[RS_STAY_SOME] ? meanings[ascii][RS_STAY_SOME] : "");
        (void)print_note(printer, line);
    }
}

reshard_status rs_picture_print_notes(const rs_picture *picture,
                                      const reshard_draw_options *options, rs_text *text)
{
    note_printer printer = {.text = text, .columns = options->columns, .any = picture->is_empty};
    print_shades(picture, options->ascii != 0, &printer);
    return rs_picture_visit_notes(picture, print_note, &printer);
}

/* ---- the heat map ---------------------------------------------------------------------------- */

static const uint32_t shades[RS_HEAT_LEVELS] = {0x00B7, 0x2591, 0x2592, 0x2593, 0x2588};
static const uint32_t shades_ascii[RS_HEAT_LEVELS] = {'.', '-', '+', 'x', '#'};

static uint32_t shade_of(const reshard_draw_options *options, int level)
{
    return (options->ascii ? shades_ascii : shades)[level];
}

/* Writes the numbers of ranks above and beside the squares; above them, as many as there is room
 * for. */
static void paint_heat_numbers(rs_canvas *canvas, const rs_heat *heat, int32_t margin)
{
    int32_t free_from = 0;
    for (int32_t i = 0; i < heat->count; i++) {
        char number[NUMBER_TEXT];
        int32_t x = margin + 2 * i;
        int32_t length = (int32_t)snprintf(number, sizeof number, "%" PRId32, i * heat->group);
        rs_canvas_write(canvas, margin - 1 - length, i + 2, length, number, RS_INK_PLAIN);
        if (x >= free_from && x + length <= canvas->width) {
            rs_canvas_write(canvas, x, 1, length, number, RS_INK_PLAIN);
            free_from = x + length + 1;
        }
    }
}

static int32_t scale_text(const rs_heat *heat, int level, char line[SCALE_TEXT])
{
    char size[RS_BYTES_TEXT];
    uint64_t step = heat->most / (RS_HEAT_LEVELS - 1);
    uint64_t bytes = level == RS_HEAT_LEVELS - 1 ? heat->most : step * (uint64_t)level;
    return (int32_t)snprintf(line, SCALE_TEXT, "to %s", rs_bytes_text(bytes, size));
}

/* Explains the shades or, if there is no room for all of them, the darkest. */
static void paint_heat_scale(rs_canvas *canvas, const rs_heat *heat,
                             const reshard_draw_options *options)
{
    enum { SHADE = 3, BETWEEN = 3 };
    char line[SCALE_TEXT];
    int32_t x = 0, width = -BETWEEN;
    for (int level = 1; level < RS_HEAT_LEVELS; level++)
        width += SHADE + scale_text(heat, level, line) + BETWEEN;
    for (int level = width <= canvas->width ? 1 : RS_HEAT_LEVELS - 1; level < RS_HEAT_LEVELS;
         level++) {
        int32_t length = scale_text(heat, level, line);
        rs_canvas_fill(canvas, x, canvas->height - 1, 2, 1, shade_of(options, level),
                       (uint8_t)(RS_INK_HEAT + level));
        rs_canvas_write(canvas, x + SHADE, canvas->height - 1, length, line, RS_INK_PLAIN);
        x += SHADE + length + BETWEEN;
    }
}

reshard_status rs_heat_print(const rs_heat *heat, const reshard_draw_options *options,
                             rs_text *text)
{
    rs_canvas canvas;
    rs_arena arena;
    char title[LINE_TEXT];
    int32_t count = heat->count;
    int32_t margin = (int32_t)snprintf(NULL, 0, "%" PRId32, heat->rank_count - 1) + 1;
    if (heat->most == 0 || count == 0) {
        if (count == 0)
            rs_text_add(text, "\nThe map of %" PRId32 " ranks is too large to draw.\n",
                        heat->rank_count);
        return RESHARD_OK;
    }
    rs_arena_init(&arena, heat->context);
    reshard_status status = rs_canvas_init(&canvas, &arena, options->columns, count + 3);
    if (status != RESHARD_OK)
        return status;
    snprintf(title, sizeof title, "bytes from rank (down) to rank (across)");
    if (heat->group > 1)
        snprintf(title, sizeof title, "bytes from (down) to (across), by %" PRId32 " ranks",
                 heat->group);
    rs_canvas_write(&canvas, 0, 0, options->columns, title, RS_INK_BOLD);
    paint_heat_numbers(&canvas, heat, margin);
    for (int64_t i = 0; i < (int64_t)count * count; i++) {
        int level = rs_heat_level(heat, heat->bytes[i]);
        rs_canvas_fill(&canvas, margin + 2 * (int32_t)(i % count), 2 + (int32_t)(i / count), 2, 1,
                       shade_of(options, level),
                       (uint8_t)(level == 0 ? RS_INK_DIM : RS_INK_HEAT + level));
    }
    paint_heat_scale(&canvas, heat, options);
    rs_text_add(text, "\n");
    rs_canvas_print(&canvas, options->colours != 0, text);
    rs_arena_release(&arena);
    return RESHARD_OK;
}
