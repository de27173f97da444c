/* SPDX-License-Identifier: Apache-2.0 */
/*
 * predict_conversions.c - compares conversions with their prediction from the disk's speeds and the
 * conversion's own bytes. Conversions and measurements of the disk take turns, because the speed of
 * a disk or page cache depends on what else is going on. Each runs in a process of its own.
 */
#include "bench/common/child.h"
#include "bench/common/folders.h"
#include "bench/common/sample_model.h"
#include "bench/common/timing.h"
#include "bench/predict.h"
#include "cli/common/failure.h"
#include "cli/common/input.h"
#include "cli/common/memory.h"
#include "cli/common/sizes.h"

#include <stdio.h>
#include <stdlib.h>

static const struct conversion_case {
    const char *what;
    reshard_dtype dtype;
    const char *from, *to, *cast; /* from, to NULL: whole tensors. cast NULL: none */
} cases[BENCH_CONVERSIONS] = {
    {"shards joined", RESHARD_BF16, "fsdp=8", NULL, NULL},
    {"cut", RESHARD_BF16, NULL, "tp=4", NULL},
    {"cut and cast", RESHARD_F32, "fsdp=8", "tp=4", "bf16"},
};

/* One case, whose source is on disk. */
typedef struct one {
    cli_work *work;
    char *whole, *source, *target;
    reshard_conversion_options planning;
    reshard_checkpoint *checkpoint;
    reshard_conversion *conversion;
    double *seconds; /* of each run so far, including the first one, which warms up */
    int32_t run_count;
} one;

static const reshard_conversion_run_options unsynced = {.size = sizeof unsynced, .no_sync = 1};

static int make_source(one *o, const struct conversion_case *c, size_t bytes)
{
    bench_sample_model model;
    bench_child_report report;
    const reshard_conversion_options splitting = {.size = sizeof splitting, .to = c->from};
    bench_sample_choose(bytes, c->dtype, 0, &model);
    int code = bench_sample_write(o->work, c->from == NULL ? o->source : o->whole, &model);
    if (code == CLI_DONE && c->from != NULL)
        code = bench_child_convert(o->work, o->whole, o->source, &splitting, &unsynced, &report);
    if (code == CLI_DONE && c->from != NULL)
        code = bench_folder_remove(o->whole);
    return code == CLI_DONE ? bench_folder_sync(o->source) : code;
}

static int convert_once(one *o)
{
    bench_child_report report;
    int code = bench_child_convert(o->work, o->source, o->target, &o->planning, &unsynced, &report);
    if (code == CLI_DONE)
        code = bench_folder_remove(o->target);
    if (code == CLI_DONE)
        o->seconds[o->run_count++] = report.seconds;
    return code;
}

/* Only plans: the conversion is kept, to be predicted once the speeds are known. */
static int plan(one *o)
{
    reshard_status status =
        reshard_checkpoint_open(o->work->context, o->source, NULL, &o->checkpoint);
    if (status == RESHARD_OK)
        status = reshard_conversion_create(o->work->context, o->checkpoint, &o->planning,
                                           &o->conversion);
    return status == RESHARD_OK ? CLI_DONE : cli_fail_status(status);
}

static int prepare(one *o, int index, size_t bytes, bench_prediction *row)
{
    const struct conversion_case *c = &cases[index];
    char size[CLI_SIZE_TEXT];
    o->planning = (reshard_conversion_options){.size = sizeof o->planning,
                                               .to = c->to,
                                               .dtype_count = c->cast != NULL ? 1 : 0,
                                               .dtypes = &c->cast};
    int code = make_source(o, c, bytes);
    if (code == CLI_DONE)
        code = plan(o);
    if (code != CLI_DONE)
        return code;
    snprintf(row->what, sizeof row->what, "%s on disk, %s",
             cli_size_text(cli_checkpoint_info(o->checkpoint).bytes, size), c->what);
    snprintf(row->from, sizeof row->from, "%s%s", c->from != NULL ? c->from : "whole",
             c->dtype == RESHARD_F32 ? " f32" : "");
    snprintf(row->to, sizeof row->to, "%s%s%s", c->to != NULL ? c->to : "whole",
             c->cast != NULL ? " " : "", c->cast != NULL ? c->cast : "");
    return CLI_DONE;
}

