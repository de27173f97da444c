/* SPDX-License-Identifier: Apache-2.0 */
/*
 * move.c - `reshard bench move`: measures a live reshard between ranks, in turns with its rivals
 * (rivals.h) on the same buffers. Targets are checked element by element, those of the rivals too.
 */
#include "bench/commands.h"
#include "bench/common/buffers.h"
#include "bench/common/timing.h"
#include "bench/rivals.h"
#include "cli/common/failure.h"
#include "cli/common/input.h"
#include "cli/common/json.h"
#include "cli/common/memory.h"
#include "cli/common/ranks.h"
#include "cli/common/sizes.h"
#include "cli/common/tracing.h"
#include "cli/common/work.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { RUNS_MIN = 5, RUNS_MAX = 1000 };

typedef struct move_values {
    const char *shape, *dtype, *from, *to, *dump;
    int32_t runs;
    int plain, messages, json;
    cli_tracing tracing;
} move_values;

static const cli_option options[] = {
    {"shape", CLI_TEXT, offsetof(move_values, shape), "SHAPE", 1, "the tensor's shape: 8192x8192"},
    {"dtype", CLI_TEXT, offsetof(move_values, dtype), "DTYPE", 1,
     "its element type: f32, bf16, i64, .."},
    {"from", CLI_TEXT, offsetof(move_values, from), "SPEC", 1, "how it is split"},
    {"to", CLI_TEXT, offsetof(move_values, to), "SPEC", 1, "how it is to be split"},
    {"runs", CLI_RANK, offsetof(move_values, runs), "N", 0,
     "runs to take the median of (5, the minimum without --dump)"},
    {"dump", CLI_TEXT, offsetof(move_values, dump), "DIR", 0,
     "write each rank's target shards to DIR"},
    {"plain", CLI_FLAG, offsetof(move_values, plain), NULL, 0,
     "ordinary memory, which other processes do not see"},
    {"messages", CLI_FLAG, offsetof(move_values, messages), NULL, 0,
     "messages only, as between ranks on different nodes"},
    {"json", CLI_FLAG, offsetof(move_values, json), NULL, 0, "one JSON object on one line"},
    CLI_TRACING_OPTIONS(move_values, tracing),
};

/* What is measured, in this order in every turn: the rivals, the move with a trace, the move. */
enum { TRACED = BENCH_RIVAL_COUNT, MOVE, CONTENDERS };

/* What a rank found when it checked its targets. */
struct verdict {
    int64_t wrong[CONTENDERS]; /* wrong elements */
    int64_t dump_error;
};

typedef struct measurement {
    reshard_plan *plan;
    reshard_layout *source, *target;
    reshard_dtype dtype;
    const char *dump;
    int32_t runs;
    int plain, messages;
    const cli_tracing *tracing; /* NULL: no trace */
    bench_rivals_shared shared;
    /* Set by rank 0: */
    uint64_t dropped; /* events of the trace */
    int have[CONTENDERS];
    double *seconds[CONTENDERS]; /* of each run */
    struct verdict *verdicts;    /* by rank */
    int32_t rank_count;
} measurement;

/* ---- one rank -------------------------------------------------------------------------------- */

typedef struct rank_state {
    measurement *all;
    reshard_group *group;
    reshard_exec *exec, *traced; /* traced: NULL without a trace */
    reshard_trace *trace;
    bench_buffers from, to;
    bench_rivals *rivals;
    double *seconds[CONTENDERS]; /* of each run, as this rank saw it */
    struct verdict verdict;
} rank_state;

static int has(const rank_state *r, int contender)
{
    if (contender == TRACED)
        return r->traced != NULL;
    return contender == MOVE || bench_rivals_have(r->rivals, (bench_rival_kind)contender);
}

static reshard_status run_once(rank_state *r, int contender)
{
    if (contender < BENCH_RIVAL_COUNT)
        return bench_rivals_run(r->rivals, (bench_rival_kind)contender);
    reshard_exec *exec = contender == TRACED ? r->traced : r->exec;
    reshard_status status =
        reshard_exec_start(exec, (const void *const *)r->from.items, r->to.items);
    return status == RESHARD_OK ? reshard_exec_wait(exec) : status;
}

