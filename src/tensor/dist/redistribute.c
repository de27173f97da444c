/* SPDX-License-Identifier: Apache-2.0 */
/*
 * redistribute.c - redistribute, at once or started and waited for; to_local, full, value and
 * gather. Redistribute does not change the global value, and neither does its backward step, which
 * brings the gradient to the layout of the input.
 */
#include <reshard/distributed.h>

#include "base/context.h"
#include "base/error.h"
#include "base/options.h"
#include "layout/layout.h"
#include "spec/spec.h"
#include "tensor/core/flight.h"
#include "tensor/core/move.h"
#include "tensor/dist/axes.h"
#include "tensor/dist/outline.h"
#include "tensor/grad/gradient.h"
#include "tensor/grad/node.h"

#include <reshard/group.h>

/* ---- redistribute ---------------------------------------------------------------------------- */

typedef struct redistribute_facts {
    reshard_dtype dtype;          /* of the input */
    reshard_dtype gradient_dtype; /* in which it moves, or NONE */
    bool own_layout;              /* the caller chose the layout of the gradient */
} redistribute_facts;

static void forget_layout(void *extra)
{
    reshard_layout_release(extra);
}

/* Chooses the layout of the input's gradient. An axis that is partial in the input, and in the same
 * way in the gradient, stays partial: it need not be summed yet. */
static reshard_status choose_layout(reshard_layout *input, const reshard_tensor *gradient,
                                    reshard_layout **out_layout)
{
    const reshard_spec *from = input->spec;
    const reshard_spec *now = gradient->distribution->layout->spec;
    rs_axes axes = {.mesh = from->mesh, .count = from->cut_count};
    bool same = rs_mesh_same(axes.mesh, now->mesh);
    bool kept = false;
    for (int32_t i = 0; i < axes.count; i++) {
        axes.cuts[i] = from->cuts[i];
        reshard_placement *p = &axes.cuts[i].placement;
        if (p->kind != RESHARD_PARTIAL)
            continue;
        bool stays = false;
        for (int32_t k = 0; same && k < now->cut_count; k++) {
            const reshard_cut *cut = &now->cuts[k];
            stays = stays ||
                    (cut->axis == axes.cuts[i].axis && cut->placement.kind == RESHARD_PARTIAL &&
                     cut->placement.reduction == p->reduction);
        }
        kept = kept || stays;
        if (!stays)
            *p = (reshard_placement){.kind = RESHARD_REPLICATE};
    }
    if (!kept)
        return rs_gradient_layout(input, out_layout);
    return rs_axes_layout(&axes, input->ndim, input->shape, out_layout);
}

/* Brings the gradient into the layout and dtype that the input's gradient has. */
typedef reshard_status (*bring_fn)(reshard_context *context, reshard_tensor *source,
                                   reshard_layout *layout, reshard_dtype dtype,
                                   reshard_tensor **out_tensor);

static void bring_back(rs_node *node, reshard_tensor *gradient, bring_fn bring,
                       reshard_tensor **out_gradients)
{
    reshard_layout *layout = NULL;
    reshard_tensor *cast = NULL, *made = NULL;
    const redistribute_facts *facts = rs_node_facts(node);
    reshard_status status = RESHARD_OK;
    if (facts->own_layout)
        layout = reshard_layout_retain(node->extra);
    else
        status = choose_layout(node->extra, gradient, &layout);
    if (status == RESHARD_OK && facts->gradient_dtype != RESHARD_DTYPE_NONE) {
        status = rs_cast_shards(gradient, facts->gradient_dtype, &cast);
        gradient = cast;
    }
    if (status == RESHARD_OK)
        status = bring(rs_scope_context(), gradient, layout, facts->dtype, &made);
    reshard_layout_release(layout);
    reshard_tensor_release(cast);
    out_gradients[0] = rs_scope_finish(status, made);
}

static reshard_status bring_now(reshard_context *context, reshard_tensor *source,
                                reshard_layout *layout, reshard_dtype dtype,
                                reshard_tensor **out_tensor)
{
    return rs_redistribute(context, source, layout, dtype, out_tensor);
}

static void backward_redistribute(rs_node *node, reshard_tensor *const *gradients,
                                  reshard_tensor **out_gradients)
{
    bring_back(node, gradients[0], bring_now, out_gradients);
}

