/* SPDX-License-Identifier: Apache-2.0 */
/*
 * build.c - turns a rank's part of a plan into operations and peers, once the ranks have agreed on
 * their options. Every operation that a run may need is in one list: stage.c chooses those that the
 * ways of a run leave to this rank.
 *
 * A record becomes one operation for each of its peers: loops that stay with a peer become dims of
 * the copy, and loops that change the peer are unrolled. Which side copies is decided for each
 * stage link from a part that all ranks can compute, that of the target's first rank. The source
 * copies if its runs are short and the target's are longer. Otherwise several ranks would read the
 * same cache lines of the source, in pieces too small for the processor to read ahead.
 *
 * Contributions that may come as traffic wait in scratch memory until all have arrived, and each
 * is combined from there by an operation of its own.
 */
#include "base/checked.h"
#include "base/context.h"
#include "base/dtype.h"
#include "base/shape.h"
#include "base/sort.h"
#include "exec/exec.h"
#include "layout/layout.h"
#include "plan/plan.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Shorter runs share cache lines, or end before the processor starts to read ahead. */
#define SHORT_RUN_BYTES 512
/* No less than any element has. */
#define SCRATCH_ALIGNMENT ((size_t)16)

/* What kernels were prepared for. All zero beyond the dims, so that forms compare as bytes. */
typedef struct kernel_form {
    rs_operation_shape shape;
    reshard_move_kind kind;
    reshard_reduction reduction;
    int32_t divisor;
    reshard_dtype source_dtype, target_dtype;
} kernel_form;

/* So many forms are remembered, the newest of them. */
enum { FORMS = 16 };

typedef struct builder {
    reshard_exec *exec;
    int32_t stage;
    int32_t link;
    reshard_stage_link shown;
    bool *pushes; /* by stage link */
    bool many;    /* the copies of this stage together exceed the caches */
    rs_operation *operations;
    int64_t count, capacity;
    int32_t *peers; /* noted in any order; make_peers sorts them */
    int64_t peer_count, peer_capacity;
    int64_t turn; /* place of the stage's first peer among the sorted ones */
    kernel_form forms[FORMS];
    const rs_kernels *kernels[FORMS];
    int64_t form_count; /* seen; the newest replaces the oldest */
} builder;

/* ---- operations ------------------------------------------------------------------------------ */

/* The dims of a record for one peer: loops that stay with the peer, then the record's own dims. */
typedef rs_operation_shape shape;

static void set_link(builder *b, int32_t link)
{
    b->link = link;
    b->shown = rs_plan_stage_link(b->exec->plan, b->stage, link);
}

static bool stays(const reshard_move_loop *loop)
{
    return loop->peer_step == 0 && loop->contributor_step == 0;
}

/* Takes as many of the loops that stay with the peer as there is room for. The others have to be
 * unrolled. Returns a mask of those taken. */
static uint32_t make_shape(const reshard_move *record, shape *out)
{
    uint32_t taken = 0;
    out->ndim = 0;
    out->many = false;
    for (int32_t i = 0; i < record->loop_count; i++) {
        const reshard_move_loop *loop = &record->loops[i];
        if (!stays(loop) || out->ndim + record->ndim >= RS_NEST_MAX)
            continue;
        out->size[out->ndim] = loop->count;
        out->source_strides[out->ndim] = loop->source_step;
        out->target_strides[out->ndim++] = loop->target_step;
        taken |= (uint32_t)1 << i;
    }
    for (int32_t d = 0; d < record->ndim; d++) {
        out->size[out->ndim] = record->size[d];
        out->source_strides[out->ndim] = record->source_strides[d];
        out->target_strides[out->ndim++] = record->target_strides[d];
    }
    assert(out->ndim <= RS_NEST_MAX);
    return taken;
}

