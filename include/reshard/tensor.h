/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor.h - tensors: a dtype, a shape, strides, and reference-counted memory. A tensor with a
 * layout and a group is distributed (distributed.h); both kinds have the same type. ops.h computes
 * with tensors, autograd.h differentiates.
 *
 * Two kinds of calls:
 *  - Calls that make a tensor from data return a status, and give the caller a reference to
 *    release.
 *  - Calls that compute a tensor from tensors return the result itself, so that they can be nested
 *    and model code reads like model code. The result belongs to the innermost scope open on this
 *    thread, and is freed with it. On failure the result is NULL, and calls that are given NULL
 *    return NULL, or INVALID if they return a status; the scope keeps the first error and its text,
 *    and reshard_scope_close returns them.
 *
 *     reshard_scope_open(NULL, &scope);
 *     reshard_tensor *hidden = reshard_relu(reshard_linear(x, w1, b1));
 *     reshard_tensor *loss =
 *         reshard_cross_entropy(reshard_linear(hidden, w2, b2), labels, NULL);
 *     reshard_backward(loss, NULL, NULL);
 *     status = reshard_scope_close(scope);
 *
 * A tensor and everything computed from it may be used by one thread at a time. All calls are Local
 * unless stated otherwise.
 */
#ifndef RESHARD_TENSOR_H
#define RESHARD_TENSOR_H

#include <reshard/group.h>
#include <reshard/layout.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ==== simple =====================================================================================
 * Scopes, tensors, their elements and views.
 */

typedef struct reshard_tensor reshard_tensor;

/* A tensor by name, as in state dicts (nn.h) and checkpoints (nn_checkpoint.h). */
typedef struct reshard_named_tensor {
    const char *name;
    reshard_tensor *tensor;
} reshard_named_tensor;

/* ---- scopes ---------------------------------------------------------------------------------- */

/* A scope owns whatever is computed while it is the innermost one open on its thread. Scopes
 * nest. */
typedef struct reshard_scope reshard_scope;

/* The results take their memory from the context, which must outlive them. */
RESHARD_API reshard_status reshard_scope_open(reshard_context *context, reshard_scope **out_scope);
/* Frees what the scope owns, closes scopes opened after it, and restores gradient recording and
 * saved-tensor hooks to what they were when it was opened. Returns the first error of a computation
 * in the scope, with its text. Errors: also INVALID if the scope is not open on this thread. */
RESHARD_API reshard_status reshard_scope_close(reshard_scope *scope);
/* Returns what close would return now, and sets the error text accordingly. */
RESHARD_API reshard_status reshard_scope_status(const reshard_scope *scope);
/*
 * Treats a set-up call, which returns a status, like a computation: the call is made only if the
 * innermost scope has not failed, and its error becomes the scope's. So a program can make all of
 * its calls and check only reshard_scope_close:
 *
 *     RESHARD_DO(reshard_mlp_create(NULL, 64, 256, RESHARD_ACTIVATION_RELU, NULL, &mlp));
 *     RESHARD_DO(reshard_module_set_parameter(mlp, "fc1.weight", weight));
 *
 * A rank that has failed skips collective calls; the other ranks wait there until its body has
 * returned the error, and then fail as well.
 */
#define RESHARD_DO(call) ((void)(reshard_scope_failed() ? 0 : reshard_scope_note(call)))
/* Non-zero if the innermost scope has failed, or there is none. */
RESHARD_API int reshard_scope_failed(void);
/* For programs that use RESHARD_DO. If `status` is an error of this thread's last call, makes it
 * the error of the innermost scope, unless that has already failed. RESHARD_OK changes nothing.
 * Returns the status. */
RESHARD_API reshard_status reshard_scope_note(reshard_status status);

/* ---- creating -------------------------------------------------------------------------------- */

/* Makes a tensor of zeros. Errors: INVALID (a dtype that is not whole bytes), RANGE, NO_MEMORY,
 * MEMORY_LIMIT. */
RESHARD_API reshard_status reshard_tensor_create(reshard_context *context, reshard_dtype dtype,
                                                 int32_t ndim, const int64_t *shape,
                                                 reshard_tensor **out_tensor);
/* Copies dense row-major data. */
RESHARD_API reshard_status reshard_tensor_from_data(reshard_context *context, reshard_dtype dtype,
                                                    int32_t ndim, const int64_t *shape,
                                                    const void *data, reshard_tensor **out_tensor);
RESHARD_API reshard_tensor *reshard_tensor_retain(reshard_tensor *tensor);
RESHARD_API void reshard_tensor_release(reshard_tensor *tensor);

/* ---- queries --------------------------------------------------------------------------------- */

