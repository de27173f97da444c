/* SPDX-License-Identifier: Apache-2.0 */
/*
 * small_operations.c - a loss written from small operations: logits are capped with tanh,
 * masked, and compared with targets by a binary cross-entropy; a penalty keeps their mean small.
 * The same function runs on whole tensors and on shards, with the same loss and gradients.
 */
#include <reshard/reshard_nn.h>

#include "examples/example.h"

#include <math.h>
#include <stdio.h>

enum { RANKS = 4, ROWS = 6, COLUMNS = 5 };

/* -(t log p + (1-t) log(1-p)), where p = sigmoid(x): log(1 + exp(-|x|)) + max(x, 0) - t x. */
static reshard_tensor *binary_cross_entropy(reshard_tensor *x, reshard_tensor *target)
{
    reshard_tensor *size = reshard_sqrt(reshard_clamp(reshard_pow(x, 2), 1e-12, INFINITY));
    reshard_tensor *tail = reshard_log1p(reshard_exp(reshard_neg(size)));
    return reshard_sub(reshard_add(tail, reshard_clamp(x, 0, INFINITY)), reshard_mul(target, x));
}

static reshard_tensor *find_loss(reshard_tensor *x, reshard_tensor *target, reshard_tensor *mask)
{
    x = reshard_scale(reshard_tanh(reshard_scale(x, 0.2)), 5);
    reshard_tensor *clean = reshard_nan_to_num(x, 0, INFINITY, -INFINITY);
    reshard_tensor *losses = reshard_masked_fill(binary_cross_entropy(clean, target), mask, 0);
    reshard_tensor *counted = reshard_where(mask, reshard_scale(target, 0), clean);
    reshard_tensor *spread = reshard_div(reshard_pow(counted, 2), reshard_exp(counted));
    reshard_tensor *penalty = reshard_reduce_dims(spread, RESHARD_SUM, 2, (int32_t[]){0, 1}, 0);
    reshard_tensor *mean = reshard_reduce_dims(losses, RESHARD_AVG, 2, (int32_t[]){0, 1}, 0);
    return reshard_add(mean, reshard_scale(penalty, 0.01));
}

/* Of whole tensors: the largest product of two rows, by one batched product with itself, and how
 * far it is above the smallest. */
static reshard_tensor *range_of_products(reshard_tensor *x)
{
    const int32_t all[] = {0, 1, 2};
    reshard_tensor *batch = reshard_tensor_unsqueeze(x, 0);
    reshard_tensor *products = reshard_bmm(batch, 0, batch, 1);
    return reshard_sub(reshard_reduce_dims(products, RESHARD_MAX, 3, all, 0),
                       reshard_reduce_dims(products, RESHARD_MIN, 3, all, 0));
}

static reshard_status compare(reshard_tensor *const *wholes, reshard_tensor *const *parts)
{
    reshard_status status = RESHARD_OK;
    int same = 0, close = 0;
    reshard_scope *scope = NULL;
    TRY(reshard_scope_open(NULL, &scope));
    reshard_tensor *expected = find_loss(wholes[0], wholes[1], wholes[2]);
    reshard_tensor *loss = reshard_tensor_full(find_loss(parts[0], parts[1], parts[2]));
    reshard_tensor *range = range_of_products(wholes[0]);
    reshard_tensor *before = reshard_tensor_clone(reshard_tensor_detach(parts[0]));
    TRY(reshard_scope_status(scope));
    TRY(reshard_tensor_allclose(loss, expected, 1e-12, 0, 0, &close));
    TRY(check(close, "the losses differ"));
    /* Why the tail is written with log1p: it is -log(sigmoid(x)), of which nothing is left in f32
     * once the sigmoid is rounded to 1. */
    reshard_tensor *far = reshard_clamp(wholes[0], 1, INFINITY);
    reshard_tensor *tail = reshard_log1p(reshard_exp(reshard_neg(far)));
    reshard_tensor *other = reshard_neg(reshard_log(reshard_sigmoid(far)));
    TRY(reshard_scope_status(scope));
    TRY(reshard_tensor_allclose(tail, other, 1e-9, 0, 0, &close));
    TRY(check(close, "log1p(exp(-x)) is not -log(sigmoid(x))"));
    double width = 0;
    TRY(reshard_tensor_value(range, &width));
    TRY(check(width > 0, "all products are equal"));
    TRY(reshard_backward(loss, NULL, NULL));
    TRY(reshard_backward(expected, NULL, NULL));
    reshard_tensor *gradient = reshard_tensor_full(reshard_tensor_gradient(parts[0]));
    TRY(reshard_scope_status(scope));
    TRY(reshard_tensor_allclose(gradient, reshard_tensor_gradient(wholes[0]), 1e-9, 1e-12, 0,
                                &close));
    TRY(check(close, "the gradients differ"));
    /* A backup, a change, and back. */
    TRY(reshard_tensor_fill(parts[0], 0));
    TRY(reshard_tensor_equal(parts[0], before, &same));
    TRY(check(!same, "nothing has changed"));
    TRY(reshard_tensor_copy(parts[0], before));
    TRY(reshard_tensor_equal(parts[0], before, &same));
    TRY(check(same, "the copy differs"));
out:
    status = close_scope(&scope, status);
    return status;
}

/* Cuts x, targets and mask by rows, and compares. */
static reshard_status run_rank(void *user, reshard_group *group)
{
    reshard_status status = RESHARD_OK;
    reshard_tensor *wholes[3] = {NULL}, *parts[3] = {NULL};
    reshard_spec *rows = NULL;
    (void)user;
    TRY(reshard_spec_parse(NULL, "4: S(0)", &rows));
    for (int i = 0; i < 3; i++) {
        TRY(reshard_tensor_create(NULL, i == 2 ? RESHARD_BOOL : RESHARD_F64, 2,
                                  (int64_t[]){ROWS, COLUMNS}, &wholes[i]));
        for (int64_t k = 0; k < ROWS * COLUMNS; k++)
            TRY(reshard_tensor_set(wholes[i], (int64_t[]){k / COLUMNS, k % COLUMNS},
                                   i == 0   ? (double)(k * 7 % 11) - 4.5
                                   : i == 1 ? (double)(k % 2)
                                            : (double)(k % 5 == 3)));
        TRY(reshard_tensor_set_requires_grad(wholes[i], i == 0));
        TRY(reshard_tensor_shard(NULL, group, rows, 0, wholes[i], &parts[i]));
    }
    TRY(compare(wholes, parts));
out:
    for (int i = 0; i < 3; i++) {
        reshard_tensor_release(wholes[i]);
        reshard_tensor_release(parts[i]);
    }
    reshard_spec_release(rows);
    return status;
}

int main(void)
{
    reshard_status status = reshard_group_run(NULL, RANKS, run_rank, NULL);
    if (status == RESHARD_OK)
        puts("whole and in rows: the same loss and the same gradients");
    return finish(status);
}
