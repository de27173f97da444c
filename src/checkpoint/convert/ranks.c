/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ranks.c - a conversion that several ranks share.
 *
 * Blocks are dealt out in rounds: a round is as many blocks as the journal may fall behind, and
 * each rank has a range of it, of about the same bytes. After a round all ranks bring their files
 * to the disk and tell each other how far they came; the leader writes that down.
 *
 * 1. Between rounds all ranks have the same idea of what is done, so that all deal out alike
 *    without talking.
 * 2. A rank that fails goes on to the end of the round, where all hear of it: nobody waits for a
 *    rank that has gone.
 */
#include "checkpoint/store/ranks.h"
#include "base/checked.h"
#include "base/context.h"
#include "checkpoint/convert/convert.h"

#include <reshard/collective.h>

#include <string.h>
#include <unistd.h>

enum { BLOCK_NOTED = 2, BLOCK_RECORDED = 3 };

void rs_conversion_join(rs_conversion *conversion)
{
    reshard_group *group = conversion->options->group;
    conversion->rank_count = 1;
    conversion->threads = conversion->options->threads;
    if (group == NULL || reshard_group_size(group) == 1)
        return;
    conversion->group = group;
    conversion->rank = reshard_group_rank(group);
    conversion->rank_count = reshard_group_size(group);
    /* Ranks of one machine share its processors. */
    if (conversion->threads == 0)
        conversion->threads =
            (int32_t)rs_max(1, sysconf(_SC_NPROCESSORS_ONLN) / conversion->rank_count);
}

bool rs_conversion_leads(const rs_conversion *conversion)
{
    return conversion->rank == 0;
}

reshard_status rs_conversion_agree(const rs_conversion *conversion, reshard_status status)
{
    return conversion->group != NULL ? reshard_group_agree(conversion->group, status) : status;
}

static reshard_status gather(const rs_conversion *conversion, const void *mine, size_t bytes,
                             void **out_all)
{
    return rs_ranks_gather(conversion->context, conversion->group, mine, bytes, out_all);
}

reshard_status rs_conversion_tell(const rs_conversion *conversion, uint64_t *number)
{
    void *all = NULL;
    if (conversion->group == NULL)
        return RESHARD_OK;
    reshard_status status = gather(conversion, number, sizeof *number, &all);
    if (status != RESHARD_OK)
        return status;
    memcpy(number, all, sizeof *number);
    rs_release(conversion->context, all, (size_t)conversion->rank_count * sizeof *number);
    return RESHARD_OK;
}

reshard_status rs_conversion_compare(const rs_conversion *conversion, const uint64_t digest[2])
{
    if (conversion->group == NULL)
        return RESHARD_OK;
    return rs_ranks_compare(conversion->context, conversion->group, "convert", digest);
}

reshard_status rs_conversion_prepare(const rs_conversion *conversion, rs_engine *engine)
{
    reshard_status status = rs_engine_prepare(engine);
    if (conversion->group == NULL)
        return status;
    status = rs_conversion_agree(conversion, status);
    uint64_t thread_bytes = engine->thread_bytes;
    if (status == RESHARD_OK)
        status = rs_conversion_tell(conversion, &thread_bytes);
    if (status != RESHARD_OK)
        return status;
    engine->thread_bytes = (size_t)thread_bytes;
    return rs_conversion_agree(conversion, rs_engine_prepare(engine));
}

reshard_status rs_conversion_share_done(const rs_conversion *conversion)
{
    const rs_engine *engine = &conversion->engine;
    size_t count = (size_t)engine->block_count;
    if (conversion->group == NULL || count == 0)
        return RESHARD_OK;
    unsigned char *known = rs_allocate_zeroed(conversion->context, count);
    unsigned char *told = rs_allocate_zeroed(conversion->context, count);
    reshard_status status = known != NULL && told != NULL ? RESHARD_OK : rs_allocation_status();
    for (size_t i = 0; status == RESHARD_OK && i < count; i++)
        known[i] = atomic_load(&engine->done[i]) != 0;
    status = rs_conversion_agree(conversion, status);
    if (status == RESHARD_OK)
        status = reshard_broadcast(conversion->context, conversion->group, RESHARD_U8, 0,
                                   engine->block_count, known, told);
    for (size_t i = 0; status == RESHARD_OK && i < count; i++) {
        if (told[i])
            atomic_store(&engine->done[i], BLOCK_RECORDED);
    }
    if (known != NULL)
        rs_release(conversion->context, known, count);
    if (told != NULL)
        rs_release(conversion->context, told, count);
    return status;
}

