/* SPDX-License-Identifier: Apache-2.0 */
/* A thread's error: its text, the fields beside it, and what keeps or clears them. */
#include "base/error.h"
#include "system/thread.h"
#include "tests/support/check.h"

#include <stddef.h>
#include <string.h>

static void test_error__has_words_and_returns_the_status(void **state)
{
    (void)state;
    assert_int_equal(rs_fail(RESHARD_ERR_RANGE, "rank %d of %d", 7, 4), RESHARD_ERR_RANGE);
    assert_string_equal(reshard_error_text(), "rank 7 of 4");
    assert_int_equal(rs_fail(RESHARD_ERR_GAP, "other words"), RESHARD_ERR_GAP);
    assert_string_equal(reshard_error_text(), "other words");
}

static void test_error__is_one_line(void **state)
{
    (void)state;
    (void)rs_fail(RESHARD_ERR_SYNTAX, "a\nb\rc\td\x1b[31me\x7f");
    assert_string_equal(reshard_error_text(), "a\\x0ab\\x0dc\\x09d\\x1b[31me\\x7f");
    (void)rs_fail_within(RESHARD_ERR_SYNTAX, "file\n%s", "x\v");
    assert_string_equal(reshard_error_text(),
                        "file\\x0ax\\x0b: a\\x0ab\\x0dc\\x09d\\x1b[31me\\x7f");
    (void)rs_fail(RESHARD_ERR_SYNTAX, "gr\xc3\xbc\xc3\x9f");
    assert_string_equal(reshard_error_text(), "gr\xc3\xbc\xc3\x9f");
}

static void test_error__may_quote_the_one_before(void **state)
{
    (void)state;
    (void)rs_fail(RESHARD_ERR_IO, "inner");
    (void)rs_fail(RESHARD_ERR_IO, "outer (%s)", reshard_error_text());
    assert_string_equal(reshard_error_text(), "outer (inner)");
}

static void test_error__within_adds_prefixes(void **state)
{
    (void)state;
    (void)rs_fail(RESHARD_ERR_INVALID, "dimension 2 does not exist");
    assert_int_equal(rs_fail_within(RESHARD_ERR_INVALID, "spec \"%s\"", "4: S(2)"),
                     RESHARD_ERR_INVALID);
    assert_int_equal(rs_fail_within(RESHARD_ERR_INVALID, "rank %d", 3), RESHARD_ERR_INVALID);
    assert_string_equal(reshard_error_text(),
                        "rank 3: spec \"4: S(2)\": dimension 2 does not exist");
}

static void test_error__within_leaves_success_alone(void **state)
{
    (void)state;
    (void)rs_fail(RESHARD_ERR_INVALID, "old words");
    assert_int_equal(rs_fail_within(RESHARD_OK, "prefix"), RESHARD_OK);
    assert_string_equal(reshard_error_text(), "old words");
}

static void test_error__is_cut_when_too_long(void **state)
{
    (void)state;
    static char long_text[5000];
    memset(long_text, 'x', sizeof long_text - 1);
    (void)rs_fail(RESHARD_ERR_INVALID, "%s", long_text);
    size_t length = strlen(reshard_error_text());
    assert_in_range(length, 500, 4096);
    for (int i = 0; i < 20; i++) {
        (void)rs_fail_within(RESHARD_ERR_INVALID, "%s", long_text);
        assert_in_range(strlen(reshard_error_text()), 1, length);
    }
    (void)rs_fail_within(RESHARD_ERR_INVALID, "front");
    assert_memory_equal(reshard_error_text(), "front: xxx", 10);
}

static void fail_elsewhere(void *user)
{
    int *out_was_empty = user;
    *out_was_empty = reshard_error_text()[0] == '\0';
    (void)rs_fail(RESHARD_ERR_IO, "from another thread");
}

