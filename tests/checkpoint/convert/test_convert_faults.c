/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversions whose n-th read, write, kernel copy, sync, open, rename, .. or allocation fails, for
 * every n, and processes that die there: the target is whole or absent, the source is as it was,
 * the next run says what it found, and going on afterwards gives the right bytes.
 */
#include "convert_case.h"

#include "tests/support/check.h"
#include "tests/support/context.h"
#include "tests/support/info.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static convert_case files;
static const char *const patterns[] = {"*=layer.{1}"};
/* How to convert: both parts of the options. */
typedef struct way {
    reshard_conversion_options plan;
    reshard_conversion_run_options run;
} way;

static way options = {.plan = {.size = sizeof options.plan,
                               .to = "tp=2",
                               .rename_count = 1,
                               .renames = patterns,
                               .threads = 2,
                               .memory_bytes_max = (size_t)2 << 20},
                      .run = {.size = sizeof options.run, .journal_bytes = 1 << 18}};

static reshard_status convert(reshard_context *context, const char *source, const char *target,
                              const way *chosen)
{
    return reshard_convert(context, source, target, NULL, &chosen->plan, &chosen->run, NULL);
}

static int set_up(void **state)
{
    (void)state;
    if (convert_case_begin(&files) != 0)
        return -1;
    /* Rows and columns pass through memory, whole tensors are the kernel's to copy. */
    options.plan.rules = files.rules;
    return convert(NULL, files.source, files.expected, &options) == RESHARD_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    return convert_case_end(&files);
}

static reshard_status convert_from(const char *source, convert_faults *given, const way *chosen,
                                   int resume)
{
    const rs_file_calls calls = convert_faults_calls(given);
    way now = *chosen;
    reshard_context *context = NULL;
    now.run.resume = resume;
    assert_int_equal(reshard_context_create(NULL, &context), RESHARD_OK);
    rs_file_calls_set(context, &calls);
    reshard_status status = convert(context, source, files.target, &now);
    assert_int_equal(info_memory(context).bytes, 0);
    reshard_context_destroy(context);
    return status;
}

static reshard_status convert_with(convert_faults *given, int resume)
{
    return convert_from(files.source, given, &options, resume);
}

static void check_output(void)
{
    assert_true(convert_case_is_whole(&files));
    assert_false(convert_case_exists(files.partial));
    assert_true(convert_case_source_is_same(&files));
}

static bool has_journal(void)
{
    char journal[128];
    (void)snprintf(journal, sizeof journal, "%s/.reshard-journal", files.target);
    return convert_case_exists(journal);
}

/* After a conversion that did not come to its end: nothing, a partial folder, or all but the last
 * step. Completes it. */
static void check_and_resume(const char *source, const way *chosen)
{
    convert_faults none = {.countdown = 0};
    assert_true(convert_case_source_is_same(&files));
    if (convert_case_exists(files.target)) {
        assert_true(convert_case_is_whole(&files));
        assert_false(convert_case_exists(files.partial));
        if (!has_journal())
            return;
    }
    if (convert_case_exists(files.target) || convert_case_exists(files.partial)) {
        assert_int_equal(convert_from(source, &none, chosen, 0), RESHARD_ERR_UNFINISHED);
        assert_non_null(strstr(reshard_error_text(), "interrupted"));
        assert_non_null(strstr(reshard_error_text(), "resume it"));
    }
    if (convert_from(source, &none, chosen, 1) != RESHARD_OK)
        fail_msg("%s", reshard_error_text());
    check_output();
    assert_false(has_journal());
}

/* ---- errors ---------------------------------------------------------------------------------- */

static int fail_each(const char *source, int error, int no_copy, const way *chosen)
{
    for (int n = 1; n < 1000; n++) {
        convert_faults given = {.countdown = n, .error = error, .no_copy = no_copy};
        reshard_status status = convert_from(source, &given, chosen, 0);
        if (status == RESHARD_OK) {
            check_output();
            convert_case_remove(&files);
            if (atomic_load(&given.countdown) > 0)
                return n;
            continue; /* what failed was not needed: a link, or the sync after the end */
        }
        assert_int_equal(status, RESHARD_ERR_IO);
        assert_non_null(strstr(reshard_error_text(), strerror(error)));
        assert_non_null(strstr(reshard_error_text(), files.folder));
        check_and_resume(source, chosen);
        convert_case_remove(&files);
    }
    fail_msg("the conversion never succeeded");
    return 0;
}

