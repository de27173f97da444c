/* SPDX-License-Identifier: Apache-2.0 */
/* Meshes: axes and ranks, by text and by constructor, and the questions they answer. */
#include "spec/spec.h"
#include "spec_case.h"
#include "tests/support/info.h"

#include <inttypes.h>

static void expect_mesh_text(const reshard_mesh *mesh, const char *expected)
{
    char buffer[512];
    rs_text text;
    rs_text_init(&text, buffer, sizeof buffer);
    rs_mesh_text(mesh, &text);
    assert_string_equal(buffer, expected);
}

static void expect_create_error(int32_t axis_count, const char *const *names, const int32_t *sizes,
                                const int32_t *ranks, reshard_status expected, const char *words)
{
    reshard_mesh *mesh = NULL;
    reshard_status status = reshard_mesh_create(NULL, axis_count, names, sizes, ranks, &mesh);
    reshard_mesh_release(mesh);
    spec_case_expect_failure("mesh", status, expected, words);
}

static void test_mesh__axes(void **state)
{
    (void)state;
    const char *names[] = {"dp", NULL, "tp", ""};
    const int32_t sizes[] = {2, 3, 4, 1};
    reshard_mesh *mesh = NULL;
    assert_int_equal(reshard_mesh_create(NULL, 4, names, sizes, NULL, &mesh), RESHARD_OK);
    reshard_mesh_info info = {.size = sizeof info};
    assert_int_equal(reshard_mesh_get_info(mesh, &info), RESHARD_OK);
    assert_int_equal(info.axis_count, 4);
    assert_int_equal(info.position_count, 24);
    assert_memory_equal(info.sizes, sizes, sizeof sizes);
    assert_string_equal(info.names[2], "tp");
    assert_string_equal(info.names[1], "");
    assert_int_equal(rs_mesh_find_axis(mesh, "dp"), 0);
    assert_int_equal(rs_mesh_find_axis(mesh, "tp"), 2);
    assert_int_equal(rs_mesh_find_axis(mesh, "pp"), -1);
    assert_int_equal(rs_mesh_find_axis(mesh, ""), -1);
    assert_int_equal(rs_mesh_find_axis(mesh, NULL), -1);
    assert_int_equal(mesh->strides[0], 12);
    assert_int_equal(mesh->strides[1], 4);
    assert_int_equal(mesh->strides[2], 1);
    assert_int_equal(mesh->strides[3], 1);
    expect_mesh_text(mesh, "dp=2,3,tp=4,1");
    assert_ptr_equal(reshard_mesh_retain(mesh), mesh);
    reshard_mesh_release(mesh);
    assert_int_equal(mesh->size, 24);
    reshard_mesh_release(mesh);
    reshard_mesh_release(NULL);
    assert_null(reshard_mesh_retain(NULL));
}

static void test_mesh__wrong_axes(void **state)
{
    (void)state;
    const int32_t sizes[17] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    const int32_t large[] = {65536, 32768};
    const int32_t none[] = {2, 0};
    const char *twice[] = {"a", "b", "a"};
    const char *bad[] = {"1a"};
    const char *space[] = {" a"};
    const char *dash[] = {"a-b"};
    expect_create_error(0, NULL, sizes, NULL, RESHARD_ERR_RANGE, "0 axes");
    expect_create_error(-1, NULL, sizes, NULL, RESHARD_ERR_RANGE, "-1 axes");
    expect_create_error(17, NULL, sizes, NULL, RESHARD_ERR_RANGE, "17 axes");
    expect_create_error(1, NULL, NULL, NULL, RESHARD_ERR_INVALID, "sizes are NULL");
    expect_create_error(2, NULL, large, NULL, RESHARD_ERR_RANGE, "more than 2^31-1 ranks");
    expect_create_error(2, NULL, none, NULL, RESHARD_ERR_RANGE, "axis 1 has the size 0");
    expect_create_error(3, twice, sizes, NULL, RESHARD_ERR_INVALID, "two axes are named \"a\"");
    expect_create_error(1, bad, sizes, NULL, RESHARD_ERR_INVALID, "\"1a\" is not an axis name");
    expect_create_error(1, space, sizes, NULL, RESHARD_ERR_INVALID, "\" a\" is not an axis name");
    expect_create_error(1, dash, sizes, NULL, RESHARD_ERR_INVALID, "\"a-b\" is not an axis name");
}

