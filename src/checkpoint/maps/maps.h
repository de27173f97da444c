/* SPDX-License-Identifier: Apache-2.0 */
/* maps.h - what the rest of checkpoint/ needs of maps beyond reshard/map.h. */
#ifndef RS_CHECKPOINT_MAPS_MAPS_H
#define RS_CHECKPOINT_MAPS_MAPS_H

#include <reshard/map.h>

#include "base/slice.h"
#include "checkpoint/rules/rules.h"
#include "text/text.h"

/* Says that a tensor is a state of an optimizer (select/parameter.h finds such). It takes the line
 * of its parameter, and no line of its own: what is joined from parameters is joined from their
 * states too, and the parts of a parameter get the same parts of its states. A state that is a
 * single number, such as a step, must be equal for parameters that are joined, and goes to each
 * part of one that is taken apart. */
typedef struct rs_map_state {
    int64_t parameter;    /* index of the parameter; -1: the tensor is no state */
    rs_slice front, back; /* of its name, around the parameter's */
    size_t skipped;       /* bytes at the start of the parameter's name that its name lacks */
    bool same_shape;      /* false: it is a single number */
} rs_map_state;

/* Like reshard_map_resolve, with the values of $keys from anywhere (keys may be NULL), and with
 * states: one for each tensor, or NULL. */
reshard_status rs_map_resolve(reshard_map *map, reshard_map_side side, int64_t count,
                              const reshard_map_tensor *tensors, const rs_map_state *states,
                              const rs_rules_keys *keys, reshard_map_result **out_result);

/* For drafts of maps. Marks the lines whose left side has a name like this one, and whose
 * conditions no key contradicts; lines: as many as rs_map_line_count. Returns whether there is
 * one. */
bool rs_map_knows(const reshard_map *map, const rs_rules_keys *keys, rs_slice name, bool *lines);
int32_t rs_map_line_count(const reshard_map *map);
/* Whether `for` or `let` says something of a word. */
bool rs_map_declares(const reshard_map *map, rs_slice word);
/* Whether a line makes tensors of nothing: constants and copies. */
bool rs_map_line_is_made(const reshard_map *map, int32_t line);
/* Adds `for`, `let` and the chosen lines (NULL: all), in their canonical form. */
void rs_map_print_lines(const reshard_map *map, const bool *chosen, rs_text *text);
/* Adds a part of a name without captures. */
void rs_map_print_literal(rs_slice literal, rs_text *text);

/* Joins two results: `second` was resolved on the targets of `first`, in their order. The result
 * goes from the tensors of `first` to the targets of `second`, without anything in between. Errors:
 * UNSUPPORTED where that takes two steps (a line that adds to values, a constant that goes into a
 * tensor, a comparison of tensors that only exist in between); INVALID if the two do not belong
 * together; RANGE. */
reshard_status rs_map_compose(const reshard_map_result *first, const reshard_map_result *second,
                              reshard_map_result **out_result);

#endif
