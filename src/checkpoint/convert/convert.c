/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convert.c - reshard_convert, from beginning to end: open, plan, check, write, verify, rename.
 * Everything that can be wrong with source, rules and options is found before anything is written.
 */
#include "checkpoint/convert/convert.h"

#include "base/context.h"
#include "base/digest.h"

#include <stdlib.h>
#include <string.h>

#define MEMORY_DEFAULT ((size_t)512 << 20)
#define MEMORY_MIN RS_ENGINE_BYTES_MIN

/* ---- before anything ------------------------------------------------------------------------- */

static reshard_status check_options(const reshard_convert_options *options, const char *target)
{
    if (options->memory_bytes_max != 0 && options->memory_bytes_max < MEMORY_MIN)
        return rs_fail(RESHARD_ERR_INVALID,
                       "%zu bytes of memory are too few: at least %zu are needed",
                       options->memory_bytes_max, (size_t)MEMORY_MIN);
    if (options->threads < 0)
        return rs_fail(RESHARD_ERR_INVALID, "%d threads", (int)options->threads);
    if (target == NULL && !options->dry_run)
        return rs_fail(RESHARD_ERR_INVALID, "no target to write, and not a dry run");
    return RESHARD_OK;
}

/* Is one of the folders above the target the source? Then writing the target would touch it. */
static reshard_status check_outside(reshard_context *context, const char *source,
                                    const char *target)
{
    size_t length = strlen(target);
    reshard_status status = RESHARD_OK;
    char *prefix = rs_allocate(context, length + 2);
    if (prefix == NULL)
        return rs_allocation_status();
    memcpy(prefix, target, length + 1);
    for (size_t n = length; status == RESHARD_OK && n > 0;) {
        while (n > 0 && prefix[n - 1] == '/')
            n--;
        while (n > 0 && prefix[n - 1] != '/')
            n--;
        memcpy(prefix + n, n == 0 ? "." : "", n == 0 ? 2 : 1);
        if (rs_path_same(prefix, source))
            status = rs_fail(RESHARD_ERR_INVALID, "%s: lies inside the source %s", target, source);
    }
    rs_release(context, prefix, length + 2);
    return status;
}

static reshard_status check_paths(const rs_conversion *conversion, const char *source)
{
    reshard_context *context = conversion->context;
    const char *target = conversion->target_path;
    rs_path_kind kind = RS_PATH_NONE;
    bool complete = false;
    size_t length = strlen(target);
    bool is_name = length != 0 && strspn(target, "/.") != length;
    if (!is_name)
        return rs_fail(RESHARD_ERR_INVALID, "\"%s\": not a name for a new folder", target);
    reshard_status status = rs_path_kind_of(target, &kind);
    if (status != RESHARD_OK)
        return status;
    if (kind != RS_PATH_NONE && rs_path_same(source, target))
        return rs_fail(RESHARD_ERR_INVALID, "%s: cannot be converted onto itself", target);
    if (kind == RS_PATH_FOLDER)
        status = rs_partial_is_complete(context, target, &complete);
    if (status != RESHARD_OK)
        return status;
    if (complete && !conversion->options->resume)
        return rs_fail(RESHARD_ERR_INVALID,
                       "%s: exists already, by a conversion that was interrupted at its last step; "
                       "--resume does that",
                       target);
    if (kind != RS_PATH_NONE && !complete)
        return rs_fail(RESHARD_ERR_INVALID, "%s: exists already", target);
    return check_outside(context, source, target);
}

/* ---- what goes where ------------------------------------------------------------------------- */

