/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_collective_refusals.c - what collectives and local shards refuse: all ranks get the same
 * status and a text that names the rank, and the group works as before.
 */
#include "tests/support/check.h"
#include "tests/support/ways.h"

#include <reshard/reshard.h>

#include <stdio.h>
#include <string.h>

enum { TEXT_MAX = 160 };

/* One rank, or all of them, ask for something wrong. */
typedef struct refusal {
    const char *name;
    reshard_status (*ask)(reshard_group *group, int32_t rank, const void *source, void *target);
    reshard_status status;
    const char *words, *more_words; /* in the text of every rank */
} refusal;

static const int64_t equal_counts[] = {2, 2, 2};

static reshard_status ask_negative_counts(reshard_group *g, int32_t r, const void *s, void *t)
{
    (void)r;
    const int64_t counts[] = {1, -1, 2};
    return reshard_exchange_run(NULL, g,
                                RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_GATHER,
                                                .dtype = RESHARD_I32, .count = 0, .counts = counts,
                                                .source = s, .target = t),
                                NULL);
}

static reshard_status ask_negative_count(reshard_group *g, int32_t r, const void *s, void *t)
{
    return reshard_exchange_run(NULL, g,
                                RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_REDUCE,
                                                .dtype = RESHARD_I32, .reduction = RESHARD_SUM,
                                                .count = r == 2 ? -5 : 5, .source = s, .target = t),
                                NULL);
}

static reshard_status ask_high_root(reshard_group *g, int32_t r, const void *s, void *t)
{
    (void)r;
    return reshard_exchange_run(NULL, g,
                                RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_BROADCAST,
                                                .dtype = RESHARD_I32, .root = 3, .count = 2,
                                                .source = s, .target = t),
                                NULL);
}

static reshard_status ask_negative_root(reshard_group *g, int32_t r, const void *s, void *t)
{
    return reshard_exchange_run(NULL, g,
                                RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_GATHER,
                                                .dtype = RESHARD_I32, .root = r == 1 ? -1 : 0,
                                                .count = 2, .source = s, .target = t),
                                NULL);
}

static reshard_status ask_other_root(reshard_group *g, int32_t r, const void *s, void *t)
{
    return reshard_exchange_run(NULL, g,
                                RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_REDUCE,
                                                .dtype = RESHARD_I32, .reduction = RESHARD_SUM,
                                                .root = r == 1 ? 1 : 0, .count = 2, .source = s,
                                                .target = t),
                                NULL);
}

static reshard_status ask_other_counts(reshard_group *g, int32_t r, const void *s, void *t)
{
    const int64_t other[] = {2, 1, 3};
    return reshard_exchange_run(NULL, g,
                                RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_GATHER,
                                                .dtype = RESHARD_I32, .count = 0,
                                                .counts = r == 2 ? other : equal_counts,
                                                .source = s, .target = t),
                                NULL);
}

static reshard_status ask_other_dtype(reshard_group *g, int32_t r, const void *s, void *t)
{
    return reshard_exchange_run(NULL, g,
                                RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_GATHER,
                                                .dtype = r == 1 ? RESHARD_F32 : RESHARD_I32,
                                                .count = 2, .source = s, .target = t),
                                NULL);
}

static reshard_status ask_other_reduction(reshard_group *g, int32_t r, const void *s, void *t)
{
    reshard_reduction reduction = r == 0 ? RESHARD_MAX : RESHARD_SUM;
    return reshard_exchange_run(NULL, g,
                                RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_REDUCE_SCATTER,
                                                .dtype = RESHARD_I32, .reduction = reduction,
                                                .count = 2, .source = s, .target = t),
                                NULL);
}

static reshard_status ask_other_call(reshard_group *g, int32_t r, const void *s, void *t)
{
    return r == 2
               ? reshard_exchange_run(NULL, g,
                                      RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_BROADCAST,
                                                      .dtype = RESHARD_I32, .root = 0, .count = 6,
                                                      .source = s, .target = t),
                                      NULL)
               : reshard_exchange_run(NULL, g,
                                      RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_GATHER,
                                                      .dtype = RESHARD_I32, .count = 2, .source = s,
                                                      .target = t),
                                      NULL);
}

static reshard_status ask_no_reduction(reshard_group *g, int32_t r, const void *s, void *t)
{
    (void)r;
    return reshard_exchange_run(
        NULL, g,
        RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_REDUCE, .dtype = RESHARD_I32,
                        .reduction = (reshard_reduction)99, .count = 2, .source = s, .target = t),
        NULL);
}

static reshard_status ask_no_dtype(reshard_group *g, int32_t r, const void *s, void *t)
{
    return reshard_exchange_run(NULL, g,
                                RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_GATHER,
                                                .dtype = r == 1 ? (reshard_dtype)99 : RESHARD_I32,
                                                .count = 2, .source = s, .target = t),
                                NULL);
}

