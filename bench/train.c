/* SPDX-License-Identifier: Apache-2.0 */
/*
 * train.c - `reshard bench train`: measures what training costs. Compares the forward and backward
 * pass of a linear layer with the three matrix products that it needs, and a GPT's training step on
 * one rank with the same step on several. Ranks are threads; OpenBLAS uses one thread for each. The
 * two sides of a comparison take turns, and a ratio is the median over the turns.
 */
#include "bench/commands.h"
#include "bench/common/timing.h"
#include "bench/training.h"
#include "cli/common/failure.h"
#include "cli/common/json.h"
#include "cli/common/memory.h"
#include "cli/common/table.h"
#include "cli/common/work.h"

#include <cblas.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { RUNS_MAX = 99, LINEAR_TURNS = 5, STEPS = 5, RANKS_MAX = 64, SIZE_MAX_LINEAR = 16384 };

typedef struct train_values {
    int32_t runs, ranks, size, layers, width, heads, batch, length, vocabulary;
    int json;
} train_values;

static const cli_option options[] = {
    {"runs", CLI_RANK, offsetof(train_values, runs), "N", 0, "turns to take the median of (5)"},
    {"ranks", CLI_RANK, offsetof(train_values, ranks), "N", 0,
     "how many ranks to compare with one (2)"},
    {"size", CLI_RANK, offsetof(train_values, size), "N", 0,
     "rows, inputs and outputs of the linear layer (1024)"},
    {"layers", CLI_RANK, offsetof(train_values, layers), "N", 0, "blocks of the GPT (12)"},
    {"width", CLI_RANK, offsetof(train_values, width), "N", 0, "its width (256)"},
    {"heads", CLI_RANK, offsetof(train_values, heads), "N", 0, "its heads (8)"},
    {"batch", CLI_RANK, offsetof(train_values, batch), "N", 0, "sequences in a step (8)"},
    {"length", CLI_RANK, offsetof(train_values, length), "N", 0, "tokens in each (64)"},
    {"vocabulary", CLI_RANK, offsetof(train_values, vocabulary), "N", 0,
     "tokens that there are (256)"},
    {"json", CLI_FLAG, offsetof(train_values, json), NULL, 0, "one JSON object on one line"},
};

/* Two ways to do the same thing: the median times, and the median ratio over the turns. */
typedef struct comparison {
    double seconds[2];
    double ratio; /* the first time divided by the second */
} comparison;

typedef struct bench {
    const train_values *values;
    cli_work *work;
    uint64_t done, total;
    comparison linear;        /* reshard_linear, and the products alone */
    comparison step;          /* one rank, and several */
    double processor_seconds; /* of a step on one rank */
    double losses[2];
    size_t peaks[2][2]; /* as in bench_training */
} bench;

static int report(bench *b)
{
    if (cli_work_cancelled())
        return cli_fail(CLI_FAILED, "cancelled");
    cli_work_report(b->work, "runs", ++b->done, b->total);
    return CLI_DONE;
}

static void find_medians(double (*turns)[2], int32_t count, comparison *found)
{
    double *numbers = cli_allocate((size_t)count, sizeof *numbers);
    for (int side = 0; side < 2; side++) {
        for (int32_t i = 0; i < count; i++)
            numbers[i] = turns[i][side];
        found->seconds[side] = bench_median(numbers, count);
    }
    for (int32_t i = 0; i < count; i++)
        numbers[i] = turns[i][0] / turns[i][1];
    found->ratio = bench_median(numbers, count);
    free(numbers);
}

/* ---- linear ---------------------------------------------------------------------------------- */

typedef struct matrices {
    int64_t size;
    reshard_tensor *x, *weight, *gradient;
    float *out[3]; /* results of the products alone */
} matrices;

