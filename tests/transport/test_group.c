/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_group.c - groups over threads, the simulation and one rank alone: barriers, agreement,
 * gathers, sub-groups, and what happens when ranks fail, leave or wait for each other. Ranks record
 * what they saw; the main thread checks.
 */
#include "tests/support/check.h"
#include "tests/support/ranks.h"
#include "tests/support/ways.h"
#include "transport/group.h"

#include <reshard/reshard.h>
#include <reshard/sim.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { RANKS_MAX = 8 };

/* ---- together -------------------------------------------------------------------------------- */

typedef struct together {
    atomic_int entered;
    int seen[RANKS_MAX]; /* how many had entered when the barrier let this rank through */
    int32_t gathered[RANKS_MAX][RANKS_MAX];
    reshard_status agreed[RANKS_MAX];
    char text[RANKS_MAX][128];
    int32_t bad_rank;
} together;

static reshard_status meet(void *user, reshard_group *group)
{
    together *t = user;
    int32_t rank = reshard_group_rank(group);
    (void)atomic_fetch_add(&t->entered, 1);
    TRY(reshard_group_barrier(group));
    t->seen[rank] = atomic_load(&t->entered);
    int32_t mine = 100 + rank;
    TRY(reshard_group_gather_bytes(group, &mine, sizeof mine, t->gathered[rank]));
    reshard_dtype unused;
    reshard_status bad = rank == t->bad_rank ? reshard_dtype_parse("f99", &unused) : RESHARD_OK;
    t->agreed[rank] = reshard_group_agree(group, bad);
    (void)snprintf(t->text[rank], sizeof t->text[rank], "%s", reshard_error_text());
    return RESHARD_OK;
}

static void test_group__together(void **state)
{
    (void)state;
    for (int w = 0; w < WAYS; w++) {
        for (int32_t size = 1; size <= RANKS_MAX; size++) {
            together t = {.bad_rank = size / 2};
            assert_int_equal(run_way(&ways[w], size, meet, &t), RESHARD_OK);
            for (int32_t r = 0; r < size; r++) {
                assert_int_equal(t.seen[r], size);
                assert_int_equal(t.agreed[r], RESHARD_ERR_NOT_FOUND);
                char wanted[32];
                (void)snprintf(wanted, sizeof wanted, "rank %d: dtype \"f99\"", size / 2);
                assert_non_null(strstr(t.text[r], wanted));
                for (int32_t i = 0; i < size; i++)
                    assert_int_equal(t.gathered[r][i], 100 + i);
            }
        }
    }
}

/* ---- sub-groups ------------------------------------------------------------------------------ */

typedef struct subsets {
    int32_t rank_in[RANKS_MAX], parent_of_0[RANKS_MAX], nested[RANKS_MAX];
    int32_t gathered[RANKS_MAX][RANKS_MAX];
    reshard_status mismatch[RANKS_MAX];
} subsets;

static reshard_status split(void *user, reshard_group *group)
{
    subsets *s = user;
    int32_t rank = reshard_group_rank(group);
    static const int32_t odd[] = {5, 1, 3}, turned[] = {2, 0};
    reshard_group *sub = NULL, *nested = NULL;
    TRY(reshard_group_subset(group, 3, odd, &sub));
    s->rank_in[rank] = sub != NULL ? reshard_group_rank(sub) : -1;
    s->nested[rank] = -1;
    if (sub != NULL) {
        s->parent_of_0[rank] = reshard_group_parent_rank(sub, 0);
        CHECK(reshard_group_parent_rank(sub, 3) == -1);
        TRY(reshard_group_gather_bytes(sub, &rank, sizeof rank, s->gathered[rank]));
        TRY(reshard_group_subset(sub, 2, turned, &nested)); /* ranks 3 and 5 of the whole */
        s->nested[rank] = nested != NULL ? reshard_group_rank(nested) : -1;
    }
    if (nested != NULL)
        TRY(reshard_group_barrier(nested));
    TRY(reshard_group_barrier(group));
    reshard_group_release(nested);
    reshard_group_release(sub);
    int32_t other[] = {rank == 4 ? 1 : 0};
    sub = NULL;
    s->mismatch[rank] = reshard_group_subset(group, 1, other, &sub);
    CHECK(strstr(reshard_error_text(), "rank 4: subset: the list of ranks differs") != NULL);
    return RESHARD_OK;
}

