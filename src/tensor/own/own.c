/* SPDX-License-Identifier: Apache-2.0 */
/*
 * own.c - runs a caller's own operation and records it as one node. On distributed tensors the
 * callbacks run on every shard, and what they give is wrapped in the layouts that the rules say.
 *
 * Which inputs and outputs are saved is part of the operation and not up to a callback, so that all
 * ranks save the same distributed tensors, those without shards included; unpacking them may be
 * collective. Tensors that forward saves besides belong to a shard. They count as different on
 * ranks whose shards are.
 */
#include "tensor/own/own.h"

#include "base/context.h"
#include "base/error.h"
#include "base/options.h"
#include "layout/layout.h"
#include "tensor/core/dense.h"

#include <reshard/group.h>

#include <assert.h>
#include <string.h>

/* ---- records --------------------------------------------------------------------------------- */

static void forget_record(void *extra)
{
    rs_own_record *r = extra;
    if (r == NULL)
        return;
    rs_own_layouts_release(&r->layouts);
    for (int32_t i = 0; i < RS_OWN_MOST; i++)
        reshard_layout_release(r->input_layouts[i]);
    rs_exec_cache_release(r->cache);
    rs_release(r->context, r->data);
    rs_release(r->context, r);
}

static reshard_operation_output describe(const reshard_tensor *tensor)
{
    reshard_operation_output made = {.dtype = tensor->dtype, .ndim = tensor->ndim};
    memcpy(made.shape, tensor->shape, sizeof made.shape);
    return made;
}

static bool is_count(int32_t count, int32_t least)
{
    return count >= least && count <= RS_OWN_MOST;
}

static reshard_status read_operation(const reshard_operation *given, const void *data,
                                     reshard_operation *o)
{
    if (given == NULL)
        return rs_fail(RESHARD_ERR_INVALID, "the operation is NULL");
    reshard_status status = rs_options_read("operation", given, o, sizeof *o);
    if (status != RESHARD_OK)
        return status;
    o->input_count = o->input_count == 0 ? 1 : o->input_count;
    o->output_count = o->output_count == 0 ? 1 : o->output_count;
    if (o->name == NULL || o->forward == NULL)
        return rs_fail(RESHARD_ERR_INVALID, "the operation has no %s",
                       o->name == NULL ? "name" : "forward");
    if (!is_count(o->input_count, 1) || !is_count(o->output_count, 1) ||
        !is_count(o->saved_count, 0))
        return rs_fail(RESHARD_ERR_INVALID,
                       "%s: %d inputs, %d outputs and %d saved tensors; there may be %d of each",
                       o->name, o->input_count, o->output_count, o->saved_count, RS_OWN_MOST);
    if (o->data_bytes > 0 && data == NULL)
        return rs_fail(RESHARD_ERR_INVALID, "%s: the data is NULL, and has %zu bytes", o->name,
                       o->data_bytes);
    if (o->rule_count < 0 || (o->rule_count > 0 && (o->rules == NULL || o->whole)))
        return rs_fail(RESHARD_ERR_INVALID, "%s: %d rules, %s", o->name, o->rule_count,
                       o->whole ? "of an operation on whole tensors" : "which are NULL");
    return RESHARD_OK;
}

static reshard_status make_record(const reshard_operation *o, const void *data,
                                  reshard_tensor *const *inputs, rs_own_record **out_record)
{
    reshard_context *context = rs_scope_context();
    rs_own_record *r = rs_allocate_zeroed(context, sizeof *r);
    if (r == NULL)
        return rs_allocation_status();
    r->context = context;
    r->operation = *o;
    r->data = rs_allocate(context, o->data_bytes);
    if (r->data == NULL) {
        r->operation.data_bytes = 0;
        reshard_status status = rs_allocation_status();
        forget_record(r);
        return status;
    }
    if (o->data_bytes > 0)
        memcpy(r->data, data, o->data_bytes);
    r->part_count = 1;
    for (int32_t i = 0; i < o->input_count; i++)
        r->inputs[i] = describe(inputs[i]);
    for (int32_t k = 0; k < o->output_count; k++)
        r->outputs[k] = r->inputs[0];
    *out_record = r;
    return RESHARD_OK;
}

