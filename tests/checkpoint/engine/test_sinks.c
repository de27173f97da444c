/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each sink on the blocks of one matrix, 3000 x 100 of f32 whose element [i, j] is i * 100 + j: in
 * rows in two files, or in 40,000 pieces of another one. What comes out is known element by
 * element.
 */
#include "checkpoint/engine/engine.h"
#include "tests/checkpoint/engine/engine_case.h"
#include "tests/support/check.h"

#include "base/context.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROWS = 3000, COLUMNS = 100, FILES = 6 };
#define THREAD_BYTES ((size_t)1 << 20)

static const int64_t shape[] = {ROWS, COLUMNS};
static char folder[64];
static rs_file *files[FILES];
static rs_arena arena;
static rs_route_cache cache;

static int set_up(void **state)
{
    (void)state;
    memset(&cache, 0, sizeof cache);
    rs_arena_init(&arena, NULL);
    (void)snprintf(folder, sizeof folder, "/tmp/reshard-sinks-XXXXXX");
    if (mkdtemp(folder) == NULL)
        return -1;
    for (int i = 0; i < FILES; i++) {
        char path[96];
        (void)snprintf(path, sizeof path, "%s/file-%d", folder, i);
        if (rs_file_create(NULL, path, &files[i]) != RESHARD_OK)
            return -1;
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (int i = 0; i < FILES; i++)
        rs_file_close(files[i]);
    rs_arena_release(&arena);
    return rs_folder_remove(NULL, folder) == RESHARD_OK ? 0 : -1;
}

/* A row of the matrix, from column `first` on. */
static void fill_row(int64_t row, int64_t first, int64_t count, float *out_values)
{
    for (int64_t j = 0; j < count; j++)
        out_values[j] = (float)(row * COLUMNS + first + j);
}

/* Rows 0 .. 999 in file 0 behind 8 bytes, the others in file 1. */
static rs_stored_tensor make_source(void)
{
    static const int64_t sizes[][2] = {{1000, COLUMNS}, {2000, COLUMNS}}, offset[] = {1000, 0};
    static rs_stored_piece pieces[] = {{.file = 0, .at = 8, .size = sizes[0]},
                                       {.file = 1, .offset = offset, .size = sizes[1]}};
    for (int64_t i = 0; i < ROWS; i++) {
        float row[COLUMNS];
        fill_row(i, 0, COLUMNS, row);
        uint64_t at = i < 1000 ? 8 + (uint64_t)i * sizeof row : (uint64_t)(i - 1000) * sizeof row;
        assert_int_equal(rs_file_write(files[i >= 1000], row, sizeof row, at), RESHARD_OK);
    }
    return matrix_tensor(shape, pieces, 2);
}

/* 40 columns dense in file 2; the rest in file 3, with rows of 64 elements. */
static rs_stored_tensor make_columns(void)
{
    static const int64_t sizes[][2] = {{ROWS, 40}, {ROWS, 60}}, offset[] = {0, 40};
    static const int64_t strides[] = {64, 1};
    static rs_stored_piece pieces[] = {
        {.file = 2, .size = sizes[0]},
        {.file = 3, .at = 16, .offset = offset, .size = sizes[1], .strides = strides}};
    return matrix_tensor(shape, pieces, 2);
}

static rs_engine make_engine(const rs_sink *sink, const rs_blocks *blocks)
{
    return (rs_engine){.sink = sink,
                       .blocks = blocks,
                       .sources = files,
                       .targets = files,
                       .threads = 2,
                       .block_end = blocks->count};
}

static void check_columns(void)
{
    for (int64_t i = 0; i < ROWS; i++) {
        float expected[COLUMNS], found[COLUMNS];
        fill_row(i, 0, COLUMNS, expected);
        assert_int_equal(rs_file_read(files[2], found, 160, (uint64_t)i * 160), RESHARD_OK);
        assert_int_equal(rs_file_read(files[3], found + 40, 240, 16 + (uint64_t)i * 256),
                         RESHARD_OK);
        assert_memory_equal(found, expected, sizeof expected);
    }
}

static void test_sinks__file_then_compare(void **state)
{
    (void)state;
    rs_stored_tensor source = make_source(), target = make_columns();
    rs_route route;
    rs_blocks blocks;
    assert_int_equal(rs_route_plan(&arena, &cache, &source, &target, &route), RESHARD_OK);
    assert_int_equal(rs_blocks_cut(&blocks, &arena, 1, &route, THREAD_BYTES, true), RESHARD_OK);
    assert_true(blocks.count > 2);
    rs_engine engine = make_engine(&rs_sink_file, &blocks);
    assert_int_equal(rs_engine_run(&engine), RESHARD_OK);
    check_columns();
    assert_int_equal(atomic_load(&engine.bytes_read), source.bytes);
    assert_int_equal(atomic_load(&engine.bytes_written), source.bytes);
    assert_int_equal(atomic_load(&engine.bytes_shared), 0);
    engine = make_engine(&rs_sink_compare, &blocks);
    assert_int_equal(rs_engine_run(&engine), RESHARD_OK);
    /* One byte of element [2500, 41]. */
    assert_int_equal(rs_file_write(files[3], "?", 1, 16 + 2500 * 256 + 4 + 2), RESHARD_OK);
    assert_int_equal(rs_engine_run(&engine), RESHARD_ERR_CHECK);
    assert_string_equal(reshard_error_text(),
                        "tensor \"m\": file-1 and file-3 hold copies that differ, first at element "
                        "[2500, 41]");
}

/* Blocks that the ledger has are left alone, and the others are marked. */
static void test_sinks__ledger(void **state)
{
    (void)state;
    rs_stored_tensor source = make_source(), target = make_columns();
    rs_route route;
    rs_blocks blocks;
    rs_ledger ledger;
    float found = -1;
    assert_int_equal(rs_route_plan(&arena, &cache, &source, &target, &route), RESHARD_OK);
    assert_int_equal(rs_blocks_cut(&blocks, &arena, 1, &route, THREAD_BYTES, true), RESHARD_OK);
    assert_int_equal(rs_ledger_init(&ledger, NULL, blocks.count), RESHARD_OK);
    rs_ledger_recall(&ledger, 0, 1);
    rs_engine engine = make_engine(&rs_sink_file, &blocks);
    engine.ledger = &ledger;
    assert_int_equal(rs_engine_run(&engine), RESHARD_OK);
    assert_int_equal(rs_file_read(files[2], &found, sizeof found, 4), RESHARD_OK);
    assert_true(found == 0); /* a hole */
    assert_int_equal(rs_file_read(files[2], &found, sizeof found, 2999 * 160), RESHARD_OK);
    assert_true(found == 299900);
    assert_int_equal(rs_ledger_state(&ledger, 0), RS_BLOCK_RECORDED);
    for (int64_t i = 1; i < blocks.count; i++)
        assert_int_equal(rs_ledger_state(&ledger, i), RS_BLOCK_DONE);
    rs_ledger_release(&ledger);
}

/* Long ranges are the kernel's to copy. */
static void test_sinks__direct(void **state)
{
    (void)state;
    static rs_stored_piece whole = {.file = 4, .at = 4096, .size = shape};
    rs_stored_tensor source = make_source(), target = matrix_tensor(shape, &whole, 1);
    rs_route route;
    rs_blocks blocks;
    assert_int_equal(rs_route_plan(&arena, &cache, &source, &target, &route), RESHARD_OK);
    assert_true(route.direct);
    assert_int_equal(rs_blocks_cut(&blocks, &arena, 1, &route, THREAD_BYTES, true), RESHARD_OK);
    rs_engine engine = make_engine(&rs_sink_file, &blocks);
    assert_int_equal(rs_engine_run(&engine), RESHARD_OK);
    for (int64_t i = 0; i < ROWS; i++) {
        float expected[COLUMNS], found[COLUMNS];
        fill_row(i, 0, COLUMNS, expected);
        assert_int_equal(rs_file_read(files[4], found, sizeof found, 4096 + (uint64_t)i * 400),
                         RESHARD_OK);
        assert_memory_equal(found, expected, sizeof expected);
    }
    assert_int_equal(atomic_load(&engine.bytes_done), source.bytes);
}

/* To memory: a box transposed, as it is and cast. */
static void test_sinks__memory(void **state)
{
    (void)state;
    enum { WIDE = 50, HIGH = 2500 };
    static float same[WIDE][HIGH];
    static double cast[WIDE][HIGH];
    static const int64_t offset[] = {200, 30}, size[] = {HIGH, WIDE}, strides[] = {1, HIGH};
    static rs_stored_piece wanted = {.offset = offset, .size = size, .strides = strides};
    rs_stored_tensor source = make_source(), target = matrix_tensor(shape, &wanted, 1);
    for (int pass = 0; pass < 2; pass++) {
        void *const memory[] = {pass == 0 ? (void *)same : (void *)cast};
        rs_route route;
        rs_blocks blocks;
        target.dtype = pass == 0 ? RESHARD_F32 : RESHARD_F64;
        target.element_bytes = pass == 0 ? 4 : 8;
        assert_int_equal(rs_route_piece(&arena, &source, &target, 0, &route), RESHARD_OK);
        assert_int_equal(rs_blocks_cut(&blocks, &arena, 1, &route, THREAD_BYTES, true), RESHARD_OK);
        rs_engine engine = make_engine(&rs_sink_memory, &blocks);
        engine.memory = memory;
        assert_int_equal(rs_engine_run(&engine), RESHARD_OK);
    }
    for (int64_t j = 0; j < WIDE; j++) {
        for (int64_t i = 0; i < HIGH; i++) {
            float expected = (float)((200 + i) * COLUMNS + 30 + j);
            assert_true(same[j][i] == expected && cast[j][i] == (double)expected);
        }
    }
}

/* The sum of all blocks is that of the bytes in one run. */
static void test_sinks__sum(void **state)
{
    (void)state;
    rs_stored_tensor source = make_source();
    rs_route route = rs_route_nowhere(&source);
    rs_blocks blocks;
    rs_sums *sums = NULL;
    char expected[RS_FINGERPRINT_TEXT], found[RS_FINGERPRINT_TEXT];
    assert_int_equal(rs_blocks_cut(&blocks, &arena, 1, &route, THREAD_BYTES, false), RESHARD_OK);
    assert_int_equal(rs_sums_create(NULL, 1, &sums), RESHARD_OK);
    rs_engine engine = make_engine(&rs_sink_sum, &blocks);
    engine.sums = sums;
    assert_int_equal(rs_engine_run(&engine), RESHARD_OK);
    assert_int_equal(
        rs_fingerprint_final(sums->code, &sums->items[0].source, RESHARD_F32, 2, shape, found),
        RESHARD_OK);
    float *all = malloc(ROWS * COLUMNS * sizeof *all);
    assert_non_null(all);
    for (int64_t i = 0; i < ROWS; i++)
        fill_row(i, 0, COLUMNS, all + i * COLUMNS);
    rs_fingerprint_writer writer;
    rs_fingerprint_begin(&writer, sums->code);
    rs_fingerprint_add_run(&writer, 0, all, ROWS * COLUMNS * sizeof *all);
    assert_int_equal(rs_fingerprint_final(sums->code, &writer.sum, RESHARD_F32, 2, shape, expected),
                     RESHARD_OK);
    assert_string_equal(found, expected);
    free(all);
    rs_sums_destroy(sums);
}

/* More pieces than gaps between them would fit into memory. */
static void test_sinks__many_pieces(void **state)
{
    (void)state;
    enum { PIECES = 40000 };
    static const int64_t large[] = {PIECES, 4}, line[] = {1, 4};
    static int64_t offsets[PIECES][2];
    static float values[PIECES][4];
    rs_stored_piece *many = calloc(PIECES, sizeof *many), one = {.file = 5, .size = large};
    assert_non_null(many);
    for (int i = 0; i < PIECES; i++) {
        offsets[i][0] = PIECES - 1 - i;
        many[i] = (rs_stored_piece){.at = (uint64_t)i * 16, .offset = offsets[i], .size = line};
        for (int j = 0; j < 4; j++)
            values[i][j] = (float)(offsets[i][0] * 4 + j);
    }
    assert_int_equal(rs_file_write(files[0], values, sizeof values, 0), RESHARD_OK);
    rs_stored_tensor source = matrix_tensor(large, many, PIECES);
    rs_stored_tensor target = matrix_tensor(large, &one, 1);
    rs_route route;
    rs_blocks blocks;
    assert_int_equal(rs_route_plan(&arena, &cache, &source, &target, &route), RESHARD_OK);
    assert_int_equal(rs_blocks_cut(&blocks, &arena, 1, &route, THREAD_BYTES, true), RESHARD_OK);
    rs_engine engine = make_engine(&rs_sink_file, &blocks);
    assert_int_equal(rs_engine_run(&engine), RESHARD_OK);
    assert_int_equal(rs_file_read(files[5], values, sizeof values, 0), RESHARD_OK);
    for (int i = 0; i < 4 * PIECES; i++)
        assert_true(((const float *)values)[i] == (float)i);
    free(many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_sinks__file_then_compare, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_sinks__ledger, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_sinks__direct, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_sinks__memory, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_sinks__sum, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_sinks__many_pieces, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
