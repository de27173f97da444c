/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor.h - tensors: a dtype, a shape, strides, and memory that is counted by reference. A tensor
 * with a layout and a group is distributed (distributed.h); one type serves both. ops.h computes
 * with tensors, autograd.h differentiates.
 *
 * Two kinds of calls:
 *  - What makes a tensor out of data returns a status and gives a reference that is the caller's.
 *  - What computes a tensor out of tensors returns the result itself, so that calls nest and model
 *    code reads like model code. The result belongs to the innermost scope open on this thread, and
 *    is freed with it. On failure the result is NULL; calls given NULL give NULL; the scope keeps
 *    the first error and its words, and reshard_scope_close returns them.
 *
 *     reshard_scope_open(NULL, &scope);
 *     reshard_tensor *hidden = reshard_relu(reshard_linear(x, w1, b1));
 *     reshard_tensor *loss = reshard_cross_entropy(reshard_linear(hidden, w2, b2), labels);
 *     reshard_backward(loss, NULL, NULL);
 *     status = reshard_scope_close(scope);
 *
 * A tensor and what was computed from it are used by one thread at a time. All calls are Local
 * unless it says otherwise.
 */
#ifndef RESHARD_TENSOR_H
#define RESHARD_TENSOR_H

#include <reshard/spec.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct reshard_tensor reshard_tensor;

/* A tensor by name, as in state dicts (nn.h) and checkpoints (nn_checkpoint.h). */
typedef struct reshard_named_tensor {
    const char *name;
    reshard_tensor *tensor;
} reshard_named_tensor;

/* ---- scopes ---------------------------------------------------------------------------------- */

/* Owns what is computed while it is the innermost scope open on its thread. Scopes nest. */
typedef struct reshard_scope reshard_scope;

/* context: provides the memory of results, which it must outlive. */
RESHARD_API reshard_status reshard_scope_open(reshard_context *context, reshard_scope **out_scope);
/* Frees what the scope owns, closes scopes opened after it, and puts gradient recording and
 * saved-tensor hooks back to what they were when it was opened. Returns the first error of a
 * computation in it, with its text. Errors: also INVALID if the scope is not open on this
 * thread. */
RESHARD_API reshard_status reshard_scope_close(reshard_scope *scope);
/* Returns what close would return now, and sets the error text accordingly. */
RESHARD_API reshard_status reshard_scope_status(const reshard_scope *scope);
/*
 * Set-up calls, which return statuses, in the same manner: the call is made only if the innermost
 * scope has not failed, and its error becomes the scope's. A program can so call through and look
 * at reshard_scope_close alone:
 *
 *     RESHARD_DO(reshard_mlp_create(NULL, 64, 256, RESHARD_ACTIVATION_RELU, NULL, &mlp));
 *     RESHARD_DO(reshard_module_set_parameter(mlp, "fc1.weight", weight));
 *
 * A rank that has failed skips collective calls; the others wait until its body has returned the
 * error, and then fail as well.
 */
#define RESHARD_DO(call) ((void)(reshard_scope_failed() ? 0 : reshard_scope_note(call)))
/* Non-zero if the innermost scope has failed, or there is none. */
RESHARD_API int reshard_scope_failed(void);
/* Notes an error of this thread's last call in the innermost scope, unless it has failed already.
 * RESHARD_OK changes nothing. Returns the status. */
RESHARD_API reshard_status reshard_scope_note(reshard_status status);
/* Hands a tensor of the innermost scope to the one around it, so that it outlives the inner one.
 * Returns the tensor. If there is no outer scope, the innermost one keeps it. */
RESHARD_API reshard_tensor *reshard_scope_keep(reshard_tensor *tensor);

/* ---- making ---------------------------------------------------------------------------------- */

/* Makes a tensor of zeros. Errors: INVALID (a dtype that is not whole bytes), RANGE, NO_MEMORY,
 * MEMORY_LIMIT. */
RESHARD_API reshard_status reshard_tensor_create(reshard_context *context, reshard_dtype dtype,
                                                 int32_t ndim, const int64_t *shape,
                                                 reshard_tensor **out_tensor);
/* Copies dense row-major data. */
RESHARD_API reshard_status reshard_tensor_from_data(reshard_context *context, reshard_dtype dtype,
                                                    int32_t ndim, const int64_t *shape,
                                                    const void *data, reshard_tensor **out_tensor);
