/* SPDX-License-Identifier: Apache-2.0 */
/*
 * redistribute.c - `reshard bench redistribute`: measures reshard_tensor_redistribute, which
 * allocates its result, in turns with memcpy and a streaming copy into existing buffers by as many
 * ranks, and with --fresh also with memcpy into a buffer that was allocated for it, which is what a
 * program would do by itself. Every element of the result is checked.
 */
#include "bench/commands.h"
#include "bench/common/buffers.h"
#include "bench/common/stream_copy.h"
#include "bench/common/timing.h"
#include "cli/common/failure.h"
#include "cli/common/input.h"
#include "cli/common/json.h"
#include "cli/common/memory.h"
#include "cli/common/ranks.h"
#include "cli/common/sizes.h"
#include "cli/common/work.h"

#include <reshard/reshard_nn.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS_MIN = 5, RUNS_MAX = 1000 };

typedef struct redistribute_values {
    const char *shape, *dtype, *from, *to;
    int32_t runs;
    int plain, fresh, json;
} redistribute_values;

static const cli_option options[] = {
    {"shape", CLI_TEXT, offsetof(redistribute_values, shape), "SHAPE", 1,
     "the tensor's shape: 8192x8192"},
    {"dtype", CLI_TEXT, offsetof(redistribute_values, dtype), "DTYPE", 1,
     "its element type: f32, bf16, i64, .."},
    {"from", CLI_TEXT, offsetof(redistribute_values, from), "SPEC", 1, "how it is split"},
    {"to", CLI_TEXT, offsetof(redistribute_values, to), "SPEC", 1, "how it is to be split"},
    {"runs", CLI_RANK, offsetof(redistribute_values, runs), "N", 0,
     "runs to take the median of (5, which is also the minimum)"},
    {"plain", CLI_FLAG, offsetof(redistribute_values, plain), NULL, 0,
     "a source in ordinary memory, which other processes do not see"},
    {"fresh", CLI_FLAG, offsetof(redistribute_values, fresh), NULL, 0,
     "keep no memory from run to run, and compare with memcpy into a new block as well"},
    {"json", CLI_FLAG, offsetof(redistribute_values, json), NULL, 0, "one JSON object on one line"},
};

enum { REDISTRIBUTE, MEMCPY, STREAMING, MEMCPY_FRESH, CONTENDERS };

typedef struct measurement {
    const redistribute_values *values;
    reshard_context *context;
    reshard_spec *from, *to;
    reshard_layout *source, *target;
    reshard_dtype dtype;
    int32_t rank_count;
    /* Set by rank 0: */
    double first;                /* seconds of the first redistribute */
    double *seconds[CONTENDERS]; /* of each run */
    uint64_t bytes;              /* of all targets */
    uint64_t kept;               /* bytes that the context of rank 0 kept at the end */
    int64_t wrong;               /* wrong elements */
} measurement;

/* ---- one rank -------------------------------------------------------------------------------- */

typedef struct rank_state {
    measurement *all;
    reshard_group *group;
    bench_buffers from, to;
    char *copied; /* the source of copies, as large as the targets */
    reshard_tensor *source;
    int64_t wrong;
} rank_state;

static reshard_status make_source(rank_state *r)
{
    measurement *m = r->all;
    reshard_tensor *local = NULL;
    if (r->from.shards->count != 1 || r->to.shards->count != 1)
        return reshard_error_set(RESHARD_ERR_UNSUPPORTED,
                                 "bench redistribute: each rank must have one shard");
    const reshard_shard *shard = &r->from.shards->items[0];
    reshard_status status = reshard_tensor_borrow(m->context, m->dtype, shard->ndim, shard->shape,
                                                  NULL, r->from.items[0], NULL, NULL, &local);
    if (status != RESHARD_OK)
        return status;
    reshard_scope *scope = NULL;
    status = reshard_scope_open(m->context, &scope);
    if (status == RESHARD_OK) {
        r->source = reshard_tensor_retain(reshard_tensor_from_local(local, r->group, m->from));
        status = reshard_scope_close(scope);
    }
    reshard_tensor_release(local);
    return status;
}

/* Checks the elements of the result, by putting its memory in place of the buffer's for a
 * moment. */
