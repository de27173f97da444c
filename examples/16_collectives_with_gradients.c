/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 16_collectives_with_gradients.c - eight collectives as operations on local tensors. Rank r of
 * three passes in three rows filled with r + 1; its loss is the sum of its result. Backward
 * computes how much the sum of all ranks' losses depends on each row: 3 if all ranks receive it, 0
 * if none does.
 */
#include <reshard/reshard_nn.h>

#include <stdio.h>

enum { RANKS = 3, ROWS = 3 };

static reshard_tensor *all_reduce(reshard_tensor *x, reshard_group *group)
{
    return reshard_tensor_all_reduce(x, group, RESHARD_SUM);
}

static reshard_tensor *reduce_to(reshard_tensor *x, reshard_group *group)
{
    return reshard_tensor_reduce_to(x, group, RESHARD_SUM, 0);
}

static reshard_tensor *reduce_scatter(reshard_tensor *x, reshard_group *group)
{
    return reshard_tensor_reduce_scatter(x, group, RESHARD_SUM);
}

static reshard_tensor *gather_to(reshard_tensor *x, reshard_group *group)
{
    return reshard_tensor_gather_to(x, group, 1);
}

static reshard_tensor *broadcast_from(reshard_tensor *x, reshard_group *group)
{
    return reshard_tensor_broadcast_from(x, group, 2);
}

static reshard_tensor *scatter_from(reshard_tensor *x, reshard_group *group)
{
    return reshard_tensor_scatter_from(x, group, 0);
}

static reshard_tensor *all_to_all(reshard_tensor *x, reshard_group *group)
{
    static const int64_t one_row_each[RANKS] = {1, 1, 1};
    return reshard_tensor_all_to_all(x, group, one_row_each, one_row_each);
}

/* The expected results of each rank: its loss, and the gradient of each of its rows. */
typedef struct collective {
    const char *name;
    reshard_tensor *(*run)(reshard_tensor *x, reshard_group *group);
    double loss[RANKS], gradient[RANKS];
} collective;

static const collective collectives[] = {
    {"all_reduce", all_reduce, {18, 18, 18}, {3, 3, 3}},
    {"reduce_to 0", reduce_to, {18, 0, 0}, {1, 1, 1}},
    {"reduce_scatter", reduce_scatter, {6, 6, 6}, {1, 1, 1}},
    {"all_gather", reshard_tensor_all_gather, {18, 18, 18}, {3, 3, 3}},
    {"gather_to 1", gather_to, {0, 18, 0}, {1, 1, 1}},
    {"broadcast_from 2", broadcast_from, {9, 9, 9}, {0, 0, 3}},
    {"scatter_from 0", scatter_from, {1, 1, 1}, {1, 0, 0}},
    {"all_to_all", all_to_all, {6, 6, 6}, {1, 1, 1}},
};

static reshard_status differentiate(const collective *c, reshard_tensor *x, reshard_group *group)
{
    int32_t rank = reshard_group_rank(group);
    double loss = -1, slope = -1;
    reshard_scope *scope = NULL;
    reshard_status status = reshard_scope_open(NULL, &scope);
    if (status != RESHARD_OK)
        return status;
    reshard_tensor *sum = reshard_sum(c->run(x, group));
    (void)reshard_backward(sum, NULL, NULL);
    status = reshard_scope_status(scope);
    if (status == RESHARD_OK)
        status = reshard_tensor_item(sum, &loss);
    (void)reshard_scope_close(scope);
    for (int64_t row = 0; row < ROWS && status == RESHARD_OK; row++) {
        status = reshard_tensor_get(reshard_tensor_gradient(x), (int64_t[]){row}, &slope);
        if (status == RESHARD_OK && (loss != c->loss[rank] || slope != c->gradient[rank]))
            status = reshard_error_set(RESHARD_ERR_CHECK, c->name);
    }
    reshard_tensor_clear_gradient(x);
    if (status == RESHARD_OK && rank == 0)
        printf("%-17s loss %2.0f, gradient %.0f on rank 0\n", c->name, loss, slope);
    return status;
}

static reshard_status run_rank(void *user, reshard_group *group)
{
    reshard_tensor *x = NULL;
    (void)user;
    reshard_status status = reshard_tensor_create(NULL, RESHARD_F32, 1, (int64_t[]){ROWS}, &x);
    if (status == RESHARD_OK)
        status = reshard_tensor_fill(x, reshard_group_rank(group) + 1);
    if (status == RESHARD_OK)
        status = reshard_tensor_set_requires_grad(x, 1);
    for (size_t i = 0; i < sizeof collectives / sizeof *collectives && status == RESHARD_OK; i++)
        status = differentiate(&collectives[i], x, group);
    reshard_tensor_release(x);
    return status;
}

int main(void)
{
    reshard_status status = reshard_group_run(NULL, RANKS, run_rank, NULL);
    if (status != RESHARD_OK)
        fprintf(stderr, "%s\n", reshard_error_text());
    return status != RESHARD_OK;
}
