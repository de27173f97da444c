/* SPDX-License-Identifier: Apache-2.0 */
/*
 * select.h - which tensors of the source a conversion takes, with which dtype and under which name:
 * first include, exclude, dtype and rename of the options, then name() and drop of rules.
 *
 * Patterns of options match names in the source; rules see the names after rename.
 *
 * The state of an optimizer follows its parameters (parameter.h): what has the parameter's shape is
 * cut by its rule, and everything is renamed and dropped with it.
 */
#ifndef RS_CHECKPOINT_RULES_SELECT_H
#define RS_CHECKPOINT_RULES_SELECT_H

#include "checkpoint/rules/rulebook.h"

#include <reshard/conversion.h>

/* Of an optimizer's state: its parameter, and what that is called now. Its own name is the
 * parameter's with front and back around it, unless an option gives it one; skipped is what the
 * parameter's name begins with and this one does not. */
typedef struct rs_followed {
    const rs_stored_tensor *parameter;
    rs_slice parameter_name;
    bool follows;
    rs_slice front, back, skipped;
} rs_followed;

#define RS_RULE_NONE (-1) /* of a number, which nothing could cut */

typedef struct rs_selected {
    int64_t origin;                 /* the source's tensor */
    const rs_stored_tensor *stored; /* as it is read: that one, or what is made of it */
    reshard_dtype dtype;
    int32_t rule;                /* once rules are applied: which matches; or RS_RULE_NONE */
    rs_slice matched;            /* what rules match: of a state, the name of its parameter */
    rs_slice name;               /* what it shall be called */
    const rs_followed *followed; /* NULL: it is no state */
} rs_selected;

typedef struct rs_selection {
    int64_t count, room;
    rs_selected *items; /* by name, once finished */
    /* Only names that begin like this were taken, and lost it; "model.", say. Empty: all. */
    rs_slice prefix;
    int64_t outside_count; /* tensors that do not begin like this */
    uint64_t outside_bytes;
    /* What rules left out: how many, and the first one's name and rule. */
    int64_t dropped_count;
    rs_slice dropped;
    int32_t dropped_line;
    /* What is quantised, and what belongs to it: a cast of everything leaves it alone. */
    int64_t quantised_count;
    rs_slice quantised;
    /* Weights that are made of codes and scales, and what goes with these and is left out. */
    int64_t made_count, scale_count;
} rs_selection;

/* Everything that items point to is in the arena or belongs to the source, so that names outlive
 * the selection. takes_model: unless the options say otherwise, only the part that is the model is
 * taken. Release in any case. Errors: SYNTAX, INVALID (a pattern of include, dtype or rename that
 * matches no tensor), UNSUPPORTED (a cast). */
reshard_status rs_selection_init(rs_selection *selection, rs_arena *arena,
                                 const reshard_checkpoint *source,
                                 const reshard_conversion_options *options, bool takes_model);
void rs_selection_release(rs_selection *selection, reshard_context *context);
/* Adds what rules say about names. Errors: NOT_FOUND when no rule matches one. */
reshard_status rs_selection_apply(rs_selection *selection, rs_arena *arena,
                                  const rs_rulebook *book);
/* Sorts by name. Errors: INVALID when two have the same name, or when a name cannot be written. */
reshard_status rs_selection_finish(rs_selection *selection);

/* Whether a tensor of a finished selection has this name. */
bool rs_selection_has(const rs_selection *selection, rs_slice name);
/* An rs_tensor_name_fn over the names that rules match; user is a selection. */
const char *rs_selection_name(void *user, int64_t index, size_t *out_bytes);

#endif
