/* SPDX-License-Identifier: Apache-2.0 */
/*
 * calibrate.c - `reshard bench calibrate`: measures this machine and prints it as the text that
 * `reshard plan --cluster` takes.
 */
#include "bench/commands.h"
#include "bench/common/machine.h"
#include "cli/common/failure.h"
#include "cli/common/json.h"
#include "cli/common/memory.h"
#include "cli/common/ranks.h"
#include "cli/common/table.h"
#include "cli/common/work.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { RANKS_MAX = 256, SIDE_DEFAULT = 8192, SIDE_MAX = 32768 };
#define DISK_BYTES_DEFAULT ((size_t)500000000)

typedef struct calibrate_values {
    int32_t ranks, side;
    size_t bytes;
    const char *folder;
    int plain, messages, sync, json, text;
} calibrate_values;

static const cli_option options[] = {
    {"ranks", CLI_RANK, offsetof(calibrate_values, ranks), "N", 0,
     "threads (one per processor, up to 8)"},
    {"side", CLI_RANK, offsetof(calibrate_values, side), "N", 0, "moves are of NxN f32 (8192)"},
    {"folder", CLI_TEXT, offsetof(calibrate_values, folder), "DIR", 0,
     "also read, write and copy files here"},
    {"bytes", CLI_SIZE, offsetof(calibrate_values, bytes), "SIZE", 0,
     "size of these files (500MB)"},
    {"sync", CLI_FLAG, offsetof(calibrate_values, sync), NULL, 0,
     "time writes until they are on the disk"},
    {"plain", CLI_FLAG, offsetof(calibrate_values, plain), NULL, 0,
     "ordinary memory, which other processes do not see"},
    {"messages", CLI_FLAG, offsetof(calibrate_values, messages), NULL, 0,
     "messages only, as between ranks on different nodes"},
    {"text", CLI_FLAG, offsetof(calibrate_values, text), NULL, 0,
     "print only the text for --cluster"},
    {"json", CLI_FLAG, offsetof(calibrate_values, json), NULL, 0, "one JSON object on one line"},
};

typedef struct calibration {
    const calibrate_values *values;
    bench_machine machine;
    bench_disk disk;
    int has_disk;
    int32_t memcpy_count; /* memcpy was measured on 1 .. memcpy_count threads; 0 under mpirun */
    double *memcpy_rates;
    char cluster[BENCH_CLUSTER_TEXT];
} calibration;

static int32_t default_ranks(void)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    return processors < 1 ? 1 : processors > 8 ? 8 : (int32_t)processors;
}

static int measure(cli_work *work, calibration *c)
{
    const calibrate_values *values = c->values;
    bench_timing timings[BENCH_MACHINE_TIMINGS_MAX];
    size_t bytes = (size_t)values->side * (size_t)values->side * sizeof(float);
    int code = CLI_DONE;
    int count = bench_machine_plan(&c->machine, values->side, timings);
    for (int32_t i = 0; i < c->memcpy_count && code == CLI_DONE; i++)
        code = bench_machine_memcpy(bytes, i + 1, &c->memcpy_rates[i]);
    if (code == CLI_DONE)
        code = bench_timings_run(work, timings, count);
    if (code == CLI_DONE && cli_ranks_are_first())
        bench_machine_read(&c->machine, timings);
    bench_timings_release(timings, count);
    if (code == CLI_DONE && values->folder != NULL && cli_ranks_are_first()) {
        code = bench_disk_measure(work, values->folder, values->bytes, default_ranks(),
                                  values->sync, &c->disk);
        c->has_disk = 1;
    }
    return code;
}

static void print_json(const calibration *c)
{
    cli_json json = {.stream = stdout};
    cli_json_begin_object(&json, NULL);
    cli_json_integer(&json, "ranks", c->machine.ranks);
    cli_json_text(&json, "kind", cli_ranks_kind());
    cli_json_begin_list(&json, "memcpy_bytes_per_s");
    for (int32_t i = 0; i < c->memcpy_count; i++)
        cli_json_seconds(&json, NULL, c->memcpy_rates[i]);
    cli_json_end_list(&json);
    cli_json_seconds(&json, "memory_bytes_per_s", c->machine.memory);
    if (c->machine.scattered > 0)
        cli_json_seconds(&json, "scattered_bytes_per_s", c->machine.scattered);
    cli_json_seconds(&json, "link_bytes_per_s", c->machine.link);
    cli_json_seconds(&json, "latency_seconds", c->machine.latency);
    if (c->has_disk) {
        cli_json_seconds(&json, "read_bytes_per_s", c->disk.read);
        cli_json_seconds(&json, "write_bytes_per_s", c->disk.write);
        cli_json_seconds(&json, "copy_bytes_per_s", c->disk.copy);
        cli_json_seconds(&json, "cast_bytes_per_s", c->disk.cast);
    }
    cli_json_text(&json, "cluster", c->cluster);
    cli_json_end_object(&json);
    putchar('\n');
}

