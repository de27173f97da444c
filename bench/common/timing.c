/* SPDX-License-Identifier: Apache-2.0 */
/*
 * timing.c - under MPI, one rank body goes through all batches, because MPI can be started only
 * once in a process. Threads are started anew for each batch, which may have a different number of
 * ranks.
 */
#include "bench/common/timing.h"

#include "bench/common/buffers.h"
#include "cli/common/failure.h"
#include "cli/common/input.h"
#include "cli/common/memory.h"
#include "cli/common/ranks.h"

#include <inttypes.h>
#include <stdlib.h>

/* Shared by the ranks; written by the first one. */
typedef struct list {
    bench_timing *timings;
    int count;
    int64_t wrong; /* wrong elements */
} list;

/* The objects of one rank for one timing. */
typedef struct state {
    reshard_group *group;
    reshard_exec *exec;
    bench_buffers from, to;
    double *seconds; /* of each run */
} state;

static reshard_status set_up(state *s, const bench_timing *t)
{
    reshard_exec_options options = {.size = sizeof options, .messages_only = t->messages};
    const reshard_layout *target = reshard_plan_target_layout(t->plan, 0);
    s->seconds = cli_allocate((size_t)t->runs, sizeof *s->seconds);
    reshard_status status = bench_buffers_init(&s->from, t->source, s->group, t->plain, t->dtype);
    if (status == RESHARD_OK)
        status = bench_buffers_init(&s->to, target, s->group, t->plain, t->dtype);
    if (status != RESHARD_OK)
        return status;
    bench_buffers_fill(&s->from);
    bench_buffers_clear(&s->to);
    return reshard_exec_create(NULL, t->plan, s->group, &options, &s->exec);
}

static void release(state *s)
{
    reshard_exec_destroy(s->exec);
    bench_buffers_release(&s->from);
    bench_buffers_release(&s->to);
    free(s->seconds);
}

static reshard_status run_once(state *s, double *out_seconds)
{
    reshard_status status = reshard_group_barrier(s->group);
    double began = cli_seconds();
    if (status == RESHARD_OK)
        status = reshard_exec_start(s->exec, (const void *const *)s->from.items, s->to.items);
    if (status == RESHARD_OK)
        status = reshard_exec_wait(s->exec);
    if (status == RESHARD_OK)
        status = reshard_group_barrier(s->group);
    *out_seconds = cli_seconds() - began;
    return status;
}

/* Takes turns through the timings; one with more runs than there are turns has several runs in each
 * turn. */
static reshard_status take_turns(state *states, const list *l)
{
    int32_t turns = l->timings[0].runs;
    reshard_status status = RESHARD_OK;
    for (int i = 0; i < l->count && status == RESHARD_OK; i++) {
        double ignored; /* the first run warms up */
        turns = l->timings[i].runs < turns ? l->timings[i].runs : turns;
        status = run_once(&states[i], &ignored);
    }
    for (int32_t turn = 0; turn < turns; turn++) {
        for (int i = 0; i < l->count; i++) {
            int64_t runs = l->timings[i].runs;
            for (int64_t k = runs * turn / turns;
                 k < runs * (turn + 1) / turns && status == RESHARD_OK; k++)
                status = run_once(&states[i], &states[i].seconds[k]);
        }
    }
    return status;
}

static reshard_status add_wrong(const state *s, int64_t *out_sum)
{
    int64_t own = bench_buffers_count_wrong(&s->to);
    int32_t size = reshard_group_size(s->group);
    int64_t *all = cli_allocate((size_t)size, sizeof *all);
    reshard_status status = reshard_group_gather_bytes(s->group, &own, sizeof own, all);
    for (int32_t i = 0; i < size && status == RESHARD_OK; i++)
        *out_sum += all[i];
    free(all);
    return status;
}

