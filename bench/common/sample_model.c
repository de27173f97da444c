/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sample_model.c - the shapes of sample models, and the files around their tensors.
 */
#include "bench/common/sample_model.h"

#include "cli/common/failure.h"
#include "cli/common/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { LAYERS_WANTED = 6, CROWD_EXTENT = 512 };
/* A dense layer; and one with experts, which has three tensors each, a router and two norms
 * more. */
enum { DENSE_TENSORS = 9, EXPERT_TENSORS = 9, LAYER_TENSORS_MAX = 9 + 3 * BENCH_SAMPLE_EXPERTS };

/* Starts with the shapes of Llama 3 with 8 and with 1 billion parameters, and goes down from
 * there. */
static const bench_sample_model ladder[] = {
    {4096, 14336, 128256, 32, 8, 128, 0, 0, RESHARD_BF16, 0},
    {2048, 8192, 128256, 32, 8, 64, 0, 1, RESHARD_BF16, 0},
    {1024, 4096, 32000, 16, 8, 64, 0, 0, RESHARD_BF16, 0},
    {512, 2048, 8192, 16, 8, 32, 0, 0, RESHARD_BF16, 0},
    {128, 512, 1024, 16, 8, 8, 0, 0, RESHARD_BF16, 0},
    {64, 256, 256, 8, 8, 8, 0, 0, RESHARD_BF16, 0},
};

enum { LADDER_COUNT = (int)(sizeof ladder / sizeof ladder[0]) };

/* ---- tensors --------------------------------------------------------------------------------- */

static void set_tensor(bench_sample_tensor *tensor, const char *prefix, const char *name,
                       int64_t rows, int64_t columns)
{
    *tensor = (bench_sample_tensor){.ndim = columns != 0 ? 2 : 1, .shape = {rows, columns}};
    snprintf(tensor->name, sizeof tensor->name, "%.26s%.36s", prefix, name);
}

static bench_sample_tensor *fill_mlp(const bench_sample_model *model, const char *prefix,
                                     const char *inside, int64_t rows, bench_sample_tensor *tensors)
{
    static const char *const parts[] = {"down", "gate", "up"};
    for (int i = 0; i < 3; i++) {
        char name[48];
        snprintf(name, sizeof name, "%.20s%s_proj.weight", inside, parts[i]);
        set_tensor(tensors++, prefix, name, i == 0 ? model->hidden : rows,
                   i == 0 ? rows : model->hidden);
    }
    return tensors;
}

static bench_sample_tensor *fill_experts(const bench_sample_model *model, const char *prefix,
                                         bench_sample_tensor *tensors)
{
    for (int64_t i = 0; i < model->experts; i++) {
        char inside[40];
        snprintf(inside, sizeof inside, "mlp.experts.%" PRId64 ".", i);
        tensors = fill_mlp(model, prefix, inside, model->feed_forward / BENCH_SAMPLE_EXPERT_PART,
                           tensors);
    }
    set_tensor(tensors++, prefix, "mlp.gate.weight", model->experts, model->hidden);
    set_tensor(tensors++, prefix, "self_attn.k_norm.weight", model->head_size, 0);
    set_tensor(tensors++, prefix, "self_attn.q_norm.weight", model->head_size, 0);
    return tensors;
}

static void fill_layer(const bench_sample_model *model, int64_t layer, bench_sample_tensor *tensors)
{
    int64_t hidden = model->hidden, query_rows = model->heads * model->head_size;
    int64_t key_rows = model->key_value_heads * model->head_size;
    char prefix[48];
    snprintf(prefix, sizeof prefix, "model.layers.%" PRId64 ".", layer);
    set_tensor(tensors++, prefix, "input_layernorm.weight", hidden, 0);
    tensors = model->experts == 0 ? fill_mlp(model, prefix, "mlp.", model->feed_forward, tensors)
                                  : fill_experts(model, prefix, tensors);
    set_tensor(tensors++, prefix, "post_attention_layernorm.weight", hidden, 0);
    set_tensor(tensors++, prefix, "self_attn.k_proj.weight", key_rows, hidden);
    set_tensor(tensors++, prefix, "self_attn.o_proj.weight", hidden, query_rows);
    set_tensor(tensors++, prefix, "self_attn.q_proj.weight", query_rows, hidden);
    set_tensor(tensors++, prefix, "self_attn.v_proj.weight", key_rows, hidden);
}

