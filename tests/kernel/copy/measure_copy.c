/* SPDX-License-Identifier: Apache-2.0 */
/*
 * measure_copy.c - how fast the copy kernels are beside memcpy, as CSV: case, kernel, bytes
 * written, GB/s, those of memcpy and of a streaming copy of one large block in the same rounds, and
 * the ratios to both. One thread;
 * the best round of each, so that a busy machine disturbs little.
 *
 *   measure-copy [MiB of each buffer] [rounds] [words in a case's name] [offset of the buffers]
 *
 * Buffers start at a cache line, as those of tensor libraries do; an offset shows what it is worth.
 */
#include "kernel/copy/copy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PHASES_MAX 8

typedef struct measured {
    size_t buffer_bytes;
    int rounds;
    const char *only;
    unsigned char *source, *target;
} measured;

/* One or several copies of the same form, run together. */
typedef struct form {
    char name[80];
    int32_t count;
    rs_copy copies[PHASES_MAX];
    const void *sources[PHASES_MAX];
    void *targets[PHASES_MAX];
} form;

/* Of this thread's work: what others do with the processor meanwhile does not count. */
static double read_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double least(double a, double b)
{
    return a < b ? a : b;
}

static void run_form(const form *given)
{
    const rs_copy *copies[PHASES_MAX];
    for (int32_t i = 0; i < given->count; i++)
        copies[i] = &given->copies[i];
    if (given->count == 1)
        rs_copy_run(copies[0], given->sources[0], given->targets[0]);
    else
        rs_copy_run_together(given->count, copies, given->sources, given->targets);
}

static void measure(const measured *with, const form *given)
{
    if (strstr(given->name, with->only) == NULL)
        return;
    double through = 1e9, around = 1e9, own = 1e9;
    size_t bytes = 0;
    rs_copy streaming;
    rs_copy_tuning tuning = {.cpu = rs_cpu_detect(), .stream_bytes = 0};
    rs_copy_prepare_tuned(&streaming, &tuning, 1, 1, (int64_t[]){(int64_t)with->buffer_bytes},
                          (int64_t[]){1}, (int64_t[]){1});
    for (int32_t i = 0; i < given->count; i++)
        bytes += rs_copy_bytes(&given->copies[i]);
    /* In turn, so that a disturbance of the machine meets all. */
    for (int round = 0; round < with->rounds; round++) {
        double start = read_seconds();
        memcpy(with->target, with->source, with->buffer_bytes);
        double second = read_seconds();
        rs_copy_run(&streaming, with->source, with->target);
        double third = read_seconds();
        run_form(given);
        own = least(own, read_seconds() - third);
        around = least(around, third - second);
        through = least(through, second - start);
    }
    double speed = (double)bytes / own / 1e9;
    double memcpy_speed = (double)with->buffer_bytes / through / 1e9;
    double streaming_speed = (double)with->buffer_bytes / around / 1e9;
    printf("%s,%s,%zu,%.2f,%.2f,%.2f,%.2f,%.2f\n", given->name,
           rs_copy_kernel_name(&given->copies[0]), bytes, speed, memcpy_speed, streaming_speed,
           speed / memcpy_speed, speed / streaming_speed);
    fflush(stdout);
}

/* Rows of `run` bytes, at row steps on the two sides. */
static void measure_rows(const measured *with, int64_t run, int64_t source_step,
                         int64_t target_step)
{
    form given = {.count = 1, .sources = {with->source}, .targets = {with->target}};
    int64_t longest = source_step > target_step ? source_step : target_step;
    int64_t size[] = {(int64_t)with->buffer_bytes / longest, run};
    snprintf(given.name, sizeof given.name, "rows of %lld; steps %lld to %lld", (long long)run,
             (long long)source_step, (long long)target_step);
    rs_copy_prepare(&given.copies[0], 1, 2, size, (int64_t[]){source_step, 1},
                    (int64_t[]){target_step, 1});
    measure(with, &given);
}

/* Elements of `run` bytes in `phases` phases; all of them together, or the first alone. */
static void measure_phases(const measured *with, int64_t run, int64_t phases, bool gathers,
                           bool together)
{
    form given = {.count = together ? (int32_t)phases : 1};
    rs_copy_tuning tuning = {.cpu = rs_cpu_detect(), .stream_bytes = RS_STREAM_BYTES};
    int64_t size[] = {(int64_t)with->buffer_bytes / (run * phases)};
    int64_t sparse[] = {phases}, dense[] = {1};
    for (int64_t i = 0; i < given.count; i++) {
        unsigned char *interleaved = (gathers ? with->source : with->target) + i * run;
        unsigned char *apart = (gathers ? with->target : with->source) + i * size[0] * run;
        rs_copy_prepare_tuned(&given.copies[i], &tuning, (int32_t)run, 1, size,
                              gathers ? sparse : dense, gathers ? dense : sparse);
        given.sources[i] = gathers ? interleaved : apart;
        given.targets[i] = gathers ? apart : interleaved;
    }
    snprintf(given.name, sizeof given.name, "%s %lld bytes of %lld phases; %s",
             gathers ? "gather" : "scatter", (long long)run, (long long)phases,
             together ? "all" : "one");
    measure(with, &given);
}

