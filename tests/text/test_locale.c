/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_locale.c - the library inside a program whose locale has a decimal comma: what it reads and
 * writes has points all the same. Skipped where no such locale can be made.
 */
#include "tests/support/check.h"
#include "text/decimal.h"
#include "text/text.h"

#include <reshard/draw.h>
#include <reshard/predict.h>

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char folder[] = "/tmp/reshard-test-XXXXXX";
static bool has_comma;

/* Makes a locale of its own, with little more than the decimal point: that takes no sources of
 * locales, and a few milliseconds instead of seconds. */
static int set_up(void **state)
{
    (void)state;
    static const char definition[] = "LC_NUMERIC\\ndecimal_point \",\"\\nthousands_sep \".\"\\n"
                                     "grouping 3;3\\nEND LC_NUMERIC\\n";
    char command[512];
    if (mkdtemp(folder) == NULL)
        return -1;
    (void)snprintf(command, sizeof command,
                   "cd %s && printf '%s' >definition && "
                   "localedef -c -i definition -f ANSI_X3.4-1968 ./comma >said 2>&1",
                   folder, definition);
    /* It returns 1, with warnings of all that the definition lacks, but does what is asked. */
    int returned = system(command);
    (void)returned;
    if (setenv("LOCPATH", folder, 1) == 0 && setlocale(LC_NUMERIC, "comma") != NULL)
        has_comma = strcmp(localeconv()->decimal_point, ",") == 0;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    char command[64];
    (void)snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

/* The program's own numbers have commas, before and after the library was called. */
static void check_comma(void)
{
    char buffer[16];
    if (!has_comma)
        skip();
    (void)snprintf(buffer, sizeof buffer, "%.1f", 0.5);
    assert_string_equal(buffer, "0,5");
}

static void test_locale__numbers_in_texts(void **state)
{
    (void)state;
    char buffer[32], *end = NULL;
    rs_text text;
    check_comma();
    rs_text_init(&text, buffer, sizeof buffer);
    rs_text_add(&text, "%.2f %g", 0.25, 1e-7);
    assert_string_equal(buffer, "0.25 1e-07");
    assert_true(rs_parse_double("2.5s", &end) == 2.5);
    assert_string_equal(end, "s");
    assert_true(rs_parse_double("2,5", &end) == 2);
    assert_string_equal(end, ",5");
    check_comma();
}

static void test_locale__clusters(void **state)
{
    (void)state;
    reshard_cluster cluster = {.size = sizeof cluster};
    check_comma();
    assert_int_equal(reshard_cluster_parse("nodes=2,per_node=8,nic=12.5GB/s", &cluster),
                     RESHARD_OK);
    assert_true(cluster.nic == 12.5e9);
    check_comma();
}

static void test_locale__pictures(void **state)
{
    (void)state;
    static char picture[1 << 16];
    int64_t shape[] = {4000, 4000};
    reshard_layout *source = NULL, *target = NULL;
    reshard_plan *plan = NULL;
    size_t length = 0;
    reshard_draw_options options = {.size = sizeof options, .form = RESHARD_DRAW_SVG};
    check_comma();
    assert_int_equal(reshard_layout_parse(NULL, "4: S(1)", 2, shape, &source), RESHARD_OK);
    assert_int_equal(reshard_layout_parse(NULL, "4: S(0)", 2, shape, &target), RESHARD_OK);
    assert_int_equal(reshard_plan_create_simple(NULL, source, target, RESHARD_F32, NULL, &plan),
                     RESHARD_OK);
    assert_int_equal(reshard_plan_draw(plan, &options, picture, sizeof picture, &length),
                     RESHARD_OK);
    assert_true(length < sizeof picture);
    assert_non_null(strstr(picture, "fill-opacity=\"1.00\""));
    assert_non_null(strstr(picture, "up to 3.81 MiB"));
    reshard_plan_release(plan);
    reshard_layout_release(source);
    reshard_layout_release(target);
    check_comma();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_locale__numbers_in_texts),
        cmocka_unit_test(test_locale__clusters),
        cmocka_unit_test(test_locale__pictures),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
