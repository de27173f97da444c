/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_glob.c - patterns of names against a matcher that tries everything, and against time.
 */
#include "checkpoint/rules/glob.h"
#include "checkpoint/rules/rules.h"
#include "tests/support/check.h"
#include "tests/support/harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- the oracle ------------------------------------------------------------------------------ */

/* Matches by trying every length of every wildcard; exponential, for short texts. The pattern is
 * read from its text, without compiling it. */
static bool try_all(const char *glob, const char *name);

static bool try_number(const char *from, const char *to, const char *rest, const char *name)
{
    char *end, digits[16];
    long low = strtol(from, &end, 10), high = end + 2 < to ? strtol(end + 2, NULL, 10) : 1000000000;
    for (int length = 1; length <= (int)strspn(name, "0123456789"); length++) {
        (void)snprintf(digits, sizeof digits, "%.*s", length, name);
        long number = strtol(digits, NULL, 10);
        (void)snprintf(digits, sizeof digits, "%ld", number);
        if ((int)strlen(digits) == length && number >= low && number <= high &&
            try_all(rest, name + length))
            return true;
    }
    return false;
}

static bool try_braces(const char *glob, const char *name)
{
    const char *close = strchr(glob, '}');
    for (const char *item = glob + 1; item <= close;) {
        const char *end = item + strcspn(item, ",}");
        size_t length = (size_t)(end - item);
        const char *dots = strstr(item, "..");
        if (dots != NULL && dots < end) {
            if (try_number(item, end, close + 1, name))
                return true;
        } else if (strncmp(item, name, length) == 0 && try_all(close + 1, name + length)) {
            return true;
        }
        item = end + 1;
    }
    return false;
}

static bool try_all(const char *glob, const char *name)
{
    if (*glob == '\0')
        return *name == '\0';
    if (*glob == '*')
        return try_all(glob + 1, name) || (*name != '\0' && try_all(glob, name + 1));
    if (*glob == '{')
        return try_braces(glob, name);
    return *name != '\0' && (*glob == '?' || *glob == *name) && try_all(glob + 1, name + 1);
}

/* ---- properties ------------------------------------------------------------------------------ */

static void draw_pattern(draw_state *draw, char *glob)
{
    static const char *const parts[] = {"a", "b",     "1",    "ab",      "*",           "?",
                                        "*", "{a,b}", "{,a}", "{0..12}", "{ab,a,1..1}", "{3..}"};
    int64_t count = draw_between(draw, 0, 6);
    glob[0] = '\0';
    for (int64_t i = 0; i < count; i++)
        strcat(glob, parts[draw_below(draw, sizeof parts / sizeof *parts)]);
}

/* What the search found, the table finds too: for most names here the search alone decides. */
static bool table_agrees(const rs_glob *glob, const char *name, const rs_glob_span *spans,
                         bool matches)
{
    rs_glob_span other[RS_GLOB_ELEMENTS_MAX];
    bool other_matches = !matches;
    assert_int_equal(rs_glob_try_table(NULL, glob, name, strlen(name), other, &other_matches),
                     RESHARD_OK);
    if (matches && other_matches)
        return memcmp(spans, other, (size_t)glob->wildcard_count * sizeof *spans) == 0;
    return matches == other_matches;
}

/* The wildcards' texts put in their places give the name again. */
static bool spans_fit(const char *glob, const char *name, const rs_glob_span *spans)
{
    char built[256];
    size_t length = 0;
    while (*glob != '\0') {
        if (*glob == '*' || *glob == '?' || *glob == '{') {
            memcpy(built + length, name + spans->start, spans->end - spans->start);
            length += spans->end - spans->start;
            spans++;
            glob = *glob == '{' ? strchr(glob, '}') + 1 : glob + 1;
        } else {
            built[length++] = *glob++;
        }
    }
    return length == strlen(name) && memcmp(built, name, length) == 0;
}

