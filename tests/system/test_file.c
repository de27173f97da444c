/* SPDX-License-Identifier: Apache-2.0 */
/* Files: whole reads and writes over calls that do one byte at a time or fail; errors with
 * paths. */
#define _GNU_SOURCE /* fallocate, syscall */
#include "base/context.h"
#include "system/file.h"
#include "tests/support/check.h"
#include "tests/support/copying.h"
#include "tests/support/info.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef __linux__
#include <fcntl.h>
#include <sys/syscall.h>
#endif

static char folder[] = "/tmp/reshard-test-XXXXXX";
static char path[64], other[64];

static int set_up(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL)
        return -1;
    (void)snprintf(path, sizeof path, "%s/one", folder);
    (void)snprintf(other, sizeof other, "%s/two", folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return rs_folder_remove(NULL, folder) == RESHARD_OK ? 0 : -1;
}

static int64_t read_one(void *user, int descriptor, void *bytes, size_t count, uint64_t at)
{
    int *calls = user;
    if (++*calls % 3 == 0) {
        errno = EINTR;
        return -1;
    }
    return rs_file_calls_system()->read(NULL, descriptor, bytes, count > 0, at);
}

static int64_t write_one(void *user, int descriptor, const void *bytes, size_t count, uint64_t at)
{
    int *calls = user;
    if (++*calls % 3 == 0) {
        errno = EINTR;
        return -1;
    }
    return rs_file_calls_system()->write(NULL, descriptor, bytes, count > 0, at);
}

static int64_t read_fails(void *user, int descriptor, void *bytes, size_t count, uint64_t at)
{
    (void)user, (void)descriptor, (void)bytes, (void)count, (void)at;
    errno = EIO;
    return -1;
}

static int64_t write_fails(void *user, int descriptor, const void *bytes, size_t count, uint64_t at)
{
    (void)user, (void)descriptor, (void)bytes, (void)count, (void)at;
    errno = ENOSPC;
    return -1;
}

static int64_t copy_refuses(void *user, int source, uint64_t source_at, int target,
                            uint64_t target_at, size_t count)
{
    (void)user, (void)source, (void)source_at, (void)target, (void)target_at, (void)count;
    errno = EXDEV;
    return -1;
}

/* Seven bytes at a time, and the third call is interrupted. */
static int64_t copy_seven(void *user, int source, uint64_t source_at, int target,
                          uint64_t target_at, size_t count)
{
    int *calls = user;
    if (++*calls == 3) {
        errno = EINTR;
        return -1;
    }
    return copying_call(source, source_at, target, target_at, count < 7 ? count : 7);
}

static int sync_fails(void *user, int descriptor)
{
    (void)user, (void)descriptor;
    errno = EIO;
    return -1;
}

static void test_file__short_calls_are_gone_on_with(void **state)
{
    (void)state;
    int calls_made = 0;
    const rs_file_calls calls = {read_one,    write_one, copy_refuses, sync_fails,
                                 &calls_made, NULL,      NULL};
    reshard_context *context = NULL;
    rs_file *file = NULL;
    char bytes[100], seen[100];
    for (int i = 0; i < 100; i++)
        bytes[i] = (char)i;
    assert_int_equal(reshard_context_create(NULL, &context), RESHARD_OK);
    rs_file_calls_set(context, &calls);
    assert_int_equal(rs_file_create(context, path, &file), RESHARD_OK);
    assert_int_equal(rs_file_write(file, bytes, 100, 50), RESHARD_OK);
    assert_int_equal(rs_file_read(file, seen, 100, 50), RESHARD_OK);
    assert_memory_equal(bytes, seen, 100);
    assert_true(calls_made >= 250);
    assert_int_equal(rs_file_read(file, seen, 50, 0), RESHARD_OK);
    for (int i = 0; i < 50; i++)
        assert_int_equal(seen[i], 0);
    assert_int_equal(rs_file_read(file, seen, 100, 51), RESHARD_ERR_CORRUPT);
    assert_non_null(strstr(reshard_error_text(), "ends at byte 150, 1 bytes before"));
    uint64_t done = 7;
    assert_int_equal(rs_file_copy(file, 0, file, 200, 10, &done), RESHARD_OK);
    assert_int_equal(done, 0);
    assert_int_equal(rs_file_sync(file), RESHARD_ERR_IO);
    assert_non_null(strstr(reshard_error_text(), path));
    rs_file_close(file);
    assert_int_equal(info_memory(context).bytes, 0);
    reshard_context_destroy(context);
    assert_int_equal(rs_path_remove(NULL, path), RESHARD_OK);
}

