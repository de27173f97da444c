/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_traffic.c - traffic in rounds: with one parcel on each side, with few, and with segments so
 * short that they end inside elements, in many orders of events. Nothing may get stuck, and every
 * byte arrives where the simulator of plans puts it.
 */
#include "exec/exec.h"
#include "tests/support/check.h"
#include "tests/support/live.h"
#include "tests/support/ranks.h"

#include <reshard/sim.h>

#include <string.h>

enum { RANKS = 4 };

static const char *const pairs[][2] = {
    {"4: S(0)", "4: S(1)"},
    {"4: P(sum)", "4: R"},
    {"4: A(2)", "4: R"},
    {"2,2: S(1), S(0)", "4: S(flat)"},
};

enum { PAIRS = (int)(sizeof pairs / sizeof *pairs) };

typedef struct squeeze {
    live *l;
    int64_t parcels;      /* of each side, at most */
    size_t segment_bytes; /* at most */
    int64_t segments[RANKS];
} squeeze;

static void narrow(rs_parcels *parcels, int64_t most)
{
    parcels->count = parcels->count < most ? parcels->count : most;
}

static void shorten(rs_lanes *lanes, size_t segment_bytes)
{
    for (int64_t i = 0; i < lanes->count; i++) {
        if (lanes->items[i].segment_bytes > segment_bytes)
            lanes->items[i].segment_bytes = segment_bytes;
    }
}

static reshard_status run_narrow(void *user, reshard_group *group)
{
    squeeze *s = user;
    int32_t rank = reshard_group_rank(group);
    void *sources[8], *targets[8];
    (void)live_list_buffers(s->l->from, rank, sources);
    (void)live_list_buffers(s->l->to, rank, targets);
    reshard_exec *exec = NULL;
    TRY(reshard_exec_create(NULL, s->l->plan, group, &s->l->options, &exec));
    CHECK(exec->traffic != NULL);
    narrow(&exec->traffic->out, s->parcels);
    narrow(&exec->traffic->in, s->parcels);
    for (int32_t i = 0; i < exec->stage_count; i++) {
        shorten(&exec->traffic->stages[i].in, s->segment_bytes);
        shorten(&exec->traffic->stages[i].out, s->segment_bytes);
    }
    for (int i = 0; i < 2; i++) {
        TRY(reshard_exec_start(exec, (const void *const *)sources, targets));
        TRY(reshard_exec_wait(exec));
        const rs_lanes *in = &exec->traffic->stages[exec->stage_count - 1].in;
        CHECK(in->started == in->finished && in->next == in->count);
        s->segments[rank] = in->started;
    }
    reshard_exec_destroy(exec);
    return RESHARD_OK;
}

static void check_squeezed(live_fixture *f, int64_t parcels, size_t segment_bytes, uint64_t seed)
{
    squeeze s = {.l = &f->l, .parcels = parcels, .segment_bytes = segment_bytes};
    reshard_sim_options sim = {
        .size = sizeof sim, .seed = seed, .node_size = seed % 3 == 0 ? 2 : 0};
    for (int64_t i = 0; i < f->to->count; i++)
        memset(f->to->buffers[i].values, 0xff,
               (size_t)f->to->buffers[i].count * sizeof *f->to->buffers[i].values);
    if (reshard_sim_run(NULL, RANKS, &sim, run_narrow, &s) != RESHARD_OK)
        fail_msg("%d parcels, segments of %zu bytes, seed %d: %s", (int)parcels, segment_bytes,
                 (int)seed, reshard_error_text());
    assert_true(simulate_equal(f->to, f->wanted));
    /* 12x10 doubles: what a rank gets is cut as short as was asked for. */
    if (segment_bytes < 8 && seed % 3 != 0)
        assert_true(s.segments[0] > 8);
}

static void test_traffic__one_parcel(void **state)
{
    (void)state;
    static const size_t segments[] = {SIZE_MAX, 7, 64, 1};
    for (int i = 0; i < PAIRS; i++) {
        live_fixture f;
        live_fixture_init(&f, pairs[i][0], pairs[i][1], 0);
        for (uint64_t seed = 0; seed < 12; seed++)
            check_squeezed(&f, 1 + (int64_t)seed % 3, segments[seed % 4], seed);
        live_fixture_release(&f);
    }
}

/* Staging that peers on the node unpack from is as small as the segments that stay in the cache,
 * and so are execs that are kept; only lanes to other nodes have long segments. */
static reshard_status run_near_and_far(void *user, reshard_group *group)
{
    reshard_exec *exec = NULL;
    TRY(reshard_exec_create(NULL, user, group, NULL, &exec));
    const rs_lanes *out = &exec->traffic->stages[0].out;
    CHECK(out->count == RANKS - 1);
    bool all_near = true;
    for (int64_t i = 0; i < out->count; i++) {
        const rs_exec_peer *peer = out->items[i].peer;
        CHECK(out->items[i].segment_bytes == (peer->near ? (size_t)256 << 10 : (size_t)4 << 20));
        all_near = all_near && peer->near;
    }
    size_t bytes = rs_traffic_staging_bytes(exec->traffic);
    CHECK(bytes == (all_near ? (size_t)4 << 20 : (size_t)64 << 20));
    reshard_exec_destroy(exec);
    return RESHARD_OK;
}

static void test_traffic__staging_is_small_on_a_node(void **state)
{
    (void)state;
    static const int64_t shape[] = {8192, 8192};
    reshard_layout *rows = NULL, *columns = NULL;
    reshard_plan *plan = NULL;
    reshard_spec *specs[2] = {NULL, NULL};
    assert_int_equal(reshard_spec_parse(NULL, "4: S(0)", &specs[0]), RESHARD_OK);
    assert_int_equal(reshard_spec_parse(NULL, "4: S(1)", &specs[1]), RESHARD_OK);
    assert_int_equal(reshard_layout_create(NULL, specs[0], 2, shape, &rows), RESHARD_OK);
    assert_int_equal(reshard_layout_create(NULL, specs[1], 2, shape, &columns), RESHARD_OK);
    assert_int_equal(reshard_plan_create_simple(NULL, rows, columns, RESHARD_F32, NULL, &plan),
                     RESHARD_OK);
    for (int32_t node_size = 1; node_size <= RANKS; node_size *= 2) {
        reshard_sim_options sim = {.size = sizeof sim, .seed = 1, .node_size = node_size};
        assert_int_equal(reshard_sim_run(NULL, RANKS, &sim, run_near_and_far, plan), RESHARD_OK);
    }
    reshard_plan_release(plan);
    reshard_layout_release(rows);
    reshard_layout_release(columns);
    reshard_spec_release(specs[0]);
    reshard_spec_release(specs[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_traffic__one_parcel),
        cmocka_unit_test(test_traffic__staging_is_small_on_a_node),
    };
    return cmocka_run_group_tests_name("traffic", tests, NULL, NULL);
}
