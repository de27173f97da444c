/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_training.h - a GPT trained on threads, to measure a step of it: forward, backward, clipping
 * and AdamW, tensor parallel by a sharding plan, with input_reshard on every block.
 */
#ifndef CLI_BENCH_TRAINING_H
#define CLI_BENCH_TRAINING_H

#include <reshard/reshard_nn.h>

typedef struct cli_training {
    int64_t layers, width, heads, batch, length;
    int32_t steps;
    double *seconds; /* of each step; one more goes before them, to warm up */
    double loss;     /* of the last step */
} cli_training;

reshard_status cli_training_run(cli_training *training, int32_t ranks);

/* Elements of all its parameters. */
int64_t cli_training_parameters(const cli_training *training);

#endif
