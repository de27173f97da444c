/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan.c - `reshard bench plan`: measures how long one rank takes to find out what it has to do.
 *
 * One run does everything from the texts of the specs on: the layouts of all tensors on both sides,
 * the plan, and the part of one rank. All memory comes from one counting context, whose peak is
 * reported. Times are medians of RUNS runs, each from scratch; the first one also warms the caches
 * for the others.
 */
#include "bench/commands.h"
#include "bench/plan_model.h"
#include "cli/common/failure.h"
#include "cli/common/input.h"
#include "cli/common/json.h"
#include "cli/common/memory.h"
#include "cli/common/sizes.h"
#include "cli/common/table.h"
#include "cli/common/work.h"

#include <reshard/plan_inspect.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS = 5, SPREAD = 16, CASES_MAX = 64 };

typedef struct bench_values {
    const char *ranks;
    int32_t rank;
    int worst, json;
} bench_values;

static const cli_option options[] = {
    {"ranks", CLI_TEXT, offsetof(bench_values, ranks), "N[,N..]", 0,
     "numbers of ranks, multiples of 8 (1024,16384,131072)"},
    {"rank", CLI_RANK, offsetof(bench_values, rank), "R", 0, "whose part to measure (N/2+3)"},
    {"worst", CLI_FLAG, offsetof(bench_values, worst), NULL, 0, "measure the slowest of 16 ranks"},
    {"json", CLI_FLAG, offsetof(bench_values, json), NULL, 0, "one JSON object on one line"},
};

/* The steps of a run, which are timed separately. */
enum { STEP_LAYOUTS, STEP_PLAN, STEP_PART, STEP_TOTAL, STEP_COUNT };

typedef struct bench_run {
    double seconds[STEP_COUNT];
    reshard_part_stats stats;
    int32_t stages;
    size_t peak_bytes;
} bench_run;

typedef struct bench_case {
    int32_t ranks, rank;
    bench_run median;
} bench_case;

/* What all runs share. The lists are not part of the measured memory, since a program would have
 * them anyway. */
typedef struct bench {
    const bench_plan_tensor *tensors;
    reshard_plan_tensor *sources, *targets;
    reshard_link *links;
    cli_work *work;
    uint64_t runs_done, runs_total;
} bench;

/* ---- one run --------------------------------------------------------------------------------- */

static reshard_status create_layouts(const bench *shared, int32_t ranks)
{
    reshard_context *context = shared->work->context;
    reshard_spec *source = NULL;
    reshard_spec *targets[BENCH_PLAN_SPEC_COUNT] = {NULL};
    reshard_status status = bench_plan_model_source(context, ranks, &source);
    for (int32_t i = 0; i < BENCH_PLAN_SPEC_COUNT && status == RESHARD_OK; i++)
        status = bench_plan_model_target(context, ranks, i, &targets[i]);
    for (int32_t i = 0; i < BENCH_PLAN_TENSOR_COUNT && status == RESHARD_OK; i++) {
        const bench_plan_tensor *tensor = &shared->tensors[i];
        status = reshard_layout_create(context, source, tensor->ndim, tensor->shape,
                                       &shared->sources[i].layout);
        if (status == RESHARD_OK)
            status = reshard_layout_create(context, targets[tensor->target_spec], tensor->ndim,
                                           tensor->shape, &shared->targets[i].layout);
    }
    reshard_spec_release(source);
    for (int32_t i = 0; i < BENCH_PLAN_SPEC_COUNT; i++)
        reshard_spec_release(targets[i]);
    return status;
}

static void release_layouts(const bench *shared)
{
    for (int32_t i = 0; i < BENCH_PLAN_TENSOR_COUNT; i++) {
        reshard_layout_release(shared->sources[i].layout);
        reshard_layout_release(shared->targets[i].layout);
        shared->sources[i].layout = shared->targets[i].layout = NULL;
    }
}

