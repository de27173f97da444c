/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_own.c - operations of a user: local ones against built-in ones, layouts by rules, what hooks
 * see, and wrong callbacks, which have to end in words on all ranks. test_differences.c compares
 * their gradients with finite differences, on random layouts.
 */
#include "layout/layout.h"
#include "tests/support/check.h"
#include "tests/tensor/distributed.h"
#include "tests/tensor/own_operations.h"

#include <string.h>

/* ---- local ----------------------------------------------------------------------------------- */

static void test_own__local_like_built_in(void **state)
{
    (void)state;
    reshard_scope *scope = NULL;
    draw_state draw;
    draw_seed(&draw, 1);
    reshard_tensor *x = make_random(RESHARD_F64, &draw, SHAPE(3, 4));
    reshard_tensor *y = reshard_tensor_retain(x), *gradients[2];
    MUST(reshard_tensor_set_requires_grad(x, 1));
    for (int way = 0; way < 2; way++) {
        MUST(reshard_scope_open(NULL, &scope));
        /* through a transpose, so that the input is not dense */
        reshard_tensor *turned = reshard_tensor_transpose(x, 0, 1);
        reshard_tensor *z =
            way == 0 ? apply_own_tanh(turned) : reshard_tanh(reshard_scale(turned, 0.75));
        MUST(reshard_backward(reshard_sum(reshard_mul(z, z)), NULL, NULL));
        gradients[way] = reshard_tensor_retain(reshard_tensor_gradient(x));
        reshard_tensor_clear_gradient(x);
        MUST(reshard_scope_close(scope));
    }
    for (int64_t i = 0; i < 12; i++)
        assert_true(fabs(element(gradients[0], i) - element(gradients[1], i)) < 1e-14);
    reshard_tensor_release(gradients[0]);
    reshard_tensor_release(gradients[1]);
    reshard_tensor_release(x);
    reshard_tensor_release(y);
}

/* A callback may return its input; both then have gradients of their own. */
static reshard_status same_forward(reshard_operation_call *call, reshard_tensor *const *inputs,
                                   reshard_tensor **outputs)
{
    (void)call;
    outputs[0] = inputs[0];
    return RESHARD_OK;
}

static reshard_status twice_backward(reshard_operation_call *call, reshard_tensor *const *gradients,
                                     reshard_tensor **out_gradients)
{
    (void)call;
    out_gradients[0] = reshard_scale(gradients[0], 2);
    return RESHARD_OK;
}

static void test_own__input_as_output_and_passes(void **state)
{
    (void)state;
    static const reshard_operation same = {
        .size = sizeof same, .name = "same", .forward = same_forward, .backward = twice_backward};
    reshard_scope *scope = NULL;
    reshard_backward_options retain = {.size = sizeof retain, .retain_graph = 1};
    reshard_tensor *x = make_zeros(RESHARD_F64, SHAPE(2));
    MUST(reshard_tensor_set_requires_grad(x, 1));
    MUST(reshard_scope_open(NULL, &scope));
    reshard_tensor *y = reshard_operation_run(&same, NULL, &x, NULL);
    assert_true(y != x);
    reshard_tensor *loss = reshard_sum(reshard_add(y, x));
    MUST(reshard_backward(loss, NULL, &retain));
    assert_true(element(reshard_tensor_gradient(x), 0) == 3);
    MUST(reshard_backward(loss, NULL, NULL)); /* adds up */
    assert_true(element(reshard_tensor_gradient(x), 1) == 6);
    assert_int_equal(reshard_backward(loss, NULL, NULL), RESHARD_ERR_INVALID); /* freed */
    assert_int_equal(reshard_scope_close(scope), RESHARD_ERR_INVALID);
    reshard_tensor_release(x);
}

/* ---- layouts --------------------------------------------------------------------------------- */

