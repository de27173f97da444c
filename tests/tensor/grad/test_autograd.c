/* SPDX-License-Identifier: Apache-2.0 */
/* test_autograd.c - the tape: leaves, accumulation, retained graphs, no-grad, order, errors. */
#include "tests/support/check.h"
#include "tests/support/context.h"
#include "tests/support/info.h"
#include "tests/tensor/gradients.h"

static reshard_tensor *make_leaf(double value)
{
    reshard_tensor *x = make_zeros(RESHARD_F64, SHAPE(2));
    MUST(reshard_tensor_fill(x, value));
    MUST(reshard_tensor_set_requires_grad(x, 1));
    return x;
}

static void test_leaf__gradients_add_up_until_cleared(void **state)
{
    (void)state;
    reshard_tensor *x = make_leaf(3);
    for (int turn = 1; turn <= 3; turn++) {
        reshard_scope *scope = NULL;
        MUST(reshard_scope_open(NULL, &scope));
        /* x is used twice: x*x + 2x */
        reshard_tensor *y = reshard_add(reshard_mul(x, x), reshard_scale(x, 2));
        assert_int_equal(reshard_backward(reshard_sum(y), NULL, NULL), RESHARD_OK);
        assert_int_equal(reshard_scope_close(scope), RESHARD_OK);
        assert_true(element(reshard_tensor_gradient(x), 1) == 8.0 * turn);
    }
    reshard_tensor_clear_gradient(x);
    assert_null(reshard_tensor_gradient(x));
    reshard_tensor_release(x);
}

static void test_leaf__gradients_share_no_memory(void **state)
{
    (void)state;
    reshard_tensor *x = make_leaf(1), *y = make_leaf(2), *g = make_zeros(RESHARD_F64, SHAPE(2));
    reshard_scope *scope = NULL;
    MUST(reshard_scope_open(NULL, &scope));
    assert_int_equal(reshard_backward(reshard_add(x, y), g, NULL), RESHARD_OK);
    assert_int_equal(reshard_backward(reshard_tensor_reshape(x, SHAPE(2, 1)),
                                      reshard_tensor_reshape(g, SHAPE(2, 1)), NULL),
                     RESHARD_OK);
    assert_int_equal(reshard_scope_close(scope), RESHARD_OK);
    MUST(reshard_tensor_fill(reshard_tensor_gradient(x), 7));
    assert_true(element(reshard_tensor_gradient(y), 0) == 0);
    assert_true(element(g, 0) == 0);
    reshard_tensor_release(x);
    reshard_tensor_release(y);
    reshard_tensor_release(g);
}

static void test_backward__of_a_leaf_itself(void **state)
{
    (void)state;
    reshard_tensor *x = make_zeros(RESHARD_F32, 0, NULL);
    MUST(reshard_tensor_set_requires_grad(x, 1));
    assert_int_equal(reshard_backward(x, NULL, NULL), RESHARD_OK);
    assert_int_equal(reshard_backward(x, NULL, NULL), RESHARD_OK);
    assert_true(element(reshard_tensor_gradient(x), 0) == 2);
    reshard_tensor_release(x);
}

/* The gradient that a pass begins with is the caller's, and stays so. */
static void test_backward__a_leaf_does_not_take_it_over(void **state)
{
    (void)state;
    reshard_tensor *x = make_leaf(1), *g = make_zeros(RESHARD_F64, SHAPE(2));
    MUST(reshard_tensor_fill(g, 4));
    assert_int_equal(reshard_backward(x, g, NULL), RESHARD_OK);
    assert_true(element(reshard_tensor_gradient(x), 0) == 4);
    MUST(reshard_tensor_fill(g, 5));
    assert_true(element(reshard_tensor_gradient(x), 0) == 4);
    reshard_tensor_release(g);
    reshard_tensor_release(x);
}

static void test_backward__twice_needs_a_retained_graph(void **state)
{
    (void)state;
    reshard_tensor *x = make_leaf(3);
    reshard_scope *scope = NULL;
    MUST(reshard_scope_open(NULL, &scope));
    reshard_tensor *y = reshard_sum(reshard_mul(x, x));
    reshard_backward_options retain = {.size = sizeof retain, .retain_graph = 1};
    assert_int_equal(reshard_backward(y, NULL, &retain), RESHARD_OK);
    assert_int_equal(reshard_backward(y, NULL, NULL), RESHARD_OK);
    assert_true(element(reshard_tensor_gradient(x), 0) == 12);
    assert_int_equal(reshard_backward(y, NULL, NULL), RESHARD_ERR_INVALID);
    assert_string_equal(reshard_error_text(),
                        "backward: what sum saved was freed by an earlier pass, which did not "
                        "retain the graph");
    assert_int_equal(reshard_scope_close(scope), RESHARD_ERR_INVALID);
    assert_true(element(reshard_tensor_gradient(x), 0) == 12);
    reshard_tensor_release(x);
}

