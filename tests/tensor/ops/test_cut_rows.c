/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cut_rows.c - losses over a cut vocabulary: edges that tables do not reach (test_spread.c and
 * differences.h have the layouts and gradients), errors of one rank, and memory.
 */
#include "tests/support/check.h"
#include "tests/support/info.h"
#include "tests/tensor/distributed.h"

#include <math.h>
#include <string.h>

static const reshard_cross_entropy_options ignoring = {
    .size = sizeof ignoring, .ignores = 1, .ignore_index = -100};

/* All rows ignored: NaN, with a gradient of zeros, as PyTorch 1.13 has it. Huge logits do not
 * overflow, and a row of -inf is NaN. */
static reshard_status body_edges(void *user, reshard_group *group)
{
    (void)user;
    reshard_scope *scope = NULL;
    reshard_tensor *whole = make_zeros(RESHARD_F32, SHAPE(3, 5)), *x = NULL, *labels = NULL;
    reshard_tensor *ids = make_zeros(RESHARD_I64, SHAPE(3));
    double value = 0;
    for (int i = 0; i < 3; i++)
        set_element(ids, i, i == 2 ? 4 : -100);
    for (int i = 0; i < 5; i++) {
        set_element(whole, i, (double)-INFINITY);
        set_element(whole, 5 + i, 1e30 * i);
        set_element(whole, 10 + i, 3000 + i);
    }
    reshard_spec *columns = spec_of("4: S(1)"), *replicated = spec_of("4: R");
    TRY(reshard_tensor_set_requires_grad(whole, 1));
    TRY(reshard_tensor_shard(NULL, group, columns, 0, whole, &x));
    TRY(reshard_tensor_shard(NULL, group, replicated, 0, ids, &labels));
    TRY(reshard_scope_open(NULL, &scope));
    reshard_tensor *p = reshard_tensor_full(reshard_softmax(x, 1));
    CHECK(p != NULL && isnan(element(p, 0)) && element(p, 9) == 1 && element(p, 8) == 0);
    TRY(reshard_tensor_value(reshard_cross_entropy(x, labels, &ignoring), &value));
    double expected = log(1 + exp(-1) + exp(-2) + exp(-3) + exp(-4));
    CHECK(fabs(value - expected) < 1e-6);
    for (int i = 0; i < 3; i++)
        set_element(reshard_tensor_local_shard(labels, 0), i, -100);
    reshard_tensor *loss = reshard_cross_entropy(x, labels, &ignoring);
    TRY(reshard_tensor_value(loss, &value));
    CHECK(isnan(value));
    TRY(reshard_backward(loss, NULL, NULL));
    reshard_tensor *gradient = whole_of(reshard_tensor_gradient(x));
    for (int i = 0; i < 15; i++)
        CHECK(element(gradient, i) == 0);
    reshard_tensor_release(gradient);
    TRY(reshard_scope_close(scope));
    reshard_spec_release(columns);
    reshard_spec_release(replicated);
    reshard_tensor_release(whole);
    reshard_tensor_release(x);
    reshard_tensor_release(ids);
    reshard_tensor_release(labels);
    return RESHARD_OK;
}

static void test_cut__edges(void **state)
{
    (void)state;
    run_ranks(4, body_edges, NULL);
}

/* A label that is out of range on one rank is an error of all, and the group stays usable. */
static reshard_status body_bad_label(void *user, reshard_group *group)
{
    (void)user;
    reshard_scope *scope = NULL;
    reshard_tensor *x = spread_random(group, "2,2: S(0), S(1)", RESHARD_F32, SHAPE(4, 6), 1);
    reshard_tensor *ids = make_zeros(RESHARD_I64, SHAPE(4)), *labels = NULL;
    reshard_spec *rows = spec_of("2,2: S(0), R");
    double value = 0;
    set_element(ids, 3, 6); /* of ranks 2 and 3 */
    TRY(reshard_tensor_shard(NULL, group, rows, 0, ids, &labels));
    reshard_spec_release(rows);
    TRY(reshard_scope_open(NULL, &scope));
    CHECK(reshard_cross_entropy(x, labels, NULL) == NULL);
    CHECK(reshard_scope_close(scope) == RESHARD_ERR_RANGE);
    CHECK(strstr(reshard_error_text(), "index 1 is 6; it may be 0..5") != NULL);
    TRY(reshard_tensor_fill(labels, 5));
    TRY(reshard_scope_open(NULL, &scope));
    TRY(reshard_tensor_value(reshard_cross_entropy(x, labels, NULL), &value));
    CHECK(value > 0);
    TRY(reshard_scope_close(scope));
    reshard_tensor_release(x);
    reshard_tensor_release(ids);
    reshard_tensor_release(labels);
    return RESHARD_OK;
}

static void test_cut__a_bad_label_of_one_rank(void **state)
{
    (void)state;
    run_ranks(4, body_bad_label, NULL);
}

enum { ROWS = 64, CLASSES = 4096, RANKS = 4 };

/* What forward and backward take at most beside the logits, in multiples of a rank's shard of them.
 * user[0]: whether they are gathered first; the answer comes back in user[1]. */
static reshard_status body_memory(void *user, reshard_group *group)
{
    double *job = user;
    reshard_context *context = NULL;
    reshard_scope *scope = NULL;
    reshard_tensor *logits = NULL, *labels = NULL;
    reshard_spec *columns = spec_of("4: S(1)"), *replicated = spec_of("4: R");
    TRY(reshard_context_create(NULL, &context));
    TRY(reshard_tensor_create_distributed(context, group, columns, RESHARD_F32,
                                          SHAPE(ROWS, CLASSES), &logits));
    TRY(reshard_tensor_create_distributed(context, group, replicated, RESHARD_I64, SHAPE(ROWS),
                                          &labels));
    TRY(reshard_tensor_set_requires_grad(logits, 1));
    size_t before = info_memory(context).bytes;
    TRY(reshard_scope_open(context, &scope));
    reshard_tensor *x =
        job[0] != 0 ? reshard_tensor_redistribute(logits, replicated, NULL) : logits;
    TRY(reshard_backward(reshard_cross_entropy(x, labels, NULL), NULL, NULL));
    TRY(reshard_scope_close(scope));
    if (reshard_group_rank(group) == 0)
        job[1] =
            (double)(info_memory(context).bytes_peak - before) * RANKS / (ROWS * CLASSES * 4.0);
    reshard_spec_release(columns);
    reshard_spec_release(replicated);
    reshard_tensor_release(logits);
    reshard_tensor_release(labels);
    reshard_context_destroy(context);
    return RESHARD_OK;
}

/* The gradient of the shard and little more, where gathering takes whole logits twice. */
static void test_cut__memory(void **state)
{
    (void)state;
    double cut[] = {0, 0}, gathered[] = {1, 0};
    run_ranks(RANKS, body_memory, cut);
    run_ranks(RANKS, body_memory, gathered);
    print_message("beside the logits, in shards of them: %.2f cut, %.2f gathered\n", cut[1],
                  gathered[1]);
    assert_true(cut[1] < 1.3 && gathered[1] > 2 * RANKS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut__edges),
        cmocka_unit_test(test_cut__a_bad_label_of_one_rank),
        cmocka_unit_test(test_cut__memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
