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

/* In what is expected, a dot stands for any character. */
static void check_text(const char *expected)
{
    char *text = NULL;
    size_t count = 0;
    assert_int_equal(rs_file_read_all(NULL, journal, 4096, &text, &count), RESHARD_OK);
    for (size_t i = 0; i < count && expected[i] != '\0'; i++)
        text[i] = expected[i] == '.' ? '.' : text[i];
    assert_string_equal(text, expected);
    rs_release(NULL, text);
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

#define HEAD "reshard conversion 3\n0123456789abcdeffedcba9876543210 1048576\n"
#define RUN "run ................\n"

static const rs_journal_head head = {{0x0123456789abcdef, 0xfedcba9876543210}, 1048576};

/* A run that records blocks 1 and 2 of ten, and ends there. */
static void begin_and_stop(void)
{
    rs_output output;
    rs_ledger ledger;
    rs_file *file = NULL;
    assert_int_equal(rs_output_create(&output, NULL, target, NULL, &head, false, true), RESHARD_OK);
    assert_false(output.resumed || output.named);
    check_text(HEAD RUN);
    assert_int_equal(rs_ledger_init(&ledger, NULL, 10), RESHARD_OK);
    assert_int_equal(rs_output_file(&output, "data", 5000, false, NULL, &file), RESHARD_OK);
    rs_file_close(file);
    rs_ledger_mark_done(&ledger, 1);
    rs_ledger_mark_done(&ledger, 2);
    rs_ledger_note(&ledger);
    rs_ledger_mark_done(&ledger, 3);
    assert_int_equal(rs_journal_record(&output.journal, &ledger, true), RESHARD_OK);
    rs_ledger_release(&ledger);
    rs_output_release(&output);
    check_text(HEAD RUN "done 1 2\n");
}

static void test_output__goes_on_where_it_stopped(void **state)
{
    (void)state;
    const rs_journal_head less_memory = {{head.digest[0], head.digest[1]}, 4096};
    rs_output output;
    rs_ledger ledger;
    rs_file *file = NULL;
    begin_and_stop();
    /* The last line is cut off. */
    change_journal("done 7 1\ndone 4 1", strlen(HEAD RUN "done 1 2\n"));
    assert_int_equal(rs_output_create(&output, NULL, target, NULL, &head, false, true),
                     RESHARD_ERR_UNFINISHED);
    rs_output_release(&output);
    assert_int_equal(rs_output_create(&output, NULL, target, NULL, &less_memory, true, true),
                     RESHARD_OK);
    assert_true(output.resumed && !output.named);
    assert_int_equal(output.journal.head.thread_bytes, 1048576);
    check_text(HEAD RUN "done 1 2\ndone 7 1\n" RUN);
    assert_int_equal(rs_ledger_init(&ledger, NULL, 10), RESHARD_OK);
    rs_journal_recall(&output.journal, &ledger);
    for (int64_t i = 0; i < 10; i++)
        assert_int_equal(rs_ledger_is_done(&ledger, i), i == 1 || i == 2 || i == 7);
    /* A file with recorded blocks must be as it was. */
    assert_int_equal(rs_output_file(&output, "data", 5001, true, NULL, &file), RESHARD_ERR_INVALID);
    assert_int_equal(rs_output_file(&output, "none", 5000, true, NULL, &file), RESHARD_ERR_INVALID);
    assert_int_equal(rs_output_publish(&output, true), RESHARD_ERR_INVALID);
    assert_non_null(strstr(reshard_error_text(), "out.partial/none has disappeared"));
    assert_int_equal(rs_output_file(&output, "none", 0, false, NULL, &file), RESHARD_OK);
    rs_file_close(file);
    assert_int_equal(rs_output_file(&output, "data", 5000, true, NULL, &file), RESHARD_OK);
    rs_file_close(file);
    rs_ledger_mark_done(&ledger, 9);
    rs_ledger_note(&ledger);
    assert_int_equal(rs_journal_record(&output.journal, &ledger, true), RESHARD_OK);
    assert_int_equal(rs_journal_end_blocks(&output.journal, 4, true), RESHARD_OK);
    assert_int_equal(rs_journal_end_blocks(&output.journal, 4, true), RESHARD_OK);
    check_text(HEAD RUN "done 1 2\ndone 7 1\n" RUN "done 9 1\nblocks done 4\n");
    assert_int_equal(rs_output_publish(&output, true), RESHARD_OK);
    assert_false(exists(partial) || exists(journal));
    assert_true(exists(target));
    rs_ledger_release(&ledger);
    rs_output_release(&output);
}

/* A file that an earlier run left and did not begin is made anew: nothing shows through. */
static void test_output__what_was_not_begun_is_zero(void **state)
{
    (void)state;
    char path[160], bytes[5000];
    rs_output output;
    rs_file *file = NULL;
    begin_and_stop();
    (void)snprintf(path, sizeof path, "%s/data", partial);
    assert_int_equal(rs_file_open_write(NULL, path, &file), RESHARD_OK);
    memset(bytes, 7, sizeof bytes);
    assert_int_equal(rs_file_write(file, bytes, sizeof bytes, 0), RESHARD_OK);
    rs_file_close(file);
    assert_int_equal(rs_output_create(&output, NULL, target, NULL, &head, true, true), RESHARD_OK);
    assert_int_equal(rs_output_file(&output, "data", 5000, false, NULL, &file), RESHARD_OK);
    assert_int_equal(rs_file_read(file, bytes, sizeof bytes, 0), RESHARD_OK);
    for (size_t i = 0; i < sizeof bytes; i++)
        assert_int_equal(bytes[i], 0);
    rs_file_close(file);
    rs_output_release(&output);
}

static void check_refused(const char *words)
{
    rs_output output;
    assert_int_equal(rs_output_create(&output, NULL, target, NULL, &head, true, true),
                     RESHARD_ERR_INVALID);
    if (strstr(reshard_error_text(), words) == NULL)
        fail_msg("%s", reshard_error_text());
    rs_output_release(&output);
}

static void test_output__refuses_what_is_not_its_own(void **state)
{
    (void)state;
    static const char *const foreign[] = {
        "",
        "not ours\n",
        "reshard conversion 1\n0123456789abcdeffedcba9876543210 1048576\n",
        HEAD "done 1 2 \n",
        HEAD "done 1\n2\n",
        HEAD "run 12\n",
        HEAD "what\n",
        HEAD "blocks done\n",
        HEAD "blocks done 04\n",
        "reshard conversion 3\n0123456789abcdeffedcba9876543210 0\n",
        "reshard conversion 3\n0123456789abcdeffedcba987654321 10\n"};
    const rs_journal_head other = {{head.digest[0], head.digest[1] + 1}, 1048576};
    rs_output output;
    begin_and_stop();
    assert_int_equal(rs_output_create(&output, NULL, target, NULL, &other, true, true),
                     RESHARD_ERR_INVALID);
    assert_non_null(strstr(reshard_error_text(), "belongs to another conversion"));
    rs_output_release(&output);
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++) {
        change_journal(foreign[i], 0);
        check_refused("a journal that this release of reshard did not write");
    }
    assert_int_equal(rs_path_remove(NULL, journal), RESHARD_OK);
    check_refused("it has no journal");
}

