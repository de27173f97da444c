/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disk.c - each turn writes new files, has the kernel share a model's file if the file system can,
 * digests the model, and converts another one from f32 to bf16. Each thread has its own part of the
 * bytes and goes through it in blocks of 4 MiB, as conversions do. Results are medians of the
 * turns. If blocks cannot be shared, a conversion reads and writes them, so that is the cost of a
 * copy. What the cast takes is what is left of its conversion after reading and writing.
 */
#define _GNU_SOURCE /* copy_file_range, MAP_ANONYMOUS */
#include "bench/common/disk.h"

#include "bench/common/child.h"
#include "bench/common/folders.h"
#include "bench/common/sample_model.h"
#include "bench/common/timing.h"
#include "cli/common/failure.h"
#include "cli/common/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h> /* FICLONE */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCK ((size_t)1 << 20) /* the longest write of a conversion (system/file.c) */
enum { TURNS = 5, TURNS_MAX = 16 };

typedef enum job { WRITE, SHARE } job;

typedef struct turn {
    job job;
    int sync;
    const char *from, *to; /* paths of the model's file, and of a folder for new files */
    size_t bytes;          /* of the model's file */
    int *errors;           /* errno of each thread */
} turn;

/* Returns how many bytes were done, or -1 with errno. */
static ssize_t do_block(const turn *t, int from, off_t at, int to, off_t to_at, char *memory,
                        size_t count)
{
    return t->job == WRITE ? pwrite(to, memory, count, to_at)
                           : copy_file_range(from, &at, to, &to_at, count, 0);
}

/* Makes a file of bytes begin .. end-1 of the model's file. Returns 0 or an errno. */
static int do_blocks(const turn *t, int from, int to, size_t begin, size_t end)
{
    char *memory = cli_allocate(BLOCK, 1);
    int error = 0;
    memset(memory, 1, BLOCK); /* touch its pages */
    for (size_t at = begin; at < end && error == 0;) {
        ssize_t done = do_block(t, from, (off_t)at, to, (off_t)(at - begin), memory,
                                end - at < BLOCK ? end - at : BLOCK);
        if (done <= 0)
            error = done == 0 ? EIO : errno;
        else
            at += (size_t)done;
    }
    free(memory);
    return error;
}

/* Each thread writes a file of its own, because writers of the same file wait for each other,
 * whereas the threads of a conversion write to several files, or read meanwhile. Returns 0 or an
 * errno. */
