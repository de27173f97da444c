/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read_axes.c - axes in brackets:
 *
 *   axes    := "[" { dim } "]"
 *   dim     := ".." | item
 *   item    := word | digits | "(" product { "+" product } ")"
 *   product := item { item }
 */
#include "base/context.h"
#include "base/error.h"
#include "checkpoint/maps/map.h"
#include "text/text.h"

#include <inttypes.h>
#include <string.h>

#define NODES_MAX 32 /* in one product, and dims of one term */

typedef struct axes_reader {
    rs_map_reader *reader;
    rs_map_term *term;
    int32_t block; /* of the sum that is being read; -1: outside of it */
} axes_reader;

static reshard_status read_item(axes_reader *a, int depth, rs_map_node *out_node);

/* Finds or adds an axis of the line. Equal numbers are one axis. */
static reshard_status take_axis(axes_reader *a, const char *at, rs_slice name, int64_t number,
                                int32_t *out_axis)
{
    rs_map_line *line = a->reader->line;
    for (int32_t i = 0; i < line->axis_count; i++) {
        if (line->axes[i].number == number && rs_slice_compare(line->axes[i].name, name) == 0) {
            *out_axis = i;
            return RESHARD_OK;
        }
    }
    if (line->axis_count == RS_MAP_AXES_MAX)
        return rs_map_fail(a->reader, at, RESHARD_ERR_RANGE, "the line has more than %d axes",
                           RS_MAP_AXES_MAX);
    *out_axis = line->axis_count;
    line->axes[line->axis_count++] = (rs_map_axis){name, number, -1};
    return RESHARD_OK;
}

static reshard_status read_axis(axes_reader *a, rs_map_node *out_node)
{
    rs_cursor *cursor = &a->reader->cursor;
    const char *start = cursor->at;
    rs_slice name = {"", 0};
    int64_t number = 0;
    if (rs_is_digit(*start)) {
        for (; cursor->at < cursor->end && rs_is_digit(*cursor->at); cursor->at++) {
            if (number > INT32_MAX / 10)
                return rs_map_fail(a->reader, start, RESHARD_ERR_RANGE,
                                   "an axis has more than %d elements", INT32_MAX);
            number = number * 10 + (*cursor->at - '0');
        }
        if (number == 0)
            return rs_map_fail(a->reader, start, RESHARD_ERR_SYNTAX, "an axis has 0 elements");
    } else {
        while (cursor->at < cursor->end && (rs_is_letter(*cursor->at) || rs_is_digit(*cursor->at)))
            cursor->at++;
        name = (rs_slice){start, (size_t)(cursor->at - start)};
        if (name.count == 0)
            return rs_map_fail(a->reader, start, RESHARD_ERR_SYNTAX,
                               "expected an axis: a word, a number, ( ) or ..");
    }
    if (number == 1) { /* needs no axis: there is only one place along it */
        *out_node = (rs_map_node){.kind = RS_NODE_PRODUCT, .axis = -1};
        return RESHARD_OK;
    }
    int32_t axis = 0;
    reshard_status status = take_axis(a, start, name, number, &axis);
    if (status != RESHARD_OK)
        return status;
    uint32_t *seen = a->block < 0 ? &a->term->outside : &a->term->blocks[a->block];
    if ((*seen >> axis & 1) != 0)
        return rs_map_fail(a->reader, start, RESHARD_ERR_SYNTAX,
                           "axis %.*s occurs twice in one tensor; name axes of equal size "
                           "differently",
                           (int)(cursor->at - start), start);
    *seen |= (uint32_t)1 << axis;
    *out_node = (rs_map_node){.kind = RS_NODE_AXIS, .axis = axis};
    return RESHARD_OK;
}

static reshard_status keep_nodes(axes_reader *a, rs_map_node_kind kind, int32_t count,
                                 const rs_map_node *nodes, rs_map_node *out_node)
{
    rs_map_node *copy = rs_arena_copy(&a->reader->map->arena, nodes, (size_t)count, sizeof *nodes);
    if (copy == NULL)
        return rs_allocation_status();
    *out_node = (rs_map_node){.kind = kind, .axis = -1, .count = count, .nodes = copy};
    return RESHARD_OK;
}

static bool at_end_of_product(const axes_reader *a)
{
    const rs_cursor *cursor = &a->reader->cursor;
    return cursor->at == cursor->end || *cursor->at == '+' || *cursor->at == ')' ||
           *cursor->at == ']';
}

static reshard_status read_product(axes_reader *a, int depth, rs_map_node *out_node)
{
    rs_map_node nodes[NODES_MAX];
    int32_t count = 0;
    reshard_status status = RESHARD_OK;
    for (rs_map_skip_spaces(a->reader); status == RESHARD_OK && !at_end_of_product(a);
         rs_map_skip_spaces(a->reader)) {
        if (count == NODES_MAX)
            return rs_map_fail(a->reader, a->reader->cursor.at, RESHARD_ERR_RANGE,
                               "the product has more than %d axes", NODES_MAX);
        status = read_item(a, depth, &nodes[count++]);
    }
    if (status == RESHARD_OK && count == 0)
        status =
            rs_map_fail(a->reader, a->reader->cursor.at, RESHARD_ERR_SYNTAX, "expected an axis");
    return status == RESHARD_OK ? keep_nodes(a, RS_NODE_PRODUCT, count, nodes, out_node) : status;
}

