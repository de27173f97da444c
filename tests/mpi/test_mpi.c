/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_mpi.c - the transport over MPI, under mpirun with 1 to 4 ranks: everything that a group does
 * when all goes well; test_mpi_failure.c has the rest. Each case runs on a group of its own, so
 * that one that breaks it does not end the others.
 */
#include "tests/mpi/test_mpi.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS_MAX = 16 };

void fill_bytes(unsigned char *bytes, size_t count, uint32_t seed)
{
    for (size_t i = 0; i < count; i++)
        bytes[i] = (unsigned char)((i * 7 + (i >> 8) + seed * 31) & 0xff);
}

int has_bytes(const unsigned char *bytes, size_t count, uint32_t seed)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] != (unsigned char)((i * 7 + (i >> 8) + seed * 31) & 0xff))
            return 0;
    }
    return 1;
}

/* ---- together -------------------------------------------------------------------------------- */

static reshard_status meet(void *user, reshard_group *group)
{
    (void)user;
    int32_t rank = reshard_group_rank(group), size = reshard_group_size(group);
    CHECK(strcmp(reshard_group_transport_name(group), "mpi") == 0);
    for (int i = 0; i < 10; i++)
        TRY(reshard_group_barrier(group));
    int32_t mine = 100 + rank, all[RANKS_MAX] = {0};
    TRY(reshard_group_gather_bytes(group, &mine, sizeof mine, all));
    for (int32_t i = 0; i < size; i++)
        CHECK(all[i] == 100 + i);
    reshard_dtype unused;
    char wanted[40];
    (void)snprintf(wanted, sizeof wanted, "rank %d: dtype \"f99\"", size / 2);
    reshard_status bad = rank >= size / 2 ? reshard_dtype_parse("f99", &unused) : RESHARD_OK;
    CHECK(reshard_group_agree(group, bad) == RESHARD_ERR_NOT_FOUND);
    CHECK(strstr(reshard_error_text(), wanted) == reshard_error_text());
    TRY(reshard_group_agree(group, RESHARD_OK));
    return RESHARD_OK;
}

/* Sub-groups of the last k ranks, backwards. */
static reshard_status split(void *user, reshard_group *group)
{
    (void)user;
    int32_t rank = reshard_group_rank(group), size = reshard_group_size(group);
    for (int32_t count = 1; count <= size; count++) {
        int32_t ranks[RANKS_MAX], all[RANKS_MAX];
        reshard_group *sub = NULL;
        for (int32_t i = 0; i < count; i++)
            ranks[i] = size - 1 - i;
        TRY(reshard_group_subset(group, count, ranks, &sub));
        CHECK((sub != NULL) == (rank >= size - count));
        if (sub != NULL) {
            CHECK(reshard_group_rank(sub) == size - 1 - rank);
            CHECK(reshard_group_parent_rank(sub, 0) == size - 1);
            TRY(reshard_group_gather_bytes(sub, &rank, sizeof rank, all));
            CHECK(memcmp(all, ranks, (size_t)count * sizeof *all) == 0);
            TRY(reshard_group_barrier(sub));
        }
        reshard_group_release(sub);
    }
    return RESHARD_OK;
}

/* ---- messages -------------------------------------------------------------------------------- */

static const size_t sizes[] = {0, 1, 7, 4096, 65537, 3000001, 0, 12};
enum { SIZES = (int)(sizeof sizes / sizeof *sizes) };

/* All sizes to and from one peer at once, the ends being waited for in an order that differs from
 * the one they were started in. Sizes are the same both ways; messages of one channel match in the
 * order of their start. */
static reshard_status swap(reshard_group *group, int32_t to, int32_t from)
{
    reshard_request sent[SIZES], received[SIZES];
    unsigned char *out[SIZES], *in[SIZES];
    uint32_t me = (uint32_t)reshard_group_rank(group);
    for (int i = 0; i < SIZES; i++) {
        out[i] = malloc(sizes[i] + 1);
        in[i] = calloc(sizes[i] + 1, 1);
        CHECK(out[i] != NULL && in[i] != NULL);
        fill_bytes(out[i], sizes[i], 10 * me + (uint32_t)i);
        in[i][sizes[i]] = 99;
        TRY(rs_group_receive(group, from, RS_CHANNEL_DATA, in[i], sizes[i], &received[i]));
    }
    for (int i = 0; i < SIZES; i++)
        TRY(rs_group_send(group, to, RS_CHANNEL_DATA, out[i], sizes[i], &sent[i]));
    for (int i = 0; i < SIZES; i++) {
        TRY(rs_group_wait(group, &received[(i * 5 + 2) % SIZES]));
        TRY(rs_group_wait(group, &sent[(i * 3 + 1) % SIZES]));
    }
    for (int i = 0; i < SIZES; i++) {
        bool done = false;
        TRY(rs_group_test(group, &sent[i], &done));
        CHECK(done); /* what is done stays done */
        CHECK(has_bytes(in[i], sizes[i], 10 * (uint32_t)from + (uint32_t)i));
        CHECK(in[i][sizes[i]] == 99);
        free(out[i]);
        free(in[i]);
    }
    return RESHARD_OK;
}

