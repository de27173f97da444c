/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_collective.c - collectives against obvious loops, on whole groups and sub-groups, and with
 * one rank short of memory. Ranks run lists of jobs and record what they saw; the main thread
 * checks. Buffers have exactly the size they need, so that a sanitizer sees every element too much.
 */
#include "exec/ways.h"
#include "support/check.h"
#include "support/context.h"

#include <reshard/reshard.h>

#include <stdio.h>
#include <string.h>

enum { RANKS_MAX = 5, TEXT_MAX = 160 };

static void put(void *buffer, reshard_dtype dtype, int64_t i, double value)
{
    if (dtype == RESHARD_I32)
        ((int32_t *)buffer)[i] = (int32_t)value;
    else
        ((float *)buffer)[i] = (float)value;
}

static double get(const void *buffer, reshard_dtype dtype, int64_t i)
{
    return dtype == RESHARD_I32 ? ((const int32_t *)buffer)[i] : (double)((const float *)buffer)[i];
}

/* ---- jobs ------------------------------------------------------------------------------------ */

#define OPERATION_LIST(X) \
    X(ALL_GATHER)         \
    X(REDUCE_SCATTER)     \
    X(ALL_REDUCE)         \
    X(BROADCAST)          \
    X(SCATTER)            \
    X(GATHER)             \
    X(REDUCE)             \
    X(ALL_TO_ALL_SINGLE)  \
    X(ALL_TO_ALL)

typedef enum operation {
#define OPERATION_ENUM(name) name,
    OPERATION_LIST(OPERATION_ENUM) OPERATION_COUNT
#undef OPERATION_ENUM
} operation;

static const char *const operation_names[] = {
#define OPERATION_NAME(name) #name,
    OPERATION_LIST(OPERATION_NAME)
#undef OPERATION_NAME
};

typedef struct job {
    operation what;
    reshard_dtype dtype;
    reshard_reduction reduction;
    int32_t root, size;
    int64_t count; /* of each, when counts are not given */
    bool has_counts;
    int64_t counts[RANKS_MAX];
    int64_t matrix[RANKS_MAX][RANKS_MAX]; /* by sender and receiver */
    void *sources[RANKS_MAX], *targets[RANKS_MAX];
    void *source_lists[RANKS_MAX][RANKS_MAX], *target_lists[RANKS_MAX][RANKS_MAX];
    reshard_status status[RANKS_MAX];
    char text[RANKS_MAX][TEXT_MAX];
} job;

static int64_t count_of(const job *j, int32_t rank)
{
    return j->has_counts ? j->counts[rank] : j->count;
}

/* What lower ranks have; for `size`, the total. */
static int64_t offset_of(const job *j, int32_t rank)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < rank; i++)
        sum += count_of(j, i);
    return sum;
}

static int64_t sent_before(const job *j, int32_t sender, int32_t receiver)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < receiver; i++)
        sum += j->matrix[sender][i];
    return sum;
}

static int64_t received_before(const job *j, int32_t receiver, int32_t sender)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < sender; i++)
        sum += j->matrix[i][receiver];
    return sum;
}

static int64_t source_count(const job *j, int32_t rank)
{
    switch (j->what) {
    case ALL_GATHER:
    case GATHER:
        return count_of(j, rank);
    case REDUCE_SCATTER:
        return offset_of(j, j->size);
    case SCATTER:
        return rank == j->root ? offset_of(j, j->size) : 0;
    case BROADCAST:
        return rank == j->root ? j->count : 0;
    case ALL_TO_ALL_SINGLE:
    case ALL_TO_ALL:
        return sent_before(j, rank, j->size);
    default:
        return j->count;
    }
}

static int64_t target_count(const job *j, int32_t rank)
{
    switch (j->what) {
    case ALL_GATHER:
        return offset_of(j, j->size);
    case GATHER:
        return rank == j->root ? offset_of(j, j->size) : 0;
    case REDUCE_SCATTER:
    case SCATTER:
        return count_of(j, rank);
    case REDUCE:
        return rank == j->root ? j->count : 0;
    case ALL_TO_ALL_SINGLE:
    case ALL_TO_ALL:
        return received_before(j, rank, j->size);
    default:
        return j->count;
    }
}

static bool reduces(operation what)
{
    return what == REDUCE_SCATTER || what == ALL_REDUCE || what == REDUCE;
}

static bool has_root(operation what)
{
    return what == BROADCAST || what == SCATTER || what == GATHER || what == REDUCE;
}

static bool has_parts(operation what)
{
    return what == ALL_GATHER || what == REDUCE_SCATTER || what == SCATTER || what == GATHER;
}

