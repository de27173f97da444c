/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grid.c - see grid.h. The entries of each dim come from entries.c. Here they are multiplied, one
 * entry of each dim at a time, and the mesh axes that no dim accounts for become loops. What is
 * mine is on this rank's side, what is theirs on the other one.
 */
#include "plan/grid.h"

#include "base/arena.h"
#include "base/checked.h"
#include "plan/entries.h"

#include <assert.h>
#include <string.h>

/* ---- when ------------------------------------------------------------------------------------ */

static bool is_plain(const reshard_layout *layout)
{
    return !layout->listed && layout->flat.count == 0 && layout->mesh->listed == NULL;
}

static bool is_progression(const rs_axis *axis)
{
    for (int32_t i = 2; i < axis->at_count; i++) {
        if (axis->at[i] - axis->at[i - 1] != axis->at[1] - axis->at[0])
            return false;
    }
    return true;
}

static bool has_single_owners(const reshard_layout *layout)
{
    for (int32_t a = 0; a < layout->axis_count; a++) {
        const rs_axis *axis = &layout->axes[a];
        if ((axis->role == RS_AXIS_COPIES && axis->size != 1) ||
            (axis->role == RS_AXIS_AT && axis->at_count != 1))
            return false;
    }
    for (int32_t d = 0; d < layout->ndim; d++) {
        for (int32_t i = 0; i < layout->dims[d].count; i++) {
            const rs_cut *cut = &layout->dims[d].cuts[i];
            if (cut->piece_count != cut->coordinate_count || cut->part_max != NULL)
                return false;
        }
    }
    return true;
}

static bool has_simple_copies(const reshard_layout *layout)
{
    for (int32_t a = 0; a < layout->axis_count; a++) {
        if (layout->axes[a].role == RS_AXIS_AT && !is_progression(&layout->axes[a]))
            return false;
    }
    for (int32_t d = 0; d < layout->ndim; d++) {
        int32_t shared = 0;
        for (int32_t i = 0; i < layout->dims[d].count; i++) {
            const rs_cut *cut = &layout->dims[d].cuts[i];
            shared += cut->piece_count != cut->coordinate_count;
            if (cut->part_max != NULL)
                return false;
        }
        if (shared > 1)
            return false;
    }
    return true;
}

bool rs_grid_applies(const rs_link *link)
{
    const reshard_layout *source = link->source.layout, *target = link->target.layout;
    return !link->split && link->ndim != 0 && is_plain(source) && is_plain(target) &&
           !target->partial && has_single_owners(source) && has_simple_copies(target);
}

/* ---- products -------------------------------------------------------------------------------- */

typedef struct grid {
    const rs_link *link;
    int32_t rank;
    bool sending;
    rs_grid_side mine, theirs;
    rs_rank_moves *moves;
    rs_grid_entries entries[RESHARD_FACTORS_MAX];     /* by link dim */
    const rs_grid_entry *chosen[RESHARD_FACTORS_MAX]; /* one entry of each dim */
} grid;

/* A mesh axis of the other side over which a record loops: copies of the target, or contributors of
 * the source. */
typedef struct free_axis {
    int32_t count;
    int32_t own; /* this rank's index on the axis, or -1 */
    int32_t peer_step;
    int32_t contributor_step;
} free_axis;

/* Appends a loop to the move, or unrolls it if there is no room for another. */
static reshard_status add_with_loop(grid *g, rs_family *family, rs_move *move, int64_t count,
                                    const rs_steps *step,
                                    reshard_status (*next)(grid *, rs_family *, rs_move *, void *),
                                    void *user)
{
    if (count == 1)
        return next(g, family, move, user);
    assert(count > 1);
    if (move->loop_count < RS_LOOPS_MAX) {
        move->loops[move->loop_count] = (struct rs_move_loop){count, *step};
        move->loop_count++;
        reshard_status status = next(g, family, move, user);
        move->loop_count--;
        return status;
    }
    rs_steps kept = move->first;
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; i < count && status == RESHARD_OK; i++) {
        status = next(g, family, move, user);
        move->first.peer += step->peer;
        move->first.contributor += step->contributor;
        move->first.source_at += step->source_at;
        move->first.target_at += step->target_at;
        for (int32_t d = 0; d < move->ndim; d++)
            move->first.start[d] += step->start[d];
    }
    move->first = kept;
    return status;
}