static reshard_status check_layout(reshard_tensor *tensor, const char *expected)
{
    char text[200];
    size_t length = 0;
    CHECK(tensor != NULL);
    TRY(reshard_spec_text(reshard_tensor_layout(tensor)->spec, text, sizeof text, &length));
    if (strcmp(text, expected) != 0) {
        char words[500];
        (void)snprintf(words, sizeof words, "\"%s\", not \"%s\"", text, expected);
        return reshard_error_set(RESHARD_ERR_CHECK, words);
    }
    return RESHARD_OK;
}

static reshard_status layouts_body(void *user, reshard_group *group)
{
    static const struct {
        const char *x, *w, *y; /* of own_times */
        const char *rows;      /* of own_rows of x */
    } cases[] = {
        {"dp=2,tp=2: R, R", "dp=2,tp=2: R, R", "dp=2,tp=2: R, R", "dp=2,tp=2: R, R"},
        {"dp=2,tp=2: S(0), R", "dp=2,tp=2: R, R", "dp=2,tp=2: S(0), R", "dp=2,tp=2: S(0), R"},
        {"dp=2,tp=2: S(0), S(2)", "dp=2,tp=2: R, S(0)", "dp=2,tp=2: S(0), S(2)",
         "dp=2,tp=2: S(0), P(sum)"},
        {"dp=2,tp=2: S(1), S(1)", "dp=2,tp=2: R, R", "dp=2,tp=2: S(1), S(1)",
         "dp=2,tp=2: S(1), S(1)"},
        {"dp=2,tp=2: S(0)@tp, S(0)@dp", "dp=2,tp=2: R, R", "dp=2,tp=2: S(0)@tp, S(0)@dp",
         "dp=2,tp=2: S(0)@tp, S(0)@dp"},
    };
    (void)user;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        reshard_scope *scope = NULL;
        reshard_tensor *t[] = {
            spread_random(group, cases[i].x, RESHARD_F64, SHAPE(4, 5, 6), 1),
            spread_random(group, cases[i].w, RESHARD_F64, SHAPE(6), 2),
        };
        TRY(reshard_scope_open(NULL, &scope));
        TRY(check_layout(reshard_operation_run(&own_times, NULL, t, NULL), cases[i].y));
        TRY(check_layout(reshard_operation_run(&own_rows, NULL, t, NULL), cases[i].rows));
        TRY(check_layout(apply_own_tanh(t[0]), cases[i].x));
        TRY(reshard_scope_close(scope));
        reshard_tensor_release(t[0]);
        reshard_tensor_release(t[1]);
    }
    return RESHARD_OK;
}

static void test_own__layouts_by_rules(void **state)
{
    (void)state;
    MUST(reshard_group_run(NULL, 4, layouts_body, NULL));
}

/* An operation on whole distributed tensors. */
static reshard_status whole_body(void *user, reshard_group *group)
{
    (void)user;
    reshard_scope *scope = NULL;
    reshard_spec *everywhere = spec_of("3: R");
    reshard_tensor *x = spread_random(group, "3: S(0)", RESHARD_F64, SHAPE(5), 3);
    TRY(reshard_tensor_set_requires_grad(x, 1));
    TRY(reshard_scope_open(NULL, &scope));
    reshard_tensor *y = reshard_operation_run(&own_gather, &everywhere, &x, NULL);
    TRY(check_layout(y, "3: R"));
    TRY(reshard_backward(reshard_sum(reshard_mul(y, y)), NULL, NULL));
    TRY(check_layout(reshard_tensor_gradient(x), "3: S(0)"));
    reshard_tensor *whole = whole_of(x), *gradient = whole_of(reshard_tensor_gradient(x));
    for (int64_t i = 0; i < 5; i++)
        CHECK(fabs(element(gradient, i) - 8 * element(whole, i)) < 1e-14);
    reshard_tensor_release(whole);
    reshard_tensor_release(gradient);
    TRY(reshard_scope_close(scope));
    reshard_tensor_release(x);
    reshard_spec_release(everywhere);
    return RESHARD_OK;
}

