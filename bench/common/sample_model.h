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

/*
 * sample_file.c - writes one safetensors file of made-up values, from front to back.
 */

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

/* gguf_file.c - writes a sample model as a GGUF file, to measure how fast it is read, or as one to
 * follow. */

/* Makes a folder with model.gguf. is_quantised: matrices are Q4_K (Q4_0 if rows are too short for
 * its blocks), with made-up codes; otherwise they are F16, and nothing but holes, which take no
 * space. Returns CLI_DONE, or prints a message and returns another code. */
int bench_gguf_write(cli_work *work, const char *folder, const bench_sample_model *model,
                     int is_quantised);

/* zero_files.c - writes a model as DeepSpeed's ZeRO leaves it in stage 3, to measure how fast it is
 * joined. */

/* Writes the tensors of a checkpoint in F32, without moments, into a new folder: an optimizer's
 * file and a model file for each rank. Returns CLI_DONE, or prints a message and returns another
 * code. */
int bench_zero_write(cli_work *work, const char *whole, const char *folder, int ranks);

#endif
