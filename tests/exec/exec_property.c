/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec_property.c - plans between random layouts, carried out by live ranks: threads, and the
 * simulation with memory that is seen and memory that is not. Every target holds what the oracle
 * says. Ranks only run; the main thread checks.
 */
#include "tests/support/live.h"

#include "kernel/values/cast.h"
#include "plan/plan.h"
#include "tests/support/info.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void generate_pair(draw_state *draw, harness_case *made)
{
    live_generate_pair(draw, 0, made);
}

static bool check_pair(const harness_case *given, words *said)
{
    bool right = true;
    for (int i = 0; i < live_way_count && right; i++)
        right = live_check_there(given, &live_ways[i], said);
    return right;
}

static void test_exec__random_pairs(void **state)
{
    (void)state;
    harness_run("live run of a random pair", 120, generate_pair, check_pair);
}

/* ---- one rank alone -------------------------------------------------------------------------- */

static reshard_status run_self(const live_way *way, uint64_t seed, int32_t size,
                               reshard_rank_fn body, void *user)
{
    (void)way;
    (void)seed;
    assert_int_equal(size, 1);
    reshard_group *group = NULL;
    reshard_status status = reshard_group_self(NULL, &group);
    if (status == RESHARD_OK)
        status = body(user, group);
    reshard_group_release(group);
    return status;
}

static void generate_alone(draw_state *draw, harness_case *made)
{
    live_generate_pair(draw, 1, made);
}

static bool check_alone(const harness_case *given, words *said)
{
    static const live_way ways[] = {
        {.name = "self", .run = run_self},
        {.name = "self, messages", .run = run_self, .messages_only = 1},
    };
    return live_check_there(given, &ways[given->seed / 2 % 2], said) &&
           live_check_back(given, &ways[given->seed / 2 % 2], said);
}

static void test_exec__alone(void **state)
{
    (void)state;
    harness_run("one rank alone", 200, generate_alone, check_alone);
}

static bool check_back(const harness_case *given, words *said)
{
    bool right = true;
    for (int i = 0; i < live_way_count && right; i++)
        right = live_check_back(given, &live_ways[i], said);
    return right;
}

static void test_exec__there_and_back(void **state)
{
    (void)state;
    harness_run("live run there and back", 20, generate_pair, check_back);
}

/* ---- adjoints -------------------------------------------------------------------------------- */

/* Live ranks and the simulator, which adds element by element, come to the same. */
static bool check_adjoint(const harness_case *given, words *said)
{
    planning made;
    planning_state state = planning_init(&made, given, RESHARD_F64, NULL, said);
    if (state != PLANNING_READY)
        return state == PLANNING_SKIPPED;
    reshard_plan *adjoint = NULL;
    if (reshard_plan_adjoint(made.plan, &adjoint) != RESHARD_OK) {
        planning_free(&made);
        return true; /* min, max and prod have none */
    }
    simulate_tensor *from = simulate_tensor_create(reshard_plan_target_layout(made.plan, 0));
    simulate_tensor *wanted = simulate_tensor_create(made.source_layout);
    simulate_tensor *to = simulate_tensor_create(made.source_layout);
    live_fill_with_integers(from, given->seed);
    simulate_clear(wanted);
    simulate_run run = {
        .plan = adjoint, .direction = SIMULATE_PULL, .sources = &from, .targets = &wanted};
    bool right = simulate(&run, said);
    for (int messages = 0; messages < 2 && right; messages++) {
        live l = {.plan = adjoint, .from = from, .to = to, .runs = 2};
        l.options = (reshard_exec_options){.size = sizeof l.options, .messages_only = messages};
        if (reshard_group_run(NULL, rs_plan_forward(adjoint)->rank_count, live_run_rank, &l) !=
            RESHARD_OK)
            right = words_say(said, "adjoint: %s", reshard_error_text());
        else if (!simulate_equal(to, wanted))
            right = words_say(said, "the adjoint differs, messages %d", messages);
    }
    simulate_release(&run);
    simulate_tensor_destroy(from);
    simulate_tensor_destroy(wanted);
    simulate_tensor_destroy(to);
    reshard_plan_release(adjoint);
    planning_free(&made);
    return right;
}

static void test_exec__adjoints(void **state)
{
    (void)state;
    harness_run("live adjoint of a random pair", 150, generate_pair, check_adjoint);
}

/* ---- all permutations of owners -------------------------------------------------------------- */

