/* SPDX-License-Identifier: Apache-2.0 */
/* Volumes, strides, boxes, and tiles against what they promise. */
#include "base/shape.h"
#include "tests/support/check.h"

static void test_shape__fits(void **state)
{
    (void)state;
    const int64_t large = INT64_C(1) << 32;
    static const int64_t negative[] = {3, -1};
    const int64_t exact[] = {INT64_MAX, 1}, beyond[] = {large, large / 2};
    const int64_t hidden[] = {0, large, large}; /* no elements, but strides that do not fit */
    assert_true(rs_shape_fits(0, NULL));
    assert_true(rs_shape_fits(2, exact));
    assert_false(rs_shape_fits(2, beyond));
    assert_false(rs_shape_fits(3, hidden));
    assert_false(rs_shape_fits(2, negative));
    assert_int_equal(rs_shape_check(2, exact), RESHARD_OK);
    assert_int_equal(rs_shape_check(3, hidden), RESHARD_ERR_RANGE);
    assert_int_equal(rs_shape_check(2, negative), RESHARD_ERR_RANGE);
    assert_string_equal(reshard_error_text(), "dimension 1 has the negative length -1");
    assert_int_equal(rs_shape_check(RESHARD_NDIM_MAX + 1, exact), RESHARD_ERR_RANGE);
    assert_int_equal(rs_shape_check(1, NULL), RESHARD_ERR_INVALID);
}

static void test_shape__volume(void **state)
{
    (void)state;
    static const int64_t shape[] = {2, 3, 5}, empty[] = {4, 0, 7};
    assert_int_equal(rs_volume(0, NULL), 1);
    assert_int_equal(rs_volume(3, shape), 30);
    assert_int_equal(rs_volume(3, empty), 0);
}

static void test_shape__strides(void **state)
{
    (void)state;
    static const struct {
        int64_t size[3], strides[3];
        bool dense;
    } rows[] = {
        {{2, 3, 5}, {15, 5, 1}, true},   {{2, 3, 5}, {15, 1, 3}, false},
        {{2, 1, 5}, {5, 99, 1}, true},   {{1, 3, 5}, {-7, 5, 1}, true},
        {{2, 3, 5}, {30, 10, 2}, false}, {{2, 3, 5}, {16, 5, 1}, false},
        {{2, 3, 1}, {3, 1, 8}, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int64_t strides[3];
        assert_int_equal(rs_strides_are_dense(3, rows[i].size, rows[i].strides), rows[i].dense);
        rs_dense_strides(3, rows[i].size, strides);
        assert_true(rs_strides_are_dense(3, rows[i].size, strides));
    }
    assert_true(rs_strides_are_dense(0, NULL, NULL));
}

static void test_shape__clip(void **state)
{
    (void)state;
    static const struct {
        int64_t offset[2], size[2], other[2], other_size[2], clipped[2], clipped_size[2];
        bool any;
    } rows[] = {
        {{0, 0}, {4, 4}, {2, 1}, {9, 2}, {2, 1}, {2, 2}, true},
        {{3, 5}, {1, 1}, {0, 0}, {9, 9}, {3, 5}, {1, 1}, true},
        {{0, 0}, {4, 4}, {4, 0}, {4, 4}, {0, 0}, {0, 0}, false}, /* they touch */
        {{0, 0}, {4, 4}, {0, 2}, {4, 0}, {0, 0}, {0, 0}, false}, /* one is empty */
        {{6, 0}, {2, 4}, {0, 0}, {7, 1}, {6, 0}, {1, 1}, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int64_t offset[2] = {rows[i].offset[0], rows[i].offset[1]};
        int64_t size[2] = {rows[i].size[0], rows[i].size[1]};
        assert_int_equal(rs_box_clip(2, offset, size, rows[i].other, rows[i].other_size),
                         rows[i].any);
        for (int d = 0; d < 2 && rows[i].any; d++) {
            assert_int_equal(offset[d], rows[i].clipped[d]);
            assert_int_equal(size[d], rows[i].clipped_size[d]);
        }
    }
}

/* Tiles fit, are not wasteful, and follow each other through the box in row-major order: each is
 * one run of its dense memory. */
static void check_tiles(int32_t ndim, const int64_t *size, int64_t elements_max)
{
    rs_tiles tiles = rs_tiles_cut(ndim, size, elements_max);
    int64_t strides[RESHARD_NDIM_MAX], next = 0, last = 0;
    rs_dense_strides(ndim, size, strides);
    for (int64_t i = 0; i < tiles.count; i++) {
        int64_t offset[RESHARD_NDIM_MAX], part[RESHARD_NDIM_MAX], at = 0;
        rs_tiles_at(&tiles, i, offset, part);
        for (int32_t d = 0; d < ndim; d++) {
            at += offset[d] * strides[d];
            assert_true(offset[d] >= 0 && part[d] >= 1 && offset[d] + part[d] <= size[d]);
        }
        int64_t volume = rs_volume(ndim, part);
        assert_true(volume <= elements_max);
        assert_int_equal(at, next);
        assert_true(rs_strides_are_dense(ndim, part, strides));
        next += volume;
        last = volume;
    }
    assert_int_equal(next, rs_volume(ndim, size));
    if (rs_volume(ndim, size) != 0 && rs_volume(ndim, size) <= elements_max)
        assert_int_equal(tiles.count, 1);
    else if (tiles.count > 1 && ndim == 1)
        assert_true(last + elements_max * (tiles.count - 1) == next);
}

static void test_tiles__of_all_small_boxes(void **state)
{
    (void)state;
    static const int64_t extents[] = {0, 1, 2, 3, 5};
    for (int code = 0; code < 5 * 5 * 5 * 5; code++) {
        int64_t size[4];
        for (int d = 0, rest = code; d < 4; d++, rest /= 5)
            size[d] = extents[rest % 5];
        for (int32_t ndim = 0; ndim <= 4; ndim++) {
            for (int64_t most = 1; most <= 40; most += most < 12 ? 1 : 7)
                check_tiles(ndim, size, most);
        }
    }
}

static void test_tiles__cut_at(void **state)
{
    (void)state;
    static const int64_t size[] = {3, 10, 4};
    int64_t offset[RESHARD_NDIM_MAX], part[RESHARD_NDIM_MAX];
    rs_tiles tiles = rs_tiles_cut(3, size, 13); /* three rows of 4 */
    assert_int_equal(tiles.dim, 1);
    assert_int_equal(tiles.rows, 3);
    assert_int_equal(tiles.count, 3 * 4);
    rs_tiles_at(&tiles, 7, offset, part);
    assert_int_equal(offset[0], 1);
    assert_int_equal(offset[1], 9);
    assert_int_equal(offset[2], 0);
    assert_int_equal(part[0], 1);
    assert_int_equal(part[1], 1);
    assert_int_equal(part[2], 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shape__fits),
        cmocka_unit_test(test_shape__volume),
        cmocka_unit_test(test_shape__strides),
        cmocka_unit_test(test_shape__clip),
        cmocka_unit_test(test_tiles__of_all_small_boxes),
        cmocka_unit_test(test_tiles__cut_at),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
