/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_optimizer.c - SGD, AdamW and clipping, against the formulas written out here in double.
 * Steps on several ranks are tested with a GPT (test_train.c).
 */
#include "tests/support/check.h"
#include "tests/tensor/cuts.h"

#include <math.h>
#include <string.h>

enum { COUNT = 3, STEPS = 5 };

static reshard_value forward_none(reshard_module *module, void *user, reshard_value input)
{
    (void)module;
    (void)user;
    return input;
}

static const double start[COUNT] = {1, -2, 0.5};

static reshard_module *make_module(reshard_dtype dtype, reshard_tensor **out_tensor)
{
    reshard_module *module = NULL;
    reshard_module_kind kind = {.name = "none", .forward = forward_none};
    MUST(reshard_module_create(NULL, &kind, &module));
    reshard_tensor *x = make_zeros(dtype, SHAPE(COUNT));
    for (int64_t i = 0; i < COUNT; i++)
        set_element(x, i, start[i]);
    MUST(reshard_tensor_set_requires_grad(x, 1));
    MUST(reshard_module_add_parameter(module, "x", x));
    MUST(reshard_module_add_parameter(module, "tied", x)); /* stepped once all the same */
    reshard_tensor_release(x);
    *out_tensor = x;
    return module;
}

/* The loss is sum(x * x) / 2 * factor, whose gradient is x * factor. */
static void add_gradient(reshard_tensor *x, double factor)
{
    reshard_scope *scope = NULL;
    MUST(reshard_scope_open(NULL, &scope));
    MUST(reshard_backward(reshard_scale(reshard_sum(reshard_mul(x, x)), factor / 2), NULL, NULL));
    MUST(reshard_scope_close(scope));
}

typedef struct want {
    double value[COUNT], first[COUNT], second[COUNT];
} want;

static void expect_sgd(want *w, int step, const reshard_sgd_options *o)
{
    for (int i = 0; i < COUNT; i++) {
        double g = w->value[i] * (step + 1) + o->weight_decay * w->value[i];
        if (o->momentum != 0) {
            w->first[i] = step == 0 ? g : o->momentum * w->first[i] + g;
            g = o->nesterov ? g + o->momentum * w->first[i] : w->first[i];
        }
        w->value[i] -= o->learning_rate * g;
    }
}

static void expect_adamw(want *w, int step, const reshard_adamw_options *o)
{
    for (int i = 0; i < COUNT; i++) {
        double g = w->value[i] * (step + 1);
        w->value[i] *= 1 - o->learning_rate * o->weight_decay;
        w->first[i] = 0.9 * w->first[i] + 0.1 * g;
        w->second[i] = 0.999 * w->second[i] + 0.001 * g * g;
        double first = w->first[i] / (1 - pow(0.9, step + 1));
        double second = w->second[i] / (1 - pow(0.999, step + 1));
        w->value[i] -= o->learning_rate * first / (sqrt(second) + 1e-8);
    }
}

static void run(reshard_dtype dtype, const reshard_sgd_options *sgd,
                const reshard_adamw_options *adamw)
{
    reshard_tensor *x = NULL;
    reshard_module *module = make_module(dtype, &x);
    reshard_optimizer *optimizer = NULL;
    double close = dtype == RESHARD_F64 ? 1e-13 : 1e-5;
    want w;
    memset(&w, 0, sizeof w);
    memcpy(w.value, start, sizeof start);
    if (sgd != NULL)
        MUST(reshard_sgd_create(NULL, module, sgd, &optimizer));
    else
        MUST(reshard_adamw_create(NULL, module, adamw, &optimizer));
    for (int step = 0; step < STEPS; step++) {
        add_gradient(x, step + 1);
        MUST(reshard_optimizer_step(optimizer));
        reshard_optimizer_clear_gradients(optimizer);
        assert_null(reshard_tensor_gradient(x));
        if (sgd != NULL)
            expect_sgd(&w, step, sgd);
        else
            expect_adamw(&w, step, adamw);
        for (int64_t i = 0; i < COUNT; i++) {
            if (!(fabs(element(x, i) - w.value[i]) <= close))
                fail_msg("%s step %d element %d: %.17g, not %.17g", reshard_dtype_name(dtype), step,
                         (int)i, element(x, i), w.value[i]);
        }
    }
    double before = element(x, 0);
    MUST(reshard_optimizer_step(optimizer)); /* without gradients */
    assert_true(element(x, 0) == before);
    reshard_optimizer_destroy(optimizer);
    reshard_module_release(module);
}

