/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading boxes: a tensor whose elements are their own indices, stored in several splits, gives the
 * same elements for every box, whatever files they lie in.
 */
#include "layout/layout.h"
#include "system/file.h"
#include "tests/support/check.h"
#include "tests/support/harness.h"
#include "tests/support/info.h"
#include "tests/support/random.h"

#include <reshard/conversion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 37, COLUMNS = 23, DEPTH = 3, COUNT = ROWS * COLUMNS * DEPTH };

static char folder[] = "/tmp/reshard-test-XXXXXX";
static char source[64], rules[64];

static void write_file(const char *path, const void *bytes, size_t count, uint64_t at)
{
    rs_file *file = NULL;
    reshard_status status =
        at == 0 ? rs_file_create(NULL, path, &file) : rs_file_open_write(NULL, path, &file);
    assert_int_equal(status, RESHARD_OK);
    assert_int_equal(rs_file_write(file, bytes, count, at), RESHARD_OK);
    rs_file_close(file);
}

static int set_up(void **state)
{
    static const char text[] = "w S(1)@x, S(0)@y\n";
    char head[256];
    int32_t values[COUNT];
    (void)state;
    if (mkdtemp(folder) == NULL)
        return -1;
    (void)snprintf(source, sizeof source, "%s/model.safetensors", folder);
    (void)snprintf(rules, sizeof rules, "%s/r.rules", folder);
    int length =
        snprintf(head + 8, sizeof head - 8,
                 "{\"w\":{\"dtype\":\"I32\",\"shape\":[%d,%d,%d],\"data_offsets\":[0,%d]}}",
                 (int)ROWS, (int)COLUMNS, (int)DEPTH, 4 * (int)COUNT);
    memset(head, 0, 8);
    head[0] = (char)length;
    for (int32_t i = 0; i < COUNT; i++)
        values[i] = i;
    write_file(source, head, 8 + (size_t)length, 0);
    write_file(source, values, sizeof values, 8 + (uint64_t)length);
    write_file(rules, text, sizeof text - 1, 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return rs_folder_remove(NULL, folder) == RESHARD_OK ? 0 : -1;
}

static void check_box(const reshard_checkpoint *checkpoint, draw_state *draw)
{
    static const int64_t shape[3] = {ROWS, COLUMNS, DEPTH};
    int32_t seen[COUNT];
    reshard_box box = {.ndim = 3};
    size_t count = 1;
    for (int d = 0; d < 3; d++) {
        box.offset[d] = draw_between(draw, 0, shape[d]);
        box.size[d] = draw_between(draw, 0, shape[d] - box.offset[d]);
        count *= (size_t)box.size[d];
    }
    assert_int_equal(reshard_checkpoint_read(checkpoint, 0, &box, seen, count * 4), RESHARD_OK);
    for (int64_t i = 0, at = 0; i < box.size[0]; i++) {
        for (int64_t j = 0; j < box.size[1]; j++) {
            for (int64_t k = 0; k < box.size[2]; k++, at++)
                assert_int_equal(seen[at],
                                 ((box.offset[0] + i) * COLUMNS + box.offset[1] + j) * DEPTH +
                                     box.offset[2] + k);
        }
    }
}

static void check_boxes(const char *path, const reshard_checkpoint_options *options,
                        int64_t piece_count)
{
    reshard_checkpoint *checkpoint = NULL;
    reshard_stored_tensor tensor = {.size = sizeof tensor};
    reshard_layout *layout = NULL;
    draw_state draw;
    int64_t index = -1;
    draw_seed(&draw, harness_seed());
    assert_int_equal(reshard_checkpoint_open(NULL, path, options, &checkpoint), RESHARD_OK);
    assert_int_equal(info_checkpoint(checkpoint).tensor_count, 1);
    assert_int_equal(reshard_checkpoint_find(checkpoint, "w", 1, &index), RESHARD_OK);
    assert_int_equal(reshard_checkpoint_find(checkpoint, "v", 1, &index), RESHARD_ERR_NOT_FOUND);
    assert_int_equal(reshard_checkpoint_tensor(checkpoint, 0, &tensor), RESHARD_OK);
    assert_int_equal(tensor.piece_count, piece_count);
    assert_int_equal(tensor.bytes, 4 * COUNT);
    assert_int_equal(reshard_checkpoint_layout(checkpoint, 0, &layout), RESHARD_OK);
    assert_int_equal(layout->rank_count,
                     piece_count == 1 ? 1 : info_checkpoint(checkpoint).disk_file_count);
    reshard_layout_release(layout);
    for (int i = 0; i < 100; i++)
        check_box(checkpoint, &draw);
    int32_t number = 0;
    reshard_box outside = {.ndim = 3, .offset = {ROWS, 0, 0}, .size = {1, 1, 1}};
    assert_int_equal(reshard_checkpoint_read(checkpoint, 0, &outside, &number, 4),
                     RESHARD_ERR_RANGE);
    outside.offset[0] = 0;
    assert_int_equal(reshard_checkpoint_read(checkpoint, 0, &outside, &number, 3),
                     RESHARD_ERR_INVALID);
    assert_int_equal(reshard_checkpoint_read(checkpoint, 1, NULL, &number, 4), RESHARD_ERR_RANGE);
    reshard_checkpoint_destroy(checkpoint);
}

static void test_checkpoint__any_box_of_any_split(void **state)
{
    (void)state;
    char target[96];
    reshard_conversion_options options = {.size = sizeof options, .to = "x=3,y=2", .rules = rules};
    const reshard_conversion_run_options running = {.size = sizeof running, .no_sync = 1};
    check_boxes(source, NULL, 1);
    (void)snprintf(target, sizeof target, "%s/dcp", folder);
    assert_int_equal(reshard_convert(NULL, source, target, NULL, &options, &running, NULL),
                     RESHARD_OK);
    check_boxes(target, NULL, 6);
    assert_int_equal(rs_folder_remove(NULL, target), RESHARD_OK);
    (void)snprintf(target, sizeof target, "%s/ranks", folder);
    options.format = "rank-files";
    assert_int_equal(reshard_convert(NULL, source, target, NULL, &options, &running, NULL),
                     RESHARD_OK);
    const reshard_checkpoint_options opening = {
        .size = sizeof opening, .from = "x=3,y=2", .rules = rules};
    check_boxes(target, &opening, 6);
    assert_int_equal(rs_folder_remove(NULL, target), RESHARD_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_checkpoint__any_box_of_any_split),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
