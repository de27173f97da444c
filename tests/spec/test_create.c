/* SPDX-License-Identifier: Apache-2.0 */
/* Specs by constructors: equal to their text forms, checked alike, shared by references. */
#include "spec/spec.h"
#include "spec_case.h"
#include "tests/support/ran.h"

static reshard_mesh *make_mesh(const char *first, int32_t first_size, const char *second,
                               int32_t second_size)
{
    const char *names[] = {first, second};
    const int32_t sizes[] = {first_size, second_size};
    reshard_mesh *mesh = NULL;
    assert_int_equal(reshard_mesh_create(NULL, second != NULL ? 2 : 1, names, sizes, NULL, &mesh),
                     RESHARD_OK);
    return mesh;
}

/* ---- cuts ------------------------------------------------------------------------------------ */

static void expect_placement(const reshard_placement *placement, const char *expected)
{
    reshard_mesh *mesh = make_mesh("a", 4, NULL, 0);
    reshard_cut cut = {.axis = 0, .placement = *placement};
    reshard_spec *spec = NULL;
    reshard_status status = reshard_spec_create(NULL, mesh, 1, &cut, &spec);
    reshard_mesh_release(mesh);
    if (status != RESHARD_OK)
        fail_msg("%s: %s", expected, reshard_error_text());
    spec_case_expect_text(spec, expected);
    spec_case_expect_canonical(expected, expected);
}