/* Gives an operation the kernels of its form. */
static reshard_status find_kernels(builder *b, const shape *dims, rs_operation *out)
{
    kernel_form wanted;
    memset(&wanted, 0, sizeof wanted);
    wanted.shape.ndim = dims->ndim;
    wanted.shape.many = dims->many;
    memcpy(wanted.shape.size, dims->size, (size_t)dims->ndim * sizeof *dims->size);
    memcpy(wanted.shape.source_strides, dims->source_strides,
           (size_t)dims->ndim * sizeof *dims->source_strides);
    memcpy(wanted.shape.target_strides, dims->target_strides,
           (size_t)dims->ndim * sizeof *dims->target_strides);
    wanted.kind = out->kind;
    wanted.reduction = out->reduction;
    wanted.divisor = out->divisor;
    wanted.source_dtype = out->source_dtype;
    wanted.target_dtype = out->target_dtype;
    for (int64_t i = 0; i < rs_min(b->form_count, FORMS); i++) {
        if (memcmp(&wanted, &b->forms[i], sizeof wanted) == 0) {
            out->kernels = b->kernels[i];
            return RESHARD_OK;
        }
    }
    rs_kernels *kernels = rs_arena_allocate(&b->exec->arena, sizeof *kernels);
    if (kernels == NULL)
        return rs_allocation_status();
    reshard_status status = rs_operation_prepare(out, kernels, dims);
    if (status != RESHARD_OK)
        return status;
    b->forms[b->form_count % FORMS] = wanted;
    b->kernels[b->form_count % FORMS] = kernels;
    b->form_count++;
    return RESHARD_OK;
}

/* Fills in what the operations of a record have in common. */
static reshard_status fill_operation(builder *b, const reshard_move *record, const shape *dims,
                                     bool pushing, rs_operation *out)
{
    memset(out, 0, sizeof *out);
    out->kind = record->kind;
    out->pushing = pushing;
    out->link = b->link;
    out->peer_index = -1; /* set by find_peers */
    out->contributor_count = record->contributor_count;
    out->reduction = record->reduction;
    out->divisor = record->divisor;
    out->source_dtype = b->shown.source_dtype;
    out->target_dtype = b->shown.target_dtype;
    out->source_slot = record->kind == RESHARD_MOVE_FILL
                           ? -1
                           : rs_exec_slot(b->exec, &b->shown, true, record->source_shard);
    out->target_slot = rs_exec_slot(b->exec, &b->shown, false, record->target_shard);
    size_t source_bytes = rs_element_bytes(out->source_dtype);
    out->bytes = rs_element_bytes(out->target_dtype);
    if (record->kind != RESHARD_MOVE_FILL && source_bytes < out->bytes)
        out->bytes = source_bytes;
    out->bytes *= (uint64_t)rs_volume(dims->ndim, dims->size);
    reshard_status status = find_kernels(b, dims, out);
    if (status == RESHARD_OK && out->kind == RESHARD_MOVE_COPY && !out->kernels->casts) {
        const rs_copy *copy = &out->kernels->copy;
        int64_t source = rs_copy_source_run(copy), target = rs_copy_target_run(copy);
        out->together = rs_min(source, target) < SHORT_RUN_BYTES && source != target;
    }
    return status;
}

#ifndef NDEBUG
/* Whether a place in a slot of this rank is inside the shard. Intermediates are not checked. */
static bool is_inside(const reshard_exec *exec, int64_t slot, size_t offset)
{
    return slot < 0 || slot >= exec->slot_first[exec->source_count + exec->target_count] ||
           offset < exec->slot_bytes[slot];
}
#endif

static reshard_status add_operation(builder *b, const rs_operation *form, int32_t peer,
                                    int32_t contributor, int64_t source_at, int64_t target_at)
{
    reshard_status status = rs_grow(b->exec->context, &b->operations, &b->capacity, b->count + 1,
                                    sizeof *b->operations);
    if (status != RESHARD_OK)
        return status;
    rs_operation *made = &b->operations[b->count++];
    *made = *form;
    made->peer = peer;
    made->contributor = contributor;
    made->source_offset = (size_t)source_at * rs_element_bytes(form->source_dtype);
    made->target_offset = (size_t)target_at * rs_element_bytes(form->target_dtype);
    assert(made->pushing ? is_inside(b->exec, made->source_slot, made->source_offset)
                         : is_inside(b->exec, made->target_slot, made->target_offset));
    return RESHARD_OK;
}