/* Uses memory that belongs to the caller, without copying it. strides: in elements; NULL: dense and
 * row-major. release (may be NULL) is called with user once no tensor needs the memory any more,
 * but not if this call fails. */
RESHARD_API reshard_status reshard_tensor_borrow(reshard_context *context, reshard_dtype dtype,
                                                 int32_t ndim, const int64_t *shape,
                                                 const int64_t *strides, void *memory,
                                                 void (*release)(void *user), void *user,
                                                 reshard_tensor **out_tensor);
/*
 * Makes a dense row-major tensor over the bytes of a file from `offset` on, in the machine's byte
 * order. The file is mapped: nothing is read before it is used, and ranks on one machine share the
 * pages. Writing to the tensor changes this process's copy of a page, never the file. The memory
 * does not count towards the context's limit. It is undefined whether changes that others make to
 * the file show; if the file is truncated, touching the lost part ends the process (SIGBUS).
 * Errors: NOT_FOUND, IO, CORRUPT (the file ends before the tensor does), INVALID (the offset is not
 * a multiple of the element size; dtype), RANGE.
 */
RESHARD_API reshard_status reshard_tensor_map_file(reshard_context *context, const char *path,
                                                   uint64_t offset, reshard_dtype dtype,
                                                   int32_t ndim, const int64_t *shape,
                                                   reshard_tensor **out_tensor);
RESHARD_API reshard_tensor *reshard_tensor_retain(reshard_tensor *tensor);
RESHARD_API void reshard_tensor_release(reshard_tensor *tensor);

/* ---- asking ---------------------------------------------------------------------------------- */

RESHARD_API reshard_dtype reshard_tensor_dtype(const reshard_tensor *tensor);
RESHARD_API int32_t reshard_tensor_ndim(const reshard_tensor *tensor);
/* ndim numbers; the global shape of a distributed tensor. */
RESHARD_API const int64_t *reshard_tensor_shape(const reshard_tensor *tensor);
/* In elements; NULL for a distributed tensor. */
RESHARD_API const int64_t *reshard_tensor_strides(const reshard_tensor *tensor);
RESHARD_API int64_t reshard_tensor_volume(const reshard_tensor *tensor);
RESHARD_API int reshard_tensor_is_contiguous(const reshard_tensor *tensor);
RESHARD_API int reshard_tensor_is_distributed(const reshard_tensor *tensor);

/* ---- elements -------------------------------------------------------------------------------- */

/* The first element, for reading; NULL for a distributed tensor. */
RESHARD_API const void *reshard_tensor_data(const reshard_tensor *tensor);
/* The same for writing. It marks the memory as changed: a backward pass that needs what was saved
 * before fails instead of using changed values. */
RESHARD_API void *reshard_tensor_write(reshard_tensor *tensor);
/* Reads or writes one element as double; integers beyond 2^53 round. index: ndim numbers. Errors:
 * RANGE, UNSUPPORTED (f8 and complex). */
RESHARD_API reshard_status reshard_tensor_get(const reshard_tensor *tensor, const int64_t *index,
                                              double *out_value);
RESHARD_API reshard_status reshard_tensor_set(reshard_tensor *tensor, const int64_t *index,
                                              double value);
/* The value of a tensor with one element. */
RESHARD_API reshard_status reshard_tensor_item(const reshard_tensor *tensor, double *out_value);
RESHARD_API reshard_status reshard_tensor_fill(reshard_tensor *tensor, double value);
/* The value of a tensor with one element, local or distributed in any way (a loss). Collective if
 * it is distributed, and the same on all ranks. Errors: INVALID, UNSUPPORTED. */
RESHARD_API reshard_status reshard_tensor_value(reshard_tensor *tensor, double *out_value);
/* Copies all elements, row-major, to or from dense memory of `bytes` bytes. Errors: INVALID if that
 * is not the size. */
RESHARD_API reshard_status reshard_tensor_copy_to(const reshard_tensor *tensor, void *memory,
                                                  size_t bytes);
RESHARD_API reshard_status reshard_tensor_copy_from(reshard_tensor *tensor, const void *memory,
                                                    size_t bytes);

/* ---- views ----------------------------------------------------------------------------------- */

