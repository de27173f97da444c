/* SPDX-License-Identifier: Apache-2.0 */
/* unary.c - see unary.h. */
#include "tensor/ops/unary.h"

#include "tensor/ops/op.h"

#include <assert.h>
#include <string.h>

typedef struct unary_facts {
    const rs_unary *unary;
    double parameters[RS_UNARY_PARAMETERS];
} unary_facts;

static rs_unary_rows rows_of(const reshard_tensor *x, const unary_facts *facts)
{
    rs_unary_rows rows = {rs_row_count(x), rs_row_size(x) * rs_dtype_parts(x->dtype), {0}};
    memcpy(rows.parameters, facts->parameters, sizeof rows.parameters);
    return rows;
}

static void backward_unary(rs_node *node, reshard_tensor *const *gradients,
                           reshard_tensor **out_gradients)
{
    const unary_facts *facts = rs_node_facts(node);
    reshard_tensor *gradient = gradients[0], *kept = NULL, *dense = NULL, *output = NULL;
    reshard_status status = RESHARD_OK;
    if (facts->unary->keeps != RS_KEEPS_NOTHING) {
        reshard_tensor *saved = rs_node_saved(node, 0);
        status = saved != NULL ? rs_real(saved, &kept) : rs_scope_failed();
    }
    if (status == RESHARD_OK)
        status = rs_real(gradient, &dense);
    if (status == RESHARD_OK)
        status = rs_result(gradient->dtype, gradient->ndim, gradient->shape, &output);
    if (status == RESHARD_OK) {
        rs_unary_rows rows = rows_of(gradient, facts);
        facts->unary->backward[rs_dtype_part(gradient->dtype) == RESHARD_F64](
            &rows, kept != NULL ? kept->data : NULL, dense->data, output->data);
    }
    reshard_tensor_release(kept);
    reshard_tensor_release(dense);
    out_gradients[0] = rs_scope_finish(status, output);
}

static reshard_tensor *run_local(reshard_tensor *const *inputs, const void *user)
{
    const unary_facts *facts = user;
    return rs_unary_run(facts->unary, inputs[0], facts->parameters);
}

reshard_tensor *rs_unary_run(const rs_unary *unary, reshard_tensor *x, const double *parameters)
{
    assert(unary->forward[0] != NULL && unary->backward[1] != NULL);
    unary_facts facts = {unary, {0}};
    if (parameters != NULL)
        memcpy(facts.parameters, parameters, sizeof facts.parameters);
    if (!rs_op_begin(unary->name, 1, &x))
        return NULL;
    if (x->distribution != NULL)
        return rs_spread_alike(unary->name, unary->spread, 1, &x, run_local, &facts, sizeof facts);
    if (rs_dtype_is_half(x->dtype))
        return reshard_tensor_cast(
            rs_unary_run(unary, reshard_tensor_cast(x, RESHARD_F32), parameters), x->dtype);
    reshard_tensor *dense = NULL, *output = NULL;
    reshard_status status =
        unary->spread == RS_SPREAD_LINEAR ? rs_check_numbers(1, &x) : rs_check_floats(1, &x);
    if (status == RESHARD_OK)
        status = rs_real(x, &dense);
    if (status == RESHARD_OK)
        status = rs_result(x->dtype, x->ndim, x->shape, &output);
    if (status == RESHARD_OK) {
        rs_unary_rows rows = rows_of(x, &facts);
        unary->forward[rs_dtype_part(x->dtype) == RESHARD_F64](&rows, dense->data, output->data);
    }
    reshard_tensor_release(dense);
    rs_recipe recipe = {.name = unary->name,
                        .backward = backward_unary,
                        .input_count = 1,
                        .inputs = &x,
                        .saved_count = unary->keeps != RS_KEEPS_NOTHING,
                        .saved = unary->keeps == RS_KEEPS_INPUT ? &x : &output,
                        .facts = &facts,
                        .facts_bytes = sizeof facts};
    return rs_op_end(&recipe, status, output);
}