static void test_own__whole_tensors(void **state)
{
    (void)state;
    MUST(reshard_group_run(NULL, 3, whole_body, NULL));
}

/* ---- hooks ----------------------------------------------------------------------------------- */

typedef struct seen {
    int count, distributed;
} seen;

static reshard_status pack(void *user, reshard_tensor *tensor, void **out_packed)
{
    seen *s = user;
    s->count++;
    s->distributed += reshard_tensor_layout(tensor) != NULL;
    *out_packed = reshard_tensor_retain(tensor);
    return RESHARD_OK;
}

static reshard_status unpack(void *user, void *packed, reshard_tensor **out_tensor)
{
    (void)user;
    *out_tensor = reshard_tensor_retain(packed);
    return RESHARD_OK;
}

static void forget(void *user, void *packed)
{
    (void)user;
    reshard_tensor_release(packed);
}

/* Hooks see saved inputs and outputs with their layouts, and other saved tensors shard by
 * shard. */
static reshard_status hooks_body(void *user, reshard_group *group)
{
    (void)user;
    seen s = {0};
    reshard_saved_tensor_hooks hooks = {pack, unpack, forget, &s};
    reshard_scope *scope = NULL;
    reshard_tensor *x = spread_random(group, "2: R", RESHARD_F64, SHAPE(3), 1);
    TRY(reshard_tensor_set_requires_grad(x, 1));
    TRY(reshard_scope_open(NULL, &scope));
    TRY(reshard_saved_tensor_hooks_push(NULL, &hooks));
    reshard_tensor *y = apply_own_tanh(x); /* its output */
    CHECK(s.count == 1 && s.distributed == 1);
    y = apply_own_powers(y, 0); /* its input, and a tensor of its own */
    CHECK(s.count == (reshard_group_rank(group) < 2 ? 3 : 2) && s.distributed == 2);
    TRY(reshard_saved_tensor_hooks_pop());
    TRY(reshard_backward(reshard_sum(y), NULL, NULL));
    TRY(reshard_scope_close(scope));
    reshard_tensor_release(x);
    return RESHARD_OK;
}

static void test_own__hooks_see_layouts(void **state)
{
    (void)state;
    MUST(reshard_group_run(NULL, 3, hooks_body, NULL)); /* rank 2 has no shard */
}

/* ---- refusals -------------------------------------------------------------------------------- */

typedef enum wrong {
    FAILS,
    FAILS_WITHOUT_WORDS,
    GIVES_NOTHING,
    GIVES_OTHER_SHAPE,
    GIVES_OTHER_DTYPE,
    BACKWARD_FAILS,
    BACKWARD_OTHER_SHAPE,
    WRONGS
} wrong;

/* What one rank does wrong. */
typedef struct wrong_data {
    wrong what;
    int here;
} wrong_data;

static reshard_status wrong_forward(reshard_operation_call *call, reshard_tensor *const *inputs,
                                    reshard_tensor **outputs)
{
    const wrong_data *data = call->data;
    outputs[0] = reshard_scale(inputs[0], 1);
    if (!data->here)
        return RESHARD_OK;
    if (data->what == FAILS)
        return reshard_error_set(RESHARD_ERR_IO, "no such luck");
    if (data->what == FAILS_WITHOUT_WORDS)
        return RESHARD_ERR_RANGE;
    if (data->what == GIVES_NOTHING)
        outputs[0] = NULL;
    if (data->what == GIVES_OTHER_SHAPE)
        outputs[0] = reshard_sum(inputs[0]);
    if (data->what == GIVES_OTHER_DTYPE)
        outputs[0] = reshard_tensor_cast(inputs[0], RESHARD_F32);
    return RESHARD_OK;
}

static reshard_status wrong_backward(reshard_operation_call *call, reshard_tensor *const *gradients,
                                     reshard_tensor **out_gradients)
{
    const wrong_data *data = call->data;
    out_gradients[0] = gradients[0];
    if (data->here && data->what == BACKWARD_FAILS)
        return reshard_error_set(RESHARD_ERR_IO, "no way back");
    if (data->here && data->what == BACKWARD_OTHER_SHAPE)
        out_gradients[0] = reshard_sum(gradients[0]);
    return RESHARD_OK;
}