/* No head was written yet, or it was cut off: the run never began. */
static void test_output__head_cut_off(void **state)
{
    (void)state;
    for (int length = -1; length < (int)strlen(HEAD RUN); length += 7) {
        char path[160];
        rs_output output;
        rs_file *file = NULL;
        assert_int_equal(rs_folder_create(NULL, partial), RESHARD_OK);
        if (length >= 0) {
            (void)snprintf(path, sizeof path, "%s/" RS_JOURNAL_NEW_NAME, partial);
            assert_int_equal(rs_file_create(NULL, path, &file), RESHARD_OK);
            assert_int_equal(rs_file_write(file, HEAD RUN, (size_t)length, 0), RESHARD_OK);
            rs_file_close(file);
        }
        assert_int_equal(rs_output_create(&output, NULL, target, NULL, &head, true, true),
                         RESHARD_OK);
        assert_false(output.resumed);
        check_text(HEAD RUN);
        rs_output_discard(&output);
        rs_output_release(&output);
        assert_false(exists(partial));
    }
}

/* The folder has the target's name: finished, if its journal says so and not because of that. */
static void test_output__named(void **state)
{
    (void)state;
    rs_output_kind kind = RS_OUTPUT_OTHER;
    rs_output output;
    begin_and_stop();
    assert_int_equal(rs_path_rename(NULL, partial, target), RESHARD_OK);
    assert_int_equal(rs_output_look(NULL, target, &kind), RESHARD_OK);
    assert_int_equal(kind, RS_OUTPUT_UNFINISHED);
    assert_int_equal(rs_path_rename(NULL, target, partial), RESHARD_OK);
    /* "finished" is believed if all blocks are named: 2 of them are. */
    static const struct {
        const char *lines;
        rs_output_kind kind;
    } cases[] = {{"finished\n", RS_OUTPUT_UNFINISHED},
                 {"blocks done 3\nfinished\n", RS_OUTPUT_UNFINISHED},
                 {"blocks done 1\nfinished\n", RS_OUTPUT_UNFINISHED},
                 {"finished\nblocks done 2\n", RS_OUTPUT_UNFINISHED},
                 {"blocks done 3\ndone 7 1\nfinished\n", RS_OUTPUT_UNFINISHED},
                 {"blocks done 2\nfinished", RS_OUTPUT_UNFINISHED},
                 {"blocks done 2\nfinished\n", RS_OUTPUT_FINISHED}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        change_journal(cases[i].lines, strlen(HEAD RUN "done 1 2\n"));
        assert_int_equal(rs_path_rename(NULL, partial, target), RESHARD_OK);
        assert_int_equal(rs_output_look(NULL, target, &kind), RESHARD_OK);
        assert_int_equal(kind, cases[i].kind);
        if (kind == RS_OUTPUT_UNFINISHED)
            assert_int_equal(rs_path_rename(NULL, target, partial), RESHARD_OK);
    }
    char slashes[104];
    (void)snprintf(slashes, sizeof slashes, "%s//", target);
    assert_int_equal(rs_output_create(&output, NULL, slashes, NULL, &head, true, true), RESHARD_OK);
    assert_true(output.named && output.journal.state.finished);
    assert_string_equal(output.target, target);
    assert_string_equal(output.path, target);
    assert_int_equal(rs_output_publish(&output, false), RESHARD_OK);
    rs_output_release(&output);
    assert_int_equal(rs_output_look(NULL, target, &kind), RESHARD_OK);
    assert_int_equal(kind, RS_OUTPUT_OTHER);
}

