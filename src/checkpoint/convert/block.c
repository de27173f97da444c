/* SPDX-License-Identifier: Apache-2.0 */
/*
 * block.c - one block of one transfer.
 *
 * 1. What the block has of each source piece is read into the first part of the buffer, each byte
 *    once and in as few reads as the file allows. Pieces that share an entry and lie together are
 *    read as one range.
 * 2. For each group of target pieces the moves are copied, or cast, into the second part, which
 *    then is one range of the target file; or, where that would copy long ranges for nothing, they
 *    are written from where they lie.
 * 3. The range is written, or compared with what the file has.
 *
 * What was read and what is written is digested on the way (passing.h).
 */
#include "base/checked.h"
#include "base/context.h"
#include "checkpoint/convert/engine.h"
#include "checkpoint/digest/slabs.h"
#include "kernel/cast.h"
#include "kernel/copy.h"

#include <string.h>

#define COMPARE_BYTES ((size_t)256 << 10)
/* Ranges of this length are worth a write of their own. */
#define RUN_BYTES_MIN ((int64_t)256 << 10)
#define ALIGNMENT RS_ENGINE_ALIGNMENT

/* What the block has of one source piece, in memory. */
struct rs_block_slot {
    bool used;
    char *memory; /* of the element at offset */
    int64_t offset[RESHARD_NDIM_MAX];
    int64_t size[RESHARD_NDIM_MAX];
    int64_t strides[RESHARD_NDIM_MAX];
};

typedef struct block_box {
    int64_t offset[RESHARD_NDIM_MAX];
    int64_t size[RESHARD_NDIM_MAX];
} block_box;

reshard_status rs_worker_init(rs_worker *worker, rs_engine *engine)
{
    *worker = (rs_worker){.engine = engine,
                          .buffer_bytes = engine->thread_bytes,
                          .memory_bytes = engine->thread_bytes + ALIGNMENT};
    worker->memory = rs_allocate(engine->context, worker->memory_bytes);
    if (worker->memory == NULL)
        return rs_allocation_status();
    worker->buffer = worker->memory + (ALIGNMENT - (uintptr_t)worker->memory % ALIGNMENT);
    if (engine->mode == RS_ENGINE_COMPARE) {
        worker->compare = rs_allocate(engine->context, COMPARE_BYTES);
        if (worker->compare == NULL)
            return rs_allocation_status();
    }
    return RESHARD_OK;
}

void rs_worker_release(rs_worker *worker)
{
    reshard_context *context = worker->engine->context;
    if (worker->memory != NULL)
        rs_release(context, worker->memory, worker->memory_bytes);
    if (worker->compare != NULL)
        rs_release(context, worker->compare, COMPARE_BYTES);
    if (worker->slots != NULL)
        rs_release(context, worker->slots, (size_t)worker->slot_capacity * sizeof(rs_block_slot));
    worker->memory = worker->buffer = worker->compare = NULL;
    worker->slots = NULL;
}

static void dense_strides(int32_t ndim, const int64_t *size, int64_t *out_strides)
{
    int64_t stride = 1;
    for (int32_t d = ndim - 1; d >= 0; d--) {
        out_strides[d] = stride;
        stride *= size[d];
    }
}

static bool is_contiguous(int32_t ndim, const int64_t *size, const int64_t *strides)
{
    int64_t stride = 1;
    for (int32_t d = ndim - 1; d >= 0; d--) {
        if (size[d] != 1 && strides[d] != stride)
            return false;
        stride *= size[d];
    }
    return true;
}

/* ---- reading --------------------------------------------------------------------------------- */

static void fill_slot(rs_block_slot *slot, const rs_clip *clip, char *memory,
                      const int64_t *strides)
{
    slot->used = true;
    slot->memory = memory;
    memcpy(slot->offset, clip->offset, sizeof slot->offset);
    memcpy(slot->size, clip->size, sizeof slot->size);
    memcpy(slot->strides, strides, sizeof slot->strides);
}

