/* SPDX-License-Identifier: Apache-2.0 */
/*
 * svg.c - prints a picture as one SVG document.
 *
 * Boxes are light with dark letters, on light and dark pages alike; everything outside of them
 * follows the page. Every cell, and every square of the heat map, has a title that says in words
 * what it shows. Browsers show it under the mouse, and screen readers read it.
 */
#include "base/checked.h"
#include "base/context.h"
#include "draw/canvas.h"
#include "draw/drawing.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* In pixels. */
enum {
    LETTER = 8, /* a little more than the width of a letter */
    LINE = 18,
    EDGE = 12, /* around everything */
    BETWEEN = 28,
    WIDTH = 300,
    HEIGHT_MAX = 320,
    HEIGHT_LEAST = 22,
    SQUARE_MAX = 26,
    HEAT_WIDTH = 420
};
enum { LABEL_MAX = 22, FRAMES_BESIDE = 2 };

static const char *const colours[RS_INK_RANKS] = {"#a8d0f5", "#fbd7a1", "#b5e0b1", "#f2c7e6",
                                                  "#f7f0a8", "#d2c1f0", "#aee8e6", "#f5b8b0",
                                                  "#d8d8d8", "#d5f0c0", "#c9cff2", "#e2d9bd"};
static const char style[] =
    "<style>\n"
    "text { font: 13px ui-monospace, Menlo, Consolas, monospace; fill: #1f2328; }\n"
    ".label { text-anchor: middle; dominant-baseline: central; fill: #16191d; "
    "paint-order: stroke; stroke: #fff; stroke-opacity: 0.7; stroke-width: 4px; }\n"
    ".row { text-anchor: end; dominant-baseline: central; }\n"
    ".row, .column, .note { font-size: 11px; }\n"
    ".title { font-weight: bold; }\n"
    ".line { stroke: #59636e; stroke-width: 1.5; stroke-linecap: square; }\n"
    ".heat { fill: #0969da; }\n"
    ".none { fill: none; stroke: #8c959f; stroke-width: 0.5; }\n"
    "@media (prefers-color-scheme: dark) {\n"
    "  .row, .column, .note, .title { fill: #e6edf3; }\n"
    "  .line { stroke: #8b949e; }\n"
    "  .heat { fill: #79c0ff; }\n"
    "}\n"
    "</style>\n"
    "<defs>\n"
    "<pattern id=\"stays\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
    "patternTransform=\"rotate(45)\"><path d=\"M0 0V6\" stroke=\"#16191d\" "
    "stroke-opacity=\"0.45\" stroke-width=\"2\"/></pattern>\n"
    "<pattern id=\"partly\" width=\"8\" height=\"8\" patternUnits=\"userSpaceOnUse\">"
    "<circle cx=\"2\" cy=\"2\" r=\"1.2\" fill=\"#16191d\" fill-opacity=\"0.5\"/></pattern>\n"
    "</defs>\n";

typedef struct page {
    rs_picture *picture;
    const rs_heat *heat;
    const char *const *titles;
    rs_text *text;
    int32_t *widths, *heights, *xs, *ys; /* of columns and rows; xs, ys: their places in a frame */
    int32_t margin, top;                 /* the room that indices take */
    int32_t width, height;               /* of a frame */
    int32_t beside, square;
    int32_t notes, note_y, note_length; /* lines below, place of the next, length of the longest */
} page;

static void add_escaped(rs_text *text, const char *bytes)
{
    for (; *bytes != '\0'; bytes++) {
        if (*bytes == '&')
            rs_text_add(text, "&amp;");
        else if (*bytes == '<')
            rs_text_add(text, "&lt;");
        else
            rs_text_add(text, "%c", *bytes);
    }
}

static int32_t number_width(int64_t number)
{
    rs_text digits;
    rs_text_init(&digits, NULL, 0);
    rs_text_add(&digits, "%" PRId64, number);
    return (int32_t)digits.length * LETTER;
}

/* ---- sizes ----------------------------------------------------------------------------------- */

