/* SPDX-License-Identifier: Apache-2.0 */
/*
 * predict.c - `reshard bench predict`: measures the machine, predicts moves and conversions from
 * these numbers, runs them, and prints both times side by side. It fails if they differ by more
 * than a factor, so that a model that is no longer accurate is noticed.
 *
 * The moves that measure the machine (machine.h) are different from those that are predicted.
 */
#include "bench/predict.h"

#include "bench/commands.h"
#include "cli/common/failure.h"
#include "cli/common/json.h"
#include "cli/common/memory.h"
#include "cli/common/ranks.h"
#include "cli/common/table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE_DEFAULT = 8192, SIDE_MIN = 64, SIDE_MAX = 32768, RUNS_DEFAULT = 9, RUNS_MAX = 101 };
enum { MPI_RANKS = 4, FACTOR_DEFAULT = 2 };
#define BYTES_DEFAULT ((size_t)500000000)

typedef enum shape_kind { SQUARE, CUBE, SIXTEENTH } shape_kind;

/* The moves: on threads, or under mpirun on four processes. */
static const struct move_case {
    int under_mpi;
    shape_kind shape;
    reshard_dtype dtype;
    int32_t ranks;
    const char *from, *to;
    int plain, messages;
} cases[] = {
    {0, SQUARE, RESHARD_F32, 4, "4: S(0)", "4: S(1)", 0, 0},
    {0, SQUARE, RESHARD_F32, 2, "2: S(1)", "2: S(0)", 0, 0},
    {0, SQUARE, RESHARD_F32, 4, "2,2: S(0), S(1)", "4: S(0)", 0, 0},
    {0, CUBE, RESHARD_F32, 4, "4: S(0)", "4: S(2)", 0, 0},
    {0, SQUARE, RESHARD_BF16, 4, "4: S(0)", "4: S(1/16)", 0, 0},
    {0, SIXTEENTH, RESHARD_F32, 4, "4: S(0)", "4: R", 0, 0},
    {1, SQUARE, RESHARD_F32, MPI_RANKS, "4: S(0)", "4: S(1)", 0, 0},
    {1, SIXTEENTH, RESHARD_F32, MPI_RANKS, "4: S(0)", "4: R", 0, 0},
    {1, SQUARE, RESHARD_F32, MPI_RANKS, "4: S(0)", "4: S(1)", 1, 0},
    {1, SQUARE, RESHARD_F32, MPI_RANKS, "4: S(0)", "4: S(1)", 1, 1},
};
enum { CASES = sizeof cases / sizeof cases[0] };

typedef struct predict_values {
    const char *folder, *cluster, *within;
    int32_t side, runs;
    size_t bytes;
    int json;
} predict_values;

static const cli_option options[] = {
    {"folder", CLI_TEXT, offsetof(predict_values, folder), "DIR", 0,
     "where conversions work, on the disk to measure (.)"},
    {"bytes", CLI_SIZE, offsetof(predict_values, bytes), "SIZE", 0,
     "size of the models to convert, about (500MB)"},
    {"side", CLI_RANK, offsetof(predict_values, side), "N", 0, "moves are of NxN elements (8192)"},
    {"runs", CLI_RANK, offsetof(predict_values, runs), "N", 0, "runs to take the median of (9)"},
    {"cluster", CLI_TEXT, offsetof(predict_values, cluster), "C", 0,
     "predict from these numbers, not from measured ones"},
    {"within", CLI_TEXT, offsetof(predict_values, within), "F", 0,
     "the factor beyond which it fails (2)"},
    {"json", CLI_FLAG, offsetof(predict_values, json), NULL, 0, "one JSON object on one line"},
};

/* Everything that is measured, and the results. */
typedef struct bench {
    const predict_values *values;
    cli_work *work;
    double factor;
    /* For each case that is run: the timings of the machine, then its own. */
    bench_timing timings[CASES * (BENCH_MACHINE_TIMINGS_MAX + 1)];
    int timing_count;
    int first[CASES], own[CASES]; /* index of a case's first timing, and of its own */
    bench_prediction rows[CASES + BENCH_CONVERSIONS];
    int row_count;
} bench;

static int is_wanted(const struct move_case *c)
{
    return c->under_mpi == !cli_ranks_are_threads();
}

/* ---- moves ----------------------------------------------------------------------------------- */

static bench_machine machine_of(const struct move_case *c)
{
    return (bench_machine){.ranks = c->ranks, .plain = c->plain, .messages = c->messages};
}

