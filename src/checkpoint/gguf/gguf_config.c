/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gguf_config.c - most members are a key-value under another name, for which a table has a row. The
 * others are counted from tensors, or fixed for an architecture.
 */
#include "checkpoint/gguf/gguf_config.h"

#include "base/context.h"
#include "base/dtype.h"
#include "text/dtype_names.h"
#include "text/json_writer.h"
#include "text/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Architectures, as bits. */
enum {
    LLAMA = 1,
    MIXTRAL = 2,
    QWEN2 = 4,
    QWEN3 = 8,
    QWEN2_MOE = 16,
    QWEN3_MOE = 32,
    PHI3 = 64,
    GEMMA2 = 128,
    GEMMA3 = 256,
    GPT_OSS = 512,
    DEEPSEEK_V2 = 1024,
    DEEPSEEK_V3 = 2048,
    GRANITE = 4096,
    QWEN_MOE = QWEN2_MOE | QWEN3_MOE,
    GEMMA = GEMMA2 | GEMMA3,
    DEEPSEEK = DEEPSEEK_V2 | DEEPSEEK_V3,
    ALL = 8191
};

typedef struct architecture {
    const char *name; /* general.architecture */
    int bit;
    const char *model_type, *class;
} architecture;

/* Of two rows with one name, find_architecture chooses. */
static const architecture architectures[] = {
    {"llama", LLAMA, "llama", "LlamaForCausalLM"},
    {"llama", MIXTRAL, "mixtral", "MixtralForCausalLM"},
    {"granite", GRANITE, "granite", "GraniteForCausalLM"},
    {"qwen2", QWEN2, "qwen2", "Qwen2ForCausalLM"},
    {"qwen3", QWEN3, "qwen3", "Qwen3ForCausalLM"},
    {"qwen2moe", QWEN2_MOE, "qwen2_moe", "Qwen2MoeForCausalLM"},
    {"qwen3moe", QWEN3_MOE, "qwen3_moe", "Qwen3MoeForCausalLM"},
    {"phi3", PHI3, "phi3", "Phi3ForCausalLM"},
    {"gemma2", GEMMA2, "gemma2", "Gemma2ForCausalLM"},
    {"gemma3", GEMMA3, "gemma3_text", "Gemma3ForCausalLM"},
    {"gpt-oss", GPT_OSS, "gpt_oss", "GptOssForCausalLM"},
    {"deepseek2", DEEPSEEK_V2, "deepseek_v2", "DeepseekV2ForCausalLM"},
    {"deepseek2", DEEPSEEK_V3, "deepseek_v3", "DeepseekV3ForCausalLM"},
};
#define ARCHITECTURE_COUNT (sizeof architectures / sizeof *architectures)

/* A key behind "ARCHITECTURE.", and the member that has its value. */
static const struct {
    const char *key, *member;
    int of;
} rows[] = {
    {"block_count", "num_hidden_layers", ALL},
    {"embedding_length", "hidden_size", ALL},
    {"feed_forward_length", "intermediate_size", ALL & ~GPT_OSS},
    {"attention.head_count", "num_attention_heads", ALL},
    {"attention.head_count_kv", "num_key_value_heads", ALL & ~DEEPSEEK},
    {"attention.key_length", "head_dim", ALL & ~DEEPSEEK},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", ALL},
    {"attention.sliding_window", "sliding_window", ALL & ~QWEN_MOE},
    {"context_length", "max_position_embeddings", ALL},
    {"rope.freq_base", "rope_theta", ALL},
    {"attn_logit_softcapping", "attn_logit_softcapping", GEMMA2},
    {"final_logit_softcapping", "final_logit_softcapping", GEMMA2},
    {"attention.scale", "attention_multiplier", GRANITE},
    {"embedding_scale", "embedding_multiplier", GRANITE},
    {"residual_scale", "residual_multiplier", GRANITE},
    {"logit_scale", "logits_scaling", GRANITE},
    {"expert_count", "num_local_experts", MIXTRAL | GPT_OSS},
    {"expert_count", "num_experts", QWEN_MOE},
    {"expert_count", "n_routed_experts", DEEPSEEK},
    {"expert_used_count", "num_experts_per_tok", MIXTRAL | GPT_OSS | QWEN_MOE | DEEPSEEK},
    {"expert_feed_forward_length", "moe_intermediate_size", QWEN_MOE | DEEPSEEK},
    {"expert_feed_forward_length", "intermediate_size", GPT_OSS},
    {"expert_shared_feed_forward_length", "shared_expert_intermediate_size", QWEN2_MOE},
    {"expert_shared_count", "n_shared_experts", DEEPSEEK},
    {"expert_weights_scale", "routed_scaling_factor", DEEPSEEK},
    {"expert_weights_norm", "norm_topk_prob", DEEPSEEK},
    {"leading_dense_block_count", "first_k_dense_replace", DEEPSEEK},
    {"attention.q_lora_rank", "q_lora_rank", DEEPSEEK},
    {"attention.kv_lora_rank", "kv_lora_rank", DEEPSEEK},
    {"attention.value_length_mla", "v_head_dim", DEEPSEEK},
    {"rope.dimension_count", "qk_rope_head_dim", DEEPSEEK},
};
#define ROW_COUNT (sizeof rows / sizeof *rows)

