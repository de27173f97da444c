/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sample_model.c - the shapes of sample models, and the files around their tensors.
 */
#include "bench/common/sample_model.h"

#include "bench/common/sample_file.h"
#include "cli/common/failure.h"
#include "cli/common/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { LAYERS_WANTED = 6, LAYER_TENSORS = 9, CROWD_EXTENT = 512 };

/* Starts with the shapes of Llama 3 with 8 and with 1 billion parameters, and goes down from
 * there. */
static const bench_sample_model ladder[] = {
    {4096, 14336, 128256, 32, 8, 128, 0, 0, RESHARD_BF16},
    {2048, 8192, 128256, 32, 8, 64, 0, 1, RESHARD_BF16},
    {1024, 4096, 32000, 16, 8, 64, 0, 0, RESHARD_BF16},
    {512, 2048, 8192, 16, 8, 32, 0, 0, RESHARD_BF16},
    {128, 512, 1024, 16, 8, 8, 0, 0, RESHARD_BF16},
    {64, 256, 256, 8, 8, 8, 0, 0, RESHARD_BF16},
};

enum { LADDER_COUNT = (int)(sizeof ladder / sizeof ladder[0]) };

/* ---- tensors --------------------------------------------------------------------------------- */

static void set_tensor(bench_sample_tensor *tensor, const char *prefix, const char *name,
                       int64_t rows, int64_t columns)
{
    *tensor = (bench_sample_tensor){.ndim = columns != 0 ? 2 : 1, .shape = {rows, columns}};
    snprintf(tensor->name, sizeof tensor->name, "%.26s%.36s", prefix, name);
}

static void fill_layer(const bench_sample_model *model, int64_t layer, bench_sample_tensor *tensors)
{
    int64_t hidden = model->hidden, query_rows = model->heads * model->head_size;
    int64_t key_rows = model->key_value_heads * model->head_size;
    char prefix[48];
    snprintf(prefix, sizeof prefix, "model.layers.%" PRId64 ".", layer);
    set_tensor(tensors++, prefix, "input_layernorm.weight", hidden, 0);
    set_tensor(tensors++, prefix, "mlp.down_proj.weight", hidden, model->feed_forward);
    set_tensor(tensors++, prefix, "mlp.gate_proj.weight", model->feed_forward, hidden);
    set_tensor(tensors++, prefix, "mlp.up_proj.weight", model->feed_forward, hidden);
    set_tensor(tensors++, prefix, "post_attention_layernorm.weight", hidden, 0);
    set_tensor(tensors++, prefix, "self_attn.k_proj.weight", key_rows, hidden);
    set_tensor(tensors++, prefix, "self_attn.o_proj.weight", hidden, query_rows);
    set_tensor(tensors++, prefix, "self_attn.q_proj.weight", query_rows, hidden);
    set_tensor(tensors++, prefix, "self_attn.v_proj.weight", key_rows, hidden);
}

int64_t bench_sample_tensor_count(const bench_sample_model *model)
{
    return model->layers * LAYER_TENSORS + (model->tied ? 2 : 3);
}

static bench_sample_tensor *list_tensors(const bench_sample_model *model)
{
    bench_sample_tensor *tensors =
        cli_allocate((size_t)bench_sample_tensor_count(model), sizeof *tensors);
    bench_sample_tensor *next = tensors;
    set_tensor(next++, "", "model.embed_tokens.weight", model->vocabulary, model->hidden);
    for (int64_t i = 0; i < model->layers; i++, next += LAYER_TENSORS)
        fill_layer(model, i, next);
    set_tensor(next++, "", "model.norm.weight", model->hidden, 0);
    if (!model->tied)
        set_tensor(next++, "", "lm_head.weight", model->vocabulary, model->hidden);
    return tensors;
}

uint64_t bench_sample_bytes(const bench_sample_model *model)
{
    bench_sample_tensor layer[LAYER_TENSORS];
    uint64_t layer_elements = 0;
    fill_layer(model, 0, layer);
    for (int i = 0; i < LAYER_TENSORS; i++)
        layer_elements += bench_sample_tensor_bytes(&layer[i], RESHARD_BF16) / 2;
    uint64_t embedding = (uint64_t)(model->vocabulary * model->hidden);
    uint64_t elements = (uint64_t)model->layers * layer_elements + (uint64_t)model->hidden +
                        embedding * (model->tied ? 1 : 2);
    return elements * (model->dtype == RESHARD_BF16 ? 2 : 4);
}

void bench_sample_choose(uint64_t bytes, reshard_dtype dtype, bench_sample_model *out_model)
{
    for (int i = 0; i < LADDER_COUNT; i++) {
        bench_sample_model model = ladder[i];
        model.dtype = dtype;
        uint64_t outer = bench_sample_bytes(&model);
        model.layers = 1;
        uint64_t layer = bench_sample_bytes(&model) - outer;
        if (bytes > outer)
            model.layers = (int64_t)((bytes - outer + layer / 2) / layer);
        *out_model = model;
        if (bytes > outer && model.layers >= LAYERS_WANTED)
            return;
    }
    if (out_model->layers < 1)
        out_model->layers = 1;
}

