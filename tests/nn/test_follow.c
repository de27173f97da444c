/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_follow.c - plans that do not name everything. Every ready layer, with any of its parameters
 * cut in any way and the others left local, gives the output and the gradients that it gives on one
 * rank; and the plan of PyTorch's Megatron prototype, which names weights and no biases.
 */
#include "layout/layout.h"
#include "tests/nn/modules.h"
#include "tests/support/harness.h"

#include <math.h>

enum { LAYERS = 8 };

static reshard_module *make_layer(int64_t which)
{
    reshard_layer_options o = {.size = sizeof o, .dtype = RESHARD_F64, .seed = 5};
    reshard_module *made = NULL;
    switch (which) {
    case 0:
        MUST(reshard_linear_create(NULL, 8, 8, &o, &made));
        break;
    case 1:
        MUST(reshard_layernorm_create(NULL, 8, 1e-5, &o, &made));
        break;
    case 2:
        MUST(reshard_rmsnorm_create(NULL, 8, 1e-5, &o, &made));
        break;
    case 3:
        MUST(reshard_mlp_create(NULL, 8, 11, RESHARD_ACTIVATION_GELU, &o, &made));
        break;
    case 4:
        MUST(reshard_attention_create(NULL, 8, 4, &o, &made));
        break;
    case 5:
        MUST(reshard_block_create(NULL, 8, 2, &o, &made));
        break;
    case 6:
        MUST(reshard_embedding_create(NULL, 9, 8, &o, &made));
        break;
    default: {
        reshard_gpt_options g = {.size = sizeof g,
                                 .vocabulary = 9,
                                 .length = 3,
                                 .width = 8,
                                 .heads = 4,
                                 .layers = 1,
                                 .dtype = RESHARD_F64};
        MUST(reshard_gpt_create(NULL, &g, &made));
    }
    }
    return made;
}

/* [2, 3, 8] numbers, or [2, 3] tokens. */
static reshard_tensor *make_input(int64_t which)
{
    if (which < 6)
        return make_leaf(SHAPE(2, 3, 8));
    reshard_tensor *tokens = make_zeros(RESHARD_I64, SHAPE(2, 3));
    for (int64_t i = 0; i < 6; i++)
        set_element(tokens, i, (double)(i * 5 % 9));
    return tokens;
}

/* A layout for a parameter of that many dims, over all four ranks of one mesh or another. */
static const char *draw_spec(draw_state *draw, int32_t ndim)
{
    static const char *const lines[] = {
        "4: S(0)",          "4: R",       "2,2: S(0), R",    "2,2: R, S(0)",
        "4[3,1,0,2]: S(0)", "4: S(flat)", "4: S(0, unit=2)", "4: A(2)",
        "3: S(0)"};
    static const char *const more[] = {"4: S(1)", "4: S(-1, unit=2)", "2,2: S(0), S(1)",
                                       "2,2: S(1)@0, S(1)@1", "2,2: S(1)@1, S(1)@0"};
    int64_t count = 9 + (ndim > 1 ? 5 : 0), i = draw_below(draw, count);
    return i < 9 ? lines[i] : more[i - 9];
}

/* The sum of all outputs with weights of the test's own, and everybody's gradients. */
static reshard_status run_backward(reshard_tensor *y)
{
    reshard_tensor *whole = (reshard_tensor_layout(y) != NULL) ? reshard_tensor_full(y) : y;
    CHECK(whole != NULL);
    draw_state draw;
    draw_seed(&draw, 23);
    reshard_tensor *weights =
        make_random(RESHARD_F64, &draw, reshard_tensor_ndim(y), reshard_tensor_shape(y));
    reshard_status status = reshard_backward(reshard_sum(reshard_mul(whole, weights)), NULL, NULL);
    reshard_tensor_release(weights);
    return status;
}

static reshard_status compare(reshard_tensor *expected, reshard_tensor *seen)
{
    CHECK(expected != NULL && seen != NULL);
    if (reshard_tensor_layout(seen) != NULL)
        seen = reshard_tensor_full(seen);
    CHECK(seen != NULL && reshard_tensor_volume(seen) == reshard_tensor_volume(expected));
    for (int64_t i = 0; i < reshard_tensor_volume(expected); i++)
        CHECK(fabs(element(expected, i) - element(seen, i)) < 1e-11);
    return RESHARD_OK;
}

