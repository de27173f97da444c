/* SPDX-License-Identifier: Apache-2.0 */
/* own_rules.c - the layouts of a caller's own operation: by its rules (rules.c), or without any. */
#include "base/error.h"
#include "layout/layout.h"
#include "tensor/dist/layout_rules.h"
#include "tensor/own/own.h"

#include <string.h>

static reshard_status find_by_rules(const reshard_operation *o, reshard_tensor *const *inputs,
                                    const reshard_operation_output *shapes, rs_own_layouts *out)
{
    const rs_layout_rules rules = {.count = o->rule_count, .rows = o->rules};
    rs_fit f;
    f.rules = &rules;
    f.inputs = inputs;
    f.input_count = o->input_count;
    f.output_count = o->output_count;
    for (int32_t k = 0; k < o->output_count; k++)
        f.output_ndims[k] = shapes[k].ndim;
    reshard_status status = rs_layout_rules_judge(&f);
    for (int32_t k = 0; k < o->output_count && status == RESHARD_OK; k++)
        status = rs_layout_rules_output(&f, k, shapes[k].shape, &out->outputs[k]);
    for (int32_t i = 0; i < o->input_count && status == RESHARD_OK; i++)
        status = rs_layout_rules_gradient(&f, i, &out->gradients[i]);
    return status;
}

/* Without rules, everything has the layout of input 0. */
static reshard_status find_alike(const reshard_operation *o, reshard_tensor *const *inputs,
                                 const reshard_operation_output *shapes, rs_own_layouts *out)
{
    const reshard_tensor *first = inputs[0];
    reshard_layout *layout = first->distribution->layout;
    if (layout->partial)
        return rs_refuse_partial(first);
    for (int32_t i = 1; i < o->input_count; i++) {
        if (!rs_distributed_same(inputs[i], first))
            return rs_fail(RESHARD_ERR_INVALID,
                           "input 0 has the layout \"%s\" and input %d \"%s\", and the operation "
                           "has no rules",
                           rs_tensor_describe_layout(first).text, i,
                           rs_tensor_describe_layout(inputs[i]).text);
    }
    for (int32_t i = 0; i < o->output_count; i++) {
        if (shapes[i].ndim != first->ndim ||
            memcmp(shapes[i].shape, first->shape, (size_t)first->ndim * sizeof *first->shape) != 0)
            return rs_fail(
                RESHARD_ERR_INVALID,
                "output %d has another shape than input 0, which is distributed, and the "
                "operation has no rules",
                i);
        out->outputs[i] = reshard_layout_retain(layout);
    }
    for (int32_t i = 0; i < o->input_count; i++)
        out->gradients[i] = reshard_layout_retain(layout);
    return RESHARD_OK;
}

reshard_status rs_own_layouts_find(const reshard_operation *operation,
                                   reshard_tensor *const *inputs,
                                   const reshard_operation_output *shapes,
                                   rs_own_layouts *out_layouts)
{
    reshard_status status = rs_check_together(operation->input_count, inputs);
    if (status != RESHARD_OK)
        return status;
    return operation->rule_count > 0 ? find_by_rules(operation, inputs, shapes, out_layouts)
                                     : find_alike(operation, inputs, shapes, out_layouts);
}

void rs_own_layouts_release(rs_own_layouts *layouts)
{
    for (int32_t i = 0; i < RESHARD_OPERATION_MAX; i++) {
        reshard_layout_release(layouts->outputs[i]);
        reshard_layout_release(layouts->gradients[i]);
        layouts->outputs[i] = layouts->gradients[i] = NULL;
    }
}
