/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nn_layers.h - ready-made modules. The comment of each call lists what the module holds.
 * Parameters collect gradients. Their first values depend only on the seed and on the element's
 * index, so they are the same no matter how the module is later spread over ranks.
 *
 * All of them work on local and on distributed tensors. If some of a module's tensors are
 * distributed and others are local, the local ones count as replicated over the mesh of the others,
 * so a plan (shard.h) need not name everything. They must be the same on all ranks of the mesh. The
 * ranks compare each parameter once, and inputs once for each shape; if they differ, the call fails
 * with MISMATCH, naming two ranks. An input that is known to differ, because it was taken from a
 * distributed tensor (reshard_tensor_to_local, reshard_module_collect_local_shard), received from a
 * collective, or computed from such a tensor, is not refused: each rank then has its own rows (dim
 * 0), in the order of the mesh, and the output has the rows of all ranks, as in PyTorch. Weights
 * stay where the plan put them, and the rest follows. Of replicated tensors, each rank uses the
 * slice that it needs, which moves nothing (a bias beside a weight cut by rows; an input beside one
 * cut by columns). Inputs that are partial or cut in another way, and weights in layouts that ops.h
 * does not support, are redistributed. Gradients have the layout of their tensor.
 *
 * All calls are Local. Errors: RANGE for sizes and deviations, UNSUPPORTED for dtypes other than
 * f16, bf16, f32, f64.
 */
#ifndef RESHARD_NN_LAYERS_H
#define RESHARD_NN_LAYERS_H

#include <reshard/nn.h>
#include <reshard/ops.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ==== simple =====================================================================================
 * Layers, the loss of a regression, and a whole GPT to begin with.
 */

/* How to make the parameters of a module. */
typedef struct reshard_layer_options {
    size_t size;         /* sizeof(reshard_layer_options) */
    reshard_dtype dtype; /* of parameters; NONE: f32 */
    uint64_t seed;
    int no_bias;
    /* Weights are drawn from a normal distribution with this standard deviation, and biases are
     * zero. 0: as in PyTorch: uniform within +-1/sqrt(inputs) for linear, normal with standard
     * deviation 1 for embedding. */
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
/* The same, reducing bags of indices (ops.h): takes i64 indices [bags, n], or a list of indices
 * [n], offsets, and sample weights, of which the last two may be left out or be nothing. how:
 * options, without tensors; NULL: sums. Errors: also those of options. */
RESHARD_API reshard_status reshard_embedding_bag_create(reshard_context *context, int64_t count,
                                                        int64_t width,
                                                        const reshard_embedding_bag_options *how,
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
/* q, k, v and o are linear from width to width; takes and returns [batch, length, width]. Heads are
 * consecutive parts of the rows of q, k and v. Cuts that keep heads whole (S(0, unit=width/heads))
 * move nothing; with other cuts, heads are joined first. Errors: INVALID if width is not a multiple
 * of heads. */
RESHARD_API reshard_status reshard_attention_create(reshard_context *context, int64_t width,
                                                    int64_t heads,
                                                    const reshard_layer_options *options,
                                                    reshard_module **out_module);
/* x + attn(ln1(x)), then x + mlp(ln2(x)), with gelu and a hidden size of 4 * width. */
RESHARD_API reshard_status reshard_block_create(reshard_context *context, int64_t width,
                                                int64_t heads, const reshard_layer_options *options,
                                                reshard_module **out_module);

/* The mean of (output - target)^2, as a tensor without dims in the innermost scope. If one of the
 * two is distributed, the other may be local, and counts as replicated. If their layouts differ or
 * are partial, they are redistributed first, which is Collective. reshard_tensor_value reads the
 * result. */
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

/* Takes i64 tokens [batch, length] and returns logits [batch, length, vocabulary]. The children are
 * wte, wpe, h.0, h.1, .., ln and head; head.weight is tied to wte.weight unless `untied` is set.
 * Weights are drawn from a normal distribution with standard deviation 0.02. */
RESHARD_API reshard_status reshard_gpt_create(reshard_context *context,
                                              const reshard_gpt_options *options,
                                              reshard_module **out_module);

#ifdef __cplusplus
}
#endif
#endif
