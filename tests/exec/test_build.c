/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_build.c - operations and peers that execs are built of: peers go round from the next higher
 * rank, operations are in the order that results and speed depend on, all ranks decide alike who
 * copies, and together they write every target byte as often as the plan says. Contributions that
 * come as messages are in the same order.
 */
#include "exec/exec.h"
#include "tests/support/check.h"
#include "tests/support/ranks.h"

#include <stdlib.h>
#include <string.h>

enum { RANKS = 4 };

static const struct {
    const char *from, *to;
    int64_t shape[2];
    int pushed;     /* by its sources, all of it */
    int64_t factor; /* how often each target byte is written */
    int stage_count;
} rows[] = {
    {"4: S(0)", "4: S(1)", {64, 2048}, 0, 1, 1}, /* long runs on both sides */
    {"4: S(0)", "4: S(1)", {2048, 16}, 1, 1, 1}, /* short ones at the source */
    {"4: S(1)", "4: S(0)", {2048, 16}, 0, 1, 1}, /* and at the target */
    {"4: S(0)", "4: S(1/3)", {64, 32}, 1, 1, 1}, /* a last block that is not whole runs alone */
    {"4: P(sum)", "4: S(0)", {64, 64}, 0, 4, 1}, /* four contributions */
    {"4: S(0)", "4: R", {8, 8}, 0, 1, 1},        {"4: P(sum)", "4: R", {64, 64}, 0, 4, 2},
};

enum { ROWS = (int)(sizeof rows / sizeof *rows) };

typedef struct built {
    reshard_plan *plan;
    bool pulls[RANKS], pushes[RANKS];
    int64_t bytes; /* that operations of the first stage write, on all ranks */
    int stage_count;
} built;

static reshard_status check_peers(const rs_exec_stage *stage, int32_t rank)
{
    int32_t last = 0; /* distance of the peer before */
    for (int64_t i = 0; i < stage->peer_count; i++) {
        int32_t distance = (stage->peers[i].rank - rank + RANKS) % RANKS;
        CHECK(distance > last);
        CHECK(stage->peers[i].near && stage->peers[i].addresses != NULL);
        last = distance;
    }
    return RESHARD_OK;
}

static reshard_status check_order(const rs_operation *operations, int64_t count,
                                  const rs_exec_stage *stage, int32_t rank)
{
    for (int64_t i = 0; i < count; i++) {
        const rs_operation *o = &operations[i];
        CHECK(o->peer_index < 0 ? o->peer == rank : stage->peers[o->peer_index].rank == o->peer);
        if (i == 0)
            continue;
        bool combines = o->kind == RESHARD_MOVE_COMBINE;
        bool combined = operations[i - 1].kind == RESHARD_MOVE_COMBINE;
        CHECK(combines || !combined); /* copies come first */
        CHECK(!combines || !combined || o->contributor >= operations[i - 1].contributor);
        /* Copies that run together are neighbours. */
        CHECK(combines || o->link != operations[i - 1].link ||
              o->together <= operations[i - 1].together);
    }
    return RESHARD_OK;
}

static int64_t count_bytes(const rs_operation *operations, int64_t count)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < count; i++)
        bytes += (int64_t)rs_copy_bytes(&operations[i].kernels->copy);
    return bytes;
}

static reshard_status look(void *user, reshard_group *group)
{
    built *b = user;
    int32_t rank = reshard_group_rank(group);
    reshard_exec *exec = NULL;
    TRY(reshard_exec_create(NULL, b->plan, group, NULL, &exec));
    const rs_exec_stage *stage = &exec->stages[0];
    TRY(check_peers(stage, rank));
    TRY(check_order(stage->keeps, stage->keep_count, stage, rank));
    TRY(check_order(stage->operations, stage->operation_count, stage, rank));
    CHECK(stage->direct_count == stage->operation_count);
    b->pulls[rank] = stage->pulls;
    b->pushes[rank] = stage->pushes;
    int64_t mine = count_bytes(stage->keeps, stage->keep_count) +
                   count_bytes(stage->operations, stage->operation_count);
    int64_t all[RANKS];
    TRY(reshard_group_gather_bytes(group, &mine, sizeof mine, all));
    if (rank == 0) {
        b->stage_count = exec->stage_count;
        b->bytes = all[0] + all[1] + all[2] + all[3];
    }
    reshard_exec_destroy(exec);
    return RESHARD_OK;
}