#define KEY_BYTES 160
#define LAYERS_MAX 4096 /* longer lists are not of layers */

typedef struct configuring {
    reshard_checkpoint *checkpoint;
    const rs_file *file;
    const rs_gguf *gguf;
    const architecture *of;
    rs_json_writer writer;
} configuring;

/* ---- asking ---------------------------------------------------------------------------------- */

static const rs_gguf_value *find_value(const configuring *c, const char *name, const char *key)
{
    char full[KEY_BYTES];
    (void)snprintf(full, sizeof full, "%s.%s", name, key);
    return rs_gguf_find(c->gguf, full);
}

/* A whole number of the architecture; `missing` if there is none. */
static reshard_status read_number(const configuring *c, const char *name, const char *key,
                                  int64_t missing, int64_t *out_number)
{
    const rs_gguf_value *value = find_value(c, name, key);
    bool is = false;
    int64_t number = 0;
    reshard_status status = RESHARD_OK;
    if (value != NULL)
        status = rs_gguf_number(c->file, value, 0, &number, &is);
    *out_number = is ? number : missing;
    return status;
}

static const rs_stored_tensor *find_tensor(const configuring *c, const char *name)
{
    int64_t index = rs_store_find(c->checkpoint, rs_slice_of(name));
    return index >= 0 ? &c->checkpoint->tensors[index] : NULL;
}

/* NULL: there is no map for it. */
static reshard_status find_architecture(configuring *c, const architecture **out_found)
{
    const rs_gguf_value *value = rs_gguf_find(c->gguf, "general.architecture");
    char name[64];
    bool is = false;
    int64_t experts = 0;
    reshard_status status = RESHARD_OK;
    *out_found = NULL;
    if (value != NULL)
        status = rs_gguf_text(c->file, value, name, sizeof name, &is);
    for (size_t i = 0; status == RESHARD_OK && is && i < ARCHITECTURE_COUNT; i++) {
        const architecture *row = &architectures[i];
        if (strcmp(row->name, name) != 0)
            continue;
        status = read_number(c, name, "expert_count", 0, &experts);
        bool fits = row->bit == LLAMA         ? experts == 0
                    : row->bit == MIXTRAL     ? experts != 0
                    : row->bit == DEEPSEEK_V2 ? find_tensor(c, "blk.3.exp_probs_b.bias") == NULL
                                              : true;
        if (fits) {
            *out_found = row;
            break;
        }
    }
    return status;
}

/* ---- members --------------------------------------------------------------------------------- */

static void add_member(configuring *c, const char *member, const char *json)
{
    rs_json_writer_text(&c->writer, ",\n  \"");
    rs_json_writer_text(&c->writer, member);
    rs_json_writer_text(&c->writer, "\": ");
    rs_json_writer_text(&c->writer, json);
}

static void add_number(configuring *c, const char *member, int64_t number)
{
    char text[24];
    (void)snprintf(text, sizeof text, "%" PRId64, number);
    add_member(c, member, text);
}

/* Whether all items of a list are the same number, as where layers do not differ. */
static reshard_status is_even(const configuring *c, const rs_gguf_value *value, bool *out_is)
{
    int64_t first = 0, number = 0;
    *out_is = false;
    if (value->count > LAYERS_MAX)
        return RESHARD_OK;
    reshard_status status = rs_gguf_number(c->file, value, 0, &first, out_is);
    for (uint64_t i = 1; status == RESHARD_OK && *out_is && i < value->count; i++) {
        status = rs_gguf_number(c->file, value, i, &number, out_is);
        *out_is = *out_is && number == first;
    }
    return status;
}