static int64_t write_and_note(void *user, int descriptor, const void *bytes, size_t count,
                              uint64_t at)
{
    size_t *longest = user;
    if (count > *longest)
        *longest = count;
    return rs_file_calls_system()->write(NULL, descriptor, bytes, count, at);
}

/* Longer ones would take 2 MiB folios of the page cache (file.c). */
static void test_file__writes_are_at_most_a_mebibyte_each(void **state)
{
    (void)state;
    const size_t count = 3 * 1048576 + 5;
    size_t longest = 0;
    rs_file_calls calls = *rs_file_calls_system();
    calls.write = write_and_note;
    calls.user = &longest;
    reshard_context *context = NULL;
    rs_file *file = NULL;
    unsigned char *bytes = test_malloc(count), *seen = test_malloc(count);
    for (size_t i = 0; i < count; i++)
        bytes[i] = (unsigned char)(i % 251);
    assert_int_equal(reshard_context_create(NULL, &context), RESHARD_OK);
    rs_file_calls_set(context, &calls);
    assert_int_equal(rs_file_create(context, path, &file), RESHARD_OK);
    assert_int_equal(rs_file_write(file, bytes, count, 3), RESHARD_OK);
    assert_int_equal(longest, 1048576);
    assert_int_equal(rs_file_read(file, seen, count, 3), RESHARD_OK);
    assert_memory_equal(bytes, seen, count);
    rs_file_close(file);
    reshard_context_destroy(context);
    assert_int_equal(rs_path_remove(NULL, path), RESHARD_OK);
    test_free(bytes);
    test_free(seen);
}

static void test_file__short_copies_are_gone_on_with(void **state)
{
    (void)state;
    int calls_made = 0;
    rs_file_calls calls = *rs_file_calls_system();
    calls.copy = copy_seven;
    calls.user = &calls_made;
    reshard_context *context = NULL;
    rs_file *source = NULL, *target = NULL;
    char bytes[100], seen[100];
    uint64_t done = 0;
    for (int i = 0; i < 100; i++)
        bytes[i] = (char)(i + 1);
    assert_int_equal(reshard_context_create(NULL, &context), RESHARD_OK);
    rs_file_calls_set(context, &calls);
    assert_int_equal(rs_file_create(context, path, &source), RESHARD_OK);
    assert_int_equal(rs_file_create(context, other, &target), RESHARD_OK);
    assert_int_equal(rs_file_write(source, bytes, 100, 0), RESHARD_OK);
    assert_int_equal(rs_file_resize(target, 100, false), RESHARD_OK);
    assert_int_equal(rs_file_copy(source, 30, target, 11, 50, &done), RESHARD_OK);
    assert_int_equal(done, 50);
    assert_int_equal(calls_made, 9);
    assert_int_equal(rs_file_read(target, seen, 100, 0), RESHARD_OK);
    for (int i = 0; i < 100; i++)
        assert_int_equal(seen[i], i >= 11 && i < 61 ? bytes[i + 19] : 0);
    /* A source that ends: what there is, and how much that was. */
    assert_int_equal(rs_file_copy(source, 90, target, 0, 50, &done), RESHARD_OK);
    assert_int_equal(done, 10);
    rs_file_close(source);
    rs_file_close(target);
    reshard_context_destroy(context);
    assert_int_equal(rs_path_remove(NULL, path), RESHARD_OK);
    assert_int_equal(rs_path_remove(NULL, other), RESHARD_OK);
}

#ifdef __linux__
static int interruptions, reservations;

/* Takes the place of the C library's function in this program. */
int fallocate(int descriptor, int mode, off_t at, off_t count)
{
    reservations++;
    if (interruptions > 0) {
        interruptions--;
        errno = EINTR;
        return -1;
    }
    return (int)syscall(SYS_fallocate, descriptor, mode, at, count);
}

