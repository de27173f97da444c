/* SPDX-License-Identifier: Apache-2.0 */
/*
 * universal.h - the files of a universal checkpoint that is being written, and what goes into each.
 *
 *     latest_universal                               names the folder below
 *     TAG/zero/NAME/fp32.pt, exp_avg.pt, .., step.pt     one folder for each parameter
 *     TAG/zero/optimizer_state.pt                    what the optimizer has besides
 *     TAG/mp_rank_00_model_states.pt                 buffers and values, for stages up to 2
 *     TAG/zero_pp_rank_0_mp_rank_00_model_states.pt  the same values, for stage 3
 */
#ifndef RS_CHECKPOINT_DEEPSPEED_UNIVERSAL_H
#define RS_CHECKPOINT_DEEPSPEED_UNIVERSAL_H

#include "checkpoint/archive/pickle.h"
#include "checkpoint/archive/pickle_write.h"
#include "checkpoint/target/format.h"
#include "checkpoint/target/target.h"

typedef enum rs_universal_kind {
    RS_UNIVERSAL_MODEL,
    RS_UNIVERSAL_RANK_MODEL,
    RS_UNIVERSAL_OPTIMIZER,
    RS_UNIVERSAL_STATE, /* a tensor of a parameter */
    RS_UNIVERSAL_STEP,  /* a bare value or scalar of a parameter */
    RS_UNIVERSAL_ZEROS, /* a moment that the source does not have */
} rs_universal_kind;

typedef struct rs_universal_file {
    rs_universal_kind kind;
    rs_slice parameter;
    rs_slice state;               /* "exp_avg" */
    int64_t tensor;               /* of STATE and ZEROS: whose shape it has; of STEP: -1: a value */
    const rs_stored_value *value; /* of STEP; NULL: a tensor */
} rs_universal_file;

/* An alias of a tied tensor. */
typedef struct rs_universal_alias {
    rs_slice alias, kept;
} rs_universal_alias;

/* Kept in the target's notes. */
typedef struct rs_universal {
    const char *tag;
    rs_slice home; /* "model.": what parameters' names lose; may be empty */
    rs_universal_file *files;
    int64_t alias_count;
    rs_universal_alias *aliases;
    /* parameters of which the optimizer has a master copy, sorted */
    rs_slice *masters;
    size_t master_count;
    const rs_stored_value *param_groups, *ds_version; /* NULL: the source has none */
    const rs_pickle_node *step; /* of the first parameter; NULL: it is a tensor, or there is none */
    int64_t step_number;        /* of that tensor */
} rs_universal;

static inline const rs_universal *rs_universal_of(const rs_target *target)
{
    return target->notes;
}

/* The name of a parameter of the target, as DeepSpeed has it: without the home. */
rs_slice rs_universal_name(const rs_universal *universal, rs_slice name);
/* Is the weight of this parameter the optimizer's copy, and the model's beside it? */
bool rs_universal_has_master(const rs_universal *universal, rs_slice parameter);
/* Is it a value of the model file, not of the optimizer? */
bool rs_universal_is_global(const rs_stored_value *value);
/* Writes the pickle of a file (universal_pickles.c). */
reshard_status rs_universal_write(rs_pickle_writer *writer, const rs_target *target, int32_t file);

/* universal_write.c - writes universal checkpoints of DeepSpeed: functions for the row of the
 * format. */

reshard_status rs_universal_lay_out(rs_laying *laying);
bool rs_universal_holds(const rs_stored_value *value);
bool rs_universal_leaves_tied(rs_slice name);
void rs_universal_name_file(const rs_target *target, int32_t file, int32_t rank,
                            char out_name[RS_FILE_NAME_BYTES]);
extern const struct rs_torch_style rs_universal_style;
reshard_status rs_universal_finish(const rs_target *target, const rs_finishing *finishing);

#endif