static reshard_status check_options(const reshard_tensor *tensor, const reshard_spec *spec,
                                    const reshard_redistribute_options *options)
{
    if (tensor->distribution == NULL)
        return rs_fail(RESHARD_ERR_INVALID, "the tensor is local");
    if (spec == NULL)
        return rs_fail(RESHARD_ERR_INVALID, "the spec is NULL");
    if ((options->dtype != RESHARD_DTYPE_NONE &&
         (!rs_dtype_is_float(options->dtype) || !rs_dtype_is_float(tensor->dtype))) ||
        (options->gradient_dtype != RESHARD_DTYPE_NONE &&
         !rs_dtype_is_float(options->gradient_dtype)))
        return rs_fail(RESHARD_ERR_UNSUPPORTED, "casts are between f16, bf16, f32 and f64");
    return RESHARD_OK;
}

/* What a call asks for, and how it is recorded. */
typedef struct request {
    reshard_redistribute_options options;
    reshard_layout *layout;
    reshard_layout *back; /* of the gradient */
    redistribute_facts facts;
} request;

static reshard_status read_request(reshard_tensor *tensor, reshard_spec *spec,
                                   const reshard_redistribute_options *options, request *r)
{
    reshard_context *context = rs_scope_context();
    reshard_status status = rs_options_read("options", options, &r->options, sizeof r->options);
    if (status == RESHARD_OK)
        status = check_options(tensor, spec, &r->options);
    if (status == RESHARD_OK)
        status = reshard_layout_create(context, spec, tensor->ndim, tensor->shape, &r->layout);
    if (status == RESHARD_OK && r->options.gradient_spec != NULL)
        status = reshard_layout_create(context, r->options.gradient_spec, tensor->ndim,
                                       tensor->shape, &r->back);
    else if (status == RESHARD_OK)
        r->back = reshard_layout_retain(tensor->distribution->layout);
    r->facts = (redistribute_facts){tensor->dtype, r->options.gradient_dtype,
                                    r->options.gradient_spec != NULL};
    if (r->options.dtype == RESHARD_DTYPE_NONE)
        r->options.dtype = tensor->dtype;
    return status;
}

/* Ends what is recorded with the request's facts. Takes over its layout of the gradient. */
static reshard_tensor *record(reshard_tensor *input, rs_backward_fn backward,
                              const redistribute_facts *facts, reshard_layout *back,
                              reshard_status status, reshard_tensor *made)
{
    rs_recipe recipe = {.name = "redistribute",
                        .backward = backward,
                        .input_count = 1,
                        .inputs = &input,
                        .facts = facts,
                        .facts_bytes = sizeof *facts,
                        .group = input->distribution != NULL ? rs_distributed_group(input) : NULL,
                        .extra = back,
                        .forget_extra = forget_layout};
    return rs_op_end(&recipe, status, made);
}

/* Carries the request out by `bring`. Its layout is released. */
static reshard_status bring_there(reshard_status status, reshard_tensor *tensor, request *r,
                                  bring_fn bring, reshard_tensor **out_made)
{
    if (status == RESHARD_OK)
        status = bring(rs_scope_context(), tensor, r->layout, r->options.dtype, out_made);
    else if (tensor->distribution != NULL)
        status = rs_agree(rs_distributed_group(tensor), status, "redistribute");
    reshard_layout_release(r->layout);
    r->layout = NULL;
    return status;
}

reshard_tensor *reshard_tensor_redistribute(reshard_tensor *tensor, reshard_spec *spec,
                                            const reshard_redistribute_options *options)
{
    request r = {.layout = NULL};
    reshard_tensor *made = NULL;
    if (!rs_op_begin_together("redistribute", NULL, tensor))
        return NULL;
    reshard_status status = read_request(tensor, spec, options, &r);
    status = bring_there(status, tensor, &r, bring_now, &made);
    return record(tensor, backward_redistribute, &r.facts, r.back, status, made);
}

/* ---- started and waited for ------------------------------------------------------------------ */

/*
 * Two nodes are recorded: one by start, whose output only its flight knows, and one by wait. The
 * backward pass meets them in reverse order, so it starts to bring the gradient back where the
 * forward pass waited, and waits for it where that started.
 */
static void backward_start(rs_node *node, reshard_tensor *const *gradients,
                           reshard_tensor **out_gradients)
{
    (void)node;
    reshard_status status = rs_flight_land(gradients[0]);
    out_gradients[0] = rs_scope_finish(status, reshard_tensor_retain(gradients[0]));
}

static void backward_wait(rs_node *node, reshard_tensor *const *gradients,
                          reshard_tensor **out_gradients)
{
    bring_back(node, gradients[0], rs_flight_start, out_gradients);
}

