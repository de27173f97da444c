/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors and files beyond 2^31 and 2^32 bytes, all of them converted. The files are sparse, and
 * calls of the system that would read or write zeros do not reach the disk: what is not zero has to
 * arrive at the right places.
 */
#define _GNU_SOURCE /* SEEK_DATA */

#include "system/file.h"
#include "tests/support/check.h"

#include <reshard/conversion.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define ROWS 70001
#define COLUMNS 16384
#define BYTES ((uint64_t)ROWS * COLUMNS * 4)

/* Bytes of the tensor where something lies: around the limits of 31 and 32 bits, and both ends. */
static const uint64_t marks[] = {0,
                                 4 * COLUMNS - 4,
                                 ((uint64_t)1 << 31) - 4,
                                 (uint64_t)1 << 31,
                                 ((uint64_t)1 << 31) + 2 * COLUMNS,
                                 ((uint64_t)1 << 32) - 4,
                                 (uint64_t)1 << 32,
                                 ((uint64_t)1 << 32) + 2 * COLUMNS,
                                 BYTES - 2 * COLUMNS,
                                 BYTES - 4};
enum { MARKS = sizeof marks / sizeof *marks };

static char folder[64];

static const char *at(const char *name)
{
    static char paths[4][128];
    static int next;
    char *path = paths[next++ % 4];
    (void)snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

/* ---- calls that leave out zeros -------------------------------------------------------------- */

/* Whether the range is a hole, as far as the file system tells. */
static bool is_hole(int descriptor, uint64_t from, size_t count)
{
    off_t data = lseek(descriptor, (off_t)from, SEEK_DATA);
    struct stat found;
    return fstat(descriptor, &found) == 0 && from + count <= (uint64_t)found.st_size &&
           (data < 0 || (uint64_t)data >= from + count);
}

static int64_t read_sparse(void *user, int descriptor, void *bytes, size_t count, uint64_t from)
{
    if (!is_hole(descriptor, from, count))
        return rs_file_calls_system()->read(user, descriptor, bytes, count, from);
    memset(bytes, 0, count);
    return (int64_t)count;
}

static int64_t write_sparse(void *user, int descriptor, const void *bytes, size_t count,
                            uint64_t to)
{
    const char *first = bytes;
    if (count > 1 && first[0] == 0 && memcmp(first, first + 1, count - 1) == 0)
        return (int64_t)count;
    return rs_file_calls_system()->write(user, descriptor, bytes, count, to);
}

static int64_t copy_sparse(void *user, int source, uint64_t from, int target, uint64_t to,
                           size_t count)
{
    char memory[1 << 16];
    (void)user;
    for (size_t done = 0; done < count; done += sizeof memory) {
        size_t part = count - done < sizeof memory ? count - done : sizeof memory;
        if (is_hole(source, from + done, part))
            continue;
        if (pread(source, memory, part, (off_t)(from + done)) != (ssize_t)part ||
            pwrite(target, memory, part, (off_t)(to + done)) != (ssize_t)part)
            return -1;
    }
    return (int64_t)count;
}

static int sync_nothing(void *user, int descriptor)
{
    (void)user, (void)descriptor;
    return 0;
}

/* ---- files ----------------------------------------------------------------------------------- */

static void mark_of(int index, char out[4])
{
    (void)memcpy(out, (const char[]){'m', (char)('a' + index), '!', (char)index}, 4);
}

static int set_up(void **state)
{
    char head[256] = {0}, mark[4];
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/reshard-test-XXXXXX");
    if (mkdtemp(folder) == NULL || mkdir(at("source"), 0700) != 0)
        return -1;
    int count = snprintf(head + 8, sizeof head - 8,
                         "{\"w\":{\"dtype\":\"F32\",\"shape\":[%d,%d],\"data_offsets\":[0,%llu]}}",
                         ROWS, COLUMNS, (unsigned long long)BYTES);
    head[0] = (char)count;
    int file = open(at("source/model.safetensors"), O_RDWR | O_CREAT, 0600);
    bool done = file >= 0 && pwrite(file, head, (size_t)count + 8, 0) == count + 8 &&
                ftruncate(file, (off_t)(BYTES + (uint64_t)count + 8)) == 0;
    for (int i = 0; done && i < MARKS; i++) {
        mark_of(i, mark);
        done = pwrite(file, mark, 4, (off_t)(marks[i] + (uint64_t)count + 8)) == 4;
    }
    FILE *rules = fopen(at("rules"), "w");
    done = done && rules != NULL && fputs("w S(1)@x\n", rules) >= 0;
    if (rules != NULL)
        done = fclose(rules) == 0 && done;
    if (file >= 0)
        (void)close(file);
    return done ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++)
        (void)rs_folder_remove(NULL,
                               at((const char *const[]){"source", "rows", "columns", "back"}[i]));
    return rs_folder_remove(NULL, folder) == RESHARD_OK ? 0 : -1;
}