static void test_group__subsets(void **state)
{
    (void)state;
    for (int w = 0; w < WAYS; w++) {
        subsets s = {0};
        assert_int_equal(run_way(&ways[w], 6, split, &s), RESHARD_OK);
        const int32_t rank_in[] = {-1, 1, -1, 2, -1, 0}, nested[] = {-1, -1, -1, 0, -1, 1};
        for (int32_t r = 0; r < 6; r++) {
            assert_int_equal(s.rank_in[r], rank_in[r]);
            assert_int_equal(s.nested[r], nested[r]);
            assert_int_equal(s.mismatch[r], RESHARD_ERR_MISMATCH);
            if (rank_in[r] >= 0) {
                assert_int_equal(s.parent_of_0[r], 5);
                assert_int_equal(s.gathered[r][0], 5);
                assert_int_equal(s.gathered[r][1], 1);
                assert_int_equal(s.gathered[r][2], 3);
            }
        }
    }
}

/* Two sub-groups of the same ranks, with a message under way on every channel of both, of which the
 * last are received first. */
static reshard_status cross(void *user, reshard_group *group)
{
    (void)user;
    enum { GROUPS = 2, MESSAGES = GROUPS * RS_CHANNEL_COUNT };
    static const int32_t ranks[] = {1, 2};
    reshard_group *subs[GROUPS] = {NULL, NULL};
    reshard_request requests[MESSAGES];
    int32_t numbers[MESSAGES];
    reshard_status status = RESHARD_OK;
    for (int i = 0; i < GROUPS; i++)
        TRY(reshard_group_subset(group, 2, ranks, &subs[i]));
    bool sends = reshard_group_rank(group) == 1;
    for (int i = 0; i < MESSAGES && subs[0] != NULL && status == RESHARD_OK; i++) {
        int k = sends ? i : MESSAGES - 1 - i;
        reshard_group *sub = subs[k / RS_CHANNEL_COUNT];
        numbers[k] = sends ? 100 + k : -1;
        status = sends ? rs_group_send(sub, 1, k % RS_CHANNEL_COUNT, &numbers[k], sizeof numbers[k],
                                       &requests[k])
                       : rs_group_receive(sub, 0, k % RS_CHANNEL_COUNT, &numbers[k],
                                          sizeof numbers[k], &requests[k]);
    }
    for (int k = 0; k < MESSAGES && subs[0] != NULL && status == RESHARD_OK; k++)
        status = rs_group_wait(subs[k / RS_CHANNEL_COUNT], &requests[k]);
    TRY(status);
    for (int k = 0; k < MESSAGES && subs[0] != NULL; k++)
        CHECK(numbers[k] == 100 + k);
    TRY(reshard_group_barrier(group));
    for (int i = 0; i < GROUPS; i++)
        reshard_group_release(subs[i]);
    return RESHARD_OK;
}

static reshard_status name_twice(void *user, reshard_group *group)
{
    (void)user;
    static const int32_t twice[] = {2, 0, 2};
    reshard_group *sub = NULL;
    CHECK(reshard_group_subset(group, 3, twice, &sub) == RESHARD_ERR_INVALID && sub == NULL);
    CHECK(strstr(reshard_error_text(), "rank 2 is named twice") != NULL);
    return reshard_group_barrier(group);
}

static void test_group__subsets_apart(void **state)
{
    (void)state;
    for (int w = 0; w < WAYS; w++) {
        if (run_way(&ways[w], 3, cross, NULL) != RESHARD_OK ||
            run_way(&ways[w], 3, name_twice, NULL) != RESHARD_OK)
            fail_msg("%s: %s", ways[w].name, reshard_error_text());
    }
}

