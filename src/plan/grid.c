/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grid.c - see grid.h. "Near" is the side of this rank, "far" the other one.
 *
 * An entry of one dim is kept as a record of one dim: start and size in link space, target_at the
 * place in the near line, source_at the place in the far line, the peer the far side's part of the
 * position in its mesh. The length of the far line, which the strides of the far shard depend on,
 * is kept in source_strides, the number of neighbours that hold the same piece (max=) in
 * contributor_count, and in target_shard whether the far coordinates are this rank's own.
 */
#include "plan/grid.h"

#include "base/arena.h"
#include "base/checked.h"
#include "base/context.h"

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

/* ---- entries of one dim ---------------------------------------------------------------------- */

typedef struct side {
    const rs_link_side *link;
    const reshard_layout *layout;
    bool taking_part; /* this rank holds something there */
    int32_t coordinates[RESHARD_AXES_MAX];
} side;

typedef struct grid {
    const rs_link *link;
    int32_t rank;
    bool sending;
    side near, far;
    rs_routes *routes;
    rs_arena arena;
    reshard_context *context;
    int64_t near_line[RESHARD_FACTORS_MAX]; /* by link dim */
    int64_t only_peer;                      /* of the entries at hand; -1: all */
    reshard_moves entries[RESHARD_FACTORS_MAX];
    const reshard_move *chosen[RESHARD_FACTORS_MAX];
} grid;

static void fill_entry(const grid *g, const rs_chain *chain, const rs_span *span, rs_move *entry)
{
    int64_t offset = 0;
    bool own = g->far.taking_part;
    entry->contributor_count = 1;
    for (int32_t i = 0; i < chain->count; i++) {
        int32_t axis = chain->cuts[i].axis;
        int32_t coordinate = g->far.coordinates[axis];
        offset += (int64_t)span->first[i] * g->far.layout->axes[axis].stride;
        own = own && coordinate >= span->first[i] && coordinate < span->first[i] + span->count[i];
        if (span->count[i] > 1)
            entry->contributor_count = span->count[i];
    }
    entry->target_shard = own;
    entry->first.peer = (int32_t)offset;
}

/* How many whole chunks follow a chunk before `end`, other than this rank's own: they differ from
 * it in nothing but their place. Most lines are plain chunks, and most of a line is such a run, so
 * that it costs one step instead of one for each rank. */
static int64_t count_like_chunks(const grid *g, const rs_chain *chain, int64_t n, int64_t end,
                                 const rs_span *far, bool own)
{
    if (chain->count != 1 || chain->cuts[0].rule != RESHARD_CHUNK || far->count[0] != 1 || own)
        return 0;
    const rs_cut *cut = &chain->cuts[0];
    int64_t chunk = rs_cut_length(cut, n, 0);
    if (far->length != chunk || cut->piece_count != cut->coordinate_count)
        return 0;
    int64_t follow = (rs_min(end, n) - far->start) / chunk - 1;
    int64_t mine = g->far.taking_part ? g->far.coordinates[cut->axis] - far->first[0] : -1;
    return mine > 0 ? rs_min(follow, mine - 1) : follow;
}

