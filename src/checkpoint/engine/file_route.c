/* SPDX-License-Identifier: Apache-2.0 */
/* file_route.c - plans the moves of one tensor. */
#include "checkpoint/engine/file_route.h"

#include "base/checked.h"
#include "base/context.h"
#include "base/digest.h"
#include "base/search.h"
#include "base/shape.h"
#include "base/sort.h"

#include <reshard/plan_inspect.h>

#include <assert.h>
#include <string.h>

/* The kernel copies ranges of at least this length better than we do through memory. */
#define DIRECT_BYTES_MIN ((int64_t)256 << 10)

static const int64_t zeros[RESHARD_NDIM_MAX];

static const int64_t *offset_of(const rs_stored_piece *piece)
{
    return piece->offset != NULL ? piece->offset : zeros;
}

/* ---- moves ----------------------------------------------------------------------------------- */

typedef struct move_list {
    rs_arena *arena;
    const rs_stored_tensor *source, *target;
    int64_t count, capacity;
    rs_route_move *items;
} move_list;

/* Finds where a box begins in a piece. Returns the strides there, written to `numbers` if the piece
 * has none of its own. */
static const int64_t *place_in(const rs_stored_tensor *tensor, const rs_stored_piece *piece,
                               const int64_t *offset, int64_t *numbers, int64_t *out_at)
{
    const int64_t *from = offset_of(piece), *strides = piece->strides;
    if (strides == NULL) {
        rs_dense_strides(tensor->carried_ndim, piece->size, numbers);
        strides = numbers;
    }
    *out_at = 0;
    for (int32_t d = 0; d < tensor->carried_ndim; d++)
        *out_at += (offset[d] - from[d]) * strides[d];
    return strides;
}

/* Adds a box that goes from one piece to another. Both hold all of it. */
static reshard_status add_move(move_list *list, int64_t source, int64_t target,
                               const int64_t *offset, const int64_t *size)
{
    assert(source < list->source->piece_count && target < list->target->piece_count);
    size_t ndim = (size_t)list->source->carried_ndim;
    reshard_status status = rs_grow(list->arena->context, &list->items, &list->capacity,
                                    list->count + 1, sizeof(rs_route_move));
    if (status != RESHARD_OK)
        return status;
    int64_t *numbers = rs_arena_allocate_array(list->arena, 4 * ndim, sizeof(int64_t));
    if (numbers == NULL)
        return rs_allocation_status();
    memcpy(numbers, offset, ndim * sizeof(int64_t));
    memcpy(numbers + ndim, size, ndim * sizeof(int64_t));
    rs_route_move *move = &list->items[list->count++];
    *move = (rs_route_move){.source = (int32_t)source,
                            .target = (int32_t)target,
                            .offset = numbers,
                            .size = numbers + ndim};
    move->source_strides = place_in(list->source, &list->source->pieces[source], offset,
                                    numbers + 2 * ndim, &move->source_at);
    move->target_strides = place_in(list->target, &list->target->pieces[target], offset,
                                    numbers + 3 * ndim, &move->target_at);
    return RESHARD_OK;
}

static int compare_moves(const void *a, const void *b)
{
    const rs_route_move *x = a, *y = b;
    if (x->target != y->target)
        return x->target < y->target ? -1 : 1;
    return (x->source > y->source) - (x->source < y->source);
}

/* Sorts the moves, hands them to the route, and frees the list, also after an error. */
static reshard_status keep_moves(move_list *list, reshard_status status, rs_route *route)
{
    if (status == RESHARD_OK) {
        rs_sort(list->items, (size_t)list->count, sizeof(rs_route_move), compare_moves);
        route->move_count = list->count;
        route->moves =
            rs_arena_copy(list->arena, list->items, (size_t)list->count, sizeof(rs_route_move));
        status = route->moves != NULL ? RESHARD_OK : rs_allocation_status();
    }
    rs_release(list->arena->context, list->items);
    return status;
}

/* ---- moves by the planner -------------------------------------------------------------------- */

/* The first piece in a file, from which the plan counts its shards. Pieces are sorted by file. */
static int64_t first_piece(const rs_stored_tensor *tensor, int32_t file)
{
    int64_t at;
    RS_FIND_FIRST(at, tensor->piece_count, tensor->pieces[at].file >= file);
    assert(at < tensor->piece_count && tensor->pieces[at].file == file);
    return at;
}