static int do_part(const turn *t, int32_t rank, int32_t size)
{
    char name[32];
    size_t each = t->bytes / (size_t)size / BLOCK * BLOCK;
    size_t begin = each * (size_t)rank, end = rank == size - 1 ? t->bytes : begin + each;
    snprintf(name, sizeof name, "/%d", (int)rank);
    char *path = bench_path_add(t->to, name);
    int from = open(t->from, O_RDONLY | O_CLOEXEC);
    int to = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int error = from < 0 || to < 0 ? errno : do_blocks(t, from, to, begin, end);
    if (error == 0 && t->sync && fsync(to) != 0)
        error = errno;
    if (from >= 0)
        (void)close(from);
    if (to >= 0)
        (void)close(to);
    free(path);
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

enum { WRITTEN, SHARED, DIGESTED, CONVERTED, KINDS };

struct bench_disk_turns {
    cli_work *work;
    char *folder, *model, *wide, *file, *made; /* paths; wide: the model in f32 */
    size_t bytes;                              /* of the model's file */
    size_t wide_bytes;                         /* of the model in f32, which has other layers */
    int32_t threads;
    int sync;
    int shares; /* the file system can share blocks */
    int *errors;
    double *latest; /* seconds of the latest turn, in memory shared with the child */
    double seconds[KINDS][TURNS_MAX]; /* of the latest turns */
    int32_t count;
};

static int write_or_share(const bench_disk_turns *m, job which, double *out_seconds)
{
    turn t = {which, m->sync, m->file, m->made, m->bytes, m->errors};
    int code = bench_folder_remove(m->made);
    if (code == CLI_DONE && mkdir(m->made, 0700) != 0)
        code = cli_fail(CLI_FAILED, "%s: %s", m->made, strerror(errno));
    if (code != CLI_DONE)
        return code;
    double began = cli_seconds();
    reshard_status status = reshard_group_run(NULL, m->threads, run_rank, &t);
    *out_seconds = cli_seconds() - began;
    if (status != RESHARD_OK)
        return cli_fail_status(status);
    for (int32_t i = 0; i < m->threads; i++) {
        if (m->errors[i] != 0)
            return cli_fail(CLI_FAILED, "%s: %s", m->made, strerror(m->errors[i]));
    }
    return CLI_DONE;
}

static int digest(const bench_disk_turns *m, double *out_seconds)
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

static int convert(const bench_disk_turns *m, double *out_seconds)
{
    const char *dtype = "bf16";
    const reshard_conversion_options planning = {
        .size = sizeof planning, .dtype_count = 1, .dtypes = &dtype, .threads = m->threads};
    const reshard_conversion_run_options running = {.size = sizeof running, .no_sync = !m->sync};
    double began = cli_seconds();
    reshard_status status =
        reshard_convert(m->work->context, m->wide, m->made, NULL, &planning, &running, NULL);
    *out_seconds = cli_seconds() - began;
    return status == RESHARD_OK ? bench_folder_remove(m->made) : cli_fail_status(status);
}

/* Fills `latest`. Files are written twice, and the second time counts: the first time, the page
 * cache may take memory that has not been used for long, and on a virtual machine this can cost
 * several times as much as writing. */
static int measure(void *user)
{
    bench_disk_turns *m = user;
    int code = write_or_share(m, WRITE, &m->latest[WRITTEN]);
    if (code == CLI_DONE)
        code = write_or_share(m, WRITE, &m->latest[WRITTEN]);
    if (code == CLI_DONE && m->shares)
        code = write_or_share(m, SHARE, &m->latest[SHARED]);
    if (code == CLI_DONE)
        code = bench_folder_remove(m->made);
    if (code == CLI_DONE)
        code = digest(m, &m->latest[DIGESTED]);
    if (code == CLI_DONE)
        code = convert(m, &m->latest[CONVERTED]);
    return code;
}

int bench_disk_turn(bench_disk_turns *m, int in_child)
{
    bench_child_report ignored;
    int code = in_child ? bench_child_run(m->work, measure, m, "measuring the disk", &ignored)
                        : measure(m);
    if (code == CLI_DONE && cli_work_cancelled())
        code = cli_fail(CLI_FAILED, "cancelled");
    for (int i = 0; i < KINDS && code == CLI_DONE; i++)
        m->seconds[i][m->count % TURNS_MAX] = m->latest[i];
    m->count += code == CLI_DONE;
    return code;
}

static double find_seconds(bench_disk_turns *m, int kind)
{
    return bench_median(m->seconds[kind], m->count < TURNS_MAX ? m->count : TURNS_MAX);
}

static double find_speed(bench_disk_turns *m, int kind)
{
    return (double)m->bytes / find_seconds(m, kind);
}

/* Where the disk is so slow that the cast does not show, it counts as a hundredth of the time. */
static double find_cast(bench_disk_turns *m, const bench_disk *disk)
{
    double bytes = (double)m->wide_bytes, seconds = find_seconds(m, CONVERTED);
    double left = seconds - bytes / disk->read - bytes / 2 / disk->write;
    return bytes / (left > seconds / 100 ? left : seconds / 100);
}

bench_disk bench_disk_read(bench_disk_turns *m)
{
    bench_disk disk = {
        .threads = m->threads, .write = find_speed(m, WRITTEN), .read = find_speed(m, DIGESTED)};
    disk.copy = m->shares ? find_speed(m, SHARED) : 1 / (1 / disk.write + 1 / disk.read);
    disk.cast = find_cast(m, &disk);
    return disk;
}

/* Whether the file system can share the blocks of the model's file with another file. */
static int can_share(const bench_disk_turns *m)
{
    int can = 0;
#ifdef FICLONE
    int from = open(m->file, O_RDONLY | O_CLOEXEC);
    int to = open(m->made, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    can = from >= 0 && to >= 0 && ioctl(to, FICLONE, from) == 0;
    if (from >= 0)
        (void)close(from);
    if (to >= 0)
        (void)close(to);
    (void)unlink(m->made);
#else
    (void)m;
#endif
    return can;
}

int bench_disk_begin(cli_work *work, const char *inside, size_t bytes, int32_t threads, int sync,
                     bench_disk_turns **out_turns)
{
    bench_sample_model model;
    bench_disk_turns *m = cli_allocate(1, sizeof *m);
    *out_turns = m;
    *m = (bench_disk_turns){.work = work, .threads = threads, .sync = sync};
    int code = bench_folder_make_private(inside, &m->folder);
    if (code != CLI_DONE)
        return code;
    m->latest = mmap(NULL, KINDS * sizeof *m->latest, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (m->latest == MAP_FAILED) {
        m->latest = NULL;
        return cli_fail(CLI_FAILED, "no memory to share: %s", strerror(errno));
    }
    m->model = bench_path_add(m->folder, "/model");
    m->wide = bench_path_add(m->folder, "/wide");
    m->file = bench_path_add(m->folder, "/model/model.safetensors");
    m->made = bench_path_add(m->folder, "/made");
    m->errors = cli_allocate((size_t)threads, sizeof *m->errors);
    bench_sample_choose(bytes, RESHARD_BF16, 0, &model);
    m->bytes = (size_t)bench_sample_bytes(&model);
    code = bench_sample_write(work, m->model, &model);
    bench_sample_choose(bytes, RESHARD_F32, 0, &model);
    m->wide_bytes = (size_t)bench_sample_bytes(&model);
    if (code == CLI_DONE)
        code = bench_sample_write(work, m->wide, &model);
    m->shares = code == CLI_DONE && can_share(m);
    return code;
}

int bench_disk_end(bench_disk_turns *m)
{
    if (m == NULL)
        return CLI_DONE;
    int code = m->folder != NULL ? bench_folder_remove(m->folder) : CLI_DONE;
    if (m->latest != NULL)
        (void)munmap(m->latest, KINDS * sizeof *m->latest);
    free(m->folder);
    free(m->model);
    free(m->wide);
    free(m->file);
    free(m->made);
    free(m->errors);
    free(m);
    return code;
}

int bench_disk_measure(cli_work *work, const char *inside, size_t bytes, int32_t threads, int sync,
                       bench_disk *out_disk)
{
    bench_disk_turns *m = NULL;
    int code = bench_disk_begin(work, inside, bytes, threads, sync, &m);
    for (int i = 0; i < TURNS && code == CLI_DONE; i++) {
        code = bench_disk_turn(m, 0);
        cli_work_report(work, "measuring the disk", (uint64_t)i + 1, TURNS);
    }
    if (code == CLI_DONE)
        *out_disk = bench_disk_read(m);
    int removed = bench_disk_end(m);
    return code != CLI_DONE ? code : removed;
}
