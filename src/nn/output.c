/* SPDX-License-Identifier: Apache-2.0 */
/*
 * output.c - hooks that reshard a module's output or collect its local shard, and the current
 * group. They walk through nested outputs and change nothing in place.
 */
#include <reshard/shard.h>

#include "base/context.h"
#include "base/error.h"
#include "base/options.h"
#include "layout/layout.h"
#include "nn/module.h"
#include "nn/sharding.h"
#include "spec/spec.h"
#include "tensor/core/distribution.h"
#include "tensor/core/scope.h"
#include "transport/group.h"

/* ---- the current group ----------------------------------------------------------------------- */

reshard_status reshard_load_with_group(reshard_group *group, reshard_status (*body)(void *user),
                                       void *user)
{
    rs_thread_state *state = rs_thread_state_get();
    if (body == NULL)
        return rs_fail(RESHARD_ERR_INVALID, "load_with_group: the body is NULL");
    if (state->group != NULL)
        return rs_fail(RESHARD_ERR_INVALID,
                       "load_with_group: this thread has a current group already");
    reshard_status chosen = rs_group_choose(&group);
    if (chosen != RESHARD_OK)
        return rs_fail_within(chosen, "load_with_group");
    state->group = reshard_group_retain(group);
    reshard_status status = body(user);
    state->group = NULL;
    reshard_group_release(group);
    return status;
}

reshard_group *reshard_current_group(void)
{
    return rs_group_current();
}

/* ---- walking through values ------------------------------------------------------------------ */

static reshard_value change(reshard_value value, rs_change_fn fn, const void *user)
{
    if (value.kind == RESHARD_VALUE_TENSOR)
        return reshard_value_of(fn(value.tensor, user));
    if (value.kind != RESHARD_VALUE_LIST)
        return value;
    reshard_value list = reshard_value_list(value.count, value.items);
    /* The list is a copy that this scope owns, so its items may be changed. */
    reshard_value *items = (reshard_value *)list.items;
    for (int32_t i = 0; i < list.count; i++) {
        items[i] = change(value.items[i], fn, user);
        if (items[i].kind == RESHARD_VALUE_FAILED)
            return items[i];
    }
    return list;
}

reshard_status rs_value_change(reshard_value *value, rs_change_fn fn, const void *user)
{
    reshard_value changed = change(*value, fn, user);
    if (changed.kind == RESHARD_VALUE_FAILED)
        return rs_scope_failed();
    *value = changed;
    return RESHARD_OK;
}

/* ---- resharding ------------------------------------------------------------------------------ */

bool rs_spec_needs_dims(const reshard_spec *spec)
{
    bool needs = spec->kind != RESHARD_SPEC_CUTS;
    for (int32_t i = 0; i < spec->cut_count; i++) {
        const reshard_placement *p = &spec->cuts[i].placement;
        needs = needs || (p->kind == RESHARD_SHARD && p->dim != RESHARD_DIM_FLAT);
    }
    return needs;
}

static reshard_tensor *redistribute(reshard_tensor *tensor, const void *user)
{
    if (tensor->distribution == NULL)
        return tensor;
    if (tensor->ndim == 0 && rs_spec_needs_dims(user))
        return tensor; /* a scalar beside resharded tensors, such as a loss */
    return reshard_tensor_redistribute(tensor, (reshard_spec *)user, NULL);
}

static reshard_status reshard_hook_run(void *user, reshard_module *module, reshard_value input,
                                       reshard_value *output)
{
    (void)module;
    (void)input;
    return rs_value_change(output, redistribute, user);
}

static void release_spec(void *user)
{
    reshard_spec_release(user);
}

reshard_status reshard_module_reshard_output(reshard_module *module, reshard_spec *spec,
                                             reshard_hook **out_hook)
{
    if (spec == NULL)
        return rs_fail(RESHARD_ERR_INVALID, "reshard_output: the spec is NULL");
    rs_hook_entry entry = {.kind = RS_HOOK_POST,
                           .post = reshard_hook_run,
                           .user = reshard_spec_retain(spec),
                           .forget = release_spec};
    reshard_status status = rs_hook_add(module, &entry, false, out_hook);
    if (status != RESHARD_OK)
        reshard_spec_release(spec);
    return status;
}