static void test_error__belongs_to_its_thread(void **state)
{
    (void)state;
    int was_empty = 0;
    rs_thread thread;
    (void)rs_fail(RESHARD_ERR_INVALID, "mine");
    assert_int_equal(rs_thread_start(&thread, fail_elsewhere, &was_empty), RESHARD_OK);
    rs_thread_join(&thread);
    assert_true(was_empty);
    assert_string_equal(reshard_error_text(), "mine");
}

static reshard_error get_error(void)
{
    reshard_error error = {.size = sizeof error};
    assert_int_equal(reshard_error_get(&error), RESHARD_OK);
    return error;
}

static void test_error__fields(void **state)
{
    (void)state;
    assert_int_equal(rs_fail_hint(RESHARD_ERR_NOT_FOUND, RESHARD_HINT_SET_KEY, "head_dim",
                                  "$%s has no value", "head_dim"),
                     RESHARD_ERR_NOT_FOUND);
    reshard_error error = get_error();
    assert_int_equal(error.size, sizeof error);
    assert_int_equal(error.status, RESHARD_ERR_NOT_FOUND);
    assert_int_equal(error.hint, RESHARD_HINT_SET_KEY);
    assert_int_equal(error.has_rank, 0);
    assert_string_equal(error.subject, "head_dim");
    assert_string_equal(error.text, "$head_dim has no value");
    assert_ptr_equal(error.text, reshard_error_text());
    /* A prefix, and another status, keep them. */
    (void)rs_fail_within(RESHARD_ERR_INVALID, "rules:%d", 3);
    error = get_error();
    assert_int_equal(error.status, RESHARD_ERR_INVALID);
    assert_int_equal(error.hint, RESHARD_HINT_SET_KEY);
    assert_string_equal(error.subject, "head_dim");
    assert_string_equal(error.text, "rules:3: $head_dim has no value");
    assert_int_equal(rs_fail_as(RESHARD_ERR_CORRUPT), RESHARD_ERR_CORRUPT);
    assert_int_equal(get_error().status, RESHARD_ERR_CORRUPT);
    assert_int_equal(get_error().hint, RESHARD_HINT_SET_KEY);
    /* The next error has none. */
    (void)rs_fail(RESHARD_ERR_IO, "other words");
    error = get_error();
    assert_int_equal(error.status, RESHARD_ERR_IO);
    assert_int_equal(error.hint, RESHARD_HINT_NONE);
    assert_string_equal(error.subject, "");
}

static void test_error__subjects(void **state)
{
    (void)state;
    char path[RS_ERROR_SUBJECT_BYTES + 1];
    (void)rs_fail_about(RESHARD_ERR_IO, "a\nb", "is %d bytes long", 3);
    assert_string_equal(get_error().text, "a\\x0ab: is 3 bytes long");
    assert_string_equal(get_error().subject, "a\nb"); /* for programs, and so as it is */
    rs_error_add_subject("other", 5);
    assert_string_equal(get_error().subject, "a\nb");
    (void)rs_fail(RESHARD_ERR_IO, "x");
    (void)rs_fail_within_tensor(RESHARD_ERR_IO, (rs_slice){"weights", 6});
    assert_string_equal(get_error().text, "tensor \"weight\": x");
    assert_string_equal(get_error().subject, "weight");
    assert_int_equal(rs_fail_within_tensor(RESHARD_OK, (rs_slice){"other", 5}), RESHARD_OK);
    assert_string_equal(get_error().subject, "weight");
    /* One that is too long is left out. */
    memset(path, 'p', sizeof path);
    for (int more = 0; more < 2; more++) {
        path[RS_ERROR_SUBJECT_BYTES - 1 + more] = '\0';
        (void)rs_fail_about(RESHARD_ERR_IO, path, "is gone");
        assert_string_equal(get_error().subject, more ? "" : path);
        assert_int_equal(strlen(get_error().text), strlen(path) + strlen(": is gone"));
        path[RS_ERROR_SUBJECT_BYTES - 1 + more] = 'p';
    }
}

