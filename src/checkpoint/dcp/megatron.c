/* SPDX-License-Identifier: Apache-2.0 */
/* megatron.c - recognises Megatron-Core's folders and keys, and learns what the arguments of the
 * training run say about the model. */
#include "checkpoint/dcp/megatron.h"

#include "base/context.h"
#include "base/error.h"
#include "checkpoint/select/parameter.h"
#include "checkpoint/torch/torch_files.h"
#include "text/json.h"

#include <string.h>

#define ABOUT_BYTES_MAX ((size_t)1 << 20)

/* ---- folders --------------------------------------------------------------------------------- */

/* Finds the backend in metadata.json. A text that is not of Megatron is no error. */
static bool find_backend(const char *text, size_t bytes, char out_name[64])
{
    rs_json json;
    rs_json_token token;
    rs_json_init(&json, RS_MEGATRON_ABOUT_NAME, text, bytes);
    if (rs_json_next(&json, &token) != RESHARD_OK || token.kind != RS_JSON_OBJECT_BEGIN)
        return false;
    while (rs_json_next(&json, &token) == RESHARD_OK && token.kind == RS_JSON_KEY) {
        bool is_backend = rs_json_token_is(&token, "sharded_backend");
        if (rs_json_next(&json, &token) != RESHARD_OK)
            return false;
        if (is_backend && token.kind == RS_JSON_STRING && token.count < 64) {
            out_name[rs_json_decode(&token, out_name)] = '\0';
            return true;
        }
        if (rs_json_skip_rest(&json, &token) != RESHARD_OK)
            return false;
    }
    return false;
}

reshard_status rs_megatron_probe(const reshard_checkpoint *checkpoint, bool *out_is)
{
    char backend[64] = "", *text = NULL;
    size_t bytes = 0;
    char *path = rs_path_join(checkpoint->context, checkpoint->folder, RS_MEGATRON_ABOUT_NAME);
    if (path == NULL)
        return rs_allocation_status();
    reshard_status status =
        rs_file_read_all(checkpoint->context, path, ABOUT_BYTES_MAX, &text, &bytes);
    rs_release(checkpoint->context, path);
    *out_is = false;
    if (status != RESHARD_OK)
        return status == RESHARD_ERR_NO_MEMORY ? status : RESHARD_OK;
    bool is_named = find_backend(text, bytes, backend);
    rs_release(checkpoint->context, text);
    if (is_named && strcmp(backend, "zarr") == 0)
        return rs_fail_about(
            RESHARD_ERR_UNSUPPORTED, checkpoint->path,
            "checkpoints of Megatron's old backend zarr cannot be read; save it as torch_dist");
    *out_is = is_named && strcmp(backend, "torch_dist") == 0;
    return RESHARD_OK;
}

/* ---- keys ------------------------------------------------------------------------------------ */

static bool contains(rs_slice name, const char *part)
{
    size_t count = strlen(part);
    for (size_t i = 0; i + count <= name.count; i++) {
        if (memcmp(name.bytes + i, part, count) == 0)
            return true;
    }
    return false;
}

const char *rs_megatron_kind_of(rs_slice name)
{
    if (contains(name, "._extra_state/shard_"))
        return "states of Transformer Engine (_extra_state)";
    if (rs_slice_begins(name, "rng_state"))
        return "random states of ranks (rng_state)";
    if (rs_slice_begins(name, "rerun_state_machine_state"))
        return "states of the rerun machine";
    return rs_slice_begins(rs_state_name(name), "optimizer")
               ? "states of an optimizer, gathered as objects"
               : NULL;
}

int32_t rs_megatron_lead(rs_slice name)
{
    static const char layers[] = "decoder.layers.";
    size_t at = sizeof layers - 1;
    bool is_stacked = false;
    for (size_t i = 0; i + at < name.count; i++) {
        char next = name.bytes[i + at];
        if (memcmp(name.bytes + i, layers, at) == 0)
            is_stacked = next < '0' || next > '9';
    }
    return (int32_t)is_stacked + (int32_t)contains(name, ".mlp.experts.experts.");
}

