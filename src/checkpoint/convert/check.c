/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check.c - what a run checks: that the target can be written there, that replicas are equal, that
 * what is left out is known, that the output matches the source, and that the source did not
 * change.
 */
#include "base/context.h"
#include "base/options.h"
#include "checkpoint/convert/conversion.h"
#include "checkpoint/view/mapped.h"

#include <inttypes.h>
#include <string.h>

/* ---- paths ----------------------------------------------------------------------------------- */

/* The innermost folder above the target that exists; to be released with strlen + 1. NULL: no
 * memory. */
static char *find_folder(reshard_context *context, const char *target)
{
    char *folder = rs_path_parent(context, target);
    while (folder != NULL && !rs_path_same(folder, folder) && strcmp(folder, ".") != 0 &&
           strcmp(folder, "/") != 0) {
        char *inner = folder;
        folder = rs_path_parent(context, inner);
        rs_release(context, inner);
    }
    return folder;
}

/* Fails if the source is one of the folders above the target, because writing the target would
 * change it. Goes up by "..", since the names in the path may be links, or ".." themselves. */
static reshard_status check_outside(reshard_context *context, const char *source,
                                    const char *target)
{
    reshard_status status = RESHARD_OK;
    char *folder = find_folder(context, target);
    for (bool is_top = false; folder != NULL && !is_top && status == RESHARD_OK;) {
        if (rs_path_same(folder, source))
            status =
                rs_fail_about(RESHARD_ERR_INVALID, target, "lies inside the source %s", source);
        char *inner = folder;
        folder = rs_path_join(context, inner, "..");
        is_top = folder != NULL && (!rs_path_same(folder, folder) || rs_path_same(folder, inner));
        rs_release(context, inner);
    }
    if (folder == NULL)
        return status == RESHARD_OK ? rs_allocation_status() : status;
    rs_release(context, folder);
    return status;
}

/* Fails if another process is at work on the target. The journal of one file is in the folder that
 * is left of it. */
static reshard_status check_idle(reshard_context *context, const char *target, bool is_file)
{
    if (!is_file)
        return rs_journal_check_idle(context, target);
    char *partial = rs_output_partial(context, target);
    if (partial == NULL)
        return rs_allocation_status();
    reshard_status status = rs_journal_check_idle(context, partial);
    rs_release(context, partial);
    return status;
}

static reshard_status check_paths(reshard_context *context, const char *source, const char *target,
                                  bool resume, bool leads)
{
    rs_path_kind kind = RS_PATH_NONE;
    rs_output_kind found = RS_OUTPUT_OTHER;
    if (strspn(target, "/.") == strlen(target))
        return rs_fail(RESHARD_ERR_INVALID,
                       "\"%s\" cannot be the name of a new folder; give another one", target);
    reshard_status status = rs_path_kind_of(target, &kind);
    if (status != RESHARD_OK)
        return status;
    if (kind != RS_PATH_NONE && rs_path_same(source, target))
        return rs_fail_about(RESHARD_ERR_INVALID, target,
                             "cannot be converted onto itself; give the target another name");
    if (kind == RS_PATH_FOLDER || kind == RS_PATH_FILE)
        status = rs_output_look(context, target, &found);
    if (status != RESHARD_OK)
        return rs_fail_within(status, "%s: exists already", target);
    /* One rank asks: those of one run would take each other for another process. */
    if (found != RS_OUTPUT_OTHER && leads)
        status = check_idle(context, target, kind == RS_PATH_FILE);
    if (status != RESHARD_OK)
        return status;
    if (found == RS_OUTPUT_UNFINISHED)
        return rs_fail_about(RESHARD_ERR_INVALID, target,
                             "exists already, and its journal says that it is unfinished; rename "
                             "it to %s.partial and resume it, or remove it",
                             target);
    if (found == RS_OUTPUT_FINISHED && !resume)
        return rs_fail_hint(RESHARD_ERR_UNFINISHED, RESHARD_HINT_RESUME, target,
                            "%s: exists already, left by a conversion that was interrupted at its "
                            "last step; resume it",
                            target);
    if (kind != RS_PATH_NONE && found == RS_OUTPUT_OTHER)
        return rs_fail_about(RESHARD_ERR_INVALID, target,
                             "exists already; give another name, or remove it first");
    return check_outside(context, source, target);
}

reshard_status rs_run_check_paths(const rs_conversion_run *run)
{
    return check_paths(run->context, run->conversion->source->path, run->target,
                       run->options.resume != 0, run->team == NULL || rs_team_leads(run->team));
}

reshard_status reshard_conversion_check_target(reshard_context *context, const char *source,
                                               const char *target,
                                               const reshard_conversion_run_options *options)
{
    reshard_conversion_run_options chosen;
    reshard_status status =
        rs_options_read("conversion run options", options, &chosen, sizeof chosen);
    if (status == RESHARD_OK && (source == NULL || target == NULL))
        status = rs_fail(RESHARD_ERR_INVALID, "the path of the source or of the target is NULL");
    if (status == RESHARD_OK)
        status = check_paths(context, source, target, chosen.resume != 0, true);
    return status == RESHARD_OK && chosen.resume == 0 ? rs_output_check(context, target) : status;
}