/* Signals may interrupt a reservation of disk space. It is tried again, but not for ever. */
static void test_file__interrupted_reservations_are_gone_on_with(void **state)
{
    (void)state;
    static const struct {
        int interruptions, reservations;
    } cases[] = {{0, 1}, {3, 4}, {1000, 100}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rs_file *file = NULL;
        uint64_t bytes = 0;
        interruptions = cases[i].interruptions;
        reservations = 0;
        assert_int_equal(rs_file_create(NULL, path, &file), RESHARD_OK);
        assert_int_equal(rs_file_resize(file, 10000, true), RESHARD_OK);
        assert_int_equal(reservations, cases[i].reservations);
        assert_int_equal(rs_file_size(file, &bytes), RESHARD_OK);
        assert_int_equal(bytes, 10000);
        rs_file_close(file);
        assert_int_equal(rs_path_remove(NULL, path), RESHARD_OK);
    }
}
#endif

static void test_file__errors_name_the_path_and_the_cause(void **state)
{
    (void)state;
    const rs_file_calls calls = {read_fails, write_fails, copy_refuses, sync_fails,
                                 NULL,       NULL,        NULL};
    reshard_context *context = NULL;
    rs_file *file = NULL;
    char bytes[8] = {0};
    assert_int_equal(reshard_context_create(NULL, &context), RESHARD_OK);
    rs_file_calls_set(context, &calls);
    assert_int_equal(rs_file_open(context, path, &file), RESHARD_ERR_NOT_FOUND);
    assert_non_null(strstr(reshard_error_text(), path));
    assert_non_null(strstr(reshard_error_text(), strerror(ENOENT)));
    assert_int_equal(rs_file_open(context, folder, &file), RESHARD_ERR_IO);
    assert_int_equal(rs_file_create(context, path, &file), RESHARD_OK);
    assert_int_equal(rs_file_write(file, bytes, 8, 0), RESHARD_ERR_IO);
    assert_non_null(strstr(reshard_error_text(), strerror(ENOSPC)));
    assert_int_equal(rs_file_read(file, bytes, 8, 0), RESHARD_ERR_IO);
    assert_non_null(strstr(reshard_error_text(), strerror(EIO)));
    rs_file_close(file);
    assert_int_equal(rs_file_create(context, path, &file), RESHARD_ERR_IO);
    assert_int_equal(rs_path_remove(NULL, path), RESHARD_OK);
    reshard_context_destroy(context);
}

static void write_text(const char *to, const char *text)
{
    rs_file *file = NULL;
    assert_int_equal(rs_file_create(NULL, to, &file), RESHARD_OK);
    assert_int_equal(rs_file_write(file, text, strlen(text), 0), RESHARD_OK);
    assert_int_equal(rs_file_sync(file), RESHARD_OK);
    rs_file_close(file);
}

static void test_file__copies_ranges(void **state)
{
    (void)state;
    rs_file *source = NULL, *target = NULL;
    char *text = NULL;
    size_t count = 0;
    uint64_t done = 0, size = 0;
    write_text(path, "0123456789");
    assert_int_equal(rs_file_open(NULL, path, &source), RESHARD_OK);
    assert_int_equal(rs_file_create(NULL, other, &target), RESHARD_OK);
    assert_int_equal(rs_file_resize(target, 12, true), RESHARD_OK);
    assert_int_equal(rs_file_copy(source, 3, target, 5, 4, &done), RESHARD_OK);
    assert_true(done == 4 || done == 0); /* not every file system can */
    if (done == 0)
        assert_int_equal(rs_file_write(target, "3456", 4, 5), RESHARD_OK);
    assert_int_equal(rs_file_copy(source, 8, target, 0, 4, &done), RESHARD_OK);
    assert_true(done <= 2);
    assert_int_equal(rs_file_write(target, "\0\0\0\0", 4, 0), RESHARD_OK);
    assert_int_equal(rs_file_size(target, &size), RESHARD_OK);
    assert_int_equal(size, 12);
    rs_file_close(source);
    rs_file_close(target);
    assert_int_equal(rs_file_read_all(NULL, other, 12, &text, &count), RESHARD_OK);
    assert_int_equal(count, 12);
    assert_memory_equal(text, "\0\0\0\0\0003456\0\0\0\0", 13);
    rs_release(NULL, text);
    assert_int_equal(rs_file_read_all(NULL, other, 11, &text, &count), RESHARD_ERR_RANGE);
    assert_int_equal(rs_path_remove(NULL, path), RESHARD_OK);
    assert_int_equal(rs_path_remove(NULL, other), RESHARD_OK);
}

