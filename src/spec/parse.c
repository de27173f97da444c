/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parse.c - parses specs: mesh ":" cut { "," cut }, or listed shards (parse_boxes.c).
 *
 * The parser only reads. The constructor checks what a cut may be, and the parser adds the position
 * of the cut to its error text. Time and memory are linear in the length of the text, except for
 * sorts: ranges of ranks are counted before they are expanded.
 */
#include "base/context.h"
#include "spec/build.h"
#include "text/text.h"

#include <inttypes.h>
#include <string.h>

typedef struct cuts_parser {
    reshard_context *context;
    rs_scan scan;
    rs_arena scratch; /* axis names and the value lists of placements */
    reshard_mesh *mesh;
    int64_t cut_count; /* number of cuts read; no more than there are axes are stored */
    bool with_axes;    /* the cuts have an "@axis" */
    reshard_cut cuts[RESHARD_AXES_MAX];
    size_t positions[RESHARD_AXES_MAX]; /* where each cut begins */
    /* The list being read: its items and, for parts, their limits. */
    int64_t *values;
    int64_t *limits;
    int64_t value_count;
    int64_t value_capacity;
    int64_t limit_capacity;
} cuts_parser;

/* ---- lists ----------------------------------------------------------------------------------- */

static reshard_status add_value(cuts_parser *parser, int64_t value, int64_t limit)
{
    if (parser->value_count == INT32_MAX)
        return rs_scan_fail(&parser->scan, parser->scan.position, RESHARD_ERR_RANGE,
                            "more than 2^31-1 items");
    reshard_status status = rs_grow(parser->context, &parser->values, &parser->value_capacity,
                                    parser->value_count + 1, sizeof *parser->values);
    if (status == RESHARD_OK)
        status = rs_grow(parser->context, &parser->limits, &parser->limit_capacity,
                         parser->value_count + 1, sizeof *parser->limits);
    if (status != RESHARD_OK)
        return status;
    parser->values[parser->value_count] = value;
    parser->limits[parser->value_count] = limit;
    parser->value_count++;
    return RESHARD_OK;
}

static reshard_status parse_at_least_one(cuts_parser *parser, int64_t *out_number)
{
    size_t start = rs_scan_here(&parser->scan);
    reshard_status status = rs_scan_number(&parser->scan, out_number);
    if (status == RESHARD_OK && *out_number < 1)
        return rs_scan_fail(&parser->scan, start, RESHARD_ERR_RANGE,
                            "expected a number of at least 1, found 0");
    return status;
}

/* Accepts a comma if a number follows; a comma before an option is left alone. */
static bool accept_next_item(cuts_parser *parser)
{
    size_t start = parser->scan.position;
    if (rs_scan_accept(&parser->scan, ',') && rs_scan_at_digit(&parser->scan))
        return true;
    parser->scan.position = start;
    return false;
}

/* Parses n { "," n }; if `limited`, each n may have "|" m after it. */
static reshard_status parse_list(cuts_parser *parser, bool limited, reshard_placement *placement)
{
    parser->value_count = 0;
    do {
        int64_t value = 0;
        int64_t limit = 0;
        reshard_status status = rs_scan_number(&parser->scan, &value);
        if (status == RESHARD_OK && limited && rs_scan_accept(&parser->scan, '|'))
            status = parse_at_least_one(parser, &limit);
        if (status == RESHARD_OK)
            status = add_value(parser, value, limit);
        if (status != RESHARD_OK)
            return status;
    } while (accept_next_item(parser));
    size_t count = (size_t)parser->value_count;
    placement->count = (int32_t)parser->value_count;
    placement->values =
        rs_arena_copy(&parser->scratch, parser->values, count, sizeof *parser->values);
    if (placement->values == NULL)
        return rs_allocation_status();
    if (limited) {
        placement->part_max =
            rs_arena_copy(&parser->scratch, parser->limits, count, sizeof *parser->limits);
        if (placement->part_max == NULL)
            return rs_allocation_status();
    }
    return RESHARD_OK;
}

/* ---- placements ------------------------------------------------------------------------------ */

