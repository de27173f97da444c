/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_view.c - views of a checkpoint, from C: every box, every rank's part and live loads hold
 * what the map's lines say, element by element; a view without memory fails and leaks nothing; and
 * what a view cannot do is refused in words.
 */
#include "tests/support/check.h"
#include "tests/support/context.h"
#include "tests/support/info.h"

#include <reshard/checkpoint_live.h>
#include <reshard/comparison.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROWS = 8, COLUMNS = 6, VOLUME = ROWS * COLUMNS, RANKS = 2 };

static char path[] = "/tmp/reshard-view-XXXXXX";

/* a and b, whose rows alternate in `both`, with the halves of each row swapped; `one` that is 1;
 * and a that is also there as f64, one larger. */
static const char map[] = "map old new\n"
                          "let h = 3\n"
                          "a [r (2 h)], b [r (2 h)] = both [(r (1 + 1)) (h 2)]\n"
                          "c [r] = wide [r] f64 add(1)\n"
                          "= one [2] fill(1)\n";

static float value_at(char name, int64_t i)
{
    return (float)(i + (name == 'a' ? 0 : name == 'b' ? 1000 : 5000));
}

static void write_file(void)
{
    static const char header[] =
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[8,6],\"data_offsets\":[0,192]},"
        "\"b\":{\"dtype\":\"F32\",\"shape\":[8,6],\"data_offsets\":[192,384]},"
        "\"c\":{\"dtype\":\"F32\",\"shape\":[48],\"data_offsets\":[384,576]}}";
    uint64_t length = strlen(header);
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(&length, 8, 1, file) != 1 || fwrite(header, length, 1, file) != 1)
        abort();
    for (char name = 'a'; name <= 'c'; name++) {
        for (int64_t i = 0; i < VOLUME; i++) {
            float value = value_at(name, i);
            if (fwrite(&value, 4, 1, file) != 1)
                abort();
        }
    }
    if (fclose(file) != 0)
        abort();
}

/* Element [r, c] of `both`: rows of a and b in turn, and 0 3 1 4 2 5 of the columns. */
static float both_at(int64_t r, int64_t c)
{
    return value_at(r % 2 == 0 ? 'a' : 'b', r / 2 * COLUMNS + c % 2 * 3 + c / 2);
}

static reshard_checkpoint *open_file(reshard_context *context)
{
    reshard_checkpoint *checkpoint = NULL;
    assert_int_equal(reshard_checkpoint_open(context, path, NULL, &checkpoint), RESHARD_OK);
    return checkpoint;
}

static reshard_status make_view(const reshard_checkpoint *checkpoint, reshard_checkpoint **out_view)
{
    const reshard_view_options options = {.size = sizeof options, .map_text = map, .as = "new"};
    return reshard_checkpoint_view(checkpoint, &options, out_view);
}

/* ---- reading --------------------------------------------------------------------------------- */

static void test_view__every_box(void **state)
{
    (void)state;
    reshard_checkpoint *checkpoint = open_file(NULL), *view = NULL;
    assert_int_equal(make_view(checkpoint, &view), RESHARD_OK);
    assert_int_equal(info_checkpoint(view).tensor_count, 3);
    for (int64_t r0 = 0; r0 < 2 * ROWS; r0++) {
        for (int64_t r1 = r0 + 1; r1 <= 2 * ROWS; r1++) {
            int64_t c0 = (r0 + r1) % COLUMNS, c1 = c0 + 1 + r1 % (COLUMNS - c0);
            reshard_box box = {.ndim = 2, .offset = {r0, c0}, .size = {r1 - r0, c1 - c0}};
            float read[2 * VOLUME];
            size_t bytes = (size_t)((r1 - r0) * (c1 - c0)) * sizeof *read;
            assert_int_equal(reshard_checkpoint_read(view, 0, &box, read, bytes), RESHARD_OK);
            for (int64_t i = 0; i < (r1 - r0) * (c1 - c0); i++)
                assert_true(read[i] == both_at(r0 + i / (c1 - c0), c0 + i % (c1 - c0)));
        }
    }
    float ones[2] = {0, 0};
    double wide[VOLUME];
    assert_int_equal(reshard_checkpoint_read(view, 1, NULL, ones, sizeof ones), RESHARD_OK);
    assert_true(ones[0] == 1 && ones[1] == 1);
    assert_int_equal(reshard_checkpoint_read(view, 2, NULL, wide, sizeof wide), RESHARD_OK);
    for (int64_t i = 0; i < VOLUME; i++)
        assert_true(wide[i] == (double)value_at('c', i) + 1);
    reshard_checkpoint_destroy(view);
    reshard_checkpoint_destroy(checkpoint);
}

