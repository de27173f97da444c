/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node.c - records operations. A graph can be as deep as a training step is long, so nodes are
 * freed from a list and not by recursion.
 */
#include "tensor/grad/node.h"
#include "base/context.h"
#include "base/error.h"
#include "tensor/core/distribution.h"
#include "tensor/core/failure.h"

#include <reshard/group.h>

#include <assert.h>
#include <string.h>

/* ---- freeing --------------------------------------------------------------------------------- */

rs_node *rs_node_retain(rs_node *node)
{
    if (node != NULL)
        rs_reference_add(&node->references);
    return node;
}

void rs_node_forget_saved(rs_node *node)
{
    for (int32_t i = 0; i < node->saved_count; i++)
        rs_saved_forget(&node->saved[i]);
    if (node->forget_extra != NULL && node->extra != NULL)
        node->forget_extra(node->extra);
    node->extra = NULL;
}

/* Frees one node. Nodes before it that nobody else uses are added to the list, which is
 * returned. */
static rs_node *free_one(rs_node *node, rs_node *list)
{
    rs_node_forget_saved(node);
    for (int32_t i = 0; i < node->input_count; i++) {
        rs_node *before = node->inputs[i].node;
        if (before != NULL && rs_reference_drop(&before->references)) {
            before->next = list;
            list = before;
        }
        reshard_tensor_release(node->inputs[i].leaf);
    }
    for (int32_t i = 0; i < node->output_count; i++)
        reshard_tensor_release(node->gradients[i]);
    reshard_group_release(node->group);
    rs_release(node->context, node->inputs);
    rs_release(node->context, node->gradients);
    rs_release(node->context, node->saved);
    rs_release(node->context, node);
    return list;
}

void rs_node_release(rs_node *node)
{
    if (node == NULL || !rs_reference_drop(&node->references))
        return;
    node->next = NULL;
    for (rs_node *list = node; list != NULL;) {
        rs_node *first = list;
        list = free_one(first, first->next);
    }
}

/* ---- recording ------------------------------------------------------------------------------- */

bool rs_tensor_requires_grad(const reshard_tensor *tensor)
{
    return tensor != NULL && (tensor->requires_grad || tensor->node != NULL);
}

bool rs_op_records(int32_t count, reshard_tensor *const *inputs)
{
    bool wanted = false;
    for (int32_t i = 0; i < count; i++)
        wanted = wanted || rs_tensor_requires_grad(inputs[i]);
    return wanted && !rs_thread_state_get()->gradients_off;
}

bool rs_op_begin(const char *name, int32_t count, reshard_tensor *const *inputs)
{
    reshard_scope *scope = rs_thread_state_get()->scope;
    if (scope == NULL) {
        (void)rs_fail(RESHARD_ERR_INVALID, "%s: no scope is open on this thread", name);
        return false;
    }
    if (scope->status != RESHARD_OK)
        return false;
    scope->failure = 0; /* left by an earlier call that failed without failing the scope */
    for (int32_t i = 0; i < count; i++) {
        if (inputs[i] == NULL) {
            (void)rs_scope_fail(rs_fail(RESHARD_ERR_INVALID, "%s: input %d is NULL", name, i));
            return false;
        }
        if (inputs[i]->distribution != NULL)
            rs_scope_use_group(rs_distributed_group(inputs[i]));
    }
    return true;
}

bool rs_op_begin_together(const char *name, reshard_group *group, reshard_tensor *input)
{
    if (group == NULL && input != NULL && input->distribution != NULL)
        group = rs_distributed_group(input);
    if (group != NULL)
        rs_scope_use_group(group);
    if (rs_op_begin(name, 1, &input))
        return true;
    rs_agree_on_failure();
    return false;
}