static reshard_status finish(list *l, bench_timing *t, const state *s)
{
    int64_t wrong = 0;
    reshard_status status = bench_take_slowest(s->group, s->seconds, t->runs);
    if (status == RESHARD_OK)
        status = add_wrong(s, &wrong);
    if (status == RESHARD_OK && reshard_group_rank(s->group) == 0) {
        t->seconds = bench_median(s->seconds, t->runs);
        l->wrong += wrong;
    }
    return status;
}

static reshard_status run_rank(void *user, reshard_group *group)
{
    list *l = user;
    state *states = cli_allocate((size_t)l->count, sizeof *states);
    reshard_status status = RESHARD_OK;
    for (int i = 0; i < l->count && status == RESHARD_OK; i++) {
        states[i].group = group;
        status = set_up(&states[i], &l->timings[i]);
    }
    if (status == RESHARD_OK)
        status = take_turns(states, l);
    for (int i = 0; i < l->count && status == RESHARD_OK; i++)
        status = finish(l, &l->timings[i], &states[i]);
    for (int i = 0; i < l->count; i++)
        release(&states[i]);
    free(states);
    return status;
}

/* All batches, for ranks that are started only once. */
typedef struct batches {
    list *lists;
    int count;
} batches;

static reshard_status run_batches(void *user, reshard_group *group)
{
    const batches *all = user;
    reshard_status status = RESHARD_OK;
    for (int i = 0; i < all->count && status == RESHARD_OK; i++)
        status = run_rank(&all->lists[i], group);
    return status;
}

static int plan(cli_work *work, bench_timing *t)
{
    cli_shape shape;
    reshard_layout *target = NULL;
    reshard_plan_stats stats = {.size = sizeof stats};
    int code = cli_shape_read(t->shape, &shape);
    if (code == CLI_DONE)
        code = cli_layout_read(work->context, t->from, &shape, &t->source);
    if (code == CLI_DONE)
        code = cli_layout_read(work->context, t->to, &shape, &target);
    if (code == CLI_DONE) {
        reshard_status status =
            reshard_plan_create_simple(work->context, t->source, target, t->dtype, NULL, &t->plan);
        if (status == RESHARD_OK)
            status = reshard_plan_get_stats(t->plan, &stats, NULL);
        t->bytes = stats.bytes_total;
        if (status != RESHARD_OK)
            code = cli_fail_status(status);
    }
    reshard_layout_release(target);
    return code;
}

static int run_all(cli_work *work, const batches *all)
{
    int code = CLI_DONE;
    int64_t wrong = 0;
    if (!cli_ranks_are_threads())
        code = cli_ranks_run(0, run_batches, (void *)(uintptr_t)all);
    for (int i = 0; i < all->count && code == CLI_DONE; i++) {
        list *l = &all->lists[i];
        if (cli_ranks_are_threads()) {
            code = cli_ranks_run(cli_plan_info(l->timings[0].plan).rank_count, run_rank, l);
            cli_work_report(work, "measuring", (uint64_t)i + 1, (uint64_t)all->count);
        }
        wrong += l->wrong;
    }
    if (code == CLI_DONE && wrong != 0)
        code = cli_fail(CLI_FAILED, "%" PRId64 " elements are wrong after a move", wrong);
    return code;
}

int bench_timings_run(cli_work *work, bench_timing *timings, int count)
{
    batches all = {.lists = cli_allocate((size_t)count, sizeof *all.lists)};
    int code = CLI_DONE;
    for (int i = 0; i < count && code == CLI_DONE; i++) {
        if (i == 0 || timings[i].batch != timings[i - 1].batch)
            all.lists[all.count++].timings = &timings[i];
        all.lists[all.count - 1].count++;
        code = plan(work, &timings[i]);
    }
    if (code == CLI_DONE)
        code = run_all(work, &all);
    free(all.lists);
    return code;
}

void bench_timings_release(bench_timing *timings, int count)
{
    for (int i = 0; i < count; i++) {
        reshard_plan_release(timings[i].plan);
        reshard_layout_release(timings[i].source);
    }
}
