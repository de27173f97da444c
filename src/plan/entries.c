/* SPDX-License-Identifier: Apache-2.0 */
/*
 * entries.c - walks along this rank's line and lists the spans of the other side that it meets.
 * Runs of entries at constant steps become one entry with a loop, level by level (ladder.h).
 */
#include "plan/entries.h"

#include "base/checked.h"
#include "base/context.h"
#include "base/error.h"
#include "base/limits.h"
#include "layout/layout.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

typedef struct entry_list {
    rs_arena *arena;
    struct {
        int64_t count;
        rs_grid_entry item;
        rs_entry_place step;
    } levels[RS_LOOPS_MAX];
    rs_grid_entry *items;
    int64_t count, capacity;
} entry_list;

typedef struct dim_meeting {
    const rs_link *link;
    const rs_grid_side *mine, *theirs;
    int32_t along;
    const rs_chain *chain; /* of their dim */
    int64_t only_position; /* >= 0: list only the entries of the peer at this position */
    int64_t my_line;
    entry_list list;
} dim_meeting;

/* ---- runs ------------------------------------------------------------------------------------ */

static bool same_form(const rs_grid_entry *a, const rs_grid_entry *b)
{
    return a->size == b->size && a->their_line == b->their_line &&
           a->holder_count == b->holder_count && a->own == b->own &&
           a->loop_count == b->loop_count &&
           memcmp(a->loops, b->loops, (size_t)a->loop_count * sizeof a->loops[0]) == 0;
}

static rs_entry_place advance(const rs_grid_entry *form, const rs_entry_place *first,
                              const rs_entry_place *step, int64_t index)
{
    (void)form;
    return (rs_entry_place){first->position + index * step->position,
                            first->start + index * step->start, first->my_at + index * step->my_at,
                            first->their_at + index * step->their_at};
}

static bool same_place(const rs_grid_entry *form, const rs_entry_place *a, const rs_entry_place *b)
{
    (void)form;
    return memcmp(a, b, sizeof *a) == 0;
}

static reshard_status write_item(entry_list *list, const rs_grid_entry *entry)
{
    assert(entry->size >= 1 && entry->holder_count >= 1);
    assert(entry->first.my_at >= 0 && entry->first.their_at >= 0);
    assert(entry->first.their_at + entry->size <= entry->their_line);
    if (list->count == RS_RECORDS_MAX)
        return rs_fail(RESHARD_ERR_RANGE,
                       "one dimension meets the other side in more than %" PRId64
                       " irregular places",
                       RS_RECORDS_MAX);
    reshard_status status = rs_grow(list->arena->context, &list->items, &list->capacity,
                                    list->count + 1, sizeof *list->items);
    if (status == RESHARD_OK)
        list->items[list->count++] = *entry;
    return status;
}

#define LADDER entry_list
#define LADDER_ITEM rs_grid_entry
#define LADDER_PLACE rs_entry_place
#include "plan/ladder.h"

static reshard_status finish(entry_list *list, rs_grid_entries *out_entries)
{
    reshard_status status = ladder_finish(list);
    if (status != RESHARD_OK)
        return status;
    out_entries->count = list->count;
    out_entries->items =
        rs_arena_copy(list->arena, list->items, (size_t)list->count, sizeof *list->items);
    return out_entries->items == NULL ? rs_allocation_status() : RESHARD_OK;
}

/* ---- entries --------------------------------------------------------------------------------- */

/* Notes who holds a span of the other side. */
static void set_holders(const dim_meeting *w, const rs_span *span, rs_grid_entry *entry)
{
    entry->own = w->theirs->taking_part;
    entry->holder_count = 1;
    entry->first.position = 0;
    for (int32_t i = 0; i < w->chain->count; i++) {
        int32_t axis = w->chain->cuts[i].axis;
        int32_t index = w->theirs->coordinates[axis] - span->first[i];
        entry->first.position += (int64_t)span->first[i] * w->theirs->layout->axes[axis].stride;
        entry->own = entry->own && index >= 0 && index < span->count[i];
        if (span->count[i] > 1)
            entry->holder_count = span->count[i];
    }
}

bool rs_grid_chain_is_chunks(const rs_chain *chain)
{
    return chain->count == 1 && chain->cuts[0].rule == RESHARD_CHUNK &&
           chain->cuts[0].piece_count == chain->cuts[0].coordinate_count;
}

/* The number of whole chunks that follow this one before `end` and before this rank's own. They
 * differ from it only in their place. Most lines are plain chunks, and most of a line is such a
 * run; taken as a whole, it costs one step instead of one per rank. */
static int64_t count_like_chunks(const dim_meeting *w, int64_t n, int64_t end,
                                 const rs_span *theirs, bool own)
{
    if (!rs_grid_chain_is_chunks(w->chain) || theirs->count[0] != 1 || own)
        return 0;
    const rs_cut *cut = &w->chain->cuts[0];
    int64_t chunk = rs_cut_length(cut, n, 0);
    if (theirs->length != chunk)
        return 0;
    int64_t follow = (rs_min(end, n) - theirs->start) / chunk - 1;
    int64_t index =
        w->theirs->taking_part ? w->theirs->coordinates[cut->axis] - theirs->first[0] : -1;
    return index > 0 ? rs_min(follow, index - 1) : follow;
}