static void test_steps__formulas(void **state)
{
    (void)state;
    static const reshard_sgd_options sgd[] = {
        {sizeof *sgd, 0.1, 0, 0, 0},
        {sizeof *sgd, 0.1, 0, 0.3, 0},
        {sizeof *sgd, 0.05, 0.9, 0.1, 0},
        {sizeof *sgd, 0.05, 0.9, 0.1, 1},
    };
    static const reshard_adamw_options adamw[] = {
        {.size = sizeof *adamw, .learning_rate = 0.01},
        {.size = sizeof *adamw, .learning_rate = 0.1, .weight_decay = 0.2},
    };
    static const reshard_dtype dtypes[] = {RESHARD_F64, RESHARD_F32};
    for (size_t d = 0; d < 2; d++) {
        for (size_t i = 0; i < sizeof sgd / sizeof *sgd; i++)
            run(dtypes[d], &sgd[i], NULL);
        for (size_t i = 0; i < sizeof adamw / sizeof *adamw; i++)
            run(dtypes[d], NULL, &adamw[i]);
    }
}

static void test_clip__norm(void **state)
{
    (void)state;
    reshard_tensor *x = NULL;
    reshard_module *module = make_module(RESHARD_F64, &x);
    reshard_optimizer *optimizer = NULL;
    reshard_sgd_options sgd = {.size = sizeof sgd, .learning_rate = 1};
    double norm = 0, expected = sqrt(1 + 4 + 0.25);
    MUST(reshard_sgd_create(NULL, module, &sgd, &optimizer));
    add_gradient(x, 1);
    MUST(reshard_optimizer_clip(optimizer, NULL, 0, &norm)); /* only looks */
    assert_true(fabs(norm - expected) < 1e-14);
    assert_true(element(reshard_tensor_gradient(x), 1) == -2);
    MUST(reshard_optimizer_clip(optimizer, NULL, 100, &norm)); /* is below */
    assert_true(element(reshard_tensor_gradient(x), 1) == -2);
    reshard_tensor *kept = reshard_tensor_retain(reshard_tensor_gradient(x));
    MUST(reshard_optimizer_clip(optimizer, NULL, 1, &norm));
    assert_true(fabs(norm - expected) < 1e-14);
    assert_true(fabs(element(reshard_tensor_gradient(x), 1) + 2 / (expected + 1e-6)) < 1e-14);
    assert_true(element(kept, 1) == -2); /* what somebody holds is not scaled under him */
    reshard_tensor_release(kept);
    set_element(reshard_tensor_gradient(x), 0, NAN);
    assert_int_equal(reshard_optimizer_clip(optimizer, NULL, 1, &norm), RESHARD_ERR_INVALID);
    assert_int_equal(reshard_optimizer_clip(optimizer, NULL, -1, &norm), RESHARD_ERR_INVALID);
    reshard_optimizer_destroy(optimizer);
    reshard_module_release(module);
}

/* The norm is that of the whole, however often ranks hold it, and nothing that others hold is
 * scaled: neither a gradient nor a shard of one. */
