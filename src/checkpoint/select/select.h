/* SPDX-License-Identifier: Apache-2.0 */
/*
 * select.h - which tensors of the source a conversion takes, and their dtypes and names: first the
 * options include, exclude, dtype and rename, then name() and drop of the rules.
 *
 * Patterns of options match names in the source; rules see the names after rename.
 *
 * The state of an optimizer follows its parameters (parameter.h): state with the parameter's shape
 * is cut by the parameter's rule, and all of it is renamed and dropped together with the parameter.
 */
#ifndef RS_CHECKPOINT_SELECT_SELECT_H
#define RS_CHECKPOINT_SELECT_SELECT_H

#include "checkpoint/rules/rulebook.h"

#include <reshard/conversion.h>

/* For an optimizer's state: its parameter, and the parameter's new name. The state's own name is
 * that name between front and back, unless an option renames it (`follows` is false then). skipped
 * is the beginning of the parameter's name that the state's name does not have. */
typedef struct rs_followed {
    const rs_stored_tensor *parameter;
    rs_slice parameter_name;
    bool follows;
    rs_slice front, back, skipped;
} rs_followed;

#define RS_RULE_NONE (-1) /* for a scalar, which nothing can cut */

typedef struct rs_selected {
    int64_t origin;                 /* index of the tensor in the source */
    const rs_stored_tensor *stored; /* as it is read: that tensor, or what is computed from it */
    reshard_dtype dtype;
    /* index of the matching rule, or RS_RULE_NONE; set by rs_selection_apply */
    int32_t rule;
    rs_slice matched;            /* the name that rules match; for a state, that of its parameter */
    rs_slice name;               /* the name in the target */
    const rs_followed *followed; /* NULL: this is no optimizer state */
} rs_selected;

typedef struct rs_selection {
    int64_t count, room;
    rs_selected *items; /* sorted by name once finished */
    /* Only tensors with this prefix ("model.") were taken, and lost it. Empty: all were. */
    rs_slice prefix;
    int64_t outside_count; /* tensors without the prefix */
    uint64_t outside_bytes;
    rs_slice outside; /* the first one's name */
    /* The prefix is what a nested source calls its model, but names only happen to begin with it:
     * tensors of the model may be outside. */
    bool splits_model;
    int64_t aside_count; /* tensors that are kept aside, and that nothing asked for */
    rs_slice aside;      /* the first one's name */
    /* Tensors that rules dropped: how many, and the first one's name and line. */
    int64_t dropped_count;
    rs_slice dropped;
    int32_t dropped_line;
    /* Quantised tensors and their companions, which a cast of everything leaves alone: how many,
     * and the first one's name. */
    int64_t quantised_count;
    rs_slice quantised;
    /* Scales and the like that patterns leave behind while they choose what these belong to: how
     * many, and the first one's name. */
    int64_t parted_count;
    rs_slice parted;
    /* Weights that are computed from codes and scales, and scales and the like that are left out
     * because of it. */
    int64_t made_count, scale_count;
} rs_selection;

/* Everything that items point to is in the arena or belongs to the source, so names outlive the
 * selection. takes_model: take only the part that is the model, unless the options say otherwise.
 * Release in any case, even after an error. Errors: SYNTAX, INVALID (a pattern of include, dtype or
 * rename that matches no tensor), UNSUPPORTED (a cast). */
reshard_status rs_selection_init(rs_selection *selection, rs_arena *arena,
                                 const reshard_checkpoint *source,
                                 const reshard_conversion_options *options, bool takes_model);
/* What a nested checkpoint calls the part that is the model; NULL: it is not nested. */
const char *rs_selection_find_model(const reshard_checkpoint *source);
/* For a target that has no quantised types like those of GGUF: is it said what they become? Errors:
 * INVALID, with the hint DEQUANTIZE. */
reshard_status rs_selection_check_blocks(const rs_selection *selection,
                                         const reshard_conversion_options *options);
void rs_selection_release(rs_selection *selection, reshard_context *context);
/* Applies the rules to names. Errors: NOT_FOUND if no rule matches one. */
reshard_status rs_selection_apply(rs_selection *selection, rs_arena *arena,
                                  const rs_rulebook *book);
/* Sorts by name. Errors: INVALID if two tensors have the same name, or if a name cannot be
 * written. */
reshard_status rs_selection_finish(rs_selection *selection);

/* Whether a finished selection has a tensor of this name. */
bool rs_selection_has(const rs_selection *selection, rs_slice name);
/* The rs_tensor_name_fn for the names that rules match; user is a selection. */
const char *rs_selection_name(void *user, int64_t index, size_t *out_bytes);

/* Makes a state's name from the new name of its parameter, in the arena. */
reshard_status rs_followed_name(rs_arena *arena, const rs_followed *followed, rs_slice parameter,
                                rs_slice *out_name);

#endif
