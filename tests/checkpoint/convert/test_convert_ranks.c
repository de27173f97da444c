/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversions that ranks share, as threads and in simulated orders: the bytes are those of one rank
 * alone, and each byte of a tensor is read once. Whatever fails on whichever rank, all ranks get
 * the same error, the target is whole or absent, and any number of ranks can go on.
 */
#include "convert_case.h"

#include "tests/support/check.h"
#include "tests/support/context.h"
#include "tests/support/info.h"

#include <reshard/sim.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { RANKS_MAX = 5 };

static convert_case files;
static reshard_conversion_options options = {.size = sizeof options,
                                             .to = "tp=3",
                                             .format = "rank-files",
                                             .threads = 1,
                                             .memory_bytes_max = (size_t)1 << 20};
static const reshard_conversion_run_options running = {.size = sizeof running,
                                                       .journal_bytes = 1 << 18};

static int set_up(void **state)
{
    (void)state;
    if (convert_case_begin(&files) != 0)
        return -1;
    options.rules = files.rules;
    return reshard_convert(NULL, files.source, files.expected, NULL, &options, &running, NULL) ==
                   RESHARD_OK
               ? 0
               : -1;
}

static int tear_down(void **state)
{
    (void)state;
    return convert_case_end(&files);
}

/* ---- one run --------------------------------------------------------------------------------- */

/* What ranks do differently, and what they saw. Only the main thread judges. */
typedef struct run {
    reshard_checkpoint_options opening;
    reshard_conversion_options options;
    reshard_conversion_run_options running;
    convert_faults faults[RANKS_MAX]; /* of each rank */
    int32_t cancelled_rank;           /* asks to stop as soon as it can; -1: none */
    int32_t odd_rank;                 /* passes another mesh; -1: none */
    int32_t looking_rank;             /* opens a file to look at; -1: none */
    reshard_status statuses[RANKS_MAX];
    char texts[RANKS_MAX][600];
    reshard_conversion_report reports[RANKS_MAX];
    uint64_t left_bytes[RANKS_MAX];
    int progress_calls[RANKS_MAX];
} run;

typedef struct watcher {
    run *all;
    int32_t rank;
} watcher;

static void count_progress(void *user, const char *what, uint64_t done, uint64_t total)
{
    const watcher *w = user;
    w->all->progress_calls[w->rank] += strcmp(what, "converting") == 0 && done <= total;
}

static int ask_cancelled(void *user)
{
    const watcher *w = user;
    return w->rank == w->all->cancelled_rank;
}

static reshard_status convert_rank(void *user, reshard_group *group)
{
    run *all = user;
    int32_t rank = reshard_group_rank(group);
    watcher w = {all, rank};
    const rs_file_calls calls = convert_faults_calls(&all->faults[rank]);
    reshard_conversion_options chosen = all->options;
    reshard_context *context = NULL;
    const reshard_context_options watched = {
        .size = sizeof watched, .progress = count_progress, .cancelled = ask_cancelled, .user = &w};
    chosen.group = group;
    if (rank == all->odd_rank)
        chosen.to = "tp=2";
    reshard_status status = reshard_context_create(&watched, &context);
    if (status != RESHARD_OK)
        return status;
    rs_file_calls_set(context, &calls);
    all->reports[rank].size = sizeof all->reports[rank];
    reshard_checkpoint_options opening = all->opening;
    char one[600];
    (void)snprintf(one, sizeof one, "%s/rank-00001-of-00003.safetensors", files.expected);
    opening.one_rank = rank == all->looking_rank;
    status = reshard_convert(context, opening.one_rank ? one : files.source, files.target, &opening,
                             &chosen, &all->running, &all->reports[rank]);
    all->statuses[rank] = status;
    if (status != RESHARD_OK)
        (void)snprintf(all->texts[rank], sizeof all->texts[rank], "%s", reshard_error_text());
    all->left_bytes[rank] = info_memory(context).bytes;
    reshard_context_destroy(context);
    /* A rank that left with an error would break the group for those who are about to hear of it.*/
    return status == RESHARD_ERR_GROUP_BROKEN ? status : RESHARD_OK;
}

