/* SPDX-License-Identifier: Apache-2.0 */
/* The text form of specs by cuts: what is legal and how it prints, what is not and which words it
 * gets. */
#include "spec_case.h"

#include "spec/spec.h"

typedef struct row {
    const char *text;
    const char *canonical;
} row;

typedef struct error_row {
    const char *text;
    reshard_status status;
    const char *words;
} error_row;

static void expect_rows(const row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++)
        spec_case_expect_canonical(rows[i].text, rows[i].canonical);
}

static void expect_error_rows(const error_row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++)
        spec_case_expect_error(rows[i].text, rows[i].status, rows[i].words);
}

#define COUNT(rows) (sizeof(rows) / sizeof *(rows))

/* ---- what is legal --------------------------------------------------------------------------- */

static void test_parse__examples(void **state)
{
    (void)state;
    static const row rows[] = {
        {"4: S(0)", "4: S(0)"},
        {"tp=4[3,1,0,2]: S(1)", "tp=4[3,1,0,2]: S(1)"},
        {"dp=2,tp=4: R, S(-1)", "dp=2,tp=4: R, S(-1)"},
        {"2[4..5]: S(0)", "2[4,5]: S(0)"},
        {"fsdp=4,tp=2: S(0)@tp, S(0)@fsdp", "fsdp=4,tp=2: S(0)@tp, S(0)@fsdp"},
        {"tp=8: S(0, unit=128, max=4)", "tp=8: S(0, unit=128, max=4)"},
    };
    expect_rows(rows, COUNT(rows));
}

static void test_parse__placements(void **state)
{
    (void)state;
    static const row rows[] = {
        {"4: R", "4: R"},
        {"4: P", "4: P(sum)"},
        {"4: P(sum)", "4: P(sum)"},
        {"4: P(avg)", "4: P(avg)"},
        {"4: P(prod)", "4: P(prod)"},
        {"4: P(min)", "4: P(min)"},
        {"4: P(max)", "4: P(max)"},
        {"4: P(band)", "4: P(band)"},
        {"2,2: P(bor), P(bor)", "2,2: P(bor), P(bor)"},
        {"4: P ( bxor )", "4: P(bxor)"},
        {"2,2: P(sum), P(avg)", "2,2: P(sum), P(avg)"},
        {"2,2: P(max), P(max)", "2,2: P(max), P(max)"},
        {"4: A(0)", "4: A(0)"},
        {"4: A(3,1)", "4: A(1,3)"},
        {"4: A(3,1,0,2)", "4: R"},
        {"1: A(0)", "1: A(0)"},
        {"1: S(0)", "1: S(0)"},
        {"1: P", "1: P(sum)"},
        {"4: S0", "4: S(0)"},
        {"4: S-1", "4: S(-1)"},
        {"4: S7", "4: S(7)"},
        {"4: S(-8)", "4: S(-8)"},
        {"4: S(-0)", "4: S(0)"},
        {"4: S(007)", "4: S(7)"},
        {"4: S(flat)", "4: S(flat)"},
        {"4: S(0~)", "4: S(0~)"},
        {"4: S(flat~)", "4: S(flat~)"},
        {"4: S(0;8,4,4)", "4: S(0;8,4,4)"},
        {"4: S(0;8)", "4: S(0;8)"},
        {"4: S(0;0)", "4: S(0;0)"},
        {"4: S(0;8|2,4,0|1)", "4: S(0;8|2,4,0|1)"},
        {"4: S(1*3)", "4: S(1*3)"},
        {"4: S(1*1)", "4: S(1)"},
        {"3: S(0=5,0,7)", "3: S(0=5,0,7)"},
        {"4: S(-2/16)", "4: S(-2/16)"},
        {"4: S(-2/1)", "4: S(-2/1)"},
        {"4: S(0,unit=1)", "4: S(0)"},
        {"4: S(0,unit=64)", "4: S(0, unit=64)"},
        {"4: S(0,max=2)", "4: S(0, max=2)"},
        {"4: S(0,max=2,unit=3)", "4: S(0, unit=3, max=2)"},
        {"4: S(0~,max=2,unit=3)", "4: S(0~, unit=3, max=2)"},
        {"4: S(0;8,4|2,unit=2)", "4: S(0;8,4|2, unit=2)"},
        {"2: S(0=7,max=1)", "2: S(0=7, max=1)"},
        {"2: S(flat/9223372036854775807)", "2: S(flat/9223372036854775807)"},
    };
    expect_rows(rows, COUNT(rows));
}

