/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tracing.h - traces of commands: --trace FILE, or the environment variable RESHARD_TRACE where the
 * command line is out of reach. (Only commands read the environment, never the library.)
 */
#ifndef CLI_TRACING_H
#define CLI_TRACING_H

#include <reshard/trace.h>

/* The values of the two options. */
typedef struct cli_tracing {
    const char *path;   /* --trace */
    int32_t events_max; /* --trace-events; 0: the library's default */
} cli_tracing;

/* Rows for a command's option table; its struct `values` has a cli_tracing at `field`. */
#define CLI_TRACING_OPTIONS(values, field)                                    \
    {"trace", CLI_TEXT, offsetof(values, field.path),                         \
     "FILE",  0,        "write a trace for chrome://tracing or Perfetto"},    \
    {                                                                         \
        "trace-events", CLI_RANK, offsetof(values, field.events_max), "N", 0, \
            "events kept for each thread (65536)"                             \
    }

/* Uses RESHARD_TRACE if --trace was not given. Returns whether a trace is wanted. */
int cli_tracing_is_on(cli_tracing *tracing);
/* Like reshard_trace_create; the group may be NULL. */
reshard_status cli_tracing_create(const cli_tracing *tracing, reshard_group *group,
                                  reshard_trace **out_trace);
/* If events were dropped, says so on standard error. */
void cli_tracing_report(const cli_tracing *tracing, uint64_t dropped);

#endif
