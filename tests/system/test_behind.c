/* SPDX-License-Identifier: Apache-2.0 */
/* Passes over a file take out of the page cache what they brought into it, and nothing else. What
 * is in the cache is asked of mincore, page by page. */
#define _DEFAULT_SOURCE /* mincore */
#include "base/context.h"
#include "system/behind.h"
#include "system/file.h"
#include "tests/support/check.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MEBIBYTE ((size_t)1 << 20)
#define FILE_BYTES (43 * MEBIBYTE + 12345)
#define PERIOD 251 /* of the file's bytes */

static char folder[] = "/var/tmp/reshard-test-XXXXXX";
static char path[64];
static char *memory;
static bool *cached; /* by page */
static size_t page_bytes, page_count;
static int descriptor;

static size_t count_cached(size_t from, size_t bytes)
{
    size_t count = 0;
    unsigned char *found = malloc(page_count);
    void *mapped = mmap(NULL, FILE_BYTES, PROT_READ, MAP_SHARED, descriptor, 0);
    assert_true(found != NULL && mapped != MAP_FAILED);
    assert_int_equal(mincore(mapped, FILE_BYTES, (void *)found), 0);
    assert_int_equal(munmap(mapped, FILE_BYTES), 0);
    for (size_t i = 0; i < page_count; i++)
        cached[i] = (found[i] & 1) != 0;
    free(found);
    for (size_t i = from / page_bytes; i < page_count && i * page_bytes < from + bytes; i++)
        count += cached[i];
    return count;
}

static void make_cold(void)
{
    assert_int_equal(fsync(descriptor), 0);
    assert_int_equal(posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED), 0);
}

/* Without reading ahead, so that exactly these pages come. */
static void make_warm(size_t from, size_t bytes)
{
    assert_int_equal(posix_fadvise(descriptor, 0, 0, POSIX_FADV_RANDOM), 0);
    assert_int_equal(pread(descriptor, memory, bytes, (off_t)from), bytes);
}

static int set_up(void **state)
{
    (void)state;
    page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    page_count = (FILE_BYTES + page_bytes - 1) / page_bytes;
    memory = malloc(FILE_BYTES);
    cached = calloc(page_count, sizeof *cached);
    if (memory == NULL || cached == NULL || mkdtemp(folder) == NULL)
        return -1;
    for (size_t i = 0; i < FILE_BYTES; i++)
        memory[i] = (char)(i % PERIOD);
    (void)snprintf(path, sizeof path, "%s/large", folder);
    descriptor = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
    return descriptor >= 0 && write(descriptor, memory, FILE_BYTES) == FILE_BYTES ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    free(memory);
    free(cached);
    (void)close(descriptor);
    return rs_folder_remove(NULL, folder) == RESHARD_OK ? 0 : -1;
}

/* Reads the file in parts of an odd size, leaving out `gap` bytes at the end of each mebibyte. */
static void read_all(rs_file *file, size_t gap)
{
    for (size_t at = 0, part; at < FILE_BYTES; at += part) {
        part = at % MEBIBYTE < 700001 ? 700001 - at % MEBIBYTE : MEBIBYTE - at % MEBIBYTE;
        part = part < FILE_BYTES - at ? part : FILE_BYTES - at;
        size_t left_out = (at + part) % MEBIBYTE == 0 ? gap : 0;
        memset(memory, 0, part);
        assert_int_equal(rs_file_read(file, memory, part - left_out, at), RESHARD_OK);
        assert_int_equal(memory[0], (char)(at % PERIOD));
        assert_memory_equal(memory + PERIOD, memory, part - left_out - PERIOD);
    }
}

static void test_behind__leaves_what_was_cached_and_nothing_else(void **state)
{
    (void)state;
    rs_file *file = NULL;
    const size_t warm[][2] = {{0, 5 * page_bytes}, {16 * MEBIBYTE, 9 * MEBIBYTE + 1}};
    make_cold();
    assert_int_equal(count_cached(0, FILE_BYTES), 0);
    for (int i = 0; i < 2; i++)
        make_warm(warm[i][0], warm[i][1]);
    assert_int_equal(rs_file_open(NULL, path, &file), RESHARD_OK);
    assert_int_equal(rs_file_begin_pass(file), RESHARD_OK);
    read_all(file, 0);
    assert_int_equal(count_cached(0, warm[0][1]), 5);
    assert_int_equal(count_cached(16 * MEBIBYTE, warm[1][1]), warm[1][1] / page_bytes + 1);
    assert_int_equal(count_cached(8 * MEBIBYTE, 8 * MEBIBYTE), 0);
    assert_int_equal(count_cached(32 * MEBIBYTE, FILE_BYTES - 32 * MEBIBYTE), 0);
    rs_file_close(file);
}

static void test_behind__gaps_keep_no_groups(void **state)
{
    (void)state;
    rs_file *file = NULL;
    make_cold();
    assert_int_equal(rs_file_open(NULL, path, &file), RESHARD_OK);
    assert_int_equal(rs_file_begin_pass(file), RESHARD_OK);
    read_all(file, 5000);
    assert_int_equal(count_cached(0, 24 * MEBIBYTE), 0);
    rs_file_close(file);
    assert_int_equal(count_cached(0, FILE_BYTES), 0);
}

static void test_behind__a_second_pass_spares_what_came_in_between(void **state)
{
    (void)state;
    rs_file *file = NULL;
    make_cold();
    assert_int_equal(rs_file_open(NULL, path, &file), RESHARD_OK);
    assert_int_equal(rs_file_begin_pass(file), RESHARD_OK);
    read_all(file, 0);
    assert_int_equal(count_cached(0, FILE_BYTES), 0);
    make_warm(33 * MEBIBYTE, MEBIBYTE);
    assert_int_equal(rs_file_begin_pass(file), RESHARD_OK);
    read_all(file, 0);
    rs_file_close(file);
    assert_int_equal(count_cached(33 * MEBIBYTE, MEBIBYTE), MEBIBYTE / page_bytes);
    assert_int_equal(count_cached(0, 32 * MEBIBYTE), 0);
}

static void test_behind__without_a_pass_everything_stays(void **state)
{
    (void)state;
    rs_file *file = NULL;
    make_cold();
    assert_int_equal(rs_file_open(NULL, path, &file), RESHARD_OK);
    read_all(file, 0);
    rs_file_close(file);
    assert_int_equal(count_cached(0, FILE_BYTES), page_count);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_behind__leaves_what_was_cached_and_nothing_else),
        cmocka_unit_test(test_behind__gaps_keep_no_groups),
        cmocka_unit_test(test_behind__a_second_pass_spares_what_came_in_between),
        cmocka_unit_test(test_behind__without_a_pass_everything_stays),
    };
    rs_behind *behind = NULL;
    if (set_up(NULL) != 0)
        return 1;
    make_cold();
    bool is_told =
        rs_behind_create(NULL, descriptor, FILE_BYTES, &behind) == RESHARD_OK && behind != NULL;
    rs_behind_destroy(behind);
    bool is_dropped = count_cached(0, FILE_BYTES) == 0;
    if (!is_told || !is_dropped)
        printf("skipped: %s\n", is_told ? "the file system of /var/tmp drops nothing"
                                        : "the kernel does not say what is in the page cache");
    int failed = is_told && is_dropped ? cmocka_run_group_tests(tests, NULL, NULL) : 77;
    return tear_down(NULL) == 0 ? failed : 1;
}
