/* SPDX-License-Identifier: Apache-2.0 */
/*
 * timing.c - one body for all ranks goes through the whole list, because MPI can be started only
 * once in a process. Threads are started anew for each plan, which may have another number of
 * ranks.
 */
#include "bench/common/timing.h"

#include "bench/common/buffers.h"
#include "bench/common/median.h"
#include "cli/common/failure.h"
#include "cli/common/input.h"
#include "cli/common/memory.h"
#include "cli/common/ranks.h"

#include <inttypes.h>
#include <stdlib.h>

/* What the ranks share; written by the first one. */
typedef struct list {
    bench_timing *timings;
    int count;
    int64_t wrong; /* elements */
} list;

/* What one rank has for one timing. */
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
    reshard_status status = bench_buffers_init(&s->from, t->source, s->group, t->plain, t->dtype);
    if (status == RESHARD_OK)
        status = bench_buffers_init(&s->to, target, s->group, t->plain, t->dtype);
    if (status != RESHARD_OK)
        return status;
    bench_buffers_fill(&s->from);
    bench_buffers_clear(&s->to);
    return reshard_exec_create(NULL, t->plan, s->group, &options, &s->exec);
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

static reshard_status time_one(list *l, bench_timing *t, reshard_group *group)
{
    state s = {.group = group, .seconds = cli_allocate((size_t)t->runs + 1, sizeof(double))};
    int first = reshard_group_rank(group) == 0;
    int64_t wrong = 0;
    reshard_status status = set_up(&s, t);
    for (int32_t i = 0; i <= t->runs && status == RESHARD_OK; i++) /* the first warms up */
        status = run_once(&s, &s.seconds[i]);
    if (status == RESHARD_OK)
        status = add_wrong(&s, &wrong);
    if (status == RESHARD_OK && first) {
        t->seconds = bench_median(s.seconds + 1, t->runs);
        l->wrong += wrong;
    }
    reshard_exec_destroy(s.exec);
    bench_buffers_release(&s.from);
    bench_buffers_release(&s.to);
    free(s.seconds);
    return status;
}

static reshard_status run_rank(void *user, reshard_group *group)
{
    list *l = user;
    reshard_status status = RESHARD_OK;
    for (int i = 0; i < l->count && status == RESHARD_OK; i++)
        status = time_one(l, &l->timings[i], group);
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

int bench_timings_run(cli_work *work, bench_timing *timings, int count)
{
    list all = {.timings = timings, .count = count};
    int code = CLI_DONE;
    for (int i = 0; i < count && code == CLI_DONE; i++)
        code = plan(work, &timings[i]);
    if (code == CLI_DONE && !cli_ranks_are_threads())
        code = cli_ranks_run(0, run_rank, &all);
    for (int i = 0; i < count && code == CLI_DONE && cli_ranks_are_threads(); i++) {
        list one = {.timings = &timings[i], .count = 1};
        code = cli_ranks_run(reshard_plan_rank_count(timings[i].plan), run_rank, &one);
        all.wrong += one.wrong;
        cli_work_report(work, "measuring", (uint64_t)i + 1, (uint64_t)count);
    }
    if (code == CLI_DONE && all.wrong != 0)
        code = cli_fail(CLI_FAILED, "%" PRId64 " elements are wrong after a move", all.wrong);
    return code;
}

void bench_timings_release(bench_timing *timings, int count)
{
    for (int i = 0; i < count; i++) {
        reshard_plan_release(timings[i].plan);
        reshard_layout_release(timings[i].source);
    }
}
