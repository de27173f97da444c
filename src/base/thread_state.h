/* SPDX-License-Identifier: Apache-2.0 */
/*
 * thread_state.h - the library's per-thread state, except for the last error (error.c) and the
 * status of the last allocation (context.c): the open scope, whether gradients are recorded, the
 * hooks on saved tensors, the current group. It is in one place on purpose; the layers named below
 * own the fields and document them.
 */
#ifndef RS_BASE_THREAD_STATE_H
#define RS_BASE_THREAD_STATE_H

#include "base/export.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct rs_thread_state {
    struct reshard_scope *scope;    /* the innermost open scope (tensor) */
    struct rs_hook_pair *hooks;     /* the innermost pair of saved-tensor hooks (tensor) */
    bool gradients_off;             /* operations are not recorded (tensor) */
    uint64_t node_count;            /* nodes recorded so far, which numbers them (tensor) */
    uint64_t failure_count;         /* failures in scopes so far, which numbers them (tensor) */
    struct reshard_group *replicas; /* the group on whose ranks tensors may be the same (tensor) */
    struct reshard_group *group;    /* the group of load_with_group (nn) */
    struct reshard_group *fallback; /* the default group, retained (transport) */
} rs_thread_state;

RS_EXPORT rs_thread_state *rs_thread_state_get(void);

#endif
