/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_records.c - a part of more records than may be kept is refused. The planner's lists are
 * built into this program with a bound of 1000 (base/limits.h has 4 million, a gigabyte).
 */
#include "base/limits.h"
#include "tests/support/check.h"
#include "tests/support/random.h"

#include <reshard/plan_inspect.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "N: S(0=..)" with sizes that fold into no families. */
static char *write_ragged(int count, int64_t *out_length)
{
    char *text = malloc((size_t)count * 8 + 32);
    draw_state draw;
    draw_seed(&draw, 5);
    assert_non_null(text);
    int at = sprintf(text, "%d: S(0=", count);
    *out_length = 0;
    for (int i = 0; i < count; i++) {
        int size = (int)draw_between(&draw, 1, 500);
        *out_length += size;
        at += sprintf(text + at, "%s%d", i == 0 ? "" : ",", size);
    }
    (void)sprintf(text + at, ")");
    return text;
}

static reshard_status make_part(int count)
{
    int64_t length = 0;
    char *text = write_ragged(count, &length);
    reshard_layout *from = NULL, *to = NULL;
    reshard_plan *plan = NULL;
    reshard_part *part = NULL;
    assert_int_equal(reshard_layout_parse(NULL, text, 1, &length, &from), RESHARD_OK);
    assert_int_equal(reshard_layout_parse(NULL, "1[100000]: R", 1, &length, &to), RESHARD_OK);
    assert_int_equal(reshard_plan_create_simple(NULL, from, to, RESHARD_U8, NULL, &plan),
                     RESHARD_OK);
    reshard_status status = reshard_part_create(NULL, plan, 100000, &part);
    reshard_part_destroy(part);
    reshard_plan_release(plan);
    reshard_layout_release(to);
    reshard_layout_release(from);
    free(text);
    return status;
}

static void test_records__at_the_bound_and_beyond(void **state)
{
    (void)state;
    assert_int_equal(RS_RECORDS_MAX, 1000);
    assert_int_equal(make_part(900), RESHARD_OK);
    assert_int_equal(make_part(1100), RESHARD_ERR_RANGE);
    assert_non_null(strstr(reshard_error_text(), "1000"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_records__at_the_bound_and_beyond),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