static int64_t count_wrong(rank_state *r, const reshard_tensor *result)
{
    void *kept = r->to.items[0];
    reshard_tensor *shard = reshard_tensor_local_shard(result, 0);
    if (kept == NULL || shard == NULL)
        return 0;
    r->to.items[0] = (void *)(uintptr_t)reshard_tensor_data(shard);
    int64_t wrong = bench_buffers_count_wrong(&r->to);
    r->to.items[0] = kept;
    return wrong;
}

static reshard_status redistribute(rank_state *r, double began, int check, double *out_seconds)
{
    reshard_scope *scope = NULL;
    reshard_status status = reshard_scope_open(r->all->context, &scope);
    if (status != RESHARD_OK)
        return status;
    const reshard_tensor *made = reshard_tensor_redistribute(r->source, r->all->to, NULL);
    status = reshard_group_barrier(r->group);
    *out_seconds = cli_seconds() - began;
    if (made != NULL && check)
        r->wrong += count_wrong(r, made);
    reshard_status closed = reshard_scope_close(scope);
    return status == RESHARD_OK ? closed : status;
}

/* Whether the contender takes part in this run, on this processor. */
static int takes_part(const measurement *m, int contender)
{
    return contender == STREAMING      ? bench_stream_copy_is_there()
           : contender == MEMCPY_FRESH ? m->values->fresh
                                       : 1;
}

/* A block of this size comes from the system, and goes back to it. */
static reshard_status copy_to_fresh(rank_state *r, double began, double *out_seconds)
{
    char *fresh = malloc(r->to.bytes + 1);
    if (fresh == NULL)
        return reshard_error_set(RESHARD_ERR_NO_MEMORY, "bench redistribute: no memory for a copy");
    memcpy(fresh, r->copied, r->to.bytes);
    reshard_status status = reshard_group_barrier(r->group);
    *out_seconds = cli_seconds() - began;
    r->wrong += memcmp(fresh, r->copied, r->to.bytes) != 0;
    free(fresh);
    return status;
}

static reshard_status run_once(rank_state *r, int contender, int check, double *out_seconds)
{
    if (r->all->values->fresh)
        reshard_context_trim(r->all->context);
    reshard_status status = reshard_group_barrier(r->group);
    double began = cli_seconds();
    if (status != RESHARD_OK)
        return status;
    if (contender == REDISTRIBUTE)
        return redistribute(r, began, check, out_seconds);
    if (contender == MEMCPY_FRESH)
        return copy_to_fresh(r, began, out_seconds);
    if (contender == STREAMING)
        bench_stream_copy(r->to.memory, r->copied, r->to.bytes);
    else
        memcpy(r->to.memory, r->copied, r->to.bytes);
    status = reshard_group_barrier(r->group);
    *out_seconds = cli_seconds() - began;
    return status;
}

/* The first run is timed separately, because it has to plan and allocate everything. */
static reshard_status time_all(rank_state *r)
{
    measurement *m = r->all;
    int32_t runs = m->values->runs;
    double *seconds = cli_allocate((size_t)(1 + CONTENDERS * (int64_t)runs), sizeof *seconds);
    reshard_status status = run_once(r, REDISTRIBUTE, 1, seconds);
    for (int32_t run = 0; run < runs; run++) {
        for (int i = 0; i < CONTENDERS && status == RESHARD_OK; i++)
            if (takes_part(m, i))
                status = run_once(r, i, run + 1 == runs, &seconds[1 + (int64_t)i * runs + run]);
    }
    if (status == RESHARD_OK)
        status = bench_take_slowest(r->group, seconds, 1 + CONTENDERS * runs);
    if (reshard_group_rank(r->group) == 0) {
        m->first = seconds[0];
        for (int i = 0; i < CONTENDERS; i++)
            memcpy(m->seconds[i], &seconds[1 + (int64_t)i * runs], (size_t)runs * sizeof *seconds);
    }
    free(seconds);
    return status;
}

static reshard_status measure_rank(rank_state *r)
{
    measurement *m = r->all;
    int plain = m->values->plain;
    reshard_status status = bench_buffers_init(&r->from, m->source, r->group, plain, m->dtype);
    if (status == RESHARD_OK)
        status = bench_buffers_init(&r->to, m->target, r->group, plain, m->dtype);
    if (status != RESHARD_OK)
        return status;
    bench_buffers_fill(&r->from);
    r->copied = cli_allocate(r->to.bytes + 1, 1);
    memset(r->copied, 1, r->to.bytes + 1);
    status = reshard_group_agree(r->group, make_source(r));
    return status == RESHARD_OK ? time_all(r) : status;
}

