/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write.c - writes a trace to its file. Every rank turns its events into text, a chunk at a time.
 * Rank 0 writes its own chunks and then those of each other rank as they arrive, so that no rank
 * holds more than a chunk of text.
 *
 * A rank that fails says so in place of its next chunk, and all ranks agree on the status at the
 * end.
 */
#include "base/context.h"
#include "base/error.h"
#include "trace/trace.h"
#include "transport/group.h"

#include <string.h>

#define CHUNK_BYTES ((size_t)64 << 10)
#define FAILED UINT64_MAX /* sent instead of the length of a chunk */

/* What each rank tells all other ranks. */
typedef struct summary {
    rs_clock_line clocks; /* the origin is not set */
    int64_t made;         /* time of creation, by rank 0's clock */
    uint64_t events, dropped;
} summary;

/* Where text goes: to the file on rank 0, or from another rank to rank 0. */
typedef struct output {
    reshard_trace *trace;
    rs_json_writer writer;
    uint64_t at; /* offset in the file */
} output;

/* ---- text ------------------------------------------------------------------------------------ */

/* Passes on what the writer holds. Sent to rank 0, an empty chunk ends the text. */
static reshard_status flush(output *out)
{
    reshard_trace *trace = out->trace;
    size_t count = (size_t)out->writer.count;
    reshard_status status = out->writer.status;
    out->writer.count = 0;
    if (trace->group == NULL || reshard_group_rank(trace->group) == 0) {
        if (status == RESHARD_OK)
            status = rs_file_write(trace->file, out->writer.bytes, count, out->at);
        out->at += count;
        return status;
    }
    uint64_t length = status == RESHARD_OK ? count : FAILED;
    reshard_status sent = rs_group_send_small(trace->group, 0, &length, sizeof length);
    if (sent == RESHARD_OK && status == RESHARD_OK && count != 0)
        sent = rs_group_send_small(trace->group, 0, out->writer.bytes, count);
    return status == RESHARD_OK ? sent : status;
}

static reshard_status flush_if_full(output *out)
{
    return (size_t)out->writer.count >= CHUNK_BYTES ? flush(out) : RESHARD_OK;
}

static int64_t count_kept(const rs_trace_track *track)
{
    int64_t claimed = atomic_load(&((rs_trace_track *)(uintptr_t)track)->claimed);
    return claimed < track->capacity ? claimed : track->capacity;
}

/* Writes everything that this rank has recorded. The last chunk stays in the writer, and so does
 * the writer's status. */
static reshard_status write_tracks(output *out, const rs_clock_line *clocks)
{
    reshard_status status = RESHARD_OK;
    for (const rs_trace_track *t = out->trace->tracks; t != NULL && status == RESHARD_OK;
         t = t->next) {
        int64_t count = count_kept(t);
        rs_trace_write_labels(&out->writer, t);
        status = flush_if_full(out);
        for (int64_t i = 0; i < count && status == RESHARD_OK; i++) {
            rs_trace_write_event(&out->writer, t, &t->events[i], clocks);
            status = flush_if_full(out);
        }
    }
    return status;
}

/* Receives text from another rank until it says that there is no more. `status` is the status of
 * the file so far: after a failure the text is received and dropped, so that the sender does not
 * wait forever. */
static reshard_status take_text(output *out, int32_t rank, char *chunk, size_t capacity,
                                reshard_status status)
{
    reshard_group *group = out->trace->group;
    for (;;) {
        uint64_t length = 0;
        reshard_status received = rs_group_receive_small(group, rank, &length, sizeof length);
        if (received != RESHARD_OK)
            return received;
        if (length == 0 || length == FAILED)
            return status; /* a rank that failed reports its error when all agree */
        if (length > capacity)
            return rs_fail(RESHARD_ERR_GROUP_BROKEN, "trace: rank %d sends more than a chunk",
                           rank);
        received = rs_group_receive_small(group, rank, chunk, (size_t)length);
        if (received != RESHARD_OK)
            return received;
        if (status == RESHARD_OK)
            status = rs_file_write(out->trace->file, chunk, (size_t)length, out->at);
        out->at += length;
    }
}

