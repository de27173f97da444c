/* SPDX-License-Identifier: Apache-2.0 */
/*
 * predict_conversions.c - conversions beside what the disk's speeds and the conversion's own bytes
 * say. All conversions run before the disk is measured, because that starts threads, after which no
 * process should be forked.
 */
#include "bench/common/child.h"
#include "bench/common/folders.h"
#include "bench/common/median.h"
#include "bench/common/sample_model.h"
#include "bench/predict.h"
#include "cli/common/failure.h"
#include "cli/common/memory.h"
#include "cli/common/sizes.h"

#include <stdio.h>
#include <stdlib.h>

static const struct conversion_case {
    const char *what;
    reshard_dtype dtype;
    const char *from, *to, *cast; /* NULL: whole tensors; no cast */
} cases[BENCH_CONVERSIONS] = {
    {"shards joined", RESHARD_BF16, "fsdp=8", NULL, NULL},
    {"cut", RESHARD_BF16, NULL, "tp=4", NULL},
    {"cut and cast", RESHARD_F32, "fsdp=8", "tp=4", "bf16"},
};

/* A case whose source is on disk. */
typedef struct one {
    cli_work *work;
    char *whole, *source, *target;
    reshard_conversion_options planning;
    reshard_checkpoint *checkpoint;
    reshard_conversion *conversion;
} one;

static const reshard_conversion_run_options unsynced = {.size = sizeof unsynced, .no_sync = 1};

static int make_source(one *o, const struct conversion_case *c, size_t bytes)
{
    bench_sample_model model;
    bench_child_report report;
    const reshard_conversion_options splitting = {.size = sizeof splitting, .to = c->from};
    bench_sample_choose(bytes, c->dtype, &model);
    int code = bench_sample_write(o->work, c->from == NULL ? o->source : o->whole, &model);
    if (code == CLI_DONE && c->from != NULL)
        code = bench_child_convert(o->work, o->whole, o->source, &splitting, &unsynced, &report);
    if (code == CLI_DONE && c->from != NULL)
        code = bench_folder_remove(o->whole);
    return code == CLI_DONE ? bench_folder_sync(o->source) : code;
}

static int measure(one *o, int32_t runs, double *out_seconds)
{
    double *seconds = cli_allocate((size_t)runs + 1, sizeof *seconds);
    int code = CLI_DONE;
    for (int32_t i = 0; i <= runs && code == CLI_DONE; i++) { /* the first warms up */
        bench_child_report report;
        code = bench_child_convert(o->work, o->source, o->target, &o->planning, &unsynced, &report);
        if (code == CLI_DONE)
            code = bench_folder_remove(o->target);
        seconds[i] = report.seconds;
    }
    if (code == CLI_DONE)
        *out_seconds = bench_median(seconds + 1, runs);
    free(seconds);
    return code;
}

/* Plans without running: what is planned stays, to be predicted when the speeds are known. */
static int plan(one *o)
{
    reshard_status status =
        reshard_checkpoint_open(o->work->context, o->source, NULL, &o->checkpoint);
    if (status == RESHARD_OK)
        status = reshard_conversion_create(o->work->context, o->checkpoint, &o->planning,
                                           &o->conversion);
    return status == RESHARD_OK ? CLI_DONE : cli_fail_status(status);
}

static int run_case(one *o, int index, size_t bytes, int32_t runs, bench_prediction *row)
{
    const struct conversion_case *c = &cases[index];
    char size[CLI_SIZE_TEXT];
    o->planning = (reshard_conversion_options){.size = sizeof o->planning,
                                               .to = c->to,
                                               .dtype_count = c->cast != NULL ? 1 : 0,
                                               .dtypes = &c->cast};
    int code = make_source(o, c, bytes);
    if (code == CLI_DONE)
        code = measure(o, runs, &row->measured);
    if (code == CLI_DONE)
        code = plan(o);
    if (code != CLI_DONE)
        return code;
    snprintf(row->what, sizeof row->what, "%s on disk, %s",
             cli_size_text(reshard_checkpoint_bytes(o->checkpoint), size), c->what);
    snprintf(row->from, sizeof row->from, "%s%s", c->from != NULL ? c->from : "whole",
             c->dtype == RESHARD_F32 ? " f32" : "");
    snprintf(row->to, sizeof row->to, "%s%s%s", c->to != NULL ? c->to : "whole",
             c->cast != NULL ? " " : "", c->cast != NULL ? c->cast : "");
    return CLI_DONE;
}

static int read_speeds(cli_work *work, const char *inside, size_t bytes, int32_t threads,
                       const char *given, reshard_cluster *out_cluster)
{
    bench_disk disk;
    if (given != NULL) {
        reshard_status status = reshard_cluster_parse(given, out_cluster);
        return status == RESHARD_OK ? CLI_DONE : cli_fail_status(status);
    }
    int code = bench_disk_measure(work, inside, bytes, threads, 0, &disk);
    out_cluster->read = disk.read;
    out_cluster->write = disk.write;
    out_cluster->copy = disk.copy;
    return code;
}

/* As many threads as the conversions have used. */
static int32_t find_threads(const one *o)
{
    reshard_conversion_stats stats = {.size = sizeof stats};
    (void)reshard_conversion_get_stats(o->conversion, &stats);
    return stats.threads > 0 ? stats.threads : 1;
}

static int predict_all(const one *all, const char *inside, size_t bytes, const char *given,
                       bench_prediction *rows)
{
    reshard_cluster cluster = {.size = sizeof cluster};
    int code = read_speeds(all->work, inside, bytes, find_threads(&all[0]), given, &cluster);
    for (int i = 0; i < BENCH_CONVERSIONS && code == CLI_DONE; i++) {
        reshard_status status =
            reshard_conversion_predict(all[i].conversion, &cluster, &rows[i].predicted);
        if (status != RESHARD_OK)
            code = cli_fail_status(status);
    }
    return code;
}

static void release(one *o)
{
    reshard_conversion_destroy(o->conversion);
    reshard_checkpoint_destroy(o->checkpoint);
    free(o->whole);
    free(o->source);
    free(o->target);
}

int bench_predict_conversions(cli_work *work, const char *inside, size_t bytes, int32_t runs,
                              const char *given, bench_prediction out_rows[BENCH_CONVERSIONS])
{
    one all[BENCH_CONVERSIONS];
    char *folder = NULL;
    int code = bench_folder_make_private(inside, &folder);
    if (code != CLI_DONE)
        return code;
    for (int i = 0; i < BENCH_CONVERSIONS; i++) {
        char name[32];
        snprintf(name, sizeof name, "/source-%d", i);
        all[i] = (one){.work = work,
                       .whole = bench_path_add(folder, "/whole"),
                       .source = bench_path_add(folder, name),
                       .target = bench_path_add(folder, "/target")};
    }
    for (int i = 0; i < BENCH_CONVERSIONS && code == CLI_DONE; i++) {
        code = run_case(&all[i], i, bytes, runs, &out_rows[i]);
        cli_work_report(work, "converting", (uint64_t)i + 1, BENCH_CONVERSIONS);
    }
    if (code == CLI_DONE)
        code = predict_all(all, folder, bytes, given, out_rows);
    for (int i = 0; i < BENCH_CONVERSIONS; i++)
        release(&all[i]);
    int removed = bench_folder_remove(folder);
    free(folder);
    return code != CLI_DONE ? code : removed;
}
