/* SPDX-License-Identifier: Apache-2.0 */
/*
 * predict.h - the rows of the table that `reshard bench predict` prints, and the measurement of
 * those that are conversions.
 */
#ifndef BENCH_PREDICT_H
#define BENCH_PREDICT_H

#include "bench/common/disk.h"
#include "bench/common/machine.h"

typedef struct bench_prediction {
    char what[2 * BENCH_SHAPE_TEXT], from[BENCH_SPEC_TEXT], to[BENCH_SPEC_TEXT];
    double predicted, measured; /* seconds */
} bench_prediction;

enum { BENCH_CONVERSIONS = 3 };

/* Makes models of about this many bytes in a new folder inside `inside`, converts them, predicts
 * the times from the disk's speeds, and removes the folder. given: the speeds to use, as text;
 * NULL: measure them. Starts processes, so call it before any thread is started. Returns CLI_DONE,
 * or prints a message and returns another code. */
int bench_predict_conversions(cli_work *work, const char *inside, size_t bytes, int32_t runs,
                              const char *given, bench_prediction out_rows[BENCH_CONVERSIONS]);

#endif
