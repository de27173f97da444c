/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_work.c - collectives that are started: several under way at once, run again, in place, and
 * of every type. Against the loops of collective_jobs.c; types without values byte by byte.
 */
#include "tests/collective/collective_jobs.h"
#include "tests/support/check.h"
#include "tests/support/context.h"
#include "tests/support/ranks.h"

#include <stdio.h>
#include <string.h>

/* ---- started --------------------------------------------------------------------------------- */

static const int64_t uneven[][RANKS_MAX] = {{2, 0, 5, 1, 3}, {0, 0, 9, 0, 700}, {4, 4, 4, 4, 4}};

static void add_sizes(jobs *all, job made)
{
    for (int i = 0; i < 3; i++) {
        made.count = i == 0 ? 1 : i == 1 ? 7 : 300;
        made.has_counts = has_parts(made.what);
        memcpy(made.counts, uneven[i], sizeof made.counts);
        for (int32_t k = 0; k < RANKS_MAX * RANKS_MAX; k++)
            made.matrix[k / RANKS_MAX][k % RANKS_MAX] = uneven[i][(k * 3 + k / RANKS_MAX) % 5];
        add_job(all, &made);
    }
}

static void test_work__started(void **state)
{
    (void)state;
    static const int32_t members[] = {3, 0, 4};
    for (int w = 0; w < WAYS; w++) {
        for (int32_t size = 1; size <= RANKS_MAX; size++) {
            jobs all = {.step = w == 0 ? 1 : 5, .together = size + 1};
            if (size == 3) {
                all.member_count = 3;
                memcpy(all.members, members, sizeof members);
            }
            for (operation what = ALL_GATHER; what < OPERATION_COUNT; what++)
                add_sizes(&all, (job){.what = what,
                                      .dtype = RESHARD_F32,
                                      .reduction = RESHARD_SUM,
                                      .size = size,
                                      .root = size / 2});
            run_jobs(&ways[w], size == 3 ? 5 : size, &all);
        }
    }
}

/* All ranks, some of them, one: each decides for itself. */
static void test_work__in_place(void **state)
{
    (void)state;
    static const unsigned masks[] = {31, 21, 10, 1};
    static const reshard_reduction reductions[] = {RESHARD_SUM, RESHARD_AVG, RESHARD_MAX};
    for (int w = 0; w < WAYS; w++) {
        for (int32_t size = 1; size <= RANKS_MAX; size++) {
            jobs all = {.step = w == 0 ? 2 : 17, .phase = size % 2, .together = 3};
            for (operation what = ALL_GATHER; what <= REDUCE; what++) {
                for (int i = 0; i < 4 * (reduces(what) ? 3 : 1); i++)
                    add_sizes(&all, (job){.what = what,
                                          .dtype = i % 2 == 0 ? RESHARD_I32 : RESHARD_F64,
                                          .reduction = reductions[i / 4],
                                          .in_place = masks[i % 4],
                                          .size = size,
                                          .root = i % size});
            }
            run_jobs(&ways[w], size, &all);
        }
    }
}

/* ---- types ----------------------------------------------------------------------------------- */

static bool is_reduced(reshard_dtype dtype, reshard_reduction reduction)
{
    bool bits = reduction >= RESHARD_BAND;
    if (!has_values(dtype))
        return false;
    if (dtype == RESHARD_BOOL)
        return reduction != RESHARD_AVG;
    if (dtype == RESHARD_C64 || dtype == RESHARD_C128)
        return reduction <= RESHARD_PROD;
    if (dtype == RESHARD_F16 || dtype == RESHARD_BF16 || dtype == RESHARD_F32 ||
        dtype == RESHARD_F64)
        return !bits;
    return true;
}

static void add_type(jobs *all, reshard_dtype dtype, int32_t size)
{
    for (operation what = ALL_GATHER; what < OPERATION_COUNT; what++) {
        for (int r = 0; r < (reduces(what) ? (int)RESHARD_REDUCTION_COUNT : 1); r++) {
            job made = {.what = what, .dtype = dtype, .size = size, .count = 37, .root = size - 1};
            made.reduction = (reshard_reduction)r;
            for (int32_t k = 0; k < RANKS_MAX * RANKS_MAX; k++)
                made.matrix[k / RANKS_MAX][k % RANKS_MAX] = 3 + k % 4;
            if (!reduces(what) || is_reduced(dtype, made.reduction))
                add_job(all, &made);
        }
    }
}

