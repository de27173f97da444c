/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convert.c - `reshard bench convert`: compares conversions with `cp -r` of their source, on the
 * same disk and in the same run.
 *
 * cp and the conversion take turns, in alternating order, each in its own process and into a folder
 * that is removed before the next turn; the first turn of both only warms up. Sources have just
 * been written, so they are in the page cache. Times are medians; memory is the maximum over all
 * runs.
 */
#include "bench/commands.h"
#include "bench/common/child.h"
#include "bench/common/folders.h"
#include "bench/common/sample_model.h"
#include "bench/common/timing.h"
#include "cli/common/failure.h"
#include "cli/common/json.h"
#include "cli/common/sizes.h"
#include "cli/common/table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS_DEFAULT = 5, RUNS_MAX = 101, CASE_COUNT = 19, LIMIT_COUNT = 3 };
enum { CROWD_TENSORS_DEFAULT = 100000, CROWD_TENSORS_MAX = 1000000, CROWD_FILES = 64 };

#define BYTES_DEFAULT ((size_t)2000000000)
#define BYTES_MAX ((size_t)1 << 40)
/* Memory allowed on top of --max-memory: a base for code, threads and small lists, and a multiple
 * of the longest header. */
#define BASE_BYTES ((uint64_t)32 << 20)
#define HEADER_TIMES 4

typedef struct convert_case {
    const char *name, *title;
    reshard_dtype dtype;
    const char *from; /* the source's mesh; NULL: whole tensors */
    const char *to, *cast;
    double aimed;                     /* the goal: this many times the speed of cp */
    const char *from_format, *format; /* NULL: as reshard convert chooses */
    int dtensors;                     /* rank files hold DTensors, on both sides */
    const char *from_as, *as;         /* namings; NULL: that of hf, or of the source */
    int64_t experts;                  /* of each layer of the source; 0: it is dense */
} convert_case;

/* A source that gguf_file.c writes, quantised; and the format whose output follows such a file. */
#define GGUF "gguf"
/* Not a format that is written: zero_files.c does. */
#define ZERO "zero3"
#define ZERO_RANKS 8

/* Name, title, dtype of the source, the aim, and what else makes the case. */
#define CASE(name_, title_, dtype_, aimed_, ...)                                                \
    {                                                                                           \
        .name = name_, .title = title_, .dtype = RESHARD_##dtype_, .aimed = aimed_, __VA_ARGS__ \
    }

static const convert_case cases[CASE_COUNT] = {
    CASE("fsdp-hf", "fsdp=8 -> hf", BF16, 0.9, .from = "fsdp=8"),
    CASE("hf-tp", "hf -> tp=4", BF16, 0.8, .to = "tp=4"),
    CASE("tp-tp", "tp=8 -> tp=2", BF16, 0.8, .from = "tp=8", .to = "tp=2"),
    CASE("cast", "fsdp=8 f32 -> tp=4 bf16", F32, 0.6, .from = "fsdp=8", .to = "tp=4",
         .cast = "bf16"),
    CASE("dcp-hf", "dcp of fsdp=8 -> hf", BF16, 0.9, .from = "fsdp=8", .from_format = "dcp"),
    CASE("hf-dcp", "hf -> dcp of fsdp=8", BF16, 0.8, .to = "fsdp=8", .format = "dcp"),
    CASE("pt-hf", "model.pt -> hf", BF16, 0.9, .from_format = "torch", .format = "hf"),
    CASE("hf-pt", "hf -> model.pt", BF16, 0.8, .format = "torch"),
    CASE("ranks-hf", "DTensors of fsdp=8 -> hf", BF16, 0.8, .from = "fsdp=8",
         .from_format = "torch", .format = "hf", .dtensors = 1),
    CASE("ranks-ranks", "DTensors of fsdp=8 -> fsdp=3", BF16, 0.8, .from = "fsdp=8",
         .from_format = "torch", .to = "fsdp=3", .format = "torch", .dtensors = 1),
    CASE("zero-hf", "zero3 of 8 -> hf", F32, 0.8, .from_format = ZERO, .format = "hf"),
    CASE("hf-vllm", "hf -> vllm tp=4, fused", BF16, 0.8, .to = "tp=4", .as = "vllm"),
    CASE("vllm-hf", "vllm tp=4 -> hf", BF16, 0.8, .from = "tp=4", .from_as = "vllm", .as = "hf"),
    CASE("hf-meta", "hf -> meta tp=4, rotary rows", BF16, 0.7, .to = "tp=4", .as = "meta"),
    CASE("hf-hf5", "hf -> hf5, experts fused", BF16, 0.8, .as = "hf5",
         .experts = BENCH_SAMPLE_EXPERTS),
    CASE("hf-megatron", "hf -> megatron tp=4", BF16, 0.8, .to = "tp=4", .as = "megatron"),
    CASE("megatron-hf", "megatron tp=4 -> hf", BF16, 0.8, .from = "tp=4", .from_as = "megatron",
         .as = "hf"),
    CASE("gguf-hf", "gguf Q4_K -> hf bf16", BF16, 0.5, .from_format = GGUF, .as = "hf",
         .cast = "bf16"),
    CASE("hf-gguf", "hf bf16 -> gguf Q8_0", BF16, 0.5, .as = GGUF, .cast = "q8_0"),
};

