/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chain.c - the rules of cutting. Each rule is a pair of closed formulas that are inverse to each
 * other:
 *
 *   find   position in the line -> the interval around it, its holders, and its place in a holder's
 *          own line
 *   place  place in a holder's own line -> the interval around it
 *
 * Everything else (lengths, walks, nested cuts) is made of these two. Invariants, which tests
 * check:
 *  1. find(place(x)) gives x back, and place(find(p)) gives p back.
 *  2. A coordinate's intervals are increasing, both in the line and in its own line.
 */
#include "layout/chain.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/search.h"

#include <assert.h>
#include <inttypes.h>

/* An interval of the line, the piece it belongs to, and where it begins in the own line of that
 * piece. */
typedef struct interval {
    int64_t start, length;
    int64_t piece;
    int64_t piece_count; /* distinct pieces here; the parts of PACKED may differ in this */
    int64_t local;
} interval;

/* min(n, count * length) for length >= 1; the product may overflow. */
static int64_t multiply_up_to(int64_t n, int64_t count, int64_t length)
{
    return count > n / length ? n : rs_min(n, count * length);
}

/* The piece that a coordinate holds if neighbouring coordinates share `pieces` pieces. */
static int64_t piece_of(const rs_cut *cut, int64_t pieces, int32_t coordinate)
{
    assert(coordinate >= 0 && coordinate < cut->coordinate_count);
    assert(pieces >= 1 && pieces <= cut->coordinate_count);
    return rs_multiply_divide(coordinate, pieces, cut->coordinate_count);
}

static int32_t first_holder(const rs_cut *cut, int64_t pieces, int64_t piece)
{
    return (int32_t)rs_divide_up(piece * cut->coordinate_count, pieces);
}

/* ---- equal chunks of whole units: the rule under CHUNK, PACKED and STRIDED ------------------- */

/* At least 1, so that it can be a divisor. No more than n, because a chunk longer than the line is
 * no different. */
static int64_t chunk_length(int64_t n, int64_t unit, int64_t pieces)
{
    assert(n >= 0 && unit >= 1 && pieces >= 1);
    return rs_max(1, multiply_up_to(n, rs_divide_up(rs_divide_up(n, unit), pieces), unit));
}

static int64_t chunk_size(int64_t n, int64_t chunk, int64_t piece)
{
    return rs_min(n - multiply_up_to(n, piece, chunk), chunk);
}

/* ---- balanced -------------------------------------------------------------------------------- */

static int64_t balanced_start(const rs_cut *cut, int64_t n, int64_t piece)
{
    int64_t units = rs_divide_up(n, cut->unit);
    int64_t each = units / cut->piece_count;
    int64_t larger = units % cut->piece_count;
    return multiply_up_to(n, piece * each + rs_min(piece, larger), cut->unit);
}

static int64_t balanced_piece(const rs_cut *cut, int64_t n, int64_t position)
{
    int64_t units = rs_divide_up(n, cut->unit);
    int64_t each = units / cut->piece_count;
    int64_t larger = units % cut->piece_count;
    int64_t unit = position / cut->unit;
    int64_t in_larger = larger * (each + 1);
    return unit < in_larger ? unit / (each + 1) : larger + (unit - in_larger) / each;
}

/* ---- parts: PACKED and STRIDED cut a sequence of parts, each into chunks --------------------- */

typedef struct part {
    int64_t start, length;
    int64_t pieces;
} part;

static int64_t strided_part_length(const rs_cut *cut, int64_t n)
{
    return chunk_length(n, cut->unit, cut->factor);
}

static int64_t part_count(const rs_cut *cut, int64_t n)
{
    if (cut->rule == RESHARD_PACKED)
        return cut->value_count;
    return n == 0 ? 0 : rs_divide_up(n, strided_part_length(cut, n));
}