/* Contributions are small, so that products are exact; what is only moved is told apart. */
static double source_value(const job *j, int32_t rank, int64_t i)
{
    return reduces(j->what) ? (double)((rank * 7 + i * 3) % 6 - 2) : (double)(rank * 1000 + i);
}

static double reduce_values(const job *j, int64_t i)
{
    double value = source_value(j, 0, i);
    for (int32_t rank = 1; rank < j->size; rank++) {
        double other = source_value(j, rank, i);
        if (j->reduction == RESHARD_PROD)
            value *= other;
        else if (j->reduction == RESHARD_MIN)
            value = other < value ? other : value;
        else if (j->reduction == RESHARD_MAX)
            value = other > value ? other : value;
        else if (j->reduction == RESHARD_BAND)
            value = (double)((int32_t)value & (int32_t)other);
        else if (j->reduction == RESHARD_BOR)
            value = (double)((int32_t)value | (int32_t)other);
        else if (j->reduction == RESHARD_BXOR)
            value = (double)((int32_t)value ^ (int32_t)other);
        else
            value += other;
    }
    return j->reduction == RESHARD_AVG ? value / j->size : value;
}

static double target_value(const job *j, int32_t rank, int64_t i)
{
    int32_t from = 0;
    switch (j->what) {
    case ALL_GATHER:
    case GATHER:
        while (i >= offset_of(j, from + 1))
            from++;
        return source_value(j, from, i - offset_of(j, from));
    case REDUCE_SCATTER:
        return reduce_values(j, offset_of(j, rank) + i);
    case SCATTER:
        return source_value(j, j->root, offset_of(j, rank) + i);
    case BROADCAST:
        return source_value(j, j->root, i);
    case ALL_TO_ALL_SINGLE:
    case ALL_TO_ALL:
        while (i >= received_before(j, rank, from + 1))
            from++;
        return source_value(j, from,
                            sent_before(j, from, rank) + i - received_before(j, rank, from));
    default:
        return reduce_values(j, i);
    }
}

/* ---- running jobs ---------------------------------------------------------------------------- */

static void prepare_lists(job *j, int32_t rank)
{
    size_t bytes = (size_t)reshard_dtype_bits(j->dtype) / 8;
    for (int32_t i = 0; i < j->size; i++) {
        j->source_lists[rank][i] = make(j->matrix[rank][i], bytes);
        j->target_lists[rank][i] = make(j->matrix[i][rank], bytes);
        for (int64_t k = 0; k < j->matrix[rank][i]; k++)
            put(j->source_lists[rank][i], j->dtype, k,
                source_value(j, rank, sent_before(j, rank, i) + k));
    }
}

static void prepare(job *j)
{
    size_t bytes = (size_t)reshard_dtype_bits(j->dtype) / 8;
    for (int32_t rank = 0; rank < j->size; rank++) {
        j->sources[rank] = make(source_count(j, rank), bytes);
        j->targets[rank] = make(target_count(j, rank), bytes);
        for (int64_t i = 0; i < source_count(j, rank); i++)
            put(j->sources[rank], j->dtype, i, source_value(j, rank, i));
        if (j->what == ALL_TO_ALL)
            prepare_lists(j, rank);
    }
}

static void forget(job *j)
{
    for (int32_t rank = 0; rank < j->size; rank++) {
        free(j->sources[rank]);
        free(j->targets[rank]);
        for (int32_t i = 0; i < j->size; i++) {
            free(j->source_lists[rank][i]);
            free(j->target_lists[rank][i]);
        }
    }
}

static reshard_status call(reshard_context *context, job *j, reshard_group *group)
{
    int32_t rank = reshard_group_rank(group);
    const int64_t *counts = j->has_counts ? j->counts : NULL;
    const void *source = j->sources[rank];
    void *target = j->targets[rank];
    int64_t receives[RANKS_MAX];
    for (int32_t i = 0; i < j->size; i++)
        receives[i] = j->matrix[i][rank];
    switch (j->what) {
    case ALL_GATHER:
        return reshard_all_gather(context, group, j->dtype, j->count, counts, source, target);
    case REDUCE_SCATTER:
        return reshard_reduce_scatter(context, group, j->dtype, j->reduction, j->count, counts,
                                      source, target);
    case ALL_REDUCE:
        return reshard_all_reduce(context, group, j->dtype, j->reduction, j->count, source, target);
    case BROADCAST:
        return reshard_broadcast(context, group, j->dtype, j->root, j->count, source, target);
    case SCATTER:
        return reshard_scatter(context, group, j->dtype, j->root, j->count, counts, source, target);
    case GATHER:
        return reshard_gather(context, group, j->dtype, j->root, j->count, counts, source, target);
    case REDUCE:
        return reshard_reduce(context, group, j->dtype, j->reduction, j->root, j->count, source,
                              target);
    case ALL_TO_ALL_SINGLE:
        return reshard_all_to_all_single(context, group, j->dtype, j->matrix[rank], receives,
                                         source, target);
    default:
        return reshard_all_to_all(context, group, j->dtype, j->matrix[rank], receives,
                                  (const void *const *)j->source_lists[rank],
                                  j->target_lists[rank]);
    }
}

