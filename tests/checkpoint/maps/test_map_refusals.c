/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_map_refusals.c - what maps refuse, with line and column while they are read, and with line,
 * tensor and numbers while they are resolved; and what is beyond a limit.
 */
#include "checkpoint/maps/map.h"
#include "map_case.h"
#include "tests/support/check.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading --------------------------------------------------------------------------------- */

typedef struct bad_text {
    const char *map, *words;
} bad_text;

static const bad_text bad_texts[] = {
    {"", "map: the map has no lines"},
    {"a", "map:1:2: expected an = between two sides"},
    {"a = b = c", "map:1:7: expected the end of the line"},
    {"=", "map:1:1: the line has no tensors"},
    {"a = b\nc = d [i", "map:2:9: expected a ]"},
    {"a [(i] = b", "map:1:6: expected a )"},
    {"a [i i] = b", "map:1:6: axis i occurs twice in one tensor"},
    {"a [2 (2 i)] = b", "map:1:7: axis 2 occurs twice"},
    {"a [0] = b", "map:1:4: an axis has 0 elements"},
    {"a [.. i ..] = b", "map:1:9: .. occurs twice"},
    {"a [i-j] = b", "map:1:5: expected an axis"},
    {"a [(i + )] = b", "map:1:9: expected an axis"},
    {"a [(i + j) (k + l)] = b", "map:1:13: a tensor may have only one sum"},
    {"a [(i + (j + k))] = b", "a tensor may have only one sum"},
    {"a [i (i + j)] = b [i], c [j]", "map:1:3: axis i is both inside and outside the sum"},
    {"a = b [i", "expected a ]"},
    {"a.{n = b", "map:1:4: there is a { without its }"},
    {"a.n} = b", "map:1:4: there is a } without its {"},
    {"a.* = b", "map:1:3: * has no meaning in a name"},
    {"a\\", "nothing follows the \\"},
    {"a.{n}.{n} = b.{n}", "{n} occurs twice in one name"},
    {"a.{1} = b", "the name of a capture is a word"},
    {"a.{s:x,x} = b.{s}", "\"x\" is in the list twice"},
    {"a.{s:x,y} = b.{s:x,z}", "{s} meant something else before"},
    {"a.{s:x,y+1} = b.{s+1}", "only numbers can be shifted"},
    {"a.{n+} = b.{n}", "expected {n+k}"},
    {"a.{n} = b", "{n} of a.{n} is neither in the name of b nor one of its axes"},
    {"a.{n} [i] = b.{n} [n i]", "{n} is in the name of b.{n} and also one of its axes"},
    {"a.{x:*} [i] = b [x i]", "{x} stands for any text: only numbers and lists can be stacked"},
    {"a [i j] = b [i]", "axis j of a is not in b"},
    {"a [i] = b [i ..]", "b has further dimensions (..), but a does not"},
    {"a [i], b [i] = c [i]", "c needs a sum (a + b) of 2 blocks, one for each tensor on the other "
                             "side; it has 0"},
    {"a [i], b [i] = c [(i + i + i)]",
     "of 2 blocks, one for each tensor on the other side; it has 3"},
    {"a [(i + j)] = b [(i + j)]", "a is a sum of 2 blocks, and there is one tensor"},
    {"{a,b} = {c,d}", "2 tensors equal 2: one side has to be a single tensor"},
    {"a drop = b", "drop, fill(), copy() and object() need an empty other side"},
    {"{,a} drop =", "map:1:1: one of the names that {,a} stands for is empty"},
    {"a =", "the other side of a is empty: say drop"},
    {"a fill(1) =", "fill() needs axes: [] for a single number"},
    {"a [] fill(x) =", "map:1:6: fill() needs a number"},
    {"a [] fill(1e999) =", "is not a number"},
    {"a drop fill(1) =", "only one of drop"},
    {"a drop | b drop =", "alternatives need a tensor on the other side"},
    {"a = b object(some)", "the only object is object(none)"},
    {"a = b dropp", "\"dropp\" is not a word of maps"},
    {"a = b dropp", "did you mean drop?"},
    {"a = b f99", "\"f99\" is not a word of maps"},
    {"a = b pad(v)", "pad(v): expected an axis that is a whole dimension"},
    {"a [(v w)] = b [(v w)] pad(v)", "pad(v): expected an axis that is a whole dimension"},
    {"a = b when(n <)", "when(n <): expected a number or a $key"},
    {"a = b when(1 2)", "expected <, <=, >, >=, == or !=, and a number"},
    {"a = b when(1", "there is a ( without its )"},
    {"a = b with(c d)", "expected ) after the name of a tensor"},
    {"a = b with(c.{n})", "has a capture that no tensor of the line has"},
    {"a = b with({c,d})", "the list needs a name"},
    {"a = b | {c,d}", "the alternative has 2 tensors, the first one 1"},
    {"* = *\na = b", "map:1: * = * has to be the last line"},
    {"map a\nb = c", "map:1:6: expected a name"},
    {"map a b c\nb = c", "map:1:9: expected types"},
    {"for n\na = b", "expected < after n"},
    {"let n = \na = b", "expected a number or a $key"},
    {"let n = m\na = b", "m has no value"},
    {"let n = @tp\na = b", "\"@tp\": maps have no mesh, so there are no axes"},
    {"a when(@tp > 1) = b", "\"@tp\": maps have no mesh, so there are no axes"},
    {"let 1 = 2\na = b", "expected a name"},
    {"use other\na = b", "map:1:5: there is no map \"other\""},
    {"use\ta b\nc = d", "expected the end of the line"},
};