static reshard_status ask_half_bytes(reshard_group *g, int32_t r, const void *s, void *t)
{
    (void)r;
    return reshard_exchange_run(NULL, g,
                                RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_GATHER,
                                                .dtype = RESHARD_F4, .count = 3, .source = s,
                                                .target = t),
                                NULL);
}

/* As many bytes, but not the same type. */
static reshard_status ask_other_half_bytes(reshard_group *g, int32_t r, const void *s, void *t)
{
    return reshard_exchange_run(NULL, g,
                                RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_GATHER,
                                                .dtype = r == 2 ? RESHARD_U8 : RESHARD_F4,
                                                .count = r == 2 ? 1 : 2, .source = s, .target = t),
                                NULL);
}

static reshard_status ask_half_sums(reshard_group *g, int32_t r, const void *s, void *t)
{
    (void)r;
    return reshard_exchange_run(NULL, g,
                                RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_REDUCE,
                                                .dtype = RESHARD_F4, .reduction = RESHARD_SUM,
                                                .count = 2, .source = s, .target = t),
                                NULL);
}

static reshard_status ask_complex_min(reshard_group *g, int32_t r, const void *s, void *t)
{
    return reshard_exchange_run(NULL, g,
                                RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_REDUCE,
                                                .dtype = r == 1 ? RESHARD_C64 : RESHARD_F32,
                                                .reduction = RESHARD_MIN, .root = 0, .count = 1,
                                                .source = s, .target = t),
                                NULL);
}

static reshard_status ask_float_bits(reshard_group *g, int32_t r, const void *s, void *t)
{
    (void)r;
    return reshard_exchange_run(NULL, g,
                                RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_REDUCE_SCATTER,
                                                .dtype = RESHARD_F32, .reduction = RESHARD_BXOR,
                                                .count = 1, .source = s, .target = t),
                                NULL);
}

static reshard_status ask_other_single(reshard_group *g, int32_t r, const void *s, void *t)
{
    return reshard_exchange_run(
        NULL, g,
        RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_TO_ALL_SINGLE,
                        .dtype = r == 0 ? RESHARD_F32 : RESHARD_I32, .send_counts = equal_counts,
                        .receive_counts = equal_counts, .source = s, .target = t),
        NULL);
}

static reshard_status ask_almost_in_place(reshard_group *g, int32_t r, const void *s, void *t)
{
    return reshard_exchange_run(
        NULL, g,
        RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_REDUCE, .dtype = RESHARD_I32,
                        .reduction = RESHARD_SUM, .count = 2,
                        .source = r == 2 ? (char *)t + 4 : (const char *)s, .target = t),
        NULL);
}

static reshard_status ask_missing_target(reshard_group *g, int32_t r, const void *s, void *t)
{
    return reshard_exchange_run(NULL, g,
                                RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_GATHER,
                                                .dtype = RESHARD_I32, .count = 2, .source = s,
                                                .target = r == 1 ? NULL : t),
                                NULL);
}

static reshard_status ask_overlap(reshard_group *g, int32_t r, const void *s, void *t)
{
    return reshard_exchange_run(
        NULL, g,
        RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_GATHER, .dtype = RESHARD_I32,
                        .count = 2, .counts = equal_counts,
                        .source = r == 1 ? (char *)t + 20 : (const char *)s, .target = t),
        NULL);
}

static reshard_status ask_too_much(reshard_group *g, int32_t r, const void *s, void *t)
{
    (void)r;
    return reshard_exchange_run(NULL, g,
                                RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_GATHER,
                                                .dtype = RESHARD_I32, .count = INT64_MAX / 2,
                                                .source = s, .target = t),
                                NULL);
}

static reshard_status ask_too_many_bytes(reshard_group *g, int32_t r, const void *s, void *t)
{
    (void)r;
    return reshard_exchange_run(NULL, g,
                                RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_BROADCAST,
                                                .dtype = RESHARD_I32, .root = 0,
                                                .count = INT64_MAX / 2, .source = s, .target = t),
                                NULL);
}

static reshard_status ask_other_receive(reshard_group *g, int32_t r, const void *s, void *t)
{
    const int64_t receives[] = {2, r == 2 ? 1 : 2, 2};
    return reshard_exchange_run(NULL, g,
                                RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_TO_ALL_SINGLE,
                                                .dtype = RESHARD_I32, .send_counts = equal_counts,
                                                .receive_counts = receives, .source = s,
                                                .target = t),
                                NULL);
}

/* More than is sent: the others' parts would lie behind it. */
static reshard_status ask_more(reshard_group *g, int32_t r, const void *s, void *t)
{
    const int64_t receives[] = {r == 1 ? 3 : 2, 2, 2};
    return reshard_exchange_run(NULL, g,
                                RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_TO_ALL_SINGLE,
                                                .dtype = RESHARD_I32, .send_counts = equal_counts,
                                                .receive_counts = receives, .source = s,
                                                .target = t),
                                NULL);
}

