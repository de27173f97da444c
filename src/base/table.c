/* SPDX-License-Identifier: Apache-2.0 */
/* table.c - see table.h. At most half of the slots are taken, so a search soon finds a free one. */
#include "base/table.h"

#include "base/context.h"
#include "base/digest.h"

#include <assert.h>
#include <string.h>

#define CAPACITY_MIN 64 /* capacities are powers of two */

void rs_table_init(rs_table *table, reshard_context *context)
{
    *table = (rs_table){.slots = NULL};
    rs_arena_init(&table->arena, context);
}

void rs_table_release(rs_table *table)
{
    rs_release(table->arena.context, table->slots);
    rs_arena_release(&table->arena);
    *table = (rs_table){.slots = NULL};
}

/* The slot that holds the key, or the free slot where it would go. */
static rs_table_slot *find_slot(const rs_table *table, const void *key, size_t bytes, uint64_t hash)
{
    uint64_t mask = (uint64_t)table->capacity - 1;
    assert(table->count < table->capacity);
    for (uint64_t i = hash & mask;; i = (i + 1) & mask) {
        rs_table_slot *slot = &table->slots[i];
        if (slot->key == NULL || (slot->hash == hash && slot->bytes == bytes &&
                                  (bytes == 0 || memcmp(slot->key, key, bytes) == 0)))
            return slot;
    }
}

static bool grow(rs_table *table)
{
    rs_table larger = *table;
    larger.capacity = table->capacity != 0 ? 2 * table->capacity : CAPACITY_MIN;
    larger.slots =
        rs_allocate_array(table->arena.context, (size_t)larger.capacity, sizeof *larger.slots);
    if (larger.slots == NULL)
        return false;
    memset(larger.slots, 0, (size_t)larger.capacity * sizeof *larger.slots);
    for (int64_t i = 0; i < table->capacity; i++) {
        const rs_table_slot *slot = &table->slots[i];
        if (slot->key != NULL)
            *find_slot(&larger, slot->key, slot->bytes, slot->hash) = *slot;
    }
    rs_release(table->arena.context, table->slots);
    *table = larger;
    return true;
}

void **rs_table_at(rs_table *table, const void *key, size_t bytes)
{
    if (2 * (table->count + 1) > table->capacity && !grow(table))
        return NULL;
    uint64_t hash = rs_hash_bytes(key, bytes);
    rs_table_slot *slot = find_slot(table, key, bytes, hash);
    if (slot->key == NULL) {
        void *copy = rs_arena_copy(&table->arena, key, bytes, 1);
        if (copy == NULL)
            return NULL;
        *slot = (rs_table_slot){.hash = hash, .bytes = bytes, .key = copy};
        table->count++;
    }
    return &slot->value;
}
