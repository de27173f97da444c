/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parse_boxes.c - parses listed shards: shape ":" { rank piece { "+" piece } }.
 *
 * The numbers after "@" say where a piece lies in its shard's memory: either one coordinate for
 * each dimension of the tensor, or a single number, the piece's first element in a flat shard.
 * Without "@", a single piece is the whole shard, and several pieces lie one after another in a
 * flat shard. Shards are added to the spec one by one; the parser holds only the pieces of the
 * current shard.
 */
#include "base/checked.h"
#include "base/context.h"
#include "base/shape.h"
#include "spec/build.h"

#include <inttypes.h>
#include <string.h>

/* How the pieces of a shard are placed. */
typedef enum place_form { PLACE_NONE, PLACE_COORDINATES, PLACE_FLAT } place_form;

typedef struct boxes_parser {
    reshard_context *context;
    rs_scan *scan;
    int32_t ndim;
    int64_t shape[RESHARD_NDIM_MAX];
    /* The pieces of the current shard. Until the whole shard has been read, `strides` holds a
     * piece's coordinates. */
    reshard_piece *pieces;
    int64_t piece_count;
    int64_t capacity;
    place_form form;
} boxes_parser;

/* ---- one piece ------------------------------------------------------------------------------- */

/* Parses from ":" to. Checks and stores the interval only if the tensor has a dimension d. */
static reshard_status parse_interval(boxes_parser *parser, int64_t d, reshard_box *box)
{
    rs_scan *scan = parser->scan;
    size_t start = rs_scan_here(scan);
    int64_t from = 0;
    int64_t to = 0;
    reshard_status status = rs_scan_number(scan, &from);
    if (status == RESHARD_OK)
        status = rs_scan_expect(scan, ':');
    if (status == RESHARD_OK)
        status = rs_scan_number(scan, &to);
    if (status != RESHARD_OK)
        return status;
    if (from > to)
        return rs_scan_fail(scan, start, RESHARD_ERR_INVALID,
                            "%" PRId64 ":%" PRId64 " ends before it begins", from, to);
    if (d >= parser->ndim)
        return RESHARD_OK; /* too many intervals: the caller reports it */
    if (to > parser->shape[d])
        return rs_scan_fail(scan, start, RESHARD_ERR_RANGE,
                            "%" PRId64 ":%" PRId64 " is not within 0:%" PRId64
                            ", the length of dimension %" PRId64,
                            from, to, parser->shape[d], d);
    box->offset[d] = from;
    box->size[d] = to - from;
    return RESHARD_OK;
}

static reshard_status parse_box(boxes_parser *parser, reshard_box *out_box)
{
    rs_scan *scan = parser->scan;
    size_t start = rs_scan_here(scan);
    int64_t count = 0;
    reshard_status status = rs_scan_expect(scan, '[');
    if (status != RESHARD_OK)
        return status;
    memset(out_box, 0, sizeof *out_box);
    out_box->ndim = parser->ndim;
    if (!rs_scan_accept(scan, ']')) {
        do {
            status = parse_interval(parser, count, out_box);
            if (status != RESHARD_OK)
                return status;
            count++;
        } while (rs_scan_accept(scan, ','));
        if (!rs_scan_accept(scan, ']'))
            return rs_scan_expected(scan, "\",\" or \"]\"");
    }
    if (count != parser->ndim)
        return rs_scan_fail(scan, start, RESHARD_ERR_INVALID,
                            "a box of %" PRId64 " dimensions in a tensor of %" PRId32 " dimensions",
                            count, parser->ndim);
    return RESHARD_OK;
}

/* Parses what follows a box: nothing, or "@" and the piece's place, which is stored in `at` and
 * `strides`. */
