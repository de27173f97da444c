/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts: counting, limits, user allocators, callbacks, growing arrays. */
#include "base/context.h"
#include "base/error.h"
#include "system/thread.h"
#include "tests/support/check.h"
#include "tests/support/info.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An allocator that checks what it is told, and fails when its patience ends. */
typedef struct ledger {
    int calls_left; /* before every call fails; -1: never */
    int live;
    int wrong; /* calls with a size that does not match, or of zero bytes */
    size_t bytes;
} ledger;

#define HEAD sizeof(max_align_t)

static int is_out_of_patience(ledger *book)
{
    if (book->calls_left == 0)
        return 1;
    if (book->calls_left > 0)
        book->calls_left--;
    return 0;
}

static void *ledger_allocate(void *user, size_t bytes)
{
    ledger *book = user;
    book->wrong += bytes == 0;
    if (is_out_of_patience(book))
        return NULL;
    char *block = malloc(HEAD + bytes);
    if (block == NULL)
        return NULL;
    memcpy(block, &bytes, sizeof bytes);
    memset(block + HEAD, 0xa5, bytes);
    book->live++;
    book->bytes += bytes;
    return block + HEAD;
}

static void ledger_release(void *user, void *memory, size_t bytes)
{
    ledger *book = user;
    char *block = (char *)memory - HEAD;
    book->wrong += memcmp(block, &bytes, sizeof bytes) != 0;
    book->live--;
    book->bytes -= bytes;
    free(block);
}

static void *ledger_resize(void *user, void *memory, size_t bytes_old, size_t bytes_new)
{
    void *moved = ledger_allocate(user, bytes_new);
    if (moved != NULL) {
        memcpy(moved, memory, bytes_old < bytes_new ? bytes_old : bytes_new);
        ledger_release(user, memory, bytes_old);
    }
    return moved;
}

static reshard_context *make_context(ledger *book, size_t bytes_max)
{
    reshard_allocator allocator = {ledger_allocate, ledger_resize, ledger_release, book};
    reshard_context_options options = {.size = sizeof options,
                                       .allocator = book != NULL ? &allocator : NULL,
                                       .memory_bytes_max = bytes_max};
    reshard_context *context = NULL;
    assert_int_equal(reshard_context_create(&options, &context), RESHARD_OK);
    return context;
}

static void test_context__null_is_not_counted(void **state)
{
    (void)state;
    void *memory = rs_allocate(NULL, 100);
    assert_non_null(memory);
    assert_int_equal(info_memory(NULL).bytes, 0);
    assert_int_equal(info_memory(NULL).bytes_peak, 0);
    rs_release(NULL, memory);
    rs_release(NULL, NULL);
    reshard_context_reset_peak(NULL);
    reshard_context_destroy(NULL);
    assert_false(rs_context_cancelled(NULL));
    rs_context_progress(NULL, "nothing", 0, 0);
    rs_context_log(NULL, "nothing");
}

static void test_context__counts_bytes_and_their_peak(void **state)
{
    (void)state;
    reshard_context *context = make_context(NULL, 0);
    assert_int_equal(info_memory(context).bytes, 0);
    void *a = rs_allocate(context, 100);
    void *b = rs_allocate_array(context, 25, 8);
    assert_int_equal(info_memory(context).bytes, 300);
    rs_release(context, a);
    assert_int_equal(info_memory(context).bytes, 200);
    assert_int_equal(info_memory(context).bytes_peak, 300);
    reshard_context_reset_peak(context);
    assert_int_equal(info_memory(context).bytes_peak, 200);
    rs_release(context, b);
    assert_int_equal(info_memory(context).bytes, 0);
    reshard_context_destroy(context);
}