/* ---- arguments ------------------------------------------------------------------------------- */

/* What a configuration calls an argument that is a number. */
static const struct {
    const char *argument, *key;
} numbers[] = {
    {"num_layers", "num_hidden_layers"},
    {"hidden_size", "hidden_size"},
    {"num_attention_heads", "num_attention_heads"},
    {"kv_channels", "head_dim"},
    {"ffn_hidden_size", "intermediate_size"},
    {"vocab_size", "vocab_size"},
    {"num_experts", "num_local_experts"},
    {"moe_ffn_hidden_size", "moe_intermediate_size"},
    {"mtp_num_layers", "num_nextn_predict_layers"},
};
/* Those that have defaults, and mean something only with latent attention. */
static const struct {
    const char *argument, *key;
} latents[] = {
    {"q_lora_rank", "q_lora_rank"},      {"kv_lora_rank", "kv_lora_rank"},
    {"qk_head_dim", "qk_nope_head_dim"}, {"qk_pos_emb_head_dim", "qk_rope_head_dim"},
    {"v_head_dim", "v_head_dim"},
};
#define NUMBER_COUNT (sizeof numbers / sizeof *numbers)
#define LATENT_COUNT (sizeof latents / sizeof *latents)
#define KEYS_MAX (NUMBER_COUNT + LATENT_COUNT + 5)

typedef struct learning {
    const rs_pickle_node *arguments; /* a dict */
    int64_t count;
    rs_stored_key keys[KEYS_MAX];
} learning;

static bool is_true(const learning *l, const char *argument)
{
    const rs_pickle_node *node = rs_pickle_get(l->arguments, argument);
    return rs_pickle_is(node, RS_PICKLE_BOOL) && node->truth;
}

static void add_number(learning *l, const char *argument, const char *key)
{
    int64_t value = 0;
    if (rs_pickle_int(rs_pickle_get(l->arguments, argument), &value))
        l->keys[l->count++] = (rs_stored_key){key, value};
}

/* How many layers without experts come first: moe_layer_freq is [0, .., 0, 1, .., 1] then. */
static void add_dense(learning *l)
{
    const rs_pickle_node *list = rs_pickle_get(l->arguments, "moe_layer_freq");
    size_t count = rs_pickle_is(list, RS_PICKLE_LIST) ? rs_pickle_count(list) : 0, dense = 0;
    int64_t value = 0;
    while (dense < count && rs_pickle_int(rs_pickle_item(list, dense), &value) && value == 0)
        dense++;
    for (size_t i = dense; i < count; i++) {
        if (!rs_pickle_int(rs_pickle_item(list, i), &value) || value != 1)
            return;
    }
    if (count != 0)
        l->keys[l->count++] = (rs_stored_key){"first_k_dense_replace", (int64_t)dense};
}

/* Does the model have rotary embeddings? */
static bool has_angles(const learning *l)
{
    rs_slice kind;
    return rs_pickle_text(rs_pickle_get(l->arguments, "position_embedding_type"), &kind) &&
           rs_slice_equals(kind, "rope");
}

static void learn_arguments(learning *l)
{
    const rs_pickle_node *tied = rs_pickle_get(l->arguments, "untie_embeddings_and_output_weights");
    for (size_t i = 0; i < NUMBER_COUNT; i++)
        add_number(l, numbers[i].argument, numbers[i].key);
    for (size_t i = 0; is_true(l, "multi_latent_attention") && i < LATENT_COUNT; i++)
        add_number(l, latents[i].argument, latents[i].key);
    add_number(l, is_true(l, "group_query_attention") ? "num_query_groups" : "num_attention_heads",
               "num_key_value_heads");
    if (has_angles(l))
        add_number(l, "rotary_base", "rope_theta");
    if (rs_pickle_is(tied, RS_PICKLE_BOOL))
        l->keys[l->count++] = (rs_stored_key){"tie_word_embeddings", !tied->truth};
    if (is_true(l, "attention_output_gate"))
        l->keys[l->count++] = (rs_stored_key){"attn_output_gate", 1};
    add_dense(l);
}