static int compare_transfers(const void *a, const void *b)
{
    const rs_stored_piece *x = ((const rs_transfer *)a)->source->pieces;
    const rs_stored_piece *y = ((const rs_transfer *)b)->source->pieces;
    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

static reshard_status plan_transfers(rs_conversion *conversion)
{
    rs_target *target = &conversion->target;
    rs_engine *engine = &conversion->engine;
    engine->transfers = rs_arena_allocate_array(&conversion->arena, (size_t)target->tensor_count,
                                                sizeof(rs_transfer));
    if (engine->transfers == NULL)
        return rs_allocation_status();
    for (int64_t i = 0; i < target->tensor_count; i++) {
        if (target->tensors[i].bytes == 0)
            continue;
        reshard_status status =
            rs_transfer_plan(&conversion->arena, &conversion->cache,
                             &conversion->source->tensors[target->origins[i]], &target->tensors[i],
                             &engine->transfers[engine->transfer_count]);
        if (status == RESHARD_OK && rs_context_cancelled(conversion->context))
            status = rs_fail(RESHARD_ERR_CANCELLED, "cancelled");
        if (status != RESHARD_OK)
            return status;
        engine->transfer_count++;
        rs_context_progress(conversion->context, "planning", (uint64_t)i + 1,
                            (uint64_t)target->tensor_count);
    }
    /* In the order of the source, so that reads go forward. */
    if (engine->transfer_count > 1)
        qsort(engine->transfers, (size_t)engine->transfer_count, sizeof(rs_transfer),
              compare_transfers);
    return RESHARD_OK;
}

static void digest_tensor(rs_digest *digest, const rs_stored_tensor *tensor)
{
    rs_digest_bytes(digest, tensor->name.bytes, tensor->name.count);
    rs_digest_u64(digest, (uint64_t)tensor->dtype);
    rs_digest_u64(digest, (uint64_t)tensor->ndim);
    rs_digest_i64s(digest, tensor->shape, tensor->ndim);
    rs_digest_u64(digest, (uint64_t)tensor->piece_count);
    for (int64_t i = 0; i < tensor->piece_count; i++) {
        const rs_stored_piece *piece = &tensor->pieces[i];
        rs_digest_u64(digest, (uint64_t)piece->file);
        rs_digest_u64(digest, piece->at);
        rs_digest_i64s(digest, piece->size, tensor->carried_ndim);
        if (piece->offset != NULL)
            rs_digest_i64s(digest, piece->offset, tensor->carried_ndim);
        if (piece->strides != NULL)
            rs_digest_i64s(digest, piece->strides, tensor->carried_ndim);
    }
}

/* Of all that decides what is written: the version of every source file, and every place. */
static void digest_conversion(const rs_conversion *conversion, uint64_t out_digest[2])
{
    const reshard_checkpoint *source = conversion->source;
    const rs_target *target = &conversion->target;
    rs_digest digest;
    rs_digest_init(&digest);
    for (int32_t i = 0; i < source->file_count; i++) {
        rs_digest_bytes(&digest, source->files[i].name, strlen(source->files[i].name));
        rs_digest_u64(&digest, source->files[i].bytes);
        rs_digest_u64(&digest, (uint64_t)source->files[i].changed);
    }
    rs_digest_bytes(&digest, target->format->name, strlen(target->format->name));
    for (int32_t i = 0; i < target->file_count; i++)
        rs_digest_u64(&digest, target->files[i].bytes);
    for (int64_t i = 0; i < target->tensor_count; i++) {
        digest_tensor(&digest, &source->tensors[target->origins[i]]);
        digest_tensor(&digest, &target->tensors[i]);
    }
    rs_digest_finish(&digest, out_digest);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static reshard_status list_files(rs_conversion *conversion)
{
    size_t sources = (size_t)conversion->source->file_count;
    size_t targets = (size_t)conversion->target.file_count;
    conversion->source_files =
        rs_arena_allocate_array(&conversion->arena, sources, sizeof(rs_file *));
    conversion->target_files =
        rs_arena_allocate_array(&conversion->arena, targets, sizeof(rs_file *));
    if (conversion->source_files == NULL || conversion->target_files == NULL)
        return rs_allocation_status();
    for (size_t i = 0; i < sources; i++)
        conversion->source_files[i] = conversion->source->files[i].file;
    for (size_t i = 0; i < targets; i++)
        conversion->target_files[i] = NULL;
    return RESHARD_OK;
}

static reshard_status plan(rs_conversion *conversion, const char *source)
{
    const reshard_convert_options *options = conversion->options;
    const reshard_checkpoint_options opening = {
        .size = sizeof opening,
        .from = options->from,
        .rules = options->from_rules != NULL ? options->from_rules : options->rules,
        .set_count = options->set_count,
        .sets = options->sets};
    /* Rules of both sides match what the files call a tensor, and give it its new name once. */
    bool keeps_names = options->from_rules == NULL && options->rules != NULL;
    reshard_status status =
        rs_checkpoint_open(conversion->context, source, &opening, keeps_names, &conversion->source);
    if (status == RESHARD_OK && conversion->target_path != NULL)
        status = check_paths(conversion, source);
    if (status == RESHARD_OK)
        status = rs_target_init(&conversion->target, conversion->source, options);
    if (status == RESHARD_OK)
        status = list_files(conversion);
    if (status == RESHARD_OK)
        status = plan_transfers(conversion);
    if (status != RESHARD_OK)
        return status;
    rs_engine *engine = &conversion->engine;
    engine->context = conversion->context;
    engine->what = rs_conversion_leads(conversion) ? "converting" : NULL;
    engine->sources = conversion->source_files;
    engine->targets = conversion->target_files;
    engine->threads = conversion->threads;
    engine->memory_bytes =
        options->memory_bytes_max != 0 ? options->memory_bytes_max : MEMORY_DEFAULT;
    /* Several ranks pause together, between two rounds. */
    engine->pause = conversion->rank_count == 1 ? rs_conversion_pause : NULL;
    engine->user = conversion;
    return rs_engine_prepare(engine);
}

static void report_plan(const rs_conversion *conversion, reshard_convert_report *report)
{
    const rs_engine *engine = &conversion->engine;
    report->format = conversion->target.format->name;
    report->tensors = conversion->target.tensor_count;
    report->files = conversion->target.written_count;
    report->ranks = conversion->rank_count;
    report->threads = engine->threads;
    report->memory_bytes = (uint64_t)engine->threads * engine->thread_bytes;
    memcpy(report->rules, conversion->target.rules, sizeof report->rules);
    for (int64_t i = 0; i < engine->transfer_count; i++) {
        const rs_transfer *transfer = &engine->transfers[i];
        report->bytes_read += transfer->source->bytes;
        if (transfer->direct)
            report->bytes_shared += transfer->target->bytes;
    }
    report->bytes_written = engine->bytes_total;
}

static void tell_flows(const rs_conversion *conversion)
{
    const reshard_convert_options *options = conversion->options;
    const rs_engine *engine = &conversion->engine;
    if (options->flow_sizes != NULL)
        options->flow_sizes(options->flow_user, conversion->source->file_count,
                            conversion->target.file_count);
    for (int64_t i = 0; options->flow != NULL && i < engine->transfer_count; i++) {
        const rs_transfer *transfer = &engine->transfers[i];
        const rs_stored_tensor *target = transfer->target;
        for (int64_t k = 0; k < transfer->move_count; k++) {
            const rs_transfer_move *move = &transfer->moves[k];
            uint64_t bytes = (uint64_t)target->element_bytes;
            for (int32_t d = 0; d < target->carried_ndim; d++)
                bytes *= (uint64_t)move->size[d];
            options->flow(options->flow_user, transfer->source->pieces[move->source].file,
                          target->pieces[move->target].file, bytes);
        }
    }
}

static reshard_status carry_out(rs_conversion *conversion, reshard_convert_report *report)
{
    uint64_t digest[2];
    digest_conversion(conversion, digest);
    reshard_status status = rs_conversion_compare(conversion, digest);
    if (status == RESHARD_OK)
        status = rs_conversion_check_copies(conversion);
    if (status != RESHARD_OK)
        return status;
    if (rs_conversion_leads(conversion))
        status = rs_partial_init(&conversion->partial, conversion->context, conversion->target_path,
                                 digest, conversion->options->resume);
    else
        status =
            rs_partial_enter(&conversion->partial, conversion->context, conversion->target_path);
    status = rs_conversion_agree(conversion, status);
    uint64_t complete = conversion->partial.complete;
    if (status == RESHARD_OK)
        status = rs_conversion_tell(conversion, &complete);
    if (status != RESHARD_OK || complete == 0)
        return status == RESHARD_OK ? rs_conversion_write(conversion, report) : status;
    report->bytes_resumed = conversion->engine.bytes_total;
    report->bytes_read = report->bytes_written = report->bytes_shared = 0;
    return rs_conversion_publish(conversion);
}

static reshard_status estimate(const rs_conversion *conversion, reshard_convert_report *report)
{
    reshard_status status = RESHARD_OK;
    if (rs_conversion_leads(conversion) && conversion->target_path != NULL)
        status = rs_conversion_estimate(conversion, &report->seconds_estimated);
    return rs_conversion_agree(conversion, status);
}

static void release(rs_conversion *conversion)
{
    for (int32_t i = 0; conversion->target_files != NULL && i < conversion->target.file_count; i++)
        rs_file_close(conversion->target_files[i]);
    if (conversion->engine.done != NULL)
        rs_release(conversion->context, conversion->engine.done, conversion->done_bytes);
    rs_partial_release(&conversion->partial);
    rs_arena_release(&conversion->arena);
    rs_target_release(&conversion->target);
    reshard_checkpoint_destroy(conversion->source);
}

reshard_status reshard_convert(reshard_context *context, const char *source, const char *target,
                               const reshard_convert_options *options,
                               reshard_convert_report *out_report)
{
    static const reshard_convert_options defaults = {.size = sizeof defaults};
    reshard_convert_report report = {.format = ""};
    rs_conversion conversion = {.context = context,
                                .options = options != NULL ? options : &defaults,
                                .target_path = target};
    if (conversion.options->size != sizeof *conversion.options)
        return rs_fail(RESHARD_ERR_INVALID, "convert options: size is %zu, not %zu",
                       conversion.options->size, sizeof *conversion.options);
    rs_conversion_join(&conversion);
    rs_arena_init(&conversion.arena, context);
    rs_arena_init(&conversion.target.arena, context);
    reshard_status status = check_options(conversion.options, target);
    if (status == RESHARD_OK)
        status = plan(&conversion, source);
    status = rs_conversion_agree(&conversion, status);
    if (status == RESHARD_OK) {
        report_plan(&conversion, &report);
        tell_flows(&conversion);
        status = conversion.options->dry_run ? estimate(&conversion, &report)
                                             : carry_out(&conversion, &report);
    }
    release(&conversion);
    if (status == RESHARD_OK && out_report != NULL)
        *out_report = report;
    return status;
}
