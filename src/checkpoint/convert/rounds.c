/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rounds.c - runs the blocks, and keeps the journal of those that are done. A single process writes
 * the journal between two blocks. Several ranks work in rounds.
 *
 * A round has as many blocks as the journal may lag behind, and each rank gets a range of them with
 * about the same number of bytes. After a round, all ranks make their files durable and tell each
 * other how far they got, and the leader records it.
 *
 * 1. Between rounds, all ranks agree on what is done, so they divide the next round in the same way
 *    without communicating.
 * 2. A rank that fails still takes part in the exchange at the end of the round, where all learn of
 *    it, so nobody waits for a rank that has left.
 */
#include "base/context.h"
#include "checkpoint/convert/conversion.h"

#include <reshard/collective.h>

#define JOURNAL_BYTES_DEFAULT ((uint64_t)1 << 30)

static uint64_t journal_bytes(const rs_conversion_run *run)
{
    return run->options.journal_bytes != 0 ? run->options.journal_bytes : JOURNAL_BYTES_DEFAULT;
}

reshard_status rs_run_sync(rs_conversion_run *run)
{
    reshard_status status = RESHARD_OK;
    for (int32_t i = 0; status == RESHARD_OK && i < run->conversion->target.file_count; i++) {
        rs_trace_event event;
        if (run->target_files[i] == NULL || run->options.no_sync)
            continue;
        rs_run_begin(run, RS_TRACE_SYNC, &event);
        status = rs_run_end(run, &event, rs_file_sync(run->target_files[i]));
    }
    return status;
}

static reshard_status record(rs_conversion_run *run)
{
    rs_trace_event event;
    rs_run_begin(run, RS_TRACE_SYNC, &event);
    return rs_run_end(run, &event,
                      rs_journal_record(&run->output.journal, &run->ledger, !run->options.no_sync));
}

reshard_status rs_run_end_blocks(rs_conversion_run *run)
{
    reshard_status status = rs_team_agree(run->team, rs_run_sync(run));
    if (status != RESHARD_OK)
        return status;
    if (rs_team_leads(run->team)) {
        rs_ledger_note(&run->ledger);
        status = record(run);
        if (status == RESHARD_OK)
            status = rs_journal_end_blocks(&run->output.journal, run->ledger.count,
                                           !run->options.no_sync);
    }
    return rs_team_agree(run->team, status);
}

/* ---- a single process ------------------------------------------------------------------------ */

/* Makes finished blocks durable, then records them. */
static reshard_status write_journal(rs_conversion_run *run)
{
    rs_ledger_note(&run->ledger);
    reshard_status status = rs_run_sync(run);
    return status == RESHARD_OK ? record(run) : status;
}

/* Called by the engine between blocks (rs_engine's `pause`). */
static reshard_status write_journal_if_due(void *user, uint64_t bytes_done)
{
    rs_conversion_run *run = user;
    if (bytes_done - run->bytes_recorded < journal_bytes(run))
        return RESHARD_OK;
    run->bytes_recorded = bytes_done;
    return write_journal(run);
}

static reshard_status run_alone(rs_conversion_run *run)
{
    run->engine.pause = write_journal_if_due;
    run->engine.user = run;
    run->engine.block_begin = 0;
    run->engine.block_end = run->blocks.count;
    reshard_status status = rs_engine_run(&run->engine);
    if (status != RESHARD_ERR_CANCELLED)
        return status;
    status = write_journal(run);
    return status == RESHARD_OK ? rs_fail(RESHARD_ERR_CANCELLED, "cancelled") : status;
}

/* ---- several ranks --------------------------------------------------------------------------- */

