/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_pytorch.c - the resharding that PyTorch's tests have, and what they lack: all changes of
 * dims and owners of their sizes, every permutation of owners for 2 to 5 ranks (PyTorch is right
 * for involutions only), all pairs of placements on a 4x2 mesh, uneven sizes on a 2x2 mesh.
 */
#include "tests/support/planning.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The plan is right, passes the checker, and moves exactly `expected` bytes unless that is
 * negative. */
static int64_t expected_bytes;

static bool check_pair(const harness_case *given, words *said)
{
    planning made;
    reshard_plan_stats stats = {.size = sizeof stats};
    planning_state state = planning_init(&made, given, RESHARD_F32, NULL, said);
    bool right =
        state == PLANNING_READY && planning_run(&made, given->seed, NULL, NULL, NULL, said);
    if (right && (reshard_plan_check(made.plan) != RESHARD_OK ||
                  reshard_plan_get_stats(made.plan, &stats, NULL) != RESHARD_OK))
        right = words_say(said, "check or stats: %s", reshard_error_text());
    if (right && expected_bytes >= 0 && stats.bytes_moved != (uint64_t)expected_bytes)
        right = words_say(said, "%llu bytes move, not %lld", (unsigned long long)stats.bytes_moved,
                          (long long)expected_bytes);
    planning_free(&made);
    return right || words_say(said, "does not suit the shape");
}

static harness_case made_case;

static void test_plan__upstream_reshard(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{13, 21}, {14, 23}, {15, 26}, {12, 24}};
    static const int32_t owners[][2][4] = {{{0, 1, 3, 2}, {2, 3, 1, 0}},
                                           {{2, 3, 0, 1}, {1, 0, 3, 2}},
                                           {{1, 0, 2, 3}, {3, 2, 0, 1}},
                                           {{3, 2, 1, 0}, {0, 1, 2, 3}}};
    expected_bytes = -1;
    for (int i = 0; i < 64; i++) {
        memset(&made_case, 0, sizeof made_case);
        planning_set_shape(&made_case, 2, shapes[i % 4]);
        planning_set_chunks(&made_case.specs[0], 4, owners[i / 4 % 4][0], i / 16 % 2);
        planning_set_chunks(&made_case.specs[1], 4, owners[i / 4 % 4][1], i / 32);
        harness_check("reshard", &made_case, check_pair);
    }
}

/* Goes on to the next permutation in alphabetical order; false after the last. */
static bool next_permutation(int32_t count, int32_t *items)
{
    int32_t i = count - 2;
    while (i >= 0 && items[i] > items[i + 1])
        i--;
    if (i < 0)
        return false;
    int32_t j = count - 1;
    while (items[j] < items[i])
        j--;
    int32_t item = items[i];
    items[i] = items[j];
    items[j] = item;
    for (int32_t a = i + 1, b = count - 1; a < b; a++, b--) {
        item = items[a];
        items[a] = items[b];
        items[b] = item;
    }
    return true;
}

/* Chunks that keep their owner stay, the others travel whole: nothing else may. */
static void test_plan__every_permutation(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{13, 3}, {4, 5}};
    for (int32_t k = 2; k <= 5; k++) {
        int32_t owners[5] = {0, 1, 2, 3, 4};
        do {
            for (int which = 0; which < 4; which++) {
                int32_t dim = which / 2;
                const int64_t *shape = shapes[which % 2];
                int64_t n = shape[dim], chunk = (n + k - 1) / k, other = shape[1 - dim];
                memset(&made_case, 0, sizeof made_case);
                planning_set_shape(&made_case, 2, shape);
                planning_set_chunks(&made_case.specs[0], k, NULL, dim);
                planning_set_chunks(&made_case.specs[1], k, owners, dim);
                expected_bytes = 0;
                for (int32_t i = 0; i < k; i++) {
                    int64_t length = n - chunk * i < chunk ? n - chunk * i : chunk;
                    if (owners[i] != i && length > 0)
                        expected_bytes += length * other * 4;
                }
                harness_check("reshuffle", &made_case, check_pair);
            }
        } while (next_permutation(k, owners));
    }
}

/* ---- two axes -------------------------------------------------------------------------------- */

/* 0: R, 1: S(0), 2: S(1), 3: P(sum) on each axis of a mesh. */
static void set_grid(oracle_spec *spec, const int32_t *sizes, const int *numbers)
{
    memset(spec, 0, sizeof *spec);
    spec->kind = RESHARD_SPEC_CUTS;
    spec->axis_count = 2;
    spec->default_ranks = true;
    spec->cut_count = 2;
    for (int i = 0; i < 2; i++) {
        spec->sizes[i] = sizes[i];
        spec->cuts[i].axis = i;
        spec->cuts[i].kind = numbers[i] == 0   ? RESHARD_REPLICATE
                             : numbers[i] == 3 ? RESHARD_PARTIAL
                                               : RESHARD_SHARD;
        spec->cuts[i].dim = numbers[i] == 2 ? 1 : 0;
    }
}

static void test_plan__all_pairs_of_placements(void **state)
{
    (void)state;
    static const int32_t sizes[2] = {4, 2};
    static const int64_t shape[2] = {16, 24};
    expected_bytes = -1;
    for (int i = 0; i < 4 * 4 * 4 * 4; i++) {
        int from[2] = {i % 4, i / 4 % 4}, to[2] = {i / 16 % 4, i / 64};
        memset(&made_case, 0, sizeof made_case);
        planning_set_shape(&made_case, 2, shape);
        set_grid(&made_case.specs[0], sizes, from);
        set_grid(&made_case.specs[1], sizes, to);
        harness_check("redistribute", &made_case, check_pair);
    }
}

static void test_plan__uneven_grids(void **state)
{
    (void)state;
    static const int32_t sizes[2] = {2, 2};
    static const int64_t shapes[][2] = {{10, 5}, {9, 5}, {3, 5}, {1, 3}, {8, 8}, {5, 8}, {0, 2}};
    expected_bytes = -1;
    for (int i = 0; i < 9 * 9 * 7; i++) {
        int from[2] = {i % 3, i / 3 % 3}, to[2] = {i / 9 % 3, i / 27 % 3};
        memset(&made_case, 0, sizeof made_case);
        planning_set_shape(&made_case, 2, shapes[i / 81]);
        set_grid(&made_case.specs[0], sizes, from);
        set_grid(&made_case.specs[1], sizes, to);
        harness_check("redistribute", &made_case, check_pair);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan__upstream_reshard),
        cmocka_unit_test(test_plan__every_permutation),
        cmocka_unit_test(test_plan__all_pairs_of_placements),
        cmocka_unit_test(test_plan__uneven_grids),
    };
    return cmocka_run_group_tests_name("plan_pytorch", tests, NULL, NULL);
}
