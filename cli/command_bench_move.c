/* SPDX-License-Identifier: Apache-2.0 */
/*
 * command_bench_move.c - `reshard bench move`: a live reshard between thread ranks, measured beside
 * memcpy by the same number of threads on buffers of the same size, in turns within one run. The
 * targets are then checked element by element.
 */
#include "bench_buffers.h"
#include "commands.h"
#include "failure.h"
#include "input.h"
#include "json.h"
#include "memory.h"
#include "ranks.h"
#include "sizes.h"
#include "work.h"

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
    int json;
} move_values;

static const cli_option options[] = {
    {"shape", CLI_TEXT, offsetof(move_values, shape), "SHAPE", 1, "the tensor's shape: 8192x8192"},
    {"dtype", CLI_TEXT, offsetof(move_values, dtype), "DTYPE", 1,
     "its element type: f32, bf16, i64, .."},
    {"from", CLI_TEXT, offsetof(move_values, from), "SPEC", 1, "how it is split"},
    {"to", CLI_TEXT, offsetof(move_values, to), "SPEC", 1, "how it is to be split"},
    {"runs", CLI_RANK, offsetof(move_values, runs), "N", 0,
     "runs to take the median of (default and least 5)"},
    {"dump", CLI_TEXT, offsetof(move_values, dump), "DIR", 0,
     "write each rank's target shards to DIR"},
    {"json", CLI_FLAG, offsetof(move_values, json), NULL, 0, "one JSON object on one line"},
};

/* What a rank found when it looked at its targets. */
struct verdict {
    int64_t wrong; /* elements */
    int64_t dump_error;
};

typedef struct measurement {
    reshard_plan *plan;
    reshard_layout *source, *target;
    reshard_dtype dtype;
    const char *dump;
    int32_t runs;
    double *move_seconds, *copy_seconds; /* of each run, by rank 0 */
    struct verdict *verdicts;            /* by rank, filled in by rank 0 */
    int32_t rank_count;
} measurement;

/* ---- one rank -------------------------------------------------------------------------------- */

typedef struct rank_state {
    measurement *all;
    reshard_group *group;
    reshard_exec *exec;
    cli_buffers from, to;
    char *copied; /* what memcpy reads: as large as the target */
} rank_state;

static reshard_status time_move(rank_state *r, int32_t run)
{
    reshard_status status = reshard_group_barrier(r->group);
    double began = cli_seconds();
    if (status == RESHARD_OK)
        status = reshard_exec_start(r->exec, (const void *const *)r->from.items, r->to.items);
    if (status == RESHARD_OK)
        status = reshard_exec_wait(r->exec);
    if (status == RESHARD_OK)
        status = reshard_group_barrier(r->group);
    if (reshard_group_rank(r->group) == 0)
        r->all->move_seconds[run] = cli_seconds() - began;
    return status;
}

static reshard_status time_copy(rank_state *r, int32_t run)
{
    reshard_status status = reshard_group_barrier(r->group);
    double began = cli_seconds();
    const char *source = r->copied;
    for (int64_t i = 0; r->to.shards != NULL && i < r->to.shards->count; i++) {
        size_t bytes = r->to.shards->count == 1 ? r->to.bytes : 0;
        if (bytes == 0) { /* several shards: each its own size */
            bytes = (size_t)reshard_dtype_bits(r->to.dtype) / 8;
            for (int32_t d = 0; d < r->to.shards->items[i].ndim; d++)
                bytes *= (size_t)r->to.shards->items[i].shape[d];
        }
        if (bytes != 0)
            memcpy(r->to.items[i], source, bytes);
        source += bytes;
    }
    if (status == RESHARD_OK)
        status = reshard_group_barrier(r->group);
    if (reshard_group_rank(r->group) == 0)
        r->all->copy_seconds[run] = cli_seconds() - began;
    return status;
}

static reshard_status measure_rank(rank_state *r)
{
    measurement *m = r->all;
    int32_t rank = reshard_group_rank(r->group);
    reshard_status status = cli_buffers_init(&r->from, m->source, rank, m->dtype);
    if (status == RESHARD_OK)
        status = cli_buffers_init(&r->to, reshard_plan_target_layout(m->plan, 0), rank, m->dtype);
    if (status == RESHARD_OK) {
        r->copied = cli_allocate(r->to.bytes + 1, 1);
        memset(r->copied, 1, r->to.bytes + 1);
        cli_buffers_fill(&r->from);
    }
    status = reshard_group_agree(r->group, status);
    if (status == RESHARD_OK)
        status = reshard_exec_create(NULL, m->plan, r->group, NULL, &r->exec);
    for (int32_t i = -1; i < m->runs && status == RESHARD_OK; i++) { /* the first warms up */
        status = time_copy(r, i < 0 ? 0 : i);
        if (status == RESHARD_OK)
            status = time_move(r, i < 0 ? 0 : i);
    }
    if (status != RESHARD_OK)
        return status;
    struct verdict mine = {cli_buffers_count_wrong(&r->to), 0};
    if (m->dump != NULL && cli_buffers_dump(&r->to, m->dump) != 0)
        mine.dump_error = errno;
    struct verdict *all = cli_allocate((size_t)reshard_group_size(r->group), sizeof *all);
    status = reshard_group_gather_bytes(r->group, &mine, sizeof mine, all);
    if (status == RESHARD_OK && rank == 0)
        memcpy(m->verdicts, all, (size_t)reshard_group_size(r->group) * sizeof *all);
    free(all);
    return status;
}

static reshard_status run_rank(void *user, reshard_group *group)
{
    rank_state r = {.all = user, .group = group};
    reshard_status status = measure_rank(&r);
    reshard_exec_destroy(r.exec);
    cli_buffers_release(&r.from);
    cli_buffers_release(&r.to);
    free(r.copied);
    return status;
}

