/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spread.c - runs a local operation on every shard, and records all of that as one node.
 *
 * The local operations are recorded in graphs of their own, on aliases of the shards. So the outer
 * graph has the same nodes on every rank, even on one without shards, and all ranks enter the
 * collective backward steps alike. The backward step brings the gradient to the output's layout,
 * runs the inner graphs, and wraps what their leaves have collected.
 *
 * While saved-tensor hooks are set, the distributed inputs are saved as well, so that hooks see
 * tensors with their layouts, and the inner graphs are kept hollow (hollow.h) until the backward
 * step fills them. If an operation saved more than its inputs, its inner graphs are dropped and the
 * backward step computes them again.
 */
#include "tensor/dist/spread.h"

#include "base/context.h"
#include "base/error.h"
#include "layout/layout.h"
#include "tensor/core/move.h"
#include "tensor/grad/backward.h"
#include "tensor/grad/gradient.h"
#include "tensor/grad/hollow.h"

#include <reshard/group.h>

#include <assert.h>
#include <string.h>

/* ---- checks ---------------------------------------------------------------------------------- */

bool rs_any_distributed(int32_t count, reshard_tensor *const *inputs)
{
    bool any = false;
    for (int32_t i = 0; i < count; i++)
        any = any || (inputs[i] != NULL && inputs[i]->distribution != NULL);
    return any;
}

rs_layout_words rs_tensor_describe_layout(const reshard_tensor *tensor)
{
    return tensor->distribution != NULL ? rs_layout_describe(tensor->distribution->layout)
                                        : (rs_layout_words){.text = "local"};
}

reshard_status rs_refuse_partial(const reshard_tensor *tensor)
{
    return rs_fail(RESHARD_ERR_INVALID,
                   "a tensor with the partial layout \"%s\": redistribute it first",
                   rs_tensor_describe_layout(tensor).text);
}

reshard_status rs_check_together(int32_t count, reshard_tensor *const *inputs)
{
    const reshard_tensor *first = NULL;
    for (int32_t i = 0; i < count; i++) {
        if (inputs[i] == NULL)
            continue;
        if (inputs[i]->distribution == NULL)
            return rs_fail(RESHARD_ERR_INVALID,
                           "input %d is a local tensor, and another one is distributed", i);
        if (first != NULL && first->distribution->cache != inputs[i]->distribution->cache)
            return rs_fail(RESHARD_ERR_INVALID, "input %d belongs to another group", i);
        first = first != NULL ? first : inputs[i];
    }
    return RESHARD_OK;
}

/* ---- running --------------------------------------------------------------------------------- */

/* What happens to the inner graphs until the backward step. */
typedef enum graphs_fate { STAY, HOLLOWED, MADE_AGAIN } graphs_fate;

/* What a recorded operation keeps. */
typedef struct insides {
    reshard_context *context;
    rs_exec_cache *cache;
    int32_t input_count;
    int64_t shard_count;
    reshard_tensor **leaves;             /* [shard * input_count + input] */
    reshard_tensor **outputs;            /* by shard */
    rs_hollow **hollows;                 /* by shard */
    reshard_dtype dtypes[RS_SPREAD_MAX]; /* of the inputs */
    reshard_layout *gradient_layouts[RS_SPREAD_MAX];
    reshard_layout *output_gradient_layout;
    graphs_fate fate;
    rs_local_fn fn;
    union {
        unsigned char bytes[RS_SPREAD_USER];
        double aligned;
        void *pointer;
    } user;
    reshard_shards *shards;
} insides;

static void drop_graphs(insides *in)
{
    for (int64_t i = 0; in->hollows != NULL && i < in->shard_count; i++) {
        rs_hollow_destroy(in->hollows[i]);
        in->hollows[i] = NULL;
    }
    for (int64_t i = 0; in->outputs != NULL && i < in->shard_count; i++) {
        reshard_tensor_release(in->outputs[i]);
        in->outputs[i] = NULL;
    }
    for (int64_t i = 0; in->leaves != NULL && i < in->shard_count * in->input_count; i++) {
        reshard_tensor_release(in->leaves[i]);
        in->leaves[i] = NULL;
    }
}

static void forget_insides(void *extra)
{
    insides *in = extra;
    if (in == NULL)
        return;
    int64_t leaf_count = in->shard_count * in->input_count;
    drop_graphs(in);
    reshard_shards_destroy(in->shards);
    rs_release(in->context, in->hollows, (size_t)in->shard_count * sizeof *in->hollows);
    rs_release(in->context, in->outputs, (size_t)in->shard_count * sizeof *in->outputs);
    rs_release(in->context, in->leaves, (size_t)leaf_count * sizeof *in->leaves);
    for (int32_t i = 0; i < in->input_count; i++)
        reshard_layout_release(in->gradient_layouts[i]);
    reshard_layout_release(in->output_gradient_layout);
    rs_exec_cache_release(in->cache);
    rs_release(in->context, in, sizeof *in);
}

