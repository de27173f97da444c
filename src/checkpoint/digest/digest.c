/* SPDX-License-Identifier: Apache-2.0 */
/*
 * digest.c - the digests of a checkpoint's tensors, by several threads.
 *
 * Threads take slabs in turn from one cursor, read and digest them, and add the sums: to the
 * tensor's for its pieces, to its own for each copy. A copy is equal to the piece that has its box
 * if their sums are; only where they are not, or where no piece has just that box, bytes are
 * compared. The calling thread works too, and is the one that reports progress and asks whether to
 * stop.
 *
 * Ranks each take the slabs of a range of about the same bytes, and merge each other's sums.
 */
#include "base/digest.h"
#include "base/context.h"
#include "base/text.h"
#include "base/thread.h"
#include "checkpoint/digest/slabs.h"
#include "checkpoint/store/ranks.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SLAB_BYTES ((size_t)1 << 19) /* what a core has for itself between memory and digest */
#define THREADS_MAX 256
#define ERROR_BYTES 1024
#define SUMS_GATHERED 4096

typedef struct digest_work {
    const reshard_checkpoint *checkpoint;
    reshard_context *context;
    rs_fingerprint_code *code;
    bool check_copies;
    reshard_group *group; /* NULL: alone */
    int32_t rank, rank_count;
    rs_mutex mutex;              /* guards what follows */
    int64_t tensor, piece, slab; /* the next one */
    uint64_t bytes_seen;         /* of slabs before that, whosever they are */
    uint64_t bytes_done, bytes_total;
    bool stop;
    reshard_status status;      /* the first failure, */
    char error[ERROR_BYTES];    /* and its words, which belong to the thread that failed */
    rs_fingerprint *sums;       /* of each tensor */
    rs_fingerprint *piece_sums; /* of the pieces and copies of tensors that have copies */
    int64_t *first_sums;        /* where those of each tensor begin */
    int64_t piece_sum_count;
} digest_work;

typedef struct digest_worker {
    digest_work *work;
    rs_thread thread;
    bool started;
    char *memory, *scratch;
} digest_worker;

/* One slab to do. */
typedef struct digest_unit {
    int64_t tensor, piece;
    rs_slabs slabs;
    rs_slab slab;
} digest_unit;

/* ---- handing out ----------------------------------------------------------------------------- */

static const rs_stored_piece *piece_at(const rs_stored_tensor *tensor, int64_t piece)
{
    return piece < tensor->piece_count ? &tensor->pieces[piece]
                                       : &tensor->copies[piece - tensor->piece_count];
}

static bool has_sums(const digest_work *work, const rs_stored_tensor *tensor)
{
    return work->check_copies && tensor->copy_count != 0;
}

/* A slab is its rank's in whose share its first byte lies. */
static bool is_mine(const digest_work *work, uint64_t first_byte)
{
    return first_byte / (work->bytes_total / (uint64_t)work->rank_count + 1) ==
           (uint64_t)work->rank;
}

/* The next slab of this rank; false when there is none. Called with the mutex held. */
static bool take_unit(digest_work *work, digest_unit *unit)
{
    const reshard_checkpoint *checkpoint = work->checkpoint;
    while (!work->stop && work->tensor < checkpoint->tensor_count) {
        const rs_stored_tensor *tensor = &checkpoint->tensors[work->tensor];
        int64_t count = tensor->piece_count + (has_sums(work, tensor) ? tensor->copy_count : 0);
        if (work->piece == count) {
            work->tensor++;
            work->piece = 0;
            continue;
        }
        rs_slabs_init(&unit->slabs, tensor, piece_at(tensor, work->piece), SLAB_BYTES);
        if (work->slab == unit->slabs.count) {
            work->piece++;
            work->slab = 0;
            continue;
        }
        unit->tensor = work->tensor;
        unit->piece = work->piece;
        rs_slabs_at(&unit->slabs, work->slab++, &unit->slab);
        uint64_t first_byte = work->bytes_seen;
        work->bytes_seen += unit->slab.bytes;
        if (is_mine(work, first_byte))
            return true;
    }
    return false;
}

