/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node.h - recorded operations.
 *
 * A tensor holds the node that computed it; a node holds the nodes that computed its inputs, and
 * what it saved. Nothing points the other way, because a saved tensor is an alias without a node,
 * so there are no cycles.
 */
#ifndef RS_TENSOR_GRAD_NODE_H
#define RS_TENSOR_GRAD_NODE_H

#include "base/references.h"
#include "tensor/grad/saved.h"

#include <stddef.h>

/* Computes gradients of the inputs from those of the outputs, in the innermost scope, with
 * recording off. An entry of `gradients` is NULL if no gradient reached that output. An entry of
 * `out_gradients` is left NULL if there is no gradient, or nobody wants it (rs_node_wants). */
typedef void (*rs_backward_fn)(rs_node *node, reshard_tensor *const *gradients,
                               reshard_tensor **out_gradients);

/* Where a gradient goes: to an output of an earlier node, to a leaf, or nowhere. */
typedef struct rs_edge {
    rs_node *node;
    int32_t output;
    reshard_tensor *leaf;
} rs_edge;

/* True for leaves that collect gradients, and for everything computed from them; false for NULL. */
bool rs_tensor_requires_grad(const reshard_tensor *tensor);

struct rs_node {
    rs_node_head head;
    rs_references references;
    reshard_context *context;
    const char *name;
    uint64_t sequence;
    rs_backward_fn backward;
    int32_t input_count, output_count, saved_count;
    rs_edge *inputs;
    reshard_tensor **gradients; /* of the outputs, during a backward pass */
    rs_saved *saved;
    struct reshard_group *group; /* retained; the backward step is Collective over it */
    void *extra;                 /* the operation's own data */
    void (*forget_extra)(void *extra);
    bool spent;    /* a backward pass has freed what was saved */
    bool retain;   /* the current backward pass keeps what was saved */
    bool marked;   /* is in the list being collected */
    rs_node *next; /* in the list of nodes to be freed */
    size_t facts_bytes;
    _Alignas(max_align_t) unsigned char facts[]; /* see rs_node_facts */
};

/* How an operation describes itself when it is recorded. Arrays are copied. */
typedef struct rs_recipe {
    const char *name;
    rs_backward_fn backward;
    int32_t input_count;
    reshard_tensor *const *inputs; /* entries may be NULL */
    int32_t saved_count;
    reshard_tensor *const *saved; /* inputs, outputs or others; entries may be NULL */
    const void *facts; /* a struct of the operation's own, for its backward step; copied */
    size_t facts_bytes;
    struct reshard_group *group; /* of a collective backward step */
    void *extra;                 /* taken over */
    void (*forget_extra)(void *extra);
} rs_recipe;

/* True if the operation may start: a scope is open and has not failed, and no input is NULL.
 * Otherwise notes the error. */
bool rs_op_begin(const char *name, int32_t count, reshard_tensor *const *inputs);
/* The same for a collective operation on one input. A rank that may not start tells the group's
 * ranks, who wait for it in this call. group: NULL for that of the input, if it has one. */
bool rs_op_begin_together(const char *name, struct reshard_group *group, reshard_tensor *input);
/* Hands the output (a reference) to the scope, and records the operation if gradients are wanted.
 * On failure releases the output, notes the error and returns NULL. */
reshard_tensor *rs_op_end(const rs_recipe *recipe, reshard_status status, reshard_tensor *output);
/* The same for several outputs, which become NULL on failure. */
bool rs_op_end_many(const rs_recipe *recipe, reshard_status status, int32_t count,
                    reshard_tensor **outputs);
/* Whether the operation would be recorded. */
bool rs_op_records(int32_t count, reshard_tensor *const *inputs);
/* The facts of the recipe, which must have had some. */
const void *rs_node_facts(const rs_node *node);
/* Whether the gradient of this input goes anywhere. */
bool rs_node_wants(const rs_node *node, int32_t input);
/* Gives a saved tensor, owned by the innermost scope. NULL if the recipe had NULL in that slot, or
 * on failure, with the error noted. */
reshard_tensor *rs_node_saved(rs_node *node, int32_t slot);
void rs_node_forget_saved(rs_node *node);
rs_node *rs_node_retain(rs_node *node);
void rs_node_release(rs_node *node);

#endif
