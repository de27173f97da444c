/* SPDX-License-Identifier: Apache-2.0 */
/*
 * behind.c - see behind.h. Reads of a group are only counted, not marked, so bytes that are read
 * twice may let a group go early. It is then read from the disk again, which costs time and nothing
 * else. The same holds for two passes over one file at once.
 */
#define _GNU_SOURCE /* syscall */
#include "system/behind.h"

#include "base/context.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

/* A group may have gaps that nobody reads, such as headers inside an archive. If no more than this
 * is missing when a pass is two groups further, it is taken to be a gap. */
#define GAP_BYTES (RS_BEHIND_GROUP_BYTES / 8)

typedef struct group {
    atomic_uint read; /* bytes of the group that were read since it was last dropped */
    atomic_bool kept; /* some of it was in the cache before the pass */
} group;

struct rs_behind {
    reshard_context *context;
    int descriptor;
    uint64_t bytes; /* of the file */
    uint64_t count;
    group groups[];
};

#ifdef __linux__

#include <sys/syscall.h>

/* The number is the same on all processors but Alpha, which older C libraries know nothing of. */
#ifndef __NR_cachestat
#define __NR_cachestat 451
#endif

/* Returns how many pages of a range are in the page cache, or -1 if the kernel does not say. */
static int64_t count_cached(int descriptor, uint64_t at, uint64_t bytes)
{
    uint64_t range[2] = {at, bytes};
    uint64_t counts[5] = {0}; /* cached, dirty, in writeback, evicted, evicted recently */
    return syscall(__NR_cachestat, descriptor, range, counts, 0) == 0 ? (int64_t)counts[0] : -1;
}

#else

static int64_t count_cached(int descriptor, uint64_t at, uint64_t bytes)
{
    (void)descriptor, (void)at, (void)bytes;
    return -1;
}

#endif

static uint64_t group_bytes(const rs_behind *behind, uint64_t index)
{
    uint64_t left = behind->bytes - index * RS_BEHIND_GROUP_BYTES;
    return left < RS_BEHIND_GROUP_BYTES ? left : RS_BEHIND_GROUP_BYTES;
}

reshard_status rs_behind_create(reshard_context *context, int descriptor, uint64_t bytes,
                                rs_behind **out_behind)
{
    uint64_t count = bytes / RS_BEHIND_GROUP_BYTES + (bytes % RS_BEHIND_GROUP_BYTES != 0);
    *out_behind = NULL;
    if (bytes < RS_BEHIND_GROUP_BYTES || count_cached(descriptor, 0, 1) < 0)
        return RESHARD_OK;
    rs_behind *behind =
        rs_allocate_zeroed(context, sizeof *behind + (size_t)count * sizeof behind->groups[0]);
    if (behind == NULL)
        return rs_allocation_status();
    behind->context = context;
    behind->descriptor = descriptor;
    behind->bytes = bytes;
    behind->count = count;
    *out_behind = behind;
    return RESHARD_OK;
}

void rs_behind_begin(rs_behind *behind)
{
    for (uint64_t i = 0; i < behind->count; i++) {
        int64_t pages =
            count_cached(behind->descriptor, i * RS_BEHIND_GROUP_BYTES, RS_BEHIND_GROUP_BYTES);
        atomic_store_explicit(&behind->groups[i].read, 0, memory_order_relaxed);
        atomic_store_explicit(&behind->groups[i].kept, pages != 0, memory_order_relaxed);
    }
}

static void drop(rs_behind *behind, uint64_t index)
{
    atomic_store_explicit(&behind->groups[index].read, 0, memory_order_relaxed);
    (void)posix_fadvise(behind->descriptor, (off_t)(index * RS_BEHIND_GROUP_BYTES),
                        (off_t)RS_BEHIND_GROUP_BYTES, POSIX_FADV_DONTNEED);
}

static void note_group(rs_behind *behind, uint64_t index, unsigned count)
{
    group *one = &behind->groups[index];
    if (atomic_load_explicit(&one->kept, memory_order_relaxed))
        return;
    unsigned before = atomic_fetch_add_explicit(&one->read, count, memory_order_relaxed);
    if (before + count >= group_bytes(behind, index))
        drop(behind, index);
    if (before != 0 || index < 2)
        return;
    unsigned earlier = atomic_load_explicit(&behind->groups[index - 2].read, memory_order_relaxed);
    if (earlier + GAP_BYTES >= RS_BEHIND_GROUP_BYTES)
        drop(behind, index - 2);
}

void rs_behind_note(rs_behind *behind, uint64_t at, size_t count)
{
    while (behind != NULL && count != 0 && at < behind->bytes) {
        uint64_t index = at / RS_BEHIND_GROUP_BYTES;
        uint64_t left = (index + 1) * RS_BEHIND_GROUP_BYTES - at;
        size_t part = count < left ? count : (size_t)left;
        note_group(behind, index, (unsigned)part);
        at += part;
        count -= part;
    }
}

void rs_behind_destroy(rs_behind *behind)
{
    if (behind == NULL)
        return;
    for (uint64_t i = 0; i < behind->count; i++) {
        if (atomic_load_explicit(&behind->groups[i].read, memory_order_relaxed) != 0)
            drop(behind, i);
    }
    rs_release(behind->context, behind);
}
