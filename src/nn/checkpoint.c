/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint.c - describes tensors in the form that reshard_checkpoint_load and _save take: a
 * distributed tensor by its layout and shards, a local one as whole on every rank of the group.
 */
#include <reshard/nn_checkpoint.h>

#include "base/context.h"
#include "base/error.h"
#include "tensor/core/distribution.h"
#include "transport/group.h"

#include <stdio.h>

typedef struct item {
    reshard_layout *layout;
    reshard_tensor *dense; /* a local tensor, or a dense copy of it; retained */
    void *memory;          /* its memory, as the list of its one shard */
    void **shards;         /* of a distributed tensor */
    int64_t shard_count;
} item;

typedef struct listing {
    reshard_context *context;
    int64_t count;
    reshard_live_tensor *tensors;
    item *items;
} listing;

static void release(listing *l)
{
    for (int64_t i = 0; l->items != NULL && i < l->count; i++) {
        reshard_layout_release(l->items[i].layout);
        reshard_tensor_release(l->items[i].dense);
        rs_release(l->context, l->items[i].shards);
    }
    rs_release(l->context, l->items);
    rs_release(l->context, l->tensors);
}

static reshard_status describe_local(reshard_context *context, reshard_group *group, bool saving,
                                     reshard_tensor *tensor, item *out_item)
{
    char spec[32];
    if (saving && tensor->sameness == RS_SAME_NO)
        return rs_fail(RESHARD_ERR_INVALID,
                       "it is local and differs between ranks, so that only one rank's would be "
                       "saved: save the distributed tensor that it was taken from");
    (void)snprintf(spec, sizeof spec, "%d: R", reshard_group_size(group));
    reshard_status status =
        reshard_layout_parse(context, spec, tensor->ndim, tensor->shape, &out_item->layout);
    if (status == RESHARD_OK)
        status = rs_tensor_densify(tensor->context, tensor, &out_item->dense);
    if (status == RESHARD_OK)
        out_item->memory = out_item->dense->data;
    return status;
}

static reshard_status describe_distributed(reshard_context *context, reshard_group *group,
                                           const reshard_tensor *tensor, item *out_item)
{
    const rs_distribution *d = tensor->distribution;
    if (rs_distributed_group(tensor) != group)
        return rs_fail(RESHARD_ERR_INVALID, "it is distributed over another group");
    out_item->shards = rs_allocate_array(context, (size_t)d->shard_count, sizeof(void *));
    if (out_item->shards == NULL)
        return rs_allocation_status();
    out_item->layout = reshard_layout_retain(d->layout);
    out_item->shard_count = d->shard_count;
    for (int64_t i = 0; i < d->shard_count; i++)
        out_item->shards[i] = d->shards[i]->data;
    return RESHARD_OK;
}

static reshard_status describe_all(listing *l, reshard_group *group, bool saving,
                                   const reshard_named_tensor *named)
{
    if (l->count < 0)
        return rs_fail(RESHARD_ERR_RANGE, "a list of %lld tensors", (long long)l->count);
    l->items = rs_allocate_zeroed(l->context, (size_t)l->count * sizeof *l->items);
    l->tensors = rs_allocate_zeroed(l->context, (size_t)l->count * sizeof *l->tensors);
    if (l->items == NULL || l->tensors == NULL)
        return rs_allocation_status();
    for (int64_t i = 0; i < l->count; i++) {
        reshard_tensor *tensor = named[i].tensor;
        item *made = &l->items[i];
        if (tensor == NULL || named[i].name == NULL)
            return rs_fail(RESHARD_ERR_INVALID, "tensor %lld of a list has no %s", (long long)i,
                           tensor == NULL ? "tensor" : "name");
        reshard_status status = tensor->distribution != NULL
                                    ? describe_distributed(l->context, group, tensor, made)
                                    : describe_local(l->context, group, saving, tensor, made);
        if (status != RESHARD_OK)
            return rs_fail_within(status, "tensor \"%.200s\"", named[i].name);
        l->tensors[i] =
            (reshard_live_tensor){named[i].name, tensor->dtype, made->layout,
                                  tensor->distribution != NULL ? made->shards : &made->memory};
    }
    return RESHARD_OK;
}

reshard_status reshard_checkpoint_save_tensors(reshard_context *context, reshard_group *group,
                                               const char *path, int64_t count,
                                               const reshard_named_tensor *tensors,
                                               const reshard_checkpoint_save_options *options)
{
    listing l = {.context = context, .count = count};
    reshard_status status = rs_group_choose(&group);
    if (status != RESHARD_OK)
        return rs_fail_within(status, "save");
    status = reshard_group_agree(group, describe_all(&l, group, true, tensors));
    if (status == RESHARD_OK)
        status = reshard_checkpoint_save(context, group, path, count, l.tensors, options);
    release(&l);
    return status;
}

/* Marks the memory as written. If a dense copy was filled, copies it back to the tensor. */
static void note_written(reshard_tensor *tensor, const reshard_tensor *dense)
{
    const rs_distribution *d = tensor->distribution;
    for (int64_t i = 0; d != NULL && i < d->shard_count; i++)
        (void)reshard_tensor_write(d->shards[i]);
    if (d != NULL)
        return;
    (void)reshard_tensor_write(tensor);
    if (dense != tensor)
        rs_tensor_copy(dense, tensor);
}

reshard_status reshard_checkpoint_load_tensors(const reshard_checkpoint *checkpoint,
                                               reshard_group *group, int64_t count,
                                               const reshard_named_tensor *tensors,
                                               const reshard_checkpoint_load_options *options)
{
    listing l = {.count = count};
    reshard_status status = rs_group_choose(&group);
    if (status != RESHARD_OK)
        return rs_fail_within(status, "load");
    status = reshard_group_agree(group, describe_all(&l, group, false, tensors));
    if (status == RESHARD_OK) {
        status = reshard_checkpoint_load(checkpoint, group, count, l.tensors, options);
        for (int64_t i = 0; i < count; i++)
            note_written(tensors[i].tensor, l.items[i].dense);
    }
    release(&l);
    return status;
}
