/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor.h - what tensors, scopes and recorded operations are made of.
 *
 * Invariants:
 *  1. A tensor holds its node, a node holds the nodes before it and what it saved, and nothing
 *     holds the other way round: what is saved is an alias without a node. So there are no cycles.
 *  2. A local tensor has storage and no distribution; a distributed one has a distribution (layout,
 *     group, local shards) and no storage of its own.
 *  3. Results of computations belong to a scope. What outlives it has been retained.
 */
#ifndef RS_TENSOR_CORE_TENSOR_H
#define RS_TENSOR_CORE_TENSOR_H

#include <reshard/autograd.h>
#include <reshard/layout.h>

#include "base/thread.h"
#include "base/thread_state.h"

#include <stdbool.h>

/* ---- storage and tensors --------------------------------------------------------------------- */

typedef struct rs_storage {
    rs_references references;
    reshard_context *context;
    unsigned char *bytes;
    size_t byte_count;            /* own memory only */
    atomic_uint_fast64_t version; /* how often somebody has asked to write */
    bool own;
    void (*release)(void *user); /* borrowed memory; may be NULL */
    void *user;
    void *attachment;                            /* a layer's above; not owned */
    void (*forget_attachment)(void *attachment); /* called when the memory goes; may be NULL */
} rs_storage;

/* Whether a local tensor is the same on several ranks, as far as is known. What is computed from
 * tensors that are the same is the same; one that differs makes the result differ. */
typedef enum rs_sameness { RS_SAME_UNKNOWN, RS_SAME_YES, RS_SAME_NO } rs_sameness;

typedef struct rs_node rs_node;
typedef struct rs_distribution rs_distribution;

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

    bool requires_grad;       /* a leaf that collects */
    reshard_tensor *gradient; /* of a leaf */
    rs_node *node;            /* that computed it; NULL for leaves */
    int32_t node_output;
};

/* Dense, with undefined contents. */
reshard_status rs_tensor_make(reshard_context *context, reshard_dtype dtype, int32_t ndim,
                              const int64_t *shape, reshard_tensor **out_tensor);
/* A tensor of its own over the same storage (or distribution), without gradients. */
reshard_status rs_tensor_alias(reshard_context *context, const reshard_tensor *tensor,
                               reshard_tensor **out_tensor);
/* Changes whenever memory of the tensor is written; all shards of a distributed one count
 * together. */
uint64_t rs_tensor_version(const reshard_tensor *tensor);
/* The same with another shape, and the first element `at` elements further on. */
reshard_status rs_tensor_view(reshard_context *context, const reshard_tensor *tensor, int32_t ndim,
                              const int64_t *shape, const int64_t *strides, int64_t at,
                              reshard_tensor **out_tensor);
/* The tensor itself, retained, when it is dense; else a dense copy. */
reshard_status rs_tensor_densify(reshard_context *context, reshard_tensor *tensor,
                                 reshard_tensor **out_tensor);
void rs_tensor_copy(const reshard_tensor *source, reshard_tensor *target);
/* Lets go of the memory of a local tensor of which only the outline is needed from now on. */
void rs_tensor_drop_data(reshard_tensor *tensor);
/* Gives it memory again: that of another one, from its byte `at` on. */
void rs_tensor_lend_data(reshard_tensor *tensor, const reshard_tensor *from, ptrdiff_t at);
/* What is known of a tensor computed from these. */
rs_sameness rs_sameness_of(int32_t count, reshard_tensor *const *inputs);

/* Of dense elements. Errors: INVALID for dtypes not of whole bytes, RANGE. */
reshard_status rs_count_bytes(reshard_dtype dtype, int64_t volume, size_t *out_bytes);
/* Checks ndim, sizes and volume. Errors: RANGE. */
reshard_status rs_extents_check(int32_t ndim, const int64_t *shape, int64_t *out_volume);
void rs_shape_strides(int32_t ndim, const int64_t *shape, int64_t *out_strides);
bool rs_shape_equals(const reshard_tensor *a, const reshard_tensor *b);
/* Counts negative dims from the end. Errors: RANGE. */
reshard_status rs_dim_normalize(int32_t ndim, int32_t dim, int32_t *out_dim);
size_t rs_element_bytes(reshard_dtype dtype);
bool rs_dtype_is_float(reshard_dtype dtype); /* f16, bf16, f32, f64 */
bool rs_dtype_is_half(reshard_dtype dtype);  /* f16, bf16 */
/* "f32 3x4", for messages. */
typedef struct rs_tensor_words {
    char text[160];
} rs_tensor_words;
rs_tensor_words rs_tensor_describe(const reshard_tensor *tensor);

/* ---- scopes ---------------------------------------------------------------------------------- */

struct reshard_scope {
    reshard_context *context;
    reshard_scope *outer;
    reshard_status status; /* the first error */
    char text[1024];       /* and its words */
    int64_t count, capacity;
    reshard_tensor **tensors;
    bool gradients_off; /* as it was before */
    struct rs_hooks_entry *hooks;
    struct reshard_group *group; /* the last one that a computation used; retained */
    bool agreed;                 /* all ranks of the group know of the error */
};