static reshard_status parse_dim(cuts_parser *parser, reshard_placement *placement)
{
    rs_scan *scan = &parser->scan;
    size_t start = rs_scan_here(scan);
    bool negative = rs_scan_accept(scan, '-');
    int64_t dim = 0;
    if (negative && rs_scan_here(scan) != start + 1)
        return rs_scan_fail(scan, start, RESHARD_ERR_SYNTAX,
                            "a space between \"-\" and its number");
    reshard_status status = rs_scan_number(scan, &dim);
    if (status == RESHARD_OK)
        status = rs_scan_fail_within(scan, start, rs_dim_check(negative ? -dim : dim));
    if (status == RESHARD_OK)
        placement->dim = (int32_t)(negative ? -dim : dim);
    return status;
}

static reshard_status parse_dim_or_flat(cuts_parser *parser, reshard_placement *placement)
{
    rs_scan *scan = &parser->scan;
    size_t start = rs_scan_here(scan);
    if (rs_scan_at_letter(scan) && rs_slice_equals(rs_scan_word(scan), "flat")) {
        placement->dim = RESHARD_DIM_FLAT;
        return RESHARD_OK;
    }
    scan->position = start;
    if (!rs_scan_at_digit(scan) && rs_scan_peek(scan) != '-')
        return rs_scan_expected(scan, "a dimension or \"flat\"");
    return parse_dim(parser, placement);
}

static reshard_status parse_how(cuts_parser *parser, reshard_placement *placement)
{
    rs_scan *scan = &parser->scan;
    placement->rule = RESHARD_CHUNK;
    if (rs_scan_accept(scan, '~')) {
        placement->rule = RESHARD_BALANCED;
    } else if (rs_scan_accept(scan, ';')) {
        placement->rule = RESHARD_PACKED;
        return parse_list(parser, true, placement);
    } else if (rs_scan_accept(scan, '=')) {
        placement->rule = RESHARD_RAGGED;
        return parse_list(parser, false, placement);
    } else if (rs_scan_accept(scan, '*')) {
        placement->rule = RESHARD_STRIDED;
        return parse_at_least_one(parser, &placement->factor);
    } else if (rs_scan_accept(scan, '/')) {
        placement->rule = RESHARD_CYCLIC;
        return parse_at_least_one(parser, &placement->factor);
    }
    return RESHARD_OK;
}

static reshard_status parse_option(cuts_parser *parser, reshard_placement *placement)
{
    rs_scan *scan = &parser->scan;
    size_t start = rs_scan_here(scan);
    if (!rs_scan_at_letter(scan))
        return rs_scan_expected(scan, "\"unit=\" or \"max=\"");
    rs_slice word = rs_scan_word(scan);
    int64_t *field = NULL;
    if (rs_slice_equals(word, "unit"))
        field = &placement->unit;
    else if (rs_slice_equals(word, "max"))
        field = &placement->max;
    else
        return rs_scan_fail(scan, start, RESHARD_ERR_SYNTAX,
                            "unknown option \"%s\" (there are unit= and max=)",
                            rs_excerpt_of(word.bytes, word.count).text);
    if (*field != 0)
        return rs_scan_fail(scan, start, RESHARD_ERR_INVALID, "%s is given twice",
                            rs_excerpt_of(word.bytes, word.count).text);
    reshard_status status = rs_scan_expect(scan, '=');
    return status == RESHARD_OK ? parse_at_least_one(parser, field) : status;
}

static reshard_status parse_shard(cuts_parser *parser, reshard_placement *placement)
{
    rs_scan *scan = &parser->scan;
    placement->kind = RESHARD_SHARD;
    if (rs_scan_at_digit(scan) || rs_scan_peek(scan) == '-')
        return parse_dim(parser, placement); /* the short form S0 */
    if (!rs_scan_accept(scan, '('))
        return rs_scan_expected(scan, "\"(\" or a dimension");
    reshard_status status = parse_dim_or_flat(parser, placement);
    if (status == RESHARD_OK)
        status = parse_how(parser, placement);
    while (status == RESHARD_OK && rs_scan_accept(scan, ','))
        status = parse_option(parser, placement);
    if (status == RESHARD_OK && !rs_scan_accept(scan, ')'))
        return rs_scan_expected(scan, "\",\" or \")\"");
    return status;
}

