/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_easy.c - what makes programs short: errors looked at once, weights set by path, losses that
 * one call reads, input_reshard before or after sharding; and error texts in which nothing is said
 * twice and no name is empty.
 */
#include "tests/nn/modules.h"

#include "tests/support/info.h"

#include <reshard/dlpack.h>
#include <reshard/optimizer.h>

#include <math.h>
#include <string.h>

/* ---- errors looked at once ------------------------------------------------------------------- */

static reshard_status count_call(int *calls, reshard_status status)
{
    (*calls)++;
    return status == RESHARD_OK ? status : reshard_error_set(status, "the third call");
}

static void test_do__first_error(void **state)
{
    (void)state;
    int calls = 0;
    reshard_scope *scope = NULL, *inner = NULL;
    RESHARD_DO(count_call(&calls, RESHARD_OK)); /* without a scope there is nothing to note it in */
    assert_int_equal(calls, 0);
    MUST(reshard_scope_open(NULL, &scope));
    assert_false(reshard_scope_failed());
    RESHARD_DO(count_call(&calls, RESHARD_OK));
    RESHARD_DO(reshard_scope_open(NULL, &inner));
    RESHARD_DO(count_call(&calls, RESHARD_OK));
    RESHARD_DO(count_call(&calls, RESHARD_ERR_RANGE));
    assert_true(reshard_scope_failed());
    RESHARD_DO(count_call(&calls, RESHARD_ERR_IO)); /* is not called any more */
    assert_int_equal(calls, 3);
    assert_int_equal(reshard_scope_note(reshard_scope_close(inner)), RESHARD_ERR_RANGE);
    assert_true(reshard_scope_failed());
    (void)reshard_error_set(RESHARD_ERR_IO, "something else");
    assert_int_equal(reshard_scope_close(scope), RESHARD_ERR_RANGE);
    assert_string_equal(reshard_error_text(), "the third call");
    const reshard_layer_options *options = RESHARD_OPTIONS(reshard_layer_options, .seed = 7);
    assert_int_equal(options->size, sizeof *options);
    assert_true(options->seed == 7 && options->no_bias == 0);
}

/* Reads, writes and describes a tensor; each call must say that there is none. */
static void use_missing_tensor(void)
{
    static const int64_t first[1] = {0};
    unsigned char memory[8];
    double value = 7;
    reshard_tensor *made = NULL;
    reshard_dl_managed *managed = NULL;
    reshard_dl_versioned *versioned = NULL;
    reshard_tensor_info info = {.size = sizeof info};
    const reshard_status found[] = {
        reshard_tensor_get(NULL, first, &value),
        reshard_tensor_set(NULL, first, 1),
        reshard_tensor_fill(NULL, 1),
        reshard_tensor_copy_to(NULL, memory, sizeof memory),
        reshard_tensor_copy_from(NULL, memory, sizeof memory),
        reshard_tensor_fill_random(NULL, RESHARD_UNIFORM, 1),
        reshard_tensor_get_info(NULL, &info),
        reshard_tensor_zeros_like(NULL, RESHARD_F32, &made),
        reshard_tensor_set_requires_grad(NULL, 1),
        reshard_tensor_to_dlpack(NULL, &managed),
        reshard_tensor_to_dlpack_versioned(NULL, &versioned),
    };
    for (size_t i = 0; i < sizeof found / sizeof *found; i++)
        assert_int_equal(found[i], RESHARD_ERR_INVALID);
    assert_non_null(strstr(reshard_error_text(), "the tensor is NULL"));
    assert_int_not_equal(reshard_tensor_value(NULL, &value), RESHARD_OK); /* or the scope's error */
    assert_null(reshard_tensor_data(NULL));
    assert_null(reshard_tensor_write(NULL));
    assert_null(reshard_tensor_local_shard(NULL, 0));
    assert_null(reshard_tensor_gradient(NULL));
    assert_null(reshard_tensor_shape(NULL));
    assert_int_equal(reshard_tensor_ndim(NULL), 0);
    assert_true(reshard_tensor_volume(NULL) == 0 && value == 7);
    reshard_tensor_clear_gradient(NULL);
}

/* What a failed call should have made is NULL; whoever goes on with it learns of the first error,
 * or of this one. */