static void test_error__is_within(void **state)
{
    (void)state;
    static const struct {
        const char *subject, *path;
        bool is_within;
    } rows[] = {
        {"/m/a", "/m", true},  {"/m", "/m", true}, {"/m/a", "/m/", true}, {"/mm", "/m", false},
        {"/m", "/m/a", false}, {"", "/m", false},  {"/m", "", false},     {"/", "/", true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        (void)rs_fail_hint(RESHARD_ERR_IO, RESHARD_HINT_NONE, rows[i].subject, "x");
        assert_int_equal(rs_error_is_within(rows[i].path), rows[i].is_within);
    }
}

static void test_error__kept_and_put(void **state)
{
    (void)state;
    (void)rs_fail_of_rank(2, RESHARD_ERR_IO, RESHARD_HINT_RESUME, "out", "no room");
    const rs_error kept = *rs_error_last();
    const reshard_error error = get_error();
    assert_string_equal(error.text, "rank 2: no room");
    assert_true(error.has_rank != 0 && error.rank == 2);
    /* What was got may be put back. */
    assert_int_equal(reshard_error_put(&error), RESHARD_ERR_IO);
    assert_memory_equal(rs_error_last(), &kept, offsetof(rs_error, subject));
    assert_string_equal(rs_error_last()->subject, "out");
    assert_string_equal(rs_error_last()->text, "rank 2: no room");
    assert_int_equal(reshard_error_set(RESHARD_ERR_GAP, "plain"), RESHARD_ERR_GAP);
    assert_int_equal(get_error().hint, RESHARD_HINT_NONE);
    assert_int_equal(get_error().has_rank, 0);
    assert_int_equal(rs_fail_again(&kept), RESHARD_ERR_IO);
    assert_int_equal(get_error().hint, RESHARD_HINT_RESUME);
    assert_int_equal(get_error().rank, 2);
    assert_string_equal(get_error().subject, "out");
    /* Pointers that are NULL are empty, and text from outside is escaped. */
    assert_int_equal(reshard_error_put(&(const reshard_error){
                         .size = sizeof error, .status = RESHARD_ERR_CHECK, .text = "a\tb"}),
                     RESHARD_ERR_CHECK);
    assert_string_equal(reshard_error_text(), "a\\x09b");
    assert_string_equal(get_error().subject, "");
}

/* A program of an earlier or a later release has a shorter or longer struct. */
static void test_error__sizes(void **state)
{
    (void)state;
    struct {
        reshard_error error;
        int64_t more;
    } longer = {.error.size = sizeof longer, .more = 7};
    reshard_error shorter = {.size = offsetof(reshard_error, subject), .text = "unset"};
    reshard_error wrong = {.size = 0};
    (void)rs_fail_about(RESHARD_ERR_IO, "file", "gone");
    assert_int_equal(reshard_error_get(&longer.error), RESHARD_OK);
    assert_string_equal(longer.error.subject, "file");
    assert_int_equal(longer.more, 0);
    assert_int_equal(reshard_error_get(&shorter), RESHARD_OK);
    assert_int_equal(shorter.status, RESHARD_ERR_IO);
    assert_string_equal(shorter.text, "unset");
    assert_int_equal(reshard_error_get(&wrong), RESHARD_ERR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_error__has_words_and_returns_the_status),
        cmocka_unit_test(test_error__is_one_line),
        cmocka_unit_test(test_error__may_quote_the_one_before),
        cmocka_unit_test(test_error__within_adds_prefixes),
        cmocka_unit_test(test_error__within_leaves_success_alone),
        cmocka_unit_test(test_error__is_cut_when_too_long),
        cmocka_unit_test(test_error__belongs_to_its_thread),
        cmocka_unit_test(test_error__fields),
        cmocka_unit_test(test_error__subjects),
        cmocka_unit_test(test_error__is_within),
        cmocka_unit_test(test_error__kept_and_put),
        cmocka_unit_test(test_error__sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