typedef struct free_axes {
    free_axis axes[RESHARD_AXES_MAX];
    int32_t count;
    int32_t next; /* the next axis to loop over */
    /* Axes before this one are fixed at this rank's own index; -1 if this rank is not singled
     * out. */
    int32_t fixed_upto;
    int32_t side; /* on axis `fixed_upto`: 0 for indices below this rank's own, 1 for those above */
} free_axes;

static reshard_status run_axes(grid *g, rs_family *family, rs_move *move, void *user)
{
    free_axes *w = user;
    if (w->next == w->count)
        return rs_family_add(family, move);
    int32_t index = w->next;
    const free_axis *axis = &w->axes[index];
    int64_t first = 0, count = axis->count;
    if (index < w->fixed_upto) {
        first = axis->own;
        count = 1;
    } else if (index == w->fixed_upto) {
        first = w->side == 0 ? 0 : axis->own + 1;
        count = w->side == 0 ? axis->own : axis->count - axis->own - 1;
    }
    if (count == 0)
        return RESHARD_OK;
    rs_steps step = {.peer = axis->peer_step, .contributor = axis->contributor_step};
    rs_steps kept = move->first;
    move->first.peer += (int32_t)(first * axis->peer_step);
    move->first.contributor += (int32_t)(first * axis->contributor_step);
    w->next++;
    reshard_status status = add_with_loop(g, family, move, count, &step, run_axes, w);
    w->next--;
    move->first = kept;
    return status;
}

/* Adds the moves with all ranks of the other side of a product except this one: for each axis, with
 * the ranks that equal this one on all earlier axes and lie below or above it on that axis. */
static reshard_status run_others(grid *g, rs_move *move, free_axes *w)
{
    rs_family *family = g->sending ? &g->moves->sends : &g->moves->receives;
    reshard_status status = RESHARD_OK;
    for (int32_t i = 0; i < w->count; i++)
        assert(w->axes[i].own >= 0 && w->axes[i].own < w->axes[i].count);
    for (w->fixed_upto = 0; w->fixed_upto < w->count && status == RESHARD_OK; w->fixed_upto++) {
        for (w->side = 0; w->side < 2 && status == RESHARD_OK; w->side++)
            status = run_axes(g, family, move, w);
    }
    return status;
}

static reshard_status keep_own(grid *g, rs_move *move, free_axes *w)
{
    w->fixed_upto = w->count;
    move->first.peer = g->rank;
    for (int32_t i = 0; i < w->count; i++) {
        assert(w->axes[i].own >= 0 && w->axes[i].own < w->axes[i].count);
        move->first.contributor += w->axes[i].own * w->axes[i].contributor_step;
        w->axes[i].peer_step = 0;
        w->axes[i].contributor_step = 0;
    }
    return run_axes(g, &g->moves->keeps, move, w);
}

static void add_free_axis(free_axes *w, int32_t count, int32_t own, int32_t peer_step,
                          int32_t contributor_step)
{
    /* `own` may be -1, or beyond `count`: this rank may hold another piece than the entry's. Only
     * where it holds the entry itself is it an index (run_others, keep_own). */
    assert(count >= 1 && own >= -1 && w->count < RESHARD_AXES_MAX);
    if (count > 1)
        w->axes[w->count++] = (free_axis){count, own, peer_step, contributor_step};
}

/* Finds the axes of the other side that the dims' entries do not account for. Adds the offset of
 * fixed coordinates to `position`. */
