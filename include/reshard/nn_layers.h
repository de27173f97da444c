/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nn_layers.h - ready modules. Each call makes one; what it holds is named behind it. Parameters
 * collect gradients. Their first values depend on the seed and on the element's index alone, so
 * that they are the same however the module is spread over ranks later.
 *
 * All of them work on local tensors, and on distributed ones. Where some of a module's tensors are
 * distributed and others are local, local ones count as replicated over the mesh of the others: a
 * plan (shard.h) need not name everything. Weights stay where the plan put them, and the rest
 * follows: what is replicated is used by its slices, which moves nothing (a bias beside a weight
 * cut by rows; an input beside one cut by columns); inputs that are cut otherwise or partial, and
 * weights in layouts that ops.h does not have, are redistributed. Gradients have the layout of
 * their tensor.
 *
 * All calls are Local. Errors: RANGE for sizes, UNSUPPORTED for dtypes other than f16, bf16, f32,
 * f64.
 */
#ifndef RESHARD_NN_LAYERS_H
#define RESHARD_NN_LAYERS_H

#include <reshard/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What the parameters of a module should be. */
typedef struct reshard_layer_options {
    size_t size;         /* sizeof(reshard_layer_options) */
    reshard_dtype dtype; /* of parameters; NONE: f32 */
    uint64_t seed;
    int no_bias;
    /* Weights are normal with this deviation and biases are zero. 0: as in PyTorch, that is,
     * uniform within 1/sqrt(inputs) for linear, and normal with deviation 1 for embedding. */
    double deviation;
} reshard_layer_options;

/* options NULL: f32, seed 0, with biases. */

/* weight [outputs, inputs], bias [outputs]. */
RESHARD_API reshard_status reshard_linear_create(reshard_context *context, int64_t inputs,
                                                 int64_t outputs,
                                                 const reshard_layer_options *options,
                                                 reshard_module **out_module);
/* weight [count, width]; takes i64 indices. */
RESHARD_API reshard_status reshard_embedding_create(reshard_context *context, int64_t count,
                                                    int64_t width,
                                                    const reshard_layer_options *options,
                                                    reshard_module **out_module);
/* weight [width] of ones, bias [width] of zeros. */
RESHARD_API reshard_status reshard_layernorm_create(reshard_context *context, int64_t width,
                                                    double epsilon,
                                                    const reshard_layer_options *options,
                                                    reshard_module **out_module);
/* weight [width] of ones. */
RESHARD_API reshard_status reshard_rmsnorm_create(reshard_context *context, int64_t width,
                                                  double epsilon,
                                                  const reshard_layer_options *options,
                                                  reshard_module **out_module);

typedef enum reshard_activation {
    RESHARD_ACTIVATION_RELU,
    RESHARD_ACTIVATION_GELU,
    RESHARD_ACTIVATION_SILU
} reshard_activation;
RESHARD_API reshard_status reshard_activation_create(reshard_context *context,
                                                     reshard_activation activation,
                                                     reshard_module **out_module);
/* Calls the children one after the other. They are retained, and named "0", "1", ... */
RESHARD_API reshard_status reshard_sequential_create(reshard_context *context, int32_t count,
                                                     reshard_module *const *children,
                                                     reshard_module **out_module);

/* fc1 [hidden, width], activation, fc2 [width, hidden]. */
RESHARD_API reshard_status reshard_mlp_create(reshard_context *context, int64_t width,
                                              int64_t hidden, reshard_activation activation,
                                              const reshard_layer_options *options,
                                              reshard_module **out_module);
/* q, k, v and o are linear from width to width; takes and gives [batch, length, width]. Heads are
 * consecutive parts of the rows of q, k and v. Cuts that keep them whole (S(0, unit=width/heads))
 * move nothing; others are put together first. Errors: INVALID if heads do not divide width. */
RESHARD_API reshard_status reshard_attention_create(reshard_context *context, int64_t width,
                                                    int64_t heads,
                                                    const reshard_layer_options *options,
                                                    reshard_module **out_module);
/* x + attn(ln1(x)), then x + mlp(ln2(x)), with gelu and a hidden size of 4 * width. */
RESHARD_API reshard_status reshard_block_create(reshard_context *context, int64_t width,
                                                int64_t heads, const reshard_layer_options *options,
                                                reshard_module **out_module);

/* The mean of (output - target)^2, as a tensor without dims in the innermost scope. If one of the
 * two is distributed, the other may be local, and counts as replicated; where their layouts differ,
 * or are partial, they are brought together, which is Collective. reshard_tensor_value reads it. */
RESHARD_API reshard_tensor *reshard_mse_loss(reshard_tensor *output, reshard_tensor *target);

typedef struct reshard_gpt_options {
    size_t size;        /* sizeof(reshard_gpt_options) */
    int64_t vocabulary; /* tokens */
    int64_t length;     /* longest sequence */
    int64_t width, heads, layers;
    reshard_dtype dtype; /* of parameters; NONE: f32 */
    uint64_t seed;
    int untied; /* non-zero: the head has a weight of its own */
} reshard_gpt_options;

/* Takes i64 tokens [batch, length] and gives logits [batch, length, vocabulary]. Has the children
 * wte, wpe, h.0, h.1, .., ln, head; head.weight is tied to wte.weight. Weights are normal with
 * deviation 0.02. */
RESHARD_API reshard_status reshard_gpt_create(reshard_context *context,
                                              const reshard_gpt_options *options,
                                              reshard_module **out_module);

#ifdef __cplusplus
}
#endif
#endif
