/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_started.c - redistribute that is started and waited for. Results and gradients must be those
 * of the blocking call, bit for bit, however many are under way and in whichever order ranks wait.
 * (differences.h holds the gradients against finite differences, test_faults.c lets memory run
 * out.)
 */
#include "tests/support/check.h"
#include "tests/support/info.h"
#include "tests/tensor/distributed.h"

#include <reshard/own_operation.h>
#include <reshard/sim.h>

#include <string.h>

static reshard_redistribution *start_to(reshard_tensor *tensor, const char *text)
{
    reshard_spec *spec = spec_of(text);
    reshard_redistribution *started = reshard_tensor_redistribute_start(tensor, spec, NULL);
    reshard_spec_release(spec);
    return started;
}

static bool same_shards(const reshard_tensor *a, const reshard_tensor *b)
{
    int64_t count = info_tensor(a).local_shard_count;
    bool same = count == info_tensor(b).local_shard_count;
    for (int64_t i = 0; same && i < count; i++) {
        const reshard_tensor *x = reshard_tensor_local_shard(a, i);
        const reshard_tensor *y = reshard_tensor_local_shard(b, i);
        same = reshard_tensor_volume(x) == reshard_tensor_volume(y) &&
               memcmp(reshard_tensor_data(x), reshard_tensor_data(y),
                      (size_t)reshard_tensor_volume(x) * sizeof(double)) == 0;
    }
    return same;
}

/* ---- many at once ---------------------------------------------------------------------------- */

enum { MANY = 5 };

/* Moves of the same two layouts and of others, under way together. Each rank waits in an order of
 * its own, so that the ranks' caches of plans come to differ. */
static reshard_status body_many(void *user, reshard_group *group)
{
    (void)user;
    static const char *const ways[MANY] = {"3: S(1)", "3: S(1)", "3: R", "3: S(1)",
                                           "3[2,0,1]: S(0)"};
    int32_t rank = reshard_group_rank(group);
    reshard_tensor *x[MANY];
    for (int i = 0; i < MANY; i++)
        x[i] = spread_random(group, "3: S(0)", RESHARD_F64, SHAPE(7, 5), (uint64_t)i);
    for (int step = 0; step < 4; step++) {
        reshard_scope *scope = NULL;
        reshard_redistribution *started[MANY];
        reshard_tensor *expected[MANY];
        TRY(reshard_scope_open(NULL, &scope));
        for (int i = 0; i < MANY; i++)
            started[i] = start_to(x[i], ways[i]);
        reshard_tensor *between = move_to(x[0], "3: S(1)"); /* blocking, while they are under way */
        for (int i = 0; i < MANY; i++)
            expected[i] = i == 0 ? between : move_to(x[i], ways[i]);
        for (int k = 0; k < MANY; k++) {
            int i = (k * (rank + 1) + step) % MANY;
            reshard_tensor *found = reshard_tensor_redistribute_wait(started[i]);
            TRY(reshard_scope_status(scope));
            CHECK(same_shards(found, expected[i]));
        }
        TRY(reshard_scope_close(scope));
    }
    for (int i = 0; i < MANY; i++)
        reshard_tensor_release(x[i]);
    return RESHARD_OK;
}

/* Two are under way; each rank waits for another one, and so gives back another plan. The next move
 * between the same layouts must not use what each rank happens to find. */
static reshard_status body_differ(void *user, reshard_group *group)
{
    (void)user;
    int32_t rank = reshard_group_rank(group);
    reshard_tensor *x = spread_random(group, "3: S(0)", RESHARD_F64, SHAPE(7, 5), 1);
    for (int step = 0; step < 3; step++) {
        reshard_scope *scope = NULL;
        reshard_redistribution *started[3];
        TRY(reshard_scope_open(NULL, &scope));
        started[0] = start_to(x, "3: S(1)");
        started[1] = start_to(x, "3: S(1)");
        reshard_tensor *first = reshard_tensor_redistribute_wait(started[rank % 2]);
        started[2] = start_to(x, "3: S(1)");
        reshard_tensor *third = reshard_tensor_redistribute_wait(started[2]);
        reshard_tensor *second = reshard_tensor_redistribute_wait(started[1 - rank % 2]);
        TRY(reshard_scope_status(scope));
        CHECK(same_shards(first, second) && same_shards(first, third));
        TRY(reshard_scope_close(scope));
    }
    reshard_tensor_release(x);
    return RESHARD_OK;
}

