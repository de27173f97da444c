/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sample_model.h - checkpoints to experiment and measure with: a Llama of about any size, or a
 * Qwen3-MoE, with Hugging Face's names and shapes, and a crowd of small tensors in many files.
 *
 * Values depend only on dtype and position, so the same call writes the same bytes on every
 * machine. They lie between 2^-7 and 2, with either sign, as trained weights might.
 */
#ifndef BENCH_SAMPLE_MODEL_H
#define BENCH_SAMPLE_MODEL_H

#include "cli/common/work.h"

typedef struct bench_sample_model {
    int64_t hidden, feed_forward, vocabulary;
    int64_t heads, key_value_heads, head_size;
    int64_t layers;
    int tied;            /* the output head is the embedding, and is not stored again */
    reshard_dtype dtype; /* BF16 or F32 */
    int64_t experts;     /* of each layer, as Qwen3-MoE has them; 0: it is dense, as a Llama is */
} bench_sample_model;

/* How many experts a model has that has some, and which part of feed_forward each is wide. */
#define BENCH_SAMPLE_EXPERTS 32
#define BENCH_SAMPLE_EXPERT_PART 8

/* Chooses the model, dense or with this many experts, whose tensors come closest to this many
 * bytes, with shapes that suit the size. It has at least one layer, so the smallest size is some
 * 200 KB. The numbers of heads and of key-value heads are multiples of 8. */
void bench_sample_choose(uint64_t bytes, reshard_dtype dtype, int64_t experts,
                         bench_sample_model *out_model);
uint64_t bench_sample_bytes(const bench_sample_model *model);
int64_t bench_sample_tensor_count(const bench_sample_model *model);

/* Makes a folder with model.safetensors and config.json. Returns CLI_DONE, or prints a message and
 * returns another code. */
int bench_sample_write(cli_work *work, const char *folder, const bench_sample_model *model);

/* Makes a folder of file_count safetensors files and their index: `count` tensors of 1 KiB each, in
 * bf16. */
int bench_sample_write_crowd(cli_work *work, const char *folder, int64_t count, int64_t file_count);

#endif
