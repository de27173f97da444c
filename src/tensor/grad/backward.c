/* SPDX-License-Identifier: Apache-2.0 */
/*
 * backward.c - the backward pass. It runs the nodes that led to a tensor in reverse order of
 * creation. This order is valid, and the same on all ranks that ran the same program. Each step has
 * a scope of its own, so that its temporaries are freed at once.
 *
 * A rank that fails goes on to the next collective step of each group and tells that group's ranks
 * there, so that nobody waits for it. Those ranks then fail too, and tell the ranks of their other
 * groups.
 */
#include "tensor/grad/backward.h"
#include "base/context.h"
#include "base/error.h"
#include "base/options.h"
#include "tensor/core/distribution.h"
#include "tensor/core/move.h"
#include "tensor/grad/gradient.h"
#include "tensor/grad/node.h"

#include <reshard/group.h>

#include <assert.h>
#include <stdlib.h>
#include <string.h>

typedef struct pass {
    reshard_context *context;
    int64_t count, capacity;
    rs_node **nodes; /* not retained: the tensor holds them */
    bool retain;
} pass;

static reshard_status add_node(pass *p, rs_node *node)
{
    if (node == NULL || node->marked)
        return RESHARD_OK;
    reshard_status status =
        rs_grow(p->context, &p->nodes, &p->capacity, p->count + 1, sizeof *p->nodes);
    if (status != RESHARD_OK)
        return status;
    node->marked = true;
    p->nodes[p->count++] = node;
    return RESHARD_OK;
}

static int compare_nodes(const void *a, const void *b)
{
    uint64_t x = (*(rs_node *const *)a)->sequence, y = (*(rs_node *const *)b)->sequence;
    return (x < y) - (x > y);
}

static reshard_status collect(pass *p, rs_node *first)
{
    reshard_status status = add_node(p, first);
    for (int64_t i = 0; i < p->count && status == RESHARD_OK; i++) {
        if (p->nodes[i]->spent)
            status = rs_fail(RESHARD_ERR_INVALID,
                             "backward: what %s saved was freed by an earlier pass, which did not "
                             "retain the graph",
                             p->nodes[i]->name);
        for (int32_t k = 0; k < p->nodes[i]->input_count && status == RESHARD_OK; k++)
            status = add_node(p, p->nodes[i]->inputs[k].node);
    }
    for (int64_t i = 0; i < p->count; i++)
        p->nodes[i]->marked = false;
    if (p->count > 0)
        qsort(p->nodes, (size_t)p->count, sizeof *p->nodes, compare_nodes);
    return status;
}

/* Stores a gradient, or adds it to the one already there. */
static reshard_status accumulate(reshard_tensor **place, reshard_tensor *gradient)
{
    reshard_tensor *sum = gradient;
    if (*place != NULL)
        sum = rs_gradient_add(*place, gradient);
    if (sum == NULL)
        return rs_thread_state_get()->scope->status;
    reshard_tensor_retain(sum);
    reshard_tensor_release(*place);
    *place = sum;
    return RESHARD_OK;
}

/* A leaf's gradient must not share its memory, because the leaf's owner may write to it. So the
 * leaf takes the given tensor if only the scope holds it, and a copy otherwise. `passing` is the
 * number of other tensors that share the memory and are about to be freed. */
static reshard_status make_own(reshard_context *context, reshard_tensor *gradient, int passing,
                               reshard_tensor **out_own)
{
    reshard_tensor *own = NULL;
    bool sole = atomic_load(&gradient->references) == 1 &&
                atomic_load(&gradient->storage->references) == 1 + passing;
    if (sole && rs_tensor_is_contiguous(gradient)) {
        *out_own = reshard_tensor_retain(gradient);
        return RESHARD_OK;
    }
    reshard_status status =
        rs_tensor_make(context, gradient->dtype, gradient->ndim, gradient->shape, &own);
    if (status == RESHARD_OK) {
        rs_tensor_copy(gradient, own);
        *out_own = own;
    }
    return status;
}