static reshard_status parse_place(boxes_parser *parser, reshard_piece *piece, place_form *out_form)
{
    rs_scan *scan = parser->scan;
    size_t start = rs_scan_here(scan);
    int64_t count = 0;
    *out_form = PLACE_NONE;
    if (!rs_scan_accept(scan, '@'))
        return RESHARD_OK;
    do {
        int64_t number = 0;
        reshard_status status = rs_scan_number(scan, &number);
        if (status != RESHARD_OK)
            return status;
        if (count == 0)
            piece->at = number;
        if (count < RESHARD_NDIM_MAX)
            piece->strides[count] = number;
        count++;
    } while (rs_scan_accept(scan, ','));
    if (count != 1 && count != parser->ndim)
        return rs_scan_fail(scan, start, RESHARD_ERR_INVALID,
                            "%" PRId64 " numbers after @; a tensor of %" PRId32
                            " dimensions takes that many, or one",
                            count, parser->ndim);
    *out_form = count == parser->ndim ? PLACE_COORDINATES : PLACE_FLAT;
    return RESHARD_OK;
}

static reshard_status parse_piece(boxes_parser *parser)
{
    size_t start = rs_scan_here(parser->scan);
    reshard_status status = rs_grow(parser->context, &parser->pieces, &parser->capacity,
                                    parser->piece_count + 1, sizeof *parser->pieces);
    if (status != RESHARD_OK)
        return status;
    reshard_piece *piece = &parser->pieces[parser->piece_count];
    place_form form = PLACE_NONE;
    memset(piece, 0, sizeof *piece);
    status = parse_box(parser, &piece->box);
    if (status == RESHARD_OK)
        status = parse_place(parser, piece, &form);
    if (status != RESHARD_OK)
        return status;
    if (parser->piece_count > 0 && form != parser->form)
        return rs_scan_fail(parser->scan, start, RESHARD_ERR_INVALID,
                            "the pieces of one shard say in different ways where they lie");
    parser->form = form;
    parser->piece_count++;
    return RESHARD_OK;
}

/* ---- one shard ------------------------------------------------------------------------------- */

static bool is_empty(const boxes_parser *parser, const reshard_piece *piece)
{
    for (int32_t d = 0; d < parser->ndim; d++) {
        if (piece->box.size[d] == 0)
            return true;
    }
    return false;
}

/* In each dimension the buffer reaches to the end of the furthest piece. Empty pieces count only if
 * there are no others. Returns false on overflow. */
static bool measure_buffer(const boxes_parser *parser, reshard_shard *shard)
{
    int32_t ndim = parser->ndim;
    bool any = false;
    for (int64_t i = 0; i < parser->piece_count; i++) {
        const reshard_piece *piece = &parser->pieces[i];
        if (is_empty(parser, piece))
            continue;
        any = true;
        for (int32_t d = 0; d < ndim; d++) {
            int64_t end;
            if (!rs_add(piece->strides[d], piece->box.size[d], &end))
                return false;
            shard->shape[d] = rs_max(shard->shape[d], end);
        }
    }
    if (!any)
        memcpy(shard->shape, parser->pieces[0].box.size, (size_t)ndim * sizeof *shard->shape);
    return true;
}

static reshard_status place_by_coordinates(boxes_parser *parser, reshard_shard *shard)
{
    shard->ndim = parser->ndim;
    if (!measure_buffer(parser, shard))
        return rs_fail(RESHARD_ERR_RANGE, "a shard of more than 2^63-1 elements");
    reshard_status status = rs_shape_check(shard->ndim, shard->shape);
    if (status != RESHARD_OK)
        return status;
    int64_t strides[RESHARD_NDIM_MAX];
    rs_dense_strides(parser->ndim, shard->shape, strides);
    for (int64_t i = 0; i < parser->piece_count; i++) {
        reshard_piece *piece = &parser->pieces[i];
        piece->at = 0;
        for (int32_t d = 0; d < parser->ndim; d++) {
            /* The coordinates of a non-empty piece are inside the buffer, so the sum stays below
             * its volume. */
            if (!is_empty(parser, piece))
                piece->at += piece->strides[d] * strides[d];
        }
        memcpy(piece->strides, strides, (size_t)parser->ndim * sizeof *strides);
    }
    return RESHARD_OK;
}

