/* SPDX-License-Identifier: Apache-2.0 */
/* test_dlpack.c - DLPack both ways, against structures written by hand. */
#include "tests/support/check.h"
#include "tests/tensor/values.h"

#include <reshard/dlpack.h>

static int deleted;

static void delete_old(reshard_dl_managed *self)
{
    deleted += *(int *)self->manager_ctx;
}

static void delete_versioned(reshard_dl_versioned *self)
{
    deleted += *(int *)self->manager_ctx;
}

static void test_in__old_with_and_without_strides(void **state)
{
    (void)state;
    int one = 1;
    int16_t memory[] = {9, 0, 1, 2, 3, 4, 5};
    int64_t shape[] = {2, 3}, strides[] = {1, 2};
    reshard_dl_managed managed = {.manager_ctx = &one, .deleter = delete_old};
    managed.dl_tensor.data = memory;
    managed.dl_tensor.byte_offset = 2;
    managed.dl_tensor.device.device_type = 1;
    managed.dl_tensor.ndim = 2;
    managed.dl_tensor.shape = shape;
    managed.dl_tensor.dtype.code = 0;
    managed.dl_tensor.dtype.bits = 16;
    managed.dl_tensor.dtype.lanes = 1;
    for (int turn = 0; turn < 2; turn++) {
        reshard_tensor *tensor = NULL;
        managed.dl_tensor.strides = turn ? strides : NULL;
        deleted = 0;
        assert_int_equal(reshard_tensor_from_dlpack(NULL, &managed, &tensor), RESHARD_OK);
        assert_int_equal(reshard_tensor_dtype(tensor), RESHARD_I16);
        for (int64_t i = 0; i < 6; i++)
            assert_true(element(tensor, i) == (turn ? (double)(i / 3 + i % 3 * 2) : (double)i));
        assert_int_equal(deleted, 0);
        reshard_tensor_release(tensor);
        assert_int_equal(deleted, 1);
    }
}

static void test_in__refusals_delete_nothing(void **state)
{
    (void)state;
    int one = 1;
    float memory[6] = {0};
    int64_t shape[] = {6};
    reshard_tensor *tensor = NULL;
    reshard_dl_versioned good = {.manager_ctx = &one, .deleter = delete_versioned};
    good.version.major = 1;
    good.dl_tensor.data = memory;
    good.dl_tensor.device.device_type = 1;
    good.dl_tensor.ndim = 1;
    good.dl_tensor.shape = shape;
    good.dl_tensor.dtype.code = 2;
    good.dl_tensor.dtype.bits = 32;
    good.dl_tensor.dtype.lanes = 1;
    deleted = 0;
    for (int i = 0; i < 8; i++) {
        reshard_dl_versioned bad = good;
        if (i == 0)
            bad.dl_tensor.device.device_type = 2;
        else if (i == 1)
            bad.version.major = 2;
        else if (i == 2)
            bad.flags = 1;
        else if (i == 3)
            bad.dl_tensor.dtype.lanes = 4;
        else if (i == 4)
            bad.dl_tensor.dtype.bits = 128;
        else if (i == 5)
            bad.dl_tensor.ndim = 9;
        else if (i == 6)
            bad.dl_tensor.data = NULL;
        else
            bad.dl_tensor.byte_offset = 1;
        assert_int_not_equal(reshard_tensor_from_dlpack_versioned(NULL, &bad, &tensor), RESHARD_OK);
        assert_true(reshard_error_text()[0] != '\0');
        if (i == 0)
            assert_string_equal(reshard_error_text(), "DLPack: memory of device type 2; only the "
                                                      "CPU's (1) can be used");
    }
    assert_int_equal(deleted, 0);
    assert_int_equal(reshard_tensor_from_dlpack_versioned(NULL, &good, &tensor), RESHARD_OK);
    reshard_tensor_release(tensor);
    assert_int_equal(deleted, 1);
}

static void test_round_trip__every_dtype_and_both_structures(void **state)
{
    (void)state;
    for (int d = 1; d < (int)RESHARD_DTYPE_COUNT; d++) {
        if (reshard_dtype_bits((reshard_dtype)d) % 8 != 0)
            continue;
        reshard_scope *scope = NULL;
        MUST(reshard_scope_open(NULL, &scope));
        reshard_tensor *x = make_zeros((reshard_dtype)d, SHAPE(2, 1, 3)), *back = NULL;
        unsigned char *bytes = reshard_tensor_write(x);
        for (int i = 0; i < 6 * reshard_dtype_bits((reshard_dtype)d) / 8; i++)
            bytes[i] = (unsigned char)(i + 1);
        reshard_tensor *turned = reshard_tensor_retain(reshard_tensor_transpose(x, 0, 2));
        assert_int_equal(reshard_scope_close(scope), RESHARD_OK);
        reshard_dl_managed *old = NULL;
        reshard_dl_versioned *versioned = NULL;
        assert_int_equal(reshard_tensor_to_dlpack(turned, &old), RESHARD_OK);
        assert_int_equal(reshard_tensor_to_dlpack_versioned(turned, &versioned), RESHARD_OK);
        assert_non_null(old->dl_tensor.strides);
        assert_int_equal(old->dl_tensor.strides[0], 1);
        assert_int_equal(versioned->version.major, 1);
        reshard_tensor_release(turned);
        reshard_tensor_release(x);
        assert_int_equal(reshard_tensor_from_dlpack(NULL, old, &back), RESHARD_OK);
        assert_int_equal(reshard_tensor_dtype(back), d);
        assert_int_equal(((const unsigned char *)reshard_tensor_data(back))[0], 1);
        reshard_tensor_release(back);
        versioned->deleter(versioned);
    }
    /* No dims: strides are still there. */
    reshard_tensor *scalar = make_zeros(RESHARD_F32, 0, NULL);
    reshard_dl_managed *managed = NULL;
    assert_int_equal(reshard_tensor_to_dlpack(scalar, &managed), RESHARD_OK);
    assert_non_null(managed->dl_tensor.strides);
    managed->deleter(managed);
    reshard_tensor_release(scalar);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in__old_with_and_without_strides),
        cmocka_unit_test(test_in__refusals_delete_nothing),
        cmocka_unit_test(test_round_trip__every_dtype_and_both_structures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