static void test_context__zero_bytes_give_a_pointer(void **state)
{
    (void)state;
    ledger book = {.calls_left = -1};
    reshard_context *context = make_context(&book, 0);
    void *a = rs_allocate(context, 0);
    void *b = rs_allocate_zeroed(context, 0);
    void *c = rs_allocate_array(context, 0, 8);
    assert_non_null(a);
    assert_non_null(b);
    assert_non_null(c);
    rs_release(context, a);
    rs_release(context, b);
    rs_release(context, c);
    assert_int_equal(info_memory(context).bytes, 0);
    reshard_context_destroy(context);
    assert_int_equal(book.live, 0);
    assert_int_equal(book.wrong, 0);
}

static void test_context__zeroed_memory_is_zero(void **state)
{
    (void)state;
    ledger book = {.calls_left = -1};
    reshard_context *context = make_context(&book, 0);
    static const char zeros[1000];
    void *memory = rs_allocate_zeroed(context, sizeof zeros);
    assert_memory_equal(memory, zeros, sizeof zeros);
    rs_release(context, memory);
    reshard_context_destroy(context);
}

static void test_context__limit_holds_exactly(void **state)
{
    (void)state;
    reshard_context *context = make_context(NULL, 1000);
    void *all = rs_allocate(context, 1000);
    assert_non_null(all);
    assert_null(rs_allocate(context, 1));
    assert_int_equal(rs_allocation_status(), RESHARD_ERR_MEMORY_LIMIT);
    assert_string_equal(reshard_error_text(),
                        "1 bytes more would exceed the limit of 1000 (1000 in use)");
    assert_int_equal(info_memory(context).bytes, 1000);
    assert_int_equal(info_memory(context).bytes_peak, 1000);
    rs_release(context, all);
    assert_null(rs_allocate(context, 1001));
    assert_null(rs_allocate(context, SIZE_MAX));
    assert_int_equal(info_memory(context).bytes, 0);
    all = rs_allocate(context, 1000);
    assert_non_null(all);
    rs_release(context, all);
    reshard_context_destroy(context);
}

static void test_context__impossible_sizes_fail_with_words(void **state)
{
    (void)state;
    reshard_context *counted = make_context(NULL, 0);
    reshard_context *contexts[] = {NULL, counted};
    for (int i = 0; i < 2; i++) {
        (void)rs_fail(RESHARD_ERR_IO, "old words");
        assert_null(rs_allocate(contexts[i], SIZE_MAX / 2));
        assert_int_equal(rs_allocation_status(), RESHARD_ERR_NO_MEMORY);
        assert_non_null(strstr(reshard_error_text(), "no memory for"));
        assert_null(rs_allocate_array(contexts[i], SIZE_MAX / 4, 8));
        assert_int_equal(rs_allocation_status(), RESHARD_ERR_NO_MEMORY);
        assert_non_null(strstr(reshard_error_text(), "items of 8 bytes"));
        assert_int_equal(info_memory(contexts[i]).bytes, 0);
    }
    reshard_context_destroy(counted);
}

static void test_context__tells_its_allocator_true_sizes(void **state)
{
    (void)state;
    ledger book = {.calls_left = -1};
    reshard_context *context = make_context(&book, 0);
    size_t own = book.bytes;
    assert_true(own > 0);
    void *a = rs_allocate(context, 10);
    void *b = rs_allocate_zeroed(context, 20);
    assert_int_equal(book.bytes, own + 30 + 2 * _Alignof(max_align_t)); /* with headers */
    rs_release(context, b);
    rs_release(context, a);
    reshard_context_destroy(context);
    assert_int_equal(book.live, 0);
    assert_int_equal(book.bytes, 0);
    assert_int_equal(book.wrong, 0);
}

static void test_context__a_failing_allocator_is_not_counted(void **state)
{
    (void)state;
    ledger book = {.calls_left = 1};
    reshard_context *context = make_context(&book, 0);
    assert_null(rs_allocate(context, 10));
    assert_int_equal(rs_allocation_status(), RESHARD_ERR_NO_MEMORY);
    assert_string_equal(reshard_error_text(), "no memory for 10 bytes");
    assert_int_equal(info_memory(context).bytes, 0);
    reshard_context_destroy(context);
    assert_int_equal(book.live, 0);
}

