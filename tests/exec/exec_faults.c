/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec_faults.c - every message of a run fails, comes late or out of order, every call of every
 * rank is its last, every allocation of every rank fails: the n-th, for n = 1, 2, .. until the run
 * tells that there is no n-th. Nobody hangs, nothing leaks, and what ends well holds the right
 * bytes.
 */
#include "tests/support/check.h"
#include "tests/support/context.h"
#include "tests/support/live.h"

#include <reshard/sim.h>

#include <string.h>

enum { RANKS = 4 };

/* Two stages with reductions; a plain exchange; one rank to all. */
static const char *const pairs[][2] = {
    {"4: P(sum)", "4: R"},
    {"4: S(0)", "4: S(1)"},
    {"4: A(2)", "4: R"},
};

enum { PAIRS = (int)(sizeof pairs / sizeof *pairs) };

/* Runs the fixture with the n-th fault, and says whether there was one. */
static bool run_with_fault(live_fixture *f, reshard_sim_options *sim, bool harmless)
{
    int reached = -1;
    sim->size = sizeof *sim;
    sim->mapped = !f->l.options.messages_only && f->l.shared_sources == 0;
    sim->node_size = f->l.shared_sources != 0 ? 3 : 0;
    sim->out_reached = &reached;
    for (int64_t i = 0; i < f->to->count; i++) /* what an earlier run left must not pass for this */
        memset(f->to->buffers[i].values, 0xff,
               (size_t)f->to->buffers[i].count * sizeof *f->to->buffers[i].values);
    reshard_status status = reshard_sim_run(NULL, RANKS, sim, live_run_rank, &f->l);
    if (harmless || !reached) {
        assert_int_equal(status, RESHARD_OK);
        assert_true(simulate_equal(f->to, f->wanted));
    } else {
        assert_int_equal(status, RESHARD_ERR_GROUP_BROKEN);
    }
    assert_true(reached == 0 || reached == 1);
    return reached;
}

enum { SEEN, NOT_SEEN, SEEN_IN_PART, MEMORIES };

typedef enum fault { FAIL, DELAY, REORDER, STOP } fault;

/* How many there were. Sanitizers, which scale tests down, try every few. */
static int64_t run_all(live_fixture *f, fault kind, int32_t rank)
{
    double scale = harness_scale();
    int64_t step = scale >= 1 ? 1 : scale > 0.1 ? (int64_t)(1 / scale) : 10;
    int64_t n = 1;
    for (bool reached = true; reached; n += step) {
        reshard_sim_options sim = {.seed = (uint64_t)n};
        *(kind == FAIL      ? &sim.fail_message
          : kind == DELAY   ? &sim.delay_message
          : kind == REORDER ? &sim.reorder_message
                            : &sim.stop_after) = n;
        sim.stop_rank = rank;
        reached = run_with_fault(f, &sim, kind == DELAY || kind == REORDER);
        assert_true(n < 20000);
    }
    return n - 2 * step;
}

static void check_kind(fault kind, int pair_count, int32_t ranks)
{
    for (int i = 0; i < pair_count * MEMORIES; i++) {
        live_fixture f;
        live_fixture_init(&f, pairs[i / MEMORIES][0], pairs[i / MEMORIES][1],
                          i % MEMORIES == NOT_SEEN);
        f.l.runs = 1;
        if (i % MEMORIES == SEEN_IN_PART) { /* three ranks on a node, not all of their memory */
            f.l.shared_sources = 3;
            f.l.shared_targets = 6;
        }
        for (int32_t rank = 0; rank < ranks; rank++) {
            /* If there were fewer, nothing much has been tried. */
            assert_true(run_all(&f, kind, rank) >= 10);
        }
        live_fixture_release(&f);
    }
}

static void test_faults__every_message_fails(void **state)
{
    (void)state;
    check_kind(FAIL, PAIRS, 1);
}

static void test_faults__every_message_is_late(void **state)
{
    (void)state;
    check_kind(DELAY, PAIRS, 1);
}

static void test_faults__every_message_is_overtaken(void **state)
{
    (void)state;
    check_kind(REORDER, PAIRS, 1);
}

static void test_faults__every_call_is_the_last(void **state)
{
    (void)state;
    check_kind(STOP, 1, RANKS);
}

/* ---- memory that runs out -------------------------------------------------------------------- */

typedef struct starving {
    live_fixture f;
    bool simulated;
} starving;

static reshard_status attempt(reshard_context *context, void *user)
{
    starving *s = user;
    reshard_sim_options sim = {.size = sizeof sim, .seed = 5};
    s->f.l.context = context;
    return s->simulated ? reshard_sim_run(NULL, RANKS, &sim, live_run_rank, &s->f.l)
                        : reshard_group_run(NULL, RANKS, live_run_rank, &s->f.l);
}

/* All ranks are told of it, whoever it happens to. */
static void test_faults__memory_runs_out(void **state)
{
    (void)state;
    int step = harness_scale() < 1 ? 5 : 1; /* 5: each rank in one way */
    for (int i = 0; i < 2 * 2 * RANKS; i += step) {
        starving s = {.simulated = i % 2};
        live_fixture_init(&s.f, pairs[0][0], pairs[0][1], i / 2 % 2);
        s.f.l.context_rank = i / 4;
        words said = {""};
        if (!context_fail_each(attempt, &s, &said))
            fail_msg("rank %d: %s", i / 4, said.text);
        assert_true(simulate_equal(s.f.to, s.f.wanted));
        live_fixture_release(&s.f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_faults__every_message_fails),
        cmocka_unit_test(test_faults__every_message_is_late),
        cmocka_unit_test(test_faults__every_message_is_overtaken),
        cmocka_unit_test(test_faults__every_call_is_the_last),
        cmocka_unit_test(test_faults__memory_runs_out),
    };
    return cmocka_run_group_tests_name("exec faults", tests, NULL, NULL);
}
