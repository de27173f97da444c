/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.h - a hash table that maps keys, which are any bytes, to pointers. It uses open addressing,
 * grows, and never removes an entry. Keys are copied and compared byte by byte, so a hash collision
 * costs time but never returns a wrong value.
 */
#ifndef RS_BASE_TABLE_H
#define RS_BASE_TABLE_H

#include "base/arena.h"

#include <stdint.h>

typedef struct rs_table_slot {
    uint64_t hash;
    size_t bytes;
    const void *key; /* NULL if the slot is free */
    void *value;
} rs_table_slot;

typedef struct rs_table {
    rs_arena arena; /* holds the keys */
    int64_t count, capacity;
    rs_table_slot *slots;
} rs_table;

void rs_table_init(rs_table *table, reshard_context *context);
void rs_table_release(rs_table *table);
/* Finds or adds a key and returns where its value is stored: NULL is stored there if the key is
 * new. The result is valid until the next call. Returns NULL on failure, with the error text
 * set. */
void **rs_table_at(rs_table *table, const void *key, size_t bytes);

#endif
