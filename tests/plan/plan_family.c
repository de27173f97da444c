/* SPDX-License-Identifier: Apache-2.0 */
/* Families: moves in, records out; how many records, and that they stand for the same moves. */
#include "plan/family.h"
#include "tests/support/check.h"
#include "tests/support/random.h"

#include <string.h>

enum { MOVES_MAX = 2000 };

typedef struct collected {
    rs_arena arena;
    rs_family family;
    int64_t count;
    rs_steps given[MOVES_MAX]; /* in their order */
    reshard_moves moves;
} collected;

static collected c; /* too large for the stack */

static void begin(void)
{
    rs_arena_init(&c.arena, NULL);
    rs_family_init(&c.family, NULL, &c.arena);
    c.count = 0;
}

static void end(void)
{
    rs_family_release(&c.family);
    rs_arena_release(&c.arena);
}

/* A receive of a 2x3 box. */
static rs_move make_move(int32_t peer, int64_t source_at, int64_t target_at)
{
    rs_move move;
    memset(&move, 0, sizeof move);
    move.mine = 5;
    move.contributor_count = 1;
    move.ndim = 2;
    move.size[0] = 2;
    move.size[1] = 3;
    move.source_strides[0] = 10;
    move.source_strides[1] = move.target_strides[1] = 1;
    move.target_strides[0] = 20;
    move.first = (rs_steps){peer, 0, source_at, target_at, {0}};
    return move;
}

/* `form` tells moves apart that cannot be of one family. */
static void add(int64_t form, int32_t peer, int64_t source_at, int64_t target_at, int64_t row,
                int64_t column)
{
    rs_move move = make_move(peer, source_at, target_at);
    move.source_strides[0] += form;
    move.first.start[0] = row;
    move.first.start[1] = column;
    c.given[c.count++] = move.first;
    assert_int_equal(rs_family_add(&c.family, &move), RESHARD_OK);
}

/* The records stand for the moves that were given, in their order, and are this many. */
static void check(int64_t records)
{
    int64_t next = 0;
    assert_int_equal(rs_family_finish(&c.family, &c.moves), RESHARD_OK);
    for (int64_t i = 0; i < c.moves.count; i++) {
        const reshard_move *record = &c.moves.items[i];
        for (int64_t k = 0; k < reshard_move_count(record); k++, next++) {
            int64_t start[RESHARD_FACTORS_MAX];
            reshard_move single;
            reshard_move_single(record, 5, k, &single, start);
            assert_true(next < c.count);
            assert_int_equal(single.source_rank, c.given[next].peer);
            assert_int_equal(single.target_rank, 5);
            assert_int_equal(single.source_at, c.given[next].source_at);
            assert_int_equal(single.target_at, c.given[next].target_at);
            assert_int_equal(start[0], c.given[next].start[0]);
            assert_int_equal(start[1], c.given[next].start[1]);
        }
    }
    assert_int_equal(next, c.count);
    assert_int_equal(c.family.single_count, c.count);
    assert_int_equal(c.family.element_count, c.count * 6);
    if (records >= 0)
        assert_int_equal(c.moves.count, records);
}

static void test_family__nothing(void **state)
{
    (void)state;
    begin();
    check(0);
    end();
}

static void test_family__a_run_is_one_record(void **state)
{
    (void)state;
    begin();
    for (int32_t i = 0; i < 12; i++)
        add(0, 7 + i, 3 * i, 100 - 2 * i, i, 0);
    check(1);
    assert_int_equal(c.moves.items[0].loop_count, 1);
    assert_int_equal(c.moves.items[0].loops[0].count, 12);
    assert_int_equal(c.moves.items[0].loops[0].peer_step, 1);
    assert_int_equal(c.moves.items[0].loops[0].target_step, -2);
    end();
}

