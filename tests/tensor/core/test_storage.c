/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_storage.c - tensors over mapped files and over memory of a group. tests/mpi uses shared
 * tensors between processes.
 */
#include "system/file.h"
#include "tests/support/check.h"
#include "tests/support/context.h"
#include "tests/support/info.h"
#include "tests/tensor/shared.h"

#include <reshard/sim.h>

#include <errno.h>
#include <string.h>

/* ---- files ----------------------------------------------------------------------------------- */

static const char path[] = "test-tensor-storage.bin";
enum { FLOATS = 5000 }; /* several pages */

static void write_floats(void)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    for (int i = 0; i < FLOATS; i++) {
        float value = (float)i;
        assert_int_equal(fwrite(&value, sizeof value, 1, file), 1);
    }
    assert_int_equal(fclose(file), 0);
}

static float read_float(int index)
{
    float value = -1;
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, index * 4L, SEEK_SET), 0);
    assert_int_equal(fread(&value, sizeof value, 1, file), 1);
    assert_int_equal(fclose(file), 0);
    return value;
}

static void test_map_file__values_and_writes(void **state)
{
    (void)state;
    write_floats();
    /* At the beginning, across pages, at an offset inside a page, up to the end. */
    static const int64_t rows[][2] = {{0, 3}, {0, 1250}, {1, 1249}, {1023, 900}, {4996, 1}};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        reshard_tensor *x = NULL;
        uint64_t offset = (uint64_t)rows[r][0] * 4;
        assert_int_equal(
            reshard_tensor_map_file(NULL, path, offset, RESHARD_F32, SHAPE(rows[r][1], 4), &x),
            RESHARD_OK);
        assert_true(info_tensor(x).is_contiguous);
        for (int64_t i = 0; i < 4 * rows[r][1]; i++)
            assert_true(element(x, i) == (double)(rows[r][0] + i));
        /* Writing stays here. */
        set_element(x, 0, -7);
        assert_true(element(x, 0) == -7);
        assert_true(read_float((int)rows[r][0]) == (float)rows[r][0]);
        reshard_tensor *again = NULL;
        assert_int_equal(reshard_tensor_map_file(NULL, path, offset, RESHARD_F32, SHAPE(1), &again),
                         RESHARD_OK);
        assert_true(element(again, 0) == (double)rows[r][0]);
        reshard_tensor_release(again);
        reshard_tensor_release(x);
    }
    assert_int_equal(remove(path), 0);
}

/* A view keeps the mapping, also when the file's name is gone; gradients flow. */
static void test_map_file__lives_as_long_as_it_is_used(void **state)
{
    (void)state;
    write_floats();
    reshard_tensor *x = NULL, *empty = NULL;
    reshard_scope *scope = NULL;
    assert_int_equal(reshard_tensor_map_file(NULL, path, 400, RESHARD_F32, SHAPE(30, 40), &x),
                     RESHARD_OK);
    assert_int_equal(reshard_tensor_map_file(NULL, path, 20000, RESHARD_F32, SHAPE(0, 4), &empty),
                     RESHARD_OK);
    assert_int_equal(remove(path), 0);
    assert_int_equal(reshard_tensor_volume(empty), 0);
    assert_int_equal(reshard_tensor_set_requires_grad(x, 1), RESHARD_OK);
    assert_int_equal(reshard_scope_open(NULL, &scope), RESHARD_OK);
    reshard_tensor *row = reshard_tensor_narrow(x, 0, 29, 1);
    assert_int_equal(reshard_backward(reshard_sum(reshard_mul(row, row)), NULL, NULL), RESHARD_OK);
    assert_true(element(reshard_tensor_gradient(x), 29 * 40 + 3) == 2 * (100 + 29 * 40 + 3));
    reshard_tensor *kept = reshard_tensor_retain(reshard_tensor_detach(row));
    assert_int_equal(reshard_scope_close(scope), RESHARD_OK);
    reshard_tensor_release(x);
    assert_true(element(kept, 39) == 100 + 30 * 40 - 1);
    reshard_tensor_release(kept);
    reshard_tensor_release(empty);
}

static int refuse_to_map(void *user, const char *what, const char *name)
{
    (void)user;
    (void)name;
    errno = ENODEV;
    return strcmp(what, "map") == 0 ? -1 : 0;
}

static void expect_refusal(reshard_context *context, const char *name, uint64_t offset,
                           reshard_dtype dtype, int64_t rows, reshard_status expected,
                           const char *text)
{
    reshard_tensor *x = NULL;
    reshard_status status =
        reshard_tensor_map_file(context, name, offset, dtype, SHAPE(rows, 4), &x);
    if (status != expected || strstr(reshard_error_text(), text) == NULL)
        fail_msg("%s, not %s: %s", reshard_status_name(status), text, reshard_error_text());
    assert_null(x);
}