static reshard_status make_insides(const rs_spread *spread, insides **out_insides)
{
    reshard_context *context = rs_scope_context();
    const rs_distribution *first = spread->inputs[0]->distribution;
    insides *in = rs_allocate_zeroed(context, sizeof *in);
    if (in == NULL)
        return rs_allocation_status();
    in->context = context;
    in->cache = rs_exec_cache_retain(first->cache);
    in->input_count = spread->input_count;
    in->shard_count = first->shard_count;
    in->fn = spread->fn;
    if (spread->user_bytes > 0)
        memcpy(in->user.bytes, spread->user, spread->user_bytes);
    size_t leaf_count = (size_t)in->shard_count * (size_t)in->input_count;
    in->leaves = rs_allocate_zeroed(context, leaf_count * sizeof *in->leaves);
    in->outputs = rs_allocate_zeroed(context, (size_t)in->shard_count * sizeof *in->outputs);
    in->hollows = rs_allocate_zeroed(context, (size_t)in->shard_count * sizeof *in->hollows);
    for (int32_t i = 0; i < in->input_count; i++) {
        in->gradient_layouts[i] = reshard_layout_retain(spread->gradient_layouts[i]);
        if (spread->inputs[i] != NULL)
            in->dtypes[i] = spread->inputs[i]->dtype;
    }
    bool made = in->leaves != NULL && in->outputs != NULL && in->hollows != NULL;
    reshard_status status = made ? RESHARD_OK : rs_allocation_status();
    if (status == RESHARD_OK)
        status = rs_gradient_layout(spread->output_layout, &in->output_gradient_layout);
    if (status == RESHARD_OK)
        *out_insides = in;
    else
        forget_insides(in);
    return status;
}

/* Makes aliases of one shard of every input. Those of inputs that want gradients collect them. */
static reshard_status make_leaves(const insides *in, reshard_tensor *const *inputs,
                                  const bool *wanted, int64_t shard, reshard_tensor **leaves)
{
    reshard_status status = RESHARD_OK;
    for (int32_t i = 0; i < in->input_count && status == RESHARD_OK; i++) {
        if (inputs[i] == NULL)
            continue;
        status =
            rs_tensor_alias(rs_scope_context(), inputs[i]->distribution->shards[shard], &leaves[i]);
        if (status == RESHARD_OK)
            leaves[i]->requires_grad = wanted[i];
    }
    return status;
}

static reshard_status run_shards(insides *in, reshard_tensor *const *inputs, const bool *wanted)
{
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; i < in->shard_count && status == RESHARD_OK; i++) {
        reshard_tensor **leaves = in->leaves + i * in->input_count;
        status = make_leaves(in, inputs, wanted, i, leaves);
        if (status != RESHARD_OK)
            break;
        reshard_tensor *output = in->fn(leaves, in->user.bytes);
        in->outputs[i] = reshard_tensor_retain(output);
        status = output != NULL ? RESHARD_OK : rs_scope_failed();
    }
    return status;
}

static reshard_status run_forward(insides *in, reshard_tensor *const *inputs)
{
    rs_thread_state *state = rs_thread_state_get();
    rs_hook_pair *hooks = state->hooks;
    bool wanted[RS_SPREAD_MAX];
    for (int32_t i = 0; i < in->input_count; i++)
        wanted[i] = inputs[i] != NULL && reshard_tensor_requires_grad(inputs[i]);
    state->hooks = NULL; /* hooks see the distributed inputs only */
    reshard_status status = run_shards(in, inputs, wanted);
    state->hooks = hooks;
    return status;
}

/* While hooks are set, it is up to them how to keep memory, so the inner graphs give up theirs. */
static reshard_status hollow_graphs(insides *in, const rs_spread *spread)
{
    reshard_status status = RESHARD_OK;
    if (rs_thread_state_get()->hooks == NULL || !rs_op_records(spread->input_count, spread->inputs))
        return RESHARD_OK;
    in->fate = HOLLOWED;
    for (int64_t i = 0; i < in->shard_count && status == RESHARD_OK; i++) {
        status = rs_hollow_make(in->context, in->outputs[i], in->input_count,
                                in->leaves + i * in->input_count, &in->hollows[i]);
        if (status == RESHARD_OK && in->hollows[i] == NULL)
            in->fate = MADE_AGAIN;
    }
    if (in->fate == MADE_AGAIN)
        drop_graphs(in);
    return status;
}