static reshard_status time_once(rank_state *r, int contender, int32_t run)
{
    reshard_status status = RESHARD_OK;
    /* the untraced move follows a move, so let this one do so too: both find the same caches */
    if (contender == TRACED)
        status = run_once(r, MOVE);
    if (status == RESHARD_OK)
        status = reshard_group_barrier(r->group);
    double began = cli_seconds();
    if (status == RESHARD_OK)
        status = run_once(r, contender);
    if (status == RESHARD_OK)
        status = reshard_group_barrier(r->group);
    r->seconds[contender][run] = cli_seconds() - began;
    return status;
}

static reshard_status time_all(rank_state *r)
{
    measurement *m = r->all;
    reshard_status status = RESHARD_OK;
    for (int i = 0; i < CONTENDERS; i++)
        r->seconds[i] = cli_allocate((size_t)m->runs, sizeof *r->seconds[i]);
    for (int32_t run = 0; run < m->runs; run++) {
        for (int i = 0; i < CONTENDERS && status == RESHARD_OK; i++)
            status = has(r, i) ? time_once(r, i, run) : RESHARD_OK;
    }
    for (int i = 0; i < CONTENDERS && status == RESHARD_OK; i++) {
        status = bench_take_slowest(r->group, r->seconds[i], m->runs);
        if (reshard_group_rank(r->group) == 0)
            memcpy(m->seconds[i], r->seconds[i], (size_t)m->runs * sizeof *m->seconds[i]);
    }
    return status;
}

/* Checks that every contender delivers the right bytes. This also warms up. */
static reshard_status check_contenders(rank_state *r)
{
    reshard_status status = RESHARD_OK;
    for (int i = 0; i < CONTENDERS && status == RESHARD_OK; i++) {
        if (!has(r, i))
            continue;
        bench_buffers_clear(&r->to);
        /* the by-hand rival reads the targets of other ranks */
        status = reshard_group_barrier(r->group);
        if (status == RESHARD_OK)
            status = run_once(r, i);
        if (status == RESHARD_OK)
            status = reshard_group_barrier(r->group);
        if (i == MOVE || !bench_rival_is_copy((bench_rival_kind)i))
            r->verdict.wrong[i] = bench_buffers_count_wrong(&r->to);
    }
    return status;
}

static reshard_status collect_verdicts(rank_state *r)
{
    measurement *m = r->all;
    size_t size = (size_t)reshard_group_size(r->group);
    int first = reshard_group_rank(r->group) == 0;
    struct verdict *all = cli_allocate(size, sizeof *all);
    reshard_status status =
        reshard_group_gather_bytes(r->group, &r->verdict, sizeof r->verdict, all);
    if (status == RESHARD_OK && first)
        memcpy(m->verdicts, all, size * sizeof *all);
    for (int i = 0; i < CONTENDERS && first; i++)
        m->have[i] = has(r, i);
    free(all);
    return status;
}

static reshard_status create_execs(rank_state *r)
{
    const measurement *m = r->all;
    reshard_exec_options exec_options = {.size = sizeof exec_options, .messages_only = m->messages};
    reshard_status status = reshard_exec_create(NULL, m->plan, r->group, &exec_options, &r->exec);
    exec_options.trace = r->trace;
    if (status == RESHARD_OK && r->trace != NULL)
        status = reshard_exec_create(NULL, m->plan, r->group, &exec_options, &r->traced);
    return status;
}

