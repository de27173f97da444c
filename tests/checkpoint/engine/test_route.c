/* SPDX-License-Identifier: Apache-2.0 */
/* Routes against moves worked out by hand. */
#include "checkpoint/engine/file_route.h"
#include "tests/checkpoint/engine/engine_case.h"
#include "tests/support/check.h"

#include <stdlib.h>
#include <string.h>

static rs_arena arena;
static rs_route_cache cache;

static int set_up(void **state)
{
    (void)state;
    memset(&cache, 0, sizeof cache);
    rs_arena_init(&arena, NULL);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    rs_arena_release(&arena);
    return 0;
}

/* One move, written down. */
typedef struct expected_move {
    int32_t source, target;
    int64_t offset[2], size[2];
    int64_t source_at, target_at;
    int64_t source_strides[2], target_strides[2];
} expected_move;

static void check_moves(const rs_route *route, const expected_move *rows, int64_t count)
{
    assert_int_equal(route->move_count, count);
    for (int64_t i = 0; i < count; i++) {
        const rs_route_move *move = &route->moves[i];
        assert_int_equal(move->source, rows[i].source);
        assert_int_equal(move->target, rows[i].target);
        assert_int_equal(move->source_at, rows[i].source_at);
        assert_int_equal(move->target_at, rows[i].target_at);
        assert_memory_equal(move->offset, rows[i].offset, sizeof rows[i].offset);
        assert_memory_equal(move->size, rows[i].size, sizeof rows[i].size);
        assert_memory_equal(move->source_strides, rows[i].source_strides, 2 * sizeof(int64_t));
        assert_memory_equal(move->target_strides, rows[i].target_strides, 2 * sizeof(int64_t));
    }
}

static const int64_t shape[] = {4, 6};

/* Rows 0 and 1 in the first file, 2 and 3 in the second. */
static rs_stored_piece rows[] = {
    {.file = 0, .size = (const int64_t[]){2, 6}},
    {.file = 1, .offset = (const int64_t[]){2, 0}, .size = (const int64_t[]){2, 6}}};

static void test_route__rows_to_columns(void **state)
{
    (void)state;
    /* The first two columns twice in one buffer of file 0, with a gap of one column; the rest
     * dense in file 3. */
    rs_stored_piece columns[] = {
        {.file = 0, .size = (const int64_t[]){4, 2}, .strides = (const int64_t[]){5, 1}},
        {.file = 0, .at = 12, .size = (const int64_t[]){4, 2}, .strides = (const int64_t[]){5, 1}},
        {.file = 3, .offset = (const int64_t[]){0, 2}, .size = (const int64_t[]){4, 4}}};
    rs_stored_tensor source = matrix_tensor(shape, rows, 2);
    rs_stored_tensor target = matrix_tensor(shape, columns, 3);
    const expected_move expected[] = {
        {0, 0, {0, 0}, {2, 2}, 0, 0, {6, 1}, {5, 1}}, {1, 0, {2, 0}, {2, 2}, 0, 10, {6, 1}, {5, 1}},
        {0, 1, {0, 0}, {2, 2}, 0, 0, {6, 1}, {5, 1}}, {1, 1, {2, 0}, {2, 2}, 0, 10, {6, 1}, {5, 1}},
        {0, 2, {0, 2}, {2, 4}, 2, 0, {6, 1}, {4, 1}}, {1, 2, {2, 2}, {2, 4}, 2, 8, {6, 1}, {4, 1}}};
    rs_route route;
    assert_int_equal(rs_route_plan(&arena, &cache, &source, &target, &route), RESHARD_OK);
    check_moves(&route, expected, 6);
    assert_false(route.casts || route.direct);
    assert_true(route.tiles);
    assert_non_null(route.again);
    assert_true(!route.again[0] && route.again[1] && !route.again[2]);
    assert_int_equal(rs_route_target_bytes(&route), (4 * 2 * 2 + 4 * 4) * 4);
}

