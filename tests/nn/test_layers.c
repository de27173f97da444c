/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_layers.c - ready modules: gradients of all their parameters against finite differences, in
 * f64, and what they refuse.
 */
#include "tests/support/check.h"
#include "tests/tensor/gradients.h"

#include <string.h>

/* A module's gradients: its parameters are moved one by one; the input is given. */
typedef struct subject {
    reshard_module *module;
    reshard_tensor *input;
} subject;

static reshard_tensor *run_subject(reshard_tensor *const *inputs, const void *user)
{
    const subject *s = user;
    (void)inputs;
    return reshard_module_forward(s->module, s->input);
}

static void check_gradients(const char *name, reshard_module *module, reshard_tensor *input)
{
    subject s = {module, input};
    reshard_named_tensors *list = NULL;
    MUST(reshard_module_parameters(module, &list));
    for (int64_t i = 0; i < list->count; i++) {
        words said = {""};
        if (!gradients_check(run_subject, 1, &list->items[i].tensor, &s, &said))
            fail_msg("%s: %s: %s", name, list->items[i].name, said.text);
        assert_non_null(reshard_tensor_gradient(list->items[i].tensor));
        for (int64_t k = 0; k < list->count; k++)
            reshard_tensor_clear_gradient(list->items[k].tensor);
    }
    words said = {""};
    if (reshard_tensor_dtype(input) == RESHARD_F64 &&
        !gradients_check(run_subject, 1, &input, &s, &said))
        fail_msg("%s: input: %s", name, said.text);
    reshard_named_tensors_destroy(list);
}

static reshard_layer_options options_of(uint64_t seed)
{
    return (reshard_layer_options){
        .size = sizeof(reshard_layer_options), .dtype = RESHARD_F64, .seed = seed};
}

static void test_gradients__simple_layers(void **state)
{
    (void)state;
    reshard_layer_options options = options_of(3);
    reshard_module *m[7] = {NULL};
    draw_state draw;
    draw_seed(&draw, 1);
    MUST(reshard_linear_create(NULL, 3, 4, &options, &m[0]));
    MUST(reshard_layernorm_create(NULL, 4, 1e-5, &options, &m[1]));
    MUST(reshard_activation_create(NULL, RESHARD_ACTIVATION_GELU, &m[2]));
    MUST(reshard_rmsnorm_create(NULL, 4, 1e-5, &options, &m[3]));
    MUST(reshard_activation_create(NULL, RESHARD_ACTIVATION_SILU, &m[4]));
    options.no_bias = 1;
    MUST(reshard_linear_create(NULL, 4, 2, &options, &m[5]));
    MUST(reshard_activation_create(NULL, RESHARD_ACTIVATION_RELU, &m[6]));
    reshard_module *all = NULL;
    MUST(reshard_sequential_create(NULL, 7, m, &all));
    reshard_tensor *x = make_random(RESHARD_F64, &draw, SHAPE(2, 3)), *bias = NULL;
    check_gradients("sequential", all, x);
    MUST(reshard_module_find_tensor(all, "5.bias", &bias));
    assert_null(bias);
    for (size_t i = 0; i < 7; i++)
        reshard_module_release(m[i]);
    reshard_module_release(all);
    reshard_tensor_release(x);
}

static void test_gradients__block(void **state)
{
    (void)state;
    reshard_layer_options options = options_of(4);
    reshard_module *block = NULL;
    draw_state draw;
    draw_seed(&draw, 2);
    MUST(reshard_block_create(NULL, 4, 2, &options, &block));
    reshard_tensor *x = make_random(RESHARD_F64, &draw, SHAPE(2, 3, 4));
    check_gradients("block", block, x);
    reshard_module_release(block);
    reshard_tensor_release(x);
}

