/* SPDX-License-Identifier: Apache-2.0 */
/*
 * where.c - where and masked_fill: a mask chooses between elements. A mask is bool, u8 or i64, and
 * chooses where it is not 0; kernels see it as bool. masked_fill is where with a tensor without
 * dims, which is broadcast.
 */
#ifndef REAL
#include "base/error.h"
#include "tensor/dist/spread.h"
#include "tensor/ops/lockstep.h"
#include "tensor/ops/op.h"

enum { A, B, MASK, INPUTS };

#define RS_REAL_FILE "tensor/ops/where.c"
#include "tensor/core/real.h"

/* Gives a mask of bools, in dense memory. */
static reshard_status read_mask(reshard_tensor *mask, reshard_tensor **out_mask)
{
    reshard_tensor *dense = NULL, *made = NULL;
    if (mask->dtype != RESHARD_BOOL && mask->dtype != RESHARD_U8 && mask->dtype != RESHARD_I64)
        return rs_fail(RESHARD_ERR_UNSUPPORTED, "the mask is %s, not bool, u8 or i64",
                       reshard_dtype_name(mask->dtype));
    reshard_status status = rs_tensor_densify(rs_scope_context(), mask, &dense);
    if (status == RESHARD_OK && mask->dtype != RESHARD_I64) {
        *out_mask = dense;
        return RESHARD_OK;
    }
    if (status == RESHARD_OK)
        status = rs_result(RESHARD_BOOL, mask->ndim, mask->shape, &made);
    for (int64_t i = 0; status == RESHARD_OK && i < mask->volume; i++)
        made->data[i] = ((const int64_t *)(const void *)dense->data)[i] != 0;
    reshard_tensor_release(dense);
    if (status == RESHARD_OK)
        *out_mask = made;
    return status;
}

/* Chooses by a mask of bools. Not recorded. */
static reshard_status choose(reshard_tensor *const *inputs, reshard_tensor **out_tensor)
{
    rs_lockstep walk;
    reshard_tensor *output = NULL;
    reshard_status status = rs_check_floats(2, inputs);
    if (status == RESHARD_OK)
        status = rs_lockstep_plan(INPUTS, inputs, &walk);
    if (status == RESHARD_OK)
        status = rs_result(inputs[A]->dtype, walk.ndim, walk.shape, &output);
    if (status != RESHARD_OK)
        return status;
    rs_lockstep_run(&walk, inputs, output,
                    output->dtype == RESHARD_F32 ? choose_row_f32 : choose_row_f64);
    *out_tensor = output;
    return RESHARD_OK;
}

typedef struct where_facts {
    rs_extents inputs[2];
} where_facts;

/* The gradient goes where the element came from, and zeros to the other input. */
static void backward_where(rs_node *node, reshard_tensor *const *gradients,
                           reshard_tensor **out_gradients)
{
    const where_facts *facts = rs_node_facts(node);
    reshard_tensor *zero = NULL, *mask = rs_node_saved(node, 0);
    if (mask == NULL)
        return;
    reshard_status status = rs_result_zeros(gradients[0]->dtype, 0, NULL, &zero);
    for (int32_t i = 0; i < 2 && status == RESHARD_OK; i++) {
        reshard_tensor *chosen = NULL;
        if (!rs_node_wants(node, i))
            continue;
        status = choose(
            (reshard_tensor *[]){i == A ? gradients[0] : zero, i == A ? zero : gradients[0], mask},
            &chosen);
        if (status == RESHARD_OK)
            out_gradients[i] =
                rs_sum_to(rs_scope_own(chosen), facts->inputs[i].ndim, facts->inputs[i].shape);
    }
    reshard_tensor_release(zero);
    if (status != RESHARD_OK)
        (void)rs_scope_fail(status);
}

