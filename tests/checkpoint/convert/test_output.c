/* SPDX-License-Identifier: Apache-2.0 */
/* The folder that a conversion writes into and its journal, step by step. */
#include "checkpoint/convert/output.h"
#include "tests/support/check.h"

#include "base/context.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char folder[64], target[96], partial[112], journal[160];
static const uint64_t digest[2] = {0x0123456789abcdef, 0xfedcba9876543210};

static int set_up(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/reshard-output-XXXXXX");
    if (mkdtemp(folder) == NULL)
        return -1;
    (void)snprintf(target, sizeof target, "%s/out", folder);
    (void)snprintf(partial, sizeof partial, "%s/out.partial", folder);
    (void)snprintf(journal, sizeof journal, "%s/" RS_JOURNAL_NAME, partial);
    return 0;
}

static bool exists(const char *path)
{
    struct stat found;
    return lstat(path, &found) == 0;
}

static int tear_down(void **state)
{
    (void)state;
    const char *const left[] = {partial, target};
    for (int i = 0; i < 2; i++) {
        char path[160];
        (void)snprintf(path, sizeof path, "%s/" RS_JOURNAL_NAME, left[i]);
        (void)rs_path_remove(NULL, path);
        if (exists(left[i]))
            (void)rs_folder_remove(NULL, left[i]);
    }
    return rs_folder_remove(NULL, folder) == RESHARD_OK ? 0 : -1;
}

static void check_text(const char *expected)
{
    char *text = NULL;
    size_t count = 0;
    assert_int_equal(rs_file_read_all(NULL, journal, 4096, &text, &count), RESHARD_OK);
    assert_string_equal(text, expected);
    rs_release(NULL, text, count + 1);
}

/* Appends to the journal, or cuts it. */
static void change_journal(const char *text, uint64_t bytes)
{
    rs_file *file = NULL;
    assert_int_equal(rs_file_open_write(NULL, journal, &file), RESHARD_OK);
    assert_int_equal(rs_file_write(file, text, strlen(text), bytes), RESHARD_OK);
    assert_int_equal(rs_file_resize(file, bytes + strlen(text), false), RESHARD_OK);
    rs_file_close(file);
}

#define HEAD "reshard conversion 1\n0123456789abcdeffedcba9876543210 1048576\n"

/* A run that records blocks 1 and 2 of ten, and ends there. */
static void begin_and_stop(void)
{
    rs_output output;
    rs_ledger ledger;
    rs_file *file = NULL;
    assert_int_equal(rs_output_create(&output, NULL, target, digest, false), RESHARD_OK);
    assert_false(output.resumed || output.complete);
    assert_int_equal(rs_ledger_init(&ledger, NULL, 10), RESHARD_OK);
    assert_int_equal(rs_journal_begin(&output.journal, digest, 1048576), RESHARD_OK);
    assert_int_equal(rs_output_file(&output, "data", 5000, false, NULL, &file), RESHARD_OK);
    rs_file_close(file);
    rs_ledger_mark_done(&ledger, 1);
    rs_ledger_mark_done(&ledger, 2);
    rs_ledger_note(&ledger);
    rs_ledger_mark_done(&ledger, 3);
    assert_int_equal(rs_journal_record(&output.journal, &ledger, true), RESHARD_OK);
    rs_ledger_release(&ledger);
    rs_output_release(&output);
    check_text(HEAD "done 1 2\n");
}

