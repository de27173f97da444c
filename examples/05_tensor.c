/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 05_tensor.c - a tensor of rank 0 is cut by rows over four ranks, redistributed by columns over
 * three of them, and gathered again. There are five rows for four ranks, so the last rank has none.
 * Then the columns are overwritten with ones in place.
 */
#include <reshard/reshard_nn.h>

#include <stdio.h>

enum { RANKS = 4, ROWS = 5, COLUMNS = 6 };

/* The same move, into memory that exists already. */
static reshard_status overwrite(reshard_tensor *rows, reshard_tensor *columns)
{
    reshard_tensor *ones = NULL, *sums = NULL;
    double value = 0;
    reshard_status status = reshard_tensor_full_like(rows, RESHARD_DTYPE_NONE, 1, &ones);
    if (status == RESHARD_OK)
        status = reshard_tensor_redistribute_into(ones, columns);
    if (status == RESHARD_OK)
        /* the same layout, another dtype */
        status = reshard_tensor_zeros_like(columns, RESHARD_F64, &sums);
    if (status == RESHARD_OK && reshard_tensor_local_shard_count(columns) > 0)
        status =
            reshard_tensor_get(reshard_tensor_local_shard(columns, 0), (int64_t[]){0, 0}, &value);
    if (status == RESHARD_OK && reshard_tensor_local_shard_count(columns) > 0 && value != 1)
        status = reshard_error_set(RESHARD_ERR_CHECK, "an element was not overwritten");
    reshard_tensor_release(ones);
    reshard_tensor_release(sums);
    return status;
}

/* Run by all ranks; only rank 0 has `numbers`. */
static reshard_status travel(reshard_group *group, reshard_spec *rows, reshard_spec *columns,
                             reshard_tensor *numbers)
{
    reshard_tensor *x = NULL, *whole = NULL;
    reshard_scope *scope = NULL;
    reshard_status status = reshard_tensor_shard(NULL, group, rows, 0, numbers, &x);
    if (status == RESHARD_OK)
        status = reshard_scope_open(NULL, &scope);
    if (status == RESHARD_OK) {
        reshard_tensor *y = reshard_tensor_redistribute(x, columns, NULL);
        if (y != NULL)
            status = reshard_tensor_gather(y, 3, &whole);
        if (y != NULL && status == RESHARD_OK)
            status = overwrite(x, y);
        reshard_status closed = reshard_scope_close(scope);
        status = status != RESHARD_OK ? status : closed;
    }
    for (int64_t i = 0; whole != NULL && i < ROWS * COLUMNS; i++) {
        double value = 0;
        (void)reshard_tensor_get(whole, (int64_t[]){i / COLUMNS, i % COLUMNS}, &value);
        if (value != (double)i)
            status = reshard_error_set(RESHARD_ERR_CHECK, "an element is not where it should be");
    }
    if (whole != NULL && status == RESHARD_OK)
        printf("rank %d has all %d elements\n", reshard_group_rank(group), ROWS * COLUMNS);
    reshard_tensor_release(whole);
    reshard_tensor_release(x);
    return status;
}

static reshard_status run_rank(void *user, reshard_group *group)
{
    reshard_tensor *numbers = NULL;
    reshard_spec *rows = NULL, *columns = NULL;
    (void)user;
    reshard_status status = reshard_spec_parse(NULL, "4: S(0)", &rows);
    if (status == RESHARD_OK)
        status = reshard_spec_parse(NULL, "3[3,0,1]: S(1)", &columns);
    if (status == RESHARD_OK && reshard_group_rank(group) == 0) {
        int32_t data[ROWS * COLUMNS];
        for (int32_t i = 0; i < ROWS * COLUMNS; i++)
            data[i] = i;
        status = reshard_tensor_from_data(NULL, RESHARD_I32, 2, (int64_t[]){ROWS, COLUMNS}, data,
                                          &numbers);
    }
    if (status == RESHARD_OK)
        status = travel(group, rows, columns, numbers);
    reshard_tensor_release(numbers);
    reshard_spec_release(columns);
    reshard_spec_release(rows);
    return status;
}

int main(void)
{
    reshard_status status = reshard_group_run(NULL, RANKS, run_rank, NULL);
    if (status != RESHARD_OK)
        fprintf(stderr, "%s\n", reshard_error_text());
    return status != RESHARD_OK;
}