static void test_do__what_is_missing(void **state)
{
    (void)state;
    reshard_scope *scope = NULL;
    reshard_module *linear = NULL;
    reshard_optimizer *sgd = NULL;
    reshard_tensor *x = make_zeros(RESHARD_F32, SHAPE(2, 4));
    MUST(reshard_scope_open(NULL, &scope));
    RESHARD_DO(reshard_linear_create(NULL, -3, 4, NULL, &linear));
    RESHARD_DO(reshard_sgd_create(NULL, linear, NULL, &sgd));
    assert_null(reshard_module_forward(linear, x));
    reshard_optimizer_set_learning_rate(sgd, 0.1);
    reshard_optimizer_clear_gradients(sgd);
    use_missing_tensor();
    assert_int_equal(reshard_scope_close(scope), RESHARD_ERR_RANGE);
    assert_non_null(strstr(reshard_error_text(), "-3"));
    MUST(reshard_scope_open(NULL, &scope));
    assert_null(reshard_module_forward(NULL, x));
    assert_int_equal(reshard_scope_close(scope), RESHARD_ERR_INVALID);
    assert_string_equal(reshard_error_text(), "the module is NULL");
    assert_null(reshard_module_forward(NULL, x)); /* without a scope */
    reshard_tensor_release(x);
}

/* One rank fails alone and skips what is collective; the others do not wait for ever. */
static reshard_status body_alone(void *user, reshard_group *group)
{
    (void)user;
    reshard_scope *scope = NULL;
    reshard_module *linear = NULL;
    reshard_sharding_plan *plan = NULL;
    int64_t width = reshard_group_rank(group) == 1 ? -3 : 4;
    TRY(reshard_scope_open(NULL, &scope));
    RESHARD_DO(reshard_linear_create(NULL, width, 4, NULL, &linear));
    RESHARD_DO(reshard_sharding_plan_create(NULL, &plan));
    RESHARD_DO(reshard_sharding_plan_add_text(plan, "weight", "3: S(0)"));
    RESHARD_DO(reshard_module_shard(linear, plan, 0, group, NULL));
    reshard_sharding_plan_destroy(plan);
    reshard_module_release(linear);
    return reshard_scope_close(scope);
}

static void test_do__one_rank_alone(void **state)
{
    (void)state;
    assert_int_equal(reshard_group_run(NULL, 3, body_alone, NULL), RESHARD_ERR_RANGE);
    assert_non_null(strstr(reshard_error_text(), "rank 1"));
}

/* ---- weights and losses ---------------------------------------------------------------------- */

static reshard_status body_set(void *user, reshard_group *group)
{
    (void)user;
    reshard_module *mlp = NULL;
    reshard_sharding_plan *plan = NULL;
    reshard_tensor *weight = NULL, *other = make_leaf(SHAPE(6, 5));
    reshard_tensor *spread = distribute(group, "3: S(1)", other);
    MUST(reshard_mlp_create(NULL, 5, 6, RESHARD_ACTIVATION_RELU,
                            RESHARD_OPTIONS(reshard_layer_options, .dtype = RESHARD_F64), &mlp));
    MUST(reshard_sharding_plan_create(NULL, &plan));
    MUST(reshard_sharding_plan_add_text(plan, "fc1.weight", "3: S(0)"));
    CHECK(reshard_sharding_plan_add_text(plan, "fc1.weight", "3: S(") == RESHARD_ERR_SYNTAX);
    /* before and after sharding, from local and from distributed values */
    for (int i = 0; i < 3; i++) {
        reshard_tensor *from = i < 2 ? other : spread;
        if (i == 1)
            TRY(reshard_module_shard(mlp, plan, 0, group, NULL));
        MUST(reshard_module_find_tensor(mlp, "fc1.weight", &weight));
        TRY((reshard_tensor_layout(weight) != NULL)
                ? reshard_module_set_parameter(mlp, "fc1.weight", from)
                : (reshard_tensor_fill(weight, 0),
                   reshard_module_set_parameter(mlp, "fc1.weight", from)));
        reshard_tensor *now = NULL;
        MUST(reshard_module_find_tensor(mlp, "fc1.weight", &now));
        CHECK(now == weight && info_tensor(now).requires_grad);
        reshard_scope *scope = NULL;
        MUST(reshard_scope_open(NULL, &scope));
        reshard_tensor *whole = i == 0 ? now : reshard_tensor_full(now);
        for (int64_t k = 0; k < 30; k++)
            CHECK(element(whole, k) == element(other, k));
        TRY(reshard_scope_close(scope));
        if (i > 0) /* so that the next one has something to do */
            TRY(reshard_tensor_fill(weight, 0));
    }
    reshard_tensor *turned = make_leaf(SHAPE(5, 6));
    CHECK(reshard_module_set_parameter(mlp, "fc1.weight", turned) == RESHARD_ERR_INVALID);
    CHECK(strstr(reshard_error_text(), "\"fc1.weight\" is f64 6x5, and f64 5x6") != NULL);
    CHECK(reshard_module_set_parameter(mlp, "fc3.weight", other) == RESHARD_ERR_NOT_FOUND);
    CHECK(reshard_module_set_parameter(mlp, NULL, other) == RESHARD_ERR_INVALID);
    CHECK(reshard_module_set_parameter(mlp, "fc1.weight", NULL) == RESHARD_ERR_INVALID);
    reshard_tensor_release(turned);
    reshard_sharding_plan_destroy(plan);
    reshard_module_release(mlp);
    reshard_tensor_release(spread);
    reshard_tensor_release(other);
    return RESHARD_OK;
}