/* Adds one record of the plan, as single moves between pieces. */
static reshard_status add_record(move_list *list, const reshard_move *record, int32_t rank,
                                 int32_t first_rank)
{
    reshard_status status = RESHARD_OK;
    int64_t count = reshard_move_count(record);
    for (int64_t i = 0; status == RESHARD_OK && i < count; i++) {
        int64_t start[RESHARD_FACTORS_MAX];
        reshard_move single;
        reshard_move_single(record, rank, i, &single, start);
        status = add_move(list, first_piece(list->source, single.source_rank) + single.source_shard,
                          first_piece(list->target, single.target_rank - first_rank) +
                              single.target_shard,
                          start, single.size);
    }
    return status;
}

/* Adds all moves that one file of the target receives. */
static reshard_status add_part(move_list *list, reshard_plan *plan, int32_t rank,
                               int32_t first_rank)
{
    reshard_part *part = NULL;
    reshard_status status = reshard_part_create(list->arena->context, plan, rank, &part);
    if (status != RESHARD_OK)
        return status;
    const reshard_moves *moves = &reshard_part_link(part, 0, 0)->receives;
    for (int64_t i = 0; status == RESHARD_OK && i < moves->count; i++)
        status = add_record(list, &moves->items[i], rank, first_rank);
    reshard_part_destroy(part);
    return status;
}

static reshard_status plan_moves(rs_arena *arena, rs_route *route)
{
    const rs_stored_tensor *source = route->source, *target = route->target;
    reshard_context *context = arena->context;
    const reshard_plan_options options = {.size = sizeof options, .single_stage = 1};
    reshard_layout *from = NULL, *to = NULL;
    reshard_plan *plan = NULL;
    move_list list = {.arena = arena, .source = source, .target = target};
    /* Target ranks are numbered after the source ranks, because no file is both. */
    int32_t first_rank = source->pieces[source->piece_count - 1].file + 1;
    reshard_status status =
        rs_store_layout(context, source, source->pieces, source->piece_count, false, 0, &from);
    if (status == RESHARD_OK)
        status = rs_store_layout(context, target, target->pieces, target->piece_count, true,
                                 first_rank, &to);
    if (status == RESHARD_OK)
        status = reshard_plan_create_simple(
            context, from, to, source->opaque ? RESHARD_U8 : source->dtype, &options, &plan);
    for (int64_t i = 0; status == RESHARD_OK && i < target->piece_count; i++) {
        if (i == 0 || target->pieces[i].file != target->pieces[i - 1].file)
            status = add_part(&list, plan, target->pieces[i].file + first_rank, first_rank);
    }
    status = keep_moves(&list, status, route);
    reshard_plan_release(plan);
    reshard_layout_release(to);
    reshard_layout_release(from);
    return rs_fail_within_tensor(status, source->name);
}

/* ---- pieces by their boxes ------------------------------------------------------------------- */

typedef struct boxed_piece {
    uint64_t box[2]; /* digest of offset and size */
    int64_t piece;
} boxed_piece;

static int compare_boxed(const void *a, const void *b)
{
    const boxed_piece *x = a, *y = b;
    for (int i = 0; i < 2; i++) {
        if (x->box[i] != y->box[i])
            return x->box[i] < y->box[i] ? -1 : 1;
    }
    return (x->piece > y->piece) - (x->piece < y->piece);
}

static bool has_same_box(const boxed_piece *a, const boxed_piece *b)
{
    return memcmp(a->box, b->box, sizeof a->box) == 0;
}

static boxed_piece box_piece(int32_t ndim, const rs_stored_piece *piece, int64_t index)
{
    boxed_piece boxed = {.piece = index};
    rs_digest digest;
    rs_digest_init(&digest);
    rs_digest_i64s(&digest, offset_of(piece), ndim);
    rs_digest_i64s(&digest, piece->size, ndim);
    rs_digest_finish(&digest, boxed.box);
    return boxed;
}