static void test_started__many_in_any_order(void **state)
{
    (void)state;
    run_ranks(3, body_many, NULL);
    run_ranks(3, body_differ, NULL);
    for (uint64_t seed = 0; seed < 12; seed++) {
        reshard_sim_options options = {.size = sizeof options, .seed = seed};
        if (reshard_sim_run(NULL, 3, &options, body_many, NULL) != RESHARD_OK)
            fail_msg("seed %d: %s", (int)seed, reshard_error_text());
        if (reshard_sim_run(NULL, 3, &options, body_differ, NULL) != RESHARD_OK)
            fail_msg("caches differ, seed %d: %s", (int)seed, reshard_error_text());
    }
}

/* ---- gradients ------------------------------------------------------------------------------- */

/* What the backward pass finds between the two steps: how many plans the cache holds. One that is
 * under way is not among them. */
typedef struct probe {
    const reshard_tensor *tensor;
    int64_t *held;
} probe;

static reshard_status pass_on(reshard_operation_call *call, reshard_tensor *const *inputs,
                              reshard_tensor **outputs)
{
    (void)call;
    outputs[0] = reshard_tensor_clone(inputs[0]);
    return RESHARD_OK;
}

static reshard_status look_and_pass_on(reshard_operation_call *call,
                                       reshard_tensor *const *gradients,
                                       reshard_tensor **out_gradients)
{
    const probe *p = call->data;
    reshard_tensor_info counts = {.size = sizeof counts};
    TRY(reshard_tensor_get_info(p->tensor, &counts));
    *p->held = counts.plans_held;
    out_gradients[0] = reshard_tensor_clone(gradients[0]);
    return RESHARD_OK;
}

static const reshard_operation looking = {.size = sizeof looking,
                                          .name = "looking",
                                          .forward = pass_on,
                                          .backward = look_and_pass_on,
                                          .data_bytes = sizeof(probe)};

/* sum(gelu(moved x) * moved w), where w is under way while x is computed with. */
static reshard_tensor *loss_of(reshard_tensor *x, reshard_tensor *w, bool starts, int64_t *held)
{
    reshard_redistribution *started = starts ? start_to(w, "4: S(1)") : NULL;
    probe p = {w, held};
    reshard_tensor *y = reshard_gelu(move_to(x, "4: S(1)"));
    y = reshard_operation_run(&looking, &p, &y, NULL);
    reshard_tensor *moved =
        starts ? reshard_tensor_redistribute_wait(started) : move_to(w, "4: S(1)");
    return reshard_sum(reshard_mul(y, moved));
}

static reshard_status body_gradients(void *user, reshard_group *group)
{
    (void)user;
    reshard_tensor *x[2], *w[2];
    int64_t held[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        x[i] = spread_random(group, "4: S(0)", RESHARD_F64, SHAPE(6, 9), 1);
        w[i] = spread_random(group, "4[3,1,2,0]: S(0~)", RESHARD_F64, SHAPE(6, 9), 2);
        TRY(reshard_tensor_set_requires_grad(x[i], 1));
        TRY(reshard_tensor_set_requires_grad(w[i], 1));
    }
    for (int step = 0; step < 3; step++) {
        for (int i = 0; i < 2; i++) {
            reshard_scope *scope = NULL;
            TRY(reshard_scope_open(NULL, &scope));
            reshard_tensor *loss = loss_of(x[i], w[i], i == 1, &held[i]);
            reshard_backward_options retain = {.size = sizeof retain, .retain_graph = 1};
            TRY(reshard_backward(loss, NULL, step == 2 ? &retain : NULL));
            if (step == 2) /* the same graph again */
                TRY(reshard_backward(loss, NULL, NULL));
            TRY(reshard_scope_close(scope));
        }
        CHECK(same_shards(reshard_tensor_gradient(x[0]), reshard_tensor_gradient(x[1])));
        CHECK(same_shards(reshard_tensor_gradient(w[0]), reshard_tensor_gradient(w[1])));
    }
    CHECK(held[1] == held[0] - 1); /* the gradient of w was under way */
    for (int i = 0; i < 2; i++) {
        reshard_tensor_release(x[i]);
        reshard_tensor_release(w[i]);
    }
    return RESHARD_OK;
}

