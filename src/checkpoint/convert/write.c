/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write.c - a planned conversion is written: files with their headers, blocks, the journal
 * of those that are done, and at last the name. Sums of what passes are kept on the way.
 */
#include "checkpoint/convert/convert.h"

#include "base/context.h"

#include <string.h>

#define JOURNAL_BYTES_DEFAULT ((uint64_t)1 << 30)

/* ---- files ----------------------------------------------------------------------------------- */

/* Which files an earlier run has written blocks of. */
static void find_begun(const rs_conversion *conversion, bool *begun)
{
    const rs_engine *engine = &conversion->engine;
    for (int64_t i = 0; i < engine->transfer_count; i++) {
        const rs_transfer *transfer = &engine->transfers[i];
        bool any = false;
        for (int64_t j = 0; !any && j < transfer->block_count; j++)
            any = atomic_load(&engine->done[transfer->block_first + j]) != 0;
        for (int64_t j = 0; any && j < transfer->target->piece_count; j++)
            begun[transfer->target->pieces[j].file] = true;
    }
}

/* A file of the source, if the kernel is to copy some of it. */
static const rs_file *find_shared(const rs_conversion *conversion)
{
    const rs_engine *engine = &conversion->engine;
    for (int64_t i = 0; i < engine->transfer_count; i++) {
        if (engine->transfers[i].direct)
            return conversion->source_files[engine->transfers[i].source->pieces[0].file];
    }
    return NULL;
}

static reshard_status make_files(rs_conversion *conversion)
{
    const rs_target *target = &conversion->target;
    const rs_file *shared = find_shared(conversion);
    reshard_status status = RESHARD_OK;
    bool *begun = rs_arena_allocate_array(&conversion->arena, (size_t)target->file_count, 1);
    if (begun == NULL)
        return rs_allocation_status();
    memset(begun, 0, (size_t)target->file_count);
    find_begun(conversion, begun);
    for (int32_t i = 0; status == RESHARD_OK && i < target->file_count; i++) {
        const rs_target_file *file = &target->files[i];
        if (file->name == NULL || conversion->target_files[i] != NULL)
            continue;
        status = rs_partial_file(&conversion->partial, file->name, file->bytes, begun[i], shared,
                                 &conversion->target_files[i]);
        if (status == RESHARD_OK)
            status = rs_target_write_head(target, i, conversion->target_files[i]);
    }
    if (status == RESHARD_OK && !conversion->options->no_sync)
        status = rs_folder_sync(conversion->context, conversion->partial.path);
    return status;
}

/* Of another rank, which has made them. */
static reshard_status open_files(rs_conversion *conversion)
{
    reshard_context *context = conversion->context;
    reshard_status status = RESHARD_OK;
    for (int32_t i = 0; status == RESHARD_OK && i < conversion->target.file_count; i++) {
        rs_file **file = &conversion->target_files[i];
        if (conversion->target.files[i].name == NULL)
            continue;
        char *path =
            rs_path_join(context, conversion->partial.path, conversion->target.files[i].name);
        if (path == NULL)
            return rs_allocation_status();
        status = rs_file_open_write(context, path, file);
        if (status == RESHARD_OK && rs_file_has_links(*file)) {
            /* What the source shares is not written. */
            rs_file_close(*file);
            *file = NULL;
            status = rs_file_open(context, path, file);
        }
        rs_release(context, path, strlen(path) + 1);
    }
    return status;
}

/* ---- the journal ----------------------------------------------------------------------------- */

reshard_status rs_conversion_sync(rs_conversion *conversion)
{
    reshard_status status = RESHARD_OK;
    for (int32_t i = 0; status == RESHARD_OK && i < conversion->target.file_count; i++) {
        if (conversion->target_files[i] != NULL && !conversion->options->no_sync)
            status = rs_file_sync(conversion->target_files[i]);
    }
    return status;
}

reshard_status rs_conversion_write_journal(rs_conversion *conversion)
{
    rs_engine *engine = &conversion->engine;
    for (int64_t i = 0; i < engine->block_count; i++) {
        if (atomic_load(&engine->done[i]) == 1)
            atomic_store(&engine->done[i], 2);
    }
    reshard_status status = rs_conversion_sync(conversion);
    if (status == RESHARD_OK)
        status = rs_partial_record(&conversion->partial, engine->block_count, engine->done,
                                   !conversion->options->no_sync);
    return status;
}

uint64_t rs_conversion_journal_bytes(const rs_conversion *conversion)
{
    uint64_t each = conversion->options->journal_bytes;
    return each != 0 ? each : JOURNAL_BYTES_DEFAULT;
}

reshard_status rs_conversion_pause(void *user, uint64_t bytes_done)
{
    rs_conversion *conversion = user;
    if (bytes_done - conversion->bytes_unsynced_at < rs_conversion_journal_bytes(conversion))
        return RESHARD_OK;
    conversion->bytes_unsynced_at = bytes_done;
    return rs_conversion_write_journal(conversion);
}

/* The bytes of blocks that need not be done again. */
static uint64_t count_done(const rs_conversion *conversion)
{
    uint64_t bytes = 0;
    const rs_engine *engine = &conversion->engine;
    for (int64_t i = 0; i < engine->transfer_count; i++) {
        const rs_transfer *transfer = &engine->transfers[i];
        for (int64_t j = 0; j < transfer->block_count; j++) {
            if (atomic_load(&engine->done[transfer->block_first + j]) != 0)
                bytes += rs_transfer_block_bytes(transfer, j);
        }
    }
    return bytes;
}

