/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compare.c - expands the library's shards and compares them; see compare.h.
 */
#include "tests/support/compare.h"

#include "layout/layout.h"

#include <stdlib.h>
#include <string.h>

static bool piece_is_sound(const reshard_piece *piece, int32_t ndim, const int64_t *shape,
                           words *said)
{
    if (piece->box.ndim != ndim)
        return words_say(said, "a piece has %d dims", (int)piece->box.ndim);
    for (int32_t d = 0; d < ndim; d++) {
        if (piece->box.size[d] <= 0)
            return words_say(said, "a piece is empty along dim %d", (int)d);
        if (piece->box.offset[d] < 0 || piece->box.offset[d] + piece->box.size[d] > shape[d])
            return words_say(said, "a piece goes out of the tensor along dim %d", (int)d);
    }
    return true;
}

static bool expand_piece(const reshard_piece *piece, int32_t ndim, const int64_t *shape,
                         int64_t count, int64_t *elements, words *said)
{
    if (!piece_is_sound(piece, ndim, shape, said))
        return false;
    int64_t volume = oracle_volume(ndim, piece->box.size);
    for (int64_t i = 0; i < volume; i++) {
        int64_t rest = i, element = 0, weight = 1;
        int64_t place = piece->at;
        for (int32_t d = ndim - 1; d >= 0; d--) {
            int64_t x = rest % piece->box.size[d];
            rest /= piece->box.size[d];
            element += (piece->box.offset[d] + x) * weight;
            weight *= shape[d];
            place += x * piece->strides[d];
        }
        if (place < 0 || place >= count)
            return words_say(said, "element %lld lies at %lld in a buffer of %lld",
                             (long long)element, (long long)place, (long long)count);
        if (elements[place] != -1)
            return words_say(said, "elements %lld and %lld lie at the same place",
                             (long long)elements[place], (long long)element);
        elements[place] = element;
    }
    return true;
}

int64_t *compare_expand(const reshard_shard *shard, int32_t ndim, const int64_t *shape, words *said)
{
    int64_t count = oracle_volume(shard->ndim, shard->shape);
    int64_t *elements = malloc(sizeof *elements * (size_t)(count + 1));
    bool sound = true;
    if (elements == NULL)
        abort();
    for (int64_t i = 0; i < count; i++)
        elements[i] = -1;
    for (int64_t i = 0; sound && i < shard->piece_count; i++)
        sound = expand_piece(&shard->pieces[i], ndim, shape, count, elements, said);
    for (int64_t i = 0; sound && i < count; i++) {
        if (elements[i] == -1)
            sound = words_say(said, "rank %d shard %d: no piece fills place %lld", (int)shard->rank,
                              (int)shard->index, (long long)i);
    }
    if (!sound) {
        free(elements);
        return NULL;
    }
    return elements;
}

static bool compare_fields(const reshard_shard *shard, const oracle_shard *expected, int32_t ndim,
                           const int64_t *shape, words *said)
{
    int rank = (int)expected->rank;
    if (shard->rank != expected->rank || shard->index != expected->index)
        return words_say(said, "rank %d shard %d where rank %d shard %d belongs", (int)shard->rank,
                         (int)shard->index, rank, (int)expected->index);
    if (shard->ndim != expected->ndim)
        return words_say(said, "rank %d: the buffer has %d dims, not %d", rank, (int)shard->ndim,
                         (int)expected->ndim);
    for (int32_t d = 0; d < shard->ndim; d++) {
        if (shard->shape[d] != expected->shape[d])
            return words_say(said, "rank %d: length %lld along dim %d, not %lld", rank,
                             (long long)shard->shape[d], (int)d, (long long)expected->shape[d]);
    }
    for (int32_t d = 0; d < ndim; d++) {
        if (shard->offset[d] < 0 || shard->offset[d] > shape[d] ||
            (expected->offset_known && shard->offset[d] != expected->offset[d]))
            return words_say(said, "rank %d: offset %lld along dim %d, not %lld", rank,
                             (long long)shard->offset[d], (int)d, (long long)expected->offset[d]);
    }
    if ((shard->partial != 0) != expected->partial ||
        (expected->partial && shard->reduction != expected->reduction))
        return words_say(said, "rank %d: partial or its reduction is wrong", rank);
    if (shard->contributor != expected->contributor ||
        shard->contributor_count != expected->contributor_count)
        return words_say(said, "rank %d: contributor %d of %d, not %d of %d", rank,
                         (int)shard->contributor, (int)shard->contributor_count,
                         (int)expected->contributor, (int)expected->contributor_count);
    if (shard->divisor != expected->divisor)
        return words_say(said, "rank %d: a divisor of %d, not %d", rank, (int)shard->divisor,
                         (int)expected->divisor);
    return true;
}

static bool compare_shard(const reshard_shard *shard, const oracle_shard *expected,
                          const oracle_layout *layout, words *said)
{
    if (!compare_fields(shard, expected, layout->ndim, layout->shape, said))
        return false;
    int64_t *elements = compare_expand(shard, layout->ndim, layout->shape, said);
    bool same = elements != NULL;
    for (int64_t i = 0; same && i < expected->count; i++) {
        if (elements[i] != expected->elements[i])
            same = words_say(said, "rank %d shard %d: element %lld at place %lld, not %lld",
                             (int)expected->rank, (int)expected->index, (long long)elements[i],
                             (long long)i, (long long)expected->elements[i]);
    }
    free(elements);
    return same;
}