static void test_mode__nothing_is_recorded_while_off(void **state)
{
    (void)state;
    reshard_tensor *x = make_leaf(3);
    reshard_scope *outer = NULL, *inner = NULL;
    MUST(reshard_scope_open(NULL, &outer));
    assert_int_equal(reshard_set_gradients_enabled(0), 1);
    assert_false(info_tensor(reshard_mul(x, x)).requires_grad);
    assert_int_equal(reshard_set_gradients_enabled(1), 0);
    assert_true(info_tensor(reshard_mul(x, x)).requires_grad);
    assert_false(info_tensor(reshard_tensor_detach(reshard_mul(x, x))).requires_grad);
    /* A scope puts the mode back when it ends. */
    MUST(reshard_scope_open(NULL, &inner));
    (void)reshard_set_gradients_enabled(0);
    assert_int_equal(reshard_scope_close(inner), RESHARD_OK);
    assert_true(reshard_set_gradients_enabled(1));
    reshard_tensor *y = reshard_relu(x);
    assert_int_equal(reshard_tensor_set_requires_grad(y, 0), RESHARD_ERR_INVALID);
    assert_int_equal(reshard_scope_close(outer), RESHARD_OK);
    reshard_tensor *integers = make_zeros(RESHARD_I64, SHAPE(2));
    assert_int_equal(reshard_tensor_set_requires_grad(integers, 1), RESHARD_ERR_UNSUPPORTED);
    reshard_tensor_release(integers);
    reshard_tensor_release(x);
}

static void test_backward__refusals(void **state)
{
    (void)state;
    reshard_tensor *x = make_leaf(1), *plain = make_zeros(RESHARD_F64, SHAPE(2));
    reshard_tensor *wrong = make_zeros(RESHARD_F64, SHAPE(3));
    reshard_scope *scope = NULL;
    for (int i = 0; i < 5; i++) {
        MUST(reshard_scope_open(NULL, &scope));
        reshard_tensor *y = reshard_relu(x);
        reshard_backward_options options = {.size = 1};
        reshard_status status = i == 0   ? reshard_backward(y, NULL, NULL)
                                : i == 1 ? reshard_backward(y, wrong, NULL)
                                : i == 2 ? reshard_backward(plain, plain, NULL)
                                : i == 3 ? reshard_backward(y, plain, &options)
                                         : reshard_backward(NULL, NULL, NULL);
        assert_int_equal(status, RESHARD_ERR_INVALID);
        assert_true(reshard_error_text()[0] != '\0');
        assert_int_equal(reshard_scope_close(scope), RESHARD_ERR_INVALID);
    }
    assert_null(reshard_tensor_gradient(x));
    reshard_tensor_release(x);
    reshard_tensor_release(plain);
    reshard_tensor_release(wrong);
}

static void test_saved__overwriting_is_found_out(void **state)
{
    (void)state;
    reshard_tensor *x = make_leaf(3);
    reshard_scope *scope = NULL;
    MUST(reshard_scope_open(NULL, &scope));
    reshard_tensor *y = reshard_sum(reshard_mul(x, x));
    MUST(reshard_tensor_fill(x, 4));
    assert_int_equal(reshard_backward(y, NULL, NULL), RESHARD_ERR_INVALID);
    assert_string_equal(reshard_error_text(), "backward of mul: mul: a saved tensor (f64 2) was "
                                              "overwritten before backward");
    assert_int_equal(reshard_scope_close(scope), RESHARD_ERR_INVALID);
    /* An add saves nothing, so it does not mind. */
    MUST(reshard_scope_open(NULL, &scope));
    y = reshard_sum(reshard_add(x, x));
    MUST(reshard_tensor_fill(x, 5));
    assert_int_equal(reshard_backward(y, NULL, NULL), RESHARD_OK);
    assert_int_equal(reshard_scope_close(scope), RESHARD_OK);
    reshard_tensor_release(x);
}

static void test_graph__deep_ones_are_freed_without_recursion(void **state)
{
    (void)state;
    reshard_tensor *x = make_leaf(1), *y = reshard_tensor_retain(x);
    for (int i = 0; i < 200000; i++) {
        reshard_scope *scope = NULL;
        MUST(reshard_scope_open(NULL, &scope));
        reshard_tensor *next = reshard_tensor_retain(reshard_scale(y, 1));
        assert_int_equal(reshard_scope_close(scope), RESHARD_OK);
        reshard_tensor_release(y);
        y = next;
    }
    reshard_tensor *ones = make_zeros(RESHARD_F64, SHAPE(2));
    MUST(reshard_tensor_fill(ones, 1));
    reshard_backward_options retain = {.size = sizeof retain, .retain_graph = 1};
    assert_int_equal(reshard_backward(y, ones, &retain), RESHARD_OK);
    assert_true(element(reshard_tensor_gradient(x), 0) == 1);
    reshard_tensor_release(ones);
    reshard_tensor_release(y);
    reshard_tensor_release(x);
}

/* A diamond: the node that is reached by two ways must run after both. */
static reshard_tensor *diamond(reshard_tensor *const *inputs, const void *user)
{
    (void)user;
    reshard_tensor *middle = reshard_mul(inputs[0], inputs[1]);
    reshard_tensor *one = reshard_gelu(middle), *other = reshard_silu(reshard_scale(middle, 3));
    return reshard_mul(reshard_add(one, middle), other);
}

