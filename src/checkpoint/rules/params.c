/* SPDX-License-Identifier: Apache-2.0 */
/*
 * params.c - the keys of params.json, which describes a model beside Meta's and Mistral's own
 * files, and those of config.json for the same values.
 */
#include "checkpoint/rules/config.h"

#include <string.h>

#define MISTRALS (RS_PARAMS_MISTRAL | RS_PARAMS_MIXTRAL)

/* Some files have all of it inside an object "model". */
static const char wrapper[] = "model.";

const rs_params_key rs_params_keys[] = {
    {"dim", "hidden_size", RS_PARAMS_ALL},
    {"n_layers", "num_hidden_layers", RS_PARAMS_ALL},
    {"head_dim", "head_dim", MISTRALS},
    {"hidden_dim", "intermediate_size", MISTRALS},
    {"n_heads", "num_attention_heads", RS_PARAMS_ALL},
    {"n_kv_heads", "num_key_value_heads", RS_PARAMS_ALL},
    {"vocab_size", "vocab_size", RS_PARAMS_ALL},
    {"norm_eps", "rms_norm_eps", RS_PARAMS_ALL},
    {"rope_theta", "rope_theta", RS_PARAMS_ALL},
    {"sliding_window", "sliding_window", MISTRALS},
    {"max_seq_len", "max_position_embeddings", MISTRALS},
    {"tied_embeddings", "tie_word_embeddings", MISTRALS},
    {"moe.num_experts", "num_local_experts", RS_PARAMS_MIXTRAL},
    {"moe.num_experts_per_tok", "num_experts_per_tok", RS_PARAMS_MIXTRAL},
    {"use_qk_norm", "use_qk_norm", RS_PARAMS_LLAMA4},
    {"attention_chunk_size", "attention_chunk_size", RS_PARAMS_LLAMA4},
    {"nope_layer_interval", "no_rope_layer_interval", RS_PARAMS_LLAMA4},
    {"moe_args.num_experts", "num_local_experts", RS_PARAMS_LLAMA4},
    {"moe_args.top_k", "num_experts_per_tok", RS_PARAMS_LLAMA4},
    {"moe_args.interleave_moe_layer_step", "interleave_moe_layer_step", RS_PARAMS_LLAMA4},
    {NULL, NULL, 0},
};

static const char *unwrap(const char *key)
{
    size_t length = sizeof wrapper - 1;
    return strncmp(key, wrapper, length) == 0 ? key + length : key;
}

const char *rs_params_config_key(const char *key)
{
    key = unwrap(key);
    for (const rs_params_key *row = rs_params_keys; row->params != NULL; row++) {
        if (strcmp(row->params, key) == 0)
            return row->config;
    }
    return key;
}

static bool has_key(const rs_config *params, const char *key)
{
    const char *found;
    for (int64_t i = 0; (found = rs_config_key_at(params, i)) != NULL; i++) {
        if (strcmp(unwrap(found), key) == 0)
            return true;
    }
    return false;
}

void rs_params_recognise(const rs_config *params, const char **out_dialect,
                         const char **out_model_type)
{
    bool is_llama4 = has_key(params, "moe_args.num_experts") || has_key(params, "use_qk_norm") ||
                     has_key(params, "nope_layer_interval");
    bool has_experts = has_key(params, "moe.num_experts");
    if (!has_key(params, "dim") || !has_key(params, "n_layers") || !has_key(params, "n_heads"))
        return;
    /* Meta's files give the width of layers by a formula, Mistral's as a number. */
    bool is_mistral = has_key(params, "hidden_dim");
    *out_dialect = is_mistral ? "mistral" : "meta";
    if (is_mistral)
        *out_model_type = has_experts ? "mixtral" : "mistral";
    else
        *out_model_type = is_llama4 ? "llama4" : "llama";
}
