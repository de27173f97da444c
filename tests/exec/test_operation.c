/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_operation.c - one operation of each kind on strided memory against the obvious loop; what
 * the identities of fills are; and which types are refused.
 */
#include "exec/operation.h"
#include "tests/support/check.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* 3x4 of a source whose rows are 5 apart, into a target that is turned: 4 rows of 3. */
enum { ROWS = 3, COLUMNS = 4, SOURCE = 15, TARGET = 12 };

static const rs_operation_shape turned = {
    .ndim = 2, .size = {ROWS, COLUMNS}, .source_strides = {5, 1}, .target_strides = {1, ROWS}};

static rs_kernels kernels;

static rs_operation make(reshard_move_kind kind, reshard_reduction reduction, reshard_dtype dtype)
{
    return (rs_operation){.kind = kind,
                          .reduction = reduction,
                          .source_dtype = dtype,
                          .target_dtype = dtype,
                          .divisor = 1,
                          .contributor_count = 1};
}

static double source_at(const double *source, int i)
{
    return source[i % ROWS * 5 + i / ROWS];
}

static void test_operation__copy_and_cast(void **state)
{
    (void)state;
    double source[SOURCE], target[TARGET] = {0};
    float narrow[TARGET] = {0};
    for (int i = 0; i < SOURCE; i++)
        source[i] = i + 0.25;
    rs_operation o = make(RESHARD_MOVE_COPY, RESHARD_SUM, RESHARD_F64);
    assert_int_equal(rs_operation_prepare(&o, &kernels, &turned), RESHARD_OK);
    rs_operation_run(&o, source, target);
    o.target_dtype = RESHARD_F32;
    assert_int_equal(rs_operation_prepare(&o, &kernels, &turned), RESHARD_OK);
    rs_operation_run(&o, source, narrow);
    for (int i = 0; i < TARGET; i++) {
        assert_true(target[i] == source_at(source, i));
        assert_true(narrow[i] == (float)source_at(source, i));
    }
}

static double combine_plainly(reshard_reduction reduction, double a, double b)
{
    switch (reduction) {
    case RESHARD_PROD:
        return a * b;
    case RESHARD_MIN:
        return fmin(a, b);
    case RESHARD_MAX:
        return fmax(a, b);
    default:
        return a + b;
    }
}

/* Three contributions in their order; the last one of an average divides. */
static void test_operation__combine(void **state)
{
    (void)state;
    static const reshard_reduction reductions[] = {RESHARD_SUM, RESHARD_AVG, RESHARD_PROD,
                                                   RESHARD_MIN, RESHARD_MAX};
    for (int r = 0; r < 5; r++) {
        double target[TARGET] = {0}, wanted[TARGET] = {0}, source[SOURCE];
        for (int32_t c = 0; c < 3; c++) {
            for (int i = 0; i < SOURCE; i++)
                source[i] = (i * 7 + c * 5) % 11 - 4;
            rs_operation o = make(RESHARD_MOVE_COMBINE, reductions[r], RESHARD_F64);
            o.contributor = c;
            o.contributor_count = 3;
            o.divisor = reductions[r] == RESHARD_AVG ? 4 : 1;
            assert_int_equal(rs_operation_prepare(&o, &kernels, &turned), RESHARD_OK);
            rs_operation_run(&o, source, target);
            for (int i = 0; i < TARGET; i++) {
                double value = source_at(source, i);
                wanted[i] = c == 0 ? value : combine_plainly(reductions[r], wanted[i], value);
                wanted[i] /= c == 2 ? o.divisor : 1;
            }
        }
        for (int i = 0; i < TARGET; i++)
            assert_true(target[i] == wanted[i]);
    }
}

static void test_operation__add(void **state)
{
    (void)state;
    for (int32_t divisor = 1; divisor <= 4; divisor *= 4) {
        double source[SOURCE], target[TARGET];
        for (int i = 0; i < SOURCE; i++)
            source[i] = 4 * i;
        for (int i = 0; i < TARGET; i++)
            target[i] = 1000 + i;
        rs_operation o = make(RESHARD_MOVE_ADD, RESHARD_SUM, RESHARD_F64);
        o.divisor = divisor;
        assert_int_equal(rs_operation_prepare(&o, &kernels, &turned), RESHARD_OK);
        rs_operation_run(&o, source, target);
        for (int i = 0; i < TARGET; i++)
            assert_true(target[i] == 1000 + i + source_at(source, i) / divisor);
    }
}