static const size_t limits[LIMIT_COUNT] = {(size_t)16 << 20, (size_t)64 << 20, (size_t)512 << 20};

enum { CASE_ALL = 0, CASE_CROWD = CASE_COUNT + 1 };

typedef struct bench_values {
    size_t bytes, memory_bytes;
    int32_t runs, threads, tensors;
    int chosen, sync, no_reflink, json;
    const char *folder;
} bench_values;

static const cli_option options[] = {
    {"bytes", CLI_SIZE, offsetof(bench_values, bytes), "SIZE", 0,
     "size of the source, about (2GB)"},
    {"case", CLI_CHOICE, offsetof(bench_values, chosen),
     "all|fsdp-hf|hf-tp|tp-tp|cast|dcp-hf|hf-dcp|pt-hf|hf-pt|ranks-hf|ranks-ranks|zero-hf|"
     "hf-vllm|vllm-hf|hf-meta|hf-hf5|hf-megatron|megatron-hf|gguf-hf|hf-gguf|tensors",
     0, "only one of the measurements"},
    {"runs", CLI_RANK, offsetof(bench_values, runs), "N", 0, "runs to take the median of (5)"},
    {"max-memory", CLI_SIZE, offsetof(bench_values, memory_bytes), "SIZE", 0,
     "memory of the conversions that are timed (512M)"},
    {"threads", CLI_RANK, offsetof(bench_values, threads), "N", 0, "as for reshard convert"},
    {"tensors", CLI_RANK, offsetof(bench_values, tensors), "N", 0,
     "number of small tensors to plan (100000)"},
    {"folder", CLI_TEXT, offsetof(bench_values, folder), "DIR", 0,
     "where to work, on the disk to measure (.)"},
    {"sync", CLI_FLAG, offsetof(bench_values, sync), NULL, 0,
     "time until data is on the disk, on both sides"},
    {"no-reflink", CLI_FLAG, offsetof(bench_values, no_reflink), NULL, 0,
     "cp copies even if the file system could share"},
    {"json", CLI_FLAG, offsetof(bench_values, json), NULL, 0, "one JSON object on one line"},
};

typedef struct bench_result {
    int is_measured;
    bench_folder_facts source, target;
    double seconds, copy_seconds;
    double cpu_seconds, copy_cpu_seconds; /* sums over all threads: less noisy on a busy machine */
    uint64_t peak_bytes;
    uint64_t peaks[LIMIT_COUNT]; /* peak memory under each of the limits */
} bench_result;

typedef struct bench {
    const bench_values *values;
    cli_work *work;
    char *whole, *source, *target;
    char *base; /* in `whole`: a GGUF file to follow */
    uint64_t steps_done, steps_total;
    bench_result results[CASE_COUNT];
    double crowd_seconds;
    uint64_t crowd_peak_bytes;
} bench;

/* ---- one case -------------------------------------------------------------------------------- */

static void step(bench *shared)
{
    cli_work_report(shared->work, "measuring", ++shared->steps_done, shared->steps_total);
}

static int is_format(const char *format, const char *name)
{
    return format != NULL && strcmp(format, name) == 0;
}

/* cp copies the larger side, which is the source but for that of quantised weights: for that case
 * the model in bf16 is kept. */
static int copies_whole(const convert_case *measured)
{
    return is_format(measured->from_format, GGUF);
}

