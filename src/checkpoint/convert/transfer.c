/* SPDX-License-Identifier: Apache-2.0 */
/* transfer.c - plans one tensor and cuts it into blocks. */
#include "checkpoint/convert/transfer.h"

#include "base/checked.h"
#include "base/context.h"
#include "base/digest.h"

#include <reshard/plan_inspect.h>

#include <stdlib.h>
#include <string.h>

/* From here on the kernel copies a range better than we do through memory. */
#define DIRECT_BYTES_MIN ((int64_t)256 << 10)
/* A block that takes no memory may be larger than others. */
#define DIRECT_BLOCK_BYTES ((size_t)64 << 20)

/* ---- moves ----------------------------------------------------------------------------------- */

static bool is_inside(const rs_stored_tensor *tensor, const rs_stored_piece *piece,
                      const int64_t *place)
{
    for (int32_t d = 0; d < tensor->carried_ndim; d++) {
        int64_t from = piece->offset != NULL ? piece->offset[d] : 0;
        if (place[d] < from || place[d] >= from + piece->size[d])
            return false;
    }
    return true;
}

/* The piece of a file that holds a place; pieces are sorted by file. */
static int32_t find_piece(const rs_stored_tensor *tensor, int32_t file, const int64_t *place)
{
    int64_t low = 0, high = tensor->piece_count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (tensor->pieces[middle].file < file)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < tensor->piece_count && tensor->pieces[low].file == file; low++) {
        if (is_inside(tensor, &tensor->pieces[low], place))
            return (int32_t)low;
    }
    return -1;
}

typedef struct move_list {
    int64_t count, capacity;
    rs_transfer_move *items;
} move_list;

static reshard_status add_move(rs_arena *arena, move_list *list, const rs_transfer_move *move)
{
    void *items = list->items;
    reshard_status status =
        rs_grow(arena->context, &items, &list->capacity, list->count + 1, sizeof(rs_transfer_move));
    list->items = items;
    if (status == RESHARD_OK)
        list->items[list->count++] = *move;
    return status;
}

/* One record of the plan as single moves between pieces. */
static reshard_status add_record(rs_arena *arena, const rs_transfer *transfer,
                                 const reshard_move *record, int32_t rank, int32_t first_rank,
                                 move_list *list)
{
    size_t ndim = (size_t)transfer->source->carried_ndim;
    int64_t count = reshard_move_count(record);
    for (int64_t i = 0; i < count; i++) {
        int64_t start[RESHARD_FACTORS_MAX];
        reshard_move single;
        reshard_move_single(record, rank, i, &single, start);
        int64_t *numbers = rs_arena_allocate_array(arena, 2 * ndim, sizeof(int64_t));
        if (numbers == NULL)
            return rs_allocation_status();
        memcpy(numbers, start, ndim * sizeof(int64_t));
        memcpy(numbers + ndim, single.size, ndim * sizeof(int64_t));
        rs_transfer_move move = {
            .source = find_piece(transfer->source, single.source_rank, numbers),
            .target = find_piece(transfer->target, single.target_rank - first_rank, numbers),
            .offset = numbers,
            .size = numbers + ndim};
        if (move.source < 0 || move.target < 0)
            return rs_fail(RESHARD_ERR_CHECK, "tensor \"%.*s\": a move between no pieces",
                           rs_slice_shown(transfer->source->name), transfer->source->name.bytes);
        reshard_status status = add_move(arena, list, &move);
        if (status != RESHARD_OK)
            return status;
    }
    return RESHARD_OK;
}

/* What the file of one rank of the targets receives. */
static reshard_status add_part(rs_arena *arena, const rs_transfer *transfer, reshard_plan *plan,
                               int32_t rank, int32_t first_rank, move_list *list)
{
    reshard_part *part = NULL;
    reshard_status status = reshard_part_create(arena->context, plan, rank, &part);
    if (status != RESHARD_OK)
        return status;
    const reshard_moves *moves = &reshard_part_link(part, 0, 0)->receives;
    for (int64_t i = 0; status == RESHARD_OK && i < moves->count; i++)
        status = add_record(arena, transfer, &moves->items[i], rank, first_rank, list);
    reshard_part_destroy(part);
    return status;
}