static void test_mesh__wrong_ranks(void **state)
{
    (void)state;
    const int32_t four = 4, pairs[] = {2, 2};
    const int32_t twice[] = {7, 3, 5, 3};
    const int32_t equal[] = {3, 3, 3, 3};
    const int32_t negative[] = {0, 1, -2, 3};
    expect_create_error(2, NULL, pairs, twice, RESHARD_ERR_INVALID, "rank 3 occurs twice");
    expect_create_error(2, NULL, pairs, equal, RESHARD_ERR_INVALID, "rank 3 occurs twice");
    expect_create_error(1, NULL, &four, negative, RESHARD_ERR_RANGE, "rank -2 is negative");
}

/* On one axis a rank may have several positions, of which position_of tells the first. */
static void test_mesh__repeated_ranks(void **state)
{
    (void)state;
    const int32_t five = 5, ranks[] = {3, 0, 3, 3, 0};
    reshard_mesh *mesh = NULL;
    assert_int_equal(reshard_mesh_create(NULL, 1, NULL, &five, ranks, &mesh), RESHARD_OK);
    for (int32_t i = 0; i < five; i++)
        assert_int_equal(reshard_mesh_rank_at(mesh, i), ranks[i]);
    assert_int_equal(reshard_mesh_position_of(mesh, 3), 0);
    assert_int_equal(reshard_mesh_position_of(mesh, 0), 1);
    assert_int_equal(reshard_mesh_position_of(mesh, 1), -1);
    reshard_mesh_release(mesh);
}

/* Text, canonical text, and whether the ranks are kept without a list. */
static void test_mesh__ranks_by_text(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *canonical;
        bool listed;
    } rows[] = {
        {"4", "4", false},
        {"4[0..3]", "4", false},
        {"4[0,1,2,3]", "4", false},
        {"4[0..1,2..3]", "4", false},
        {"4[0,1..2,3]", "4", false},
        {"4[4..7]", "4[4..7]", false},
        {"4[4,5,6,7]", "4[4..7]", false},
        {"3[0,2,4]", "3[0..4/2]", false},
        {"3[0..5/2]", "3[0..4/2]", false},
        {"2[7,9]", "2[7,9]", false},
        {"2[9,7]", "2[9,7]", true},
        {"1[0]", "1", false},
        {"1[5]", "1[5]", false},
        {"1[5..6/99999999999]", "1[5]", false},
        {"4[3,2,1,0]", "4[3,2,1,0]", true},
        {"4[0,0,1,1]", "4[0,0,1,1]", true},
        {"3[5,5,5]", "3[5,5,5]", true},
        {"8[0..3,0..3]", "8[0..3,0..3]", true},
        {"4[3,1,0,2]", "4[3,1,0,2]", true},
        {"8[0..3,8..11]", "8[0..3,8..11]", true},
        {"6[0,1,2,4,6,8]", "6[0..2,4..8/2]", true},
        {"5[0,5,6,7,8]", "5[0,5..8]", true},
        {"4[0..4/2,1]", "4[0..4/2,1]", true},
        {"2,3[5,3,1,0..4/2]", "2,3[5,3,1,0..4/2]", true},
        {"1[2147483647]", "1[2147483647]", false},
        {"2[0..2147483647/2147483647]", "2[0,2147483647]", false},
        {"3[2147483645..2147483647]", "3[2147483645..2147483647]", false},
        {"2147483647", "2147483647", false},
        {"2147483647[1..2147483647]", "2147483647[1..2147483647]", false},
        {"2000000000[0..999999999,1000000000..1999999999]", "2000000000", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[128];
        char expected[128];
        const char *cuts =
            strchr(rows[i].canonical, ',') == rows[i].canonical + 1 ? ": R, R" : ": R";
        (void)snprintf(text, sizeof text, "%s%s", rows[i].text, cuts);
        (void)snprintf(expected, sizeof expected, "%s%s", rows[i].canonical, cuts);
        reshard_spec *spec = spec_case_parse(text);
        const reshard_mesh *mesh = spec->mesh;
        if ((mesh->listed != NULL) != rows[i].listed || (mesh->by_rank != NULL) != rows[i].listed)
            fail_msg("%s: the ranks are%s listed", text, rows[i].listed ? " not" : "");
        reshard_spec_release(spec);
        spec_case_expect_canonical(text, expected);
    }
}