/* Adds a value as one number. A list that has several stays out: whoever needs it will ask. */
static reshard_status add_value(configuring *c, const char *member, const rs_gguf_value *value)
{
    char text[RS_GGUF_SHOWN];
    bool is = value->kind != RS_GGUF_TEXT;
    rs_gguf_value item = *value;
    reshard_status status = RESHARD_OK;
    if (value->kind == RS_GGUF_LIST)
        status = is_even(c, value, &is);
    if (status != RESHARD_OK || !is)
        return status;
    item.kind = item.item_kind;
    item.count = 1;
    status = rs_gguf_show(c->file, &item, text);
    if (status == RESHARD_OK && strstr(text, "inf") == NULL && strstr(text, "nan") == NULL)
        add_member(c, member, text);
    return status;
}

static reshard_status add_rows(configuring *c)
{
    reshard_status status = RESHARD_OK;
    for (size_t i = 0; status == RESHARD_OK && i < ROW_COUNT; i++) {
        const rs_gguf_value *value = find_value(c, c->of->name, rows[i].key);
        if ((rows[i].of & c->of->bit) != 0 && value != NULL)
            status = add_value(c, rows[i].member, value);
    }
    for (int i = 0; status == RESHARD_OK && i < 2; i++) {
        const char *key = i == 0 ? "tokenizer.ggml.bos_token_id" : "tokenizer.ggml.eos_token_id";
        const rs_gguf_value *value = rs_gguf_find(c->gguf, key);
        if (value != NULL)
            status = add_value(c, i == 0 ? "bos_token_id" : "eos_token_id", value);
    }
    return status;
}

/* What is computed from several key-values. */
static reshard_status add_computed(configuring *c)
{
    const char *name = c->of->name;
    int64_t hidden = 0, heads = 0, key = 0, rope = 0, layers = 0;
    reshard_status status = read_number(c, name, "embedding_length", 0, &hidden);
    if (status == RESHARD_OK)
        status = read_number(c, name, "attention.head_count", 0, &heads);
    if (status == RESHARD_OK)
        status = read_number(c, name, "block_count", 0, &layers);
    if (status == RESHARD_OK)
        status = read_number(c, name, "attention.key_length", heads > 0 ? hidden / heads : 0, &key);
    bool is_deepseek = (c->of->bit & DEEPSEEK) != 0;
    if (status == RESHARD_OK && is_deepseek)
        status = read_number(c, name, "attention.key_length_mla", 0, &key);
    if (status == RESHARD_OK && is_deepseek)
        status = read_number(c, name, "rope.dimension_count", 0, &rope);
    if (status != RESHARD_OK)
        return status;
    if (is_deepseek && key > rope)
        add_number(c, "qk_nope_head_dim", key - rope);
    if (find_value(c, name, "attention.head_count_kv") == NULL && !is_deepseek && heads > 0)
        add_number(c, "num_key_value_heads", heads);
    /* The largest models of this family divide by another number; llama.cpp knows them by their
     * number of layers. */
    bool is_large = layers == (c->of->bit == GEMMA2 ? 46 : 62);
    if ((c->of->bit & GEMMA) != 0 && heads > 0)
        add_number(c, "query_pre_attn_scalar", is_large ? hidden / heads : key);
    return RESHARD_OK;
}

static void add_counted(configuring *c)
{
    const rs_stored_tensor *embedding = find_tensor(c, "token_embd.weight");
    uint64_t bytes[RESHARD_DTYPE_COUNT] = {0};
    char dtype[40];
    reshard_dtype most = RESHARD_F32;
    if (embedding != NULL && embedding->ndim == 2)
        add_number(c, "vocab_size", embedding->shape[0]);
    add_member(c, "tie_word_embeddings",
               find_tensor(c, "output.weight") == NULL ? "true" : "false");
    if ((c->of->bit & (LLAMA | MIXTRAL | GRANITE | QWEN3 | QWEN3_MOE)) != 0)
        add_member(c, "attention_bias",
                   find_tensor(c, "blk.0.attn_q.bias") != NULL ? "true" : "false");
    if ((c->of->bit & QWEN_MOE) != 0) /* fixed in llama.cpp */
        add_member(c, "norm_topk_prob", c->of->bit == QWEN3_MOE ? "true" : "false");
    for (int64_t i = 0; i < c->checkpoint->tensor_count; i++) {
        const rs_stored_tensor *tensor = &c->checkpoint->tensors[i];
        bytes[tensor->dtype] += rs_dtype_is_float(tensor->dtype) ? tensor->bytes : 0;
        most = bytes[tensor->dtype] > bytes[most] ? tensor->dtype : most;
    }
    (void)snprintf(dtype, sizeof dtype, "\"%s\"", rs_dtype_torch_name(most));
    add_member(c, "torch_dtype", dtype);
}

