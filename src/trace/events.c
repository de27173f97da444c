/* SPDX-License-Identifier: Apache-2.0 */
/*
 * events.c - writes events in the Trace Event Format of Chrome's trace viewer: spans are complete
 * events ("X"), arrows are flow events ("s" and "f") that bind to the enclosing span, names of
 * ranks and threads are metadata ("M"). Times are in microseconds, with three decimals.
 */
#include "trace/trace.h"

#include <inttypes.h>
#include <stdio.h>

static const char *const names[] = {
#define NAME(name, text, category) text,
    RS_TRACE_KINDS(NAME)
#undef NAME
};

static const char *const categories[] = {
#define CATEGORY(name, text, category) category,
    RS_TRACE_KINDS(CATEGORY)
#undef CATEGORY
};

static void write_field(rs_json_writer *w, const char *key, const char *value)
{
    rs_json_writer_text(w, key);
    rs_json_writer_text(w, value);
}

/* Writes nanoseconds as microseconds. */
static void write_time(rs_json_writer *w, const char *key, int64_t ns)
{
    char digits[40];
    int64_t size = ns < 0 ? -ns : ns;
    (void)snprintf(digits, sizeof digits, "%s%" PRId64 ".%03d", ns < 0 ? "-" : "", size / 1000,
                   (int)(size % 1000));
    write_field(w, key, digits);
}

static void write_place(rs_json_writer *w, const rs_trace_track *track)
{
    rs_json_writer_text(w, ",\"pid\":");
    rs_json_writer_unsigned(w, (uint64_t)track->rank);
    rs_json_writer_text(w, ",\"tid\":");
    rs_json_writer_unsigned(w, (uint64_t)track->thread);
}

/* ---- arguments ------------------------------------------------------------------------------- */

static void write_key(rs_json_writer *w, const char *key, bool *began)
{
    rs_json_writer_text(w, *began ? ",\"" : "\"");
    rs_json_writer_text(w, key);
    rs_json_writer_text(w, "\":");
    *began = true;
}

static void write_number(rs_json_writer *w, const char *key, int64_t number, bool *began)
{
    if (number == RS_TRACE_NONE)
        return;
    write_key(w, key, began);
    if (number == RS_TRACE_SEVERAL)
        rs_json_writer_text(w, "\"several\"");
    else
        rs_json_writer_unsigned(w, (uint64_t)number);
}

static void write_arguments(rs_json_writer *w, const reshard_trace *trace,
                            const rs_trace_event *event)
{
    bool began = false;
    rs_json_writer_text(w, ",\"args\":{");
    if (event->tensor >= 0) {
        write_key(w, "tensor", &began);
        rs_json_writer_string(w, trace->names.items[event->tensor]);
    } else {
        write_number(w, "tensor", event->tensor, &began);
    }
    if (event->bytes != 0) {
        write_key(w, "bytes", &began);
        rs_json_writer_unsigned(w, event->bytes);
    }
    if (event->kept != 0) {
        write_key(w, "kept", &began);
        rs_json_writer_unsigned(w, event->kept);
    }
    write_number(w, "peer", event->peer, &began);
    write_number(w, "round", event->round, &began);
    write_number(w, "segment", event->segment, &began);
    write_number(w, "stage", event->stage, &began);
    write_number(w, "exec", event->exec, &began);
    write_number(w, "run", event->run, &began);
    rs_json_writer_text(w, "}");
}

/* ---- events ---------------------------------------------------------------------------------- */

static void write_metadata(rs_json_writer *w, const rs_trace_track *track, const char *name,
                           const char *what, int32_t number)
{
    write_field(w, ",\n{\"name\":\"", name);
    rs_json_writer_text(w, "\",\"ph\":\"M\",\"ts\":0");
    write_place(w, track);
    write_field(w, ",\"args\":{\"name\":\"", what);
    if (number >= 0)
        rs_json_writer_unsigned(w, (uint64_t)number);
    rs_json_writer_text(w, "\"}}");
}

void rs_trace_write_labels(rs_json_writer *w, const rs_trace_track *track)
{
    write_metadata(w, track, "process_name", "rank ", track->rank);
    if (track->label != NULL)
        write_metadata(w, track, "thread_name", track->label, -1);
    else
        write_metadata(w, track, "thread_name", "thread ", track->thread);
}

void rs_trace_write_event(rs_json_writer *w, const rs_trace_track *track,
                          const rs_trace_event *event, const rs_clock_line *clocks)
{
    int64_t begin = rs_clock_at_zero(clocks, event->begin) - clocks->origin;
    bool is_flow = event->kind == RS_TRACE_FLOW_BEGIN || event->kind == RS_TRACE_FLOW_END;
    write_field(w, ",\n{\"name\":\"", names[event->kind]);
    write_field(w, "\",\"cat\":\"", categories[event->kind]);
    if (is_flow) {
        char id[24];
        (void)snprintf(id, sizeof id, "0x%" PRIx64, event->flow);
        rs_json_writer_text(w, event->kind == RS_TRACE_FLOW_BEGIN ? "\",\"ph\":\"s\""
                                                                  : "\",\"ph\":\"f\",\"bp\":\"e\"");
        write_field(w, ",\"id\":\"", id);
        write_time(w, "\",\"ts\":", begin);
    } else {
        int64_t end = rs_clock_at_zero(clocks, event->end) - clocks->origin;
        write_time(w, "\",\"ph\":\"X\",\"ts\":", begin);
        write_time(w, ",\"dur\":", end < begin ? 0 : end - begin);
    }
    write_place(w, track);
    if (!is_flow)
        write_arguments(w, track->trace, event);
    rs_json_writer_text(w, "}");
}
