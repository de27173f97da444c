/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_mpi_failure.c - ranks that fail, leave, stay silent or send what nobody waits for: everybody
 * is told, nobody waits for ever, and the run ends alike on all ranks.
 */
#include "tests/mpi/test_mpi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LARGE = 3 << 20 }; /* more than MPI sends before it is asked for */

static void pause_for(double seconds)
{
    struct timespec time = {.tv_sec = (time_t)seconds,
                            .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    (void)nanosleep(&time, NULL);
}

/* ---- failing and leaving --------------------------------------------------------------------- */

static reshard_status fail_or_wait(void *user, reshard_group *group)
{
    (void)user;
    if (reshard_group_rank(group) == 1)
        return reshard_error_put(&(const reshard_error){.size = sizeof(reshard_error),
                                                        .status = RESHARD_ERR_IO,
                                                        .hint = RESHARD_HINT_RESUME,
                                                        .subject = "out",
                                                        .text = "the disk is full"});
    CHECK(reshard_group_barrier(group) == RESHARD_ERR_GROUP_BROKEN);
    CHECK(strstr(reshard_error_text(), "rank 1: the disk is full") != NULL);
    CHECK(reshard_group_barrier(group) == RESHARD_ERR_GROUP_BROKEN);
    return RESHARD_OK; /* what the first said counts, not what a rank makes of it */
}

static reshard_status fail_at_the_end(void *user, reshard_group *group)
{
    (void)user;
    pause_for(reshard_group_rank(group) == 1 ? 0.05 : 0); /* the others have left by then */
    return reshard_group_rank(group) == 1 ? reshard_error_set(RESHARD_ERR_IO, "the last word")
                                          : RESHARD_OK;
}

static reshard_status all_fail(void *user, reshard_group *group)
{
    (void)user;
    (void)group;
    return reshard_error_set(RESHARD_ERR_IO, "each for itself");
}

static reshard_status break_or_wait(void *user, reshard_group *group)
{
    (void)user;
    if (reshard_group_rank(group) == 1)
        reshard_group_break(group, "enough");
    reshard_status status = reshard_group_agree(group, RESHARD_OK);
    CHECK(status == RESHARD_ERR_GROUP_BROKEN);
    return status;
}

static reshard_status leave_or_wait(void *user, reshard_group *group)
{
    (void)user;
    return reshard_group_rank(group) == 1 ? RESHARD_OK : reshard_group_barrier(group);
}

/* Not for nothing: what a rank had sent before it left still arrives. */
static reshard_status leave_a_message(void *user, reshard_group *group)
{
    (void)user;
    int32_t rank = reshard_group_rank(group), in = 0, out = 77;
    reshard_request request;
    if (rank == 1) {
        TRY(rs_group_send(group, 0, RS_CHANNEL_DATA, &out, sizeof out, &request));
        TRY(rs_group_wait(group, &request));
    }
    if (rank == 0) {
        pause_for(0.1);
        TRY(rs_group_receive(group, 1, RS_CHANNEL_DATA, &in, sizeof in, &request));
        TRY(rs_group_wait(group, &request));
        CHECK(in == 77);
    }
    return RESHARD_OK;
}

/* ---- messages that never end ----------------------------------------------------------------- */

/* Large messages both ways, some met and some not, when rank 1 fails: their buffers are freed at
 * once behind quiesce, so nothing may touch them any more. */
static reshard_status fail_amid_messages(void *user, reshard_group *group)
{
    (void)user;
    int32_t rank = reshard_group_rank(group), size = reshard_group_size(group);
    int32_t to = (rank + 1) % size, from = (rank - 1 + size) % size;
    enum { COUNT = 4 };
    reshard_request requests[2 * COUNT];
    unsigned char *buffers[2 * COUNT];
    int started = 0;
    reshard_status status = RESHARD_OK;
    for (int i = 0; i < COUNT && status == RESHARD_OK; i++) {
        buffers[started] = calloc(LARGE, 1);
        status =
            rs_group_send(group, to, RS_CHANNEL_DATA, buffers[started], LARGE, &requests[started]);
        started++;
        if (status != RESHARD_OK || (rank == 0 && i >= 2)) /* rank 0 takes two of them only */
            continue;
        buffers[started] = calloc(LARGE, 1);
        status = rs_group_receive(group, from, RS_CHANNEL_DATA, buffers[started], LARGE,
                                  &requests[started]);
        started++;
    }
    if (rank == 1)
        reshard_group_break(group, "in the middle");
    for (int i = 0; i < started && status == RESHARD_OK; i++)
        status = rs_group_wait(group, &requests[i]);
    /* Messages that were through before the break stay done, perhaps all of them. */
    CHECK(status == RESHARD_OK || status == RESHARD_ERR_GROUP_BROKEN);
    if (status != RESHARD_OK) {
        reshard_group_break(group, reshard_error_text());
        rs_group_quiesce(group);
        bool done = false;
        CHECK(started == 0 ||
              rs_group_test(group, &requests[started - 1], &done) == RESHARD_ERR_GROUP_BROKEN ||
              done);
    }
    for (int i = 0; i < started; i++) {
        memset(buffers[i], 0xee, LARGE);
        free(buffers[i]);
    }
    if (status == RESHARD_OK)
        status = reshard_group_barrier(group);
    CHECK(rank != 1 || status == RESHARD_ERR_GROUP_BROKEN);
    return status;
}

static reshard_status leave_messages_under_way(void *user, reshard_group *group)
{
    (void)user;
    static char byte;
    static reshard_request request;
    if (reshard_group_rank(group) == 1)
        TRY(rs_group_receive(group, 0, RS_CHANNEL_DATA, &byte, 1, &request));
    return RESHARD_OK;
}

/* Rank 0 sends what rank 1 does not expect. */
static reshard_status send_wrong_size(reshard_group *group, size_t sent, size_t expected)
{
    int32_t rank = reshard_group_rank(group);
    reshard_request request;
    reshard_status status = RESHARD_OK;
    char *bytes = calloc(LARGE, 1);
    CHECK(bytes != NULL);
    if (rank == 0)
        status = rs_group_send(group, 1, RS_CHANNEL_DATA, bytes, sent, &request);
    if (rank == 1)
        status = rs_group_receive(group, 0, RS_CHANNEL_DATA, bytes, expected, &request);
    if (status == RESHARD_OK && rank < 2)
        status = rs_group_wait(group, &request);
    CHECK(rank != 1 || status == RESHARD_ERR_GROUP_BROKEN);
    if (status == RESHARD_OK)
        status = reshard_group_barrier(group);
    rs_group_quiesce(group);
    free(bytes);
    return status;
}

static reshard_status send_too_little(void *user, reshard_group *group)
{
    (void)user;
    return send_wrong_size(group, 10, 20);
}

static reshard_status send_too_much(void *user, reshard_group *group)
{
    (void)user;
    return send_wrong_size(group, 20, 10);
}

static reshard_status send_far_too_much(void *user, reshard_group *group)
{
    (void)user;
    return send_wrong_size(group, LARGE, 10);
}

static reshard_status send_beyond_limit(void *user, reshard_group *group)
{
    (void)user;
    char byte = 0;
    reshard_request request;
    size_t limit = rs_group_message_bytes_max(group);
    CHECK(limit == (size_t)1 << 30);
    CHECK(rs_group_send(group, 0, RS_CHANNEL_DATA, &byte, limit + 1, &request) ==
          RESHARD_ERR_INVALID);
    return RESHARD_OK;
}

/* ---- time ------------------------------------------------------------------------------------ */

/* Rank 1 says nothing for too long. The group is one of its own, so the run ends well. */
static reshard_status stay_silent(void *user, reshard_group *world)
{
    (void)user;
    reshard_group *group = NULL;
    reshard_mpi_options options = {.size = sizeof options, .timeout_seconds = 0.2};
    TRY(reshard_group_from_mpi(NULL, MPI_COMM_WORLD, &options, &group));
    int32_t rank = reshard_group_rank(group);
    if (rank == 1)
        pause_for(0.6);
    reshard_status status = reshard_group_barrier(group);
    if (rank == 1 && status == RESHARD_OK) /* the others had come and sent, before they gave up */
        status = reshard_group_barrier(group);
    CHECK(status == RESHARD_ERR_TIMEOUT || status == RESHARD_ERR_GROUP_BROKEN);
    CHECK(rank != 1 || status == RESHARD_ERR_GROUP_BROKEN);
    CHECK(strstr(reshard_error_text(), "waited") != NULL);
    reshard_group_release(group);
    return reshard_group_barrier(world);
}

/* Time in which a rank does not ask for its message is not waiting. */
static reshard_status compute_for_long(void *user, reshard_group *world)
{
    (void)user;
    reshard_group *group = NULL;
    reshard_mpi_options options = {.size = sizeof options, .timeout_seconds = 0.3};
    TRY(reshard_group_from_mpi(NULL, MPI_COMM_WORLD, &options, &group));
    int32_t rank = reshard_group_rank(group);
    char in = 0, out = 1;
    reshard_request request;
    if (rank == 0) {
        TRY(rs_group_receive(group, 1, RS_CHANNEL_DATA, &in, 1, &request));
        pause_for(0.6);
        TRY(rs_group_wait(group, &request));
    } else if (rank == 1) {
        pause_for(0.65);
        TRY(rs_group_send(group, 0, RS_CHANNEL_DATA, &out, 1, &request));
        TRY(rs_group_wait(group, &request));
    }
    reshard_group_release(group);
    return reshard_group_barrier(world);
}

static reshard_status fail_before_share(void *user, reshard_group *group)
{
    (void)user;
    const reshard_endpoint *e = &group->root->endpoint;
    if (reshard_group_rank(group) == 1)
        return reshard_error_set(RESHARD_ERR_IO, "before sharing");
    CHECK(e->share(e->state, 100) == NULL);
    return reshard_group_barrier(group);
}

#define BROKEN RESHARD_ERR_GROUP_BROKEN
const test_case failure_cases[] = {
    {"failing rank", fail_or_wait, RESHARD_ERR_IO, "rank 1: the disk is full", 2},
    {"failing at the end", fail_at_the_end, RESHARD_ERR_IO, "rank 1: the last word", 2},
    {"all fail", all_fail, RESHARD_ERR_IO, "rank 0: each for itself", 1},
    {"break", break_or_wait, BROKEN, "rank 1: enough", 2},
    {"early leaver", leave_or_wait, BROKEN, "which has left", 2},
    {"leaving a message", leave_a_message, RESHARD_OK, NULL, 2},
    {"failing amid messages", fail_amid_messages, BROKEN, "rank 1: in the middle", 2},
    {"messages under way", leave_messages_under_way, BROKEN, "rank 1: leaves while", 2},
    {"too little", send_too_little, RESHARD_ERR_MISMATCH,
     "rank 1: waits for 20 bytes from rank 0, which sends 10", 2},
    {"too much", send_too_much, RESHARD_ERR_MISMATCH,
     "rank 1: waits for 10 bytes from rank 0, which sends more", 2},
    {"far too much", send_far_too_much, RESHARD_ERR_MISMATCH,
     "rank 1: waits for 10 bytes from rank 0, which sends more", 2},
    {"beyond the limit", send_beyond_limit, RESHARD_OK, NULL, 1},
    {"silent rank", stay_silent, RESHARD_OK, NULL, 2},
    {"long computation", compute_for_long, RESHARD_OK, NULL, 2},
    {"failing before sharing", fail_before_share, RESHARD_ERR_IO, "rank 1: before sharing", 2},
};
const int failure_case_count = (int)(sizeof failure_cases / sizeof *failure_cases);