/* ---- failure --------------------------------------------------------------------------------- */

typedef struct failing {
    int32_t who;
    bool says_why;
    reshard_status seen[RANKS_MAX];
} failing;

static reshard_status fail_or_wait(void *user, reshard_group *group)
{
    failing *f = user;
    int32_t rank = reshard_group_rank(group);
    if (rank == f->who) {
        reshard_dtype unused;
        return f->says_why ? reshard_dtype_parse("f77", &unused) : RESHARD_OK;
    }
    f->seen[rank] = reshard_group_barrier(group);
    return f->seen[rank];
}

static void test_group__failing_rank(void **state)
{
    (void)state;
    for (int w = 0; w < WAYS; w++) {
        for (int32_t who = 0; who < 5; who++) {
            failing f = {.who = who, .says_why = true};
            assert_int_equal(run_way(&ways[w], 5, fail_or_wait, &f), RESHARD_ERR_NOT_FOUND);
            char wanted[32];
            (void)snprintf(wanted, sizeof wanted, "rank %d: dtype \"f77\"", who);
            assert_non_null(strstr(reshard_error_text(), wanted));
            for (int32_t r = 0; r < 5; r++) {
                if (r != who)
                    assert_int_equal(f.seen[r], RESHARD_ERR_GROUP_BROKEN);
            }
        }
    }
}

static void test_group__early_leaver(void **state)
{
    (void)state;
    for (int w = 0; w < WAYS; w++) {
        failing f = {.who = 2};
        assert_int_equal(run_way(&ways[w], 5, fail_or_wait, &f), RESHARD_ERR_GROUP_BROKEN);
        for (int32_t r = 0; r < 5; r++) {
            if (r != 2)
                assert_int_equal(f.seen[r], RESHARD_ERR_GROUP_BROKEN);
        }
    }
}

static reshard_status many_calls(void *user, reshard_group *group)
{
    (void)user;
    int32_t mine = reshard_group_rank(group), all[RANKS_MAX];
    TRY(reshard_group_barrier(group));
    TRY(reshard_group_gather_bytes(group, &mine, sizeof mine, all));
    return reshard_group_agree(group, RESHARD_OK);
}

/* Every message in turn fails, then every call of every rank is its last: nobody hangs, everybody
 * is told. */
static void test_group__injected_faults(void **state)
{
    (void)state;
    int64_t n = 1;
    int reached;
    do {
        reshard_sim_options options = {.size = sizeof options,
                                       .seed = (uint64_t)n,
                                       .fail_message = n,
                                       .out_reached = &reached};
        reshard_status status = reshard_sim_run(NULL, 4, &options, many_calls, NULL);
        assert_int_equal(status, reached ? RESHARD_ERR_GROUP_BROKEN : RESHARD_OK);
        n++;
    } while (reached);
    assert_true(n > 20);
    for (int32_t rank = 0; rank < 4; rank++) {
        n = 1;
        do {
            reshard_sim_options options = {.size = sizeof options,
                                           .seed = (uint64_t)n,
                                           .stop_rank = rank,
                                           .stop_after = n,
                                           .out_reached = &reached};
            reshard_status status = reshard_sim_run(NULL, 4, &options, many_calls, NULL);
            assert_int_equal(status, reached ? RESHARD_ERR_GROUP_BROKEN : RESHARD_OK);
            n++;
        } while (reached);
        assert_true(n > 5);
    }
}

/* ---- messages that come late ----------------------------------------------------------------- */

typedef struct late {
    bool same_channel;
    bool first_was_late; /* the second of two messages was there before the first */
    int32_t got[2];
} late;