static reshard_status exchange(void *user, reshard_group *group)
{
    (void)user;
    int32_t rank = reshard_group_rank(group), size = reshard_group_size(group);
    for (int32_t step = 0; step < size; step++) /* step 0: a rank with itself */
        TRY(swap(group, (rank + step) % size, (rank - step + size) % size));
    return RESHARD_OK;
}

/* Channels are kept apart whatever their numbers, and the second is received first. */
static reshard_status use_channels(void *user, reshard_group *group)
{
    (void)user;
    int32_t rank = reshard_group_rank(group), size = reshard_group_size(group);
    int32_t to = (rank + 1) % size, from = (rank - 1 + size) % size;
    const int32_t channels[] = {5, 1 << 20, INT32_MAX - 7};
    for (int i = 0; i < 3; i++) {
        reshard_request sent[2], received[2];
        int32_t out[2] = {rank, 1000 + rank}, in[2] = {-1, -1};
        for (int k = 0; k < 2; k++)
            TRY(rs_group_send(group, to, channels[i] + k, &out[k], 4, &sent[k]));
        for (int k = 1; k >= 0; k--) {
            TRY(rs_group_receive(group, from, channels[i] + k, &in[k], 4, &received[k]));
            TRY(rs_group_wait(group, &received[k]));
        }
        CHECK(in[0] == from && in[1] == 1000 + from);
        TRY(rs_group_wait(group, &sent[0]));
        TRY(rs_group_wait(group, &sent[1]));
    }
    return RESHARD_OK;
}

/* ---- shared memory --------------------------------------------------------------------------- */

static reshard_status read_peers(reshard_group *group, char *const *addresses, size_t bytes,
                                 uint32_t seed)
{
    TRY(rs_group_touch(group, true));
    for (int32_t i = 0; i < reshard_group_size(group); i++) {
        unsigned char *seen = rs_group_map(group, i, addresses[i], bytes);
        CHECK(seen != NULL && has_bytes(seen, bytes, seed + (uint32_t)i));
        seen = rs_group_map(group, i, addresses[i] + bytes / 2, bytes - bytes / 2);
        CHECK(seen != NULL);
    }
    TRY(rs_group_touch(group, false));
    return RESHARD_OK;
}

/* Everybody writes into its own, then into its neighbour's; everybody reads everybody's. */
static reshard_status share_memory(void *user, reshard_group *group)
{
    (void)user;
    const reshard_endpoint *e = &group->root->endpoint;
    int32_t rank = reshard_group_rank(group), size = reshard_group_size(group);
    const size_t bytes[] = {1, 4096, 1000003, 0};
    CHECK(e->share != NULL && e->map != NULL && !rs_group_can_map(group)); /* not everything */
    for (int i = 0; i < 4; i++) {
        unsigned char *mine = e->share(e->state, bytes[i]);
        char *addresses[RANKS_MAX];
        CHECK(mine != NULL && (uintptr_t)mine % 4096 == 0);
        for (size_t k = 0; k < bytes[i]; k++)
            CHECK(mine[k] == 0);
        fill_bytes(mine, bytes[i], (uint32_t)rank);
        TRY(reshard_group_gather_bytes(group, &mine, sizeof mine, addresses));
        TRY(read_peers(group, addresses, bytes[i], 0));
        TRY(reshard_group_barrier(group));
        int32_t next = (rank + 1) % size;
        TRY(rs_group_touch(group, true));
        fill_bytes(rs_group_map(group, next, addresses[next], bytes[i]), bytes[i],
                   50 + (uint32_t)next);
        TRY(rs_group_touch(group, false));
        TRY(reshard_group_barrier(group));
        TRY(read_peers(group, addresses, bytes[i], 50));
        CHECK(rs_group_map(group, rank, &i, sizeof i) == &i); /* one's own memory is seen */
        if (next != rank) {
            CHECK(rs_group_map(group, next, &i, sizeof i) == NULL);
            CHECK(rs_group_map(group, next, addresses[next], (size_t)1 << 30) == NULL);
        }
    }
    CHECK(e->share(e->state, SIZE_MAX) == NULL);
    CHECK(e->share(e->state, (size_t)1 << 50) == NULL);
    TRY(reshard_group_barrier(group)); /* nothing is broken by asking for too much */
    return RESHARD_OK;
}

/* ---- other communicators --------------------------------------------------------------------- */

/* Ranks backwards, in two halves of their own; the communicator is freed before the group. */
static reshard_status use_other_communicator(void *user, reshard_group *group)
{
    (void)user;
    int32_t rank = reshard_group_rank(group), size = reshard_group_size(group), all[RANKS_MAX];
    MPI_Comm comm;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, size - rank, &comm);
    reshard_group *half = NULL;
    reshard_mpi_options options = {.size = sizeof options, .timeout_seconds = 30};
    TRY(reshard_group_from_mpi(NULL, comm, &options, &half));
    MPI_Comm_free(&comm);
    CHECK(reshard_group_size(half) == (size + 1 - rank % 2) / 2);
    TRY(reshard_group_gather_bytes(half, &rank, sizeof rank, all));
    for (int32_t i = 1; i < reshard_group_size(half); i++)
        CHECK(all[i] == all[i - 1] - 2);
    reshard_group_release(half);
    return RESHARD_OK;
}

