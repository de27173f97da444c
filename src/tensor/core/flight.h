/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flight.h - a move between layouts that has been started and not yet waited for.
 *
 * Invariants:
 *  1. A flight belongs to the distribution of the tensor that it fills. Whoever releases that
 *     tensor early waits for the flight, so that no rank writes into freed memory and no peer
 *     waits for one that has given up.
 *  2. Its exec is taken out of the group's cache until the flight has landed, so that another
 *     move between the same layouts cannot meet it half way.
 */
#ifndef RS_TENSOR_CORE_FLIGHT_H
#define RS_TENSOR_CORE_FLIGHT_H

#include <reshard/distributed.h>

#include "tensor/core/distribution.h"

/* What callers know as reshard_redistribution. */
typedef struct reshard_redistribution rs_flight;

struct reshard_redistribution {
    reshard_context *context;
    reshard_tensor *tensor; /* the one that is filled, which owns this */
    reshard_tensor *source; /* retained while the flight is under way */
    uint64_t version;       /* of the source */
    rs_exec_cache *cache;   /* retained while the flight is under way */
    uint64_t digest[2];
    reshard_exec *exec; /* NULL if nothing is under way */
    bool waited;        /* the caller has had the result */
    /* How the gradient comes back, for those who record the move. Set by whoever started it. */
    reshard_layout *back; /* NULL or owned */
    reshard_dtype dtype, gradient_dtype;
    bool own_layout;
};

/* Collective. Starts what rs_redistribute does. The values of *out_tensor are there after
 * rs_flight_land(*out_tensor). */
reshard_status rs_flight_start(reshard_context *context, reshard_tensor *source,
                               reshard_layout *layout, reshard_dtype dtype,
                               reshard_tensor **out_tensor);
/* Local: the other ranks must have started, but need not wait. Does nothing if the tensor has no
 * flight, or its flight has landed. Errors: those of the group; INVALID if the source was
 * overwritten meanwhile. */
reshard_status rs_flight_land(const reshard_tensor *tensor);

#endif
