/* SPDX-License-Identifier: Apache-2.0 */
/* namings.c - the table of namings. */
#include "checkpoint/namings/namings.h"

#include "base/error.h"
#include "spec/scan.h"
#include "text/text.h"

#include <string.h>

/* Those whose names others have too, besides their own, come later; hf is the last. */
const rs_naming rs_namings[] = {
    {.name = "megatron",
     .summary = "Megatron-Core: torch_dist, layers stacked or numbered",
     .signs = {"embedding.word_embeddings.weight", "decoder.layers.*self_attention.linear_proj.*"},
     .is_for_training = true,
     .format = "megatron",
     .split_format = "megatron",
     .rules = "megatron",
     .mesh = "tp=1",
     .leftovers = "model.*"},
    {.name = "meta",
     .summary = "Meta's files of Llama 1 to 4: consolidated.NN.pth and params.json",
     /* The dense names are also those of torchtitan's first releases, in the same order of rows. */
     .signs = {"rope.freqs", "layers.*.attention.inner_attention.rope.freqs",
               "layers.*.attention.wqkv.layer_norm_weight"},
     .shared = {"layers.*.attention.wq.weight"},
     .format = "consolidated",
     .split_format = "consolidated",
     .mesh = "tp=1",
     .rules = "meta",
     .has_params = true},
    {.name = "mistral",
     .summary = "Mistral's files of Mistral and Mixtral: consolidated.safetensors and params.json",
     .signs = {"layers.*.feed_forward.experts.{0..}.w1.weight"},
     .shared = {"layers.*.attention.wq.weight"},
     .format = "hf",
     .split_format = "hf",
     .stem = "consolidated",
     .rules = "meta",
     .has_params = true,
     .is_one_file = true},
    {.name = "titan",
     .summary = "torchtitan: Llama 3, Qwen3, DeepSeek-V3 and GPT-OSS, as a DCP folder",
     .signs = {"*layers.*.attention.qkv_linear.wq.weight", "*layers.*.attention.wq.weight",
               "*layers.*.attention.wkv_a.weight"},
     .is_for_training = true,
     .format = "dcp",
     .split_format = "dcp",
     .mesh = "fsdp=1"},
    {.name = "vllm",
     .summary = "vLLM, as it loads sharded_state: fused tensors, a file for each rank of tp",
     .signs = {"*attn._k_scale", "*.w13_weight", "*.self_attn.mla_attn.*"},
     .format = "sharded-state",
     .split_format = "sharded-state",
     .mesh = "tp=1",
     .rules = "vllm"},
    {.name = "sglang",
     .summary = "SGLang, dense models: as vllm, without scales of its cache",
     .signs = {"*.self_attn.qkv_proj.weight"},
     .is_by_type = true,
     .format = "sharded-state",
     .split_format = "sharded-state",
     .mesh = "tp=1",
     .rules = "vllm"},
    {.name = "hf5",
     .summary = "Hugging Face, with all experts of a layer in one tensor (transformers 5)",
     .signs = {"*.mlp.experts.gate_up_proj"},
     /* GPT-OSS has no other form, so its names are those of hf. */
     .others = {"*.mlp.experts.gate_up_proj_bias", "*.mlp.experts.gate_up_proj_blocks"},
     .leftovers = "*.experts.{0..}.*"},
    {.name = "universal",
     .summary = "DeepSpeed's universal checkpoints: Hugging Face's names, a folder for each",
     .is_for_training = true,
     .format = "universal",
     .has_hf_names = true},
    {.name = "gguf",
     .summary = "GGUF, as llama.cpp names tensors",
     .signs = {"blk.{0..}.attn_norm.weight", "blk.{0..}.ffn_down.weight"},
     .format = "gguf",
     .split_format = "gguf"},
    {.name = "hf", .summary = "Hugging Face: the names in a model's repository"},
    {.name = NULL},
};

const rs_naming *rs_naming_named(const char *name)
{
    for (const rs_naming *naming = rs_namings; naming->name != NULL; naming++) {
        if (strcmp(naming->name, name) == 0)
            return naming;
    }
    return NULL;
}

const rs_naming *rs_naming_hf(void)
{
    return rs_naming_named("hf");
}

reshard_status rs_naming_find(const char *name, const rs_naming **out_naming)
{
    char buffer[400];
    rs_text list;
    *out_naming = rs_naming_named(name);
    if (*out_naming != NULL)
        return RESHARD_OK;
    rs_text_init(&list, buffer, sizeof buffer);
    for (const rs_naming *naming = rs_namings; naming->name != NULL; naming++)
        rs_text_add(&list, "%s%s", naming == rs_namings ? "" : ", ", naming->name);
    return rs_fail(RESHARD_ERR_NOT_FOUND,
                   "there is no naming \"%s\"; give one of %s, or a map of your own",
                   rs_excerpt_of(name, strlen(name)).text, buffer);
}
