/* SPDX-License-Identifier: Apache-2.0 */
/*
 * elementwise.c - add, sub, mul and div, with broadcasting, and scale. Each operation of two inputs
 * is a row: its kernels, and how it makes the gradients of both. All but div take complex numbers
 * too; the gradient of a complex factor is multiplied by the conjugate of the other one.
 */
#ifndef REAL
#include "base/error.h"
#include "tensor/dist/spread.h"
#include "tensor/grad/node.h"
#include "tensor/ops/lockstep.h"
#include "tensor/ops/op.h"
#include "tensor/ops/unary.h"

#define RS_REAL_FILE "tensor/ops/elementwise.c"
#include "tensor/core/real.h"

/* ---- two inputs ------------------------------------------------------------------------------ */

typedef reshard_tensor *(*back_fn)(reshard_tensor *gradient, reshard_tensor *a, reshard_tensor *b);

typedef struct binary {
    const char *name;
    rs_spread_kind spread;
    void (*reals[2])(const rs_lockstep_row *row); /* f32, f64 */
    void (*pairs[2])(const rs_lockstep_row *row); /* complex; NULL: not taken */
    back_fn back[2];                              /* of the inputs, before they were broadcast */
    /* Which inputs the gradient of each input is computed from. */
    bool keeps[2][2];
} binary;

/* Gives the conjugate; for a real tensor, the tensor itself. Not recorded. */
static reshard_tensor *conjugate(reshard_tensor *x)
{
    if (x == NULL || !rs_dtype_is_complex(x->dtype))
        return x;
    reshard_tensor *output = NULL;
    reshard_status status = rs_result(x->dtype, x->ndim, x->shape, &output);
    if (status == RESHARD_OK) {
        rs_tensor_copy(x, output);
        RS_CALL(rs_dtype_part(x->dtype), turn_pairs, output->data, output->volume);
    }
    return rs_scope_finish(status, output);
}

static reshard_tensor *back_same(reshard_tensor *gradient, reshard_tensor *a, reshard_tensor *b)
{
    (void)a;
    (void)b;
    return gradient;
}

static reshard_tensor *back_negative(reshard_tensor *gradient, reshard_tensor *a, reshard_tensor *b)
{
    (void)a;
    (void)b;
    return reshard_neg(gradient);
}

static reshard_tensor *back_times_b(reshard_tensor *gradient, reshard_tensor *a, reshard_tensor *b)
{
    (void)a;
    return reshard_mul(gradient, conjugate(b));
}

static reshard_tensor *back_times_a(reshard_tensor *gradient, reshard_tensor *a, reshard_tensor *b)
{
    (void)b;
    return reshard_mul(gradient, conjugate(a));
}

static reshard_tensor *back_by_b(reshard_tensor *gradient, reshard_tensor *a, reshard_tensor *b)
{
    (void)a;
    return reshard_div(gradient, b);
}

static reshard_tensor *back_divisor(reshard_tensor *gradient, reshard_tensor *a, reshard_tensor *b)
{
    return reshard_neg(reshard_mul(gradient, reshard_div(reshard_div(a, b), b)));
}

static const binary adding = {"add",
                              RS_SPREAD_LINEAR,
                              RS_BOTH(add_row),
                              RS_BOTH(add_pairs),
                              {back_same, back_same},
                              {{false, false}, {false, false}}};
static const binary subtracting = {"sub",
                                   RS_SPREAD_LINEAR,
                                   RS_BOTH(subtract_row),
                                   RS_BOTH(subtract_pairs),
                                   {back_same, back_negative},
                                   {{false, false}, {false, false}}};
static const binary multiplying = {"mul",
                                   RS_SPREAD_ANY,
                                   RS_BOTH(multiply_row),
                                   RS_BOTH(multiply_pairs),
                                   {back_times_b, back_times_a},
                                   {{false, true}, {true, false}}};
static const binary dividing = {"div",
                                RS_SPREAD_ANY,
                                RS_BOTH(divide_row),
                                {NULL, NULL},
                                {back_by_b, back_divisor},
                                {{false, true}, {true, true}}};

static reshard_status combine(const binary *op, reshard_tensor *const *inputs,
                              reshard_tensor **out_tensor)
{
    rs_lockstep walk;
    reshard_tensor *output = NULL;
    reshard_status status =
        op->pairs[0] != NULL ? rs_check_numbers(2, inputs) : rs_check_floats(2, inputs);
    if (status == RESHARD_OK)
        status = rs_lockstep_plan(2, inputs, &walk);
    if (status == RESHARD_OK)
        status = rs_result(inputs[0]->dtype, walk.ndim, walk.shape, &output);
    if (status != RESHARD_OK)
        return status;
    bool wide = rs_dtype_part(output->dtype) == RESHARD_F64;
    rs_lockstep_run(&walk, inputs, output,
                    rs_dtype_is_complex(output->dtype) ? op->pairs[wide] : op->reals[wide]);
    *out_tensor = output;
    return RESHARD_OK;
}

typedef struct binary_facts {
    const binary *op;
    rs_extents inputs[2]; /* before they were broadcast */
} binary_facts;

static void backward_binary(rs_node *node, reshard_tensor *const *gradients,
                            reshard_tensor **out_gradients)
{
    const binary_facts *facts = rs_node_facts(node);
    for (int32_t i = 0; i < 2; i++) {
        const bool *keeps = facts->op->keeps[i];
        if (!rs_node_wants(node, i))
            continue;
        reshard_tensor *gradient =
            facts->op->back[i](gradients[0], keeps[0] ? rs_node_saved(node, 0) : NULL,
                               keeps[1] ? rs_node_saved(node, 1) : NULL);
        out_gradients[i] = rs_sum_to(gradient, facts->inputs[i].ndim, facts->inputs[i].shape);
    }
}

