/* SPDX-License-Identifier: Apache-2.0 */
/* Zip files from C: what a draft refuses, CRCs from blocks, and lack of memory or luck with files.
 * What is read and written otherwise, test_zip.py and test_zip_write.py compare with Python. */
#include "base/context.h"
#include "checkpoint/archive/zip.h"
#include "checkpoint/archive/zip_write.h"
#include "tests/support/check.h"
#include "tests/support/context.h"
#include "tests/support/info.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#define PATH_BYTES 64

static void make_path(char path[PATH_BYTES])
{
    (void)snprintf(path, PATH_BYTES, "test_zip.%ld.zip", (long)getpid());
    (void)unlink(path);
}

/* A zip file of two stored members: "a", 5 bytes, and "b", empty. */
static reshard_status write_zip(reshard_context *context, const char *path)
{
    rs_zip_entry entries[] = {{rs_slice_of("a"), 5}, {rs_slice_of("b"), 0}};
    rs_zip_sum sums[2] = {{0}};
    rs_zip_draft *draft = NULL;
    rs_file *file = NULL;
    reshard_status status = rs_zip_draft_create(context, entries, 2, RS_ZIP_ALIGNMENT, &draft);
    if (status == RESHARD_OK)
        status = rs_file_create(context, path, &file);
    if (status == RESHARD_OK)
        status = rs_file_write(file, "hello", 5, rs_zip_draft_data_at(draft, 0));
    rs_zip_sum_add(&sums[0], 5, 0, "hello", 5);
    rs_zip_sum_add(&sums[1], 0, 0, NULL, 0);
    if (status == RESHARD_OK)
        status = rs_zip_draft_finish(draft, file, 0, sums);
    rs_file_close(file);
    rs_zip_draft_destroy(draft);
    return status;
}

static reshard_status read_zip(reshard_context *context, const char *path)
{
    rs_file *file = NULL;
    rs_zip *zip = NULL;
    uint64_t size = 0;
    char *bytes = NULL;
    size_t count = 0;
    reshard_status status = rs_file_open(context, path, &file);
    if (status == RESHARD_OK)
        status = rs_file_size(file, &size);
    if (status == RESHARD_OK)
        status = rs_zip_open(context, file, 0, size, &zip);
    for (size_t i = 0; i < 2 && status == RESHARD_OK; i++) {
        const rs_zip_member *member = rs_zip_find(zip, rs_slice_of(i == 0 ? "a" : "b"));
        assert_non_null(member);
        status = rs_zip_verify(zip, member);
        if (status == RESHARD_OK)
            status = rs_zip_read_all(zip, member, 5, &bytes, &count);
        if (status == RESHARD_OK) {
            assert_string_equal(bytes, i == 0 ? "hello" : "");
            rs_release(context, bytes);
        }
    }
    rs_zip_destroy(zip);
    rs_file_close(file);
    return status;
}

static reshard_status read_deflated(reshard_context *context, void *user)
{
    rs_file *file = NULL;
    rs_zip *zip = NULL;
    size_t count = 0;
    uint64_t size = 0;
    reshard_status status = rs_file_open(context, user, &file);
    if (status == RESHARD_OK)
        status = rs_file_size(file, &size);
    if (status == RESHARD_OK)
        status = rs_zip_open(context, file, 0, size, &zip);
    if (status == RESHARD_OK)
        status = rs_zip_verify(zip, rs_zip_members(zip, &count));
    rs_zip_destroy(zip);
    rs_file_close(file);
    return status;
}

static reshard_status write_and_read(reshard_context *context, void *user)
{
    (void)unlink(user);
    reshard_status status = write_zip(context, user);
    return status == RESHARD_OK ? read_zip(context, user) : status;
}

static void test_zip__out_of_memory(void **state)
{
    (void)state;
    char path[PATH_BYTES];
    words said = {0};
    make_path(path);
    bool done = context_fail_each(write_and_read, path, &said);
    (void)unlink(path);
    if (!done)
        fail_msg("%s", said.text);
}

static void put(unsigned char **at, uint64_t number, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        *(*at)++ = (unsigned char)(number >> (8 * i));
}

/* Local header or entry of the directory of a deflated member named "d". */
static void put_header(unsigned char **at, bool is_entry, uLong crc, size_t stored, size_t bytes)
{
    put(at, is_entry ? 0x02014b50 : 0x04034b50, 4);
    put(at, 20, is_entry ? 4 : 2);
    put(at, 0, 2);
    put(at, 8, 2);
    put(at, 0, 4);
    put(at, crc, 4);
    put(at, stored, 4);
    put(at, bytes, 4);
    put(at, 1, 2);
    put(at, 0, 2);
    if (is_entry) {
        put(at, 0, 8);
        put(at, 0, 6);
    }
    *(*at)++ = 'd';
}