static void test_build__operations_and_peers(void **state)
{
    (void)state;
    for (int i = 0; i < ROWS; i++) {
        reshard_layout *from = NULL, *to = NULL;
        built b = {0};
        MUST(reshard_layout_parse(NULL, rows[i].from, 2, rows[i].shape, &from));
        MUST(reshard_layout_parse(NULL, rows[i].to, 2, rows[i].shape, &to));
        MUST(reshard_plan_create_simple(NULL, from, to, RESHARD_F32, NULL, &b.plan));
        run_ranks(RANKS, look, &b);
        int64_t bytes = 4 * rows[i].shape[0] * rows[i].shape[1] * rows[i].factor;
        bool replicated = strcmp(rows[i].to, "4: R") == 0 && b.stage_count == 1;
        assert_int_equal(b.stage_count, rows[i].stage_count);
        assert_int_equal(b.bytes, bytes * (replicated ? RANKS : 1));
        for (int r = 0; r < RANKS; r++) {
            assert_int_equal(b.pushes[r], rows[i].pushed);
            assert_int_equal(b.pulls[r], !rows[i].pushed);
        }
        reshard_plan_release(b.plan);
        reshard_layout_release(from);
        reshard_layout_release(to);
    }
}

/* ---- messages -------------------------------------------------------------------------------- */

static int compare_places(const void *a, const void *b)
{
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return (x > y) - (x < y);
}

/* One rank's wish for messages holds for all: nobody is near, and of every row of a sum three
 * contributions wait in scratch, apart from each other, for their turn. */
static reshard_status look_at_messages(void *user, reshard_group *group)
{
    enum { BYTES = 64 * 64 * 4 / RANKS }; /* of a contribution to one rank's rows */
    int32_t rank = reshard_group_rank(group), from_scratch = 0;
    size_t places[RANKS];
    reshard_exec_options options = {.size = sizeof options, .messages_only = rank == 2};
    reshard_exec *exec = NULL;
    TRY(reshard_exec_create(NULL, user, group, &options, &exec));
    const rs_exec_stage *stage = &exec->stages[0];
    CHECK(stage->peer_count == RANKS - 1 && stage->near_count == 0);
    CHECK(stage->ordered && stage->keep_count == 0 && stage->operation_count == RANKS);
    TRY(check_order(stage->operations, stage->operation_count, stage, rank));
    for (int64_t i = 0; i < RANKS; i++) {
        const rs_operation *o = &stage->operations[i];
        CHECK(o->contributor == i && o->bytes == BYTES);
        CHECK((o->peer == rank) == (o->source_slot != RS_SLOT_SCRATCH));
        if (o->source_slot == RS_SLOT_SCRATCH)
            places[from_scratch++] = o->source_offset;
    }
    CHECK(from_scratch == RANKS - 1);
    qsort(places, RANKS - 1, sizeof *places, compare_places);
    for (int i = 0; i < RANKS - 1; i++)
        CHECK(places[i] == (size_t)i * BYTES);
    CHECK(exec->traffic->scratch_bytes == (RANKS - 1) * BYTES);
    reshard_exec_destroy(exec);
    return RESHARD_OK;
}

static void test_build__contributions_wait_in_scratch(void **state)
{
    (void)state;
    static const int64_t shape[] = {64, 64};
    reshard_layout *from = NULL, *to = NULL;
    reshard_plan *plan = NULL;
    MUST(reshard_layout_parse(NULL, "4: P(sum)", 2, shape, &from));
    MUST(reshard_layout_parse(NULL, "4: S(0)", 2, shape, &to));
    MUST(reshard_plan_create_simple(NULL, from, to, RESHARD_F32, NULL, &plan));
    run_ranks(RANKS, look_at_messages, plan);
    reshard_plan_release(plan);
    reshard_layout_release(from);
    reshard_layout_release(to);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_build__operations_and_peers),
        cmocka_unit_test(test_build__contributions_wait_in_scratch),
    };
    return cmocka_run_group_tests_name("build", tests, NULL, NULL);
}
