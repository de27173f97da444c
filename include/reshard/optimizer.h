/* SPDX-License-Identifier: Apache-2.0 */
/*
 * optimizer.h - steps of training: SGD and AdamW, and clipping of gradients. A step touches this
 * rank's own shards only, and keeps its state for them only; it never talks to other ranks.
 */
#ifndef RESHARD_OPTIMIZER_H
#define RESHARD_OPTIMIZER_H

#include <reshard/group.h>
#include <reshard/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

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
    double weight_decay; /* of the value itself, decoupled from the gradient */
} reshard_adamw_options;

/* For the parameters that the module has now and that require gradients; those tied to each other
 * are stepped once. Make it after the module has been spread over ranks. Local. Errors: UNSUPPORTED
 * for dtypes other than f32 and f64; INVALID for options out of range, NOT_FOUND when nothing is
 * trainable. */
RESHARD_API reshard_status reshard_sgd_create(reshard_context *context, reshard_module *module,
                                              const reshard_sgd_options *options,
                                              reshard_optimizer **out_optimizer);
RESHARD_API reshard_status reshard_adamw_create(reshard_context *context, reshard_module *module,
                                                const reshard_adamw_options *options,
                                                reshard_optimizer **out_optimizer);
RESHARD_API void reshard_optimizer_destroy(reshard_optimizer *optimizer);

/* Parameters that have no gradient stay as they are, and do not count the step. Local. Errors:
 * INVALID, before anything is changed, for a count of steps that cannot be; NO_MEMORY. */
RESHARD_API reshard_status reshard_optimizer_step(reshard_optimizer *optimizer);
RESHARD_API void reshard_optimizer_clear_gradients(reshard_optimizer *optimizer);
RESHARD_API void reshard_optimizer_set_learning_rate(reshard_optimizer *optimizer, double rate);
/* Bytes of state that this rank keeps. */
RESHARD_API size_t reshard_optimizer_bytes(const reshard_optimizer *optimizer);

/*
 * What a checkpoint keeps, by the names that PyTorch uses: of AdamW "h.0.attn.q.weight.exp_avg" and
 * ".exp_avg_sq", which lie as their parameter does, and ".step", an i64 without dims, the same on
 * all ranks; of SGD ".momentum_buffer" where it has momentum. No name is one of the module's own
 * state dict, so that both can be stored together. The tensors are the optimizer's own, not copies:
 * training goes on, bit for bit, in an optimizer whose tensors have the same values. Local.
 */
RESHARD_API reshard_status reshard_optimizer_state_dict(const reshard_optimizer *optimizer,
                                                        reshard_named_tensors **out_list);
/* Copies values into them, by the rules of reshard_module_load_state_dict: all or nothing, from any
 * layout. Options of learning and decay are not part of the state. Collective where tensors are
 * distributed. */
RESHARD_API reshard_status reshard_optimizer_load_state_dict(reshard_optimizer *optimizer,
                                                             int64_t count,
                                                             const reshard_named_tensor *items,
                                                             const reshard_load_options *options);

/*
 * Scales the gradients so that their norm over all parameters and ranks is at most norm_max.
 * Elements that several ranks hold count once; gradients of local parameters are the same on all
 * ranks. The sum is in double and in the order of ranks, and the norm the same on every rank.
 * Collective over the group; NULL: this rank alone. norm_max 0: only the norm is worked out.
 * out_norm may be NULL. Errors: INVALID for a norm that is not finite (nothing is scaled),
 * UNSUPPORTED for layouts with copies that no axis tells.
 */
RESHARD_API reshard_status reshard_optimizer_clip(reshard_optimizer *optimizer,
                                                  reshard_group *group, double norm_max,
                                                  double *out_norm);

#ifdef __cplusplus
}
#endif
#endif
