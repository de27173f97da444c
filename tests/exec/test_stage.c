/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_stage.c - which way bytes go between two ranks: directly where the memory to be read or
 * written is shared, through shared staging where only that is, else as messages; and both ends
 * decide alike.
 */
#include "exec/exec.h"
#include "tests/support/check.h"
#include "tests/support/live.h"
#include "tests/support/ranks.h"

#include <reshard/sim.h>

#include <string.h>

enum { RANKS = 4, NODE = 2 };

typedef struct trip {
    live *l;
    bool shares[RANKS]; /* whether a rank's buffers are in memory of the group */
    rs_way in[RANKS][RANKS], out[RANKS][RANKS];
} trip;

/* This rank's buffers of a tensor, in memory of the group. */
static reshard_status borrow(reshard_group *group, const simulate_tensor *tensor, void **buffers)
{
    int32_t rank = reshard_group_rank(group);
    for (int64_t i = 0, n = 0; i < tensor->count; i++) {
        if (tensor->buffers[i].rank != rank)
            continue;
        size_t bytes = (size_t)tensor->buffers[i].count * sizeof(double);
        TRY(rs_group_take(group, bytes, &buffers[n]));
        memcpy(buffers[n++], tensor->buffers[i].values, bytes);
    }
    return RESHARD_OK;
}

static reshard_status travel(void *user, reshard_group *group)
{
    trip *t = user;
    int32_t rank = reshard_group_rank(group);
    void *sources[4], *targets[4], *own[4];
    (void)live_list_buffers(t->l->from, rank, sources);
    int64_t count = live_list_buffers(t->l->to, rank, targets);
    memcpy(own, targets, sizeof own);
    void *room = NULL;
    TRY(reshard_group_alloc(group, 1 << 20, &room)); /* so that there is memory to take */
    reshard_group_free(group, room);
    if (t->shares[rank]) {
        TRY(borrow(group, t->l->from, sources));
        TRY(borrow(group, t->l->to, targets));
    }
    reshard_exec *exec = NULL;
    TRY(reshard_exec_create(NULL, t->l->plan, group, &t->l->options, &exec));
    TRY(reshard_exec_start(exec, (const void *const *)sources, targets));
    TRY(reshard_exec_wait(exec));
    const rs_exec_stage *stage = &exec->stages[0];
    for (int64_t i = 0; i < stage->peer_count; i++) {
        t->in[rank][stage->peers[i].rank] = stage->peers[i].in;
        t->out[rank][stage->peers[i].rank] = stage->peers[i].out;
    }
    for (int64_t i = 0, n = 0; i < t->l->to->count && t->shares[rank]; i++) {
        const simulate_buffer *buffer = &t->l->to->buffers[i];
        if (buffer->rank == rank && n < count)
            memcpy(own[n], targets[n], (size_t)buffer->count * sizeof(double));
        n += buffer->rank == rank;
    }
    reshard_exec_destroy(exec); /* what was taken of the group goes with its transport */
    return RESHARD_OK;
}

static void run_trip(trip *t, live_fixture *f, int32_t node_size, int mapped)
{
    reshard_sim_options sim = {
        .size = sizeof sim, .seed = 4, .node_size = node_size, .mapped = mapped};
    t->l = &f->l;
    memset(t->in, 0xee, sizeof t->in);
    memset(t->out, 0xee, sizeof t->out);
    if (reshard_sim_run(NULL, RANKS, &sim, travel, t) != RESHARD_OK)
        fail_msg("%s", reshard_error_text());
    assert_true(simulate_equal(f->to, f->wanted));
    for (int a = 0; a < RANKS; a++) {
        for (int b = 0; b < RANKS; b++)
            assert_int_equal(t->out[a][b], t->in[b][a]);
    }
}

static void check_ways(const trip *t, rs_way near_shared, rs_way near_plain, rs_way far)
{
    for (int from = 0; from < RANKS; from++) {
        for (int to = 0; to < RANKS; to++) {
            if (from == to)
                continue;
            bool near = from / NODE == to / NODE;
            /* These plans are pulled: the source's memory decides. */
            assert_int_equal(t->out[from][to], !near             ? far
                                               : t->shares[from] ? near_shared
                                                                 : near_plain);
        }
    }
}

static void test_stage__ways(void **state)
{
    (void)state;
    for (unsigned shares = 0; shares < 1U << RANKS; shares++) {
        live_fixture f;
        live_fixture_init(&f, "4: S(1)", "4: R", 0);
        trip t = {0};
        for (int r = 0; r < RANKS; r++)
            t.shares[r] = (shares >> r & 1) != 0;
        run_trip(&t, &f, NODE, 0);
        check_ways(&t, RS_WAY_DIRECT, RS_WAY_STAGING, RS_WAY_MESSAGES);
        live_fixture_release(&f);
    }
}

static void test_stage__all_or_nothing(void **state)
{
    (void)state;
    live_fixture f;
    trip t = {.shares = {false}};
    live_fixture_init(&f, "4: S(1)", "4: R", 0);
    run_trip(&t, &f, 0, 1); /* all memory is seen */
    check_ways(&t, RS_WAY_DIRECT, RS_WAY_DIRECT, RS_WAY_DIRECT);
    run_trip(&t, &f, 0, 0); /* none is */
    check_ways(&t, RS_WAY_MESSAGES, RS_WAY_MESSAGES, RS_WAY_MESSAGES);
    f.l.options.messages_only = 1;
    run_trip(&t, &f, NODE, 0); /* nobody looks */
    check_ways(&t, RS_WAY_MESSAGES, RS_WAY_MESSAGES, RS_WAY_MESSAGES);
    live_fixture_release(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stage__ways),
        cmocka_unit_test(test_stage__all_or_nothing),
    };
    return cmocka_run_group_tests_name("stage", tests, NULL, NULL);
}
