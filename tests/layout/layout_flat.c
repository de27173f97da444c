/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout_flat.c - ranges of a block's row-major order, against counting: the boxes of a range list
 * its elements in order and none twice, and the next place in a box is the first that counting
 * finds. All ranges of all small blocks.
 */
#include "layout/flat.h"
#include "tests/support/check.h"

#include <stdbool.h>
#include <string.h>

enum { EXTENT_MAX = 3, NDIM_TRIED = 4 };

static int64_t volume(const rs_flat_block *block)
{
    int64_t product = 1;
    for (int32_t d = 0; d < block->ndim; d++)
        product *= block->shape[d];
    return product;
}

static int64_t place_of(const rs_flat_block *block, const int64_t *at)
{
    int64_t place = 0;
    for (int32_t d = 0; d < block->ndim; d++)
        place = place * block->shape[d] + at[d];
    return place;
}

/* Goes on to the next element of a box; false after the last. */
static bool step_in(int32_t ndim, const int64_t *start, const int64_t *size, int64_t *at)
{
    for (int32_t d = ndim - 1; d >= 0; d--) {
        if (++at[d] < start[d] + size[d])
            return true;
        at[d] = start[d];
    }
    return false;
}

/* Calls check for every block of up to NDIM_TRIED dims with extents of 1 to EXTENT_MAX. */
static void for_all_blocks(void (*check)(const rs_flat_block *block))
{
    static const int64_t zeros[RESHARD_NDIM_MAX];
    static const int64_t extents[] = {EXTENT_MAX, EXTENT_MAX, EXTENT_MAX, EXTENT_MAX};
    for (int32_t ndim = 0; ndim <= NDIM_TRIED; ndim++) {
        int64_t less_one[RESHARD_NDIM_MAX] = {0};
        do {
            rs_flat_block block = {.ndim = ndim};
            for (int32_t d = 0; d < ndim; d++)
                block.shape[d] = less_one[d] + 1;
            check(&block);
        } while (step_in(ndim, zeros, extents, less_one));
    }
}

static void check_ranges(const rs_flat_block *block)
{
    for (int64_t from = 0; from <= volume(block); from++) {
        for (int64_t to = from; to <= volume(block); to++) {
            rs_flat_boxes boxes;
            rs_flat_split(block, from, to, &boxes);
            assert_true(boxes.count <= (block->ndim == 0 ? 1 : 2 * block->ndim - 1));
            int64_t expected = from;
            for (int32_t i = 0; i < boxes.count; i++) {
                const rs_flat_box *box = &boxes.items[i];
                int64_t at[RESHARD_NDIM_MAX];
                memcpy(at, box->start, sizeof at);
                do {
                    assert_int_equal(place_of(block, at), expected);
                    expected++;
                } while (step_in(block->ndim, box->start, box->size, at));
            }
            assert_int_equal(expected, to);
        }
    }
}

static void test_split__lists_each_element_once_in_order(void **state)
{
    (void)state;
    for_all_blocks(check_ranges);
}

/* The boxes with these corners of blocks, from every place on. */
static void check_next(const rs_flat_block *block)
{
    static const int64_t zeros[RESHARD_NDIM_MAX];
    int64_t start[RESHARD_NDIM_MAX] = {0};
    do {
        int64_t size[RESHARD_NDIM_MAX] = {0};
        for (int32_t d = 0; d < block->ndim; d++)
            size[d] = (block->shape[d] - start[d] + 1) / 2;
        bool inside[81] = {false};
        int64_t at[RESHARD_NDIM_MAX];
        memcpy(at, start, sizeof at);
        do {
            inside[place_of(block, at)] = true;
        } while (step_in(block->ndim, start, size, at));
        int64_t next = -1;
        for (int64_t from = volume(block); from >= 0; from--) {
            if (from < volume(block) && inside[from])
                next = from;
            assert_int_equal(rs_flat_next(block, start, size, from), next);
        }
    } while (step_in(block->ndim, zeros, block->shape, start));
}

static void test_next__is_what_counting_finds(void **state)
{
    (void)state;
    for_all_blocks(check_next);
}

/* Places near 2^63 are reached without overflow. */
static void test_split__largest(void **state)
{
    (void)state;
    rs_flat_block block = {.ndim = 2, .shape = {INT64_MAX / 7, 7}};
    int64_t end = INT64_MAX / 7 * 7;
    rs_flat_boxes boxes;
    rs_flat_split(&block, end - 9, end, &boxes);
    assert_int_equal(boxes.count, 2);
    assert_int_equal(boxes.items[0].start[0], INT64_MAX / 7 - 2);
    assert_int_equal(boxes.items[0].start[1], 5);
    assert_int_equal(boxes.items[0].size[1], 2);
    assert_int_equal(boxes.items[1].start[0], INT64_MAX / 7 - 1);
    assert_int_equal(boxes.items[1].size[1], 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_split__lists_each_element_once_in_order),
        cmocka_unit_test(test_next__is_what_counting_finds),
        cmocka_unit_test(test_split__largest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
