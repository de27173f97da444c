/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shards_by_hand.c - distributed tensors made from what three ranks already have: first one
 * shard each, with any number of rows, in memory that the ranks share; then two shards each, dealt
 * out like cards. Both are redistributed, by plans that are cached for the next time.
 */
#include <reshard/reshard_nn.h>

#include "examples/example.h"

#include <stdio.h>

enum { RANKS = 3, ROWS = 6, COLUMNS = 4 };

/* Checks that every element of a whole tensor is its row number. */
static reshard_status check_rows(const reshard_tensor *whole)
{
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; whole != NULL && i < ROWS * COLUMNS; i++) {
        double value = -1;
        TRY(reshard_tensor_get(whole, (int64_t[]){i / COLUMNS, i % COLUMNS}, &value));
        TRY(check(value == (double)(i / COLUMNS), "a row is not where it should be"));
    }
out:
    return status;
}

/* Rank r has r + 1 rows. No rank knows the total; from_local finds it. */
static reshard_status join_rows(reshard_group *group, reshard_spec *rows)
{
    reshard_status status = RESHARD_OK;
    int32_t rank = reshard_group_rank(group);
    int64_t shape[] = {rank + 1, COLUMNS}, first = rank * (rank + 1) / 2;
    reshard_tensor *mine = NULL;
    reshard_scope *scope = NULL;
    TRY(reshard_tensor_create_shared(NULL, group, RESHARD_F32, 2, shape, &mine));
    float *values = reshard_tensor_write(mine);
    for (int64_t i = 0; i < (rank + 1) * COLUMNS; i++)
        values[i] = (float)(first + i / COLUMNS);
    TRY(reshard_scope_open(NULL, &scope));
    reshard_tensor_info info = {.size = sizeof info};
    reshard_tensor *x = reshard_tensor_from_local(mine, group, rows);
    reshard_tensor *whole = reshard_tensor_full(x);
    TRY(reshard_scope_status(scope));
    TRY(reshard_tensor_get_info(x, &info));
    TRY(check(info.shape[0] == ROWS && info.group == group, "the rows do not add up"));
    TRY(check(reshard_tensor_data(reshard_tensor_local_shard(x, 0)) == values,
              "dense memory was copied"));
    TRY(check_rows(whole));
    TRY(close_scope(&scope, status));
out:
    status = close_scope(&scope, status);
    reshard_tensor_release(mine);
    return status;
}

/* Rank r has rows r and r + 3. The same move is made three times, but planned once. */
static reshard_status deal_rows(reshard_group *group, reshard_spec *columns)
{
    reshard_status status = RESHARD_OK;
    int32_t rank = reshard_group_rank(group);
    reshard_local_shard mine[2] = {{.offset = {rank, 0}}, {.offset = {rank + RANKS, 0}}};
    reshard_tensor_info before = {.size = sizeof before}, after = before;
    reshard_tensor *x = NULL;
    reshard_scope *scope = NULL;
    for (int i = 0; i < 2; i++) {
        TRY(reshard_tensor_create(NULL, RESHARD_F32, 2, (int64_t[]){1, COLUMNS}, &mine[i].tensor));
        TRY(reshard_tensor_fill(mine[i].tensor, rank + i * RANKS));
    }
    TRY(reshard_tensor_from_shards(NULL, group, 2, (int64_t[]){ROWS, COLUMNS}, 2, mine, &x));
    reshard_layout_info layout = {.size = sizeof layout};
    TRY(reshard_layout_get_info(reshard_tensor_layout(x), &layout));
    TRY(check(reshard_tensor_local_shard(x, 1) != NULL && layout.rank_count == RANKS,
              "a rank has lost a row"));
    TRY(reshard_tensor_get_info(x, &before));
    for (int i = 0; i < 3; i++) {
        TRY(reshard_scope_open(NULL, &scope));
        reshard_tensor *moved = reshard_tensor_redistribute(x, columns, NULL);
        TRY(check_rows(reshard_tensor_full(moved)));
        TRY(close_scope(&scope, status));
    }
    TRY(reshard_tensor_get_info(x, &after));
    TRY(check(after.plan_misses - before.plan_misses == 2 &&
                  after.plan_hits - before.plan_hits == 4,
              "a plan was made again"));
out:
    status = close_scope(&scope, status);
    for (int i = 0; i < 2; i++)
        reshard_tensor_release(mine[i].tensor);
    reshard_tensor_release(x);
    return status;
}

static reshard_status run_rank(void *user, reshard_group *group)
{
    reshard_status status = RESHARD_OK;
    reshard_spec *rows = NULL, *columns = NULL;
    (void)user;
    TRY(reshard_spec_parse(NULL, "3: S(0)", &rows));
    TRY(reshard_spec_parse(NULL, "3: S(1)", &columns));
    TRY(join_rows(group, rows));
    TRY(deal_rows(group, columns));
    if (reshard_group_rank(group) == 0)
        printf("%d ranks over %s have joined their shards\n", reshard_group_size(group),
               reshard_group_transport_name(group));
out:
    reshard_spec_release(columns);
    reshard_spec_release(rows);
    return status;
}

int main(void)
{
    reshard_status status = reshard_group_run(NULL, RANKS, run_rank, NULL);
    return finish(status);
}
