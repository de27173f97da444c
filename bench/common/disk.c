/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disk.c - a model of the given size is digested, its file is copied by the kernel, and a new file
 * is written, in turns; each thread has its own part of the files and goes through it in blocks of
 * 4 MiB, as conversions do. Medians of the turns.
 */
#define _GNU_SOURCE /* copy_file_range */
#include "bench/common/disk.h"

#include "bench/common/folders.h"
#include "bench/common/median.h"
#include "bench/common/sample_model.h"
#include "cli/common/failure.h"
#include "cli/common/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCK ((size_t)4 << 20)
enum { TURNS = 5 };

typedef enum job { WRITE, COPY } job;

typedef struct turn {
    job job;
    int from, to; /* open files */
    size_t bytes; /* of the file */
    int *errors;  /* errno of each thread */
} turn;

/* Returns how many bytes were done, or -1 with errno. */
static ssize_t do_block(const turn *t, char *memory, size_t at, size_t count)
{
    loff_t from = (loff_t)at, to = (loff_t)at;
    if (t->job == WRITE)
        return pwrite(t->to, memory, count, to);
    ssize_t done = copy_file_range(t->from, &from, t->to, &to, count, 0);
    if (done >= 0 || (errno != EXDEV && errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL))
        return done;
    done = pread(t->from, memory, count, (off_t)at); /* where the kernel cannot */
    return done > 0 ? pwrite(t->to, memory, (size_t)done, (off_t)at) : done;
}

/* Returns 0 or an errno. */
static int do_part(const turn *t, int32_t rank, int32_t size)
{
    size_t at = t->bytes / (size_t)size * (size_t)rank;
    size_t end = rank == size - 1 ? t->bytes : at + t->bytes / (size_t)size;
    char *memory = cli_allocate(BLOCK, 1);
    int error = 0;
    memset(memory, 1, BLOCK); /* so that its pages exist */
    while (at < end && error == 0) {
        ssize_t done = do_block(t, memory, at, end - at < BLOCK ? end - at : BLOCK);
        if (done <= 0)
            error = done == 0 ? EIO : errno;
        else
            at += (size_t)done;
    }
    free(memory);
    return error;
}

static reshard_status run_rank(void *user, reshard_group *group)
{
    turn *t = user;
    int32_t rank = reshard_group_rank(group);
    t->errors[rank] = do_part(t, rank, reshard_group_size(group));
    return RESHARD_OK;
}

/* ---- turns ----------------------------------------------------------------------------------- */

typedef struct measurement {
    cli_work *work;
    char *model, *file, *copy; /* paths */
    size_t bytes;              /* of the model's file */
    int32_t threads;
    int sync;
    int *errors;
    double seconds[3][TURNS]; /* written, copied, digested */
} measurement;

static int write_or_copy(measurement *m, job which, double *out_seconds)
{
    turn t = {.job = which, .bytes = m->bytes, .errors = m->errors, .from = -1};
    int error = 0;
    (void)unlink(m->copy);
    double began = cli_seconds();
    t.to = open(m->copy, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (t.to >= 0 && which == COPY)
        t.from = open(m->file, O_RDONLY | O_CLOEXEC);
    if (t.to < 0 || (which == COPY && t.from < 0))
        error = errno;
    reshard_status status =
        error == 0 ? reshard_group_run(NULL, m->threads, run_rank, &t) : RESHARD_OK;
    for (int32_t i = 0; i < m->threads && error == 0; i++)
        error = m->errors[i];
    if (error == 0 && m->sync && fsync(t.to) != 0)
        error = errno;
    *out_seconds = cli_seconds() - began;
    if (t.from >= 0)
        (void)close(t.from);
    if (t.to >= 0)
        (void)close(t.to);
    if (status != RESHARD_OK)
        return cli_fail_status(status);
    return error == 0 ? CLI_DONE : cli_fail(CLI_FAILED, "%s: %s", m->copy, strerror(error));
}

static int digest(const measurement *m, double *out_seconds)
{
    reshard_checkpoint *checkpoint = NULL;
    reshard_digests *digests = NULL;
    const reshard_digest_options options = {.size = sizeof options, .threads = m->threads};
    double began = cli_seconds();
    reshard_status status = reshard_checkpoint_open(m->work->context, m->model, NULL, &checkpoint);
    if (status == RESHARD_OK)
        status = reshard_checkpoint_digest(checkpoint, &options, &digests);
    *out_seconds = cli_seconds() - began;
    reshard_digests_destroy(digests);
    reshard_checkpoint_destroy(checkpoint);
    return status == RESHARD_OK ? CLI_DONE : cli_fail_status(status);
}

static int measure(measurement *m, size_t bytes)
{
    bench_sample_model model;
    bench_sample_choose(bytes, RESHARD_BF16, &model);
    m->bytes = (size_t)bench_sample_bytes(&model);
    int code = bench_sample_write(m->work, m->model, &model);
    for (int i = 0; i < TURNS && code == CLI_DONE; i++) {
        code = write_or_copy(m, WRITE, &m->seconds[0][i]);
        if (code == CLI_DONE)
            code = write_or_copy(m, COPY, &m->seconds[1][i]);
        if (code == CLI_DONE)
            code = digest(m, &m->seconds[2][i]);
        if (code == CLI_DONE && cli_work_cancelled())
            code = cli_fail(CLI_FAILED, "cancelled");
        cli_work_report(m->work, "measuring the disk", (uint64_t)i + 1, TURNS);
    }
    return code;
}

int bench_disk_measure(cli_work *work, const char *inside, size_t bytes, int32_t threads, int sync,
                       bench_disk *out_disk)
{
    char *folder = NULL;
    int code = bench_folder_make_private(inside, &folder);
    if (code != CLI_DONE)
        return code;
    measurement m = {.work = work, .threads = threads, .sync = sync};
    m.model = bench_path_add(folder, "/model");
    m.file = bench_path_add(folder, "/model/model.safetensors");
    m.copy = bench_path_add(folder, "/copy");
    m.errors = cli_allocate((size_t)threads, sizeof *m.errors);
    code = measure(&m, bytes);
    if (code == CLI_DONE)
        *out_disk = (bench_disk){.threads = threads,
                                 .write = (double)m.bytes / bench_median(m.seconds[0], TURNS),
                                 .copy = (double)m.bytes / bench_median(m.seconds[1], TURNS),
                                 .read = (double)m.bytes / bench_median(m.seconds[2], TURNS)};
    int removed = bench_folder_remove(folder);
    free(m.model);
    free(m.file);
    free(m.copy);
    free(m.errors);
    free(folder);
    return code != CLI_DONE ? code : removed;
}