static void test_context__create_refuses_wrong_options(void **state)
{
    (void)state;
    ledger book = {.calls_left = 0};
    reshard_allocator allocator = {ledger_allocate, ledger_resize, ledger_release, &book};
    reshard_context_options options = {.size = 0};
    reshard_context *context = NULL;
    assert_int_equal(reshard_context_create(&options, &context), RESHARD_ERR_INVALID);
    assert_non_null(strstr(reshard_error_text(), "size is"));
    options.size = sizeof options;
    options.allocator = &allocator;
    assert_int_equal(reshard_context_create(&options, &context), RESHARD_ERR_NO_MEMORY);
    allocator.resize = NULL;
    assert_int_equal(reshard_context_create(&options, &context), RESHARD_ERR_INVALID);
    assert_non_null(strstr(reshard_error_text(), "lacks a function"));
    assert_null(context);
}

static void test_grow__doubles_and_keeps_the_items(void **state)
{
    (void)state;
    ledger book = {.calls_left = -1};
    reshard_context *context = make_context(&book, 0);
    void *memory = NULL;
    int64_t capacity = 0;
    for (int64_t i = 0; i < 1000; i++) {
        assert_int_equal(rs_grow(context, &memory, &capacity, i + 1, sizeof i), RESHARD_OK);
        assert_true(capacity > i);
        ((int64_t *)memory)[i] = i * i;
    }
    assert_int_equal(capacity, 1024);
    assert_int_equal(info_memory(context).bytes, 1024 * sizeof(int64_t));
    for (int64_t i = 0; i < 1000; i++)
        assert_int_equal(((int64_t *)memory)[i], i * i);
    rs_release(context, memory);
    reshard_context_destroy(context);
    assert_int_equal(book.live, 0);
    assert_int_equal(book.wrong, 0);
}

static void test_grow__enough_room_changes_nothing(void **state)
{
    (void)state;
    char items[4];
    void *memory = items;
    int64_t capacity = 4;
    assert_int_equal(rs_grow(NULL, &memory, &capacity, 4, 1), RESHARD_OK);
    assert_int_equal(rs_grow(NULL, &memory, &capacity, 0, 1), RESHARD_OK);
    assert_ptr_equal(memory, items);
    assert_int_equal(capacity, 4);
}

static void test_grow__failure_leaves_the_array(void **state)
{
    (void)state;
    ledger book = {.calls_left = 2};
    reshard_context *context = make_context(&book, 0);
    void *memory = NULL;
    int64_t capacity = 0;
    assert_int_equal(rs_grow(context, &memory, &capacity, 8, 4), RESHARD_OK);
    void *before = memory;
    static const int64_t too_many[] = {9, INT64_MAX / 2, INT64_MAX};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(rs_grow(context, &memory, &capacity, too_many[i], 4),
                         RESHARD_ERR_NO_MEMORY);
        assert_ptr_equal(memory, before);
        assert_int_equal(capacity, 8);
        assert_int_equal(info_memory(context).bytes, 32);
    }
    rs_release(context, memory);
    reshard_context_destroy(context);
    assert_int_equal(book.live, 0);
}

static void test_grow__limit_is_on_what_is_added(void **state)
{
    (void)state;
    reshard_context *context = make_context(NULL, 64);
    void *memory = NULL;
    int64_t capacity = 0;
    assert_int_equal(rs_grow(context, &memory, &capacity, 8, 4), RESHARD_OK);
    assert_int_equal(rs_grow(context, &memory, &capacity, 16, 4), RESHARD_OK);
    assert_int_equal(rs_grow(context, &memory, &capacity, 17, 4), RESHARD_ERR_MEMORY_LIMIT);
    assert_int_equal(info_memory(context).bytes, 64);
    rs_release(context, memory);
    reshard_context_destroy(context);
}