/* ---- head and tail --------------------------------------------------------------------------- */

static void write_head(rs_json_writer *w)
{
    rs_json_writer_text(w, "{\"traceEvents\":[\n{\"name\":\"reshard\",\"ph\":\"M\",\"ts\":0,"
                           "\"pid\":0,\"tid\":0,\"args\":{\"version\":\"");
    rs_json_writer_text(w, reshard_version());
    rs_json_writer_text(w, "\"}}");
}

static void write_signed(rs_json_writer *w, const char *key, int64_t number)
{
    rs_json_writer_text(w, key);
    if (number < 0)
        rs_json_writer_text(w, "-");
    rs_json_writer_unsigned(w, number < 0 ? 0 - (uint64_t)number : (uint64_t)number);
}

static void write_summary(rs_json_writer *w, int32_t rank, const summary *s)
{
    write_signed(w, rank == 0 ? "\n{\"rank\":" : ",\n{\"rank\":", rank);
    write_signed(w, ",\"events\":", (int64_t)s->events);
    write_signed(w, ",\"dropped\":", (int64_t)s->dropped);
    if (s->clocks.begin.round_trip != 0) {
        write_signed(w, ",\"offset_ns\":[", s->clocks.begin.offset);
        write_signed(w, ",", s->clocks.end.offset);
        write_signed(w, "],\"round_trip_ns\":[", s->clocks.begin.round_trip);
        write_signed(w, ",", s->clocks.end.round_trip);
        rs_json_writer_text(w, "]");
    }
    rs_json_writer_text(w, "}");
}

static const char *name_clock(const reshard_trace *trace, int32_t count, const summary *all)
{
    if (trace->origin != NULL)
        return trace->origin;
    for (int32_t i = 0; i < count; i++) {
        if (all[i].clocks.begin.round_trip != 0)
            return "CLOCK_MONOTONIC of rank 0's host. Ranks with round_trip_ns are on others: "
                   "offset_ns was measured when the trace was begun and when it was written, by "
                   "the shortest of 16 round trips, and is interpolated; it may be wrong by half "
                   "of the round trip";
    }
    return "CLOCK_MONOTONIC of one host";
}

static reshard_status write_tail(output *out, int32_t count, const summary *all)
{
    rs_json_writer *w = &out->writer;
    reshard_status status = RESHARD_OK;
    rs_json_writer_text(w, "\n],\n\"displayTimeUnit\":\"ms\",\n\"otherData\":{\"clock\":\"");
    rs_json_writer_text(w, name_clock(out->trace, count, all));
    write_signed(w, "\",\n\"dropped\":", (int64_t)out->trace->dropped_by_all);
    if (out->trace->ranks_left_out != 0)
        write_signed(w, ",\n\"ranks_left_out\":", out->trace->ranks_left_out);
    rs_json_writer_text(w, ",\n\"ranks\":[");
    for (int32_t i = 0; i < count && status == RESHARD_OK; i++) {
        write_summary(w, i, &all[i]);
        status = flush_if_full(out);
    }
    rs_json_writer_text(w, "\n]}}\n");
    return status == RESHARD_OK ? flush(out) : status;
}

/* ---- the whole file -------------------------------------------------------------------------- */

static void count_events(const reshard_trace *trace, summary *mine)
{
    for (const rs_trace_track *t = trace->tracks; t != NULL; t = t->next) {
        int64_t kept = count_kept(t);
        mine->events += (uint64_t)kept;
        mine->dropped += (uint64_t)(atomic_load(&((rs_trace_track *)(uintptr_t)t)->claimed) - kept);
    }
}

static summary sum_up(const reshard_trace *trace, const rs_clock_point *end)
{
    summary mine = {.clocks = {.begin = trace->begin, .end = *end}};
    mine.made = trace->origin != NULL ? 0 : rs_clock_at_zero(&mine.clocks, trace->made);
    count_events(trace, &mine);
    return mine;
}