/* Sets the route's `tiles` and `again`. */
static reshard_status find_again(rs_arena *arena, rs_route *route)
{
    const rs_stored_tensor *target = route->target;
    int32_t ndim = target->carried_ndim;
    size_t count = (size_t)target->piece_count;
    int64_t first_volume = 0;
    bool any = false;
    bool *again = rs_arena_allocate_array(arena, count, sizeof *again);
    boxed_piece *boxed = rs_allocate_array(arena->context, count, sizeof *boxed);
    reshard_status status = again != NULL && boxed != NULL ? RESHARD_OK : rs_allocation_status();
    for (size_t i = 0; status == RESHARD_OK && i < count; i++)
        boxed[i] = box_piece(ndim, &target->pieces[i], (int64_t)i);
    if (status == RESHARD_OK)
        rs_sort(boxed, count, sizeof *boxed, compare_boxed);
    for (size_t i = 0; status == RESHARD_OK && i < count; i++) {
        bool is_again = i > 0 && has_same_box(&boxed[i], &boxed[i - 1]);
        again[boxed[i].piece] = is_again;
        first_volume += is_again ? 0 : rs_volume(ndim, target->pieces[boxed[i].piece].size);
        any = any || is_again;
    }
    route->again = any ? again : NULL;
    route->tiles = first_volume == rs_volume(ndim, target->carried_shape);
    rs_release(arena->context, boxed);
    return status;
}

/* Adds moves from every source piece that overlaps a target piece. */
static reshard_status add_overlaps(move_list *list, int64_t target)
{
    reshard_status status = RESHARD_OK;
    const rs_stored_piece *to = &list->target->pieces[target];
    for (int64_t i = 0; status == RESHARD_OK && i < list->source->piece_count; i++) {
        rs_clip clip;
        if (rs_piece_clip(list->source, &list->source->pieces[i], offset_of(to), to->size, &clip))
            status = add_move(list, i, target, clip.offset, clip.size);
    }
    return status;
}

/* Most copies have the same box as one piece, which sorting puts right before them. */
static reshard_status add_copies(move_list *list, boxed_piece *boxed)
{
    const rs_stored_tensor *source = list->source, *copies = list->target;
    reshard_status status = RESHARD_OK;
    int64_t pieces = source->piece_count, count = pieces + copies->piece_count;
    for (int64_t i = 0; i < count; i++)
        boxed[i] = box_piece(source->carried_ndim,
                             i < pieces ? &source->pieces[i] : &copies->pieces[i - pieces], i);
    rs_sort(boxed, (size_t)count, sizeof *boxed, compare_boxed);
    for (int64_t i = 0, original = -1; status == RESHARD_OK && i < count; i++) {
        int64_t copy = boxed[i].piece - pieces;
        if (copy < 0)
            original = i;
        else if (original >= 0 && has_same_box(&boxed[original], &boxed[i]))
            status = add_move(list, boxed[original].piece, copy, offset_of(&copies->pieces[copy]),
                              copies->pieces[copy].size);
        else
            status = add_overlaps(list, copy);
    }
    return status;
}

/* ---- routes ---------------------------------------------------------------------------------- */

rs_route rs_route_nowhere(const rs_stored_tensor *source)
{
    return (rs_route){.source = source, .offset = zeros, .size = source->carried_shape};
}

/* Makes one move, for tensors that are in one piece on both sides. */
static reshard_status keep_single(rs_arena *arena, rs_route *route)
{
    move_list list = {.arena = arena, .source = route->source, .target = route->target};
    route->tiles = true;
    return keep_moves(&list, add_move(&list, 0, 0, zeros, route->size), route);
}

static bool are_ranges(const rs_route *route)
{
    for (int64_t i = 0; i < route->move_count; i++) {
        const rs_route_move *move = &route->moves[i];
        int32_t ndim = route->source->carried_ndim;
        if (rs_volume(ndim, move->size) * route->source->element_bytes < DIRECT_BYTES_MIN ||
            !rs_strides_are_dense(ndim, move->size, move->source_strides) ||
            !rs_strides_are_dense(ndim, move->size, move->target_strides))
            return false;
    }
    return true;
}

static void digest_pieces(rs_digest *digest, const rs_stored_tensor *tensor)
{
    int32_t ndim = tensor->carried_ndim;
    rs_digest_u64(digest, (uint64_t)ndim);
    rs_digest_i64s(digest, tensor->carried_shape, ndim);
    for (int64_t i = 0; i < tensor->piece_count; i++) {
        const rs_stored_piece *piece = &tensor->pieces[i];
        /* The plan numbers shards within each file, so it matters which pieces share a file. */
        rs_digest_u64(digest, i > 0 && piece->file == tensor->pieces[i - 1].file);
        rs_digest_i64s(digest, offset_of(piece), ndim);
        rs_digest_i64s(digest, piece->size, ndim);
        rs_digest_u64(digest, piece->strides != NULL);
        if (piece->strides != NULL)
            rs_digest_i64s(digest, piece->strides, ndim);
    }
}

