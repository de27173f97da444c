/* SPDX-License-Identifier: Apache-2.0 */
/* record.c - gives tracks to threads, and appends events to them. */
#include "trace/record.h"

#include "base/context.h"
#include "base/error.h"
#include "base/thread_state.h"
#include "base/utf8.h"
#include "trace/trace.h"

#include <string.h>

#define NAME_BYTES_MAX 1024

/* ---- tracks ---------------------------------------------------------------------------------- */

static rs_trace_track *find_track(const reshard_trace *trace, int32_t rank, int32_t thread)
{
    rs_trace_track *found = trace->tracks;
    while (found != NULL && (found->rank != rank || found->thread != thread))
        found = found->next;
    return found;
}

/* Finds the first track from *thread on that no thread holds. Returns NULL if there is none;
 * *thread is then the number for a new one. */
static rs_trace_track *find_free(const reshard_trace *trace, int32_t rank, int32_t *thread)
{
    rs_trace_track *found = find_track(trace, rank, *thread);
    while (found != NULL && found->holds != 0)
        found = find_track(trace, rank, ++*thread);
    return found;
}

static rs_trace_track *find_mine(const reshard_trace *trace, int32_t rank, const void *holder)
{
    for (rs_trace_track *t = trace->tracks; t != NULL; t = t->next) {
        if (t->rank == rank && t->holds != 0 && t->holder == holder)
            return t;
    }
    return NULL;
}

static reshard_status add_track(reshard_trace *trace, int32_t rank, int32_t thread,
                                int64_t capacity, rs_trace_track **out_track)
{
    if (capacity == 0)
        capacity = trace->thread_events_max;
    rs_trace_track *track = rs_allocate_zeroed(trace->context, sizeof *track);
    if (track == NULL)
        return rs_allocation_status();
    /* Not zeroed, so that the pages are not touched before there are events. */
    track->events = rs_allocate_array(trace->context, (size_t)capacity, sizeof *track->events);
    if (track->events == NULL) {
        rs_release(trace->context, track);
        return rs_allocation_status();
    }
    track->trace = trace;
    track->rank = rank;
    track->thread = thread;
    track->capacity = capacity;
    track->next = trace->tracks;
    trace->tracks = track;
    *out_track = track;
    return RESHARD_OK;
}

reshard_status rs_trace_take(reshard_trace *trace, int32_t rank, int32_t thread, int64_t capacity,
                             rs_trace_track **out_track)
{
    const void *holder = rs_thread_state_get(); /* its address identifies the thread */
    reshard_status status = RESHARD_OK;
    rs_mutex_lock(&trace->mutex);
    rs_trace_track *track = find_mine(trace, rank, holder);
    if (track == NULL)
        track = find_free(trace, rank, &thread);
    if (track == NULL)
        status = add_track(trace, rank, thread, capacity, &track);
    if (status == RESHARD_OK) {
        track->holder = holder;
        track->holds++;
        *out_track = track;
    }
    rs_mutex_unlock(&trace->mutex);
    return status;
}

void rs_trace_give_back(rs_trace_track *track)
{
    if (track == NULL)
        return;
    rs_mutex_lock(&track->trace->mutex);
    track->holds--;
    rs_mutex_unlock(&track->trace->mutex);
}

/* Makes a name that the file and the viewer can show: valid UTF-8, of limited length. */
static rs_slice make_name(rs_slice name, char out[NAME_BYTES_MAX])
{
    size_t count = 0;
    for (size_t i = 0, length; i < name.count; i += length) {
        length = rs_utf8_measure(name.bytes + i, name.count - i);
        bool is_text = length != 0;
        length = is_text ? length : 1;
        if (count + length > NAME_BYTES_MAX)
            break;
        memcpy(out + count, is_text ? name.bytes + i : "?", length);
        count += length;
    }
    return (rs_slice){out, count};
}

reshard_status rs_trace_name(reshard_trace *trace, rs_slice name, int32_t *out_number)
{
    int64_t number = 0;
    char made[NAME_BYTES_MAX];
    rs_slice shown = make_name(name, made);
    rs_mutex_lock(&trace->mutex);
    reshard_status status = rs_intern_add(&trace->names, shown, &number);
    rs_mutex_unlock(&trace->mutex);
    if (status == RESHARD_OK)
        *out_number = (int32_t)number;
    return status;
}

void rs_trace_set_origin(reshard_trace *trace, const char *text)
{
    trace->origin = text;
}

void rs_trace_leave_out(reshard_trace *trace, int32_t ranks)
{
    trace->ranks_left_out = ranks;
}

/* ---- events ---------------------------------------------------------------------------------- */

uint64_t rs_trace_now(const rs_trace_track *track)
{
    const rs_trace_clock *clock = &track->trace->clock;
    return clock->now(clock->user);
}

/* Threads that hand work to each other may share a track, so places are claimed atomically. The
 * writer of the file needs no order here: it has synchronised with these threads by other means. */
void rs_trace_add(rs_trace_track *track, const rs_trace_event *event)
{
    int64_t place = atomic_fetch_add_explicit(&track->claimed, 1, memory_order_relaxed);
    if (place < track->capacity)
        track->events[place] = *event;
}

rs_trace_event rs_trace_span(rs_trace_kind kind, uint64_t begin)
{
    return (rs_trace_event){.begin = begin,
                            .end = begin,
                            .tensor = RS_TRACE_NONE,
                            .peer = RS_TRACE_NONE,
                            .round = RS_TRACE_NONE,
                            .segment = RS_TRACE_NONE,
                            .exec = RS_TRACE_NONE,
                            .run = RS_TRACE_NONE,
                            .stage = RS_TRACE_NONE,
                            .kind = (uint8_t)kind};
}

void rs_trace_flow(rs_trace_track *track, rs_trace_kind kind, uint64_t at, uint64_t flow)
{
    rs_trace_event event = rs_trace_span(kind, at);
    event.flow = flow;
    rs_trace_add(track, &event);
}