/* One file gets the target's name, and its folder goes. If the run ends in between, the next one
 * removes the folder. */
static void test_output__one_file(void **state)
{
    (void)state;
    rs_output output;
    rs_output_kind kind = RS_OUTPUT_UNFINISHED;
    rs_path_kind found = RS_PATH_NONE;
    rs_file *file = NULL;
    char inside[160];
    (void)snprintf(inside, sizeof inside, "%s/data", partial);
    assert_int_equal(rs_output_create(&output, NULL, target, "data", &head, false, true),
                     RESHARD_OK);
    assert_int_equal(rs_output_file(&output, "data", 5000, false, NULL, &file), RESHARD_OK);
    rs_file_close(file);
    assert_int_equal(rs_journal_end_blocks(&output.journal, 0, true), RESHARD_OK);
    assert_int_equal(rs_journal_finish(&output.journal, true), RESHARD_OK);
    rs_output_release(&output);
    /* The folder still holds the file: another one of the target's name is not ours. */
    assert_int_equal(rs_file_create(NULL, target, &file), RESHARD_OK);
    rs_file_close(file);
    assert_int_equal(rs_output_look(NULL, target, &kind), RESHARD_OK);
    assert_int_equal(kind, RS_OUTPUT_OTHER);
    assert_int_equal(rs_path_remove(NULL, target), RESHARD_OK);
    assert_int_equal(rs_path_rename(NULL, inside, target), RESHARD_OK);
    assert_int_equal(rs_output_look(NULL, target, &kind), RESHARD_OK);
    assert_int_equal(kind, RS_OUTPUT_FINISHED);
    assert_int_equal(rs_output_create(&output, NULL, target, "data", &head, true, true),
                     RESHARD_OK);
    assert_true(output.resumed && output.named && output.journal.state.finished);
    assert_int_equal(rs_output_open_file(&output, "data", 5000, &file), RESHARD_OK);
    assert_string_equal(rs_file_path(file), target);
    rs_file_close(file);
    assert_int_equal(rs_output_publish(&output, true), RESHARD_OK);
    rs_output_release(&output);
    assert_int_equal(rs_path_kind_of(partial, &found), RESHARD_OK);
    assert_int_equal(found, RS_PATH_NONE);
    assert_int_equal(rs_path_kind_of(target, &found), RESHARD_OK);
    assert_int_equal(found, RS_PATH_FILE);
    assert_int_equal(rs_output_look(NULL, target, &kind), RESHARD_OK);
    assert_int_equal(kind, RS_OUTPUT_OTHER);
}