static void find_least(const page *all, int32_t *widths, int32_t *heights)
{
    const rs_picture *picture = all->picture;
    const rs_picture_axis *columns = &picture->axes[RS_COLUMNS];
    char key[RS_KEY_TEXT];
    for (int32_t i = 0; i < picture->axes[RS_ROWS].count; i++)
        heights[i] = HEIGHT_LEAST;
    for (int32_t i = 0; i < columns->count; i++)
        widths[i] = number_width(columns->edges[i]) + LETTER;
    for (int32_t s = 0; s < picture->side_count; s++) {
        for (int32_t b = 0; b < picture->sides[s].block_count; b++) {
            const rs_block *block = &picture->sides[s].blocks[b];
            const rs_rank_set *set = &picture->sides[s].sets[block->set];
            int32_t room = 0, last = block->column + block->column_count - 1;
            int32_t wanted = ((int32_t)strlen(rs_rank_set_shown(set, key)) + 2) * LETTER;
            for (int32_t i = block->column; i <= last; i++)
                room += widths[i];
            if (room < wanted)
                widths[last] += wanted - room;
        }
    }
}

static void place(const int32_t *lengths, int32_t count, int32_t from, int32_t *out_places)
{
    out_places[0] = from;
    for (int32_t i = 0; i < count; i++)
        out_places[i + 1] = out_places[i] + lengths[i];
}

static reshard_status lay_out(page *all)
{
    const rs_picture_axis *rows = &all->picture->axes[RS_ROWS];
    const rs_picture_axis *columns = &all->picture->axes[RS_COLUMNS];
    size_t room = (size_t)(rows->count + columns->count) * 3 + 2;
    int32_t *lengths = rs_arena_allocate_array(&all->picture->cells_arena, room, sizeof *lengths);
    if (lengths == NULL)
        return rs_allocation_status();
    all->widths = lengths;
    all->heights = all->widths + columns->count;
    all->xs = all->heights + rows->count;
    all->ys = all->xs + columns->count + 1;
    int32_t *least_widths = all->ys + rows->count + 1;
    int32_t *least_heights = least_widths + columns->count;
    find_least(all, least_widths, least_heights);
    (void)rs_picture_share(columns, WIDTH, least_widths, all->widths);
    double across = (double)(columns->edges[columns->count] - columns->edges[0]);
    double down = (double)(rows->edges[rows->count] - rows->edges[0]);
    double height = rows->dim < 0 ? 2 * HEIGHT_LEAST : WIDTH * down / across;
    (void)rs_picture_share(rows, height < HEIGHT_MAX ? (int64_t)height : HEIGHT_MAX, least_heights,
                           all->heights);
    all->margin = rows->dim < 0 ? 0 : number_width(rows->edges[rows->count]) + LETTER;
    all->top = LINE + (columns->dim < 0 ? 0 : LINE);
    place(all->widths, columns->count, all->margin, all->xs);
    place(all->heights, rows->count, all->top, all->ys);
    all->width = all->xs[columns->count] + number_width(columns->edges[columns->count]);
    all->height = all->ys[rows->count] + BETWEEN / 2;
    return RESHARD_OK;
}

/* ---- frames ---------------------------------------------------------------------------------- */

/* "dim 0 0:3, dim 1 0:7, held by 0; stays" */
static void add_cell_title(const page *all, const rs_side *side, int64_t cell)
{
    static const char *const stays[] = {"", "; stays on some ranks", "; stays"};
    const rs_picture *picture = all->picture;
    int64_t rest = cell, places[RS_PICTURE_AXES];
    for (int axis = RS_PICTURE_AXES - 1; axis >= 0; axis--) {
        places[axis] = rest % picture->axes[axis].count;
        rest /= picture->axes[axis].count;
    }
    rs_text_add(all->text, "<title>");
    for (int axis = 0; axis < RS_PICTURE_AXES; axis++) {
        const rs_picture_axis *shown = &picture->axes[axis];
        if (shown->dim >= 0)
            rs_text_add(all->text, "dim %" PRId32 " %" PRId64 ":%" PRId64 ", ", shown->dim,
                        shown->edges[places[axis]], shown->edges[places[axis] + 1]);
    }
    rs_text_add(all->text, "held by ");
    add_escaped(all->text, side->sets[side->cells[cell]].label);
    rs_text_add(all->text, "%s</title>", stays[picture->stays[cell]]);
}