static reshard_status recall_blocks(rs_conversion *conversion)
{
    rs_engine *engine = &conversion->engine;
    reshard_status status = RESHARD_OK;
    if (rs_conversion_leads(conversion))
        status = rs_partial_begin(&conversion->partial, engine->thread_bytes);
    if (status != RESHARD_OK)
        return status;
    conversion->done_bytes = (size_t)engine->block_count * sizeof(atomic_uchar);
    engine->done = rs_allocate_zeroed(conversion->context, conversion->done_bytes);
    if (engine->done == NULL)
        return rs_allocation_status();
    (void)rs_partial_recall(&conversion->partial, engine->block_count, engine->done);
    return RESHARD_OK;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static reshard_status prepare_files(rs_conversion *conversion)
{
    bool leads = rs_conversion_leads(conversion);
    conversion->engine.thread_bytes = (size_t)conversion->partial.thread_bytes;
    reshard_status status = rs_conversion_prepare(conversion, &conversion->engine);
    if (status != RESHARD_OK)
        return status;
    status = recall_blocks(conversion);
    if (status == RESHARD_OK && leads && conversion->options->link)
        status = rs_conversion_link(conversion);
    if (status == RESHARD_OK && leads)
        status = make_files(conversion);
    status = rs_conversion_agree(conversion, status);
    if (status == RESHARD_OK && !leads)
        status = open_files(conversion);
    status = rs_conversion_agree(conversion, status);
    return status == RESHARD_OK ? rs_conversion_share_done(conversion) : status;
}

reshard_status rs_conversion_publish(rs_conversion *conversion)
{
    reshard_status status = RESHARD_OK;
    if (rs_conversion_leads(conversion))
        status = rs_partial_finish(&conversion->partial, !conversion->options->no_sync);
    return rs_conversion_agree(conversion, status);
}

/* Begins to sum for an engine that has been prepared. */
static reshard_status begin_sums(const rs_conversion *conversion, rs_passing **out_passing)
{
    return rs_conversion_agree(
        conversion,
        rs_passing_create(conversion->context, conversion->engine.transfer_count, out_passing));
}

/* What the sums of all ranks tell. */
static reshard_status report_sums(const rs_conversion *conversion, rs_passing *passing,
                                  reshard_convert_report *report)
{
    rs_passing_result result;
    reshard_status status = rs_conversion_merge(conversion, passing);
    if (status != RESHARD_OK)
        return status;
    status = rs_passing_finish(passing, conversion->engine.transfers, conversion->source,
                               &conversion->target, &result);
    status = rs_conversion_agree(conversion, status);
    if (status != RESHARD_OK)
        return status;
    report->bytes_digested = result.bytes;
    report->tensors_digested = result.tensors;
    memcpy(report->source_digest, result.source, sizeof report->source_digest);
    memcpy(report->digest, result.target, sizeof report->digest);
    return RESHARD_OK;
}

static reshard_status verify(rs_conversion *conversion, reshard_convert_report *report)
{
    rs_passing *passing = NULL;
    reshard_status status = begin_sums(conversion, &passing);
    if (status == RESHARD_OK)
        status = rs_conversion_verify(conversion, passing);
    if (status == RESHARD_OK)
        status = report_sums(conversion, passing, report);
    rs_passing_destroy(passing);
    return status;
}

/* What comes after the last block. */
static reshard_status finish(rs_conversion *conversion, reshard_convert_report *report)
{
    bool leads = rs_conversion_leads(conversion);
    reshard_status status = leads ? rs_conversion_copy_others(conversion) : RESHARD_OK;
    if (status == RESHARD_OK)
        status = rs_conversion_sync(conversion);
    status = rs_conversion_agree(conversion, status);
    if (status == RESHARD_OK && conversion->options->verify)
        status = verify(conversion, report);
    if (status == RESHARD_OK)
        status = rs_conversion_agree(conversion, rs_conversion_check_source(conversion));
    return status == RESHARD_OK ? rs_conversion_publish(conversion) : status;
}

static reshard_status run_blocks(rs_conversion *conversion, reshard_convert_report *report)
{
    rs_engine *engine = &conversion->engine;
    reshard_status status = begin_sums(conversion, &engine->passing);
    if (status == RESHARD_OK)
        status = rs_conversion_run(conversion);
    report->bytes_read = atomic_load(&engine->bytes_read);
    report->bytes_written = atomic_load(&engine->bytes_written);
    report->bytes_shared = atomic_load(&engine->bytes_shared);
    if (status == RESHARD_OK)
        status = report_sums(conversion, engine->passing, report);
    rs_passing_destroy(engine->passing);
    engine->passing = NULL;
    return status;
}

reshard_status rs_conversion_write(rs_conversion *conversion, reshard_convert_report *report)
{
    reshard_status status = prepare_files(conversion);
    if (status != RESHARD_OK)
        return status;
    report->bytes_resumed = count_done(conversion);
    atomic_store(&conversion->engine.bytes_done, report->bytes_resumed);
    conversion->bytes_unsynced_at = report->bytes_resumed;
    status = run_blocks(conversion, report);
    if (status == RESHARD_ERR_CANCELLED)
        return rs_fail(RESHARD_ERR_CANCELLED,
                       "cancelled; %s holds what was done, and --resume goes on with it",
                       conversion->partial.path);
    if (status == RESHARD_OK)
        status = rs_conversion_sum(conversion, report);
    return status == RESHARD_OK ? finish(conversion, report) : status;
}