static void test_refusals__texts(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad_texts / sizeof *bad_texts; i++) {
        reshard_map *map = NULL;
        const char *text = bad_texts[i].map;
        if (reshard_map_parse(NULL, text, strlen(text), NULL, &map) == RESHARD_OK)
            fail_msg("%s: accepted", text);
        if (strstr(reshard_error_text(), bad_texts[i].words) == NULL)
            fail_msg("%s: \"%s\" does not say \"%s\"", text, reshard_error_text(),
                     bad_texts[i].words);
        assert_null(map);
    }
}

/* ---- resolving ------------------------------------------------------------------------------- */

typedef struct bad_case {
    const char *map, *read, *sets;
    reshard_map_side side;
    const char *words;
} bad_case;

#define LEFT RESHARD_MAP_LEFT
#define RIGHT RESHARD_MAP_RIGHT

static const bad_case bad_cases[] = {
    {"a = b", "a 1, c 1, d 1", NULL, LEFT, "no line matches \"c\" (or 1 others)"},
    {"a = b\nc = d", "a 1", NULL, LEFT, "map:2: there is no \"c\"; `optional` would allow that"},
    {"a = b\na = c", "a 1", NULL, LEFT, "map:2: \"a\" also belongs to line 1 of map"},
    {"a.{x:*} = b.{x}", "c 1", NULL, LEFT, "no line matches \"c\""},
    {"a.{x:*} = b.{x}\nc = c", "c 1", NULL, LEFT, "map:1: no tensor is called a.{x:*}"},
    {"a = b\nc = b", "a 1, c 1", NULL, LEFT, "map:2: \"b\" is already made by line 1"},
    {"a.{x:*} = b\\.{x}\na.{n} = c.{n}", "a.1 1", NULL, LEFT, "also belongs to line 1"},
    {"a [i j] = b [j i]", "a 2x2x2", NULL, LEFT,
     "map:1: \"a\" has 3 dimensions, but the line gives it 2"},
    {"a [i j ..] = b [j i ..]", "a 2", NULL, LEFT,
     "has 1 dimensions, but the line gives it at least 2"},
    {"let g = 4\na [(g h) ..] = b [(h g) ..]", "a 6", NULL, LEFT,
     "dimension 0 of \"a\" has 6 elements, which cannot be (g h) with g=4"},
    {"a [(g h)] = b [(h g)]", "a 6", NULL, LEFT, "map:1: nothing says how long axis g is"},
    {"a [i], b [i] = c [(i + i)]", "a 2, b 3", NULL, LEFT,
     "dimension 0 of \"b\" has 3 elements, which cannot be i with i=2"},
    {"a [i ..], b [i ..] = c [(i + i) ..]", "a 2x2, b 2x3", NULL, LEFT,
     "the further dimensions (..) of \"b\" differ"},
    {"{a,b} [i] = c [(i + i)]", "c 3", NULL, RIGHT, "dimension 0 of \"c\" has 3 elements"},
    {"{a,b} [i] = c [(i + i)]", "a 2", NULL, LEFT,
     "there is \"a\", but no \"b\", which belongs to it"},
    {"{n}.{a,b} [i] = c [n (i + i)]", "0.a 2, 1.a 2", NULL, LEFT,
     "there is \"0.a\", but no \"0.b\", which belongs to it"},
    {"{a,b} [i] = c [(i + i)] optional", "a 2", NULL, LEFT, "but no \"b\""},
    {"{a,b} [i] = c [(i + i)]", "a f16 2, b 2", NULL, LEFT, "\"a\" is f16 and \"b\" is f32"},
    {"e.{e} [i] = w [e i]", "e.0 1, e.2 1", NULL, LEFT, "there is \"e.0\", but no \"e.1\""},
    {"for e < 3\ne.{e} [i] = w [e i]", "e.0 1, e.1 1", NULL, LEFT, "but no \"e.2\""},
    {"for e < 3\ne.{e} [i] = w [e i]", "w 2x1", NULL, RIGHT,
     "dimension 0 of \"w\" has 2 elements, which cannot be e with e=3"},
    {"e.{e} [i] = w [e i]", "e.0 1, e.1 2", NULL, LEFT, "\"e.0\" is 1 and \"e.1\" is 2"},
    {"for n < 3\nl.{n} = m.{n}", "l.0 1, l.2 1", NULL, LEFT, "map:2: there is no \"l.1\""},
    {"for n < 2\nl.{n} = m.{n}", "l.0 1, l.1 1, l.2 1", NULL, LEFT, "no line matches \"l.2\""},
    {"for n < 2\nl.{n}.{s:w,b} = m.{n}.{s}", "l.0.w 1, l.1.w 1, l.0.b 1", NULL, LEFT,
     "there is no \"l.1.b\""},
    {"a = b | c", "b 1, c 1", NULL, RIGHT, "\"b\" and \"c\" are alternatives, and both exist"},
    {"let f = 2\na [f i] = b [f i] | b [i f]", "b 2x2", NULL, RIGHT,
     "several alternatives fit the shape of \"b\", and nothing decides between them"},
    {"let f = 2\na [f i] = b [f i] when(!$turned) | b [i f]", "b 2x2", NULL, RIGHT,
     "nothing decides between them: $turned has no value in config.json"},
    {"let f = 2\na [f i] = b [f i] | b [i f]", "b 3x3", NULL, RIGHT, "cannot be f with f=2"},
    {"a = b when($x) | c when($y)", "a 1", NULL, LEFT, "no alternative for b"},
    {"l.{n} = m.{n-1}", "l.0 1", NULL, LEFT, "a number in a name would be negative"},
    {"a = b\n= s.{n} [] fill(1)", "a 1", NULL, LEFT, "nothing says how many {n} there are"},
    {"a = b\n= s [h] fill(1)", "a 1", NULL, LEFT, "nothing says how long axis h is"},
    {"a = b\n= s [] fill(1)", "b 1, s 2", NULL, RIGHT,
     "\"s\" has 1 dimensions, but the line gives it 0"},
    {"a = b\n= c copy(d)", "a 1", NULL, LEFT, "copy(d): no line makes this tensor"},
    {"a = b\n= c copy(d)", "b 1, c 1", NULL, RIGHT,
     "\"c\" is a copy of \"d\", which does not exist"},
    {"a = b\n= c copy(b)", "b 1, c 2", NULL, RIGHT,
     "\"c\" cannot be a copy of \"b\": shape or dtype"},
    {"let v = 4\na [v i] = b [v i] pad(v)", "b 3x1", NULL, RIGHT, "cannot be v with v=4"},
    {"let v = 2\na [v i] = b [v i] pad(v)", "a 4x1", NULL, LEFT, "cannot be v with v=2"},
    {"let x = $k/2\na [x] = b [x]", "a 1", "k=3", LEFT, "map: let x: 3 / 2 is not a whole number"},
    {"l.{n} [i] = w [n i] with(x.{n})\nx.{n} = y.{n}", "w 1x1, y.0 1", NULL, RIGHT,
     "a capture that is stacked has no single value"},
    {"a = b", "a 1, a 1", NULL, LEFT, "two tensors are called \"a\""},
    {"a [i] = b [i 1 1 1 1 1 1 1 1]", "a 1", NULL, LEFT,
     "b has 9 dimensions; at most 8 are allowed"},
};