/* For scopes in the library's own functions: the structure is the caller's. */
void rs_scope_enter(reshard_scope *scope, reshard_context *context);
/* Frees what it owns; gives its first error. */
reshard_status rs_scope_leave(reshard_scope *scope);
/* Notes an error, whose words are set, unless one is noted already; gives NULL. */
reshard_tensor *rs_scope_fail(reshard_status status);
/* Hands a reference to the innermost scope; gives the tensor, or NULL (released) on failure. */
reshard_tensor *rs_scope_own(reshard_tensor *tensor);
/* Notes the group of a computation, so that a rank that fails later can tell the others. */
void rs_scope_use_group(struct reshard_group *group);
/* The context of the innermost scope. */
reshard_context *rs_scope_context(void);

/* ---- recorded operations --------------------------------------------------------------------- */

#define RS_FACTS_MAX 24

/* Small numbers that a backward step needs. */
typedef struct rs_facts {
    int64_t i[RS_FACTS_MAX];
    double x[4];
} rs_facts;

/* gradients: of the outputs, NULL where nothing reached one. out_gradients: of the inputs, in the
 * innermost scope; NULL where there is none, and where edges say that nobody wants it. Runs with
 * recording off. */
typedef void (*rs_backward_fn)(rs_node *node, reshard_tensor *const *gradients,
                               reshard_tensor **out_gradients);

/* Where a gradient goes: to an output of an earlier node, or to a leaf, or nowhere. */
typedef struct rs_edge {
    rs_node *node;
    int32_t output;
    reshard_tensor *leaf;
} rs_edge;

typedef struct rs_saved {
    reshard_tensor *tensor; /* without hooks: an alias */
    uint64_t version;
    bool packed;
    reshard_saved_tensor_hooks hooks;
    void *packed_object;
    reshard_tensor *outline; /* packed: dtype, shape and layout, without data */
} rs_saved;

struct rs_node {
    rs_references references;
    reshard_context *context;
    const char *name;
    uint64_t sequence;
    rs_backward_fn backward;
    int32_t input_count, output_count, saved_count;
    rs_edge *inputs;
    reshard_tensor **gradients; /* of the outputs, while a backward pass is under way */
    rs_saved *saved;
    rs_facts facts;
    struct reshard_group *group; /* retained: the backward step begins with an agreement on it */
    void *extra;                 /* the operation's own */
    void (*forget_extra)(void *extra);
    bool spent;    /* a backward pass has freed what was saved */
    bool retain;   /* the backward pass under way keeps what was saved */
    bool marked;   /* already in the list that is being made */
    rs_node *next; /* of a list of nodes to be freed */
};

/* What an operation tells about itself. Arrays are copied. */
typedef struct rs_recipe {
    const char *name;
    rs_backward_fn backward;
    int32_t input_count;
    reshard_tensor *const *inputs; /* entries may be NULL */
    int32_t saved_count;
    reshard_tensor *const *saved; /* inputs, outputs or others; entries may be NULL */
    rs_facts facts;
    struct reshard_group *group; /* of a collective backward step */
    void *extra;                 /* taken over */
    void (*forget_extra)(void *extra);
} rs_recipe;

/* True when the operation may start: a scope is open and has not failed, and no input is NULL.
 * Otherwise the error is noted. */
bool rs_op_begin(const char *name, int32_t count, reshard_tensor *const *inputs);
/* Hands the output (a reference) to the scope and records the operation if gradients are wanted. On
 * failure the output is released, the error noted and NULL given. */
reshard_tensor *rs_op_end(const rs_recipe *recipe, reshard_status status, reshard_tensor *output);
/* The same for several outputs, which become NULL on failure. */
bool rs_op_end_many(const rs_recipe *recipe, reshard_status status, int32_t count,
                    reshard_tensor **outputs);
/* Would the operation be recorded? */
bool rs_op_records(int32_t count, reshard_tensor *const *inputs);
/* Does anybody want the gradient of this input? */
bool rs_node_wants(const rs_node *node, int32_t input);
/* A saved tensor, owned by the innermost scope; NULL with the error noted on failure. Slots of NULL
 * give NULL. */
reshard_tensor *rs_node_saved(rs_node *node, int32_t slot);
void rs_node_forget_saved(rs_node *node);
rs_node *rs_node_retain(rs_node *node);
void rs_node_release(rs_node *node);

/* ---- hooks ----------------------------------------------------------------------------------- */

typedef struct rs_hooks_entry {
    reshard_context *context;
    reshard_saved_tensor_hooks hooks;
    struct rs_hooks_entry *outer;
} rs_hooks_entry;

/* Pops until this entry (or none) is the innermost. */
void rs_hooks_unwind(rs_hooks_entry *until);
reshard_status rs_saved_pack(reshard_context *context, reshard_tensor *tensor, rs_saved *out_saved);
reshard_status rs_saved_unpack(rs_saved *saved, const char *name, reshard_tensor **out_tensor);
void rs_saved_forget(rs_saved *saved);

#endif