static part part_at(const rs_cut *cut, int64_t n, int64_t index)
{
    assert(index >= 0 && index < part_count(cut, n));
    part result = {.pieces = cut->piece_count};
    if (cut->rule == RESHARD_PACKED) {
        result.start = cut->starts[index];
        result.length = cut->values[index];
        if (cut->part_max != NULL && cut->part_max[index] != 0)
            result.pieces = rs_min(result.pieces, cut->part_max[index]);
    } else {
        int64_t length = strided_part_length(cut, n);
        result.start = index * length;
        result.length = rs_min(length, n - result.start);
    }
    return result;
}

/* The index of the last start that is at most `position`, among `count` non-decreasing starts. Of
 * several equal starts this is the part that is not empty, so it holds the position. */
static int64_t search_starts(const int64_t *starts, int64_t count, int64_t position)
{
    int64_t next;
    RS_FIND_FIRST(next, count, starts[next] > position);
    assert(next > 0);
    return next - 1;
}

static int64_t part_around(const rs_cut *cut, int64_t n, int64_t position)
{
    if (cut->rule == RESHARD_PACKED)
        return search_starts(cut->starts, cut->value_count, position);
    return position / strided_part_length(cut, n);
}

static int64_t part_share(const rs_cut *cut, const part *p, int32_t coordinate)
{
    int64_t chunk = chunk_length(p->length, cut->unit, p->pieces);
    return chunk_size(p->length, chunk, piece_of(cut, p->pieces, coordinate));
}

/* How many elements a coordinate holds of all parts before `index`. All parts of STRIDED are alike,
 * except for the last. */
static int64_t parts_before(const rs_cut *cut, int64_t n, int64_t index, int32_t coordinate)
{
    if (index == 0)
        return 0;
    if (cut->rule == RESHARD_STRIDED) {
        part first = part_at(cut, n, 0);
        return index * part_share(cut, &first, coordinate);
    }
    int64_t sum = 0;
    for (int64_t i = 0; i < index; i++) {
        part p = part_at(cut, n, i);
        sum += part_share(cut, &p, coordinate);
    }
    return sum;
}

/* ---- find ------------------------------------------------------------------------------------ */

static interval find_in_parts(const rs_cut *cut, int64_t n, int64_t position)
{
    int64_t index = part_around(cut, n, position);
    part p = part_at(cut, n, index);
    int64_t chunk = chunk_length(p.length, cut->unit, p.pieces);
    int64_t piece = (position - p.start) / chunk;
    return (interval){
        .start = p.start + piece * chunk,
        .length = chunk_size(p.length, chunk, piece),
        .piece = piece,
        .piece_count = p.pieces,
        .local = parts_before(cut, n, index, first_holder(cut, p.pieces, piece)),
    };
}

static interval find_interval(const rs_cut *cut, int64_t n, int64_t position)
{
    interval result = {.piece_count = cut->piece_count};
    switch (cut->rule) {
    case RESHARD_CHUNK: {
        int64_t chunk = chunk_length(n, cut->unit, cut->piece_count);
        result.piece = position / chunk;
        result.start = result.piece * chunk;
        result.length = chunk_size(n, chunk, result.piece);
        return result;
    }
    case RESHARD_BALANCED:
        result.piece = balanced_piece(cut, n, position);
        result.start = balanced_start(cut, n, result.piece);
        result.length = balanced_start(cut, n, result.piece + 1) - result.start;
        return result;
    case RESHARD_RAGGED:
        result.piece = search_starts(cut->starts, cut->value_count, position);
        result.start = cut->starts[result.piece];
        result.length = cut->values[result.piece];
        return result;
    case RESHARD_CYCLIC: {
        int64_t block = position / cut->factor;
        result.piece = block % cut->piece_count;
        result.start = block * cut->factor;
        result.length = rs_min(cut->factor, n - result.start);
        result.local = block / cut->piece_count * cut->factor;
        return result;
    }
    case RESHARD_PACKED:
    case RESHARD_STRIDED:
        return find_in_parts(cut, n, position);
    }
    return result;
}