static void test_set_parameter__before_and_after_sharding(void **state)
{
    (void)state;
    run_ranks(3, body_set, NULL);
}

/* The mean of squares by its definition, whatever the layouts; and its gradient, 2 (y - t) / n. */
static reshard_status body_loss(void *user, reshard_group *group)
{
    static const char *const specs[] = {NULL, "3: S(0)", "3: R", "3: P", "2[2,0]: S(1)"};
    (void)user;
    for (int a = 0; a < 5; a++) {
        for (int b = 0; b < 5; b++) {
            reshard_tensor *y = make_leaf(SHAPE(4, 5)), *t = make_zeros(RESHARD_F64, SHAPE(4, 5));
            MUST(reshard_tensor_fill_random(t, RESHARD_NORMAL, 4));
            reshard_tensor *first =
                specs[a] != NULL ? distribute(group, specs[a], y) : reshard_tensor_retain(y);
            reshard_tensor *second =
                specs[b] != NULL ? distribute(group, specs[b], t) : reshard_tensor_retain(t);
            double expected = 0, value = 0;
            for (int64_t i = 0; i < 20; i++)
                expected += pow(element(y, i) - element(t, i), 2) / 20;
            reshard_scope *scope = NULL;
            MUST(reshard_scope_open(NULL, &scope));
            reshard_tensor *loss = reshard_mse_loss(first, second);
            TRY(reshard_tensor_value(loss, &value));
            CHECK(fabs(value - expected) < 1e-14);
            TRY(reshard_backward(loss, NULL, NULL));
            reshard_tensor *gradient = reshard_tensor_gradient(first);
            if (specs[a] != NULL)
                gradient = reshard_tensor_full(gradient);
            for (int64_t i = 0; i < 20; i++)
                CHECK(fabs(element(gradient, i) - (element(y, i) - element(t, i)) / 10) < 1e-15);
            TRY(reshard_scope_close(scope));
            reshard_tensor_release(first);
            reshard_tensor_release(second);
            reshard_tensor_release(y);
            reshard_tensor_release(t);
        }
    }
    return RESHARD_OK;
}

static void test_mse_loss__any_layouts(void **state)
{
    (void)state;
    run_ranks(3, body_loss, NULL);
}

/* ---- orders ---------------------------------------------------------------------------------- */

/* A step of SGD on an MLP, with input_reshard added before the plan or after it, over a mesh that
 * has other axes than the plan's. */
