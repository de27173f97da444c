/* SPDX-License-Identifier: Apache-2.0 */
/*
 * estimate.c - estimates the number of spans of a chain, and of pieces of a rank, without
 * enumerating them. Exact for a line that is cut once. For several cuts the borders of each are
 * added up, which is right to within a small factor. Used to refuse work that would take forever,
 * not to size memory.
 */
#include "base/checked.h"
#include "base/shape.h"
#include "layout/layout.h"

#include <assert.h>

/* The length of most intervals that a cut makes of a line of n elements; 0 if their lengths are
 * listed. */
static int64_t interval_length(const rs_cut *cut, int64_t n)
{
    int64_t parts = cut->rule == RESHARD_STRIDED ? rs_max(1, cut->factor) : 1;
    if (cut->rule == RESHARD_CYCLIC)
        return cut->factor;
    if (cut->rule == RESHARD_RAGGED || cut->rule == RESHARD_PACKED)
        return 0;
    return rs_max(1, rs_divide_up(rs_divide_up(n, parts), cut->piece_count));
}

/* How many intervals the cut makes of `runs` stretches, which have `length` elements in all and lie
 * on any of `lines` lines of n elements. */
static int64_t cut_runs(const rs_cut *cut, int64_t n, int64_t lines, int64_t length, int64_t runs)
{
    int64_t each = interval_length(cut, n), borders;
    if (each != 0)
        borders = rs_add_up(length / each, cut->rule == RESHARD_CYCLIC ? 0 : runs);
    else
        borders =
            rs_multiply_up(cut->value_count, cut->rule == RESHARD_PACKED ? cut->piece_count : 1);
    if (cut->rule == RESHARD_CHUNK || cut->rule == RESHARD_BALANCED)
        borders = rs_min(borders, rs_multiply_up(lines, cut->piece_count));
    assert(length >= 0 && runs >= 0 && borders >= 0);
    return rs_min(length, rs_add_up(runs, borders));
}

int64_t rs_chain_met_estimate(const rs_chain *chain, int64_t n, int64_t length, int64_t runs)
{
    int64_t lines = 1;
    for (int32_t i = 0; i < chain->count; i++) {
        runs = cut_runs(&chain->cuts[i], n, lines, length, runs);
        n = rs_cut_length_max(&chain->cuts[i], n);
        lines = rs_multiply_up(lines, chain->cuts[i].coordinate_count);
    }
    return runs;
}

/* The number of intervals that one coordinate of a cut holds. */
static int64_t held_intervals(const rs_cut *cut, int64_t n, int64_t length)
{
    if (cut->rule == RESHARD_CYCLIC)
        return rs_divide_up(length, cut->factor);
    if (cut->rule == RESHARD_STRIDED || cut->rule == RESHARD_PACKED)
        return rs_min(length,
                      cut->rule == RESHARD_PACKED ? cut->value_count : rs_min(cut->factor, n));
    return length != 0;
}

int64_t rs_chain_held_estimate(const rs_chain *chain, int64_t n, const int32_t *by_level)
{
    int64_t lengths[RESHARD_AXES_MAX + 1];
    lengths[0] = n;
    for (int32_t i = 0; i < chain->count; i++)
        lengths[i + 1] = rs_cut_length(&chain->cuts[i], lengths[i], by_level[i]);
    int64_t length = lengths[chain->count], runs = length != 0;
    for (int32_t i = chain->count - 1; i >= 0 && runs != 0; i--) {
        const rs_cut *cut = &chain->cuts[i];
        /* Count only those intervals of this level that the levels below have kept. */
        int64_t all = held_intervals(cut, lengths[i], lengths[i + 1]);
        int64_t each = rs_max(1, lengths[i + 1] / rs_max(1, all));
        int64_t crossed =
            rs_add_up(length / each, i + 1 < chain->count ? rs_multiply_up(2, runs) : 0);
        runs = rs_min(length, rs_min(rs_add_up(runs, all - 1), rs_max(runs, crossed)));
    }
    return runs;
}

int64_t rs_layout_piece_estimate(const reshard_layout *layout, int32_t rank)
{
    int32_t coordinates[RESHARD_AXES_MAX], by_level[RESHARD_AXES_MAX];
    int64_t pieces = layout->listed ? 0 : 1, inner = 1, volume = 1, row = 1;
    for (int64_t i = layout->listed ? rs_listed_first_shard(layout, rank) : layout->shard_count;
         i < layout->shard_count && layout->shards[i].rank == rank; i++)
        pieces += layout->shards[i].piece_count;
    if (layout->listed || !rs_layout_coordinates(layout, rank, coordinates))
        return layout->listed ? pieces : 0;
    for (int32_t d = 0; d < layout->ndim; d++) {
        const rs_chain *chain = &layout->dims[d];
        rs_chain_coordinates(chain, coordinates, by_level);
        int64_t held = rs_chain_held_estimate(chain, layout->shape[d], by_level);
        pieces = rs_multiply_up(pieces, held);
        inner = d == 0 ? 1 : rs_multiply_up(inner, held);
        row = rs_chain_length(chain, layout->shape[d], by_level);
        volume *= row;
    }
    if (layout->flat.count == 0)
        return pieces;
    /* A range within a row is one box. A longer range has partial slices at both ends, dim by
     * dim. */
    rs_chain_coordinates(&layout->flat, coordinates, by_level);
    int64_t ranges = rs_chain_held_estimate(&layout->flat, volume, by_level);
    int64_t length = rs_chain_length(&layout->flat, volume, by_level);
    bool within_rows = layout->ndim == 0 || (ranges != 0 && length / ranges < row);
    int64_t boxes = within_rows ? 1 : 2 * layout->ndim - 1;
    return rs_min(length, rs_add_up(pieces, rs_multiply_up(rs_multiply_up(ranges, boxes), inner)));
}
