/* SPDX-License-Identifier: Apache-2.0 */
/* legacy_names.c - see megatron.h: two tables of old names, and where numbers stand in a
 * name. */
#include "checkpoint/dcp/megatron.h"

#include "base/error.h"
#include "text/text.h"

#include <stdio.h>
#include <string.h>

/* What older releases called parts of a layer. */
static const struct {
    const char *old, *new;
} parts[] = {
    {"input_layernorm.", "self_attention.linear_qkv.layer_norm_"},
    {"input_norm.", "self_attention.linear_qkv.layer_norm_"},
    {"self_attention.query_key_value.", "self_attention.linear_qkv."},
    {"self_attention.dense.", "self_attention.linear_proj."},
    {"post_attention_layernorm.", "mlp.linear_fc1.layer_norm_"},
    {"post_attention_norm.", "mlp.linear_fc1.layer_norm_"},
    {"mlp.dense_h_to_4h.", "mlp.linear_fc1."},
    {"mlp.dense_4h_to_h.", "mlp.linear_fc2."},
};

/* The same for what is outside of layers. */
static const struct {
    const char *old, *new;
} ends[] = {
    {"language_model.embedding.", "embedding."},
    {"language_model.output_layer.", "output_layer."},
    {"word_embeddings_for_head.", "output_layer."},
    {"language_model.encoder.final_layernorm.", "decoder.final_layernorm."},
    {"language_model.encoder.final_norm.", "decoder.final_layernorm."},
    {"language_model.transformer.final_layernorm.", "decoder.final_layernorm."},
    {"language_model.encoder.layers.", "decoder.layers."},
    {"language_model.transformer.layers.", "decoder.layers."},
};

static void replace_front(const char *rest, size_t count, const char *old, const char *new,
                          char *out, size_t room, bool *out_done)
{
    size_t length = strlen(old);
    if (*out_done || count < length || memcmp(rest, old, length) != 0)
        return;
    (void)snprintf(out, room, "%s%.*s", new, (int)(count - length), rest + length);
    *out_done = true;
}

const char *rs_legacy_number(const char *text, int64_t *out_number)
{
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 9)
        return NULL;
    *out_number = 0;
    for (size_t i = 0; i < digits; i++)
        *out_number = *out_number * 10 + (text[i] - '0');
    return text + digits;
}

/* Experts of a layer: local_experts.J.linear_fcK.weight, or linear_fcK.weightJ. */
static bool translate_expert(const char *rest, char *out, size_t room, int64_t *out_expert)
{
    static const char front[] = "mlp.experts.", local[] = "local_experts.";
    const char *behind;
    if (strncmp(rest, front, sizeof front - 1) != 0)
        return false;
    rest += sizeof front - 1;
    if (strncmp(rest, local, sizeof local - 1) == 0) {
        behind = rs_legacy_number(rest + sizeof local - 1, out_expert);
        if (behind == NULL || *behind != '.')
            return false;
        (void)snprintf(out, room, "mlp.experts.experts.%s", behind + 1);
        return true;
    }
    size_t last = strlen(rest);
    while (last > 0 && rs_is_digit(rest[last - 1]))
        last--;
    if (last == strlen(rest) || rs_legacy_number(rest + last, out_expert) == NULL)
        return false;
    (void)snprintf(out, room, "mlp.experts.experts.%.*s", (int)last, rest);
    return true;
}

reshard_status rs_legacy_split(const char *local, char name[RS_LEGACY_NAME_BYTES],
                               int64_t *out_number, const char **out_behind)
{
    static const char layers[] = "decoder.layers.";
    bool done = false;
    if (strlen(local) >= RS_LEGACY_NAME_BYTES - 64) /* what replaces a part may be longer */
        return rs_fail(RESHARD_ERR_RANGE, "tensor \"%.200s..\": its name has more than %d bytes",
                       local, RS_LEGACY_NAME_BYTES - 64);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        replace_front(local, strlen(local), ends[i].old, ends[i].new, name, RS_LEGACY_NAME_BYTES,
                      &done);
    if (!done)
        (void)snprintf(name, RS_LEGACY_NAME_BYTES, "%s", local);
    *out_number = 0;
    *out_behind = NULL;
    if (strncmp(name, layers, sizeof layers - 1) == 0) {
        const char *behind = rs_legacy_number(name + sizeof layers - 1, out_number);
        *out_behind = behind != NULL && *behind == '.' ? behind : NULL;
    }
    return RESHARD_OK;
}

void rs_legacy_part(const char *behind, char out_part[RS_LEGACY_NAME_BYTES], int64_t *out_expert)
{
    char rest[RS_LEGACY_NAME_BYTES];
    bool done = false;
    *out_expert = -1;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        replace_front(behind, strlen(behind), parts[i].old, parts[i].new, rest, sizeof rest, &done);
    if (!done)
        (void)snprintf(rest, sizeof rest, "%s", behind);
    if (!translate_expert(rest, out_part, RS_LEGACY_NAME_BYTES, out_expert))
        memcpy(out_part, rest, sizeof rest);
}

bool rs_legacy_ends_with(const char *name, const char *ending)
{
    size_t length = strlen(name), count = strlen(ending);
    return length > count && strcmp(name + length - count, ending) == 0;
}

int32_t rs_legacy_cut(const char *name)
{
    static const char *const rows[] = {"embedding.word_embeddings.weight",
                                       "output_layer.weight",
                                       ".linear_qkv.weight",
                                       ".linear_qkv.bias",
                                       ".linear_fc1.weight",
                                       ".linear_fc1.bias",
                                       ".linear_q_proj.weight",
                                       ".linear_q_up_proj.weight",
                                       ".linear_kv_up_proj.weight",
                                       ".softmax_offset",
                                       ".eh_proj.weight"};
    static const char *const columns[] = {".linear_proj.weight", ".linear_fc2.weight"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rs_legacy_ends_with(name, rows[i]) || strcmp(name, rows[i]) == 0)
            return 0;
    }
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        if (rs_legacy_ends_with(name, columns[i]))
            return 1;
    }
    return -1;
}