static void test_graph__diamonds(void **state)
{
    (void)state;
    draw_state draw;
    words said = {""};
    draw_seed(&draw, 3);
    reshard_tensor *inputs[] = {make_random(RESHARD_F64, &draw, SHAPE(3, 2)),
                                make_random(RESHARD_F64, &draw, SHAPE(3, 2))};
    if (!gradients_check(diamond, 2, inputs, NULL, &said))
        fail_msg("%s", said.text);
    reshard_tensor_release(inputs[0]);
    reshard_tensor_release(inputs[1]);
}

/* ---- a whole model --------------------------------------------------------------------------- */

typedef struct mlp {
    reshard_tensor *w1, *b1, *w2, *b2, *x, *labels;
} mlp;

static reshard_status train(reshard_context *context, mlp *m, double *out_loss)
{
    reshard_scope *scope = NULL;
    reshard_status status = reshard_scope_open(context, &scope);
    if (status != RESHARD_OK)
        return status;
    reshard_tensor *hidden = reshard_relu(reshard_linear(m->x, m->w1, m->b1));
    reshard_tensor *loss =
        reshard_cross_entropy(reshard_linear(hidden, m->w2, m->b2), m->labels, NULL);
    (void)reshard_backward(loss, NULL, NULL);
    if (loss != NULL)
        (void)reshard_tensor_value(loss, out_loss);
    return reshard_scope_close(scope);
}

static void descend(reshard_tensor *weight)
{
    const float *gradient = reshard_tensor_data(reshard_tensor_gradient(weight));
    float *values = reshard_tensor_write(weight);
    for (int64_t i = 0; i < reshard_tensor_volume(weight); i++)
        values[i] -= 0.5F * gradient[i];
    reshard_tensor_clear_gradient(weight);
}

static mlp make_mlp(void)
{
    draw_state draw;
    draw_seed(&draw, 5);
    mlp m = {.w1 = make_random(RESHARD_F32, &draw, SHAPE(16, 2)),
             .b1 = make_random(RESHARD_F32, &draw, SHAPE(16)),
             .w2 = make_random(RESHARD_F32, &draw, SHAPE(2, 16)),
             .b2 = make_random(RESHARD_F32, &draw, SHAPE(2)),
             .x = make_zeros(RESHARD_F32, SHAPE(4, 2)),
             .labels = make_zeros(RESHARD_I64, SHAPE(4))};
    for (int i = 0; i < 4; i++) { /* exclusive or */
        set_element(m.x, 2 * i, i / 2);
        set_element(m.x, 2 * i + 1, i % 2);
        set_element(m.labels, i, (i / 2) ^ (i % 2));
    }
    MUST(reshard_tensor_set_requires_grad(m.w1, 1));
    MUST(reshard_tensor_set_requires_grad(m.b1, 1));
    MUST(reshard_tensor_set_requires_grad(m.w2, 1));
    MUST(reshard_tensor_set_requires_grad(m.b2, 1));
    return m;
}

static void release_mlp(mlp *m)
{
    reshard_tensor *all[] = {m->w1, m->b1, m->w2, m->b2, m->x, m->labels};
    for (int i = 0; i < 6; i++)
        reshard_tensor_release(all[i]);
}

static void test_model__learns_exclusive_or(void **state)
{
    (void)state;
    mlp m = make_mlp();
    double loss = 0;
    for (int i = 0; i < 300; i++) {
        assert_int_equal(train(NULL, &m, &loss), RESHARD_OK);
        descend(m.w1);
        descend(m.b1);
        descend(m.w2);
        descend(m.b2);
    }
    assert_true(loss < 0.02);
    release_mlp(&m);
}

static reshard_status attempt_training(reshard_context *context, void *user)
{
    mlp *m = user;
    double loss;
    reshard_status status = train(context, m, &loss);
    reshard_tensor *weights[] = {m->w1, m->b1, m->w2, m->b2};
    for (int i = 0; i < 4; i++)
        reshard_tensor_clear_gradient(weights[i]);
    return status;
}

static void test_model__every_failing_allocation(void **state)
{
    (void)state;
    mlp m = make_mlp();
    words said = {""};
    if (!context_fail_each(attempt_training, &m, &said))
        fail_msg("%s", said.text);
    release_mlp(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_leaf__gradients_add_up_until_cleared),
        cmocka_unit_test(test_leaf__gradients_share_no_memory),
        cmocka_unit_test(test_backward__of_a_leaf_itself),
        cmocka_unit_test(test_backward__a_leaf_does_not_take_it_over),
        cmocka_unit_test(test_backward__twice_needs_a_retained_graph),
        cmocka_unit_test(test_mode__nothing_is_recorded_while_off),
        cmocka_unit_test(test_backward__refusals),
        cmocka_unit_test(test_saved__overwriting_is_found_out),
        cmocka_unit_test(test_graph__deep_ones_are_freed_without_recursion),
        cmocka_unit_test(test_graph__diamonds),
        cmocka_unit_test(test_model__learns_exclusive_or),
        cmocka_unit_test(test_model__every_failing_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
