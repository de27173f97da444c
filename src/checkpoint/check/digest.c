/* SPDX-License-Identifier: Apache-2.0 */
/*
 * digest.c - computes the digests of a checkpoint's tensors. Every tensor is a route without a
 * target or, if copies are to be checked, with its copies as the target: the engine reads each
 * piece once, sums it, and compares the copies and the checksums of archives with it. Ranks divide
 * the blocks and merge their sums.
 */
#include "base/digest.h"
#include "base/context.h"
#include "base/options.h"
#include "checkpoint/check/tensor_sums.h"
#include "checkpoint/engine/engine.h"

#include <string.h>

/* half of it fits a core's own cache between reading and summing */
#define THREAD_BYTES ((size_t)1 << 20)

typedef struct digest_work {
    const reshard_checkpoint *checkpoint;
    reshard_context *context;
    bool check_copies;
    rs_team team;
    int32_t threads;
    rs_arena arena;   /* of routes, blocks and files */
    rs_route *routes; /* of the tensors that are not empty */
    int64_t *tensors; /* the tensor of each route */
    int64_t route_count;
    rs_blocks blocks;
    rs_file **files;
    rs_sums *sums;
    rs_crcs *crcs;
} digest_work;

/* ---- before reading -------------------------------------------------------------------------- */

static reshard_status add_route(digest_work *work, int64_t index)
{
    const rs_stored_tensor *tensor = &work->checkpoint->tensors[index];
    rs_route *route = &work->routes[work->route_count];
    reshard_status status = RESHARD_OK;
    if (tensor->bytes == 0)
        return RESHARD_OK;
    if (work->check_copies && tensor->copy_count != 0)
        status = rs_route_copies(&work->arena, tensor, route);
    else
        *route = rs_route_nowhere(tensor);
    work->tensors[work->route_count++] = index;
    return status;
}

static reshard_status prepare(digest_work *work)
{
    const reshard_checkpoint *checkpoint = work->checkpoint;
    size_t count = (size_t)checkpoint->tensor_count;
    work->routes = rs_arena_allocate_array(&work->arena, count, sizeof *work->routes);
    work->tensors = rs_arena_allocate_array(&work->arena, count, sizeof *work->tensors);
    if (work->routes == NULL || work->tensors == NULL)
        return rs_allocation_status();
    reshard_status status = rs_engine_list_files(&work->arena, checkpoint, &work->files);
    for (int64_t i = 0; status == RESHARD_OK && i < checkpoint->tensor_count; i++)
        status = add_route(work, i);
    if (status == RESHARD_OK)
        status = rs_blocks_cut(&work->blocks, &work->arena, work->route_count, work->routes,
                               THREAD_BYTES, false);
    if (status == RESHARD_OK)
        status = rs_sums_create(work->context, work->route_count, &work->sums);
    if (status == RESHARD_OK)
        status = rs_crcs_create(checkpoint, work->route_count, work->routes, &work->crcs);
    if (status == RESHARD_OK)
        status = rs_engine_begin_pass(checkpoint);
    return status;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Copies belong to tensors under their own names, which a view does not have. */
static reshard_status check_viewed(const digest_work *work)
{
    const reshard_checkpoint *viewed = work->checkpoint->viewed;
    if (viewed == NULL || !work->check_copies)
        return RESHARD_OK;
    return rs_engine_check_copies(viewed, &work->team, "comparing", work->threads, THREAD_BYTES);
}

/* Reads this rank's share, and merges the sums of all ranks. */
static reshard_status read_all(digest_work *work)
{
    rs_engine engine = {.context = work->context,
                        .sink = work->check_copies ? &rs_sink_compare : &rs_sink_sum,
                        .what = rs_team_leads(&work->team) ? "digest" : NULL,
                        .blocks = &work->blocks,
                        .sources = work->files,
                        .targets = work->files,
                        .threads = work->threads,
                        .sums = work->sums,
                        .crcs = work->crcs};
    int64_t left = 0;
    reshard_status status = check_viewed(work);
    if (status == RESHARD_OK)
        status = rs_engine_run_shared(&engine, &work->team);
    if (status == RESHARD_OK)
        status = rs_crcs_finish(work->crcs, &work->team, true, &left);
    /* Here a failed check means that the checkpoint is damaged. */
    if (status == RESHARD_ERR_CHECK)
        return rs_fail_as(RESHARD_ERR_CORRUPT);
    return status == RESHARD_OK ? rs_sums_merge(work->sums, &work->team) : status;
}

/* ---- results --------------------------------------------------------------------------------- */

/* The digests, and what is needed to free them, in one block of memory. */
typedef struct digests_block {
    reshard_digests shown;
    reshard_context *context;
    size_t bytes;
    char texts[][RESHARD_DIGEST_TEXT];
} digests_block;

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
        rs_release(block->context, block);
}

