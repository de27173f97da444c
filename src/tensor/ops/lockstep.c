/* SPDX-License-Identifier: Apache-2.0 */
/* lockstep.c - see lockstep.h. */
#include "tensor/ops/lockstep.h"

#include "base/error.h"

#include <assert.h>

reshard_status rs_lockstep_plan(int32_t count, reshard_tensor *const *inputs, rs_lockstep *out_walk)
{
    assert(count <= RS_LOCKSTEP_MAX);
    int32_t ndim = 0;
    for (int32_t i = 0; i < count; i++)
        ndim = inputs[i]->ndim > ndim ? inputs[i]->ndim : ndim;
    out_walk->count = count;
    out_walk->ndim = ndim;
    for (int32_t d = 0; d < ndim; d++) {
        int32_t shaper = 0; /* the input that the size comes from */
        out_walk->shape[d] = 1;
        for (int32_t i = 0; i < count; i++) {
            int32_t own = d - ndim + inputs[i]->ndim;
            int64_t size = own < 0 ? 1 : inputs[i]->shape[own];
            out_walk->strides[i][d] = size == 1 ? 0 : inputs[i]->strides[own];
            if (size == 1)
                continue;
            if (out_walk->shape[d] != 1 && out_walk->shape[d] != size)
                return rs_fail(RESHARD_ERR_INVALID, "%s and %s cannot be broadcast",
                               rs_tensor_describe(inputs[shaper]).text,
                               rs_tensor_describe(inputs[i]).text);
            out_walk->shape[d] = size;
            shaper = i;
        }
    }
    return RESHARD_OK;
}

/* If all inputs are dense and have the shape of the result, the walk is a single row. */
static rs_lockstep flatten(const rs_lockstep *walk, reshard_tensor *const *inputs)
{
    rs_lockstep flat = *walk;
    for (int32_t i = 0; i < walk->count; i++) {
        if (!rs_shape_equals(inputs[0], inputs[i]) || !rs_tensor_is_contiguous(inputs[i]))
            return *walk;
        flat.strides[i][0] = 1;
    }
    flat.ndim = 1;
    flat.shape[0] = inputs[0]->volume;
    return flat;
}

void rs_lockstep_run(const rs_lockstep *walk, reshard_tensor *const *inputs, reshard_tensor *output,
                     void (*fn)(const rs_lockstep_row *row))
{
    rs_lockstep w = flatten(walk, inputs);
    int64_t index[RESHARD_NDIM_MAX] = {0}, at[RS_LOCKSTEP_MAX] = {0};
    int64_t bytes = (int64_t)rs_element_bytes(output->dtype);
    rs_lockstep_row row = {.size = w.ndim > 0 ? w.shape[w.ndim - 1] : 1};
    for (int32_t i = 0; i < w.count; i++)
        row.steps[i] = w.ndim > 0 ? w.strides[i][w.ndim - 1] : 0;
    for (int64_t done = 0; done < output->volume; done += row.size) {
        for (int32_t i = 0; i < w.count; i++)
            row.inputs[i] = inputs[i]->data + at[i] * (int64_t)rs_element_bytes(inputs[i]->dtype);
        row.output = output->data + done * bytes;
        fn(&row);
        for (int32_t d = w.ndim - 2; d >= 0; d--) {
            bool turns = ++index[d] == w.shape[d];
            for (int32_t i = 0; i < w.count; i++)
                at[i] += w.strides[i][d] * (turns ? 1 - w.shape[d] : 1);
            if (!turns)
                break;
            index[d] = 0;
        }
    }
}