/* Adds the entries of one span of this rank's line with all spans of the other side that it
 * meets. */
static reshard_status add_entries(dim_meeting *w, const rs_span *mine)
{
    int32_t their_dim = w->theirs->link->dim[w->along];
    /* In link space my span is [from, to). */
    int64_t begin = mine->start - w->mine->link->offset[w->mine->link->dim[w->along]];
    int64_t from = rs_max(0, begin);
    int64_t to = rs_min(w->link->size[w->along], begin + mine->length);
    int64_t shift = w->theirs->link->offset[their_dim];
    int64_t n = w->theirs->layout->shape[their_dim];
    int64_t position = from + shift;
    rs_span theirs;
    reshard_status status = RESHARD_OK;
    while (status == RESHARD_OK && rs_chain_next(w->chain, n, to + shift, &position, &theirs)) {
        rs_grid_entry entry;
        set_holders(w, &theirs, &entry);
        if (w->only_position >= 0 && entry.first.position != w->only_position)
            continue;
        entry.size = theirs.length;
        entry.their_line = rs_chain_length(w->chain, n, theirs.first);
        entry.first.start = theirs.start - shift;
        entry.first.their_at = theirs.local;
        entry.first.my_at = mine->local + entry.first.start - begin;
        int64_t more = count_like_chunks(w, n, to + shift, &theirs, entry.own);
        entry.loop_count = more > 0;
        if (more > 0) {
            entry.loops[0] = (struct rs_entry_loop){
                more + 1,
                {.position = w->theirs->layout->axes[w->chain->cuts[0].axis].stride,
                 .start = theirs.length,
                 .my_at = theirs.length}};
            position += more * theirs.length;
        }
        status = ladder_add(&w->list, 0, &entry);
    }
    return status;
}

static reshard_status add_line(dim_meeting *w)
{
    int32_t dim = w->mine->link->dim[w->along];
    const rs_chain *chain = &w->mine->layout->dims[dim];
    int32_t by_level[RESHARD_AXES_MAX];
    rs_chain_coordinates(chain, w->mine->coordinates, by_level);
    rs_line_cursor cursor;
    rs_line_cursor_init(&cursor, chain, w->mine->layout->shape[dim], by_level);
    w->my_line = cursor.length;
    rs_span span;
    reshard_status status = RESHARD_OK;
    while (status == RESHARD_OK && rs_line_cursor_next(&cursor, &span))
        status = add_entries(w, &span);
    return status;
}

#define TURNS_PEERS_MAX 64

/* Cyclic, strided and packed cuts return to each peer again and again. What goes to one peer is
 * then regular, but what goes to all peers in turn is not, because this rank's own entries are kept
 * separate. So the line is walked once per peer, unless there are too many. Returns their number,
 * or 0. */
int64_t rs_grid_chain_turns(const rs_chain *chain)
{
    int64_t peers = 1;
    bool turns = false;
    for (int32_t i = 0; i < chain->count && peers <= TURNS_PEERS_MAX; i++) {
        reshard_shard_rule rule = chain->cuts[i].rule;
        turns =
            turns || rule == RESHARD_CYCLIC || rule == RESHARD_STRIDED || rule == RESHARD_PACKED;
        peers *= chain->cuts[i].coordinate_count;
    }
    return turns && peers <= TURNS_PEERS_MAX ? peers : 0;
}

/* What the index-th combination of the chain's coordinates contributes to the mesh position. */
static int64_t position_of(const dim_meeting *w, int64_t index)
{
    int64_t position = 0;
    for (int32_t i = 0; i < w->chain->count; i++) {
        const rs_cut *cut = &w->chain->cuts[i];
        position += index % cut->coordinate_count * w->theirs->layout->axes[cut->axis].stride;
        index /= cut->coordinate_count;
    }
    return position;
}

reshard_status rs_grid_entries_make(rs_arena *arena, const rs_link *link, const rs_grid_side *mine,
                                    const rs_grid_side *theirs, int32_t along,
                                    rs_grid_entries *out_entries)
{
    assert(mine->taking_part && along >= 0 && along < link->ndim);
    dim_meeting w = {
        .link = link, .mine = mine, .theirs = theirs, .along = along, .only_position = -1};
    w.chain = &theirs->layout->dims[theirs->link->dim[along]];
    w.list.arena = arena;
    reshard_status status = RESHARD_OK;
    int64_t peers = rs_grid_chain_turns(w.chain);
    if (peers == 0)
        status = add_line(&w);
    for (int64_t i = 0; i < peers && status == RESHARD_OK; i++) {
        w.only_position = position_of(&w, i);
        status = add_line(&w);
    }
    rs_grid_entries made = {.my_line = w.my_line};
    if (status == RESHARD_OK)
        status = finish(&w.list, &made);
    rs_release(arena->context, w.list.items);
    if (status == RESHARD_OK)
        *out_entries = made;
    return status;
}
