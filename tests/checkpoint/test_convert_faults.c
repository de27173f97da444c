/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversions whose n-th read, write, kernel copy, sync or allocation fails, for every n: the
 * target is whole or absent, the source is as it was, and going on afterwards gives the right
 * bytes.
 */
#include "base/context.h"
#include "base/file.h"
#include "support/check.h"
#include "support/context.h"

#include <reshard/checkpoint.h>

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char folder[] = "/tmp/reshard-test-XXXXXX";
static char source[64], expected[64], target[64], partial[80];

enum { DATA_BYTES = 3 * 600 * 200 * 4 };

static const char *const outputs[] = {"shard-00001-model-00001-of-00001.safetensors",
                                      "shard-00002-model-00001-of-00001.safetensors"};
static reshard_convert_options options = {.size = sizeof options,
                                          .to = "fsdp=2",
                                          .threads = 2,
                                          .memory_bytes_max = (size_t)2 << 20,
                                          .journal_bytes = 1 << 18};

/* ---- files ----------------------------------------------------------------------------------- */

static void write_source(void)
{
    char header[512], path[128];
    unsigned char length[8];
    int count =
        snprintf(header, sizeof header,
                 "{\"a\":{\"dtype\":\"F32\",\"shape\":[600,200],\"data_offsets\":[0,480000]}"
                 ",\"b\":{\"dtype\":\"F32\",\"shape\":[600,200],"
                 "\"data_offsets\":[480000,960000]},\"c\":{\"dtype\":\"F32\",\"shape\":"
                 "[600,200],\"data_offsets\":[960000,1440000]}}");
    char *data = malloc(DATA_BYTES);
    rs_file *file = NULL;
    assert_non_null(data);
    for (int i = 0; i < DATA_BYTES; i++)
        data[i] = (char)(i * 7 + i / 251);
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)((uint64_t)count >> (8 * i) & 0xff);
    assert_int_equal(rs_folder_create(source), RESHARD_OK);
    (void)snprintf(path, sizeof path, "%s/model.safetensors", source);
    assert_int_equal(rs_file_create(NULL, path, &file), RESHARD_OK);
    assert_int_equal(rs_file_write(file, length, 8, 0), RESHARD_OK);
    assert_int_equal(rs_file_write(file, header, (size_t)count, 8), RESHARD_OK);
    assert_int_equal(rs_file_write(file, data, DATA_BYTES, 8 + (uint64_t)count), RESHARD_OK);
    rs_file_close(file);
    (void)snprintf(path, sizeof path, "%s/config.json", source);
    assert_int_equal(rs_file_create(NULL, path, &file), RESHARD_OK);
    assert_int_equal(rs_file_write(file, "{}", 2, 0), RESHARD_OK);
    rs_file_close(file);
    free(data);
}

static bool exists(const char *path)
{
    rs_path_kind kind = RS_PATH_OTHER;
    return rs_path_kind_of(path, &kind) == RESHARD_OK && kind != RS_PATH_NONE;
}

static bool same_file(const char *a, const char *b, const char *name)
{
    char *texts[2] = {NULL, NULL};
    size_t counts[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        char path[256];
        (void)snprintf(path, sizeof path, "%s/%s", i == 0 ? a : b, name);
        if (rs_file_read_all(NULL, path, 1 << 24, &texts[i], &counts[i]) != RESHARD_OK)
            return false;
    }
    bool same = counts[0] == counts[1] && memcmp(texts[0], texts[1], counts[0]) == 0;
    rs_release(NULL, texts[0], counts[0] + 1);
    rs_release(NULL, texts[1], counts[1] + 1);
    return same;
}

static void check_output(void)
{
    assert_true(same_file(expected, target, outputs[0]));
    assert_true(same_file(expected, target, outputs[1]));
    assert_true(same_file(expected, target, "config.json"));
    assert_false(exists(partial));
}

static void remove_outputs(void)
{
    if (exists(target))
        assert_int_equal(rs_folder_remove(NULL, target), RESHARD_OK);
    if (exists(partial))
        assert_int_equal(rs_folder_remove(NULL, partial), RESHARD_OK);
}

static int set_up(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL)
        return -1;
    (void)snprintf(source, sizeof source, "%s/source", folder);
    (void)snprintf(expected, sizeof expected, "%s/expected", folder);
    (void)snprintf(target, sizeof target, "%s/target", folder);
    (void)snprintf(partial, sizeof partial, "%s.partial", target);
    write_source();
    return reshard_convert(NULL, source, expected, &options, NULL) == RESHARD_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    remove_outputs();
    (void)rs_folder_remove(NULL, source);
    (void)rs_folder_remove(NULL, expected);
    return rs_folder_remove(NULL, folder) == RESHARD_OK ? 0 : -1;
}

