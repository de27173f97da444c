/* SPDX-License-Identifier: Apache-2.0 */
/* group.h - the structure of a group, and its calls for the layers above. */
#ifndef RS_TRANSPORT_GROUP_H
#define RS_TRANSPORT_GROUP_H

#include <reshard/transport.h>

#include "base/export.h"
#include "base/references.h"

#include <stdbool.h>

typedef struct rs_share rs_share; /* group_memory.c */

/* An activity that a rank continues whenever it waits, whatever it waits for, because a peer may be
 * waiting for this rank's part in it. It is a member of the object that it belongs to. */
typedef struct rs_task {
    /* `link` is the pointer that points here, or NULL if not under way */
    struct rs_task *next, **link;
    void (*progress)(struct rs_task *task);
} rs_task;

/* An endpoint and its counters, shared by a group and all groups made from it. */
typedef struct rs_root {
    reshard_context *context;
    rs_references references;
    reshard_endpoint endpoint;
    int32_t last_channel;
    rs_task *tasks;   /* youngest first */
    rs_share *shares; /* memory that peers can map, youngest first */
} rs_root;

struct reshard_group {
    reshard_context *context;
    rs_references references;
    rs_root *root;
    int32_t rank, size;
    int32_t *parent_ranks; /* by member; NULL for the root's own group */
    int32_t *root_ranks;   /* by member; NULL likewise */
    int32_t channel;       /* the first of its channels */
    uint64_t failure_told; /* for tensors: the last failure (scope.h) that all ranks know of */
    void *attachment;      /* owned by the layer above, which removes it in time (cache.h) */
};

/* This thread's current group: that of load_with_group, or the default one; NULL if there is none.
 * Not retained. */
RS_EXPORT reshard_group *rs_group_current(void);
/* Replaces NULL by the current group. Every public call that takes a group begins with it. Errors:
 * INVALID if there is none. */
RS_EXPORT reshard_status rs_group_choose(reshard_group **group);

/* A member's rank among all ranks of the transport. */
static inline int32_t rs_group_root_rank(const reshard_group *group, int32_t rank)
{
    return group->root_ranks != NULL ? group->root_ranks[rank] : rank;
}

/* Messages to and from members, which are named by their rank in the group. `channel` is relative
 * to the group's first one. */
reshard_status rs_group_send(reshard_group *group, int32_t rank, int32_t channel, const void *bytes,
                             size_t count, reshard_request *request);
reshard_status rs_group_receive(reshard_group *group, int32_t rank, int32_t channel, void *bytes,
                                size_t count, reshard_request *request);
reshard_status rs_group_test(reshard_group *group, reshard_request *request, bool *out_done);
reshard_status rs_group_wait(reshard_group *group, reshard_request *request);
/* Continues all tasks, then waits a little for something to happen. */
void rs_group_idle(reshard_group *group);
void rs_group_add_task(reshard_group *group, rs_task *task);
void rs_task_remove(rs_task *task);
/* A member's address as seen from this rank, or NULL if it cannot be mapped. */
void *rs_group_map(reshard_group *group, int32_t rank, const void *address, size_t bytes);
/* Whether this rank and the member can map each other's shared memory. */
bool rs_group_is_near(const reshard_group *group, int32_t rank);
/* Whether every address of every member can be mapped. */
bool rs_group_can_map(const reshard_group *group);
reshard_status rs_group_touch(reshard_group *group, bool begin);
void rs_group_quiesce(reshard_group *group);
size_t rs_group_message_bytes_max(const reshard_group *group);

/* Small messages. These calls return when the message is complete. Errors break the group. */
reshard_status rs_group_send_small(reshard_group *group, int32_t rank, const void *bytes,
                                   size_t count);
reshard_status rs_group_receive_small(reshard_group *group, int32_t rank, void *bytes,
                                      size_t count);
/* Collective. Sends bytes from rank 0 to all others, along a binomial tree. */
reshard_status rs_group_broadcast_small(reshard_group *group, void *bytes, size_t count);

/* Channels of a group or an exec, relative to its first one. Each group and each exec has
 * RS_CHANNEL_COUNT of them; groups use only RS_CHANNEL_SMALL. */
enum {
    RS_CHANNEL_SMALL,
    RS_CHANNEL_READY,
    RS_CHANNEL_DONE,
    RS_CHANNEL_DATA,
    RS_CHANNEL_TAKEN,
    RS_CHANNEL_COUNT
};

#endif
