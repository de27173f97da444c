/* SPDX-License-Identifier: Apache-2.0 */
/*
 * property_adjoint.c - for random pairs of layouts, random x in the sources' buffers and random y
 * in the targets', <Ax,y> = <x,A'y>, where A is the plan and A' its adjoint. Numbers are multiples
 * of 720, which every divisor of an average here divides, so that both sides are exact.
 */
#include "tests/support/planning.h"

#include "plan/plan.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void make_linear(oracle_spec *spec)
{
    for (int32_t i = 0; i < spec->cut_count; i++) {
        if (spec->cuts[i].reduction > RESHARD_AVG)
            spec->cuts[i].reduction = RESHARD_SUM;
    }
}

static void generate_pair(draw_state *draw, harness_case *made)
{
    made->spec_count = 2;
    generate_shape(draw, 300, &made->ndim, made->shape);
    for (int i = 0; i < 2; i++) {
        generate_spec(draw, GENERATE_LISTED | GENERATE_PARTIAL, made->ndim, made->shape,
                      &made->specs[i]);
        make_linear(&made->specs[i]);
    }
}

static void fill(simulate_tensor *tensor, uint64_t seed)
{
    for (int64_t i = 0; i < tensor->count; i++) {
        for (int64_t j = 0; j < tensor->buffers[i].count; j++) {
            uint64_t hash = draw_hash(seed + (uint64_t)i, (uint64_t)j);
            tensor->buffers[i].values[j] = 720.0 * ((double)(hash % 19) - 9.0);
        }
    }
}

static double product(const simulate_tensor *a, const simulate_tensor *b)
{
    double sum = 0.0;
    for (int64_t i = 0; i < a->count; i++) {
        for (int64_t j = 0; j < a->buffers[i].count; j++)
            sum += a->buffers[i].values[j] * b->buffers[i].values[j];
    }
    return sum;
}

/* What the forward plan brings from a to b the adjoint brings from b to a. */
static bool check_traffic(const simulate_run *forward, int32_t forward_stages,
                          const simulate_run *back, int32_t back_stages, words *said)
{
    int64_t n = forward->rank_count;
    if (back->rank_count != forward->rank_count || back_stages != forward_stages)
        return words_say(said, "the adjoint has %d stages", (int)back_stages);
    for (int64_t pair = 0; pair < n * n; pair++) {
        uint64_t there = 0, here = 0;
        int64_t turned = pair % n * n + pair / n;
        for (int32_t stage = 0; stage < forward_stages; stage++) {
            there += forward->matrix[stage * n * n + pair];
            here += back->matrix[stage * n * n + turned];
        }
        if (pair / n != pair % n && there != here)
            return words_say(said, "rank %lld to %lld: %llu bytes, and %llu back",
                             (long long)(pair / n), (long long)(pair % n),
                             (unsigned long long)there, (unsigned long long)here);
    }
    return true;
}

static bool run_adjoint(const planning *made, reshard_plan *adjoint, uint64_t seed, words *said)
{
    simulate_tensor *x = simulate_tensor_create(made->source_layout);
    simulate_tensor *y = simulate_tensor_create(made->target_layout);
    simulate_tensor *ax = simulate_tensor_create(made->target_layout);
    simulate_tensor *pulled = simulate_tensor_create(made->source_layout);
    simulate_tensor *pushed = simulate_tensor_create(made->source_layout);
    simulate_run forward = {.plan = made->plan, .sources = &x, .targets = &ax};
    simulate_run pull = {.plan = adjoint, .sources = &y, .targets = &pulled};
    simulate_run push = {.plan = adjoint, .sources = &y, .targets = &pushed};
    push.direction = SIMULATE_PUSH;
    fill(x, seed);
    fill(y, seed + 1000003);
    simulate_clear(pulled);
    simulate_clear(pushed);
    bool right = simulate(&forward, said) && simulate(&pull, said) && simulate(&push, said);
    if (right && !simulate_equal(pulled, pushed))
        right = words_say(said, "adjoint: pulling and pushing differ");
    double left = product(ax, y), other = product(x, pulled);
    if (right && fabs(left - other) > 0.0)
        right = words_say(said, "<Ax,y> is %.17g, <x,A'y> is %.17g", left, other);
    right = right && check_traffic(&forward, rs_plan_forward(made->plan)->stage_count, &pull,
                                   rs_plan_forward(adjoint)->stage_count, said);
    simulate_release(&forward);
    simulate_release(&pull);
    simulate_release(&push);
    simulate_tensor_destroy(x);
    simulate_tensor_destroy(y);
    simulate_tensor_destroy(ax);
    simulate_tensor_destroy(pulled);
    simulate_tensor_destroy(pushed);
    return right;
}

static bool check_pair(const harness_case *given, words *said)
{
    planning made;
    reshard_plan *adjoint = NULL;
    reshard_plan_options options = {.size = sizeof options};
    options.single_stage = given->seed % 2 == 0;
    options.balance = given->seed % 3 == 0 ? RESHARD_BALANCE_EXACT : RESHARD_BALANCE_RULE;
    planning_state state = planning_init(&made, given, RESHARD_F64, &options, said);
    bool right = state != PLANNING_REFUSED;
    if (state == PLANNING_READY) {
        right = reshard_plan_adjoint(made.plan, &adjoint) == RESHARD_OK ||
                words_say(said, "no adjoint: %s", reshard_error_text());
        if (right && (adjoint->transposed == NULL || made.plan->transposed != NULL))
            right = words_say(said, "is_adjoint is wrong");
        right = right && run_adjoint(&made, adjoint, given->seed, said);
        if (right && reshard_plan_check(adjoint) != RESHARD_OK)
            right = words_say(said, "the checker refuses the adjoint: %s", reshard_error_text());
    }
    reshard_plan_release(adjoint);
    planning_free(&made);
    return right;
}

static void test_adjoint__inner_products(void **state)
{
    (void)state;
    harness_run("adjoint of a random pair", 5000, generate_pair, check_pair);
}

static void test_adjoint__refused(void **state)
{
    (void)state;
    static const char *const specs[] = {"2: P(prod)", "2: P(min)", "2: P(max)"};
    static const int64_t shape[] = {4};
    for (size_t i = 0; i < 3; i++) {
        reshard_layout *source = NULL, *target = NULL;
        reshard_plan *plan = NULL, *adjoint = NULL;
        assert_int_equal(reshard_layout_parse(NULL, specs[i], 1, shape, &source), RESHARD_OK);
        assert_int_equal(reshard_layout_parse(NULL, "2: S(0)", 1, shape, &target), RESHARD_OK);
        assert_int_equal(reshard_plan_create_simple(NULL, source, target, RESHARD_F32, NULL, &plan),
                         RESHARD_OK);
        assert_int_equal(reshard_plan_adjoint(plan, &adjoint), RESHARD_ERR_UNSUPPORTED);
        assert_null(adjoint);
        reshard_plan_release(plan);
        reshard_layout_release(source);
        reshard_layout_release(target);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_adjoint__refused),
        cmocka_unit_test(test_adjoint__inner_products),
    };
    return cmocka_run_group_tests_name("property_adjoint", tests, NULL, NULL);
}
