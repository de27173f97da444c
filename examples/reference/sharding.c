/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sharding.c - a planner spreads a network of two layers over two ranks. It names the parameters
 * of the first layer, and has a sharder replace the whole second one, whose partial sums are then
 * added up. The output is the same as on one rank.
 */
#include <reshard/reshard_nn.h>

#include "examples/example.h"

#include <stdio.h>

enum { RANKS = 2, ROWS = 3, INPUTS = 4, HIDDEN = 6, OUTPUTS = 2 };

/* Makes a linear layer like the given one, but with its weight cut by columns. */
static reshard_status shard_columns(void *user, reshard_module *module, reshard_group *group,
                                    reshard_module **out_module)
{
    reshard_status status = RESHARD_OK;
    reshard_spec *columns = NULL;
    reshard_named_tensors *state = NULL;
    reshard_module *made = NULL;
    (void)user;
    TRY(reshard_spec_parse(NULL, "2: S(1)", &columns));
    TRY(reshard_linear_create(NULL, HIDDEN, OUTPUTS, NULL, &made));
    TRY(reshard_module_state_dict(module, &state));
    TRY(reshard_module_load_state_dict(made, state->count, state->items, NULL));
    TRY(reshard_module_shard_parameter(made, "weight", columns, 0, group));
out:
    if (status != RESHARD_OK) {
        reshard_module_release(made);
        made = NULL;
    }
    *out_module = made;
    reshard_named_tensors_destroy(state);
    reshard_spec_release(columns);
    return status;
}

/* Describes what to do with the module. Nothing happens yet. */
static reshard_status build_plan(void *user, reshard_module *module, reshard_sharding_plan *plan)
{
    reshard_status status = RESHARD_OK;
    const reshard_sharder sharder = {.shard = shard_columns};
    reshard_spec *rows = NULL, *whole = NULL;
    (void)user;
    TRY(check(reshard_module_child(module, 3, NULL) == NULL, "this planner knows two layers"));
    TRY(reshard_spec_parse(NULL, "2: S(0)", &rows));
    TRY(reshard_spec_parse(NULL, "2: R", &whole));
    TRY(reshard_sharding_plan_add(plan, "0.weight", rows));
    TRY(reshard_sharding_plan_add(plan, "0.bias", rows));
    TRY(reshard_sharding_plan_add_module(
        plan, "2", RESHARD_OPTIONS(reshard_sharding_module, .sharder = &sharder)));
    /* Adds up the partial sums, and gives the output as a local tensor. */
    TRY(reshard_sharding_plan_add_module(
        plan, "", RESHARD_OPTIONS(reshard_sharding_module, .output = whole, .local_output = 1)));
out:
    reshard_spec_release(whole);
    reshard_spec_release(rows);
    return status;
}

/* Code that does not know the group, for example in a library of models. */
static reshard_status spread(void *user)
{
    reshard_status status = RESHARD_OK;
    const reshard_sharding_planner planner = {.build = build_plan};
    TRY(check(reshard_current_group() != NULL, "there is no current group"));
    TRY(reshard_module_shard_planned(user, &planner, 0, NULL, NULL));
out:
    return status;
}

static reshard_status create_model(reshard_module **out_model)
{
    reshard_status status = RESHARD_OK;
    reshard_module *parts[3] = {NULL};
    TRY(reshard_linear_create(NULL, INPUTS, HIDDEN, NULL, &parts[0]));
    TRY(reshard_activation_create(NULL, RESHARD_ACTIVATION_GELU, &parts[1]));
    TRY(reshard_linear_create(NULL, HIDDEN, OUTPUTS, NULL, &parts[2]));
    TRY(reshard_sequential_create(NULL, 3, parts, out_model));
out:
    for (int i = 0; i < 3; i++)
        reshard_module_release(parts[i]);
    return status;
}

static reshard_status run(reshard_module *model, float values[ROWS * OUTPUTS])
{
    reshard_status status = RESHARD_OK;
    reshard_tensor *x = NULL;
    reshard_scope *scope = NULL;
    TRY(reshard_tensor_create(NULL, RESHARD_F32, 2, (int64_t[]){ROWS, INPUTS}, &x));
    TRY(reshard_tensor_fill_random(x, RESHARD_NORMAL, 3));
    TRY(reshard_scope_open(NULL, &scope));
    reshard_tensor *y = reshard_module_forward(model, x);
    if (y != NULL)
        TRY(reshard_tensor_copy_to(y, values, ROWS * OUTPUTS * sizeof *values));
out:
    status = close_scope(&scope, status);
    reshard_tensor_release(x);
    return status;
}

static reshard_status run_rank(void *user, reshard_group *group)
{
    reshard_status status = RESHARD_OK;
    float before[ROWS * OUTPUTS], after[ROWS * OUTPUTS];
    reshard_module *model = NULL;
    (void)user;
    TRY(create_model(&model));
    TRY(run(model, before));
    TRY(reshard_load_with_group(group, spread, model));
    TRY(run(model, after));
    for (int i = 0; i < ROWS * OUTPUTS; i++)
        TRY(check(before[i] - after[i] < 1e-5F && after[i] - before[i] < 1e-5F,
                  "two ranks compute something else than one"));
out:
    reshard_module_release(model);
    return status;
}

int main(void)
{
    reshard_status status = reshard_group_run(NULL, RANKS, run_rank, NULL);
    if (status == RESHARD_OK)
        printf("%d ranks compute what one did\n", RANKS);
    return finish(status);
}