/* ---- place ----------------------------------------------------------------------------------- */

static interval place_in_parts(const rs_cut *cut, int64_t n, int32_t coordinate, int64_t local)
{
    int64_t before = 0;
    int64_t i = 0;
    if (cut->rule == RESHARD_STRIDED) {
        part first = part_at(cut, n, 0);
        int64_t share = part_share(cut, &first, coordinate);
        /* All parts but the last are alike. The last part is shorter, so a late coordinate may hold
         * more of it than of the others. */
        int64_t last = part_count(cut, n) - 1;
        i = share != 0 ? rs_min(local / share, last) : last;
        before = i * share;
    }
    for (;; i++) {
        assert(i < part_count(cut, n));
        part p = part_at(cut, n, i);
        int64_t share = part_share(cut, &p, coordinate);
        if (local < before + share) {
            int64_t piece = piece_of(cut, p.pieces, coordinate);
            int64_t chunk = chunk_length(p.length, cut->unit, p.pieces);
            return (interval){.start = p.start + piece * chunk,
                              .length = share,
                              .piece = piece,
                              .piece_count = p.pieces,
                              .local = before};
        }
        before += share;
    }
}

/* The interval around place `local` of the coordinate's own line, 0 <= local < length of that
 * line. */
static interval place_interval(const rs_cut *cut, int64_t n, int32_t coordinate, int64_t local)
{
    if (cut->rule == RESHARD_PACKED || cut->rule == RESHARD_STRIDED)
        return place_in_parts(cut, n, coordinate, local);
    int64_t piece = piece_of(cut, cut->piece_count, coordinate);
    if (cut->rule == RESHARD_CYCLIC) {
        int64_t block = local / cut->factor * cut->piece_count + piece;
        return find_interval(cut, n, block * cut->factor);
    }
    interval result = {.piece = piece, .piece_count = cut->piece_count};
    if (cut->rule == RESHARD_CHUNK) {
        int64_t chunk = chunk_length(n, cut->unit, cut->piece_count);
        result.start = piece * chunk;
        result.length = chunk_size(n, chunk, piece);
    } else if (cut->rule == RESHARD_BALANCED) {
        result.start = balanced_start(cut, n, piece);
        result.length = balanced_start(cut, n, piece + 1) - result.start;
    } else {
        result.start = cut->starts[piece];
        result.length = cut->values[piece];
    }
    return result;
}

/* ---- one cut --------------------------------------------------------------------------------- */

static int64_t cyclic_length(const rs_cut *cut, int64_t n, int64_t piece)
{
    int64_t blocks = n / cut->factor;
    int64_t rest = n % cut->factor;
    int64_t whole = blocks / cut->piece_count + (piece < blocks % cut->piece_count);
    return whole * cut->factor + (piece == blocks % cut->piece_count ? rest : 0);
}

int64_t rs_cut_length(const rs_cut *cut, int64_t n, int32_t coordinate)
{
    assert(n >= 0);
    int64_t piece = piece_of(cut, cut->piece_count, coordinate);
    switch (cut->rule) {
    case RESHARD_CHUNK:
        return chunk_size(n, chunk_length(n, cut->unit, cut->piece_count), piece);
    case RESHARD_BALANCED:
        return balanced_start(cut, n, piece + 1) - balanced_start(cut, n, piece);
    case RESHARD_RAGGED:
        return cut->values[piece];
    case RESHARD_CYCLIC:
        return cyclic_length(cut, n, piece);
    case RESHARD_PACKED:
        return parts_before(cut, n, cut->value_count, coordinate);
    case RESHARD_STRIDED: {
        int64_t count = part_count(cut, n);
        if (count == 0)
            return 0;
        part last = part_at(cut, n, count - 1);
        return parts_before(cut, n, count - 1, coordinate) + part_share(cut, &last, coordinate);
    }
    }
    return 0;
}