/* Shards some parameters at random, in one plan or two. */
static reshard_status shard_some(reshard_module *module, draw_state *draw, reshard_group *group)
{
    reshard_named_tensors *list = NULL;
    reshard_sharding_plan *plans[2] = {NULL, NULL};
    reshard_status status = RESHARD_OK;
    MUST(reshard_module_parameters(module, &list));
    for (int i = 0; i < 2; i++)
        MUST(reshard_sharding_plan_create(NULL, &plans[i]));
    for (int64_t i = 0; i < list->count; i++) {
        if (!draw_chance(draw, 40))
            continue;
        reshard_spec *spec = make_spec(draw_spec(draw, reshard_tensor_ndim(list->items[i].tensor)));
        MUST(reshard_sharding_plan_add(plans[draw_below(draw, 2)], list->items[i].name, spec));
        reshard_spec_release(spec);
    }
    for (int i = 0; i < 2 && status == RESHARD_OK; i++)
        status = reshard_module_shard(module, plans[i], 0, group, NULL);
    for (int i = 0; i < 2; i++)
        reshard_sharding_plan_destroy(plans[i]);
    reshard_named_tensors_destroy(list);
    return status;
}

static reshard_status compare_modules(reshard_module *plain, reshard_module *spread)
{
    reshard_named_tensors *expected = NULL, *seen = NULL;
    reshard_status status = RESHARD_OK;
    MUST(reshard_module_parameters(plain, &expected));
    MUST(reshard_module_parameters(spread, &seen));
    for (int64_t i = 0; i < expected->count && status == RESHARD_OK; i++)
        status = compare(reshard_tensor_gradient(expected->items[i].tensor),
                         reshard_tensor_gradient(seen->items[i].tensor));
    reshard_named_tensors_destroy(expected);
    reshard_named_tensors_destroy(seen);
    return status;
}

typedef struct one_case {
    int64_t which;
    uint64_t seed;
} one_case;

static reshard_status body_follow(void *user, reshard_group *group)
{
    const one_case *c = user;
    static const char *const inputs[] = {NULL,           "4: R",     "4: S(0)", "2,2: S(0), R",
                                         "2,2: R, S(1)", "4: S(-1)", "boxes"};
    draw_state draw;
    draw_seed(&draw, c->seed);
    reshard_module *plain = make_layer(c->which), *spread = make_layer(c->which);
    reshard_tensor *x = make_input(c->which), *given = reshard_tensor_retain(x), *own = NULL;
    TRY(shard_some(spread, &draw, group));
    /* a GPT makes positions for all of its tokens, which are local */
    const char *text = c->which < 7 ? inputs[draw_below(&draw, 7)] : NULL;
    if (text != NULL && strcmp(text, "boxes") == 0)
        text = c->which < 6 ? "boxes 2x3x8: 0[0:1,0:3,0:8] 2[1:2,0:3,0:8]"
                            : "boxes 2x3: 0[0:1,0:3] 2[1:2,0:3]";
    if (text != NULL) {
        reshard_tensor_release(given);
        given = own = distribute(group, text, x);
    }
    reshard_scope *scope = NULL;
    MUST(reshard_scope_open(NULL, &scope));
    reshard_tensor *y = reshard_module_forward(plain, x), *z = NULL;
    TRY(run_backward(y));
    z = reshard_module_forward(spread, given);
    TRY(reshard_scope_status(scope));
    TRY(compare(y, z));
    TRY(run_backward(z));
    if (own != NULL && c->which < 6)
        TRY(compare(reshard_tensor_gradient(x), reshard_tensor_gradient(own)));
    TRY(compare_modules(plain, spread));
    TRY(reshard_scope_close(scope));
    reshard_tensor_release(given);
    reshard_tensor_release(x);
    reshard_module_release(plain);
    reshard_module_release(spread);
    return RESHARD_OK;
}

static void test_follow__any_layer_any_plan(void **state)
{
    (void)state;
    uint64_t seeds = harness_scale() < 1 ? 4 : (uint64_t)(25 * harness_scale());
    for (int64_t which = 0; which < LAYERS; which++) {
        for (uint64_t seed = 0; seed < seeds; seed++) {
            one_case c = {which, 1000 * (uint64_t)which + seed};
            print_message("layer %d, seed %d\n", (int)which, (int)c.seed);
            run_ranks(4, body_follow, &c);
        }
    }
}

/* Column-cut rows of fc1, row-cut columns of fc2, biases unnamed: the gradient of a local bias is
 * the whole bias's on every rank, and nothing but the output is summed. */
