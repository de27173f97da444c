/* SPDX-License-Identifier: Apache-2.0 */
/*
 * oracle_boxes.c - layouts of listed boxes, element by element; see oracle.h.
 *
 * Whether boxes tile a tensor is found out by counting the owners of each of its elements.
 */
#include "tests/support/oracle_boxes.h"

#include <stdlib.h>
#include <string.h>

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void shape_listed(const oracle_listed *listed, int32_t ndim, oracle_shard *shard)
{
    const oracle_piece *first = &listed->pieces[0];
    bool flat = first->at_count == 0 ? listed->piece_count > 1 : first->at_count != ndim;
    shard->ndim = flat ? 1 : ndim;
    for (int32_t i = 0; i < listed->piece_count; i++) {
        const oracle_piece *piece = &listed->pieces[i];
        int64_t volume = 1;
        for (int32_t d = 0; d < ndim; d++)
            volume *= piece->to[d] - piece->from[d];
        for (int32_t d = 0; d < ndim && !flat; d++) {
            int64_t end = piece->to[d] - piece->from[d] + (piece->at_count > 0 ? piece->at[d] : 0);
            shard->shape[d] = end > shard->shape[d] ? end : shard->shape[d];
        }
        if (flat)
            shard->shape[0] += volume;
        for (int32_t d = 0; d < ndim; d++)
            shard->offset[d] = i == 0 ? piece->from[d] : smaller(piece->from[d], shard->offset[d]);
    }
    shard->count = oracle_volume(shard->ndim, shard->shape);
}

/* Puts element i of the piece where it belongs in the shard; false when there is no such place, or
 * it is taken. `packed` is the number of elements of the pieces before this one. */
static bool place_element(const oracle_piece *piece, int32_t ndim, const int64_t *shape, int64_t i,
                          int64_t packed, oracle_shard *shard)
{
    int64_t rest = i;
    int64_t element = 0, weight = 1;
    int64_t place = 0, place_weight = 1;
    bool flat = shard->ndim != ndim || (ndim == 1 && piece->at_count == 0);
    for (int32_t d = ndim - 1; d >= 0; d--) {
        int64_t size = piece->to[d] - piece->from[d];
        int64_t x = rest % size;
        rest /= size;
        element += (piece->from[d] + x) * weight;
        weight *= shape[d];
        if (!flat) {
            place += (x + (piece->at_count > 0 ? piece->at[d] : 0)) * place_weight;
            place_weight *= shard->shape[d];
        }
    }
    if (flat)
        place = i + (piece->at_count > 0 ? piece->at[0] : packed);
    if (place >= shard->count || shard->elements[place] != -1)
        return false;
    shard->elements[place] = element;
    return true;
}

static const char *fill_listed(const oracle_listed *listed, int32_t ndim, const int64_t *shape,
                               oracle_shard *shard)
{
    int64_t packed = 0;
    shard->elements = calloc((size_t)shard->count + 1, sizeof *shard->elements);
    if (shard->elements == NULL)
        abort();
    for (int64_t i = 0; i < shard->count; i++)
        shard->elements[i] = -1;
    for (int32_t p = 0; p < listed->piece_count; p++) {
        const oracle_piece *piece = &listed->pieces[p];
        int64_t volume = 1;
        for (int32_t d = 0; d < ndim; d++)
            volume *= piece->to[d] - piece->from[d];
        for (int64_t i = 0; i < volume; i++) {
            if (!place_element(piece, ndim, shape, i, packed, shard))
                return "pieces overlap in their shard";
        }
        packed += volume;
    }
    return packed == shard->count ? NULL : "pieces do not fill their shard";
}

static const char *why_not_listed(const oracle_listed *listed, int32_t ndim, const int64_t *shape)
{
    for (int32_t p = 0; p < listed->piece_count; p++) {
        for (int32_t d = 0; d < ndim; d++) {
            const oracle_piece *piece = &listed->pieces[p];
            if (piece->from[d] < 0 || piece->to[d] < piece->from[d] || piece->to[d] > shape[d])
                return "a box is out of bounds";
        }
    }
    return NULL;
}

static const char *why_not_tiling(const oracle_layout *layout, bool cover)
{
    const char *why = NULL;
    uint8_t *owners = calloc((size_t)layout->volume + 1, 1);
    if (owners == NULL)
        abort();
    for (int64_t s = 0; s < layout->shard_count; s++) {
        for (int64_t i = 0; i < layout->shards[s].count; i++) {
            uint8_t *count = &owners[layout->shards[s].elements[i]];
            *count = (uint8_t)(*count < 2 ? *count + 1 : 2);
        }
    }
    for (int64_t i = 0; i < layout->volume; i++) {
        if (owners[i] == 0)
            why = "nobody owns an element";
        else if (owners[i] > 1 && !cover && why == NULL)
            why = "two shards own an element";
    }
    free(owners);
    return why;
}

const char *oracle_add_listed(const oracle_spec *spec, oracle_layout *layout)
{
    const char *why = spec->listed_count == 0 ? "no shards" : NULL;
    layout->shards = calloc((size_t)spec->listed_count + 1, sizeof *layout->shards);
    if (layout->shards == NULL)
        abort();
    if (spec->ndim != layout->ndim ||
        memcmp(spec->shape, layout->shape, sizeof spec->shape[0] * (size_t)spec->ndim) != 0)
        return "not the shape of the boxes";
    for (int32_t i = 0; why == NULL && i < spec->listed_count; i++) {
        oracle_shard *shard = &layout->shards[layout->shard_count++];
        why = why_not_listed(&spec->listed[i], spec->ndim, spec->shape);
        if (why != NULL)
            break;
        shard->rank = spec->listed[i].rank;
        shard->contributor_count = 1;
        shard->divisor = 1;
        shape_listed(&spec->listed[i], spec->ndim, shard);
        shard->offset_known = shard->count > 0;
        why = fill_listed(&spec->listed[i], spec->ndim, spec->shape, shard);
    }
    return why != NULL ? why : why_not_tiling(layout, spec->kind == RESHARD_SPEC_COVER);
}
