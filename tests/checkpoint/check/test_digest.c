/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_digest.c - digests of a checkpoint from C: the same by any number of threads and ranks, with
 * every allocation failing once, cancelled, and watched. test_digest.py shows what they are.
 */
#include "tests/support/check.h"
#include "tests/support/context.h"
#include "tests/support/info.h"

#include <reshard/checkpoint.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TENSOR_BYTES 3000000

/* A file of three tensors; its path. */
static int set_up(void **state)
{
    static char path[] = "/tmp/reshard-test-digest-XXXXXX";
    char header[512];
    int descriptor = mkstemp(path);
    FILE *file = descriptor >= 0 ? fdopen(descriptor, "wb") : NULL;
    if (file == NULL)
        return -1;
    int length =
        snprintf(header, sizeof header,
                 "{\"a\":{\"dtype\":\"U8\",\"shape\":[300,10000],\"data_offsets\":[0,%d]},"
                 "\"b\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[%d,%d]},"
                 "\"c\":{\"dtype\":\"F32\",\"shape\":[0,4],\"data_offsets\":[%d,%d]}}",
                 TENSOR_BYTES, TENSOR_BYTES, TENSOR_BYTES + 4, TENSOR_BYTES + 4, TENSOR_BYTES + 4);
    for (int i = 0; i < 8; i++)
        fputc(i < 2 ? length >> (8 * i) & 0xff : 0, file);
    fputs(header, file);
    for (int i = 0; i < TENSOR_BYTES + 4; i++)
        fputc((int)((unsigned)i * 2654435761u >> 24), file);
    *state = path;
    return fclose(file);
}

static int tear_down(void **state)
{
    return unlink(*state);
}

typedef struct attempt {
    const char *path;
    int32_t threads;
    char text[RESHARD_DIGEST_TEXT]; /* of the checkpoint */
} attempt;

static reshard_status digest_file(reshard_context *context, void *user)
{
    attempt *given = user;
    reshard_checkpoint *checkpoint = NULL;
    reshard_digests *digests = NULL;
    reshard_digest_options options = {
        .size = sizeof options, .threads = given->threads, .check_copies = 1};
    reshard_status status = reshard_checkpoint_open(context, given->path, NULL, &checkpoint);
    if (status == RESHARD_OK)
        status = reshard_checkpoint_digest(checkpoint, &options, &digests);
    if (status == RESHARD_OK)
        memcpy(given->text, digests->checkpoint, sizeof given->text);
    reshard_digests_destroy(digests);
    reshard_checkpoint_destroy(checkpoint);
    return status;
}

static void test_digest__threads(void **state)
{
    attempt one = {.path = *state, .threads = 0};
    assert_int_equal(digest_file(NULL, &one), RESHARD_OK);
    assert_int_equal(strlen(one.text), 32);
    for (int32_t threads = 1; threads <= 9; threads += 2) {
        attempt many = {.path = *state, .threads = threads};
        assert_int_equal(digest_file(NULL, &many), RESHARD_OK);
        assert_string_equal(many.text, one.text);
    }
    attempt too_many = {.path = *state, .threads = 100000};
    assert_int_equal(digest_file(NULL, &too_many), RESHARD_ERR_RANGE);
}

static void test_digest__memory(void **state)
{
    words said = {0};
    attempt given = {.path = *state, .threads = 2};
    if (!context_fail_each(digest_file, &given, &said))
        fail_msg("%s", said.text);
}

typedef struct watcher {
    uint64_t done, total;
    int asked, patience; /* cancelled when asked more often than this */
} watcher;

static void watch(void *user, const char *what, uint64_t done, uint64_t total)
{
    watcher *seen = user;
    (void)what;
    if (done >= seen->done)
        seen->done = done;
    seen->total = total;
}

static int ask(void *user)
{
    watcher *seen = user;
    return ++seen->asked > seen->patience;
}

static reshard_status digest_watched(watcher *seen, attempt *given)
{
    reshard_context *context = NULL;
    reshard_context_options options = {
        .size = sizeof options, .progress = watch, .cancelled = ask, .user = seen};
    assert_int_equal(reshard_context_create(&options, &context), RESHARD_OK);
    reshard_status status = digest_file(context, given);
    assert_int_equal(info_memory(context).bytes, 0);
    reshard_context_destroy(context);
    return status;
}

static void test_digest__watched(void **state)
{
    attempt given = {.path = *state, .threads = 1};
    watcher calm = {.patience = 1000000};
    assert_int_equal(digest_watched(&calm, &given), RESHARD_OK);
    assert_int_equal(calm.total, TENSOR_BYTES + 4);
    assert_int_equal(calm.done, TENSOR_BYTES + 4);
    watcher hasty = {.patience = 1};
    assert_int_equal(digest_watched(&hasty, &given), RESHARD_ERR_CANCELLED);
    assert_true(hasty.done < TENSOR_BYTES);
}

