/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_delivery.c - send and receive: in order whatever is waited for first, to oneself, in many
 * messages, and what becomes of ends that do not fit.
 */
#include "tests/support/check.h"
#include "tests/support/context.h"
#include "tests/support/ways.h"
#include "transport/group.h"

#include <reshard/reshard.h>

#include <stdio.h>
#include <string.h>

enum { RANKS_MAX = 5, MESSAGES = 6, TEXT_MAX = 200 };

/* ---- everybody to everybody ------------------------------------------------------------------ */

static const int64_t counts[MESSAGES] = {0, 1, 7, 5000, 3, 1000};

static int32_t value_of(int32_t from, int32_t to, int which, int64_t i)
{
    return (int32_t)(from * 100000000 + to * 10000000 + which * 100000 + i % 100000);
}

typedef struct boxes {
    int wrong[RANKS_MAX];
    size_t message_bytes_max; /* 0: the transport's own */
} boxes;

/* Works of one rank, by peer and message: receives, then sends. */
typedef struct post {
    reshard_work *works[2][RANKS_MAX][MESSAGES];
    int32_t *buffers[2][RANKS_MAX][MESSAGES];
} post;

static reshard_status start_all(reshard_group *group, post *p)
{
    int32_t rank = reshard_group_rank(group), size = reshard_group_size(group);
    reshard_status status = RESHARD_OK;
    for (int m = 0; m < MESSAGES; m++) {
        for (int32_t peer = 0; peer < size && status == RESHARD_OK; peer++) {
            int32_t *in = make(counts[m], sizeof *in), *out = make(counts[m], sizeof *out);
            p->buffers[0][peer][m] = in;
            p->buffers[1][peer][m] = out;
            for (int64_t i = 0; i < counts[m]; i++)
                out[i] = value_of(rank, peer, m, i);
            bool sends_first = (rank + m) % 2 == 0;
            if (sends_first)
                status = reshard_send(NULL, group, RESHARD_I32, peer, counts[m], out,
                                      &p->works[1][peer][m]);
            if (status == RESHARD_OK)
                status = reshard_receive(NULL, group, RESHARD_I32, peer, counts[m], in,
                                         &p->works[0][peer][m]);
            if (status == RESHARD_OK && !sends_first)
                status = reshard_send(NULL, group, RESHARD_I32, peer, counts[m], out,
                                      &p->works[1][peer][m]);
        }
    }
    return status;
}

static reshard_status exchange(void *user, reshard_group *group)
{
    boxes *b = user;
    int32_t rank = reshard_group_rank(group), size = reshard_group_size(group);
    if (b->message_bytes_max != 0)
        group->root->endpoint.message_bytes_max = b->message_bytes_max;
    post p;
    memset(&p, 0, sizeof p);
    reshard_status status = start_all(group, &p);
    /* The last ones first. */
    for (int m = MESSAGES - 1; m >= 0; m--) {
        for (int32_t peer = 0; peer < size; peer++) {
            for (int which = 0; which < 2; which++) {
                if (status == RESHARD_OK)
                    status = reshard_work_wait(p.works[which][peer][m]);
            }
            for (int64_t i = 0; i < counts[m] && status == RESHARD_OK; i++)
                b->wrong[rank] += p.buffers[0][peer][m][i] != value_of(peer, rank, m, i);
        }
    }
    for (int i = 0; i < 2 * RANKS_MAX * MESSAGES; i++) {
        reshard_work_destroy(p.works[i % 2][i / 2 % RANKS_MAX][i / 2 / RANKS_MAX]);
        free(p.buffers[i % 2][i / 2 % RANKS_MAX][i / 2 / RANKS_MAX]);
    }
    return status;
}

static void test_delivery__exchange(void **state)
{
    (void)state;
    static const size_t limits[] = {0, 1000, 64};
    for (int w = 0; w < WAYS; w++) {
        for (int32_t size = 1; size <= RANKS_MAX; size++) {
            boxes b = {.message_bytes_max = size <= 2 ? limits[size] : limits[size % 2]};
            if (run_way(&ways[w], size, exchange, &b) != RESHARD_OK)
                fail_msg("%s, %d ranks: %s", ways[w].name, size, reshard_error_text());
            for (int32_t rank = 0; rank < size; rank++)
                assert_int_equal(b.wrong[rank], 0);
        }
    }
}

/* ---- blocking, and again --------------------------------------------------------------------- */

typedef struct ring {
    int64_t token[RANKS_MAX];
    int16_t half[RANKS_MAX];
} ring;