int64_t rs_cut_length_max(const rs_cut *cut, int64_t n)
{
    if (cut->rule != RESHARD_RAGGED)
        return rs_cut_length(cut, n, 0); /* all other rules give the first coordinate the most */
    int64_t longest = 0;
    for (int32_t i = 0; i < cut->value_count; i++)
        longest = rs_max(longest, cut->values[i]);
    return longest;
}

static reshard_status check_units(const rs_cut *cut, int64_t n)
{
    if (cut->rule == RESHARD_CYCLIC && cut->factor % cut->unit != 0)
        return rs_fail(RESHARD_ERR_INVALID,
                       "blocks of %" PRId64 " are not a multiple of unit=%" PRId64, cut->factor,
                       cut->unit);
    if (cut->rule != RESHARD_RAGGED)
        return RESHARD_OK;
    for (int32_t i = 0; i < cut->value_count; i++) {
        int64_t start = cut->starts[i];
        if (start != n && start % cut->unit != 0)
            return rs_fail(RESHARD_ERR_INVALID,
                           "size %d begins at %" PRId64
                           ", which is not a multiple of unit=%" PRId64,
                           i, start, cut->unit);
    }
    return RESHARD_OK;
}

reshard_status rs_cut_check(const rs_cut *cut, int64_t n)
{
    if (cut->rule == RESHARD_RAGGED && cut->value_count != cut->piece_count)
        return rs_fail(RESHARD_ERR_INVALID, "%d sizes for %d coordinates", cut->value_count,
                       cut->piece_count);
    if ((cut->rule == RESHARD_RAGGED || cut->rule == RESHARD_PACKED) &&
        cut->starts[cut->value_count] != n)
        return rs_fail(RESHARD_ERR_INVALID, "%s add up to %" PRId64 ", not to %" PRId64,
                       cut->rule == RESHARD_RAGGED ? "sizes" : "parts",
                       cut->starts[cut->value_count], n);
    return check_units(cut, n);
}

/* ---- chains ---------------------------------------------------------------------------------- */

int64_t rs_chain_length(const rs_chain *chain, int64_t n, const int32_t *coordinates)
{
    for (int32_t i = 0; i < chain->count; i++)
        n = rs_cut_length(&chain->cuts[i], n, coordinates[i]);
    return n;
}

int64_t rs_chain_length_max(const rs_chain *chain, int64_t n)
{
    for (int32_t i = 0; i < chain->count; i++)
        n = rs_cut_length_max(&chain->cuts[i], n);
    return n;
}

static void set_holders(rs_span *span, int32_t level, const rs_cut *cut, const interval *found)
{
    int32_t first = first_holder(cut, found->piece_count, found->piece);
    span->first[level] = first;
    span->count[level] = first_holder(cut, found->piece_count, found->piece + 1) - first;
    assert(found->piece >= 0 && found->piece < found->piece_count);
    assert(first >= 0 && span->count[level] >= 1);
    assert(first + span->count[level] <= cut->coordinate_count);
}

void rs_chain_find(const rs_chain *chain, int64_t n, int64_t position, rs_span *out_span)
{
    /* The span found so far: the `length` elements from `start` of the whole line are [low, low +
     * length) of the line that the current level cuts. */
    int64_t start = 0, length = n, low = 0;
    assert(position >= 0 && position < n && chain->count <= RESHARD_AXES_MAX);
    for (int32_t i = 0; i < chain->count; i++) {
        const rs_cut *cut = &chain->cuts[i];
        interval found = find_interval(cut, n, low + (position - start));
        int64_t from = rs_max(found.start, low);
        int64_t to = rs_min(found.start + found.length, low + length);
        assert(from <= low + (position - start) && low + (position - start) < to);
        set_holders(out_span, i, cut, &found);
        start += from - low;
        length = to - from;
        low = found.local + (from - found.start);
        n = rs_cut_length(cut, n, out_span->first[i]);
    }
    assert(start <= position && position < start + length);
    assert(low >= 0 && low + length <= n); /* n is the first holder's own line now */
    out_span->start = start;
    out_span->length = length;
    out_span->local = low;
}