/* ---- collecting ------------------------------------------------------------------------------ */

/* The one dim that is cut; -1 if no dim is, or more than one. */
static int32_t find_cut_dim(const reshard_tensor *tensor)
{
    const reshard_spec *spec = tensor->distribution->layout->spec;
    int32_t found = -1;
    for (int32_t i = 0; i < spec->cut_count; i++) {
        const reshard_placement *p = &spec->cuts[i].placement;
        if (p->kind != RESHARD_SHARD || p->dim == RESHARD_DIM_FLAT)
            continue;
        int32_t dim = p->dim < 0 ? p->dim + tensor->ndim : p->dim;
        if (found >= 0 && dim != found)
            return -1;
        found = dim;
    }
    return found;
}

/* Tells whether every shard has length 1 along the dim, and ranks without a shard can give an empty
 * tensor with one dim less. */
static reshard_status is_single(const reshard_tensor *tensor, int32_t dim, bool *out_single)
{
    const reshard_layout *layout = tensor->distribution->layout;
    int32_t size = reshard_group_size(rs_distributed_group(tensor));
    reshard_shards *shards = NULL;
    reshard_status status = reshard_layout_shards(layout, RESHARD_ALL_RANKS, &shards);
    *out_single = tensor->ndim > 1 || layout->rank_count == size;
    for (int64_t i = 0; status == RESHARD_OK && i < shards->count; i++)
        *out_single = *out_single && shards->items[i].shape[dim] == 1;
    reshard_shards_destroy(shards);
    return status;
}

/* Drops a dim of length 1. A rank that is not in the layout gives an empty tensor with as many dims
 * as the others. */
static reshard_tensor *drop_dim(reshard_tensor *local, int32_t dim)
{
    if (local->shape[dim] == 1)
        return reshard_tensor_squeeze(local, dim);
    int64_t shape[RESHARD_NDIM_MAX] = {0};
    for (int32_t d = 1; d < local->ndim - 1; d++)
        shape[d] = local->shape[d < dim ? d : d + 1];
    return reshard_tensor_reshape(local, local->ndim - 1, shape);
}

static reshard_tensor *collect_shard(reshard_tensor *tensor, bool by_local_length)
{
    bool single = false;
    int32_t dim = find_cut_dim(tensor);
    reshard_tensor *local = reshard_tensor_to_local(tensor, NULL);
    if (local == NULL || dim < 0)
        return local;
    reshard_status status = RESHARD_OK;
    if (by_local_length)
        single = local->shape[dim] == 1 && tensor->distribution->shard_count > 0;
    else
        status = is_single(tensor, dim, &single);
    if (status != RESHARD_OK)
        return rs_scope_fail(status);
    return single ? drop_dim(local, dim) : local;
}

static reshard_tensor *collect(reshard_tensor *tensor, const void *user)
{
    (void)user;
    return tensor->distribution != NULL ? collect_shard(tensor, false) : tensor;
}

static reshard_tensor *collect_by_local_length(reshard_tensor *tensor, const void *user)
{
    (void)user;
    return tensor->distribution != NULL ? collect_shard(tensor, true) : tensor;
}

static reshard_status collect_hook_run(void *user, reshard_module *module, reshard_value input,
                                       reshard_value *output)
{
    (void)user;
    (void)module;
    (void)input;
    return rs_value_change(output, collect, NULL);
}

static reshard_status collect_by_local_length_run(void *user, reshard_module *module,
                                                  reshard_value input, reshard_value *output)
{
    (void)user;
    (void)module;
    (void)input;
    return rs_value_change(output, collect_by_local_length, NULL);
}

reshard_status reshard_module_collect_local_shard(reshard_module *module,
                                                  const reshard_collect_options *options,
                                                  reshard_hook **out_hook)
{
    reshard_collect_options read;
    reshard_status status = rs_options_read("collect options", options, &read, sizeof read);
    if (status != RESHARD_OK)
        return status;
    rs_hook_entry entry = {.kind = RS_HOOK_POST,
                           .post = read.by_local_length ? collect_by_local_length_run
                                                        : collect_hook_run};
    return rs_hook_add(module, &entry, false, out_hook);
}