/* ---- comparing ------------------------------------------------------------------------------- */

reshard_status rs_run_check_copies(rs_conversion_run *run)
{
    const reshard_conversion *conversion = run->conversion;
    reshard_status status = rs_engine_check_copies(conversion->source, run->team, "comparing",
                                                   conversion->threads, conversion->thread_bytes);
    return status == RESHARD_ERR_CHECK ? rs_fail_within(status, "replicas differ") : status;
}

reshard_status rs_run_check_left_out(const rs_conversion_run *run)
{
    const rs_target *target = &run->conversion->target;
    const rs_mapped *mapped = target->mapped;
    reshard_status status = RESHARD_OK;
    if (mapped != NULL)
        status = rs_mapped_compare(&mapped->made, mapped->check_count, mapped->checks, run->team);
    return status == RESHARD_OK
               ? rs_mapped_compare(target->source, target->tied_count, target->tied, run->team)
               : status;
}

/* Checks the padding of all files, which are divided among the ranks. Collective. */
static reshard_status check_padding(const rs_conversion_run *run)
{
    const rs_target *target = &run->conversion->target;
    reshard_status status = RESHARD_OK;
    for (int32_t i = run->team->rank; status == RESHARD_OK && i < target->file_count;
         i += run->team->rank_count) {
        if (run->target_files[i] != NULL)
            status = rs_padding_check(target, i, run->target_files[i]);
    }
    return rs_team_agree(run->team, status);
}

reshard_status rs_run_verify(rs_conversion_run *run, rs_sums *sums)
{
    const reshard_conversion *conversion = run->conversion;
    rs_blocks blocks;
    reshard_status status = rs_blocks_cut(&blocks, &run->arena, conversion->route_count,
                                          conversion->routes, conversion->thread_bytes, false);
    status = rs_team_agree(run->team, status);
    if (status != RESHARD_OK)
        return status;
    rs_engine engine = {.context = run->context,
                        .sink = &rs_sink_compare,
                        .what = rs_team_leads(run->team) ? "verifying" : NULL,
                        .blocks = &blocks,
                        .sources = conversion->source_files,
                        .targets = run->target_files,
                        .threads = conversion->threads,
                        .sums = sums,
                        .trace = conversion->trace,
                        .trace_rank = conversion->trace_rank};
    status = rs_engine_run_shared(&engine, run->team);
    /* Everything was cast again, including what an earlier run had done. */
    run->overflows = atomic_load(&engine.values_overflowed);
    if (status == RESHARD_OK)
        status = check_padding(run);
    return status == RESHARD_ERR_CHECK ? rs_fail_within(status, "the output is wrong") : status;
}

reshard_status rs_run_check_source(const rs_conversion_run *run)
{
    const reshard_checkpoint *source = run->conversion->source;
    for (int32_t i = 0; i < source->file_count; i++) {
        const rs_stored_file *file = &source->files[i];
        rs_file_stamp now = {.bytes = 0};
        reshard_status status = rs_file_read_stamp(file->file, &now);
        /* Programs can put the modification time back, but not the time of change. Making a link
         * to a file changes that, too. */
        bool same = now.bytes == file->bytes && now.modified == file->stamp.modified &&
                    now.inode == file->stamp.inode &&
                    (run->options.link || now.changed == file->stamp.changed);
        if (status == RESHARD_OK && !same)
            status = rs_fail_about(RESHARD_ERR_CHECK, rs_file_path(file->file),
                                   "changed during the conversion (size, times, content, owner, "
                                   "mode or links); remove %s and convert again",
                                   run->output.path);
        if (status != RESHARD_OK)
            return status;
    }
    return RESHARD_OK;
}

reshard_status rs_run_check_output(const rs_conversion_run *run)
{
    const rs_target *target = &run->conversion->target;
    for (int32_t i = 0; i < target->file_count; i++) {
        const rs_file *file = run->target_files[i];
        rs_file *there = NULL;
        rs_file_stamp ours = {.bytes = 0}, found = {.bytes = 0};
        if (file == NULL)
            continue;
        reshard_status status = rs_file_open(run->context, rs_file_path(file), &there);
        if (status == RESHARD_OK)
            status = rs_file_read_stamp(file, &ours);
        if (status == RESHARD_OK)
            status = rs_file_read_stamp(there, &found);
        rs_file_close(there);
        if (status == RESHARD_OK &&
            (found.inode != ours.inode || found.bytes != target->files[i].bytes))
            status = rs_fail_about(
                RESHARD_ERR_CHECK, rs_file_path(file),
                "another program changed it while it was being written (it has %" PRIu64
                " bytes, not %" PRIu64 ", or is another file); remove %s and convert again",
                found.bytes, target->files[i].bytes, run->output.path);
        if (status != RESHARD_OK)
            return status;
    }
    return RESHARD_OK;
}

bool rs_run_has_holes(const rs_conversion_run *run)
{
    for (int32_t i = 0; i < run->conversion->target.file_count; i++) {
        if (run->target_files[i] != NULL && rs_file_has_holes(run->target_files[i]))
            return true;
    }
    return false;
}