/* Takes the moves from the cache if such pieces were planned before; otherwise plans them. */
static reshard_status find_moves(rs_arena *arena, rs_route_cache *cache, rs_route *route)
{
    uint64_t key[2];
    rs_digest digest;
    rs_digest_init(&digest);
    digest_pieces(&digest, route->source);
    digest_pieces(&digest, route->target);
    rs_digest_finish(&digest, key);
    size_t slot = key[0] % (sizeof cache->slots / sizeof cache->slots[0]);
    const rs_route *found = &cache->slots[slot].route;
    if (found->move_count != 0 && memcmp(cache->slots[slot].digest, key, sizeof key) == 0) {
        route->move_count = found->move_count;
        route->moves = found->moves;
        route->tiles = found->tiles;
        route->again = found->again;
        return RESHARD_OK;
    }
    reshard_status status = plan_moves(arena, route);
    if (status == RESHARD_OK)
        status = find_again(arena, route);
    if (status != RESHARD_OK)
        return status;
    memcpy(cache->slots[slot].digest, key, sizeof key);
    cache->slots[slot].route = *route;
    return RESHARD_OK;
}

reshard_status rs_route_plan(rs_arena *arena, rs_route_cache *cache, const rs_stored_tensor *source,
                             const rs_stored_tensor *target, rs_route *out_route)
{
    assert(source->bytes != 0 && source->carried_ndim == target->carried_ndim);
    rs_route route = rs_route_nowhere(source);
    route.target = target;
    route.casts = source->dtype != target->dtype;
    bool is_whole = source->piece_count == 1 && target->piece_count == 1;
    reshard_status status =
        is_whole ? keep_single(arena, &route) : find_moves(arena, cache, &route);
    if (status != RESHARD_OK)
        return status;
    route.direct = !route.casts && source->formula == NULL && are_ranges(&route);
    *out_route = route;
    return RESHARD_OK;
}

reshard_status rs_route_copies(rs_arena *arena, const rs_stored_tensor *source, rs_route *out_route)
{
    rs_route route = rs_route_nowhere(source);
    size_t count = (size_t)(source->piece_count + source->copy_count);
    boxed_piece *boxed = NULL;
    reshard_status status = RESHARD_OK;
    rs_stored_tensor *copies = rs_arena_copy(arena, source, 1, sizeof *source);
    if (copies == NULL || (boxed = rs_allocate_array(arena->context, count, sizeof *boxed)) == NULL)
        return rs_allocation_status();
    copies->pieces = source->copies;
    copies->piece_count = source->copy_count;
    route.target = copies;
    move_list list = {.arena = arena, .source = source, .target = copies};
    status = keep_moves(&list, add_copies(&list, boxed), &route);
    rs_release(arena->context, boxed);
    if (status == RESHARD_OK)
        *out_route = route;
    return status;
}

reshard_status rs_route_piece(rs_arena *arena, const rs_stored_tensor *source,
                              const rs_stored_tensor *target, int64_t piece, rs_route *out_route)
{
    rs_route route = {.source = source,
                      .target = target,
                      .offset = offset_of(&target->pieces[piece]),
                      .size = target->pieces[piece].size,
                      .casts = source->dtype != target->dtype};
    move_list list = {.arena = arena, .source = source, .target = target};
    reshard_status status = keep_moves(&list, add_overlaps(&list, piece), &route);
    route.direct = !route.casts && source->formula == NULL;
    if (status == RESHARD_OK)
        *out_route = route;
    return status;
}

static int compare_routes(const void *a, const void *b)
{
    const rs_stored_piece *x = ((const rs_route *)a)->source->pieces;
    const rs_stored_piece *y = ((const rs_route *)b)->source->pieces;
    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

void rs_routes_sort(rs_route *routes, int64_t count)
{
    rs_sort(routes, (size_t)count, sizeof *routes, compare_routes);
}

uint64_t rs_route_target_bytes(const rs_route *route)
{
    uint64_t bytes = 0;
    for (int64_t i = 0; i < route->move_count; i++)
        bytes += (uint64_t)(rs_volume(route->target->carried_ndim, route->moves[i].size) *
                            route->target->element_bytes);
    return bytes;
}
