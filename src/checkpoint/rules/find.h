/* SPDX-License-Identifier: Apache-2.0 */
/*
 * find.h - finds the rule and the cuts of one tensor. Applying rules to a full shape and recovering
 * a full shape from local ones both begin here.
 */
#ifndef RS_CHECKPOINT_RULES_FIND_H
#define RS_CHECKPOINT_RULES_FIND_H

#include "checkpoint/rules/model.h"

typedef struct rs_rule_finding {
    /* Set by the caller; the rest starts as zero. */
    const rs_rules *rules;
    reshard_mesh *mesh;
    const rs_rules_keys *keys;
    const char *name;
    size_t name_bytes;
    int32_t ndim;
    bool is_large; /* more than RESHARD_NDIM_MAX dimensions; ndim is 0 */

    const rs_rule *rule;
    rs_glob_span spans[RS_GLOB_ELEMENTS_MAX]; /* what the rule's wildcards stand for */
    int32_t cut_count;
    reshard_cut cuts[RESHARD_AXES_MAX];         /* in the order they apply */
    reshard_spec *placements[RESHARD_AXES_MAX]; /* own the lists of the cuts */
    const rs_rule *origins[RESHARD_AXES_MAX];   /* the rules that the cuts come from */
} rs_rule_finding;

/* Finds the rule and, unless it drops the tensor, the cuts. Release in any case. */
reshard_status rs_rule_find(rs_rule_finding *found);
void rs_rule_finding_release(rs_rule_finding *found);

/* Adds or takes off the padding of pad(). It is taken off only where the true size is known. */
reshard_status rs_rule_pad_shape(const rs_rule_finding *found, int32_t ndim, int64_t *shape);
reshard_status rs_rule_unpad_shape(const rs_rule_finding *found, int32_t ndim, int64_t *shape,
                                   bool *out_unknown);

/* Checks that the cuts fit the shape, and makes the result. */
reshard_status rs_rule_finish(const rs_rule_finding *found, int32_t ndim, const int64_t *shape,
                              const int64_t *padded_shape, rs_rule_result *out_result);

/* Puts the tensor's name, and its shape unless that is NULL, in front of the error text. */
reshard_status rs_rule_fail_for_tensor(reshard_status status, const char *name, size_t name_bytes,
                                       int32_t ndim, const int64_t *shape);

#endif