/* Called with the mutex held. */
static void keep_unit(digest_work *work, const digest_unit *unit, const rs_fingerprint *sum)
{
    const rs_stored_tensor *tensor = unit->slabs.tensor;
    if (unit->piece < tensor->piece_count)
        rs_fingerprint_merge(&work->sums[unit->tensor], sum);
    if (has_sums(work, tensor))
        rs_fingerprint_merge(&work->piece_sums[work->first_sums[unit->tensor] + unit->piece], sum);
    work->bytes_done += unit->slab.bytes;
}

static void keep_failure(digest_work *work, reshard_status status)
{
    if (work->status == RESHARD_OK) {
        rs_text text;
        rs_text_init(&text, work->error, sizeof work->error);
        rs_text_add(&text, "%s", reshard_error_text());
        work->status = status;
    }
    work->stop = true;
}

/* ---- working --------------------------------------------------------------------------------- */

static reshard_status digest_slab(const digest_worker *worker, const digest_unit *unit,
                                  rs_fingerprint *out_sum)
{
    rs_fingerprint_writer writer;
    const rs_stored_tensor *tensor = unit->slabs.tensor;
    reshard_status status = rs_slab_read(worker->work->checkpoint, &unit->slabs, &unit->slab,
                                         worker->memory, worker->scratch, SLAB_BYTES);
    if (status != RESHARD_OK)
        return rs_fail_within(status, "tensor \"%.*s\"", rs_slice_shown(tensor->name),
                              tensor->name.bytes);
    rs_fingerprint_begin(&writer, worker->work->code);
    rs_box_digest(tensor, unit->slab.offset, unit->slab.size, worker->memory, NULL, &writer);
    *out_sum = writer.sum;
    return RESHARD_OK;
}

static void work_slabs(digest_worker *worker, bool reports)
{
    digest_work *work = worker->work;
    digest_unit unit;
    rs_mutex_lock(&work->mutex);
    while (take_unit(work, &unit)) {
        rs_fingerprint sum = {.bytes = 0};
        rs_mutex_unlock(&work->mutex);
        reshard_status status = digest_slab(worker, &unit, &sum);
        if (status == RESHARD_OK && reports && rs_context_cancelled(work->context))
            status = rs_fail(RESHARD_ERR_CANCELLED, "cancelled");
        rs_mutex_lock(&work->mutex);
        if (status == RESHARD_OK)
            keep_unit(work, &unit, &sum);
        else
            keep_failure(work, status);
        if (reports) {
            /* The other ranks are about as far as this one. */
            uint64_t done = work->bytes_done * (uint64_t)work->rank_count;
            done = done < work->bytes_total ? done : work->bytes_total;
            rs_mutex_unlock(&work->mutex);
            rs_context_progress(work->context, "digest", done, work->bytes_total);
            rs_mutex_lock(&work->mutex);
        }
    }
    rs_mutex_unlock(&work->mutex);
}

static void run_worker(void *user)
{
    work_slabs(user, false);
}

/* What cannot be had of threads is done by the others; the calling thread is always there. */
static reshard_status run_workers(digest_work *work, digest_worker *workers, int32_t count)
{
    for (int32_t i = 1; i < count; i++)
        workers[i].started =
            rs_thread_start(&workers[i].thread, run_worker, &workers[i]) == RESHARD_OK;
    work_slabs(&workers[0], true);
    for (int32_t i = 1; i < count; i++) {
        if (workers[i].started)
            rs_thread_join(&workers[i].thread);
    }
    return work->status == RESHARD_OK ? RESHARD_OK : rs_fail(work->status, "%s", work->error);
}