static run make_run(void)
{
    return (run){.opening.size = sizeof(reshard_checkpoint_options),
                 .options = options,
                 .running = running,
                 .cancelled_rank = -1,
                 .odd_rank = -1,
                 .looking_rank = -1};
}

static reshard_status go(run *all, int32_t ranks, const reshard_sim_options *sim)
{
    for (int32_t i = 0; i < RANKS_MAX; i++)
        all->statuses[i] = RESHARD_OK;
    reshard_status status = sim != NULL ? reshard_sim_run(NULL, ranks, sim, convert_rank, all)
                                        : reshard_group_run(NULL, ranks, convert_rank, all);
    for (int32_t i = 0; i < ranks; i++)
        assert_int_equal(all->left_bytes[i], 0);
    assert_true(convert_case_source_is_same(&files));
    for (int32_t i = 0; i < ranks && status == RESHARD_OK; i++)
        status = all->statuses[i];
    return status;
}

static void check_output(void)
{
    assert_true(convert_case_is_whole(&files));
    assert_false(convert_case_exists(files.partial));
    convert_case_remove(&files);
}

/* Whole or absent; `ranks` ranks go on with what was left. */
static uint64_t resume(int32_t ranks)
{
    uint64_t resumed = 0;
    if (convert_case_exists(files.target))
        assert_true(convert_case_is_whole(&files));
    if (!convert_case_exists(files.target) || convert_case_exists(files.partial)) {
        run again = make_run();
        again.running.resume = 1;
        if (go(&again, ranks, NULL) != RESHARD_OK)
            fail_msg("resuming: %s", again.texts[0]);
        resumed = again.reports[0].bytes_resumed;
    }
    check_output();
    return resumed;
}

/* ---- all goes well --------------------------------------------------------------------------- */

static void test_ranks__same_bytes_as_one(void **state)
{
    (void)state;
    reshard_conversion_report alone = {.size = sizeof alone};
    assert_int_equal(
        reshard_convert(NULL, files.source, files.target, NULL, &options, &running, &alone),
        RESHARD_OK);
    check_output();
    for (int32_t ranks = 1; ranks <= RANKS_MAX; ranks++) {
        run all = make_run();
        all.running.verify = ranks % 2;
        all.options.threads = 1 + ranks % 3;
        all.options.memory_bytes_max = (size_t)(1 + ranks % 3) << 20;
        if (go(&all, ranks, NULL) != RESHARD_OK)
            fail_msg("%d ranks: %s", (int)ranks, all.texts[0]);
        check_output();
        for (int32_t i = 0; i < ranks; i++) {
            assert_int_equal(all.reports[i].bytes_read, alone.bytes_read);
            assert_int_equal(all.reports[i].bytes_written, alone.bytes_written);
            assert_true((all.progress_calls[i] != 0) == (i == 0));
        }
    }
}

/* However the blocks are dealt out, each value is counted once, and all ranks hear of all. */
static void test_ranks__count_overflows(void **state)
{
    (void)state;
    reshard_conversion_report alone = {.size = sizeof alone};
    reshard_conversion_options narrow = options;
    narrow.dtype_count = 1;
    narrow.dtypes = (const char *const[]){"f16"};
    assert_int_equal(
        reshard_convert(NULL, files.source, files.target, NULL, &narrow, &running, &alone),
        RESHARD_OK);
    convert_case_remove(&files);
    assert_true(alone.values_overflowed > 100);
    for (int32_t verify = 0; verify < 2; verify++) {
        run all = make_run();
        all.options = narrow;
        all.running.verify = verify;
        assert_int_equal(go(&all, 3, NULL), RESHARD_OK);
        convert_case_remove(&files);
        for (int32_t i = 0; i < 3; i++)
            assert_int_equal(all.reports[i].values_overflowed, alone.values_overflowed);
    }
}