static void find_free_axes(const grid *g, free_axes *w, int64_t *position)
{
    const reshard_layout *theirs = g->theirs.layout;
    int32_t step = theirs->mesh->step;
    int32_t contributor_step = 1;
    for (int32_t a = theirs->axis_count - 1; a >= 0; a--) {
        const rs_axis *axis = &theirs->axes[a];
        int32_t own = g->theirs.taking_part ? g->theirs.coordinates[a] : -1;
        if (axis->role == RS_AXIS_COPIES) {
            add_free_axis(w, axis->size, own, axis->stride * step, 0);
        } else if (axis->role == RS_AXIS_PARTIAL) {
            add_free_axis(w, axis->size, own, axis->stride * step, contributor_step);
            contributor_step *= axis->size;
        } else if (axis->role == RS_AXIS_AT) {
            int32_t index = -1;
            for (int32_t i = 0; i < axis->at_count; i++)
                index = axis->at[i] == own ? i : index;
            int64_t apart = axis->at_count > 1 ? axis->at[1] - axis->at[0] : 0;
            *position += axis->at[0] * axis->stride;
            add_free_axis(w, axis->at_count, index, (int32_t)apart * axis->stride * step, 0);
        }
    }
    for (int32_t along = 0; along < g->link->ndim; along++) {
        const rs_grid_entry *entry = g->chosen[along];
        const rs_chain *chain = &theirs->dims[g->theirs.link->dim[along]];
        for (int32_t i = 0; i < chain->count && entry->holder_count > 1; i++) {
            const rs_cut *cut = &chain->cuts[i];
            if (cut->piece_count == cut->coordinate_count)
                continue;
            int32_t stride = theirs->axes[cut->axis].stride;
            /* This rank's index among the holders of its piece. */
            int64_t piece = rs_multiply_divide(g->theirs.coordinates[cut->axis], cut->piece_count,
                                               cut->coordinate_count);
            int64_t first = rs_divide_up(piece * cut->coordinate_count, cut->piece_count);
            int32_t own =
                g->theirs.taking_part ? g->theirs.coordinates[cut->axis] - (int32_t)first : -1;
            add_free_axis(w, entry->holder_count, own, stride * step, 0);
        }
    }
}

static reshard_status finish_product(grid *g, rs_family *unused, rs_move *move, void *user)
{
    (void)unused;
    (void)user;
    free_axes w = {.fixed_upto = -1};
    /* `peer` is still a position in the other side's mesh here */
    int64_t position = move->first.peer;
    bool own = true;
    for (int32_t along = 0; along < g->link->ndim; along++)
        own = own && g->chosen[along]->own;
    find_free_axes(g, &w, &position);
    rs_steps kept = move->first;
    const reshard_mesh *mesh = g->theirs.layout->mesh;
    move->first.peer = (int32_t)(mesh->first + position * mesh->step);
    reshard_status status;
    if (!own) {
        status = run_axes(g, g->sending ? &g->moves->sends : &g->moves->receives, move, &w);
    } else {
        status = run_others(g, move, &w);
        if (status == RESHARD_OK && !g->sending)
            status = keep_own(g, move, &w);
    }
    move->first = kept;
    return status;
}

/* How far run_entry_loops has got: it adds the loops of the chosen entries to the move, dim by
 * dim. */
typedef struct entry_loops {
    int32_t along, loop;
    const int64_t *their_strides, *my_strides;
} entry_loops;

static reshard_status run_entry_loops(grid *g, rs_family *family, rs_move *move, void *user)
{
    entry_loops *w = user;
    while (w->along < g->link->ndim && w->loop == g->chosen[w->along]->loop_count) {
        w->along++;
        w->loop = 0;
    }
    if (w->along == g->link->ndim)
        return finish_product(g, family, move, NULL);
    const struct rs_entry_loop *loop = &g->chosen[w->along]->loops[w->loop];
    int64_t theirs = loop->step.their_at * w->their_strides[w->along];
    int64_t mine = loop->step.my_at * w->my_strides[w->along];
    rs_steps step = {.peer = (int32_t)loop->step.position * g->theirs.layout->mesh->step,
                     .source_at = g->sending ? mine : theirs,
                     .target_at = g->sending ? theirs : mine};
    step.start[w->along] = loop->step.start;
    entry_loops after = *w;
    after.loop++;
    return add_with_loop(g, family, move, loop->count, &step, run_entry_loops, &after);
}

/* The strides of a shard, from the lengths of its lines. Arrays are indexed by link dim, but a
 * shard's memory is in the order of tensor dims. */
