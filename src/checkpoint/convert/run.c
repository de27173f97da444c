/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run.c - carries out a conversion: creates files with their headers, runs the blocks, keeps the
 * journal of those that are done, and gives the target its name at the end. The bytes are summed on
 * the way.
 */
#include "checkpoint/convert/conversion.h"

#include "base/context.h"
#include "base/digest.h"
#include "base/options.h"
#include "checkpoint/check/tensor_sums.h"

#include <inttypes.h>
#include <string.h>

/* ---- files ----------------------------------------------------------------------------------- */

/* Finds the files that an earlier run has written blocks to. */
static void find_begun(const rs_conversion_run *run, bool *begun)
{
    const rs_blocks *blocks = &run->blocks;
    for (int64_t i = 0; i < blocks->route_count; i++) {
        const rs_stored_tensor *target = blocks->routes[i].target;
        bool any = false;
        for (int64_t j = blocks->firsts[i]; !any && j < blocks->firsts[i + 1]; j++)
            any = rs_ledger_is_done(&run->ledger, j);
        for (int64_t j = 0; any && j < target->piece_count; j++)
            begun[target->pieces[j].file] = true;
    }
}

/* A file of the source of which the kernel is to copy some part, or NULL. */
static const rs_file *find_shared(const reshard_conversion *conversion)
{
    for (int64_t i = 0; i < conversion->route_count; i++) {
        const rs_route *route = &conversion->routes[i];
        if (route->direct)
            return conversion->source_files[route->source->pieces[0].file];
    }
    return NULL;
}

/* Creates a file with everything but its tensors: its head, and zeros where they are padded. */
static reshard_status make_file(rs_conversion_run *run, int32_t index, bool begun,
                                const rs_file *shared)
{
    const rs_target *target = &run->conversion->target;
    const rs_target_file *file = &target->files[index];
    reshard_status status = rs_output_file(&run->output, file->name, file->bytes, begun, shared,
                                           &run->target_files[index]);
    if (status == RESHARD_OK)
        status = rs_target_write_head(target, index, run->target_files[index]);
    /* A file that was begun has its zeros already: they were on disk before its first block was
     * recorded. */
    return status == RESHARD_OK && !begun
               ? rs_padding_write(target, index, run->target_files[index])
               : status;
}

static reshard_status make_files(rs_conversion_run *run)
{
    const rs_target *target = &run->conversion->target;
    const rs_file *shared = find_shared(run->conversion);
    reshard_status status = RESHARD_OK;
    size_t count = (size_t)target->file_count;
    bool *begun = rs_arena_allocate_array(&run->arena, count, 1);
    bool *made = rs_arena_allocate_array(&run->arena, count, 1);
    if (begun == NULL || made == NULL)
        return rs_allocation_status();
    memset(begun, 0, count);
    memset(made, 0, count);
    find_begun(run, begun);
    for (int32_t i = 0; status == RESHARD_OK && i < target->file_count; i++) {
        if (target->files[i].name == NULL || run->target_files[i] != NULL)
            continue;
        made[i] = !begun[i];
        status = make_file(run, i, begun[i], shared);
    }
    if (status == RESHARD_OK && !run->options.no_sync)
        status = rs_output_sync(&run->output);
    /* If the disk was too full for all files, do not leave it full of some. */
    for (size_t i = 0; status != RESHARD_OK && i < count; i++) {
        if (made[i] && run->target_files[i] != NULL)
            rs_file_give_back(run->target_files[i]);
    }
    return status;
}

