/* SPDX-License-Identifier: Apache-2.0 */
/* The grid against the moves, element by element: where it applies, and how few records it has. */
#include "elements.h"
#include "plan/grid.h"

#include <string.h>

static reshard_status list_grid(const linked *given, int32_t rank, rs_rank_moves *moves)
{
    return rs_grid_rank(&given->link, rank, moves);
}

static void test_grid__applies(void **state)
{
    (void)state;
    static const int64_t shape[] = {12, 8};
    static const struct {
        const char *source, *target;
        bool applies;
    } rows[] = {
        {"4: S(0)", "4: S(1)", true},
        {"2,2: S(0), S(1)", "4: R", true},
        {"2,2: P, S(1)", "4: R", true},
        {"4: S(0/2)", "4: S(1~)", true},
        {"4: S(0)", "4: A(0,2)", true},
        {"4: S(0)", "4: S(1, max=2)", true},
        {"4: R", "4: S(0)", false},             /* several hold a source element */
        {"4: S(0, max=2)", "4: S(1)", false},   /* likewise */
        {"4: S(0)", "4: P", false},             /* a partial target */
        {"4[3,1,0,2]: S(0)", "4: S(1)", false}, /* ranks at no constant step */
        {"4: S(flat)", "4: S(1)", false},
        {"4: S(0)", "4: A(0,1,3)", false},
        {"4: S(0)", "boxes 12x8: 0[0:12,0:8]", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        linked given;
        linked_init(&given, rows[i].source, rows[i].target, 2, shape);
        assert_int_equal(rs_grid_applies(&given.link), rows[i].applies);
        linked_free(&given);
    }
}

static void check_same(const linked *given, int32_t rank)
{
    elements by_grid, by_sender;
    elements_init(&by_grid, given, list_grid, rank);
    elements_init(&by_sender, given, list_single, rank);
    assert_int_equal(by_grid.count, by_sender.count);
    if (by_grid.count != 0)
        assert_memory_equal(by_grid.items, by_sender.items,
                            (size_t)by_grid.count * sizeof *by_grid.items);
    elements_free(&by_grid);
    elements_free(&by_sender);
}

/* All pairs of what a grid may have on either side. */
static void test_grid__same_as_routes(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{12, 8}, {7, 5}, {1, 9}, {0, 4}};
    static const char *const sources[] = {
        "4: S(0)",         "3: S(1~)",  "2,3: S(1), S(0)",     "4: S(0/2)",
        "2,2: P, S(0)",    "3: P(avg)", "2,2: S(0)@1, S(0)@0", "4[2..8/2]: S(1)",
        "2,2: A(1), S(0)", "1: R",      "5: S(1/1)",           "2,2: S(0*2), S(1)",
    };
    static const char *const targets[] = {
        "4: S(1)",          "3: R",         "2,2: R, S(0)",   "6: S(0, max=2)",
        "4[1..7/2]: S(0~)", "3: A(0,2)",    "4: S(0/1)",      "2,2: S(1), S(1)",
        "4: S(1*2)",        "2[6,7]: S(0)", "2,3: R, S(1/2)",
    };
    int applied = 0;
    for (size_t s = 0; s < sizeof sources / sizeof sources[0]; s++) {
        for (size_t t = 0; t < sizeof targets / sizeof targets[0]; t++) {
            for (size_t k = 0; k < sizeof shapes / sizeof shapes[0]; k++) {
                linked given;
                linked_init(&given, sources[s], targets[t], 2, shapes[k]);
                bool applies = rs_grid_applies(&given.link);
                applied += applies;
                for (int32_t rank = 0; rank < 10 && applies; rank++)
                    check_same(&given, rank);
                linked_free(&given);
            }
        }
    }
    assert_int_equal(applied, 12 * 11 * 4);
}

/* A rank that exchanges with a thousand others has a handful of records. */
static void test_grid__few_records(void **state)
{
    (void)state;
    static const int64_t shape[] = {4096, 4096};
    linked given;
    linked_init(&given, "1024: S(0)", "1024: S(1)", 2, shape);
    for (int32_t rank = 0; rank < 1024; rank += 341) {
        rs_arena arena;
        rs_rank_moves of_rank;
        reshard_moves moves;
        rs_arena_init(&arena, NULL);
        rs_family_init(&of_rank.receives, NULL, &arena);
        rs_family_init(&of_rank.sends, NULL, &arena);
        rs_family_init(&of_rank.keeps, NULL, &arena);
        assert_int_equal(rs_grid_rank(&given.link, rank, &of_rank), RESHARD_OK);
        assert_int_equal(of_rank.receives.single_count, 1023);
        assert_int_equal(rs_family_finish(&of_rank.receives, &moves), RESHARD_OK);
        assert_true(moves.count <= 2); /* those before this rank and those after it */
        assert_int_equal(rs_family_finish(&of_rank.keeps, &moves), RESHARD_OK);
        assert_int_equal(moves.count, 1);
        rs_family_release(&of_rank.receives);
        rs_family_release(&of_rank.sends);
        rs_family_release(&of_rank.keeps);
        rs_arena_release(&arena);
    }
    linked_free(&given);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grid__applies),
        cmocka_unit_test(test_grid__same_as_routes),
        cmocka_unit_test(test_grid__few_records),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