static void test_output__goes_on_where_it_stopped(void **state)
{
    (void)state;
    rs_output output;
    rs_ledger ledger;
    rs_file *file = NULL;
    begin_and_stop();
    change_journal("done 7 1\ndone 4 1", strlen(HEAD "done 1 2\n")); /* the last line is cut off */
    assert_int_equal(rs_output_create(&output, NULL, target, digest, false),
                     RESHARD_ERR_UNFINISHED);
    rs_output_release(&output);
    assert_int_equal(rs_output_create(&output, NULL, target, digest, true), RESHARD_OK);
    assert_true(output.resumed && !output.complete);
    assert_int_equal(output.journal.thread_bytes, 1048576);
    assert_int_equal(rs_ledger_init(&ledger, NULL, 10), RESHARD_OK);
    rs_journal_recall(&output.journal, &ledger);
    for (int64_t i = 0; i < 10; i++)
        assert_int_equal(rs_ledger_is_done(&ledger, i), i == 1 || i == 2 || i == 7);
    /* A file with recorded blocks must be as it was. */
    assert_int_equal(rs_output_file(&output, "data", 5001, true, NULL, &file), RESHARD_ERR_INVALID);
    assert_int_equal(rs_output_file(&output, "none", 5000, true, NULL, &file), RESHARD_ERR_INVALID);
    assert_int_equal(rs_output_file(&output, "data", 5000, true, NULL, &file), RESHARD_OK);
    rs_file_close(file);
    rs_ledger_mark_done(&ledger, 9);
    rs_ledger_note(&ledger);
    assert_int_equal(rs_journal_begin(&output.journal, digest, 1), RESHARD_OK); /* has its head */
    assert_int_equal(rs_journal_record(&output.journal, &ledger, true), RESHARD_OK);
    check_text(HEAD "done 1 2\ndone 7 1\ndone 9 1\n");
    assert_int_equal(rs_output_publish(&output, true), RESHARD_OK);
    assert_false(exists(partial) || exists(journal));
    assert_true(exists(target));
    rs_ledger_release(&ledger);
    rs_output_release(&output);
}

static void test_output__refuses_what_is_not_its_own(void **state)
{
    (void)state;
    const uint64_t other[2] = {digest[0], digest[1] + 1};
    rs_output output;
    begin_and_stop();
    assert_int_equal(rs_output_create(&output, NULL, target, other, true), RESHARD_ERR_INVALID);
    assert_non_null(strstr(reshard_error_text(), "of another conversion"));
    rs_output_release(&output);
    change_journal("not ours\n", 0);
    assert_int_equal(rs_output_create(&output, NULL, target, digest, true), RESHARD_ERR_INVALID);
    assert_non_null(strstr(reshard_error_text(), "a journal that is not ours"));
    rs_output_release(&output);
    assert_int_equal(rs_path_remove(NULL, journal), RESHARD_OK);
    assert_int_equal(rs_output_create(&output, NULL, target, digest, true), RESHARD_ERR_INVALID);
    assert_non_null(strstr(reshard_error_text(), "it has no journal"));
    rs_output_release(&output);
}

/* A journal that was cut off in its head is that of a run that never began. */
static void test_output__head_cut_off(void **state)
{
    (void)state;
    for (size_t length = 0; length < strlen(HEAD); length += 7) {
        char head[128];
        rs_output output;
        begin_and_stop();
        memcpy(head, HEAD, length);
        head[length] = '\0';
        change_journal(head, 0);
        assert_int_equal(rs_output_create(&output, NULL, target, digest, true), RESHARD_OK);
        assert_int_equal(output.journal.thread_bytes, 0);
        assert_int_equal(rs_journal_begin(&output.journal, digest, 4096), RESHARD_OK);
        assert_int_equal(output.journal.thread_bytes, 4096);
        rs_output_discard(&output);
        rs_output_release(&output);
        assert_false(exists(partial));
    }
}

/* Interrupted between the name and the end: only the journal is left to be removed. */
static void test_output__complete(void **state)
{
    (void)state;
    bool complete = true;
    rs_output output;
    begin_and_stop();
    assert_int_equal(rs_path_rename(NULL, partial, target), RESHARD_OK);
    assert_int_equal(rs_output_is_complete(NULL, target, &complete), RESHARD_OK);
    assert_true(complete);
    char slashes[104];
    (void)snprintf(slashes, sizeof slashes, "%s//", target);
    assert_int_equal(rs_output_create(&output, NULL, slashes, digest, true), RESHARD_OK);
    assert_true(output.complete);
    assert_string_equal(output.target, target);
    assert_int_equal(rs_output_publish(&output, false), RESHARD_OK);
    rs_output_release(&output);
    assert_int_equal(rs_output_is_complete(NULL, target, &complete), RESHARD_OK);
    assert_false(complete);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_output__goes_on_where_it_stopped, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_output__refuses_what_is_not_its_own, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_output__head_cut_off, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_output__complete, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