/* Places pieces in a flat shard: at the given `at`, or with `pack` right behind the piece
 * before. */
static reshard_status place_in_line(boxes_parser *parser, bool pack, reshard_shard *shard)
{
    shard->ndim = 1;
    for (int64_t i = 0; i < parser->piece_count; i++) {
        reshard_piece *piece = &parser->pieces[i];
        reshard_status status = rs_shape_check(parser->ndim, piece->box.size);
        if (status != RESHARD_OK)
            return status;
        int64_t end;
        int64_t volume = rs_volume(parser->ndim, piece->box.size);
        if (pack)
            piece->at = shard->shape[0];
        if (!rs_add(piece->at, volume, &end))
            return rs_fail(RESHARD_ERR_RANGE, "a shard of more than 2^63-1 elements");
        if (volume != 0)
            shard->shape[0] = rs_max(shard->shape[0], end);
        rs_dense_strides(parser->ndim, piece->box.size, piece->strides);
    }
    return RESHARD_OK;
}

static reshard_status place_pieces(boxes_parser *parser, reshard_shard *shard)
{
    bool coordinates = parser->form == PLACE_COORDINATES ||
                       (parser->form == PLACE_NONE && parser->piece_count == 1);
    if (coordinates) /* without "@", all coordinates are 0 */
        return place_by_coordinates(parser, shard);
    return place_in_line(parser, parser->form == PLACE_NONE, shard);
}

static reshard_status parse_shard(boxes_parser *parser, rs_boxes_builder *builder)
{
    rs_scan *scan = parser->scan;
    size_t start = rs_scan_here(scan);
    int64_t rank = 0;
    if (!rs_scan_at_digit(scan))
        return rs_scan_expected(scan, "a rank");
    reshard_status status = rs_scan_number(scan, &rank);
    if (status != RESHARD_OK)
        return status;
    if (rank > INT32_MAX)
        return rs_scan_fail(scan, start, RESHARD_ERR_RANGE, "rank %" PRId64 " is beyond 2^31-1",
                            rank);
    parser->piece_count = 0;
    do {
        status = parse_piece(parser);
        if (status != RESHARD_OK)
            return status;
    } while (rs_scan_accept(scan, '+'));
    reshard_shard shard = {.rank = (int32_t)rank};
    status = place_pieces(parser, &shard);
    if (status == RESHARD_OK) {
        shard.piece_count = parser->piece_count;
        shard.pieces = parser->pieces;
        status = rs_boxes_add(builder, &shard);
    }
    return status == RESHARD_OK ? status : rs_scan_fail_within(scan, start, status);
}

/* ---- entry point ----------------------------------------------------------------------------- */

reshard_status rs_parse_boxes(reshard_context *context, rs_scan *scan, int cover,
                              reshard_spec **out_spec)
{
    boxes_parser parser = {.context = context, .scan = scan};
    rs_boxes_builder builder = {.context = context};
    reshard_status status = rs_scan_shape(scan, &parser.ndim, parser.shape);
    if (status != RESHARD_OK)
        goto out;
    if (!rs_scan_accept(scan, ':')) {
        status = rs_scan_expected(scan, "\"x\" or \":\"");
        goto out;
    }
    status = rs_boxes_init(&builder, context, cover, parser.ndim, parser.shape);
    while (status == RESHARD_OK && rs_scan_peek(scan) >= 0)
        status = parse_shard(&parser, &builder);
    if (status != RESHARD_OK)
        goto out;
    status = rs_boxes_finish(&builder, out_spec);
    if (status != RESHARD_OK)
        status = rs_scan_fail_within(scan, scan->position, status);
out:
    rs_boxes_release(&builder);
    rs_release(context, parser.pieces);
    return status;
}