static void test_refusals__cases(void **state)
{
    (void)state;
    static char text[MAP_CASE_BYTES];
    for (size_t i = 0; i < sizeof bad_cases / sizeof *bad_cases; i++) {
        const bad_case *row = &bad_cases[i];
        map_case_run(row->map, row->side, row->read, row->sets, text, sizeof text);
        if (strstr(text, row->words) == NULL)
            fail_msg("%s\n%s: \"%s\" does not say \"%s\"", row->map, row->read, text, row->words);
    }
}

/* ---- limits ---------------------------------------------------------------------------------- */

static void expect_parse(const char *text, size_t bytes, const char *words)
{
    reshard_map *map = NULL;
    reshard_status status = reshard_map_parse(NULL, text, bytes, NULL, &map);
    reshard_map_release(map);
    if (words == NULL && status != RESHARD_OK)
        fail_msg("%.60s..: %s", text, reshard_error_text());
    if (words != NULL &&
        (status != RESHARD_ERR_RANGE || strstr(reshard_error_text(), words) == NULL))
        fail_msg("%.60s..: \"%s\" does not say \"%s\"", text, reshard_error_text(), words);
}

/* A text in which `part` is repeated, with %d replaced by numbers from 0. */
static void repeat(char *text, size_t capacity, const char *before, const char *part, int count,
                   const char *after)
{
    size_t length = (size_t)snprintf(text, capacity, "%s", before);
    for (int i = 0; i < count; i++)
        length += (size_t)snprintf(text + length, capacity - length, part, i, i);
    (void)snprintf(text + length, capacity - length, "%s", after);
}