reshard_redistribution *
reshard_tensor_redistribute_start(reshard_tensor *tensor, reshard_spec *spec,
                                  const reshard_redistribute_options *options)
{
    request r = {.layout = NULL};
    reshard_tensor *made = NULL;
    if (!rs_op_begin_together("redistribute", NULL, tensor))
        return NULL;
    reshard_status status = read_request(tensor, spec, options, &r);
    status = bring_there(status, tensor, &r, rs_flight_start, &made);
    rs_flight *flight = NULL;
    if (status == RESHARD_OK) {
        flight = made->distribution->flight;
        flight->back = r.back;
        flight->dtype = r.facts.dtype;
        flight->gradient_dtype = r.facts.gradient_dtype;
        flight->own_layout = r.facts.own_layout;
    } else {
        reshard_layout_release(r.back);
    }
    /* Its backward step does not meet the other ranks: it only waits for what is under way. */
    rs_recipe recipe = {
        .name = "redistribute", .backward = backward_start, .input_count = 1, .inputs = &tensor};
    return rs_op_end(&recipe, status, made) != NULL ? flight : NULL;
}

reshard_tensor *reshard_tensor_redistribute_wait(reshard_redistribution *started)
{
    reshard_tensor *input = started != NULL ? started->tensor : NULL, *made = NULL;
    if (!rs_op_begin("redistribute", 1, &input))
        return NULL;
    if (started->waited)
        return rs_scope_fail(
            rs_fail(RESHARD_ERR_INVALID, "redistribute: this one has been waited for already"));
    started->waited = true;
    const rs_distribution *d = input->distribution;
    redistribute_facts facts = {started->dtype, started->gradient_dtype, started->own_layout};
    reshard_status status = rs_flight_land(input);
    if (status == RESHARD_OK)
        status = rs_distributed_wrap(rs_scope_context(), d->cache, d->layout, input->dtype,
                                     d->shards, &made);
    return record(input, backward_wait, &facts, reshard_layout_retain(started->back), status, made);
}

/* ---- to_local -------------------------------------------------------------------------------- */

static void forget_distribution(void *extra)
{
    rs_distribution_release(extra);
}

/* Makes the local gradients of all ranks the shards of the tensor's gradient. */
static void backward_to_local(rs_node *node, reshard_tensor *const *gradients,
                              reshard_tensor **out_gradients)
{
    const rs_distribution *back = node->extra;
    reshard_tensor *made = NULL;
    reshard_status status = rs_distributed_wrap(rs_scope_context(), back->cache, back->layout,
                                                gradients[0]->dtype, gradients, &made);
    out_gradients[0] = rs_scope_finish(status, made);
}

/* Finds their layout: that of `gradient_spec`, or the tensor's gradient layout if it is NULL. */
static reshard_status outline_gradient(reshard_tensor *tensor, reshard_spec *gradient_spec,
                                       rs_distribution **out_back)
{
    reshard_context *context = rs_scope_context();
    const rs_distribution *d = tensor->distribution;
    reshard_layout *layout = NULL;
    reshard_status status =
        gradient_spec != NULL
            ? reshard_layout_create(context, gradient_spec, tensor->ndim, tensor->shape, &layout)
            : rs_gradient_layout(d->layout, &layout);
    if (status == RESHARD_OK)
        status = rs_distribution_bare(context, d->cache, layout, out_back);
    reshard_layout_release(layout);
    return status;
}

/* Checks that the gradient of this rank's local tensor can be a shard of that layout. */
static reshard_status check_gradient_layout(const reshard_tensor *tensor,
                                            const rs_distribution *back)
{
    const rs_distribution *d = tensor->distribution;
    reshard_shards *shards = NULL;
    int32_t rank = reshard_group_rank(rs_exec_cache_group(d->cache));
    reshard_status status = reshard_layout_shards(back->layout, rank, &shards);
    bool fits = status == RESHARD_OK && shards->count == d->shard_count;
    for (int64_t i = 0; fits && i < shards->count; i++) {
        fits = shards->items[i].ndim == d->shards[i]->ndim;
        for (int32_t k = 0; fits && k < d->shards[i]->ndim; k++)
            fits = shards->items[i].shape[k] == d->shards[i]->shape[k];
    }
    reshard_shards_destroy(shards);
    if (status == RESHARD_OK && !fits)
        status =
            rs_fail(RESHARD_ERR_INVALID, "the layout of the gradient has other shards than \"%s\"",
                    rs_tensor_describe_layout(tensor).text);
    return status;
}