/* Makes sure that the shards of `moved` share no memory. If the layouts were equal they share that
 * of `gradient`, which is about to be freed with the scope unless somebody else holds it. */
static reshard_status own_shards(reshard_tensor *moved, const reshard_tensor *gradient)
{
    rs_distribution *to = moved->distribution, *from = gradient->distribution;
    bool goes = atomic_load(&gradient->references) == 1 && atomic_load(&from->references) == 1;
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; i < to->shard_count && status == RESHARD_OK; i++) {
        reshard_tensor *own = NULL;
        bool shared = goes && i < from->shard_count &&
                      to->shards[i]->storage == from->shards[i]->storage &&
                      atomic_load(&from->shards[i]->references) == 1;
        status = make_own(moved->context, to->shards[i], shared ? 1 : 0, &own);
        if (status == RESHARD_OK) {
            reshard_tensor_release(to->shards[i]);
            to->shards[i] = own;
        }
    }
    return status;
}

/* Gives the gradient in another layout. If nothing has to move, the ranks do not meet here but at
 * the next collective step, or at the end. */
static reshard_status bring(reshard_tensor *gradient, reshard_layout *layout,
                            reshard_tensor **out_moved)
{
    const rs_distribution *d = gradient->distribution;
    if (!rs_layouts_lie_alike(d->layout, layout))
        return rs_redistribute(gradient->context, gradient, layout, gradient->dtype, out_moved);
    return rs_distributed_wrap(gradient->context, d->cache, layout, gradient->dtype, d->shards,
                               out_moved);
}

static reshard_status accumulate_distributed(reshard_tensor *leaf, reshard_tensor *gradient)
{
    reshard_layout *layout = NULL;
    reshard_tensor *moved = NULL;
    reshard_status status = rs_gradient_layout(leaf->distribution->layout, &layout);
    if (status == RESHARD_OK)
        status = bring(gradient, layout, &moved);
    reshard_layout_release(layout);
    if (status == RESHARD_OK && leaf->gradient == NULL)
        status = own_shards(moved, gradient);
    if (status == RESHARD_OK)
        status = accumulate(&leaf->gradient, moved);
    reshard_tensor_release(moved);
    return status;
}

/* A leaf's gradient outlives the pass, so it belongs to no scope. It has the leaf's gradient
 * layout. */
static reshard_status accumulate_leaf(reshard_tensor *leaf, reshard_tensor *gradient)
{
    if (leaf->dtype != gradient->dtype || !rs_shape_equals(leaf, gradient))
        return rs_fail(RESHARD_ERR_CHECK, "the gradient of a leaf of %s is %s",
                       rs_tensor_describe(leaf).text, rs_tensor_describe(gradient).text);
    if (leaf->distribution != NULL)
        return accumulate_distributed(leaf, gradient);
    if (leaf->gradient != NULL)
        return accumulate(&leaf->gradient, gradient);
    return make_own(gradient->context, gradient, 0, &leaf->gradient);
}

static reshard_status hand_on(rs_node *node, reshard_tensor *const *gradients)
{
    assert(node != NULL && gradients != NULL);
    reshard_status status = RESHARD_OK;
    for (int32_t i = 0; i < node->input_count && status == RESHARD_OK; i++) {
        rs_edge *edge = &node->inputs[i];
        if (gradients[i] == NULL)
            continue;
        if (edge->node != NULL)
            status = accumulate(&edge->node->gradients[edge->output], gradients[i]);
        else if (edge->leaf != NULL)
            status = accumulate_leaf(edge->leaf, gradients[i]);
    }
    return status;
}

static void drop_gradients(rs_node *node)
{
    for (int32_t i = 0; i < node->output_count; i++) {
        reshard_tensor_release(node->gradients[i]);
        node->gradients[i] = NULL;
    }
}