static reshard_status make_matrices(reshard_context *context, matrices *m)
{
    reshard_tensor **made[] = {&m->x, &m->weight, &m->gradient};
    int64_t shape[] = {m->size, m->size};
    reshard_status status = RESHARD_OK;
    for (uint64_t i = 0; i < 3 && status == RESHARD_OK; i++) {
        status = reshard_tensor_create(context, RESHARD_F32, 2, shape, made[i]);
        if (status == RESHARD_OK)
            status = reshard_tensor_fill_random(*made[i], RESHARD_NORMAL, i);
        if (status == RESHARD_OK && i < 2)
            status = reshard_tensor_set_requires_grad(*made[i], 1);
        m->out[i] = cli_allocate((size_t)(m->size * m->size), sizeof *m->out[i]);
    }
    return status;
}

static void release_matrices(matrices *m)
{
    reshard_tensor_release(m->x);
    reshard_tensor_release(m->weight);
    reshard_tensor_release(m->gradient);
    for (int i = 0; i < 3; i++)
        free(m->out[i]);
}

static reshard_status run_linear(reshard_context *context, const matrices *m)
{
    reshard_scope *scope = NULL;
    reshard_status status = reshard_scope_open(context, &scope);
    if (status != RESHARD_OK)
        return status;
    (void)reshard_backward(reshard_linear(m->x, m->weight, NULL), m->gradient, NULL);
    status = reshard_scope_close(scope);
    reshard_tensor_clear_gradient(m->x);
    reshard_tensor_clear_gradient(m->weight);
    return status;
}

/* y = x wT, dx = dy w, dw = dyT x. */
static void run_products(const matrices *m)
{
    const float *x = reshard_tensor_data(m->x), *weight = reshard_tensor_data(m->weight);
    const float *gradient = reshard_tensor_data(m->gradient);
    int n = (int)m->size;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n, n, n, 1, x, n, weight, n, 0, m->out[0],
                n);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, n, n, 1, gradient, n, weight, n, 0,
                m->out[1], n);
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, n, n, n, 1, gradient, n, x, n, 0,
                m->out[2], n);
}

