/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hash.c - SHA-256 of each tensor, and of the lines that list them. A hash needs its bytes in
 * order, so a tensor is one item of work: one thread reads it tile by tile in row-major order, from
 * whatever pieces it is stored in. The largest tensors come first, so that no thread is left alone
 * with one at the end. Ranks take tensors in turn. The checksums of archives are checked before, in
 * a pass of their own, which is short beside the hashing: nobody should sign what is damaged.
 */
#include "base/context.h"
#include "base/digest.h"
#include "base/dtype.h"
#include "base/options.h"
#include "base/shape.h"
#include "base/sort.h"
#include "checkpoint/archive/sha256.h"
#include "checkpoint/check/tensor_sums.h"
#include "checkpoint/engine/engine.h"
#include "system/pool.h"
#include "text/text.h"

#include <string.h>

#define TILE_BYTES ((size_t)1 << 20)
#define SCRATCH_BYTES ((size_t)1 << 18) /* for boxes that are strided in a file */

typedef struct hash_order {
    uint64_t bytes;
    int64_t tensor;
} hash_order;

typedef struct hash_work {
    const reshard_checkpoint *checkpoint;
    rs_team team;
    int32_t threads;
    rs_arena arena;                           /* of the arrays below */
    hash_order *order;                        /* all tensors, largest first */
    unsigned char (*hashes)[RS_SHA256_BYTES]; /* one for each tensor */
    char **memory;                            /* one for each thread */
    rs_slice *lines; /* one for each tensor that is not aside, then sorted */
    int64_t line_count;
    size_t lines_bytes;
    atomic_uint_fast64_t bytes_done;
} hash_work;

/* ---- before reading -------------------------------------------------------------------------- */