static bool is_reached(const rs_node *node)
{
    bool reached = false;
    for (int32_t i = 0; i < node->output_count; i++)
        reached = reached || node->gradients[i] != NULL;
    return reached;
}

static reshard_status step(const pass *p, rs_node *node)
{
    assert(node->output_count > 0 && !node->spent);
    reshard_scope scope;
    reshard_tensor **gradients =
        rs_allocate_zeroed(p->context, (size_t)node->input_count * sizeof *gradients);
    if (gradients == NULL)
        return rs_allocation_status();
    rs_scope_enter(&scope, node->context);
    (void)reshard_set_gradients_enabled(0);
    node->retain = p->retain;
    if (is_reached(node)) {
        node->backward(node, node->gradients, gradients);
        if (scope.status == RESHARD_OK) {
            reshard_status status = hand_on(node, gradients);
            if (status != RESHARD_OK)
                (void)rs_scope_fail(status);
        }
    }
    reshard_status status = rs_scope_leave(&scope);
    rs_release(p->context, gradients);
    drop_gradients(node);
    if (!p->retain) {
        rs_node_forget_saved(node);
        node->spent = true;
    }
    return rs_fail_within(status, "backward of %s", node->name);
}

/* Runs the steps of a pass in the innermost scope. After a failure, on this rank or another, only
 * the groups of later collective steps are told. */
static reshard_status run(const pass *p, reshard_status status)
{
    const reshard_scope *scope = rs_thread_state_get()->scope;
    for (int64_t i = 0; i < p->count; i++) {
        rs_node *node = p->nodes[i];
        if (status == RESHARD_OK)
            status = step(p, node);
        else if (node->group != NULL && !rs_scope_has_told(scope, node->group))
            status = rs_agree(node->group, status, "backward");
        if (status != RESHARD_OK)
            drop_gradients(node);
    }
    return status;
}

static reshard_status check(reshard_tensor *tensor, const reshard_tensor *gradient)
{
    const reshard_scope *scope = rs_thread_state_get()->scope;
    if (scope != NULL && scope->status != RESHARD_OK)
        return reshard_scope_status(scope);
    if (tensor == NULL)
        return rs_fail(RESHARD_ERR_INVALID, "backward: the tensor is NULL");
    if (!rs_tensor_requires_grad(tensor))
        return rs_fail(
            RESHARD_ERR_INVALID,
            "backward: no operation recorded this tensor; does an input require gradients?");
    if (gradient == NULL && (tensor->volume != 1 || rs_dtype_is_complex(tensor->dtype)))
        return rs_fail(RESHARD_ERR_INVALID,
                       "backward: a tensor of %s needs a gradient to begin with",
                       rs_tensor_describe(tensor).text);
    if (gradient != NULL &&
        (gradient->dtype != tensor->dtype || !rs_shape_equals(gradient, tensor) ||
         (gradient->distribution != NULL) != (tensor->distribution != NULL)))
        return rs_fail(RESHARD_ERR_INVALID, "backward: a gradient of %s for a tensor of %s",
                       rs_tensor_describe(gradient).text, rs_tensor_describe(tensor).text);
    return RESHARD_OK;
}

/* Makes a gradient of ones. That of a partial tensor is replicated, as all its gradients are. */
static reshard_status make_one(reshard_tensor *tensor, reshard_tensor **out_one)
{
    reshard_tensor *one = NULL;
    reshard_layout *layout = NULL;
    reshard_status status = RESHARD_OK;
    if (tensor->distribution == NULL) {
        status = rs_tensor_make(tensor->context, tensor->dtype, tensor->ndim, tensor->shape, &one);
    } else {
        status = rs_gradient_layout(tensor->distribution->layout, &layout);
        if (status == RESHARD_OK)
            status = rs_distributed_make(tensor->context, tensor->distribution->cache, layout,
                                         tensor->dtype, &one);
        reshard_layout_release(layout);
    }
    if (status == RESHARD_OK)
        status = reshard_tensor_fill(one, 1);
    return rs_tensor_hand_out(status, one, out_one);
}