static void expect_positions(const reshard_mesh *mesh, const int32_t *ranks)
{
    int32_t size = mesh->size;
    for (int32_t i = 0; i < size; i++) {
        assert_int_equal(reshard_mesh_rank_at(mesh, i), ranks[i]);
        assert_int_equal(reshard_mesh_position_of(mesh, ranks[i]), i);
    }
    assert_int_equal(reshard_mesh_rank_at(mesh, size), -1);
    assert_int_equal(reshard_mesh_rank_at(mesh, -1), -1);
}

/* Ranks that are not one range are listed, up to 2^24 of them. */
static void test_mesh__listed_ranks(void **state)
{
    (void)state;
    reshard_mesh *mesh = NULL;
    assert_int_equal(reshard_mesh_parse(NULL, "1000000[0,2..1000000]", &mesh), RESHARD_OK);
    reshard_mesh_release(mesh);
    mesh = NULL;
    assert_int_equal(reshard_mesh_parse(NULL, "16777217[0,2..16777217]", &mesh), RESHARD_ERR_RANGE);
    assert_non_null(strstr(reshard_error_text(),
                           "16777217 ranks that are not one range; at most 16777216 are possible"));
    assert_null(mesh);
}

static void test_mesh__positions(void **state)
{
    (void)state;
    static const int32_t rows[][6] = {
        {0, 1, 2, 3, 4, 5},
        {9, 7, 5, 3, 2, 0},
        {4, 6, 8, 10, 12, 14},
        {2147483647, 0, 5, 4, 3, 1000},
    };
    const int32_t sizes[] = {2, 3};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        reshard_mesh *mesh = NULL;
        assert_int_equal(reshard_mesh_create(NULL, 2, NULL, sizes, rows[i], &mesh), RESHARD_OK);
        expect_positions(mesh, rows[i]);
        assert_int_equal(reshard_mesh_position_of(mesh, 13), -1);
        assert_int_equal(reshard_mesh_position_of(mesh, 16), -1);
        assert_int_equal(reshard_mesh_position_of(mesh, -1), -1);
        assert_int_equal(reshard_mesh_position_of(mesh, INT32_MIN), -1);
        reshard_mesh_release(mesh);
    }
}

static void test_mesh__largest(void **state)
{
    (void)state;
    reshard_context *context = NULL;
    reshard_spec *spec = NULL;
    static const char text[] = "2147483647[1..2147483647]: S(0)";
    assert_int_equal(reshard_context_create(NULL, &context), RESHARD_OK);
    assert_int_equal(reshard_spec_parse(context, text, &spec), RESHARD_OK);
    const reshard_mesh *mesh = spec->mesh;
    assert_int_equal(mesh->size, INT32_MAX);
    assert_int_equal(reshard_mesh_rank_at(mesh, INT32_MAX - 1), INT32_MAX);
    assert_int_equal(reshard_mesh_position_of(mesh, INT32_MAX), INT32_MAX - 1);
    assert_int_equal(reshard_mesh_position_of(mesh, 0), -1);
    assert_true(info_memory(context).bytes_peak < 16384);
    reshard_spec_release(spec);
    assert_int_equal(info_memory(context).bytes, 0);
    reshard_context_destroy(context);
}

static void test_mesh__with_other_ranks(void **state)
{
    (void)state;
    const char *names[] = {"dp", "tp"};
    const int32_t sizes[] = {2, 2};
    const int32_t ranks[] = {3, 2, 1, 0};
    const int32_t wrong[] = {3, 2, 1, 3};
    reshard_mesh *mesh = NULL;
    reshard_mesh *other = NULL;
    assert_int_equal(reshard_mesh_create(NULL, 2, names, sizes, NULL, &mesh), RESHARD_OK);
    assert_int_equal(rs_mesh_with_ranks(mesh, ranks, &other), RESHARD_OK);
    expect_mesh_text(mesh, "dp=2,tp=2");
    expect_mesh_text(other, "dp=2,tp=2[3,2,1,0]");
    expect_positions(other, ranks);
    reshard_mesh_release(other);
    assert_int_equal(rs_mesh_with_ranks(mesh, wrong, &other), RESHARD_ERR_INVALID);
    reshard_mesh_release(mesh);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mesh__axes),          cmocka_unit_test(test_mesh__wrong_axes),
        cmocka_unit_test(test_mesh__wrong_ranks),   cmocka_unit_test(test_mesh__repeated_ranks),
        cmocka_unit_test(test_mesh__ranks_by_text), cmocka_unit_test(test_mesh__positions),
        cmocka_unit_test(test_mesh__largest),       cmocka_unit_test(test_mesh__with_other_ranks),
        cmocka_unit_test(test_mesh__listed_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