static void describe(const bench *b, const struct move_case *c, bench_timing *t)
{
    int32_t side = b->values->side;
    *t = (bench_timing){
        .dtype = c->dtype, .plain = c->plain, .messages = c->messages, .runs = b->values->runs};
    if (c->shape == CUBE)
        snprintf(t->shape, sizeof t->shape, "%" PRId32 "x%" PRId32 "x%" PRId32, side / 16,
                 side / 16, side / 32);
    else
        snprintf(t->shape, sizeof t->shape, "%" PRId32 "x%" PRId32,
                 c->shape == SIXTEENTH ? side / 4 : side, c->shape == SIXTEENTH ? side / 4 : side);
    snprintf(t->from, sizeof t->from, "%s", c->from);
    snprintf(t->to, sizeof t->to, "%s", c->to);
}

/* Measures the machine again with each case. */
static int measure_moves(bench *b)
{
    for (int i = 0; i < CASES; i++) {
        if (!is_wanted(&cases[i]))
            continue;
        bench_machine machine = machine_of(&cases[i]);
        b->first[i] = b->timing_count;
        b->own[i] = b->first[i] +
                    bench_machine_plan(&machine, b->values->side, &b->timings[b->timing_count]);
        describe(b, &cases[i], &b->timings[b->own[i]]);
        b->timing_count = b->own[i] + 1;
        for (int k = b->first[i]; k < b->timing_count; k++)
            b->timings[k].batch = i;
    }
    return bench_timings_run(b->work, b->timings, b->timing_count);
}

static int predict_move(const bench *b, const struct move_case *c, const bench_timing *timings,
                        const bench_timing *own, bench_prediction *row)
{
    bench_machine machine = machine_of(c);
    reshard_cluster cluster = {.size = sizeof cluster};
    reshard_prediction *prediction = NULL;
    char text[BENCH_CLUSTER_TEXT];
    bench_machine_read(&machine, timings);
    const char *used = b->values->cluster;
    if (used == NULL)
        used = bench_machine_cluster(&machine, NULL, text);
    reshard_status status = reshard_cluster_parse(used, &cluster);
    if (status == RESHARD_OK)
        status = reshard_plan_predict(own->plan, &cluster, &prediction);
    if (status != RESHARD_OK)
        return cli_fail_status(status);
    snprintf(row->what, sizeof row->what, "%s %s, %s%s", own->shape, reshard_dtype_name(own->dtype),
             c->messages ? "MPI messages" : cli_ranks_kind(),
             c->plain && !c->messages ? ", plain" : "");
    snprintf(row->from, sizeof row->from, "%s", own->from);
    snprintf(row->to, sizeof row->to, "%s", own->to);
    row->predicted = reshard_prediction_seconds(prediction);
    row->measured = own->seconds;
    reshard_prediction_destroy(prediction);
    return CLI_DONE;
}

static int predict_moves(bench *b)
{
    int code = CLI_DONE;
    for (int i = 0; i < CASES && code == CLI_DONE; i++) {
        bench_prediction row;
        if (!is_wanted(&cases[i]))
            continue;
        code = predict_move(b, &cases[i], &b->timings[b->first[i]], &b->timings[b->own[i]], &row);
        if (code == CLI_DONE)
            b->rows[b->row_count++] = row;
    }
    return code;
}

/* ---- results --------------------------------------------------------------------------------- */

static void print_json(const bench *b)
{
    cli_json json = {.stream = stdout};
    cli_json_begin_object(&json, NULL);
    cli_json_begin_list(&json, "cases");
    for (int i = 0; i < b->row_count; i++) {
        const bench_prediction *row = &b->rows[i];
        cli_json_begin_object(&json, NULL);
        cli_json_text(&json, "what", row->what);
        cli_json_text(&json, "from", row->from);
        cli_json_text(&json, "to", row->to);
        cli_json_seconds(&json, "predicted", row->predicted);
        cli_json_seconds(&json, "measured", row->measured);
        cli_json_seconds(&json, "ratio", row->measured / row->predicted);
        cli_json_end_object(&json);
    }
    cli_json_end_list(&json);
    cli_json_end_object(&json);
    putchar('\n');
}

static void print_text(const bench *b)
{
    static const char *const heads[] = {"what",         "from",        "to",
                                        "predicted ms", "measured ms", "ratio"};
    cli_table *table = cli_table_create(6);
    for (int i = 0; i < 6; i++) {
        if (i < 3)
            cli_table_align(table, i, CLI_LEFT);
        cli_table_add(table, CLI_BOLD, "%s", heads[i]);
    }
    for (int i = 0; i < b->row_count; i++) {
        const bench_prediction *row = &b->rows[i];
        cli_table_add(table, CLI_PLAIN, "%s", row->what);
        cli_table_add(table, CLI_PLAIN, "%s", row->from);
        cli_table_add(table, CLI_PLAIN, "%s", row->to);
        cli_table_add(table, CLI_PLAIN, "%.4g", row->predicted * 1e3);
        cli_table_add(table, CLI_PLAIN, "%.4g", row->measured * 1e3);
        cli_table_add(table, CLI_PLAIN, "%.2f", row->measured / row->predicted);
    }
    cli_table_print(table);
    cli_table_destroy(table);
}