static void test_parse__order_of_cuts(void **state)
{
    (void)state;
    static const row rows[] = {
        {"2,2: S(0)@1, S(0)@0", "2,2: S(0)@1, S(0)@0"},
        {"2,2: S(0)@0, S(0)@1", "2,2: S(0), S(0)"},
        {"2,2: S(0)@1", "2,2: R, S(0)"},
        {"a=2,b=2: S(0)@b", "a=2,b=2: R, S(0)"},
        {"a=2,b=2: S(0)@1, S(1)@a", "a=2,b=2: S(0)@b, S(1)@a"},
        {"a=2,b=2: R@b, S(1)@a", "a=2,b=2: S(1), R"},
        {"a=2,b=2: R@b, R@a", "a=2,b=2: R, R"},
        {"a=2,b=2,c=2: S0@c, A(0,1)@b, R@a", "a=2,b=2,c=2: R, R, S(0)"},
        {"a=2,b=2,c=2: P@c, S0@b", "a=2,b=2,c=2: P(sum)@c, S(0)@b"},
        {"2,b=3: A(2)@b, A(1)@0", "2,b=3: A(2)@b, A(1)@0"},
    };
    expect_rows(rows, COUNT(rows));
}

static void test_parse__spaces(void **state)
{
    (void)state;
    static const row rows[] = {
        {"4:S(0)", "4: S(0)"},
        {"  4  :  S  (  0  )  ", "4: S(0)"},
        {"\t4\n:\r\nS 0\n", "4: S(0)"},
        {"dp = 2 , tp = 4 : R , S ( -1 ~ , unit = 2 , max = 3 )",
         "dp=2,tp=4: R, S(-1~, unit=2, max=3)"},
        {"4 [ 8 .. 10 / 2 , 3 , 1 ] : P ( max )", "4[8,10,3,1]: P(max)"},
        {"2,2: S ( 0 ; 8 | 2 , 4 ) @ 1 , A ( 1 ) @ 0", "2,2: S(0;8|2,4)@1, A(1)@0"},
    };
    expect_rows(rows, COUNT(rows));
}

/* Names that other parts of the language use are names all the same. */
static void test_parse__names(void **state)
{
    (void)state;
    static const row rows[] = {
        {"boxes=2: S(0)", "boxes=2: S(0)"},
        {"cover =2: S(0)", "cover=2: S(0)"},
        {"R=2,S=2,S0=2: S0@S0, R@R, P@S", "R=2,S=2,S0=2: S(0)@S0, P(sum)@S"},
        {"_a9=2,A=3: A(1)@A", "_a9=2,A=3: R, A(1)"},
    };
    expect_rows(rows, COUNT(rows));
}

/* ---- what is made of it ---------------------------------------------------------------------- */