/* Finds what the outputs will be, and where. */
static reshard_status prepare(rs_own_record *r, reshard_tensor *const *inputs)
{
    const reshard_operation *o = &r->operation;
    reshard_status status = RESHARD_OK;
    if (o->shapes != NULL)
        status = o->shapes(r->data, inputs, r->outputs);
    for (int32_t k = 0; k < o->output_count && status == RESHARD_OK; k++) {
        int64_t volume = 0;
        status = rs_extents_check(r->outputs[k].ndim, r->outputs[k].shape, &volume);
    }
    if (status != RESHARD_OK)
        return rs_fail_within(status, "the shapes of outputs");
    if (o->backward == NULL && rs_op_records(o->input_count, inputs))
        return rs_fail(RESHARD_ERR_INVALID,
                       "an input requires gradients, and the operation has no backward");
    for (int32_t i = 0; i < o->input_count && r->cache == NULL; i++) {
        if (inputs[i]->distribution != NULL)
            r->cache = rs_exec_cache_retain(inputs[i]->distribution->cache);
    }
    if (r->cache == NULL || o->whole)
        return RESHARD_OK;
    r->on_shards = true;
    status = rs_own_layouts_find(o, inputs, r->outputs, &r->layouts);
    if (status != RESHARD_OK)
        return status;
    r->part_count = inputs[0]->distribution->shard_count;
    for (int32_t i = 0; i < o->input_count; i++)
        r->input_layouts[i] = reshard_layout_retain(inputs[i]->distribution->layout);
    return RESHARD_OK;
}

/* ---- forward --------------------------------------------------------------------------------- */

/* What forward has made so far: references. */
typedef struct making {
    rs_own_record *r; /* not after the operation has been recorded, which takes it over */
    reshard_context *context;
    int64_t part_count;
    int32_t output_count, saved_count;
    reshard_shards *shards[RS_OWN_MOST];
    reshard_tensor **outputs; /* [part * output_count + output] */
    reshard_tensor **saved;   /* [part * saved_count + slot] */
} making;

/* Keeps the outputs of one part beyond the callback's scope. A callback may return its input, which
 * has a record of its own, so that outputs are always other tensors. */
static reshard_status keep_outputs(making *m, int64_t part, reshard_tensor *const *given)
{
    const reshard_operation *o = &m->r->operation;
    reshard_status status = RESHARD_OK;
    for (int32_t k = 0; k < o->output_count && status == RESHARD_OK; k++) {
        reshard_operation_output expected = rs_own_output_part(m->r, m->shards, part, k);
        status = rs_own_check_given(m->r, "forward: output", k, given[k], &expected);
        if (status == RESHARD_OK)
            status = rs_tensor_alias(m->context, given[k], &m->outputs[part * o->output_count + k]);
    }
    return status;
}

static reshard_status run_forward(making *m, int64_t part, reshard_tensor *const *inputs)
{
    const reshard_operation *o = &m->r->operation;
    reshard_tensor *parts[RS_OWN_MOST] = {NULL}, *given[RS_OWN_MOST] = {NULL};
    rs_own_call call = {.shown = {.data = m->r->data, .inputs = parts},
                        .record = m->r,
                        .part = part,
                        .forward = true,
                        .saved = m->saved + part * o->saved_count,
                        .shards = m->shards};
    reshard_scope scope;
    rs_scope_enter(&scope, m->context);
    (void)reshard_set_gradients_enabled(0);
    reshard_status status = rs_own_take_part(m->r, part, o->input_count, inputs, parts);
    if (status == RESHARD_OK)
        status = rs_own_judge_return(o->forward(&call.shown, parts, given), "forward");
    if (status == RESHARD_OK)
        status = keep_outputs(m, part, given);
    if (status != RESHARD_OK)
        (void)rs_scope_fail(status);
    return rs_scope_leave(&scope);
}

static reshard_status run_parts(making *m, reshard_tensor *const *inputs)
{
    rs_own_record *r = m->r;
    const reshard_operation *o = &r->operation;
    int32_t rank = r->on_shards ? reshard_group_rank(rs_exec_cache_group(r->cache)) : 0;
    reshard_status status = RESHARD_OK;
    m->outputs = rs_allocate_zeroed(m->context,
                                    (size_t)(r->part_count * o->output_count) * sizeof *m->outputs);
    m->saved =
        rs_allocate_zeroed(m->context, (size_t)(r->part_count * o->saved_count) * sizeof *m->saved);
    if (m->outputs == NULL || m->saved == NULL)
        return rs_allocation_status();
    for (int32_t k = 0; r->on_shards && k < o->output_count && status == RESHARD_OK; k++) {
        status = reshard_layout_shards(r->layouts.outputs[k], rank, &m->shards[k]);
        assert(status != RESHARD_OK || m->shards[k]->count == r->part_count);
    }
    for (int64_t i = 0; i < r->part_count && status == RESHARD_OK; i++)
        status = run_forward(m, i, inputs);
    return status;
}

/* Makes the outputs out of their parts. */
static reshard_status join_parts(const making *m, reshard_tensor **out_outputs)
{
    const rs_own_record *r = m->r;
    int32_t count = r->operation.output_count;
    reshard_tensor **shards = rs_allocate_array(m->context, (size_t)r->part_count, sizeof *shards);
    reshard_status status = shards != NULL ? RESHARD_OK : rs_allocation_status();
    for (int32_t k = 0; k < count && status == RESHARD_OK; k++) {
        if (!r->on_shards) {
            out_outputs[k] = reshard_tensor_retain(m->outputs[k]);
            continue;
        }
        for (int64_t i = 0; i < r->part_count; i++)
            shards[i] = m->outputs[i * count + k];
        status = rs_distributed_wrap(m->context, r->cache, r->layouts.outputs[k],
                                     r->outputs[k].dtype, shards, &out_outputs[k]);
    }
    rs_release(m->context, shards);
    return status;
}

