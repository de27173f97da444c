/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config_compare.c - the numbers of a model that the shapes of its tensors do not show, or not by
 * themselves. A configuration with others of them fits the same tensors, and makes a model that
 * loads and computes something else. How many tokens a model may see is not among them: files
 * differ in it on purpose.
 */
#include "checkpoint/rules/config.h"

#include <stdlib.h>
#include <string.h>

typedef struct compared_key {
    const char *key;
    const char *instead; /* what counts if the key is missing; NULL: nothing */
    unsigned kind;
} compared_key;

static const compared_key compared[] = {
    {"num_attention_heads", NULL, RS_CONFIG_ORDER},
    {"num_key_value_heads", "num_attention_heads", RS_CONFIG_ORDER},
    {"head_dim", NULL, RS_CONFIG_ORDER},
    {"first_k_dense_replace", NULL, RS_CONFIG_ORDER},
    {"qk_rope_head_dim", NULL, RS_CONFIG_ORDER},
    {"v_head_dim", NULL, RS_CONFIG_ORDER},
    {"rope_theta", "rope_parameters.rope_theta", RS_CONFIG_VALUES},
    {"rope_scaling.factor", "rope_parameters.factor", RS_CONFIG_VALUES},
    {"partial_rotary_factor", "rope_parameters.partial_rotary_factor", RS_CONFIG_VALUES},
    {"rms_norm_eps", NULL, RS_CONFIG_VALUES},
    {"num_experts_per_tok", NULL, RS_CONFIG_VALUES},
    {"routed_scaling_factor", NULL, RS_CONFIG_VALUES},
    {"attn_logit_softcapping", NULL, RS_CONFIG_VALUES},
    {"final_logit_softcapping", NULL, RS_CONFIG_VALUES},
    {"attention_multiplier", NULL, RS_CONFIG_VALUES},
    {"embedding_multiplier", NULL, RS_CONFIG_VALUES},
    {"residual_multiplier", NULL, RS_CONFIG_VALUES},
    {"logits_scaling", NULL, RS_CONFIG_VALUES},
};
#define COMPARED_COUNT (sizeof compared / sizeof *compared)

/* The value that counts, as JSON; NULL: there is none. */
static const char *find_value(const rs_config *config, const compared_key *row)
{
    const char *json = rs_config_find_nested(config, row->key);
    return json == NULL && row->instead != NULL ? rs_config_find_nested(config, row->instead)
                                                : json;
}

/* With latent attention, what is called the size of a head is one of several sizes, and programs
 * differ in which. */
static bool is_ambiguous(const rs_config *config, const char *key)
{
    return strcmp(key, "head_dim") == 0 && rs_config_find_nested(config, "kv_lora_rank") != NULL;
}

/* Reads a number, as precisely as key-values of GGUF have it. */
static bool read_number(const char *json, float *out_number)
{
    char *end = NULL;
    *out_number = (float)strtod(json, &end);
    return end != json && *end == '\0';
}

bool rs_config_contradicts(const rs_config *one, const rs_config *other, unsigned kinds,
                           rs_config_clash *out_clash)
{
    for (size_t i = 0; i < COMPARED_COUNT; i++) {
        const compared_key *row = &compared[i];
        float wanted = 0, found = 0;
        const char *first = find_value(one, row), *second = find_value(other, row);
        if ((row->kind & kinds) == 0 || first == NULL || second == NULL ||
            rs_config_is_set(other, row->key) || is_ambiguous(one, row->key) ||
            is_ambiguous(other, row->key) || !read_number(first, &wanted) ||
            !read_number(second, &found) || wanted == found)
            continue;
        *out_clash = (rs_config_clash){row->key, row->kind, first, second};
        return true;
    }
    return false;
}

void rs_config_record(const rs_config *config, rs_json_writer *writer)
{
    const char *type = config->model_type;
    rs_json_writer_text(writer, "{\"model_type\": ");
    if (type != NULL)
        rs_json_writer_string(writer, rs_slice_of(type));
    else
        rs_json_writer_text(writer, "null");
    for (size_t i = 0; i < COMPARED_COUNT; i++) {
        const char *json = find_value(config, &compared[i]);
        if (json == NULL)
            continue;
        rs_json_writer_text(writer, ", \"");
        rs_json_writer_text(writer, compared[i].key);
        rs_json_writer_text(writer, "\": ");
        rs_json_writer_text(writer, json);
    }
    rs_json_writer_text(writer, "}");
}
