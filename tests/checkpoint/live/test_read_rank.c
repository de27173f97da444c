/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_read_rank.c - what one rank holds of many tensors, read in one call: element by element what
 * the cut says, with casts, padding and more pieces than one batch takes; progress that ends where
 * it should; and everything that can be refused is refused before any memory is written.
 */
#include "tests/support/check.h"
#include "tests/support/context.h"

#include <reshard/checkpoint.h>

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 3, ROWS = 6, COLUMNS = 9, LONG = 66000, LONG_MINE = LONG / RANKS };

static char path[] = "/tmp/reshard-read-rank-XXXXXX";

/* ---- a file ---------------------------------------------------------------------------------- */

/* Element i of tensor k, in the order of the file, which is that of the names. */
static float value_at(int64_t k, int64_t i)
{
    return (float)(k * 100000 + i);
}

static const int64_t volumes[] = {ROWS * COLUMNS, 0, LONG, LONG, LONG, LONG, 1};
enum { GRID, EMPTY, FIRST_LONG, SCALAR = 6, TENSORS = 7 };

static void write_file(void)
{
    static const char *const shapes[] = {"6,9", "0,9", "66000", "66000", "66000", "66000", ""};
    char header[1024] = "{";
    int64_t at = 0;
    for (size_t k = 0; k < TENSORS; k++) {
        size_t used = strlen(header);
        (void)snprintf(header + used, sizeof header - used,
                       "%s\"%c\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[%lld,%lld]}",
                       k == 0 ? "" : ",", (char)('a' + k), shapes[k], (long long)at,
                       (long long)(at + 4 * volumes[k]));
        at += 4 * volumes[k];
    }
    strcat(header, "}");
    uint64_t length = strlen(header);
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(&length, 8, 1, file) != 1 || fwrite(header, length, 1, file) != 1)
        abort();
    for (int64_t k = 0; k < TENSORS; k++) {
        for (int64_t i = 0; i < volumes[k]; i++) {
            float value = value_at(k, i);
            if (fwrite(&value, 4, 1, file) != 1)
                abort();
        }
    }
    if (fclose(file) != 0)
        abort();
}

/* ---- what rank 1 of 3 holds ------------------------------------------------------------------ */

/* Columns 3 to 5 of the grid, whose layout has two rows more; nothing of the empty one; of each
 * long vector every third element, as f64 of the last; the scalar. */
typedef struct held {
    reshard_layout *layouts[TENSORS];
    reshard_rank_tensor tensors[TENSORS];
    void *shards[TENSORS];
    float grid[(ROWS + 2) * COLUMNS / RANKS], scalar;
    float elements[3][LONG_MINE];
    double doubles[LONG_MINE];
} held;

static held mine;

static void cut(int64_t k, const char *spec, int32_t ndim, const int64_t *shape, void *memory)
{
    if (reshard_layout_parse(NULL, spec, ndim, shape, &mine.layouts[k]) != RESHARD_OK)
        fail_msg("%s", reshard_error_text());
    mine.shards[k] = memory;
    mine.tensors[k] =
        (reshard_rank_tensor){.tensor = k, .layout = mine.layouts[k], .shards = &mine.shards[k]};
}

static void make_held(void)
{
    memset(&mine, 0, sizeof mine);
    memset(mine.grid, 0xff, sizeof mine.grid);
    cut(GRID, "3: S(1)", 2, (int64_t[]){ROWS + 2, COLUMNS}, mine.grid);
    cut(EMPTY, "3: S(0)", 2, (int64_t[]){0, COLUMNS}, NULL);
    for (int64_t i = 0; i < 3; i++)
        cut(FIRST_LONG + i, "3: S(0/1)", 1, (int64_t[]){LONG}, mine.elements[i]);
    cut(FIRST_LONG + 3, "3: S(0/1)", 1, (int64_t[]){LONG}, mine.doubles);
    mine.tensors[FIRST_LONG + 3].dtype = RESHARD_F64;
    cut(SCALAR, "3: R", 0, NULL, &mine.scalar);
}

static void release_held(void)
{
    for (int k = 0; k < TENSORS; k++)
        reshard_layout_release(mine.layouts[k]);
}

