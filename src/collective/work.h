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
    reshard_exec *exec;    /* for a collective; otherwise NULL */
    rs_delivery *delivery; /* for a delivery; otherwise NULL */
    bool under_way, failed;
    char why[256]; /* the text of a failure, for later calls */
    /* Of a collective, for further runs: sources first, then targets. */
    void **buffers;
    int64_t source_count;
    /* If the target must not be written before the run is over: memory that takes its place, and
     * where it goes afterwards. Otherwise NULL. */
    void *aside, *place;
    size_t aside_bytes;
};

/* Makes a work on `group`, which is retained, with room for so many buffers. Destroyed by
 * reshard_work_destroy. */
reshard_status rs_work_create(reshard_context *context, reshard_group *group, int64_t source_count,
                              int64_t target_count, reshard_work **out_work);
/* Begins the first run, once everything is set. */
reshard_status rs_work_begin(reshard_work *work);
/* For blocking calls: waits for the work that was started, and destroys it. `status` is the result
 * of the start. */
reshard_status rs_work_complete(reshard_status status, reshard_work *work);

#endif
