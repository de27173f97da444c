/* SPDX-License-Identifier: Apache-2.0 */
/*
 * name_groups.h - many names said in few words: those that differ in numbers alone, and have one
 * shape, become one pattern, "model.layers.{0..31}.fc1.weight".
 */
#ifndef RS_CHECKPOINT_RULES_NAME_GROUPS_H
#define RS_CHECKPOINT_RULES_NAME_GROUPS_H

#include "base/arena.h"
#include "base/slice.h"
#include "text/text.h"

#include <stdbool.h>

#define RS_NAME_NUMBERS_MAX 8 /* of a name; more are taken as text */

/* The length of the number that begins at `at`, if a number is all there is between two dots; else
 * 0. */
size_t rs_name_number_length(rs_slice name, size_t at);
int64_t rs_name_number_at(rs_slice name, size_t at, size_t length);
/* Compares names; by_number: also by their numbers, once all else is equal. */
int rs_name_compare(rs_slice a, rs_slice b, bool by_number);

typedef struct rs_named_shape {
    rs_slice name;
    int32_t ndim;
    const int64_t *shape;
} rs_named_shape;

typedef struct rs_name_group {
    const char *pattern; /* matches all of its names, and perhaps others between them */
    int64_t count;       /* of names */
    const rs_named_shape *first;
} rs_name_group;

/* Sorts the items, numbers by their value, and gives the groups in the order of their first names.
 * Everything is in the arena. */
reshard_status rs_name_groups_make(rs_arena *arena, int64_t count, rs_named_shape *items,
                                   rs_name_group **out_groups, int64_t *out_count);

/* "model.layers.{0..31}.fc1.weight x32 2048x512; .." as far as `bytes` allow, then how many more
 * there are. */
void rs_name_groups_text(const rs_name_group *groups, int64_t count, size_t bytes, rs_text *text);

#endif
