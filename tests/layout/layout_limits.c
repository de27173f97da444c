/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout_limits.c - short specs that stand for more than any machine can list: refused at once with
 * the number, one piece or rank beyond each limit (docs/limits.md), and listed up to it.
 */
#include "base/limits.h"
#include "layout/layout.h"
#include "tests/support/check.h"

#include <stdlib.h>
#include <string.h>

static reshard_layout *make(const char *spec, int32_t ndim, int64_t rows, int64_t columns)
{
    reshard_layout *layout = NULL;
    int64_t shape[2] = {rows, columns};
    reshard_status status = reshard_layout_parse(NULL, spec, ndim, shape, &layout);
    if (status != RESHARD_OK)
        fail_msg("%s: %s", spec, reshard_error_text());
    return layout;
}

static void test_limits__pieces_of_a_rank(void **state)
{
    (void)state;
    reshard_layout *layout = make("2: S(0/1)", 1, 2 * (RS_PIECES_LISTED_MAX + 1), 0);
    reshard_shards *shards = NULL;
    assert_int_equal(reshard_layout_shards(layout, 1, &shards), RESHARD_ERR_RANGE);
    assert_non_null(strstr(reshard_error_text(), "rank 1 has about 4194305 pieces"));
    int64_t count = 0;
    assert_int_equal(reshard_layout_shards_head(layout, 1, 3, &count, &shards), RESHARD_OK);
    assert_int_equal(count, RS_PIECES_LISTED_MAX + 1);
    assert_int_equal(shards->count, 1);
    assert_int_equal(shards->items[0].piece_count, 3);
    assert_int_equal(shards->items[0].pieces[2].box.offset[0], 5);
    assert_int_equal(shards->items[0].pieces[2].at, 2);
    assert_int_equal(shards->items[0].shape[0], RS_PIECES_LISTED_MAX + 1);
    reshard_shards_destroy(shards);
    reshard_layout_release(layout);
    layout = make("64: S(0/1)", 1, 64 * 1000, 0);
    assert_int_equal(reshard_layout_shards(layout, 63, &shards), RESHARD_OK);
    assert_int_equal(shards->items[0].piece_count, 1000);
    reshard_shards_destroy(shards);
    reshard_layout_release(layout);
}