static void test_parse__cuts_as_written(void **state)
{
    (void)state;
    reshard_spec *spec = spec_case_parse("dp=2,tp=4: R, S(-1;8|2,4, unit=2, max=3)");
    assert_int_equal(spec->kind, RESHARD_SPEC_CUTS);
    assert_int_equal(spec->cut_count, 2);
    assert_int_equal(spec->cuts[0].axis, 0);
    assert_int_equal(spec->cuts[0].placement.kind, RESHARD_REPLICATE);
    const reshard_cut *cut = &spec->cuts[1];
    assert_int_equal(cut->axis, 1);
    assert_int_equal(cut->placement.kind, RESHARD_SHARD);
    assert_int_equal(cut->placement.dim, -1);
    assert_int_equal(cut->placement.rule, RESHARD_PACKED);
    assert_int_equal(cut->placement.count, 2);
    assert_int_equal(cut->placement.values[0], 8);
    assert_int_equal(cut->placement.values[1], 4);
    assert_int_equal(cut->placement.part_max[0], 2);
    assert_int_equal(cut->placement.part_max[1], 0);
    assert_int_equal(cut->placement.unit, 2);
    assert_int_equal(cut->placement.max, 3);
    reshard_spec_info info = {.size = sizeof info};
    assert_int_equal(reshard_spec_get_info(spec, &info), RESHARD_OK);
    assert_int_equal(info.kind, RESHARD_SPEC_CUTS);
    assert_ptr_equal(info.mesh, spec->mesh);
    assert_int_equal(info.cut_count, 2);
    assert_ptr_equal(&info.cuts[1], cut);
    reshard_spec_release(spec);
}

static void test_parse__cuts_with_axes_as_written(void **state)
{
    (void)state;
    reshard_spec *spec = spec_case_parse("a=2,b=4,c=2: S(0;8)@c, R@a, A(3,1)@b");
    assert_int_equal(spec->cut_count, 3);
    assert_int_equal(spec->cuts[0].axis, 2);
    assert_null(spec->cuts[0].placement.part_max);
    assert_int_equal(spec->cuts[1].axis, 0);
    assert_int_equal(spec->cuts[1].placement.kind, RESHARD_REPLICATE);
    assert_int_equal(spec->cuts[2].axis, 1);
    assert_int_equal(spec->cuts[2].placement.values[0], 1);
    assert_int_equal(spec->cuts[2].placement.values[1], 3);
    assert_int_equal(spec->mesh->axis_count, 3);
    reshard_spec_release(spec);
}

/* ---- what is not legal ----------------------------------------------------------------------- */