static void test_started__gradients_overlap_too(void **state)
{
    (void)state;
    run_ranks(4, body_gradients, NULL);
}

/* Options: another dtype, another layout and dtype of the gradient, and layouts that are equal. */
static reshard_status body_options(void *user, reshard_group *group)
{
    (void)user;
    reshard_spec *columns = spec_of("3: S(1)"), *whole = spec_of("3: R"),
                 *rows = spec_of("3: S(0)");
    reshard_redistribute_options ways[3] = {
        {.size = sizeof ways[0], .dtype = RESHARD_F32},
        {.size = sizeof ways[0], .gradient_spec = columns, .gradient_dtype = RESHARD_F32},
        {.size = sizeof ways[0]}};
    reshard_spec *to[3] = {columns, whole, rows};
    for (int way = 0; way < 3; way++) {
        reshard_tensor *x[2];
        for (int i = 0; i < 2; i++) {
            reshard_scope *scope = NULL;
            x[i] = spread_random(group, "3: S(0)", RESHARD_F64, SHAPE(5, 4), 3);
            TRY(reshard_tensor_set_requires_grad(x[i], 1));
            TRY(reshard_scope_open(NULL, &scope));
            reshard_tensor *y =
                i == 0 ? reshard_tensor_redistribute(x[i], to[way], &ways[way])
                       : reshard_tensor_redistribute_wait(
                             reshard_tensor_redistribute_start(x[i], to[way], &ways[way]));
            (void)reshard_backward(reshard_sum(reshard_mul(y, y)), NULL, NULL);
            TRY(reshard_scope_close(scope));
        }
        CHECK(same_shards(reshard_tensor_gradient(x[0]), reshard_tensor_gradient(x[1])));
        reshard_tensor_release(x[0]);
        reshard_tensor_release(x[1]);
    }
    reshard_spec_release(columns);
    reshard_spec_release(whole);
    reshard_spec_release(rows);
    return RESHARD_OK;
}

static void test_started__options(void **state)
{
    (void)state;
    run_ranks(3, body_options, NULL);
}

/* ---- misuse and dropping --------------------------------------------------------------------- */

static reshard_status expect_failure(reshard_scope *scope, reshard_status status, const char *text)
{
    CHECK(reshard_scope_status(scope) == status && strstr(reshard_error_text(), text) != NULL);
    (void)reshard_scope_close(scope);
    return RESHARD_OK;
}

static reshard_status body_misuse(void *user, reshard_group *group)
{
    (void)user;
    reshard_scope *scope = NULL;
    int32_t rank = reshard_group_rank(group);
    reshard_tensor *x = spread_random(group, "3: S(0)", RESHARD_F64, SHAPE(6, 4), 5);
    TRY(reshard_scope_open(NULL, &scope)); /* waited for twice */
    reshard_redistribution *started = start_to(x, "3: R");
    CHECK(reshard_tensor_redistribute_wait(started) != NULL);
    CHECK(reshard_tensor_redistribute_wait(started) == NULL);
    TRY(expect_failure(scope, RESHARD_ERR_INVALID, "waited for already"));
    TRY(reshard_scope_open(NULL, &scope)); /* written meanwhile */
    started = start_to(x, "3: S(1)");
    TRY(reshard_tensor_fill(reshard_tensor_local_shard(x, 0), 1));
    CHECK(reshard_tensor_redistribute_wait(started) == NULL);
    TRY(expect_failure(scope, RESHARD_ERR_INVALID, "overwritten while it was being"));
    TRY(reshard_group_barrier(group));
    TRY(reshard_scope_open(NULL, &scope)); /* one rank asks for something else */
    CHECK(start_to(x, rank == 1 ? "3: R" : "3: S(1)") == NULL);
    TRY(expect_failure(scope, RESHARD_ERR_MISMATCH, "redistribute"));
    TRY(reshard_scope_open(NULL, &scope)); /* a local tensor; NULL */
    CHECK(start_to(reshard_tensor_to_local(x, NULL), "3: R") == NULL);
    CHECK(reshard_tensor_redistribute_wait(NULL) == NULL);
    TRY(expect_failure(scope, RESHARD_ERR_INVALID, "the tensor is local"));
    reshard_tensor_release(x);
    return RESHARD_OK;
}