static reshard_module *make_gpt(uint64_t seed)
{
    reshard_gpt_options options = {.size = sizeof options,
                                   .vocabulary = 5,
                                   .length = 3,
                                   .width = 4,
                                   .heads = 2,
                                   .layers = 1,
                                   .dtype = RESHARD_F64,
                                   .seed = seed};
    reshard_module *gpt = NULL;
    MUST(reshard_gpt_create(NULL, &options, &gpt));
    return gpt;
}

static void test_gradients__gpt(void **state)
{
    (void)state;
    static const int64_t tokens[] = {0, 3, 4, 1, 0, 2};
    reshard_module *gpt = make_gpt(5);
    reshard_tensor *x = NULL, *a = NULL, *b = NULL;
    MUST(reshard_tensor_from_data(NULL, RESHARD_I64, SHAPE(2, 3), tokens, &x));
    check_gradients("gpt", gpt, x);
    MUST(reshard_module_find_tensor(gpt, "wte.weight", &a));
    MUST(reshard_module_find_tensor(gpt, "head.weight", &b));
    assert_ptr_equal(a, b);
    reshard_module_release(gpt);
    reshard_tensor_release(x);
}

/* A position sees itself and what is before it, and nothing behind it. */
static void test_gpt__is_causal(void **state)
{
    (void)state;
    int64_t tokens[] = {0, 3, 4};
    reshard_module *gpt = make_gpt(6);
    double before[15];
    for (int round = 0; round < 2; round++) {
        reshard_scope *scope = NULL;
        reshard_tensor *x = NULL;
        MUST(reshard_tensor_from_data(NULL, RESHARD_I64, SHAPE(1, 3), tokens, &x));
        MUST(reshard_scope_open(NULL, &scope));
        reshard_tensor *y = reshard_module_forward(gpt, x);
        assert_non_null(y);
        for (int64_t i = 0; i < 15; i++) {
            if (round == 0)
                before[i] = element(y, i);
            else
                assert_true((before[i] == element(y, i)) == (i < 10));
        }
        MUST(reshard_scope_close(scope));
        reshard_tensor_release(x);
        tokens[2] = 1;
    }
    reshard_module_release(gpt);
}

static void test_init__by_seed(void **state)
{
    (void)state;
    reshard_module *a = make_gpt(7), *b = make_gpt(7), *c = make_gpt(8);
    reshard_named_tensors *x = NULL, *y = NULL, *z = NULL;
    MUST(reshard_module_parameters(a, &x));
    MUST(reshard_module_parameters(b, &y));
    MUST(reshard_module_parameters(c, &z));
    bool other = false;
    for (int64_t i = 0; i < x->count; i++) {
        for (int64_t k = 0; k < reshard_tensor_volume(x->items[i].tensor); k++) {
            assert_true(element(x->items[i].tensor, k) == element(y->items[i].tensor, k));
            other = other || element(x->items[i].tensor, k) != element(z->items[i].tensor, k);
        }
    }
    assert_true(other);
    /* q and k differ, though they have the same shape. */
    reshard_tensor *q = NULL, *k = NULL;
    MUST(reshard_module_find_tensor(a, "h.0.attn.q.weight", &q));
    MUST(reshard_module_find_tensor(a, "h.0.attn.k.weight", &k));
    assert_true(element(q, 0) != element(k, 0));
    reshard_named_tensors_destroy(x);
    reshard_named_tensors_destroy(y);
    reshard_named_tensors_destroy(z);
    reshard_module_release(a);
    reshard_module_release(b);
    reshard_module_release(c);
}

