/* SPDX-License-Identifier: Apache-2.0 */
/*
 * measure_fingerprint.c - how fast the digest is, as CSV: way, bytes of a run, distance of runs,
 * GB/s of one thread; medians. Run by hand, on a quiet machine.
 *
 *   measure-fingerprint [MiB of the buffer] [rounds]
 */
#include "checkpoint/engine/fingerprint_code.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROUNDS_MAX 1000

static double read_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Digests the buffer in runs that lie `distance` bytes apart in the tensor, 0 for places that jump
 * about; GB/s. */
static double measure(const rs_fingerprint_code *code, const unsigned char *bytes, size_t size,
                      size_t run, size_t distance, int rounds)
{
    double seconds[ROUNDS_MAX];
    volatile uint64_t result = 0;
    for (int round = 0; round < rounds; round++) {
        rs_fingerprint_writer writer;
        uint64_t place = 0;
        rs_fingerprint_begin(&writer, code);
        double start = read_seconds();
        for (size_t at = 0; at + run <= size; at += run) {
            rs_fingerprint_add_run(&writer, place, bytes + at, run);
            place = distance != 0 ? place + distance
                                  : (place * 6364136223846793005u + 1442695040888963407u) >> 24;
        }
        seconds[round] = read_seconds() - start;
        result ^= writer.sum.remainder[0];
    }
    (void)result;
    qsort(seconds, (size_t)rounds, sizeof *seconds, compare);
    return 1e-9 * (double)(size / run * run) / seconds[rounds / 2];
}

int main(int argc, char **argv)
{
    static const size_t runs[] = {16, 64, 256, 1024, 4096, 65536, 1 << 20, 32 << 20};
    size_t size = (size_t)(argc > 1 ? atoi(argv[1]) : 32) << 20;
    int rounds = argc > 2 ? atoi(argv[2]) : 7;
    unsigned char *bytes = malloc(size);
    rs_fingerprint_code *code = NULL;
    if (bytes == NULL || rounds < 1 || rounds > ROUNDS_MAX ||
        rs_fingerprint_code_create(NULL, &code) != RESHARD_OK)
        return 1;
    for (size_t i = 0; i < size; i++)
        bytes[i] = (unsigned char)(i * 2654435761u >> 13);
    rs_fingerprint_code plain = *code;
    plain.remainder = rs_remainder_by_tables;
    plain.multiply = rs_multiply_by_bits;
    puts("way,run,distance,gb_per_s");
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        if (runs[i] > size)
            continue;
        printf("chosen,%zu,4x,%.2f\n", runs[i],
               measure(code, bytes, size, runs[i], 4 * runs[i], rounds));
        printf("chosen,%zu,any,%.2f\n", runs[i], measure(code, bytes, size, runs[i], 0, rounds));
        printf("plain,%zu,4x,%.2f\n", runs[i],
               measure(&plain, bytes, size / 8, runs[i], 4 * runs[i], rounds));
    }
    rs_fingerprint_code_destroy(code);
    free(bytes);
    return 0;
}