static reshard_status make_node(const rs_recipe *recipe, int32_t output_count, rs_node **out_node)
{
    assert(recipe->backward != NULL && output_count > 0);
    assert(recipe->facts != NULL || recipe->facts_bytes == 0);
    reshard_context *context = rs_scope_context();
    rs_node *node = rs_allocate_zeroed(context, sizeof *node + recipe->facts_bytes);
    if (node == NULL)
        return rs_allocation_status();
    atomic_init(&node->references, 1);
    node->context = context;
    node->name = recipe->name;
    node->backward = recipe->backward;
    node->facts_bytes = recipe->facts_bytes;
    if (recipe->facts_bytes > 0)
        memcpy(node->facts, recipe->facts, recipe->facts_bytes);
    node->head.release = rs_node_release;
    node->sequence = ++rs_thread_state_get()->node_count;
    node->group = reshard_group_retain(recipe->group);
    node->inputs = rs_allocate_zeroed(context, (size_t)recipe->input_count * sizeof *node->inputs);
    node->gradients = rs_allocate_zeroed(context, (size_t)output_count * sizeof *node->gradients);
    node->saved = rs_allocate_zeroed(context, (size_t)recipe->saved_count * sizeof *node->saved);
    if (node->inputs != NULL)
        node->input_count = recipe->input_count;
    if (node->gradients != NULL)
        node->output_count = output_count;
    if (node->saved != NULL)
        node->saved_count = recipe->saved_count;
    if (node->inputs == NULL || node->gradients == NULL || node->saved == NULL) {
        reshard_status status = rs_allocation_status();
        rs_node_release(node);
        return status;
    }
    *out_node = node;
    return RESHARD_OK;
}

static void connect(rs_edge *edge, reshard_tensor *input)
{
    if (input == NULL)
        return;
    edge->node = rs_node_retain(input->node);
    edge->output = input->node_output;
    if (input->node == NULL && input->requires_grad)
        edge->leaf = reshard_tensor_retain(input);
}

static bool is_input(const rs_recipe *recipe, const reshard_tensor *tensor)
{
    bool found = false;
    for (int32_t i = 0; i < recipe->input_count; i++)
        found = found || recipe->inputs[i] == tensor;
    return found;
}

/* Saves one tensor. If it is neither input nor output it was computed from the inputs, so it is the
 * same on several ranks if they are. */
static reshard_status save(const rs_recipe *recipe, rs_sameness sameness, int32_t slot,
                           rs_node *node)
{
    reshard_tensor *tensor = recipe->saved[slot];
    if (tensor == NULL)
        return RESHARD_OK;
    if (tensor->distribution == NULL && !is_input(recipe, tensor) &&
        tensor->sameness == RS_SAME_UNKNOWN)
        tensor->sameness = sameness;
    return rs_saved_pack(node->context, tensor, &node->saved[slot]);
}

static reshard_status record(const rs_recipe *recipe, rs_sameness sameness, int32_t count,
                             reshard_tensor **outputs)
{
    rs_node *node = NULL;
    reshard_status status = make_node(recipe, count, &node);
    if (status != RESHARD_OK)
        return status;
    for (int32_t i = 0; i < recipe->input_count; i++)
        connect(&node->inputs[i], recipe->inputs[i]);
    for (int32_t i = 0; i < recipe->saved_count && status == RESHARD_OK; i++)
        status = save(recipe, sameness, i, node);
    if (status == RESHARD_OK) {
        node->extra = recipe->extra;
        node->forget_extra = recipe->forget_extra;
        for (int32_t i = 0; i < count; i++) {
            outputs[i]->node = rs_node_retain(node);
            outputs[i]->node_output = i;
        }
    }
    rs_node_release(node);
    return status;
}