static reshard_status work_in_threads(digest_work *work, int32_t thread_count)
{
    reshard_context *context = work->context;
    size_t memory_bytes = (size_t)thread_count * 2 * SLAB_BYTES;
    digest_worker *workers = rs_allocate_array(context, (size_t)thread_count, sizeof *workers);
    char *memory = workers != NULL ? rs_allocate(context, memory_bytes) : NULL;
    reshard_status status = RESHARD_OK;
    if (memory == NULL)
        status = rs_allocation_status();
    for (int32_t i = 0; memory != NULL && i < thread_count; i++)
        workers[i] = (digest_worker){.work = work,
                                     .memory = memory + (size_t)i * 2 * SLAB_BYTES,
                                     .scratch = memory + ((size_t)i * 2 + 1) * SLAB_BYTES};
    if (status == RESHARD_OK)
        status = rs_mutex_init(&work->mutex);
    if (status == RESHARD_OK) {
        status = run_workers(work, workers, thread_count);
        rs_mutex_release(&work->mutex);
    }
    rs_release(context, memory, memory_bytes);
    rs_release(context, workers, (size_t)thread_count * sizeof *workers);
    return status;
}

/* ---- copies ---------------------------------------------------------------------------------- */

static reshard_status fail_copy(const reshard_checkpoint *checkpoint, const rs_slabs *slabs,
                                const rs_slab *slab, int64_t element)
{
    const rs_stored_tensor *tensor = slabs->tensor;
    int64_t index[RESHARD_NDIM_MAX];
    char words[160];
    rs_text text;
    const char *holder = "another file";
    for (int32_t d = tensor->carried_ndim; d-- > 0;) {
        index[d] = slab->offset[d] + element % slab->size[d];
        element /= slab->size[d];
    }
    for (int64_t i = 0; i < tensor->piece_count; i++) {
        const rs_stored_piece *piece = &tensor->pieces[i];
        bool holds = true;
        for (int32_t d = 0; d < tensor->carried_ndim; d++) {
            int64_t first = piece->offset != NULL ? piece->offset[d] : 0;
            holds = holds && index[d] >= first && index[d] < first + piece->size[d];
        }
        if (holds)
            holder = checkpoint->files[piece->file].name;
    }
    rs_text_init(&text, words, sizeof words);
    for (int32_t d = 0; d < tensor->carried_ndim; d++)
        rs_text_add(&text, d == 0 ? "%" PRId64 : ", %" PRId64, index[d]);
    return rs_fail(
        RESHARD_ERR_CORRUPT, "tensor \"%.*s\": %s and %s hold copies that differ, first at %s [%s]",
        rs_slice_shown(tensor->name), tensor->name.bytes, holder,
        checkpoint->files[slabs->piece->file].name, tensor->opaque ? "byte" : "element", words);
}

/* Compares a copy with what the pieces hold, byte by byte. */
static reshard_status compare_copy(const digest_work *work, const rs_stored_tensor *tensor,
                                   const rs_stored_piece *copy, char *memory)
{
    char *other = memory + SLAB_BYTES, *scratch = memory + 2 * SLAB_BYTES;
    rs_slabs slabs;
    rs_slabs_init(&slabs, tensor, copy, SLAB_BYTES);
    for (int64_t i = 0; i < slabs.count; i++) {
        rs_slab slab;
        rs_slabs_at(&slabs, i, &slab);
        reshard_status status =
            rs_slab_read(work->checkpoint, &slabs, &slab, memory, scratch, SLAB_BYTES);
        if (status == RESHARD_OK)
            status = rs_store_read_box(work->checkpoint, tensor, slab.offset, slab.size, other,
                                       scratch, SLAB_BYTES);
        if (status != RESHARD_OK)
            return status;
        if (memcmp(memory, other, slab.bytes) == 0)
            continue;
        size_t first = 0;
        while (memory[first] == other[first])
            first++;
        return fail_copy(work->checkpoint, &slabs, &slab, (int64_t)first / tensor->element_bytes);
    }
    return RESHARD_OK;
}

/* A piece or copy, with what it is sorted by: its box. */
typedef struct boxed_sum {
    const rs_stored_tensor *tensor;
    int64_t piece;
    const rs_fingerprint *sum;
} boxed_sum;