/* False when the disk has no room for the files, which are reserved if not written. */
static bool has_room(void)
{
    struct statvfs room;
    return statvfs(folder, &room) == 0 &&
           (uint64_t)room.f_bavail * (uint64_t)room.f_frsize > 4 * BYTES;
}

static reshard_conversion_report convert(const char *source, const char *target, const char *to)
{
    const rs_file_calls calls = {read_sparse, write_sparse, copy_sparse, sync_nothing,
                                 NULL,        NULL,         NULL};
    reshard_conversion_options options = {
        .size = sizeof options, .to = to, .rules = to != NULL ? at("rules") : NULL, .threads = 2};
    reshard_context *context = NULL;
    reshard_conversion_report report = {.size = sizeof report};
    assert_int_equal(reshard_context_create(NULL, &context), RESHARD_OK);
    rs_file_calls_set(context, &calls);
    if (reshard_convert(context, at(source), at(target), NULL, &options, NULL, &report) !=
        RESHARD_OK)
        fail_msg("%s", reshard_error_text());
    reshard_context_destroy(context);
    assert_int_equal(report.bytes_written, BYTES);
    return report;
}

/* Does the file of columns first .. first + count - 1 hold their marks, and the right size? */
static void check_file(const char *name, uint64_t first, uint64_t count)
{
    unsigned char head[8];
    uint64_t begin = 8;
    struct stat found;
    int file = open(at(name), O_RDONLY), seen = 0;
    assert_true(file >= 0);
    assert_int_equal(pread(file, head, 8, 0), 8);
    for (int i = 0; i < 8; i++)
        begin += (uint64_t)head[i] << (8 * i);
    assert_int_equal(fstat(file, &found), 0);
    assert_int_equal(found.st_size, begin + (uint64_t)ROWS * count * 4);
    for (int i = 0; i < MARKS; i++) {
        uint64_t row = marks[i] / (4 * COLUMNS), column = marks[i] % (4 * COLUMNS) / 4;
        char mark[4], there[4];
        if (column < first || column >= first + count)
            continue;
        mark_of(i, mark);
        uint64_t place = begin + (row * count + column - first) * 4;
        assert_int_equal(pread(file, there, 4, (off_t)place), 4);
        assert_memory_equal(there, mark, 4);
        seen++;
    }
    assert_true(seen >= 3);
    (void)close(file);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void test_large__copied_by_the_kernel(void **state)
{
    (void)state;
    if (!has_room())
        skip();
    reshard_conversion_report report = convert("source", "rows", NULL);
    assert_int_equal(report.bytes_shared, BYTES);
    check_file("rows/model.safetensors", 0, COLUMNS);
}

/* To columns and back, through memory. */
static void test_large__through_memory(void **state)
{
    (void)state;
    if (!has_room())
        skip();
    reshard_conversion_report apart = convert("source", "columns", "x=2");
    check_file("columns/shard-00001-model-00001-of-00001.safetensors", 0, COLUMNS / 2);
    check_file("columns/shard-00002-model-00001-of-00001.safetensors", COLUMNS / 2, COLUMNS / 2);
    reshard_conversion_report whole = convert("columns", "back", NULL);
    check_file("back/model.safetensors", 0, COLUMNS);
    assert_int_equal(apart.bytes_digested, BYTES);
    assert_int_equal(strlen(apart.digest), RESHARD_DIGEST_TEXT - 1);
    assert_string_equal(apart.digest, whole.source_digest);
    assert_string_equal(apart.digest, whole.digest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_large__copied_by_the_kernel),
        cmocka_unit_test(test_large__through_memory),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
