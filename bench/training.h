/* SPDX-License-Identifier: Apache-2.0 */
/*
 * training.h - a GPT trained on threads, to measure a step of it: forward, backward, clipping
 * and AdamW, tensor parallel by a sharding plan, with input_reshard on every block.
 */
#ifndef BENCH_TRAINING_H
#define BENCH_TRAINING_H

#include <reshard/reshard_nn.h>

typedef struct bench_training {
    int64_t layers, width, heads, batch, length;
    int32_t steps;
    reshard_context *context; /* set by run */
    double *seconds;          /* of each step, after one that warms up */
    double loss;              /* of the last step */
    double processor_seconds; /* of a step: the mean, of all threads */
} bench_training;

reshard_status bench_training_run(bench_training *training, int32_t ranks);

/* Elements of all its parameters. */
int64_t bench_training_parameters(const bench_training *training);

#endif