static reshard_status send_two(void *user, reshard_group *group)
{
    late *l = user;
    reshard_request requests[2];
    int32_t numbers[2] = {71, 72};
    int sending = reshard_group_rank(group) == 0;
    bool done[2] = {false, false}, looked = false;
    reshard_status status = RESHARD_OK;
    for (int i = 0; i < 2 && status == RESHARD_OK; i++) {
        int32_t channel = 10 + (l->same_channel ? 0 : i);
        status = sending ? rs_group_send(group, 1, channel, &numbers[i], 4, &requests[i])
                         : rs_group_receive(group, 0, channel, &l->got[i], 4, &requests[i]);
    }
    while (status == RESHARD_OK && !(done[0] && done[1])) {
        status = rs_group_test(group, &requests[1], &done[1]);
        if (status == RESHARD_OK)
            status = rs_group_test(group, &requests[0], &done[0]);
        if (!sending && !looked && done[1]) { /* the first was looked at after the second */
            looked = true;
            l->first_was_late = !done[0];
        }
        if (!(done[0] && done[1]))
            rs_group_idle(group);
    }
    return status;
}

/* Late is late, but only against messages on other channels; and both arrive. */
static void test_group__late_messages(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 40; seed++) {
        for (int n = 0; n < 6; n++) {
            int reached = -1;
            late l = {.same_channel = seed % 2};
            reshard_sim_options options = {
                .size = sizeof options, .seed = seed, .out_reached = &reached};
            *(n < 3 ? &options.delay_message : &options.reorder_message) = n % 3 == 2 ? 3 : n % 3;
            assert_int_equal(reshard_sim_run(NULL, 2, &options, send_two, &l), RESHARD_OK);
            assert_int_equal(reached, n % 3 == 1); /* 0: none asked for, 3: there is no third */
            assert_int_equal(l.first_was_late, n % 3 == 1 && !l.same_channel);
            assert_int_equal(l.got[0], 71);
            assert_int_equal(l.got[1], 72);
        }
    }
}

/* Each rank calls something else: in the simulation that is found out. */
static reshard_status disagree(void *user, reshard_group *group)
{
    (void)user;
    int32_t mine = 0, all[RANKS_MAX];
    return reshard_group_rank(group) == 0
               ? reshard_group_gather_bytes(group, &mine, sizeof mine, all)
               : reshard_group_barrier(group);
}

static void test_group__deadlock_in_sim(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        reshard_sim_options options = {.size = sizeof options, .seed = seed};
        reshard_status status = reshard_sim_run(NULL, 3, &options, disagree, NULL);
        assert_true(status == RESHARD_ERR_GROUP_BROKEN || status == RESHARD_ERR_MISMATCH);
    }
}

static void test_group__self(void **state)
{
    (void)state;
    reshard_group *group = NULL;
    assert_int_equal(reshard_group_self(NULL, &group), RESHARD_OK);
    assert_int_equal(reshard_group_size(group), 1);
    assert_string_equal(reshard_group_transport_name(group), "self");
    assert_int_equal(reshard_group_barrier(group), RESHARD_OK);
    int32_t mine = 7, all = 0;
    assert_int_equal(reshard_group_gather_bytes(group, &mine, sizeof mine, &all), RESHARD_OK);
    assert_int_equal(all, 7);
    assert_int_equal(reshard_group_agree(group, RESHARD_ERR_INVALID), RESHARD_ERR_INVALID);
    reshard_group_break(group, "enough");
    reshard_group_release(group);
}

static void test_group__bad_sizes(void **state)
{
    (void)state;
    assert_int_equal(reshard_group_run(NULL, 0, meet, NULL), RESHARD_ERR_RANGE);
    assert_int_equal(reshard_group_run(NULL, 1 << 20, meet, NULL), RESHARD_ERR_RANGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_group__together),      cmocka_unit_test(test_group__subsets),
        cmocka_unit_test(test_group__subsets_apart), cmocka_unit_test(test_group__failing_rank),
        cmocka_unit_test(test_group__early_leaver),  cmocka_unit_test(test_group__injected_faults),
        cmocka_unit_test(test_group__late_messages), cmocka_unit_test(test_group__deadlock_in_sim),
        cmocka_unit_test(test_group__self),          cmocka_unit_test(test_group__bad_sizes),
    };
    return cmocka_run_group_tests_name("group", tests, NULL, NULL);
}
