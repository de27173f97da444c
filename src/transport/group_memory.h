/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group_memory.h - the memory of groups. If an endpoint can share memory, its root keeps a list of
 * shares that peers on the same node can map. Blocks are cut from shares and returned to them;
 * shares live until the endpoint is closed. A block that fits into no share is plain memory.
 */
#ifndef RS_TRANSPORT_GROUP_MEMORY_H
#define RS_TRANSPORT_GROUP_MEMORY_H

#include "transport/group.h"

/* Collective. If the group has all ranks of its endpoint, the endpoint can share memory, and some
 * rank has no room for a block of `bytes`, adds a share on all ranks. In any case agrees on
 * `status`, the result of what this rank did before. */
reshard_status rs_group_reserve(reshard_group *group, reshard_status status, size_t bytes);
/* Local. Takes a block, aligned to 64 bytes, from a share if one has room, otherwise plain memory.
 * reshard_group_free returns it. */
reshard_status rs_group_take(reshard_group *group, size_t bytes, void **out_memory);
/* Whether an address of this rank lies in one of its shares. */
bool rs_group_is_shared(const reshard_group *group, const void *address);
/* For the root: releases the list of shares. Their memory belongs to the endpoint. */
void rs_shares_release(rs_root *root);

#endif