static void test_work__types(void **state)
{
    (void)state;
    for (int w = 0; w < WAYS; w++) {
        for (int32_t size = 1; size <= RANKS_MAX; size += 2) {
            jobs all = {.step = w == 0 ? 3 : 31, .phase = size / 2};
            for (int d = 1; d < (int)RESHARD_DTYPE_COUNT; d++) {
                if (reshard_dtype_bits((reshard_dtype)d) % 8 == 0)
                    add_type(&all, (reshard_dtype)d, size);
            }
            run_jobs(&ways[w], size, &all);
        }
    }
}

/* Unsupported pairs are refused by one rank too, where nothing would have to be combined. */
static reshard_status refuse_alone(void *user, reshard_group *group)
{
    int *wrong = user;
    for (int d = 1; d < (int)RESHARD_DTYPE_COUNT; d++) {
        for (int r = 0; r < (int)RESHARD_REDUCTION_COUNT; r++) {
            double source[2] = {0}, target[2] = {0};
            reshard_status status = reshard_exchange_run(
                NULL, group,
                RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_REDUCE,
                                .dtype = (reshard_dtype)d, .reduction = (reshard_reduction)r,
                                .count = 1, .source = source, .target = target),
                NULL);
            bool fine = is_reduced((reshard_dtype)d, (reshard_reduction)r);
            *wrong += status != (fine ? RESHARD_OK : RESHARD_ERR_UNSUPPORTED);
        }
    }
    return RESHARD_OK;
}

static void test_work__refused_types(void **state)
{
    (void)state;
    int wrong = 0;
    assert_int_equal(reshard_group_run(NULL, 1, refuse_alone, &wrong), RESHARD_OK);
    assert_int_equal(wrong, 0);
}

/* Four elements of 6 bits, two of 4: rank r gives r + 1 times as many bytes of its own. */
typedef struct parts_of_bytes {
    reshard_dtype dtype;
    int64_t elements, bytes; /* the least that go together */
    unsigned char gathered[3][18], exchanged[3][18], told[3][3];
} parts_of_bytes;

static reshard_status move_parts(void *user, reshard_group *group)
{
    parts_of_bytes *p = user;
    int32_t rank = reshard_group_rank(group);
    unsigned char source[18];
    int64_t counts[3], sends[3], receives[3];
    for (int i = 0; i < 18; i++)
        source[i] = (unsigned char)(50 * rank + i + 1);
    for (int i = 0; i < 3; i++) {
        counts[i] = (i + 1) * p->elements;
        sends[i] = p->elements;
        receives[i] = p->elements;
    }
    reshard_status status = reshard_exchange_run(
        NULL, group,
        RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_GATHER, .dtype = p->dtype, .count = 0,
                        .counts = counts, .source = source, .target = p->gathered[rank]),
        NULL);
    if (status == RESHARD_OK)
        status = reshard_exchange_run(
            NULL, group,
            RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_TO_ALL_SINGLE, .dtype = p->dtype,
                            .send_counts = sends, .receive_counts = receives, .source = source,
                            .target = p->exchanged[rank]),
            NULL);
    if (status == RESHARD_OK)
        status =
            reshard_exchange_run(NULL, group,
                                 RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_BROADCAST,
                                                 .dtype = p->dtype, .root = 1, .count = p->elements,
                                                 .source = source, .target = p->told[rank]),
                                 NULL);
    return status;
}