/* Opens files that were created by another rank, or by an earlier run. */
static reshard_status open_files(rs_conversion_run *run)
{
    const rs_target *target = &run->conversion->target;
    reshard_status status = RESHARD_OK;
    for (int32_t i = 0; status == RESHARD_OK && i < target->file_count; i++) {
        const rs_target_file *file = &target->files[i];
        if (file->name != NULL)
            status =
                rs_output_open_file(&run->output, file->name, file->bytes, &run->target_files[i]);
    }
    return status;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* The bytes of blocks that are already done. */
static uint64_t count_done(const rs_conversion_run *run)
{
    const rs_blocks *blocks = &run->blocks;
    uint64_t bytes = 0;
    for (int64_t i = 0; i < blocks->route_count; i++) {
        for (int64_t j = blocks->firsts[i]; j < blocks->firsts[i + 1]; j++) {
            if (rs_ledger_is_done(&run->ledger, j))
                bytes += rs_blocks_bytes(blocks, i, j);
        }
    }
    return bytes;
}

/* Cuts the blocks with the journal's thread_bytes, so that their numbers match, and recalls which
 * are done. */
static reshard_status cut_blocks(rs_conversion_run *run, uint64_t thread_bytes)
{
    const reshard_conversion *conversion = run->conversion;
    reshard_status status =
        rs_conversion_fit(conversion, (size_t)thread_bytes, &run->engine.threads);
    if (status == RESHARD_OK)
        status = rs_blocks_cut(&run->blocks, &run->arena, conversion->route_count,
                               conversion->routes, (size_t)thread_bytes, true);
    if (status == RESHARD_OK)
        status = rs_ledger_init(&run->ledger, run->context, run->blocks.count);
    if (status == RESHARD_OK)
        rs_journal_recall(&run->output.journal, &run->ledger);
    return status;
}

/* Cuts the blocks, and creates or opens all files. Collective. */
static reshard_status prepare_files(rs_conversion_run *run)
{
    bool leads = rs_team_leads(run->team);
    uint64_t thread_bytes = run->output.journal.head.thread_bytes;
    reshard_status status = rs_team_tell(run->team, RESHARD_OK, &thread_bytes);
    if (status != RESHARD_OK)
        return status;
    status = rs_team_agree(run->team, cut_blocks(run, thread_bytes));
    if (status != RESHARD_OK)
        return status;
    if (leads && run->options.link)
        status = rs_run_link(run);
    rs_trace_event event;
    rs_run_begin(run, RS_TRACE_WRITE, &event);
    if (status == RESHARD_OK && leads)
        status = rs_run_end(run, &event, make_files(run));
    status = rs_team_agree(run->team, status);
    if (status == RESHARD_OK)
        status = rs_team_agree(run->team, leads ? RESHARD_OK : open_files(run));
    return status == RESHARD_OK ? rs_run_share_ledger(run) : status;
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* Are these all tensors of the source that its digest is of? */
static bool are_all(const reshard_checkpoint *source, int64_t count,
                    const rs_stored_tensor *const *taken)
{
    int64_t aside = 0, taken_aside = 0;
    for (int64_t i = 0; i < source->tensor_count; i++)
        aside += source->tensors[i].is_aside;
    for (int64_t i = 0; i < count; i++)
        taken_aside += taken[i]->is_aside;
    return taken_aside == 0 && count == source->tensor_count - aside;
}

/* Whether the digest of the source can be reported. What a map reads is summed as what it makes,
 * which is not the source. */
static bool reports_source(const reshard_conversion *conversion)
{
    const rs_target *target = &conversion->target;
    return target->mapped == NULL && conversion->source->unreadable_count == 0 &&
           are_all(conversion->source, target->tensor_count, target->stored);
}

/* Computes the digests of both sides from the sums of all ranks. */
static reshard_status finish_sums(const rs_conversion_run *run, const rs_sums *sums,
                                  reshard_conversion_report *report)
{
    const rs_target *target = &run->conversion->target;
    int64_t count = target->tensor_count;
    size_t bytes = (size_t)count * 2 * sizeof(rs_tensor_sum);
    rs_tensor_sum *from = rs_allocate_zeroed(run->context, bytes);
    if (from == NULL)
        return rs_allocation_status();
    rs_tensor_sum *to = from + count;
    for (int64_t i = 0; i < count; i++) {
        from[i].tensor = target->stored[i];
        to[i].tensor = &target->tensors[i];
    }
    report->bytes_digested = 0;
    /* Empty tensors have no route, and zero is the correct sum for them. */
    for (int64_t i = 0; i < sums->count; i++) {
        int64_t tensor = run->conversion->routes[i].target - target->tensors;
        from[tensor].sum = sums->items[i].source;
        to[tensor].sum = sums->items[i].target;
        report->bytes_digested += sums->target_only && run->conversion->routes[i].casts
                                      ? sums->items[i].target.bytes
                                      : sums->items[i].source.bytes;
    }
    for (int64_t i = 0; target->owners != NULL && i < count; i++) {
        if (target->owners[i] >= 0) {
            from[i].sum = from[target->owners[i]].sum;
            to[i].sum = to[target->owners[i]].sum;
        }
    }
    reshard_status status =
        rs_tensor_sums_finish(sums->code, count, to, &report->tensors_digested, report->digest);
    report->source_digest[0] = '\0';
    if (status == RESHARD_OK && !sums->target_only)
        status = rs_tensor_sums_finish(sums->code, count, from, &report->tensors_digested,
                                       report->source_digest);
    rs_release(run->context, from);
    return status;
}

/* Merges the sums of all ranks, and reports the digests. Collective. */
static reshard_status report_sums(const rs_conversion_run *run, rs_sums *sums,
                                  reshard_conversion_report *report)
{
    reshard_status status = rs_sums_merge(sums, run->team);
    return status == RESHARD_OK ? rs_team_agree(run->team, finish_sums(run, sums, report)) : status;
}

/* Runs `body`, which sums the bytes that pass, and reports the sums. Collective. */
static reshard_status with_sums(rs_conversion_run *run, reshard_conversion_report *report,
                                reshard_status (*body)(rs_conversion_run *run, rs_sums *sums))
{
    rs_sums *sums = NULL;
    reshard_status status =
        rs_team_agree(run->team, rs_sums_create(run->context, run->conversion->route_count, &sums));
    if (status == RESHARD_OK) {
        sums->target_only = !reports_source(run->conversion);
        status = body(run, sums);
    }
    if (status == RESHARD_OK)
        status = report_sums(run, sums, report);
    rs_sums_destroy(sums);
    return status;
}

/* ---- CRCs ------------------------------------------------------------------------------------ */

static reshard_status make_entry_sums(rs_conversion_run *run)
{
    const rs_target *target = &run->conversion->target;
    size_t count = (size_t)target->entry_count;
    if (!target->format->has_crcs)
        return RESHARD_OK;
    rs_entry_range *ranges = rs_arena_allocate_array(&run->arena, count, sizeof *ranges);
    if (ranges == NULL)
        return rs_allocation_status();
    for (size_t i = 0; i < count; i++) {
        const rs_target_entry *entry = &target->entries[i];
        uint64_t begin = target->files[entry->file].data_begin + entry->begin;
        uint64_t bytes = rs_target_array_of(target, entry)->bytes;
        ranges[i] = (rs_entry_range){entry->file, begin, bytes};
    }
    return rs_entry_sums_create(run->context, target->entry_count, ranges, &run->entry_sums);
}

/* Merges the CRCs of all ranks, and completes those of which some bytes were not summed.
 * Collective. */
static reshard_status finish_entry_sums(rs_conversion_run *run)
{
    if (run->entry_sums == NULL)
        return RESHARD_OK;
    reshard_status status = rs_entry_sums_merge(run->entry_sums, run->team);
    if (status == RESHARD_OK && rs_team_leads(run->team))
        status = rs_entry_sums_complete(run->entry_sums, run->target_files);
    return rs_team_agree(run->team, status);
}

/* Compares the CRCs of what was read. Blocks that an earlier run has done are read again for that.
 * Collective. */
static reshard_status finish_crcs(const rs_conversion_run *run, reshard_conversion_report *report)
{
    return rs_crcs_finish(run->crcs, run->team, report->bytes_resumed != 0,
                          &report->crcs_unchecked);
}

/* ---- the whole run --------------------------------------------------------------------------- */

static reshard_status run_blocks(rs_conversion_run *run, rs_sums *sums)
{
    run->engine.sums = sums;
    run->engine.entry_sums = run->entry_sums;
    run->engine.crcs = run->crcs;
    reshard_status status = rs_run_blocks(run);
    run->engine.sums = NULL;
    return status == RESHARD_OK ? finish_entry_sums(run) : status;
}

/* Adds up what all ranks did. Collective. */
static reshard_status add_up(const rs_conversion_run *run, reshard_conversion_report *report)
{
    const rs_engine *engine = &run->engine;
    uint64_t mine[3] = {atomic_load(&engine->bytes_read), atomic_load(&engine->bytes_written),
                        atomic_load(&engine->bytes_shared)};
    void *all = NULL;
    reshard_status status = rs_team_gather(run->team, mine, sizeof mine, &all);
    for (int32_t i = 0; status == RESHARD_OK && i < run->team->rank_count; i++) {
        const uint64_t *theirs = (const uint64_t *)all + 3 * (size_t)i;
        report->bytes_read += theirs[0];
        report->bytes_written += theirs[1];
        report->bytes_shared += theirs[2];
    }
    rs_release(run->context, all);
    return status;
}

/* Adds up the overflows that all ranks counted. Collective. */
static reshard_status report_overflows(const rs_conversion_run *run,
                                       reshard_conversion_report *report)
{
    void *all = NULL;
    reshard_status status = rs_team_gather(run->team, &run->overflows, sizeof run->overflows, &all);
    report->values_overflowed = 0;
    for (int32_t i = 0; status == RESHARD_OK && i < run->team->rank_count; i++)
        report->values_overflowed += ((const uint64_t *)all)[i];
    rs_release(run->context, all);
    return status;
}

static reshard_status publish(rs_conversion_run *run)
{
    reshard_status status = RESHARD_OK;
    rs_trace_event event;
    if (rs_team_leads(run->team)) {
        rs_run_begin(run, RS_TRACE_SYNC, &event);
        status = rs_run_end(run, &event, rs_output_publish(&run->output, !run->options.no_sync));
    }
    return rs_team_agree(run->team, status);
}

/* The steps after all files are written. */
static reshard_status conclude(rs_conversion_run *run, reshard_conversion_report *report)
{
    /* Every byte was written once, so a hole is a reason to look. */
    uint64_t has_holes = rs_team_leads(run->team) && rs_run_has_holes(run);
    reshard_status status = rs_team_tell(run->team, RESHARD_OK, &has_holes);
    if (status == RESHARD_OK && (run->options.verify || has_holes != 0))
        status = with_sums(run, report, rs_run_verify);
    if (status == RESHARD_OK && run->options.verify)
        report->bytes_verified = run->conversion->bytes;
    if (status == RESHARD_OK)
        status = report_overflows(run, report);
    if (status == RESHARD_OK)
        status = rs_team_agree(run->team, rs_run_check_source(run));
    if (status == RESHARD_OK)
        status = rs_team_agree(run->team, rs_run_check_output(run));
    return status == RESHARD_OK ? publish(run) : status;
}

/* The steps after all blocks are written. */
static reshard_status finish(rs_conversion_run *run, reshard_conversion_report *report)
{
    reshard_status status = rs_run_end_blocks(run);
    if (status != RESHARD_OK)
        return status;
    rs_trace_event event;
    if (rs_team_leads(run->team)) {
        rs_run_begin(run, RS_TRACE_WRITE, &event);
        status = rs_run_end(run, &event, rs_run_copy_others(run));
    }
    if (status == RESHARD_OK)
        status = rs_run_sync(run);
    status = rs_team_agree(run->team, status);
    return status == RESHARD_OK ? conclude(run, report) : status;
}

static reshard_status write_all(rs_conversion_run *run, reshard_conversion_report *report)
{
    reshard_status status = prepare_files(run);
    if (status != RESHARD_OK)
        return status;
    report->bytes_resumed = count_done(run);
    atomic_store(&run->engine.bytes_done, report->bytes_resumed);
    run->bytes_recorded = report->bytes_resumed;
    if (!run->options.verify) /* which reads the source again */
        status = rs_team_agree(run->team, rs_engine_begin_pass(run->conversion->source));
    if (status == RESHARD_OK)
        status = with_sums(run, report, run_blocks);
    run->overflows = atomic_load(&run->engine.values_overflowed);
    if (status == RESHARD_OK)
        status = finish_crcs(run, report);
    if (status == RESHARD_OK)
        status = add_up(run, report);
    return status == RESHARD_OK ? finish(run, report) : status;
}

/* Checks that all ranks were given the same options. Collective. */
static reshard_status compare_runs(const rs_conversion_run *run, reshard_status status)
{
    uint64_t words[2];
    rs_digest digest;
    rs_digest_init(&digest);
    rs_digest_bytes(&digest, run->target, strlen(run->target));
    rs_digest_u64(&digest, run->options.resume != 0);
    rs_digest_u64(&digest, run->options.verify != 0);
    rs_digest_u64(&digest, run->options.link != 0);
    rs_digest_u64(&digest, run->options.no_sync != 0);
    rs_digest_u64(&digest, run->options.journal_bytes);
    rs_digest_finish(&digest, words);
    return rs_team_compare(run->team, status, "convert: the run", words);
}

/* Digest of the conversion, and of the identity of the files that it reads: a run that continues
 * must find the same ones. Ranks compare plans without the latter, because each may have its own
 * copies. */
static void digest_source(const rs_conversion_run *run, uint64_t out_digest[2])
{
    const reshard_checkpoint *source = run->conversion->source;
    uint64_t words[2];
    rs_digest digest;
    rs_conversion_digest(run->conversion, words);
    rs_digest_init(&digest);
    rs_digest_u64(&digest, words[0]);
    rs_digest_u64(&digest, words[1]);
    for (int32_t i = 0; i < source->file_count; i++) {
        rs_digest_u64(&digest, source->files[i].stamp.inode);
        /* Making a link to a file counts as a change of that file. */
        rs_digest_u64(&digest, run->options.link ? 0 : (uint64_t)source->files[i].stamp.changed);
    }
    rs_digest_finish(&digest, out_digest);
}

/* The file that the target is; NULL: it is a folder, also of several parts. */
static const char *one_file(const rs_conversion_run *run)
{
    const rs_target *target = &run->conversion->target;
    return target->format->is_one_file && target->file_count == 1 ? target->files[0].name : NULL;
}

static reshard_status create_output(rs_conversion_run *run)
{
    const rs_target *target = &run->conversion->target;
    rs_journal_head head = {.thread_bytes = run->conversion->thread_bytes};
    digest_source(run, head.digest);
    reshard_status status = rs_output_create(&run->output, run->context, run->target, one_file(run),
                                             &head, run->options.resume, !run->options.no_sync);
    for (int32_t i = 0; status == RESHARD_OK && i < target->file_count; i++) {
        if (target->files[i].name != NULL)
            status = rs_output_expect(&run->output, target->files[i].name);
    }
    /* Once other files may exist, all names are checked at the end, when these are known. */
    return status == RESHARD_OK && !run->output.journal.state.blocks_done
               ? rs_output_check_names(&run->output, false)
               : status;
}

/* The leader creates or takes over the folder, and all others check that they see the same one.
 * *out_finished: everything is in it already. Collective. */
static reshard_status open_output(rs_conversion_run *run, bool *out_finished)
{
    bool leads = rs_team_leads(run->team);
    const rs_output *output = &run->output;
    reshard_status status = leads ? create_output(run) : RESHARD_OK;
    uint64_t nonce = output->journal.state.nonce;
    uint64_t bits = (output->named ? 1 : 0) | (output->journal.state.finished ? 2 : 0);
    status = rs_team_tell(run->team, status, &nonce);
    if (status == RESHARD_OK)
        status = rs_team_tell(run->team, status, &bits);
    if (status != RESHARD_OK)
        return status;
    if (!leads)
        status = rs_output_join(&run->output, run->context, run->target, one_file(run),
                                (bits & 1) != 0, nonce);
    *out_finished = (bits & 2) != 0;
    return rs_team_agree(run->team, status);
}

/* Checks that the lines of a journal that says "finished" name every block of this conversion. */
static reshard_status check_finished(rs_conversion_run *run)
{
    reshard_status status = cut_blocks(run, run->output.journal.head.thread_bytes);
    for (int64_t i = 0; status == RESHARD_OK && i < run->blocks.count; i++) {
        if (!rs_ledger_is_done(&run->ledger, i))
            status =
                rs_fail_about(RESHARD_ERR_INVALID, run->output.path,
                              "its journal says that it is finished, but not that block %" PRId64
                              " of %" PRId64 " was written; remove it",
                              i, run->blocks.count);
    }
    return status;
}

/* The steps that are left if an earlier run has written all files. Collective. */
static reshard_status conclude_finished(rs_conversion_run *run, reshard_conversion_report *report)
{
    report->bytes_resumed = run->conversion->bytes;
    reshard_status status =
        rs_team_agree(run->team, rs_team_leads(run->team) ? check_finished(run) : RESHARD_OK);
    if (status != RESHARD_OK)
        return status;
    status = rs_team_agree(run->team, open_files(run));
    return status == RESHARD_OK ? conclude(run, report) : status;
}

static reshard_status carry_out(rs_conversion_run *run, reshard_conversion_report *report)
{
    bool finished = false;
    reshard_status status = compare_runs(run, rs_run_check_paths(run));
    rs_trace_event event;
    rs_run_begin(run, RS_TRACE_COMPARE, &event);
    if (status == RESHARD_OK)
        status = rs_run_check_copies(run);
    if (status == RESHARD_OK)
        status = rs_run_check_left_out(run);
    if (status == RESHARD_OK && run->options.verify)
        status = rs_crcs_check_all(run->conversion->source, run->team);
    status = rs_run_end(run, &event, status);
    if (status == RESHARD_OK)
        status = open_output(run, &finished);
    if (status != RESHARD_OK)
        return status;
    status = finished ? conclude_finished(run, report) : write_all(run, report);
    if (status == RESHARD_ERR_CANCELLED)
        return rs_fail_hint(RESHARD_ERR_CANCELLED, RESHARD_HINT_RESUME, run->output.path,
                            "cancelled; %s holds what was finished", run->output.path);
    return status;
}

static reshard_status init_run(rs_conversion_run *run)
{
    const reshard_conversion *conversion = run->conversion;
    size_t count = (size_t)conversion->target.file_count;
    run->target_files = rs_arena_allocate_array(&run->arena, count, sizeof(rs_file *));
    if (run->target_files == NULL)
        return rs_allocation_status();
    for (size_t i = 0; i < count; i++)
        run->target_files[i] = NULL;
    run->engine = (rs_engine){.context = run->context,
                              .sink = &rs_sink_file,
                              .what = rs_team_leads(run->team) ? "converting" : NULL,
                              .blocks = &run->blocks,
                              .sources = conversion->source_files,
                              .targets = run->target_files,
                              .ledger = &run->ledger,
                              .trace = conversion->trace,
                              .trace_rank = conversion->trace_rank};
    reshard_status status = RESHARD_OK;
    if (conversion->trace != NULL)
        status = rs_trace_take(conversion->trace, conversion->trace_rank, 0, 0, &run->track);
    if (status == RESHARD_OK && !run->options.verify)
        status = rs_crcs_create(conversion->source, conversion->route_count, conversion->routes,
                                &run->crcs);
    return status == RESHARD_OK ? make_entry_sums(run) : status;
}

static void release_run(rs_conversion_run *run)
{
    for (int32_t i = 0; run->target_files != NULL && i < run->conversion->target.file_count; i++)
        rs_file_close(run->target_files[i]);
    rs_trace_give_back(run->track);
    rs_entry_sums_destroy(run->entry_sums);
    rs_crcs_destroy(run->crcs);
    rs_ledger_release(&run->ledger);
    rs_output_release(&run->output);
    rs_arena_release(&run->arena);
}

reshard_status reshard_conversion_run(const reshard_conversion *conversion, const char *target,
                                      const reshard_conversion_run_options *options,
                                      reshard_conversion_report *out_report)
{
    rs_conversion_run run = {.conversion = conversion,
                             .context = conversion->context,
                             .team = &conversion->team,
                             .target = target != NULL ? target : ""};
    reshard_conversion_report report = {.bytes_read = 0};
    rs_arena_init(&run.arena, run.context);
    reshard_status status =
        rs_options_read("conversion run options", options, &run.options, sizeof run.options);
    if (status == RESHARD_OK && out_report != NULL)
        status = rs_report_write("conversion report", &report, sizeof report, out_report);
    if (status == RESHARD_OK)
        status = rs_store_check_readable(conversion->source);
    if (status == RESHARD_OK)
        status = init_run(&run);
    status = rs_team_agree(run.team, status);
    if (status == RESHARD_OK)
        status = carry_out(&run, &report);
    release_run(&run);
    if (status == RESHARD_OK && out_report != NULL)
        status = rs_report_write("conversion report", &report, sizeof report, out_report);
    return status;
}
