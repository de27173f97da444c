/* SPDX-License-Identifier: Apache-2.0 */
/* print.c - the canonical text of a map: one space between words, and every tensor written out. */
#include "base/error.h"
#include "checkpoint/maps/map.h"
#include "checkpoint/maps/maps.h"
#include "text/text.h"

#include <string.h>

typedef struct printer {
    rs_text *text;
    const rs_map_line *line;
    uint32_t said; /* captures whose kind has been printed in this line */
} printer;

static void print_slice(rs_text *text, rs_slice slice)
{
    rs_text_add(text, "%.*s", (int)slice.count, slice.bytes);
}

/* A byte that means something in maps gets a backslash. */
void rs_map_print_literal(rs_slice literal, rs_text *text)
{
    for (size_t i = 0; i < literal.count; i++) {
        char c = literal.bytes[i];
        rs_text_add(text, strchr(" \t\r\n[,=|){}*?\\#", c) != NULL && c != '\0' ? "\\%c" : "%c", c);
    }
}

static void print_capture(printer *p, const rs_map_part *part)
{
    const rs_map_capture *capture = &p->line->captures[part->capture];
    rs_text_add(p->text, "{");
    print_slice(p->text, capture->name);
    if (part->shift.count != 0) {
        rs_text_add(p->text, part->shift_down ? "-" : "+");
        print_slice(p->text, part->shift);
    }
    if ((p->said >> part->capture & 1) == 0 && capture->kind != RS_CAPTURE_NUMBER) {
        rs_text_add(p->text, ":%s",
                    capture->kind == RS_CAPTURE_WORD   ? "*"
                    : capture->kind == RS_CAPTURE_TEXT ? "**"
                                                       : "");
        for (int32_t i = 0; i < capture->item_count; i++) {
            rs_text_add(p->text, i > 0 ? "," : "");
            print_slice(p->text, capture->items[i]);
        }
    }
    p->said |= (uint32_t)1 << part->capture;
    rs_text_add(p->text, "}");
}

/* A name that would be taken for a statement at the start of a line. */
static bool is_statement(rs_slice text)
{
    return rs_slice_equals(text, "map") || rs_slice_equals(text, "for") ||
           rs_slice_equals(text, "let") || rs_slice_equals(text, "use");
}

static void print_pattern(printer *p, const rs_map_pattern *pattern)
{
    if (pattern->part_count == 1 && is_statement(pattern->parts[0].text))
        rs_text_add(p->text, "\\");
    for (int32_t i = 0; i < pattern->part_count; i++) {
        const rs_map_part *part = &pattern->parts[i];
        if (part->capture < 0)
            rs_map_print_literal(part->text, p->text);
        else
            print_capture(p, part);
    }
}

static void print_node(printer *p, const rs_map_node *node, bool grouped)
{
    const char *between = node->kind == RS_NODE_SUM ? " + " : " ";
    if (node->kind == RS_NODE_REST) {
        rs_text_add(p->text, "..");
    } else if (node->kind == RS_NODE_AXIS) {
        const rs_map_axis *axis = &p->line->axes[node->axis];
        if (axis->number != 0)
            rs_text_add(p->text, "%lld", (long long)axis->number);
        else
            print_slice(p->text, axis->name);
    } else if (node->count == 0) {
        rs_text_add(p->text, "1");
    } else {
        rs_text_add(p->text, grouped ? "(" : "");
        for (int32_t i = 0; i < node->count; i++) {
            rs_text_add(p->text, "%s", i > 0 ? between : "");
            print_node(p, &node->nodes[i], node->kind == RS_NODE_PRODUCT);
        }
        rs_text_add(p->text, grouped ? ")" : "");
    }
}