/* disk may be NULL. */
static int take_turns(one *all, bench_disk_turns *disk, int32_t runs)
{
    int code = CLI_DONE;
    for (int32_t turn = 0; turn <= runs && code == CLI_DONE; turn++) {
        for (int i = 0; i < BENCH_CONVERSIONS && code == CLI_DONE; i++)
            code = convert_once(&all[i]);
        if (code == CLI_DONE && disk != NULL && turn > 0)
            code = bench_disk_turn(disk, 1);
        cli_work_report(all->work, "converting", (uint64_t)turn + 1, (uint64_t)runs + 1);
    }
    return code;
}

/* The number of threads that the conversions use. */
static int32_t find_threads(const one *o)
{
    reshard_conversion_stats stats = {.size = sizeof stats};
    (void)reshard_conversion_get_stats(o->conversion, &stats);
    return stats.threads > 0 ? stats.threads : 1;
}

static int measure(one *all, const char *inside, size_t bytes, int32_t runs,
                   reshard_cluster *out_cluster)
{
    bench_disk_turns *turns = NULL;
    int code = bench_disk_begin(all->work, inside, bytes, find_threads(&all[0]), 0, &turns);
    if (code == CLI_DONE)
        code = take_turns(all, turns, runs);
    if (code == CLI_DONE) {
        bench_disk disk = bench_disk_read(turns);
        out_cluster->read = disk.read;
        out_cluster->write = disk.write;
        out_cluster->copy = disk.copy;
        out_cluster->cast = disk.cast;
    }
    int removed = bench_disk_end(turns);
    return code != CLI_DONE ? code : removed;
}

static int measure_with(one *all, const char *given, int32_t runs, reshard_cluster *out_cluster)
{
    reshard_status status = reshard_cluster_parse(given, out_cluster);
    return status == RESHARD_OK ? take_turns(all, NULL, runs) : cli_fail_status(status);
}

static int predict_all(one *all, const reshard_cluster *cluster, bench_prediction *rows)
{
    for (int i = 0; i < BENCH_CONVERSIONS; i++) {
        reshard_status status =
            reshard_conversion_predict(all[i].conversion, cluster, &rows[i].predicted);
        if (status != RESHARD_OK)
            return cli_fail_status(status);
        rows[i].measured = bench_median(all[i].seconds + 1, all[i].run_count - 1);
    }
    return CLI_DONE;
}

static void release(one *o)
{
    reshard_conversion_destroy(o->conversion);
    reshard_checkpoint_destroy(o->checkpoint);
    free(o->whole);
    free(o->source);
    free(o->target);
    free(o->seconds);
}

int bench_predict_conversions(cli_work *work, const char *inside, size_t bytes, int32_t runs,
                              const char *given, bench_prediction out_rows[BENCH_CONVERSIONS])
{
    one all[BENCH_CONVERSIONS];
    reshard_cluster cluster = {.size = sizeof cluster};
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
                       .target = bench_path_add(folder, "/target"),
                       .seconds = cli_allocate((size_t)runs + 1, sizeof *all[i].seconds)};
    }
    for (int i = 0; i < BENCH_CONVERSIONS && code == CLI_DONE; i++)
        code = prepare(&all[i], i, bytes, &out_rows[i]);
    if (code == CLI_DONE)
        code = given != NULL ? measure_with(all, given, runs, &cluster)
                             : measure(all, folder, bytes, runs, &cluster);
    if (code == CLI_DONE)
        code = predict_all(all, &cluster, out_rows);
    for (int i = 0; i < BENCH_CONVERSIONS; i++)
        release(&all[i]);
    int removed = bench_folder_remove(folder);
    free(folder);
    return code != CLI_DONE ? code : removed;
}