static void test_faults__every_call_fails_once(void **state)
{
    (void)state;
    assert_true(fail_each(files.source, EIO, 0, &options) > 30);
    assert_true(fail_each(files.source, ENOSPC, 1, &options) > 30);
}

static void test_faults__every_call_fails_once_with_links(void **state)
{
    (void)state;
    convert_case kept = files;
    way whole = {{.size = sizeof whole.plan}, {.size = sizeof whole.run}};
    /* The source is a conversion's own output, so that its file can be linked. */
    (void)snprintf(files.expected, sizeof files.expected, "%s/hf", files.folder);
    assert_int_equal(convert(NULL, files.source, files.expected, &whole), RESHARD_OK);
    whole.run.link = 1;
    whole.run.verify = 1;
    assert_true(fail_each(files.expected, EIO, 0, &whole) > 20);
    assert_int_equal(rs_folder_remove(NULL, files.expected), RESHARD_OK);
    files = kept;
}

static void test_faults__resuming_fails_too(void **state)
{
    (void)state;
    for (int n = 1; n < 1000; n++) {
        convert_faults given = {.countdown = 30, .error = EIO};
        assert_int_equal(convert_with(&given, 0), RESHARD_ERR_IO);
        given = (convert_faults){.countdown = n, .error = EIO};
        reshard_status status = convert_with(&given, 1);
        bool ended = atomic_load(&given.countdown) > 0;
        assert_true(!ended || status == RESHARD_OK);
        if (status != RESHARD_OK)
            check_and_resume(files.source, &options);
        check_output();
        convert_case_remove(&files);
        if (ended)
            return;
    }
    fail_msg("resuming never succeeded");
}

static void test_faults__short_calls(void **state)
{
    (void)state;
    static const size_t most[] = {1000, 4096, 65537};
    for (size_t i = 0; i < sizeof most / sizeof most[0]; i++) {
        convert_faults given = {.most = most[i], .no_copy = i == 1};
        assert_int_equal(convert_with(&given, 0), RESHARD_OK);
        check_output();
        convert_case_remove(&files);
    }
}

static void test_faults__a_copy_that_stops_is_continued(void **state)
{
    (void)state;
    /* Three kinds of disks: no range can be copied, every other one can, or the beginning of every
     * other one. */
    static const struct {
        int no_copy;
        size_t most;
    } ways[] = {{1, 0}, {2, 0}, {2, 1500}};
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        convert_faults given = {.no_copy = ways[i].no_copy, .most = ways[i].most};
        assert_int_equal(convert_with(&given, 0), RESHARD_OK);
        assert_true(atomic_load(&given.copies) > 0);
        check_output();
        convert_case_remove(&files);
    }
}

static reshard_status attempt(reshard_context *context, void *user)
{
    static convert_faults none;
    static rs_file_calls calls;
    way chosen = options;
    (void)user;
    atomic_store(&none.countdown, 0);
    calls = convert_faults_calls(&none);
    chosen.plan.threads = 1;
    rs_file_calls_set(context, &calls);
    reshard_status status = convert(context, files.source, files.target, &chosen);
    if (convert_case_exists(files.target) != (status == RESHARD_OK))
        return RESHARD_ERR_CHECK;
    convert_case_remove(&files);
    return status;
}

static void test_faults__every_allocation_fails_once(void **state)
{
    (void)state;
    words said;
    memset(&said, 0, sizeof said);
    if (!context_fail_each(attempt, NULL, &said))
        fail_msg("%s", said.text);
}

/* ---- a full disk ----------------------------------------------------------------------------- */

/* There is room for the first file only. */
static int refuse_second(void *user, const char *what, const char *path)
{
    int *resized = user;
    (void)path;
    if (strcmp(what, "resize") != 0 || ++*resized != 2)
        return 0;
    errno = ENOSPC;
    return -1;
}