/* Pieces with the same boxes and strides share their moves; other strides do not. */
static void test_route__cache(void **state)
{
    (void)state;
    rs_stored_piece wide[] = {
        {.file = 0, .size = (const int64_t[]){4, 2}},
        {.file = 1, .offset = (const int64_t[]){0, 2}, .size = (const int64_t[]){4, 4}}};
    rs_stored_piece apart[] = {wide[0], wide[1]};
    apart[1].strides = (const int64_t[]){9, 1};
    rs_stored_tensor source = matrix_tensor(shape, rows, 2);
    rs_stored_tensor targets[] = {matrix_tensor(shape, wide, 2), matrix_tensor(shape, wide, 2),
                                  matrix_tensor(shape, apart, 2)};
    rs_route routes[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(rs_route_plan(&arena, &cache, &source, &targets[i], &routes[i]),
                         RESHARD_OK);
    assert_ptr_equal(routes[0].moves, routes[1].moves);
    assert_ptr_not_equal(routes[0].moves, routes[2].moves);
    assert_int_equal(routes[2].moves[3].target_strides[0], 9);
    assert_int_equal(routes[2].moves[3].target_at, 18);
}

static void test_route__whole_is_direct_when_long(void **state)
{
    (void)state;
    const int64_t sizes[][2] = {{512, 128}, {512, 127}};
    for (int i = 0; i < 2; i++) {
        rs_stored_piece from = {.size = sizes[i]}, to = {.file = 7, .at = 64, .size = sizes[i]};
        rs_stored_tensor source = matrix_tensor(sizes[i], &from, 1);
        rs_stored_tensor target = matrix_tensor(sizes[i], &to, 1);
        rs_route route;
        assert_int_equal(rs_route_plan(&arena, &cache, &source, &target, &route), RESHARD_OK);
        assert_int_equal(route.move_count, 1);
        assert_int_equal(route.direct, i == 0); /* 256 KiB and less */
        target.dtype = RESHARD_BF16;
        assert_int_equal(rs_route_plan(&arena, &cache, &source, &target, &route), RESHARD_OK);
        assert_true(route.casts && !route.direct);
    }
}

/* One copy has the box of a piece, the other one spans both. */
static void test_route__copies(void **state)
{
    (void)state;
    rs_stored_piece copies[] = {
        {.file = 2, .offset = (const int64_t[]){2, 0}, .size = (const int64_t[]){2, 6}},
        {.file = 3, .offset = (const int64_t[]){1, 1}, .size = (const int64_t[]){2, 3}}};
    rs_stored_tensor source = matrix_tensor(shape, rows, 2);
    source.copies = copies;
    source.copy_count = 2;
    const expected_move expected[] = {{1, 0, {2, 0}, {2, 6}, 0, 0, {6, 1}, {6, 1}},
                                      {0, 1, {1, 1}, {1, 3}, 7, 0, {6, 1}, {3, 1}},
                                      {1, 1, {2, 1}, {1, 3}, 1, 3, {6, 1}, {3, 1}}};
    rs_route route;
    assert_int_equal(rs_route_copies(&arena, &source, &route), RESHARD_OK);
    check_moves(&route, expected, 3);
    assert_int_equal(route.target->piece_count, 2);
    assert_false(route.tiles || route.direct);
}

static void test_route__one_piece(void **state)
{
    (void)state;
    rs_stored_piece wanted[] = {
        {.file = 0, .size = (const int64_t[]){1, 1}},
        {.file = 0, .offset = (const int64_t[]){1, 4}, .size = (const int64_t[]){3, 2}}};
    rs_stored_tensor source = matrix_tensor(shape, rows, 2);
    rs_stored_tensor target = matrix_tensor(shape, wanted, 2);
    const expected_move expected[] = {{0, 1, {1, 4}, {1, 2}, 10, 0, {6, 1}, {2, 1}},
                                      {1, 1, {2, 4}, {2, 2}, 4, 2, {6, 1}, {2, 1}}};
    rs_route route;
    assert_int_equal(rs_route_piece(&arena, &source, &target, 1, &route), RESHARD_OK);
    check_moves(&route, expected, 2);
    assert_memory_equal(route.offset, wanted[1].offset, 2 * sizeof(int64_t));
    assert_memory_equal(route.size, wanted[1].size, 2 * sizeof(int64_t));
    assert_true(route.direct);
}

/* Far more pieces than could be searched for each move. */
static void test_route__many_pieces(void **state)
{
    (void)state;
    enum { PIECES = 40000 };
    static const int64_t large[] = {PIECES, 4}, line[] = {1, 4};
    static int64_t offsets[PIECES][2];
    rs_stored_piece *many = calloc(PIECES, sizeof *many), one = {.size = large};
    assert_non_null(many);
    for (int i = 0; i < PIECES; i++) {
        offsets[i][0] = PIECES - 1 - i; /* the other way round */
        many[i] = (rs_stored_piece){.at = (uint64_t)i * 16, .offset = offsets[i], .size = line};
    }
    rs_stored_tensor source = matrix_tensor(large, many, PIECES);
    rs_stored_tensor target = matrix_tensor(large, &one, 1);
    rs_route route;
    assert_int_equal(rs_route_plan(&arena, &cache, &source, &target, &route), RESHARD_OK);
    assert_int_equal(route.move_count, PIECES);
    for (int i = 0; i < PIECES; i++) {
        assert_int_equal(route.moves[i].source, i);
        assert_int_equal(route.moves[i].target_at, (PIECES - 1 - i) * 4);
    }
    free(many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_route__rows_to_columns, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_route__cache, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_route__whole_is_direct_when_long, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_route__copies, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_route__one_piece, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_route__many_pieces, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