static reshard_status map_once(reshard_context *context, void *user)
{
    reshard_tensor *x = NULL;
    (void)user;
    reshard_status status =
        reshard_tensor_map_file(context, path, 64, RESHARD_F32, SHAPE(20, 4), &x);
    reshard_tensor_release(x);
    return status;
}

static void test_map_file__refusals(void **state)
{
    (void)state;
    write_floats();
    expect_refusal(NULL, "no-such-file.bin", 0, RESHARD_F32, 1, RESHARD_ERR_NOT_FOUND,
                   "no-such-file.bin");
    expect_refusal(NULL, ".", 0, RESHARD_F32, 1, RESHARD_ERR_IO, "not a regular file");
    expect_refusal(NULL, path, 0, RESHARD_F32, 1251, RESHARD_ERR_CORRUPT,
                   "20016 bytes from byte 0 on, and the file has 20000");
    expect_refusal(NULL, path, 4, RESHARD_F32, 1250, RESHARD_ERR_CORRUPT, "the file has 20000");
    expect_refusal(NULL, path, 20008, RESHARD_F32, 0, RESHARD_ERR_CORRUPT, "the file has 20000");
    expect_refusal(NULL, path, UINT64_MAX - 3, RESHARD_F32, 1, RESHARD_ERR_CORRUPT, "20000");
    expect_refusal(NULL, path, 2, RESHARD_F32, 1, RESHARD_ERR_INVALID, "an offset of 2 bytes");
    expect_refusal(NULL, path, 12, RESHARD_F64, 1, RESHARD_ERR_INVALID, "elements of f64");
    expect_refusal(NULL, path, 0, RESHARD_DTYPE_COUNT, 1, RESHARD_ERR_INVALID, "dtype");
    expect_refusal(NULL, path, 0, RESHARD_F32, -1, RESHARD_ERR_RANGE, "negative length -1");
    expect_refusal(NULL, path, 0, RESHARD_F32, INT64_MAX / 4, RESHARD_ERR_RANGE, "too many bytes");
    /* What the system refuses. */
    reshard_context *context = NULL;
    rs_file_calls calls = *rs_file_calls_system();
    calls.may = refuse_to_map;
    assert_int_equal(reshard_context_create(NULL, &context), RESHARD_OK);
    rs_file_calls_set(context, &calls);
    expect_refusal(context, path, 0, RESHARD_F32, 1, RESHARD_ERR_IO, "cannot be mapped");
    assert_int_equal(info_memory(context).bytes, 0);
    reshard_context_destroy(context);
    words said = {""};
    if (!context_fail_each(map_once, NULL, &said))
        fail_msg("%s", said.text);
    assert_int_equal(remove(path), 0);
}

/* ---- groups ---------------------------------------------------------------------------------- */

static reshard_status share(void *user, reshard_group *group)
{
    reshard_status status = use_shared_tensors(group, *(const bool *)user);
    return status == RESHARD_OK ? refuse_shared_tensors(group) : status;
}

static void test_create_shared__every_transport(void **state)
{
    (void)state;
    bool wanted = false;
    for (int32_t ranks = 1; ranks <= 5; ranks++) {
        run_ranks(ranks, share, &wanted);
    }
    /* Simulated ranks: of nodes of two, whose arenas are seen; of one each, which see nothing; and
     * all in one memory. */
    for (int way = 0; way < 3; way++) {
        reshard_sim_options options = {
            .size = sizeof options, .seed = 5, .mapped = way == 2, .node_size = way == 0 ? 2 : 0};
        wanted = way == 0;
        if (reshard_sim_run(NULL, 4, &options, share, &wanted) != RESHARD_OK)
            fail_msg("way %d: %s", way, reshard_error_text());
    }
}

typedef struct attempt {
    reshard_context *context; /* of rank 1 */
} attempt;

static reshard_status create_on_rank(void *user, reshard_group *group)
{
    const attempt *a = user;
    reshard_tensor *x = NULL;
    reshard_status status = reshard_tensor_create_shared(
        reshard_group_rank(group) == 1 ? a->context : NULL, group, RESHARD_F32, SHAPE(100), &x);
    reshard_tensor_release(x);
    return status;
}

static reshard_status create_once(reshard_context *context, void *user)
{
    (void)user;
    attempt a = {context};
    return reshard_group_run(NULL, 3, create_on_rank, &a);
}

static void test_create_shared__no_memory(void **state)
{
    (void)state;
    words said = {""};
    if (!context_fail_each(create_once, NULL, &said))
        fail_msg("%s", said.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_map_file__values_and_writes),
        cmocka_unit_test(test_map_file__lives_as_long_as_it_is_used),
        cmocka_unit_test(test_map_file__refusals),
        cmocka_unit_test(test_create_shared__every_transport),
        cmocka_unit_test(test_create_shared__no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