/* The bytes on disk of all files in the partial folder. */
static int64_t count_taken(void)
{
    int64_t bytes = 0;
    rs_names names = {.context = NULL};
    assert_int_equal(rs_folder_list(NULL, files.partial, &names), RESHARD_OK);
    for (int64_t i = 0; i < names.count; i++) {
        char path[256];
        struct stat found;
        (void)snprintf(path, sizeof path, "%s/%s", files.partial, names.items[i]);
        assert_int_equal(stat(path, &found), 0);
        bytes += (int64_t)found.st_blocks * 512;
    }
    assert_int_equal(names.count, 2);
    rs_names_release(&names);
    return bytes;
}

static void test_faults__full_disk_is_given_back(void **state)
{
    (void)state;
    int resized = 0;
    rs_file_calls calls = *rs_file_calls_system();
    reshard_context *context = NULL;
    convert_faults none = {.countdown = 0};
    calls.may = refuse_second;
    calls.user = &resized;
    assert_int_equal(reshard_context_create(NULL, &context), RESHARD_OK);
    rs_file_calls_set(context, &calls);
    assert_int_equal(convert(context, files.source, files.target, &options), RESHARD_ERR_IO);
    assert_non_null(strstr(reshard_error_text(), strerror(ENOSPC)));
    reshard_context_destroy(context);
    assert_int_equal(count_taken(), 0);
    assert_int_equal(convert_with(&none, 1), RESHARD_OK);
    check_output();
    convert_case_remove(&files);
}

/* ---- bytes that change on their way ---------------------------------------------------------- */

typedef struct meddler {
    const char *touched;        /* file to change at the first write; NULL: none */
    unsigned char *last, *hurt; /* what was read last, and what was changed when more was read */
    bool active;
} meddler;

/* Changes what was read before, once something else has been. */
static int64_t read_and_meddle(void *user, int descriptor, void *bytes, size_t count, uint64_t at)
{
    meddler *m = user;
    int64_t done = rs_file_calls_system()->read(NULL, descriptor, bytes, count, at);
    if (m->active && m->touched == NULL && m->hurt == NULL && count > 100000) {
        if (m->last != NULL && m->last != bytes) {
            m->hurt = m->last;
            m->hurt[1234] ^= 4;
        }
        m->last = bytes;
    }
    return done;
}

static int64_t write_and_meddle(void *user, int descriptor, const void *bytes, size_t count,
                                uint64_t at)
{
    meddler *m = user;
    if (m->active && m->touched != NULL) {
        const struct timespec times[2] = {{1, 0}, {1, 0}};
        assert_int_equal(utimensat(AT_FDCWD, m->touched, times, 0), 0);
        m->active = false;
    }
    return rs_file_calls_system()->write(NULL, descriptor, bytes, count, at);
}

static int64_t copy_nothing(void *user, int from, uint64_t from_at, int to, uint64_t to_at,
                            size_t count)
{
    (void)user, (void)from, (void)from_at, (void)to, (void)to_at, (void)count;
    errno = EXDEV;
    return -1;
}

static reshard_status convert_meddled(meddler *m, const char *source, const char *target,
                                      const way *chosen)
{
    const rs_file_calls *usual = rs_file_calls_system();
    rs_file_calls calls = {
        read_and_meddle, write_and_meddle, copy_nothing, usual->sync, m, NULL, NULL};
    reshard_context *context = NULL;
    assert_int_equal(reshard_context_create(NULL, &context), RESHARD_OK);
    rs_file_calls_set(context, &calls);
    reshard_status status = convert(context, source, target, chosen);
    assert_int_equal(info_memory(context).bytes, 0);
    reshard_context_destroy(context);
    return status;
}

/* Two columns become one tensor; a bit of the first is lost while the second is read. */
static void test_faults__memory_that_changes(void **state)
{
    (void)state;
    convert_case kept = files;
    way columns = {{.size = sizeof columns.plan, .to = "tp=3", .rules = files.rules},
                   {.size = sizeof columns.run, .no_sync = 1}};
    way whole = {{.size = sizeof whole.plan, .threads = 1},
                 {.size = sizeof whole.run, .no_sync = 1}};
    static const char *const only[] = {"b"};
    meddler m = {.active = false};
    (void)snprintf(files.expected, sizeof files.expected, "%s/columns", files.folder);
    assert_int_equal(convert(NULL, files.source, files.expected, &columns), RESHARD_OK);
    whole.plan.include_count = 1;
    whole.plan.includes = only;
    assert_int_equal(convert_meddled(&m, files.expected, files.target, &whole), RESHARD_OK);
    convert_case_remove(&files);
    m.active = true;
    assert_int_equal(convert_meddled(&m, files.expected, files.target, &whole), RESHARD_ERR_CHECK);
    assert_non_null(m.hurt);
    assert_non_null(strstr(reshard_error_text(), "tensor \"b\": the bytes about to be written"));
    assert_false(convert_case_exists(files.target));
    convert_case_remove(&files);
    assert_int_equal(rs_folder_remove(NULL, files.expected), RESHARD_OK);
    files = kept;
}

