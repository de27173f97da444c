/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts made from others, and short answers about layouts, in rows of specs. */
#include "layout/derive.h"
#include "tests/support/check.h"

#include <string.h>

static const int64_t shape[] = {6, 4};

static reshard_layout *make(const char *text)
{
    reshard_spec *spec = NULL;
    reshard_layout *layout = NULL;
    assert_int_equal(reshard_spec_parse(NULL, text, &spec), RESHARD_OK);
    assert_int_equal(reshard_layout_create(NULL, spec, 2, shape, &layout), RESHARD_OK);
    reshard_spec_release(spec);
    return layout;
}

static void check_text(reshard_layout *layout, const char *text)
{
    assert_string_equal(rs_layout_describe(layout).text, text);
    reshard_layout_release(layout);
}

static void test_derive__simple(void **state)
{
    (void)state;
    const reshard_placement rows = {.kind = RESHARD_SHARD, .dim = 0};
    reshard_layout *layout = NULL;
    assert_int_equal(rs_layout_simple(NULL, 3, -1, NULL, 2, shape, &layout), RESHARD_OK);
    check_text(layout, "3: R");
    assert_int_equal(rs_layout_simple(NULL, 3, 2, NULL, 2, shape, &layout), RESHARD_OK);
    check_text(layout, "1[2]: R");
    assert_int_equal(rs_layout_simple(NULL, 3, -1, &rows, 2, shape, &layout), RESHARD_OK);
    check_text(layout, "3: S(0)");
    assert_int_equal(rs_layout_simple(NULL, 0, -1, NULL, 2, shape, &layout), RESHARD_ERR_RANGE);
}

static void test_derive__replace_partial(void **state)
{
    (void)state;
    const reshard_placement largest = {.kind = RESHARD_PARTIAL, .reduction = RESHARD_MAX};
    const reshard_placement replicate = {.kind = RESHARD_REPLICATE};
    reshard_layout *partial = make("2,3: P(avg), S(1)"), *whole = make("4: S(0)"), *made = NULL;
    assert_int_equal(rs_layout_reduction(partial), RESHARD_AVG);
    assert_int_equal(rs_layout_reduction(whole), RESHARD_SUM);
    assert_int_equal(rs_layout_replace_partial(partial, &largest, &made), RESHARD_OK);
    check_text(made, "2,3: P(max), S(1)");
    assert_int_equal(rs_layout_replace_partial(partial, &replicate, &made), RESHARD_OK);
    check_text(made, "2,3: R, S(1)");
    assert_int_equal(rs_layout_replace_partial(whole, &replicate, &made), RESHARD_OK);
    assert_ptr_equal(made, whole);
    reshard_layout_release(made);
    reshard_layout_release(whole);
    reshard_layout_release(partial);
}

static void test_derive__axes(void **state)
{
    (void)state;
    static const struct {
        const char *spec;
        int32_t count;
        int32_t axes[2];
    } rows[] = {
        {"3: R", 0, {0}},
        {"2,3: R, S(0)", 1, {1}},
        {"2,1: P, S(0)", 1, {0}}, /* an axis of one rank divides nothing */
        {"2,3: S(1)@1, S(0)@0", 2, {1, 0}},
        {"boxes 6x4: 0[0:6,0:4]", -1, {0}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int32_t axes[RESHARD_AXES_MAX];
        reshard_layout *layout = make(rows[i].spec);
        assert_int_equal(rs_layout_list_axes(layout, axes), rows[i].count);
        assert_int_equal(rs_layout_is_everywhere(layout), rows[i].count == 0);
        for (int32_t a = 0; a < rows[i].count; a++)
            assert_int_equal(axes[a], rows[i].axes[a]);
        reshard_layout_release(layout);
    }
}

static void test_derive__lie_alike(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b;
        bool alike;
    } rows[] = {
        {"2: S(0)", "2: S(0)", true},    {"2: S(0)", "2: S(1)", false}, {"1: R", "1: S(0)", true},
        {"1,1: P, R", "1: S(1)", true},  {"1: R", "1[3]: R", false},    {"2: R", "1: R", false},
        {"1[3]: S(0)", "1[3]: R", true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        reshard_layout *a = make(rows[i].a), *b = make(rows[i].b);
        assert_int_equal(rs_layouts_lie_alike(a, b), rows[i].alike);
        assert_int_equal(rs_layouts_lie_alike(b, a), rows[i].alike);
        reshard_layout_release(b);
        reshard_layout_release(a);
    }
}

static reshard_status hand_over_whole(void *user, int32_t ndim, const int64_t *of,
                                      reshard_shard_sink *sink)
{
    (void)user;
    reshard_piece piece = {.box = {.ndim = ndim, .size = {of[0], of[1]}}, .strides = {of[1], 1}};
    reshard_shard shard = {.ndim = ndim, .piece_count = 1, .pieces = &piece};
    memcpy(shard.shape, of, (size_t)ndim * sizeof *of);
    return reshard_shard_sink_add(sink, &shard);
}

static void test_derive__describe(void **state)
{
    (void)state;
    char text[600] = "128: S(0=";
    for (int i = 0; i < 127; i++)
        strcat(text, "0,");
    strcat(text, "6)");
    reshard_layout *layout = make(text);
    rs_layout_words words = rs_layout_describe(layout);
    assert_int_equal(strlen(words.text), sizeof words.text - 1);
    assert_memory_equal(words.text, text, sizeof words.text - 1);
    reshard_layout_release(layout);
    reshard_spec *spec = NULL;
    assert_int_equal(reshard_spec_callback(NULL, 0, hand_over_whole, NULL, NULL, &spec),
                     RESHARD_OK);
    assert_int_equal(reshard_layout_create(NULL, spec, 2, shape, &layout), RESHARD_OK);
    check_text(layout, "a callback's");
    reshard_spec_release(spec);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_derive__simple),   cmocka_unit_test(test_derive__replace_partial),
        cmocka_unit_test(test_derive__axes),     cmocka_unit_test(test_derive__lie_alike),
        cmocka_unit_test(test_derive__describe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