static reshard_status measure_rank(rank_state *r)
{
    measurement *m = r->all;
    reshard_status status = RESHARD_OK;
    if (m->tracing != NULL)
        status = cli_tracing_create(m->tracing, r->group, &r->trace);
    if (status == RESHARD_OK)
        status = bench_buffers_init(&r->from, m->source, r->group, m->plain, m->dtype);
    if (status == RESHARD_OK)
        status = bench_buffers_init(&r->to, reshard_plan_target_layout(m->plan, 0), r->group,
                                    m->plain, m->dtype);
    if (status != RESHARD_OK)
        return status;
    bench_buffers_fill(&r->from);
    status = create_execs(r);
    if (status == RESHARD_OK)
        status = bench_rivals_create(&m->shared, m->plan, r->group, &r->from, &r->to, &r->rivals);
    if (status == RESHARD_OK)
        status = check_contenders(r);
    if (status == RESHARD_OK)
        status = time_all(r);
    if (status != RESHARD_OK)
        return status;
    r->verdict.wrong[MOVE] += bench_buffers_count_wrong(&r->to); /* the move came last */
    if (r->trace != NULL)
        status = reshard_trace_write(r->trace);
    if (status != RESHARD_OK)
        return status;
    if (reshard_group_rank(r->group) == 0 && r->trace != NULL)
        m->dropped = reshard_trace_dropped(r->trace);
    if (m->dump != NULL && bench_buffers_dump(&r->to, m->dump) != 0)
        r->verdict.dump_error = errno;
    return collect_verdicts(r);
}

static reshard_status run_rank(void *user, reshard_group *group)
{
    rank_state r = {.all = user, .group = group};
    reshard_status status = measure_rank(&r);
    reshard_exec_destroy(r.exec);
    reshard_exec_destroy(r.traced);
    reshard_trace_destroy(r.trace);
    bench_rivals_destroy(r.rivals);
    for (int i = 0; i < CONTENDERS; i++)
        free(r.seconds[i]);
    bench_buffers_release(&r.from);
    bench_buffers_release(&r.to);
    return status;
}

/* ---- results --------------------------------------------------------------------------------- */

typedef struct results {
    uint64_t bytes;
    double seconds[CONTENDERS]; /* medians */
    double rates[CONTENDERS];   /* GB/s */
    double ratios[CONTENDERS];  /* the move's rate divided by this one's: median over the runs */
    double late;                /* 99 of 100 moves took at most so many seconds */
} results;

/* Ratios are taken within a turn, because its runs see the same load on the machine; so they vary
 * less than times. */
static void find_medians(const measurement *m, results *found)
{
    double *ratios = cli_allocate((size_t)m->runs, sizeof *ratios);
    for (int i = 0; i < CONTENDERS; i++) {
        for (int32_t run = 0; run < m->runs && m->have[i]; run++)
            ratios[run] = m->seconds[i][run] / m->seconds[MOVE][run];
        if (m->have[i])
            found->ratios[i] = bench_median(ratios, m->runs);
    }
    for (int i = 0; i < CONTENDERS; i++) {
        if (!m->have[i])
            continue;
        found->seconds[i] = bench_median(m->seconds[i], m->runs);
        found->rates[i] = (double)found->bytes / found->seconds[i] / 1e9;
    }
    found->late = m->seconds[MOVE][(int64_t)m->runs * 99 / 100]; /* sorted by now */
    free(ratios);
}

static void print_json(const move_values *values, const measurement *m, const results *found)
{
    cli_json json = {.stream = stdout};
    cli_json_begin_object(&json, NULL);
    cli_json_unsigned(&json, "bytes", found->bytes);
    cli_json_seconds(&json, "seconds", found->seconds[MOVE]);
    cli_json_seconds(&json, "p99_seconds", found->late);
    cli_json_seconds(&json, "gb_per_s", found->rates[MOVE]);
    for (int i = 0; i < BENCH_RIVAL_COUNT; i++) {
        char key[40];
        if (!m->have[i])
            continue;
        (void)snprintf(key, sizeof key, "%s_gb_per_s", bench_rival_name((bench_rival_kind)i));
        cli_json_seconds(&json, key, found->rates[i]);
        (void)snprintf(key, sizeof key, "%s_ratio", bench_rival_name((bench_rival_kind)i));
        cli_json_seconds(&json, i == BENCH_RIVAL_MEMCPY ? "ratio" : key, found->ratios[i]);
    }
    if (m->have[TRACED]) {
        cli_json_seconds(&json, "traced_gb_per_s", found->rates[TRACED]);
        cli_json_seconds(&json, "traced_ratio", found->ratios[TRACED]);
        cli_json_unsigned(&json, "trace_dropped", m->dropped);
    }
    cli_json_integer(&json, "ranks", cli_plan_info(m->plan).rank_count);
    cli_json_integer(&json, "runs", values->runs);
    cli_json_true(&json, "verified");
    cli_json_end_object(&json);
    putchar('\n');
}