static int compare_moves(const void *a, const void *b)
{
    const rs_transfer_move *x = a, *y = b;
    if (x->target != y->target)
        return x->target < y->target ? -1 : 1;
    return (x->source > y->source) - (x->source < y->source);
}

static reshard_status keep_moves(rs_arena *arena, move_list *list, rs_transfer *transfer)
{
    if (list->count > 1)
        qsort(list->items, (size_t)list->count, sizeof(rs_transfer_move), compare_moves);
    transfer->move_count = list->count;
    transfer->moves =
        rs_arena_copy(arena, list->items, (size_t)list->count, sizeof(rs_transfer_move));
    return transfer->moves != NULL ? RESHARD_OK : rs_allocation_status();
}

static void release_moves(rs_arena *arena, move_list *list)
{
    if (list->items != NULL)
        rs_release(arena->context, list->items, (size_t)list->capacity * sizeof(rs_transfer_move));
}

static reshard_status plan_moves(rs_arena *arena, rs_transfer *transfer)
{
    const rs_stored_tensor *source = transfer->source, *target = transfer->target;
    reshard_context *context = arena->context;
    const reshard_plan_options options = {.size = sizeof options, .single_stage = 1};
    reshard_layout *from = NULL, *to = NULL;
    reshard_plan *plan = NULL;
    move_list list = {0};
    /* The ranks of targets follow those of sources: a file never is both. */
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
            status = add_part(arena, transfer, plan, target->pieces[i].file + first_rank,
                              first_rank, &list);
    }
    if (status == RESHARD_OK)
        status = keep_moves(arena, &list, transfer);
    release_moves(arena, &list);
    reshard_plan_release(plan);
    reshard_layout_release(to);
    reshard_layout_release(from);
    return rs_fail_within(status, "tensor \"%.*s\"", rs_slice_shown(source->name),
                          source->name.bytes);
}

/* ---- pieces that are stored several times ---------------------------------------------------- */