static void check_held(void)
{
    for (int64_t i = 0; i < (ROWS + 2) * 3; i++) {
        int64_t row = i / 3, column = 3 + i % 3;
        assert_true(mine.grid[i] == (row < ROWS ? value_at(GRID, row * COLUMNS + column) : 0));
    }
    for (int64_t k = 0; k < 4; k++) {
        for (int64_t i = 0; i < LONG_MINE; i++) {
            double found = k < 3 ? (double)mine.elements[k][i] : mine.doubles[i];
            assert_true(found == (double)value_at(FIRST_LONG + k, 3 * i + 1));
        }
    }
    assert_true(mine.scalar == value_at(SCALAR, 0));
}

/* ---- reading --------------------------------------------------------------------------------- */

typedef struct reports {
    uint64_t done, total;
    int64_t count;
    bool falls;
} reports;

static void note_report(void *user, const char *what, uint64_t done, uint64_t total)
{
    reports *seen = user;
    assert_string_equal(what, "reading");
    seen->falls = seen->falls || done < seen->done || done > total;
    seen->done = done;
    seen->total = total;
    seen->count++;
}

static void test_read_rank__many_at_once(void **state)
{
    (void)state;
    for (int32_t threads = 0; threads < 4; threads += 3) {
        reports seen = {0};
        reshard_context *context = NULL;
        reshard_checkpoint *checkpoint = NULL;
        const reshard_context_options own = {
            .size = sizeof own, .user = &seen, .progress = note_report};
        const reshard_read_options options = {.size = sizeof options, .threads = threads};
        make_held();
        if (reshard_context_create(&own, &context) != RESHARD_OK ||
            reshard_checkpoint_open(context, path, NULL, &checkpoint) != RESHARD_OK)
            fail_msg("%s", reshard_error_text());
        seen = (reports){0}; /* of the opening */
        if (reshard_checkpoint_read_rank(checkpoint, 1, TENSORS, mine.tensors,
                                         threads != 0 ? &options : NULL) != RESHARD_OK)
            fail_msg("%d threads: %s", threads, reshard_error_text());
        check_held();
        assert_true(seen.count > 1 && !seen.falls);
        /* Of the grid's padding as well, which is not on disk. */
        assert_int_equal(seen.total, 4 * ((ROWS + 2) * 3 + 4 * LONG_MINE + 1));
        assert_int_equal(seen.done, seen.total);
        assert_int_equal(reshard_checkpoint_read_rank(checkpoint, 1, 0, NULL, NULL), RESHARD_OK);
        reshard_checkpoint_destroy(checkpoint);
        reshard_context_destroy(context);
        release_held();
    }
}

static void test_read_rank__can_be_cancelled(void **state)
{
    (void)state;
    int cancel = 0;
    reshard_context *context = NULL;
    reshard_checkpoint *checkpoint = NULL;
    const reshard_context_options own = {.size = sizeof own, .cancel_flag = &cancel};
    make_held();
    if (reshard_context_create(&own, &context) != RESHARD_OK ||
        reshard_checkpoint_open(context, path, NULL, &checkpoint) != RESHARD_OK)
        fail_msg("%s", reshard_error_text());
    cancel = 1;
    assert_int_equal(reshard_checkpoint_read_rank(checkpoint, 1, TENSORS, mine.tensors, NULL),
                     RESHARD_ERR_CANCELLED);
    reshard_checkpoint_destroy(checkpoint);
    reshard_context_destroy(context);
    release_held();
}

static reshard_status read_some(reshard_context *context, void *user)
{
    (void)user;
    const reshard_rank_tensor some[] = {mine.tensors[GRID], mine.tensors[EMPTY],
                                        mine.tensors[SCALAR]};
    const reshard_read_options options = {.size = sizeof options, .threads = 1};
    reshard_checkpoint *checkpoint = NULL;
    reshard_status status = reshard_checkpoint_open(context, path, NULL, &checkpoint);
    if (status == RESHARD_OK)
        status = reshard_checkpoint_read_rank(checkpoint, 1, 3, some, &options);
    reshard_checkpoint_destroy(checkpoint);
    return status;
}

static void test_read_rank__without_memory(void **state)
{
    (void)state;
    words said = {""};
    make_held();
    if (!context_fail_each(read_some, NULL, &said))
        fail_msg("%s", said.text);
    release_held();
}

