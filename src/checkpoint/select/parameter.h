/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parameter.h - finds the parameter that a tensor of an optimizer's state belongs to. The state's
 * name is that of the parameter, with a path before it and the name of the state after it:
 *     optimizer.state.model.layers.0.mlp.up_proj.weight.exp_avg
 * Any name of a state will do. If the model is stored below a key of its own (model, module,
 * state_dict), names in the optimizer do not have that key.
 */
#ifndef RS_CHECKPOINT_SELECT_PARAMETER_H
#define RS_CHECKPOINT_SELECT_PARAMETER_H

#include "checkpoint/store/store.h"

typedef struct rs_parameter {
    int64_t tensor;       /* index in the source; -1: none, and nothing else is set */
    rs_slice front, back; /* the parts of the state's name before and after the parameter's */
    size_t skipped;       /* bytes of the parameter's name that the state's name lacks: "model." */
    bool same_shape;      /* false: it is a scalar of the parameter, such as a step */
} rs_parameter;

/* Tries every suffix of the name that begins after a dot. */
rs_parameter rs_parameter_find(const reshard_checkpoint *source, const rs_stored_tensor *tensor);

/* ---- Megatron's keys of states --------------------------------------------------------------- */

/* The name behind chained_0., which several optimizers have in front of theirs. */
rs_slice rs_state_name(rs_slice name);
/* Is it a part of an optimizer's state that is stored without regard to parameters, in the flat
 * buckets of data-parallel ranks? */
bool rs_state_is_bucket(rs_slice name);
/* Is it called as the state of a parameter is? It has the parameter's shape, unless an old form
 * (fully_sharded_model_space) made it another. */
bool rs_state_is_named(rs_slice name);

#endif
