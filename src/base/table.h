/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.h - finds values by keys, which are any bytes: a hash table with open addressing that grows
 * and forgets nothing. Keys are copied and compared byte by byte, so a hash that two of them share
 * costs time and never gives a wrong value.
 */
#ifndef RS_BASE_TABLE_H
#define RS_BASE_TABLE_H

#include "base/arena.h"

#include <stdint.h>

typedef struct rs_table_slot {
    uint64_t hash;
    size_t bytes;
    const void *key; /* NULL: the slot is free */
    void *value;
} rs_table_slot;

typedef struct rs_table {
    rs_arena arena; /* of keys */
    int64_t count, capacity;
    rs_table_slot *slots;
} rs_table;

void rs_table_init(rs_table *table, reshard_context *context);
void rs_table_release(rs_table *table);
/* Where the value of a key is, until the next call: NULL there if the key is new. Returns NULL when
 * there is no memory. */
void **rs_table_at(rs_table *table, const void *key, size_t bytes);

#endif
