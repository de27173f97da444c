/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream.c - the byte stream between two ranks. Each end finds the same single moves from its own
 * side, and sorts them by where they land and where they come from. No two moves of a stream agree
 * in all of that, so both ends get the same order.
 */
#include "base/context.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/shape.h"
#include "base/sort.h"
#include "plan/part.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct entry {
    int32_t link;
    reshard_move move;
} entry;

typedef struct stream {
    reshard_stream shown; /* first, so that its address is also that of the stream */
    reshard_context *context;
    rs_arena arena;
    entry *entries; /* freed once the stream is finished */
    int64_t count, capacity;
    int32_t link;
} stream;

static reshard_status add_entry(void *user, const reshard_move *move)
{
    stream *s = user;
    if (s->count == RS_MOVES_LISTED_MAX)
        return rs_fail(RESHARD_ERR_RANGE,
                       "rank %d hands rank %d more than the %" PRId64
                       " single moves that can be listed",
                       move->source_rank, move->target_rank, RS_MOVES_LISTED_MAX);
    reshard_status status =
        rs_grow(s->context, &s->entries, &s->capacity, s->count + 1, sizeof *s->entries);
    if (status != RESHARD_OK)
        return status;
    entry *e = &s->entries[s->count];
    e->link = s->link;
    e->move = *move;
    e->move.start = rs_arena_copy(&s->arena, move->start, (size_t)move->ndim, sizeof *move->start);
    if (e->move.start == NULL)
        return rs_allocation_status();
    s->count++;
    return RESHARD_OK;
}

static int compare_entries(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    const reshard_move *m = &x->move, *n = &y->move;
    const int64_t keys[6][2] = {
        {x->link, y->link},
        {m->target_shard, n->target_shard},
        {m->target_at, n->target_at},
        {m->contributor, n->contributor},
        {m->source_shard, n->source_shard},
        {m->source_at, n->source_at},
    };
    for (int i = 0; i < 6; i++) {
        if (keys[i][0] != keys[i][1])
            return keys[i][0] < keys[i][1] ? -1 : 1;
    }
    return 0;
}

static reshard_status finish(stream *s, const rs_stage *stage)
{
    size_t count = (size_t)s->count;
    reshard_move *moves = rs_arena_allocate_array(&s->arena, count, sizeof *moves);
    int32_t *links = rs_arena_allocate_array(&s->arena, count, sizeof *links);
    uint64_t *offsets = rs_arena_allocate_array(&s->arena, count + 1, sizeof *offsets);
    if (moves == NULL || links == NULL || offsets == NULL)
        return rs_allocation_status();
    rs_sort(s->entries, count, sizeof *s->entries, compare_entries);
    offsets[0] = 0;
    for (size_t i = 0; i < count; i++) {
        const entry *e = &s->entries[i];
        assert(i == 0 || compare_entries(e - 1, e) < 0); /* both ends find the same order */
        moves[i] = e->move;
        links[i] = e->link;
        offsets[i + 1] = offsets[i] + (uint64_t)rs_volume(e->move.ndim, e->move.size) *
                                          (uint64_t)rs_stage_link_bytes(&stage->links[e->link]);
    }
    s->shown =
        (reshard_stream){.count = s->count, .moves = moves, .links = links, .offsets = offsets};
    return RESHARD_OK;
}

static reshard_status collect(stream *s, const reshard_part *part, int32_t stage_index,
                              const rs_stage *stage, int32_t peer, bool sending)
{
    reshard_status status = RESHARD_OK;
    for (s->link = 0; s->link < stage->link_count && status == RESHARD_OK; s->link++) {
        const reshard_part_moves *moves = &rs_part_moves(part, stage_index, s->link)->shown;
        status = rs_moves_each(sending ? &moves->sends : &moves->receives, part->rank, peer,
                               add_entry, s);
    }
    return status;
}

reshard_status reshard_stream_create(const reshard_part *part, int32_t stage, int32_t peer,
                                     int sending, reshard_stream **out_stream)
{
    const reshard_plan *forward = rs_plan_forward(part->plan);
    const rs_stage *s = &forward->stages[rs_plan_forward_stage(part->plan, stage)];
    stream *made = rs_allocate_zeroed(part->context, sizeof *made);
    if (made == NULL)
        return rs_allocation_status();
    made->context = part->context;
    rs_arena_init(&made->arena, part->context);
    reshard_status status = collect(made, part, stage, s, peer, sending != 0);
    if (status == RESHARD_OK)
        status = finish(made, s);
    rs_release(made->context, made->entries);
    if (status != RESHARD_OK) {
        reshard_stream_destroy(&made->shown);
        return status;
    }
    *out_stream = &made->shown;
    return RESHARD_OK;
}

void reshard_stream_destroy(reshard_stream *shown)
{
    if (shown == NULL)
        return;
    stream *s = (stream *)(void *)shown;
    rs_arena_release(&s->arena);
    rs_release(s->context, s);
}
