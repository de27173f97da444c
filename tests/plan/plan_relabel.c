/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_relabel.c - which rank plays which part: when only owners change nothing moves, and the
 * choice is the best of all permutations, which for a few ranks can be tried.
 */
#include "plan/plan.h"
#include "tests/support/planning.h"

#include "layout/layout.h"
#include "spec/spec.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const reshard_plan_options relabel = {
    .size = sizeof relabel, .relabel = 1, .single_stage = 1};

/* ---- the best, by trying all ----------------------------------------------------------------- */

typedef struct search {
    int32_t count;
    int32_t ranks[16];    /* target ranks, increasing */
    int64_t cost[16][16]; /* elements that move when ranks[j] plays the part of ranks[i] */
    int64_t best;
} search;

static int compare_ranks(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static void search_init(search *out, const planning *made)
{
    int32_t rank_count =
        1 + (made->source->rank_max > made->target->rank_max ? made->source->rank_max
                                                             : made->target->rank_max);
    int64_t volume = made->source->volume;
    const reshard_mesh *mesh = made->target_layout->spec->mesh;
    for (int32_t i = 0; mesh != NULL && i < mesh->size; i++) {
        int32_t rank = reshard_mesh_rank_at(mesh, i);
        rank_count = rank >= rank_count ? rank + 1 : rank_count;
    }
    uint8_t *held = oracle_held(made->source, rank_count);
    uint8_t *needed = oracle_held(made->target, rank_count);
    memset(out, 0, sizeof *out);
    for (int32_t i = 0; mesh != NULL && i < mesh->size; i++)
        out->ranks[out->count++] = reshard_mesh_rank_at(mesh, i); /* idle ones may play too */
    for (int64_t i = 0; mesh == NULL && i < made->target->shard_count; i++) {
        int32_t rank = made->target->shards[i].rank;
        if (out->count == 0 || out->ranks[out->count - 1] != rank)
            out->ranks[out->count++] = rank;
    }
    qsort(out->ranks, (size_t)out->count, sizeof *out->ranks, compare_ranks);
    for (int32_t i = 0; i < out->count; i++) {
        for (int32_t j = 0; j < out->count; j++) {
            for (int64_t e = 0; e < volume; e++)
                out->cost[i][j] +=
                    needed[out->ranks[i] * volume + e] > 0 && held[out->ranks[j] * volume + e] == 0;
        }
    }
    out->best = INT64_MAX;
    free(held);
    free(needed);
}

static void try_all(search *given, int32_t part, uint32_t used, int64_t cost)
{
    if (part == given->count) {
        given->best = cost < given->best ? cost : given->best;
        return;
    }
    for (int32_t j = 0; j < given->count; j++) {
        if ((used >> j & 1u) == 0)
            try_all(given, part + 1, used | 1u << j, cost + given->cost[part][j]);
    }
}

static bool is_permutation(const search *given, const int32_t *played)
{
    for (int32_t i = 0; i < given->count; i++) {
        int times = 0;
        for (int32_t j = 0; j < given->count; j++)
            times += played[j] == given->ranks[i];
        if (times != 1)
            return false;
    }
    return true;
}

static bool check_best(const planning *made, const harness_case *given, words *said)
{
    search all;
    const int32_t *played = NULL;
    reshard_plan_stats stats = {.size = sizeof stats};
    search_init(&all, made);
    try_all(&all, 0, 0, 0);
    played = rs_plan_forward(made->plan)->relabelling;
    int32_t count = rs_plan_forward(made->plan)->relabelling_count;
    if (count != all.count || !is_permutation(&all, played))
        return words_say(said, "the relabelling of %d ranks is no permutation of them", (int)count);
    if (!planning_run(made, given->seed, NULL, NULL, NULL, said))
        return false;
    if (reshard_plan_get_stats(made->plan, &stats, NULL) != RESHARD_OK ||
        reshard_plan_check(made->plan) != RESHARD_OK)
        return words_say(said, "stats or check: %s", reshard_error_text());
    if (stats.bytes_moved != (uint64_t)all.best * made->item_bytes)
        return words_say(said, "%llu bytes move, the best is %llu",
                         (unsigned long long)stats.bytes_moved,
                         (unsigned long long)((uint64_t)all.best * made->item_bytes));
    return true;
}

static bool check_pair(const harness_case *given, words *said)
{
    planning made;
    planning_state state = planning_init(&made, given, RESHARD_BF16, &relabel, said);
    bool right =
        state == PLANNING_SKIPPED || (state == PLANNING_READY && check_best(&made, given, said));
    planning_free(&made);
    return right;
}

static void generate_pair(draw_state *draw, harness_case *made)
{
    made->spec_count = 2;
    generate_shape(draw, 200, &made->ndim, made->shape);
    for (int i = 0; i < 2; i++)
        generate_spec(draw, GENERATE_FEW_RANKS, made->ndim, made->shape, &made->specs[i]);
}

static void test_relabel__best_of_all(void **state)
{
    (void)state;
    harness_run("relabelling of a random pair", 4000, generate_pair, check_pair);
}

/* ---- only owners change ---------------------------------------------------------------------- */

static harness_case made_case;

static bool check_nothing_moves(const harness_case *given, words *said)
{
    planning made;
    reshard_plan_stats stats = {.size = sizeof stats};
    planning_state state = planning_init(&made, given, RESHARD_F32, &relabel, said);
    bool right = state == PLANNING_READY && check_best(&made, given, said);
    if (right && reshard_plan_get_stats(made.plan, &stats, NULL) == RESHARD_OK &&
        stats.bytes_moved != 0)
        right = words_say(said, "%llu bytes move", (unsigned long long)stats.bytes_moved);
    planning_free(&made);
    return right;
}

static void permute(int32_t k, int32_t done, int32_t *owners, int32_t dim)
{
    static const int64_t shape[2] = {7, 11};
    if (done < k) {
        for (int32_t i = done; i < k; i++) {
            int32_t owner = owners[i];
            owners[i] = owners[done];
            owners[done] = owner;
            permute(k, done + 1, owners, dim);
            owners[done] = owners[i];
            owners[i] = owner;
        }
        return;
    }
    memset(&made_case, 0, sizeof made_case);
    planning_set_shape(&made_case, 2, shape);
    planning_set_chunks(&made_case.specs[0], k, NULL, dim);
    planning_set_chunks(&made_case.specs[1], k, owners, dim);
    harness_check("owners change", &made_case, check_nothing_moves);
}

static void test_relabel__owners_change(void **state)
{
    (void)state;
    for (int32_t k = 2; k <= 5; k++) {
        int32_t owners[5] = {0, 1, 2, 3, 4};
        permute(k, 0, owners, 0);
        permute(k, 0, owners, 1);
    }
}

/* Two tensors that want different things: one relabelling serves both, weighed by bytes. */
static void test_relabel__list_of_tensors(void **state)
{
    (void)state;
    static const int64_t large[] = {12}, small[] = {4};
    static const char *const from[] = {"2: S(0)", "2: S(0)"};
    static const char *const to[] = {"2[1,0]: S(0)", "2: S(0)"};
    reshard_plan_tensor sources[2], targets[2];
    reshard_link links[2] = {reshard_link_whole(0, 0), reshard_link_whole(1, 1)};
    reshard_plan *plan = NULL;
    reshard_plan_stats stats = {.size = sizeof stats};
    const int32_t *played = NULL;
    for (int i = 0; i < 2; i++) {
        const int64_t *shape = i == 0 ? large : small;
        sources[i] = (reshard_plan_tensor){NULL, NULL, RESHARD_F32};
        targets[i] = sources[i];
        assert_int_equal(reshard_layout_parse(NULL, from[i], 1, shape, &sources[i].layout), 0);
        assert_int_equal(reshard_layout_parse(NULL, to[i], 1, shape, &targets[i].layout), 0);
    }
    assert_int_equal(reshard_plan_create(NULL, 2, sources, 2, targets, 2, links, &relabel, &plan),
                     RESHARD_OK);
    assert_int_equal(reshard_plan_get_stats(plan, &stats, NULL), RESHARD_OK);
    assert_int_equal(stats.bytes_moved, 4 * 4);
    reshard_plan_info info = {.size = sizeof info};
    assert_int_equal(reshard_plan_get_info(plan, &info), RESHARD_OK);
    assert_int_equal(info.relabelling_count, 2);
    played = info.relabelling;
    assert_int_equal(played[0], 1);
    assert_int_equal(played[1], 0);
    assert_int_equal(reshard_plan_check(plan), RESHARD_OK);
    reshard_plan_release(plan);
    for (int i = 0; i < 2; i++) {
        reshard_layout_release(sources[i].layout);
        reshard_layout_release(targets[i].layout);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_relabel__owners_change),
        cmocka_unit_test(test_relabel__list_of_tensors),
        cmocka_unit_test(test_relabel__best_of_all),
    };
    return cmocka_run_group_tests_name("plan_relabel", tests, NULL, NULL);
}
