/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parameter.h - which parameter a tensor of an optimizer's state belongs to: its name is that of
 * the parameter, with a path in front of it and the name of the state behind,
 *     optimizer.state.model.layers.0.mlp.up_proj.weight.exp_avg
 * The names of states are whatever the files say. Where the model is kept below a key of its own
 * (model, module, state_dict), the optimizer's names are without it.
 */
#ifndef RS_CHECKPOINT_RULES_PARAMETER_H
#define RS_CHECKPOINT_RULES_PARAMETER_H

#include "checkpoint/store/store.h"

typedef struct rs_parameter {
    int64_t tensor;       /* of the source; -1: none, and nothing else is set */
    rs_slice front, back; /* the state's name in front of the parameter's, and behind it */
    size_t skipped;       /* bytes of the parameter's name that are not in the state's: "model." */
    bool same_shape;      /* else it is a number beside the parameter, such as a step */
} rs_parameter;

/* Looks at one suffix of the name after the other. */
rs_parameter rs_parameter_find(const reshard_checkpoint *source, const rs_stored_tensor *tensor);

#endif