static reshard_status ask_negative_send(reshard_group *g, int32_t r, const void *s, void *t)
{
    const int64_t sends[] = {2, 2, r == 0 ? -2 : 2};
    return reshard_exchange_run(NULL, g,
                                RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_TO_ALL_SINGLE,
                                                .dtype = RESHARD_I32, .send_counts = sends,
                                                .receive_counts = equal_counts, .source = s,
                                                .target = t),
                                NULL);
}

static reshard_status ask_without_counts(reshard_group *g, int32_t r, const void *s, void *t)
{
    return reshard_exchange_run(NULL, g,
                                RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_TO_ALL_SINGLE,
                                                .dtype = RESHARD_I32, .send_counts = equal_counts,
                                                .receive_counts = r == 1 ? NULL : equal_counts,
                                                .source = s, .target = t),
                                NULL);
}

static reshard_status ask_without_list(reshard_group *g, int32_t r, const void *s, void *t)
{
    const void *sources[] = {s, s, s};
    void *targets[] = {t, (char *)t + 8, (char *)t + 16};
    return reshard_exchange_run(NULL, g,
                                RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_TO_ALL,
                                                .dtype = RESHARD_I32, .send_counts = equal_counts,
                                                .receive_counts = equal_counts, .sources = sources,
                                                .targets = r == 1 ? NULL : targets),
                                NULL);
}

static reshard_status ask_unknown_kind(reshard_group *g, int32_t r, const void *s, void *t)
{
    const reshard_exchange exchange = {.size = sizeof exchange,
                                       .kind =
                                           r == 1 ? (reshard_exchange_kind)77 : RESHARD_BROADCAST,
                                       .dtype = RESHARD_I32,
                                       .count = 1,
                                       .source = s,
                                       .target = t};
    reshard_work *work = NULL;
    return reshard_exchange_run(NULL, g, &exchange, &work);
}

/* A struct that was never filled in fails on all ranks, too. */
static reshard_status ask_unset_struct(reshard_group *g, int32_t r, const void *s, void *t)
{
    const reshard_exchange exchange = {.size = r == 2 ? SIZE_MAX : sizeof exchange,
                                       .kind = RESHARD_BROADCAST,
                                       .dtype = RESHARD_I32,
                                       .count = 1,
                                       .source = s,
                                       .target = t};
    reshard_work *work = NULL;
    return reshard_exchange_run(NULL, g, &exchange, &work);
}

static reshard_status ask_chunks(reshard_group *g, reshard_chunks from, reshard_chunks to,
                                 const void *s, void *t)
{
    const int64_t shape[] = {3, 2};
    return reshard_reshard_local_shard(NULL, g, 2, shape, RESHARD_I32, &from, &to, s, t);
}

static reshard_status ask_high_dim(reshard_group *g, int32_t r, const void *s, void *t)
{
    return ask_chunks(g, (reshard_chunks){0, 3, NULL}, (reshard_chunks){r == 2 ? 2 : 1, 3, NULL}, s,
                      t);
}

static reshard_status ask_foreign_rank(reshard_group *g, int32_t r, const void *s, void *t)
{
    (void)r;
    return ask_chunks(g, (reshard_chunks){0, 3, NULL}, (reshard_chunks){0, 4, NULL}, s, t);
}

static reshard_status ask_rank_twice(reshard_group *g, int32_t r, const void *s, void *t)
{
    (void)r;
    const int32_t ranks[] = {0, 1, 0};
    return ask_chunks(g, (reshard_chunks){0, 3, NULL}, (reshard_chunks){0, 3, ranks}, s, t);
}

