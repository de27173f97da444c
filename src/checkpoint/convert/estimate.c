/* SPDX-License-Identifier: Apache-2.0 */
/* estimate.c - how long a run may take: measured by a short test of the disk, or computed from
 * known speeds. */
#include "base/context.h"
#include "base/error.h"
#include "base/options.h"
#include "checkpoint/convert/conversion.h"

#include <string.h>
#include <time.h>

#define PROBE_BYTES ((size_t)16 << 20)

static double now(void)
{
    struct timespec time;
    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* Measures seconds per byte by reading the end of the largest file. */
static reshard_status probe_read(const reshard_checkpoint *source, void *memory, double *out_each)
{
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

/* Measures seconds per byte by writing a file beside the target, which is then removed. */
static reshard_status probe_write(const rs_conversion_run *run, const void *memory,
                                  double *out_each)
{
    reshard_context *context = run->context;
    rs_file *file = NULL;
    size_t length = strlen(run->target);
    while (length > 1 && run->target[length - 1] == '/')
        length--; /* so that the file is beside the folder, not inside */
    char *path = rs_allocate(context, length + sizeof ".probe");
    if (path == NULL)
        return rs_allocation_status();
    memcpy(path, run->target, length);
    memcpy(path + length, ".probe", sizeof ".probe");
    double started = now();
    reshard_status status = rs_file_create(context, path, &file);
    if (status == RESHARD_OK)
        status = rs_file_write(file, memory, PROBE_BYTES, 0);
    if (status == RESHARD_OK && !run->options.no_sync)
        status = rs_file_sync(file);
    if (status == RESHARD_OK)
        *out_each = (now() - started) / (double)PROBE_BYTES;
    if (file != NULL)
        (void)rs_path_remove(context, path);
    rs_file_close(file);
    rs_release(context, path);
    return status;
}

reshard_status reshard_conversion_estimate(const reshard_conversion *conversion, const char *target,
                                           const reshard_conversion_run_options *options,
                                           double *out_seconds)
{
    double read_each = 0, write_each = 0;
    rs_conversion_run run = {.conversion = conversion,
                             .context = conversion->context,
                             .target = target != NULL ? target : ""};
    reshard_status status =
        rs_options_read("conversion run options", options, &run.options, sizeof run.options);
    if (status == RESHARD_OK)
        status = rs_run_check_paths(&run);
    if (status != RESHARD_OK)
        return status;
    void *memory = rs_allocate_zeroed(run.context, PROBE_BYTES);
    if (memory == NULL)
        return rs_allocation_status();
    status = probe_read(conversion->source, memory, &read_each);
    if (status == RESHARD_OK)
        status = probe_write(&run, memory, &write_each);
    if (status == RESHARD_OK)
        *out_seconds =
            read_each * (double)conversion->source->bytes + write_each * (double)conversion->bytes;
    rs_release(run.context, memory);
    return status;
}

static double seconds_at(uint64_t bytes, double speed)
{
    return speed > 0 ? (double)bytes / speed : 0;
}

static uint64_t without(uint64_t bytes, uint64_t part)
{
    return bytes > part ? bytes - part : 0;
}

/* How many bytes are read that become another dtype. */
static uint64_t count_cast(const reshard_conversion *conversion)
{
    uint64_t bytes = 0;
    for (int64_t i = 0; i < conversion->route_count; i++) {
        const rs_route *route = &conversion->routes[i];
        bytes += route->source->dtype != route->target->dtype ? route->source->bytes : 0;
    }
    return bytes;
}

reshard_status reshard_conversion_predict(const reshard_conversion *conversion,
                                          const reshard_cluster *given, double *out_seconds)
{
    reshard_cluster cluster;
    reshard_conversion_stats stats = {.size = sizeof stats};
    reshard_status status = rs_options_read("cluster", given, &cluster, sizeof cluster);
    if (status == RESHARD_OK &&
        !(cluster.read >= 0 && cluster.write >= 0 && cluster.copy >= 0 && cluster.cast >= 0))
        status = rs_fail(RESHARD_ERR_INVALID, "cluster: a speed is negative");
    if (status == RESHARD_OK)
        status = reshard_conversion_get_stats(conversion, &stats);
    if (status == RESHARD_OK)
        *out_seconds = seconds_at(without(stats.bytes_read, stats.bytes_shared), cluster.read) +
                       seconds_at(without(stats.bytes_written, stats.bytes_shared), cluster.write) +
                       seconds_at(stats.bytes_shared, cluster.copy) +
                       seconds_at(count_cast(conversion), cluster.cast);
    return status;
}
