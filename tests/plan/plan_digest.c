/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_digest.c - a plan's digest is of its inputs: the same for the same ones on every rank,
 * another as soon as anything differs.
 */
#include <reshard/plan_inspect.h>

#include "plan/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

typedef struct inputs {
    const char *source, *target;
    int64_t shape[2];
    reshard_dtype source_dtype, target_dtype;
    int64_t rows; /* of the box that is linked; 0: the whole */
    int transposed;
    reshard_plan_options options;
} inputs;

static reshard_plan *make(const inputs *given)
{
    reshard_plan_tensor source = {"a", NULL, given->source_dtype};
    reshard_plan_tensor target = {"b", NULL, given->target_dtype};
    reshard_plan *plan = NULL;
    reshard_link link = reshard_link_whole(0, 0);
    if (given->rows > 0) {
        link.source_box = (reshard_box){.ndim = 2, .size = {given->rows, given->shape[1]}};
        link.target_box = link.source_box;
    }
    if (given->transposed) {
        link.factor_count = 2;
        link.factors[0] = given->shape[0];
        link.factors[1] = given->shape[1];
        link.order[0] = 1;
    }
    assert_int_equal(reshard_layout_parse(NULL, given->source, 2, given->shape, &source.layout),
                     RESHARD_OK);
    assert_int_equal(reshard_layout_parse(NULL, given->target, 2, given->shape, &target.layout),
                     RESHARD_OK);
    if (reshard_plan_create(NULL, 1, &source, 1, &target, 1, &link, &given->options, &plan) !=
        RESHARD_OK)
        fail_msg("%s", reshard_error_text());
    reshard_layout_release(source.layout);
    reshard_layout_release(target.layout);
    return plan;
}

static void get_digest(const inputs *given, uint64_t digest[2])
{
    reshard_plan *plan = make(given);
    rs_plan_digest(plan, digest);
    reshard_plan_release(plan);
}

static const inputs first = {.source = "4: S(0)",
                             .target = "4: S(1)",
                             .shape = {8, 8},
                             .source_dtype = RESHARD_F32,
                             .target_dtype = RESHARD_F32,
                             .options = {.size = sizeof(reshard_plan_options)}};

static void test_digest__same_inputs(void **state)
{
    (void)state;
    uint64_t a[2], b[2], c[2];
    get_digest(&first, a);
    get_digest(&first, b);
    assert_memory_equal(a, b, sizeof a);
    /* Parts do not change it, whosever they are. */
    for (int32_t rank = 0; rank < 4; rank++) {
        reshard_plan *plan = make(&first);
        reshard_part *part = NULL;
        assert_int_equal(reshard_part_create(NULL, plan, rank, &part), RESHARD_OK);
        rs_plan_digest(plan, c);
        assert_memory_equal(a, c, sizeof a);
        reshard_part_destroy(part);
        reshard_plan_release(plan);
    }
    /* Nor does the way a spec is written. */
    inputs other = first;
    other.source = " 4 [0..3] : S0";
    get_digest(&other, b);
    assert_memory_equal(a, b, sizeof a);
}

static void test_digest__anything_differs(void **state)
{
    (void)state;
    enum { COUNT = 15 };
    inputs all[COUNT];
    uint64_t digests[COUNT][2];
    for (int i = 0; i < COUNT; i++)
        all[i] = first;
    all[1].source = "4[1,0,2,3]: S(0)";
    all[2].target = "2: S(1)";
    all[3].shape[0] = 9;
    all[4].shape[1] = 9;
    all[5].source_dtype = RESHARD_BF16;
    all[6].target_dtype = RESHARD_BF16;
    all[7].source_dtype = RESHARD_I32;
    all[7].target_dtype = RESHARD_I32;
    all[8].rows = 5;
    all[8].options.zero_fill = 1;
    all[9].transposed = 1;
    all[10].options.balance = RESHARD_BALANCE_EXACT;
    all[11].options.relabel = 1;
    all[12].options.single_stage = 1;
    all[13].options.zero_fill = 1;
    all[14].options.staging_bytes_max = 1 << 20;
    for (int i = 0; i < COUNT; i++) {
        get_digest(&all[i], digests[i]);
        for (int j = 0; j < i; j++) {
            if (memcmp(digests[i], digests[j], sizeof digests[i]) == 0)
                fail_msg("inputs %d and %d have the same digest", i, j);
        }
    }
}

static void test_digest__adjoint(void **state)
{
    (void)state;
    uint64_t a[2], b[2];
    reshard_plan *plan = make(&first), *adjoint = NULL;
    assert_int_equal(reshard_plan_adjoint(plan, &adjoint), RESHARD_OK);
    rs_plan_digest(plan, a);
    rs_plan_digest(adjoint, b);
    assert_memory_not_equal(a, b, sizeof a);
    reshard_plan_release(adjoint);
    reshard_plan_release(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_digest__same_inputs),
        cmocka_unit_test(test_digest__anything_differs),
        cmocka_unit_test(test_digest__adjoint),
    };
    return cmocka_run_group_tests_name("plan_digest", tests, NULL, NULL);
}
