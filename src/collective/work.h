/* SPDX-License-Identifier: Apache-2.0 */
/*
 * work.h - something under way: a run of an exec, or a delivery between two ranks.
 */
#ifndef RS_COLLECTIVE_WORK_H
#define RS_COLLECTIVE_WORK_H

#include <reshard/collective.h>
#include <reshard/exec.h>

#include "collective/delivery.h"

#include <stdbool.h>

struct reshard_work {
    reshard_context *context;
    reshard_group *group;
    reshard_exec *exec;    /* a collective, or */
    rs_delivery *delivery; /* NULL: it is a run */
    bool under_way, failed;
    char why[256]; /* failed: words for who asks later */
    /* of a collective, for another run: sources first, then targets */
    void **buffers;
    size_t buffers_bytes;
    int64_t source_count;
    /* A target that is not written before the run is over; NULL: none. */
    void *aside, *place;
    size_t aside_bytes;
};

/* Room for a work on `group`, which is retained, and for so many buffers. Destroyed by
 * reshard_work_destroy. */
reshard_status rs_work_create(reshard_context *context, reshard_group *group, int64_t source_count,
                              int64_t target_count, reshard_work **out_work);
/* The first run, when all is set. */
reshard_status rs_work_begin(reshard_work *work);
/* A blocking call: what was started is waited for and released. `status`: of the start. */
reshard_status rs_work_complete(reshard_status status, reshard_work *work);

#endif