static void check_parts(const parts_of_bytes *p, int32_t rank)
{
    int64_t at = 0;
    for (int32_t from = 0; from < 3; from++) {
        for (int64_t i = 0; i < (from + 1) * p->bytes; i++)
            assert_int_equal(p->gathered[rank][at++], 50 * from + i + 1);
        for (int64_t i = 0; i < p->bytes; i++)
            assert_int_equal(p->exchanged[rank][from * p->bytes + i],
                             50 * from + rank * p->bytes + i + 1);
    }
    for (int64_t i = 0; i < p->bytes; i++)
        assert_int_equal(p->told[rank][i], 50 + i + 1);
    assert_int_equal(p->told[rank][2], p->bytes == 3 ? 53 : 0);
}

static void test_work__parts_of_bytes(void **state)
{
    (void)state;
    static const reshard_dtype dtypes[] = {RESHARD_F4, RESHARD_F6_E2M3, RESHARD_F6_E3M2};
    for (int w = 0; w < WAYS; w++) {
        for (int d = 0; d < 3; d++) {
            parts_of_bytes p = {
                .dtype = dtypes[d], .elements = d == 0 ? 2 : 4, .bytes = d == 0 ? 1 : 3};
            assert_int_equal(run_way(&ways[w], 3, move_parts, &p), RESHARD_OK);
            for (int32_t rank = 0; rank < 3; rank++)
                check_parts(&p, rank);
        }
    }
}

/* ---- many ranks ------------------------------------------------------------------------------ */

enum { MANY = 40 };

static reshard_status sum_many(void *user, reshard_group *group)
{
    (void)user;
    int32_t rank = reshard_group_rank(group), source[2] = {rank, 0}, sum[2] = {0};
    TRY(reshard_exchange_run(NULL, group,
                             RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_REDUCE,
                                             .dtype = RESHARD_I32, .reduction = RESHARD_SUM,
                                             .count = 1, .source = source, .target = sum),
                             NULL));
    CHECK(sum[0] == MANY * (MANY - 1) / 2);
    reshard_status refused = reshard_exchange_run(
        NULL, group,
        RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_REDUCE, .dtype = RESHARD_I32,
                        .reduction = RESHARD_SUM, .count = rank == 33 ? 2 : 1, .source = source,
                        .target = sum),
        NULL);
    CHECK(refused == RESHARD_ERR_MISMATCH);
    CHECK(strstr(reshard_error_text(), "rank 33: all_reduce of 2") != NULL);
    return RESHARD_OK;
}

static void test_work__many_ranks(void **state)
{
    (void)state;
    run_ranks(MANY, sum_many, NULL);
}

/* ---- what restart refuses, and failures ------------------------------------------------------ */

typedef struct lifetimes {
    reshard_status early[2], late[2];
    int done[2];
} lifetimes;

static reshard_status live(void *user, reshard_group *group)
{
    lifetimes *l = user;
    int32_t rank = reshard_group_rank(group), source = rank, target = -1;
    reshard_work *work = NULL;
    reshard_status status =
        reshard_exchange_run(NULL, group,
                             &(reshard_exchange){.size = sizeof(reshard_exchange),
                                                 .kind = RESHARD_ALL_REDUCE,
                                                 .dtype = RESHARD_I32,
                                                 .reduction = RESHARD_MAX,
                                                 .count = 1,
                                                 .source = &source,
                                                 .target = &target},
                             &work);
    if (status != RESHARD_OK)
        return status;
    l->early[rank] = reshard_work_restart(work);
    status = reshard_work_wait(work);
    if (status == RESHARD_OK)
        status = reshard_work_wait(work); /* again */
    if (status == RESHARD_OK)
        status = reshard_work_test(work, &l->done[rank]);
    if (status == RESHARD_OK)
        status = reshard_group_barrier(group);
    if (rank == 0)
        reshard_group_break(group, "on purpose");
    (void)reshard_group_barrier(group);
    l->late[rank] = reshard_work_restart(work);
    reshard_work_destroy(work);
    reshard_work_destroy(NULL);
    return status;
}

static void test_work__lifetimes(void **state)
{
    (void)state;
    for (int w = 0; w < WAYS; w++) {
        lifetimes l = {{0}, {0}, {0}};
        assert_int_not_equal(run_way(&ways[w], 2, live, &l), RESHARD_OK); /* it was broken */
        for (int rank = 0; rank < 2; rank++) {
            assert_int_equal(l.early[rank], RESHARD_ERR_INVALID);
            assert_int_equal(l.done[rank], 1);
            assert_int_equal(l.late[rank], RESHARD_ERR_GROUP_BROKEN);
        }
    }
}