static void test_exec__every_permutation_of_owners(void **state)
{
    (void)state;
    for (int i = 0; i < 120; i++) {
        harness_case given;
        live_set_permutation(i, &given);
        harness_check("owners change", &given, check_pair);
    }
}

/* ---- runs allocate nothing ------------------------------------------------------------------- */

static void *count_allocate(void *user, size_t bytes)
{
    (void)atomic_fetch_add((atomic_int *)user, 1);
    return malloc(bytes);
}

static void *count_resize(void *user, void *memory, size_t bytes_old, size_t bytes_new)
{
    (void)bytes_old;
    (void)atomic_fetch_add((atomic_int *)user, 1);
    return realloc(memory, bytes_new);
}

static void just_free(void *user, void *memory, size_t bytes)
{
    (void)user;
    (void)bytes;
    free(memory);
}

typedef struct counted {
    live l;
    reshard_context *context;
    atomic_int *calls;
    int before[4], after[4];
} counted;

static reshard_status run_counted(void *user, reshard_group *group)
{
    counted *c = user;
    int32_t rank = reshard_group_rank(group);
    void *sources[4] = {NULL}, *targets[4] = {NULL};
    (void)live_list_buffers(c->l.from, rank, sources);
    (void)live_list_buffers(c->l.to, rank, targets);
    reshard_exec *exec = NULL;
    reshard_status status = reshard_exec_create(c->context, c->l.plan, group, &c->l.options, &exec);
    if (status == RESHARD_OK)
        status = reshard_group_barrier(group);
    c->before[rank] = atomic_load(c->calls);
    for (int i = 0; i < 5 && status == RESHARD_OK; i++) {
        status = reshard_exec_start(exec, (const void *const *)sources, targets);
        if (status == RESHARD_OK)
            status = reshard_exec_wait(exec);
    }
    if (status == RESHARD_OK)
        status = reshard_group_barrier(group);
    c->after[rank] = atomic_load(c->calls);
    if (status == RESHARD_OK)
        status = reshard_group_barrier(group); /* nobody destroys before all have looked */
    reshard_exec_destroy(exec);
    return status;
}

static void test_exec__runs_allocate_nothing(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"4: S(0)", "4: S(1)"}, {"4: P(sum)", "4: R"}, {"4: S(0)", "4: S(1/1)"}};
    for (int i = 0; i < 6; i++) {
        live_fixture f;
        live_fixture_init(&f, pairs[i / 2][0], pairs[i / 2][1], i % 2);
        atomic_int calls = 0;
        reshard_allocator allocator = {count_allocate, count_resize, just_free, &calls};
        reshard_context_options options = {.size = sizeof options, .allocator = &allocator};
        counted c = {.l = f.l, .calls = &calls};
        assert_int_equal(reshard_context_create(&options, &c.context), RESHARD_OK);
        assert_int_equal(reshard_group_run(NULL, 4, run_counted, &c), RESHARD_OK);
        for (int r = 0; r < 4; r++) {
            assert_true(c.before[r] > 10);
            assert_int_equal(c.before[r], c.after[r]);
        }
        assert_int_equal(info_memory(c.context).bytes, 0);
        reshard_context_destroy(c.context);
        live_fixture_release(&f);
    }
}

/* ---- casts on the way ------------------------------------------------------------------------ */

typedef struct casting {
    reshard_plan *plan;
    int messages;
    reshard_dtype from, to;
    int wrong[3];
} casting;

enum { CASTING_SHARD = 24 };

/* Whole numbers up to 71 are the same in all four types. Written and read one by one, the obvious
 * way. */
static reshard_status run_casting(void *user, reshard_group *group)
{
    casting *c = user;
    int32_t rank = reshard_group_rank(group);
    double source_memory[CASTING_SHARD] = {0}, target_memory[CASTING_SHARD] = {0};
    const void *source = source_memory;
    void *target = target_memory;
    for (int i = 0; i < CASTING_SHARD; i++) { /* rows: two of six each, of 6x12 */
        double value = rank * CASTING_SHARD + i;
        rs_cast_reference(RESHARD_F64, c->from, &value,
                          (char *)source_memory + i * reshard_dtype_bits(c->from) / 8);
    }
    reshard_exec_options options = {.size = sizeof options, .messages_only = c->messages};
    reshard_exec *exec = NULL;
    reshard_status status = reshard_exec_create(NULL, c->plan, group, &options, &exec);
    if (status == RESHARD_OK)
        status = reshard_exec_start(exec, &source, &target);
    if (status == RESHARD_OK)
        status = reshard_exec_wait(exec);
    reshard_exec_destroy(exec);
    for (int i = 0; i < CASTING_SHARD; i++) { /* columns: four of twelve each */
        double found = -1;
        rs_cast_reference(c->to, RESHARD_F64,
                          (char *)target_memory + i * reshard_dtype_bits(c->to) / 8, &found);
        c->wrong[rank] += found != i / 4 * 12 + rank * 4 + i % 4;
    }
    return status;
}

