/* SPDX-License-Identifier: Apache-2.0 */
/*
 * embedding_bag.c - users as bags of items: what a recommender embeds. The table of items is cut
 * by rows over ranks, and every rank has users of its own, with lists of different lengths. The
 * module gathers the lists, not the table, and each rank gets the sums of the rows that it has.
 * They are compared with an undivided table.
 */
#include <reshard/reshard_nn.h>

#include "examples/example.h"

#include <stdio.h>

enum { RANKS = 3, ITEMS = 10, WIDTH = 4, PADDING = 9 };

/* The items of this rank's two users, in one list, where each begins, and how much each counts. */
static reshard_status make_users(int32_t rank, reshard_tensor **users)
{
    reshard_status status = RESHARD_OK;
    static const int64_t items[RANKS][4] = {{1, 8, 3, PADDING}, {0, 1, 1, 6}, {5, 2, PADDING, 7}};
    /* the last has an empty one */
    static const int64_t begins[RANKS][2] = {{0, 1}, {0, 3}, {0, 0}};
    static const float counts[4] = {1, 0.5F, 2, 1};
    TRY(reshard_tensor_from_data(NULL, RESHARD_I64, 1, (int64_t[]){4}, items[rank], &users[0]));
    TRY(reshard_tensor_from_data(NULL, RESHARD_I64, 1, (int64_t[]){2}, begins[rank], &users[1]));
    TRY(reshard_tensor_from_data(NULL, RESHARD_F32, 1, (int64_t[]){4}, counts, &users[2]));
out:
    return status;
}

static reshard_status make_module(reshard_group *group, reshard_module **out_module)
{
    reshard_status status = RESHARD_OK;
    reshard_embedding_bag_options how = {.size = sizeof how, .pads = 1, .padding_index = PADDING};
    reshard_layer_options options = {.size = sizeof options, .seed = 7};
    reshard_sharding_plan *plan = NULL;
    TRY(reshard_embedding_bag_create(NULL, ITEMS, WIDTH, &how, &options, out_module));
    TRY(reshard_sharding_plan_create(NULL, &plan));
    TRY(reshard_sharding_plan_add_text(plan, "weight", "3: S(0)"));
    TRY(reshard_module_shard(*out_module, plan, 0, group, NULL));
out:
    reshard_sharding_plan_destroy(plan);
    return status;
}

/* Makes known that the tensors are this rank's own: without it, ranks would compare them. */
static reshard_tensor *own(reshard_tensor *tensor, reshard_group *group, reshard_spec *rows)
{
    return reshard_tensor_to_local(reshard_tensor_from_local(tensor, group, rows), NULL);
}

static reshard_status compare(reshard_module *module, reshard_tensor *const *users,
                              reshard_group *group, reshard_spec *rows)
{
    reshard_status status = RESHARD_OK;
    reshard_tensor *weight = NULL;
    reshard_scope *scope = NULL;
    reshard_value items[3];
    int close = 0;
    TRY(reshard_module_find_tensor(module, "weight", &weight));
    TRY(reshard_scope_open(NULL, &scope));
    for (int i = 0; i < 3; i++)
        items[i] = reshard_value_of(own(users[i], group, rows));
    /* The output is a partial sum of all users; each rank takes its own two. */
    reshard_tensor *bags =
        reshard_value_tensor(reshard_module_call(module, reshard_value_list(3, items)));
    reshard_tensor *mine =
        reshard_tensor_to_local(reshard_tensor_redistribute(bags, rows, NULL), NULL);
    /* The same by the operation, with the whole table and this rank's users alone. */
    reshard_embedding_bag_options options = {.size = sizeof options,
                                             .offsets = users[1],
                                             .sample_weights = users[2],
                                             .pads = 1,
                                             .padding_index = PADDING};
    reshard_tensor *expected =
        reshard_embedding_bag(reshard_tensor_full(weight), users[0], &options);
    (void)reshard_scope_note(reshard_tensor_allclose(mine, expected, 1e-5, 1e-6, 0, &close));
    TRY(close_scope(&scope, status));
    TRY(check(close, "the bags differ"));
out:
    status = close_scope(&scope, status);
    return status;
}

static reshard_status body(void *user, reshard_group *group)
{
    reshard_status status = RESHARD_OK;
    (void)user;
    reshard_tensor *users[3] = {NULL};
    reshard_module *module = NULL;
    reshard_spec *rows = NULL;
    TRY(make_users(reshard_group_rank(group), users));
    TRY(make_module(group, &module));
    TRY(reshard_spec_parse(NULL, "3: S(0)", &rows));
    TRY(compare(module, users, group, rows));
    if (reshard_group_rank(group) == 0)
        printf("bags of %d ranks' own users, over a table cut by rows: as with the whole table\n",
               RANKS);
out:
    for (int i = 0; i < 3; i++)
        reshard_tensor_release(users[i]);
    reshard_module_release(module);
    reshard_spec_release(rows);
    return status;
}

int main(void)
{
    return finish(reshard_group_run(NULL, RANKS, body, NULL));
}