reshard_tensor *reshard_tensor_to_local(reshard_tensor *tensor, reshard_spec *gradient_spec)
{
    if (!rs_op_begin("to_local", 1, &tensor))
        return NULL;
    rs_distribution *back = NULL;
    reshard_tensor *local = NULL;
    reshard_status status = RESHARD_OK;
    const rs_distribution *d = tensor->distribution;
    if (d == NULL)
        status = rs_fail(RESHARD_ERR_INVALID, "the tensor is local");
    else if (d->shard_count > 1)
        status = rs_fail(RESHARD_ERR_UNSUPPORTED, "this rank has %lld shards",
                         (long long)d->shard_count);
    if (status == RESHARD_OK)
        status = outline_gradient(tensor, gradient_spec, &back);
    if (status == RESHARD_OK)
        status = check_gradient_layout(tensor, back);
    if (status == RESHARD_OK) {
        rs_scope_use_group(rs_distributed_group(tensor));
        status = d->shard_count == 1
                     ? rs_tensor_alias(rs_scope_context(), d->shards[0], &local)
                     : rs_make_empty(tensor->dtype, tensor->ndim, tensor->shape, &local);
    }
    /* Unless every rank has the whole tensor, the result counts as different: it may be compared
     * with that of other ranks than this thread's replicas. */
    if (status == RESHARD_OK && !rs_layout_is_everywhere(d->layout))
        local->sameness = RS_SAME_NO;
    if (status == RESHARD_OK)
        local->kin = rs_layout_kin(d->layout, rs_distributed_group(tensor));
    rs_recipe recipe = {.name = "to_local",
                        .backward = backward_to_local,
                        .input_count = 1,
                        .inputs = &tensor,
                        .extra = back,
                        .forget_extra = forget_distribution};
    return rs_op_end(&recipe, status, local);
}

/* ---- whole tensors --------------------------------------------------------------------------- */

reshard_tensor *reshard_tensor_full(reshard_tensor *tensor)
{
    if (!rs_op_begin_together("full", NULL, tensor))
        return NULL;
    if (tensor->distribution == NULL)
        return rs_scope_fail(rs_fail(RESHARD_ERR_INVALID, "full: the tensor is local"));
    reshard_layout *layout = NULL;
    reshard_group *group = rs_distributed_group(tensor);
    reshard_status status = rs_layout_simple(rs_scope_context(), reshard_group_size(group), -1,
                                             NULL, tensor->ndim, tensor->shape, &layout);
    if (status != RESHARD_OK) {
        status = rs_agree(group, status, "full");
        return rs_scope_fail(rs_fail_within(status, "full"));
    }
    reshard_tensor *whole = reshard_tensor_redistribute(tensor, layout->spec, NULL);
    reshard_layout_release(layout);
    return whole != NULL ? reshard_tensor_to_local(whole, NULL) : NULL;
}

reshard_status reshard_tensor_value(reshard_tensor *tensor, double *out_value)
{
    if (tensor == NULL)
        return reshard_scope_failed() && rs_thread_state_get()->scope != NULL
                   ? rs_scope_failed()
                   : rs_fail(RESHARD_ERR_INVALID, "value: the tensor is NULL");
    if (tensor->distribution == NULL)
        return rs_fail_within(rs_tensor_item(tensor, out_value), "value");
    reshard_tensor *whole = NULL;
    reshard_status status =
        rs_gather_whole(tensor->context, RESHARD_OK, "value", tensor, -1, &whole);
    if (status == RESHARD_OK)
        status = rs_tensor_item(whole, out_value);
    reshard_tensor_release(whole);
    return rs_fail_within(status, "value");
}

reshard_status reshard_tensor_gather(reshard_tensor *tensor, int32_t root,
                                     reshard_tensor **out_tensor)
{
    if (tensor == NULL || tensor->distribution == NULL)
        return rs_fail(RESHARD_ERR_INVALID, "gather: the tensor is not distributed");
    int32_t size = reshard_group_size(rs_distributed_group(tensor));
    reshard_status status = RESHARD_OK;
    if (root < 0 || root >= size)
        status =
            rs_fail(RESHARD_ERR_RANGE, "gather: rank %d is not in the group of %d", root, size);
    return rs_gather_whole(tensor->context, status, "gather", tensor, root, out_tensor);
}