static void test_family__runs_of_runs(void **state)
{
    (void)state;
    begin();
    for (int32_t i = 0; i < 4; i++) {
        for (int32_t j = 0; j < 3; j++) {
            for (int32_t k = 0; k < 5; k++)
                add(0, k, 100 * i + 10 * j, 7 * k + 1000 * i, i, j);
        }
    }
    check(1);
    assert_int_equal(c.moves.items[0].loop_count, 3);
    assert_int_equal(c.moves.items[0].loops[0].count, 4);
    assert_int_equal(c.moves.items[0].loops[1].count, 3);
    assert_int_equal(c.moves.items[0].loops[2].count, 5);
    end();
}

static void test_family__what_breaks_a_run(void **state)
{
    (void)state;
    begin();
    add(0, 0, 0, 0, 0, 0);
    add(0, 1, 5, 5, 0, 0);
    add(0, 2, 11, 10, 0, 0); /* not at the step of the two before it */
    check(2);
    end();
    begin();
    add(0, 0, 0, 0, 0, 0);
    add(1, 1, 5, 5, 0, 0); /* other strides */
    add(1, 2, 10, 10, 0, 0);
    check(2);
    end();
}

/* The second of two moves, at a step that would do, is a move of another form. */
static void test_family__every_difference_breaks_a_run(void **state)
{
    (void)state;
    enum { KIND, SOURCE, TARGET, COUNT, REDUCTION, DIVISOR, SIZE, FROM, TO, SAME };
    for (int changed = KIND; changed <= SAME; changed++) {
        begin();
        rs_move first = make_move(0, 0, 0), second = make_move(1, 5, 5);
        second.kind = changed == KIND ? RESHARD_MOVE_ADD : first.kind;
        second.source_shard += changed == SOURCE;
        second.target_shard += changed == TARGET;
        second.contributor_count += changed == COUNT;
        second.reduction = changed == REDUCTION ? RESHARD_MAX : first.reduction;
        second.divisor += changed == DIVISOR;
        second.size[1] -= changed == SIZE;
        second.source_strides[0] += changed == FROM;
        second.target_strides[0] += changed == TO;
        assert_int_equal(rs_family_add(&c.family, &first), RESHARD_OK);
        assert_int_equal(rs_family_add(&c.family, &second), RESHARD_OK);
        assert_int_equal(rs_family_finish(&c.family, &c.moves), RESHARD_OK);
        assert_int_equal(c.moves.count, changed == SAME ? 1 : 2);
        end();
    }
}

static void test_family__more_levels_than_loops(void **state)
{
    (void)state;
    begin();
    for (int32_t code = 0; code < 1 << (RS_LOOPS_MAX + 2); code++) {
        int64_t at = 0;
        for (int32_t bit = 0; bit < RS_LOOPS_MAX + 2; bit++)
            at += (code >> bit & 1) * (bit + 1) * (bit + 1) * 1000; /* no two levels are one loop */
        add(0, 0, at, at * 3, 0, 0);
    }
    check(4);
    assert_int_equal(c.moves.items[0].loop_count, RS_LOOPS_MAX);
    end();
}

static void test_family__random_moves(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        draw_state draw;
        draw_seed(&draw, seed);
        begin();
        int64_t runs = 1 + draw_below(&draw, 20);
        for (int64_t r = 0; r < runs; r++) {
            int64_t length = 1 + draw_below(&draw, 9);
            int64_t step = draw_below(&draw, 3), form = draw_below(&draw, 2);
            int64_t at = draw_below(&draw, 4) * 10;
            for (int64_t i = 0; i < length; i++)
                add(form, (int32_t)(i * step), at + i, at - i * step, i, r);
        }
        check(-1);
        end();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_family__nothing),
        cmocka_unit_test(test_family__a_run_is_one_record),
        cmocka_unit_test(test_family__runs_of_runs),
        cmocka_unit_test(test_family__what_breaks_a_run),
        cmocka_unit_test(test_family__every_difference_breaks_a_run),
        cmocka_unit_test(test_family__more_levels_than_loops),
        cmocka_unit_test(test_family__random_moves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
