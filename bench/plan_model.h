/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_model.h - the model with which planning is measured: the tensors of a Llama of 405 billion
 * parameters, with their Hugging Face names, and how each is split over N ranks before and after.
 */
#ifndef BENCH_PLAN_MODEL_H
#define BENCH_PLAN_MODEL_H

#include <reshard/reshard.h>

enum { BENCH_PLAN_TENSOR_COUNT = 1137, BENCH_PLAN_TENSOR_PARALLEL = 8, BENCH_PLAN_SPEC_COUNT = 6 };

typedef struct bench_plan_tensor {
    char name[64];
    int32_t ndim;
    int64_t shape[2];
    int32_t target_spec; /* index of its target spec */
} bench_plan_tensor;

/* Fills all BENCH_PLAN_TENSOR_COUNT tensors. */
void bench_plan_model_fill(bench_plan_tensor *tensors);

/* The specs over `ranks` ranks, a multiple of 8. All tensors have the same source spec: rows cut
 * over all ranks. The targets are tensor parallel over groups of 8 ranks, with heads and key-value
 * heads kept whole. Outputs are set only on success. */
reshard_status bench_plan_model_source(reshard_context *context, int32_t ranks,
                                       reshard_spec **out_spec);
reshard_status bench_plan_model_target(reshard_context *context, int32_t ranks, int32_t index,
                                       reshard_spec **out_spec);

#endif
