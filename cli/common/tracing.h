/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tracing.h - traces of commands: --trace FILE, or the variable RESHARD_TRACE for those who cannot
 * reach the command line. The library reads no environment; commands do.
 */
#ifndef CLI_TRACING_H
#define CLI_TRACING_H

#include <reshard/trace.h>

/* What a command's options say. */
typedef struct cli_tracing {
    const char *path;   /* --trace */
    int32_t events_max; /* --trace-events; 0: the library's */
} cli_tracing;

/* The two lines of a command's table of options, whose values have a cli_tracing at `field`. */
#define CLI_TRACING_OPTIONS(values, field)                                            \
    {"trace", CLI_TEXT, offsetof(values, field.path),                                 \
     "FILE",  0,        "write who did what when, for chrome://tracing or Perfetto"}, \
    {                                                                                 \
        "trace-events", CLI_RANK, offsetof(values, field.events_max), "N", 0,         \
            "events kept for each thread (65536)"                                     \
    }

/* Takes RESHARD_TRACE where --trace is not given. Returns whether there is a trace to be made. */
int cli_tracing_is_on(cli_tracing *tracing);
/* As reshard_trace_create; the group may be NULL. */
reshard_status cli_tracing_create(const cli_tracing *tracing, reshard_group *group,
                                  reshard_trace **out_trace);
/* Says on standard error what did not fit. */
void cli_tracing_report(const cli_tracing *tracing, uint64_t dropped);

#endif