static void add_rate(cli_table *table, const char *what, double rate, const char *meaning)
{
    cli_table_add(table, CLI_PLAIN, "%s", what);
    cli_table_add(table, CLI_PLAIN, "%.2f GB/s", rate / 1e9);
    cli_table_add(table, CLI_DIM, "%s", meaning);
}

static void print_text(const calibration *c)
{
    const bench_machine *m = &c->machine;
    char what[64];
    printf("%" PRId32 " ranks (%s%s%s), moves of %" PRId32 "x%" PRId32 " f32\n\n", m->ranks,
           cli_ranks_kind(), m->plain ? ", plain memory" : "", m->messages ? ", messages only" : "",
           c->values->side, c->values->side);
    cli_table *table = cli_table_create(3);
    cli_table_align(table, 0, CLI_LEFT);
    cli_table_align(table, 2, CLI_LEFT);
    for (int32_t i = 0; i < c->memcpy_count; i++) {
        snprintf(what, sizeof what, "memcpy on %" PRId32 " thread%s", i + 1, i == 0 ? "" : "s");
        add_rate(table, what, c->memcpy_rates[i], "");
    }
    add_rate(table, "kept", m->memory, "by all ranks together, within their own memory");
    if (m->scattered > 0)
        add_rate(table, "scattered", m->scattered, "by all ranks together, in runs of 128 bytes");
    add_rate(table, "sent", m->link, "by each rank, while all ranks send to the next one");
    cli_table_add(table, CLI_PLAIN, "a message");
    cli_table_add(table, CLI_PLAIN, "%.2f us", m->latency * 1e6);
    cli_table_add(table, CLI_DIM, "per peer, when all ranks send to all");
    if (c->has_disk) {
        snprintf(what, sizeof what, "%" PRId32 " threads, %s", c->disk.threads,
                 c->values->sync ? "synced" : "page cache warm");
        add_rate(table, "written", c->disk.write, what);
        add_rate(table, "read", c->disk.read, "and digested, under the same conditions");
        add_rate(table, "copied", c->disk.copy,
                 "from file to file, shared by the kernel if it can");
        add_rate(table, "cast", c->disk.cast, "of f32 to bf16, beyond reading and writing");
    }
    cli_table_print(table);
    cli_table_destroy(table);
    printf("\n--cluster %s\n", c->cluster);
}

static void report(calibration *c)
{
    bench_machine_cluster(&c->machine, c->has_disk ? &c->disk : NULL, c->cluster);
    if (c->values->json)
        print_json(c);
    else if (c->values->text)
        puts(c->cluster);
    else
        print_text(c);
}

static int check(const calibrate_values *values)
{
    if (values->ranks < 1 || values->ranks > RANKS_MAX)
        return cli_fail(CLI_USAGE, "bench calibrate: --ranks goes from 1 to %d", RANKS_MAX);
    if (values->side < values->ranks || values->side > SIDE_MAX)
        return cli_fail(CLI_USAGE, "bench calibrate: --side goes from the number of ranks to %d",
                        SIDE_MAX);
    return CLI_DONE;
}

static int run(const cli_command *command, int argc, char **argv)
{
    calibrate_values values = {
        .ranks = default_ranks(), .side = SIDE_DEFAULT, .bytes = DISK_BYTES_DEFAULT};
    cli_work work = {0};
    int code = cli_options_parse(command, argc, argv, &values, NULL);
    values.ranks = cli_ranks_count(values.ranks);
    if (code == CLI_DONE)
        code = check(&values);
    if (code == CLI_DONE)
        code = cli_work_begin(&work);
    if (code != CLI_DONE)
        return code;
    calibration c = {
        .values = &values,
        .machine = {.ranks = values.ranks, .plain = values.plain, .messages = values.messages},
        .memcpy_count = cli_ranks_are_threads() ? values.ranks : 0};
    c.memcpy_rates = cli_allocate((size_t)values.ranks, sizeof *c.memcpy_rates);
    code = measure(&work, &c);
    cli_work_settle(&work);
    if (code == CLI_DONE && cli_ranks_are_first())
        report(&c);
    free(c.memcpy_rates);
    cli_work_end(&work);
    return code;
}

const cli_command bench_command_calibrate = {
    .name = "bench calibrate",
    .summary = "measures this machine, for plan --cluster",
    .synopsis = "[--ranks N] [--folder DIR] [OPTIONS]",
    .description =
        "Measures what predictions need: how fast ranks copy what they keep, how fast in short\n"
        "runs, how fast they send to each other, and what a message costs; for comparison memcpy\n"
        "on 1 to N threads, and with --folder how fast files are read, written and copied there.\n"
        "Ranks are threads of this process, or under mpirun its processes. The last line is what\n"
        "reshard plan --cluster takes.\n",
    .shares_work = 1,
    CLI_OPTIONS(options),
    .examples = "  reshard bench calibrate --folder .\n"
                "  mpirun -n 4 reshard bench calibrate --plain\n"
                "  reshard plan .. --cluster \"$(reshard bench calibrate --text)\"\n",
    .run = run,
};