bool rs_chain_next(const rs_chain *chain, int64_t n, int64_t end, int64_t *position,
                   rs_span *out_span)
{
    if (*position >= end)
        return false;
    rs_chain_find(chain, n, *position, out_span);
    int64_t skipped = *position - out_span->start;
    int64_t next = rs_min(out_span->start + out_span->length, end);
    out_span->start += skipped;
    out_span->local += skipped;
    out_span->length = next - out_span->start;
    *position = next;
    return true;
}

/* The place of `position` in the own line of one of its holders. */
static int64_t local_in_cut(const rs_cut *cut, int64_t n, int32_t coordinate, int64_t position)
{
    interval found = find_interval(cut, n, position);
    /* Coordinates that share a part may have different lengths before it. */
    if (cut->rule == RESHARD_PACKED)
        found.local = parts_before(cut, n, part_around(cut, n, position), coordinate);
    return found.local + (position - found.start);
}

int64_t rs_chain_local(const rs_chain *chain, int64_t n, const int32_t *coordinates,
                       int64_t position)
{
    for (int32_t i = 0; i < chain->count; i++) {
        const rs_cut *cut = &chain->cuts[i];
        position = local_in_cut(cut, n, coordinates[i], position);
        n = rs_cut_length(cut, n, coordinates[i]);
        assert(position >= 0 && position < n);
    }
    return position;
}

void rs_line_cursor_init(rs_line_cursor *cursor, const rs_chain *chain, int64_t n,
                         const int32_t *coordinates)
{
    *cursor = (rs_line_cursor){.chain = chain, .n = n, .coordinates = coordinates};
    cursor->length = rs_chain_length(chain, n, coordinates);
}

/* The span around place `local` of the own line at these coordinates. Goes up the chain from the
 * last cut. */
static void place_span(const rs_line_cursor *cursor, int64_t local, rs_span *out_span)
{
    const rs_chain *chain = cursor->chain;
    int64_t lengths[RESHARD_AXES_MAX + 1];
    lengths[0] = cursor->n;
    for (int32_t i = 0; i < chain->count; i++)
        lengths[i + 1] = rs_cut_length(&chain->cuts[i], lengths[i], cursor->coordinates[i]);
    /* [from, to) is the span so far, in the line that level i makes; `at` is our place in that
     * line. */
    int64_t from = 0, to = lengths[chain->count], at = local;
    for (int32_t i = chain->count - 1; i >= 0; i--) {
        const rs_cut *cut = &chain->cuts[i];
        interval found = place_interval(cut, lengths[i], cursor->coordinates[i], at);
        set_holders(out_span, i, cut, &found);
        int64_t low = rs_max(from, found.local);
        int64_t high = rs_min(to, found.local + found.length);
        assert(low <= at && at < high);
        from = found.start + (low - found.local);
        to = found.start + (high - found.local);
        at = found.start + (at - found.local);
    }
    out_span->local = local - (at - from);
    out_span->start = from;
    out_span->length = to - from;
}

bool rs_line_cursor_next(rs_line_cursor *cursor, rs_span *out_span)
{
    if (cursor->local >= cursor->length)
        return false;
    place_span(cursor, cursor->local, out_span);
    /* Invariants 1 and 2: find gives the same place back, and spans move on. */
    assert(rs_chain_local(cursor->chain, cursor->n, cursor->coordinates, out_span->start) ==
           out_span->local);
    assert(out_span->local <= cursor->local && out_span->length >= 1);
    assert(out_span->local + out_span->length > cursor->local);
    cursor->local = out_span->local + out_span->length;
    assert(cursor->local <= cursor->length);
    return true;
}
