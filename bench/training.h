/* SPDX-License-Identifier: Apache-2.0 */
/*
 * training.h - trains a GPT on threads, to measure its steps: forward, backward, clipping and
 * AdamW, tensor parallel by a sharding plan, with input_reshard on every block.
 */
#ifndef BENCH_TRAINING_H
#define BENCH_TRAINING_H

#include <reshard/reshard_nn.h>

typedef struct bench_training {
    int64_t layers, width, heads, batch, length, vocabulary;
    int32_t steps;
    reshard_context *context; /* set by run */
    double *seconds;          /* of each step, after one step to warm up */
    double loss;              /* of the last step */
    double processor_seconds; /* per step, on average, summed over all threads */
    /* NULL, or filled with the most bytes that a step took on rank 0, beside parameters and the
     * optimizer's states: [without input_reshard][with logits gathered]. */
    size_t (*peaks)[2];
} bench_training;

reshard_status bench_training_run(bench_training *training, int32_t ranks);

/* The number of elements of all parameters. */
int64_t bench_training_parameters(const bench_training *training);

#endif