typedef struct jobs {
    int64_t count, capacity;
    job *items;
    int32_t member_count; /* 0: no sub-group */
    int32_t members[RANKS_MAX];
    int64_t offered;     /* to add_job */
    int64_t step, phase; /* which of them are taken: simulations are slow */
} jobs;

/* Threads do everything; a simulation a third, another one for each size. */
static jobs make_jobs(const way *w, int32_t size)
{
    return (jobs){.step = w->simulated ? 3 : 1, .phase = w->simulated ? size % 3 : 0};
}

static reshard_status run_jobs(void *user, reshard_group *group)
{
    jobs *all = user;
    reshard_group *sub = NULL;
    reshard_status status = RESHARD_OK;
    if (all->member_count != 0) {
        status = reshard_group_subset(group, all->member_count, all->members, &sub);
        group = sub;
    }
    for (int64_t i = 0; i < all->count && group != NULL; i++) {
        job *j = &all->items[i];
        int32_t rank = reshard_group_rank(group);
        j->status[rank] = call(NULL, j, group);
        if (j->status[rank] != RESHARD_OK)
            (void)snprintf(j->text[rank], TEXT_MAX, "%s", reshard_error_text());
    }
    reshard_group_release(sub);
    return status;
}

static void check_element(const job *j, int32_t rank, int64_t i, double seen, double wanted)
{
    double difference = seen - wanted, limit = j->reduction == RESHARD_AVG ? 1e-6 : 0;
    if (difference < -limit || difference > limit)
        fail_msg("%s of %d ranks, %s, %s, root %d: rank %d has %g for element %d, not %g",
                 operation_names[j->what], j->size, reshard_dtype_name(j->dtype),
                 reshard_reduction_name(j->reduction), j->root, rank, seen, (int)i, wanted);
}

static void check_job(const job *j)
{
    for (int32_t rank = 0; rank < j->size; rank++) {
        if (j->status[rank] != RESHARD_OK)
            fail_msg("%s of %d ranks: %s", operation_names[j->what], j->size, j->text[rank]);
        for (int64_t i = 0; i < target_count(j, rank) && j->what != ALL_TO_ALL; i++)
            check_element(j, rank, i, get(j->targets[rank], j->dtype, i), target_value(j, rank, i));
        for (int32_t from = 0; from < j->size && j->what == ALL_TO_ALL; from++) {
            int64_t first = received_before(j, rank, from);
            for (int64_t i = 0; i < j->matrix[from][rank]; i++)
                check_element(j, rank, first + i, get(j->target_lists[rank][from], j->dtype, i),
                              target_value(j, rank, first + i));
        }
    }
}

/* ---- every collective ------------------------------------------------------------------------ */

static void add_job(jobs *all, const job *made)
{
    if (all->offered++ % all->step != all->phase)
        return;
    if (all->count == all->capacity) {
        all->capacity = all->capacity * 2 + 64;
        all->items = realloc(all->items, (size_t)all->capacity * sizeof *all->items);
        if (all->items == NULL)
            abort();
    }
    all->items[all->count] = *made;
    prepare(&all->items[all->count++]);
}

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
    assert_int_equal(run_way(w, world, run_jobs, &all), RESHARD_OK);
    for (int64_t i = 0; i < all.count; i++) {
        check_job(&all.items[i]);
        forget(&all.items[i]);
    }
    free(all.items);
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
        assert_int_equal(run_way(&ways[w], 3, run_jobs, &all), RESHARD_OK);
        for (int64_t i = 0; i < all.count; i++) {
            check_job(&all.items[i]);
            forget(&all.items[i]);
        }
        free(all.items);
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
        call(rank == s->wanted->size - 1 ? s->context : NULL, s->wanted, group);
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
        prepare(&made);
        words said = {0};
        if (!context_fail_each(attempt_short, &made, &said))
            fail_msg("%s: %s", operation_names[made.what], said.text);
        check_job(&made);
        forget(&made);
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