/* Saved tensors: the inputs that backward needs, the outputs, then those of each part. */
static void list_saved(const making *m, reshard_tensor *const *inputs,
                       reshard_tensor *const *outputs, int64_t count, reshard_tensor **list)
{
    const reshard_operation *o = &m->r->operation;
    for (int32_t i = 0; i < o->input_count; i++)
        *list++ = o->saved_inputs >> i & 1 ? inputs[i] : NULL;
    for (int32_t k = 0; k < o->output_count; k++)
        *list++ = o->saved_outputs >> k & 1 ? outputs[k] : NULL;
    for (int64_t i = 0; i < count; i++) {
        *list++ = m->saved[i];
        if (m->r->on_shards && m->saved[i] != NULL)
            m->saved[i]->sameness = RS_SAME_NO;
    }
}

static void clear_making(making *m)
{
    int64_t outputs = m->part_count * m->output_count, saved = m->part_count * m->saved_count;
    for (int32_t k = 0; k < m->output_count; k++)
        reshard_shards_destroy(m->shards[k]);
    for (int64_t i = 0; m->outputs != NULL && i < outputs; i++)
        reshard_tensor_release(m->outputs[i]);
    for (int64_t i = 0; m->saved != NULL && i < saved; i++)
        reshard_tensor_release(m->saved[i]);
    rs_release(m->context, m->outputs);
    rs_release(m->context, m->saved);
}

/* ---- running --------------------------------------------------------------------------------- */

/* Hands out the outputs and records the operation, which takes the record over. */
static bool finish(const making *m, reshard_status status, reshard_tensor *const *inputs,
                   reshard_tensor **outputs)
{
    rs_own_record *r = m->r;
    const reshard_operation *o = &r->operation;
    int32_t output_count = o->output_count;
    int64_t besides = r->part_count * o->saved_count;
    int64_t count = o->input_count + output_count + besides;
    reshard_tensor **saved = rs_allocate_array(m->context, (size_t)count, sizeof *saved);
    if (status == RESHARD_OK && saved == NULL)
        status = rs_allocation_status();
    if (status == RESHARD_OK)
        list_saved(m, inputs, outputs, besides, saved);
    for (int32_t k = 0; k < output_count && status == RESHARD_OK && !r->on_shards; k++) {
        if (outputs[k]->distribution != NULL)
            r->layouts.outputs[k] = reshard_layout_retain(outputs[k]->distribution->layout);
    }
    rs_recipe recipe = {.name = o->name,
                        .backward = rs_own_backward,
                        .input_count = o->input_count,
                        .inputs = inputs,
                        .saved_count = (int32_t)count,
                        .saved = saved,
                        .group = r->cache != NULL ? rs_exec_cache_group(r->cache) : NULL,
                        .extra = r,
                        .forget_extra = forget_record};
    bool done = rs_op_end_many(&recipe, status, output_count, outputs);
    rs_release(m->context, saved);
    return done;
}

static void run(rs_own_record *r, reshard_tensor *const *inputs, reshard_tensor **outputs)
{
    making m = {.r = r,
                .context = r->context,
                .part_count = r->part_count,
                .output_count = r->operation.output_count,
                .saved_count = r->operation.saved_count};
    reshard_status status = run_parts(&m, inputs);
    if (status == RESHARD_OK)
        status = join_parts(&m, outputs);
    (void)finish(&m, status, inputs, outputs);
    clear_making(&m);
}

reshard_tensor *reshard_operation_run(const reshard_operation *operation, const void *data,
                                      reshard_tensor *const *inputs, reshard_tensor **outputs)
{
    reshard_operation o;
    rs_own_record *r = NULL;
    reshard_tensor *one[RS_OWN_MOST] = {NULL};
    reshard_status status = read_operation(operation, data, &o);
    if (status == RESHARD_OK && outputs == NULL && o.output_count != 1)
        status = rs_fail(RESHARD_ERR_INVALID, "%s: there is no room for %d outputs", o.name,
                         o.output_count);
    if (status != RESHARD_OK)
        return rs_thread_state_get()->scope != NULL ? rs_scope_fail(status) : NULL;
    reshard_tensor **given = outputs != NULL ? outputs : one;
    for (int32_t k = 0; k < o.output_count; k++)
        given[k] = NULL;
    if (!rs_op_begin(o.name, o.input_count, inputs))
        return NULL;
    status = make_record(&o, data, inputs, &r);
    if (status == RESHARD_OK)
        status = prepare(r, inputs);
    if (status != RESHARD_OK) {
        forget_record(r);
        return rs_scope_fail(rs_fail_within(status, "%s", o.name));
    }
    run(r, inputs, given);
    return given[0];
}