/* One span of my line against all spans of the far side that it meets. */
static reshard_status add_entries(const grid *g, int32_t along, const rs_span *near,
                                  rs_family *family)
{
    int32_t near_dim = g->near.link->dim[along], far_dim = g->far.link->dim[along];
    /* In link space the near span is [from, to). */
    int64_t from = rs_max(0, near->start - g->near.link->offset[near_dim]);
    int64_t to =
        rs_min(g->link->size[along], near->start + near->length - g->near.link->offset[near_dim]);
    int64_t shift = g->far.link->offset[far_dim];
    const rs_chain *chain = &g->far.layout->dims[far_dim];
    int64_t n = g->far.layout->shape[far_dim];
    int64_t position = from + shift;
    rs_move entry;
    memset(&entry, 0, sizeof entry);
    entry.ndim = 1;
    rs_span far;
    reshard_status status = RESHARD_OK;
    while (status == RESHARD_OK && rs_chain_next(chain, n, to + shift, &position, &far)) {
        fill_entry(g, chain, &far, &entry);
        if (g->only_peer >= 0 && entry.first.peer != g->only_peer)
            continue;
        entry.size[0] = far.length;
        entry.first.start[0] = far.start - shift;
        entry.first.source_at = far.local;
        entry.first.target_at =
            near->local + (far.start - shift) - (near->start - g->near.link->offset[near_dim]);
        entry.source_strides[0] = rs_chain_length(chain, n, far.first);
        int64_t more = count_like_chunks(g, chain, n, to + shift, &far, entry.target_shard != 0);
        entry.loop_count = more > 0;
        entry.counts[0] = more + 1;
        entry.steps[0] = (rs_steps){0};
        if (more > 0) {
            entry.steps[0].peer = g->far.layout->axes[chain->cuts[0].axis].stride;
            entry.steps[0].start[0] = entry.steps[0].target_at = far.length;
            position += more * far.length;
        }
        status = rs_family_add(family, &entry);
    }
    return status;
}

static reshard_status add_line(grid *g, int32_t along, rs_family *family)
{
    int32_t dim = g->near.link->dim[along];
    const rs_chain *chain = &g->near.layout->dims[dim];
    int32_t by_level[RESHARD_AXES_MAX];
    rs_chain_coordinates(chain, g->near.coordinates, by_level);
    rs_walk walk;
    rs_walk_init(&walk, chain, g->near.layout->shape[dim], by_level);
    g->near_line[along] = walk.length;
    rs_span span;
    reshard_status status = RESHARD_OK;
    while (status == RESHARD_OK && rs_walk_next(&walk, &span))
        status = add_entries(g, along, &span, family);
    return status;
}

#define TURNS_PEERS_MAX 64

/* Cyclic, strided and packed cuts come back to each peer again and again. What goes to one peer is
 * then regular, but what goes to all of them in turn is not, since this rank's own entries are kept
 * apart. So the line is gone through once for each peer, if there are not too many. Gives their
 * number, or 0. */
static int64_t peers_in_turns(const rs_chain *chain)
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

/* The part of the position that the index-th combination of the chain's coordinates makes. */
static int64_t offset_of(const grid *g, const rs_chain *chain, int64_t index)
{
    int64_t offset = 0;
    for (int32_t i = 0; i < chain->count; i++) {
        offset += index % chain->cuts[i].coordinate_count *
                  g->far.layout->axes[chain->cuts[i].axis].stride;
        index /= chain->cuts[i].coordinate_count;
    }
    return offset;
}

static reshard_status make_entries(grid *g, int32_t along)
{
    const rs_chain *chain = &g->far.layout->dims[g->far.link->dim[along]];
    rs_family family;
    rs_family_init(&family, g->context, &g->arena);
    reshard_status status = RESHARD_OK;
    int64_t peers = peers_in_turns(chain);
    g->only_peer = -1;
    if (peers == 0)
        status = add_line(g, along, &family);
    for (int64_t i = 0; i < peers && status == RESHARD_OK; i++) {
        g->only_peer = offset_of(g, chain, i);
        status = add_line(g, along, &family);
    }
    if (status == RESHARD_OK)
        status = rs_family_finish(&family, &g->entries[along]);
    rs_family_release(&family);
    return status;
}

/* ---- products -------------------------------------------------------------------------------- */

/* A mesh axis of the far side that a record runs over: copies of the target, or contributions of
 * the source. */
typedef struct free_axis {
    int32_t count;
    int32_t own; /* this rank's index on it, or -1 */
    int32_t peer_step;
    int32_t contributor_step;
} free_axis;