/* Pointers live as long as the tensor, and are not retained. */
typedef struct reshard_tensor_info {
    size_t size; /* sizeof(reshard_tensor_info), set by the caller */
    reshard_dtype dtype;
    int32_t ndim;
    const int64_t *shape;   /* the global shape if the tensor is distributed */
    const int64_t *strides; /* in elements; NULL for a distributed tensor */
    int64_t volume;
    int is_contiguous; /* non-zero: dense and row-major */
    /* non-zero for leaves that collect gradients, and for everything computed from them */
    int requires_grad;
    /* NULL and 0 for a local tensor */
    reshard_layout *layout;
    reshard_group *group;
    int64_t local_shard_count; /* of this rank */
    /* How often moves between layouts in the group found their plan in the cache, and how many
     * plans are kept there now. */
    int64_t plan_hits, plan_misses, plans_held;
} reshard_tensor_info;
/* Errors: INVALID for a size that no release has. */
RESHARD_API reshard_status reshard_tensor_get_info(const reshard_tensor *tensor,
                                                   reshard_tensor_info *out_info);

/* The facts that programs ask for one at a time. */
static inline reshard_tensor_info reshard_tensor_facts(const reshard_tensor *tensor)
{
    reshard_tensor_info info = {
        sizeof(info), RESHARD_DTYPE_NONE, 0, NULL, NULL, 0, 0, 0, NULL, NULL, 0, 0, 0, 0};
    (void)reshard_tensor_get_info(tensor, &info); /* fails only for NULL, which has no facts */
    return info;
}
static inline reshard_dtype reshard_tensor_dtype(const reshard_tensor *tensor)
{
    return reshard_tensor_facts(tensor).dtype;
}
static inline int32_t reshard_tensor_ndim(const reshard_tensor *tensor)
{
    return reshard_tensor_facts(tensor).ndim;
}
static inline const int64_t *reshard_tensor_shape(const reshard_tensor *tensor)
{
    return reshard_tensor_facts(tensor).shape;
}
static inline int64_t reshard_tensor_volume(const reshard_tensor *tensor)
{
    return reshard_tensor_facts(tensor).volume;
}
static inline reshard_layout *reshard_tensor_layout(const reshard_tensor *tensor)
{
    return reshard_tensor_facts(tensor).layout;
}

/* ---- elements -------------------------------------------------------------------------------- */

/* The first element, for reading; NULL for a distributed tensor. */
RESHARD_API const void *reshard_tensor_data(const reshard_tensor *tensor);
/* The same for writing. Marks the memory as changed, so that a backward pass that needs the values
 * saved before fails instead of using the new ones. */
RESHARD_API void *reshard_tensor_write(reshard_tensor *tensor);
/* Reads or writes one element as a double; integers beyond 2^53 are rounded. index: ndim numbers.
 * Errors: RANGE, UNSUPPORTED (f8 and complex). */
RESHARD_API reshard_status reshard_tensor_get(const reshard_tensor *tensor, const int64_t *index,
                                              double *out_value);
RESHARD_API reshard_status reshard_tensor_set(reshard_tensor *tensor, const int64_t *index,
                                              double value);
RESHARD_API reshard_status reshard_tensor_fill(reshard_tensor *tensor, double value);
/* The value of a tensor with one element, such as a loss, local or distributed in any way. If it is
 * distributed, the call is Collective and all ranks get the same value. Errors: INVALID,
 * UNSUPPORTED. */
RESHARD_API reshard_status reshard_tensor_value(reshard_tensor *tensor, double *out_value);
/* Copies all elements, in row-major order, to or from dense memory of `bytes` bytes. Errors:
 * INVALID if `bytes` is not the tensor's size. */
RESHARD_API reshard_status reshard_tensor_copy_to(const reshard_tensor *tensor, void *memory,
                                                  size_t bytes);
RESHARD_API reshard_status reshard_tensor_copy_from(reshard_tensor *tensor, const void *memory,
                                                    size_t bytes);

/* ---- views ----------------------------------------------------------------------------------- */

/* A view shares the memory of its tensor. For distributed tensors, all of these calls except
 * contiguous and detach copy the local shards. Dims may be negative. Results belong to the scope,
 * and gradients flow through them. */
RESHARD_API reshard_tensor *reshard_tensor_transpose(reshard_tensor *tensor, int32_t a, int32_t b);
/* Distributed: the dim must not be cut. */
RESHARD_API reshard_tensor *reshard_tensor_narrow(reshard_tensor *tensor, int32_t dim,
                                                  int64_t start, int64_t length);
/* One size may be -1: it is computed from the others. Copies if the strides do not allow a view.
 * Distributed: a dim that is cut must keep its size, or be the first of the dims that are merged or
 * split, with old and new sizes that are multiples of the number of ranks that cut it. */