/* Less than, equal to or greater than 0. */
static int order_boxes(const boxed_sum *a, const boxed_sum *b)
{
    const rs_stored_piece *p = piece_at(a->tensor, a->piece), *q = piece_at(b->tensor, b->piece);
    for (int32_t d = 0; d < a->tensor->carried_ndim; d++) {
        int64_t first = p->offset != NULL ? p->offset[d] : 0;
        int64_t second = q->offset != NULL ? q->offset[d] : 0;
        if (first != second)
            return first < second ? -1 : 1;
        if (p->size[d] != q->size[d])
            return p->size[d] < q->size[d] ? -1 : 1;
    }
    return 0;
}

static int compare_boxes(const void *a, const void *b)
{
    const boxed_sum *x = a, *y = b;
    int order = order_boxes(x, y);
    return order != 0 ? order : (x->piece > y->piece) - (x->piece < y->piece); /* copies last */
}

static reshard_status check_copies(const digest_work *work, int64_t index, boxed_sum *sorted,
                                   char *memory)
{
    const rs_stored_tensor *tensor = &work->checkpoint->tensors[index];
    int64_t count = tensor->piece_count + tensor->copy_count;
    for (int64_t i = 0; i < count; i++)
        sorted[i] = (boxed_sum){tensor, i, &work->piece_sums[work->first_sums[index] + i]};
    qsort(sorted, (size_t)count, sizeof *sorted, compare_boxes);
    for (int64_t i = 0, piece = -1; i < count; i++) {
        if (sorted[i].piece < tensor->piece_count) {
            piece = i;
            continue;
        }
        if (piece >= 0 && order_boxes(&sorted[piece], &sorted[i]) == 0 &&
            memcmp(sorted[piece].sum, sorted[i].sum, sizeof *sorted[i].sum) == 0)
            continue;
        reshard_status status =
            compare_copy(work, tensor, piece_at(tensor, sorted[i].piece), memory);
        if (status != RESHARD_OK)
            return status;
    }
    return RESHARD_OK;
}

static reshard_status check_all_copies(const digest_work *work)
{
    size_t sorted_bytes = (size_t)work->piece_sum_count * sizeof(boxed_sum);
    size_t memory_bytes = 3 * SLAB_BYTES;
    reshard_status status = RESHARD_OK;
    boxed_sum *sorted = rs_allocate(work->context, sorted_bytes);
    char *memory = sorted != NULL ? rs_allocate(work->context, memory_bytes) : NULL;
    if (memory == NULL)
        status = rs_allocation_status();
    for (int64_t i = 0; status == RESHARD_OK && i < work->checkpoint->tensor_count; i++) {
        if (has_sums(work, &work->checkpoint->tensors[i]))
            status = check_copies(work, i, sorted, memory);
    }
    rs_release(work->context, memory, memory_bytes);
    rs_release(work->context, sorted, sorted_bytes);
    return status;
}

/* ---- several ranks --------------------------------------------------------------------------- */

static reshard_status agree(const digest_work *work, reshard_status status)
{
    return work->group != NULL ? reshard_group_agree(work->group, status) : status;
}

/* Do all ranks see the same tensors at the same places? */
static reshard_status compare_ranks(const digest_work *work)
{
    const reshard_checkpoint *checkpoint = work->checkpoint;
    uint64_t words[2];
    rs_digest digest;
    if (work->group == NULL)
        return RESHARD_OK;
    rs_digest_init(&digest);
    rs_digest_u64(&digest, work->check_copies);
    for (int64_t i = 0; i < checkpoint->tensor_count; i++) {
        const rs_stored_tensor *tensor = &checkpoint->tensors[i];
        rs_digest_bytes(&digest, tensor->name.bytes, tensor->name.count);
        rs_digest_u64(&digest, (uint64_t)tensor->dtype);
        rs_digest_i64s(&digest, tensor->shape, tensor->ndim);
        rs_digest_u64(&digest, (uint64_t)tensor->copy_count);
        for (int64_t k = 0; k < tensor->piece_count; k++) {
            rs_digest_u64(&digest, (uint64_t)tensor->pieces[k].file);
            rs_digest_u64(&digest, tensor->pieces[k].at);
        }
    }
    rs_digest_finish(&digest, words);
    return rs_ranks_compare(work->context, work->group, "digest", words);
}