static void digest_slot(rs_worker *worker, const rs_block_slot *slot)
{
    rs_passing_read(&worker->passing, slot->offset, slot->size, slot->memory, slot->strides);
}

/* One piece by itself, dense in memory. */
static reshard_status read_piece(rs_worker *worker, const rs_transfer *transfer, int64_t piece,
                                 const rs_clip *clip, char *memory)
{
    const rs_stored_tensor *source = transfer->source;
    rs_file_region region = {.ndim = source->carried_ndim, .element_bytes = source->element_bytes};
    memcpy(region.size, clip->size, sizeof region.size);
    memcpy(region.file_strides, clip->strides, sizeof region.file_strides);
    dense_strides(region.ndim, region.size, region.memory_strides);
    fill_slot(&worker->slots[piece], clip, memory, region.memory_strides);
    atomic_fetch_add(&worker->engine->bytes_read, (uint64_t)clip->bytes);
    reshard_status status = rs_file_region_read(
        worker->engine->sources[source->pieces[piece].file], clip->at, &region, memory,
        worker->target, (size_t)(worker->buffer + worker->buffer_bytes - worker->target));
    if (status == RESHARD_OK)
        digest_slot(worker, &worker->slots[piece]);
    return status;
}

/* Pieces of one entry. *used counts the bytes of the buffer. */
static reshard_status read_group(rs_worker *worker, const rs_transfer *transfer, int64_t first,
                                 int64_t count, const block_box *box, size_t *used)
{
    const rs_stored_tensor *source = transfer->source;
    rs_file *file = worker->engine->sources[source->pieces[first].file];
    uint64_t begin = UINT64_MAX, end = 0, bytes = 0;
    rs_clip clip;
    for (int64_t i = first; i < first + count; i++) {
        worker->slots[i].used = false;
        if (!rs_piece_clip(source, &source->pieces[i], box->offset, box->size, &clip))
            continue;
        begin = clip.at < begin ? clip.at : begin;
        end = clip.end > end ? clip.end : end;
        bytes += (uint64_t)clip.bytes;
    }
    if (bytes == 0)
        return RESHARD_OK;
    char *memory = worker->source + *used;
    *used += (size_t)bytes;
    *used = (*used + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    bool together = end - begin == bytes;
    reshard_status status = RESHARD_OK;
    for (int64_t i = first; status == RESHARD_OK && i < first + count; i++) {
        if (!rs_piece_clip(source, &source->pieces[i], box->offset, box->size, &clip))
            continue;
        if (together) {
            fill_slot(&worker->slots[i], &clip, memory + (clip.at - begin), clip.strides);
        } else {
            status = read_piece(worker, transfer, i, &clip, memory);
            memory += clip.bytes;
        }
    }
    if (status == RESHARD_OK && together) {
        atomic_fetch_add(&worker->engine->bytes_read, bytes);
        status = rs_file_read(file, memory, (size_t)bytes, begin);
        for (int64_t i = first; status == RESHARD_OK && i < first + count; i++) {
            if (worker->slots[i].used)
                digest_slot(worker, &worker->slots[i]);
        }
    }
    return status;
}

static reshard_status read_sources(rs_worker *worker, const rs_transfer *transfer,
                                   const block_box *box)
{
    const rs_stored_tensor *source = transfer->source;
    void *slots = worker->slots;
    size_t used = 0;
    reshard_status status = rs_grow(worker->engine->context, &slots, &worker->slot_capacity,
                                    source->piece_count, sizeof(rs_block_slot));
    worker->slots = slots;
    for (int64_t i = 0, count; status == RESHARD_OK && i < source->piece_count; i += count) {
        count = rs_piece_group(source->pieces, source->piece_count, i);
        status = read_group(worker, transfer, i, count, box, &used);
    }
    return status;
}

/* ---- writing --------------------------------------------------------------------------------- */

static reshard_status compare(rs_worker *worker, const rs_transfer *transfer, rs_file *file,
                              const char *memory, size_t count, uint64_t at)
{
    for (size_t done = 0, part; done < count; done += part) {
        part = count - done < COMPARE_BYTES ? count - done : COMPARE_BYTES;
        reshard_status status = rs_file_read(file, worker->compare, part, at + done);
        if (status != RESHARD_OK)
            return status;
        if (memcmp(worker->compare, memory + done, part) == 0)
            continue;
        size_t i = 0;
        while (worker->compare[i] == memory[done + i])
            i++;
        return rs_fail(RESHARD_ERR_CHECK, "byte %llu of %s is not what %s has for that element",
                       (unsigned long long)(at + done + i), rs_file_path(file),
                       rs_file_path(worker->engine->sources[transfer->source->pieces[0].file]));
    }
    return RESHARD_OK;
}

static reshard_status emit(rs_worker *worker, const rs_transfer *transfer, int32_t file,
                           const char *memory, size_t count, uint64_t at)
{
    rs_engine *engine = worker->engine;
    atomic_fetch_add(&engine->bytes_done, count);
    if (engine->mode == RS_ENGINE_COMPARE)
        return compare(worker, transfer, engine->targets[file], memory, count, at);
    atomic_fetch_add(&engine->bytes_written, count);
    return rs_file_write(engine->targets[file], memory, count, at);
}

/* Where the elements of a move, cut to the block, lie on both sides. */
typedef struct move_view {
    int64_t offset[RESHARD_NDIM_MAX];
    int64_t size[RESHARD_NDIM_MAX];
    const rs_block_slot *slot;
    const char *memory; /* in the slot */
} move_view;

/* False when the block has nothing of the move. */
static bool view_move(const rs_worker *worker, const rs_transfer *transfer,
                      const rs_transfer_move *move, const block_box *box, move_view *view)
{
    int64_t at = 0;
    view->slot = &worker->slots[move->source];
    if (!view->slot->used)
        return false;
    for (int32_t d = 0; d < transfer->source->carried_ndim; d++) {
        int64_t move_from = move->offset != NULL ? move->offset[d] : 0;
        int64_t from = rs_max(box->offset[d], move_from);
        int64_t to = rs_min(box->offset[d] + box->size[d], move_from + move->size[d]);
        if (from >= to)
            return false;
        view->offset[d] = from;
        view->size[d] = to - from;
        at += (from - view->slot->offset[d]) * view->slot->strides[d];
    }
    view->memory = view->slot->memory + at * transfer->source->element_bytes;
    return true;
}

static void copy_move(const rs_transfer *transfer, const move_view *view, char *target,
                      const int64_t *target_strides)
{
    int32_t ndim = transfer->source->carried_ndim;
    if (transfer->casts) {
        rs_cast cast;
        rs_cast_prepare(&cast, transfer->source->dtype, transfer->target->dtype, ndim, view->size,
                        view->slot->strides, target_strides);
        rs_cast_run(&cast, view->memory, target);
        return;
    }
    /* What is written next is better kept in the cache than streamed past it. */
    const rs_copy_tuning tuning = {rs_cpu_detect(), SIZE_MAX};
    rs_copy copy;
    rs_copy_prepare_tuned(&copy, &tuning, transfer->source->element_bytes, ndim, view->size,
                          view->slot->strides, target_strides);
    rs_copy_run(&copy, view->memory, target);
}

/* The byte, from the first of the clip, where a place of the tensor lies in the file. */
static int64_t place_in(const rs_transfer *transfer, const rs_clip *clip, const int64_t *place)
{
    int64_t at = 0;
    for (int32_t d = 0; d < transfer->target->carried_ndim; d++)
        at += (place[d] - clip->offset[d]) * clip->strides[d];
    return at * transfer->target->element_bytes;
}

/* Moves of one target piece: from *next on while they are its own. */
static const rs_transfer_move *moves_of(const rs_transfer *transfer, int64_t piece, int64_t *next,
                                        int64_t *out_count)
{
    int64_t first = *next;
    while (*next < transfer->move_count && transfer->moves[*next].target == piece)
        (*next)++;
    *out_count = *next - first;
    return transfer->moves + first;
}

static int64_t view_bytes(const rs_transfer *transfer, const move_view *view)
{
    int64_t bytes = transfer->target->element_bytes;
    for (int32_t d = 0; d < transfer->target->carried_ndim; d++)
        bytes *= view->size[d];
    return bytes;
}

/* Can all moves of the group be written from where they lie? Each is then one long range in memory
 * and in the file. */
static bool can_pass_on(const rs_worker *worker, const rs_transfer *transfer, int64_t first,
                        int64_t count, int64_t next, const block_box *box)
{
    int32_t ndim = transfer->target->carried_ndim;
    if (transfer->casts)
        return false;
    for (int64_t i = first; i < first + count; i++) {
        int64_t move_count = 0;
        const rs_transfer_move *moves = moves_of(transfer, i, &next, &move_count);
        int64_t strides[RESHARD_NDIM_MAX];
        rs_piece_strides(transfer->target, &transfer->target->pieces[i], strides);
        for (int64_t j = 0; j < move_count; j++) {
            move_view view;
            if (!view_move(worker, transfer, &moves[j], box, &view))
                continue;
            if (!is_contiguous(ndim, view.size, view.slot->strides) ||
                !is_contiguous(ndim, view.size, strides))
                return false;
            if (move_count > 1 && view_bytes(transfer, &view) < RUN_BYTES_MIN)
                return false;
        }
    }
    return true;
}

static reshard_status pass_on(rs_worker *worker, const rs_transfer *transfer, int64_t first,
                              int64_t count, int64_t next, const block_box *box)
{
    reshard_status status = RESHARD_OK;
    for (int64_t i = first; status == RESHARD_OK && i < first + count; i++) {
        const rs_stored_piece *piece = &transfer->target->pieces[i];
        int64_t move_count = 0;
        const rs_transfer_move *moves = moves_of(transfer, i, &next, &move_count);
        rs_clip clip;
        if (!rs_piece_clip(transfer->target, piece, box->offset, box->size, &clip))
            continue;
        for (int64_t j = 0; status == RESHARD_OK && j < move_count; j++) {
            move_view view;
            if (!view_move(worker, transfer, &moves[j], box, &view))
                continue;
            rs_passing_write(&worker->passing, i, view.offset, view.size, view.memory,
                             view.slot->strides);
            status = emit(worker, transfer, piece->file, view.memory,
                          (size_t)view_bytes(transfer, &view),
                          clip.at + (uint64_t)place_in(transfer, &clip, view.offset));
        }
    }
    return status;
}

/* Writes a dense box from memory into a piece that is strided in the file, run by run. */
static reshard_status emit_strided(rs_worker *worker, const rs_transfer *transfer, int32_t file,
                                   const rs_clip *clip, const char *memory)
{
    int32_t ndim = transfer->target->carried_ndim, outer = ndim;
    int64_t run = 1, runs = 1, index[RESHARD_NDIM_MAX] = {0};
    while (outer > 0 && (clip->strides[outer - 1] == run || clip->size[outer - 1] == 1))
        run *= clip->size[--outer];
    for (int32_t d = 0; d < outer; d++)
        runs *= clip->size[d];
    size_t run_bytes = (size_t)(run * transfer->target->element_bytes);
    for (int64_t i = 0; i < runs; i++) {
        int64_t at = 0;
        for (int32_t d = 0; d < outer; d++)
            at += index[d] * clip->strides[d];
        reshard_status status =
            emit(worker, transfer, file, memory + (size_t)i * run_bytes, run_bytes,
                 clip->at + (uint64_t)(at * transfer->target->element_bytes));
        if (status != RESHARD_OK)
            return status;
        for (int32_t d = outer - 1; d >= 0 && ++index[d] == clip->size[d]; d--)
            index[d] = 0;
    }
    return RESHARD_OK;
}

/* Pieces of one entry that lie together in the file: one range, assembled and written at once. */
static reshard_status assemble(rs_worker *worker, const rs_transfer *transfer, int64_t first,
                               int64_t count, int64_t next, const block_box *box, uint64_t begin,
                               uint64_t end)
{
    for (int64_t i = first; i < first + count; i++) {
        int64_t move_count = 0;
        const rs_transfer_move *moves = moves_of(transfer, i, &next, &move_count);
        rs_clip clip;
        if (!rs_piece_clip(transfer->target, &transfer->target->pieces[i], box->offset, box->size,
                           &clip))
            continue;
        char *memory = worker->target + (clip.at - begin);
        for (int64_t j = 0; j < move_count; j++) {
            move_view view;
            if (view_move(worker, transfer, &moves[j], box, &view))
                copy_move(transfer, &view, memory + place_in(transfer, &clip, view.offset),
                          clip.strides);
        }
        rs_passing_write(&worker->passing, i, clip.offset, clip.size, memory, clip.strides);
    }
    return emit(worker, transfer, transfer->target->pieces[first].file, worker->target,
                (size_t)(end - begin), begin);
}

/* Each piece by itself, dense in memory and strided in the file. */
static reshard_status assemble_strided(rs_worker *worker, const rs_transfer *transfer,
                                       int64_t first, int64_t count, int64_t next,
                                       const block_box *box)
{
    reshard_status status = RESHARD_OK;
    for (int64_t i = first; status == RESHARD_OK && i < first + count; i++) {
        const rs_stored_piece *piece = &transfer->target->pieces[i];
        int64_t move_count = 0;
        const rs_transfer_move *moves = moves_of(transfer, i, &next, &move_count);
        rs_clip clip, dense;
        if (!rs_piece_clip(transfer->target, piece, box->offset, box->size, &clip))
            continue;
        dense = clip;
        dense_strides(transfer->target->carried_ndim, clip.size, dense.strides);
        for (int64_t j = 0; j < move_count; j++) {
            move_view view;
            if (view_move(worker, transfer, &moves[j], box, &view))
                copy_move(transfer, &view, worker->target + place_in(transfer, &dense, view.offset),
                          dense.strides);
        }
        rs_passing_write(&worker->passing, i, clip.offset, clip.size, worker->target, NULL);
        status = emit_strided(worker, transfer, piece->file, &clip, worker->target);
    }
    return status;
}

static reshard_status write_group(rs_worker *worker, const rs_transfer *transfer, int64_t first,
                                  int64_t count, int64_t next, const block_box *box)
{
    uint64_t begin = UINT64_MAX, end = 0, bytes = 0;
    for (int64_t i = first; i < first + count; i++) {
        rs_clip clip;
        if (!rs_piece_clip(transfer->target, &transfer->target->pieces[i], box->offset, box->size,
                           &clip))
            continue;
        begin = clip.at < begin ? clip.at : begin;
        end = clip.end > end ? clip.end : end;
        bytes += (uint64_t)clip.bytes;
    }
    if (bytes == 0)
        return RESHARD_OK;
    if (can_pass_on(worker, transfer, first, count, next, box))
        return pass_on(worker, transfer, first, count, next, box);
    if (end - begin == bytes)
        return assemble(worker, transfer, first, count, next, box, begin, end);
    return assemble_strided(worker, transfer, first, count, next, box);
}

static reshard_status write_targets(rs_worker *worker, const rs_transfer *transfer,
                                    const block_box *box)
{
    const rs_stored_tensor *target = transfer->target;
    reshard_status status = RESHARD_OK;
    int64_t next = 0;
    for (int64_t i = 0, count; status == RESHARD_OK && i < target->piece_count; i += count) {
        count = rs_piece_group(target->pieces, target->piece_count, i);
        status = write_group(worker, transfer, i, count, next, box);
        while (next < transfer->move_count && transfer->moves[next].target < i + count)
            next++;
    }
    return status;
}

/* ---- by the kernel --------------------------------------------------------------------------- */

/* A box that lies together on both sides and that the kernel does not copy, through the buffer. */
static reshard_status copy_box(rs_worker *worker, const rs_transfer *transfer,
                               const rs_transfer_move *move, const rs_clip *box)
{
    const rs_stored_piece *from = &transfer->source->pieces[move->source];
    const rs_stored_piece *to = &transfer->target->pieces[move->target];
    const rs_stored_piece piece = {.offset = box->offset, .size = box->size};
    reshard_status status = RESHARD_OK;
    rs_slabs slabs;
    rs_slabs_init(&slabs, transfer->source, &piece, worker->buffer_bytes);
    for (int64_t i = 0; status == RESHARD_OK && i < slabs.count; i++) {
        rs_slab slab;
        rs_clip source, target;
        rs_slabs_at(&slabs, i, &slab);
        if (!rs_piece_clip(transfer->source, from, slab.offset, slab.size, &source) ||
            !rs_piece_clip(transfer->target, to, slab.offset, slab.size, &target))
            continue;
        status = rs_file_read(worker->engine->sources[from->file], worker->buffer, slab.bytes,
                              source.at);
        if (status != RESHARD_OK)
            continue;
        rs_passing_read_and_write(&worker->passing, move->target, slab.offset, slab.size,
                                  worker->buffer);
        status =
            rs_file_write(worker->engine->targets[to->file], worker->buffer, slab.bytes, target.at);
    }
    return status;
}

static reshard_status copy_directly(rs_worker *worker, const rs_transfer *transfer,
                                    const block_box *box)
{
    rs_engine *engine = worker->engine;
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; status == RESHARD_OK && i < transfer->move_count; i++) {
        const rs_transfer_move *move = &transfer->moves[i];
        const rs_stored_piece *from = &transfer->source->pieces[move->source];
        const rs_stored_piece *to = &transfer->target->pieces[move->target];
        rs_clip inside, source, target;
        const rs_stored_piece whole = {.offset = move->offset, .size = move->size};
        if (!rs_piece_clip(transfer->source, &whole, box->offset, box->size, &inside) ||
            !rs_piece_clip(transfer->source, from, inside.offset, inside.size, &source) ||
            !rs_piece_clip(transfer->target, to, inside.offset, inside.size, &target))
            continue;
        uint64_t count = (uint64_t)source.bytes, done = 0;
        status = rs_file_copy(engine->sources[from->file], source.at, engine->targets[to->file],
                              target.at, count, &done);
        if (status == RESHARD_OK && done < count)
            status = copy_box(worker, transfer, move, &inside);
        atomic_fetch_add(&engine->bytes_shared, done < count ? 0 : count);
        atomic_fetch_add(&engine->bytes_read, count);
        atomic_fetch_add(&engine->bytes_written, count);
        atomic_fetch_add(&engine->bytes_done, count);
    }
    return status;
}

reshard_status rs_worker_run_block(rs_worker *worker, const rs_transfer *transfer, int64_t block)
{
    block_box box;
    reshard_status status;
    rs_transfer_block(transfer, block, box.offset, box.size);
    rs_passing_begin(&worker->passing, worker->engine->passing, transfer, block);
    if (transfer->direct) {
        status = copy_directly(worker, transfer, &box);
    } else {
        size_t bytes = (size_t)transfer->source->element_bytes;
        for (int32_t d = 0; d < transfer->source->carried_ndim; d++)
            bytes *= (size_t)box.size[d];
        bytes += ALIGNMENT * (size_t)(transfer->source->piece_count + 1);
        worker->source = worker->buffer;
        worker->target = worker->buffer + bytes / ALIGNMENT * ALIGNMENT; /* rs_engine_prepare */
        status = read_sources(worker, transfer, &box);
        if (status == RESHARD_OK)
            status = write_targets(worker, transfer, &box);
    }
    if (status == RESHARD_OK)
        status = rs_passing_end(&worker->passing, transfer - worker->engine->transfers);
    return rs_fail_within(status, "tensor \"%.*s\"", rs_slice_shown(transfer->source->name),
                          transfer->source->name.bytes);
}