static reshard_status parse_partial(cuts_parser *parser, reshard_placement *placement)
{
    rs_scan *scan = &parser->scan;
    placement->kind = RESHARD_PARTIAL;
    placement->reduction = RESHARD_SUM;
    if (!rs_scan_accept(scan, '('))
        return RESHARD_OK;
    size_t start = rs_scan_here(scan);
    if (!rs_scan_at_letter(scan))
        return rs_scan_expected(scan, "a reduction");
    rs_slice word = rs_scan_word(scan);
    for (int i = 0; i < (int)RESHARD_REDUCTION_COUNT; i++) {
        if (!rs_slice_equals(word, reshard_reduction_name((reshard_reduction)i)))
            continue;
        placement->reduction = (reshard_reduction)i;
        return rs_scan_expect(scan, ')');
    }
    char names[128];
    rs_text list;
    rs_text_init(&list, names, sizeof names);
    for (int i = 0; i < (int)RESHARD_REDUCTION_COUNT; i++)
        rs_text_add(&list, i == 0 ? "%s" : ", %s", reshard_reduction_name((reshard_reduction)i));
    return rs_scan_fail(scan, start, RESHARD_ERR_SYNTAX, "unknown reduction \"%s\" (there are %s)",
                        rs_excerpt_of(word.bytes, word.count).text, names);
}

static reshard_status parse_placement(cuts_parser *parser, reshard_placement *placement)
{
    rs_scan *scan = &parser->scan;
    size_t start = rs_scan_here(scan);
    if (!rs_scan_at_letter(scan))
        return rs_scan_expected(scan, "a placement (R, P, A or S)");
    rs_slice word = rs_scan_letters(scan); /* not rs_scan_word, which would take all of "S0" */
    memset(placement, 0, sizeof *placement);
    if (rs_slice_equals(word, "R")) {
        placement->kind = RESHARD_REPLICATE;
        return RESHARD_OK;
    }
    if (rs_slice_equals(word, "P"))
        return parse_partial(parser, placement);
    if (rs_slice_equals(word, "S"))
        return parse_shard(parser, placement);
    if (rs_slice_equals(word, "A")) {
        placement->kind = RESHARD_AT;
        reshard_status status = rs_scan_expect(scan, '(');
        if (status == RESHARD_OK)
            status = parse_list(parser, false, placement);
        if (status == RESHARD_OK && !rs_scan_accept(scan, ')'))
            return rs_scan_expected(scan, "\",\" or \")\"");
        return status;
    }
    return rs_scan_fail(scan, start, RESHARD_ERR_SYNTAX, "unknown placement \"%s\"",
                        rs_excerpt_of(word.bytes, word.count).text);
}

/* ---- cuts ------------------------------------------------------------------------------------ */

static reshard_status fail_unknown_axis(cuts_parser *parser, size_t start)
{
    char buffer[256];
    rs_text axes;
    rs_text_init(&axes, buffer, sizeof buffer);
    for (int32_t i = 0; i < parser->mesh->axis_count; i++)
        rs_text_add(&axes, i == 0 ? "%s" : ", %s", rs_mesh_axis_words(parser->mesh, i).text);
    return rs_scan_fail(
        &parser->scan, start, RESHARD_ERR_INVALID, "unknown axis \"%s\" (the axes are %s)",
        rs_excerpt_of(parser->scan.text + start, parser->scan.position - start).text, buffer);
}

static reshard_status parse_axis_reference(cuts_parser *parser, int32_t *out_axis)
{
    rs_scan *scan = &parser->scan;
    size_t start = rs_scan_here(scan);
    int32_t axis = 0;
    if (rs_scan_at_letter(scan)) {
        rs_slice word = rs_scan_word(scan);
        while (axis < parser->mesh->axis_count && !rs_slice_equals(word, parser->mesh->names[axis]))
            axis++;
        if (axis == parser->mesh->axis_count)
            return fail_unknown_axis(parser, start);
    } else {
        int64_t number = 0;
        if (!rs_scan_at_digit(scan))
            return rs_scan_expected(scan, "the name or number of an axis");
        reshard_status status = rs_scan_number(scan, &number);
        if (status != RESHARD_OK)
            return status;
        if (number >= parser->mesh->axis_count)
            return fail_unknown_axis(parser, start);
        axis = (int32_t)number;
    }
    for (int64_t i = 0; i < parser->cut_count; i++) {
        if (parser->cuts[i].axis == axis)
            return rs_scan_fail(scan, start, RESHARD_ERR_INVALID, "axis %s is cut twice",
                                rs_mesh_axis_words(parser->mesh, axis).text);
    }
    *out_axis = axis;
    return RESHARD_OK;
}