/* ---- ranks ----------------------------------------------------------------------------------- */

typedef struct loading {
    reshard_layout *layout;
    int once;
    double parts[RANKS][2 * VOLUME]; /* cast on the way */
    reshard_status status[RANKS];
} loading;

static reshard_status load_rank(void *user, reshard_group *group)
{
    loading *l = user;
    int32_t rank = reshard_group_rank(group);
    reshard_checkpoint *checkpoint = NULL, *view = NULL;
    void *shards[] = {l->parts[rank]};
    reshard_live_tensor tensor = {"both", RESHARD_F64, l->layout, shards};
    reshard_checkpoint_load_options options = {.size = sizeof options, .read_once = l->once};
    reshard_status status = reshard_checkpoint_open(NULL, path, NULL, &checkpoint);
    if (status == RESHARD_OK)
        status = make_view(checkpoint, &view);
    status = reshard_group_agree(group, status);
    if (status == RESHARD_OK)
        status = reshard_checkpoint_load(view, group, 1, &tensor, &options);
    reshard_checkpoint_destroy(view);
    reshard_checkpoint_destroy(checkpoint);
    l->status[rank] = status;
    return RESHARD_OK;
}

static void test_view__live_loads(void **state)
{
    (void)state;
    const int64_t shape[] = {2 * ROWS, COLUMNS};
    static loading l;
    assert_int_equal(reshard_layout_parse(NULL, "2: S(1)", 2, shape, &l.layout), RESHARD_OK);
    for (l.once = 0; l.once < 2; l.once++) {
        memset(l.parts, 0, sizeof l.parts);
        assert_int_equal(reshard_group_run(NULL, RANKS, load_rank, &l), RESHARD_OK);
        for (int64_t rank = 0; rank < RANKS; rank++) {
            assert_int_equal(l.status[rank], RESHARD_OK);
            for (int64_t i = 0; i < 2 * ROWS * 3; i++)
                assert_true(l.parts[rank][i] == (double)both_at(i / 3, 3 * rank + i % 3));
        }
    }
    reshard_layout_release(l.layout);
}

/* What one rank holds of one tensor. */
static reshard_status read_shards(const reshard_checkpoint *checkpoint, int64_t tensor,
                                  const reshard_layout *layout, int32_t rank, reshard_dtype dtype,
                                  void *const *shards)
{
    const reshard_rank_tensor one = {
        .tensor = tensor, .layout = layout, .dtype = dtype, .shards = shards};
    return reshard_checkpoint_read_rank(checkpoint, rank, 1, &one, NULL);
}

/* Every third element of what is computed, as it is and cast. */
static void check_computed(const reshard_checkpoint *view, reshard_dtype dtype)
{
    const int64_t length = VOLUME;
    reshard_layout *layout = NULL;
    float narrow[VOLUME / 3];
    double wide[VOLUME / 3];
    void *shards[] = {dtype == RESHARD_F32 ? (void *)narrow : wide};
    assert_int_equal(reshard_layout_parse(NULL, "3: S(0/1)", 1, &length, &layout), RESHARD_OK);
    for (int32_t rank = 0; rank < 3; rank++) {
        assert_int_equal(read_shards(view, 2, layout, rank, dtype, shards), RESHARD_OK);
        for (int64_t i = 0; i < VOLUME / 3; i++)
            assert_true((dtype == RESHARD_F32 ? (double)narrow[i] : wide[i]) ==
                        (double)value_at('c', 3 * i + rank) + 1);
    }
    reshard_layout_release(layout);
}