static reshard_status pass_on(void *user, reshard_group *group)
{
    ring *r = user;
    int32_t rank = reshard_group_rank(group), size = reshard_group_size(group);
    int64_t token = 1000;
    reshard_status status = RESHARD_OK;
    if (rank != 0)
        status = reshard_receive(NULL, group, RESHARD_I64, rank - 1, 1, &token, NULL);
    token += rank;
    if (status == RESHARD_OK && size > 1)
        status = reshard_send(NULL, group, RESHARD_I64, (rank + 1) % size, 1, &token, NULL);
    if (status == RESHARD_OK && rank == 0 && size > 1)
        status = reshard_receive(NULL, group, RESHARD_I64, size - 1, 1, &token, NULL);
    r->token[rank] = token;
    if (status != RESHARD_OK || rank > 1 || size < 2)
        return status;
    reshard_work *work = NULL;
    int16_t value = 0;
    status = rank == 0 ? reshard_send(NULL, group, RESHARD_F16, 1, 1, &value, &work)
                       : reshard_receive(NULL, group, RESHARD_F16, 0, 1, &value, &work);
    for (int i = 1; i <= 3 && status == RESHARD_OK; i++) {
        status = reshard_work_wait(work);
        value = (int16_t)(rank == 0 ? 10 * i : value);
        if (status == RESHARD_OK)
            status = reshard_work_restart(work);
    }
    if (status == RESHARD_OK)
        status = reshard_work_wait(work);
    r->half[rank] = value;
    reshard_work_destroy(work);
    return status;
}

static void test_delivery__blocking(void **state)
{
    (void)state;
    for (int w = 0; w < WAYS; w++) {
        for (int32_t size = 1; size <= RANKS_MAX; size++) {
            ring r = {{0}, {0}};
            assert_int_equal(run_way(&ways[w], size, pass_on, &r), RESHARD_OK);
            for (int32_t rank = 1; rank < size; rank++)
                assert_int_equal(r.token[rank], 1000 + rank * (rank + 1) / 2);
            assert_int_equal(r.token[0], 1000 + size * (size - 1) / 2);
            assert_int_equal(r.half[1], size > 1 ? 30 : 0);
        }
    }
}

/* ---- a sub-group ----------------------------------------------------------------------------- */

static reshard_status talk_within(void *user, reshard_group *group)
{
    static const int32_t members[] = {3, 1};
    int32_t *heard = user, told = reshard_group_rank(group);
    reshard_group *sub = NULL;
    reshard_work *work = NULL;
    reshard_status status = reshard_group_subset(group, 2, members, &sub);
    if (status != RESHARD_OK || sub == NULL)
        return status;
    int32_t peer = 1 - reshard_group_rank(sub);
    status = reshard_send(NULL, sub, RESHARD_I32, peer, 1, &told, &work);
    if (status == RESHARD_OK)
        status = reshard_receive(NULL, sub, RESHARD_I32, peer, 1, &heard[told], NULL);
    reshard_work_destroy(work);
    reshard_group_release(sub);
    return status;
}

static void test_delivery__sub_group(void **state)
{
    (void)state;
    for (int w = 0; w < WAYS; w++) {
        int32_t heard[4] = {0};
        assert_int_equal(run_way(&ways[w], 4, talk_within, heard), RESHARD_OK);
        assert_int_equal(heard[1], 3);
        assert_int_equal(heard[3], 1);
    }
}

/* ---- ends that do not fit -------------------------------------------------------------------- */

typedef struct misfit {
    reshard_dtype send_dtype, receive_dtype;
    int64_t send_count, receive_count;
    bool receiver_is_late;
    reshard_status status[2];
    char text[2][TEXT_MAX];
} misfit;

static reshard_status meet(void *user, reshard_group *group)
{
    misfit *m = user;
    int32_t rank = reshard_group_rank(group);
    char buffer[80] = {0};
    reshard_work *work = NULL;
    /* One comes after the other has posted its end. */
    bool late = rank == (m->receiver_is_late ? 1 : 0);
    reshard_status status = late ? reshard_group_barrier(group) : RESHARD_OK;
    if (status == RESHARD_OK)
        status = rank == 0
                     ? reshard_send(NULL, group, m->send_dtype, 1, m->send_count, buffer, &work)
                     : reshard_receive(NULL, group, m->receive_dtype, 0, m->receive_count, buffer,
                                       &work);
    if (status == RESHARD_OK && !late)
        status = reshard_group_barrier(group);
    if (status == RESHARD_OK)
        status = reshard_work_wait(work);
    m->status[rank] = status;
    (void)snprintf(m->text[rank], TEXT_MAX, "%s", reshard_error_text());
    reshard_work_destroy(work);
    return RESHARD_OK;
}