static bool compare_list(const reshard_shards *shards, const oracle_layout *expected, int64_t first,
                         int64_t count, words *said)
{
    if (shards->count != count)
        return words_say(said, "%lld shards, not %lld", (long long)shards->count, (long long)count);
    for (int64_t i = 0; i < count; i++) {
        if (!compare_shard(&shards->items[i], &expected->shards[first + i], expected, said))
            return false;
    }
    return true;
}

/* Also asks for a rank beyond the last, which has no shards. */
static bool compare_ranks(const reshard_layout *layout, const oracle_layout *expected, words *said)
{
    int64_t next = 0;
    int32_t taking_part = 0;
    for (int32_t rank = 0; rank <= expected->rank_max + 1; rank++) {
        int64_t first = next;
        while (next < expected->shard_count && expected->shards[next].rank == rank)
            next++;
        if (next > first && reshard_layout_rank_at(layout, taking_part++) != rank)
            return words_say(said, "rank_at(%d) is not %d", (int)taking_part - 1, (int)rank);
        reshard_shards *shards = NULL;
        if (reshard_layout_shards(layout, rank, &shards) != RESHARD_OK)
            return words_say(said, "shards of rank %d: %s", (int)rank, reshard_error_text());
        bool same = compare_list(shards, expected, first, next - first, said);
        reshard_shards_destroy(shards);
        if (!same)
            return false;
    }
    if (layout->rank_count != taking_part)
        return words_say(said, "%d ranks take part, not %d", (int)layout->rank_count,
                         (int)taking_part);
    return true;
}

bool compare_layout(const reshard_layout *layout, const oracle_layout *expected, words *said)
{
    reshard_shards *shards = NULL;
    if (layout->ndim != expected->ndim)
        return words_say(said, "the layout has %d dims", (int)layout->ndim);
    for (int32_t d = 0; d < expected->ndim; d++) {
        if (layout->shape[d] != expected->shape[d])
            return words_say(said, "the layout's shape is wrong");
    }
    int32_t last = reshard_layout_rank_at(layout, layout->rank_count - 1);
    if (last != expected->rank_max)
        return words_say(said, "the highest rank is %d, not %d", (int)last,
                         (int)expected->rank_max);
    if (reshard_layout_shards(layout, RESHARD_ALL_RANKS, &shards) != RESHARD_OK)
        return words_say(said, "all shards: %s", reshard_error_text());
    bool same = compare_list(shards, expected, 0, expected->shard_count, said);
    reshard_shards_destroy(shards);
    return same && compare_ranks(layout, expected, said);
}

/* ---- two layouts of the library -------------------------------------------------------------- */

static int64_t skip_empty(const reshard_shards *shards, int64_t i)
{
    while (i < shards->count && shards->items[i].piece_count == 0 &&
           oracle_volume(shards->items[i].ndim, shards->items[i].shape) == 0)
        i++;
    return i;
}

static bool compare_pair(const reshard_shard *a, const reshard_shard *b, int32_t ndim,
                         const int64_t *shape, words *said)
{
    int64_t count = oracle_volume(a->ndim, a->shape);
    if (a->rank != b->rank || a->ndim != b->ndim || count != oracle_volume(b->ndim, b->shape))
        return words_say(said, "rank %d and rank %d have different shards", (int)a->rank,
                         (int)b->rank);
    int64_t *x = compare_expand(a, ndim, shape, said);
    int64_t *y = compare_expand(b, ndim, shape, said);
    bool same = x != NULL && y != NULL && memcmp(x, y, sizeof *x * (size_t)count) == 0;
    free(x);
    free(y);
    return same || words_say(said, "rank %d: the contents differ", (int)a->rank);
}

bool compare_layouts(const reshard_layout *layout, const reshard_layout *other, words *said)
{
    reshard_shards *a = NULL, *b = NULL;
    bool same = reshard_layout_shards(layout, RESHARD_ALL_RANKS, &a) == RESHARD_OK &&
                reshard_layout_shards(other, RESHARD_ALL_RANKS, &b) == RESHARD_OK;
    if (!same)
        (void)words_say(said, "all shards: %s", reshard_error_text());
    int64_t i = same ? skip_empty(a, 0) : 0;
    int64_t j = same ? skip_empty(b, 0) : 0;
    while (same && i < a->count && j < b->count) {
        same = compare_pair(&a->items[i], &b->items[j], layout->ndim, layout->shape, said);
        i = skip_empty(a, i + 1);
        j = skip_empty(b, j + 1);
    }
    if (same && (i < a->count || j < b->count))
        same = words_say(said, "the number of non-empty shards differs");
    reshard_shards_destroy(a);
    reshard_shards_destroy(b);
    return same;
}

reshard_status compare_create(const oracle_spec *spec, bool by_constructor, int32_t ndim,
                              const int64_t *shape, reshard_layout **out_layout)
{
    if (by_constructor) {
        reshard_spec *made = NULL;
        reshard_status status = oracle_spec_build(spec, NULL, &made);
        if (status == RESHARD_OK)
            status = reshard_layout_create(NULL, made, ndim, shape, out_layout);
        reshard_spec_release(made);
        return status;
    }
    char *text = malloc(ORACLE_TEXT_MAX);
    if (text == NULL)
        abort();
    oracle_spec_text(spec, text);
    reshard_status status = reshard_layout_parse(NULL, text, ndim, shape, out_layout);
    free(text);
    return status;
}