/* A zip file of one deflated member, larger than the window of deflate. */
static void write_deflated(const char *path)
{
    enum { BYTES = 100000 };
    static unsigned char content[BYTES], file[BYTES + 1000];
    unsigned char *at = file;
    for (size_t i = 0; i < BYTES; i++)
        content[i] = (unsigned char)(i * i >> 7);
    uLong crc = crc32(0, content, BYTES);
    static unsigned char stream[BYTES + 500];
    z_stream packer = {0};
    assert_int_equal(deflateInit2(&packer, 9, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY), Z_OK);
    packer.next_in = content;
    packer.avail_in = BYTES;
    packer.next_out = stream;
    packer.avail_out = sizeof stream;
    assert_int_equal(deflate(&packer, Z_FINISH), Z_STREAM_END);
    size_t stored = sizeof stream - packer.avail_out;
    (void)deflateEnd(&packer);
    put_header(&at, false, crc, stored, BYTES);
    memcpy(at, stream, stored);
    at += stored;
    size_t directory = (size_t)(at - file);
    put_header(&at, true, crc, stored, BYTES);
    size_t bytes = (size_t)(at - file) - directory;
    put(&at, 0x06054b50, 4);
    put(&at, 0, 4);
    put(&at, 1, 2);
    put(&at, 1, 2);
    put(&at, bytes, 4);
    put(&at, directory, 4);
    put(&at, 0, 2);
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(file, 1, (size_t)(at - file), out), (size_t)(at - file));
    assert_int_equal(fclose(out), 0);
}

static void test_zip__out_of_memory_deflated(void **state)
{
    (void)state;
    char path[PATH_BYTES];
    words said = {0};
    make_path(path);
    write_deflated(path);
    bool done = context_fail_each(read_deflated, path, &said);
    (void)unlink(path);
    if (!done)
        fail_msg("%s", said.text);
}

typedef struct faults {
    int left; /* calls until one fails */
} faults;

static int64_t fail_read(void *user, int descriptor, void *bytes, size_t count, uint64_t at)
{
    faults *f = user;
    if (f->left-- == 0) {
        errno = EIO;
        return -1;
    }
    return rs_file_calls_system()->read(NULL, descriptor, bytes, count < 7 ? count : 7, at);
}

static int64_t fail_write(void *user, int descriptor, const void *bytes, size_t count, uint64_t at)
{
    faults *f = user;
    if (f->left-- == 0) {
        errno = ENOSPC;
        return -1;
    }
    return rs_file_calls_system()->write(NULL, descriptor, bytes, count < 50 ? count : 50, at);
}

/* Each read and write fails once; until then they come in parts. */
static void test_zip__file_faults(void **state)
{
    (void)state;
    char path[PATH_BYTES];
    make_path(path);
    int turn = 0;
    for (bool done = false; !done; turn++) {
        faults f = {turn};
        rs_file_calls calls = *rs_file_calls_system();
        reshard_context *context = NULL;
        calls.read = fail_read;
        calls.write = fail_write;
        calls.user = &f;
        assert_int_equal(reshard_context_create(NULL, &context), RESHARD_OK);
        rs_file_calls_set(context, &calls);
        reshard_status status = write_and_read(context, path);
        done = f.left >= 0;
        assert_int_equal(status, done ? RESHARD_OK : RESHARD_ERR_IO);
        assert_int_equal(info_memory(context).bytes, 0);
        reshard_context_destroy(context);
    }
    assert_true(turn > 30);
    (void)unlink(path);
}