static reshard_status begin(reshard_tensor *tensor, reshard_tensor *gradient)
{
    if (tensor->node != NULL)
        return accumulate(&tensor->node->gradients[tensor->node_output], gradient);
    reshard_tensor_retain(gradient); /* the caller's, so a leaf must not take it over */
    reshard_status status = accumulate_leaf(tensor, gradient);
    reshard_tensor_release(gradient);
    return status;
}

/* Finds the group whose ranks have to begin together, or NULL: that of the tensor or of the first
 * collective step. On a rank that has failed it is the group of the last computation, unless that
 * group knows already. */
static reshard_group *find_group(const pass *p, const reshard_tensor *tensor, reshard_status status)
{
    const reshard_scope *scope = rs_thread_state_get()->scope;
    if (status != RESHARD_OK && scope != NULL && scope->group != NULL)
        return rs_scope_has_told(scope, scope->group) ? NULL : scope->group;
    if (tensor != NULL && tensor->distribution != NULL)
        return rs_distributed_group(tensor);
    for (int64_t i = 0; i < p->count; i++) {
        if (p->nodes[i]->group != NULL)
            return p->nodes[i]->group;
    }
    return NULL;
}

/* Runs a pass after its nodes have been collected. */
static reshard_status go(const pass *p, reshard_tensor *tensor, reshard_tensor *gradient,
                         reshard_group *group)
{
    reshard_scope scope;
    /* Hold the tensor while the graph runs: a hook may drop the last other reference to it. */
    reshard_tensor_retain(tensor);
    rs_scope_enter(&scope, p->context);
    (void)reshard_set_gradients_enabled(0);
    reshard_status status = run(p, begin(tensor, gradient));
    /* Another rank may have failed after the last collective step. */
    if (group != NULL && (status == RESHARD_OK || !rs_scope_has_told(&scope, group)))
        status = rs_agree(group, status, "backward");
    (void)rs_scope_leave(&scope);
    if (status != RESHARD_OK)
        rs_scope_hand_on_failure(&scope);
    reshard_tensor_release(tensor);
    return status;
}

reshard_status rs_backward_local(reshard_tensor *tensor, reshard_tensor *gradient, bool retain)
{
    assert(tensor->distribution == NULL && gradient->distribution == NULL);
    pass p = {.context = tensor->context, .retain = retain};
    reshard_status status = collect(&p, tensor->node);
    if (status == RESHARD_OK)
        status = go(&p, tensor, gradient, NULL);
    rs_release(p.context, p.nodes);
    return status;
}

reshard_status reshard_backward(reshard_tensor *tensor, reshard_tensor *gradient,
                                const reshard_backward_options *options)
{
    reshard_backward_options read = {0};
    pass p = {.context = tensor != NULL ? tensor->context : NULL};
    reshard_tensor *one = NULL;
    reshard_status status = check(tensor, gradient);
    if (status == RESHARD_OK)
        status = rs_options_read("backward options", options, &read, sizeof read);
    p.retain = read.retain_graph != 0;
    if (status == RESHARD_OK && gradient == NULL) {
        status = make_one(tensor, &one);
        gradient = one;
    }
    if (status == RESHARD_OK)
        status = collect(&p, tensor->node);
    reshard_group *group = find_group(&p, tensor, status);
    if (group != NULL)
        status = rs_agree(group, status, "backward");
    if (status == RESHARD_OK)
        status = go(&p, tensor, gradient, group);
    reshard_tensor_release(one);
    rs_release(p.context, p.nodes);
    if (status != RESHARD_OK)
        (void)rs_scope_fail(status); /* for callers who look only when they close the scope */
    return status;
}