/* A local choice, which is recorded. */
static reshard_tensor *run_where(const char *name, reshard_tensor *a, reshard_tensor *b,
                                 reshard_tensor *mask)
{
    if (a == NULL || b == NULL)
        return NULL; /* a cast failed */
    if (rs_dtype_is_half(a->dtype) && a->dtype == b->dtype)
        return reshard_tensor_cast(run_where(name, reshard_tensor_cast(a, RESHARD_F32),
                                             reshard_tensor_cast(b, RESHARD_F32), mask),
                                   a->dtype);
    reshard_tensor *inputs[] = {a, b, mask}, *output = NULL, *bools = NULL;
    reshard_status status = read_mask(mask, &bools);
    if (status == RESHARD_OK)
        status = choose((reshard_tensor *[]){a, b, bools}, &output);
    where_facts facts = {{rs_extents_of(a), rs_extents_of(b)}};
    rs_recipe recipe = {.name = name,
                        .backward = backward_where,
                        .input_count = INPUTS,
                        .inputs = inputs,
                        .saved_count = 1,
                        .saved = &bools,
                        .facts = &facts,
                        .facts_bytes = sizeof facts};
    reshard_tensor *made = rs_op_end(&recipe, status, output);
    reshard_tensor_release(bools);
    return made;
}

static reshard_tensor *where_local(reshard_tensor *const *inputs, const void *user)
{
    (void)user;
    return run_where("where", inputs[A], inputs[B], inputs[MASK]);
}

reshard_tensor *reshard_where(reshard_tensor *mask, reshard_tensor *a, reshard_tensor *b)
{
    reshard_tensor *inputs[] = {a, b, mask};
    if (!rs_op_begin("where", INPUTS, inputs))
        return NULL;
    if (rs_any_distributed(INPUTS, inputs))
        return rs_spread_alike("where", RS_SPREAD_ANY, INPUTS, inputs, where_local, NULL, 0);
    return where_local(inputs, NULL);
}

/* ---- masked_fill ----------------------------------------------------------------------------- */

static reshard_tensor *fill_local(reshard_tensor *const *inputs, const void *user)
{
    reshard_tensor *x = inputs[0], *mask = inputs[1], *value = NULL;
    rs_lockstep walk;
    reshard_status status = rs_lockstep_plan(2, inputs, &walk);
    bool grows = status == RESHARD_OK && walk.ndim != x->ndim;
    for (int32_t d = 0; status == RESHARD_OK && d < x->ndim && !grows; d++)
        grows = walk.shape[d] != x->shape[d];
    if (grows)
        status = rs_fail(RESHARD_ERR_INVALID, "a mask %s is larger than %s",
                         rs_tensor_describe(mask).text, rs_tensor_describe(x).text);
    if (status == RESHARD_OK)
        status = reshard_tensor_create(rs_scope_context(), x->dtype, 0, NULL, &value);
    if (status == RESHARD_OK)
        status = reshard_tensor_fill(value, *(const double *)user);
    if (status == RESHARD_OK) {
        reshard_tensor *made = run_where("masked_fill", value, x, mask);
        reshard_tensor_release(value);
        return made;
    }
    reshard_tensor_release(value);
    return rs_scope_fail(rs_fail_within(status, "masked_fill"));
}

reshard_tensor *reshard_masked_fill(reshard_tensor *x, reshard_tensor *mask, double value)
{
    reshard_tensor *inputs[] = {x, mask};
    if (!rs_op_begin("masked_fill", 2, inputs))
        return NULL;
    reshard_status status = rs_check_floats(1, inputs);
    if (status != RESHARD_OK)
        return rs_scope_fail(rs_fail_within(status, "masked_fill"));
    if (rs_any_distributed(2, inputs))
        return rs_spread_alike("masked_fill", RS_SPREAD_ANY, 2, inputs, fill_local, &value,
                               sizeof value);
    return fill_local(inputs, &value);
}

#else

static void OF(choose_row)(const rs_lockstep_row *row)
{
    const REAL *a = row->inputs[A], *b = row->inputs[B];
    const uint8_t *mask = row->inputs[MASK];
    REAL *c = row->output;
    for (int64_t i = 0; i < row->size; i++)
        c[i] = mask[i * row->steps[MASK]] != 0 ? a[i * row->steps[A]] : b[i * row->steps[B]];
}

#endif
