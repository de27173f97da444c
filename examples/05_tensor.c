/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 05_tensor.c - introduces distributed tensors and scopes: a tensor of rank 0 is cut by rows over
 * four ranks, redistributed by columns over three of them, and gathered again. There are five rows
 * for four ranks, so the last rank has none. Then the columns are overwritten with ones in place.
 */
#include <reshard/reshard_nn.h>

#include "examples/example.h"

enum { RANKS = 4, ROWS = 5, COLUMNS = 6 };

/* The same move, into memory that exists already. */
static reshard_status overwrite(reshard_tensor *rows, reshard_tensor *columns)
{
    reshard_status status = RESHARD_OK;
    reshard_tensor *ones = NULL;
    double value = 0;
    TRY(reshard_tensor_zeros_like(rows, RESHARD_DTYPE_NONE, &ones));
    TRY(reshard_tensor_fill(ones, 1));
    TRY(reshard_tensor_copy(columns, ones));
    const reshard_tensor *mine = reshard_tensor_local_shard(columns, 0);
    if (mine != NULL) {
        TRY(reshard_tensor_get(mine, (int64_t[]){0, 0}, &value));
        TRY(check(value == 1, "an element was not overwritten"));
    }
out:
    reshard_tensor_release(ones);
    return status;
}

/* Run by all ranks; only rank 0 has `numbers`. What is computed belongs to the scope: y is freed
 * with it. */
static reshard_status travel(reshard_group *group, reshard_spec *rows, reshard_spec *columns,
                             reshard_tensor *numbers)
{
    reshard_status status = RESHARD_OK;
    reshard_tensor *x = NULL, *whole = NULL;
    reshard_scope *scope = NULL;
    TRY(reshard_tensor_shard(NULL, group, rows, 0, numbers, &x));
    TRY(reshard_scope_open(NULL, &scope));
    reshard_tensor *y = reshard_tensor_redistribute(x, columns, NULL);
    TRY(reshard_scope_status(scope));
    TRY(reshard_tensor_gather(y, 3, &whole));
    TRY(overwrite(x, y));
    for (int64_t i = 0; whole != NULL && i < ROWS * COLUMNS; i++) {
        double value = 0;
        TRY(reshard_tensor_get(whole, (int64_t[]){i / COLUMNS, i % COLUMNS}, &value));
        TRY(check(value == (double)i, "an element is not where it should be"));
    }
    if (whole != NULL)
        printf("rank %d has all %d elements\n", reshard_group_rank(group), ROWS * COLUMNS);
out:
    status = close_scope(&scope, status);
    reshard_tensor_release(whole);
    reshard_tensor_release(x);
    return status;
}

static reshard_status run_rank(void *user, reshard_group *group)
{
    reshard_status status = RESHARD_OK;
    reshard_tensor *numbers = NULL;
    reshard_spec *rows = NULL, *columns = NULL;
    int32_t data[ROWS * COLUMNS];
    (void)user;
    TRY(reshard_spec_parse(NULL, "4: S(0)", &rows));
    TRY(reshard_spec_parse(NULL, "3[3,0,1]: S(1)", &columns));
    for (int32_t i = 0; i < ROWS * COLUMNS; i++)
        data[i] = i;
    if (reshard_group_rank(group) == 0)
        TRY(reshard_tensor_from_data(NULL, RESHARD_I32, 2, (int64_t[]){ROWS, COLUMNS}, data,
                                     &numbers));
    TRY(travel(group, rows, columns, numbers));
out:
    reshard_tensor_release(numbers);
    reshard_spec_release(columns);
    reshard_spec_release(rows);
    return status;
}

int main(void)
{
    return finish(reshard_group_run(NULL, RANKS, run_rank, NULL));
}
