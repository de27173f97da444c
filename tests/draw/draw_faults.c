/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draw_faults.c - the n-th allocation fails, for every n, in all that draws a plan. The window is
 * so narrow that the picture is filled several times.
 */
#include "tests/support/context.h"

#include <reshard/draw.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static reshard_status draw_once(reshard_context *context, void *user)
{
    const reshard_draw_options *options = user;
    int64_t shape[] = {48, 48};
    reshard_layout *source = NULL, *target = NULL;
    reshard_plan *plan = NULL;
    size_t length = 0;
    reshard_status status = reshard_layout_parse(context, "24: S(1)", 2, shape, &source);
    if (status == RESHARD_OK)
        status = reshard_layout_parse(context, "24: S(0)", 2, shape, &target);
    if (status == RESHARD_OK)
        status = reshard_plan_create_simple(context, source, target, RESHARD_F32, NULL, &plan);
    if (status == RESHARD_OK)
        status = reshard_plan_draw(plan, options, NULL, 0, &length);
    reshard_plan_release(plan);
    reshard_layout_release(source);
    reshard_layout_release(target);
    return status;
}

static void test_draw_faults__plan(void **state)
{
    (void)state;
    reshard_draw_options options = {.size = sizeof options, .columns = RESHARD_DRAW_COLUMNS_MIN};
    for (int svg = 0; svg < 2; svg++) {
        words said = {0};
        options.form = svg ? RESHARD_DRAW_SVG : RESHARD_DRAW_TEXT;
        if (!context_fail_each(draw_once, &options, &said))
            fail_msg("%s: %s", svg ? "SVG" : "text", said.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_draw_faults__plan)};
    return cmocka_run_group_tests_name("draw_faults", tests, NULL, NULL);
}