/* Ranks wait in different orders, some between two starts. */
static reshard_status wait_in_disorder(void *user, reshard_group *group)
{
    int32_t(*sums)[3] = user;
    int32_t rank = reshard_group_rank(group), one = 1;
    reshard_work *works[3] = {NULL};
    reshard_status status = RESHARD_OK;
    for (int i = 0; i < 3 && status == RESHARD_OK; i++) {
        status = reshard_exchange_run(NULL, group,
                                      &(reshard_exchange){.size = sizeof(reshard_exchange),
                                                          .kind = RESHARD_ALL_REDUCE,
                                                          .dtype = RESHARD_I32,
                                                          .reduction = RESHARD_SUM,
                                                          .count = 1,
                                                          .source = &one,
                                                          .target = &sums[rank][i]},
                                      &works[i]);
        if (status == RESHARD_OK && rank % 2 == 1)
            status = reshard_work_wait(works[i]);
    }
    for (int i = 0; i < 3 && status == RESHARD_OK; i++)
        status = reshard_work_wait(works[(rank + i) % 3]);
    for (int i = 0; i < 3; i++)
        reshard_work_destroy(works[i]);
    return status;
}

static void test_work__disorder(void **state)
{
    (void)state;
    for (int w = 0; w < WAYS; w++) {
        for (int32_t size = 1; size <= RANKS_MAX; size++) {
            int32_t sums[RANKS_MAX][3] = {{0}};
            assert_int_equal(run_way(&ways[w], size, wait_in_disorder, sums), RESHARD_OK);
            for (int i = 0; i < 3 * size; i++)
                assert_int_equal(sums[i / 3][i % 3], size);
        }
    }
}

typedef struct shortage {
    job *wanted;
    reshard_context *context; /* of the last rank */
} shortage;

static reshard_status run_short(void *user, reshard_group *group)
{
    shortage *s = user;
    int32_t rank = reshard_group_rank(group);
    reshard_work *work = NULL;
    s->wanted->status[rank] =
        call_job(rank == s->wanted->size - 1 ? s->context : NULL, s->wanted, group, &work);
    if (s->wanted->status[rank] == RESHARD_OK)
        s->wanted->status[rank] = reshard_work_wait(work);
    reshard_work_destroy(work);
    return RESHARD_OK;
}

static reshard_status attempt_short(reshard_context *context, void *user)
{
    shortage s = {user, context};
    reshard_status status = run_way(&ways[1], s.wanted->size, run_short, &s);
    for (int32_t rank = 1; rank < s.wanted->size && status == RESHARD_OK; rank++) {
        if (s.wanted->status[rank] != s.wanted->status[0])
            status = reshard_error_set(RESHARD_ERR_CHECK, "ranks do not agree");
    }
    return status == RESHARD_OK ? s.wanted->status[0] : status;
}

/* One in place that puts its target aside, and one of parts of bytes. */
static void test_work__no_memory(void **state)
{
    (void)state;
    job made = {.what = REDUCE_SCATTER,
                .dtype = RESHARD_I32,
                .reduction = RESHARD_SUM,
                .in_place = 3,
                .size = 2,
                .count = 5};
    prepare_job(&made);
    words said = {0};
    if (!context_fail_each(attempt_short, &made, &said))
        fail_msg("%s", said.text);
    check_job(&made);
    forget_job(&made);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_work__started),        cmocka_unit_test(test_work__in_place),
        cmocka_unit_test(test_work__types),          cmocka_unit_test(test_work__refused_types),
        cmocka_unit_test(test_work__parts_of_bytes), cmocka_unit_test(test_work__many_ranks),
        cmocka_unit_test(test_work__lifetimes),      cmocka_unit_test(test_work__disorder),
        cmocka_unit_test(test_work__no_memory),
    };
    return cmocka_run_group_tests_name("work", tests, NULL, NULL);
}