static reshard_tensor *run_binary(const binary *op, reshard_tensor *a, reshard_tensor *b);

static reshard_tensor *binary_local(reshard_tensor *const *inputs, const void *user)
{
    return run_binary(*(const binary *const *)user, inputs[0], inputs[1]);
}

static reshard_tensor *run_binary(const binary *op, reshard_tensor *a, reshard_tensor *b)
{
    reshard_tensor *inputs[] = {a, b}, *output = NULL, *saved[2] = {NULL, NULL};
    if (!rs_op_begin(op->name, 2, inputs))
        return NULL;
    if (rs_any_distributed(2, inputs))
        return rs_spread_alike(op->name, op->spread, 2, inputs, binary_local, &op, sizeof op);
    if (rs_dtype_is_half(a->dtype) && a->dtype == b->dtype)
        return reshard_tensor_cast(run_binary(op, reshard_tensor_cast(a, RESHARD_F32),
                                              reshard_tensor_cast(b, RESHARD_F32)),
                                   a->dtype);
    /* An input is only saved for gradients that are wanted. */
    for (int32_t i = 0; i < 2; i++) {
        for (int32_t k = 0; k < 2; k++) {
            if (op->keeps[i][k] && rs_tensor_requires_grad(inputs[i]))
                saved[k] = inputs[k];
        }
    }
    reshard_status status = combine(op, inputs, &output);
    binary_facts facts = {op, {rs_extents_of(a), rs_extents_of(b)}};
    rs_recipe recipe = {.name = op->name,
                        .backward = backward_binary,
                        .input_count = 2,
                        .inputs = inputs,
                        .saved_count = op->keeps[0][1] ? 2 : 0,
                        .saved = saved,
                        .facts = &facts,
                        .facts_bytes = sizeof facts};
    return rs_op_end(&recipe, status, output);
}

reshard_tensor *reshard_add(reshard_tensor *a, reshard_tensor *b)
{
    return run_binary(&adding, a, b);
}

reshard_tensor *reshard_sub(reshard_tensor *a, reshard_tensor *b)
{
    return run_binary(&subtracting, a, b);
}

reshard_tensor *reshard_mul(reshard_tensor *a, reshard_tensor *b)
{
    return run_binary(&multiplying, a, b);
}

reshard_tensor *reshard_div(reshard_tensor *a, reshard_tensor *b)
{
    return run_binary(&dividing, a, b);
}

/* ---- scale ----------------------------------------------------------------------------------- */

static const rs_unary scaling = {"scale", RS_SPREAD_LINEAR, RS_KEEPS_NOTHING, RS_BOTH(scale),
                                 RS_BOTH(scale_back)};

reshard_tensor *reshard_scale(reshard_tensor *x, double factor)
{
    return rs_unary_run(&scaling, x, (double[RS_UNARY_PARAMETERS]){factor});
}

#else

#define COMBINE(name, operator)                                                \
    static void OF(name)(const rs_lockstep_row *row)                           \
    {                                                                          \
        const REAL *a = row->inputs[0], *b = row->inputs[1];                   \
        REAL *c = row->output;                                                 \
        int64_t step_a = row->steps[0], step_b = row->steps[1], n = row->size; \
        if (step_a == 1 && step_b == 1) {                                      \
            for (int64_t i = 0; i < n; i++)                                    \
                c[i] = a[i] operator b[i];                                     \
        } else {                                                               \
            for (int64_t i = 0; i < n; i++)                                    \
                c[i] = a[i * step_a] operator b[i * step_b];                   \
        }                                                                      \
    }

/* Complex numbers are pairs of reals. Steps count pairs. */
#define COMBINE_PAIRS(name, real_part, imaginary_part)       \
    static void OF(name)(const rs_lockstep_row *row)         \
    {                                                        \
        const REAL *a = row->inputs[0], *b = row->inputs[1]; \
        REAL *c = row->output;                               \
        for (int64_t i = 0; i < row->size; i++) {            \
            c[2 * i] = (real_part);                          \
            c[2 * i + 1] = (imaginary_part);                 \
            a += 2 * row->steps[0];                          \
            b += 2 * row->steps[1];                          \
        }                                                    \
    }

COMBINE(add_row, +)
COMBINE(subtract_row, -)
COMBINE(multiply_row, *)
COMBINE(divide_row, /)
COMBINE_PAIRS(add_pairs, a[0] + b[0], a[1] + b[1])
COMBINE_PAIRS(subtract_pairs, a[0] - b[0], a[1] - b[1])
COMBINE_PAIRS(multiply_pairs, a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0])

#undef COMBINE
#undef COMBINE_PAIRS

static void OF(turn_pairs)(void *x, int64_t n)
{
    REAL *a = x;
    for (int64_t i = 0; i < n; i++)
        a[2 * i + 1] = -a[2 * i + 1];
}

static void OF(scale)(const rs_unary_rows *rows, const void *x, void *y)
{
    const REAL *a = x;
    REAL *b = y, factor = (REAL)rows->parameters[0];
    for (int64_t i = 0; i < rows->count * rows->size; i++)
        b[i] = a[i] * factor;
}

static void OF(scale_back)(const rs_unary_rows *rows, const void *kept, const void *gradient,
                           void *out)
{
    (void)kept;
    OF(scale)(rows, gradient, out);
}

#endif
