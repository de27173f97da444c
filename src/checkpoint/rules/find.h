/* SPDX-License-Identifier: Apache-2.0 */
/*
 * find.h - finds the rule and the cuts of one tensor. Applying rules to a full shape and recovering
 * a full shape from local ones both begin here.
 */
#ifndef RS_CHECKPOINT_RULES_FIND_H
#define RS_CHECKPOINT_RULES_FIND_H

#include "checkpoint/rules/memo.h"
#include "checkpoint/rules/model.h"
#include "spec/scan.h"

/* pad() with its numbers. */
typedef struct rs_found_pad {
    int32_t dim;
    int64_t multiple;
    int64_t true_size; /* -1: not known */
} rs_found_pad;

typedef struct rs_rule_finding {
    /* Set by the caller; the rest starts as zero. */
    const rs_rules *rules;
    reshard_mesh *mesh;
    const rs_rules_keys *keys;
    const char *name;
    size_t name_bytes;
    int32_t ndim;
    const int64_t *shape; /* NULL: not known yet. Rules that ask for a shape then count by ndim */
    bool is_large;        /* more than RESHARD_NDIM_MAX dimensions; ndim is 0 */
    int64_t first;        /* the first rule that is looked at */
    rs_rule_memo *memo;   /* where cuts are looked up; NULL: they are read */

    const rs_rule *rule;
    const rs_rule *misfit; /* the first whose pattern matches, but not its shape */
    bool is_unmatched;     /* no pattern matches the name */
    bool is_drop;
    rs_glob_span spans[RS_GLOB_ELEMENTS_MAX]; /* what the rule's wildcards stand for */
    int32_t cut_count;
    reshard_cut cuts[RESHARD_AXES_MAX];           /* in the order they apply */
    reshard_spec *placements[RESHARD_AXES_MAX];   /* own the lists of the cuts */
    const rs_rule *origins[RESHARD_AXES_MAX];     /* the rules that the cuts come from */
    const rs_rule_cut *sources[RESHARD_AXES_MAX]; /* the text they come from */
    bool is_even[RESHARD_AXES_MAX];               /* must divide evenly, whatever its unit */
    bool is_single;                               /* some of its specs are not the memo's */
    int32_t pad_count;
    rs_found_pad pads[RESHARD_NDIM_MAX];
} rs_rule_finding;

/* What is asked for. A tensor of too many dims has none here: it can only be whole. */
rs_rule_finding rs_rule_finding_of(const rs_rules *rules, reshard_mesh *mesh,
                                   const rs_rules_keys *keys, const char *name, size_t name_bytes,
                                   int32_t ndim, const int64_t *shape);
/* Finds the rule only: rule, misfit, is_drop and spans. Errors: NOT_FOUND; INVALID when two rules
 * of one pattern ask for shapes that both fit. */
reshard_status rs_rule_match(rs_rule_finding *found);
/* Finds the rule and, unless it drops the tensor, the cuts and pads. Release in any case. */
reshard_status rs_rule_find(rs_rule_finding *found);
void rs_rule_finding_release(rs_rule_finding *found);
/* Does the shape fit what the rule found asks for? */
reshard_status rs_rule_fits(const rs_rule_finding *found, const int64_t *shape, bool *out_fits);

/* What numbers of a rule refer to. */
rs_number_scope rs_rule_scope(const rs_rule_finding *found, const rs_rule *rule,
                              const rs_glob_span *spans);
/* Adds a cut of `rule`, already read; takes over the spec that owns its lists. */
void rs_rule_add_placement(rs_rule_finding *found, const rs_rule *rule, const rs_rule_cut *source,
                           int32_t axis, const reshard_placement *placement, bool is_even,
                           reshard_spec *spec);
/* Reads a cut for the axis that it names. A cut that refuses fails with its words. *out_spec stays
 * NULL where the mesh does not have the axis, or where a single coordinate needs no cut. */
reshard_status rs_rule_read_cut(const rs_rule_finding *found, const rs_rule *rule,
                                const rs_number_scope *scope, const rs_rule_cut *cut,
                                int32_t *out_axis, reshard_spec **out_spec);
reshard_status rs_rule_read_pad(const rs_number_scope *scope, const rs_rule_pad *pad,
                                int64_t *out_multiple, int64_t *out_true_size);
/* Takes the cuts and pads of the rule that like() names (follow.c). */
reshard_status rs_rule_follow_other(rs_rule_finding *found);

/* The dimension that a cut concerns, counted from 0; -1 when the tensor does not have it, or when
 * the cut is flat. */
int32_t rs_placement_dim(const reshard_placement *placement, int32_t ndim);

/* "S(0, unit=$head_dim)@tp", for messages. */
rs_excerpt rs_rule_cut_words(const rs_rule_cut *cut);

/* Adds or takes off the padding of pad(). It is taken off only where the true size is known. */
reshard_status rs_rule_pad_shape(const rs_rule_finding *found, int32_t ndim, int64_t *shape);
reshard_status rs_rule_unpad_shape(const rs_rule_finding *found, int32_t ndim, int64_t *shape,
                                   bool *out_unknown);

/* The memo's spec of a cut (memo.c); one more reference. Errors: as rs_rule_placement_parse. */
reshard_status rs_rule_memo_cut(rs_rule_memo *memo, const rs_number_scope *scope,
                                const rs_rule_cut *cut, int64_t axis_size, reshard_spec **out_spec);

/* The result of a finding of full shape, which does not drop the tensor. */
reshard_status rs_rule_result_make(const rs_rule_finding *found, rs_rule_result *out_result);
/* Checks that the cuts fit the shape, and makes the result. Without a new name if there is a memo,
 * because other tensors share the result. */
reshard_status rs_rule_finish(const rs_rule_finding *found, int32_t ndim, const int64_t *shape,
                              const int64_t *padded_shape, rs_rule_result *out_result);

/* Puts the tensor's name, and its shape unless that is NULL, in front of the error text. */
reshard_status rs_rule_fail_for_tensor(reshard_status status, const char *name, size_t name_bytes,
                                       int32_t ndim, const int64_t *shape);

#endif