/* A view shares the memory of its tensor. Views of distributed tensors are copies of the local
 * shards, except for contiguous and detach. Dims may be negative. Results belong to the scope, and
 * gradients flow through them. */
RESHARD_API reshard_tensor *reshard_tensor_transpose(reshard_tensor *tensor, int32_t a, int32_t b);
/* Distributed: the dim must not be cut. */
RESHARD_API reshard_tensor *reshard_tensor_narrow(reshard_tensor *tensor, int32_t dim,
                                                  int64_t start, int64_t length);
/* One size may be -1, for whatever the others leave. Copies if the strides do not allow a view.
 * Distributed: a dim that is cut must keep its size, or be the first of the dims that are merged or
 * split, with old and new sizes that are multiples of the number of ranks that cut it. */
RESHARD_API reshard_tensor *reshard_tensor_reshape(reshard_tensor *tensor, int32_t ndim,
                                                   const int64_t *shape);
/* Drops a dim of size 1, or adds one before `dim` (which may be ndim). */
RESHARD_API reshard_tensor *reshard_tensor_squeeze(reshard_tensor *tensor, int32_t dim);
RESHARD_API reshard_tensor *reshard_tensor_unsqueeze(reshard_tensor *tensor, int32_t dim);
/* The tensor itself if it is dense and row-major; otherwise a copy that is. */
RESHARD_API reshard_tensor *reshard_tensor_contiguous(reshard_tensor *tensor);
/* The same memory, without any record of gradients. */
RESHARD_API reshard_tensor *reshard_tensor_detach(reshard_tensor *tensor);
/* Casts between f16, bf16, f32 and f64. */
RESHARD_API reshard_tensor *reshard_tensor_cast(reshard_tensor *tensor, reshard_dtype dtype);

/* ---- DLPack ---------------------------------------------------------------------------------- */

/*
 * The structures of DLPack (dlpack.h of dmlc), declared here so that nothing has to be installed.
 * They have the same bytes under other names, so pointers may be cast. CPU memory only.
 */
typedef struct reshard_dl_tensor {
    void *data;
    struct {
        int32_t device_type; /* 1: CPU */
        int32_t device_id;
    } device;
    int32_t ndim;
    struct {
        uint8_t code; /* 0 int, 1 uint, 2 float, 4 bfloat, 5 complex, 6 bool */
        uint8_t bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape;
    int64_t *strides; /* in elements; may be NULL on import, never is on export */
    uint64_t byte_offset;
} reshard_dl_tensor;

/* DLManagedTensor. */
typedef struct reshard_dl_managed {
    reshard_dl_tensor dl_tensor;
    void *manager_ctx;
    void (*deleter)(struct reshard_dl_managed *self);
} reshard_dl_managed;

/* DLManagedTensorVersioned of version 1.x. */
typedef struct reshard_dl_versioned {
    struct {
        uint32_t major, minor;
    } version;
    void *manager_ctx;
    void (*deleter)(struct reshard_dl_versioned *self);
    uint64_t flags; /* bit 0: read only. bit 1: copied */
    reshard_dl_tensor dl_tensor;
} reshard_dl_versioned;

/* Takes over the structure: its deleter is called with the last use of the memory, or never if this
 * fails. Errors: UNSUPPORTED (a device other than the CPU, several lanes, a type without an
 * equivalent here, another major version, read-only memory), RANGE, INVALID. */
RESHARD_API reshard_status reshard_tensor_from_dlpack(reshard_context *context,
                                                      reshard_dl_managed *managed,
                                                      reshard_tensor **out_tensor);
RESHARD_API reshard_status reshard_tensor_from_dlpack_versioned(reshard_context *context,
                                                                reshard_dl_versioned *managed,
                                                                reshard_tensor **out_tensor);
/* Makes a new structure that holds a reference to the tensor. The receiver calls its deleter.
 * Errors: UNSUPPORTED for distributed tensors. */
RESHARD_API reshard_status reshard_tensor_to_dlpack(reshard_tensor *tensor,
                                                    reshard_dl_managed **out_managed);
RESHARD_API reshard_status reshard_tensor_to_dlpack_versioned(reshard_tensor *tensor,
                                                              reshard_dl_versioned **out_managed);

#ifdef __cplusplus
}
#endif
#endif