static reshard_conversion_options describe(const bench *shared, const convert_case *measured,
                                           size_t memory_bytes)
{
    return (reshard_conversion_options){
        .size = sizeof(reshard_conversion_options),
        .to = measured->to,
        .format = measured->format,
        .dtype_count = measured->cast != NULL ? 1 : 0,
        .dtypes = &measured->cast,
        .memory_bytes_max = memory_bytes,
        .threads = shared->values->threads,
        .dtensors = measured->dtensors && measured->to != NULL,
        .as = measured->as,
        .dequantize = copies_whole(measured) ? measured->dtype : RESHARD_DTYPE_NONE,
        .like = is_format(measured->as, GGUF) ? shared->base : NULL,
    };
}

/* Makes the source of a case. A temporary whole model is removed. */
static int make_source(bench *shared, const convert_case *measured)
{
    bench_sample_model model;
    bench_sample_choose(shared->values->bytes, measured->dtype, measured->experts, &model);
    if (is_format(measured->as, GGUF)) {
        int code = bench_gguf_write(shared->work, shared->whole, &model, 0);
        return code == CLI_DONE ? bench_sample_write(shared->work, shared->source, &model) : code;
    }
    if (copies_whole(measured)) {
        int code = bench_gguf_write(shared->work, shared->source, &model, 1);
        return code == CLI_DONE ? bench_sample_write(shared->work, shared->whole, &model) : code;
    }
    if (measured->from == NULL && measured->from_format == NULL)
        return bench_sample_write(shared->work, shared->source, &model);
    const reshard_conversion_options planning = {.size = sizeof planning,
                                                 .to = measured->from,
                                                 .format = measured->from_format,
                                                 .dtensors = measured->dtensors,
                                                 .as = measured->from_as};
    const reshard_conversion_run_options running = {.size = sizeof running, .no_sync = 1};
    bench_child_report report;
    int code = bench_sample_write(shared->work, shared->whole, &model);
    int is_zero = is_format(measured->from_format, ZERO);
    if (code == CLI_DONE)
        code = is_zero ? bench_zero_write(shared->work, shared->whole, shared->source, ZERO_RANKS)
                       : bench_child_convert(shared->work, shared->whole, shared->source, &planning,
                                             &running, &report);
    return code == CLI_DONE ? bench_folder_remove(shared->whole) : code;
}

static int run_convert(bench *shared, const convert_case *measured, size_t memory_bytes,
                       bench_child_report *out_report, bench_folder_facts *out_facts)
{
    const reshard_conversion_options planning = describe(shared, measured, memory_bytes);
    const reshard_conversion_run_options running = {.size = sizeof running,
                                                    .no_sync = !shared->values->sync};
    int code = bench_child_convert(shared->work, shared->source, shared->target, &planning,
                                   &running, out_report);
    if (code == CLI_DONE)
        code = bench_folder_examine(shared->target, out_facts);
    if (code == CLI_DONE)
        code = bench_folder_remove(shared->target);
    step(shared);
    return code;
}

static int run_copy(bench *shared, const convert_case *measured, bench_child_report *out_report)
{
    const char *copied = copies_whole(measured) ? shared->whole : shared->source;
    int code = bench_child_copy(copied, shared->target, shared->values->no_reflink,
                                shared->values->sync, out_report);
    if (code == CLI_DONE)
        code = bench_folder_remove(shared->target);
    step(shared);
    return code;
}

typedef struct bench_turns {
    double seconds[RUNS_MAX], cpu_seconds[RUNS_MAX];
} bench_turns;

static int measure_turns(bench *shared, const convert_case *measured, bench_result *result)
{
    bench_turns turns[2]; /* those of cp, then those of the conversion */
    int32_t runs = shared->values->runs;
    for (int32_t i = 0; i < 2 * (runs + 1); i++) {
        bench_child_report report;
        int32_t run = i / 2 - 1;
        int is_conversion = i % 2 != (i / 2) % 2;
        int code = is_conversion ? run_convert(shared, measured, shared->values->memory_bytes,
                                               &report, &result->target)
                                 : run_copy(shared, measured, &report);
        if (code != CLI_DONE)
            return code;
        if (run < 0)
            continue;
        turns[is_conversion].seconds[run] = report.seconds;
        turns[is_conversion].cpu_seconds[run] = report.cpu_seconds;
        if (is_conversion && report.peak_bytes > result->peak_bytes)
            result->peak_bytes = report.peak_bytes;
    }
    result->copy_seconds = bench_median(turns[0].seconds, runs);
    result->copy_cpu_seconds = bench_median(turns[0].cpu_seconds, runs);
    result->seconds = bench_median(turns[1].seconds, runs);
    result->cpu_seconds = bench_median(turns[1].cpu_seconds, runs);
    return CLI_DONE;
}