static void test_view__shards_of_a_rank(void **state)
{
    (void)state;
    const int64_t shape[] = {2 * ROWS, COLUMNS};
    reshard_checkpoint *checkpoint = open_file(NULL), *view = NULL;
    reshard_layout *layout = NULL;
    assert_int_equal(make_view(checkpoint, &view), RESHARD_OK);
    assert_int_equal(reshard_layout_parse(NULL, "4: S(0)", 2, shape, &layout), RESHARD_OK);
    for (int32_t rank = 0; rank < 4; rank++) {
        float part[4 * COLUMNS];
        void *shards[] = {part};
        assert_int_equal(read_shards(view, 0, layout, rank, RESHARD_DTYPE_NONE, shards),
                         RESHARD_OK);
        for (int64_t i = 0; i < 4 * COLUMNS; i++)
            assert_true(part[i] == both_at(4 * rank + i / COLUMNS, i % COLUMNS));
    }
    reshard_layout_release(layout);
    check_computed(view, RESHARD_F32);
    check_computed(view, RESHARD_F64);
    reshard_checkpoint_destroy(view);
    reshard_checkpoint_destroy(checkpoint);
}

/* ---- what goes wrong ------------------------------------------------------------------------- */

static void test_view__refusals(void **state)
{
    (void)state;
    reshard_checkpoint *checkpoint = open_file(NULL), *view = NULL, *second = NULL;
    reshard_conversion *conversion = NULL;
    reshard_comparison *comparison = NULL;
    reshard_layout *layout = NULL;
    reshard_cuts *cuts = NULL;
    reshard_stored_piece piece = {.size = sizeof piece};
    assert_int_equal(make_view(checkpoint, &view), RESHARD_OK);
    assert_int_equal(make_view(view, &second), RESHARD_ERR_INVALID);
    assert_non_null(strstr(reshard_error_text(), "is already a view through a map"));
    assert_int_equal(reshard_checkpoint_view(checkpoint, NULL, &second), RESHARD_ERR_INVALID);
    assert_non_null(strstr(reshard_error_text(), "a view needs a naming or a map"));
    assert_int_equal(reshard_conversion_create(NULL, view, NULL, &conversion), RESHARD_ERR_INVALID);
    assert_non_null(strstr(reshard_error_text(), "convert the checkpoint itself with that map"));
    assert_int_equal(reshard_checkpoint_compare(checkpoint, view, NULL, &comparison),
                     RESHARD_ERR_UNSUPPORTED);
    assert_non_null(strstr(reshard_error_text(), "only A may be one"));
    assert_int_equal(reshard_checkpoint_piece(view, 1, 0, &piece), RESHARD_ERR_RANGE);
    assert_int_equal(reshard_checkpoint_layout(view, 1, &layout), RESHARD_ERR_UNSUPPORTED);
    assert_non_null(strstr(reshard_error_text(), "a map computes it"));
    const reshard_conversion_options as = {.size = sizeof as, .as = "hf5"};
    assert_int_equal(reshard_cuts_create(checkpoint, &as, &cuts), RESHARD_ERR_INVALID);
    assert_non_null(strstr(reshard_error_text(), "ask a view of the checkpoint"));
    reshard_checkpoint_destroy(view);
    reshard_checkpoint_destroy(checkpoint);
}

static reshard_status try_view(reshard_context *context, void *user)
{
    (void)user;
    reshard_checkpoint *checkpoint = NULL, *view = NULL;
    reshard_digests *digests = NULL;
    float read[2 * VOLUME];
    reshard_status status = reshard_checkpoint_open(context, path, NULL, &checkpoint);
    if (status == RESHARD_OK)
        status = make_view(checkpoint, &view);
    if (status == RESHARD_OK)
        status = reshard_checkpoint_read(view, 0, NULL, read, sizeof read);
    if (status == RESHARD_OK)
        status = reshard_checkpoint_digest(view, NULL, &digests);
    reshard_digests_destroy(digests);
    reshard_checkpoint_destroy(view);
    reshard_checkpoint_destroy(checkpoint);
    return status;
}

static void test_view__without_memory(void **state)
{
    (void)state;
    words said = {""};
    if (!context_fail_each(try_view, NULL, &said))
        fail_msg("%s", said.text);
}

int main(void)
{
    int file = mkstemp(path);
    if (file < 0)
        return 1;
    (void)close(file);
    write_file();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_view__every_box),        cmocka_unit_test(test_view__live_loads),
        cmocka_unit_test(test_view__shards_of_a_rank), cmocka_unit_test(test_view__refusals),
        cmocka_unit_test(test_view__without_memory),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)unlink(path);
    return failed;
}