/* Unrolls the loops that the shape did not take. Nothing is copied from or to far peers. */
static reshard_status unroll(builder *b, const reshard_move *record, uint32_t taken, int32_t level,
                             const rs_operation *form, int32_t peer, int32_t contributor,
                             int64_t source_at, int64_t target_at)
{
    if (level == record->loop_count)
        return peer == b->exec->part->rank || rs_exec_is_near(b->exec, peer)
                   ? add_operation(b, form, peer, contributor, source_at, target_at)
                   : RESHARD_OK;
    const reshard_move_loop *loop = &record->loops[level];
    int64_t count = (taken >> level & 1) != 0 ? 1 : loop->count;
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; i < count && status == RESHARD_OK; i++) {
        status = unroll(b, record, taken, level + 1, form, peer, contributor, source_at, target_at);
        peer += loop->peer_step;
        contributor += loop->contributor_step;
        source_at += loop->source_step;
        target_at += loop->target_step;
    }
    return status;
}

static reshard_status add_records(builder *b, const reshard_moves *moves, bool pushing)
{
    for (int64_t i = 0; i < moves->count; i++) {
        const reshard_move *record = &moves->items[i];
        shape dims;
        uint32_t taken = make_shape(record, &dims);
        dims.many = b->many && record->kind == RESHARD_MOVE_COPY;
        rs_operation form;
        int32_t peer = pushing ? record->target_rank : record->source_rank;
        if (record->kind == RESHARD_MOVE_FILL)
            peer = b->exec->part->rank;
        reshard_status status = fill_operation(b, record, &dims, pushing, &form);
        if (status == RESHARD_OK)
            status = unroll(b, record, taken, 0, &form, peer, record->contributor,
                            record->source_at, record->target_at);
        if (status != RESHARD_OK)
            return status;
    }
    return RESHARD_OK;
}

/* ---- contributions that come as traffic ------------------------------------------------------ */

/* Gives a move of a stream its place in scratch, where it lies densely, and the operation that
 * combines it from there. Moves of other kinds are unpacked where they belong. */
static reshard_status add_arrival(builder *b, rs_lane *lane, int64_t index, size_t *scratch_bytes)
{
    const reshard_move *move = &lane->stream->moves[index];
    lane->scratch_at[index] = -1;
    if (!rs_move_is_ordered(move->kind))
        return RESHARD_OK;
    set_link(b, lane->stream->links[index]);
    shape dims;
    rs_operation form;
    (void)make_shape(move, &dims);
    rs_dense_strides(dims.ndim, dims.size, dims.source_strides);
    reshard_status status = fill_operation(b, move, &dims, false, &form);
    if (status != RESHARD_OK)
        return status;
    int64_t element_bytes = (int64_t)rs_element_bytes(form.source_dtype);
    assert(move->target_rank == b->exec->part->rank &&
           SCRATCH_ALIGNMENT % (size_t)element_bytes == 0);
    lane->scratch_at[index] = (int64_t)*scratch_bytes;
    *scratch_bytes +=
        ((size_t)(rs_volume(dims.ndim, dims.size) * element_bytes) + SCRATCH_ALIGNMENT - 1) /
        SCRATCH_ALIGNMENT * SCRATCH_ALIGNMENT;
    form.source_slot = RS_SLOT_SCRATCH;
    return add_operation(b, &form, move->source_rank, move->contributor,
                         lane->scratch_at[index] / element_bytes, move->target_at);
}

/* Every stage uses scratch from the beginning. */
static reshard_status collect_arrivals(builder *b)
{
    rs_traffic *traffic = b->exec->traffic;
    rs_lanes *in = &traffic->stages[b->stage].in;
    size_t bytes = 0;
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; i < in->count && status == RESHARD_OK; i++) {
        for (int64_t k = 0; k < in->items[i].stream->count && status == RESHARD_OK; k++)
            status = add_arrival(b, &in->items[i], k, &bytes);
    }
    if (bytes > traffic->scratch_bytes)
        traffic->scratch_bytes = bytes;
    return status;
}

/* ---- who copies ------------------------------------------------------------------------------ */

static bool source_should_copy(const reshard_moves *receives, reshard_dtype dtype)
{
    if (receives->count == 0 || receives->items[0].kind != RESHARD_MOVE_COPY)
        return false;
    shape dims;
    (void)make_shape(&receives->items[0], &dims);
    rs_copy copy;
    rs_copy_prepare(&copy, (int32_t)rs_element_bytes(dtype), dims.ndim, dims.size,
                    dims.source_strides, dims.target_strides);
    int64_t source = rs_copy_source_run(&copy), target = rs_copy_target_run(&copy);
    return source < SHORT_RUN_BYTES && source < target;
}

/* The rank whose part decides about a stage link; -1 if there is nothing to decide: the target
 * copies. */