/* Finishes the tensors that are aside, or those that are not, and digests them together. `sums` has
 * room for all. */
static reshard_status finish_some(const digest_work *work, bool are_aside, rs_tensor_sum *sums,
                                  digests_block *block, char out_all[RESHARD_DIGEST_TEXT])
{
    const rs_stored_tensor *tensors = work->checkpoint->tensors;
    int64_t known = 0, count = 0, route = 0;
    for (int64_t i = 0; i < work->checkpoint->tensor_count; i++) {
        bool is_read = route < work->route_count && work->tensors[route] == i;
        if (tensors[i].is_aside == are_aside) {
            sums[count] = (rs_tensor_sum){.tensor = &tensors[i]};
            if (is_read)
                sums[count].sum = work->sums->items[route].source;
            count++;
        }
        route += is_read;
    }
    reshard_status status = rs_tensor_sums_finish(work->sums->code, count, sums, &known, out_all);
    if (status == RESHARD_OK && known < count)
        status = rs_fail(RESHARD_ERR_CHECK, "tensors that were not read completely: %lld",
                         (long long)(count - known));
    for (int64_t i = 0; status == RESHARD_OK && i < count; i++)
        memcpy(block->texts[sums[i].tensor - tensors], sums[i].digest, RESHARD_DIGEST_TEXT);
    return status;
}

static reshard_status finish(const digest_work *work, digests_block *block)
{
    size_t bytes = (size_t)work->checkpoint->tensor_count * sizeof(rs_tensor_sum);
    char ignored[RESHARD_DIGEST_TEXT];
    rs_tensor_sum *sums = rs_allocate_zeroed(work->context, bytes);
    if (sums == NULL)
        return rs_allocation_status();
    reshard_status status = finish_some(work, true, sums, block, ignored);
    if (status == RESHARD_OK)
        status = finish_some(work, false, sums, block, block->shown.checkpoint);
    rs_release(work->context, sums);
    return status;
}

reshard_status reshard_checkpoint_digest(const reshard_checkpoint *checkpoint,
                                         const reshard_digest_options *options,
                                         reshard_digests **out_digests)
{
    reshard_digest_options chosen;
    digests_block *block = NULL;
    reshard_status status = rs_options_read("digest options", options, &chosen, sizeof chosen);
    if (status != RESHARD_OK)
        return status;
    digest_work work = {.checkpoint = checkpoint,
                        .context = checkpoint->context,
                        .check_copies = chosen.check_copies != 0,
                        .team = rs_team_of(checkpoint->context, chosen.group)};
    rs_arena_init(&work.arena, work.context);
    status = rs_team_choose_threads(&work.team, chosen.threads, &work.threads);
    if (status == RESHARD_OK)
        status = rs_store_check_all_readable(checkpoint);
    if (status == RESHARD_OK)
        status = prepare(&work);
    if (status == RESHARD_OK)
        status = create_block(checkpoint, &block);
    status = rs_digest_compare_ranks(checkpoint, &work.team, work.check_copies, status);
    if (status == RESHARD_OK)
        status = read_all(&work);
    if (status == RESHARD_OK)
        status = rs_team_agree(&work.team, finish(&work, block));
    rs_sums_destroy(work.sums);
    rs_crcs_destroy(work.crcs);
    rs_arena_release(&work.arena);
    if (status == RESHARD_OK)
        *out_digests = &block->shown;
    else
        reshard_digests_destroy((reshard_digests *)block);
    return status;
}