static reshard_status body_weights_only(void *user, reshard_group *group)
{
    (void)user;
    reshard_layer_options o = {.size = sizeof o, .dtype = RESHARD_F64, .seed = 9};
    reshard_module *plain = NULL, *spread = NULL;
    reshard_sharding_plan *plan = NULL;
    reshard_spec *rows = make_spec("4: S(0)"), *columns = make_spec("4: S(1)");
    MUST(reshard_mlp_create(NULL, 12, 20, RESHARD_ACTIVATION_RELU, &o, &plain));
    MUST(reshard_mlp_create(NULL, 12, 20, RESHARD_ACTIVATION_RELU, &o, &spread));
    MUST(reshard_sharding_plan_create(NULL, &plan));
    MUST(reshard_sharding_plan_add(plan, "fc1.weight", rows));
    MUST(reshard_sharding_plan_add(plan, "fc2.weight", columns));
    TRY(reshard_module_shard(spread, plan, 0, group, NULL));
    reshard_tensor *x = make_leaf(SHAPE(5, 12)), *bias = NULL;
    reshard_scope *scope = NULL;
    MUST(reshard_scope_open(NULL, &scope));
    reshard_tensor *y = reshard_module_forward(plain, x);
    TRY(run_backward(y));
    reshard_tensor *z = reshard_module_forward(spread, x);
    TRY(compare(y, z));
    CHECK(reshard_tensor_layout(z)->rank_count == 4);
    TRY(run_backward(z));
    TRY(compare_modules(plain, spread));
    MUST(reshard_module_find_tensor(spread, "fc1.bias", &bias));
    CHECK(reshard_tensor_layout(bias) == NULL);
    CHECK(reshard_tensor_layout(reshard_tensor_gradient(bias)) == NULL);
    TRY(reshard_scope_close(scope));
    reshard_tensor_release(x);
    reshard_sharding_plan_destroy(plan);
    reshard_spec_release(rows);
    reshard_spec_release(columns);
    reshard_module_release(plain);
    reshard_module_release(spread);
    return RESHARD_OK;
}

static void test_follow__weights_only(void **state)
{
    (void)state;
    run_ranks(4, body_weights_only, NULL);
}

/* Heads that no rank has whole are put together, and sequences that are cut stay so. */
static reshard_status body_heads(void *user, reshard_group *group)
{
    static const char *const names[] = {"q.weight", "k.weight", "v.weight"};
    (void)user;
    reshard_module *plain = make_layer(4), *spread = make_layer(4);
    reshard_sharding_plan *plan = NULL;
    MUST(reshard_sharding_plan_create(NULL, &plan));
    for (int i = 0; i < 3; i++)
        MUST(reshard_sharding_plan_add_text(plan, names[i], "2,2: R, S(0/1)"));
    TRY(reshard_module_shard(spread, plan, 0, group, NULL));
    reshard_tensor *x = make_input(4), *rows = distribute(group, "2,2: S(0), R", x);
    reshard_scope *scope = NULL;
    MUST(reshard_scope_open(NULL, &scope));
    reshard_tensor *y = reshard_module_forward(plain, x), *z = NULL;
    TRY(run_backward(y));
    z = reshard_module_forward(spread, rows);
    TRY(reshard_scope_status(scope));
    TRY(compare(y, z));
    CHECK(reshard_tensor_shape(reshard_tensor_local_shard(z, 0))[0] == 1);
    TRY(run_backward(z));
    TRY(compare(reshard_tensor_gradient(x), reshard_tensor_gradient(rows)));
    TRY(compare_modules(plain, spread));
    TRY(reshard_scope_close(scope));
    reshard_sharding_plan_destroy(plan);
    reshard_tensor_release(rows);
    reshard_tensor_release(x);
    reshard_module_release(plain);
    reshard_module_release(spread);
    return RESHARD_OK;
}

static void test_follow__heads_that_nobody_has_whole(void **state)
{
    (void)state;
    run_ranks(4, body_heads, NULL);
}

/* A layer cannot compute with tensors of two groups, which the plan says before anything moves. */
static reshard_status body_two_groups(void *user, reshard_group *group)
{
    (void)user;
    int32_t members[] = {0, 1};
    reshard_group *pair = NULL;
    reshard_layer_options o = {.size = sizeof o};
    reshard_module *linear = NULL;
    reshard_spec *rows = make_spec("2: S(0)");
    TRY(reshard_group_subset(group, 2, members, &pair));
    MUST(reshard_linear_create(NULL, 4, 4, &o, &linear));
    if (pair != NULL) {
        TRY(reshard_module_shard_parameter(linear, "weight", rows, 0, group));
        CHECK(reshard_module_shard_parameter(linear, "bias", rows, 0, pair) == RESHARD_ERR_INVALID);
        CHECK(strstr(reshard_error_text(), "\"bias\": the weight of this linear is distributed "
                                           "over another group") != NULL);
        reshard_tensor *bias = NULL;
        MUST(reshard_module_find_tensor(linear, "bias", &bias));
        CHECK(reshard_tensor_layout(bias) == NULL);
    }
    reshard_spec_release(rows);
    reshard_module_release(linear);
    reshard_group_release(pair);
    return RESHARD_OK;
}

static void test_follow__two_groups_are_refused(void **state)
{
    (void)state;
    run_ranks(2, body_two_groups, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_follow__weights_only),
        cmocka_unit_test(test_follow__any_layer_any_plan),
        cmocka_unit_test(test_follow__heads_that_nobody_has_whole),
        cmocka_unit_test(test_follow__two_groups_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