/* The dict of the common state; NULL if there is none. */
static const rs_pickle_node *find_common(reshard_checkpoint *checkpoint, int32_t file)
{
    const rs_pickle_node *entry = NULL;
    size_t bytes = 0;
    for (int64_t i = 0; i < checkpoint->value_count; i++) {
        rs_stored_value *value = &checkpoint->values[i];
        if (!rs_slice_equals(value->name, RS_MEGATRON_COMMON_KEY))
            continue;
        value->kind = "common state (arguments, iteration, steps)";
        entry = rs_pickle_is(value->node, RS_PICKLE_LIST) ? rs_pickle_item(value->node, 0) : NULL;
    }
    return file >= 0
               ? rs_pickle_root(rs_torch_file_pickle(rs_torch_opened(checkpoint, file), &bytes))
               : entry;
}

/* Says what the arguments tell, and what they do not. */
static reshard_status note_arguments(reshard_checkpoint *checkpoint, const learning *l)
{
    int64_t ignored = 0;
    if (l->arguments == NULL)
        return rs_store_note(
            checkpoint,
            "neither a config.json nor arguments in the common state describe the model");
    reshard_status status = rs_store_note(
        checkpoint,
        "there is no config.json; the arguments of the training run describe the model");
    if (status == RESHARD_OK && !rs_pickle_int(rs_pickle_get(l->arguments, "vocab_size"), &ignored))
        status = rs_store_note(checkpoint, "nothing says how many rows of the vocabulary are "
                                           "padding; a config.json with vocab_size would");
    return status;
}

/* Keeps what reshard noted about the model, if it wrote the folder. */
static reshard_status keep_record(reshard_checkpoint *checkpoint, const rs_pickle_node *node)
{
    rs_slice text;
    if (!rs_pickle_text(node, &text))
        return RESHARD_OK;
    char *record = rs_arena_allocate(&checkpoint->arena, text.count + 1);
    if (record == NULL)
        return rs_allocation_status();
    memcpy(record, text.bytes, text.count);
    record[text.count] = '\0';
    checkpoint->record = record;
    return RESHARD_OK;
}

reshard_status rs_megatron_learn(reshard_checkpoint *checkpoint, int32_t common_file)
{
    static const char *const own[] = {RS_MEGATRON_ABOUT_NAME, RS_MEGATRON_LATEST_NAME, NULL};
    learning l = {.count = 0};
    bool has_config = false;
    checkpoint->own_names = own;
    checkpoint->is_megatron = true;
    const rs_pickle_node *common = find_common(checkpoint, common_file);
    const rs_pickle_node *arguments = rs_pickle_get(common, "args");
    if (rs_pickle_is_call(arguments, "argparse", "Namespace"))
        l.arguments = rs_pickle_dict(arguments->call->state);
    if (l.arguments != NULL)
        learn_arguments(&l);
    reshard_status status =
        rs_store_look_above(checkpoint, "../" RS_MEGATRON_LATEST_NAME, &has_config);
    if (status == RESHARD_OK)
        status = keep_record(checkpoint, rs_pickle_get(common, RS_MEGATRON_RECORD_KEY));
    checkpoint->key_count = l.count;
    checkpoint->keys = rs_arena_copy(&checkpoint->arena, l.keys, (size_t)l.count, sizeof *l.keys);
    if (status == RESHARD_OK && checkpoint->keys == NULL)
        status = rs_allocation_status();
    return status == RESHARD_OK && !has_config ? note_arguments(checkpoint, &l) : status;
}