/* Rows of `row` bytes, of which blocks of `run` bytes go to each of `phases` parts in turn: the
 * rows of parts differ in length, and the last block may be shorter. */
static void measure_dealt_rows(const measured *with, int64_t run, int64_t phases, int64_t row)
{
    form given = {0};
    rs_copy_tuning tuning = {.cpu = rs_cpu_detect(), .stream_bytes = RS_STREAM_BYTES};
    int64_t rows = (int64_t)with->buffer_bytes / (row + phases * run);
    int64_t blocks = row / run, rest = row % run;
    unsigned char *target = with->target;
    for (int64_t i = 0; i < phases; i++) {
        int64_t count = (blocks + phases - 1 - i) / phases;
        bool short_one = rest != 0 && blocks % phases == i;
        int64_t target_row = count * run + (short_one ? rest : 0);
        rs_copy_prepare_tuned(&given.copies[given.count], &tuning, 1, 3,
                              (int64_t[]){rows, count, run}, (int64_t[]){row, phases * run, 1},
                              (int64_t[]){target_row, run, 1});
        given.sources[given.count] = with->source + i * run;
        given.targets[given.count++] = target;
        if (short_one) {
            rs_copy_prepare_tuned(&given.copies[given.count], &tuning, 1, 2,
                                  (int64_t[]){rows, rest}, (int64_t[]){row, 1},
                                  (int64_t[]){target_row, 1});
            given.sources[given.count] = with->source + blocks * run;
            given.targets[given.count++] = target + count * run;
        }
        target += rows * target_row;
    }
    snprintf(given.name, sizeof given.name, "dealt rows of %lld: %lld bytes to %lld parts",
             (long long)row, (long long)run, (long long)phases);
    measure(with, &given);
}

static void measure_transpose(const measured *with, int64_t unit, int64_t rows, int64_t columns)
{
    form given = {.count = 1, .sources = {with->source}, .targets = {with->target}};
    snprintf(given.name, sizeof given.name, "transpose %lld x %lld of %lld bytes", (long long)rows,
             (long long)columns, (long long)unit);
    rs_copy_prepare(&given.copies[0], (int32_t)unit, 2, (int64_t[]){rows, columns},
                    (int64_t[]){columns, 1}, (int64_t[]){1, rows});
    measure(with, &given);
}

static void measure_all(const measured *with)
{
    measure_rows(with, 512, 512, 1024);
    measure_rows(with, 512, 2048, 512);
    measure_rows(with, 4096, 8192, 4096);
    measure_rows(with, 4096, 4096, 8192);
    measure_rows(with, 4096 - 8, 8192, 4096 - 8);
    measure_rows(with, 65536, 131072, 65536);
    static const int64_t runs[] = {1, 2, 4, 8, 16, 64, 96, 128};
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        for (int gathers = 1; gathers >= 0; gathers--) {
            measure_phases(with, runs[i], 4, gathers, false);
            measure_phases(with, runs[i], 4, gathers, true);
        }
    }
    for (int64_t run = 2; run <= 8; run *= 2) {
        measure_phases(with, run, 2, true, true);
        measure_phases(with, run, 3, true, true);
        measure_phases(with, run, 8, true, true);
    }
    /* Every run of 1 to 64 bytes, gathered from and woven into one memory. */
    for (int64_t run = 1; run <= 64; run++) {
        static const int64_t phases[] = {2, 3, 4, 8};
        for (size_t i = 0; i < sizeof phases / sizeof phases[0]; i++) {
            measure_phases(with, run, phases[i], true, true);
            measure_phases(with, run, phases[i], false, true);
        }
    }
    static const int64_t rows[] = {24576, 32736, 32752, 32768, 32776, 32784};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        measure_dealt_rows(with, 12, 4, rows[i]);
    int64_t side = 1;
    while (side * side * 4 * 4 <= (int64_t)with->buffer_bytes)
        side *= 2;
    for (int64_t unit = 1; unit <= 16; unit *= 2) {
        int64_t columns = side * 4 / unit;
        measure_transpose(with, unit, side, columns);
        measure_transpose(with, unit, side - 120, columns - 56);
    }
}

int main(int argc, char **argv)
{
    measured with = {
        .buffer_bytes = (size_t)(argc > 1 ? atoi(argv[1]) : 256) << 20,
        .rounds = argc > 2 ? atoi(argv[2]) : 7,
        .only = argc > 3 ? argv[3] : "",
    };
    if (with.buffer_bytes == 0 || with.rounds < 1)
        return 2;
    size_t offset = argc > 4 ? (size_t)atoi(argv[4]) % 4096 : 0;
    unsigned char *source = aligned_alloc(4096, with.buffer_bytes + 4096);
    unsigned char *target = aligned_alloc(4096, with.buffer_bytes + 4096);
    if (source == NULL || target == NULL)
        return 1;
    with.source = source + offset;
    with.target = target + offset;
    memset(with.source, 1, with.buffer_bytes);
    memset(with.target, 2, with.buffer_bytes);
    printf("case,kernel,bytes,GB/s,memcpy GB/s,streaming GB/s,of memcpy,of streaming\n");
    measure_all(&with);
    free(source);
    free(target);
    return 0;
}