/* ---- dealing out ----------------------------------------------------------------------------- */

/* Goes through the blocks of an engine in order. */
typedef struct block_walk {
    const rs_engine *engine;
    int64_t block, transfer;
} block_walk;

/* Bytes that the block has to do yet; then goes to the next one. */
static uint64_t walk(block_walk *walk)
{
    const rs_engine *engine = walk->engine;
    int64_t block = walk->block++;
    while (block >= engine->transfers[walk->transfer].block_first +
                        engine->transfers[walk->transfer].block_count)
        walk->transfer++;
    const rs_transfer *transfer = &engine->transfers[walk->transfer];
    if (engine->done != NULL && atomic_load(&engine->done[block]) != 0)
        return 0;
    return rs_transfer_block_bytes(transfer, block - transfer->block_first);
}

/* From where `from` is on, blocks of about bytes_max: this rank's range of them into the engine,
 * and `from` to their end. */
static void deal(const rs_conversion *conversion, uint64_t bytes_max, block_walk *from,
                 rs_engine *engine)
{
    block_walk at = *from;
    uint64_t total = 0, before = 0;
    uint64_t ranks = (uint64_t)conversion->rank_count, rank = (uint64_t)conversion->rank;
    while (from->block < engine->block_count && total < bytes_max)
        total += walk(from);
    /* A block is its rank's in whose share its first byte lies. */
    uint64_t share = total / ranks + 1;
    engine->block_begin = engine->block_end = from->block;
    bool begun = false;
    while (at.block < from->block) {
        uint64_t owner = before / share;
        if (owner == rank && !begun) {
            engine->block_begin = at.block;
            begun = true;
        }
        if (owner > rank) {
            engine->block_end = at.block;
            break;
        }
        before += walk(&at);
    }
    if (!begun)
        engine->block_begin = engine->block_end;
}

static void show_together(const rs_conversion *conversion, rs_engine *engine)
{
    engine->shown_from = atomic_load(&engine->bytes_done);
    engine->shown_factor = (uint64_t)conversion->rank_count;
}

reshard_status rs_conversion_run_shared(const rs_conversion *conversion, rs_engine *engine)
{
    block_walk from = {.engine = engine};
    if (conversion->group == NULL)
        return rs_engine_run(engine);
    deal(conversion, UINT64_MAX, &from, engine);
    show_together(conversion, engine);
    return rs_conversion_agree(conversion, rs_engine_run(engine));
}

/* ---- rounds ---------------------------------------------------------------------------------- */

/* What a rank did of a round: its blocks from begin to before end, and they are on disk. */
typedef struct account {
    int64_t begin, end;
    uint64_t bytes;
} account;

static reshard_status record(rs_conversion *conversion, const account *accounts)
{
    rs_engine *engine = &conversion->engine;
    uint64_t bytes = engine->shown_from;
    for (int32_t i = 0; i < conversion->rank_count; i++) {
        bytes += accounts[i].bytes;
        for (int64_t j = accounts[i].begin; j < accounts[i].end; j++) {
            if (atomic_load(&engine->done[j]) != BLOCK_RECORDED)
                atomic_store(&engine->done[j],
                             rs_conversion_leads(conversion) ? BLOCK_NOTED : BLOCK_RECORDED);
        }
    }
    atomic_store(&engine->bytes_done, bytes);
    if (!rs_conversion_leads(conversion))
        return RESHARD_OK;
    return rs_partial_record(&conversion->partial, engine->block_count, engine->done,
                             !conversion->options->no_sync);
}