static reshard_status body_clip(void *user, reshard_group *group)
{
    reshard_sgd_options sgd = {.size = sizeof sgd, .learning_rate = 1};
    reshard_module_kind kind = {.name = "none", .forward = forward_none};
    reshard_tensor *whole = make_zeros(RESHARD_F64, SHAPE(6, 4)), *x = NULL;
    reshard_module *module = NULL;
    reshard_optimizer *optimizer = NULL;
    reshard_scope *scope = NULL;
    double square = 0, norm = 0;
    for (int64_t i = 0; i < 24; i++) {
        set_element(whole, i, (double)i - 7);
        square += ((double)i - 7) * ((double)i - 7);
    }
    TRY(reshard_tensor_set_requires_grad(whole, 1));
    TRY(cut_directly(group, user, whole, &x));
    MUST(reshard_module_create(NULL, &kind, &module));
    MUST(reshard_module_add_parameter(module, "x", x));
    MUST(reshard_sgd_create(NULL, module, &sgd, &optimizer));
    MUST(reshard_scope_open(NULL, &scope));
    TRY(reshard_backward(reshard_tensor_full(x), reshard_tensor_detach(whole), NULL));
    TRY(reshard_scope_close(scope));
    TRY(same_shards(reshard_tensor_gradient(x), x, 1));
    for (int held = 0; held < 2; held++) {
        reshard_tensor *gradient = reshard_tensor_gradient(x);
        double factor = held == 0 ? 1 : 1 / (sqrt(square) + 1e-6);
        reshard_tensor *kept = held == 0 ? gradient : reshard_tensor_local_shard(gradient, 0);
        (void)reshard_tensor_retain(kept);
        TRY(reshard_optimizer_clip(optimizer, group, held == 0 ? 1 : 0.5, &norm));
        CHECK(fabs(norm - factor * sqrt(square)) < 1e-12);
        if (held == 0)
            TRY(same_shards(kept, x, 1));
        else if (kept != NULL && reshard_tensor_volume(kept) > 0)
            CHECK(fabs(element(kept, 0) - factor * element(reshard_tensor_local_shard(x, 0), 0)) <
                  1e-14);
        reshard_tensor_release(kept);
    }
    reshard_optimizer_destroy(optimizer);
    reshard_module_release(module);
    reshard_tensor_release(x);
    reshard_tensor_release(whole);
    return RESHARD_OK;
}

static void test_clip__ranks(void **state)
{
    (void)state;
    static const char *const specs[] = {
        "4: S(0)",         "4: R",         "2,2: R, S(0)", "2,2: S(1), R",
        "2,2: S(0), S(1)", "2[1,3]: S(0)", "2[3,1]: R",    "boxes 6x4: 0[0:6,0:1] 2[0:6,1:4]"};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
        run_ranks(4, body_clip, (void *)(uintptr_t)specs[i]);
}

/* ---- state ----------------------------------------------------------------------------------- */

static void check_names(const reshard_optimizer *optimizer, const char *expected)
{
    reshard_named_tensors *list = NULL;
    char names[256] = "";
    MUST(reshard_optimizer_state_dict(optimizer, &list));
    for (int64_t i = 0; i < list->count; i++)
        (void)strcat(strcat(names, list->items[i].name), " ");
    assert_string_equal(names, expected);
    reshard_named_tensors_destroy(list);
}

static void test_state__names(void **state)
{
    (void)state;
    reshard_tensor *x = NULL;
    reshard_module *module = make_module(RESHARD_F64, &x);
    reshard_sgd_options sgd = {.size = sizeof sgd, .learning_rate = 1};
    reshard_adamw_options adamw = {.size = sizeof adamw, .learning_rate = 1};
    reshard_optimizer *optimizer = NULL;
    MUST(reshard_sgd_create(NULL, module, &sgd, &optimizer));
    check_names(optimizer, "");
    reshard_optimizer_destroy(optimizer);
    sgd.momentum = 0.5;
    MUST(reshard_sgd_create(NULL, module, &sgd, &optimizer));
    check_names(optimizer, "x.momentum_buffer ");
    reshard_optimizer_destroy(optimizer);
    MUST(reshard_adamw_create(NULL, module, &adamw, &optimizer));
    check_names(optimizer, "x.step x.exp_avg x.exp_avg_sq ");
    reshard_optimizer_destroy(optimizer);
    reshard_module_release(module);
}

