/* SPDX-License-Identifier: Apache-2.0 */
/*
 * find.h - finds the rule and the cuts of one tensor. This is the first step both of applying rules
 * to a full shape and of recovering a full shape from local ones.
 */
#ifndef RS_CHECKPOINT_RULES_FIND_H
#define RS_CHECKPOINT_RULES_FIND_H

#include "checkpoint/rules/memo.h"
#include "checkpoint/rules/model.h"
#include "spec/scan.h"

/* A pad(), with its numbers evaluated. */
typedef struct rs_found_pad {
    int32_t dim;
    int64_t multiple;
    int64_t true_size; /* -1: not known */
} rs_found_pad;

typedef struct rs_rule_finding {
    /* Set by the caller. Everything else starts as zero. */
    const rs_rules *rules;
    reshard_mesh *mesh;
    const rs_rules_keys *keys;
    const char *name;
    size_t name_bytes;
    int32_t ndim;
    const int64_t *shape; /* NULL: not known yet; then shapes in rules are compared by ndim only */
    bool is_large;        /* more than RESHARD_NDIM_MAX dimensions; ndim is 0 */
    int64_t first;        /* index of the first rule to be tried */
    rs_rule_memo *memo;   /* where cuts are looked up; NULL: they are parsed each time */

    const rs_rule *rule;
    const rs_rule *misfit; /* the first rule whose pattern matches but whose shape does not */
    bool is_unmatched;     /* no rule's pattern matches the name */
    bool is_drop;
    rs_glob_span spans[RS_GLOB_ELEMENTS_MAX]; /* what the rule's wildcards stand for */
    int32_t cut_count;
    reshard_cut cuts[RESHARD_AXES_MAX];           /* in the order in which they apply */
    reshard_spec *placements[RESHARD_AXES_MAX];   /* own the arrays that the cuts point to */
    const rs_rule *origins[RESHARD_AXES_MAX];     /* the rules that the cuts come from */
    const rs_rule_cut *sources[RESHARD_AXES_MAX]; /* the texts that the cuts come from */
    bool is_even[RESHARD_AXES_MAX];               /* must divide evenly, whatever its unit */
    /* at least one of the specs does not come from the memo */
    bool is_single;
    int32_t pad_count;
    rs_found_pad pads[RESHARD_NDIM_MAX];
} rs_rule_finding;

/* Prepares a search. A tensor with too many dims counts as one without dims: it can only stay
 * whole. */
rs_rule_finding rs_rule_finding_of(const rs_rules *rules, reshard_mesh *mesh,
                                   const rs_rules_keys *keys, const char *name, size_t name_bytes,
                                   int32_t ndim, const int64_t *shape);
/* Finds only the rule: rule, misfit, is_drop and spans. Errors: NOT_FOUND; INVALID if the shape
 * fits two rules with the same pattern. */
reshard_status rs_rule_match(rs_rule_finding *found);
/* Finds the rule and, unless it drops the tensor, the cuts and pads. Release in any case, even
 * after an error. */
reshard_status rs_rule_find(rs_rule_finding *found);
void rs_rule_finding_release(rs_rule_finding *found);
/* Whether a shape fits the one that the rule found asks for. */
reshard_status rs_rule_fits(const rs_rule_finding *found, const int64_t *shape, bool *out_fits);

/* What the numbers in a rule refer to. */
rs_number_scope rs_rule_scope(const rs_rule_finding *found, const rs_rule *rule,
                              const rs_glob_span *spans);
/* Adds a cut of `rule` that has already been parsed. Takes over the spec, which owns its arrays. */
void rs_rule_add_placement(rs_rule_finding *found, const rs_rule *rule, const rs_rule_cut *source,
                           int32_t axis, const reshard_placement *placement, bool is_even,
                           reshard_spec *spec);
/* Parses a cut for the axis that it names. A cut that refuses fails with its reason. *out_spec
 * stays NULL if the mesh does not have the axis, or if the axis has a single coordinate and needs
 * no cut. */
reshard_status rs_rule_read_cut(const rs_rule_finding *found, const rs_rule *rule,
                                const rs_number_scope *scope, const rs_rule_cut *cut,
                                int32_t *out_axis, reshard_spec **out_spec);
reshard_status rs_rule_read_pad(const rs_number_scope *scope, const rs_rule_pad *pad,
                                int64_t *out_multiple, int64_t *out_true_size);
/* Takes over the cuts and pads of the rule that like() points to (follow.c). */
reshard_status rs_rule_follow_other(rs_rule_finding *found);

/* The dimension that a cut applies to, counted from 0; -1 if the tensor does not have it, or if the
 * cut is flat. */
int32_t rs_placement_dim(const reshard_placement *placement, int32_t ndim);

/* "S(0, unit=$head_dim)@tp", for messages. */
rs_excerpt rs_rule_cut_words(const rs_rule_cut *cut);

/* Add and remove the padding of pad(). It is removed only if the true size is known. */
reshard_status rs_rule_pad_shape(const rs_rule_finding *found, int32_t ndim, int64_t *shape);
reshard_status rs_rule_unpad_shape(const rs_rule_finding *found, int32_t ndim, int64_t *shape,
                                   bool *out_unknown);

/* The memo's spec for a cut, with a new reference (memo.c). Errors: those of
 * rs_rule_placement_parse. */
reshard_status rs_rule_memo_cut(rs_rule_memo *memo, const rs_number_scope *scope,
                                const rs_rule_cut *cut, int64_t axis_size, reshard_spec **out_spec);

/* Makes the result from a finding with a full shape, for a tensor that is not dropped. */
reshard_status rs_rule_result_make(const rs_rule_finding *found, rs_rule_result *out_result);
/* The result for a tensor that is dropped. */
rs_rule_result rs_rule_result_drop(const rs_rule_finding *found);
/* Checks that the cuts fit the shape, and makes the result. With a memo it has no new name, because
 * several tensors share it. */
reshard_status rs_rule_finish(const rs_rule_finding *found, int32_t ndim, const int64_t *shape,
                              const int64_t *padded_shape, rs_rule_result *out_result);

/* Prefixes the error text with the tensor's name, and with its shape unless that is NULL. */
reshard_status rs_rule_fail_for_tensor(reshard_status status, const char *name, size_t name_bytes,
                                       int32_t ndim, const int64_t *shape);

#endif