typedef struct limit {
    const char *before, *part, *after;
    int most;
    const char *words;
} limit;

static const limit limits[] = {
    {"", "a%d = b%d\n", "", RS_MAP_LINES_MAX, "the map has more than 4096 lines"},
    {"a", ".{c%d}", " drop =", RS_MAP_CAPTURES_MAX, "the line has more than 8 captures"},
    {"a [", "x%d ", "] fill(0) =", RS_MAP_AXES_MAX, "the line has more than 24 axes"},
    {"{z", ",a%d", "} drop =", RS_MAP_PLACES_MAX - 1,
     "one side of the line has 17 tensors; at most 16 are allowed"},
    {"a drop", ", b%d drop", " =", RS_MAP_PLACES_MAX - 1, "one side of the line has 17 tensors"},
    {"a = b", " | c%d", "", RS_MAP_ALTERNATIVES_MAX - 1, "there are more than 8 alternatives"},
    {"a.{s:z", ",t%d", "} = b.{s}", RS_MAP_ITEMS_MAX - 1,
     "the list has 257 texts; at most 256 are allowed"},
    {"for z < 1", ", n%d < 2", "\na = b", RS_MAP_NAMES_MAX - 1, "there are more than 64 names"},
    {"a = b", " when(%d)", "", RS_MAP_CONDITIONS_MAX, "there are more than 4 conditions"},
    {"a", "{x%d:*}", " drop =", RS_MAP_OPEN_MAX, "the name has more than 2 captures of any text"},
};

static void test_limits__texts(void **state)
{
    (void)state;
    static char text[1 << 17];
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        const limit *row = &limits[i];
        repeat(text, sizeof text, row->before, row->part, row->most, row->after);
        expect_parse(text, strlen(text), NULL);
        repeat(text, sizeof text, row->before, row->part, row->most + 1, row->after);
        expect_parse(text, strlen(text), row->words);
    }
    expect_parse("a [((((((((i j))))))))] = b [(j i)]", 35, NULL);
    expect_parse("a [(((((((((i j)))))))))] = b [(j i)]", 37,
                 "there are more than 8 levels of parentheses");
    char *large = calloc(1, RS_MAP_BYTES_MAX + 1);
    assert_non_null(large);
    memset(large, ' ', RS_MAP_BYTES_MAX + 1);
    memcpy(large, "a = b", 5);
    expect_parse(large, RS_MAP_BYTES_MAX, NULL);
    expect_parse(large, RS_MAP_BYTES_MAX + 1,
                 "the map has 16777217 bytes; at most 16777216 are allowed");
    free(large);
}