static const reshard_operation wrong_operation = {.size = sizeof wrong_operation,
                                                  .name = "wrong",
                                                  .forward = wrong_forward,
                                                  .backward = wrong_backward,
                                                  .data_bytes = sizeof(wrong_data)};

static const char *const wrong_words[WRONGS] = {
    "wrong: forward: no such luck",
    "wrong: forward: it failed without setting an error text",
    "wrong: forward: output 0 is NULL",
    "wrong: forward: output 0 is f64 scalar, not f64 ",
    "wrong: forward: output 0 is f32 ",
    "backward of wrong: backward: no way back",
    "backward of wrong: backward: the gradient of input 0 is f64 scalar, not f64 ",
};

/* Rank 1 does it wrong; all ranks learn of it, and the group goes on. */
static reshard_status wrong_body(void *user, reshard_group *group)
{
    (void)user;
    for (int what = 0; what < WRONGS; what++) {
        reshard_scope *scope = NULL;
        wrong_data data = {(wrong)what, reshard_group_rank(group) == 1};
        reshard_tensor *x = spread_random(group, "3: S(0)", RESHARD_F64, SHAPE(7), 1);
        TRY(reshard_tensor_set_requires_grad(x, 1));
        TRY(reshard_scope_open(NULL, &scope));
        reshard_tensor *y = reshard_operation_run(&wrong_operation, &data, &x, NULL);
        (void)reshard_backward(reshard_sum(y), NULL, NULL);
        CHECK(reshard_scope_close(scope) != RESHARD_OK);
        if (strstr(reshard_error_text(), wrong_words[what]) == NULL) {
            char words[600];
            (void)snprintf(words, sizeof words, "wrong %d: \"%.400s\"", what, reshard_error_text());
            return reshard_error_set(RESHARD_ERR_CHECK, words);
        }
        reshard_tensor_release(x);
    }
    return reshard_group_barrier(group);
}

static void test_own__wrong_callbacks(void **state)
{
    (void)state;
    reshard_tensor *x = make_zeros(RESHARD_F64, SHAPE(4));
    MUST(reshard_tensor_set_requires_grad(x, 1));
    for (int what = 0; what < WRONGS; what++) { /* local */
        reshard_scope *scope = NULL;
        wrong_data data = {(wrong)what, 1};
        MUST(reshard_scope_open(NULL, &scope));
        reshard_tensor *y = reshard_operation_run(&wrong_operation, &data, &x, NULL);
        (void)reshard_backward(reshard_sum(y), NULL, NULL);
        assert_int_not_equal(reshard_scope_close(scope), RESHARD_OK);
        if (strstr(reshard_error_text(), wrong_words[what]) == NULL)
            fail_msg("wrong %d: \"%s\"", what, reshard_error_text());
    }
    reshard_tensor_release(x);
    MUST(reshard_group_run(NULL, 3, wrong_body, NULL));
}

static void refuse(const reshard_operation *operation, reshard_tensor *const *inputs,
                   const char *words)
{
    reshard_scope *scope = NULL;
    MUST(reshard_scope_open(NULL, &scope));
    assert_null(reshard_operation_run(operation, NULL, inputs, NULL));
    assert_int_equal(reshard_scope_close(scope), RESHARD_ERR_INVALID);
    if (strstr(reshard_error_text(), words) == NULL)
        fail_msg("\"%s\", not \"%s\"", reshard_error_text(), words);
}

