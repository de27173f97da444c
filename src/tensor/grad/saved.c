/* SPDX-License-Identifier: Apache-2.0 */
/*
 * saved.c - a saved tensor is kept as an alias with the version of its memory, or packed by the
 * innermost pair of hooks. A packed slot also keeps a bare tensor, which the unpacked tensor has to
 * match.
 */
#include "tensor/grad/saved.h"
#include "base/context.h"
#include "base/error.h"
#include "tensor/core/distribution.h"

#include <assert.h>
#include <string.h>

/* Makes a tensor with the same dtype, shape and layout, but without data. */
static reshard_status make_bare(reshard_context *context, const reshard_tensor *tensor,
                                reshard_tensor **out_bare)
{
    reshard_tensor *bare =
        rs_tensor_header(context, tensor->dtype, tensor->ndim, tensor->shape, tensor->volume);
    if (bare == NULL)
        return rs_allocation_status();
    const rs_distribution *d = tensor->distribution;
    reshard_status status = RESHARD_OK;
    if (d != NULL)
        status = rs_distribution_bare(context, d->cache, d->layout, &bare->distribution);
    return rs_tensor_hand_out(status, bare, out_bare);
}

static reshard_status pack_by_hooks(reshard_context *context, reshard_tensor *alias,
                                    const reshard_saved_tensor_hooks *hooks, rs_saved *saved)
{
    reshard_status status = make_bare(context, alias, &saved->bare);
    if (status != RESHARD_OK)
        return status;
    uint64_t version = rs_tensor_version(alias);
    int enabled = reshard_set_gradients_enabled(0);
    status = hooks->pack(hooks->user, alias, &saved->packed_object);
    (void)reshard_set_gradients_enabled(enabled);
    if (status != RESHARD_OK)
        return rs_fail_within(status, "pack of a saved tensor");
    saved->packed = true;
    saved->hooks = *hooks;
    if (rs_tensor_version(alias) != version)
        return rs_fail(RESHARD_ERR_INVALID, "pack of a saved tensor has written to the tensor");
    return RESHARD_OK;
}

reshard_status rs_saved_pack(reshard_context *context, reshard_tensor *tensor, rs_saved *saved)
{
    assert(saved->tensor == NULL && !saved->packed);
    const rs_hook_pair *entry = rs_thread_state_get()->hooks;
    reshard_tensor *alias = NULL;
    reshard_status status = rs_tensor_alias(context, tensor, &alias);
    if (status != RESHARD_OK)
        return status;
    if (entry != NULL) {
        status = pack_by_hooks(context, alias, &entry->hooks, saved);
        reshard_tensor_release(alias);
    } else {
        saved->tensor = alias;
        saved->version = rs_tensor_version(alias);
    }
    return status;
}

static reshard_status check_unpacked(const rs_saved *saved, const reshard_tensor *tensor,
                                     const char *name)
{
    const reshard_tensor *bare = saved->bare;
    if (tensor == NULL)
        return rs_fail(RESHARD_ERR_INVALID, "%s: unpack of a saved tensor gave NULL", name);
    if (tensor->dtype != bare->dtype || !rs_shape_equals(tensor, bare))
        return rs_fail(RESHARD_ERR_INVALID, "%s: unpack of a saved %s gave %s", name,
                       rs_tensor_describe(bare).text, rs_tensor_describe(tensor).text);
    bool distributed = bare->distribution != NULL;
    if (distributed != (tensor->distribution != NULL) ||
        (distributed && !rs_distributed_same(bare, tensor)))
        return rs_fail(RESHARD_ERR_INVALID,
                       "%s: unpack of a saved tensor gave one of another layout", name);
    return RESHARD_OK;
}

reshard_status rs_saved_unpack(rs_saved *saved, const char *name, reshard_tensor **out_tensor)
{
    assert(saved->packed || saved->tensor != NULL);
    if (!saved->packed) {
        if (rs_tensor_version(saved->tensor) != saved->version)
            return rs_fail(RESHARD_ERR_INVALID,
                           "%s: a saved tensor (%s) was overwritten before backward", name,
                           rs_tensor_describe(saved->tensor).text);
        *out_tensor = reshard_tensor_retain(saved->tensor);
        return RESHARD_OK;
    }
    reshard_tensor *tensor = NULL;
    reshard_status status = saved->hooks.unpack(saved->hooks.user, saved->packed_object, &tensor);
    if (status != RESHARD_OK)
        return rs_fail_within(status, "%s: unpack of a saved tensor", name);
    status = check_unpacked(saved, tensor, name);
    return rs_tensor_hand_out(status, tensor, out_tensor);
}

void rs_saved_forget(rs_saved *saved)
{
    if (saved->packed && saved->hooks.forget != NULL)
        saved->hooks.forget(saved->hooks.user, saved->packed_object);
    reshard_tensor_release(saved->tensor);
    reshard_tensor_release(saved->bare);
    memset(saved, 0, sizeof *saved);
}