static reshard_status step(reshard_group *group, bool first, bool reshards, double *out_weights)
{
    reshard_module *mlp = NULL;
    reshard_sharding_plan *plan = NULL;
    reshard_device_mesh *mesh = NULL;
    reshard_optimizer *sgd = NULL;
    reshard_scope *scope = NULL;
    reshard_tensor *x = make_leaf(SHAPE(6, 5)), *weight = NULL;
    TRY(reshard_scope_open(NULL, &scope));
    RESHARD_DO(reshard_mlp_create(NULL, 5, 7, RESHARD_ACTIVATION_GELU,
                                  RESHARD_OPTIONS(reshard_layer_options, .dtype = RESHARD_F64),
                                  &mlp));
    RESHARD_DO(reshard_sharding_plan_create(NULL, &plan));
    RESHARD_DO(reshard_sharding_plan_add_text(plan, "fc1.weight", "4: S(0)"));
    RESHARD_DO(reshard_sharding_plan_add_text(plan, "fc2.weight", "4: S(1)"));
    RESHARD_DO(reshard_device_mesh_parse(NULL, group, "2,2", &mesh));
    if (first && reshards)
        RESHARD_DO(reshard_module_input_reshard(mlp, mesh, 0, NULL, NULL));
    RESHARD_DO(reshard_module_shard(mlp, plan, 0, group, NULL));
    if (!first && reshards)
        RESHARD_DO(reshard_module_input_reshard(mlp, mesh, 0, NULL, NULL));
    RESHARD_DO(reshard_sgd_create(
        NULL, mlp, RESHARD_OPTIONS(reshard_sgd_options, .learning_rate = 0.5), &sgd));
    RESHARD_DO(reshard_backward(reshard_mse_loss(reshard_module_forward(mlp, x), x), NULL, NULL));
    RESHARD_DO(reshard_optimizer_step(sgd));
    RESHARD_DO(reshard_module_find_tensor(mlp, "fc1.weight", &weight));
    reshard_tensor *whole = reshard_scope_failed() ? NULL : reshard_tensor_full(weight);
    for (int64_t i = 0; whole != NULL && i < 35; i++)
        out_weights[i] = element(whole, i);
    reshard_status status = reshard_scope_close(scope);
    reshard_optimizer_destroy(sgd);
    reshard_device_mesh_release(mesh);
    reshard_sharding_plan_destroy(plan);
    reshard_module_release(mlp);
    reshard_tensor_release(x);
    return status;
}

static reshard_status body_orders(void *user, reshard_group *group)
{
    double plain[35], before[35], after[35];
    (void)user;
    TRY(step(group, false, false, plain));
    TRY(step(group, true, true, before));
    TRY(step(group, false, true, after));
    for (int i = 0; i < 35; i++)
        CHECK(fabs(plain[i] - before[i]) < 1e-14 && fabs(plain[i] - after[i]) < 1e-14);
    return RESHARD_OK;
}

static void test_orders__sharding_and_input_reshard(void **state)
{
    (void)state;
    run_ranks(4, body_orders, NULL);
}

/* ---- words ----------------------------------------------------------------------------------- */

/* Whether a part between ": " is there twice, or a name is empty. Ranks may be. */
static bool is_clumsy(const char *text)
{
    char parts[1024], *seen[32], *at = parts;
    int count = 0;
    (void)snprintf(parts, sizeof parts, "%s", text);
    for (char *end; at != NULL && count < 32; at = end) {
        end = strstr(at, ": ");
        if (end != NULL) {
            *end = '\0';
            end += 2;
        }
        for (int i = 0; i < count; i++) {
            if (strcmp(seen[i], at) == 0)
                return true;
        }
        seen[count++] = at;
    }
    return text[0] == '\0' || strstr(text, "\"\"") != NULL;
}