reshard_status rs_run_share_ledger(rs_conversion_run *run)
{
    reshard_context *context = run->context;
    size_t count = (size_t)run->ledger.count;
    if (run->team->group == NULL || count == 0)
        return RESHARD_OK;
    unsigned char *known = rs_allocate_zeroed(context, count);
    unsigned char *told = rs_allocate_zeroed(context, count);
    reshard_status status = known != NULL && told != NULL ? RESHARD_OK : rs_allocation_status();
    for (size_t i = 0; status == RESHARD_OK && i < count; i++)
        known[i] = rs_ledger_is_done(&run->ledger, (int64_t)i);
    status = rs_team_agree(run->team, status);
    if (status == RESHARD_OK)
        status = reshard_exchange_run(
            context, run->team->group,
            RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_BROADCAST, .dtype = RESHARD_U8,
                            .root = 0, .count = (int64_t)count, .source = known, .target = told),
            NULL);
    for (size_t i = 0; status == RESHARD_OK && i < count; i++) {
        if (told[i])
            rs_ledger_recall(&run->ledger, (int64_t)i, 1);
    }
    rs_release(context, known);
    rs_release(context, told);
    return status;
}

/* What a rank did in a round: `count` blocks from `first` on, all on disk. */
typedef struct account {
    int64_t first, count;
    uint64_t bytes;
} account;

/* Marks as done what all ranks did, and writes the journal. */
static reshard_status enter_accounts(rs_conversion_run *run, const account *accounts)
{
    uint64_t bytes = run->engine.shown_from;
    for (int32_t i = 0; i < run->team->rank_count; i++) {
        bytes += accounts[i].bytes;
        if (rs_team_leads(run->team))
            rs_ledger_merge(&run->ledger, accounts[i].first, accounts[i].count);
        else
            rs_ledger_recall(&run->ledger, accounts[i].first, accounts[i].count);
    }
    atomic_store(&run->engine.bytes_done, bytes);
    return rs_team_leads(run->team) ? record(run) : RESHARD_OK;
}

static reshard_status run_round(rs_conversion_run *run)
{
    rs_engine *engine = &run->engine;
    void *all = NULL;
    rs_engine_show_together(engine, run->team);
    reshard_status status = rs_engine_run(engine);
    account mine = {.first = engine->block_begin,
                    .bytes = atomic_load(&engine->bytes_done) - engine->shown_from};
    bool counts = status == RESHARD_OK || status == RESHARD_ERR_CANCELLED;
    reshard_status synced = counts ? rs_run_sync(run) : RESHARD_OK;
    if (synced != RESHARD_OK)
        status = synced;
    while (counts && synced == RESHARD_OK && mine.first + mine.count < engine->block_end &&
           rs_ledger_is_done(&run->ledger, mine.first + mine.count))
        mine.count++;
    rs_trace_event event;
    rs_run_begin(run, RS_TRACE_WAIT, &event);
    reshard_status agreed = rs_run_end(run, &event, rs_team_agree(run->team, status));
    if (agreed != RESHARD_OK && agreed != RESHARD_ERR_CANCELLED)
        return agreed;
    status = rs_team_gather(run->team, &mine, sizeof mine, &all);
    if (status != RESHARD_OK)
        return status;
    status = rs_team_agree(run->team, enter_accounts(run, all));
    rs_release(run->context, all);
    return status == RESHARD_OK && agreed != RESHARD_OK ? rs_fail(agreed, "cancelled") : status;
}

reshard_status rs_run_blocks(rs_conversion_run *run)
{
    if (run->team->group == NULL)
        return run_alone(run);
    uint64_t ranks = (uint64_t)run->team->rank_count, bytes_max = journal_bytes(run);
    bytes_max = bytes_max < UINT64_MAX / ranks ? bytes_max * ranks : UINT64_MAX;
    rs_block_walk walk = {.blocks = &run->blocks, .ledger = &run->ledger};
    reshard_status status = RESHARD_OK;
    while (status == RESHARD_OK && walk.block < run->blocks.count) {
        rs_block_walk_deal(&walk, run->team, bytes_max, &run->engine.block_begin,
                           &run->engine.block_end);
        status = run_round(run);
    }
    return status;
}