static void test_parse__errors_of_meshes(void **state)
{
    (void)state;
    static const error_row rows[] = {
        {"", RESHARD_ERR_SYNTAX, "spec is empty"},
        {" \n\t ", RESHARD_ERR_SYNTAX, "spec is empty"},
        {"x", RESHARD_ERR_SYNTAX, "spec \"x\": at byte 2: expected \"=\", found the end"},
        {"4", RESHARD_ERR_SYNTAX, "at byte 2: expected \",\", \"[\" or \":\", found the end"},
        {": S(0)", RESHARD_ERR_SYNTAX, "at byte 1: expected an axis"},
        {"4,: S(0)", RESHARD_ERR_SYNTAX, "at byte 3: expected an axis"},
        {"-4: S(0)", RESHARD_ERR_SYNTAX, "at byte 1: expected an axis"},
        {"a=: S(0)", RESHARD_ERR_SYNTAX, "at byte 3: expected a number, found \":\""},
        {"a=b: S(0)", RESHARD_ERR_SYNTAX, "at byte 3: expected a number, found \"b\""},
        {"4 S(0)", RESHARD_ERR_SYNTAX, "at byte 3: expected \",\", \"[\" or \":\", found \"S\""},
        {"0: S(0)", RESHARD_ERR_RANGE, "at byte 1: an axis of size 0"},
        {"2,tp=0: S(0)", RESHARD_ERR_RANGE, "at byte 6: an axis of size 0"},
        {"2147483648: S(0)", RESHARD_ERR_RANGE, "an axis of size 2147483648"},
        {"65536,32768: S(0)", RESHARD_ERR_RANGE, "at byte 7: a mesh of more than 2^31-1 ranks"},
        {"9223372036854775808: R", RESHARD_ERR_RANGE, "at byte 1: number too large"},
        {"99999999999999999999999: R", RESHARD_ERR_RANGE, "at byte 1: number too large"},
        {"a=2,a=2: R, R", RESHARD_ERR_INVALID, "at byte 1: two axes are named \"a\""},
        {"1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1: R", RESHARD_ERR_RANGE, "more than 16 axes"},
        {"2[]: R", RESHARD_ERR_SYNTAX, "at byte 3: expected a rank, found \"]\""},
        {"2[0]: R", RESHARD_ERR_INVALID, "at byte 2: 1 ranks for a mesh of 2"},
        {"2[0,1,2]: R", RESHARD_ERR_INVALID, "at byte 7: 3 or more ranks for a mesh of 2"},
        {"2[0..2000000000]: R", RESHARD_ERR_INVALID, "2000000001 or more ranks for a mesh of 2"},
        {"2,1[1,1]: R, R", RESHARD_ERR_INVALID, "at byte 4: rank 1 occurs twice"},
        {"2,2[0..2,1]: S(0), S(1)", RESHARD_ERR_INVALID, "rank 1 occurs twice"},
        {"4[0..2,1]: P", RESHARD_ERR_INVALID, "P(sum): rank 1 occurs twice"},
        {"2[5..4]: R", RESHARD_ERR_INVALID, "at byte 3: ranks 5..4 end before they begin"},
        {"2[0..4/0]: R", RESHARD_ERR_RANGE, "at byte 8: a step of 0"},
        {"2[0..]: R", RESHARD_ERR_SYNTAX, "at byte 6: expected a rank"},
        {"2[0. .1]: R", RESHARD_ERR_SYNTAX, "at byte 4: expected \",\" or \"]\", found \".\""},
        {"2[0 1]: R", RESHARD_ERR_SYNTAX, "at byte 5: expected \",\" or \"]\", found \"1\""},
        {"2[-1,0]: R", RESHARD_ERR_SYNTAX, "at byte 3: expected a rank, found \"-\""},
        {"2[0,2147483648]: R", RESHARD_ERR_RANGE, "at byte 5: rank 2147483648 is beyond 2^31-1"},
        {"2[0,1: R", RESHARD_ERR_SYNTAX, "at byte 6: expected \",\" or \"]\", found \":\""},
        {"2[0,1] R", RESHARD_ERR_SYNTAX, "at byte 8: expected \":\", found \"R\""},
        {"2000000000[1000000000..1999999999,0..999999999]: R", RESHARD_ERR_RANGE,
         "ranks that are not one range"},
    };
    expect_error_rows(rows, COUNT(rows));
}

