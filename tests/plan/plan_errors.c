/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_errors.c - what is refused: links that overlap, leave gaps, go out of bounds or do not
 * multiply up, tensors that do not exist, types of fractions of bytes; always with words, and with
 * nothing made.
 */
#include <reshard/plan_inspect.h>

#include "plan/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

typedef struct tensors {
    reshard_plan_tensor source, target;
} tensors;

static void tensors_init(tensors *made, int64_t rows, int64_t columns)
{
    int64_t shape[2] = {rows, columns}, turned[2] = {columns, rows};
    made->source = (reshard_plan_tensor){"a", NULL, RESHARD_F32};
    made->target = (reshard_plan_tensor){"b", NULL, RESHARD_F32};
    assert_int_equal(reshard_layout_parse(NULL, "2: S(0)", 2, shape, &made->source.layout), 0);
    assert_int_equal(reshard_layout_parse(NULL, "2: S(1)", 2, turned, &made->target.layout), 0);
}

static void tensors_free(tensors *made)
{
    reshard_layout_release(made->source.layout);
    reshard_layout_release(made->target.layout);
}

static reshard_status try_links(const tensors *given, int32_t count, const reshard_link *links,
                                int zero_fill)
{
    reshard_plan *plan = NULL;
    reshard_plan_options options = {.size = sizeof options, .zero_fill = zero_fill};
    reshard_status status = reshard_plan_create(NULL, 1, &given->source, 1, &given->target, count,
                                                links, &options, &plan);
    if (status != RESHARD_OK) {
        assert_null(plan);
        assert_true(reshard_error_text()[0] != '\0');
    }
    reshard_plan_release(plan);
    return status;
}

static reshard_box make_box(int64_t row, int64_t column, int64_t rows, int64_t columns)
{
    return (reshard_box){.ndim = 2, .offset = {row, column}, .size = {rows, columns}};
}

static void test_errors__links(void **state)
{
    (void)state;
    tensors made;
    reshard_link two[2] = {reshard_link_whole(0, 0), reshard_link_whole(0, 0)};
    tensors_init(&made, 6, 6);
    assert_int_equal(try_links(&made, 1, two, 0), RESHARD_OK);
    assert_int_equal(try_links(&made, 2, two, 0), RESHARD_ERR_OVERLAP);
    two[0].source_box = two[0].target_box = make_box(0, 0, 3, 6);
    assert_int_equal(try_links(&made, 1, two, 0), RESHARD_ERR_GAP);
    assert_int_equal(try_links(&made, 1, two, 1), RESHARD_OK);
    two[1].source_box = two[1].target_box = make_box(2, 0, 4, 6);
    assert_int_equal(try_links(&made, 2, two, 0), RESHARD_ERR_OVERLAP);
    assert_int_equal(try_links(&made, 2, two, 1), RESHARD_ERR_OVERLAP);
    two[1].source_box = two[1].target_box = make_box(3, 0, 3, 6);
    assert_int_equal(try_links(&made, 2, two, 0), RESHARD_OK);
    assert_int_equal(try_links(&made, 0, NULL, 0), RESHARD_ERR_GAP);
    tensors_free(&made);
}

