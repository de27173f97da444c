/* SPDX-License-Identifier: Apache-2.0 */
/* test_lift.c - local tensors beside distributed ones: they count as replicated over the mesh of
 * the others, and every rank's local tensor gets the whole gradient. */
#include "tensor/dist/lift.h"
#include "tests/support/check.h"
#include "tests/support/info.h"
#include "tests/tensor/distributed.h"

#include <string.h>

static reshard_tensor *make_numbers(void)
{
    draw_state draw;
    draw_seed(&draw, 5);
    reshard_tensor *made = make_random(RESHARD_F64, &draw, SHAPE(6, 4));
    MUST(reshard_tensor_set_requires_grad(made, 1));
    return made;
}

/* The product of a distributed and a lifted tensor. The mesh may leave ranks of the group out. */
static reshard_status lift_beside(void *user, reshard_group *group)
{
    const char *text = user;
    reshard_spec *spec = spec_of(text);
    reshard_scope *scope = NULL;
    reshard_tensor *local = make_numbers(), *x = NULL;
    TRY(reshard_tensor_shard(NULL, group, spec, 0, local, &x));
    TRY(reshard_scope_open(NULL, &scope));
    reshard_tensor *t[] = {local, NULL, x};
    CHECK(rs_lift("test", -1, 3, t));
    CHECK(t[0] != local && t[0]->distribution != NULL && t[1] == NULL && t[2] == x);
    CHECK(info_tensor(t[0]).group == group);
    /* Brought into the same layout, so that they can be multiplied. */
    reshard_tensor *product = reshard_mul(reshard_tensor_redistribute(t[0], spec, NULL), x);
    (void)reshard_backward(reshard_tensor_full(reshard_sum(product)), NULL, NULL);
    TRY(reshard_scope_close(scope));
    /* d sum(local * x) / d local = x, whole on every rank, in the mesh or not. */
    const reshard_tensor *gradient = reshard_tensor_gradient(local);
    CHECK(gradient != NULL && gradient->distribution == NULL);
    for (int64_t i = 0; i < reshard_tensor_volume(local); i++)
        CHECK(element(gradient, i) == element(local, i));
    reshard_spec_release(spec);
    reshard_tensor_release(x);
    reshard_tensor_release(local);
    return RESHARD_OK;
}

static void test_lift__gradients(void **state)
{
    (void)state;
    run_ranks(1, lift_beside, (void *)"1: R");
    run_ranks(3, lift_beside, (void *)"3: S(0)");
    run_ranks(4, lift_beside, (void *)"a=2,b=2: S(1), S(0)");
    run_ranks(3, lift_beside, (void *)"2[0,1]: S(0)");
}

static reshard_status bring_both_ways(void *user, reshard_group *group)
{
    (void)user;
    reshard_tensor *local = make_numbers(), *made = NULL;
    reshard_tensor *x = spread_random(group, "3: S(1)", RESHARD_F64, SHAPE(6, 4), 9);
    TRY(rs_tensor_bring(NULL, local, x, &made)); /* whole to cut */
    CHECK(rs_distributed_same(made, x));
    reshard_tensor *whole = whole_of(made);
    CHECK(is_close(whole, local, 0));
    reshard_tensor_release(whole);
    reshard_tensor_release(made);
    made = NULL;
    TRY(rs_tensor_bring(NULL, x, local, &made)); /* cut to whole */
    whole = whole_of(x);
    CHECK(made->distribution == NULL && is_close(made, whole, 0));
    reshard_tensor_release(whole);
    reshard_tensor_release(made);
    made = NULL;
    TRY(rs_tensor_bring(NULL, local, local, &made)); /* nothing to do */
    CHECK(made == local);
    reshard_tensor_release(made);
    reshard_tensor_release(x);
    reshard_tensor_release(local);
    return RESHARD_OK;
}

static void test_bring__both_ways(void **state)
{
    (void)state;
    run_ranks(3, bring_both_ways, NULL);
}

static void test_lift__local_stays(void **state)
{
    (void)state;
    reshard_tensor *local = make_numbers(), *t[] = {local, NULL};
    assert_true(rs_lift("test", -1, 2, t)); /* no scope is needed, since nothing is done */
    assert_ptr_equal(t[0], local);
    reshard_tensor_release(local);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lift__gradients),
        cmocka_unit_test(test_bring__both_ways),
        cmocka_unit_test(test_lift__local_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