static void test_parse__errors_of_cuts(void **state)
{
    (void)state;
    static const error_row rows[] = {
        {"4: X", RESHARD_ERR_SYNTAX, "spec \"4: X\": at byte 4: unknown placement \"X\""},
        {"4: r", RESHARD_ERR_SYNTAX, "at byte 4: unknown placement \"r\""},
        {"4: RS", RESHARD_ERR_SYNTAX, "at byte 4: unknown placement \"RS\""},
        {"4: Sflat", RESHARD_ERR_SYNTAX, "at byte 4: unknown placement \"Sflat\""},
        {"4:", RESHARD_ERR_SYNTAX, "at byte 3: expected a placement (R, P, A or S), found the end"},
        {"4: R,", RESHARD_ERR_SYNTAX, "at byte 6: expected a placement"},
        {"4: 0", RESHARD_ERR_SYNTAX, "at byte 4: expected a placement (R, P, A or S), found \"0\""},
        {"4: \xc3\xa9", RESHARD_ERR_SYNTAX,
         "at byte 4: expected a placement (R, P, A or S), found the byte 0xc3"},
        {"4: R R", RESHARD_ERR_SYNTAX, "at byte 6: expected \",\", \"@\" or the end, found \"R\""},
        {"4: S", RESHARD_ERR_SYNTAX, "at byte 5: expected \"(\" or a dimension"},
        {"4: S()", RESHARD_ERR_SYNTAX, "at byte 6: expected a dimension or \"flat\", found \")\""},
        {"4: S(x)", RESHARD_ERR_SYNTAX, "at byte 6: expected a dimension or \"flat\", found \"x\""},
        {"4: S(0", RESHARD_ERR_SYNTAX, "at byte 7: expected \",\" or \")\", found the end"},
        {"4: S(- 1)", RESHARD_ERR_SYNTAX, "at byte 6: a space between"},
        {"4: S(--1)", RESHARD_ERR_SYNTAX, "at byte 7: expected a number, found \"-\""},
        {"4: S(+1)", RESHARD_ERR_SYNTAX, "at byte 6: expected a dimension"},
        {"4: S(8)", RESHARD_ERR_RANGE, "at byte 6: dimension 8 is not between -8 and 7"},
        {"4: S(-9)", RESHARD_ERR_RANGE, "at byte 6: dimension -9 is not between -8 and 7"},
        {"4: S-9", RESHARD_ERR_RANGE, "at byte 5: dimension -9"},
        {"4: S(-2147483648)", RESHARD_ERR_RANGE, "dimension -2147483648"},
        {"4: S(9223372036854775808)", RESHARD_ERR_RANGE, "at byte 6: number too large"},
        {"4: S(0~~)", RESHARD_ERR_SYNTAX, "at byte 8: expected \",\" or \")\", found \"~\""},
        {"4: S0~", RESHARD_ERR_SYNTAX, "at byte 6: expected \",\", \"@\" or the end, found \"~\""},
        {"4: S(0;)", RESHARD_ERR_SYNTAX, "at byte 8: expected a number, found \")\""},
        {"4: S(0;1,)", RESHARD_ERR_SYNTAX,
         "at byte 10: expected \"unit=\" or \"max=\", found \")\""},
        {"4: S(0;-1)", RESHARD_ERR_SYNTAX, "at byte 8: expected a number, found \"-\""},
        {"4: S(0;1|)", RESHARD_ERR_SYNTAX, "at byte 10: expected a number"},
        {"4: S(0;1|0)", RESHARD_ERR_RANGE, "at byte 10: expected a number of at least 1"},
        {"4: S(0=1|1)", RESHARD_ERR_SYNTAX, "at byte 9: expected \",\" or \")\", found \"|\""},
        {"4: S(0*0)", RESHARD_ERR_RANGE, "at byte 8: expected a number of at least 1"},
        {"4: S(0*)", RESHARD_ERR_SYNTAX, "at byte 8: expected a number"},
        {"4: S(0/0)", RESHARD_ERR_RANGE, "at byte 8: expected a number of at least 1"},
        {"4: S(0=1,2,3)", RESHARD_ERR_INVALID, "at byte 4: 3 sizes for an axis of size 4"},
        {"4: S(0,unit=0)", RESHARD_ERR_RANGE, "at byte 13: expected a number of at least 1"},
        {"4: S(0,max=0)", RESHARD_ERR_RANGE, "at byte 12: expected a number of at least 1"},
        {"4: S(0,unit=2,unit=2)", RESHARD_ERR_INVALID, "at byte 15: unit is given twice"},
        {"4: S(0,unit=1,unit=1)", RESHARD_ERR_INVALID, "at byte 15: unit is given twice"},
        {"4: S(0,max=2,max=2)", RESHARD_ERR_INVALID, "at byte 14: max is given twice"},
        {"4: S(0,mux=2)", RESHARD_ERR_SYNTAX, "at byte 8: unknown option \"mux\""},
        {"4: S(0,unit 2)", RESHARD_ERR_SYNTAX, "at byte 13: expected \"=\", found \"2\""},
        {"4: P(", RESHARD_ERR_SYNTAX, "at byte 6: expected a reduction, found the end"},
        {"4: P(sum", RESHARD_ERR_SYNTAX, "at byte 9: expected \")\", found the end"},
        {"4: P(sun)", RESHARD_ERR_SYNTAX, "at byte 6: unknown reduction \"sun\""},
        {"4: A", RESHARD_ERR_SYNTAX, "at byte 5: expected \"(\", found the end"},
        {"4: A()", RESHARD_ERR_SYNTAX, "at byte 6: expected a number, found \")\""},
        {"4: A(0,)", RESHARD_ERR_SYNTAX, "at byte 7: expected \",\" or \")\""},
        {"4: A(4)", RESHARD_ERR_RANGE, "at byte 4: coordinate 4 is not on an axis of size 4"},
        {"4: A(1,2,1)", RESHARD_ERR_INVALID, "at byte 4: coordinate 1 occurs twice"},
        {"2,2: S(0)", RESHARD_ERR_INVALID, "at byte 6: cuts: 1, but axes: 2"},
        {"2: R, R, R", RESHARD_ERR_INVALID, "at byte 4: cuts: 3, but axes: 1"},
        {"2,2: R, R@1", RESHARD_ERR_INVALID, "at byte 9: cuts with and without @axis"},
        {"2,2: R@1, R", RESHARD_ERR_INVALID, "at byte 11: cuts with and without @axis"},
        {"a=2,b=2: R@a, S0@a", RESHARD_ERR_INVALID, "at byte 18: axis a is cut twice"},
        {"2,b=2: R@1, S0@b", RESHARD_ERR_INVALID, "at byte 16: axis b is cut twice"},
        {"2,2: R@1, S0@1", RESHARD_ERR_INVALID, "at byte 14: axis 1 is cut twice"},
        {"dp=2,3: R@tp", RESHARD_ERR_INVALID,
         "at byte 11: unknown axis \"tp\" (the axes are dp, 1)"},
        {"dp=2,3: R@2", RESHARD_ERR_INVALID, "at byte 11: unknown axis \"2\" (the axes are dp, 1)"},
        {"dp=2,3: R@", RESHARD_ERR_SYNTAX, "at byte 11: expected the name or number of an axis"},
        {"dp=2,3: R@dp x", RESHARD_ERR_SYNTAX,
         "at byte 14: expected \",\" or the end, found \"x\""},
        {"2,2: P(sum), P(max)", RESHARD_ERR_UNSUPPORTED, "at byte 14: P(sum) and P(max)"},
        {"2,2,2: P, P(avg), P(min)", RESHARD_ERR_UNSUPPORTED, "P(sum) and P(min)"},
        {"2,2: P(prod)@1, P(avg)@0", RESHARD_ERR_UNSUPPORTED, "P(prod) and P(avg)"},
    };
    expect_error_rows(rows, COUNT(rows));
}