static void test_glob__as_the_oracle(void **state)
{
    (void)state;
    int64_t matched = 0, rounds = harness_count(20000);
    for (int64_t round = 0; round < rounds; round++) {
        draw_state draw;
        char glob[128], name[16];
        draw_seed(&draw, harness_seed() + (uint64_t)round);
        draw_pattern(&draw, glob);
        int64_t length = draw_between(&draw, 0, 7);
        for (int64_t i = 0; i < length; i++)
            name[i] = "ab0123"[draw_below(&draw, 6)];
        name[length] = '\0';
        rs_arena arena;
        rs_glob compiled;
        rs_glob_span spans[RS_GLOB_ELEMENTS_MAX];
        bool matches = false;
        rs_arena_init(&arena, NULL);
        assert_int_equal(rs_glob_compile(&arena, glob, strlen(glob), &compiled), RESHARD_OK);
        assert_int_equal(rs_glob_try(NULL, &compiled, name, (size_t)length, spans, &matches),
                         RESHARD_OK);
        if (matches != try_all(glob, name) || (matches && !spans_fit(glob, name, spans)) ||
            !table_agrees(&compiled, name, spans, matches))
            fail_msg("\"%s\" and \"%s\" (seed %llu): %d", glob, name,
                     (unsigned long long)(harness_seed() + (uint64_t)round), matches);
        matched += matches;
        rs_arena_release(&arena);
    }
    assert_true(rounds < 1000 || (matched > rounds / 50 && matched < rounds / 2));
}

/* As little as it can: the first wildcard first. */
static void test_glob__spans(void **state)
{
    (void)state;
    rs_arena arena;
    rs_glob glob;
    rs_glob_span spans[3];
    bool matches = false;
    rs_arena_init(&arena, NULL);
    assert_int_equal(rs_glob_compile(&arena, "*.*.{0..}", 9, &glob), RESHARD_OK);
    assert_int_equal(glob.wildcard_count, 3);
    assert_int_equal(rs_glob_try(NULL, &glob, "a.b.c.10", 8, spans, &matches), RESHARD_OK);
    assert_true(matches);
    assert_int_equal(spans[0].end, 1);
    assert_int_equal(spans[1].start, 2);
    assert_int_equal(spans[1].end, 5);
    assert_int_equal(spans[2].start, 6);
    assert_int_equal(spans[2].end, 8);
    rs_arena_release(&arena);
}

static void test_glob__plain_calls(void **state)
{
    (void)state;
    bool matches = false;
    assert_int_equal(rs_glob_match("*.{w,b}", 7, "a.w", 3, &matches), RESHARD_OK);
    assert_true(matches);
    assert_int_equal(rs_glob_match("*.{w,b}", 7, "a.w\0", 4, &matches), RESHARD_OK);
    assert_false(matches);
    assert_int_equal(rs_glob_match("a?b", 3, "a\0b", 3, &matches), RESHARD_OK);
    assert_true(matches);
    assert_int_equal(rs_glob_match("", 0, "", 0, &matches), RESHARD_OK);
    assert_true(matches);
    assert_int_equal(rs_glob_match("{", 1, "", 0, &matches), RESHARD_ERR_SYNTAX);
    assert_int_equal(rs_glob_match("a\0b", 3, "", 0, &matches), RESHARD_ERR_SYNTAX);
}

/* What takes a backtracking matcher for ever. */
static void test_glob__hostile(void **state)
{
    (void)state;
    char glob[128], *name = malloc(20000);
    bool matches = true;
    assert_non_null(name);
    memset(name, 'a', 20000);
    for (int i = 0; i < 58; i += 2)
        memcpy(glob + i, "*a", 2);
    memcpy(glob + 58, "*b*", 4);
    clock_t start = clock();
    assert_int_equal(rs_glob_match(glob, strlen(glob), name, 20000, &matches), RESHARD_OK);
    assert_false(matches);
    assert_true((double)(clock() - start) / CLOCKS_PER_SEC < 20);
    free(name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_glob__as_the_oracle),
        cmocka_unit_test(test_glob__spans),
        cmocka_unit_test(test_glob__plain_calls),
        cmocka_unit_test(test_glob__hostile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