/* Adds up on rank 0 what the ranks found. */
static reshard_status collect(rank_state *r)
{
    measurement *m = r->all;
    struct {
        int64_t wrong;
        uint64_t bytes;
    } mine = {r->wrong, r->to.bytes};
    size_t size = (size_t)reshard_group_size(r->group);
    int is_first = reshard_group_rank(r->group) == 0;
    void *all = cli_allocate(size, sizeof mine);
    reshard_status status = reshard_group_gather_bytes(r->group, &mine, sizeof mine, all);
    for (size_t i = 0; i < size && status == RESHARD_OK && is_first; i++) {
        memcpy(&mine, (char *)all + i * sizeof mine, sizeof mine);
        m->wrong += mine.wrong;
        m->bytes += mine.bytes;
    }
    free(all);
    if (is_first)
        m->kept = cli_memory_info(m->context).bytes_kept;
    return status;
}

static reshard_status run_rank(void *user, reshard_group *group)
{
    rank_state r = {.all = user, .group = group};
    reshard_status status = measure_rank(&r);
    if (status == RESHARD_OK)
        status = collect(&r);
    reshard_tensor_release(r.source);
    free(r.copied);
    bench_buffers_release(&r.from);
    bench_buffers_release(&r.to);
    return status;
}

/* ---- results --------------------------------------------------------------------------------- */

/* The rate of redistribute divided by that of a copy: median over the runs. */
static double find_ratio(const measurement *m, int copy)
{
    double *ratios = cli_allocate((size_t)m->values->runs, sizeof *ratios);
    for (int32_t run = 0; run < m->values->runs; run++)
        ratios[run] = m->seconds[copy][run] / m->seconds[REDISTRIBUTE][run];
    double ratio = bench_median(ratios, m->values->runs);
    free(ratios);
    return ratio;
}

typedef struct results {
    double seconds[CONTENDERS], rates[CONTENDERS], ratios[CONTENDERS];
} results;

static void print_json(const measurement *m, const results *found)
{
    cli_json json = {.stream = stdout};
    cli_json_begin_object(&json, NULL);
    cli_json_unsigned(&json, "bytes", m->bytes);
    cli_json_seconds(&json, "seconds", found->seconds[REDISTRIBUTE]);
    cli_json_seconds(&json, "first_seconds", m->first);
    cli_json_seconds(&json, "gb_per_s", found->rates[REDISTRIBUTE]);
    cli_json_seconds(&json, "memcpy_gb_per_s", found->rates[MEMCPY]);
    cli_json_seconds(&json, "ratio", found->ratios[MEMCPY]);
    if (takes_part(m, STREAMING)) {
        cli_json_seconds(&json, "streaming_gb_per_s", found->rates[STREAMING]);
        cli_json_seconds(&json, "streaming_ratio", found->ratios[STREAMING]);
    }
    if (takes_part(m, MEMCPY_FRESH)) {
        cli_json_seconds(&json, "memcpy_fresh_gb_per_s", found->rates[MEMCPY_FRESH]);
        cli_json_seconds(&json, "fresh_ratio", found->ratios[MEMCPY_FRESH]);
    }
    cli_json_unsigned(&json, "kept_bytes", m->kept);
    cli_json_integer(&json, "ranks", m->rank_count);
    cli_json_integer(&json, "runs", m->values->runs);
    cli_json_true(&json, "verified");
    cli_json_end_object(&json);
    putchar('\n');
}

static void print_table(const measurement *m, const results *found)
{
    static const char *const labels[CONTENDERS] = {"redistribute", "memcpy", "streaming copy",
                                                   "memcpy, allocated"};
    const redistribute_values *v = m->values;
    char text[CLI_SIZE_TEXT];
    printf("%s to %s, %s %s, %" PRId32 " ranks (%s%s%s), %s, median of %" PRId32 " runs\n\n",
           v->from, v->to, v->shape, v->dtype, m->rank_count, cli_ranks_kind(),
           v->plain ? ", plain memory" : "", v->fresh ? ", fresh memory" : "",
           cli_size_text(m->bytes, text), v->runs);
    printf("%-20s %10s %8s %8s\n", "", "ms", "GB/s", "ratio");
    printf("%-20s %10.3f %8.2f\n", "first redistribute", m->first * 1e3,
           (double)m->bytes / m->first / 1e9);
    for (int i = 0; i < CONTENDERS; i++) {
        if (!takes_part(m, i))
            continue;
        printf("%-20s %10.3f %8.2f", labels[i], found->seconds[i] * 1e3, found->rates[i]);
        if (i != REDISTRIBUTE)
            printf(" %8.2f", found->ratios[i]);
        putchar('\n');
    }
    printf("\nEvery element of the results is correct.\n");
}