static int measure_linear(bench *b)
{
    int32_t count = b->values->runs * LINEAR_TURNS;
    double(*turns)[2] = cli_allocate((size_t)count, sizeof *turns);
    matrices m = {.size = b->values->size};
    reshard_context *context = b->work->context;
    reshard_status status = make_matrices(context, &m);
    int code = CLI_DONE;
    for (int32_t i = -1; i < count && status == RESHARD_OK && code == CLI_DONE; i++) {
        double began = cli_seconds(), middle;
        status = run_linear(context, &m); /* must run first: it sets OpenBLAS to one thread */
        middle = cli_seconds();
        run_products(&m);
        if (i >= 0) {
            turns[i][0] = middle - began;
            turns[i][1] = cli_seconds() - middle;
            code = report(b);
        }
    }
    if (status == RESHARD_OK && code == CLI_DONE)
        find_medians(turns, count, &b->linear);
    release_matrices(&m);
    free(turns);
    return status == RESHARD_OK ? code : cli_fail_status(status);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static int measure_steps(bench *b)
{
    const train_values *v = b->values;
    double(*turns)[2] = cli_allocate((size_t)v->runs, sizeof *turns);
    double *processor = cli_allocate((size_t)v->runs, sizeof *processor);
    double seconds[STEPS];
    int32_t ranks[] = {1, v->ranks};
    int code = CLI_DONE;
    for (int32_t i = 0; i < v->runs && code == CLI_DONE; i++) {
        for (int side = 0; side < 2 && code == CLI_DONE; side++) {
            bench_training t = {.layers = v->layers,
                                .width = v->width,
                                .heads = v->heads,
                                .batch = v->batch,
                                .length = v->length,
                                .vocabulary = v->vocabulary,
                                .steps = STEPS,
                                .seconds = seconds,
                                .peaks = i == 0 && side == 1 ? b->peaks : NULL};
            reshard_status status = bench_training_run(&t, ranks[side]);
            code = status == RESHARD_OK ? report(b) : cli_fail_status(status);
            turns[i][side] = bench_median(seconds, STEPS);
            b->losses[side] = t.loss;
            if (side == 0)
                processor[i] = t.processor_seconds;
        }
    }
    if (code == CLI_DONE)
        find_medians(turns, v->runs, &b->step);
    if (code == CLI_DONE)
        b->processor_seconds = bench_median(processor, v->runs);
    if (code == CLI_DONE && !(fabs(b->losses[0] - b->losses[1]) < 1e-3 * b->losses[0]))
        code = cli_fail(CLI_FAILED, "bench train: the loss is %g on one rank, %g on %" PRId32,
                        b->losses[0], b->losses[1], v->ranks);
    free(processor);
    free(turns);
    return code;
}

/* ---- the command ----------------------------------------------------------------------------- */

static void print_json(const bench *b)
{
    cli_json json = {.stream = stdout};
    cli_json_begin_object(&json, NULL);
    cli_json_seconds(&json, "linear_seconds", b->linear.seconds[0]);
    cli_json_seconds(&json, "products_seconds", b->linear.seconds[1]);
    cli_json_seconds(&json, "linear_ratio", b->linear.ratio);
    cli_json_seconds(&json, "step_seconds_1", b->step.seconds[0]);
    cli_json_seconds(&json, "step_cpu_seconds_1", b->processor_seconds);
    cli_json_seconds(&json, "step_seconds", b->step.seconds[1]);
    cli_json_seconds(&json, "step_ratio", b->step.ratio);
    cli_json_integer(&json, "step_bytes", (int64_t)b->peaks[0][0]);
    cli_json_integer(&json, "step_bytes_logits_gathered", (int64_t)b->peaks[0][1]);
    cli_json_integer(&json, "step_bytes_inputs_kept", (int64_t)b->peaks[1][0]);
    cli_json_integer(&json, "step_bytes_both", (int64_t)b->peaks[1][1]);
    cli_json_integer(&json, "ranks", b->values->ranks);
    cli_json_integer(&json, "runs", b->values->runs);
    cli_json_end_object(&json);
    putchar('\n');
}

static void add_row(cli_table *table, const char *what, double seconds, double ratio,
                    const char *meaning)
{
    cli_table_add(table, CLI_PLAIN, "%s", what);
    cli_table_add(table, CLI_PLAIN, "%.2f", seconds * 1e3);
    if (ratio > 0)
        cli_table_add(table, CLI_PLAIN, "%.2f", ratio);
    else
        cli_table_add(table, CLI_PLAIN, "%s", "");
    cli_table_add(table, CLI_DIM, "%s", meaning);
}

/* What a step takes beside parameters and the optimizer's states. */
static void print_memory(const bench *b)
{
    static const char *const rows[2] = {"with input_reshard", "without"};
    cli_table *table = cli_table_create(3);
    printf("\nMemory of a step on rank 0 of %" PRId32 ", MB, with a vocabulary of %" PRId32 ":\n\n",
           b->values->ranks, b->values->vocabulary);
    cli_table_align(table, 0, CLI_LEFT);
    cli_table_add(table, CLI_BOLD, "%s", "");
    cli_table_add(table, CLI_BOLD, "%s", "logits cut");
    cli_table_add(table, CLI_BOLD, "%s", "logits gathered");
    for (int off = 0; off < 2; off++) {
        cli_table_add(table, CLI_PLAIN, "%s", rows[off]);
        for (int gathers = 0; gathers < 2; gathers++)
            cli_table_add(table, CLI_PLAIN, "%.2f", (double)b->peaks[off][gathers] / 1e6);
    }
    cli_table_print(table);
    cli_table_destroy(table);
}

static void print_table(const bench *b)
{
    const train_values *v = b->values;
    bench_training t = {
        .layers = v->layers, .width = v->width, .length = v->length, .vocabulary = v->vocabulary};
    char several[40];
    cli_table *table = cli_table_create(4);
    printf("A linear layer of %" PRId32 "x%" PRId32 "x%" PRId32 " in f32, and a GPT of %.1f million"
           " parameters: %" PRId32 " blocks,\nwidth %" PRId32 ", %" PRId32 " sequences of %" PRId32
           ". Medians of %" PRId32 " turns.\n\n",
           v->size, v->size, v->size, (double)bench_training_parameters(&t) / 1e6, v->layers,
           v->width, v->batch, v->length, v->runs);
    (void)snprintf(several, sizeof several, "step on %" PRId32 " ranks", v->ranks);
    cli_table_align(table, 0, CLI_LEFT);
    cli_table_align(table, 3, CLI_LEFT);
    cli_table_add(table, CLI_BOLD, "%s", "");
    cli_table_add(table, CLI_BOLD, "%s", "ms");
    cli_table_add(table, CLI_BOLD, "%s", "ratio");
    cli_table_add(table, CLI_BOLD, "%s", "");
    add_row(table, "linear, forward and backward", b->linear.seconds[0], b->linear.ratio,
            "times as long as the products");
    add_row(table, "three products by sgemm", b->linear.seconds[1], 0, "");
    add_row(table, "step on 1 rank", b->step.seconds[0], 0, "");
    add_row(table, several, b->step.seconds[1], b->step.ratio, "times as fast as on one");
    cli_table_print(table);
    cli_table_destroy(table);
    print_memory(b);
}

static int check_values(const train_values *v)
{
    const struct {
        const char *name;
        int32_t value, max;
    } limits[] = {{"runs", v->runs, RUNS_MAX},
                  {"ranks", v->ranks, RANKS_MAX},
                  {"size", v->size, SIZE_MAX_LINEAR},
                  {"layers", v->layers, 1000},
                  {"width", v->width, 65536},
                  {"heads", v->heads, 65536},
                  {"batch", v->batch, 65536},
                  {"length", v->length, 65536},
                  {"vocabulary", v->vocabulary, 1 << 20}};
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        if (limits[i].value < 1 || limits[i].value > limits[i].max)
            return cli_fail(CLI_USAGE, "bench train: --%s %" PRId32 ": from 1 to %" PRId32,
                            limits[i].name, limits[i].value, limits[i].max);
    }
    return CLI_DONE;
}