static void test_own__wrong_operations(void **state)
{
    (void)state;
    reshard_tensor *x = make_zeros(RESHARD_F64, SHAPE(4));
    reshard_operation o = {.size = sizeof o, .forward = same_forward};
    refuse(&o, &x, "the operation has no name");
    o.name = "own";
    o.forward = NULL;
    refuse(&o, &x, "the operation has no forward");
    o.forward = same_forward;
    o.input_count = 17;
    refuse(&o, &x, "own: 17 inputs, 1 outputs and 0 saved tensors; there may be 16 of each");
    o.input_count = 1;
    o.output_count = 2;
    refuse(&o, &x, "own: there is no room for 2 outputs");
    o.output_count = 1;
    o.data_bytes = 8;
    refuse(&o, &x, "own: the data is NULL, and has 8 bytes");
    o.data_bytes = 0;
    MUST(reshard_tensor_set_requires_grad(x, 1));
    refuse(&o, &x, "own: an input requires gradients, and the operation has no backward");
    refuse(NULL, &x, "the operation is NULL");
    reshard_tensor *none = NULL;
    refuse(&o, &none, "own: input 0 is NULL");
    reshard_tensor_release(x);
}

static reshard_status refuse_spread(reshard_group *group, const reshard_operation *operation,
                                    const char *first, const char *second, const char *words)
{
    reshard_scope *scope = NULL;
    reshard_tensor *t[] = {spread_random(group, first, RESHARD_F64, SHAPE(4, 6), 1),
                           spread_random(group, second, RESHARD_F64, SHAPE(6), 2)};
    TRY(reshard_scope_open(NULL, &scope));
    CHECK(reshard_operation_run(operation, NULL, t, NULL) == NULL);
    CHECK(reshard_scope_close(scope) == RESHARD_ERR_INVALID);
    if (strstr(reshard_error_text(), words) == NULL) {
        char found[900];
        (void)snprintf(found, sizeof found, "\"%.400s\", not \"%.400s\"", reshard_error_text(),
                       words);
        return reshard_error_set(RESHARD_ERR_CHECK, found);
    }
    reshard_tensor_release(t[0]);
    reshard_tensor_release(t[1]);
    return RESHARD_OK;
}

static reshard_status rules_body(void *user, reshard_group *group)
{
    (void)user;
    reshard_operation o = own_times;
    TRY(refuse_spread(group, &o, "4: S(1)", "4: R",
                      "own_times: axis 0: no rule for inputs with \"4: S(1)\", \"4: R\""));
    TRY(refuse_spread(group, &o, "4: S(1~)", "4: S(0)", "axis 0: no rule for inputs"));
    TRY(refuse_spread(group, &o, "2,2: S(1), S(1)", "2,2: S(0)@1, S(0)@0", "different orders"));
    TRY(refuse_spread(group, &o, "4: R", "2[0..1]: R", "layouts over different meshes"));
    static const char *const bad[] = {"S(0)", "S(0), R, R", "S(0) R", "S(), R", "Q, R", "S(99), R"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        reshard_operation_rule rule = {bad[i], "S(0)", NULL};
        o.rules = &rule;
        o.rule_count = 1;
        TRY(refuse_spread(group, &o, "4: S(0)", "4: R", "write 2 placements such as"));
    }
    reshard_operation_rule far = {"S(0), R", "S(5)", NULL};
    o.rules = &far;
    TRY(refuse_spread(group, &o, "4: S(0)", "4: R",
                      "a rule cuts dimension 5 of a tensor of 2 dimensions"));
    o.rule_count = 0;
    return refuse_spread(group, &o, "4: S(0)", "4: R", "and the operation has no rules");
}

static void test_own__wrong_rules(void **state)
{
    (void)state;
    MUST(reshard_group_run(NULL, 4, rules_body, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own__local_like_built_in),
        cmocka_unit_test(test_own__input_as_output_and_passes),
        cmocka_unit_test(test_own__layouts_by_rules),
        cmocka_unit_test(test_own__whole_tensors),
        cmocka_unit_test(test_own__hooks_see_layouts),
        cmocka_unit_test(test_own__wrong_callbacks),
        cmocka_unit_test(test_own__wrong_operations),
        cmocka_unit_test(test_own__wrong_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