RESHARD_API reshard_tensor *reshard_tensor_reshape(reshard_tensor *tensor, int32_t ndim,
                                                   const int64_t *shape);
/* Drops a dim of size 1, or adds one before `dim` (which may be ndim). */
RESHARD_API reshard_tensor *reshard_tensor_squeeze(reshard_tensor *tensor, int32_t dim);
RESHARD_API reshard_tensor *reshard_tensor_unsqueeze(reshard_tensor *tensor, int32_t dim);
/* The tensor itself if it is dense and row-major; otherwise a copy that is. */
RESHARD_API reshard_tensor *reshard_tensor_contiguous(reshard_tensor *tensor);
/* A dense copy of its own, through which gradients flow. Distributed: any layout. */
RESHARD_API reshard_tensor *reshard_tensor_clone(reshard_tensor *tensor);
/* The same memory, without any record of gradients. */
RESHARD_API reshard_tensor *reshard_tensor_detach(reshard_tensor *tensor);
/* Casts between f16, bf16, f32 and f64. */
RESHARD_API reshard_tensor *reshard_tensor_cast(reshard_tensor *tensor, reshard_dtype dtype);

/* ==== explicit ===================================================================================
 * Memory that the program owns, results that outlive a scope, comparing and overwriting.
 */

/* ---- memory of one's own --------------------------------------------------------------------- */

/* Uses memory that belongs to the caller, without copying it. strides: in elements; NULL: dense and
 * row-major. release (may be NULL) is called with `user` once no tensor needs the memory any more,
 * but not if this call fails. */
RESHARD_API reshard_status reshard_tensor_borrow(reshard_context *context, reshard_dtype dtype,
                                                 int32_t ndim, const int64_t *shape,
                                                 const int64_t *strides, void *memory,
                                                 void (*release)(void *user), void *user,
                                                 reshard_tensor **out_tensor);

/* For programs that open a scope for each step. Hands a tensor of the innermost scope to the scope
 * around it, so that it outlives the inner one; without an outer scope, it stays where it is.
 * Returns the tensor. */
RESHARD_API reshard_tensor *reshard_scope_keep(reshard_tensor *tensor);

/* Writes the values of `source` into the memory of `target`, which has the same shape, casting
 * between f16, bf16, f32 and f64. Both are local, or both distributed over one group, in any
 * layouts; the call is then Collective, nothing is allocated for the result, and errors are agreed
 * by all ranks. No gradients; a backward pass that saved the target finds it overwritten. Errors:
 * INVALID (shapes, groups, memory that both share, a target that an operation computed),
 * UNSUPPORTED (dtypes). */
RESHARD_API reshard_status reshard_tensor_copy(reshard_tensor *target, reshard_tensor *source);

/* ---- comparing ------------------------------------------------------------------------------- */

/* Both tensors are local, or both distributed over one group, in layouts that are not partial; the
 * calls are then Collective, all ranks get the same answer, and b is brought into the layout of a.
 * Errors: INVALID (different dtypes, layouts), and those of moving b. */

/* Whether shapes and all elements are equal. As in PyTorch, NaN is equal to nothing. */
RESHARD_API reshard_status reshard_tensor_equal(reshard_tensor *a, reshard_tensor *b,
                                                int *out_equal);
/* Whether |a - b| <= absolute + relative |b| for all elements; infinities must be equal, and NaN is
 * close to NaN if equal_nan is not 0. Errors: also INVALID for different shapes, UNSUPPORTED for
 * dtypes other than f16, bf16, f32, f64. */
RESHARD_API reshard_status reshard_tensor_allclose(reshard_tensor *a, reshard_tensor *b,
                                                   double relative, double absolute, int equal_nan,
                                                   int *out_close);

/* ==== advanced ===================================================================================
 * Files as tensors, without reading them first.
 */

/* ---- mapped files ---------------------------------------------------------------------------- */

/*
 * Makes a dense row-major tensor over the bytes of a file from `offset` on, in the machine's byte
 * order. The file is mapped: pages are read when they are first used, and ranks on one machine
 * share them. Writing to the tensor changes this process's copy of a page, never the file. The
 * memory does not count towards the context's limit. Whether later changes to the file are visible
 * is undefined; if the file is truncated, touching the lost part ends the process with SIGBUS.
 * Errors: NOT_FOUND, IO, CORRUPT (the file ends before the tensor does), INVALID (a bad dtype, or
 * an offset that is not a multiple of the element size), RANGE.
 */
RESHARD_API reshard_status reshard_tensor_map_file(reshard_context *context, const char *path,
                                                   uint64_t offset, reshard_dtype dtype,
                                                   int32_t ndim, const int64_t *shape,
                                                   reshard_tensor **out_tensor);

#ifdef __cplusplus
}
#endif
#endif