static void test_zip__draft_refusals(void **state)
{
    (void)state;
    char *long_name = calloc(1, 65537);
    assert_non_null(long_name);
    memset(long_name, 'n', 65536);
    const struct {
        rs_slice names[2];
        uint64_t bytes;
        reshard_status status;
        const char *said;
    } rows[] = {
        {{{"a", 1}, {"a", 1}},
         1,
         RESHARD_ERR_INVALID,
         "zip member \"a\": two members have this name"},
        {{{"a", 1}, {"", 0}}, 1, RESHARD_ERR_INVALID, "has no name"},
        {{{"a", 1}, {"/b", 2}},
         1,
         RESHARD_ERR_INVALID,
         "zip member \"/b\": its name is an absolute path"},
        {{{"../a", 4}, {"b", 1}}, 1, RESHARD_ERR_INVALID, "leads outside its folder"},
        {{{"a\0b", 3}, {"b", 1}}, 1, RESHARD_ERR_INVALID, "NUL"},
        {{{"\xff", 1}, {"b", 1}}, 1, RESHARD_ERR_INVALID, "not UTF-8"},
        {{{long_name, 65536}, {"b", 1}}, 1, RESHARD_ERR_INVALID, "too long"},
        {{{"a", 1}, {"b", 1}}, UINT64_MAX, RESHARD_ERR_RANGE, "larger than a file can be"},
        {{{"a", 1}, {"b", 1}},
         (uint64_t)INT64_MAX / 2 - 10,
         RESHARD_ERR_RANGE,
         "larger than a file"},
        {{{"a", 1}, {"b", 1}},
         (uint64_t)INT64_MAX / 2 - 64,
         RESHARD_ERR_RANGE,
         "larger than a file"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rs_zip_entry entries[2] = {{rows[i].names[0], rows[i].bytes}, {rows[i].names[1], 1}};
        rs_zip_draft *draft = NULL;
        assert_int_equal(rs_zip_draft_create(NULL, entries, 2, 64, &draft), rows[i].status);
        assert_null(draft);
        if (strstr(reshard_error_text(), rows[i].said) == NULL)
            fail_msg("%s: %s", rows[i].said, reshard_error_text());
    }
    free(long_name);
}

/* Places come from other files, so they can be anything. */
static void test_zip__impossible_places(void **state)
{
    (void)state;
    static const uint64_t rows[][2] = {
        {0, UINT64_MAX}, {UINT64_MAX, 1}, {INT64_MAX, 1}, {1, INT64_MAX}};
    char path[PATH_BYTES];
    rs_file *file = NULL;
    rs_zip *zip = NULL;
    make_path(path);
    assert_int_equal(write_zip(NULL, path), RESHARD_OK);
    assert_int_equal(rs_file_open(NULL, path, &file), RESHARD_OK);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_int_equal(rs_zip_open(NULL, file, rows[i][0], rows[i][1], &zip), RESHARD_ERR_RANGE);
    assert_int_equal(rs_zip_open(NULL, file, 0, INT64_MAX, &zip), RESHARD_ERR_CORRUPT);
    assert_int_equal(rs_zip_open(NULL, file, 5000, 1000, &zip), RESHARD_ERR_CORRUPT);
    rs_file_close(file);
    (void)unlink(path);
}

static void test_zip__unfinished(void **state)
{
    (void)state;
    char path[PATH_BYTES];
    rs_zip_entry entry = {rs_slice_of("a"), 5};
    rs_zip_sum sum = {0};
    rs_zip_draft *draft = NULL;
    rs_file *file = NULL;
    make_path(path);
    assert_int_equal(rs_zip_draft_create(NULL, &entry, 1, 64, &draft), RESHARD_OK);
    assert_int_equal(rs_file_create(NULL, path, &file), RESHARD_OK);
    rs_zip_sum_add(&sum, 5, 0, "hell", 4);
    assert_int_equal(rs_zip_draft_finish(draft, file, 0, &sum), RESHARD_ERR_CHECK);
    assert_non_null(strstr(reshard_error_text(), "member \"a\": 4 of its 5 bytes written"));
    rs_file_close(file);
    rs_zip_draft_destroy(draft);
    rs_zip_draft_destroy(NULL);
    rs_zip_destroy(NULL);
    rs_zip_reader_destroy(NULL);
    (void)unlink(path);
}

/* Alignments from 1 to 4096: places keep apart and are multiples. */
static void test_zip__alignments(void **state)
{
    (void)state;
    for (size_t alignment = 1; alignment <= RS_ZIP_ALIGNMENT_MAX; alignment *= 2) {
        rs_zip_entry entries[40];
        char names[40][24];
        rs_zip_draft *draft = NULL;
        uint64_t end = 0;
        for (size_t i = 0; i < 40; i++) {
            (void)snprintf(names[i], sizeof names[i], "%.*s%zu", (int)(i % 11), "aaaaaaaaaaa", i);
            entries[i] = (rs_zip_entry){rs_slice_of(names[i]), i * 13};
        }
        assert_int_equal(rs_zip_draft_create(NULL, entries, 40, alignment, &draft), RESHARD_OK);
        for (size_t i = 0; i < 40; i++) {
            uint64_t at = rs_zip_draft_data_at(draft, i);
            assert_int_equal(at % alignment, 0);
            assert_true(at >= end + 30 + strlen(names[i]) + 4);
            assert_true(at < end + 30 + strlen(names[i]) + 4 + alignment);
            end = at + entries[i].bytes;
        }
        rs_zip_draft_destroy(draft);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_zip__out_of_memory),
        cmocka_unit_test(test_zip__out_of_memory_deflated),
        cmocka_unit_test(test_zip__file_faults),
        cmocka_unit_test(test_zip__draft_refusals),
        cmocka_unit_test(test_zip__impossible_places),
        cmocka_unit_test(test_zip__unfinished),
        cmocka_unit_test(test_zip__alignments),
    };
    return cmocka_run_group_tests_name("zip", tests, NULL, NULL);
}