static void test_delivery__misfits(void **state)
{
    (void)state;
    static const misfit given[] = {
        {RESHARD_I32, RESHARD_I32, 8, 4, false, {0}, {{0}}},
        {RESHARD_I32, RESHARD_I32, 4, 8, false, {0}, {{0}}},
        {RESHARD_I32, RESHARD_F32, 4, 4, false, {0}, {{0}}},
        {RESHARD_I32, RESHARD_I32, 0, 4, false, {0}, {{0}}},
        {RESHARD_I32, RESHARD_I32, 8, 0, false, {0}, {{0}}},
    };
    for (int w = 0; w < WAYS; w++) {
        for (size_t i = 0; i < 2 * sizeof given / sizeof *given; i++) {
            misfit m = given[i / 2];
            m.receiver_is_late = i % 2 != 0;
            (void)run_way(&ways[w], 2, meet, &m);
            for (int rank = 0; rank < 2; rank++) {
                char sent[24], expected[24];
                /* The transport counts bytes. */
                (void)snprintf(sent, sizeof sent, "sends %d", (int)m.send_count);
                (void)snprintf(expected, sizeof expected, "%d ", (int)m.receive_count);
                bool told =
                    strstr(m.text[rank], sent) != NULL && strstr(m.text[rank], expected) != NULL;
                (void)snprintf(sent, sizeof sent, "sends %d bytes", (int)m.send_count * 4);
                (void)snprintf(expected, sizeof expected, "for %d", (int)m.receive_count * 4);
                told = told || (strstr(m.text[rank], sent) != NULL &&
                                strstr(m.text[rank], expected) != NULL);
                bool sender_is_done = rank == 0 && m.status[0] == RESHARD_OK;
                if (!sender_is_done && (m.status[rank] != RESHARD_ERR_GROUP_BROKEN || !told))
                    fail_msg("%s, case %zu: rank %d got %s, \"%s\"", ways[w].name, i, rank,
                             reshard_status_name(m.status[rank]), m.text[rank]);
            }
            assert_int_equal(m.status[1], RESHARD_ERR_GROUP_BROKEN);
        }
    }
}

/* ---- what is refused ------------------------------------------------------------------------- */

static reshard_status be_refused(void *user, reshard_group *group)
{
    reshard_status *seen = user;
    char buffer[8] = {0};
    reshard_work *work = NULL;
    seen[0] = reshard_send(NULL, group, RESHARD_U8, 1, 1, buffer, NULL);
    seen[1] = reshard_receive(NULL, group, RESHARD_U8, -1, 1, buffer, NULL);
    seen[2] = reshard_send(NULL, group, RESHARD_U8, 0, 1, buffer, NULL);
    seen[3] = reshard_receive(NULL, group, RESHARD_U8, 0, 1, buffer, NULL);
    seen[4] = reshard_send(NULL, group, RESHARD_U8, 0, -1, buffer, &work);
    seen[5] = reshard_send(NULL, group, RESHARD_U8, 0, 1, NULL, &work);
    seen[6] = reshard_send(NULL, group, (reshard_dtype)99, 0, 1, buffer, &work);
    seen[7] = reshard_send(NULL, group, RESHARD_F4, 0, 3, buffer, &work);
    seen[8] = reshard_send(NULL, group, RESHARD_F64, 0, INT64_MAX / 4, buffer, &work);
    return reshard_group_barrier(group);
}

static void test_delivery__refusals(void **state)
{
    (void)state;
    static const reshard_status wanted[] = {
        RESHARD_ERR_RANGE,   RESHARD_ERR_RANGE,       RESHARD_ERR_INVALID,
        RESHARD_ERR_INVALID, RESHARD_ERR_RANGE,       RESHARD_ERR_INVALID,
        RESHARD_ERR_INVALID, RESHARD_ERR_UNSUPPORTED, RESHARD_ERR_RANGE};
    reshard_status seen[9] = {0};
    assert_int_equal(reshard_group_run(NULL, 1, be_refused, seen), RESHARD_OK);
    assert_memory_equal(seen, wanted, sizeof wanted);
}

/* A delivery to oneself, with the n-th allocation failing. */
static reshard_status attempt_self(reshard_context *context, void *user)
{
    (void)user;
    reshard_group *group = NULL;
    reshard_work *sent = NULL, *received = NULL;
    int64_t out = 42, in = 0;
    reshard_status status = reshard_group_self(context, &group);
    if (status == RESHARD_OK)
        status = reshard_receive(context, group, RESHARD_I64, 0, 1, &in, &received);
    if (status == RESHARD_OK)
        status = reshard_send(context, group, RESHARD_I64, 0, 1, &out, &sent);
    if (status == RESHARD_OK)
        status = reshard_work_wait(received);
    if (status == RESHARD_OK && in != 42)
        status = reshard_error_set(RESHARD_ERR_CHECK, "something else came");
    reshard_work_destroy(sent);
    reshard_work_destroy(received);
    reshard_group_release(group);
    return status;
}

static void test_delivery__self(void **state)
{
    (void)state;
    words said = {0};
    if (!context_fail_each(attempt_self, NULL, &said))
        fail_msg("%s", said.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_delivery__exchange),  cmocka_unit_test(test_delivery__blocking),
        cmocka_unit_test(test_delivery__sub_group), cmocka_unit_test(test_delivery__misfits),
        cmocka_unit_test(test_delivery__refusals),  cmocka_unit_test(test_delivery__self),
    };
    return cmocka_run_group_tests_name("delivery", tests, NULL, NULL);
}
