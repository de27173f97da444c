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
 * tensors with their layouts, and it is up to them how to keep the memory. The inner graphs then
 * keep none: hooks of our own save only where in the inputs a tensor lies, and the backward step
 * finds it there again. If an operation saved more than parts of its inputs, its inner graphs are
 * dropped and the backward step computes them again. (Doing so always would be simpler, but
 * makes a training step with input_reshard a third slower.)
 */
#include "tensor/dist/spread.h"

#include "base/context.h"
#include "base/error.h"
#include "layout/layout.h"
#include "spec/spec.h"
#include "tensor/core/move.h"
#include "tensor/grad/backward.h"
#include "tensor/grad/gradient.h"
#include "tensor/grad/node.h"

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

/* What happens to the inner graphs until the backward step: they stay as they are, keep places
 * instead of memory, or are dropped and made again. */
typedef enum graphs_fate { STAY, KEEP_PLACES, MADE_AGAIN } graphs_fate;

/* What a recorded operation keeps. */
typedef struct insides {
    reshard_context *context;
    rs_exec_cache *cache;
    int32_t input_count;
    int64_t shard_count;
    reshard_tensor **leaves;             /* [shard * input_count + input] */
    reshard_tensor **outputs;            /* by shard */
    reshard_dtype dtypes[RS_SPREAD_MAX]; /* of the inputs */
    reshard_layout *gradient_layouts[RS_SPREAD_MAX];
    reshard_layout *output_gradient_layout;
    graphs_fate fate;
    /* With KEEP_PLACES, in the backward step: the inputs again. */
    reshard_tensor *inputs[RS_SPREAD_MAX];
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
    drop_graphs(in);
    reshard_shards_destroy(in->shards);
    rs_release(in->context, in->outputs);
    rs_release(in->context, in->leaves);
    for (int32_t i = 0; i < in->input_count; i++)
        reshard_layout_release(in->gradient_layouts[i]);
    reshard_layout_release(in->output_gradient_layout);
    rs_exec_cache_release(in->cache);
    rs_release(in->context, in);
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
    for (int32_t i = 0; i < in->input_count; i++) {
        in->gradient_layouts[i] = reshard_layout_retain(spread->gradient_layouts[i]);
        if (spread->inputs[i] != NULL)
            in->dtypes[i] = spread->inputs[i]->dtype;
    }
    bool made = in->leaves != NULL && in->outputs != NULL;
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

/* Runs the local operations. `hooks` take the place of the caller's, which see the distributed
 * inputs only. */
static reshard_status run_shards(insides *in, reshard_tensor *const *inputs, const bool *wanted,
                                 rs_hook_pair *hooks)
{
    rs_thread_state *state = rs_thread_state_get();
    rs_hook_pair *outer = state->hooks;
    reshard_status status = RESHARD_OK;
    state->hooks = hooks;
    for (int64_t i = 0; i < in->shard_count && status == RESHARD_OK; i++) {
        reshard_tensor **leaves = in->leaves + i * in->input_count;
        status = make_leaves(in, inputs, wanted, i, leaves);
        if (status != RESHARD_OK)
            break;
        reshard_tensor *output = in->fn(leaves, in->user.bytes);
        in->outputs[i] = reshard_tensor_retain(output);
        status = output != NULL ? RESHARD_OK : rs_scope_failed();
    }
    state->hooks = outer;
    return status;
}

/* ---- places instead of memory ---------------------------------------------------------------- */

/* Where a saved tensor lies in a shard of an input. */
typedef struct place {
    reshard_context *context;
    int64_t shard;
    int32_t input; /* -1: it lies in none */
    rs_extents extents;
    int64_t strides[RESHARD_NDIM_MAX];
    int64_t at; /* in elements */
} place;

/* Whether all elements of a tensor lie in the memory of a leaf, which is dense. */
static bool lies_in(const reshard_tensor *tensor, const reshard_tensor *leaf)
{
    assert(rs_tensor_is_contiguous(leaf));
    int64_t bytes = (int64_t)rs_element_bytes(tensor->dtype), last = 0;
    if (tensor->storage != leaf->storage || tensor->dtype != leaf->dtype)
        return false;
    for (int32_t d = 0; d < tensor->ndim && tensor->volume > 0; d++)
        last += (tensor->shape[d] - 1) * tensor->strides[d];
    return tensor->volume == 0 ||
           (tensor->data >= leaf->data &&
            tensor->data + (last + 1) * bytes <= leaf->data + leaf->volume * bytes);
}

static reshard_status pack_place(void *user, reshard_tensor *tensor, void **out_object)
{
    insides *in = user;
    place *p = rs_allocate_zeroed(in->context, sizeof *p);
    if (p == NULL)
        return rs_allocation_status();
    *p = (place){.context = in->context, .input = -1, .extents = rs_extents_of(tensor)};
    for (int64_t i = 0; i < in->shard_count * in->input_count && p->input < 0; i++) {
        const reshard_tensor *leaf = in->leaves[i];
        if (leaf == NULL || !lies_in(tensor, leaf))
            continue;
        p->shard = i / in->input_count;
        p->input = (int32_t)(i % in->input_count);
        if (tensor->volume > 0)
            p->at = (tensor->data - leaf->data) / (ptrdiff_t)rs_element_bytes(tensor->dtype);
    }
    memcpy(p->strides, tensor->strides, sizeof p->strides);
    if (p->input < 0)
        in->fate = MADE_AGAIN;
    *out_object = p;
    return RESHARD_OK;
}

static reshard_status unpack_place(void *user, void *object, reshard_tensor **out_tensor)
{
    const insides *in = user;
    const place *p = object;
    assert(in->fate == KEEP_PLACES && in->inputs[p->input] != NULL);
    return rs_tensor_view(in->context, in->inputs[p->input]->distribution->shards[p->shard],
                          p->extents.ndim, p->extents.shape, p->strides, p->at, out_tensor);
}

/* The operation may be gone by now: the scope may hold a node longer. */
static void forget_place(void *user, void *object)
{
    (void)user;
    place *p = object;
    rs_release(p->context, p);
}

static reshard_status run_forward(insides *in, const rs_spread *spread)
{
    rs_hook_pair places = {
        .context = in->context,
        .hooks = {.pack = pack_place, .unpack = unpack_place, .forget = forget_place, .user = in}};
    bool wanted[RS_SPREAD_MAX];
    for (int32_t i = 0; i < in->input_count; i++)
        wanted[i] = spread->inputs[i] != NULL && rs_tensor_requires_grad(spread->inputs[i]);
    if (rs_thread_state_get()->hooks != NULL && rs_op_records(in->input_count, spread->inputs))
        in->fate = KEEP_PLACES;
    return run_shards(in, spread->inputs, wanted, in->fate == KEEP_PLACES ? &places : NULL);
}

/* Takes the memory from graphs that do not stay, when the output has been made. */
static void give_up_memory(insides *in)
{
    if (in->fate == MADE_AGAIN)
        drop_graphs(in);
    for (int64_t i = 0; i < in->shard_count && in->fate == KEEP_PLACES; i++)
        rs_tensor_drop_data(in->outputs[i]);
    for (int64_t i = 0; i < in->shard_count * in->input_count && in->fate == KEEP_PLACES; i++) {
        if (in->leaves[i] != NULL)
            rs_tensor_drop_data(in->leaves[i]);
    }
}

/* Unpacks the saved inputs, and makes the inner graphs again if they were dropped. */
static reshard_status restore_graphs(rs_node *node, insides *in)
{
    const reshard_scope *scope = rs_thread_state_get()->scope;
    bool wanted[RS_SPREAD_MAX];
    if (in->fate == STAY)
        return RESHARD_OK;
    for (int32_t i = 0; i < in->input_count; i++) {
        wanted[i] = rs_node_wants(node, i);
        in->inputs[i] = rs_node_saved(node, i);
        if (scope->status != RESHARD_OK)
            return reshard_scope_status(scope);
    }
    if (in->fate == KEEP_PLACES)
        return RESHARD_OK;
    (void)reshard_set_gradients_enabled(1);
    reshard_status status = run_shards(in, in->inputs, wanted, NULL);
    (void)reshard_set_gradients_enabled(0);
    return status;
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
    rs_release(context, shards);
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
        if (rs_tensor_requires_grad(in->outputs[i]))
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
    if (in->fate == MADE_AGAIN)
        drop_graphs(in);
    memset(in->inputs, 0, sizeof in->inputs); /* the scope's */
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
        status = run_forward(in, spread);
    }
    if (status == RESHARD_OK)
        status = rs_distributed_wrap(in->context, in->cache, spread->output_layout,
                                     spread->inputs[0]->dtype, in->outputs, &output);
    if (status == RESHARD_OK)
        give_up_memory(in);
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
    const reshard_spec *spec = tensor->distribution->layout->spec;
    for (int32_t i = 0; i < spec->cut_count; i++) {
        const reshard_cut *cut = &spec->cuts[i];
        const reshard_placement *p = &cut->placement;
        bool is_whole = p->dim != RESHARD_DIM_FLAT && spec->mesh->sizes[cut->axis] == 1;
        bool linear = p->reduction == RESHARD_SUM || p->reduction == RESHARD_AVG;
        if (p->kind == RESHARD_PARTIAL && (kind != RS_SPREAD_LINEAR || !linear))
            return rs_refuse_partial(tensor);
        if (kind == RS_SPREAD_ROWS && p->kind == RESHARD_SHARD && !is_whole &&
            (p->dim == RESHARD_DIM_FLAT || p->dim == -1 || p->dim == tensor->ndim - 1))
            return rs_fail(RESHARD_ERR_INVALID, "the last dimension is cut by \"%s\"",
                           rs_tensor_describe_layout(tensor).text);
    }
    if (kind == RS_SPREAD_ROWS && spec->kind != RESHARD_SPEC_CUTS)
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