/* One rank's bad options are everybody's error. */
static reshard_status refuse_options(void *user, reshard_group *group)
{
    (void)user;
    int32_t rank = reshard_group_rank(group), size = reshard_group_size(group);
    reshard_group *made = NULL;
    reshard_mpi_options options = {.size = sizeof options};
    if (rank == size - 1)
        options.timeout_seconds = -1;
    char wanted[40];
    (void)snprintf(wanted, sizeof wanted, "rank %d: MPI options", size - 1);
    CHECK(reshard_group_from_mpi(NULL, MPI_COMM_WORLD, &options, &made) == RESHARD_ERR_RANGE);
    CHECK(strstr(reshard_error_text(), wanted) != NULL && made == NULL);
    options = (reshard_mpi_options){.size = 3};
    CHECK(reshard_group_from_mpi(NULL, MPI_COMM_WORLD, &options, &made) == RESHARD_ERR_INVALID);
    options = (reshard_mpi_options){.size = SIZE_MAX / 3}; /* one that was never set */
    CHECK(reshard_group_from_mpi(NULL, MPI_COMM_WORLD, &options, &made) == RESHARD_ERR_INVALID);
    CHECK(reshard_group_from_mpi(NULL, MPI_COMM_NULL, NULL, &made) == RESHARD_ERR_INVALID);
    return RESHARD_OK;
}

/* A context that has no memory left on one rank. */
static reshard_status run_out_of_memory(void *user, reshard_group *group)
{
    (void)user;
    reshard_context *context = NULL;
    reshard_group *made = NULL;
    reshard_context_options options = {.size = sizeof options, .memory_bytes_max = 16};
    if (reshard_group_rank(group) == 0)
        TRY(reshard_context_create(&options, &context));
    CHECK(reshard_group_from_mpi(context, MPI_COMM_WORLD, NULL, &made) == RESHARD_ERR_MEMORY_LIMIT);
    CHECK(strstr(reshard_error_text(), "rank 0: ") != NULL && made == NULL);
    reshard_context_destroy(context);
    return RESHARD_OK;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static const test_case good_cases[] = {
    {.name = "together", .body = meet},
    {.name = "subsets", .body = split},
    {.name = "messages", .body = exchange},
    {.name = "channels", .body = use_channels},
    {.name = "shared memory", .body = share_memory},
    {.name = "other communicators", .body = use_other_communicator},
    {.name = "options", .body = refuse_options},
    {.name = "no memory", .body = run_out_of_memory},
};

typedef struct attempt {
    const test_case *test;
    int rank, wrong;
} attempt;

static reshard_status run_body(void *user, reshard_group *group)
{
    attempt *a = user;
    reshard_status status = a->test->body(NULL, group);
    if (status == RESHARD_ERR_CHECK) {
        fprintf(stderr, "rank %d: %s: %s\n", a->rank, a->test->name, reshard_error_text());
        a->wrong = 1;
    }
    return status;
}

/* What this rank saw, 0 if all is right. */
static int run_cases(const test_case *cases, int count, int rank, int size)
{
    int wrong = 0;
    for (int i = 0; i < count; i++) {
        const test_case *c = &cases[i];
        if (size < c->ranks_min)
            continue;
        double began = MPI_Wtime();
        attempt a = {.test = c, .rank = rank};
        reshard_status status = reshard_mpi_run(NULL, run_body, &a);
        bool is_hinted = strcmp(c->name, "failing rank") == 0;
        reshard_error error = {.size = sizeof error};
        (void)reshard_error_get(&error);
        const char *text = status != RESHARD_OK ? error.text : "";
        bool right = status == c->wanted && (c->text == NULL || strstr(text, c->text) != NULL);
        if (status != RESHARD_OK)
            right = right && error.status == status &&
                    error.hint == (is_hinted ? RESHARD_HINT_RESUME : RESHARD_HINT_NONE) &&
                    error.has_rank && strcmp(error.subject, is_hinted ? "out" : "") == 0;
        if (!right)
            fprintf(stderr, "rank %d: %s: ended with %s: %s\n", rank, c->name,
                    reshard_status_name(status), text);
        if (rank == 0)
            printf("%-24s %.3f s %s\n", c->name, MPI_Wtime() - began, text);
        wrong += !right || a.wrong;
    }
    return wrong;
}

int main(int argument_count, char **arguments)
{
    int rank = 0, size = 0, threads = 0, wrong, all_wrong = 0;
    MPI_Init_thread(&argument_count, &arguments, MPI_THREAD_SERIALIZED, &threads);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN); /* see reshard/mpi.h */
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    wrong = run_cases(good_cases, (int)(sizeof good_cases / sizeof *good_cases), rank, size);
    wrong += run_cases(failure_cases, failure_case_count, rank, size);
    MPI_Allreduce(&wrong, &all_wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
    return all_wrong != 0;
}