static reshard_status run_round(rs_conversion *conversion)
{
    rs_engine *engine = &conversion->engine;
    void *all = NULL;
    show_together(conversion, engine);
    reshard_status status = rs_engine_run(engine);
    account mine = {.begin = engine->block_begin,
                    .end = engine->block_begin,
                    .bytes = atomic_load(&engine->bytes_done) - engine->shown_from};
    reshard_status synced = RESHARD_OK;
    if (status == RESHARD_OK || status == RESHARD_ERR_CANCELLED)
        synced = rs_conversion_sync(conversion);
    if (synced != RESHARD_OK)
        status = synced;
    if (status == RESHARD_OK || status == RESHARD_ERR_CANCELLED) {
        while (mine.end < engine->block_end && atomic_load(&engine->done[mine.end]) != 0)
            mine.end++;
    }
    reshard_status agreed = rs_conversion_agree(conversion, status);
    if (agreed != RESHARD_OK && agreed != RESHARD_ERR_CANCELLED)
        return agreed;
    status = gather(conversion, &mine, sizeof mine, &all);
    if (status != RESHARD_OK)
        return status;
    status = rs_conversion_agree(conversion, record(conversion, all));
    rs_release(conversion->context, all, (size_t)conversion->rank_count * sizeof mine);
    return status == RESHARD_OK && agreed != RESHARD_OK ? rs_fail(agreed, "cancelled") : status;
}

reshard_status rs_conversion_run(rs_conversion *conversion)
{
    rs_engine *engine = &conversion->engine;
    reshard_status status = RESHARD_OK;
    if (conversion->group == NULL) {
        status = rs_engine_run(engine);
        if (status != RESHARD_ERR_CANCELLED)
            return status;
        status = rs_conversion_write_journal(conversion);
        return status == RESHARD_OK ? rs_fail(RESHARD_ERR_CANCELLED, "cancelled") : status;
    }
    uint64_t bytes_max = rs_conversion_journal_bytes(conversion);
    bytes_max = bytes_max < UINT64_MAX / (uint64_t)conversion->rank_count
                    ? bytes_max * (uint64_t)conversion->rank_count
                    : UINT64_MAX;
    block_walk from = {.engine = engine};
    while (status == RESHARD_OK && from.block < engine->block_count) {
        deal(conversion, bytes_max, &from, engine);
        status = run_round(conversion);
    }
    return status;
}

reshard_status rs_conversion_merge(const rs_conversion *conversion, rs_passing *passing)
{
    enum { AT_ONCE = 4096 };
    reshard_status status = RESHARD_OK;
    if (conversion->group == NULL)
        return RESHARD_OK;
    for (int64_t first = 0; status == RESHARD_OK && first < passing->count; first += AT_ONCE) {
        size_t count = (size_t)rs_min(AT_ONCE, passing->count - first);
        size_t bytes = count * sizeof(rs_passing_sums);
        rs_passing_sums *mine = passing->sums + first;
        void *all = NULL;
        status = gather(conversion, mine, bytes, &all);
        if (status != RESHARD_OK)
            return status;
        memset(mine, 0, bytes);
        for (size_t i = 0; i < count * (size_t)conversion->rank_count; i++) {
            const rs_passing_sums *theirs = (const rs_passing_sums *)all + i;
            rs_fingerprint_merge(&mine[i % count].source, &theirs->source);
            rs_fingerprint_merge(&mine[i % count].target, &theirs->target);
        }
        rs_release(conversion->context, all, (size_t)conversion->rank_count * bytes);
    }
    return status;
}

reshard_status rs_conversion_sum(const rs_conversion *conversion, reshard_convert_report *report)
{
    uint64_t mine[3] = {report->bytes_read, report->bytes_written, report->bytes_shared};
    void *all = NULL;
    if (conversion->group == NULL)
        return RESHARD_OK;
    reshard_status status = gather(conversion, mine, sizeof mine, &all);
    if (status != RESHARD_OK)
        return status;
    report->bytes_read = report->bytes_written = report->bytes_shared = 0;
    for (int32_t i = 0; i < conversion->rank_count; i++) {
        const uint64_t *theirs = (const uint64_t *)all + 3 * (size_t)i;
        report->bytes_read += theirs[0];
        report->bytes_written += theirs[1];
        report->bytes_shared += theirs[2];
    }
    rs_release(conversion->context, all, (size_t)conversion->rank_count * sizeof mine);
    return RESHARD_OK;
}