static int measure_case(bench *shared, int index)
{
    const convert_case *measured = &cases[index];
    bench_result *result = &shared->results[index];
    int code = make_source(shared, measured);
    if (code == CLI_DONE)
        code = bench_folder_sync(shared->source);
    if (code == CLI_DONE)
        code = bench_folder_examine(shared->source, &result->source);
    if (code == CLI_DONE)
        code = measure_turns(shared, measured, result);
    for (int i = 0; i < LIMIT_COUNT && code == CLI_DONE; i++) {
        bench_child_report report = {0};
        code = run_convert(shared, measured, limits[i], &report, &result->target);
        result->peaks[i] = report.peak_bytes;
    }
    result->is_measured = code == CLI_DONE;
    if (code == CLI_DONE)
        code = bench_folder_remove(shared->whole);
    return code == CLI_DONE ? bench_folder_remove(shared->source) : code;
}

/* Measures reading headers and planning, by a dry run, which writes only a short probe to the
 * disk. */
static int measure_crowd(bench *shared)
{
    double seconds[RUNS_MAX];
    const reshard_conversion_options planning = {
        .size = sizeof planning, .to = "fsdp=8", .rules = "fsdp"};
    int code = bench_sample_write_crowd(shared->work, shared->source, shared->values->tensors,
                                        CROWD_FILES);
    for (int32_t i = 0; i < shared->values->runs && code == CLI_DONE; i++) {
        bench_child_report report = {0};
        code = bench_child_convert(shared->work, shared->source, shared->target, &planning, NULL,
                                   &report);
        seconds[i] = report.seconds;
        if (report.peak_bytes > shared->crowd_peak_bytes)
            shared->crowd_peak_bytes = report.peak_bytes;
        step(shared);
    }
    if (code == CLI_DONE)
        shared->crowd_seconds = bench_median(seconds, shared->values->runs);
    return code == CLI_DONE ? bench_folder_remove(shared->source) : code;
}

static int wants(const bench_values *values, int number)
{
    return values->chosen == CASE_ALL || values->chosen == number;
}

static int measure(bench *shared)
{
    const bench_values *values = shared->values;
    int code = CLI_DONE;
    for (int i = 0; i < CASE_COUNT; i++) {
        if (wants(values, i + 1))
            shared->steps_total += 2 * ((uint64_t)values->runs + 1) + LIMIT_COUNT;
    }
    if (wants(values, CASE_CROWD))
        shared->steps_total += (uint64_t)values->runs;
    for (int i = 0; i < CASE_COUNT && code == CLI_DONE; i++) {
        if (wants(values, i + 1))
            code = measure_case(shared, i);
    }
    if (code == CLI_DONE && wants(values, CASE_CROWD))
        code = measure_crowd(shared);
    return code;
}

/* ---- printing -------------------------------------------------------------------------------- */

/* The memory that a conversion may take under a limit. */
static uint64_t allowed_bytes(const bench_result *result, size_t limit)
{
    uint64_t header = result->source.header_bytes_max > result->target.header_bytes_max
                          ? result->source.header_bytes_max
                          : result->target.header_bytes_max;
    return limit + BASE_BYTES + HEADER_TIMES * header;
}