/* Rank 0: writes the file, from its head to its tail. */
static reshard_status write_file(output *out, const rs_clock_line *clocks, int32_t count,
                                 const summary *all)
{
    reshard_trace *trace = out->trace;
    size_t capacity = 2 * CHUNK_BYTES;
    char *chunk = rs_allocate(trace->context, capacity);
    reshard_status status = chunk != NULL ? RESHARD_OK : rs_allocation_status();
    trace->is_whole = false;
    if (trace->group != NULL)
        status = reshard_group_agree(trace->group, status);
    if (status == RESHARD_OK) {
        status = rs_file_resize(trace->file, 0, false);
        write_head(&out->writer);
        if (status == RESHARD_OK)
            status = write_tracks(out, clocks);
        if (status == RESHARD_OK)
            status = flush(out);
        for (int32_t i = 1; i < count; i++)
            status = take_text(out, i, chunk, capacity, status);
        if (status == RESHARD_OK)
            status = write_tail(out, count, all);
    }
    rs_release(trace->context, chunk);
    return status;
}

/* Other ranks: send their events to rank 0. */
static reshard_status send_file(output *out, const rs_clock_line *clocks)
{
    reshard_status status = reshard_group_agree(out->trace->group, RESHARD_OK);
    if (status != RESHARD_OK)
        return status;
    status = write_tracks(out, clocks);
    if (status == RESHARD_OK && out->writer.count != 0)
        status = flush(out);
    return status == RESHARD_OK ? flush(out) : status; /* an empty chunk is the end */
}

/* Shares every rank's summary with all ranks; `all` has room for `count` of them. Collective. */
static reshard_status share_summaries(reshard_trace *trace, int32_t count, summary *all)
{
    rs_clock_point end;
    reshard_status status = rs_clock_measure(trace->group, &trace->clock, &end);
    if (status != RESHARD_OK)
        return status;
    summary mine = sum_up(trace, &end);
    all[0] = mine;
    if (trace->group != NULL)
        status = reshard_group_gather_bytes(trace->group, &mine, sizeof mine, all);
    trace->dropped_by_all = 0;
    for (int32_t i = 0; i < count && status == RESHARD_OK; i++)
        trace->dropped_by_all += all[i].dropped;
    return status;
}

reshard_status reshard_trace_write(reshard_trace *trace)
{
    int32_t count = trace->group != NULL ? reshard_group_size(trace->group) : 1;
    int32_t rank = trace->group != NULL ? reshard_group_rank(trace->group) : 0;
    output out = {.trace = trace};
    rs_json_writer_init(&out.writer, trace->context);
    size_t bytes = (size_t)count * sizeof(summary);
    summary *all = rs_allocate(trace->context, bytes);
    reshard_status status = all != NULL ? RESHARD_OK : rs_allocation_status();
    if (trace->group != NULL)
        status = reshard_group_agree(trace->group, status);
    if (status == RESHARD_OK)
        status = share_summaries(trace, count, all);
    if (status == RESHARD_OK) {
        rs_clock_line clocks = all[rank].clocks;
        clocks.origin = all[0].made;
        for (int32_t i = 1; i < count; i++)
            clocks.origin = all[i].made < clocks.origin ? all[i].made : clocks.origin;
        status = rank == 0 ? write_file(&out, &clocks, count, all) : send_file(&out, &clocks);
        if (trace->group != NULL)
            status = reshard_group_agree(trace->group, status);
        trace->is_whole = status == RESHARD_OK;
    }
    rs_release(trace->context, all);
    rs_json_writer_release(&out.writer);
    return status;
}

uint64_t reshard_trace_dropped(const reshard_trace *trace)
{
    summary mine = {.events = 0};
    count_events(trace, &mine);
    return mine.dropped > trace->dropped_by_all ? mine.dropped : trace->dropped_by_all;
}
