/* SPDX-License-Identifier: Apache-2.0 */
/* group.h - what a group is made of, for the layers above. */
#ifndef RS_TRANSPORT_GROUP_H
#define RS_TRANSPORT_GROUP_H

#include <reshard/group.h>

#include "base/thread.h"

#include <stdbool.h>

/* An endpoint and what is counted on it; shared by a group and all groups made from it. */
typedef struct rs_root {
    reshard_context *context;
    rs_references references;
    reshard_endpoint endpoint;
    int32_t last_channel;
} rs_root;

struct reshard_group {
    reshard_context *context;
    rs_references references;
    rs_root *root;
    int32_t rank, size;
    int32_t *parent_ranks; /* by member; NULL for the root's own group */
    int32_t *root_ranks;   /* by member; NULL likewise */
    int32_t channel;       /* its first one */
    void *attachment;      /* a layer's above, which takes it off in time; not owned */
};

/* Messages to and from members, by their rank in the group. `channel` is added to the group's. */
reshard_status rs_group_send(reshard_group *group, int32_t rank, int32_t channel, const void *bytes,
                             size_t count, reshard_request *request);
reshard_status rs_group_receive(reshard_group *group, int32_t rank, int32_t channel, void *bytes,
                                size_t count, reshard_request *request);
reshard_status rs_group_test(reshard_group *group, reshard_request *request, bool *out_done);
reshard_status rs_group_wait(reshard_group *group, reshard_request *request);
void rs_group_idle(reshard_group *group);
/* A member's address as seen from here, or NULL. */
void *rs_group_map(reshard_group *group, int32_t rank, const void *address, size_t bytes);
/* Whether every address of every member can be seen. */
bool rs_group_can_map(const reshard_group *group);
reshard_status rs_group_touch(reshard_group *group, bool begin);
void rs_group_quiesce(reshard_group *group);
size_t rs_group_message_bytes_max(const reshard_group *group);

/* Channels of a group (the first) and of an exec (the others); groups and execs are this many
 * apart. */
enum { RS_CHANNEL_SMALL, RS_CHANNEL_READY, RS_CHANNEL_DONE, RS_CHANNEL_DATA, RS_CHANNEL_COUNT };

#endif