static void add_cell(const page *all, const rs_side *side, int32_t x, int32_t y, int32_t row,
                     int32_t column, int64_t cell)
{
    static const char *const patterns[] = {"", "partly", "stays"};
    rs_stay stay = (rs_stay)all->picture->stays[cell];
    int32_t left = x + all->xs[column], top = y + all->ys[row];
    if (side->cells[cell] < 0)
        return;
    rs_text_add(all->text,
                "<rect x=\"%" PRId32 "\" y=\"%" PRId32 "\" width=\"%" PRId32 "\" height=\"%" PRId32
                "\" fill=\"%s\">",
                left, top, all->widths[column], all->heights[row],
                colours[side->sets[side->cells[cell]].least % RS_INK_RANKS]);
    add_cell_title(all, side, cell);
    rs_text_add(all->text, "</rect>\n");
    if (stay != RS_STAY_NONE)
        rs_text_add(all->text,
                    "<path d=\"M%" PRId32 " %" PRId32 "h%" PRId32 "v%" PRId32 "h-%" PRId32
                    "z\" fill=\"url(#%s)\" pointer-events=\"none\"/>\n",
                    left, top, all->widths[column], all->heights[row], all->widths[column],
                    patterns[stay]);
}

/* Adds all outlines as one path: where blocks differ, a line above a cell and one to its left. */
static void add_lines(const page *all, const rs_side *side, int32_t plane, int32_t x, int32_t y)
{
    int32_t rows = all->picture->axes[RS_ROWS].count;
    int32_t columns = all->picture->axes[RS_COLUMNS].count;
    rs_text_add(all->text, "<path class=\"line\" fill=\"none\" d=\"");
    for (int32_t row = 0; row <= rows; row++) {
        for (int32_t column = 0; column <= columns; column++) {
            int32_t mine = rs_picture_block(all->picture, side, plane, row, column);
            if (column < columns &&
                mine != rs_picture_block(all->picture, side, plane, row - 1, column))
                rs_text_add(all->text, "M%" PRId32 " %" PRId32 "h%" PRId32, x + all->xs[column],
                            y + all->ys[row], all->widths[column]);
            if (row < rows && mine != rs_picture_block(all->picture, side, plane, row, column - 1))
                rs_text_add(all->text, "M%" PRId32 " %" PRId32 "v%" PRId32, x + all->xs[column],
                            y + all->ys[row], all->heights[row]);
        }
    }
    rs_text_add(all->text, "\"/>\n");
}

static void add_words(const page *all, const char *kind, int32_t x, int32_t y, const char *words)
{
    rs_text_add(all->text, "<text class=\"%s\" x=\"%" PRId32 "\" y=\"%" PRId32 "\">", kind, x, y);
    add_escaped(all->text, words);
    rs_text_add(all->text, "</text>\n");
}

static void add_number(const page *all, const char *kind, int32_t x, int32_t y, int64_t number)
{
    rs_text_add(all->text,
                "<text class=\"%s\" x=\"%" PRId32 "\" y=\"%" PRId32 "\">%" PRId64 "</text>\n", kind,
                x, y, number);
}

static void add_labels(const page *all, const rs_side *side, int32_t plane, int32_t x, int32_t y)
{
    char key[RS_KEY_TEXT];
    for (int32_t b = 0; b < side->block_count; b++) {
        const rs_block *block = &side->blocks[b];
        if (rs_picture_block(all->picture, side, plane, block->row, block->column) != b)
            continue;
        int32_t middle = all->xs[block->column] + all->xs[block->column + block->column_count];
        int32_t centre = all->ys[block->row] + all->ys[block->row + block->row_count];
        add_words(all, "label", x + middle / 2, y + centre / 2,
                  rs_rank_set_shown(&side->sets[block->set], key));
    }
}

static void add_numbers(const page *all, int32_t x, int32_t y)
{
    const rs_picture_axis *rows = &all->picture->axes[RS_ROWS];
    const rs_picture_axis *columns = &all->picture->axes[RS_COLUMNS];
    for (int32_t i = 0; columns->dim >= 0 && i <= columns->count; i++)
        add_number(all, "column", x + all->xs[i], y + all->ys[0] - 5, columns->edges[i]);
    for (int32_t i = 0; rows->dim >= 0 && i <= rows->count; i++)
        add_number(all, "row", x + all->margin - 6, y + all->ys[i], rows->edges[i]);
}

