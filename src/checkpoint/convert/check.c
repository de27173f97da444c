/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check.c - the engine as a judge: are replicas equal, is the output what the source says?
 * And a short measurement of the disk.
 */
#include "base/checked.h"
#include "base/context.h"
#include "checkpoint/convert/convert.h"

#include <string.h>
#include <time.h>

static void describe_judge(const rs_conversion *conversion, const char *what, rs_engine *judge)
{
    /* Only one rank draws a bar. */
    what = rs_conversion_leads(conversion) ? what : NULL;
    *judge = (rs_engine){.context = conversion->context,
                         .mode = RS_ENGINE_COMPARE,
                         .what = what,
                         .sources = conversion->source_files,
                         .threads = conversion->threads,
                         .memory_bytes = conversion->engine.memory_bytes};
}

/* The tensor with its copies in place of its pieces. */
static reshard_status add_copies(rs_conversion *conversion, const rs_stored_tensor *tensor,
                                 rs_engine *judge)
{
    rs_stored_tensor *copies =
        rs_arena_copy(&conversion->arena, tensor, 1, sizeof(rs_stored_tensor));
    if (copies == NULL)
        return rs_allocation_status();
    copies->pieces = tensor->copies;
    copies->piece_count = tensor->copy_count;
    reshard_status status = rs_transfer_copies(&conversion->arena, tensor, copies,
                                               &judge->transfers[judge->transfer_count]);
    judge->transfer_count += status == RESHARD_OK;
    return status;
}

reshard_status rs_conversion_check_copies(rs_conversion *conversion)
{
    const reshard_checkpoint *source = conversion->source;
    rs_engine judge;
    int64_t count = 0;
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; i < source->tensor_count; i++)
        count += source->tensors[i].copy_count != 0 && source->tensors[i].bytes != 0;
    if (count == 0)
        return RESHARD_OK;
    describe_judge(conversion, "comparing", &judge);
    judge.targets = conversion->source_files;
    judge.transfers =
        rs_arena_allocate_array(&conversion->arena, (size_t)count, sizeof(rs_transfer));
    if (judge.transfers == NULL)
        status = rs_allocation_status();
    for (int64_t i = 0; status == RESHARD_OK && i < source->tensor_count; i++) {
        if (source->tensors[i].copy_count != 0 && source->tensors[i].bytes != 0)
            status = add_copies(conversion, &source->tensors[i], &judge);
    }
    status = rs_conversion_agree(conversion, status);
    if (status == RESHARD_OK)
        status = rs_conversion_prepare(conversion, &judge);
    if (status == RESHARD_OK)
        status = rs_conversion_run_shared(conversion, &judge);
    return status == RESHARD_ERR_CHECK ? rs_fail_within(status, "replicas differ") : status;
}

reshard_status rs_conversion_verify(rs_conversion *conversion, rs_passing *passing)
{
    rs_engine judge;
    describe_judge(conversion, "verifying", &judge);
    judge.passing = passing;
    judge.targets = conversion->target_files;
    judge.transfer_count = conversion->engine.transfer_count;
    judge.transfers = conversion->engine.transfers;
    reshard_status status = rs_conversion_prepare(conversion, &judge);
    if (status == RESHARD_OK)
        status = rs_conversion_run_shared(conversion, &judge);
    return status == RESHARD_ERR_CHECK ? rs_fail_within(status, "the output is wrong") : status;
}

reshard_status rs_conversion_check_source(const rs_conversion *conversion)
{
    const reshard_checkpoint *source = conversion->source;
    for (int32_t i = 0; i < source->file_count; i++) {
        const rs_stored_file *file = &source->files[i];
        uint64_t bytes = 0;
        int64_t changed = 0;
        reshard_status status = rs_file_stamp(file->file, &bytes, &changed);
        if (status == RESHARD_OK && (bytes != file->bytes || changed != file->changed))
            status = rs_fail(RESHARD_ERR_CHECK, "%s: changed while it was converted",
                             rs_file_path(file->file));
        if (status != RESHARD_OK)
            return status;
    }
    return RESHARD_OK;
}

/* ---- the disk -------------------------------------------------------------------------------- */

#define PROBE_BYTES ((size_t)16 << 20)

static double now(void)
{
    struct timespec time;
    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* Seconds for reading the first bytes of the largest file, scaled to one byte. */
static reshard_status probe_read(const rs_conversion *conversion, void *memory, double *out_each)
{
    const reshard_checkpoint *source = conversion->source;
    int32_t largest = 0;
    if (source->file_count == 0)
        return RESHARD_OK;
    for (int32_t i = 1; i < source->file_count; i++) {
        if (source->files[i].bytes > source->files[largest].bytes)
            largest = i;
    }
    uint64_t bytes = source->files[largest].bytes;
    size_t count = bytes < PROBE_BYTES ? (size_t)bytes : PROBE_BYTES;
    double started = now();
    reshard_status status = rs_file_read(source->files[largest].file, memory, count, bytes - count);
    if (status == RESHARD_OK && count != 0)
        *out_each = (now() - started) / (double)count;
    return status;
}

/* Likewise for writing a file beside the target, which is removed again. */
static reshard_status probe_write(const rs_conversion *conversion, const void *memory,
                                  double *out_each)
{
    reshard_context *context = conversion->context;
    rs_file *file = NULL;
    size_t length = strlen(conversion->target_path);
    char *path = rs_allocate(context, length + sizeof ".probe");
    if (path == NULL)
        return rs_allocation_status();
    memcpy(path, conversion->target_path, length);
    memcpy(path + length, ".probe", sizeof ".probe");
    double started = now();
    reshard_status status = rs_file_create(context, path, &file);
    if (status == RESHARD_OK)
        status = rs_file_write(file, memory, PROBE_BYTES, 0);
    if (status == RESHARD_OK && !conversion->options->no_sync)
        status = rs_file_sync(file);
    if (status == RESHARD_OK)
        *out_each = (now() - started) / (double)PROBE_BYTES;
    if (file != NULL)
        (void)rs_path_remove(context, path);
    rs_file_close(file);
    rs_release(context, path, length + sizeof ".probe");
    return status;
}

reshard_status rs_conversion_estimate(const rs_conversion *conversion, double *out_seconds)
{
    double read_each = 0, write_each = 0;
    void *memory = rs_allocate_zeroed(conversion->context, PROBE_BYTES);
    if (memory == NULL)
        return rs_allocation_status();
    reshard_status status = probe_read(conversion, memory, &read_each);
    if (status == RESHARD_OK)
        status = probe_write(conversion, memory, &write_each);
    if (status == RESHARD_OK)
        *out_seconds = read_each * (double)conversion->source->bytes +
                       write_each * (double)conversion->engine.bytes_total;
    rs_release(conversion->context, memory, PROBE_BYTES);
    return status;
}