/* Scaled rotary embeddings: two kinds have members for what the key-values say. The others are in
 * tensors that no longer tell what they were made of, and this is said. */
static reshard_status add_rope(configuring *c)
{
    const rs_gguf_value *value = find_value(c, c->of->name, "rope.scaling.type");
    const rs_gguf_value *factor = find_value(c, c->of->name, "rope.scaling.factor");
    const rs_gguf_value *before =
        find_value(c, c->of->name, "rope.scaling.original_context_length");
    char kind[32] = "none", text[RS_GGUF_SHOWN];
    bool is = true;
    reshard_status status = RESHARD_OK;
    if (value != NULL)
        status = rs_gguf_text(c->file, value, kind, sizeof kind, &is);
    bool is_known = is && (strcmp(kind, "linear") == 0 || strcmp(kind, "yarn") == 0);
    if (status == RESHARD_OK && is_known && factor != NULL) {
        add_member(c, "rope_scaling", "{\"rope_type\": \"");
        rs_json_writer_text(&c->writer, kind);
        status = rs_gguf_show(c->file, factor, text);
        rs_json_writer_text(&c->writer, "\", \"factor\": ");
        rs_json_writer_text(&c->writer, text);
        if (status == RESHARD_OK && before != NULL) {
            status = rs_gguf_show(c->file, before, text);
            rs_json_writer_text(&c->writer, ", \"original_max_position_embeddings\": ");
            rs_json_writer_text(&c->writer, text);
        }
        rs_json_writer_text(&c->writer, "}");
    }
    bool is_in_tensors = find_tensor(c, "rope_freqs.weight") != NULL ||
                         find_tensor(c, "rope_factors_long.weight") != NULL;
    bool is_lost = is_in_tensors || (strcmp(kind, "none") != 0 && (!is_known || factor == NULL));
    if (status == RESHARD_OK && is_lost)
        status = rs_store_note(c->checkpoint,
                               "its rotary embeddings are scaled (%s), which the config.json made "
                               "from its key-values does not say; add rope_scaling",
                               is_in_tensors ? "by a tensor" : kind);
    return status;
}

reshard_status rs_gguf_make_config(reshard_checkpoint *checkpoint, const rs_file *file,
                                   const rs_gguf *gguf)
{
    configuring c = {.checkpoint = checkpoint, .file = file, .gguf = gguf};
    reshard_status status = find_architecture(&c, &c.of);
    if (status != RESHARD_OK || c.of == NULL)
        return status;
    rs_json_writer_init(&c.writer, checkpoint->context);
    rs_json_writer_text(&c.writer, "{\n  \"architectures\": [\"");
    rs_json_writer_text(&c.writer, c.of->class);
    rs_json_writer_text(&c.writer, "\"],\n  \"model_type\": \"");
    rs_json_writer_text(&c.writer, c.of->model_type);
    rs_json_writer_text(&c.writer, "\"");
    status = add_rows(&c);
    if (status == RESHARD_OK)
        status = add_computed(&c);
    if (status == RESHARD_OK)
        status = add_rope(&c);
    add_counted(&c);
    rs_json_writer_add(&c.writer, "\n}\n", 4); /* with its NUL */
    status = status == RESHARD_OK ? c.writer.status : status;
    if (status == RESHARD_OK) {
        checkpoint->made_config =
            rs_arena_copy(&checkpoint->arena, c.writer.bytes, (size_t)c.writer.count, 1);
        status = checkpoint->made_config != NULL ? RESHARD_OK : rs_allocation_status();
    }
    rs_json_writer_release(&c.writer);
    return status;
}