/* A parameter that is left out of a step does not age: its first step is a first step, as in
 * PyTorch, however late it comes. */
static void test_state__counts_by_parameter(void **state)
{
    (void)state;
    reshard_tensor *x = NULL, *y = make_zeros(RESHARD_F64, SHAPE(1));
    reshard_module *module = make_module(RESHARD_F64, &x);
    reshard_adamw_options adamw = {.size = sizeof adamw, .learning_rate = 0.1};
    reshard_optimizer *optimizer = NULL;
    reshard_named_tensors *list = NULL;
    MUST(reshard_tensor_fill(y, 2));
    MUST(reshard_tensor_set_requires_grad(y, 1));
    MUST(reshard_module_add_parameter(module, "y", y));
    MUST(reshard_adamw_create(NULL, module, &adamw, &optimizer));
    for (int step = 0; step < 3; step++) {
        add_gradient(x, 1);
        if (step == 2)
            add_gradient(y, 1);
        MUST(reshard_optimizer_step(optimizer));
        reshard_optimizer_clear_gradients(optimizer);
    }
    assert_true(fabs(element(y, 0) - (2 - 0.1)) < 1e-8); /* a first step has length 1 */
    MUST(reshard_optimizer_state_dict(optimizer, &list));
    assert_string_equal(list->items[3].name, "y.step");
    assert_true(element(list->items[0].tensor, 0) == 3 && element(list->items[3].tensor, 0) == 1);

    /* a count that cannot be: nothing moves */
    double before = element(x, 0);
    add_gradient(x, 1);
    MUST(reshard_tensor_fill(list->items[3].tensor, -1));
    assert_int_equal(reshard_optimizer_step(optimizer), RESHARD_ERR_INVALID);
    assert_non_null(strstr(reshard_error_text(), "\"y\" has -1 steps"));
    *(int64_t *)reshard_tensor_write(list->items[3].tensor) = INT64_MAX;
    assert_int_equal(reshard_optimizer_step(optimizer), RESHARD_ERR_INVALID);
    assert_true(element(x, 0) == before && element(list->items[0].tensor, 0) == 3);
    reshard_named_tensors_destroy(list);
    reshard_optimizer_destroy(optimizer);
    reshard_module_release(module);
    reshard_tensor_release(y);
}

static void test_rate__out_of_range_is_refused_by_the_step(void **state)
{
    (void)state;
    static const double rates[] = {-1, NAN, INFINITY};
    reshard_tensor *x = NULL;
    reshard_module *module = make_module(RESHARD_F64, &x);
    reshard_sgd_options sgd = {.size = sizeof sgd, .learning_rate = 1};
    reshard_optimizer *optimizer = NULL;
    MUST(reshard_sgd_create(NULL, module, &sgd, &optimizer));
    add_gradient(x, 1);
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        reshard_optimizer_set_learning_rate(optimizer, rates[i]);
        assert_int_equal(reshard_optimizer_step(optimizer), RESHARD_ERR_INVALID);
        assert_non_null(strstr(reshard_error_text(), "optimizer: learning_rate is "));
        assert_true(element(x, 0) == start[0]);
    }
    reshard_optimizer_set_learning_rate(optimizer, 0.5);
    MUST(reshard_optimizer_step(optimizer));
    assert_true(element(x, 0) == start[0] / 2);
    reshard_optimizer_destroy(optimizer);
    reshard_module_release(module);
}

static void check_begins(const char *text, const char *beginning)
{
    if (strncmp(text, beginning, strlen(beginning)) != 0)
        fail_msg("\"%s\" instead of \"%s\"", text, beginning);
}