static void test_ranks__in_any_order(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        run all = make_run();
        const reshard_sim_options sim = {.size = sizeof sim, .seed = seed, .mapped = seed % 2};
        if (go(&all, 2 + (int32_t)(seed % 3), &sim) != RESHARD_OK)
            fail_msg("seed %d: %s", (int)seed, all.texts[0]);
        check_output();
    }
}

/* Rank files back: replicas are compared by all ranks, and files that do not change are linked. */
static void test_ranks__replicas_and_links(void **state)
{
    (void)state;
    convert_case kept = files;
    run all = make_run();
    reshard_checkpoint_options opening = {
        .size = sizeof opening, .from = "tp=3", .rules = files.rules, .keep_names = 1};
    reshard_conversion_options back = {.size = sizeof back, .rules = files.rules};
    (void)snprintf(files.source, sizeof files.source, "%s", kept.expected);
    (void)snprintf(files.expected, sizeof files.expected, "%s/hf", files.folder);
    assert_int_equal(
        reshard_convert(NULL, files.source, files.expected, &opening, &back, NULL, NULL),
        RESHARD_OK);
    all.opening = opening;
    all.options = back;
    assert_int_equal(reshard_group_run(NULL, 3, convert_rank, &all), RESHARD_OK);
    assert_int_equal(all.reports[2].bytes_read, all.reports[2].bytes_written);
    check_output();
    (void)snprintf(files.source, sizeof files.source, "%s", files.expected);
    all.opening = (reshard_checkpoint_options){.size = sizeof all.opening};
    all.options = (reshard_conversion_options){.size = sizeof all.options};
    all.running =
        (reshard_conversion_run_options){.size = sizeof all.running, .link = 1, .verify = 1};
    assert_int_equal(reshard_group_run(NULL, 3, convert_rank, &all), RESHARD_OK);
    assert_int_equal(all.reports[1].bytes_written, 0);
    check_output();
    assert_int_equal(rs_folder_remove(NULL, files.expected), RESHARD_OK);
    files = kept;
}

/* ---- all goes wrong -------------------------------------------------------------------------- */

static void check_agreed(const run *all, int32_t ranks, reshard_status status)
{
    for (int32_t i = 0; i < ranks; i++) {
        assert_int_equal(all->statuses[i], status);
        assert_string_equal(all->texts[i], all->texts[0]);
    }
}

static void test_ranks__every_call_of_a_rank_fails_once(void **state)
{
    (void)state;
    enum { RANKS = 3 };
    /* The leader, and one of the others. */
    for (int32_t rank = 0; rank < 2; rank++) {
        int n = 1;
        for (bool ended = false; !ended; n++) {
            run all = make_run();
            all.faults[rank] = (convert_faults){.countdown = n, .error = EIO};
            reshard_status status = go(&all, RANKS, NULL);
            ended = atomic_load(&all.faults[rank].countdown) > 0;
            assert_true(!ended || status == RESHARD_OK);
            assert_true(n < 1000);
            if (status != RESHARD_OK) {
                char named[32];
                (void)snprintf(named, sizeof named, "rank %d: ", (int)rank);
                check_agreed(&all, RANKS, RESHARD_ERR_IO);
                assert_memory_equal(all.texts[0], named, strlen(named));
                assert_non_null(strstr(all.texts[0], strerror(EIO)));
                assert_non_null(strstr(all.texts[0], files.folder));
            }
            if (convert_case_exists(files.target) && !convert_case_exists(files.partial)) {
                assert_true(convert_case_is_whole(&files));
                convert_case_remove(&files);
                continue;
            }
            (void)resume(1 + n % RANKS_MAX);
        }
        assert_true(n > 15);
    }
}

static void test_ranks__one_is_cancelled(void **state)
{
    (void)state;
    for (int32_t rank = 0; rank < 3; rank++) {
        run all = make_run();
        all.cancelled_rank = rank;
        assert_int_equal(go(&all, 3, NULL), RESHARD_ERR_CANCELLED);
        check_agreed(&all, 3, RESHARD_ERR_CANCELLED);
        assert_false(convert_case_exists(files.target));
        (void)resume(2);
    }
}