static void print_words(printer *p, const rs_map_term *term)
{
    static const char *const kinds[] = {"when", "with", "without"};
    if (term->has_dtype)
        rs_text_add(p->text, " %s", reshard_dtype_name(term->dtype));
    if (term->pad_axis >= 0) {
        rs_text_add(p->text, " pad(");
        print_slice(p->text, p->line->axes[term->pad_axis].name);
        rs_text_add(p->text, ")");
    }
    if (term->add_number.count != 0)
        rs_text_add(p->text, " add(%.*s)", (int)term->add_number.count, term->add_number.bytes);
    if (term->word == RS_TERM_DROP)
        rs_text_add(p->text, " drop");
    if (term->word == RS_TERM_FILL)
        rs_text_add(p->text, " fill(%.*s)", (int)term->number.count, term->number.bytes);
    if (term->word == RS_TERM_OBJECT)
        rs_text_add(p->text, " object(none)");
    if (term->word == RS_TERM_COPY) {
        rs_text_add(p->text, " copy(");
        print_pattern(p, &term->copied);
        rs_text_add(p->text, ")");
    }
    if (term->is_optional)
        rs_text_add(p->text, " optional");
    for (int32_t i = 0; i < term->condition_count; i++) {
        const rs_map_condition *condition = &term->conditions[i];
        rs_text_add(p->text, " %s(", kinds[condition->kind]);
        if (condition->kind == RS_CONDITION_WHEN)
            print_slice(p->text, condition->text);
        else
            print_pattern(p, &condition->pattern);
        rs_text_add(p->text, ")");
    }
}

static void print_term(printer *p, const rs_map_term *term)
{
    print_pattern(p, &term->pattern);
    if (term->has_axes) {
        rs_text_add(p->text, " [");
        for (int32_t d = 0; d < term->dim_count; d++) {
            rs_text_add(p->text, d > 0 ? " " : "");
            print_node(p, &term->dims[d], true);
        }
        rs_text_add(p->text, "]");
    }
    print_words(p, term);
}

static void print_line(const rs_map_line *line, rs_text *text)
{
    printer p = {.text = text, .line = line};
    if (line->is_rest) {
        rs_text_add(text, "* = *\n");
        return;
    }
    for (int side = 0; side < 2; side++) {
        rs_text_add(text, side == 1 ? (line->place_counts[0] > 0 ? " =" : "=") : "");
        for (int32_t i = 0; i < line->place_counts[side]; i++) {
            rs_text_add(text, "%s", i > 0 ? ", " : side == 1 ? " " : "");
            for (int32_t k = 0; k < line->places[side][i].count; k++) {
                rs_text_add(text, "%s", k > 0 ? " | " : "");
                print_term(&p, &line->places[side][i].alternatives[k]);
            }
        }
    }
    rs_text_add(text, "\n");
}

static void print_names(const char *word, const char *sign, int32_t count, const rs_map_name *names,
                        rs_text *text)
{
    for (int32_t i = 0; i < count; i++)
        rs_text_add(text, "%s %.*s %s %.*s\n", word, (int)names[i].name.count, names[i].name.bytes,
                    sign, (int)names[i].number.count, names[i].number.bytes);
}

void rs_map_print_lines(const reshard_map *map, const bool *chosen, rs_text *text)
{
    print_names("for", "<", map->bound_count, map->bounds, text);
    print_names("let", "=", map->let_count, map->lets, text);
    for (int32_t i = 0; i < map->line_count; i++) {
        if (chosen == NULL || chosen[i])
            print_line(&map->lines[i], text);
    }
}

reshard_status reshard_map_print(const reshard_map *map, char *buffer, size_t capacity,
                                 size_t *out_length)
{
    rs_text text;
    rs_text_init(&text, buffer, capacity);
    if (map->namings[0] != NULL) {
        rs_text_add(&text, "map %s %s", map->namings[0], map->namings[1]);
        if (map->types.count != 0)
            rs_text_add(&text, " types %.*s", (int)map->types.count, map->types.bytes);
        rs_text_add(&text, "\n");
    }
    rs_map_print_lines(map, NULL, &text);
    *out_length = text.length;
    return RESHARD_OK;
}