/* Which field is wrong, and with which value. */
static void test_create__names_the_field(void **state)
{
    (void)state;
    static const struct {
        reshard_sgd_options options;
        const char *text;
    } sgd[] = {
        {{sizeof(reshard_sgd_options), -1, 0, 0, 0},
         "optimizer: learning_rate is -1, and not in 0 <= learning_rate < inf"},
        {{sizeof(reshard_sgd_options), 1, INFINITY, 0, 0}, "optimizer: momentum is inf, and not"},
        {{sizeof(reshard_sgd_options), 1, 0, -0.5, 0}, "optimizer: weight_decay is -0.5, and not"},
        {{sizeof(reshard_sgd_options), 1, 0, 0, 1}, "optimizer: nesterov without momentum"},
        {{1, 1, 0, 0, 0}, "sgd options: size is 1;"},
    };
    static const struct {
        reshard_adamw_options options;
        const char *text;
    } adamw[] = {
        {{sizeof(reshard_adamw_options), -2, 0, 0, 0, 0},
         "optimizer: learning_rate is -2, and not"},
        {{sizeof(reshard_adamw_options), 1, 1, 0, 0, 0},
         "optimizer: beta1 is 1, and not in 0 <= beta1 < 1"},
        {{sizeof(reshard_adamw_options), 1, 0.5, -1, 0, 0}, "optimizer: beta2 is -1, and not"},
        {{sizeof(reshard_adamw_options), 1, 0, 0, -3, 0}, "optimizer: epsilon is -3, and not"},
        {{sizeof(reshard_adamw_options), 1, 0, 0, 0, -4}, "optimizer: weight_decay is -4, and not"},
    };
    reshard_tensor *x = NULL;
    reshard_module *module = make_module(RESHARD_F32, &x);
    reshard_optimizer *optimizer = NULL;
    for (size_t i = 0; i < sizeof sgd / sizeof *sgd; i++) {
        assert_int_equal(reshard_sgd_create(NULL, module, &sgd[i].options, &optimizer),
                         RESHARD_ERR_INVALID);
        check_begins(reshard_error_text(), sgd[i].text);
    }
    for (size_t i = 0; i < sizeof adamw / sizeof *adamw; i++) {
        assert_int_equal(reshard_adamw_create(NULL, module, &adamw[i].options, &optimizer),
                         RESHARD_ERR_INVALID);
        check_begins(reshard_error_text(), adamw[i].text);
    }
    assert_int_equal(reshard_sgd_create(NULL, module, NULL, &optimizer), RESHARD_ERR_INVALID);
    check_begins(reshard_error_text(), "sgd options: they are NULL");
    assert_null(optimizer);
    reshard_module_release(module);
}

static void test_create__refused(void **state)
{
    (void)state;
    reshard_tensor *x = NULL;
    reshard_module *module = make_module(RESHARD_F16, &x);
    reshard_optimizer *optimizer = NULL;
    reshard_sgd_options sgd = {.size = sizeof sgd, .learning_rate = 1};
    assert_int_equal(reshard_sgd_create(NULL, module, &sgd, &optimizer), RESHARD_ERR_UNSUPPORTED);
    assert_non_null(strstr(reshard_error_text(), "\"x\" is f16 3"));
    MUST(reshard_tensor_set_requires_grad(x, 0)); /* nothing left to train */
    assert_int_equal(reshard_sgd_create(NULL, module, &sgd, &optimizer), RESHARD_ERR_NOT_FOUND);
    assert_null(optimizer);
    reshard_module_release(module);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps__formulas),
        cmocka_unit_test(test_clip__norm),
        cmocka_unit_test(test_clip__ranks),
        cmocka_unit_test(test_state__names),
        cmocka_unit_test(test_state__counts_by_parameter),
        cmocka_unit_test(test_rate__out_of_range_is_refused_by_the_step),
        cmocka_unit_test(test_create__refused),
        cmocka_unit_test(test_create__names_the_field),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
