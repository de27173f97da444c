/* SPDX-License-Identifier: Apache-2.0 */
/* trace.c - creates traces and opens their files. */
#include "trace/trace.h"

#include "base/context.h"
#include "base/error.h"
#include "base/options.h"
#include "transport/group.h"

#include <inttypes.h>
#include <string.h>

#define THREAD_EVENTS_DEFAULT 65536
#define THREAD_EVENTS_MAX ((int64_t)1 << 30)

/* ---- the file -------------------------------------------------------------------------------- */

/* An existing trace may be replaced. Any other file is probably a mistake of the user. */
static reshard_status check_replaceable(const rs_file *file, const char *path)
{
    static const char begins[] = "{\"traceEvents\":[";
    char found[sizeof begins] = "";
    uint64_t bytes = 0;
    reshard_status status = rs_file_size(file, &bytes);
    if (status == RESHARD_OK && bytes != 0)
        status = rs_file_read(file, found,
                              bytes < sizeof begins - 1 ? (size_t)bytes : sizeof begins - 1, 0);
    if (status == RESHARD_OK && bytes != 0 && strcmp(found, begins) != 0)
        status =
            rs_fail(RESHARD_ERR_INVALID, "%s exists and is not a trace; it is left alone", path);
    return status;
}

static reshard_status open_file(reshard_trace *trace)
{
    rs_path_kind kind = RS_PATH_NONE;
    reshard_status status = rs_path_kind_of(trace->path, &kind);
    if (status != RESHARD_OK)
        return status;
    if (kind == RS_PATH_NONE) {
        status = rs_file_create(trace->context, trace->path, &trace->file);
        trace->is_new = status == RESHARD_OK;
        return status;
    }
    if (kind != RS_PATH_FILE)
        return rs_fail(RESHARD_ERR_INVALID, "%.300s: a trace can only be written to a file",
                       trace->path);
    status = rs_file_open_write(trace->context, trace->path, &trace->file);
    return status == RESHARD_OK ? check_replaceable(trace->file, trace->path) : status;
}

/* ---- creation -------------------------------------------------------------------------------- */

static reshard_status fill(reshard_trace *trace, const char *path,
                           const reshard_trace_options *options)
{
    trace->thread_events_max =
        options->thread_events_max != 0 ? options->thread_events_max : THREAD_EVENTS_DEFAULT;
    if (trace->thread_events_max < 0 || trace->thread_events_max > THREAD_EVENTS_MAX)
        return rs_fail(RESHARD_ERR_INVALID,
                       "trace: %" PRId64 " events for each thread: from 1 to %" PRId64
                       " are possible",
                       options->thread_events_max, THREAD_EVENTS_MAX);
    if (path == NULL || path[0] == '\0')
        return rs_fail(RESHARD_ERR_INVALID, "trace: the path of the file is missing");
    reshard_status status = rs_mutex_init(&trace->mutex);
    trace->has_mutex = status == RESHARD_OK;
    if (status != RESHARD_OK)
        return status;
    trace->path = rs_allocate(trace->context, strlen(path) + 1);
    if (trace->path == NULL)
        return rs_allocation_status();
    memcpy(trace->path, path, strlen(path) + 1);
    return trace->group == NULL || reshard_group_rank(trace->group) == 0 ? open_file(trace)
                                                                         : RESHARD_OK;
}

reshard_status rs_trace_create_by(reshard_context *context, reshard_group *group, const char *path,
                                  const reshard_trace_options *options, const rs_trace_clock *clock,
                                  reshard_trace **out_trace)
{
    reshard_trace_options chosen = {0};
    reshard_trace *trace = NULL;
    reshard_status status = rs_options_read("trace options", options, &chosen, sizeof chosen);
    if (status == RESHARD_OK) {
        trace = rs_allocate_zeroed(context, sizeof *trace);
        status = trace != NULL ? RESHARD_OK : rs_allocation_status();
    }
    if (status == RESHARD_OK) {
        trace->context = context;
        trace->clock = *clock;
        trace->group = group != NULL ? reshard_group_retain(group) : NULL;
        rs_arena_init(&trace->arena, context);
        trace->names.arena = &trace->arena;
        status = fill(trace, path, &chosen);
    }
    if (group != NULL)
        status = reshard_group_agree(group, status);
    if (status == RESHARD_OK)
        status = rs_clock_measure(group, clock, &trace->begin);
    if (status != RESHARD_OK) {
        reshard_trace_destroy(trace);
        return status;
    }
    trace->made = clock->now(clock->user);
    *out_trace = trace;
    return RESHARD_OK;
}

reshard_status reshard_trace_create(reshard_context *context, reshard_group *group,
                                    const char *path, const reshard_trace_options *options,
                                    reshard_trace **out_trace)
{
    rs_trace_clock clock = rs_trace_clock_here();
    group = group != NULL ? group : rs_group_current();
    return rs_trace_create_by(context, group, path, options, &clock, out_trace);
}

static void release_tracks(reshard_trace *trace)
{
    while (trace->tracks != NULL) {
        rs_trace_track *track = trace->tracks;
        trace->tracks = track->next;
        rs_release(trace->context, track->events);
        rs_release(trace->context, track);
    }
}

void reshard_trace_destroy(reshard_trace *trace)
{
    if (trace == NULL)
        return;
    rs_file_close(trace->file);
    if (trace->is_new && !trace->is_whole)
        (void)rs_path_remove(trace->context, trace->path);
    release_tracks(trace);
    rs_intern_release(&trace->names);
    rs_arena_release(&trace->arena);
    if (trace->has_mutex)
        rs_mutex_release(&trace->mutex);
    reshard_group_release(trace->group);
    rs_release(trace->context, trace->path);
    rs_release(trace->context, trace);
}
