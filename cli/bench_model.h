/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_model.h - the model that planning is measured with: the tensors of a Llama of 405 billion
 * parameters, with their Hugging Face names, and how each is split over N ranks before and after.
 */
#ifndef CLI_BENCH_MODEL_H
#define CLI_BENCH_MODEL_H

#include <reshard/reshard.h>

enum { CLI_BENCH_TENSOR_COUNT = 1137, CLI_BENCH_TENSOR_PARALLEL = 8, CLI_BENCH_SPEC_COUNT = 6 };

typedef struct cli_bench_tensor {
    char name[64];
    int32_t ndim;
    int64_t shape[2];
    int32_t target_spec; /* index among the target specs */
} cli_bench_tensor;

/* Fills all CLI_BENCH_TENSOR_COUNT tensors. */
void cli_bench_model_fill(cli_bench_tensor *tensors);

/* The specs over `ranks` ranks, a multiple of 8. All tensors share the source: rows over all ranks.
 * Targets go over groups of 8 ranks by the rules of tensor parallelism, heads and kv heads kept
 * whole. Outputs are set only on success. */
reshard_status cli_bench_model_source(reshard_context *context, int32_t ranks,
                                      reshard_spec **out_spec);
reshard_status cli_bench_model_target(reshard_context *context, int32_t ranks, int32_t index,
                                      reshard_spec **out_spec);

#endif