static int32_t find_decider(const builder *b, int32_t link)
{
    reshard_stage_link shown = rs_plan_stage_link(b->exec->plan, b->stage, link);
    if (shown.source < 0 || shown.source_dtype != shown.target_dtype ||
        shown.target_layout->rank_count == 0)
        return -1;
    return reshard_layout_rank_at(shown.target_layout, 0);
}

/* Links that share a template have the same decider, and its moves are worked out once. */
static reshard_status decide_each(builder *b, const rs_stage *stage, rs_arena *arena)
{
    size_t templates = (size_t)stage->template_count;
    rs_template_moves *moves = rs_arena_allocate_array(arena, templates, sizeof *moves);
    int32_t *deciders = rs_arena_allocate_array(arena, templates, sizeof *deciders);
    if (moves == NULL || deciders == NULL)
        return rs_allocation_status();
    for (size_t i = 0; i < templates; i++)
        deciders[i] = -1; /* not worked out yet */
    reshard_status status = RESHARD_OK;
    for (int32_t l = 0; l < stage->link_count && status == RESHARD_OK; l++) {
        int32_t template = stage->links[l].template_index, decider = find_decider(b, l);
        b->pushes[l] = false;
        if (decider < 0)
            continue;
        assert(deciders[template] < 0 || deciders[template] == decider);
        if (deciders[template] < 0)
            status = rs_part_work_out(b->exec->context, arena, b->exec->plan, decider, b->stage,
                                      template, &moves[template]);
        deciders[template] = decider;
        if (status == RESHARD_OK)
            b->pushes[l] = source_should_copy(&moves[template].shown.receives,
                                              stage->links[l].shown.source_dtype);
    }
    return status;
}

static reshard_status decide_copiers(builder *b)
{
    const reshard_plan *plan = b->exec->plan;
    const rs_stage *stage = &rs_plan_forward(plan)->stages[rs_plan_forward_stage(plan, b->stage)];
    rs_arena arena;
    rs_arena_init(&arena, b->exec->context);
    b->pushes =
        rs_arena_allocate_array(&b->exec->arena, (size_t)stage->link_count, sizeof *b->pushes);
    reshard_status status =
        b->pushes == NULL ? rs_allocation_status() : decide_each(b, stage, &arena);
    rs_arena_release(&arena);
    return status;
}

/* ---- order and peers ------------------------------------------------------------------------- */