/* A fill is what changes nothing when something is combined with it. */
static void test_operation__fill(void **state)
{
    (void)state;
    static const struct {
        reshard_reduction reduction;
        double real;
        int16_t integer;
    } rows[] = {
        {RESHARD_SUM, 0, 0},
        {RESHARD_AVG, 0, 0},
        {RESHARD_PROD, 1, 1},
        {RESHARD_MIN, (double)INFINITY, INT16_MAX},
        {RESHARD_MAX, -(double)INFINITY, INT16_MIN},
    };
    for (int r = 0; r < 5; r++) {
        double real[TARGET];
        int16_t integer[TARGET];
        rs_operation o = make(RESHARD_MOVE_FILL, rows[r].reduction, RESHARD_F64);
        assert_int_equal(rs_operation_prepare(&o, &kernels, &turned), RESHARD_OK);
        rs_operation_run(&o, NULL, real);
        o = make(RESHARD_MOVE_FILL, rows[r].reduction, RESHARD_I16);
        assert_int_equal(rs_operation_prepare(&o, &kernels, &turned), RESHARD_OK);
        rs_operation_run(&o, NULL, integer);
        for (int i = 0; i < TARGET; i++) {
            assert_true(real[i] == rows[r].real);
            assert_int_equal(integer[i], rows[r].integer);
        }
    }
}

/* One run of memory can be combined part by part, with the same result. */
static void test_operation__parts_of_a_run(void **state)
{
    (void)state;
    const rs_operation_shape line = {
        .ndim = 1, .size = {TARGET}, .source_strides = {1}, .target_strides = {1}};
    int32_t source[TARGET], whole[TARGET], parts[TARGET];
    rs_operation o = make(RESHARD_MOVE_COMBINE, RESHARD_AVG, RESHARD_I32);
    o.contributor = 1;
    o.contributor_count = 2;
    o.divisor = 2;
    assert_int_equal(rs_operation_prepare(&o, &kernels, &turned), RESHARD_OK);
    assert_false(rs_operation_is_one_run(&o));
    assert_int_equal(rs_operation_prepare(&o, &kernels, &line), RESHARD_OK);
    assert_true(rs_operation_is_one_run(&o));
    for (size_t cut = 0; cut <= TARGET; cut++) {
        for (int i = 0; i < TARGET; i++) {
            source[i] = 3 * i - 7;
            whole[i] = parts[i] = 100 - i;
        }
        rs_operation_run(&o, source, whole);
        rs_operation_run_bytes(&o, source, parts, 4 * cut);
        rs_operation_run_bytes(&o, source + cut, parts + cut, 4 * (TARGET - cut));
        assert_memory_equal(parts, whole, sizeof whole);
    }
}

static void test_operation__refusals(void **state)
{
    (void)state;
    rs_operation o = make(RESHARD_MOVE_COMBINE, RESHARD_MAX, RESHARD_C64);
    assert_int_equal(rs_operation_prepare(&o, &kernels, &turned), RESHARD_ERR_UNSUPPORTED);
    o = make(RESHARD_MOVE_COMBINE, RESHARD_BAND, RESHARD_F32);
    assert_int_equal(rs_operation_prepare(&o, &kernels, &turned), RESHARD_ERR_UNSUPPORTED);
    assert_non_null(strstr(reshard_error_text(), "band of f32"));
    o = make(RESHARD_MOVE_COMBINE, RESHARD_SUM, RESHARD_F32);
    o.target_dtype = RESHARD_F64; /* combining does not cast */
    assert_int_equal(rs_operation_prepare(&o, &kernels, &turned), RESHARD_ERR_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_operation__copy_and_cast),
        cmocka_unit_test(test_operation__combine),
        cmocka_unit_test(test_operation__add),
        cmocka_unit_test(test_operation__fill),
        cmocka_unit_test(test_operation__parts_of_a_run),
        cmocka_unit_test(test_operation__refusals),
    };
    return cmocka_run_group_tests_name("operation", tests, NULL, NULL);
}