static reshard_status run_once(const bench *shared, int32_t ranks, int32_t rank, bench_run *out_run)
{
    reshard_context *context = shared->work->context;
    reshard_plan *plan = NULL;
    reshard_part *part = NULL;
    double times[STEP_COUNT];
    reshard_context_reset_peak(context);
    times[0] = cli_seconds();
    reshard_status status = create_layouts(shared, ranks);
    times[1] = cli_seconds();
    if (status == RESHARD_OK)
        status = reshard_plan_create(context, BENCH_PLAN_TENSOR_COUNT, shared->sources,
                                     BENCH_PLAN_TENSOR_COUNT, shared->targets,
                                     BENCH_PLAN_TENSOR_COUNT, shared->links, NULL, &plan);
    times[2] = cli_seconds();
    if (status == RESHARD_OK)
        status = reshard_part_create(context, plan, rank, &part);
    times[3] = cli_seconds();
    if (status == RESHARD_OK) {
        for (int step = STEP_LAYOUTS; step < STEP_TOTAL; step++)
            out_run->seconds[step] = times[step + 1] - times[step];
        out_run->seconds[STEP_TOTAL] = times[3] - times[0];
        out_run->stages = cli_plan_info(plan).stage_count;
        out_run->peak_bytes = cli_memory_info(context).bytes_peak;
        out_run->stats.size = sizeof out_run->stats;
        status = reshard_part_get_stats(part, &out_run->stats);
    }
    reshard_part_destroy(part);
    reshard_plan_release(plan);
    release_layouts(shared);
    return status;
}

/* ---- many runs ------------------------------------------------------------------------------- */

static int compare_runs(const void *a, const void *b)
{
    double difference =
        ((const bench_run *)a)->seconds[STEP_TOTAL] - ((const bench_run *)b)->seconds[STEP_TOTAL];
    return difference < 0 ? -1 : difference > 0;
}

static int run_and_report(bench *shared, int32_t ranks, int32_t rank, bench_run *out_run)
{
    reshard_status status = run_once(shared, ranks, rank, out_run);
    if (status != RESHARD_OK)
        return cli_fail_status(status);
    if (cli_work_cancelled())
        return cli_fail(CLI_FAILED, "cancelled");
    cli_work_report(shared->work, "runs", ++shared->runs_done, shared->runs_total);
    return CLI_DONE;
}

/* With more ranks than rows, some ranks touch more than others, most of all the first and the last
 * ones. */
static int find_slowest(bench *shared, int32_t ranks, int32_t *out_rank)
{
    double slowest = -1;
    int32_t slowest_rank = 0;
    for (int64_t i = 0; i < SPREAD; i++) {
        bench_run run;
        int32_t rank = (int32_t)(i * (ranks - 1) / (SPREAD - 1));
        int code = run_and_report(shared, ranks, rank, &run);
        if (code != CLI_DONE)
            return code;
        if (run.seconds[STEP_PART] > slowest) {
            slowest = run.seconds[STEP_PART];
            slowest_rank = rank;
        }
    }
    *out_rank = slowest_rank;
    return CLI_DONE;
}

static int measure_case(bench *shared, int worst, bench_case *measured)
{
    bench_run runs[RUNS];
    int code = worst ? find_slowest(shared, measured->ranks, &measured->rank) : CLI_DONE;
    for (int i = 0; i < RUNS && code == CLI_DONE; i++)
        code = run_and_report(shared, measured->ranks, measured->rank, &runs[i]);
    if (code == CLI_DONE) {
        qsort(runs, RUNS, sizeof runs[0], compare_runs);
        measured->median = runs[RUNS / 2];
    }
    return code;
}