static void add_title(const page *all, int32_t plane, int32_t side, int32_t x, int32_t y)
{
    const rs_picture_axis *planes = &all->picture->axes[RS_PLANES];
    char title[128];
    rs_text text;
    rs_text_init(&text, title, sizeof title);
    if (all->picture->side_count > 1)
        rs_text_add(&text, side == 0 ? "from " : "to ");
    if (planes->count == 1) {
        size_t room = (size_t)(all->width / LETTER);
        room = room < sizeof title - 8 ? room : sizeof title - 8;
        bool fits = text.length + strlen(all->titles[side]) <= room;
        rs_text_add(&text, "%.*s%s", (int)room, all->titles[side], fits ? "" : " ..");
        if (!fits)
            snprintf(title + room - 2, sizeof title - room + 2, "..");
    } else if (plane == planes->gap) {
        rs_text_add(&text, "..");
    } else {
        rs_text_add(&text, "dim %" PRId32 " at %" PRId64 ":%" PRId64, planes->dim,
                    planes->edges[plane], planes->edges[plane + 1]);
    }
    add_words(all, "title", x, y + LINE - 6, title);
}

static void add_frame(const page *all, int32_t plane, int32_t s, int32_t x, int32_t y)
{
    const rs_side *side = &all->picture->sides[s];
    rs_text_add(all->text, "<g>\n");
    add_title(all, plane, s, x, y);
    for (int32_t row = 0; row < all->picture->axes[RS_ROWS].count; row++) {
        for (int32_t column = 0; column < all->picture->axes[RS_COLUMNS].count; column++)
            add_cell(all, side, x, y, row, column,
                     rs_picture_cell(all->picture, plane, row, column));
    }
    add_lines(all, side, plane, x, y);
    add_labels(all, side, plane, x, y);
    add_numbers(all, x, y);
    rs_text_add(all->text, "</g>\n");
}

/* ---- the heat map ---------------------------------------------------------------------------- */

static void add_square(const page *all, int32_t source, int32_t target, int32_t x, int32_t y)
{
    const rs_heat *heat = all->heat;
    uint64_t bytes = heat->bytes[(int64_t)source * heat->count + target];
    rs_text_add(all->text,
                "<rect class=\"%s\" x=\"%" PRId32 "\" y=\"%" PRId32 "\" width=\"%" PRId32
                "\" height=\"%" PRId32 "\"",
                bytes == 0 ? "none" : "heat", x, y, all->square - 1, all->square - 1);
    if (bytes != 0)
        rs_text_add(all->text, " fill-opacity=\"%.2f\"",
                    0.15 + 0.85 * (double)bytes / (double)heat->most);
    rs_text_add(all->text, "><title>");
    if (heat->group == 1)
        rs_text_add(all->text, "rank %" PRId32 " to rank %" PRId32, source, target);
    else
        rs_text_add(all->text, "ranks from %" PRId32 " to ranks from %" PRId32,
                    source * heat->group, target * heat->group);
    rs_text_add(all->text, ": %" PRIu64 " bytes</title></rect>\n", bytes);
}

static void add_heat(const page *all, int32_t x, int32_t y)
{
    const rs_heat *heat = all->heat;
    char title[128], size[RS_BYTES_TEXT];
    rs_text text;
    rs_text_init(&text, title, sizeof title);
    rs_text_add(&text, "bytes from rank (down) to rank (across), up to %s",
                rs_bytes_text(heat->most, size));
    if (heat->group > 1)
        rs_text_add(&text, ", by %" PRId32 " ranks", heat->group);
    int32_t left = x + number_width(heat->rank_count) + LETTER, top = y + 2 * LINE;
    int32_t step = 1 + (number_width(heat->rank_count) + LETTER) / all->square;
    add_words(all, "title", x, y + LINE - 6, title);
    for (int32_t i = 0; i < heat->count; i++) {
        if (i % step == 0) {
            add_number(all, "column", left + i * all->square, top - 5, i * heat->group);
            add_number(all, "row", left - 6, top + i * all->square + all->square / 2,
                       i * heat->group);
        }
        for (int32_t j = 0; j < heat->count; j++)
            add_square(all, i, j, left + j * all->square, top + i * all->square);
    }
}

/* ---- the page -------------------------------------------------------------------------------- */

