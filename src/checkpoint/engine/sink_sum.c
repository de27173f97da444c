/* SPDX-License-Identifier: Apache-2.0 */
/* sink_sum.c - only reads blocks; rs_block_read sums them. */
#include "checkpoint/engine/sink.h"

#include "base/shape.h"

static reshard_status run(rs_worker *worker, const rs_route *route, const rs_block_box *box)
{
    reshard_status status = rs_block_read(worker, route, box);
    atomic_fetch_add(&worker->engine->bytes_done,
                     (uint64_t)(rs_volume(route->source->carried_ndim, box->size) *
                                route->source->element_bytes));
    return status;
}

const rs_sink rs_sink_sum = {.run = run};
