/* SPDX-License-Identifier: Apache-2.0 */
/* flight.c - see flight.h. Everything is allocated before the ranks agree to start. */
#include "tensor/core/flight.h"

#include "base/context.h"
#include "base/error.h"
#include "tensor/core/move.h"
#include "tensor/core/scope.h"

#include <assert.h>

static reshard_status prepare(reshard_context *context, reshard_tensor *source,
                              const rs_exec_key *key, reshard_tensor *target)
{
    rs_flight *flight = rs_allocate_zeroed(context, sizeof *flight);
    if (flight == NULL)
        return rs_allocation_status();
    flight->context = context;
    flight->tensor = target;
    flight->source = reshard_tensor_retain(source);
    flight->version = rs_tensor_version(source);
    flight->cache = rs_exec_cache_retain(source->distribution->cache);
    rs_exec_key_digest(key, flight->digest);
    target->distribution->flight = flight;
    return RESHARD_OK;
}

static void let_go(rs_flight *flight)
{
    rs_exec_cache_release(flight->cache);
    reshard_tensor_release(flight->source);
    flight->cache = NULL;
    flight->source = NULL;
    flight->exec = NULL;
}

reshard_status rs_flight_start(reshard_context *context, reshard_tensor *source,
                               reshard_layout *layout, reshard_dtype dtype,
                               reshard_tensor **out_tensor)
{
    rs_exec_key key = {source->distribution->layout, layout, source->dtype, dtype, false};
    reshard_tensor *target = NULL;
    bool still = false;
    reshard_status status = rs_move_target(context, source, &key, &target, &still);
    if (status == RESHARD_OK)
        status = prepare(context, source, &key, target);
    rs_flight *flight = target != NULL ? target->distribution->flight : NULL;
    reshard_exec *exec = NULL;
    status = rs_move_begin(context, status, source, &key, still, target, &exec);
    if (status == RESHARD_OK && exec != NULL) {
        flight->exec = rs_exec_cache_take(flight->cache, flight->digest);
        assert(flight->exec == exec);
    }
    return rs_tensor_hand_out(status, target, out_tensor);
}

reshard_status rs_flight_land(const reshard_tensor *tensor)
{
    rs_flight *flight = tensor->distribution->flight;
    if (flight == NULL || flight->source == NULL)
        return RESHARD_OK;
    reshard_status status = RESHARD_OK;
    if (flight->exec != NULL) {
        status = reshard_exec_wait(flight->exec);
        if (status == RESHARD_OK)
            rs_exec_cache_give(flight->cache, flight->digest, flight->exec);
        else
            reshard_exec_destroy(flight->exec);
    }
    if (status == RESHARD_OK && rs_tensor_version(flight->source) != flight->version)
        status = rs_fail(RESHARD_ERR_INVALID,
                         "the tensor was overwritten while it was being redistributed");
    let_go(flight);
    return status;
}

void rs_flight_destroy(rs_flight *flight)
{
    if (flight == NULL)
        return;
    (void)rs_flight_land(flight->tensor); /* nobody wants the result, nor an error of it */
    reshard_layout_release(flight->back);
    rs_release(flight->context, flight);
}
