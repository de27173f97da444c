/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sample_file.h - writes one safetensors file of made-up values, from front to back.
 */
#ifndef BENCH_SAMPLE_FILE_H
#define BENCH_SAMPLE_FILE_H

#include "cli/common/work.h"

typedef struct bench_sample_tensor {
    char name[64];
    int32_t ndim; /* 1 or 2 */
    int64_t shape[2];
} bench_sample_tensor;

uint64_t bench_sample_tensor_bytes(const bench_sample_tensor *tensor, reshard_dtype dtype);

/* *done is how many of `total` bytes earlier files have; it determines the values and the progress
 * that is reported, and is advanced. Returns CLI_DONE, or another code after a message. */
int bench_sample_file_write(cli_work *work, const char *path, reshard_dtype dtype,
                            const bench_sample_tensor *tensors, int64_t count, uint64_t *done,
                            uint64_t total);

/* Writes a small text file. */
int bench_text_file_write(const char *path, const char *text);

#endif