/* ---- ranks ----------------------------------------------------------------------------------- */

#define RANKS_MAX 5

typedef struct shared_attempt {
    const char *path;
    int32_t odd_rank; /* does what follows; the others are well. -1: none */
    int32_t odd_threads;
    int odd_check, odd_cancels;
    reshard_status status[RANKS_MAX];
    char text[RANKS_MAX][RESHARD_DIGEST_TEXT];
    char error[RANKS_MAX][256];
} shared_attempt;

static reshard_status digest_rank(void *user, reshard_group *group)
{
    shared_attempt *given = user;
    int32_t rank = reshard_group_rank(group);
    bool odd = rank == given->odd_rank;
    reshard_checkpoint *checkpoint = NULL;
    reshard_digests *digests = NULL;
    reshard_context *context = NULL;
    watcher seen = {.patience = 1000000};
    reshard_context_options watching = {.size = sizeof watching, .cancelled = ask, .user = &seen};
    reshard_digest_options options = {.size = sizeof options,
                                      .threads = odd ? given->odd_threads : rank,
                                      .check_copies = odd && given->odd_check,
                                      .group = group};
    reshard_status status = reshard_context_create(&watching, &context);
    if (status == RESHARD_OK)
        status = reshard_checkpoint_open(context, given->path, NULL, &checkpoint);
    if (odd && given->odd_cancels)
        seen.patience = 0;
    if (status == RESHARD_OK) {
        given->status[rank] = reshard_checkpoint_digest(checkpoint, &options, &digests);
        (void)snprintf(given->error[rank], sizeof given->error[rank], "%s", reshard_error_text());
    }
    if (status == RESHARD_OK && given->status[rank] == RESHARD_OK)
        memcpy(given->text[rank], digests->checkpoint, RESHARD_DIGEST_TEXT);
    reshard_digests_destroy(digests);
    reshard_checkpoint_destroy(checkpoint);
    reshard_context_destroy(context);
    return status;
}

static void test_digest__ranks(void **state)
{
    attempt alone = {.path = *state};
    assert_int_equal(digest_file(NULL, &alone), RESHARD_OK);
    for (int32_t count = 1; count <= RANKS_MAX; count++) {
        shared_attempt given = {.path = *state, .odd_rank = -1};
        assert_int_equal(reshard_group_run(NULL, count, digest_rank, &given), RESHARD_OK);
        for (int32_t i = 0; i < count; i++) {
            assert_int_equal(given.status[i], RESHARD_OK);
            assert_string_equal(given.text[i], alone.text);
        }
    }
}

/* What is wrong with one rank is wrong with all. */
static void test_digest__ranks_that_fail(void **state)
{
    static const struct {
        shared_attempt given;
        reshard_status status;
    } cases[] = {
        {{.odd_rank = 1, .odd_threads = 100000}, RESHARD_ERR_RANGE},
        {{.odd_rank = 2, .odd_check = 1}, RESHARD_ERR_MISMATCH},
        {{.odd_rank = 2, .odd_cancels = 1}, RESHARD_ERR_CANCELLED},
        {{.odd_rank = 0, .odd_cancels = 1}, RESHARD_ERR_CANCELLED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        shared_attempt given = cases[i].given;
        given.path = *state;
        assert_int_equal(reshard_group_run(NULL, 3, digest_rank, &given), RESHARD_OK);
        for (int32_t k = 0; k < 3; k++) {
            assert_int_equal(given.status[k], cases[i].status);
            assert_non_null(strstr(given.error[k], "rank "));
        }
    }
}

/* A file that shrinks after it was opened. */
static void test_digest__short_file(void **state)
{
    reshard_checkpoint *checkpoint = NULL;
    reshard_digests *digests = NULL;
    reshard_digest_options options = {.size = sizeof options, .threads = 3};
    reshard_digest_options small = {.size = 1};
    assert_int_equal(reshard_checkpoint_open(NULL, *state, NULL, &checkpoint), RESHARD_OK);
    assert_int_equal(reshard_checkpoint_digest(checkpoint, &small, &digests), RESHARD_ERR_INVALID);
    assert_int_equal(truncate(*state, TENSOR_BYTES / 2), 0);
    assert_int_equal(reshard_checkpoint_digest(checkpoint, &options, &digests),
                     RESHARD_ERR_CORRUPT);
    assert_non_null(strstr(reshard_error_text(), "tensor \"a\": "));
    assert_null(digests);
    reshard_checkpoint_destroy(checkpoint);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_digest__threads),         cmocka_unit_test(test_digest__memory),
        cmocka_unit_test(test_digest__watched),         cmocka_unit_test(test_digest__ranks),
        cmocka_unit_test(test_digest__ranks_that_fail), cmocka_unit_test(test_digest__short_file),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
