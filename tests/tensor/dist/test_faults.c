/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_faults.c - one rank runs out of memory, at its first allocation, its second, and so on, in a
 * forward and backward pass with moves between layouts. All ranks get an error, nobody hangs,
 * nothing leaks.
 */
#include "tests/support/check.h"
#include "tests/support/context.h"
#include "tests/tensor/distributed.h"

#include <reshard/sim.h>

#include <string.h>

typedef struct attempt {
    reshard_context *context; /* of rank 1 */
    int way;
    reshard_status statuses[3]; /* with which each rank ended */
} attempt;

static reshard_status compute(reshard_context *context, reshard_group *group, reshard_tensor *x,
                              reshard_tensor *weight, int way)
{
    reshard_scope *scope = NULL;
    reshard_status status = reshard_scope_open(context, &scope);
    if (status != RESHARD_OK)
        return status;
    reshard_tensor *y = NULL;
    if (way == 0) {
        y = reshard_gelu(reshard_linear(x, weight, NULL));
        y = reshard_sum(reshard_tensor_full(move_to(move_to(y, "3: S(0)"), "3: R")));
    } else if (way == 3) { /* under way while something is computed, forwards and backwards */
        reshard_spec *whole = spec_of("3: R");
        reshard_redistribution *started = reshard_tensor_redistribute_start(weight, whole, NULL);
        y = reshard_gelu(x);
        y = reshard_linear(y, reshard_tensor_redistribute_wait(started), NULL);
        y = reshard_sum(reshard_tensor_full(y));
        reshard_spec_release(whole);
    } else {
        reshard_tensor *local = reshard_tensor_to_local(x, NULL);
        y = reshard_tensor_exchange(
            reshard_relu(local), group,
            RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_REDUCE,
                            .reduction = way == 1 ? RESHARD_MAX : RESHARD_PROD));
        y = reshard_sum(reshard_tensor_exchange(
            y, group, RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_GATHER)));
    }
    (void)reshard_backward(y, NULL, NULL);
    return reshard_scope_close(scope);
}

static reshard_status run_rank(void *user, reshard_group *group)
{
    attempt *a = user;
    int32_t rank = reshard_group_rank(group);
    reshard_tensor *x = spread_random(group, "3: R", RESHARD_F64, SHAPE(4, 3), 1);
    reshard_tensor *weight = spread_random(group, "3: S(0)", RESHARD_F64, SHAPE(5, 3), 2);
    reshard_status status = RESHARD_ERR_CHECK;
    if (x != NULL && weight != NULL) {
        MUST(reshard_tensor_set_requires_grad(x, 1));
        MUST(reshard_tensor_set_requires_grad(weight, 1));
        status = compute(rank == 1 ? a->context : NULL, group, x, weight, a->way);
    }
    reshard_tensor_release(x);
    reshard_tensor_release(weight);
    a->statuses[rank] = status;
    return status;
}

static reshard_status run_attempt(reshard_context *context, void *user)
{
    attempt *a = user;
    a->context = context;
    reshard_status status = reshard_group_run(NULL, 3, run_rank, a);
    for (int rank = 0; rank < 3; rank++) {
        if ((a->statuses[rank] == RESHARD_OK) != (status == RESHARD_OK))
            return reshard_error_set(RESHARD_ERR_CHECK, "one rank fails, and another one does not");
    }
    return status;
}

static void test_memory__of_one_rank(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++) {
        words said = {""};
        attempt a = {.way = way};
        if (!context_fail_each(run_attempt, &a, &said))
            fail_msg("way %d: %s", way, said.text);
    }
}

/* ---- steps over other groups ----------------------------------------------------------------- */

static reshard_status pack_as_it_is(void *user, reshard_tensor *tensor, void **out_packed)
{
    (void)user;
    *out_packed = reshard_tensor_retain(tensor);
    return RESHARD_OK;
}

static reshard_status unpack_or_fail(void *user, void *packed, reshard_tensor **out_tensor)
{
    if (*(const bool *)user)
        return reshard_error_set(RESHARD_ERR_IO, "it is gone");
    *out_tensor = reshard_tensor_retain(packed);
    return RESHARD_OK;
}

static void forget(void *user, void *packed)
{
    (void)user;
    reshard_tensor_release(packed);
}