/* ---- files ----------------------------------------------------------------------------------- */

static char *join(const char *folder, const char *name)
{
    size_t room = strlen(folder) + strlen(name) + 2;
    char *path = cli_allocate(room, 1);
    snprintf(path, room, "%s/%s", folder, name);
    return path;
}

static int make_folder(const char *folder)
{
    return mkdir(folder, 0777) == 0
               ? CLI_DONE
               : cli_fail(CLI_FAILED, "%s: cannot be made: %s", folder, strerror(errno));
}

static int write_config(const char *folder, const bench_sample_model *model)
{
    char text[1024];
    char *path = join(folder, "config.json");
    snprintf(text, sizeof text,
             "{\n  \"architectures\": [\"LlamaForCausalLM\"],\n  \"model_type\": \"llama\",\n"
             "  \"hidden_size\": %" PRId64 ",\n  \"intermediate_size\": %" PRId64 ",\n"
             "  \"vocab_size\": %" PRId64 ",\n  \"num_hidden_layers\": %" PRId64 ",\n"
             "  \"num_attention_heads\": %" PRId64 ",\n  \"num_key_value_heads\": %" PRId64 ",\n"
             "  \"head_dim\": %" PRId64 ",\n  \"tie_word_embeddings\": %s,\n"
             "  \"torch_dtype\": \"%s\"\n}\n",
             model->hidden, model->feed_forward, model->vocabulary, model->layers, model->heads,
             model->key_value_heads, model->head_size, model->tied ? "true" : "false",
             model->dtype == RESHARD_BF16 ? "bfloat16" : "float32");
    int code = bench_text_file_write(path, text);
    free(path);
    return code;
}

int bench_sample_write(cli_work *work, const char *folder, const bench_sample_model *model)
{
    int code = make_folder(folder);
    if (code != CLI_DONE)
        return code;
    uint64_t done = 0;
    char *path = join(folder, "model.safetensors");
    bench_sample_tensor *tensors = list_tensors(model);
    code = write_config(folder, model);
    if (code == CLI_DONE)
        code = bench_sample_file_write(work, path, model->dtype, tensors,
                                       bench_sample_tensor_count(model), &done,
                                       bench_sample_bytes(model));
    free(tensors);
    free(path);
    return code;
}

/* ---- many small tensors ---------------------------------------------------------------------- */

static void crowd_file_name(int64_t file, int64_t file_count, char name[64])
{
    snprintf(name, 64, "model-%05" PRId64 "-of-%05" PRId64 ".safetensors", file + 1, file_count);
}

static int write_crowd_index(const char *folder, const bench_sample_tensor *tensors, int64_t count,
                             int64_t file_count)
{
    size_t room = (size_t)count * 128 + 128;
    char *text = cli_allocate(room, 1), *path = join(folder, "model.safetensors.index.json");
    int64_t each = (count + file_count - 1) / file_count;
    size_t used =
        (size_t)snprintf(text, room, "{\"metadata\":{\"total_size\":%" PRId64 "},\"weight_map\":{",
                         count * CROWD_EXTENT * 2);
    for (int64_t i = 0; i < count; i++) {
        char name[64];
        crowd_file_name(i / each, file_count, name);
        used += (size_t)snprintf(text + used, room - used, "%s\"%s\":\"%s\"", i == 0 ? "" : ",",
                                 tensors[i].name, name);
    }
    snprintf(text + used, room - used, "}}\n");
    int code = bench_text_file_write(path, text);
    free(path);
    free(text);
    return code;
}

int bench_sample_write_crowd(cli_work *work, const char *folder, int64_t count, int64_t file_count)
{
    int code = make_folder(folder);
    if (code != CLI_DONE)
        return code;
    uint64_t done = 0;
    int64_t each = (count + file_count - 1) / file_count;
    bench_sample_tensor *tensors = cli_allocate((size_t)count, sizeof *tensors);
    for (int64_t i = 0; i < count; i++) {
        char name[36];
        snprintf(name, sizeof name, "tensors.%06" PRId64 ".weight", i);
        set_tensor(&tensors[i], "", name, CROWD_EXTENT, 0);
    }
    code = write_crowd_index(folder, tensors, count, file_count);
    for (int64_t i = 0; i < file_count && code == CLI_DONE; i++) {
        char name[64];
        int64_t first = i * each < count ? i * each : count;
        int64_t here = count - first < each ? count - first : each;
        crowd_file_name(i, file_count, name);
        char *path = join(folder, name);
        code = bench_sample_file_write(work, path, RESHARD_BF16, tensors + first, here, &done,
                                       (uint64_t)(count * CROWD_EXTENT * 2));
        free(path);
    }
    free(tensors);
    return code;
}
