/* SPDX-License-Identifier: Apache-2.0 */
/*
 * thread_state.h - what the library remembers for each thread, beside the text of its last error:
 * which scope is open, whether gradients are recorded, which hooks see saved tensors, which group
 * is current. The one place for it; the layers that own these things say what they are.
 */
#ifndef RS_BASE_THREAD_STATE_H
#define RS_BASE_THREAD_STATE_H

#include "base/export.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct rs_thread_state {
    struct reshard_scope *scope;    /* the innermost open one; tensor */
    struct rs_hook_pair *hooks;     /* the innermost pair; tensor */
    bool gradients_off;             /* nothing is recorded */
    uint64_t node_count;            /* nodes recorded so far: their order */
    uint64_t failure_count;         /* failures in scopes so far: their numbers; tensor */
    struct reshard_group *replicas; /* among whose ranks tensors may be the same; tensor */
    struct reshard_group *group;    /* that of load_with_group; nn */
    struct reshard_group *fallback; /* the default one, retained; transport */
} rs_thread_state;

RS_EXPORT rs_thread_state *rs_thread_state_get(void);

#endif