static int64_t layer_tensors(const bench_sample_model *model)
{
    return model->experts == 0 ? DENSE_TENSORS : EXPERT_TENSORS + 3 * model->experts;
}

int64_t bench_sample_tensor_count(const bench_sample_model *model)
{
    return model->layers * layer_tensors(model) + (model->tied ? 2 : 3);
}

static bench_sample_tensor *list_tensors(const bench_sample_model *model)
{
    bench_sample_tensor *tensors =
        cli_allocate((size_t)bench_sample_tensor_count(model), sizeof *tensors);
    bench_sample_tensor *next = tensors;
    set_tensor(next++, "", "model.embed_tokens.weight", model->vocabulary, model->hidden);
    for (int64_t i = 0; i < model->layers; i++, next += layer_tensors(model))
        fill_layer(model, i, next);
    set_tensor(next++, "", "model.norm.weight", model->hidden, 0);
    if (!model->tied)
        set_tensor(next++, "", "lm_head.weight", model->vocabulary, model->hidden);
    return tensors;
}

uint64_t bench_sample_bytes(const bench_sample_model *model)
{
    bench_sample_tensor layer[LAYER_TENSORS_MAX];
    uint64_t layer_elements = 0;
    fill_layer(model, 0, layer);
    for (int64_t i = 0; i < layer_tensors(model); i++)
        layer_elements += bench_sample_tensor_bytes(&layer[i], RESHARD_BF16) / 2;
    uint64_t embedding = (uint64_t)(model->vocabulary * model->hidden);
    uint64_t elements = (uint64_t)model->layers * layer_elements + (uint64_t)model->hidden +
                        embedding * (model->tied ? 1 : 2);
    return elements * (model->dtype == RESHARD_BF16 ? 2 : 4);
}

void bench_sample_choose(uint64_t bytes, reshard_dtype dtype, int64_t experts,
                         bench_sample_model *out_model)
{
    for (int i = 0; i < LADDER_COUNT; i++) {
        bench_sample_model model = ladder[i];
        model.dtype = dtype;
        model.experts = experts;
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
    char text[1024], type[256];
    char *path = join(folder, "config.json");
    if (model->experts == 0)
        snprintf(type, sizeof type,
                 "  \"architectures\": [\"LlamaForCausalLM\"],\n  \"model_type\": \"llama\",\n");
    else
        snprintf(type, sizeof type,
                 "  \"architectures\": [\"Qwen3MoeForCausalLM\"],\n"
                 "  \"model_type\": \"qwen3_moe\",\n  \"num_experts\": %" PRId64 ",\n"
                 "  \"moe_intermediate_size\": %" PRId64 ",\n",
                 model->experts, model->feed_forward / BENCH_SAMPLE_EXPERT_PART);
    snprintf(text, sizeof text,
             "{\n%s"
             "  \"hidden_size\": %" PRId64 ",\n  \"intermediate_size\": %" PRId64 ",\n"
             "  \"vocab_size\": %" PRId64 ",\n  \"num_hidden_layers\": %" PRId64 ",\n"
             "  \"num_attention_heads\": %" PRId64 ",\n  \"num_key_value_heads\": %" PRId64 ",\n"
             "  \"head_dim\": %" PRId64 ",\n  \"tie_word_embeddings\": %s,\n"
             "  \"torch_dtype\": \"%s\"\n}\n",
             type, model->hidden, model->feed_forward, model->vocabulary, model->layers,
             model->heads, model->key_value_heads, model->head_size, model->tied ? "true" : "false",
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