bool rs_op_end_many(const rs_recipe *recipe, reshard_status status, int32_t count,
                    reshard_tensor **outputs)
{
    assert(recipe->name != NULL && count >= 0);
    bool recorded = false;
    rs_sameness sameness = rs_sameness_of(recipe->input_count, recipe->inputs);
    rs_kin kin = rs_kin_of(recipe->input_count, recipe->inputs);
    for (int32_t i = 0; i < count && status == RESHARD_OK; i++) {
        if (outputs[i]->distribution == NULL && outputs[i]->sameness == RS_SAME_UNKNOWN)
            outputs[i]->sameness = sameness;
        if (outputs[i]->distribution == NULL && outputs[i]->kin.number == 0)
            outputs[i]->kin = kin;
    }
    if (status == RESHARD_OK && rs_op_records(recipe->input_count, recipe->inputs)) {
        status = record(recipe, sameness, count, outputs);
        recorded = status == RESHARD_OK;
    }
    if (!recorded && recipe->extra != NULL && recipe->forget_extra != NULL)
        recipe->forget_extra(recipe->extra);
    if (status != RESHARD_OK)
        (void)rs_scope_fail(rs_fail_within(status, "%s", recipe->name));
    for (int32_t i = 0; i < count; i++) {
        if (status != RESHARD_OK) {
            reshard_tensor_release(outputs[i]);
            outputs[i] = NULL;
            continue;
        }
        outputs[i] = rs_scope_own(outputs[i]);
        if (outputs[i] == NULL)
            status = RESHARD_ERR_NO_MEMORY; /* rs_scope_own has noted it; release the rest */
    }
    for (int32_t i = 0; i < count && status != RESHARD_OK; i++)
        outputs[i] = NULL; /* the earlier ones already belong to the scope */
    return status == RESHARD_OK;
}

reshard_tensor *rs_op_end(const rs_recipe *recipe, reshard_status status, reshard_tensor *output)
{
    (void)rs_op_end_many(recipe, status, 1, &output);
    return output;
}

/* ---- for backward steps ---------------------------------------------------------------------- */

const void *rs_node_facts(const rs_node *node)
{
    assert(node->facts_bytes > 0);
    return node->facts;
}

bool rs_node_wants(const rs_node *node, int32_t input)
{
    assert(input >= 0 && input < node->input_count);
    return node->inputs[input].node != NULL || node->inputs[input].leaf != NULL;
}

reshard_tensor *rs_node_saved(rs_node *node, int32_t slot)
{
    assert(slot >= 0 && slot < node->saved_count);
    rs_saved *saved = &node->saved[slot];
    if (saved->tensor == NULL && !saved->packed)
        return NULL;
    reshard_tensor *tensor = NULL;
    reshard_status status = rs_saved_unpack(saved, node->name, &tensor);
    return status == RESHARD_OK ? rs_scope_own(tensor) : rs_scope_fail(status);
}

/* ---- leaves ---------------------------------------------------------------------------------- */

reshard_status reshard_tensor_set_requires_grad(reshard_tensor *tensor, int requires)
{
    reshard_status status = rs_tensor_check_given(tensor, "requires_grad");
    if (status != RESHARD_OK)
        return status;
    if (tensor->node != NULL)
        return rs_fail(RESHARD_ERR_INVALID,
                       "requires_grad of a tensor that %s computed: only leaves can have it set",
                       tensor->node->name);
    if (requires && !rs_dtype_is_float(rs_dtype_part(tensor->dtype)))
        return rs_fail(RESHARD_ERR_UNSUPPORTED, "gradients of %s",
                       reshard_dtype_name(tensor->dtype));
    tensor->requires_grad = requires != 0;
    return RESHARD_OK;
}

reshard_tensor *reshard_tensor_gradient(const reshard_tensor *tensor)
{
    return tensor != NULL ? tensor->gradient : NULL;
}

void reshard_tensor_clear_gradient(reshard_tensor *tensor)
{
    if (tensor == NULL)
        return;
    reshard_tensor_release(tensor->gradient);
    tensor->gradient = NULL;
}

int reshard_set_gradients_enabled(int enabled)
{
    rs_thread_state *state = rs_thread_state_get();
    int before = !state->gradients_off;
    state->gradients_off = !enabled;
    return before;
}