static int report(const measurement *m)
{
    results found = {0};
    if (m->wrong != 0)
        return cli_fail(CLI_FAILED, "bench redistribute: %" PRId64 " elements are wrong", m->wrong);
    for (int i = 0; i < CONTENDERS; i++)
        found.ratios[i] = find_ratio(m, i);
    for (int i = 0; i < CONTENDERS; i++) {
        found.seconds[i] = bench_median(m->seconds[i], m->values->runs);
        found.rates[i] = (double)m->bytes / found.seconds[i] / 1e9;
    }
    if (m->values->json)
        print_json(m, &found);
    else
        print_table(m, &found);
    return CLI_DONE;
}

/* ---- the command ----------------------------------------------------------------------------- */

static int measure(measurement *m)
{
    const redistribute_values *v = m->values;
    cli_shape shape;
    int code = cli_shape_read(v->shape, &shape);
    reshard_status status = reshard_dtype_parse(v->dtype, &m->dtype);
    if (code == CLI_DONE && status != RESHARD_OK)
        code = cli_fail_status(status);
    if (code == CLI_DONE)
        code = cli_spec_read(m->context, v->from, &m->from);
    if (code == CLI_DONE)
        code = cli_spec_read(m->context, v->to, &m->to);
    if (code == CLI_DONE)
        code = cli_layout_read(m->context, v->from, &shape, &m->source);
    if (code == CLI_DONE)
        code = cli_layout_read(m->context, v->to, &shape, &m->target);
    if (code != CLI_DONE)
        return code;
    for (int i = 0; i < CONTENDERS; i++)
        m->seconds[i] = cli_allocate((size_t)v->runs, sizeof *m->seconds[i]);
    int32_t sources = cli_layout_info(m->source).rank_count;
    int32_t targets = cli_layout_info(m->target).rank_count;
    m->rank_count = cli_ranks_count(sources > targets ? sources : targets);
    return cli_ranks_run(m->rank_count, run_rank, m);
}

static void release(measurement *m)
{
    reshard_layout_release(m->source);
    reshard_layout_release(m->target);
    reshard_spec_release(m->from);
    reshard_spec_release(m->to);
    for (int i = 0; i < CONTENDERS; i++)
        free(m->seconds[i]);
}

static int run(const cli_command *command, int argc, char **argv)
{
    redistribute_values values = {.runs = RUNS_MIN};
    cli_work work = {0};
    measurement m = {.values = &values};
    int code = cli_options_parse(command, argc, argv, &values, NULL);
    if (code == CLI_DONE && (values.runs < RUNS_MIN || values.runs > RUNS_MAX))
        code = cli_fail(CLI_USAGE, "bench redistribute: --runs %" PRId32 ": must be from %d to %d",
                        values.runs, RUNS_MIN, RUNS_MAX);
    if (code == CLI_DONE)
        code = cli_work_begin(&work);
    m.context = work.context;
    if (code == CLI_DONE)
        code = measure(&m);
    cli_work_settle(&work);
    if (code == CLI_DONE && cli_ranks_are_first())
        code = report(&m);
    release(&m);
    cli_work_end(&work);
    return code;
}

const cli_command bench_command_redistribute = {
    .name = "bench redistribute",
    .summary = "a tensor's redistribute compared with memcpy",
    .synopsis = "--shape SHAPE --dtype DTYPE --from SPEC --to SPEC\n      [OPTIONS]",
    .description =
        "Measures reshard_tensor_redistribute, which brings a tensor from one layout to another\n"
        "and allocates its result, between ranks: threads of this process, or under mpirun its\n"
        "processes. For comparison, in turns, as many ranks copy as many bytes into existing\n"
        "memory, by memcpy and by streaming stores (x86-64). The context keeps the memory of\n"
        "released results, so only the first run pays for fresh pages. Times are medians. The\n"
        "source holds the index of each element, and the results are checked against it.\n",
    .shares_work = 1,
    CLI_OPTIONS(options),
    .examples = "  reshard bench redistribute --shape 8192x8192 --dtype f32 \\\n"
                "      --from '4: S(0)' --to "
                "'4: S(1)'\n",
    .run = run,
};
