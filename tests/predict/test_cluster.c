/* SPDX-License-Identifier: Apache-2.0 */
/* test_cluster.c - clusters that a program describes itself, in numbers that make no sense. */
#include "tests/support/check.h"

#include <reshard/predict.h>

#include <math.h>
#include <stddef.h>
#include <string.h>

static void test_cluster__numbers_that_make_no_sense(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t offset;
    } fields[] = {{"nic", offsetof(reshard_cluster, nic)},
                  {"intra", offsetof(reshard_cluster, intra)},
                  {"memory", offsetof(reshard_cluster, memory)},
                  {"latency", offsetof(reshard_cluster, latency)},
                  {"scattered", offsetof(reshard_cluster, scattered)}};
    static const double wrong[] = {-1, NAN, -INFINITY};
    static const int64_t shape[] = {8, 8};
    reshard_layout *rows = NULL, *columns = NULL;
    reshard_plan *plan = NULL;
    reshard_prediction *prediction = NULL;
    assert_int_equal(reshard_layout_parse(NULL, "4: S(0)", 2, shape, &rows), RESHARD_OK);
    assert_int_equal(reshard_layout_parse(NULL, "4: S(1)", 2, shape, &columns), RESHARD_OK);
    assert_int_equal(reshard_plan_create_simple(NULL, rows, columns, RESHARD_F32, NULL, &plan),
                     RESHARD_OK);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
            reshard_cluster cluster = {.size = sizeof cluster, .nodes = 2, .per_node = 2};
            memcpy((char *)&cluster + fields[i].offset, &wrong[k], sizeof wrong[k]);
            assert_int_equal(reshard_plan_predict(plan, &cluster, &prediction),
                             RESHARD_ERR_INVALID);
            assert_non_null(strstr(reshard_error_text(), fields[i].name));
        }
    }
    reshard_cluster cluster = {.size = sizeof cluster, .nodes = -2};
    assert_int_equal(reshard_plan_predict(plan, &cluster, &prediction), RESHARD_ERR_INVALID);
    assert_non_null(strstr(reshard_error_text(), "-2 nodes"));
    assert_null(prediction);
    reshard_plan_release(plan);
    reshard_layout_release(rows);
    reshard_layout_release(columns);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cluster__numbers_that_make_no_sense),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