/* Another rank must find the run of the first one in its folder, and not that of an earlier one. */
static void test_output__joins_the_same_folder_only(void **state)
{
    (void)state;
    rs_output output, joined;
    begin_and_stop();
    assert_int_equal(rs_output_create(&output, NULL, target, NULL, &head, true, true), RESHARD_OK);
    uint64_t nonce = output.journal.state.nonce;
    assert_int_equal(rs_output_join(&joined, NULL, target, NULL, false, nonce), RESHARD_OK);
    rs_output_release(&joined);
    assert_int_equal(rs_output_join(&joined, NULL, target, NULL, true, nonce),
                     RESHARD_ERR_MISMATCH);
    rs_output_release(&joined);
    rs_output_release(&output);
    assert_int_equal(rs_output_create(&output, NULL, target, NULL, &head, true, true), RESHARD_OK);
    assert_true(output.journal.state.nonce != nonce);
    assert_int_equal(rs_output_join(&joined, NULL, target, NULL, false, nonce),
                     RESHARD_ERR_MISMATCH);
    assert_non_null(strstr(reshard_error_text(), "is not the folder that rank 0 writes into"));
    rs_output_release(&joined);
    rs_output_release(&output);
}

static void test_output__names_that_do_not_belong(void **state)
{
    (void)state;
    char path[160];
    rs_output output;
    rs_file *file = NULL;
    begin_and_stop();
    (void)snprintf(path, sizeof path, "%s/.theirs", partial);
    assert_int_equal(rs_file_create(NULL, path, &file), RESHARD_OK);
    rs_file_close(file);
    assert_int_equal(rs_output_create(&output, NULL, target, NULL, &head, true, true), RESHARD_OK);
    assert_int_equal(rs_output_expect(&output, "data"), RESHARD_OK);
    assert_int_equal(rs_output_check_names(&output, false), RESHARD_ERR_INVALID);
    assert_non_null(strstr(reshard_error_text(), "out.partial/.theirs does not belong there"));
    assert_int_equal(rs_output_publish(&output, true), RESHARD_ERR_INVALID);
    assert_false(exists(target));
    assert_int_equal(rs_path_remove(NULL, path), RESHARD_OK);
    assert_int_equal(rs_output_check_names(&output, false), RESHARD_OK);
    rs_output_release(&output);
}

/* The mode of the target is what the umask leaves, and the umask is nobody's to change. */
static void test_output__mode_by_umask(void **state)
{
    (void)state;
    static const mode_t masks[] = {022, 077, 027, 002};
    for (size_t i = 0; i < sizeof masks / sizeof masks[0]; i++) {
        rs_output output;
        struct stat found;
        mode_t before = umask(masks[i]);
        assert_int_equal(rs_output_create(&output, NULL, target, NULL, &head, false, true),
                         RESHARD_OK);
        assert_int_equal(stat(partial, &found), 0);
        assert_int_equal(found.st_mode & 0777, 0700);
        assert_int_equal(rs_output_publish(&output, true), RESHARD_OK);
        assert_int_equal(umask(before), masks[i]);
        rs_output_release(&output);
        assert_int_equal(stat(target, &found), 0);
        assert_int_equal(found.st_mode & 0777, 0777 & ~masks[i]);
        assert_int_equal(rs_folder_remove(NULL, target), RESHARD_OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_output__goes_on_where_it_stopped, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_output__refuses_what_is_not_its_own, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_output__head_cut_off, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_output__what_was_not_begun_is_zero, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_output__named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_output__one_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_output__joins_the_same_folder_only, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_output__names_that_do_not_belong, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_output__mode_by_umask, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
