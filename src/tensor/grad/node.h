/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node.h - recorded operations.
 *
 * A tensor holds the node that computed it, and a node holds the nodes before it and what it saved.
 * Nothing holds the other way round: a saved tensor is an alias without a node. So there are no
 * cycles.
 */
#ifndef RS_TENSOR_GRAD_NODE_H
#define RS_TENSOR_GRAD_NODE_H

#include "tensor/grad/saved.h"

#include <stddef.h>

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
    struct reshard_group *group; /* retained: the backward step begins with an agreement on it */
    void *extra;                 /* the operation's own */
    void (*forget_extra)(void *extra);
    bool spent;    /* a backward pass has freed what was saved */
    bool retain;   /* the backward pass under way keeps what was saved */
    bool marked;   /* already in the list that is being made */
    rs_node *next; /* of a list of nodes to be freed */
    size_t facts_bytes;
    _Alignas(max_align_t) unsigned char facts[]; /* see rs_node_facts */
};

/* What an operation tells about itself. Arrays are copied. */
typedef struct rs_recipe {
    const char *name;
    rs_backward_fn backward;
    int32_t input_count;
    reshard_tensor *const *inputs; /* entries may be NULL */
    int32_t saved_count;
    reshard_tensor *const *saved; /* inputs, outputs or others; entries may be NULL */
    const void *facts; /* what the backward step has to know: a struct of the operation; copied */
    size_t facts_bytes;
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
/* The facts of the recipe. */
const void *rs_node_facts(const rs_node *node);
/* Does anybody want the gradient of this input? */
bool rs_node_wants(const rs_node *node, int32_t input);
/* A saved tensor, owned by the innermost scope; NULL with the error noted on failure. Slots of NULL
 * give NULL. */
reshard_tensor *rs_node_saved(rs_node *node, int32_t slot);
void rs_node_forget_saved(rs_node *node);
rs_node *rs_node_retain(rs_node *node);

#endif
