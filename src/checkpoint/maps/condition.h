/* SPDX-License-Identifier: Apache-2.0 */
/*
 * condition.h - the conditions of when():
 *
 *   condition := [ "!" ] ( number [ compare number ] | "$" key "=" text { "|" text } )
 *   compare   := "<" | "<=" | ">" | ">=" | "==" | "!="
 *
 * A number by itself holds if it is not 0. If a number has no value, the condition does not hold.
 */
#ifndef RS_CHECKPOINT_MAPS_CONDITION_H
#define RS_CHECKPOINT_MAPS_CONDITION_H

#include "checkpoint/rules/number.h"

/* Checks the syntax. Errors: SYNTAX, RANGE. */
reshard_status rs_map_condition_check(rs_slice text);

typedef struct rs_map_verdict {
    bool holds;
    bool is_open; /* a number has no value; the error text says which */
} rs_map_verdict;
/* Errors: those of rs_number_read, except for NOT_FOUND. */
reshard_status rs_map_condition_ask(const rs_number_scope *scope, rs_slice text,
                                    rs_map_verdict *out_verdict);

#endif