/* Appends a loop, or runs it out when there is no room for more. */
static reshard_status add_with_loop(grid *g, rs_family *family, rs_move *move, int64_t count,
                                    const rs_steps *step,
                                    reshard_status (*next)(grid *, rs_family *, rs_move *, void *),
                                    void *user)
{
    if (count == 1)
        return next(g, family, move, user);
    if (move->loop_count < RS_LOOPS_MAX) {
        move->counts[move->loop_count] = count;
        move->steps[move->loop_count] = *step;
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

typedef struct axis_walk {
    free_axis axes[RESHARD_AXES_MAX];
    int32_t count;
    int32_t next; /* axis to loop over */
    /* axes below it stand at this rank's own index; -1: none is treated apart */
    int32_t fixed_upto;
    int32_t side; /* of the axis `fixed_upto`: 0 below the own index, 1 above it */
} axis_walk;

static reshard_status run_axes(grid *g, rs_family *family, rs_move *move, void *user)
{
    axis_walk *w = user;
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

/* All far ranks of a product but this one: for each axis, those that agree with this rank on the
 * axes before it and are below or above it on that axis. */
static reshard_status run_others(grid *g, rs_move *move, axis_walk *w)
{
    rs_family *family = g->sending ? &g->routes->sends : &g->routes->receives;
    reshard_status status = RESHARD_OK;
    for (w->fixed_upto = 0; w->fixed_upto < w->count && status == RESHARD_OK; w->fixed_upto++) {
        for (w->side = 0; w->side < 2 && status == RESHARD_OK; w->side++)
            status = run_axes(g, family, move, w);
    }
    return status;
}

static reshard_status keep_own(grid *g, rs_move *move, axis_walk *w)
{
    w->fixed_upto = w->count;
    move->first.peer = g->rank;
    for (int32_t i = 0; i < w->count; i++) {
        move->first.contributor += w->axes[i].own * w->axes[i].contributor_step;
        w->axes[i].peer_step = 0;
        w->axes[i].contributor_step = 0;
    }
    return run_axes(g, &g->routes->keeps, move, w);
}

static void add_free_axis(axis_walk *w, int32_t count, int32_t own, int32_t peer_step,
                          int32_t contributor_step)
{
    if (count > 1)
        w->axes[w->count++] = (free_axis){count, own, peer_step, contributor_step};
}

/* The far side's axes that no dim's entries have spoken for. `position` gets the offset of fixed
 * coordinates. */
static void find_free_axes(const grid *g, axis_walk *w, int64_t *position)
{
    const reshard_layout *far = g->far.layout;
    int32_t step = far->mesh->step;
    int32_t contributor_step = 1;
    for (int32_t a = far->axis_count - 1; a >= 0; a--) {
        const rs_axis *axis = &far->axes[a];
        int32_t own = g->far.taking_part ? g->far.coordinates[a] : -1;
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
        const reshard_move *entry = g->chosen[along];
        const rs_chain *chain = &far->dims[g->far.link->dim[along]];
        for (int32_t i = 0; i < chain->count && entry->contributor_count > 1; i++) {
            const rs_cut *cut = &chain->cuts[i];
            if (cut->piece_count == cut->coordinate_count)
                continue;
            int32_t stride = far->axes[cut->axis].stride;
            /* The entry's own index among the holders of its piece. */
            int64_t piece = rs_multiply_divide(g->far.coordinates[cut->axis], cut->piece_count,
                                               cut->coordinate_count);
            int64_t first = rs_divide_up(piece * cut->coordinate_count, cut->piece_count);
            int32_t own = g->far.taking_part ? g->far.coordinates[cut->axis] - (int32_t)first : -1;
            add_free_axis(w, entry->contributor_count, own, stride * step, 0);
        }
    }
}

static reshard_status finish_product(grid *g, rs_family *unused, rs_move *move, void *user)
{
    (void)unused;
    (void)user;
    axis_walk w = {.fixed_upto = -1};
    int64_t position = move->first.peer; /* so far the position in the far mesh */
    bool own = true;
    for (int32_t along = 0; along < g->link->ndim; along++)
        own = own && g->chosen[along]->target_shard != 0;
    find_free_axes(g, &w, &position);
    rs_steps kept = move->first;
    const reshard_mesh *mesh = g->far.layout->mesh;
    move->first.peer = (int32_t)(mesh->first + position * mesh->step);
    reshard_status status;
    if (!own) {
        status = run_axes(g, g->sending ? &g->routes->sends : &g->routes->receives, move, &w);
    } else {
        status = run_others(g, move, &w);
        if (status == RESHARD_OK && !g->sending)
            status = keep_own(g, move, &w);
    }
    move->first = kept;
    return status;
}

/* Multiplies in the loops of the chosen entries, dim by dim. */
typedef struct loop_walk {
    int32_t along, loop;
    const int64_t *far_strides, *near_strides;
} loop_walk;

static reshard_status run_entry_loops(grid *g, rs_family *family, rs_move *move, void *user)
{
    loop_walk *w = user;
    while (w->along < g->link->ndim && w->loop == g->chosen[w->along]->loop_count) {
        w->along++;
        w->loop = 0;
    }
    if (w->along == g->link->ndim)
        return finish_product(g, family, move, NULL);
    const reshard_move_loop *loop = &g->chosen[w->along]->loops[w->loop];
    int64_t far = loop->source_step * w->far_strides[w->along];
    int64_t near = loop->target_step * w->near_strides[w->along];
    rs_steps step = {.peer = loop->peer_step * g->far.layout->mesh->step,
                     .source_at = g->sending ? near : far,
                     .target_at = g->sending ? far : near};
    step.start[w->along] = loop->start_steps[0];
    loop_walk after = *w;
    after.loop++;
    return add_with_loop(g, family, move, loop->count, &step, run_entry_loops, &after);
}

/* The strides of a shard from the lengths of its lines. `lines` is by link dim, a shard's memory by
 * tensor dim. */
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
    rs_route_set_combination(source, target, &all, &move);
    move.mine = g->rank;
    move.sending = g->sending;
    move.ndim = g->link->ndim;
    int64_t far_lines[RESHARD_FACTORS_MAX];
    for (int32_t i = 0; i < move.ndim; i++)
        far_lines[i] = g->chosen[i]->source_strides[0];
    int64_t *far_strides = g->sending ? move.target_strides : move.source_strides;
    int64_t *near_strides = g->sending ? move.source_strides : move.target_strides;
    shard_strides(g->far.link, far_lines, far_strides);
    shard_strides(g->near.link, g->near_line, near_strides);
    int64_t far_at = 0, near_at = 0;
    for (int32_t i = 0; i < move.ndim; i++) {
        const reshard_move *entry = g->chosen[i];
        move.size[i] = entry->size[0];
        move.first.start[i] = entry->start[0];
        move.first.peer += entry->source_rank;
        far_at += entry->source_at * far_strides[i];
        near_at += entry->target_at * near_strides[i];
    }
    move.first.source_at = g->sending ? near_at : far_at;
    move.first.target_at = g->sending ? far_at : near_at;
    if (g->sending && source->partial) {
        for (int32_t a = 0; a < source->axis_count; a++) {
            if (source->axes[a].role == RS_AXIS_PARTIAL)
                move.first.contributor =
                    move.first.contributor * source->axes[a].size + g->near.coordinates[a];
        }
    }
    loop_walk w = {.far_strides = far_strides, .near_strides = near_strides};
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
                                    rs_routes *routes)
{
    grid g = {.link = link, .rank = rank, .sending = sending, .routes = routes};
    g.context = routes->receives.context;
    g.near.link = sending ? &link->source : &link->target;
    g.far.link = sending ? &link->target : &link->source;
    g.near.layout = g.near.link->layout;
    g.far.layout = g.far.link->layout;
    if (!rs_layout_coordinates(g.near.layout, rank, g.near.coordinates))
        return RESHARD_OK;
    g.far.taking_part = rs_layout_coordinates(g.far.layout, rank, g.far.coordinates);
    rs_arena_init(&g.arena, g.context);
    reshard_status status = RESHARD_OK;
    for (int32_t i = 0; i < link->ndim && status == RESHARD_OK; i++)
        status = make_entries(&g, i);
    if (status == RESHARD_OK)
        status = choose_entries(&g, 0);
    rs_arena_release(&g.arena);
    return status;
}

reshard_status rs_grid_rank(const rs_link *link, int32_t rank, rs_routes *routes)
{
    reshard_status status = run_direction(link, rank, false, routes);
    if (status == RESHARD_OK)
        status = run_direction(link, rank, true, routes);
    return status;
}