static void test_ranks__different_options(void **state)
{
    (void)state;
    run all = make_run();
    all.odd_rank = 1;
    assert_int_equal(go(&all, 3, NULL), RESHARD_ERR_MISMATCH);
    check_agreed(&all, 3, RESHARD_ERR_MISMATCH);
    assert_non_null(strstr(all.texts[0], "rank 1"));
    assert_false(convert_case_exists(files.target) || convert_case_exists(files.partial));
}

/* A checkpoint that one rank cannot convert is an error on all, and nobody waits for that rank. */
static void test_ranks__one_cannot_convert(void **state)
{
    (void)state;
    run all = make_run();
    all.looking_rank = 1;
    assert_int_equal(go(&all, 3, NULL), RESHARD_ERR_INVALID);
    check_agreed(&all, 3, RESHARD_ERR_INVALID);
    assert_non_null(strstr(all.texts[0], "rank 1"));
    assert_non_null(strstr(all.texts[2], "can only be inspected"));
    assert_false(convert_case_exists(files.target) || convert_case_exists(files.partial));
}

/* ---- without memory -------------------------------------------------------------------------- */

typedef struct poor_rank {
    reshard_context *context; /* of rank 1 */
    reshard_status statuses[2];
} poor_rank;

static reshard_status convert_poor(void *user, reshard_group *group)
{
    poor_rank *poor = user;
    int32_t rank = reshard_group_rank(group);
    reshard_conversion_options chosen = options;
    reshard_conversion_run_options unsynced = running;
    chosen.group = group;
    unsynced.no_sync = 1;
    poor->statuses[rank] = reshard_convert(rank == 1 ? poor->context : NULL, files.source,
                                           files.target, NULL, &chosen, &unsynced, NULL);
    return poor->statuses[rank] == RESHARD_ERR_GROUP_BROKEN ? RESHARD_ERR_GROUP_BROKEN : RESHARD_OK;
}

static reshard_status attempt(reshard_context *context, void *user)
{
    (void)user;
    poor_rank poor = {.context = context};
    reshard_status status = reshard_group_run(NULL, 2, convert_poor, &poor);
    bool whole = convert_case_exists(files.target);
    convert_case_remove(&files);
    if (status != RESHARD_OK || poor.statuses[0] != poor.statuses[1] ||
        whole != (poor.statuses[0] == RESHARD_OK))
        return RESHARD_ERR_CHECK;
    return poor.statuses[1];
}

static void test_ranks__every_allocation_of_one_fails_once(void **state)
{
    (void)state;
    words said;
    memset(&said, 0, sizeof said);
    if (!context_fail_each(attempt, NULL, &said))
        fail_msg("%s", said.text);
}

/* ---- without the others ---------------------------------------------------------------------- */

/* Messages that are lost and ranks that leave: nobody waits for ever. */
static void test_ranks__broken_groups(void **state)
{
    (void)state;
    int broken = 0;
    bool resumed = false;
    for (int64_t n = 1; n < 200; n += 5) {
        run all = make_run();
        reshard_sim_options sim = {.size = sizeof sim, .seed = (uint64_t)n};
        if (n % 2 == 0)
            sim.fail_message = n;
        sim.stop_rank = (int32_t)(n % 3);
        sim.stop_after = n % 2 == 1 ? 4 * n : 0;
        broken += go(&all, 3, &sim) != RESHARD_OK;
        resumed = resume(2) != 0 || resumed;
    }
    assert_true(broken > 10);
    assert_true(resumed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks__same_bytes_as_one),
        cmocka_unit_test(test_ranks__count_overflows),
        cmocka_unit_test(test_ranks__in_any_order),
        cmocka_unit_test(test_ranks__replicas_and_links),
        cmocka_unit_test(test_ranks__every_call_of_a_rank_fails_once),
        cmocka_unit_test(test_ranks__one_is_cancelled),
        cmocka_unit_test(test_ranks__different_options),
        cmocka_unit_test(test_ranks__one_cannot_convert),
        cmocka_unit_test(test_ranks__every_allocation_of_one_fails_once),
        cmocka_unit_test(test_ranks__broken_groups),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