#if defined(__linux__)
/* File systems, and old kernels, can be without renames that never replace; set: so is this one. */
static bool lacks_renameat2;

int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags)
{
    if (!lacks_renameat2)
        return (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);
    errno = ENOSYS;
    return -1;
}

static void test_file__links_that_lead_nowhere_are_not_replaced(void **state)
{
    (void)state;
    for (int lacks = 0; lacks < 2; lacks++) {
        lacks_renameat2 = lacks != 0;
        write_text(path, "a");
        assert_int_equal(symlink("nowhere", other), 0);
        assert_int_equal(rs_path_rename(NULL, path, other), RESHARD_ERR_IO);
        assert_true(rs_path_is_link(other));
        assert_int_equal(rs_path_remove(NULL, other), RESHARD_OK);
        assert_int_equal(rs_path_rename(NULL, path, other), RESHARD_OK);
        assert_int_equal(rs_path_remove(NULL, other), RESHARD_OK);
    }
    lacks_renameat2 = false;
}
#endif

static void test_file__names_are_listed_and_never_replaced(void **state)
{
    (void)state;
    rs_names names;
    rs_path_kind kind;
    char hidden[64];
    (void)snprintf(hidden, sizeof hidden, "%s/.hidden", folder);
    write_text(other, "b");
    write_text(path, "a");
    write_text(hidden, "c");
    assert_int_equal(rs_folder_list(NULL, folder, &names), RESHARD_OK);
    assert_int_equal(names.count, 2);
    assert_string_equal(names.items[0], "one");
    assert_string_equal(names.items[1], "two");
    rs_names_release(&names);
    assert_int_equal(rs_path_rename(NULL, path, other), RESHARD_ERR_IO);
    assert_true(rs_path_same(path, path) && !rs_path_same(path, other));
    assert_int_equal(rs_path_remove(NULL, other), RESHARD_OK);
    assert_int_equal(rs_path_rename(NULL, path, other), RESHARD_OK);
    assert_int_equal(rs_path_kind_of(path, &kind), RESHARD_OK);
    assert_int_equal(kind, RS_PATH_NONE);
    assert_int_equal(rs_path_kind_of(folder, &kind), RESHARD_OK);
    assert_int_equal(kind, RS_PATH_FOLDER);
    static const char *const parents[][2] = {
        {"a/b", "a"}, {"/a", "/"}, {"a", "."}, {"a//b//", "a"}, {"/a/b/c", "/a/b"}};
    for (int i = 0; i < 5; i++) {
        char *parent = rs_path_parent(NULL, parents[i][0]);
        assert_string_equal(parent, parents[i][1]);
        rs_release(NULL, parent);
    }
    assert_int_equal(rs_folder_sync(NULL, folder), RESHARD_OK);
    assert_int_equal(rs_folder_create(NULL, folder), RESHARD_ERR_IO);
    assert_int_equal(rs_path_remove(NULL, hidden), RESHARD_OK);
    assert_int_equal(rs_path_remove(NULL, other), RESHARD_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_file__short_calls_are_gone_on_with),
        cmocka_unit_test(test_file__writes_are_at_most_a_mebibyte_each),
        cmocka_unit_test(test_file__short_copies_are_gone_on_with),
#ifdef __linux__
        cmocka_unit_test(test_file__interrupted_reservations_are_gone_on_with),
#endif
        cmocka_unit_test(test_file__errors_name_the_path_and_the_cause),
        cmocka_unit_test(test_file__copies_ranges),
        cmocka_unit_test(test_file__names_are_listed_and_never_replaced),
#if defined(__linux__)
        cmocka_unit_test(test_file__links_that_lead_nowhere_are_not_replaced),
#endif
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
