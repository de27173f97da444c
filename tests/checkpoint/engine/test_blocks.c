/* SPDX-License-Identifier: Apache-2.0 */
/* How routes are cut into blocks, and blocks dealt out to ranks. */
#include "checkpoint/engine/blocks.h"
#include "tests/checkpoint/engine/engine_case.h"
#include "tests/support/check.h"

#define THREAD_BYTES ((size_t)1 << 20)

static const int64_t shapes[2][2] = {{3000, 100}, {1, 1000000}};
static rs_stored_piece pieces[2] = {{.size = shapes[0]}, {.size = shapes[1]}};
static rs_stored_tensor tensors[2];
static rs_route routes[2];
static rs_arena arena;

static int set_up(void **state)
{
    (void)state;
    rs_arena_init(&arena, NULL);
    for (int i = 0; i < 2; i++) {
        tensors[i] = matrix_tensor(shapes[i], &pieces[i], 1);
        routes[i] = rs_route_nowhere(&tensors[i]);
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    rs_arena_release(&arena);
    return 0;
}

static void test_blocks__tile_their_routes(void **state)
{
    (void)state;
    rs_blocks blocks;
    assert_int_equal(rs_blocks_cut(&blocks, &arena, 2, routes, THREAD_BYTES, false), RESHARD_OK);
    /* Half of the memory, without 3 gaps of 64 bytes: 131048 elements, 1310 rows of 100. */
    const int64_t expected[][5] = {
        {0, 0, 0, 1310, 100},          {0, 1310, 0, 1310, 100},       {0, 2620, 0, 380, 100},
        {1, 0, 0, 1, 131048},          {1, 0, 131048, 1, 131048},     {1, 0, 2 * 131048, 1, 131048},
        {1, 0, 3 * 131048, 1, 131048}, {1, 0, 4 * 131048, 1, 131048}, {1, 0, 5 * 131048, 1, 131048},
        {1, 0, 6 * 131048, 1, 131048}, {1, 0, 7 * 131048, 1, 82664}};
    assert_int_equal(blocks.count, 11);
    assert_int_equal(blocks.bytes, 4 * (300000 + 1000000));
    for (int64_t i = 0; i < blocks.count; i++) {
        int64_t offset[RESHARD_NDIM_MAX], size[RESHARD_NDIM_MAX];
        int64_t route = rs_blocks_route(&blocks, i);
        assert_int_equal(route, expected[i][0]);
        rs_blocks_box(&blocks, route, i, offset, size);
        assert_memory_equal(offset, &expected[i][1], 2 * sizeof(int64_t));
        assert_memory_equal(size, &expected[i][3], 2 * sizeof(int64_t));
        assert_int_equal(rs_blocks_bytes(&blocks, route, i), 4 * size[0] * size[1]);
    }
}

/* Whatever the number of ranks, and whatever is done already: each open block has one rank, and
 * ranks have about the same bytes. */
static void test_blocks__are_dealt_out_once(void **state)
{
    (void)state;
    rs_blocks blocks;
    rs_ledger ledger;
    assert_int_equal(rs_blocks_cut(&blocks, &arena, 2, routes, THREAD_BYTES, false), RESHARD_OK);
    assert_int_equal(rs_ledger_init(&ledger, NULL, blocks.count), RESHARD_OK);
    rs_ledger_recall(&ledger, 2, 3);
    for (int32_t ranks = 1; ranks <= 15; ranks++) {
        for (uint64_t bytes_max = 1 << 20; bytes_max < (uint64_t)1 << 24; bytes_max *= 2) {
            int taken[11] = {0};
            for (int32_t rank = 0; rank < ranks; rank++) {
                const rs_team team = {.rank = rank, .rank_count = ranks};
                rs_block_walk walk = {.blocks = &blocks, .ledger = &ledger};
                while (walk.block < blocks.count) {
                    int64_t begin = 0, end = 0, from = walk.block;
                    rs_block_walk_deal(&walk, &team, bytes_max, &begin, &end);
                    assert_true(begin <= end && (begin == end || begin >= from));
                    assert_true(end <= walk.block);
                    for (int64_t i = begin; i < end; i++)
                        taken[i]++;
                }
            }
            for (int64_t i = 0; i < blocks.count; i++)
                assert_true(taken[i] == 1 || (taken[i] == 0 && rs_ledger_is_done(&ledger, i)));
        }
    }
    rs_ledger_release(&ledger);
}

/* Blocks that are smaller than what division of the bytes by the ranks leaves over. */
static void test_blocks__small_ones_are_dealt_out_once(void **state)
{
    enum { SMALL = 11 };
    static const int64_t shape[2] = {1, 1};
    static rs_stored_piece piece = {.size = shape};
    rs_stored_tensor small[SMALL];
    rs_route ways[SMALL];
    rs_blocks blocks;
    (void)state;
    for (int i = 0; i < SMALL; i++) {
        small[i] = matrix_tensor(shape, &piece, 1);
        ways[i] = rs_route_nowhere(&small[i]);
    }
    assert_int_equal(rs_blocks_cut(&blocks, &arena, SMALL, ways, THREAD_BYTES, false), RESHARD_OK);
    assert_int_equal(blocks.count, SMALL);
    for (int32_t ranks = 1; ranks <= 50; ranks++) {
        int taken[SMALL] = {0};
        for (int32_t rank = 0; rank < ranks; rank++) {
            const rs_team team = {.rank = rank, .rank_count = ranks};
            rs_block_walk walk = {.blocks = &blocks};
            int64_t begin = 0, end = 0;
            rs_block_walk_deal(&walk, &team, 1 << 20, &begin, &end);
            for (int64_t i = begin; i < end; i++)
                taken[i]++;
        }
        for (int i = 0; i < SMALL; i++)
            assert_int_equal(taken[i], 1);
    }
}

/* Gaps between many pieces would take more than half of the memory: there are none then. */
static void test_blocks__gaps_give_way(void **state)
{
    (void)state;
    tensors[0].piece_count = (int64_t)(THREAD_BYTES / 2 / RS_BLOCK_ALIGNMENT) - 2;
    assert_int_equal(rs_blocks_gap(&routes[0], THREAD_BYTES), RS_BLOCK_ALIGNMENT);
    tensors[0].piece_count++;
    assert_int_equal(rs_blocks_gap(&routes[0], THREAD_BYTES), 0);
    tensors[0].piece_count = 1000000;
    rs_blocks blocks;
    assert_int_equal(rs_blocks_cut(&blocks, &arena, 1, routes, THREAD_BYTES, false), RESHARD_OK);
    assert_int_equal(blocks.tiles[0].rows, 1310);
}

static void test_blocks__direct_ones_are_larger(void **state)
{
    (void)state;
    rs_blocks blocks;
    routes[0].direct = routes[1].direct = true;
    assert_int_equal(rs_blocks_cut(&blocks, &arena, 2, routes, THREAD_BYTES, true), RESHARD_OK);
    assert_int_equal(blocks.count, 2);
    assert_int_equal(rs_blocks_cut(&blocks, &arena, 2, routes, THREAD_BYTES, false), RESHARD_OK);
    assert_int_equal(blocks.count, 11);
}

/* Whatever the two places in files and the memory are modulo a page: neither copy has its target 1
 * to 31 bytes behind its source. */
static void test_blocks_place__is_slow_neither_way(void **state)
{
    (void)state;
    static char memory[2 * 4096];
    for (size_t begin = 0; begin < 4096; begin += 64) {
        for (uint64_t source = 0; source < 4096; source += 5) {
            for (uint64_t target = source % 7; target < 4096; target += 31) {
                char *found = rs_blocks_place(memory + begin, source, target);
                size_t shift = (size_t)(found - (memory + begin));
                uint64_t read = ((uintptr_t)found - source) % 4096;
                uint64_t write = (target - (uintptr_t)found) % 4096;
                if (shift > RS_BLOCK_SHIFT_MAX || (read > 0 && read < 32) ||
                    (write > 0 && write < 32))
                    fail_msg("memory %zu, from %d to %d: shift %zu", begin, (int)source,
                             (int)target, shift);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_blocks__tile_their_routes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_blocks__are_dealt_out_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_blocks__small_ones_are_dealt_out_once, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_blocks__gaps_give_way, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_blocks__direct_ones_are_larger, set_up, tear_down),
        cmocka_unit_test(test_blocks_place__is_slow_neither_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