static int measure(cli_work *work, int worst, bench_case *cases, int case_count)
{
    bench_plan_tensor *tensors = cli_allocate(BENCH_PLAN_TENSOR_COUNT, sizeof *tensors);
    bench shared = {
        .tensors = tensors,
        .sources = cli_allocate(BENCH_PLAN_TENSOR_COUNT, sizeof *shared.sources),
        .targets = cli_allocate(BENCH_PLAN_TENSOR_COUNT, sizeof *shared.targets),
        .links = cli_allocate(BENCH_PLAN_TENSOR_COUNT, sizeof *shared.links),
        .work = work,
        .runs_total = (uint64_t)case_count * (worst ? RUNS + SPREAD : RUNS),
    };
    int code = CLI_DONE;
    bench_plan_model_fill(tensors);
    for (int32_t i = 0; i < BENCH_PLAN_TENSOR_COUNT; i++) {
        shared.sources[i] = (reshard_plan_tensor){.name = tensors[i].name, .dtype = RESHARD_BF16};
        shared.targets[i] = shared.sources[i];
        shared.links[i] = reshard_link_whole(i, i);
    }
    for (int i = 0; i < case_count && code == CLI_DONE; i++)
        code = measure_case(&shared, worst, &cases[i]);
    free(tensors);
    free(shared.sources);
    free(shared.targets);
    free(shared.links);
    return code;
}

/* ---- printing -------------------------------------------------------------------------------- */

static void print_json(const bench_case *cases, int count)
{
    cli_json json = {.stream = stdout};
    cli_json_begin_object(&json, NULL);
    cli_json_begin_list(&json, "cases");
    for (int i = 0; i < count; i++) {
        const bench_run *run = &cases[i].median;
        cli_json_begin_object(&json, NULL);
        cli_json_integer(&json, "ranks", cases[i].ranks);
        cli_json_integer(&json, "tensors", BENCH_PLAN_TENSOR_COUNT);
        cli_json_unsigned(&json, "moves", run->stats.moves);
        cli_json_unsigned(&json, "records", run->stats.records);
        cli_json_seconds(&json, "seconds", run->seconds[STEP_TOTAL]);
        cli_json_unsigned(&json, "peak_bytes", run->peak_bytes);
        cli_json_integer(&json, "rank", cases[i].rank);
        cli_json_integer(&json, "stages", run->stages);
        cli_json_seconds(&json, "layouts_seconds", run->seconds[STEP_LAYOUTS]);
        cli_json_seconds(&json, "plan_seconds", run->seconds[STEP_PLAN]);
        cli_json_seconds(&json, "part_seconds", run->seconds[STEP_PART]);
        cli_json_end_object(&json);
    }
    cli_json_end_list(&json);
    cli_json_end_object(&json);
    putchar('\n');
}

static void print_table(const bench_case *cases, int count)
{
    static const char *const titles[] = {"ranks",   "rank",    "tensors", "moves",
                                         "records", "stages",  "time ms", "layouts ms",
                                         "plan ms", "part ms", "peak MB"};
    static const int title_count = sizeof titles / sizeof titles[0];
    cli_table *table = cli_table_create(title_count);
    printf(
        "Llama of 405B parameters in bf16, fsdp=N: S(0) to dp=N/%d,tp=%d; the part of one rank.\n"
        "Medians of %d runs.\n\n",
        BENCH_PLAN_TENSOR_PARALLEL, BENCH_PLAN_TENSOR_PARALLEL, RUNS);
    for (int i = 0; i < title_count; i++)
        cli_table_add(table, CLI_BOLD, "%s", titles[i]);
    for (int i = 0; i < count; i++) {
        const bench_run *run = &cases[i].median;
        cli_table_add(table, CLI_PLAIN, "%" PRId32, cases[i].ranks);
        cli_table_add(table, CLI_PLAIN, "%" PRId32, cases[i].rank);
        cli_table_add(table, CLI_PLAIN, "%d", BENCH_PLAN_TENSOR_COUNT);
        cli_table_add(table, CLI_PLAIN, "%" PRIu64, run->stats.moves);
        cli_table_add(table, CLI_PLAIN, "%" PRIu64, run->stats.records);
        cli_table_add(table, CLI_PLAIN, "%" PRId32, run->stages);
        cli_table_add(table, CLI_PLAIN, "%.2f", run->seconds[STEP_TOTAL] * 1e3);
        for (int step = STEP_LAYOUTS; step < STEP_TOTAL; step++)
            cli_table_add(table, CLI_DIM, "%.2f", run->seconds[step] * 1e3);
        cli_table_add(table, CLI_PLAIN, "%.2f", (double)run->peak_bytes / 1e6);
    }
    cli_table_print(table);
    cli_table_destroy(table);
}

