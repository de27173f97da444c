/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuts.h - what the rules say about the tensors of a checkpoint: which are taken, as what, and how
 * each is cut over a mesh, by which line. Nothing here knows of an output; conversions lay theirs
 * out by this, comparisons take only names and dtypes.
 *
 * The usual order: init, read_rules, then find for each item of the selection.
 */
#ifndef RS_CHECKPOINT_SELECT_CUTS_H
#define RS_CHECKPOINT_SELECT_CUTS_H

#include "checkpoint/rules/memo.h"
#include "checkpoint/select/select.h"

/* How rules cut a tensor. Tensors that are cut alike share it. */
typedef struct rs_cut_row {
    const char *cut; /* as a spec */
    int32_t local_ndim;
    const int64_t *local_shape; /* on the first rank that holds part of it */
    const int64_t *padded_shape;
    const char *rule_file;
    int32_t rule_line;
    bool zeros; /* ranks that are not to have it hold zeros */
    /* Of padded_shape, or NULL if the tensor has too many dims; and of what is carried: the same
     * or, for an opaque tensor, its line of bytes. A reference each. */
    reshard_layout *layout, *carried;
    struct rs_cut_row *next;
} rs_cut_row;

typedef struct rs_cuts {
    rs_arena *arena; /* of rows and names */
    rs_selection selection;
    rs_rulebook book; /* without rules, if nothing was asked of them */
    rs_rule_memo memo;
    rs_table found;   /* rows, by what they depend on */
    rs_cut_row *rows; /* a list of all; whoever keeps the arena may take it over */
} rs_cuts;

/* Selects tensors. The arena and the source must outlive the cuts. Release in any case. Errors:
 * as rs_selection_init. */
reshard_status rs_cuts_init(rs_cuts *cuts, rs_arena *arena, const reshard_checkpoint *source,
                            const reshard_conversion_options *options, bool takes_model);
void rs_cuts_release(rs_cuts *cuts);
void rs_cut_rows_release(rs_cut_row *rows);

/* Lets rules name, drop and match the tensors, if `is_split` or the options name some, and sorts
 * the selection. Errors: as rs_rulebook_init, rs_selection_apply, rs_selection_finish. */
reshard_status rs_cuts_read_rules(rs_cuts *cuts, const reshard_checkpoint *source,
                                  reshard_mesh *mesh, const reshard_conversion_options *options,
                                  bool is_split);

/* Finds how a selected tensor is cut; the rules must have been read. `tensor` is what it becomes
 * (rs_store_describe). Errors: as rs_rules_apply; UNSUPPORTED for an opaque tensor that would be
 * cut. */
reshard_status rs_cuts_find(rs_cuts *cuts, const rs_selected *selected,
                            const rs_stored_tensor *tensor, const rs_cut_row **out_row);

/* What callers see of a tensor; row NULL: it is not cut. */
reshard_conversion_tensor rs_cut_tensor_of(const rs_stored_tensor *tensor, const int64_t *source,
                                           const rs_cut_row *row);
/* Refuses a checkpoint that was opened only to be looked at. Errors: INVALID. */
reshard_status rs_cuts_check_source(const reshard_checkpoint *source);

/* Does the spec cut along an axis of more than one rank? flat_only: count only flat cuts. */
bool rs_spec_cuts(const reshard_spec *spec, bool flat_only);

#endif
