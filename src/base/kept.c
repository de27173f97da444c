/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kept.c - see kept.h. A thread that changes a slot's size to BUSY owns the slot until it stores
 * the next size. That store has release order and the exchange that takes a block has acquire
 * order, so whoever takes a block sees it as its last user left it.
 */
#include "base/kept.h"

#include <assert.h>
#include <sched.h>
#include <stdint.h>

#if defined(__SANITIZE_ADDRESS__)
#define WATCHED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WATCHED 1
#endif
#endif
#ifdef WATCHED
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(memory, bytes) ((void)(memory), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(memory, bytes) ((void)(memory), (void)(bytes))
#endif

#define EMPTY ((size_t)0)
#define BUSY SIZE_MAX

static bool claim(rs_kept_slot *slot, size_t expected)
{
    return atomic_compare_exchange_strong_explicit(&slot->bytes, &expected, BUSY,
                                                   memory_order_acquire, memory_order_relaxed);
}

static void settle(rs_kept_slot *slot, size_t bytes)
{
    atomic_store_explicit(&slot->bytes, bytes, memory_order_release);
}

void *rs_kept_take(rs_kept *kept, size_t bytes)
{
    assert(bytes != EMPTY && bytes != BUSY);
    for (int i = 0; i < RS_KEPT_SLOTS; i++) {
        rs_kept_slot *slot = &kept->slots[i];
        if (atomic_load_explicit(&slot->bytes, memory_order_relaxed) != bytes ||
            !claim(slot, bytes))
            continue;
        void *memory = slot->memory;
        ASAN_UNPOISON_MEMORY_REGION(memory, bytes);
        settle(slot, EMPTY);
        (void)atomic_fetch_sub(&kept->bytes, bytes);
        return memory;
    }
    return NULL;
}

bool rs_kept_put(rs_kept *kept, void *memory, size_t bytes)
{
    assert(memory != NULL && bytes != EMPTY && bytes != BUSY);
    for (int i = 0; i < RS_KEPT_SLOTS; i++) {
        rs_kept_slot *slot = &kept->slots[i];
        if (atomic_load_explicit(&slot->bytes, memory_order_relaxed) != EMPTY ||
            !claim(slot, EMPTY))
            continue;
        (void)atomic_fetch_add(&kept->bytes, bytes);
        slot->memory = memory;
        ASAN_POISON_MEMORY_REGION(memory, bytes); /* catch use after release */
        atomic_store(&slot->since, atomic_fetch_add(&kept->count, 1));
        settle(slot, bytes);
        return true;
    }
    return false;
}

bool rs_kept_drop(rs_kept *kept, const reshard_allocator *allocator)
{
    rs_kept_slot *oldest = NULL;
    size_t oldest_bytes = 0;
    bool busy = false;
    for (int i = 0; i < RS_KEPT_SLOTS; i++) {
        rs_kept_slot *slot = &kept->slots[i];
        size_t bytes = atomic_load_explicit(&slot->bytes, memory_order_relaxed);
        busy = busy || bytes == BUSY;
        if (bytes == EMPTY || bytes == BUSY)
            continue;
        if (oldest == NULL || atomic_load(&slot->since) < atomic_load(&oldest->since)) {
            oldest = slot;
            oldest_bytes = bytes;
        }
    }
    if (oldest == NULL && busy)
        (void)sched_yield();
    if (oldest == NULL || !claim(oldest, oldest_bytes))
        return oldest != NULL || busy;
    /* The slot stays BUSY until the memory is freed, so that other threads that need the room wait
     * for it. */
    ASAN_UNPOISON_MEMORY_REGION(oldest->memory, oldest_bytes);
    allocator->release(allocator->user, oldest->memory, oldest_bytes);
    (void)atomic_fetch_sub(&kept->bytes, oldest_bytes);
    (void)atomic_fetch_sub(&kept->held, oldest_bytes);
    settle(oldest, EMPTY);
    return true;
}
