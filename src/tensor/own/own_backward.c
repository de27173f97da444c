/* SPDX-License-Identifier: Apache-2.0 */
/* own_backward.c - the backward step of a caller's own operation (own.h). */
#include "base/context.h"
#include "tensor/core/dense.h"
#include "tensor/core/move.h"
#include "tensor/grad/gradient.h"
#include "tensor/own/own.h"

#include <reshard/group.h>

#include <string.h>

/* What a backward step works with, in the innermost scope. */
typedef struct backing {
    rs_node *node;
    const rs_own_record *r;
    reshard_tensor *inputs[RS_OWN_MOST], *outputs[RS_OWN_MOST]; /* as saved */
    reshard_tensor *gradients[RS_OWN_MOST];                     /* of outputs, in their layouts */
    bool wanted[RS_OWN_MOST];
    reshard_tensor **made; /* [part * input_count + input]; references */
} backing;

/* A gradient of an output in the layout in which callbacks take it, which is any for whole tensors;
 * zeros if there is none. */
static reshard_status bring_gradient(const backing *b, int32_t index, reshard_tensor *gradient,
                                     reshard_layout *layout, reshard_tensor **out_gradient)
{
    const reshard_operation_output *output = &b->r->outputs[index];
    reshard_context *context = rs_scope_context();
    if (gradient != NULL && !b->r->on_shards) {
        *out_gradient = reshard_tensor_retain(gradient);
        return RESHARD_OK;
    }
    if (gradient != NULL)
        return rs_redistribute(context, gradient, layout, output->dtype, out_gradient);
    if (layout == NULL)
        return rs_result_zeros(output->dtype, output->ndim, output->shape, out_gradient);
    reshard_status status =
        rs_distributed_make(context, b->r->cache, layout, output->dtype, out_gradient);
    return status == RESHARD_OK ? reshard_tensor_fill(*out_gradient, 0) : status;
}

static reshard_status bring_gradients(backing *b, reshard_tensor *const *gradients)
{
    reshard_status status = RESHARD_OK;
    for (int32_t k = 0; k < b->r->operation.output_count && status == RESHARD_OK; k++) {
        reshard_layout *layout = NULL;
        reshard_tensor *made = NULL;
        if (b->r->layouts.outputs[k] != NULL)
            status = rs_gradient_layout(b->r->layouts.outputs[k], &layout);
        if (status == RESHARD_OK)
            status = bring_gradient(b, k, gradients[k], layout, &made);
        reshard_layout_release(layout);
        b->gradients[k] = rs_scope_finish(status, made);
    }
    return status;
}

static reshard_status unpack(backing *b)
{
    const reshard_operation *o = &b->r->operation;
    const reshard_scope *scope = rs_thread_state_get()->scope;
    int32_t slot = 0;
    for (int32_t i = 0; i < o->input_count && scope->status == RESHARD_OK; i++)
        b->inputs[i] = rs_node_saved(b->node, slot++);
    for (int32_t k = 0; k < o->output_count && scope->status == RESHARD_OK; k++)
        b->outputs[k] = rs_node_saved(b->node, slot++);
    return rs_scope_failed();
}

/* The saved tensors of one part. */
static reshard_status unpack_part(const backing *b, int64_t part, reshard_tensor **out_saved)
{
    const reshard_operation *o = &b->r->operation;
    const reshard_scope *scope = rs_thread_state_get()->scope;
    int32_t first = o->input_count + o->output_count + (int32_t)(part * o->saved_count);
    for (int32_t i = 0; i < o->saved_count && scope->status == RESHARD_OK; i++)
        out_saved[i] = rs_node_saved(b->node, first + i);
    return rs_scope_failed();
}

/* Checks the gradients of one part, and keeps them beyond the callback's scope. One that is missing
 * is zero. */
static reshard_status keep_gradients(backing *b, int64_t part, reshard_tensor *const *given)
{
    const rs_own_record *r = b->r;
    reshard_status status = RESHARD_OK;
    for (int32_t i = 0; i < r->operation.input_count && status == RESHARD_OK; i++) {
        reshard_operation_output expected = r->inputs[i];
        reshard_tensor **made = &b->made[part * r->operation.input_count + i];
        if (!b->wanted[i] || (given[i] == NULL && !r->on_shards))
            continue;
        if (r->on_shards) {
            reshard_shards *shards = NULL;
            status =
                reshard_layout_shards(r->layouts.gradients[i],
                                      reshard_group_rank(rs_exec_cache_group(r->cache)), &shards);
            if (status == RESHARD_OK)
                rs_own_take_shape(&shards->items[part], &expected);
            reshard_shards_destroy(shards);
        }
        if (status == RESHARD_OK && given[i] != NULL)
            status =
                rs_own_check_given(r, "backward: the gradient of input", i, given[i], &expected);
        if (status == RESHARD_OK && given[i] != NULL)
            *made = reshard_tensor_retain(given[i]);
        else if (status == RESHARD_OK)
            status = rs_result_zeros(expected.dtype, expected.ndim, expected.shape, made);
    }
    return status;
}