static int run(const cli_command *command, int argc, char **argv)
{
    train_values values = {.runs = 5,
                           .ranks = 2,
                           .size = 1024,
                           .layers = 12,
                           .width = 256,
                           .heads = 8,
                           .batch = 8,
                           .length = 64,
                           .vocabulary = 256};
    cli_work work = {0};
    bench b = {.values = &values, .work = &work};
    int code = cli_options_parse(command, argc, argv, &values, NULL);
    if (code == CLI_DONE)
        code = check_values(&values);
    if (code == CLI_DONE)
        code = cli_work_begin(&work);
    b.total = (uint64_t)values.runs * (LINEAR_TURNS + 2);
    if (code == CLI_DONE)
        code = measure_linear(&b);
    if (code == CLI_DONE)
        code = measure_steps(&b);
    cli_work_settle(&work);
    if (code == CLI_DONE && values.json)
        print_json(&b);
    else if (code == CLI_DONE)
        print_table(&b);
    cli_work_end(&work);
    return code;
}

const cli_command bench_command_train = {
    .name = "bench train",
    .summary = "the cost of training: a layer, a step on several ranks",
    .synopsis = "[--runs N] [--ranks N] [--size N] [--layers N] [--width N]\n"
                "[--heads N] [--batch N] [--length N] [--vocabulary N] [--json]",
    .description =
        "Compares the forward and backward pass of a linear layer in f32 with the three matrix\n"
        "products that it consists of, and a training step (forward, backward, clipping, AdamW)\n"
        "of a small GPT on one rank with the same step on several: tensor parallel, with the\n"
        "inputs of its blocks kept in chunks. Ranks are threads; BLAS uses one thread for each.\n"
        "Then measures what a step takes in memory on rank 0, beside parameters and the\n"
        "optimizer's states: with and without input_reshard, and with logits that stay cut over\n"
        "ranks (loss parallel) or are gathered for the loss.\n",
    CLI_OPTIONS(options),
    .examples = "  reshard bench train\n"
                "  reshard bench train --ranks 4 --batch 8 --json\n",
    .run = run,
};