/* ---- the command ----------------------------------------------------------------------------- */

static int read_count(const char *text, size_t length, int32_t *out_ranks)
{
    char digits[16];
    uint64_t number = 0;
    snprintf(digits, sizeof digits, "%.*s",
             (int)(length < sizeof digits ? length : sizeof digits - 1), text);
    if (length >= sizeof digits || cli_number_parse(digits, INT32_MAX, &number) != 0 ||
        number == 0 || number % BENCH_PLAN_TENSOR_PARALLEL != 0)
        return cli_fail(CLI_USAGE,
                        "bench plan: --ranks \"%s\": expected multiples of %d, like 1024,16384",
                        text, BENCH_PLAN_TENSOR_PARALLEL);
    *out_ranks = (int32_t)number;
    return CLI_DONE;
}

static int read_cases(const bench_values *values, bench_case *cases, int *out_count)
{
    int count = 0;
    for (const char *text = values->ranks;; text++) {
        size_t length = strcspn(text, ",");
        if (count == CASES_MAX)
            return cli_fail(CLI_USAGE, "bench plan: --ranks lists more than %d numbers", CASES_MAX);
        bench_case *added = &cases[count++];
        int code = read_count(text, length, &added->ranks);
        if (code != CLI_DONE)
            return code;
        added->rank = values->rank >= 0 ? values->rank : (added->ranks / 2 + 3) % added->ranks;
        if (added->rank >= added->ranks)
            return cli_fail(CLI_USAGE,
                            "bench plan: --rank %" PRId32 " does not exist among %" PRId32 " ranks",
                            added->rank, added->ranks);
        text += length;
        if (*text == '\0')
            break;
    }
    *out_count = count;
    return CLI_DONE;
}

static int run(const cli_command *command, int argc, char **argv)
{
    bench_values values = {.ranks = "1024,16384,131072", .rank = -1};
    bench_case cases[CASES_MAX];
    int case_count = 0;
    cli_work work = {0};
    int code = cli_options_parse(command, argc, argv, &values, NULL);
    if (code == CLI_DONE && values.worst && values.rank >= 0)
        code = cli_fail(CLI_USAGE, "bench plan: --rank and --worst exclude each other");
    if (code == CLI_DONE)
        code = read_cases(&values, cases, &case_count);
    if (code == CLI_DONE)
        code = cli_work_begin(&work);
    if (code == CLI_DONE)
        code = measure(&work, values.worst, cases, case_count);
    cli_work_settle(&work);
    if (code == CLI_DONE && values.json)
        print_json(cases, case_count);
    else if (code == CLI_DONE)
        print_table(cases, case_count);
    cli_work_end(&work);
    return code;
}

const cli_command bench_command_plan = {
    .name = "bench plan",
    .summary = "planning time and memory",
    .synopsis = "[--ranks N[,N..]] [--rank R | --worst] [--json]",
    .description =
        "Measures how long one rank takes to find out what it has to do when the 1137 tensors of\n"
        "a Llama of 405 billion parameters go from rows over N ranks (fsdp) to groups of 8 ranks\n"
        "(tensor parallel): layouts, plan and that rank's part, and the most memory they took.\n"
        "Times are medians of 5 runs.\n",
    CLI_OPTIONS(options),
    .examples = "  reshard bench plan\n"
                "  reshard bench plan --ranks 1024,131072 --json\n"
                "  reshard bench plan --ranks 16384 --worst\n",
    .run = run,
};