/* A map that uses itself, and one that a chain of others uses. */
static const char *find_same(void *user, const char *name, size_t *out_bytes)
{
    (void)name;
    *out_bytes = strlen(user);
    return user;
}

static void test_limits__uses(void **state)
{
    (void)state;
    char text[] = "use again\n{x:**} = {x}";
    reshard_map_options options = {.size = sizeof options, .find = find_same, .user = text};
    reshard_map *map = NULL;
    assert_int_equal(reshard_map_parse(NULL, text, strlen(text), &options, &map),
                     RESHARD_ERR_RANGE);
    assert_non_null(strstr(reshard_error_text(), "more than 8 maps are used"));
}

static void test_limits__expansion(void **state)
{
    (void)state;
    static char text[MAP_CASE_BYTES];
    static const bad_case rows[] = {
        {"for n < 4194305\na = b\n= s.{n} [] fill(1)", "a 1", NULL, LEFT,
         "the line stands for 4194305 tensors: at most 4194304"},
        {"for n < 2049, m < 2048\na = b\n= s.{n}.{m} [] fill(1)", "a 1", NULL, LEFT,
         "the line stands for 4196352 tensors"},
        {"a.{n} [i] = b [n i]", "b 4194305x1", NULL, RIGHT, "the line makes 4194305 tensors"},
        {"a.{n} [i] = b [n i]", "a.9000000000 1", NULL, LEFT,
         "9000000001 tensors would be stacked"},
        {"for n < 9000000000\na.{n} = b.{n}", "a.0 1", NULL, LEFT,
         "the line stands for 9000000000 tensors"},
        {"let n = 4000000000\na = b\n= c [n (n n)] fill(0)", "a 1", NULL, LEFT, "occurs twice"},
        {"let n = 4000000000, m = 4000000000\na = b\n= c [n m] fill(0)", "a 1", NULL, LEFT,
         "\"c\" has more than 2^63-1 elements"},
        {"let n = 4000000000, m = 4000000000\na = b\n= c [(n m)] fill(0)", "a 1", NULL, LEFT,
         "a dimension of c has more than 2^63-1 elements"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        map_case_run(rows[i].map, rows[i].side, rows[i].read, NULL, text, sizeof text);
        if (strstr(text, rows[i].words) == NULL)
            fail_msg("%s: \"%s\" does not say \"%s\"", rows[i].map, text, rows[i].words);
    }
}

static void test_limits__names(void **state)
{
    (void)state;
    static char name[RS_MAP_NAME_BYTES_MAX + 1];
    reshard_map *map = NULL;
    reshard_map_result *result = NULL;
    memset(name, 'a', sizeof name - 1);
    reshard_map_tensor tensor = {.name = name, .dtype = RESHARD_F32};
    assert_int_equal(reshard_map_parse(NULL, "{x:**} = b{x}", 13, NULL, &map), RESHARD_OK);
    assert_int_equal(reshard_map_resolve(map, LEFT, 1, &tensor, NULL, &result), RESHARD_ERR_RANGE);
    assert_non_null(
        strstr(reshard_error_text(), "the name has 4096 bytes; at most 4095 are allowed"));
    name[RS_MAP_NAME_BYTES_MAX - 1] = '\0';
    assert_int_equal(reshard_map_resolve(map, LEFT, 1, &tensor, NULL, &result), RESHARD_ERR_RANGE);
    assert_non_null(strstr(reshard_error_text(), "map:1: the name has 4096 bytes"));
    name[RS_MAP_NAME_BYTES_MAX - 2] = '\0';
    assert_int_equal(reshard_map_resolve(map, LEFT, 1, &tensor, NULL, &result), RESHARD_OK);
    reshard_map_result_destroy(result);
    reshard_map_release(map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals__texts),   cmocka_unit_test(test_refusals__cases),
        cmocka_unit_test(test_limits__texts),     cmocka_unit_test(test_limits__uses),
        cmocka_unit_test(test_limits__expansion), cmocka_unit_test(test_limits__names),
    };
    return cmocka_run_group_tests_name("map_refusals", tests, NULL, NULL);
}