static reshard_status count_note(void *user, const char *line)
{
    page *all = user;
    int32_t length = (int32_t)strlen(line);
    all->notes++;
    all->note_length = length > all->note_length ? length : all->note_length;
    return RESHARD_OK;
}

static reshard_status add_note(void *user, const char *line)
{
    page *all = user;
    add_words(all, "note", EDGE, all->note_y, line);
    all->note_y += LINE;
    return RESHARD_OK;
}

static void add_head(const page *all, int32_t width, int32_t height)
{
    const rs_picture *picture = all->picture;
    char shape[160];
    rs_text text;
    rs_text_init(&text, shape, sizeof shape);
    rs_text_add_shape(&text, picture->ndim, picture->shape);
    rs_text_add(all->text,
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%" PRId32 "\" height=\"%" PRId32
                "\" viewBox=\"0 0 %" PRId32 " %" PRId32 "\" role=\"img\">\n<title>",
                width, height, width, height);
    rs_text_add(all->text,
                picture->side_count > 1 ? "A plan for a tensor of %s: "
                                        : "A layout of a tensor of %s: ",
                shape);
    add_escaped(all->text, all->titles[0]);
    if (picture->side_count > 1) {
        rs_text_add(all->text, " to ");
        add_escaped(all->text, all->titles[1]);
    }
    rs_text_add(all->text,
                "</title>\n<desc>Boxes show which ranks hold which part of the tensor.%s</desc>\n",
                picture->side_count > 1
                    ? " Hatched parts stay where they are, dotted ones stay on some ranks."
                    : "");
    rs_text_add(all->text, "%s", style);
}

static reshard_status print_page(page *all)
{
    const rs_picture *picture = all->picture;
    int32_t sides = picture->side_count, count = 0;
    if (!picture->is_empty)
        count = sides * picture->axes[RS_PLANES].count;
    int32_t bands = (count + all->beside - 1) / all->beside;
    int32_t width = all->beside * (all->width + BETWEEN) - BETWEEN + 2 * EDGE;
    int32_t heat_y = EDGE + bands * all->height + all->notes * LINE;
    int32_t height = heat_y + EDGE;
    bool has_heat = all->heat != NULL && all->heat->count != 0 && all->heat->most != 0;
    if (has_heat) {
        all->square = (int32_t)rs_min(SQUARE_MAX, HEAT_WIDTH / all->heat->count + 1);
        height += 2 * LINE + all->heat->count * all->square + EDGE;
        width = (int32_t)rs_max(width, 60 * LETTER);
    }
    width = (int32_t)rs_max(width, all->note_length * 7 + 2 * EDGE);
    add_head(all, width, height);
    for (int32_t i = 0; i < count; i++)
        add_frame(all, i / sides, i % sides, EDGE + i % all->beside * (all->width + BETWEEN),
                  EDGE + i / all->beside * all->height);
    all->note_y = EDGE + bands * all->height + LINE / 2;
    reshard_status status = rs_picture_visit_notes(picture, add_note, all);
    if (has_heat)
        add_heat(all, EDGE, heat_y);
    rs_text_add(all->text, "</svg>\n");
    return status;
}

reshard_status rs_picture_print_svg(rs_picture *picture, const rs_heat *heat,
                                    const char *const *titles, rs_text *text)
{
    page all = {
        .picture = picture, .heat = heat, .titles = titles, .text = text, .beside = 1, .square = 1};
    reshard_status status = RESHARD_OK;
    if (!picture->is_empty) {
        rs_picture_fit(&picture->axes[RS_PLANES], RS_PLANES_SHOWN);
        rs_picture_fit_shown(&picture->axes[RS_ROWS]);
        rs_picture_fit_shown(&picture->axes[RS_COLUMNS]);
        status = rs_picture_fill(picture);
        if (status == RESHARD_OK)
            rs_picture_choose_keys(picture, LABEL_MAX);
        if (status == RESHARD_OK)
            status = rs_picture_join(picture);
        if (status == RESHARD_OK)
            status = lay_out(&all);
        if (picture->side_count * picture->axes[RS_PLANES].count > 1)
            all.beside = FRAMES_BESIDE;
    }
    if (status == RESHARD_OK)
        status = rs_picture_visit_notes(picture, count_note, &all);
    return status == RESHARD_OK ? print_page(&all) : status;
}