static void test_exec__casts(void **state)
{
    (void)state;
    static const reshard_dtype dtypes[] = {RESHARD_F16, RESHARD_BF16, RESHARD_F32, RESHARD_F64};
    const int64_t shape[] = {6, 12};
    reshard_layout *rows = NULL, *columns = NULL;
    assert_int_equal(reshard_layout_parse(NULL, "3: S(0)", 2, shape, &rows), RESHARD_OK);
    assert_int_equal(reshard_layout_parse(NULL, "3: S(1)", 2, shape, &columns), RESHARD_OK);
    for (int i = 0; i < 2 * 4 * 4; i++) {
        casting c = {.messages = i % 2, .from = dtypes[i / 2 % 4], .to = dtypes[i / 8]};
        reshard_plan_tensor from = {"from", rows, c.from}, to = {"to", columns, c.to};
        reshard_link link = reshard_link_whole(0, 0);
        assert_int_equal(reshard_plan_create(NULL, 1, &from, 1, &to, 1, &link, NULL, &c.plan),
                         RESHARD_OK);
        assert_int_equal(reshard_group_run(NULL, 3, run_casting, &c), RESHARD_OK);
        for (int r = 0; r < 3; r++)
            assert_int_equal(c.wrong[r], 0);
        reshard_plan_release(c.plan);
    }
    reshard_layout_release(rows);
    reshard_layout_release(columns);
}

typedef struct odd_plan {
    reshard_plan *usual, *other;
    reshard_status seen[4];
    char text[4][160];
} odd_plan;

static reshard_status create_with_own_plan(void *user, reshard_group *group)
{
    odd_plan *o = user;
    int32_t rank = reshard_group_rank(group);
    reshard_exec *exec = NULL;
    o->seen[rank] = reshard_exec_create(NULL, rank == 2 ? o->other : o->usual, group, NULL, &exec);
    (void)strncpy(o->text[rank], reshard_error_text(), sizeof o->text[rank] - 1);
    reshard_exec_destroy(exec);
    return RESHARD_OK;
}

static void test_exec__odd_rank_is_named(void **state)
{
    (void)state;
    live_fixture f, g;
    live_fixture_init(&f, "4: S(0)", "4: S(1)", 0);
    live_fixture_init(&g, "4: S(0)", "4: S(1~)", 0);
    odd_plan o = {.usual = f.plan, .other = g.plan};
    assert_int_equal(reshard_group_run(NULL, 4, create_with_own_plan, &o), RESHARD_OK);
    for (int r = 0; r < 4; r++) {
        assert_int_equal(o.seen[r], RESHARD_ERR_MISMATCH);
        assert_non_null(strstr(o.text[r], "rank 2"));
    }
    live_fixture_release(&f);
    live_fixture_release(&g);
}

static void test_exec__group_too_small(void **state)
{
    (void)state;
    live_fixture f;
    live_fixture_init(&f, "4: S(0)", "4: S(1)", 0);
    assert_int_equal(reshard_group_run(NULL, 3, live_run_rank, &f.l), RESHARD_ERR_RANGE);
    assert_non_null(strstr(reshard_error_text(), "rank 3"));
    live_fixture_release(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exec__casts),
        cmocka_unit_test(test_exec__random_pairs),
        cmocka_unit_test(test_exec__there_and_back),
        cmocka_unit_test(test_exec__alone),
        cmocka_unit_test(test_exec__adjoints),
        cmocka_unit_test(test_exec__odd_rank_is_named),
        cmocka_unit_test(test_exec__runs_allocate_nothing),
        cmocka_unit_test(test_exec__group_too_small),
        cmocka_unit_test(test_exec__every_permutation_of_owners),
    };
    return cmocka_run_group_tests_name("exec_property", tests, NULL, NULL);
}
