/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts of 10 MB from strangers: an answer at once, in memory that is proportional to the text, and
 * an error text that is not.
 */
#include "spec_case.h"

#include "spec/spec.h"
#include "tests/support/info.h"

#include <inttypes.h>

#define LARGE_BYTES ((size_t)10 * 1000 * 1000)

/* A head, a unit repeated until the text is large, and a tail. */
typedef struct row {
    const char *head;
    const char *unit;
    const char *tail;
    reshard_status status;
    const char *words; /* of the error, or NULL */
} row;

static char *make_text(const row *given, size_t bytes, size_t *out_length)
{
    size_t head = strlen(given->head);
    size_t unit = strlen(given->unit);
    size_t tail = strlen(given->tail);
    char *text = malloc(head + bytes + 2 * unit + tail + 1);
    assert_non_null(text);
    memcpy(text, given->head, head);
    /* The first unit, then what there is so far again and again, in whole units. */
    size_t length = head + unit;
    memcpy(text + head, given->unit, unit);
    while (length < bytes) {
        size_t more = length - head < bytes - length ? length - head : bytes - length;
        more = (more + unit - 1) / unit * unit;
        memcpy(text + length, text + head, more);
        length += more;
    }
    memcpy(text + length, given->tail, tail + 1);
    *out_length = length + tail;
    return text;
}

static void expect_answer(const row *given, size_t bytes, size_t bytes_for_byte)
{
    size_t length = 0;
    char *text = make_text(given, bytes, &length);
    reshard_context *context = NULL;
    reshard_spec *spec = NULL;
    assert_int_equal(reshard_context_create(NULL, &context), RESHARD_OK);
    reshard_status status = reshard_spec_parse(context, text, &spec);
    if (given->words != NULL)
        spec_case_expect_failure(given->unit, status, given->status, given->words);
    else if (status != given->status)
        fail_msg("\"%s%s..%s\": %s", given->head, given->unit, given->tail, reshard_error_text());
    assert_true(strlen(reshard_error_text()) < 400);
    if (info_memory(context).bytes_peak > bytes_for_byte * length + 65536)
        fail_msg("\"%s%s..%s\" takes %zu bytes", given->head, given->unit, given->tail,
                 info_memory(context).bytes_peak);
    reshard_spec_release(spec);
    assert_int_equal(info_memory(context).bytes, 0);
    reshard_context_destroy(context);
    free(text);
}

static void test_large__garbage(void **state)
{
    (void)state;
    static const row rows[] = {
        {"", "S", "", RESHARD_ERR_SYNTAX, "expected \"=\", found the end"},
        {"", "(", "", RESHARD_ERR_SYNTAX, "at byte 1: expected an axis"},
        {"", "[", "", RESHARD_ERR_SYNTAX, "at byte 1: expected an axis"},
        {"", " ", "", RESHARD_ERR_SYNTAX, "spec is empty"},
        {"", "9", "", RESHARD_ERR_RANGE, "at byte 1: number too large"},
        {"", "1,", "", RESHARD_ERR_RANGE, "at byte 33: more than 16 axes"},
        {"4: ", "S(", "", RESHARD_ERR_SYNTAX, "at byte 6: expected a dimension"},
        {"4: ", "X", "", RESHARD_ERR_SYNTAX, "unknown placement \"XXX"},
        {"4: R@", "X", "", RESHARD_ERR_INVALID, "unknown axis \"XXX"},
        {"4: P(", "X", ")", RESHARD_ERR_SYNTAX, "unknown reduction \"XXX"},
        {"4: S(0,", "X", "=2)", RESHARD_ERR_SYNTAX, "unknown option \"XXX"},
        {"4: S(0,", "unit=2,", ")", RESHARD_ERR_INVALID, "at byte 15: unit is given twice"},
        {"2: ", "R,", "R", RESHARD_ERR_INVALID, ", but axes: 1"},
        {"2: ", "R@0,", "R", RESHARD_ERR_INVALID, "at byte 10: axis 0 is cut twice"},
        {"4[", "0,", "0]: R", RESHARD_ERR_INVALID, "5 or more ranks for a mesh of 4"},
        {"4[0..", "9", "]: R", RESHARD_ERR_RANGE, "at byte 6: number too large"},
        {"boxes ", "1x", "1: 0[]", RESHARD_ERR_RANGE, "more than 8 dimensions"},
        {"boxes 1: 0", "[", "]", RESHARD_ERR_SYNTAX, "expected a number"},
        {"boxes 1: 0[", "0:1,", "0:1]", RESHARD_ERR_INVALID, "dimensions in a tensor of 1"},
        {"boxes 1: 0[0:1]@", "0,", "0", RESHARD_ERR_INVALID, "numbers after @"},
        {"boxes 1: ", "0 ", "", RESHARD_ERR_SYNTAX, "expected \"[\", found \"0\""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        expect_answer(&rows[i], LARGE_BYTES, 8);
}

static void test_large__lists(void **state)
{
    (void)state;
    static const row rows[] = {
        {"", " ", "4: S(0)", RESHARD_OK, NULL},
        {"", "x", "=4: S(0)", RESHARD_OK, NULL},
        {"4: S(0;", "1,", "1)", RESHARD_OK, NULL},
        {"4: S(0;", "1|2,", "1)", RESHARD_OK, NULL},
        {"4: S(0=", "1,", "1)", RESHARD_ERR_INVALID, "sizes for an axis of size 4"},
        {"4: A(", "0,", "1)", RESHARD_ERR_INVALID, "coordinate 0 occurs twice"},
        {"4: A(", "3,2,1,0,", "4)", RESHARD_ERR_RANGE, "coordinate 4 is not on an axis"},
        {"2147483647[", "7,", "7]: R", RESHARD_ERR_INVALID, "ranks for a mesh of 2147483647"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        expect_answer(&rows[i], LARGE_BYTES, 64);
}

/* A shard is a few hundred bytes, and its text may be seven. */
static void test_large__boxes(void **state)
{
    (void)state;
    static const row rows[] = {
        {"cover 1: ", "0[0:1] ", "", RESHARD_OK, NULL},
        {"cover 1: 0[0:1]", "+[0:1]", "", RESHARD_OK, NULL},
        {"cover 1: 0[0:1]", "+[0:0]", "", RESHARD_OK, NULL},
        {"cover 1x1: 0[0:1,0:1]@0", "+[0:1,0:1]@0", "", RESHARD_ERR_INVALID, "more than one piece"},
        {"cover 1x1: 0[0:1,0:1]@0,0", "+[0:1,0:1]@7,0", "", RESHARD_ERR_INVALID,
         "no piece fills element (1,0)"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        expect_answer(&rows[i], LARGE_BYTES / 10, 256);
}

/* Ranks in no order, as many as a large machine has. */
static void test_large__mesh(void **state)
{
    (void)state;
    static const char text[] = "131072[65536..131071,0..65535]: S(0)";
    reshard_spec *spec = spec_case_parse(text);
    const reshard_mesh *mesh = spec->mesh;
    for (int32_t i = 0; i < 131072; i++) {
        int32_t rank = (i + 65536) % 131072;
        if (reshard_mesh_rank_at(mesh, i) != rank || reshard_mesh_position_of(mesh, rank) != i)
            fail_msg("position %" PRId32 " and rank %" PRId32, i, rank);
    }
    spec_case_expect_text(spec, text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_large__garbage),
        cmocka_unit_test(test_large__lists),
        cmocka_unit_test(test_large__boxes),
        cmocka_unit_test(test_large__mesh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
