/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_model.c - the shapes and cuts of the Llama-shaped model.
 */
#include "bench/plan_model.h"

#include <stdio.h>
#include <string.h>

enum {
    HIDDEN = 16384,
    FEED_FORWARD = 53248,
    VOCABULARY = 128256,
    KEY_VALUE = 8 * 128,
    LAYERS = 126
};

/* The cuts of the targets, BENCH_PLAN_SPEC_COUNT of them. */
enum { QUERY, KEY_VALUE_HEADS, OUTPUT, ROWS, COLUMNS, WHOLE };

static const char *const target_cuts[BENCH_PLAN_SPEC_COUNT] = {
    [QUERY] = "S(0, unit=128)@tp",  [KEY_VALUE_HEADS] = "S(0, unit=128, max=8)@tp",
    [OUTPUT] = "S(1, unit=128)@tp", [ROWS] = "S(0)@tp",
    [COLUMNS] = "S(1)@tp",          [WHOLE] = "R, R",
};

typedef struct layer_tensor {
    const char *name;
    int64_t rows, columns; /* columns 0: a vector */
    int32_t target_spec;
} layer_tensor;

static const layer_tensor layer_tensors[] = {
    {"input_layernorm.weight", HIDDEN, 0, WHOLE},
    {"self_attn.q_proj.weight", HIDDEN, HIDDEN, QUERY},
    {"self_attn.k_proj.weight", KEY_VALUE, HIDDEN, KEY_VALUE_HEADS},
    {"self_attn.v_proj.weight", KEY_VALUE, HIDDEN, KEY_VALUE_HEADS},
    {"self_attn.o_proj.weight", HIDDEN, HIDDEN, OUTPUT},
    {"post_attention_layernorm.weight", HIDDEN, 0, WHOLE},
    {"mlp.gate_proj.weight", FEED_FORWARD, HIDDEN, ROWS},
    {"mlp.up_proj.weight", FEED_FORWARD, HIDDEN, ROWS},
    {"mlp.down_proj.weight", HIDDEN, FEED_FORWARD, COLUMNS},
};

enum { LAYER_TENSOR_COUNT = (int)(sizeof layer_tensors / sizeof layer_tensors[0]) };

static const layer_tensor outer_tensors[] = {
    {"model.embed_tokens.weight", VOCABULARY, HIDDEN, ROWS},
    {"model.norm.weight", HIDDEN, 0, WHOLE},
    {"lm_head.weight", VOCABULARY, HIDDEN, ROWS},
};

enum { OUTER_TENSOR_COUNT = (int)(sizeof outer_tensors / sizeof outer_tensors[0]) };

_Static_assert(LAYERS *LAYER_TENSOR_COUNT + OUTER_TENSOR_COUNT == BENCH_PLAN_TENSOR_COUNT,
               "plan_model.h counts the tensors");

static bench_plan_tensor make_tensor(const layer_tensor *from, const char *prefix)
{
    bench_plan_tensor tensor = {
        .ndim = from->columns != 0 ? 2 : 1,
        .shape = {from->rows, from->columns},
        .target_spec = from->target_spec,
    };
    snprintf(tensor.name, sizeof tensor.name, "%.24s%.36s", prefix, from->name);
    return tensor;
}

void bench_plan_model_fill(bench_plan_tensor *tensors)
{
    *tensors++ = make_tensor(&outer_tensors[0], "");
    for (int layer = 0; layer < LAYERS; layer++) {
        char prefix[32];
        snprintf(prefix, sizeof prefix, "model.layers.%d.", layer);
        for (int i = 0; i < LAYER_TENSOR_COUNT; i++)
            *tensors++ = make_tensor(&layer_tensors[i], prefix);
    }
    for (int i = 1; i < OUTER_TENSOR_COUNT; i++)
        *tensors++ = make_tensor(&outer_tensors[i], "");
}

reshard_status bench_plan_model_source(reshard_context *context, int32_t ranks,
                                       reshard_spec **out_spec)
{
    char text[64];
    snprintf(text, sizeof text, "fsdp=%d: S(0)", ranks);
    return reshard_spec_parse(context, text, out_spec);
}

reshard_status bench_plan_model_target(reshard_context *context, int32_t ranks, int32_t index,
                                       reshard_spec **out_spec)
{
    char text[96];
    snprintf(text, sizeof text, "dp=%d,tp=%d: %s", ranks / BENCH_PLAN_TENSOR_PARALLEL,
             BENCH_PLAN_TENSOR_PARALLEL, target_cuts[index]);
    return reshard_spec_parse(context, text, out_spec);
}