static void print_results(const move_values *values, const measurement *m, const results *found)
{
    static const char *const labels[BENCH_RIVAL_COUNT] = {
        [BENCH_RIVAL_MEMCPY] = "memcpy",
        [BENCH_RIVAL_STREAMING] = "streaming copy",
        [BENCH_RIVAL_ALLTOALLW] = "MPI_Alltoallw",
        [BENCH_RIVAL_ALLTOALLV] = "pack, MPI_Alltoallv",
        [BENCH_RIVAL_BY_HAND] = "all-reduce by hand",
    };
    char text[CLI_SIZE_TEXT];
    printf("%s to %s, %s %s, %" PRId32 " ranks (%s%s%s), %s, median of %" PRId32 " runs\n\n",
           values->from, values->to, values->shape, values->dtype,
           cli_plan_info(m->plan).rank_count, cli_ranks_kind(), m->plain ? ", plain memory" : "",
           m->messages ? ", messages only" : "", cli_size_text(found->bytes, text), values->runs);
    printf("%-20s %10s %8s %8s\n", "", "ms", "GB/s", "ratio");
    printf("%-20s %10.3f %8.2f\n", "reshard", found->seconds[MOVE] * 1e3, found->rates[MOVE]);
    printf("%-20s %10.3f\n", "99% of runs, at most", found->late * 1e3);
    if (m->have[TRACED])
        printf("%-20s %10.3f %8.2f %8.3f\n", "reshard, traced", found->seconds[TRACED] * 1e3,
               found->rates[TRACED], found->ratios[TRACED]);
    for (int i = 0; i < BENCH_RIVAL_COUNT; i++) {
        if (m->have[i])
            printf("%-20s %10.3f %8.2f %8.2f\n", labels[i], found->seconds[i] * 1e3,
                   found->rates[i], found->ratios[i]);
    }
    printf("\nEvery target element is correct.\n");
}

static const char *name_contender(int contender)
{
    if (contender == MOVE)
        return "the move";
    return contender == TRACED ? "the move with a trace"
                               : bench_rival_name((bench_rival_kind)contender);
}

static int check_verdicts(const measurement *m)
{
    for (int32_t r = 0; r < m->rank_count; r++) {
        for (int i = 0; i < CONTENDERS; i++) {
            if (m->verdicts[r].wrong[i] != 0)
                return cli_fail(CLI_FAILED,
                                "bench move: %" PRId64 " elements of rank %" PRId32
                                " are wrong after %s",
                                m->verdicts[r].wrong[i], r, name_contender(i));
        }
        if (m->verdicts[r].dump_error != 0)
            return cli_fail(CLI_FAILED, "bench move: --dump \"%s\": %s", m->dump,
                            strerror((int)m->verdicts[r].dump_error));
    }
    return CLI_DONE;
}

static int report(const measurement *m, const move_values *values)
{
    reshard_plan_stats stats = {.size = sizeof stats};
    results found = {0};
    reshard_status status = reshard_plan_get_stats(m->plan, &stats, NULL);
    if (status != RESHARD_OK)
        return cli_fail_status(status);
    int code = check_verdicts(m);
    if (code != CLI_DONE)
        return code;
    found.bytes = stats.bytes_total;
    find_medians(m, &found);
    if (values->json)
        print_json(values, m, &found);
    else
        print_results(values, m, &found);
    return CLI_DONE;
}

/* ---- the command ----------------------------------------------------------------------------- */

static int make_plan(const cli_work *work, const move_values *values, measurement *m)
{
    cli_shape shape;
    int code = cli_shape_read(values->shape, &shape);
    reshard_status status = reshard_dtype_parse(values->dtype, &m->dtype);
    if (code == CLI_DONE && status != RESHARD_OK)
        code = cli_fail_status(status);
    if (code == CLI_DONE)
        code = cli_layout_read(work->context, values->from, &shape, &m->source);
    if (code == CLI_DONE)
        code = cli_layout_read(work->context, values->to, &shape, &m->target);
    if (code != CLI_DONE)
        return code;
    status =
        reshard_plan_create_simple(work->context, m->source, m->target, m->dtype, NULL, &m->plan);
    if (status != RESHARD_OK)
        return cli_fail_status(status);
    return CLI_DONE;
}

