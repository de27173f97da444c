/* SPDX-License-Identifier: Apache-2.0 */
/* intern.c - a lossy hash table: each hash has a single slot, and a newer run overwrites an older
 * one. */
#include "base/intern.h"

#include "base/context.h"
#include "base/digest.h"
#include "base/error.h"

#include <assert.h>
#include <string.h>

#define SLOTS_MIN ((size_t)256) /* both limits are powers of two */
#define SLOTS_MAX ((size_t)1 << 18)
#define SLOTS_EACH 16 /* slots for each run, so that few runs share a slot */

static uint64_t hash_of(rs_slice bytes)
{
    return rs_hash_bytes(bytes.bytes, bytes.count);
}

static reshard_status grow_slots(rs_intern *intern)
{
    size_t count = intern->slot_count == 0 ? SLOTS_MIN : 4 * intern->slot_count;
    if ((size_t)intern->count * SLOTS_EACH < intern->slot_count || count > SLOTS_MAX)
        return RESHARD_OK;
    uint32_t *slots = rs_allocate_array(intern->arena->context, count, sizeof *slots);
    if (slots == NULL)
        return rs_allocation_status();
    memset(slots, 0, count * sizeof *slots);
    for (int64_t i = 0; i < intern->count; i++)
        slots[hash_of(intern->items[i]) & (count - 1)] = (uint32_t)i + 1;
    if (intern->slots != NULL)
        rs_release(intern->arena->context, intern->slots);
    intern->slots = slots;
    intern->slot_count = count;
    return RESHARD_OK;
}

static reshard_status keep(rs_intern *intern, rs_slice bytes)
{
    if (intern->count >= INT32_MAX)
        return rs_fail(RESHARD_ERR_RANGE, "too many different names");
    reshard_status status = rs_grow(intern->arena->context, &intern->items, &intern->capacity,
                                    intern->count + 1, sizeof *intern->items);
    if (status != RESHARD_OK)
        return status;
    char *copy = rs_arena_allocate(intern->arena, bytes.count + 1);
    if (copy == NULL)
        return rs_allocation_status();
    if (bytes.count != 0)
        memcpy(copy, bytes.bytes, bytes.count);
    copy[bytes.count] = '\0';
    intern->items[intern->count++] = (rs_slice){copy, bytes.count};
    return RESHARD_OK;
}

reshard_status rs_intern_add(rs_intern *intern, rs_slice bytes, int64_t *out_number)
{
    reshard_status status = grow_slots(intern);
    if (status != RESHARD_OK)
        return status;
    uint32_t *slot = &intern->slots[hash_of(bytes) & (intern->slot_count - 1)];
    if (*slot == 0 || rs_slice_compare(intern->items[*slot - 1], bytes) != 0) {
        status = keep(intern, bytes);
        if (status != RESHARD_OK)
            return status;
        *slot = (uint32_t)intern->count;
    }
    *out_number = (int64_t)*slot - 1;
    return RESHARD_OK;
}

void rs_intern_forget(rs_intern *intern)
{
    assert(intern->count > 0);
    intern->count--;
    intern->slots[hash_of(intern->items[intern->count]) & (intern->slot_count - 1)] = 0;
}

void rs_intern_release(rs_intern *intern)
{
    if (intern->items != NULL)
        rs_release(intern->arena->context, intern->items);
    if (intern->slots != NULL)
        rs_release(intern->arena->context, intern->slots);
    *intern = (rs_intern){.arena = intern->arena};
}
