/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout_random.c - random specs met by random shapes: a layout is made if and only if the oracle
 * says that the spec suits the shape, and then every rank's shards hold the oracle's elements in
 * the oracle's order.
 */
#include "layout/layout.h"
#include "tests/support/compare.h"
#include "tests/support/harness.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static bool check_one_way(const harness_case *given, bool by_constructor,
                          const oracle_layout *expected, const char *why, words *said)
{
    reshard_layout *layout = NULL;
    reshard_status status =
        compare_create(&given->specs[0], by_constructor, given->ndim, given->shape, &layout);
    const char *way = by_constructor ? "constructor" : "text";
    bool right = true;
    if (status == RESHARD_ERR_UNSUPPORTED && oracle_may_be_refused(&given->specs[0]))
        right = reshard_error_text()[0] != '\0';
    else if (status == RESHARD_OK && expected == NULL)
        right = words_say(said, "%s: accepted, though %s", way, why);
    else if (status != RESHARD_OK && expected != NULL)
        right = words_say(said, "%s: refused with %s: %s", way, reshard_status_name(status),
                          reshard_error_text());
    else if (status != RESHARD_OK && reshard_error_text()[0] == '\0')
        right = words_say(said, "%s: refused without words", way);
    else if (expected != NULL)
        right = compare_layout(layout, expected, said);
    reshard_layout_release(layout);
    return right;
}

/* The text of the parsed spec and that of the built one are the same, and parse back to
 * themselves. */
static bool check_texts(const harness_case *given, words *said)
{
    reshard_layout *parsed = NULL, *built = NULL, *again = NULL;
    char *texts[3] = {NULL, NULL, NULL};
    bool right = compare_create(&given->specs[0], false, given->ndim, given->shape, &parsed) == 0 &&
                 compare_create(&given->specs[0], true, given->ndim, given->shape, &built) == 0;
    reshard_layout *layouts[2] = {parsed, built};
    for (int i = 0; right && i < 2; i++) {
        size_t length = 0;
        texts[i] = calloc(1, ORACLE_TEXT_MAX);
        right = texts[i] != NULL && reshard_spec_text(layouts[i]->spec, texts[i], ORACLE_TEXT_MAX,
                                                      &length) == RESHARD_OK;
        right = right && length == strlen(texts[i]);
    }
    if (right && strcmp(texts[0], texts[1]) != 0)
        right = words_say(said, "parsed as \"%s\", built as \"%s\"", texts[0], texts[1]);
    if (right && !reshard_layout_equals(parsed, built))
        right = words_say(said, "the parsed layout does not equal the built one");
    if (right &&
        reshard_layout_parse(NULL, texts[0], given->ndim, given->shape, &again) != RESHARD_OK)
        right = words_say(said, "\"%s\" does not parse back: %s", texts[0], reshard_error_text());
    if (right)
        right = compare_layouts(parsed, again, said);
    for (int i = 0; i < 2; i++)
        free(texts[i]);
    reshard_layout_release(parsed);
    reshard_layout_release(built);
    reshard_layout_release(again);
    return right || words_say(said, "the spec's text cannot be had: %s", reshard_error_text());
}

static bool check_spec(const harness_case *given, words *said)
{
    const char *why = "";
    oracle_layout *expected =
        oracle_layout_create(&given->specs[0], given->ndim, given->shape, &why);
    bool right =
        check_one_way(given, false, expected, why, said) &&
        check_one_way(given, true, expected, why, said) &&
        (expected == NULL || oracle_may_be_refused(&given->specs[0]) || check_texts(given, said));
    oracle_layout_destroy(expected);
    return right;
}

static void generate_any(draw_state *draw, harness_case *made)
{
    made->spec_count = 1;
    generate_shape(draw, 2000, &made->ndim, made->shape);
    generate_spec(draw, GENERATE_PARTIAL | GENERATE_LISTED | GENERATE_INVALID, made->ndim,
                  made->shape, &made->specs[0]);
}

static void generate_listed(draw_state *draw, harness_case *made)
{
    made->spec_count = 1;
    do {
        generate_shape(draw, 500, &made->ndim, made->shape);
    } while (made->ndim == 0);
    oracle_spec *spec = &made->specs[0];
    generate_boxes(draw, draw_chance(draw, 40), made->ndim, made->shape, spec);
    /* Now and then a wrong one: a box moved, changed or left out, or another shape. */
    int64_t wrong = draw_below(draw, 12);
    oracle_piece *piece = &spec->listed[draw_below(draw, spec->listed_count)].pieces[0];
    int32_t d = (int32_t)draw_below(draw, made->ndim);
    if (wrong == 0)
        piece->to[d]++;
    if (wrong == 1 && piece->to[d] > piece->from[d] + 1)
        piece->to[d]--;
    if (wrong == 2)
        spec->listed_count--;
    if (wrong == 3)
        made->shape[d]++;
    if (wrong == 4 && piece->at_count > 0)
        piece->at[0]++;
}

static void test_layout__random_specs(void **state)
{
    (void)state;
    harness_run("layout of a random spec", 6000, generate_any, check_spec);
}

static void test_layout__random_boxes(void **state)
{
    (void)state;
    harness_run("layout of random boxes", 3000, generate_listed, check_spec);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout__random_specs),
        cmocka_unit_test(test_layout__random_boxes),
    };
    return cmocka_run_group_tests_name("layout_random", tests, NULL, NULL);
}