/* ---- refusals -------------------------------------------------------------------------------- */

/* The last tensor is wrong; the memory of the first is as it was. */
static void expect(const reshard_checkpoint *checkpoint, const reshard_rank_tensor *wrong,
                   reshard_status status, const char *says)
{
    const reshard_rank_tensor tensors[] = {mine.tensors[FIRST_LONG], *wrong};
    mine.elements[0][0] = -1;
    reshard_status found = reshard_checkpoint_read_rank(checkpoint, 1, 2, tensors, NULL);
    if (found != status || strstr(reshard_error_text(), says) == NULL)
        fail_msg("%s: %s", reshard_status_name(found), reshard_error_text());
    assert_true(mine.elements[0][0] == -1);
}

static void test_read_rank__refusals(void **state)
{
    (void)state;
    reshard_checkpoint *checkpoint = NULL;
    make_held();
    if (reshard_checkpoint_open(NULL, path, NULL, &checkpoint) != RESHARD_OK)
        fail_msg("%s", reshard_error_text());
    reshard_rank_tensor wrong = mine.tensors[GRID];
    wrong.tensor = TENSORS;
    expect(checkpoint, &wrong, RESHARD_ERR_RANGE, "no tensor 7; there are 7");
    wrong.tensor = SCALAR;
    expect(checkpoint, &wrong, RESHARD_ERR_MISMATCH, "\"g\" has the shape");
    const int64_t smaller[][2] = {
        {ROWS - 1, COLUMNS}, {ROWS, COLUMNS - RANKS}, {ROWS + 2, COLUMNS - RANKS}};
    for (int i = 0; i < 3; i++) {
        reshard_layout *layout = NULL;
        assert_int_equal(reshard_layout_parse(NULL, "3: S(1)", 2, smaller[i], &layout), RESHARD_OK);
        wrong = mine.tensors[GRID];
        wrong.layout = layout;
        expect(checkpoint, &wrong, RESHARD_ERR_MISMATCH, "\"a\" has the shape 6x9, the layout ");
        reshard_layout_release(layout);
    }
    wrong = mine.tensors[GRID];
    wrong.dtype = RESHARD_I32;
    expect(checkpoint, &wrong, RESHARD_ERR_UNSUPPORTED, "from f32, as it is stored, to i32");
    wrong = mine.tensors[GRID];
    wrong.shards = NULL;
    expect(checkpoint, &wrong, RESHARD_ERR_INVALID, "\"a\": shard 0 of rank 1 has no memory");
    void *none = NULL;
    wrong.shards = &none;
    expect(checkpoint, &wrong, RESHARD_ERR_INVALID, "\"a\": shard 0 of rank 1 has no memory");
    const reshard_read_options options = {.size = sizeof options, .threads = -2};
    assert_int_equal(reshard_checkpoint_read_rank(checkpoint, 1, 1, mine.tensors, &options),
                     RESHARD_ERR_INVALID);
    assert_non_null(strstr(reshard_error_text(), "-2 threads"));
    const reshard_read_options many = {.size = sizeof many, .threads = 257};
    assert_int_equal(reshard_checkpoint_read_rank(checkpoint, 1, 1, mine.tensors, &many),
                     RESHARD_ERR_RANGE);
    assert_int_equal(reshard_checkpoint_read_rank(checkpoint, 1, -1, mine.tensors, NULL),
                     RESHARD_ERR_INVALID);
    reshard_checkpoint_destroy(checkpoint);
    release_held();
}

