/* SPDX-License-Identifier: Apache-2.0 */
/*
 * optimizer_state.c - an optimizer's state as named tensors, for saving and loading. They are the
 * optimizer's own tensors in the layouts of their parameters, so whatever stores tensors can store
 * them.
 */
#include "nn/optimizer.h"
#include "nn/state.h"

#include "tensor/core/distribution.h"

static reshard_status add(rs_named_list *list, const rs_moments *m, const char *name,
                          reshard_tensor *tensor)
{
    return tensor != NULL ? rs_named_list_add(list, m->name, name, tensor) : RESHARD_OK;
}

reshard_status reshard_optimizer_state_dict(const reshard_optimizer *optimizer,
                                            reshard_named_tensors **out_list)
{
    rs_named_list *list = NULL;
    const char *first = optimizer->set.adamw ? "exp_avg" : "momentum_buffer";
    reshard_status status = rs_named_list_create(optimizer->context, &list);
    for (int64_t i = 0; status == RESHARD_OK && i < optimizer->moments_count; i++) {
        const rs_moments *m = &optimizer->moments[i];
        status = add(list, m, "step", m->steps);
        if (status == RESHARD_OK)
            status = add(list, m, first, m->first);
        if (status == RESHARD_OK)
            status = add(list, m, "exp_avg_sq", m->second);
    }
    if (status == RESHARD_OK)
        *out_list = &list->shown;
    else if (list != NULL)
        reshard_named_tensors_destroy(&list->shown);
    return status;
}

static reshard_group *find_group(const reshard_optimizer *optimizer)
{
    for (int64_t i = 0; i < optimizer->moments_count; i++) {
        if (optimizer->moments[i].parameter->distribution != NULL)
            return rs_distributed_group(optimizer->moments[i].parameter);
    }
    return NULL;
}

reshard_status reshard_optimizer_load_state_dict(reshard_optimizer *optimizer, int64_t count,
                                                 const reshard_named_tensor *items,
                                                 const reshard_load_options *options)
{
    reshard_named_tensors *mine = NULL;
    reshard_status status = reshard_optimizer_state_dict(optimizer, &mine);
    status = rs_named_load(optimizer->context, status, find_group(optimizer), mine, count, items,
                           options);
    reshard_named_tensors_destroy(mine);
    return status;
}
