/* SPDX-License-Identifier: Apache-2.0 */
/*
 * name_groups.h - sums up many names for people: names that have the same shape and differ only in
 * numbers become one pattern, "model.layers.{0..31}.fc1.weight".
 */
#ifndef RS_CHECKPOINT_RULES_NAME_GROUPS_H
#define RS_CHECKPOINT_RULES_NAME_GROUPS_H

#include "base/arena.h"
#include "base/slice.h"
#include "text/text.h"

#include <stdbool.h>

#define RS_NAME_NUMBERS_MAX 8 /* numbers of a name; further ones count as text */

/* The length of the number at position `at` if it fills all the space between two dots, else 0. */
size_t rs_name_number_length(rs_slice name, size_t at);
int64_t rs_name_number_at(rs_slice name, size_t at, size_t length);
/* Compares names apart from their numbers. by_number: then compares the numbers as well. */
int rs_name_compare(rs_slice a, rs_slice b, bool by_number);

typedef struct rs_named_shape {
    rs_slice name;
    int32_t ndim;
    const int64_t *shape;
} rs_named_shape;

typedef struct rs_name_group {
    /* matches all names of the group, and perhaps others in between; printable */
    const char *pattern;
    int64_t count; /* number of names */
    const rs_named_shape *first;
} rs_name_group;

/* Sorts the items, comparing numbers by value, and returns the groups in the order of their first
 * names. Everything is in the arena. */
reshard_status rs_name_groups_make(rs_arena *arena, int64_t count, rs_named_shape *items,
                                   rs_name_group **out_groups, int64_t *out_count);

/* Writes "model.layers.{0..31}.fc1.weight x32 2048x512; .." up to about `bytes`, then how many more
 * there are. */
void rs_name_groups_text(const rs_name_group *groups, int64_t count, size_t bytes, rs_text *text);

#endif
