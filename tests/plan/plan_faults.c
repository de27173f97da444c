/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_faults.c - the n-th allocation fails, for every n, in all that makes plans, parts and
 * streams.
 */
#include "tests/support/context.h"

#include "plan/plan.h"

#include <reshard/plan_inspect.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

typedef struct attempt {
    const char *source, *target;
    int32_t ndim;
    int64_t shape[RESHARD_NDIM_MAX];
    reshard_plan_options options;
    int adjoint;
} attempt;

static reshard_status use_part(reshard_context *context, reshard_plan *plan, int32_t rank)
{
    reshard_part *part = NULL;
    reshard_status status = reshard_part_create(context, plan, rank, &part);
    for (int32_t stage = 0; status == 0 && stage < rs_plan_forward(plan)->stage_count; stage++) {
        for (int sending = 0; status == 0 && sending < 2; sending++) {
            reshard_stream *stream = NULL;
            status = reshard_stream_create(part, stage, rank == 0 ? 1 : 0, sending, &stream);
            reshard_stream_destroy(stream);
        }
    }
    if (status == RESHARD_OK) {
        size_t length;
        status = reshard_part_text(part, NULL, 0, &length);
    }
    reshard_part_destroy(part);
    return status;
}

static reshard_status plan_once(reshard_context *context, void *user)
{
    const attempt *given = user;
    reshard_layout *source = NULL, *target = NULL;
    reshard_plan *plan = NULL, *adjoint = NULL;
    reshard_plan_stats stats = {.size = sizeof stats};
    reshard_status status =
        reshard_layout_parse(context, given->source, given->ndim, given->shape, &source);
    if (status == RESHARD_OK)
        status = reshard_layout_parse(context, given->target, given->ndim, given->shape, &target);
    if (status == RESHARD_OK)
        status = reshard_plan_create_simple(context, source, target, RESHARD_F32, &given->options,
                                            &plan);
    if (status == RESHARD_OK && given->adjoint)
        status = reshard_plan_adjoint(plan, &adjoint);
    for (int32_t rank = 0; status == RESHARD_OK && rank < 2; rank++)
        status = use_part(context, adjoint != NULL ? adjoint : plan, rank);
    if (status == RESHARD_OK)
        status = reshard_plan_get_stats(plan, &stats, NULL);
    if (status == RESHARD_OK)
        status = reshard_plan_check(plan);
    reshard_plan_release(adjoint);
    reshard_plan_release(plan);
    reshard_layout_release(source);
    reshard_layout_release(target);
    return status;
}

static void test_faults__plans(void **state)
{
    (void)state;
    enum { SIZE = sizeof(reshard_plan_options) };
    static const attempt attempts[] = {
        {"3: S(0)", "3: S(1)", 2, {7, 5}, {.size = SIZE}, 0},
        {"3: S(0)", "3[2,0,1]: S(0)", 2, {7, 5}, {.size = SIZE, .relabel = 1}, 0},
        {"3: P(sum)", "3: R", 2, {7, 5}, {.size = SIZE}, 0},
        {"3: P(avg)", "3: R", 2, {7, 5}, {.size = SIZE}, 1},
        {"2,2: R, S(0)", "3: S(1)", 2, {7, 5}, {.size = SIZE, .balance = RESHARD_BALANCE_EXACT}, 0},
        {"boxes 6x6: 0[0:2,0:4] 1[0:4,4:6] 2[2:6,0:4] 3[4:6,4:6]",
         "2: S(flat)",
         2,
         {6, 6},
         {.size = SIZE},
         1},
        {"1: R", "4: R", 1, {9}, {.size = SIZE}, 0},
    };
    for (size_t i = 0; i < sizeof attempts / sizeof attempts[0]; i++) {
        words said = {""};
        attempt given = attempts[i];
        if (!context_fail_each(plan_once, &given, &said))
            fail_msg("%s to %s: %s", given.source, given.target, said.text);
    }
}

/* Two halves of a target by links of their own. */
static reshard_status plan_links(reshard_context *context, void *user)
{
    reshard_plan_tensor source = {"a", user, RESHARD_F32}, target = {"b", user, RESHARD_F32};
    reshard_link links[2] = {reshard_link_whole(0, 0), reshard_link_whole(0, 0)};
    for (int i = 0; i < 2; i++)
        links[i].source_box = links[i].target_box =
            (reshard_box){.ndim = 2, .offset = {3 * i, 0}, .size = {3, 6}};
    reshard_plan *plan = NULL;
    reshard_status status =
        reshard_plan_create(context, 1, &source, 1, &target, 2, links, NULL, &plan);
    reshard_plan_release(plan);
    return status;
}

static void test_faults__links(void **state)
{
    (void)state;
    words said = {""};
    reshard_layout *layout = NULL;
    assert_int_equal(reshard_layout_parse(NULL, "2: S(0)", 2, (int64_t[]){6, 6}, &layout), 0);
    if (!context_fail_each(plan_links, layout, &said))
        fail_msg("%s", said.text);
    reshard_layout_release(layout);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_faults__plans),
                                       cmocka_unit_test(test_faults__links)};
    return cmocka_run_group_tests_name("plan_faults", tests, NULL, NULL);
}
