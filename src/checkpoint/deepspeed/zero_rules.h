/* SPDX-License-Identifier: Apache-2.0 */
/* zero_rules.h - how tensor parallel ranks cut a parameter, by rules and config.json. */
#ifndef RS_CHECKPOINT_DEEPSPEED_ZERO_RULES_H
#define RS_CHECKPOINT_DEEPSPEED_ZERO_RULES_H

#include "checkpoint/deepspeed/zero.h"
#include "checkpoint/rules/rules.h"

/* Finds the rules of the model, whose local tensors are listed, for all tensor parallel ranks.
 * Errors: UNSUPPORTED if there is no config.json; of rulebooks. */
reshard_status rs_zero_rules_init(rs_zero_reading *r);
void rs_zero_rules_release(rs_zero_reading *r);
/* How a tensor is cut of which every tensor parallel rank has a local: along *out_dim, with the
 * layout of *out_result, which the caller releases; or, if *out_dim is -1, not at all. Errors:
 * UNSUPPORTED if parts cannot be told from replicas; INVALID if shapes do not fit. */
reshard_status rs_zero_rules_find(rs_zero_reading *r, const rs_zero_local *locals,
                                  rs_rule_result *out_result, int32_t *out_dim);

#endif
