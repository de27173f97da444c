/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memo.h - remembers what a set of rules said about earlier tensors. The layers of a model are cut
 * alike: of 90,000 tensors, a few hundred differ in shape, rule or coordinates. Each cut is parsed
 * once for each value of the wildcards in it, and a layout is made once for each shape and list of
 * cuts.
 *
 * A memo is for one set of rules, one mesh and one configuration, which must outlive it.
 */
#ifndef RS_CHECKPOINT_RULES_MEMO_H
#define RS_CHECKPOINT_RULES_MEMO_H

#include "base/table.h"
#include "checkpoint/rules/number.h"
#include "checkpoint/rules/rules.h"

struct rs_memo_spec;
struct rs_memo_result;

/* The items that A(i of n) dealt out to an axis. If the highest i is not n-1, some coordinates get
 * less than the configuration promises. */
typedef struct rs_memo_dealt {
    const char *axis;
    rs_number_dealt items;
} rs_memo_dealt;

typedef struct rs_rule_memo {
    rs_arena arena;
    rs_table cuts;    /* specs of one cut, by the cut and the values of its wildcards */
    rs_table texts;   /* the same specs, by axis and text; equal cuts share one spec */
    rs_table results; /* by rule, cuts, padding and shape */
    rs_memo_dealt dealt[RESHARD_AXES_MAX];
    int32_t dealt_count;
    struct rs_memo_spec *kept_specs;
    struct rs_memo_result *kept_results;
} rs_rule_memo;

void rs_rule_memo_init(rs_rule_memo *memo, reshard_context *context);
void rs_rule_memo_release(rs_rule_memo *memo);

/* Like rs_rules_apply, given the index of the rule that rs_rules_name found. The result has no new
 * name, belongs to the memo, and is the same object for all tensors that are cut alike. */
reshard_status rs_rules_apply_found(rs_rule_memo *memo, const rs_rules *rules, reshard_mesh *mesh,
                                    const rs_rules_keys *keys, int64_t rule, const char *name,
                                    size_t name_bytes, int32_t ndim, const int64_t *shape,
                                    const rs_rule_result **out_result);
/* Like rs_rules_scalar. */
reshard_status rs_rules_apply_none(rs_rule_memo *memo, const rs_rules *rules, reshard_mesh *mesh,
                                   const rs_rule_result **out_result);

#endif
