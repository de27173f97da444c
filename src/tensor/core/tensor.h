/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor.h - the structs behind tensors, and the functions on them that other layers build on.
 *
 * Invariants:
 *  1. A local tensor has storage and no distribution. A distributed tensor has a distribution
 *     (layout, group, local shards) and no storage of its own.
 *  2. The result of a computation belongs to a scope. Whoever needs it longer retains it.
 */
#ifndef RS_TENSOR_CORE_TENSOR_H
#define RS_TENSOR_CORE_TENSOR_H

#include <reshard/tensor.h>

#include "base/dtype.h"
#include "base/references.h"

#include <stdbool.h>

/* ---- storage and tensors --------------------------------------------------------------------- */

typedef struct rs_storage {
    rs_references references;
    reshard_context *context;
    unsigned char *bytes;
    size_t byte_count;            /* 0 for borrowed memory */
    atomic_uint_fast64_t version; /* how often it was opened for writing */
    bool own;
    void (*release)(void *user); /* gives borrowed memory back; may be NULL */
    void *user;
    void *attachment;                            /* belongs to a layer above; not owned */
    void (*forget_attachment)(void *attachment); /* called when the memory is freed; may be NULL */
} rs_storage;

/* Whether a local tensor is known to have the same values on several ranks. A result is the same if
 * all inputs are; a single input that differs makes it differ. */
typedef enum rs_sameness { RS_SAME_UNKNOWN, RS_SAME_YES, RS_SAME_NO } rs_sameness;

/* Which ranks have the same local tensor, as far as layouts tell: those with the same number here.
 * 0: nothing is known. A result has a number made of those of its inputs. */
typedef struct rs_kin {
    uint64_t number;
    /* The same on all ranks of one group: the number of that group (rs_group_number). 0: of
     * none. */
    int64_t group;
} rs_kin;

/* The operation that computed a tensor, as far as a tensor needs to know it: something to hold and
 * to release. It is the first member of an rs_node (grad/node.h). */
typedef struct rs_node rs_node;
typedef struct rs_node_head {
    void (*release)(rs_node *node); /* drops one reference */
} rs_node_head;

typedef struct rs_distribution rs_distribution; /* distribution.h */

struct reshard_tensor {
    rs_references references;
    reshard_context *context;
    reshard_dtype dtype;
    int32_t ndim;
    int64_t shape[RESHARD_NDIM_MAX];
    int64_t strides[RESHARD_NDIM_MAX];
    int64_t volume;
    rs_storage *storage;
    unsigned char *data; /* the first element */
    rs_distribution *distribution;
    rs_sameness sameness; /* of a local tensor */
    rs_kin kin;           /* likewise */
    int64_t compared;     /* the group whose ranks have compared this parameter (alike.h), or 0 */

    bool requires_grad;       /* this is a leaf that collects gradients */
    reshard_tensor *gradient; /* what a leaf has collected, or NULL */
    rs_node *node;            /* the operation that computed it; NULL for leaves */
    int32_t node_output;
};

/* Makes a tensor that has a dtype, a shape and dense strides, and nothing else. */
reshard_tensor *rs_tensor_header(reshard_context *context, reshard_dtype dtype, int32_t ndim,
                                 const int64_t *shape, int64_t volume);
/* Makes a dense tensor with undefined contents. */
reshard_status rs_tensor_make(reshard_context *context, reshard_dtype dtype, int32_t ndim,
                              const int64_t *shape, reshard_tensor **out_tensor);
/* Ends a function that makes a tensor: hands it out if `status` is OK, otherwise releases it. */
reshard_status rs_tensor_hand_out(reshard_status status, reshard_tensor *made,
                                  reshard_tensor **out_tensor);
/* Makes another tensor over the same storage (or distribution), without gradients. */
reshard_status rs_tensor_alias(reshard_context *context, const reshard_tensor *tensor,
                               reshard_tensor **out_tensor);
/* Whether a local tensor is dense and row-major. */
bool rs_tensor_is_contiguous(const reshard_tensor *tensor);
/* The value of a local tensor with one element. */
reshard_status rs_tensor_item(const reshard_tensor *tensor, double *out_value);
/* Bytes of a local tensor's elements, or of this rank's shards of a distributed one. */
size_t rs_tensor_bytes(const reshard_tensor *tensor);
/* A number that changes whenever the memory of the tensor, or of one of its shards, is opened for
 * writing. */
uint64_t rs_tensor_version(const reshard_tensor *tensor);
/* Like rs_tensor_alias, but with another shape and strides, and starting `at` elements further
 * on. */
reshard_status rs_tensor_view(reshard_context *context, const reshard_tensor *tensor, int32_t ndim,
                              const int64_t *shape, const int64_t *strides, int64_t at,
                              reshard_tensor **out_tensor);
/* Gives the tensor itself, retained, if it is dense; otherwise a dense copy. */
reshard_status rs_tensor_densify(reshard_context *context, reshard_tensor *tensor,
                                 reshard_tensor **out_tensor);
void rs_tensor_copy(const reshard_tensor *source, reshard_tensor *target);
/* Releases the memory of a local tensor. Dtype, shape and strides stay. */
void rs_tensor_drop_data(reshard_tensor *tensor);
/* The sameness of a result computed from these inputs. */
rs_sameness rs_sameness_of(int32_t count, reshard_tensor *const *inputs);
rs_kin rs_kin_of(int32_t count, reshard_tensor *const *inputs);

/* A shape that is kept by value. */
typedef struct rs_extents {
    int32_t ndim;
    int64_t shape[RESHARD_NDIM_MAX];
} rs_extents;
rs_extents rs_extents_of(const reshard_tensor *tensor);

/* Computes the size of `volume` elements in bytes. Errors: INVALID for dtypes that are not whole
 * bytes, RANGE for more bytes than can be counted. */
reshard_status rs_count_bytes(reshard_dtype dtype, int64_t volume, size_t *out_bytes);
/* Does what rs_shape_check (base/shape.h) does, and gives the volume. */
reshard_status rs_extents_check(int32_t ndim, const int64_t *shape, int64_t *out_volume);
bool rs_shape_equals(const reshard_tensor *a, const reshard_tensor *b);
/* Refuses NULL, the result of a computation that failed. what: the call, for the error. */
reshard_status rs_tensor_check_given(const reshard_tensor *tensor, const char *what);
/* Turns a negative dim, which counts from the end, into one that counts from the front. Errors:
 * RANGE. */
reshard_status rs_dim_normalize(int32_t ndim, int32_t dim, int32_t *out_dim);
bool rs_dtype_is_half(reshard_dtype dtype); /* f16, bf16 */
/* A tensor's dtype and shape in error texts, such as "f32 3x4". */
typedef struct rs_tensor_words {
    char text[160];
} rs_tensor_words;
rs_tensor_words rs_tensor_describe(const reshard_tensor *tensor);

#endif