/* Things that go wrong on all ranks, or on one. */
static reshard_status blunder(int which, reshard_group *group, reshard_tensor *x,
                              reshard_module *mlp)
{
    bool odd = reshard_group_rank(group) == 1;
    reshard_tensor *made = NULL, *whole = make_zeros(RESHARD_F64, SHAPE(4, 6));
    reshard_spec *far = make_spec("9: S(0)"), *deep = make_spec("2: S(5)"),
                 *rows = make_spec("2: S(0)");
    reshard_spec *least = make_spec("2: P(min)"), *columns = make_spec("2: S(1)");
    reshard_redistribute_options options = {.size = sizeof options, .dtype = RESHARD_I64};
    reshard_status status = RESHARD_OK;
    switch (which) {
    case 0:
        (void)reshard_tensor_redistribute(x, deep, NULL);
        break;
    case 1:
        (void)reshard_tensor_redistribute(x, far, NULL);
        break;
    case 2:
        (void)reshard_tensor_redistribute(x, odd ? deep : columns, NULL);
        break;
    case 3:
        (void)reshard_tensor_redistribute(x, odd ? rows : columns, NULL);
        break;
    case 4:
        (void)reshard_tensor_redistribute(x, rows, &options);
        break;
    case 5:
        (void)reshard_tensor_redistribute(x, NULL, NULL);
        break;
    case 6:
        (void)reshard_tensor_from_local(whole, group, odd ? deep : rows);
        break;
    case 7:
        status = reshard_tensor_shard(NULL, group, odd ? rows : columns, 0, whole, &made);
        break;
    case 8:
        status = reshard_tensor_shard(NULL, group, deep, 0, whole, &made);
        break;
    case 9:
        status = reshard_tensor_shard(NULL, group, rows, 7, whole, &made);
        break;
    case 10:
        status = reshard_tensor_create_distributed(NULL, group, odd ? rows : columns, RESHARD_F64,
                                                   SHAPE(4, 6), &made);
        break;
    case 11:
        (void)reshard_tensor_exchange(
            whole, group,
            RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_REDUCE,
                            .reduction = odd ? RESHARD_SUM : RESHARD_MAX));
        break;
    case 12:
        (void)reshard_tensor_exchange(whole, group,
                                      RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_REDUCE,
                                                      .reduction = RESHARD_SUM,
                                                      .root = odd ? 9 : 0));
        break;
    case 13:
        (void)reshard_tensor_exchange(
            whole, group,
            RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_TO_ALL_SINGLE,
                            .send_counts = (int64_t[]){1, 1}, .receive_counts = (int64_t[]){2, 2}));
        break;
    case 14:
        status =
            reshard_module_shard_parameter(mlp, odd ? "fc9.weight" : "fc1.weight", rows, 0, group);
        break;
    case 15:
        status = reshard_module_shard_parameter(mlp, "fc1.weight", far, 0, group);
        break;
    case 16:
        status = reshard_module_set_parameter(mlp, "fc1.weight", x);
        break;
    case 17:
        status = reshard_tensor_gather(x, 7, &made);
        break;
    case 18:
        status = reshard_tensor_copy(odd ? whole : x, x);
        break;
    case 19:
        (void)reshard_relu(reshard_tensor_redistribute(x, least, NULL));
        break;
    case 20:
        (void)reshard_mse_loss(x, reshard_sum(whole));
        break;
    case 21:
        (void)reshard_tensor_value(x, &(double){0});
        status = RESHARD_ERR_INVALID;
        break;
    case 22:
        status = reshard_tensor_from_shards(NULL, group, 2, (int64_t[]){4, 6}, 0, NULL, &made);
        break;
    case 23:
        status = reshard_tensor_create_shared(NULL, group, RESHARD_F4, SHAPE(3), &made);
        break;
    default:
        (void)reshard_module_forward(mlp, x);
    }
    reshard_spec *specs[] = {far, deep, rows, least, columns};
    for (int i = 0; i < 5; i++)
        reshard_spec_release(specs[i]);
    reshard_tensor_release(whole);
    reshard_tensor_release(made);
    return status;
}

enum { BLUNDERS = 25 };

static reshard_status body_words(void *user, reshard_group *group)
{
    int which = *(const int *)user;
    reshard_scope *scope = NULL;
    reshard_module *mlp = NULL;
    reshard_tensor *whole = make_leaf(SHAPE(4, 6)), *x = distribute(group, "2: S(0)", whole);
    MUST(reshard_mlp_create(NULL, 5, 7, RESHARD_ACTIVATION_RELU, NULL, &mlp));
    MUST(reshard_scope_open(NULL, &scope));
    reshard_status status = blunder(which, group, x, mlp);
    reshard_status closed = reshard_scope_close(scope);
    CHECK(status != RESHARD_OK || closed != RESHARD_OK);
    bool clumsy = is_clumsy(reshard_error_text());
    if (clumsy)
        print_message("%d: %s\n", which, reshard_error_text());
    CHECK(!clumsy);
    reshard_module_release(mlp);
    reshard_tensor_release(x);
    reshard_tensor_release(whole);
    return RESHARD_OK;
}

static void test_words__nothing_twice_nothing_empty(void **state)
{
    (void)state;
    assert_true(is_clumsy("redistribute: rank 0: redistribute: no"));
    assert_true(is_clumsy("link 0 from \"\" to \"\": no"));
    assert_false(is_clumsy("redistribute: rank 0: the spec is NULL"));
    for (int which = 0; which < BLUNDERS; which++)
        run_ranks(2, body_words, &which);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_do__first_error),
        cmocka_unit_test(test_do__what_is_missing),
        cmocka_unit_test(test_do__one_rank_alone),
        cmocka_unit_test(test_set_parameter__before_and_after_sharding),
        cmocka_unit_test(test_mse_loss__any_layouts),
        cmocka_unit_test(test_orders__sharding_and_input_reshard),
        cmocka_unit_test(test_words__nothing_twice_nothing_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
