/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mpi_property.c - plans between random layouts, carried out by MPI's processes, equal the oracle
 * bit for bit; and all come back as they went. Run with any number of ranks.
 *
 * All processes draw the same cases from the same seed, and after each the ranks' targets are
 * brought to all of them: so everybody asserts the same, and nobody is left waiting for one that
 * has failed.
 */
#include "tests/support/check.h"
#include "tests/support/live.h"

#include <reshard/mpi.h>

#include <stdio.h>
#include <string.h>

static reshard_group *group;

/* All end with the same status; the text is that of the lowest rank that failed. */
static reshard_status agree(reshard_status status)
{
    struct {
        int status, rank;
    } mine = {.status = status}, lowest;
    char text[512];
    MPI_Comm_rank(MPI_COMM_WORLD, &mine.rank);
    MPI_Allreduce(&mine, &lowest, 1, MPI_2INT, MPI_MINLOC, MPI_COMM_WORLD);
    if (lowest.status == RESHARD_OK)
        return RESHARD_OK;
    (void)snprintf(text, sizeof text, "%s", reshard_error_text());
    MPI_Bcast(text, (int)sizeof text, MPI_CHAR, lowest.rank, MPI_COMM_WORLD);
    return reshard_error_set(lowest.status, text);
}

static reshard_status run_processes(const live_way *way, uint64_t seed, int32_t size,
                                    reshard_rank_fn body, void *user)
{
    (void)way;
    (void)seed;
    (void)size; /* the generator knows how many there are */
    reshard_status status = agree(body(user, group));
    if (status != RESHARD_OK) { /* what is left of the group is of no use for the next case */
        reshard_group_release(group);
        group = NULL;
        if (reshard_group_from_mpi(NULL, MPI_COMM_WORLD, NULL, &group) != RESHARD_OK)
            MPI_Abort(MPI_COMM_WORLD, 1);
        (void)agree(status);
    }
    return status;
}

static void collect(simulate_tensor *tensor)
{
    for (int64_t i = 0; i < tensor->count; i++)
        MPI_Bcast(tensor->buffers[i].values, (int)tensor->buffers[i].count, MPI_DOUBLE,
                  tensor->buffers[i].rank, MPI_COMM_WORLD);
}

static const live_way ways[] = {
    {.name = "mpi", .run = run_processes, .collect = collect},
    {.name = "mpi, messages", .run = run_processes, .collect = collect, .messages_only = 1},
    {.name = "mpi, shared", .run = run_processes, .collect = collect, .memory = LIVE_SHARED},
    {.name = "mpi, mixed", .run = run_processes, .collect = collect, .memory = LIVE_MIXED},
};

enum { WAYS = (int)(sizeof ways / sizeof *ways) };

static void generate_pair(draw_state *draw, harness_case *made)
{
    live_generate_pair(draw, reshard_group_size(group), made);
}

static bool check_there(const harness_case *given, words *said)
{
    return live_check_there(given, &ways[given->seed % WAYS], said);
}

static bool check_back(const harness_case *given, words *said)
{
    return live_check_back(given, &ways[given->seed % WAYS], said);
}

static void test_mpi__random_pairs(void **state)
{
    (void)state;
    harness_run("random pair over MPI", 300, generate_pair, check_there);
}

static void test_mpi__there_and_back(void **state)
{
    (void)state;
    harness_run("there and back over MPI", 100, generate_pair, check_back);
}

static void test_mpi__every_permutation_of_owners(void **state)
{
    (void)state;
    for (int i = 0; i < 120 && reshard_group_size(group) >= 5; i++) {
        harness_case given;
        live_set_permutation(i, &given);
        harness_check("owners change over MPI", &given, check_there);
    }
}

int main(int argument_count, char **arguments)
{
    int rank = 0, threads = 0;
    MPI_Init_thread(&argument_count, &arguments, MPI_THREAD_SERIALIZED, &threads);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN); /* see reshard/mpi.h */
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank != 0 && freopen("/dev/null", "w", stdout) == NULL) /* one report will do */
        return 1;
    if (reshard_group_from_mpi(NULL, MPI_COMM_WORLD, NULL, &group) != RESHARD_OK) {
        fprintf(stderr, "rank %d: %s\n", rank, reshard_error_text());
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mpi__random_pairs),
        cmocka_unit_test(test_mpi__there_and_back),
        cmocka_unit_test(test_mpi__every_permutation_of_owners),
    };
    int failed = cmocka_run_group_tests_name("exec over MPI", tests, NULL, NULL);
    reshard_group_release(group);
    MPI_Finalize();
    return failed != 0;
}
