/* SPDX-License-Identifier: Apache-2.0 */
/*
 * own_operation.h - operations of your own: a forward and a backward function, and rules that say
 * what they do to layouts. They work on local and on distributed tensors, in modules, and under
 * sharding plans, as those of ops.h do. In PyTorch this is autograd.Function together with
 * register_sharding.
 *
 *     static reshard_status forward(reshard_operation_call *call, reshard_tensor *const *inputs,
 *                                   reshard_tensor **outputs)
 *     {
 *         reshard_tensor *y = outputs[0] = reshard_operation_result(call, 0);
 *         if (y == NULL)
 *             return RESHARD_OK;           (the scope has the error)
 *         const double *from = reshard_tensor_data(inputs[0]);
 *         double *to = reshard_tensor_write(y);
 *         for (int64_t i = 0; i < reshard_tensor_volume(y); i++)
 *             to[i] = tanh(from[i]);
 *         return RESHARD_OK;
 *     }
 *     static const reshard_operation own_tanh = {.size = sizeof own_tanh, .name = "own_tanh",
 *                                                .forward = forward, .backward = backward,
 *                                                .saved_outputs = 1};
 *     y = reshard_operation_run(&own_tanh, NULL, &x, NULL);
 *
 * All calls are Local, except that running an operation on distributed tensors is Collective if its
 * callbacks are, and its backward step is Collective.
 */
#ifndef RESHARD_OWN_OPERATION_H
#define RESHARD_OWN_OPERATION_H

#include <reshard/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ==== explicit ===================================================================================
 * Describe an operation in a struct, and run it.
 */

#define RESHARD_OPERATION_MAX 16 /* inputs, outputs, and tensors saved besides */

/* What a callback knows of its run. Valid until the callback returns. */
typedef struct reshard_operation_call {
    const void *data; /* that the operation was run with */
    /* In backward: the inputs and outputs that were saved, NULL for others. Inputs are also known
     * in forward. */
    reshard_tensor *const *inputs, *const *outputs;
    reshard_tensor *const *saved;     /* in backward, by slot (reshard_operation_save) */
    int wants[RESHARD_OPERATION_MAX]; /* in backward: somebody wants the gradient of this input */
} reshard_operation_call;

/* The dtype and shape of an output. */
typedef struct reshard_operation_output {
    reshard_dtype dtype;
    int32_t ndim;
    int64_t shape[RESHARD_NDIM_MAX];
} reshard_operation_output;

/*
 * What an operation on shards does along one axis of the mesh: if the axis does this to the inputs,
 * it does that to the outputs. Placements are separated by commas, one for each tensor:
 *   R        replicated
 *   P, P(op) contributions to a sum, or to another reduction
 *   S(d)     cut along dim d, which may be negative
 *   S(*)     cut along any dim; the same one wherever it stands in this rule
 *   S(i)     likewise, but not along the last dim
 * Inputs that are cut must be cut by the same rule (chunks, multiples of a unit, ..), which outputs
 * then have as well. For example, {"S(i), R", "S(i)"} and {"S(-1), S(0)", "S(-1)"} are the rules of
 * x [.., n] times a vector [n].
 */
typedef struct reshard_operation_rule {
    const char *inputs;
    const char *outputs;
    /* What the axis does to the gradients of inputs, as the backward function computes them from
     * the gradients of outputs (which have the layout of the outputs, with partial axes
     * replicated). NULL: cut inputs S, partial ones R, and replicated ones P, since each rank
     * computes from its own part. */
    const char *gradients;
} reshard_operation_rule;

/*
 * An operation. It and what it points to must outlive whatever was recorded with it; a static
 * struct does. Callbacks return RESHARD_OK, or an error whose text they set (reshard_error_set);
 * the text is put behind the operation's name. If they compute with other operations, they may also
 * leave the error in the scope. They run in a scope of their own, with recording off. Tensors that
 * they get are dense. Those that they give belong to the innermost scope, as results of operations
 * and of reshard_operation_result do.
 */
typedef struct reshard_operation {
    size_t size;      /* sizeof(reshard_operation) */
    const char *name; /* for errors */
    /* From 1 to RESHARD_OPERATION_MAX; 0: 1. */
    int32_t input_count, output_count;
    /* Computes all outputs. */
    reshard_status (*forward)(reshard_operation_call *call, reshard_tensor *const *inputs,
                              reshard_tensor **outputs);
    /* Computes the gradients of inputs from those of outputs; an output that no gradient reached
     * has one of zeros. An entry that is left NULL is zero. NULL: inputs must not require
     * gradients. */
    reshard_status (*backward)(reshard_operation_call *call, reshard_tensor *const *gradients,
                               reshard_tensor **out_gradients);
    /* What backward needs: bit i stands for input or output i. Saved-tensor hooks see these
     * tensors, with their layouts, so that input_reshard packs them. */
    uint32_t saved_inputs, saved_outputs;
    /* How many tensors forward saves besides (reshard_operation_save). */
    int32_t saved_count;
    /* Finds dtype and shape of the outputs; on entry, all are those of input 0. Inputs may be
     * distributed: shapes are global. NULL: they stay so. */
    reshard_status (*shapes)(const void *data, reshard_tensor *const *inputs,
                             reshard_operation_output *outputs);
    size_t data_bytes; /* of the data that each run is given */
    /* For distributed inputs, callbacks run on each shard, as on a local tensor, and move nothing.
     * Without rules, all inputs must have one layout, which is not partial, and outputs get it;
     * they must have that shape too. With rules, the layout is made of cuts along dims, and each
     * axis follows the first rule that fits; one that replicates all inputs needs none. */
    int32_t rule_count;
    const reshard_operation_rule *rules;
    /* Non-zero: callbacks get distributed tensors as they are, all ranks together, and give such in
     * any layouts. There are no rules then. */
    int whole;
} reshard_operation;

/* Runs the operation on input_count tensors and returns the first output. data: data_bytes bytes,
 * copied; what they point to must live as long as the record. outputs: room for all outputs, or
 * NULL if there is one. On failure all are NULL, with the error in the scope: INVALID (counts,
 * layouts without a rule, outputs or gradients of another dtype, shape or layout than announced),
 * and those of callbacks. */
RESHARD_API reshard_tensor *reshard_operation_run(const reshard_operation *operation,
                                                  const void *data, reshard_tensor *const *inputs,
                                                  reshard_tensor **outputs);

/* ==== advanced ===================================================================================
 * What forward and backward functions may ask for while they run.
 */

/* ---- for callbacks --------------------------------------------------------------------------- */

/* A tensor of zeros for output `index`, of the dtype and shape that this rank's part has; only in
 * forward, and not for whole tensors that are distributed. NULL on failure. */
RESHARD_API reshard_tensor *reshard_operation_result(reshard_operation_call *call, int32_t index);
/* Saves a tensor for backward, in a slot below saved_count, beside saved inputs and outputs. Only
 * in forward. Slots may stay empty. Errors: RANGE; INVALID if the slot is taken, or in backward. */
RESHARD_API reshard_status reshard_operation_save(reshard_operation_call *call, int32_t slot,
                                                  reshard_tensor *tensor);
/* For programs that compute with positions. Where this rank's part of an input (of_output 0) or
 * output begins in the whole tensor: as many numbers as it has dims, all 0 for local tensors and
 * for empty parts. Errors: UNSUPPORTED if the part is not one box. */
RESHARD_API reshard_status reshard_operation_offset(const reshard_operation_call *call,
                                                    int of_output, int32_t index,
                                                    int64_t *out_offset);

#ifdef __cplusplus
}
#endif
#endif