static int64_t compare(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

/* Copies and fills come first, then combinations by contributor and additions by rank, because
 * results depend on that order. Apart from that, by link, where those that run together are
 * neighbours, then by place in the target. */
static int compare_operations(const void *a, const void *b)
{
    const rs_operation *x = a, *y = b;
    bool ordered_x = rs_move_is_ordered(x->kind), ordered_y = rs_move_is_ordered(y->kind);
    int64_t order = compare(ordered_x, ordered_y);
    if (order == 0 && ordered_x)
        order = compare(x->contributor, y->contributor);
    if (order == 0 && ordered_x)
        order = compare(x->peer, y->peer);
    if (order == 0)
        order = compare(x->link, y->link);
    if (order == 0)
        order = compare(y->together, x->together);
    if (order == 0)
        order = compare(x->target_slot, y->target_slot);
    if (order == 0)
        order = compare((int64_t)x->target_offset, (int64_t)y->target_offset);
    return (int)order;
}

static reshard_status note_peer(void *user, const reshard_move *move)
{
    builder *b = user;
    int32_t mine = b->exec->part->rank;
    int32_t peer = move->source_rank == mine ? move->target_rank : move->source_rank;
    for (int64_t i = b->peer_count - 1; i >= 0 && i >= b->peer_count - 4; i--) {
        if (b->peers[i] == peer)
            return RESHARD_OK; /* most repeats come at once; make_peers removes the rest */
    }
    reshard_status status = rs_grow(b->exec->context, &b->peers, &b->peer_capacity,
                                    b->peer_count + 1, sizeof *b->peers);
    if (status == RESHARD_OK)
        b->peers[b->peer_count++] = peer;
    return status;
}

/* Lists the peers of the stage, beginning with the first above this rank, so that ranks begin with
 * different peers. */
static reshard_status make_peers(builder *b, rs_exec_stage *stage)
{
    int64_t distinct = 0, turn = 0;
    rs_sort(b->peers, (size_t)b->peer_count, sizeof *b->peers, rs_compare_i32);
    for (int64_t i = 0; i < b->peer_count; i++) {
        if (distinct == 0 || b->peers[i] != b->peers[distinct - 1])
            b->peers[distinct++] = b->peers[i];
    }
    b->peer_count = stage->peer_count = distinct;
    stage->peers = rs_arena_allocate_array(&b->exec->arena, (size_t)distinct, sizeof *stage->peers);
    if (stage->peers == NULL)
        return rs_allocation_status();
    while (turn < distinct && b->peers[turn] < b->exec->part->rank)
        turn++;
    for (int64_t i = 0; i < distinct; i++) {
        rs_exec_peer *peer = &stage->peers[i];
        memset(peer, 0, sizeof *peer);
        peer->rank = b->peers[(turn + i) % distinct];
        assert(peer->rank != b->exec->part->rank); /* what a rank hands itself is a keep */
        peer->near = rs_exec_is_near(b->exec, peer->rank);
        if (!peer->near)
            continue;
        stage->near_count++;
        peer->in = peer->out = RS_WAY_DIRECT;
        peer->addresses = rs_exec_make_addresses(b->exec);
        if (peer->addresses == NULL)
            return rs_allocation_status();
    }
    b->turn = turn;
    return RESHARD_OK;
}

/* Sets the index of each operation's peer in the stage's list. */
static void find_peers(const builder *b, rs_exec_stage *stage)
{
    for (int64_t i = 0; i < stage->operation_count; i++) {
        rs_operation *operation = &stage->operations[i];
        if (operation->peer == b->exec->part->rank)
            continue;
        const int32_t *found = bsearch(&operation->peer, b->peers, (size_t)b->peer_count,
                                       sizeof *b->peers, rs_compare_i32);
        assert(found != NULL);
        operation->peer_index =
            (int32_t)((found - b->peers - b->turn + b->peer_count) % b->peer_count);
        assert(stage->peers[operation->peer_index].rank == operation->peer);
    }
}

/* ---- stages ---------------------------------------------------------------------------------- */

static reshard_status collect_keeps(builder *b)
{
    reshard_status status = RESHARD_OK;
    int32_t links = reshard_plan_stage_link_count(b->exec->plan, b->stage);
    for (int32_t l = 0; l < links && status == RESHARD_OK; l++) {
        set_link(b, l);
        status = add_records(b, &reshard_part_link(b->exec->part, b->stage, l)->keeps, false);
    }
    return status;
}

/* Collects what is copied from or to near peers, and the numbers of all peers. */
static reshard_status collect_direct(builder *b, rs_exec_stage *stage)
{
    reshard_status status = RESHARD_OK;
    int32_t links = reshard_plan_stage_link_count(b->exec->plan, b->stage);
    for (int32_t l = 0; l < links && status == RESHARD_OK; l++) {
        set_link(b, l);
        const reshard_part_moves *moves = reshard_part_link(b->exec->part, b->stage, l);
        bool pushes = b->pushes[l];
        if (b->shown.source >= 0) {
            stage->pushes = stage->pushes || pushes;
            stage->pulls = stage->pulls || !pushes;
        }
        status = add_records(b, pushes ? &moves->sends : &moves->receives, pushes);
        if (status == RESHARD_OK)
            status = rs_moves_each(&moves->receives, b->exec->part->rank, -1, note_peer, b);
        if (status == RESHARD_OK)
            status = rs_moves_each(&moves->sends, b->exec->part->rank, -1, note_peer, b);
    }
    return status;
}

/* Moves what was collected, first `keep_count` keeps, into the stage. If anything is combined, kept
 * and received contributions go into one list, so that each is combined in its turn. So do copies
 * that share cache lines of their short side, so that kept ones pass through the cache together
 * with the others. */
static reshard_status take_operations(builder *b, int64_t keep_count, rs_exec_stage *stage)
{
    bool together = false;
    for (int64_t i = 0; i < b->count; i++) {
        stage->ordered = stage->ordered || rs_move_is_ordered(b->operations[i].kind);
        together = together || (i >= keep_count && b->operations[i].together);
    }
    if (stage->ordered || together)
        keep_count = 0;
    size_t rest = (size_t)(b->count - keep_count);
    rs_operation *all =
        rs_arena_copy(&b->exec->arena, b->operations, (size_t)b->count, sizeof *all);
    stage->direct = rs_arena_allocate_array(&b->exec->arena, rest, sizeof *stage->direct);
    if (all == NULL || stage->direct == NULL)
        return rs_allocation_status();
    stage->keeps = all;
    stage->keep_count = keep_count;
    stage->operations = all + keep_count;
    stage->operation_count = stage->direct_count = (int64_t)rest;
    rs_sort(stage->keeps, (size_t)keep_count, sizeof *all, compare_operations);
    rs_sort(stage->operations, rest, sizeof *all, compare_operations);
    find_peers(b, stage);
    for (int64_t i = 0; i < stage->operation_count; i++)
        stage->direct[i] = &stage->operations[i];
    return RESHARD_OK;
}

/* Whether this rank reads or writes more in the stage than the caches hold. */
static bool is_large(const builder *b)
{
    size_t read = 0, written = 0;
    int32_t rank = b->exec->part->rank;
    for (int32_t l = 0; l < reshard_plan_stage_link_count(b->exec->plan, b->stage); l++) {
        reshard_stage_link link = rs_plan_stage_link(b->exec->plan, b->stage, l);
        if (link.source >= 0)
            read += (size_t)rs_layout_shard_volume(link.source_layout, rank) *
                    rs_element_bytes(link.source_dtype);
        if (link.target >= 0)
            written += (size_t)rs_layout_shard_volume(link.target_layout, rank) *
                       rs_element_bytes(link.target_dtype);
    }
    return read >= RS_STREAM_BYTES || written >= RS_STREAM_BYTES;
}

static reshard_status build_stage(builder *b, rs_exec_stage *stage)
{
    b->peer_count = b->count = 0;
    b->many = is_large(b);
    reshard_status status = decide_copiers(b);
    stage->link_pushes = b->pushes;
    if (status == RESHARD_OK)
        status = collect_keeps(b);
    int64_t keep_count = b->count;
    if (status == RESHARD_OK)
        status = collect_direct(b, stage);
    if (status == RESHARD_OK)
        status = make_peers(b, stage);
    if (status == RESHARD_OK && b->exec->traffic != NULL)
        status = rs_traffic_make_lanes(b->exec, b->stage);
    if (status == RESHARD_OK && b->exec->traffic != NULL)
        status = collect_arrivals(b);
    return status == RESHARD_OK ? take_operations(b, keep_count, stage) : status;
}

reshard_status rs_exec_build(reshard_exec *exec)
{
    builder b = {.exec = exec};
    reshard_status status = RESHARD_OK;
    for (b.stage = 0; b.stage < exec->stage_count && status == RESHARD_OK; b.stage++)
        status = build_stage(&b, &exec->stages[b.stage]);
    rs_release(exec->context, b.operations);
    rs_release(exec->context, b.peers);
    return status;
}

/* ---- aliases --------------------------------------------------------------------------------- */

static bool is_one_run(const rs_operation *o)
{
    int64_t bytes = (int64_t)rs_copy_bytes(&o->kernels->copy);
    return o->kind == RESHARD_MOVE_COPY && !o->kernels->casts &&
           rs_copy_source_run(&o->kernels->copy) == bytes &&
           rs_copy_target_run(&o->kernels->copy) == bytes;
}

void rs_exec_find_alias(reshard_exec *exec)
{
    int64_t first = exec->slot_first[exec->source_count + exec->target_count];
    if (exec->stage_count < 2 || exec->plan->transposed != NULL)
        return;
    const rs_exec_stage *last = &exec->stages[exec->stage_count - 1];
    for (int64_t i = 0; i < last->keep_count && exec->alias.keep == NULL; i++) {
        const rs_operation *o = &last->keeps[i];
        if (o->source_slot < first || o->source_offset != 0 || !is_one_run(o))
            continue;
        int32_t tensor = exec->source_count + exec->target_count;
        while (exec->slot_first[tensor + 1] <= o->source_slot)
            tensor++;
        const reshard_layout *layout = rs_exec_layout(exec, tensor);
        size_t bytes = (size_t)rs_layout_shard_volume(layout, exec->part->rank) *
                       rs_element_bytes(o->source_dtype);
        if (bytes != 0 && bytes == rs_copy_bytes(&o->kernels->copy))
            exec->alias = (rs_exec_alias){
                .keep = o, .own = exec->addresses->slots[o->source_slot], .bytes = bytes};
    }
}