static void test_parse__no_text(void **state)
{
    (void)state;
    reshard_spec *spec = NULL;
    spec_case_expect_failure("NULL", reshard_spec_parse(NULL, NULL, &spec), RESHARD_ERR_SYNTAX,
                             "spec is empty");
    spec_case_expect_error("", RESHARD_ERR_SYNTAX, "spec is empty");
}

/* Texts of any length are quoted by their beginning, on one line. */
static void test_parse__excerpts(void **state)
{
    (void)state;
    static const error_row rows[] = {
        {"4: S(0) and then a very long text that goes on and on, for no good reason at all",
         RESHARD_ERR_SYNTAX,
         "spec \"4: S(0) and then a very long text that goes on and on, for n\xe2\x80\xa6\": at "
         "byte 9"},
        {"4:\nX\t", RESHARD_ERR_SYNTAX, "spec \"4:?X?\": at byte 4"},
        {"4: \xff", RESHARD_ERR_SYNTAX,
         "spec \"4: ?\": at byte 4: expected a placement (R, P, A or S), found the byte 0xff"},
    };
    expect_error_rows(rows, COUNT(rows));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse__examples),
        cmocka_unit_test(test_parse__placements),
        cmocka_unit_test(test_parse__order_of_cuts),
        cmocka_unit_test(test_parse__spaces),
        cmocka_unit_test(test_parse__names),
        cmocka_unit_test(test_parse__cuts_as_written),
        cmocka_unit_test(test_parse__cuts_with_axes_as_written),
        cmocka_unit_test(test_parse__errors_of_meshes),
        cmocka_unit_test(test_parse__errors_of_cuts),
        cmocka_unit_test(test_parse__no_text),
        cmocka_unit_test(test_parse__excerpts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