static int compare_order(const void *a, const void *b)
{
    const hash_order *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

static reshard_status prepare(hash_work *work)
{
    size_t count = (size_t)work->checkpoint->tensor_count, threads = (size_t)work->threads;
    work->order = rs_arena_allocate_array(&work->arena, count, sizeof *work->order);
    work->hashes = rs_arena_allocate_array(&work->arena, count, sizeof *work->hashes);
    work->lines = rs_arena_allocate_array(&work->arena, count, sizeof *work->lines);
    work->memory = rs_arena_allocate_array(&work->arena, threads, sizeof *work->memory);
    if (work->order == NULL || work->hashes == NULL || work->lines == NULL || work->memory == NULL)
        return rs_allocation_status();
    for (size_t i = 0; i < count; i++)
        work->order[i] = (hash_order){work->checkpoint->tensors[i].bytes, (int64_t)i};
    rs_sort(work->order, count, sizeof *work->order, compare_order);
    return RESHARD_OK;
}

/* ---- reading --------------------------------------------------------------------------------- */

static reshard_status enter(void *user, int32_t thread)
{
    hash_work *work = user;
    work->memory[thread] = rs_allocate(work->team.context, TILE_BYTES + SCRATCH_BYTES);
    return work->memory[thread] != NULL ? RESHARD_OK : rs_allocation_status();
}

static void leave(void *user, int32_t thread)
{
    hash_work *work = user;
    rs_release(work->team.context, work->memory[thread]);
}

/* The position, in the order, of this rank's item. */
static int64_t position_of(const hash_work *work, int64_t item)
{
    return item * work->team.rank_count + work->team.rank;
}

static reshard_status hash_tensor(void *user, int32_t thread, int64_t item)
{
    hash_work *work = user;
    int64_t index = work->order[position_of(work, item)].tensor;
    const rs_stored_tensor *tensor = &work->checkpoint->tensors[index];
    char *memory = work->memory[thread];
    rs_tiles tiles = rs_tiles_cut(tensor->carried_ndim, tensor->carried_shape,
                                  (int64_t)TILE_BYTES / tensor->element_bytes);
    reshard_status status = RESHARD_OK;
    rs_sha256 hash;
    rs_sha256_init(&hash, NULL);
    for (int64_t i = 0; status == RESHARD_OK && i < tiles.count; i++) {
        int64_t offset[RESHARD_NDIM_MAX] = {0}, size[RESHARD_NDIM_MAX];
        rs_tiles_at(&tiles, i, offset, size);
        int64_t bytes = rs_volume(tensor->carried_ndim, size) * tensor->element_bytes;
        status = rs_store_read_box(work->checkpoint, tensor, offset, size, memory,
                                   memory + TILE_BYTES, SCRATCH_BYTES);
        if (status == RESHARD_OK)
            rs_sha256_add(&hash, memory, (size_t)bytes);
        if (status == RESHARD_OK && rs_context_cancelled(work->team.context))
            status = rs_fail(RESHARD_ERR_CANCELLED, "cancelled");
        atomic_fetch_add(&work->bytes_done, (uint64_t)bytes);
    }
    rs_sha256_finish(&hash, work->hashes[index]);
    return status;
}

static uint64_t count_done(void *user)
{
    hash_work *work = user;
    return atomic_load(&work->bytes_done) * (uint64_t)work->team.rank_count;
}

/* Takes each hash from the rank that computed it. Collective. */
static reshard_status merge(hash_work *work)
{
    size_t count = (size_t)work->checkpoint->tensor_count, ranks = (size_t)work->team.rank_count;
    void *all = NULL;
    if (work->team.group == NULL)
        return RESHARD_OK;
    reshard_status status =
        rs_team_gather(&work->team, work->hashes, count * sizeof *work->hashes, &all);
    if (status != RESHARD_OK)
        return status;
    for (size_t i = 0; i < count; i++) {
        size_t index = (size_t)work->order[i].tensor;
        memcpy(work->hashes[index],
               (char *)all + (i % ranks * count + index) * sizeof *work->hashes,
               sizeof *work->hashes);
    }
    rs_release(work->team.context, all);
    return RESHARD_OK;
}

static reshard_status read_all(hash_work *work)
{
    int64_t ranks = work->team.rank_count, count = work->checkpoint->tensor_count;
    int64_t mine = (count + ranks - 1 - work->team.rank) / ranks;
    const rs_pool pool = {.context = work->team.context,
                          .user = work,
                          .thread_count = work->threads,
                          .end = mine,
                          .run = hash_tensor,
                          .enter = enter,
                          .leave = leave,
                          .what = rs_team_leads(&work->team) ? "hashing" : NULL,
                          .done = count_done,
                          .total = work->checkpoint->bytes};
    memset(work->hashes, 0, (size_t)count * sizeof *work->hashes);
    reshard_status status = rs_team_agree(&work->team, rs_pool_run(&pool));
    return status == RESHARD_OK ? merge(work) : status;
}

/* ---- lines ----------------------------------------------------------------------------------- */

static void write_line(const hash_work *work, int64_t index, rs_text *text)
{
    const rs_stored_tensor *tensor = &work->checkpoint->tensors[index];
    char hash[RS_SHA256_TEXT];
    rs_sha256_text(work->hashes[index], hash);
    rs_text_add_quoted(text, tensor->name.bytes, tensor->name.count);
    rs_text_add(text, " %s ", rs_dtype_safetensors_name(tensor->dtype));
    rs_text_add_shape(text, tensor->ndim, tensor->shape);
    rs_text_add(text, " %s\n", hash);
}

static reshard_status make_lines(hash_work *work)
{
    for (int64_t i = 0; i < work->checkpoint->tensor_count; i++) {
        rs_text text;
        if (work->checkpoint->tensors[i].is_aside)
            continue;
        rs_text_init(&text, NULL, 0);
        write_line(work, i, &text);
        size_t bytes = text.length;
        char *line = rs_arena_allocate(&work->arena, bytes + 1);
        if (line == NULL)
            return rs_allocation_status();
        rs_text_init(&text, line, bytes + 1);
        write_line(work, i, &text);
        work->lines[work->line_count++] = (rs_slice){line, bytes};
        work->lines_bytes += bytes;
    }
    rs_sort(work->lines, (size_t)work->line_count, sizeof *work->lines, rs_compare_slices);
    return RESHARD_OK;
}

/* ---- results --------------------------------------------------------------------------------- */

/* The hashes, the lines, and what is needed to free them, in one block of memory. */
typedef struct hashes_block {
    reshard_hashes shown;
    reshard_context *context;
    size_t bytes;
    char texts[][RESHARD_HASH_TEXT];
} hashes_block;

void reshard_hashes_destroy(reshard_hashes *hashes)
{
    hashes_block *block = (hashes_block *)hashes;
    if (block != NULL)
        rs_release(block->context, block);
}

static reshard_status finish(hash_work *work, reshard_hashes **out_hashes)
{
    size_t count = (size_t)work->checkpoint->tensor_count;
    unsigned char all[RS_SHA256_BYTES];
    rs_sha256 hash;
    reshard_status status = make_lines(work);
    if (status != RESHARD_OK)
        return status;
    size_t bytes = sizeof(hashes_block) + count * RESHARD_HASH_TEXT + work->lines_bytes + 1;
    hashes_block *block = rs_allocate_zeroed(work->checkpoint->context, bytes);
    if (block == NULL)
        return rs_allocation_status();
    block->context = work->checkpoint->context;
    block->bytes = bytes;
    char *lines = (char *)block->texts + count * RESHARD_HASH_TEXT, *end = lines;
    block->shown = (reshard_hashes){.count = (int64_t)count,
                                    .tensors = (const char(*)[RESHARD_HASH_TEXT])block->texts,
                                    .lines = lines,
                                    .lines_bytes = work->lines_bytes};
    for (size_t i = 0; i < count; i++)
        rs_sha256_text(work->hashes[i], block->texts[i]);
    for (int64_t i = 0; i < work->line_count; i++) {
        memcpy(end, work->lines[i].bytes, work->lines[i].count);
        end += work->lines[i].count;
    }
    rs_sha256_init(&hash, NULL);
    rs_sha256_add(&hash, lines, work->lines_bytes);
    rs_sha256_finish(&hash, all);
    rs_sha256_text(all, block->shown.checkpoint);
    *out_hashes = &block->shown;
    return RESHARD_OK;
}

reshard_status reshard_checkpoint_hash(const reshard_checkpoint *checkpoint,
                                       const reshard_digest_options *options,
                                       reshard_hashes **out_hashes)
{
    reshard_digest_options chosen;
    reshard_hashes *hashes = NULL;
    reshard_status status = rs_options_read("digest options", options, &chosen, sizeof chosen);
    if (status != RESHARD_OK)
        return status;
    hash_work work = {.checkpoint = checkpoint,
                      .team = rs_team_of(checkpoint->context, chosen.group)};
    rs_arena_init(&work.arena, checkpoint->context);
    status = rs_team_choose_threads(&work.team, chosen.threads, &work.threads);
    if (status == RESHARD_OK)
        status = rs_store_check_all_readable(checkpoint);
    if (status == RESHARD_OK)
        status = prepare(&work);
    status = rs_digest_compare_ranks(checkpoint, &work.team, chosen.check_copies != 0, status);
    if (status == RESHARD_OK && chosen.check_copies)
        status =
            rs_engine_check_copies(checkpoint->viewed != NULL ? checkpoint->viewed : checkpoint,
                                   &work.team, "comparing", work.threads, RS_ENGINE_BYTES_MIN);
    if (status == RESHARD_OK)
        status = rs_crcs_check_all(checkpoint, &work.team);
    if (status == RESHARD_ERR_CHECK) /* here a failed check means that the checkpoint is damaged */
        status = rs_fail_as(RESHARD_ERR_CORRUPT);
    if (status == RESHARD_OK)
        status = read_all(&work);
    if (status == RESHARD_OK)
        status = rs_team_agree(&work.team, finish(&work, &hashes));
    rs_arena_release(&work.arena);
    if (status == RESHARD_OK)
        *out_hashes = hashes;
    else
        reshard_hashes_destroy(hashes);
    return status;
}