/* The number of a plan's ranks has to fit: the last rank that a spec can name is one too many. */
static void test_errors__last_rank(void **state)
{
    (void)state;
    static const char *const specs[] = {"1[2147483647]: R", "1[2147483646]: R"};
    int64_t shape = 4;
    for (int i = 0; i < 2; i++) {
        reshard_plan_tensor pair[2] = {{"a", NULL, RESHARD_F32}, {"b", NULL, RESHARD_F32}};
        reshard_plan *plan = NULL;
        reshard_link whole = reshard_link_whole(0, 0);
        assert_int_equal(reshard_layout_parse(NULL, "2: S(0)", 1, &shape, &pair[0].layout), 0);
        assert_int_equal(reshard_layout_parse(NULL, specs[i], 1, &shape, &pair[1].layout), 0);
        for (int way = 0; way < 2; way++) {
            reshard_status status =
                reshard_plan_create(NULL, 1, &pair[way], 1, &pair[1 - way], 1, &whole, NULL, &plan);
            assert_int_equal(status, i == 0 ? RESHARD_ERR_RANGE : RESHARD_OK);
            if (i == 0)
                assert_non_null(strstr(reshard_error_text(), "rank 2147483647"));
            else
                assert_int_equal(rs_plan_forward(plan)->rank_count, INT32_MAX);
            reshard_plan_release(plan);
            plan = NULL;
        }
        reshard_layout_release(pair[0].layout);
        reshard_layout_release(pair[1].layout);
    }
}

/* Overlapping links of the largest tensor: their sizes add up to more than there are numbers. */
static void test_errors__many_large_links(void **state)
{
    (void)state;
    tensors made;
    reshard_link three[3] = {reshard_link_whole(0, 0), reshard_link_whole(0, 0),
                             reshard_link_whole(0, 0)};
    tensors_init(&made, (int64_t)1 << 30, (int64_t)1 << 30);
    assert_int_equal(try_links(&made, 3, three, 1), RESHARD_ERR_OVERLAP);
    tensors_free(&made);
    tensors_init(&made, (int64_t)1 << 31, (int64_t)1 << 31);
    assert_int_equal(try_links(&made, 3, three, 1), RESHARD_ERR_OVERLAP);
    tensors_free(&made);
}

static void test_errors__one_link(void **state)
{
    (void)state;
    tensors made;
    reshard_link good = reshard_link_whole(0, 0), link;
    tensors_init(&made, 6, 4);
    good.factor_count = 2;
    good.factors[0] = 6;
    good.factors[1] = 4;
    good.order[0] = 1;
    assert_int_equal(try_links(&made, 1, &good, 0), RESHARD_OK);
    link = reshard_link_whole(0, 0); /* 6x4 is not 4x6 */
    assert_int_equal(try_links(&made, 1, &link, 0), RESHARD_ERR_INVALID);
    link = good;
    link.order[1] = 1; /* no permutation */
    assert_int_equal(try_links(&made, 1, &link, 0), RESHARD_ERR_INVALID);
    link = good;
    link.factors[2] = 4; /* a factor behind the last, which must not be looked at */
    link.order[1] = 2;
    assert_int_equal(try_links(&made, 1, &link, 0), RESHARD_ERR_INVALID);
    assert_non_null(strstr(reshard_error_text(), "the order of 2 factors has 2 at place 1"));
    link = good;
    link.factors[1] = 5; /* no product */
    assert_int_equal(try_links(&made, 1, &link, 0), RESHARD_ERR_INVALID);
    link = good;
    link.factors[1] = 0;
    assert_int_not_equal(try_links(&made, 1, &link, 0), RESHARD_OK);
    link = good;
    link.factor_count = RESHARD_FACTORS_MAX + 1;
    assert_int_not_equal(try_links(&made, 1, &link, 0), RESHARD_OK);
    link = good;
    link.factor_count = -1;
    assert_int_not_equal(try_links(&made, 1, &link, 0), RESHARD_OK);
    link = good;
    link.source = 1;
    assert_int_not_equal(try_links(&made, 1, &link, 0), RESHARD_OK);
    link = good;
    link.target = -1;
    assert_int_not_equal(try_links(&made, 1, &link, 0), RESHARD_OK);
    link = good;
    link.source_box = make_box(1, 0, 6, 4); /* out of bounds */
    assert_int_equal(try_links(&made, 1, &link, 0), RESHARD_ERR_RANGE);
    link.source_box = make_box(-1, 0, 6, 4);
    assert_int_equal(try_links(&made, 1, &link, 0), RESHARD_ERR_RANGE);
    link.source_box = make_box(0, 0, 6, 4);
    link.source_box.ndim = 1;
    assert_int_not_equal(try_links(&made, 1, &link, 0), RESHARD_OK);
    tensors_free(&made);
}

