/* SPDX-License-Identifier: Apache-2.0 */
/*
 * own_call.c - between a caller's own operation and its callbacks: what they get, how what they
 * give is checked, and what they can ask for.
 */
#include "base/error.h"
#include "layout/layout.h"
#include "tensor/core/dense.h"
#include "tensor/own/own.h"

#include <reshard/group.h>

#include <string.h>

/* ---- parts ----------------------------------------------------------------------------------- */

reshard_status rs_own_take_part(const rs_own_record *r, int64_t part, int32_t count,
                                reshard_tensor *const *tensors, reshard_tensor **out_parts)
{
    reshard_status status = RESHARD_OK;
    for (int32_t i = 0; i < count && status == RESHARD_OK; i++) {
        reshard_tensor *dense = NULL, *tensor = tensors[i];
        out_parts[i] = NULL;
        if (tensor == NULL)
            continue;
        if (r->on_shards)
            tensor = tensor->distribution->shards[part];
        status = tensor->distribution != NULL
                     ? rs_tensor_alias(rs_scope_context(), tensor, &dense)
                     : rs_tensor_densify(rs_scope_context(), tensor, &dense);
        if (status == RESHARD_OK)
            out_parts[i] = rs_scope_own(dense);
        if (status == RESHARD_OK && out_parts[i] == NULL)
            status = rs_scope_failed();
    }
    return status;
}

reshard_status rs_own_judge_return(reshard_status status, const char *which)
{
    reshard_status scope = rs_scope_failed();
    if (scope == RESHARD_OK && status != RESHARD_OK && rs_error_last()->status != status)
        status = rs_fail(status, "it failed without setting an error text");
    return rs_fail_within(scope != RESHARD_OK ? scope : status, "%s", which);
}

static bool is_like(const reshard_tensor *tensor, const reshard_operation_output *expected)
{
    return tensor->dtype == expected->dtype && tensor->ndim == expected->ndim &&
           memcmp(tensor->shape, expected->shape,
                  (size_t)expected->ndim * sizeof *expected->shape) == 0;
}

/* Checks what a callback gave. Whole distributed tensors must come from such ones. */
reshard_status rs_own_check_given(const rs_own_record *r, const char *what, int32_t index,
                                  const reshard_tensor *given,
                                  const reshard_operation_output *expected)
{
    reshard_tensor words = {.dtype = expected->dtype, .ndim = expected->ndim};
    if (given == NULL)
        return rs_fail(RESHARD_ERR_INVALID, "%s %d is NULL", what, index);
    memcpy(words.shape, expected->shape, sizeof words.shape);
    if (!is_like(given, expected))
        return rs_fail(RESHARD_ERR_INVALID, "%s %d is %s, not %s", what, index,
                       rs_tensor_describe(given).text, rs_tensor_describe(&words).text);
    bool spread = given->distribution != NULL;
    if (spread != (r->cache != NULL && !r->on_shards))
        return rs_fail(RESHARD_ERR_INVALID, "%s %d is %s", what, index,
                       spread ? "distributed" : "local, though inputs are distributed");
    if (spread && given->distribution->cache != r->cache)
        return rs_fail(RESHARD_ERR_INVALID, "%s %d belongs to another group", what, index);
    return RESHARD_OK;
}

/* A shard of a flat cut has one dim, however many the tensor has. */
void rs_own_take_shape(const reshard_shard *shard, reshard_operation_output *expected)
{
    expected->ndim = shard->ndim;
    memcpy(expected->shape, shard->shape, (size_t)shard->ndim * sizeof *shard->shape);
}

reshard_operation_output rs_own_output_part(const rs_own_record *r, reshard_shards *const *shards,
                                            int64_t part, int32_t index)
{
    reshard_operation_output made = r->outputs[index];
    if (r->on_shards)
        rs_own_take_shape(&shards[index]->items[part], &made);
    return made;
}

/* ---- for callbacks --------------------------------------------------------------------------- */

static bool is_below(int32_t index, int32_t count)
{
    return index >= 0 && index < count;
}

reshard_tensor *reshard_operation_result(reshard_operation_call *shown, int32_t index)
{
    const rs_own_call *call = (const rs_own_call *)(const void *)shown;
    const rs_own_record *r = call->record;
    reshard_tensor *made = NULL;
    if (rs_thread_state_get()->scope->status != RESHARD_OK)
        return NULL;
    if (!call->forward || !is_below(index, r->operation.output_count) ||
        (r->cache != NULL && !r->on_shards))
        return rs_scope_fail(rs_fail(RESHARD_ERR_INVALID, "result %d cannot be made here", index));
    reshard_operation_output output = rs_own_output_part(r, call->shards, call->part, index);
    reshard_status status = rs_result_zeros(output.dtype, output.ndim, output.shape, &made);
    return rs_scope_finish(status, made);
}

reshard_status reshard_operation_save(reshard_operation_call *shown, int32_t slot,
                                      reshard_tensor *tensor)
{
    const rs_own_call *call = (const rs_own_call *)(const void *)shown;
    if (tensor == NULL)
        return rs_scope_failed();
    if (!is_below(slot, call->record->operation.saved_count))
        return rs_fail(RESHARD_ERR_RANGE, "save: slot %d of %d", slot,
                       call->record->operation.saved_count);
    if (!call->forward || call->saved[slot] != NULL)
        return rs_fail(RESHARD_ERR_INVALID, "save: %s",
                       call->forward ? "the slot is taken" : "backward cannot save");
    return rs_tensor_alias(call->record->context, tensor, &call->saved[slot]);
}

/* Where this rank's part of a tensor begins. layout: NULL if it is whole. */
static reshard_status find_offset(const rs_own_call *call, int32_t ndim,
                                  const reshard_layout *layout, int64_t *out_offset)
{
    reshard_shards *shards = NULL;
    memset(out_offset, 0, (size_t)ndim * sizeof *out_offset);
    if (layout == NULL)
        return RESHARD_OK;
    int32_t rank = reshard_group_rank(rs_exec_cache_group(call->record->cache));
    reshard_status status = reshard_layout_shards(layout, rank, &shards);
    if (status != RESHARD_OK)
        return status;
    const reshard_shard *shard = &shards->items[call->part];
    if (shard->piece_count == 1)
        memcpy(out_offset, shard->pieces[0].box.offset, (size_t)ndim * sizeof *out_offset);
    else if (shard->piece_count > 1)
        status = rs_fail(RESHARD_ERR_UNSUPPORTED, "this rank's part of the tensor is not one box");
    reshard_shards_destroy(shards);
    return status;
}

reshard_status reshard_operation_offset(const reshard_operation_call *shown, int of_output,
                                        int32_t index, int64_t *out_offset)
{
    const rs_own_call *call = (const rs_own_call *)(const void *)shown;
    const rs_own_record *r = call->record;
    int32_t count = of_output ? r->operation.output_count : r->operation.input_count;
    if (!is_below(index, count))
        return rs_fail(RESHARD_ERR_RANGE, "%s %d of %d", of_output ? "output" : "input", index,
                       count);
    const reshard_layout *layout = of_output ? r->layouts.outputs[index] : r->input_layouts[index];
    return find_offset(call, of_output ? r->outputs[index].ndim : r->inputs[index].ndim,
                       r->on_shards ? layout : NULL, out_offset);
}