typedef struct boxed_piece {
    uint64_t box[2]; /* digest of offset and size */
    int64_t piece;
    int64_t volume;
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

static boxed_piece box_piece(const rs_stored_tensor *tensor, int64_t index)
{
    static const int64_t zeros[RESHARD_NDIM_MAX];
    const rs_stored_piece *piece = &tensor->pieces[index];
    boxed_piece boxed = {.piece = index, .volume = 1};
    rs_digest digest;
    rs_digest_init(&digest);
    rs_digest_i64s(&digest, piece->offset != NULL ? piece->offset : zeros, tensor->carried_ndim);
    rs_digest_i64s(&digest, piece->size, tensor->carried_ndim);
    rs_digest_finish(&digest, boxed.box);
    for (int32_t d = 0; d < tensor->carried_ndim; d++)
        boxed.volume *= piece->size[d];
    return boxed;
}

/* Sets tiles and again. */
static reshard_status find_again(rs_arena *arena, rs_transfer *transfer)
{
    const rs_stored_tensor *target = transfer->target;
    size_t count = (size_t)target->piece_count;
    int64_t volume = 1, first_volume = 0;
    bool any = false;
    bool *again = rs_arena_allocate_array(arena, count, sizeof *again);
    boxed_piece *boxed = rs_allocate_array(arena->context, count, sizeof *boxed);
    reshard_status status = again != NULL && boxed != NULL ? RESHARD_OK : rs_allocation_status();
    if (status != RESHARD_OK)
        goto out;
    for (int32_t d = 0; d < target->carried_ndim; d++)
        volume *= target->carried_shape[d];
    for (size_t i = 0; i < count; i++)
        boxed[i] = box_piece(target, (int64_t)i);
    qsort(boxed, count, sizeof *boxed, compare_boxed);
    for (size_t i = 0; i < count; i++) {
        bool is_again = i > 0 && memcmp(boxed[i].box, boxed[i - 1].box, sizeof boxed[i].box) == 0;
        again[boxed[i].piece] = is_again;
        first_volume += is_again ? 0 : boxed[i].volume;
        any = any || is_again;
    }
    transfer->again = any ? again : NULL;
    transfer->tiles = first_volume == volume;
out:
    rs_release(arena->context, boxed, count * sizeof *boxed);
    return status;
}

static reshard_status keep_single(rs_arena *arena, rs_transfer *transfer)
{
    rs_transfer_move move = {.size = transfer->source->carried_shape};
    transfer->tiles = true;
    transfer->move_count = 1;
    transfer->moves = rs_arena_copy(arena, &move, 1, sizeof move);
    return transfer->moves != NULL ? RESHARD_OK : rs_allocation_status();
}

static bool is_range(const rs_stored_tensor *tensor, const rs_stored_piece *piece,
                     const rs_transfer_move *move)
{
    rs_clip clip;
    return rs_piece_clip(tensor, piece, move->offset, move->size, &clip) &&
           clip.end - clip.at == (uint64_t)clip.bytes && clip.bytes >= DIRECT_BYTES_MIN;
}

static bool all_are_ranges(const rs_transfer *transfer)
{
    for (int64_t i = 0; i < transfer->move_count; i++) {
        const rs_transfer_move *move = &transfer->moves[i];
        if (!is_range(transfer->source, &transfer->source->pieces[move->source], move) ||
            !is_range(transfer->target, &transfer->target->pieces[move->target], move))
            return false;
    }
    return true;
}

static void digest_boxes(rs_digest *digest, const rs_stored_tensor *tensor)
{
    int32_t ndim = tensor->carried_ndim;
    rs_digest_u64(digest, (uint64_t)ndim);
    rs_digest_i64s(digest, tensor->carried_shape, ndim);
    for (int64_t i = 0; i < tensor->piece_count; i++) {
        static const int64_t zeros[RESHARD_NDIM_MAX];
        const rs_stored_piece *piece = &tensor->pieces[i];
        /* Which pieces share a file decides where a piece is looked for. */
        rs_digest_u64(digest, i > 0 && piece->file == tensor->pieces[i - 1].file);
        rs_digest_i64s(digest, piece->offset != NULL ? piece->offset : zeros, ndim);
        rs_digest_i64s(digest, piece->size, ndim);
    }
}

/* From the cache when the same boxes were planned before, else by the planner. */
static reshard_status find_moves(rs_arena *arena, rs_transfer_cache *cache, rs_transfer *transfer)
{
    uint64_t key[2];
    rs_digest digest;
    rs_digest_init(&digest);
    digest_boxes(&digest, transfer->source);
    digest_boxes(&digest, transfer->target);
    rs_digest_finish(&digest, key);
    size_t slot = key[0] % (sizeof cache->slots / sizeof cache->slots[0]);
    if (cache->slots[slot].move_count != 0 && cache->slots[slot].digest[0] == key[0] &&
        cache->slots[slot].digest[1] == key[1]) {
        transfer->move_count = cache->slots[slot].move_count;
        transfer->moves = cache->slots[slot].moves;
        transfer->tiles = cache->slots[slot].tiles;
        transfer->again = cache->slots[slot].again;
        return RESHARD_OK;
    }
    reshard_status status = plan_moves(arena, transfer);
    if (status == RESHARD_OK)
        status = find_again(arena, transfer);
    if (status != RESHARD_OK)
        return status;
    memcpy(cache->slots[slot].digest, key, sizeof key);
    cache->slots[slot].move_count = transfer->move_count;
    cache->slots[slot].moves = transfer->moves;
    cache->slots[slot].tiles = transfer->tiles;
    cache->slots[slot].again = transfer->again;
    return RESHARD_OK;
}

reshard_status rs_transfer_plan(rs_arena *arena, rs_transfer_cache *cache,
                                const rs_stored_tensor *source, const rs_stored_tensor *target,
                                rs_transfer *out_transfer)
{
    rs_transfer transfer = {.source = source, .target = target};
    transfer.casts = source->dtype != target->dtype;
    bool is_whole = source->piece_count == 1 && target->piece_count == 1;
    reshard_status status =
        is_whole ? keep_single(arena, &transfer) : find_moves(arena, cache, &transfer);
    if (status != RESHARD_OK)
        return status;
    transfer.direct = !transfer.casts && all_are_ranges(&transfer);
    *out_transfer = transfer;
    return RESHARD_OK;
}

static int32_t find_original(const rs_stored_tensor *tensor, const rs_stored_piece *copy)
{
    size_t bytes = (size_t)tensor->carried_ndim * sizeof(int64_t);
    for (int64_t i = 0; i < tensor->piece_count; i++) {
        const rs_stored_piece *piece = &tensor->pieces[i];
        bool same_offset =
            piece->offset == copy->offset || (piece->offset != NULL && copy->offset != NULL &&
                                              memcmp(piece->offset, copy->offset, bytes) == 0);
        if (same_offset && memcmp(piece->size, copy->size, bytes) == 0)
            return (int32_t)i;
    }
    return -1;
}

reshard_status rs_transfer_copies(rs_arena *arena, const rs_stored_tensor *source,
                                  const rs_stored_tensor *target, rs_transfer *out_transfer)
{
    rs_transfer transfer = {.source = source, .target = target};
    move_list list = {0};
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; status == RESHARD_OK && i < target->piece_count; i++) {
        const rs_stored_piece *copy = &target->pieces[i];
        rs_transfer_move move = {.source = find_original(source, copy),
                                 .target = (int32_t)i,
                                 .offset = copy->offset,
                                 .size = copy->size};
        if (move.source < 0)
            status = rs_fail(RESHARD_ERR_CHECK, "tensor \"%.*s\": a copy of no piece",
                             rs_slice_shown(source->name), source->name.bytes);
        else
            status = add_move(arena, &list, &move);
    }
    if (status == RESHARD_OK)
        status = keep_moves(arena, &list, &transfer);
    release_moves(arena, &list);
    if (status == RESHARD_OK)
        *out_transfer = transfer;
    return status;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

void rs_transfer_tile(rs_transfer *transfer, size_t memory_bytes)
{
    const rs_stored_tensor *source = transfer->source;
    int64_t each = source->element_bytes + transfer->target->element_bytes;
    int64_t room = (int64_t)(transfer->direct ? DIRECT_BLOCK_BYTES : memory_bytes) / each;
    int64_t row = 1; /* elements of one index of dim d */
    transfer->block_count = source->bytes != 0;
    for (int32_t d = source->carried_ndim - 1; d >= 0; d--) {
        int64_t extent = source->carried_shape[d];
        int64_t tile = rs_max(1, rs_min(extent, room / row));
        transfer->tile[d] = tile;
        if (source->bytes != 0)
            transfer->block_count *= rs_divide_up(extent, tile);
        row *= rs_max(extent, 1);
        /* Outer dims are then taken index by index. */
        if (tile < extent)
            room = 1;
    }
}

void rs_transfer_block(const rs_transfer *transfer, int64_t index,
                       int64_t out_offset[RESHARD_NDIM_MAX], int64_t out_size[RESHARD_NDIM_MAX])
{
    const rs_stored_tensor *source = transfer->source;
    for (int32_t d = source->carried_ndim - 1; d >= 0; d--) {
        int64_t extent = source->carried_shape[d];
        int64_t tiles = rs_divide_up(extent, transfer->tile[d]);
        out_offset[d] = index % tiles * transfer->tile[d];
        out_size[d] = rs_min(transfer->tile[d], extent - out_offset[d]);
        index /= tiles;
    }
}

uint64_t rs_transfer_block_bytes(const rs_transfer *transfer, int64_t index)
{
    int64_t offset[RESHARD_NDIM_MAX], size[RESHARD_NDIM_MAX];
    uint64_t bytes = (uint64_t)transfer->target->element_bytes;
    rs_transfer_block(transfer, index, offset, size);
    for (int32_t d = 0; d < transfer->target->carried_ndim; d++)
        bytes *= (uint64_t)size[d];
    return bytes;
}