/* The heads of a GPT are those of its own attention; whatever replaced it has none to tell. */
static void test_gpt_plan__needs_its_own_attention(void **state)
{
    (void)state;
    reshard_module *gpt = make_gpt(7), *other = NULL;
    reshard_sharding_plan *plan = NULL;
    reshard_mesh *mesh = NULL;
    const int32_t size = 2;
    MUST(reshard_linear_create(NULL, 4, 4, NULL, &other));
    MUST(reshard_module_replace_child(gpt, "h.0.attn", other));
    MUST(reshard_mesh_create(NULL, 1, NULL, &size, NULL, &mesh));
    MUST(reshard_sharding_plan_create(NULL, &plan));
    assert_int_equal(reshard_sharding_plan_add_gpt(plan, gpt, mesh, 0, 0), RESHARD_ERR_INVALID);
    assert_non_null(strstr(reshard_error_text(), "h.0.attn: a module of kind linear"));
    reshard_sharding_plan_destroy(plan);
    reshard_mesh_release(mesh);
    reshard_module_release(other);
    reshard_module_release(gpt);
}

static void test_layers__refused(void **state)
{
    (void)state;
    reshard_module *m = NULL;
    reshard_layer_options options = options_of(0);
    assert_int_equal(reshard_attention_create(NULL, 6, 4, NULL, &m), RESHARD_ERR_INVALID);
    assert_non_null(strstr(reshard_error_text(), "a width of 6"));
    assert_int_equal(reshard_linear_create(NULL, -1, 4, NULL, &m), RESHARD_ERR_RANGE);
    options.dtype = RESHARD_I64;
    assert_int_equal(reshard_linear_create(NULL, 1, 4, &options, &m), RESHARD_ERR_UNSUPPORTED);
    static const double wrong[] = {NAN, INFINITY, -INFINITY, -0.02};
    for (int i = 0; i < 4; i++) {
        options = options_of(0);
        options.deviation = wrong[i];
        assert_int_equal(reshard_linear_create(NULL, 1, 4, &options, &m), RESHARD_ERR_RANGE);
        assert_int_equal(reshard_embedding_create(NULL, 1, 4, &options, &m), RESHARD_ERR_RANGE);
        assert_int_equal(reshard_block_create(NULL, 4, 2, &options, &m), RESHARD_ERR_RANGE);
        assert_non_null(strstr(reshard_error_text(), "a standard deviation of "));
    }
    options.size = 1;
    assert_int_equal(reshard_linear_create(NULL, 1, 4, &options, &m), RESHARD_ERR_INVALID);
    assert_int_equal(reshard_activation_create(NULL, (reshard_activation)7, &m),
                     RESHARD_ERR_INVALID);
    assert_int_equal(reshard_block_create(NULL, INT64_MAX, 1, NULL, &m), RESHARD_ERR_RANGE);
    assert_null(m);

    static const int64_t tokens[] = {0, 1, 2, 3};
    reshard_scope *scope = NULL;
    reshard_tensor *x = NULL;
    reshard_module *gpt = make_gpt(1);
    MUST(reshard_tensor_from_data(NULL, RESHARD_I64, SHAPE(1, 4), tokens, &x));
    MUST(reshard_scope_open(NULL, &scope));
    assert_null(reshard_module_forward(gpt, x));
    assert_int_equal(reshard_scope_close(scope), RESHARD_ERR_INVALID);
    assert_non_null(strstr(reshard_error_text(), "up to 3 positions"));
    reshard_tensor_release(x);
    reshard_module_release(gpt);
}

static void test_activation__kinds(void **state)
{
    (void)state;
    reshard_module *made = NULL;
    static const int wrong[] = {-1, RESHARD_ACTIVATION_SILU + 1, 1000};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(reshard_activation_create(NULL, (reshard_activation)wrong[i], &made),
                         RESHARD_ERR_INVALID);
        assert_non_null(strstr(reshard_error_text(), "activation"));
        assert_null(made);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_activation__kinds),
        cmocka_unit_test(test_gradients__simple_layers),
        cmocka_unit_test(test_gradients__block),
        cmocka_unit_test(test_gradients__gpt),
        cmocka_unit_test(test_gpt__is_causal),
        cmocka_unit_test(test_init__by_seed),
        cmocka_unit_test(test_gpt_plan__needs_its_own_attention),
        cmocka_unit_test(test_layers__refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
