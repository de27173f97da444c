/* SPDX-License-Identifier: Apache-2.0 */
/*
 * name_boxes.h - describes many names by few boxes. A box stands for all names that follow one
 * pattern and differ only in numbers from given ranges, and for no others. In JSON it is a text, or
 * a list of texts and ranges:
 *
 *   "lm_head.weight"
 *   ["model.layers.", [3, 60], ".mlp.experts.", [0, 31], ".up_proj.weight"]
 */
#ifndef RS_CHECKPOINT_FORMAT_NAME_BOXES_H
#define RS_CHECKPOINT_FORMAT_NAME_BOXES_H

#include "base/arena.h"
#include "base/slice.h"
#include "checkpoint/rules/name_groups.h"
#include "text/json.h"
#include "text/json_writer.h"

typedef struct rs_name_box {
    rs_slice name;        /* one of the names */
    int64_t kind;         /* names of different kinds never share a box */
    int32_t group, along; /* used while boxes are joined */
    int32_t number_count;
    int32_t first[RS_NAME_NUMBERS_MAX], last[RS_NAME_NUMBERS_MAX];
} rs_name_box;

/* Joins boxes of one name each, given with name and kind, into fewer ones by a simple rule, not
 * always the fewest possible. Sorts them by kind, then by name, and sets *count to what is left.
 * All names must be different. */
reshard_status rs_name_boxes_join(reshard_context *context, rs_name_box *boxes, int64_t *count);
void rs_name_box_write(const rs_name_box *box, rs_json_writer *writer);

/* Reads a box and calls `add` for each of its names. The names are in the arena and end in NUL.
 * Errors: SYNTAX; CORRUPT if there are more than `most`; those of `add`. */
typedef reshard_status rs_name_fn(void *user, rs_slice name);
reshard_status rs_name_box_read(rs_arena *arena, rs_json *json, int64_t most, rs_name_fn *add,
                                void *user);

#endif