static reshard_status unpack_inputs(rs_node *node, const insides *in, reshard_tensor **inputs)
{
    const reshard_scope *scope = rs_thread_state_get()->scope;
    for (int32_t i = 0; i < in->input_count; i++) {
        inputs[i] = rs_node_saved(node, i);
        if (scope->status != RESHARD_OK)
            return reshard_scope_status(scope);
    }
    return RESHARD_OK;
}

static void fill_graphs(insides *in, reshard_tensor *const *inputs)
{
    for (int64_t i = 0; i < in->shard_count; i++) {
        reshard_tensor *contents[RS_SPREAD_MAX] = {NULL};
        for (int32_t k = 0; k < in->input_count; k++)
            contents[k] = inputs[k] != NULL ? inputs[k]->distribution->shards[i] : NULL;
        rs_hollow_fill(in->hollows[i], contents);
    }
}

static reshard_status make_graphs_again(rs_node *node, insides *in, reshard_tensor *const *inputs)
{
    bool wanted[RS_SPREAD_MAX];
    rs_thread_state *state = rs_thread_state_get();
    for (int32_t i = 0; i < in->input_count; i++)
        wanted[i] = rs_node_wants(node, i);
    rs_hook_pair *hooks = state->hooks;
    state->hooks = NULL;
    (void)reshard_set_gradients_enabled(1);
    reshard_status status = run_shards(in, inputs, wanted);
    (void)reshard_set_gradients_enabled(0);
    state->hooks = hooks;
    return status;
}

/* Restores the inner graphs from the saved inputs. */
static reshard_status restore_graphs(rs_node *node, insides *in)
{
    reshard_tensor *inputs[RS_SPREAD_MAX] = {NULL};
    if (in->fate == STAY)
        return RESHARD_OK;
    reshard_status status = unpack_inputs(node, in, inputs);
    if (status != RESHARD_OK)
        return status;
    if (in->fate == MADE_AGAIN)
        return make_graphs_again(node, in, inputs);
    fill_graphs(in, inputs);
    return RESHARD_OK;
}

static void put_graphs_away(insides *in)
{
    for (int64_t i = 0; i < in->shard_count && in->fate == HOLLOWED; i++)
        rs_hollow_empty(in->hollows[i]);
    if (in->fate == MADE_AGAIN)
        drop_graphs(in);
}

static void hand_out(rs_node *node, insides *in, reshard_tensor **out_gradients)
{
    assert(in->input_count == node->input_count);
    reshard_context *context = rs_scope_context();
    reshard_tensor **shards = rs_allocate_array(context, (size_t)in->shard_count, sizeof *shards);
    reshard_status status = shards != NULL ? RESHARD_OK : rs_allocation_status();
    for (int32_t k = 0; k < in->input_count && status == RESHARD_OK; k++) {
        reshard_tensor *made = NULL;
        if (!rs_node_wants(node, k) || in->gradient_layouts[k] == NULL)
            continue;
        for (int64_t i = 0; i < in->shard_count && status == RESHARD_OK; i++) {
            reshard_tensor *leaf = in->leaves[i * in->input_count + k];
            if (leaf->gradient == NULL)
                status = reshard_tensor_create(leaf->context, leaf->dtype, leaf->ndim, leaf->shape,
                                               &leaf->gradient);
            shards[i] = leaf->gradient;
        }
        if (status == RESHARD_OK)
            status = rs_distributed_wrap(context, in->cache, in->gradient_layouts[k], in->dtypes[k],
                                         shards, &made);
        if (status == RESHARD_OK)
            out_gradients[k] = rs_scope_own(made);
    }
    rs_release(context, shards, (size_t)in->shard_count * sizeof *shards);
    if (status != RESHARD_OK)
        (void)rs_scope_fail(status);
}

static void backward_spread(rs_node *node, reshard_tensor *const *gradients,
                            reshard_tensor **out_gradients)
{
    insides *in = node->extra;
    reshard_tensor *gradient = NULL;
    reshard_status status = restore_graphs(node, in);
    if (status == RESHARD_OK)
        status = rs_redistribute(rs_scope_context(), gradients[0], in->output_gradient_layout,
                                 gradients[0]->dtype, &gradient);
    for (int64_t i = 0; i < in->shard_count && status == RESHARD_OK; i++) {
        if (reshard_tensor_requires_grad(in->outputs[i]))
            status =
                rs_backward_local(in->outputs[i], gradient->distribution->shards[i], node->retain);
    }
    reshard_tensor_release(gradient);
    if (status == RESHARD_OK)
        hand_out(node, in, out_gradients);
    else
        (void)rs_scope_fail(status);
    for (int64_t i = 0; i < in->shard_count * in->input_count; i++) {
        if (in->leaves[i] != NULL)
            reshard_tensor_clear_gradient(in->leaves[i]);
    }
    put_graphs_away(in);
}