/* ---- calls that fail ------------------------------------------------------------------------- */

typedef struct faults {
    atomic_int countdown; /* the call that brings it to 0 fails */
    int error;
    size_t most; /* bytes of one call; 0: no limit */
    int no_copy; /* the kernel copies nothing */
} faults;

static bool fails_now(faults *given)
{
    if (atomic_fetch_sub(&given->countdown, 1) != 1)
        return false;
    errno = given->error;
    return true;
}

static size_t limit(const faults *given, size_t count)
{
    return given->most != 0 && count > given->most ? given->most : count;
}

static int64_t read_call(void *user, int descriptor, void *bytes, size_t count, uint64_t at)
{
    if (fails_now(user))
        return -1;
    return rs_file_calls_system()->read(NULL, descriptor, bytes, limit(user, count), at);
}

static int64_t write_call(void *user, int descriptor, const void *bytes, size_t count, uint64_t at)
{
    if (fails_now(user))
        return -1;
    return rs_file_calls_system()->write(NULL, descriptor, bytes, limit(user, count), at);
}

static int64_t copy_call(void *user, int from, uint64_t from_at, int to, uint64_t to_at,
                         size_t count)
{
    faults *given = user;
    if (given->no_copy) {
        errno = EXDEV;
        return -1;
    }
    if (fails_now(given))
        return -1;
    return rs_file_calls_system()->copy(NULL, from, from_at, to, to_at, limit(given, count));
}

static int sync_call(void *user, int descriptor)
{
    (void)descriptor; /* not slowed down by a disk that nobody looks at */
    return fails_now(user) ? -1 : 0;
}

static reshard_status convert_with(faults *given, int resume)
{
    const rs_file_calls calls = {read_call, write_call, copy_call, sync_call, given};
    reshard_convert_options chosen = options;
    reshard_context *context = NULL;
    chosen.resume = resume;
    assert_int_equal(reshard_context_create(NULL, &context), RESHARD_OK);
    rs_file_calls_set(context, &calls);
    reshard_status status = reshard_convert(context, source, target, &chosen, NULL);
    assert_int_equal(reshard_context_bytes(context), 0);
    reshard_context_destroy(context);
    return status;
}

static void fail_each(int error, int no_copy)
{
    for (int n = 1; n < 1000; n++) {
        faults given = {.countdown = n, .error = error, .no_copy = no_copy};
        reshard_status status = convert_with(&given, 0);
        if (status == RESHARD_OK) {
            check_output();
            remove_outputs();
            assert_true(n > 20);
            return;
        }
        assert_int_equal(status, RESHARD_ERR_IO);
        assert_non_null(strstr(reshard_error_text(), strerror(error)));
        assert_false(exists(target));
        faults none = {.countdown = 0, .no_copy = no_copy};
        assert_int_equal(convert_with(&none, 1), RESHARD_OK);
        check_output();
        remove_outputs();
    }
    fail_msg("the conversion never succeeded");
}

static void test_faults__every_call_fails_once(void **state)
{
    (void)state;
    fail_each(EIO, 0);
    fail_each(ENOSPC, 1);
}

static void test_faults__short_calls(void **state)
{
    (void)state;
    static const size_t most[] = {1000, 4096, 65537};
    for (size_t i = 0; i < sizeof most / sizeof most[0]; i++) {
        faults given = {.most = most[i], .no_copy = i == 1};
        assert_int_equal(convert_with(&given, 0), RESHARD_OK);
        check_output();
        remove_outputs();
    }
}

static void test_faults__a_copy_that_stops_is_gone_on_with(void **state)
{
    (void)state;
    faults given = {.no_copy = 1};
    assert_int_equal(convert_with(&given, 0), RESHARD_OK);
    check_output();
    remove_outputs();
}

static reshard_status attempt(reshard_context *context, void *user)
{
    static faults none;
    static const rs_file_calls calls = {read_call, write_call, copy_call, sync_call, &none};
    reshard_convert_options chosen = options;
    (void)user;
    atomic_store(&none.countdown, 0);
    chosen.threads = 1;
    rs_file_calls_set(context, &calls);
    reshard_status status = reshard_convert(context, source, target, &chosen, NULL);
    if (exists(target) != (status == RESHARD_OK))
        return RESHARD_ERR_CHECK;
    remove_outputs();
    return status;
}

static void test_faults__every_allocation_fails_once(void **state)
{
    (void)state;
    words said;
    memset(&said, 0, sizeof said);
    if (!context_fail_each(attempt, NULL, &said))
        fail_msg("%s", said.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_faults__every_call_fails_once),
        cmocka_unit_test(test_faults__short_calls),
        cmocka_unit_test(test_faults__a_copy_that_stops_is_gone_on_with),
        cmocka_unit_test(test_faults__every_allocation_fails_once),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