/* Backward: over all ranks, then a step that rank 0 fails at, then over pairs of ranks, where its
 * partner would wait for it. */
static reshard_status fail_between_groups(void *user, reshard_group *group)
{
    (void)user;
    static const int32_t members[][2] = {{0, 1}, {2, 3}};
    int32_t rank = reshard_group_rank(group);
    bool fails = rank == 0;
    reshard_group *pairs[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++)
        TRY(reshard_group_subset(group, 2, members[i], &pairs[i]));
    reshard_tensor *x = make_zeros(RESHARD_F64, SHAPE(3));
    TRY(reshard_tensor_set_requires_grad(x, 1));
    reshard_saved_tensor_hooks hooks = {pack_as_it_is, unpack_or_fail, forget, &fails};
    reshard_scope *scope = NULL;
    TRY(reshard_scope_open(NULL, &scope));
    reshard_tensor *y = reshard_tensor_exchange(
        x, pairs[rank / 2],
        RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_REDUCE, .reduction = RESHARD_SUM));
    TRY(reshard_saved_tensor_hooks_push(NULL, &hooks));
    y = reshard_gelu(y);
    TRY(reshard_saved_tensor_hooks_pop());
    y = reshard_sum(reshard_tensor_exchange(
        y, group,
        RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_REDUCE, .reduction = RESHARD_SUM)));
    CHECK(y != NULL);
    reshard_status status = reshard_backward(y, NULL, NULL);
    CHECK(status == RESHARD_ERR_IO && strstr(reshard_error_text(), "it is gone") != NULL);
    (void)reshard_scope_close(scope);
    reshard_tensor_release(x);
    for (int i = 0; i < 2; i++)
        reshard_group_release(pairs[i]);
    return reshard_group_barrier(group); /* the group goes on */
}

static void test_backward__failure_between_groups(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 10; seed++) {
        reshard_sim_options options = {.size = sizeof options, .seed = seed};
        if (reshard_sim_run(NULL, 4, &options, fail_between_groups, NULL) != RESHARD_OK)
            fail_msg("%s", reshard_error_text());
    }
}

/* Ranks in rows and columns; one fails on its own before a sum over its row and one over its
 * column. Each call tells the ranks of its own group, and they tell theirs. */
static reshard_status fail_before_two_groups(void *user, reshard_group *group)
{
    (void)user;
    static const int32_t members[][2] = {{0, 1}, {2, 3}, {0, 2}, {1, 3}};
    int32_t rank = reshard_group_rank(group);
    reshard_group *pairs[4] = {NULL, NULL, NULL, NULL};
    for (int i = 0; i < 4; i++)
        TRY(reshard_group_subset(group, 2, members[i], &pairs[i]));
    reshard_tensor *x = make_zeros(RESHARD_F64, SHAPE(3));
    reshard_tensor *other = make_zeros(RESHARD_F64, SHAPE(5));
    reshard_scope *scope = NULL;
    TRY(reshard_scope_open(NULL, &scope));
    reshard_tensor *y = reshard_add(x, rank == 0 ? other : x);
    y = reshard_tensor_exchange(
        y, pairs[rank / 2],
        RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_REDUCE, .reduction = RESHARD_SUM));
    y = reshard_tensor_exchange(
        y, pairs[2 + rank % 2],
        RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_REDUCE, .reduction = RESHARD_SUM));
    CHECK(y == NULL);
    CHECK(reshard_scope_close(scope) == RESHARD_ERR_INVALID);
    CHECK(strstr(reshard_error_text(), "add: ") != NULL);
    reshard_tensor_release(x);
    reshard_tensor_release(other);
    for (int i = 0; i < 4; i++)
        reshard_group_release(pairs[i]);
    return reshard_group_barrier(group); /* the group goes on */
}

static void test_forward__failure_reaches_every_group(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 10; seed++) {
        reshard_sim_options options = {.size = sizeof options, .seed = seed};
        if (reshard_sim_run(NULL, 4, &options, fail_before_two_groups, NULL) != RESHARD_OK)
            fail_msg("%s", reshard_error_text());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory__of_one_rank),
        cmocka_unit_test(test_backward__failure_between_groups),
        cmocka_unit_test(test_forward__failure_reaches_every_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