static reshard_status parse_cut(cuts_parser *parser)
{
    size_t start = rs_scan_here(&parser->scan);
    reshard_cut cut = {.axis = 0};
    reshard_status status = parse_placement(parser, &cut.placement);
    if (status != RESHARD_OK)
        return status;
    bool with_axis = rs_scan_accept(&parser->scan, '@');
    if (parser->cut_count > 0 && with_axis != parser->with_axes)
        return rs_scan_fail(&parser->scan, start, RESHARD_ERR_INVALID,
                            "cuts with and without @axis in one spec");
    parser->with_axes = with_axis;
    if (with_axis)
        status = parse_axis_reference(parser, &cut.axis);
    else if (parser->cut_count < parser->mesh->axis_count)
        cut.axis = (int32_t)parser->cut_count;
    if (status != RESHARD_OK)
        return status;
    /* Bare cuts beyond the last axis are counted only for the error text. */
    if (parser->cut_count < parser->mesh->axis_count) {
        parser->cuts[parser->cut_count] = cut;
        parser->positions[parser->cut_count] = start;
    }
    parser->cut_count++;
    return RESHARD_OK;
}

static reshard_status parse_cuts(cuts_parser *parser, reshard_spec **out_spec)
{
    size_t start = rs_scan_here(&parser->scan);
    reshard_status status;
    do {
        status = parse_cut(parser);
        if (status != RESHARD_OK)
            return status;
    } while (rs_scan_accept(&parser->scan, ','));
    if (rs_scan_peek(&parser->scan) >= 0)
        return rs_scan_expected(&parser->scan,
                                parser->with_axes ? "\",\" or the end" : "\",\", \"@\" or the end");
    if (!parser->with_axes && parser->cut_count != parser->mesh->axis_count)
        return rs_scan_fail(&parser->scan, start, RESHARD_ERR_INVALID,
                            "cuts: %" PRId64 ", but axes: %" PRId32
                            " (give one for each axis, or name axes with @)",
                            parser->cut_count, parser->mesh->axis_count);
    int32_t culprit = -1;
    status = rs_spec_build_cuts(parser->context, parser->mesh, (int32_t)parser->cut_count,
                                parser->cuts, &culprit, out_spec);
    return rs_scan_fail_within(&parser->scan, culprit >= 0 ? parser->positions[culprit] : start,
                               status);
}

/* ---- entry points ---------------------------------------------------------------------------- */

static void release_parser(cuts_parser *parser)
{
    reshard_context *context = parser->context;
    reshard_mesh_release(parser->mesh);
    rs_release(context, parser->values);
    rs_release(context, parser->limits);
    rs_arena_release(&parser->scratch);
}

reshard_status reshard_spec_parse(reshard_context *context, const char *text,
                                  reshard_spec **out_spec)
{
    cuts_parser parser = {.context = context};
    reshard_status status = rs_scan_init(&parser.scan, "spec", text);
    if (status != RESHARD_OK)
        return status;
    /* An axis may be named "boxes" or "cover"; then "=" follows. */
    rs_slice word = rs_scan_word(&parser.scan);
    bool cover = rs_slice_equals(word, "cover");
    if ((cover || rs_slice_equals(word, "boxes")) && rs_scan_peek(&parser.scan) != '=')
        return rs_parse_boxes(context, &parser.scan, cover, out_spec);
    parser.scan.position = 0;
    rs_arena_init(&parser.scratch, context);
    status = rs_parse_mesh(context, &parser.scan, &parser.scratch, false, &parser.mesh);
    if (status == RESHARD_OK)
        status = parse_cuts(&parser, out_spec);
    release_parser(&parser);
    return status;
}

reshard_status rs_cut_parse(reshard_context *context, reshard_mesh *mesh, const char *text,
                            reshard_spec **out_spec)
{
    cuts_parser parser = {.context = context};
    reshard_status status = rs_scan_init(&parser.scan, "cut", text);
    if (status != RESHARD_OK)
        return status;
    parser.mesh = reshard_mesh_retain(mesh);
    rs_arena_init(&parser.scratch, context);
    status = parse_cuts(&parser, out_spec);
    release_parser(&parser);
    return status;
}