/* ---- results --------------------------------------------------------------------------------- */

static int compare_seconds(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *seconds, int32_t count)
{
    qsort(seconds, (size_t)count, sizeof *seconds, compare_seconds);
    return seconds[count / 2];
}

static void print_results(const move_values *values, int32_t ranks, uint64_t bytes, double move,
                          double copy)
{
    double rate = (double)bytes / move / 1e9, copy_rate = (double)bytes / copy / 1e9;
    if (values->json) {
        cli_json json = {.stream = stdout};
        cli_json_begin_object(&json, NULL);
        cli_json_unsigned(&json, "bytes", bytes);
        cli_json_seconds(&json, "seconds", move);
        cli_json_seconds(&json, "gb_per_s", rate);
        cli_json_seconds(&json, "memcpy_gb_per_s", copy_rate);
        cli_json_seconds(&json, "ratio", rate / copy_rate);
        cli_json_integer(&json, "ranks", ranks);
        cli_json_integer(&json, "runs", values->runs);
        cli_json_true(&json, "verified");
        cli_json_end_object(&json);
        putchar('\n');
        return;
    }
    char text[CLI_SIZE_TEXT];
    printf("%s to %s, %s %s, %" PRId32 " ranks (%s), median of %" PRId32 " runs\n\n", values->from,
           values->to, values->shape, values->dtype, ranks, cli_ranks_kind(), values->runs);
    printf("bytes    %s\n", cli_size_text(bytes, text));
    printf("time     %.3f ms\n", move * 1e3);
    printf("rate     %.2f GB/s\n", rate);
    printf("memcpy   %.2f GB/s\n", copy_rate);
    printf("ratio    %.2f\n", rate / copy_rate);
    printf("checked  every target element holds its index\n");
}

static int report(measurement *m, const move_values *values)
{
    reshard_plan_stats stats;
    int32_t ranks = reshard_plan_rank_count(m->plan);
    reshard_status status = reshard_plan_get_stats(m->plan, &stats, NULL);
    if (status != RESHARD_OK)
        return cli_fail_status(status);
    for (int32_t r = 0; r < m->rank_count; r++) {
        if (m->verdicts[r].wrong != 0)
            return cli_fail(CLI_FAILED,
                            "bench move: %" PRId64 " elements of rank %" PRId32 " are wrong",
                            m->verdicts[r].wrong, r);
        if (m->verdicts[r].dump_error != 0)
            return cli_fail(CLI_FAILED, "bench move: --dump \"%s\": %s", m->dump,
                            strerror((int)m->verdicts[r].dump_error));
    }
    print_results(values, ranks, stats.bytes_total, median(m->move_seconds, m->runs),
                  median(m->copy_seconds, m->runs));
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

static int measure(const cli_work *work, const move_values *values, measurement *m)
{
    int code = make_plan(work, values, m);
    if (code != CLI_DONE)
        return code;
    if (values->dump != NULL && mkdir(values->dump, 0777) != 0 && errno != EEXIST)
        return cli_fail(CLI_FAILED, "bench move: --dump \"%s\": %s", values->dump, strerror(errno));
    m->dump = values->dump;
    m->runs = values->runs;
    m->move_seconds = cli_allocate((size_t)m->runs, sizeof *m->move_seconds);
    m->copy_seconds = cli_allocate((size_t)m->runs, sizeof *m->copy_seconds);
    m->rank_count = cli_ranks_count(reshard_plan_rank_count(m->plan));
    m->verdicts = cli_allocate((size_t)m->rank_count, sizeof *m->verdicts);
    return cli_ranks_run(m->rank_count, run_rank, m);
}

static int run(const cli_command *command, int argc, char **argv)
{
    move_values values = {.runs = RUNS_MIN};
    cli_work work = {0};
    measurement *m = cli_allocate(1, sizeof *m);
    int code = cli_options_parse(command, argc, argv, &values, NULL);
    if (code == CLI_DONE && (values.runs < RUNS_MIN || values.runs > RUNS_MAX))
        code = cli_fail(CLI_USAGE, "bench move: --runs %" PRId32 ": from %d to %d are possible",
                        values.runs, RUNS_MIN, RUNS_MAX);
    if (code == CLI_DONE)
        code = cli_work_begin(&work);
    if (code == CLI_DONE)
        code = measure(&work, &values, m);
    cli_work_settle(&work);
    if (code == CLI_DONE && cli_ranks_are_first())
        code = report(m, &values);
    reshard_plan_release(m->plan);
    reshard_layout_release(m->source);
    reshard_layout_release(m->target);
    free(m->verdicts);
    free(m->move_seconds);
    free(m->copy_seconds);
    free(m);
    cli_work_end(&work);
    return code;
}

const cli_command cli_command_bench_move = {
    .name = "bench move",
    .summary = "a live reshard beside memcpy",
    .synopsis =
        "--shape SHAPE --dtype DTYPE --from SPEC --to SPEC [--runs N] [--dump DIR] [--json]",
    .description =
        "Carries a plan out between ranks that are threads of this process, and measures it "
        "beside\n"
        "memcpy by the same number of threads on buffers of the same size, in turns. Bytes are "
        "all\n"
        "that is written to targets, what stays on its rank included. Times are medians. The "
        "source\n"
        "holds the index of each element, and the targets are checked against it afterwards.\n",
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .examples =
        "  reshard bench move --shape 8192x8192 --dtype f32 --from '4: S(0)' --to '4: S(1)'\n"
        "  reshard bench move --shape 64x64 --dtype i32 --from '2: S(0)' --to '2: S(1)' --dump "
        "out\n",
    .run = run,
};