static void shard_strides(const rs_link_side *of, const int64_t *lines, int64_t *out_strides)
{
    int64_t stride = 1;
    for (int32_t d = of->ndim - 1; d >= 0; d--) {
        int32_t along = of->members[d];
        out_strides[along] = stride;
        stride *= lines[along];
    }
}

static reshard_status make_product(grid *g)
{
    rs_move move;
    memset(&move, 0, sizeof move);
    const reshard_layout *source = g->link->source.layout, *target = g->link->target.layout;
    rs_combination all = {0, source->contributor_count};
    rs_sender_set_combination(source, target, &all, &move);
    move.mine = g->rank;
    move.sending = g->sending;
    move.ndim = g->link->ndim;
    int64_t their_lines[RESHARD_FACTORS_MAX], my_lines[RESHARD_FACTORS_MAX];
    for (int32_t i = 0; i < move.ndim; i++) {
        their_lines[i] = g->chosen[i]->their_line;
        my_lines[i] = g->entries[i].my_line;
    }
    int64_t *their_strides = g->sending ? move.target_strides : move.source_strides;
    int64_t *my_strides = g->sending ? move.source_strides : move.target_strides;
    shard_strides(g->theirs.link, their_lines, their_strides);
    shard_strides(g->mine.link, my_lines, my_strides);
    int64_t their_at = 0, my_at = 0;
    for (int32_t i = 0; i < move.ndim; i++) {
        const rs_grid_entry *entry = g->chosen[i];
        assert(entry->first.start >= 0 && entry->first.start + entry->size <= g->link->size[i]);
        assert(entry->first.my_at + entry->size <= my_lines[i]);
        move.size[i] = entry->size;
        move.first.start[i] = entry->first.start;
        move.first.peer += (int32_t)entry->first.position;
        their_at += entry->first.their_at * their_strides[i];
        my_at += entry->first.my_at * my_strides[i];
    }
    move.first.source_at = g->sending ? my_at : their_at;
    move.first.target_at = g->sending ? their_at : my_at;
    if (g->sending && source->partial) {
        for (int32_t a = 0; a < source->axis_count; a++) {
            if (source->axes[a].role == RS_AXIS_PARTIAL)
                move.first.contributor =
                    move.first.contributor * source->axes[a].size + g->mine.coordinates[a];
        }
    }
    entry_loops w = {.their_strides = their_strides, .my_strides = my_strides};
    return run_entry_loops(g, NULL, &move, &w);
}

static reshard_status choose_entries(grid *g, int32_t along)
{
    if (along == g->link->ndim)
        return make_product(g);
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; i < g->entries[along].count && status == RESHARD_OK; i++) {
        g->chosen[along] = &g->entries[along].items[i];
        status = choose_entries(g, along + 1);
    }
    return status;
}

static reshard_status run_direction(const rs_link *link, int32_t rank, bool sending,
                                    rs_rank_moves *moves)
{
    grid g = {.link = link, .rank = rank, .sending = sending, .moves = moves};
    assert(!link->split && !link->source.layout->listed && !link->target.layout->listed);
    g.mine.link = sending ? &link->source : &link->target;
    g.theirs.link = sending ? &link->target : &link->source;
    g.mine.layout = g.mine.link->layout;
    g.theirs.layout = g.theirs.link->layout;
    g.mine.taking_part = rs_layout_coordinates(g.mine.layout, rank, g.mine.coordinates);
    if (!g.mine.taking_part)
        return RESHARD_OK;
    g.theirs.taking_part = rs_layout_coordinates(g.theirs.layout, rank, g.theirs.coordinates);
    rs_arena arena;
    rs_arena_init(&arena, moves->receives.context);
    reshard_status status = RESHARD_OK;
    for (int32_t i = 0; i < link->ndim && status == RESHARD_OK; i++)
        status = rs_grid_entries_make(&arena, link, &g.mine, &g.theirs, i, &g.entries[i]);
    if (status == RESHARD_OK)
        status = choose_entries(&g, 0);
    rs_arena_release(&arena);
    return status;
}

reshard_status rs_grid_rank(const rs_link *link, int32_t rank, rs_rank_moves *moves)
{
    reshard_status status = run_direction(link, rank, false, moves);
    if (status == RESHARD_OK)
        status = run_direction(link, rank, true, moves);
    return status;
}
