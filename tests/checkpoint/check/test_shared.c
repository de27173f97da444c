/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_shared.c - hashes and comparisons that ranks share: each rank gets what one alone finds,
 * whichever rank has read what, and ranks that do not see the same files are told so.
 */
#include "tests/support/check.h"

#include <reshard/checkpoint.h>
#include <reshard/comparison.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS_MAX = 5, LONG_BYTES = 9000000 };

static char folder[] = "/tmp/reshard-test-shared-XXXXXX";
static char one[64], other[64], changed[64]; /* paths */

/* A file of tensors of bytes, stored one after the other. The longest is neither the first nor the
 * last; "f" and "g" have equal lengths. */
static const struct {
    const char *name;
    int bytes;
} tensors[] = {{"a", 3},   {"b", 50000}, {"c", 0},   {"d", LONG_BYTES},
               {"e", 700}, {"f", 1000},  {"g", 1000}};
enum { TENSORS = sizeof tensors / sizeof *tensors };

static int write_file(const char *path, const int order[TENSORS])
{
    char header[1024] = "{";
    size_t length = 1;
    int at = 0;
    FILE *file = fopen(path, "wb");
    if (file == NULL)
        return -1;
    for (int i = 0; i < TENSORS; i++) {
        int bytes = tensors[order[i]].bytes;
        length +=
            (size_t)snprintf(header + length, sizeof header - length,
                             "%s\"%s\":{\"dtype\":\"U8\",\"shape\":[%d],"
                             "\"data_offsets\":[%d,%d]}",
                             i == 0 ? "" : ",", tensors[order[i]].name, bytes, at, at + bytes);
        at += bytes;
    }
    length += (size_t)snprintf(header + length, sizeof header - length, "}");
    for (int i = 0; i < 8; i++)
        fputc(i < 2 ? (int)(length >> (8 * i) & 0xff) : 0, file);
    fputs(header, file);
    for (int i = 0; i < TENSORS; i++) {
        for (int k = 0; k < tensors[order[i]].bytes; k++)
            fputc((int)((unsigned)(k + 7 * order[i] + 1) * 2654435761u >> 24), file);
    }
    return fclose(file);
}

static int set_up(void **state)
{
    static const int sorted[TENSORS] = {0, 1, 2, 3, 4, 5, 6};
    static const int exchanged[TENSORS] = {0, 1, 2, 3, 4, 6, 5}; /* f and g */
    (void)state;
    if (mkdtemp(folder) == NULL)
        return -1;
    (void)snprintf(one, sizeof one, "%s/one.safetensors", folder);
    (void)snprintf(other, sizeof other, "%s/other.safetensors", folder);
    (void)snprintf(changed, sizeof changed, "%s/changed.safetensors", folder);
    return write_file(one, sorted) != 0 || write_file(other, exchanged) != 0 ||
           write_file(changed, sorted) != 0;
}

static int tear_down(void **state)
{
    (void)state;
    unlink(one);
    unlink(other);
    unlink(changed);
    return rmdir(folder);
}

/* ---- hashes ---------------------------------------------------------------------------------- */

typedef struct hashing {
    int32_t odd_rank; /* reads the other file; -1: none */
    reshard_status statuses[RANKS_MAX];
    char errors[RANKS_MAX][256];
    char texts[RANKS_MAX][TENSORS + 1][RESHARD_HASH_TEXT]; /* the last is that of the lines */
} hashing;

static reshard_status hash_rank(void *user, reshard_group *group)
{
    hashing *all = user;
    int32_t rank = group != NULL ? reshard_group_rank(group) : 0;
    reshard_checkpoint *checkpoint = NULL;
    reshard_hashes *hashes = NULL;
    const reshard_digest_options options = {.size = sizeof options, .threads = 1, .group = group};
    reshard_status status =
        reshard_checkpoint_open(NULL, rank == all->odd_rank ? other : one, NULL, &checkpoint);
    if (status != RESHARD_OK)
        return status;
    all->statuses[rank] = reshard_checkpoint_hash(checkpoint, &options, &hashes);
    (void)snprintf(all->errors[rank], sizeof all->errors[rank], "%s", reshard_error_text());
    if (all->statuses[rank] == RESHARD_OK) {
        for (int i = 0; i < TENSORS; i++)
            memcpy(all->texts[rank][i], hashes->tensors[i], RESHARD_HASH_TEXT);
        memcpy(all->texts[rank][TENSORS], hashes->checkpoint, RESHARD_HASH_TEXT);
    }
    reshard_hashes_destroy(hashes);
    reshard_checkpoint_destroy(checkpoint);
    return RESHARD_OK;
}