static reshard_status run_backward(backing *b, int64_t part)
{
    const reshard_operation *o = &b->r->operation;
    reshard_tensor *inputs[RS_OWN_MOST] = {NULL}, *outputs[RS_OWN_MOST] = {NULL},
                   *gradients[RS_OWN_MOST] = {NULL};
    reshard_tensor *saved[RS_OWN_MOST] = {NULL}, *given[RS_OWN_MOST] = {NULL};
    rs_own_call call = {
        .shown = {.data = b->r->data, .inputs = inputs, .outputs = outputs, .saved = saved},
        .record = b->r,
        .part = part};
    reshard_scope scope;
    for (int32_t i = 0; i < o->input_count; i++)
        call.shown.wants[i] = b->wanted[i];
    rs_scope_enter(&scope, rs_scope_context());
    reshard_status status = rs_own_take_part(b->r, part, o->input_count, b->inputs, inputs);
    if (status == RESHARD_OK)
        status = rs_own_take_part(b->r, part, o->output_count, b->outputs, outputs);
    if (status == RESHARD_OK)
        status = rs_own_take_part(b->r, part, o->output_count, b->gradients, gradients);
    if (status == RESHARD_OK)
        status = unpack_part(b, part, saved);
    if (status == RESHARD_OK)
        status = rs_own_judge_return(o->backward(&call.shown, gradients, given), "backward");
    if (status == RESHARD_OK)
        status = keep_gradients(b, part, given);
    if (status != RESHARD_OK)
        (void)rs_scope_fail(status);
    return rs_scope_leave(&scope);
}

/* Makes the gradient of one input out of its parts, in the innermost scope. */
static reshard_status join_gradient(const backing *b, int32_t index, reshard_tensor **out_gradient)
{
    const rs_own_record *r = b->r;
    reshard_tensor *made = NULL;
    reshard_context *context = rs_scope_context();
    if (!r->on_shards) {
        made = reshard_tensor_retain(b->made[index]);
        *out_gradient = made != NULL ? rs_scope_own(made) : NULL;
        return rs_scope_failed();
    }
    reshard_tensor **shards = rs_allocate_array(context, (size_t)r->part_count, sizeof *shards);
    reshard_status status = shards != NULL ? RESHARD_OK : rs_allocation_status();
    for (int64_t i = 0; i < r->part_count && status == RESHARD_OK; i++)
        shards[i] = b->made[i * r->operation.input_count + index];
    if (status == RESHARD_OK)
        status = rs_distributed_wrap(context, r->cache, r->layouts.gradients[index],
                                     r->inputs[index].dtype, shards, &made);
    rs_release(context, shards);
    *out_gradient = rs_scope_finish(status, made);
    return rs_scope_failed();
}

void rs_own_backward(rs_node *node, reshard_tensor *const *gradients,
                     reshard_tensor **out_gradients)
{
    backing b = {.node = node, .r = node->extra};
    int32_t count = b.r->operation.input_count;
    reshard_context *context = rs_scope_context();
    size_t bytes = (size_t)(b.r->part_count * count) * sizeof *b.made;
    b.made = rs_allocate_zeroed(context, bytes);
    reshard_status status = b.made != NULL ? RESHARD_OK : rs_allocation_status();
    for (int32_t i = 0; i < count; i++)
        b.wanted[i] = rs_node_wants(node, i);
    if (status == RESHARD_OK)
        status = unpack(&b);
    if (status == RESHARD_OK)
        status = bring_gradients(&b, gradients);
    for (int64_t i = 0; i < b.r->part_count && status == RESHARD_OK; i++)
        status = run_backward(&b, i);
    for (int32_t i = 0; i < count && status == RESHARD_OK; i++) {
        if (b.wanted[i])
            status = join_gradient(&b, i, &out_gradients[i]);
    }
    for (int64_t i = 0; b.made != NULL && i < b.r->part_count * count; i++)
        reshard_tensor_release(b.made[i]);
    rs_release(context, b.made);
    if (status != RESHARD_OK)
        (void)rs_scope_fail(status);
}