static void test_limits__all_shards(void **state)
{
    (void)state;
    static const struct {
        const char *spec;
        int64_t n;
        const char *words;
    } cases[] = {
        {"4194305: S(0)", 5000000, "4194305 ranks have shards; at most 4194304"},
        {"8: S(0/1)", 8 * (RS_PIECES_LISTED_MAX / 4 + 1),
         "the first 4 of 8 ranks have about 4194308 pieces"},
        {"2147483647: S(0)", INT64_MAX, "2147483647 ranks"},
        {"4: S(0/1)", INT64_MAX, "2305843009213693952 pieces"},
        {"4: S(0*4611686018427387904)", INT64_MAX, "pieces; at most"},
        {"4: S(flat/1)", INT64_MAX, "2305843009213693952 pieces"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        reshard_layout *layout = make(cases[i].spec, 1, cases[i].n, 0);
        reshard_shards *shards = NULL;
        assert_int_equal(reshard_layout_shards(layout, RESHARD_ALL_RANKS, &shards),
                         RESHARD_ERR_RANGE);
        if (strstr(reshard_error_text(), cases[i].words) == NULL)
            fail_msg("%s: %s", cases[i].spec, reshard_error_text());
        reshard_layout_release(layout);
    }
}

/* Nested cuts over very many ranks are checked by their extremes, not rank by rank. */
static void test_limits__nested_cuts(void **state)
{
    (void)state;
    reshard_layout_release(make("1073741823,2: S(0/1), S(0=1,1)", 1, ((int64_t)1 << 31) - 2, 0));
    reshard_layout_release(make("32768,32768: S(0/1), S(0/1)", 1, (int64_t)1 << 40, 0));
    reshard_layout *layout = NULL;
    int64_t shape = ((int64_t)1 << 31) - 3;
    assert_int_equal(
        reshard_layout_parse(NULL, "1073741823,2: S(0/1), S(0=1,1)", 1, &shape, &layout),
        RESHARD_ERR_INVALID);
    assert_non_null(strstr(reshard_error_text(), "sizes add up to 2, not to 1"));
}

/* Sums over all ranks that need no list of them. */
static void test_limits__volumes(void **state)
{
    (void)state;
    static const struct {
        const char *spec;
        int64_t sum;
    } cases[] = {
        {"2147483647: R", 2147483647 * (int64_t)30},
        {"4: S(0)", 30},
        {"2,3: S(0), S(1~)", 30},
        {"5,3: A(0,2), S(flat)", 60},
        {"4,2: P, S(1/2)", 120},
        {"4: S(0, max=2)", 60},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        reshard_layout *layout = make(cases[i].spec, 2, 5, 6);
        assert_int_equal(rs_layout_shard_volume_sum(layout), cases[i].sum);
        reshard_layout_release(layout);
    }
}

/* Copies of the largest tensor have more elements than there are numbers. */
static void test_limits__volume_of_copies(void **state)
{
    (void)state;
    reshard_layout *layout = make("cover 9223372036854775807: 0[0:9223372036854775807] "
                                  "1[0:9223372036854775807] 1[0:9223372036854775807]",
                                  1, INT64_MAX, 0);
    assert_int_equal(rs_layout_shard_volume(layout, 1), INT64_MAX);
    assert_int_equal(rs_layout_shard_volume_sum(layout), INT64_MAX);
    reshard_layout_release(layout);
}

/* The last rank there is has no rank after it. */
static void test_limits__last_rank(void **state)
{
    (void)state;
    reshard_layout *layout = make("boxes 5: 7[0:1] 2147483647[1:3] 2147483647[3:5]", 1, 5, 0);
    assert_int_equal(rs_layout_shard_count(layout, INT32_MAX), 2);
    assert_int_equal(rs_layout_shard_volume(layout, INT32_MAX), 4);
    assert_int_equal(rs_layout_shard_count(layout, 7), 1);
    assert_int_equal(rs_layout_shard_count(layout, 8), 0);
    assert_int_equal(rs_layout_shard_volume_sum(layout), 5);
    reshard_layout_release(layout);
}

/* A scalar has no dims, and one piece. */
static void test_limits__estimate_of_a_scalar(void **state)
{
    (void)state;
    reshard_layout *layout = make("2: S(flat)", 0, 0, 0);
    reshard_shards *shards = NULL;
    int64_t count = 0;
    for (int32_t r = 0; r < 2; r++) {
        assert_int_equal(reshard_layout_shards_head(layout, r, 9, &count, &shards), RESHARD_OK);
        assert_int_equal(shards->items[0].piece_count, r == 0);
        assert_int_equal(count, r == 0);
        reshard_shards_destroy(shards);
    }
    reshard_layout_release(layout);
}

/* The estimate is exact for single cuts, and otherwise neither far below nor far above. */
static void test_limits__estimates(void **state)
{
    (void)state;
    static const char *const specs[] = {
        "3: S(0/2)",           "3: S(0*5)",          "2: S(0;40,30,20,10)", "4: S(0~)",
        "2,3: S(0/2), S(1/3)", "2,3: S(0/4), S(0)",  "2,3: S(0), S(0/4)",   "2,3: S(0/4), S(0/3)",
        "3,2: S(1), S(flat)",  "3,2: S(0), S(flat)", "3: S(flat/7)",        "5: S(flat/250)",
    };
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        reshard_layout *layout = make(specs[i], 2, 100, 60);
        for (int32_t r = 0; r < layout->rank_count; r++) {
            reshard_shards *shards = NULL;
            int64_t about = rs_layout_piece_estimate(layout, r);
            assert_int_equal(reshard_layout_shards(layout, r, &shards), RESHARD_OK);
            int64_t count = shards->items[0].piece_count;
            int64_t slack = i < 5 ? 1 : 4;
            if (about > slack * count || count > slack * about)
                fail_msg("%s, rank %d: %lld pieces, about %lld", specs[i], r, (long long)count,
                         (long long)about);
            reshard_shards_destroy(shards);
        }
        reshard_layout_release(layout);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limits__pieces_of_a_rank),
        cmocka_unit_test(test_limits__all_shards),
        cmocka_unit_test(test_limits__nested_cuts),
        cmocka_unit_test(test_limits__volumes),
        cmocka_unit_test(test_limits__estimates),
        cmocka_unit_test(test_limits__volume_of_copies),
        cmocka_unit_test(test_limits__last_rank),
        cmocka_unit_test(test_limits__estimate_of_a_scalar),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