static void print_json_case(cli_json *json, const convert_case *measured,
                            const bench_result *result)
{
    cli_json_begin_object(json, NULL);
    cli_json_text(json, "case", measured->name);
    cli_json_text(json, "conversion", measured->title);
    cli_json_unsigned(json, "bytes_source", result->source.bytes);
    cli_json_unsigned(json, "bytes_target", result->target.bytes);
    cli_json_seconds(json, "seconds", result->seconds);
    cli_json_seconds(json, "cp_seconds", result->copy_seconds);
    cli_json_seconds(json, "cpu_seconds", result->cpu_seconds);
    cli_json_seconds(json, "cp_cpu_seconds", result->copy_cpu_seconds);
    cli_json_seconds(json, "ratio", result->copy_seconds / result->seconds);
    cli_json_seconds(json, "aimed_at", measured->aimed);
    cli_json_unsigned(json, "peak_bytes", result->peak_bytes);
    cli_json_begin_list(json, "memory");
    for (int i = 0; i < LIMIT_COUNT; i++) {
        cli_json_begin_object(json, NULL);
        cli_json_unsigned(json, "limit_bytes", limits[i]);
        cli_json_unsigned(json, "peak_bytes", result->peaks[i]);
        cli_json_unsigned(json, "allowed_bytes", allowed_bytes(result, limits[i]));
        cli_json_end_object(json);
    }
    cli_json_end_list(json);
    cli_json_end_object(json);
}

static void print_json(const bench *shared)
{
    cli_json json = {.stream = stdout};
    cli_json_begin_object(&json, NULL);
    cli_json_integer(&json, "runs", shared->values->runs);
    cli_json_bool(&json, "synced", shared->values->sync);
    cli_json_begin_list(&json, "cases");
    for (int i = 0; i < CASE_COUNT; i++) {
        if (shared->results[i].is_measured)
            print_json_case(&json, &cases[i], &shared->results[i]);
    }
    cli_json_end_list(&json);
    if (wants(shared->values, CASE_CROWD)) {
        cli_json_begin_object(&json, "tensors");
        cli_json_integer(&json, "count", shared->values->tensors);
        cli_json_integer(&json, "files", CROWD_FILES);
        cli_json_seconds(&json, "seconds", shared->crowd_seconds);
        cli_json_unsigned(&json, "peak_bytes", shared->crowd_peak_bytes);
        cli_json_end_object(&json);
    }
    cli_json_end_object(&json);
    putchar('\n');
}

static void print_cases(const bench *shared)
{
    static const char *const titles[] = {"conversion", "source GB",  "time s",
                                         "GB/s",       "cp -r GB/s", "ratio",
                                         "aimed at",   "CPU s",      "cp CPU s"};
    static const int title_count = sizeof titles / sizeof titles[0];
    cli_table *table = cli_table_create(title_count);
    cli_table_align(table, 0, CLI_LEFT);
    for (int i = 0; i < title_count; i++)
        cli_table_add(table, CLI_BOLD, "%s", titles[i]);
    for (int i = 0; i < CASE_COUNT; i++) {
        const bench_result *result = &shared->results[i];
        double gigabytes = (double)result->source.bytes / 1e9;
        if (!result->is_measured)
            continue;
        cli_table_add(table, CLI_PLAIN, "%s", cases[i].title);
        cli_table_add(table, CLI_PLAIN, "%.2f", gigabytes);
        cli_table_add(table, CLI_PLAIN, "%.3f", result->seconds);
        cli_table_add(table, CLI_PLAIN, "%.2f", gigabytes / result->seconds);
        cli_table_add(table, CLI_PLAIN, "%.2f", gigabytes / result->copy_seconds);
        cli_table_add(table, CLI_BOLD, "%.2f", result->copy_seconds / result->seconds);
        cli_table_add(table, CLI_DIM, "%.1f", cases[i].aimed);
        cli_table_add(table, CLI_DIM, "%.2f", result->cpu_seconds);
        cli_table_add(table, CLI_DIM, "%.2f", result->copy_cpu_seconds);
    }
    cli_table_print(table);
    cli_table_destroy(table);
}

static void print_memory(const bench *shared)
{
    cli_table *table = cli_table_create(1 + 2 * LIMIT_COUNT);
    cli_table_align(table, 0, CLI_LEFT);
    cli_table_add(table, CLI_BOLD, "peak memory, MiB");
    for (int i = 0; i < LIMIT_COUNT; i++) {
        cli_table_add(table, CLI_BOLD, "at %zuM", limits[i] >> 20);
        cli_table_add(table, CLI_BOLD, "allowed");
    }
    for (int i = 0; i < CASE_COUNT; i++) {
        const bench_result *result = &shared->results[i];
        if (!result->is_measured)
            continue;
        cli_table_add(table, CLI_PLAIN, "%s", cases[i].title);
        for (int j = 0; j < LIMIT_COUNT; j++) {
            double allowed = (double)allowed_bytes(result, limits[j]) / (1 << 20);
            cli_table_add(table, CLI_PLAIN, "%.1f", (double)result->peaks[j] / (1 << 20));
            cli_table_add(table, CLI_DIM, "%.1f", allowed);
        }
    }
    cli_table_print(table);
    cli_table_destroy(table);
}

