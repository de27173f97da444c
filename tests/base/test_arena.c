/* SPDX-License-Identifier: Apache-2.0 */
/* Arenas: alignment, no two allocations on the same bytes, large blocks, failure, release. */
#include "base/arena.h"
#include "base/context.h"
#include "tests/support/check.h"
#include "tests/support/info.h"

#include <stdalign.h>
#include <string.h>

static reshard_context *make_context(size_t bytes_max)
{
    reshard_context_options options = {.size = sizeof options, .memory_bytes_max = bytes_max};
    reshard_context *context = NULL;
    assert_int_equal(reshard_context_create(&options, &context), RESHARD_OK);
    return context;
}

static void test_arena__allocations_are_aligned_and_apart(void **state)
{
    (void)state;
    enum { COUNT = 500 };
    reshard_context *context = make_context(0);
    rs_arena arena;
    unsigned char *memory[COUNT];
    rs_arena_init(&arena, context);
    for (size_t i = 0; i < COUNT; i++) {
        memory[i] = rs_arena_allocate(&arena, i);
        assert_non_null(memory[i]);
        assert_int_equal((uintptr_t)memory[i] % alignof(max_align_t), 0);
        memset(memory[i], (int)(i % 251), i);
    }
    for (size_t i = 0; i < COUNT; i++) {
        for (size_t k = 0; k < i; k++)
            assert_int_equal(memory[i][k], i % 251);
    }
    rs_arena_release(&arena);
    assert_int_equal(info_memory(context).bytes, 0);
    reshard_context_destroy(context);
}

static void test_arena__empty_ones_cost_nothing(void **state)
{
    (void)state;
    reshard_context *context = make_context(0);
    rs_arena arena;
    rs_arena_init(&arena, context);
    assert_int_equal(info_memory(context).bytes, 0);
    rs_arena_release(&arena);
    rs_arena_release(&arena);
    reshard_context_destroy(context);
}

static void test_arena__is_usable_after_release(void **state)
{
    (void)state;
    rs_arena arena;
    rs_arena_init(&arena, NULL);
    for (int i = 0; i < 3; i++) {
        assert_non_null(rs_arena_allocate(&arena, 5000));
        rs_arena_release(&arena);
        assert_null(arena.blocks);
    }
}

static void test_arena__large_allocations_get_their_own_room(void **state)
{
    (void)state;
    reshard_context *context = make_context(0);
    rs_arena arena;
    rs_arena_init(&arena, context);
    size_t large = (size_t)5 << 20;
    char *memory = rs_arena_allocate(&arena, large);
    assert_non_null(memory);
    memset(memory, 1, large);
    assert_in_range(info_memory(context).bytes, large, large + 4096);
    assert_non_null(rs_arena_allocate(&arena, 1));
    assert_in_range(info_memory(context).bytes, large, large + ((size_t)1 << 20) + 4096);
    rs_arena_release(&arena);
    assert_int_equal(info_memory(context).bytes, 0);
    reshard_context_destroy(context);
}

static void test_arena__copies_items(void **state)
{
    (void)state;
    static const int64_t items[] = {3, -1, INT64_MAX};
    rs_arena arena;
    rs_arena_init(&arena, NULL);
    int64_t *copy = rs_arena_copy(&arena, items, 3, sizeof items[0]);
    assert_memory_equal(copy, items, sizeof items);
    assert_ptr_not_equal(copy, items);
    assert_non_null(rs_arena_copy(&arena, NULL, 0, sizeof items[0]));
    rs_arena_release(&arena);
}

static void test_arena__failure_has_words_and_keeps_the_rest(void **state)
{
    (void)state;
    reshard_context *context = make_context(10000);
    rs_arena arena;
    rs_arena_init(&arena, context);
    char *kept = rs_arena_allocate(&arena, 100);
    assert_non_null(kept);
    memset(kept, 7, 100);
    size_t bytes = info_memory(context).bytes;
    assert_null(rs_arena_allocate(&arena, 20000));
    assert_int_equal(rs_allocation_status(), RESHARD_ERR_MEMORY_LIMIT);
    assert_null(rs_arena_allocate(&arena, SIZE_MAX));
    assert_null(rs_arena_allocate(&arena, SIZE_MAX / 2));
    assert_null(rs_arena_allocate_array(&arena, SIZE_MAX / 2, 3));
    assert_int_equal(rs_allocation_status(), RESHARD_ERR_NO_MEMORY);
    assert_non_null(strstr(reshard_error_text(), "no memory"));
    assert_int_equal(info_memory(context).bytes, bytes);
    for (int i = 0; i < 100; i++)
        assert_int_equal(kept[i], 7);
    assert_non_null(rs_arena_allocate(&arena, 100));
    rs_arena_release(&arena);
    assert_int_equal(info_memory(context).bytes, 0);
    reshard_context_destroy(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arena__allocations_are_aligned_and_apart),
        cmocka_unit_test(test_arena__empty_ones_cost_nothing),
        cmocka_unit_test(test_arena__is_usable_after_release),
        cmocka_unit_test(test_arena__large_allocations_get_their_own_room),
        cmocka_unit_test(test_arena__copies_items),
        cmocka_unit_test(test_arena__failure_has_words_and_keeps_the_rest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
