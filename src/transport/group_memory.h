/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group_memory.h - memory of groups. Where an endpoint can share memory, its root has an arena of
 * shares that peers on the same node can map. Blocks are cut from shares and given back to them;
 * shares live until the endpoint is closed. What finds no room there is plain memory.
 */
#ifndef RS_TRANSPORT_GROUP_MEMORY_H
#define RS_TRANSPORT_GROUP_MEMORY_H

#include "transport/group.h"

/* Collective over the group. Makes room for one block of `bytes` on every rank that has none, if
 * the group has all ranks of its endpoint and that can share memory; else does nothing. `status` is
 * that of what went before, and is agreed upon on the way. */
reshard_status rs_group_reserve(reshard_group *group, reshard_status status, size_t bytes);
/* Local. A block aligned to 64 bytes, from the arena where there is room; given back by
 * reshard_group_free. */
reshard_status rs_group_take(reshard_group *group, size_t bytes, void **out_memory);
/* Whether memory of this rank is in its arena. */
bool rs_group_is_shared(const reshard_group *group, const void *address);
/* For the root: forgets all shares. */
void rs_shares_release(rs_root *root);

#endif