static const refusal refusals[] = {
    {"negative counts", ask_negative_counts, RESHARD_ERR_RANGE, "rank 0", "rank 1 is -1"},
    {"negative count", ask_negative_count, RESHARD_ERR_RANGE, "rank 2", "-5"},
    {"high root", ask_high_root, RESHARD_ERR_RANGE, "rank 3", "broadcast"},
    {"negative root", ask_negative_root, RESHARD_ERR_RANGE, "rank 1:", "rank -1"},
    {"other root", ask_other_root, RESHARD_ERR_MISMATCH, "rank 1: ", "root 1"},
    {"other counts", ask_other_counts, RESHARD_ERR_MISMATCH, "rank 2: ", "what is passed differs"},
    {"other dtype", ask_other_dtype, RESHARD_ERR_MISMATCH, "rank 1: ", "6 f32"},
    {"other reduction", ask_other_reduction, RESHARD_ERR_MISMATCH, "rank 0: ", "by max"},
    {"other call", ask_other_call, RESHARD_ERR_MISMATCH, "rank 2: ", "broadcast"},
    {"no reduction", ask_no_reduction, RESHARD_ERR_INVALID, "99", "all_reduce"},
    {"no dtype", ask_no_dtype, RESHARD_ERR_INVALID, "rank 1:", "all_gather"},
    {"half bytes", ask_half_bytes, RESHARD_ERR_UNSUPPORTED, "f4", "all_gather"},
    {"other half bytes", ask_other_half_bytes, RESHARD_ERR_MISMATCH, "rank 2: ", "u8"},
    {"half sums", ask_half_sums, RESHARD_ERR_UNSUPPORTED, "f4", "all_reduce"},
    {"complex min", ask_complex_min, RESHARD_ERR_UNSUPPORTED, "rank 1:", "c64"},
    {"float bits", ask_float_bits, RESHARD_ERR_UNSUPPORTED, "bxor", "reduce_scatter"},
    {"other single", ask_other_single, RESHARD_ERR_MISMATCH, "rank 0: ", "f32"},
    {"almost in place", ask_almost_in_place, RESHARD_ERR_INVALID, "rank 2:", "overlap"},
    {"missing target", ask_missing_target, RESHARD_ERR_INVALID, "rank 1:", "target 0 is NULL"},
    {"overlap", ask_overlap, RESHARD_ERR_INVALID, "rank 1:", "overlap"},
    {"too much", ask_too_much, RESHARD_ERR_RANGE, "all_gather", ""},
    {"too many bytes", ask_too_many_bytes, RESHARD_ERR_RANGE, "broadcast", ""},
    {"other receive", ask_other_receive, RESHARD_ERR_MISMATCH, "rank 2 expects 1", "from rank 1"},
    {"more than is sent", ask_more, RESHARD_ERR_MISMATCH, "rank 1 expects 3", "from rank 0"},
    {"negative send", ask_negative_send, RESHARD_ERR_RANGE, "rank 0:", "send count 2 is -2"},
    {"without counts", ask_without_counts, RESHARD_ERR_INVALID, "rank 1:", "receive counts"},
    {"without list", ask_without_list, RESHARD_ERR_INVALID, "rank 1:", "targets"},
    {"unknown kind", ask_unknown_kind, RESHARD_ERR_INVALID, "rank 1:", "77"},
    {"unset struct", ask_unset_struct, RESHARD_ERR_INVALID, "rank 2:", "exchange"},
    {"high dim", ask_high_dim, RESHARD_ERR_RANGE, "rank 2:", "dimension 2"},
    {"foreign rank", ask_foreign_rank, RESHARD_ERR_RANGE, "rank 3", ""},
    {"rank twice", ask_rank_twice, RESHARD_ERR_INVALID, "rank 0", "reshard_local_shard"},
};

enum { REFUSALS = (int)(sizeof refusals / sizeof *refusals) };

typedef struct refused {
    reshard_status status[REFUSALS][3];
    char text[REFUSALS][3][TEXT_MAX];
    int32_t sum[3]; /* the group works as before */
} refused;

static reshard_status be_refused(void *user, reshard_group *group)
{
    refused *seen = user;
    int32_t rank = reshard_group_rank(group);
    int32_t source[16] = {rank + 1}, target[16] = {0};
    for (int i = 0; i < REFUSALS; i++) {
        seen->status[i][rank] = refusals[i].ask(group, rank, source, target);
        (void)snprintf(seen->text[i][rank], TEXT_MAX, "%s", reshard_error_text());
    }
    return reshard_exchange_run(NULL, group,
                                RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_REDUCE,
                                                .dtype = RESHARD_I32, .reduction = RESHARD_SUM,
                                                .count = 1, .source = source,
                                                .target = &seen->sum[rank]),
                                NULL);
}

static void test_collective__refusals(void **state)
{
    (void)state;
    for (int w = 0; w < WAYS; w++) {
        refused seen = {0};
        assert_int_equal(run_way(&ways[w], 3, be_refused, &seen), RESHARD_OK);
        for (int i = 0; i < REFUSALS; i++) {
            const refusal *r = &refusals[i];
            for (int rank = 0; rank < 3; rank++) {
                const char *text = seen.text[i][rank];
                if (seen.status[i][rank] != r->status || strstr(text, r->words) == NULL ||
                    strstr(text, r->more_words) == NULL)
                    fail_msg("%s, %s: rank %d got %s, \"%s\"", ways[w].name, r->name, rank,
                             reshard_status_name(seen.status[i][rank]), text);
            }
        }
        for (int rank = 0; rank < 3; rank++)
            assert_int_equal(seen.sum[rank], 6);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_collective__refusals),
    };
    return cmocka_run_group_tests_name("collective refusals", tests, NULL, NULL);
}