/* Adds the sums of all ranks; some at a time, as gathering is for small things. */
static reshard_status merge_ranks(const digest_work *work, rs_fingerprint *sums, int64_t count)
{
    reshard_status status = RESHARD_OK;
    for (int64_t first = 0, part; status == RESHARD_OK && first < count; first += part) {
        void *all = NULL;
        part = count - first < SUMS_GATHERED ? count - first : SUMS_GATHERED;
        size_t bytes = (size_t)part * sizeof *sums;
        status = rs_ranks_gather(work->context, work->group, sums + first, bytes, &all);
        if (status != RESHARD_OK)
            return status;
        memset(sums + first, 0, bytes);
        for (int64_t i = 0; i < part * work->rank_count; i++)
            rs_fingerprint_merge(&sums[first + i % part], (const rs_fingerprint *)all + i);
        rs_release(work->context, all, (size_t)work->rank_count * bytes);
    }
    return status;
}

/* Reads everything: this rank its share, and then knows the sums of all. */
static reshard_status read_all(digest_work *work, int32_t thread_count)
{
    reshard_status status = agree(work, work_in_threads(work, thread_count));
    if (status == RESHARD_OK && work->group != NULL)
        status = merge_ranks(work, work->sums, work->checkpoint->tensor_count);
    if (status == RESHARD_OK && work->group != NULL)
        status = merge_ranks(work, work->piece_sums, work->piece_sum_count);
    /* Where copies seem to differ they are read again, which one rank does for all. */
    if (status == RESHARD_OK && work->check_copies)
        status = agree(work, work->rank == 0 ? check_all_copies(work) : RESHARD_OK);
    return status;
}

/* ---- results --------------------------------------------------------------------------------- */

/* Digests and what frees them, in one block. */
typedef struct digests_block {
    reshard_digests shown;
    reshard_context *context;
    size_t bytes;
    char texts[][RESHARD_DIGEST_TEXT];
} digests_block;

typedef struct entry_source {
    const reshard_checkpoint *checkpoint;
    const digests_block *block;
} entry_source;

static void tell_entry(void *user, int64_t index, rs_fingerprint_entry *out_entry)
{
    const entry_source *source = user;
    rs_slice name = source->checkpoint->tensors[index].name;
    *out_entry = (rs_fingerprint_entry){name.bytes, name.count, source->block->texts[index]};
}

static reshard_status finish(const digest_work *work, digests_block *block)
{
    const reshard_checkpoint *checkpoint = work->checkpoint;
    for (int64_t i = 0; i < checkpoint->tensor_count; i++) {
        const rs_stored_tensor *tensor = &checkpoint->tensors[i];
        reshard_status status = rs_fingerprint_final(work->code, &work->sums[i], tensor->dtype,
                                                     tensor->ndim, tensor->shape, block->texts[i]);
        if (status != RESHARD_OK)
            return rs_fail_within(status, "tensor \"%.*s\"", rs_slice_shown(tensor->name),
                                  tensor->name.bytes);
    }
    entry_source source = {checkpoint, block};
    return rs_fingerprint_checkpoint(work->code, checkpoint->tensor_count, tell_entry, &source,
                                     block->shown.checkpoint);
}

static reshard_status create_block(const reshard_checkpoint *checkpoint, digests_block **out_block)
{
    size_t bytes = sizeof(digests_block) + (size_t)checkpoint->tensor_count * RESHARD_DIGEST_TEXT;
    digests_block *block = rs_allocate_zeroed(checkpoint->context, bytes);
    if (block == NULL)
        return rs_allocation_status();
    block->context = checkpoint->context;
    block->bytes = bytes;
    block->shown.count = checkpoint->tensor_count;
    block->shown.tensors = (const char(*)[RESHARD_DIGEST_TEXT])block->texts;
    *out_block = block;
    return RESHARD_OK;
}