static void test_faults__source_that_changes(void **state)
{
    (void)state;
    char path[128];
    meddler m = {.touched = path, .active = true};
    way whole = {{.size = sizeof whole.plan}, {.size = sizeof whole.run, .no_sync = 1}};
    convert_case other = files;
    (void)snprintf(other.source, sizeof other.source, "%s/other", files.folder);
    (void)snprintf(path, sizeof path, "%s/model.safetensors", other.source);
    assert_int_equal(convert(NULL, files.source, other.source, &whole), RESHARD_OK);
    assert_int_equal(convert_meddled(&m, other.source, files.target, &options), RESHARD_ERR_CHECK);
    assert_non_null(
        strstr(reshard_error_text(), "other/model.safetensors: changed during the conversion"));
    assert_false(convert_case_exists(files.target));
    assert_true(convert_case_exists(files.partial));
    convert_case_remove(&files);
    assert_int_equal(convert_meddled(&m, other.source, files.target, &options), RESHARD_OK);
    convert_case_remove(&files);
    assert_int_equal(rs_folder_remove(NULL, other.source), RESHARD_OK);
}

/* ---- death ----------------------------------------------------------------------------------- */

/* In a process of its own, which is killed at its n-th call. Was it? */
static bool convert_and_die(int n, int resume)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        convert_faults given = {.countdown = n, .kills = 1, .no_copy = n % 2};
        const rs_file_calls calls = convert_faults_calls(&given);
        way chosen = options;
        reshard_context *context = NULL;
        chosen.run.resume = resume;
        if (reshard_context_create(NULL, &context) != RESHARD_OK)
            _exit(2);
        rs_file_calls_set(context, &calls);
        _exit(convert(context, files.source, files.target, &chosen) == RESHARD_OK ? 0 : 1);
    }
    int how = 0;
    assert_int_equal(waitpid(child, &how, 0), child);
    if (WIFSIGNALED(how)) {
        assert_int_equal(WTERMSIG(how), SIGKILL);
        return true;
    }
    assert_int_equal(WEXITSTATUS(how), 0);
    return false;
}

static void test_faults__killed_at_every_call(void **state)
{
    (void)state;
    int kills = 0;
    for (int n = 1; n < 1000 && convert_and_die(n, 0); n++) {
        kills++;
        check_and_resume(files.source, &options);
        convert_case_remove(&files);
    }
    check_output();
    convert_case_remove(&files);
    print_message("killed %d times\n", kills);
    assert_in_range(kills, 30, 900);
}

/* Killed again and again, each time a little further on than it comes by itself. */
static void test_faults__killed_while_resuming(void **state)
{
    (void)state;
    int kills = 0;
    for (int n = 12; convert_and_die(n, kills != 0); n++) {
        kills++;
        assert_true(convert_case_source_is_same(&files));
        assert_in_range(kills, 1, 900);
        if (!convert_case_exists(files.target))
            continue;
        assert_true(convert_case_is_whole(&files));
        if (!has_journal())
            break;
    }
    check_output();
    convert_case_remove(&files);
    print_message("killed %d times\n", kills);
    assert_true(kills > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_faults__every_call_fails_once),
        cmocka_unit_test(test_faults__every_call_fails_once_with_links),
        cmocka_unit_test(test_faults__resuming_fails_too),
        cmocka_unit_test(test_faults__short_calls),
        cmocka_unit_test(test_faults__a_copy_that_stops_is_continued),
        cmocka_unit_test(test_faults__every_allocation_fails_once),
        cmocka_unit_test(test_faults__full_disk_is_given_back),
        cmocka_unit_test(test_faults__memory_that_changes),
        cmocka_unit_test(test_faults__source_that_changes),
        cmocka_unit_test(test_faults__killed_at_every_call),
        cmocka_unit_test(test_faults__killed_while_resuming),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
