/* SPDX-License-Identifier: Apache-2.0 */
/* tracing.c - whether a command records a trace, and where. */
#include "cli/common/tracing.h"

#include "cli/common/failure.h"

#include <inttypes.h>
#include <stdlib.h>

int cli_tracing_is_on(cli_tracing *tracing)
{
    if (tracing->path == NULL)
        tracing->path = getenv("RESHARD_TRACE");
    if (tracing->path != NULL && tracing->path[0] == '\0')
        tracing->path = NULL;
    return tracing->path != NULL;
}

reshard_status cli_tracing_create(const cli_tracing *tracing, reshard_group *group,
                                  reshard_trace **out_trace)
{
    const reshard_trace_options options = {.size = sizeof options,
                                           .thread_events_max = tracing->events_max};
    return reshard_trace_create(NULL, group, tracing->path, &options, out_trace);
}

void cli_tracing_report(const cli_tracing *tracing, uint64_t dropped)
{
    if (dropped != 0)
        (void)cli_fail(CLI_DONE,
                       "%s: %" PRIu64
                       " events did not fit and were dropped; --trace-events keeps more",
                       tracing->path, dropped);
}