static int measure(const cli_work *work, move_values *values, measurement *m)
{
    int code = make_plan(work, values, m);
    if (code != CLI_DONE)
        return code;
    if (values->dump != NULL && mkdir(values->dump, 0777) != 0 && errno != EEXIST)
        return cli_fail(CLI_FAILED, "bench move: --dump \"%s\": %s", values->dump, strerror(errno));
    m->dump = values->dump;
    m->runs = values->runs;
    m->plain = values->plain;
    m->messages = values->messages;
    m->tracing = cli_tracing_is_on(&values->tracing) ? &values->tracing : NULL;
    for (int i = 0; i < CONTENDERS; i++)
        m->seconds[i] = cli_allocate((size_t)m->runs, sizeof *m->seconds[i]);
    m->rank_count = cli_ranks_count(cli_plan_info(m->plan).rank_count);
    size_t ranks = (size_t)m->rank_count;
    m->verdicts = cli_allocate(ranks, sizeof *m->verdicts);
    m->shared.sources = cli_allocate(ranks, sizeof *m->shared.sources);
    m->shared.targets = cli_allocate(ranks, sizeof *m->shared.targets);
    return cli_ranks_run(m->rank_count, run_rank, m);
}

static void release(measurement *m)
{
    reshard_plan_release(m->plan);
    reshard_layout_release(m->source);
    reshard_layout_release(m->target);
    for (int i = 0; i < CONTENDERS; i++)
        free(m->seconds[i]);
    free(m->verdicts);
    free(m->shared.sources);
    free(m->shared.targets);
    free(m);
}

static int run(const cli_command *command, int argc, char **argv)
{
    move_values values = {.runs = RUNS_MIN};
    cli_work work = {0};
    measurement *m = cli_allocate(1, sizeof *m);
    int code = cli_options_parse(command, argc, argv, &values, NULL);
    int least = values.dump != NULL ? 1 : RUNS_MIN; /* with --dump, the time does not matter */
    if (code == CLI_DONE && (values.runs < least || values.runs > RUNS_MAX))
        code = cli_fail(CLI_USAGE, "bench move: --runs %" PRId32 ": must be from %d to %d",
                        values.runs, least, RUNS_MAX);
    if (code == CLI_DONE)
        code = cli_work_begin(&work);
    if (code == CLI_DONE)
        code = measure(&work, &values, m);
    cli_work_settle(&work);
    if (code == CLI_DONE && cli_ranks_are_first())
        code = report(m, &values);
    if (code == CLI_DONE && cli_ranks_are_first() && m->tracing != NULL)
        cli_tracing_report(m->tracing, m->dropped);
    release(m);
    cli_work_end(&work);
    return code;
}

const cli_command bench_command_move = {
    .name = "bench move",
    .summary = "a live reshard compared with memcpy",
    .synopsis = "--shape SHAPE --dtype DTYPE --from SPEC --to SPEC [OPTIONS]",
    .description =
        "Carries out a plan between ranks, which are threads of this process or, under mpirun,\n"
        "its processes, and compares it with memcpy and a copy by streaming stores (x86-64), both\n"
        "by as many ranks on buffers of the same size, in turns. Under mpirun, also compares it\n"
        "with MPI_Alltoallw and with packing and MPI_Alltoallv; between threads, compares an f32\n"
        "all-reduce with one written by hand. Bytes are all that is written to targets, including\n"
        "what stays on its rank. Times are medians. The source holds the index of each element,\n"
        "and the targets are checked against it. With --trace, the move is also measured while it\n"
        "is recorded, and FILE shows these runs.\n",
    .shares_work = 1,
    CLI_OPTIONS(options),
    .examples = "  reshard bench move --shape 8192x8192 --dtype f32 --from '4: S(0)' \\\n"
                "      --to '4: S(1)'\n"
                "  reshard bench move --shape 64x64 --dtype i32 --from '2: S(0)' \\\n"
                "      --to '2: S(1)' --dump "
                "out\n",
    .run = run,
};