void reshard_digests_destroy(reshard_digests *digests)
{
    digests_block *block = (digests_block *)digests;
    if (block != NULL)
        rs_release(block->context, block, block->bytes);
}

/* ---- all ------------------------------------------------------------------------------------- */

/* Counts what is to be read, and makes room for the sums. */
static reshard_status prepare(digest_work *work, rs_arena *arena)
{
    const reshard_checkpoint *checkpoint = work->checkpoint;
    size_t count = (size_t)checkpoint->tensor_count;
    work->bytes_total = checkpoint->bytes;
    work->sums = rs_arena_allocate_array(arena, count, sizeof *work->sums);
    work->first_sums = rs_arena_allocate_array(arena, count, sizeof *work->first_sums);
    if (work->sums == NULL || work->first_sums == NULL)
        return rs_allocation_status();
    memset(work->sums, 0, count * sizeof *work->sums);
    for (size_t i = 0; i < count; i++) {
        const rs_stored_tensor *tensor = &checkpoint->tensors[i];
        work->first_sums[i] = work->piece_sum_count;
        if (!has_sums(work, tensor))
            continue;
        work->piece_sum_count += tensor->piece_count + tensor->copy_count;
        for (int64_t k = 0; k < tensor->copy_count; k++) {
            uint64_t bytes = (uint64_t)tensor->element_bytes;
            for (int32_t d = 0; d < tensor->carried_ndim; d++)
                bytes *= (uint64_t)tensor->copies[k].size[d];
            work->bytes_total += bytes;
        }
    }
    size_t sums = (size_t)work->piece_sum_count;
    work->piece_sums = rs_arena_allocate_array(arena, sums, sizeof *work->piece_sums);
    if (work->piece_sums == NULL)
        return rs_allocation_status();
    memset(work->piece_sums, 0, sums * sizeof *work->piece_sums);
    return RESHARD_OK;
}

reshard_status reshard_checkpoint_digest(const reshard_checkpoint *checkpoint,
                                         const reshard_digest_options *options,
                                         reshard_digests **out_digests)
{
    reshard_digest_options chosen = {.size = sizeof chosen};
    digest_work work = {.checkpoint = checkpoint, .context = checkpoint->context};
    digests_block *block = NULL;
    rs_arena arena;
    if (options != NULL && options->size < sizeof chosen)
        return rs_fail(RESHARD_ERR_INVALID, "digest options of %zu bytes", options->size);
    if (options != NULL)
        chosen = *options;
    work.check_copies = chosen.check_copies != 0;
    work.group = chosen.group;
    work.rank = work.group != NULL ? reshard_group_rank(work.group) : 0;
    work.rank_count = work.group != NULL ? reshard_group_size(work.group) : 1;
    rs_arena_init(&arena, work.context);
    reshard_status status = RESHARD_OK;
    if (chosen.thread_count < 0 || chosen.thread_count > THREADS_MAX)
        status = rs_fail(RESHARD_ERR_RANGE, "%" PRId32 " threads; %d are the most",
                         chosen.thread_count, THREADS_MAX);
    if (status == RESHARD_OK)
        status = prepare(&work, &arena);
    if (status == RESHARD_OK)
        status = create_block(checkpoint, &block);
    if (status == RESHARD_OK)
        status = rs_fingerprint_code_create(work.context, &work.code);
    status = agree(&work, status);
    if (status == RESHARD_OK)
        status = compare_ranks(&work);
    if (status == RESHARD_OK)
        status = read_all(&work, chosen.thread_count > 0 ? chosen.thread_count : 1);
    if (status == RESHARD_OK)
        status = agree(&work, finish(&work, block));
    rs_fingerprint_code_destroy(work.code);
    rs_arena_release(&arena);
    if (status == RESHARD_OK)
        *out_digests = &block->shown;
    else if (block != NULL)
        reshard_digests_destroy(&block->shown);
    return status;
}