typedef struct heard {
    int cancel;
    char log[32];
    char what[32];
    uint64_t done, total;
} heard;

static void hear_log(void *user, const char *line)
{
    heard *ear = user;
    snprintf(ear->log, sizeof ear->log, "%s", line);
}

static void hear_progress(void *user, const char *what, uint64_t done, uint64_t total)
{
    heard *ear = user;
    snprintf(ear->what, sizeof ear->what, "%s", what);
    ear->done = done;
    ear->total = total;
}

static int tell_cancelled(void *user)
{
    heard *ear = user;
    return ear->cancel;
}

static void test_context__callbacks_get_their_user(void **state)
{
    (void)state;
    heard ear = {0};
    reshard_context_options options = {.size = sizeof options,
                                       .log = hear_log,
                                       .progress = hear_progress,
                                       .cancelled = tell_cancelled,
                                       .user = &ear};
    reshard_context *context = NULL;
    assert_int_equal(reshard_context_create(&options, &context), RESHARD_OK);
    rs_context_log(context, "a line");
    rs_context_progress(context, "moving", 3, UINT64_MAX);
    assert_string_equal(ear.log, "a line");
    assert_string_equal(ear.what, "moving");
    assert_true(ear.done == 3 && ear.total == UINT64_MAX);
    assert_false(rs_context_cancelled(context));
    ear.cancel = 5;
    assert_true(rs_context_cancelled(context));
    reshard_context_destroy(context);
}

static void test_context__a_flag_cancels(void **state)
{
    (void)state;
    volatile int flag = 0;
    reshard_context_options options = {.size = sizeof options, .cancel_flag = &flag};
    reshard_context *context = NULL;
    assert_int_equal(reshard_context_create(&options, &context), RESHARD_OK);
    assert_false(rs_context_cancelled(context));
    flag = 1;
    assert_true(rs_context_cancelled(context));
    flag = 0;
    assert_false(rs_context_cancelled(context));
    reshard_context_destroy(context);
}

enum { THREADS = 4, ROUNDS = 2000 };

static void churn(void *user)
{
    reshard_context *context = user;
    for (size_t i = 1; i <= ROUNDS; i++) {
        void *memory = rs_allocate(context, i % 97);
        rs_release(context, memory);
    }
}

static void test_context__threads_share_the_count(void **state)
{
    (void)state;
    reshard_context *context = make_context(NULL, 3 * 96);
    rs_thread threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(rs_thread_start(&threads[i], churn, context), RESHARD_OK);
    for (int i = 0; i < THREADS; i++)
        rs_thread_join(&threads[i]);
    assert_int_equal(info_memory(context).bytes, 0);
    assert_in_range(info_memory(context).bytes_peak, 96, 3 * 96);
    reshard_context_destroy(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_context__null_is_not_counted),
        cmocka_unit_test(test_context__counts_bytes_and_their_peak),
        cmocka_unit_test(test_context__zero_bytes_give_a_pointer),
        cmocka_unit_test(test_context__zeroed_memory_is_zero),
        cmocka_unit_test(test_context__limit_holds_exactly),
        cmocka_unit_test(test_context__impossible_sizes_fail_with_words),
        cmocka_unit_test(test_context__tells_its_allocator_true_sizes),
        cmocka_unit_test(test_context__a_failing_allocator_is_not_counted),
        cmocka_unit_test(test_context__create_refuses_wrong_options),
        cmocka_unit_test(test_grow__doubles_and_keeps_the_items),
        cmocka_unit_test(test_grow__enough_room_changes_nothing),
        cmocka_unit_test(test_grow__failure_leaves_the_array),
        cmocka_unit_test(test_grow__limit_is_on_what_is_added),
        cmocka_unit_test(test_context__callbacks_get_their_user),
        cmocka_unit_test(test_context__a_flag_cancels),
        cmocka_unit_test(test_context__threads_share_the_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