static void test_hashes__are_those_of_one_rank(void **state)
{
    (void)state;
    hashing alone = {.odd_rank = -1};
    assert_int_equal(hash_rank(&alone, NULL), RESHARD_OK);
    assert_int_equal(alone.statuses[0], RESHARD_OK);
    for (int32_t count = 2; count <= RANKS_MAX; count++) {
        hashing all = {.odd_rank = -1};
        assert_int_equal(reshard_group_run(NULL, count, hash_rank, &all), RESHARD_OK);
        for (int32_t rank = 0; rank < count; rank++) {
            assert_int_equal(all.statuses[rank], RESHARD_OK);
            for (int i = 0; i <= TENSORS; i++)
                assert_string_equal(all.texts[rank][i], alone.texts[0][i]);
        }
    }
}

static void test_hashes__of_files_that_differ_in_places(void **state)
{
    (void)state;
    hashing all = {.odd_rank = 1};
    assert_int_equal(reshard_group_run(NULL, 3, hash_rank, &all), RESHARD_OK);
    for (int32_t rank = 0; rank < 3; rank++) {
        assert_int_equal(all.statuses[rank], RESHARD_ERR_MISMATCH);
        assert_non_null(strstr(all.errors[rank], "rank 1"));
    }
}

/* ---- comparisons ----------------------------------------------------------------------------- */

typedef struct comparing {
    reshard_status statuses[RANKS_MAX];
    int64_t counts[RANKS_MAX];
    reshard_difference firsts[RANKS_MAX];
} comparing;

static reshard_status compare_rank(void *user, reshard_group *group)
{
    comparing *all = user;
    int32_t rank = reshard_group_rank(group);
    reshard_checkpoint *a = NULL, *b = NULL;
    reshard_comparison *comparison = NULL;
    reshard_comparison_stats stats = {.size = sizeof stats};
    const reshard_comparison_options options = {
        .size = sizeof options, .threads = 1, .group = group, .measure = 1};
    reshard_status status = reshard_checkpoint_open(NULL, one, NULL, &a);
    if (status == RESHARD_OK)
        status = reshard_checkpoint_open(NULL, changed, NULL, &b);
    if (status == RESHARD_OK)
        all->statuses[rank] = reshard_checkpoint_compare(a, b, &options, &comparison);
    if (comparison != NULL && reshard_comparison_get_stats(comparison, &stats) == RESHARD_OK) {
        all->counts[rank] = stats.difference_count;
        all->firsts[rank].size = sizeof all->firsts[rank];
        all->statuses[rank] = reshard_comparison_get_difference(comparison, 0, &all->firsts[rank]);
    }
    reshard_comparison_destroy(comparison);
    reshard_checkpoint_destroy(b);
    reshard_checkpoint_destroy(a);
    return status;
}

/* Changes the byte of "d" with this number. */
static void change(int64_t element)
{
    FILE *file = fopen(changed, "r+b");
    assert_non_null(file);
    int low = fgetc(file), high = fgetc(file);
    int64_t at = 8 + low + 256 * high + 3 + 50000 + element;
    assert_int_equal(fseek(file, (long)at, SEEK_SET), 0);
    int before = fgetc(file);
    assert_int_equal(fseek(file, (long)at, SEEK_SET), 0);
    fputc(before ^ 1, file);
    assert_int_equal(fclose(file), 0);
}

/* Each byte that was changed is off by 1. */
static void check_measure(const reshard_difference *found, size_t changes)
{
    assert_int_equal(found->measured, 1);
    assert_int_equal(found->number_count, LONG_BYTES);
    assert_int_equal(found->numbers_differing, changes);
    assert_true(found->largest == 1 && found->mean == (double)changes / LONG_BYTES);
    assert_true(found->relative_l2 > 0 && found->cosine < 1);
}

/* Several ranks find a difference in one tensor: the first of all counts, and all are measured. */
static void test_comparison__first_difference(void **state)
{
    static const int64_t elements[] = {LONG_BYTES - 1, LONG_BYTES / 2, 4000000, 12345};
    (void)state;
    for (size_t i = 0; i < sizeof elements / sizeof *elements; i++) {
        change(elements[i]);
        for (int32_t count = 1; count <= RANKS_MAX; count++) {
            comparing all = {.counts = {0}};
            assert_int_equal(reshard_group_run(NULL, count, compare_rank, &all), RESHARD_OK);
            for (int32_t rank = 0; rank < count; rank++) {
                assert_int_equal(all.statuses[rank], RESHARD_OK);
                assert_int_equal(all.counts[rank], 1);
                assert_int_equal(all.firsts[rank].ndim, 1);
                assert_int_equal(all.firsts[rank].element[0], elements[i]);
                check_measure(&all.firsts[rank], i + 1);
                assert_true(all.firsts[rank].relative_l2 == all.firsts[0].relative_l2);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hashes__are_those_of_one_rank),
        cmocka_unit_test(test_hashes__of_files_that_differ_in_places),
        cmocka_unit_test(test_comparison__first_difference),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