/* Fields that the kind does not use hold garbage on purpose. */
static void test_create__placements(void **state)
{
    (void)state;
    const int64_t values[] = {3, 0, 2, 9};
    const int64_t limits[] = {2, 0, 0, 5};
    const int64_t no_limits[] = {0, 0, 0, 0};
    const struct {
        reshard_placement placement;
        const char *expected;
    } rows[] = {
        {{.kind = RESHARD_REPLICATE, .dim = 77, .count = 9, .factor = -1}, "a=4: R"},
        {{.kind = RESHARD_PARTIAL, .reduction = RESHARD_MAX, .dim = 77}, "a=4: P(max)"},
        {{.kind = RESHARD_AT, .count = 3, .values = values, .unit = 9}, "a=4: A(0,2,3)"},
        {{.kind = RESHARD_SHARD, .dim = -1, .factor = -5, .count = 7}, "a=4: S(-1)"},
        {{.kind = RESHARD_SHARD, .dim = RESHARD_DIM_FLAT}, "a=4: S(flat)"},
        {{.kind = RESHARD_SHARD, .rule = RESHARD_BALANCED, .unit = 1}, "a=4: S(0~)"},
        {{.kind = RESHARD_SHARD, .rule = RESHARD_PACKED, .count = 4, .values = values},
         "a=4: S(0;3,0,2,9)"},
        {{.kind = RESHARD_SHARD,
          .rule = RESHARD_PACKED,
          .count = 4,
          .values = values,
          .part_max = no_limits},
         "a=4: S(0;3,0,2,9)"},
        {{.kind = RESHARD_SHARD,
          .rule = RESHARD_PACKED,
          .count = 4,
          .values = values,
          .part_max = limits},
         "a=4: S(0;3|2,0,2,9|5)"},
        {{.kind = RESHARD_SHARD,
          .rule = RESHARD_RAGGED,
          .count = 4,
          .values = values,
          .part_max = limits},
         "a=4: S(0=3,0,2,9)"},
        {{.kind = RESHARD_SHARD, .rule = RESHARD_STRIDED, .factor = 3}, "a=4: S(0*3)"},
        {{.kind = RESHARD_SHARD, .rule = RESHARD_STRIDED, .factor = 1}, "a=4: S(0)"},
        {{.kind = RESHARD_SHARD, .rule = RESHARD_CYCLIC, .factor = 1}, "a=4: S(0/1)"},
        {{.kind = RESHARD_SHARD, .dim = 1, .unit = 128, .max = 2}, "a=4: S(1, unit=128, max=2)"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        expect_placement(&rows[i].placement, rows[i].expected);
}

static void test_create__wrong_placements(void **state)
{
    (void)state;
    const int64_t twice[] = {1, 2, 1};
    const int64_t beyond[] = {1, 4};
    const int64_t negative[] = {3, -2, 4, 4};
    const struct {
        reshard_placement placement;
        reshard_status status;
        const char *words;
    } rows[] = {
        {{.kind = (reshard_placement_kind)9},
         RESHARD_ERR_INVALID,
         "cut 0: unknown placement kind 9"},
        {{.kind = RESHARD_PARTIAL, .reduction = (reshard_reduction)9},
         RESHARD_ERR_INVALID,
         "unknown reduction 9"},
        {{.kind = RESHARD_SHARD, .rule = (reshard_shard_rule)9},
         RESHARD_ERR_INVALID,
         "unknown shard rule 9"},
        {{.kind = RESHARD_SHARD, .dim = 8}, RESHARD_ERR_RANGE, "cut 0: dimension 8"},
        {{.kind = RESHARD_SHARD, .dim = INT32_MIN + 1}, RESHARD_ERR_RANGE, "dimension -2147483647"},
        {{.kind = RESHARD_SHARD, .unit = -1}, RESHARD_ERR_RANGE, "a unit of -1"},
        {{.kind = RESHARD_SHARD, .max = -1}, RESHARD_ERR_RANGE, "at most -1 pieces"},
        {{.kind = RESHARD_SHARD, .rule = RESHARD_STRIDED},
         RESHARD_ERR_RANGE,
         "a split factor of 0"},
        {{.kind = RESHARD_SHARD, .rule = RESHARD_CYCLIC, .factor = -3},
         RESHARD_ERR_RANGE,
         "a block of -3"},
        {{.kind = RESHARD_SHARD, .rule = RESHARD_PACKED},
         RESHARD_ERR_INVALID,
         "no parts are given"},
        {{.kind = RESHARD_SHARD, .rule = RESHARD_PACKED, .count = 2},
         RESHARD_ERR_INVALID,
         "no parts are given"},
        {{.kind = RESHARD_SHARD, .rule = RESHARD_PACKED, .count = 2, .values = negative},
         RESHARD_ERR_RANGE,
         "-2 among the parts"},
        {{.kind = RESHARD_SHARD,
          .rule = RESHARD_PACKED,
          .count = 1,
          .values = twice,
          .part_max = negative + 1},
         RESHARD_ERR_RANGE,
         "part 0 has the negative limit -2"},
        {{.kind = RESHARD_SHARD, .rule = RESHARD_RAGGED, .count = 3, .values = twice},
         RESHARD_ERR_INVALID,
         "3 sizes for an axis of size 4"},
        {{.kind = RESHARD_SHARD, .rule = RESHARD_RAGGED, .count = 4, .values = negative},
         RESHARD_ERR_RANGE,
         "-2 among the sizes"},
        {{.kind = RESHARD_AT}, RESHARD_ERR_INVALID, "no coordinates are given"},
        {{.kind = RESHARD_AT, .count = 3, .values = twice},
         RESHARD_ERR_INVALID,
         "coordinate 1 occurs twice"},
        {{.kind = RESHARD_AT, .count = 2, .values = beyond},
         RESHARD_ERR_RANGE,
         "coordinate 4 is not on an axis of size 4"},
        {{.kind = RESHARD_AT, .count = 2, .values = negative},
         RESHARD_ERR_RANGE,
         "-2 among the coordinates"},
    };
    reshard_mesh *mesh = make_mesh("a", 4, NULL, 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        reshard_cut cut = {.axis = 0, .placement = rows[i].placement};
        reshard_spec *spec = NULL;
        reshard_status status = reshard_spec_create(NULL, mesh, 1, &cut, &spec);
        spec_case_expect_failure(rows[i].words, status, rows[i].status, rows[i].words);
        assert_null(spec);
    }
    reshard_mesh_release(mesh);
}

static void test_create__order_of_cuts(void **state)
{
    (void)state;
    reshard_mesh *mesh = make_mesh("dp", 2, "tp", 4);
    const reshard_cut cuts[] = {
        {.axis = 1, .placement = {.kind = RESHARD_SHARD, .dim = 0}},
        {.axis = 0, .placement = {.kind = RESHARD_SHARD, .dim = 1}},
    };
    const reshard_cut swapped[] = {cuts[1], cuts[0]};
    reshard_spec *spec = NULL;
    assert_int_equal(reshard_spec_create(NULL, mesh, 2, cuts, &spec), RESHARD_OK);
    spec_case_expect_text(spec, "dp=2,tp=4: S(0)@tp, S(1)@dp");
    assert_int_equal(reshard_spec_create(NULL, mesh, 2, swapped, &spec), RESHARD_OK);
    spec_case_expect_text(spec, "dp=2,tp=4: S(1), S(0)");
    assert_int_equal(reshard_spec_create(NULL, mesh, 1, cuts, &spec), RESHARD_OK);
    spec_case_expect_text(spec, "dp=2,tp=4: R, S(0)");
    assert_int_equal(reshard_spec_create(NULL, mesh, 0, NULL, &spec), RESHARD_OK);
    assert_int_equal(spec->cut_count, 0);
    spec_case_expect_text(spec, "dp=2,tp=4: R, R");
    reshard_mesh_release(mesh);
}

static void expect_cuts_error(reshard_mesh *mesh, int32_t count, const reshard_cut *cuts,
                              reshard_status expected, const char *words)
{
    reshard_spec *spec = NULL;
    spec_case_expect_failure(words, reshard_spec_create(NULL, mesh, count, cuts, &spec), expected,
                             words);
    assert_null(spec);
}

static void test_create__wrong_cuts(void **state)
{
    (void)state;
    reshard_mesh *mesh = make_mesh("dp", 2, "tp", 4);
    const reshard_cut twice[] = {{.axis = 1}, {.axis = 1}, {.axis = 0}};
    const reshard_cut beyond[] = {{.axis = 1}, {.axis = 2}};
    const reshard_cut below[] = {{.axis = -1}};
    const reshard_cut mixed[] = {
        {.axis = 0, .placement = {.kind = RESHARD_PARTIAL, .reduction = RESHARD_AVG}},
        {.axis = 1, .placement = {.kind = RESHARD_PARTIAL, .reduction = RESHARD_PROD}},
    };
    expect_cuts_error(NULL, 1, twice, RESHARD_ERR_INVALID, "without a mesh");
    expect_cuts_error(mesh, 1, NULL, RESHARD_ERR_INVALID, "without its cuts");
    expect_cuts_error(mesh, -1, twice, RESHARD_ERR_INVALID, "-1 cuts for a mesh of 2 axes");
    expect_cuts_error(mesh, 3, twice, RESHARD_ERR_INVALID, "3 cuts for a mesh of 2 axes");
    expect_cuts_error(mesh, 2, twice, RESHARD_ERR_INVALID, "cut 1: axis tp is cut twice");
    expect_cuts_error(mesh, 2, beyond, RESHARD_ERR_INVALID, "cut 1: axis 2 in a mesh of 2 axes");
    expect_cuts_error(mesh, 1, below, RESHARD_ERR_INVALID, "cut 0: axis -1 in a mesh of 2 axes");
    expect_cuts_error(mesh, 2, mixed, RESHARD_ERR_UNSUPPORTED, "cut 1: P(avg) and P(prod)");
    reshard_mesh_release(mesh);
}

static void test_create__chunk(void **state)
{
    (void)state;
    const int32_t ranks[] = {3, 1, 0, 2};
    const int32_t twice[] = {3, 1, 3, 2};
    reshard_spec *spec = NULL;
    static const int32_t dims[] = {0, -1};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(reshard_spec_chunk(NULL, dims[i], 2, NULL, &spec), RESHARD_OK);
        ran("test_chunked_sharding_spec", "%s", ran_spec(spec).text);
        spec_case_expect_text(spec, i == 0 ? "2: S(0)" : "2: S(-1)");
    }
    assert_int_equal(reshard_spec_chunk(NULL, 0, 4, NULL, &spec), RESHARD_OK);
    spec_case_expect_text(spec, "4: S(0)");
    assert_int_equal(reshard_spec_chunk(NULL, -2, 4, ranks, &spec), RESHARD_OK);
    spec_case_expect_text(spec, "4[3,1,0,2]: S(-2)");
    /* The caller's list is copied: the spec does not change with it, nor it with the spec. */
    int32_t own[] = {3, 1, 0, 2};
    assert_int_equal(reshard_spec_chunk(NULL, 0, 4, own, &spec), RESHARD_OK);
    assert_memory_equal(own, ranks, sizeof own);
    own[0] = own[1] = 7;
    spec_case_expect_text(spec, "4[3,1,0,2]: S(0)");
    assert_int_equal(reshard_spec_chunk(NULL, 0, 4, twice, &spec), RESHARD_OK);
    spec_case_expect_text(spec, "4[3,1,3,2]: S(0)"); /* rank 3 has two chunks */
    assert_int_equal(reshard_spec_chunk(NULL, 0, 0, ranks, &spec), RESHARD_ERR_RANGE);
    assert_int_equal(reshard_spec_chunk(NULL, 8, 4, ranks, &spec), RESHARD_ERR_RANGE);
}

/* ---- lives ----------------------------------------------------------------------------------- */

static void test_create__references(void **state)
{
    (void)state;
    reshard_mesh *mesh = make_mesh("a", 2, "b", 2);
    const reshard_cut cut = {.axis = 0, .placement = {.kind = RESHARD_SHARD}};
    reshard_spec *spec = NULL;
    assert_int_equal(reshard_spec_create(NULL, mesh, 1, &cut, &spec), RESHARD_OK);
    reshard_mesh_release(mesh); /* the spec has its own reference */
    assert_ptr_equal(spec->mesh, mesh);
    assert_ptr_equal(reshard_spec_retain(spec), spec);
    reshard_spec_release(spec);
    assert_int_equal(spec->mesh->size, 4);
    reshard_spec_release(spec);
    reshard_spec_release(NULL);
    assert_null(reshard_spec_retain(NULL));
}

static reshard_status tell_nothing(void *user, int32_t ndim, const int64_t *shape,
                                   reshard_shard_sink *sink)
{
    (void)user;
    (void)ndim;
    (void)shape;
    (void)sink;
    return RESHARD_OK;
}

static void count_call(void *user)
{
    ++*(int *)user;
}

static void test_create__callback(void **state)
{
    (void)state;
    int forgotten = 0;
    size_t length = 77;
    reshard_spec *spec = NULL;
    assert_int_equal(reshard_spec_callback(NULL, 0, NULL, NULL, NULL, &spec), RESHARD_ERR_INVALID);
    assert_int_equal(reshard_spec_callback(NULL, 0, tell_nothing, &forgotten, count_call, &spec),
                     RESHARD_OK);
    assert_int_equal(spec->kind, RESHARD_SPEC_CALLBACK);
    assert_null(spec->mesh);
    assert_int_equal(spec->cut_count, 0);
    spec_case_expect_failure("callback", reshard_spec_text(spec, NULL, 0, &length),
                             RESHARD_ERR_UNSUPPORTED, "has no text");
    assert_int_equal(length, 77);
    (void)reshard_spec_retain(spec);
    reshard_spec_release(spec);
    assert_int_equal(forgotten, 0);
    reshard_spec_release(spec);
    assert_int_equal(forgotten, 1);
    assert_int_equal(reshard_spec_callback(NULL, 1, tell_nothing, NULL, NULL, &spec), RESHARD_OK);
    reshard_spec_release(spec);
}

static void test_create__short_buffers(void **state)
{
    (void)state;
    static const char expected[] = "dp=2,tp=4[1,0,2..7]: R, S(-1~, unit=2)";
    reshard_spec *spec = spec_case_parse(expected);
    for (size_t capacity = 0; capacity <= sizeof expected + 1; capacity++) {
        char buffer[sizeof expected + 2];
        size_t length = 0;
        memset(buffer, '#', sizeof buffer);
        assert_int_equal(reshard_spec_text(spec, buffer, capacity, &length), RESHARD_OK);
        assert_int_equal(length, strlen(expected));
        size_t kept = capacity == 0 ? 0 : capacity - 1 < length ? capacity - 1 : length;
        assert_memory_equal(buffer, expected, kept);
        if (capacity > 0)
            assert_int_equal(buffer[kept], '\0');
        assert_int_equal(buffer[capacity], '#');
    }
    assert_int_equal(reshard_spec_text(spec, NULL, 0, NULL), RESHARD_OK);
    reshard_spec_release(spec);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_create__placements),
        cmocka_unit_test(test_create__wrong_placements),
        cmocka_unit_test(test_create__order_of_cuts),
        cmocka_unit_test(test_create__wrong_cuts),
        cmocka_unit_test(test_create__chunk),
        cmocka_unit_test(test_create__references),
        cmocka_unit_test(test_create__callback),
        cmocka_unit_test(test_create__short_buffers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