static void test_errors__options_and_types(void **state)
{
    (void)state;
    tensors made;
    reshard_plan *plan = NULL;
    reshard_plan_options options = {.size = 0};
    tensors_init(&made, 4, 4);
    assert_int_equal(reshard_plan_create_simple(NULL, made.source.layout, made.target.layout,
                                                RESHARD_F32, &options, &plan),
                     RESHARD_ERR_INVALID);
    assert_int_not_equal(reshard_plan_create_simple(NULL, made.source.layout, made.target.layout,
                                                    RESHARD_F4, NULL, &plan),
                         RESHARD_OK);
    assert_int_not_equal(reshard_plan_create_simple(NULL, made.source.layout, made.target.layout,
                                                    RESHARD_DTYPE_COUNT, NULL, &plan),
                         RESHARD_OK);
    options.size = sizeof options;
    options.balance = (reshard_balance)2;
    assert_int_equal(reshard_plan_create_simple(NULL, made.source.layout, made.target.layout,
                                                RESHARD_F32, &options, &plan),
                     RESHARD_ERR_INVALID);
    options.balance = RESHARD_BALANCE_RULE;
    options.size = offsetof(reshard_plan_options, staging_bytes_max);
    options.staging_bytes_max = RESHARD_STAGING_BYTES_MIN - 1;
    assert_int_equal(reshard_plan_create_simple(NULL, made.source.layout, made.target.layout,
                                                RESHARD_F32, &options, &plan),
                     RESHARD_OK); /* an older program's options end before it */
    reshard_plan_release(plan);
    plan = NULL;
    options.size = sizeof options;
    assert_int_not_equal(reshard_plan_create_simple(NULL, made.source.layout, made.target.layout,
                                                    RESHARD_F32, &options, &plan),
                         RESHARD_OK);
    assert_null(plan);
    tensors_free(&made);
    /* Shapes that differ cannot be planned simply. */
    tensors_init(&made, 4, 6);
    assert_int_equal(reshard_plan_create_simple(NULL, made.source.layout, made.target.layout,
                                                RESHARD_F32, NULL, &plan),
                     RESHARD_ERR_INVALID);
    assert_null(plan);
    tensors_free(&made);
}

static void test_errors__parts(void **state)
{
    (void)state;
    tensors made;
    reshard_plan *plan = NULL;
    reshard_part *part = NULL;
    reshard_stage_link link = {.size = sizeof link};
    tensors_init(&made, 4, 4);
    assert_int_equal(reshard_plan_create_simple(NULL, made.source.layout, made.target.layout,
                                                RESHARD_F32, NULL, &plan),
                     RESHARD_OK);
    assert_int_not_equal(reshard_part_create(NULL, plan, -1, &part), RESHARD_OK);
    assert_null(part);
    assert_int_not_equal(reshard_plan_stage_link(plan, 9, 0, &link), RESHARD_OK);
    assert_int_not_equal(reshard_plan_stage_link(plan, 0, 9, &link), RESHARD_OK);
    assert_int_not_equal(reshard_plan_stage_link(plan, -1, 0, &link), RESHARD_OK);
    reshard_plan_release(plan);
    reshard_plan_release(NULL);
    reshard_part_destroy(NULL);
    reshard_stream_destroy(NULL);
    tensors_free(&made);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_errors__links),    cmocka_unit_test(test_errors__many_large_links),
        cmocka_unit_test(test_errors__one_link), cmocka_unit_test(test_errors__options_and_types),
        cmocka_unit_test(test_errors__parts),    cmocka_unit_test(test_errors__last_rank),
    };
    return cmocka_run_group_tests_name("plan_errors", tests, NULL, NULL);
}