/* What was opened for planning may lack its files. */
static void test_read_rank__of_plans_alone(void **state)
{
    (void)state;
    reshard_checkpoint *checkpoint = NULL;
    const reshard_checkpoint_options options = {.size = sizeof options, .plan_only = 1};
    make_held();
    if (reshard_checkpoint_open(NULL, path, &options, &checkpoint) != RESHARD_OK)
        fail_msg("%s", reshard_error_text());
    assert_int_equal(reshard_checkpoint_read_rank(checkpoint, 1, 1, mine.tensors, NULL),
                     RESHARD_ERR_INVALID);
    reshard_checkpoint_destroy(checkpoint);
    release_held();
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Fills the memory behind each block, and counts the blocks behind which something was written. */
enum { GUARD_BYTES = 4 << 20, GUARD = 0xa5 };

static void *allocate_guarded(void *user, size_t bytes)
{
    (void)user;
    char *memory = malloc(bytes + GUARD_BYTES);
    if (memory != NULL)
        memset(memory + bytes, GUARD, GUARD_BYTES);
    return memory;
}

static void release_guarded(void *user, void *memory, size_t bytes)
{
    atomic_int *broken = user;
    const unsigned char *guard = (unsigned char *)memory + bytes;
    atomic_fetch_add(broken, guard[0] != GUARD || memcmp(guard, guard + 1, GUARD_BYTES - 1) != 0);
    free(memory);
}

static void *resize_guarded(void *user, void *memory, size_t bytes_old, size_t bytes_new)
{
    void *resized = allocate_guarded(user, bytes_new);
    if (resized != NULL && memory != NULL)
        memcpy(resized, memory, bytes_old < bytes_new ? bytes_old : bytes_new);
    if (resized != NULL && memory != NULL)
        release_guarded(user, memory, bytes_old);
    return resized;
}

/* Columns of a large tensor that are cast: a buffer has room for the elements of a block and,
 * behind them, for a part of the rows that they are in. */
static void test_read_rank__large_columns(void **state)
{
    enum { TALL = 2100, WIDE = 1023, MINE = WIDE / RANKS };
    char large[] = "/tmp/reshard-read-rank-XXXXXX";
    const char header[] = "{\"w\":{\"dtype\":\"F32\",\"shape\":[2100,1023],"
                          "\"data_offsets\":[0,8593200]}}";
    uint64_t length = sizeof header - 1;
    atomic_int broken = 0;
    reshard_context *context = NULL;
    reshard_checkpoint *checkpoint = NULL;
    reshard_layout *layout = NULL;
    const reshard_allocator allocator = {allocate_guarded, resize_guarded, release_guarded,
                                         &broken};
    const reshard_context_options own = {.size = sizeof own, .allocator = &allocator};
    (void)state;
    int descriptor = mkstemp(large);
    FILE *file = descriptor >= 0 ? fdopen(descriptor, "wb") : NULL;
    assert_non_null(file);
    assert_int_equal(fwrite(&length, 8, 1, file) + fwrite(header, length, 1, file), 2);
    for (int i = 0; i < TALL * WIDE; i++) {
        float value = (float)i;
        assert_int_equal(fwrite(&value, 4, 1, file), 1);
    }
    assert_int_equal(fclose(file), 0);
    assert_int_equal(reshard_context_create(&own, &context), RESHARD_OK);
    assert_int_equal(reshard_checkpoint_open(context, large, NULL, &checkpoint), RESHARD_OK);
    assert_int_equal(reshard_layout_parse(context, "3: S(1)", 2, (int64_t[]){TALL, WIDE}, &layout),
                     RESHARD_OK);
    double *found = calloc(TALL * MINE, sizeof *found);
    assert_non_null(found);
    void *shard = found;
    const reshard_rank_tensor wanted = {.layout = layout, .dtype = RESHARD_F64, .shards = &shard};
    const reshard_read_options options = {.size = sizeof options, .threads = 1};
    assert_int_equal(reshard_checkpoint_read_rank(checkpoint, 1, 1, &wanted, &options), RESHARD_OK);
    for (int i = 0; i < TALL * MINE; i++)
        assert_true(found[i] == i / MINE * WIDE + MINE + i % MINE);
    free(found);
    reshard_layout_release(layout);
    reshard_checkpoint_destroy(checkpoint);
    reshard_context_destroy(context);
    assert_int_equal(broken, 0);
    assert_int_equal(unlink(large), 0);
}

int main(void)
{
    int file = mkstemp(path);
    if (file < 0)
        return 1;
    (void)close(file);
    write_file();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read_rank__many_at_once),
        cmocka_unit_test(test_read_rank__can_be_cancelled),
        cmocka_unit_test(test_read_rank__without_memory),
        cmocka_unit_test(test_read_rank__refusals),
        cmocka_unit_test(test_read_rank__of_plans_alone),
        cmocka_unit_test(test_read_rank__large_columns),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)unlink(path);
    return failed;
}
