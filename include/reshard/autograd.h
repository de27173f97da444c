/* SPDX-License-Identifier: Apache-2.0 */
/*
 * autograd.h - gradients. Operations on tensors that require gradients are recorded as they run.
 * backward goes through the record in reverse order of creation, so that all ranks of a group enter
 * collectives in the same order. The record belongs to the thread that made it, and lives as long
 * as any tensor whose computation it records. There are no gradients of gradients.
 */
#ifndef RESHARD_AUTOGRAD_H
#define RESHARD_AUTOGRAD_H

#include <reshard/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ==== simple =====================================================================================
 * Which tensors collect gradients, and the pass that computes them.
 */

/* Makes a leaf (a tensor that no recorded operation computed) collect gradients, or stop doing
 * so. Local. Errors: INVALID for other tensors, UNSUPPORTED for dtypes other than f16, bf16,
 * f32, f64. */
RESHARD_API reshard_status reshard_tensor_set_requires_grad(reshard_tensor *tensor, int requires);
/* The sum of all gradients that backward passes gave a leaf; NULL if none has reached it. Not
 * retained; valid until the next backward pass or clear. */
RESHARD_API reshard_tensor *reshard_tensor_gradient(const reshard_tensor *tensor);
RESHARD_API void reshard_tensor_clear_gradient(reshard_tensor *tensor);

typedef struct reshard_backward_options {
    size_t size;      /* sizeof(reshard_backward_options) */
    int retain_graph; /* non-zero: keep the saved tensors for another backward pass */
} reshard_backward_options;

/*
 * Adds d(tensor)/d(leaf) . gradient to the gradient of every leaf. gradient NULL: 1, for a tensor
 * with one element. Local, or Collective if a distributed tensor is involved; the ranks then agree
 * on success before the first step. Errors: INVALID (no gradient is recorded, shapes differ, the
 * graph was freed, a saved tensor was overwritten), and those of operations and hooks. On failure,
 * some leaves may have received gradients, and the innermost scope keeps the error. In a scope that
 * has already failed, this only returns its error.
 */
RESHARD_API reshard_status reshard_backward(reshard_tensor *tensor, reshard_tensor *gradient,
                                            const reshard_backward_options *options);

/* ==== explicit ===================================================================================
 * Recording switched off and on, for evaluation and for code that updates weights.
 */

/* Sets whether operations of this thread are recorded; returns the previous setting. */
RESHARD_API int reshard_set_gradients_enabled(int enabled);

/* ==== advanced ===================================================================================
 * What is kept between forward and backward, in the hands of the program.
 */

/* ---- saved tensors --------------------------------------------------------------------------- */

/*
 * Operations save tensors for their backward step: inputs, outputs, weights. A pair of hooks can
 * keep something else in their place. The rules are PyTorch's: each thread has a stack of pairs, of
 * which only the innermost is used; pack is called once for each saved tensor, with recording off;
 * nothing is saved while gradients are disabled; unpack is called at every access.
 *
 * Unlike PyTorch, what unpack returns must have the dtype, shape and layout of what was packed; a
 * pack that writes to its tensor is an error; and closing a scope pops the pairs pushed inside it,
 * so that a forward pass that failed leaves none behind.
 */
typedef struct reshard_saved_tensor_hooks {
    /* Must retain the tensor to keep it. *out_packed may be anything. */
    reshard_status (*pack)(void *user, reshard_tensor *tensor, void **out_packed);
    /* *out_tensor: a reference that the caller releases. */
    reshard_status (*unpack)(void *user, void *packed, reshard_tensor **out_tensor);
    /* Called once for each packed object, when it is not needed any more. May be NULL. */
    void (*forget)(void *user, void *packed);
    void *user; /* must outlive what was recorded */
} reshard_saved_tensor_hooks;

/* Local. The structure is copied. */
RESHARD_API reshard_status reshard_saved_tensor_hooks_push(reshard_context *context,
                                                           const reshard_saved_tensor_hooks *hooks);
/* Local. Errors: INVALID if there is none. */
RESHARD_API reshard_status reshard_saved_tensor_hooks_pop(void);

#ifdef __cplusplus
}
#endif
#endif