static int check_rows(const bench *b)
{
    for (int i = 0; i < b->row_count; i++) {
        const bench_prediction *row = &b->rows[i];
        double ratio = row->measured / row->predicted;
        if (!(ratio <= b->factor && ratio >= 1 / b->factor))
            return cli_fail(CLI_FAILED,
                            "bench predict: %s, %s to %s: took %.3g times the predicted time, and "
                            "a factor of %g is allowed",
                            row->what, row->from, row->to, ratio, b->factor);
    }
    return CLI_DONE;
}

/* ---- the command ----------------------------------------------------------------------------- */

static int check_values(const predict_values *values, double *out_factor)
{
    char *end = NULL;
    *out_factor = values->within != NULL ? strtod(values->within, &end) : FACTOR_DEFAULT;
    if (end != NULL && (*end != '\0' || !(*out_factor >= 1)))
        return cli_fail(CLI_USAGE,
                        "bench predict: --within \"%s\": expected a factor of at least 1",
                        values->within);
    if (values->side < SIDE_MIN || values->side > SIDE_MAX)
        return cli_fail(CLI_USAGE, "bench predict: --side goes from %d to %d", SIDE_MIN, SIDE_MAX);
    if (values->runs < 1 || values->runs > RUNS_MAX)
        return cli_fail(CLI_USAGE, "bench predict: --runs goes from 1 to %d", RUNS_MAX);
    if (!cli_ranks_are_threads() && cli_ranks_count(0) != MPI_RANKS)
        return cli_fail(CLI_USAGE, "bench predict: under mpirun it takes %d ranks, not %" PRId32,
                        MPI_RANKS, cli_ranks_count(0));
    return CLI_DONE;
}

static int measure(bench *b)
{
    const predict_values *values = b->values;
    bench_prediction conversions[BENCH_CONVERSIONS];
    int has_conversions = cli_ranks_are_threads(), code = CLI_DONE;
    if (has_conversions)
        code = bench_predict_conversions(b->work, values->folder, values->bytes,
                                         values->runs < 5 ? values->runs : 5, values->cluster,
                                         conversions);
    if (code == CLI_DONE)
        code = measure_moves(b);
    if (code == CLI_DONE && cli_ranks_are_first())
        code = predict_moves(b);
    for (int i = 0; i < BENCH_CONVERSIONS && has_conversions && code == CLI_DONE; i++)
        b->rows[b->row_count++] = conversions[i];
    return code;
}

static int run(const cli_command *command, int argc, char **argv)
{
    predict_values values = {
        .folder = ".", .side = SIDE_DEFAULT, .runs = RUNS_DEFAULT, .bytes = BYTES_DEFAULT};
    cli_work work = {0};
    bench *b = cli_allocate(1, sizeof *b);
    b->values = &values;
    b->work = &work;
    int code = cli_options_parse(command, argc, argv, &values, NULL);
    if (code == CLI_DONE)
        code = check_values(&values, &b->factor);
    if (code == CLI_DONE)
        code = cli_work_begin(&work);
    if (code == CLI_DONE)
        code = measure(b);
    cli_work_settle(&work);
    if (code == CLI_DONE && cli_ranks_are_first()) {
        (values.json ? print_json : print_text)(b);
        code = check_rows(b);
    }
    bench_timings_release(b->timings, b->timing_count);
    free(b);
    cli_work_end(&work);
    return code;
}

const cli_command bench_command_predict = {
    .name = "bench predict",
    .summary = "predicted times compared with measured ones",
    .synopsis = "[--folder DIR] [OPTIONS]",
    .description =
        "Measures this machine as reshard bench calibrate does, predicts moves between ranks and\n"
        "conversions of models from these numbers and their own bytes, runs them, and prints both\n"
        "times. Ranks are threads, or under mpirun -n 4 its processes. Fails if a time is more\n"
        "than twice the predicted one, or less than half of it.\n",
    .shares_work = 1,
    CLI_OPTIONS(options),
    .examples = "  reshard bench predict\n"
                "  mpirun -n 4 reshard bench predict --json\n",
    .run = run,
};