static void print_text(const bench *shared)
{
    const bench_values *values = shared->values;
    if (values->chosen != CASE_CROWD) {
        printf("A Llama-shaped model, compared with cp -r of its files; medians of %" PRId32
               " runs, page cache warm, %s.\n\n",
               values->runs, values->sync ? "synced to disk" : "not synced");
        print_cases(shared);
        putchar('\n');
        print_memory(shared);
    }
    if (values->chosen == CASE_ALL)
        putchar('\n');
    if (wants(values, CASE_CROWD))
        printf("%" PRId32
               " tensors of 1 KiB in %d files: headers and plan in %.2f s (aimed at: 3), "
               "%.0f MiB\n",
               values->tensors, CROWD_FILES, shared->crowd_seconds,
               (double)shared->crowd_peak_bytes / (1 << 20));
}

/* ---- the command ----------------------------------------------------------------------------- */

static int run_in_folder(const bench_values *values, cli_work *work, char *folder)
{
    bench shared = {
        .values = values,
        .work = work,
        .whole = bench_path_add(folder, "/whole"),
        .base = bench_path_add(folder, "/whole/model.gguf"),
        .source = bench_path_add(folder, "/source"),
        .target = bench_path_add(folder, "/target"),
    };
    int code = measure(&shared);
    cli_work_settle(work);
    int removed = bench_folder_remove(folder);
    code = code == CLI_DONE ? removed : code;
    if (code == CLI_DONE && values->json)
        print_json(&shared);
    else if (code == CLI_DONE)
        print_text(&shared);
    free(shared.whole);
    free(shared.base);
    free(shared.source);
    free(shared.target);
    return code;
}

static int run(const cli_command *command, int argc, char **argv)
{
    bench_values values = {.bytes = BYTES_DEFAULT,
                           .memory_bytes = limits[LIMIT_COUNT - 1],
                           .runs = RUNS_DEFAULT,
                           .tensors = CROWD_TENSORS_DEFAULT,
                           .folder = "."};
    cli_work work = {0};
    char *folder = NULL;
    int code = cli_options_parse(command, argc, argv, &values, NULL);
    if (code == CLI_DONE && (values.runs < 1 || values.runs > RUNS_MAX))
        code = cli_fail(CLI_USAGE, "bench convert: --runs goes from 1 to %d", RUNS_MAX);
    if (code == CLI_DONE && (values.tensors < CROWD_FILES || values.tensors > CROWD_TENSORS_MAX))
        code = cli_fail(CLI_USAGE, "bench convert: --tensors goes from %d to %d", CROWD_FILES,
                        CROWD_TENSORS_MAX);
    if (code == CLI_DONE && values.bytes > BYTES_MAX)
        code = cli_fail(CLI_USAGE, "bench convert: --bytes goes up to 1T");
    if (code == CLI_DONE)
        code = cli_work_begin(&work);
    if (code == CLI_DONE)
        code = bench_folder_make_private(values.folder, &folder);
    if (code == CLI_DONE)
        code = run_in_folder(&values, &work, folder);
    free(folder);
    cli_work_end(&work);
    return code;
}

const cli_command bench_command_convert = {
    .name = "bench convert",
    .summary = "conversions compared with cp",
    .synopsis = "[--bytes SIZE] [--case NAME] [--folder DIR] [OPTIONS]",
    .description =
        "Makes a Llama-shaped checkpoint and compares conversions of it with cp -r of the same\n"
        "files, in turns on the same disk, with a warm page cache. Then measures their memory\n"
        "under limits of 16, 64 and 512 MiB, and how long headers and planning take for 100,000\n"
        "tensors of 1 KiB in 64 files. A ratio of 1 is the speed of cp. Needs room for three\n"
        "times SIZE in DIR, and removes everything it made.\n",
    CLI_OPTIONS(options),
    .examples = "  reshard bench convert\n"
                "  reshard bench convert --bytes 300M --runs 3 --case hf-tp --json\n"
                "  reshard bench convert --folder /mnt/disk --sync\n",
    .run = run,
};
