/* SPDX-License-Identifier: Apache-2.0 */
/*
 * optimizer.h - training: SGD, AdamW, and clipping of gradients. A step reads and writes only this
 * rank's own shards, keeps state only for them, and never talks to other ranks.
 */
#ifndef RESHARD_OPTIMIZER_H
#define RESHARD_OPTIMIZER_H

#include <reshard/group.h>
#include <reshard/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ==== simple =====================================================================================
 * Make one for a module, and step.
 */

typedef struct reshard_optimizer reshard_optimizer;

typedef struct reshard_sgd_options {
    size_t size; /* sizeof(reshard_sgd_options) */
    double learning_rate;
    double momentum;     /* 0: none */
    double weight_decay; /* added to the gradient */
    int nesterov;
} reshard_sgd_options;

typedef struct reshard_adamw_options {
    size_t size; /* sizeof(reshard_adamw_options) */
    double learning_rate;
    double beta1, beta2; /* 0.9 and 0.999 when both are 0 */
    double epsilon;      /* 1e-8 when 0 */
    double weight_decay; /* decoupled: applied to the value itself */
} reshard_adamw_options;

/* Makes an optimizer for the parameters that the module has now and that require gradients; a tied
 * parameter is stepped once. Create it after the module has been spread over ranks. The parameters
 * are retained. Local. Errors: UNSUPPORTED for dtypes other than f32 and f64; INVALID for options
 * that are NULL or out of range; NOT_FOUND if nothing is trainable. */
RESHARD_API reshard_status reshard_sgd_create(reshard_context *context, reshard_module *module,
                                              const reshard_sgd_options *options,
                                              reshard_optimizer **out_optimizer);
RESHARD_API reshard_status reshard_adamw_create(reshard_context *context, reshard_module *module,
                                                const reshard_adamw_options *options,
                                                reshard_optimizer **out_optimizer);
RESHARD_API void reshard_optimizer_destroy(reshard_optimizer *optimizer);

/* Takes one step. Parameters without a gradient stay as they are, and their step count does too.
 * Local. Errors: INVALID if the learning rate that was set is out of range, or a step count is
 * impossible (nothing has changed then); NO_MEMORY. */
RESHARD_API reshard_status reshard_optimizer_step(reshard_optimizer *optimizer);
RESHARD_API void reshard_optimizer_clear_gradients(reshard_optimizer *optimizer);
/* Takes effect from the next step on, which refuses a rate that is negative, infinite or NaN. */
RESHARD_API void reshard_optimizer_set_learning_rate(reshard_optimizer *optimizer, double rate);

/* ==== explicit ===================================================================================
 * State to save and to load, and the norm of gradients over all ranks.
 */

/*
 * Lists what a checkpoint stores, under PyTorch's names: for AdamW, "h.0.attn.q.weight.exp_avg" and
 * ".exp_avg_sq" in the layout of their parameter, and ".step", an i64 without dims that is the same
 * on all ranks; for SGD with momentum, ".momentum_buffer". None of these names occurs in the
 * module's own state dict, so both can be stored together. The tensors are the optimizer's own, not
 * copies. Another optimizer whose tensors have the same values continues training bit for bit.
 * Local.
 */
RESHARD_API reshard_status reshard_optimizer_state_dict(const reshard_optimizer *optimizer,
                                                        reshard_named_tensors **out_list);
/* Copies values into the optimizer's tensors, by the rules of reshard_module_load_state_dict: all
 * or nothing, from any layout. Learning rate, decay and other options are not part of the state.
 * Collective if tensors are distributed. */
RESHARD_API reshard_status reshard_optimizer_load_state_dict(reshard_optimizer *optimizer,
                                                             int64_t count,
                                                             const reshard_named_tensor *items,
                                                             const reshard_load_options *options);

/*
 * Scales the gradients so that their norm over all parameters and ranks is at most norm_max.
 * Elements that several ranks hold count once; gradients of local parameters must be the same on
 * all ranks, and also count once. The sum is computed in double and in rank order, so every rank
 * gets the same norm. Collective over the group; group NULL: the current one. If there is none and
 * all parameters are local, this is Local. norm_max 0: only compute the norm. out_norm may be NULL.
 * Errors: INVALID if the norm is not finite (nothing is scaled then), or if a parameter is
 * distributed and there is no group; UNSUPPORTED for layouts in which copies are not the replicas
 * of a mesh axis.
 */
RESHARD_API reshard_status reshard_optimizer_clip(reshard_optimizer *optimizer,
                                                  reshard_group *group, double norm_max,
                                                  double *out_norm);

#ifdef __cplusplus
}
#endif
#endif
