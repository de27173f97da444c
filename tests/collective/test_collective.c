/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_collective.c - collectives against obvious loops, on whole groups and sub-groups, and with
 * one rank short of memory.
 */
#include "tests/collective/collective_jobs.h"
#include "tests/support/check.h"
#include "tests/support/context.h"

#include <string.h>

/* Threads do everything; a simulation a third, another one for each size. */
static jobs make_jobs(const way *w, int32_t size)
{
    return (jobs){.step = w->simulated ? 3 : 1, .phase = w->simulated ? size % 3 : 0};
}

/* ---- every collective ------------------------------------------------------------------------ */

/* Every dtype and reduction that the operation knows, and every root with the first reduction. */
static void add_variants(jobs *all, job *made)
{
    for (int d = 0; d < 2; d++) {
        made->dtype = d == 0 ? RESHARD_I32 : RESHARD_F32;
        for (int r = 0; r < (reduces(made->what) ? (int)RESHARD_REDUCTION_COUNT : 1); r++) {
            made->reduction = (reshard_reduction)r;
            if (made->dtype == RESHARD_I32 ? made->reduction == RESHARD_AVG
                                           : made->reduction > RESHARD_MAX)
                continue;
            made->root = has_root(made->what) ? r % made->size : 0;
            add_job(all, made);
            while (r == 0 && has_root(made->what) && ++made->root < made->size)
                add_job(all, made);
        }
    }
}

static void add_operation(jobs *all, operation what, int32_t size)
{
    static const int64_t uneven[][RANKS_MAX] = {
        {2, 0, 5, 1, 3}, {0, 0, 0, 0, 0}, {4, 4, 4, 4, 4}, {0, 0, 0, 9, 0}};
    static const int64_t each[] = {0, 1, 7};
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        job made = {.what = what, .size = size, .count = each[i]};
        for (int32_t k = 0; k < RANKS_MAX * RANKS_MAX; k++)
            made.matrix[k / RANKS_MAX][k % RANKS_MAX] = each[i];
        add_variants(all, &made);
    }
    for (size_t i = 0; i < sizeof uneven / sizeof *uneven; i++) {
        job made = {.what = what, .size = size, .count = -1, .has_counts = true};
        memcpy(made.counts, uneven[i], sizeof made.counts);
        for (int32_t k = 0; k < RANKS_MAX * RANKS_MAX; k++)
            made.matrix[k / RANKS_MAX][k % RANKS_MAX] = uneven[i][(k * 3 + k / RANKS_MAX) % 5];
        if (has_parts(what) || what == ALL_TO_ALL || what == ALL_TO_ALL_SINGLE)
            add_variants(all, &made);
    }
}

static void run_all(const way *w, int32_t world, int32_t member_count, const int32_t *members)
{
    jobs all = make_jobs(w, world + member_count);
    all.member_count = member_count;
    if (member_count != 0)
        memcpy(all.members, members, (size_t)member_count * sizeof *members);
    for (operation what = ALL_GATHER; what < OPERATION_COUNT; what++)
        add_operation(&all, what, member_count != 0 ? member_count : world);
    run_jobs(w, world, &all);
}

static void test_collective__all(void **state)
{
    (void)state;
    for (int w = 0; w < WAYS; w++) {
        for (int32_t size = 1; size <= RANKS_MAX; size++)
            run_all(&ways[w], size, 0, NULL);
    }
}

static void test_collective__sub_group(void **state)
{
    (void)state;
    static const int32_t three[] = {4, 1, 3}, five[] = {2, 4, 0, 3, 1}, one[] = {3};
    for (int w = 0; w < WAYS; w++) {
        run_all(&ways[w], 5, 3, three);
        run_all(&ways[w], 5, 5, five);
        run_all(&ways[w], 4, 1, one);
    }
}

/* More than one segment of the streams over messages. */
static void test_collective__large(void **state)
{
    (void)state;
    for (int w = 0; w < WAYS; w++) {
        jobs all = {.step = 1};
        job made = {.size = 3, .count = 40000, .root = 1, .dtype = RESHARD_F32};
        for (int32_t k = 0; k < RANKS_MAX * RANKS_MAX; k++)
            made.matrix[k / RANKS_MAX][k % RANKS_MAX] = 5000 + 300 * k;
        for (made.what = ALL_GATHER; made.what < OPERATION_COUNT; made.what++)
            add_job(&all, &made);
        run_jobs(&ways[w], 3, &all);
    }
}

/* ---- no memory ------------------------------------------------------------------------------- */

typedef struct shortage {
    job *wanted;
    reshard_context *context; /* of the last rank */
} shortage;

static reshard_status run_short(void *user, reshard_group *group)
{
    shortage *s = user;
    int32_t rank = reshard_group_rank(group);
    s->wanted->status[rank] =
        call_job(rank == s->wanted->size - 1 ? s->context : NULL, s->wanted, group, NULL);
    return RESHARD_OK;
}

/* All ranks get the same, or the status says that something else is wrong. */
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

static void test_collective__no_memory(void **state)
{
    (void)state;
    static const operation some[] = {ALL_GATHER, ALL_REDUCE, SCATTER, ALL_TO_ALL_SINGLE,
                                     ALL_TO_ALL};
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        job made = {.what = some[i], .dtype = RESHARD_I32, .size = 2, .count = 3};
        made.has_counts = true;
        made.counts[1] = 4;
        made.matrix[0][1] = 2;
        made.matrix[1][1] = 1;
        prepare_job(&made);
        words said = {0};
        if (!context_fail_each(attempt_short, &made, &said))
            fail_msg("%s: %s", operation_names[made.what], said.text);
        check_job(&made);
        forget_job(&made);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_collective__all),
        cmocka_unit_test(test_collective__sub_group),
        cmocka_unit_test(test_collective__large),
        cmocka_unit_test(test_collective__no_memory),
    };
    return cmocka_run_group_tests_name("collective", tests, NULL, NULL);
}