static void test_started__misuse(void **state)
{
    (void)state;
    run_ranks(3, body_misuse, NULL);
}

/* Nobody waits; or only some ranks do, and one fails before it could. The source is gone. */
static reshard_status body_dropped(void *user, reshard_group *group)
{
    (void)user;
    int32_t rank = reshard_group_rank(group);
    for (int way = 0; way < 3; way++) {
        reshard_scope *scope = NULL;
        reshard_tensor *x = spread_random(group, "3: S(0)", RESHARD_F64, SHAPE(40, 30), 5);
        reshard_tensor *expected = NULL;
        TRY(reshard_tensor_set_requires_grad(x, 1));
        TRY(reshard_scope_open(NULL, &scope));
        expected = move_to(x, "3: S(1)");
        reshard_redistribution *started = start_to(x, "3: S(1)");
        reshard_redistribution *other = start_to(x, "3: R");
        CHECK(started != NULL && other != NULL);
        reshard_tensor_release(x);
        if (way == 2 && rank == 1)
            (void)reshard_scope_note(reshard_error_set(RESHARD_ERR_IO, "on purpose"));
        if (way >= 1 && rank != 0)
            (void)reshard_tensor_redistribute_wait(other);
        if (way >= 1 && rank != 1)
            CHECK(same_shards(reshard_tensor_redistribute_wait(started), expected));
        reshard_status status = reshard_scope_close(scope);
        CHECK(status == (way == 2 && rank == 1 ? RESHARD_ERR_IO : RESHARD_OK));
        TRY(reshard_group_barrier(group)); /* the group goes on */
    }
    return RESHARD_OK;
}

static void test_started__dropped(void **state)
{
    (void)state;
    run_ranks(3, body_dropped, NULL);
    for (uint64_t seed = 0; seed < 12; seed++) {
        reshard_sim_options options = {.size = sizeof options, .seed = seed};
        if (reshard_sim_run(NULL, 3, &options, body_dropped, NULL) != RESHARD_OK)
            fail_msg("seed %d: %s", (int)seed, reshard_error_text());
    }
}

/* Each message in turn breaks the group: all ranks end, with an error. */
static reshard_status body_broken(void *user, reshard_group *group)
{
    (void)user;
    reshard_scope *scope = NULL;
    int64_t held = 0;
    reshard_tensor *x = spread_random(group, "4: S(0)", RESHARD_F64, SHAPE(4, 4), 1);
    reshard_tensor *w =
        x != NULL ? spread_random(group, "4: R", RESHARD_F64, SHAPE(4, 4), 2) : NULL;
    reshard_status status = RESHARD_ERR_GROUP_BROKEN;
    if (w != NULL) {
        MUST(reshard_tensor_set_requires_grad(x, 1));
        MUST(reshard_tensor_set_requires_grad(w, 1));
        MUST(reshard_scope_open(NULL, &scope));
        (void)reshard_backward(loss_of(x, w, true, &held), NULL, NULL);
        status = reshard_scope_close(scope);
    }
    reshard_tensor_release(x);
    reshard_tensor_release(w);
    return status;
}

static void test_started__broken_groups(void **state)
{
    (void)state;
    int reached = 1;
    int64_t message = 0;
    while (reached) {
        message++;
        reshard_sim_options options = {.size = sizeof options,
                                       .seed = (uint64_t)message,
                                       .fail_message = message,
                                       .out_reached = &reached};
        reshard_status status = reshard_sim_run(NULL, 4, &options, body_broken, NULL);
        if ((status == RESHARD_OK) == (reached != 0))
            fail_msg("message %d: %s", (int)message, reshard_error_text());
    }
    assert_true(message > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_started__many_in_any_order),
        cmocka_unit_test(test_started__gradients_overlap_too),
        cmocka_unit_test(test_started__options),
        cmocka_unit_test(test_started__misuse),
        cmocka_unit_test(test_started__dropped),
        cmocka_unit_test(test_started__broken_groups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