reshard_tensor *rs_spread_run(rs_spread *spread, reshard_status status)
{
    assert(spread->input_count <= RS_SPREAD_MAX && spread->user_bytes <= RS_SPREAD_USER);
    assert(spread->fn != NULL);
    insides *in = NULL;
    reshard_tensor *output = NULL;
    reshard_group *group = NULL;
    if (status == RESHARD_OK) {
        group = rs_distributed_group(spread->inputs[0]);
        status = make_insides(spread, &in);
    }
    if (status == RESHARD_OK) {
        in->shards = spread->shards;
        spread->shards = NULL;
        status = run_forward(in, spread->inputs);
    }
    if (status == RESHARD_OK)
        status = rs_distributed_wrap(in->context, in->cache, spread->output_layout,
                                     spread->inputs[0]->dtype, in->outputs, &output);
    if (status == RESHARD_OK)
        status = hollow_graphs(in, spread);
    rs_recipe recipe = {.name = spread->name,
                        .backward = backward_spread,
                        .input_count = spread->input_count,
                        .inputs = spread->inputs,
                        .saved_count = in != NULL && in->fate != STAY ? spread->input_count : 0,
                        .saved = spread->inputs,
                        .group = group,
                        .extra = in,
                        .forget_extra = forget_insides};
    output = rs_op_end(&recipe, status, output);
    for (int32_t i = 0; i < spread->input_count; i++)
        reshard_layout_release(spread->gradient_layouts[i]);
    reshard_layout_release(spread->output_layout);
    reshard_shards_destroy(spread->shards);
    return output;
}

/* ---- inputs with one layout ------------------------------------------------------------------ */

static reshard_status check_kind(const reshard_tensor *tensor, rs_spread_kind kind)
{
    const reshard_spec *spec = reshard_layout_spec(tensor->distribution->layout);
    for (int32_t i = 0; i < reshard_spec_cut_count(spec); i++) {
        const reshard_cut *cut = reshard_spec_cut(spec, i);
        const reshard_placement *p = &cut->placement;
        bool is_whole = p->dim != RESHARD_DIM_FLAT &&
                        reshard_mesh_axis_size(reshard_spec_mesh(spec), cut->axis) == 1;
        bool linear = p->reduction == RESHARD_SUM || p->reduction == RESHARD_AVG;
        if (p->kind == RESHARD_PARTIAL && (kind != RS_SPREAD_LINEAR || !linear))
            return rs_refuse_partial(tensor);
        if (kind == RS_SPREAD_ROWS && p->kind == RESHARD_SHARD && !is_whole &&
            (p->dim == RESHARD_DIM_FLAT || p->dim == -1 || p->dim == tensor->ndim - 1))
            return rs_fail(RESHARD_ERR_INVALID, "the last dimension is cut by \"%s\"",
                           rs_tensor_describe_layout(tensor).text);
    }
    if (kind == RS_SPREAD_ROWS && reshard_spec_get_kind(spec) != RESHARD_SPEC_CUTS)
        return rs_fail(RESHARD_ERR_INVALID, "the last dimension may be cut by \"%s\"",
                       rs_tensor_describe_layout(tensor).text);
    return RESHARD_OK;
}

reshard_tensor *rs_spread_alike(const char *name, rs_spread_kind kind, int32_t count,
                                reshard_tensor *const *inputs, rs_local_fn fn, const void *user,
                                size_t user_bytes)
{
    rs_spread spread = {.name = name,
                        .input_count = count,
                        .inputs = inputs,
                        .fn = fn,
                        .user = user,
                        .user_bytes = user_bytes};
    reshard_status status = rs_check_together(count, inputs);
    for (int32_t i = 0; i < count && status == RESHARD_OK; i++) {
        if (!rs_distributed_same(inputs[i], inputs[0]))
            status =
                rs_fail(RESHARD_ERR_INVALID, "input 0 has the layout \"%s\" and input %d \"%s\"",
                        rs_tensor_describe_layout(inputs[0]).text, i,
                        rs_tensor_describe_layout(inputs[i]).text);
        if (status == RESHARD_OK)
            status =
                rs_gradient_layout(inputs[i]->distribution->layout, &spread.gradient_layouts[i]);
    }
    if (status == RESHARD_OK)
        status = check_kind(inputs[0], kind);
    if (status == RESHARD_OK)
        spread.output_layout = reshard_layout_retain(inputs[0]->distribution->layout);
    return rs_spread_run(&spread, status);
}