/* A text in parentheses is a sum if there is a + in it, at its own level. */
static bool is_sum(rs_cursor cursor)
{
    int depth = 0;
    for (; cursor.at < cursor.end && *cursor.at != ']' && depth >= 0; cursor.at++) {
        depth += *cursor.at == '(';
        depth -= *cursor.at == ')';
        if (*cursor.at == '+' && depth == 0)
            return true;
    }
    return false;
}

static reshard_status read_sum(axes_reader *a, int depth, rs_map_node *out_node)
{
    rs_map_node blocks[RS_MAP_PLACES_MAX];
    const char *start = a->reader->cursor.at;
    rs_map_term *term = a->term;
    if (a->block >= 0 || term->sum_count > 0)
        return rs_map_fail(a->reader, start, RESHARD_ERR_SYNTAX,
                           "a tensor may have only one sum; use a line for each");
    reshard_status status = RESHARD_OK;
    do {
        if (term->sum_count == RS_MAP_PLACES_MAX)
            return rs_map_fail(a->reader, start, RESHARD_ERR_RANGE,
                               "the sum has more than %d blocks", RS_MAP_PLACES_MAX);
        a->block = term->sum_count++;
        status = read_product(a, depth, &blocks[a->block]);
    } while (status == RESHARD_OK && rs_cursor_accept(&a->reader->cursor, '+'));
    a->block = -1;
    return status == RESHARD_OK ? keep_nodes(a, RS_NODE_SUM, term->sum_count, blocks, out_node)
                                : status;
}

static reshard_status read_item(axes_reader *a, int depth, rs_map_node *out_node)
{
    rs_map_reader *reader = a->reader;
    if (!rs_cursor_accept(&reader->cursor, '('))
        return read_axis(a, out_node);
    if (depth == RS_MAP_NESTING_MAX)
        return rs_map_fail(reader, reader->cursor.at, RESHARD_ERR_RANGE,
                           "there are more than %d levels of parentheses", RS_MAP_NESTING_MAX);
    reshard_status status = is_sum(reader->cursor) ? read_sum(a, depth + 1, out_node)
                                                   : read_product(a, depth + 1, out_node);
    if (status == RESHARD_OK && !rs_cursor_accept(&reader->cursor, ')'))
        status = rs_map_fail(reader, reader->cursor.at, RESHARD_ERR_SYNTAX, "expected a )");
    return status;
}

static bool accept_rest(rs_cursor *cursor)
{
    if (cursor->end - cursor->at < 2 || cursor->at[0] != '.' || cursor->at[1] != '.')
        return false;
    cursor->at += 2;
    return true;
}

static reshard_status read_dims(axes_reader *a, rs_map_node *dims, int32_t *out_count)
{
    rs_map_reader *reader = a->reader;
    rs_cursor *cursor = &reader->cursor;
    int32_t count = 0;
    for (;; count++) {
        rs_map_skip_spaces(reader);
        if (cursor->at == cursor->end)
            return rs_map_fail(reader, cursor->at, RESHARD_ERR_SYNTAX, "expected a ]");
        if (rs_cursor_accept(cursor, ']'))
            break;
        if (count == NODES_MAX)
            return rs_map_fail(reader, cursor->at, RESHARD_ERR_RANGE,
                               "the tensor has more than %d dimensions", NODES_MAX);
        if (accept_rest(cursor)) {
            if (a->term->rest_dim >= 0)
                return rs_map_fail(reader, cursor->at - 2, RESHARD_ERR_SYNTAX,
                                   ".. occurs twice in one tensor");
            a->term->rest_dim = count;
            dims[count] = (rs_map_node){.kind = RS_NODE_REST, .axis = -1};
            continue;
        }
        reshard_status status = read_item(a, 0, &dims[count]);
        if (status != RESHARD_OK)
            return status;
    }
    *out_count = count;
    return RESHARD_OK;
}

reshard_status rs_map_read_axes(rs_map_reader *reader, rs_map_term *term)
{
    axes_reader a = {.reader = reader, .term = term, .block = -1};
    rs_map_node dims[NODES_MAX] = {{.kind = RS_NODE_REST, .axis = -1}};
    const char *start = reader->cursor.at;
    term->rest_dim = -1;
    term->dim_count = 1;
    term->has_axes = rs_cursor_accept(&reader->cursor, '[');
    if (!term->has_axes)
        term->rest_dim = 0;
    reshard_status status = term->has_axes ? read_dims(&a, dims, &term->dim_count) : RESHARD_OK;
    if (status != RESHARD_OK)
        return status;
    term->dims = rs_arena_copy(&reader->map->arena, dims, (size_t)term->dim_count, sizeof *dims);
    if (term->dims == NULL)
        return rs_allocation_status();
    term->axes = term->outside;
    for (int32_t b = 0; b < term->sum_count; b++) {
        uint32_t both = term->outside & term->blocks[b];
        for (int32_t i = 0; i < reader->line->axis_count && both != 0; i++) {
            if ((both >> i & 1) != 0)
                return rs_map_fail(reader, start, RESHARD_ERR_SYNTAX,
                                   "axis %.*s is both inside and outside the sum",
                                   RS_SHOWN(reader->line->axes[i].name));
        }
        term->axes |= term->blocks[b];
    }
    return RESHARD_OK;
}
