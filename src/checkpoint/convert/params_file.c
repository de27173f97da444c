/* SPDX-License-Identifier: Apache-2.0 */
/*
 * params_file.c - goes through the table of keys (rules/params.c), and copies the values as they
 * are written. Sizes that tensors show come from these: a vocabulary, or the width of layers, for
 * which Meta's params.json has a formula instead of a number.
 */
#include "checkpoint/convert/target_make.h"

#include "base/context.h"
#include "checkpoint/view/mapped.h"
#include "text/dtype_names.h"
#include "text/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define KEYS_SHOWN 8

typedef struct making {
    rs_target *target;
    const rs_config *config;
    unsigned model; /* RS_PARAMS_LLAMA, .. */
    rs_json_writer writer;
    const char *indent;
    int64_t member_count; /* of the object that is being written */
} making;

/* What config.json means if it does not say it. */
static const struct {
    const char *key, *json;
} defaults[] = {{"rms_norm_eps", "1e-06"}, {"rope_theta", "10000.0"}};

/* ---- values ---------------------------------------------------------------------------------- */

static const char *find_json(const making *m, const char *key)
{
    static const char *const fronts[] = {"", "text_config.", "rope_parameters.",
                                         "text_config.rope_parameters."};
    const char *json = NULL;
    for (size_t i = 0; json == NULL && i < sizeof fronts / sizeof *fronts; i++) {
        char name[160];
        (void)snprintf(name, sizeof name, "%s%s", fronts[i], key);
        json = rs_config_find_json(m->config, name);
    }
    return json;
}

/* The whole number under a key; 0 if there is none. */
static int64_t find_number(const making *m, const char *key)
{
    int64_t value = 0;
    char name[160];
    (void)snprintf(name, sizeof name, "text_config.%s", key);
    void *config = (void *)(uintptr_t)m->config;
    return rs_config_find(config, key, &value) || rs_config_find(config, name, &value) ? value : 0;
}

/* A dimension of the first tensor of the output whose name ends like this; 0 if there is none. */
static int64_t find_size(const making *m, const char *end, int32_t dim)
{
    const reshard_checkpoint *made = &m->target->mapped->made;
    for (int64_t i = 0; i < made->tensor_count; i++) {
        const rs_stored_tensor *tensor = &made->tensors[i];
        if (rs_slice_ends(tensor->name, end) && dim < tensor->ndim)
            return tensor->shape[dim];
    }
    return 0;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void begin_object(making *m, const char *indent)
{
    rs_json_writer_text(&m->writer, "{");
    m->indent = indent;
    m->member_count = 0;
}

static void write_key(making *m, const char *key)
{
    rs_json_writer_text(&m->writer, m->member_count++ == 0 ? "\n" : ",\n");
    rs_json_writer_text(&m->writer, m->indent);
    rs_json_writer_string(&m->writer, rs_slice_of(key));
    rs_json_writer_text(&m->writer, ": ");
}

static void write_json(making *m, const char *key, const char *json)
{
    write_key(m, key);
    rs_json_writer_text(&m->writer, json);
}

static void write_number(making *m, const char *key, int64_t number)
{
    write_key(m, key);
    rs_json_writer_unsigned(&m->writer, (uint64_t)number);
}

static reshard_status keep(making *m, const char *name)
{
    rs_target *target = m->target;
    rs_json_writer_text(&m->writer, "\n}\n");
    if (m->writer.status != RESHARD_OK)
        return m->writer.status;
    size_t count = (size_t)m->writer.count;
    target->made_text = (rs_slice){rs_arena_copy(&target->arena, m->writer.bytes, count, 1), count};
    target->made_name = name;
    return target->made_text.bytes != NULL ? RESHARD_OK : rs_allocation_status();
}

/* The value of a key as JSON: as given, as the tensors show, or what its absence means. NULL: none.
 * number: room for a size. */
static const char *choose_json(const making *m, const char *key, const char *embedding,
                               char number[24])
{
    const char *json = find_json(m, key);
    int64_t size = 0;
    if (strcmp(key, "vocab_size") == 0)
        size = find_size(m, embedding, 0);
    else if (json == NULL && strcmp(key, "num_key_value_heads") == 0)
        size = find_number(m, "num_attention_heads");
    else if (json == NULL && strcmp(key, "head_dim") == 0 &&
             find_number(m, "num_attention_heads") > 0)
        size = find_number(m, "hidden_size") / find_number(m, "num_attention_heads");
    if (size > 0) {
        (void)snprintf(number, 24, "%" PRId64, size);
        return number;
    }
    for (size_t i = 0; json == NULL && i < sizeof defaults / sizeof *defaults; i++) {
        if (strcmp(key, defaults[i].key) == 0)
            json = defaults[i].json;
    }
    return json;
}

/* ---- params.json ----------------------------------------------------------------------------- */

/* Writes a row of the table. Rows of an object inside follow each other. */
static void write_param(making *m, const rs_params_key *row, rs_slice *inside)
{
    char number[24], name[64];
    const char *json = choose_json(m, row->config, "tok_embeddings.weight", number);
    const char *dot = strchr(row->params, '.');
    rs_slice object = {row->params, dot != NULL ? (size_t)(dot - row->params) : 0};
    if (json == NULL || (row->models & m->model) == 0)
        return;
    if (object.count != inside->count && inside->count != 0) {
        rs_json_writer_text(&m->writer, "\n  }");
        m->indent = "  ";
        m->member_count = 1;
    }
    if (object.count != inside->count && object.count != 0) {
        (void)snprintf(name, sizeof name, "%.*s", (int)object.count, object.bytes);
        write_key(m, name);
        begin_object(m, "    ");
    }
    *inside = object;
    write_json(m, dot != NULL ? dot + 1 : row->params, json);
}

/* Meta's code knows one kind of scaled angles, with constants of its own. */
static reshard_status write_rope(making *m)
{
    const char *type = find_json(m, "rope_scaling.rope_type"), *factor = NULL;
    if (type == NULL)
        type = find_json(m, "rope_scaling.type");
    if (type == NULL)
        type = find_json(m, "rope_type");
    bool is_scaled = type != NULL && strcmp(type, "\"llama3\"") == 0;
    write_json(m, "use_scaled_rope", is_scaled ? "true" : "false");
    if (type != NULL && !is_scaled && strcmp(type, "\"default\"") != 0)
        return rs_target_warn(m->target, "params.json cannot express rope_scaling of type %s",
                              type);
    factor = find_json(m, "rope_scaling.factor");
    if (factor == NULL)
        factor = find_json(m, "factor");
    if (!is_scaled || factor == NULL || strcmp(factor, "8.0") == 0 || strcmp(factor, "8") == 0)
        return RESHARD_OK;
    return rs_target_warn(m->target,
                          "params.json cannot express that rope_scaling has the factor %s; Meta's "
                          "releases leave it to the code that loads them",
                          factor);
}

/* What only Meta's params.json has. */
static reshard_status write_meta(making *m)
{
    int64_t dim = find_number(m, "hidden_size"), heads = find_number(m, "num_attention_heads");
    int64_t size = find_number(m, "head_dim");
    int64_t width = find_size(m, ".feed_forward.w1.weight", 0);
    if (heads <= 0 || dim <= 0)
        return rs_fail(RESHARD_ERR_INVALID, "params.json needs hidden_size and "
                                            "num_attention_heads, which config.json does not have");
    if (size > 0 && size * heads != dim)
        return rs_fail(RESHARD_ERR_INVALID,
                       "params.json cannot describe the model: its %" PRId64 " heads have %" PRId64
                       " rows each (head_dim), but in Meta's files they "
                       "have hidden_size / num_attention_heads, here %" PRId64 "/%" PRId64,
                       heads, size, dim, heads);
    if (m->model == RS_PARAMS_LLAMA && width > 0) {
        rs_params_width found = rs_params_width_find(dim, width);
        write_number(m, "multiple_of", found.multiple_of);
        if (found.multiplier[0] != '\0')
            write_json(m, "ffn_dim_multiplier", found.multiplier);
    }
    reshard_status status = write_rope(m);
    if (status == RESHARD_OK && m->model == RS_PARAMS_LLAMA4)
        status = rs_target_warn(m->target,
                                "params.json is not complete for Llama 4: ffn_exp, multiple_of, "
                                "ffn_dim_multiplier and vision_args have to be added");
    return status;
}

/* Is it a key that params.json has another way to say, or that says nothing about the weights? */
static bool is_known(const making *m, const char *key)
{
    static const char *const others[] = {"architectures",
                                         "model_type",
                                         "torch_dtype",
                                         "dtype",
                                         "transformers_version",
                                         "use_cache",
                                         "rope_scaling",
                                         "hidden_act",
                                         "bos_token_id",
                                         "eos_token_id",
                                         "pad_token_id",
                                         "text_config",
                                         "initializer_range",
                                         "tie_word_embeddings",
                                         "head_dim",
                                         "intermediate_size",
                                         "pretraining_tp",
                                         "attention_dropout",
                                         "rope_parameters",
                                         "attention_bias",
                                         "mlp_bias"};
    size_t length = strcspn(key, ".");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (strlen(others[i]) == length && memcmp(others[i], key, length) == 0)
            return true;
    }
    for (const rs_params_key *row = rs_params_keys; row->params != NULL; row++) {
        if ((row->models & m->model) != 0 && strcmp(row->config, key) == 0)
            return true;
    }
    return false;
}

/* Says which keys are lost. */
static reshard_status say_lost(const making *m)
{
    char shown[300];
    rs_text text;
    int64_t count = 0;
    const char *key;
    rs_text_init(&text, shown, sizeof shown);
    for (int64_t i = 0; (key = rs_config_key_at(m->config, i)) != NULL; i++) {
        static const char part[] = "text_config.";
        size_t skipped = strncmp(key, part, sizeof part - 1) == 0 ? sizeof part - 1 : 0;
        if (!is_known(m, key + skipped) && count++ < KEYS_SHOWN)
            rs_text_add(&text, "%s%.60s", count == 1 ? "" : ", ", key);
    }
    return rs_target_say(m->target, "params.json is made from config.json%s%s%s",
                         count == 0 ? "" : ", without its keys ", shown,
                         count > KEYS_SHOWN ? " and others" : "");
}

static reshard_status make_params(making *m)
{
    rs_slice inside = {NULL, 0};
    reshard_status status = RESHARD_OK;
    begin_object(m, "  ");
    for (const rs_params_key *row = rs_params_keys; row->params != NULL; row++)
        write_param(m, row, &inside);
    if (inside.count != 0) {
        rs_json_writer_text(&m->writer, "\n  }");
        m->indent = "  ";
    }
    if ((m->model & (RS_PARAMS_LLAMA | RS_PARAMS_LLAMA4)) != 0)
        status = write_meta(m);
    if (status == RESHARD_OK)
        status = keep(m, "params.json");
    return status == RESHARD_OK ? say_lost(m) : status;
}

/* ---- config.json ----------------------------------------------------------------------------- */

static void write_widths(making *m)
{
    static const struct {
        unsigned models;
        const char *key, *end;
        int32_t dim;
    } rows[] = {
        {RS_PARAMS_LLAMA | RS_PARAMS_MISTRAL, "intermediate_size", ".mlp.gate_proj.weight", 0},
        {RS_PARAMS_MIXTRAL, "intermediate_size", ".experts.0.w1.weight", 0},
        {RS_PARAMS_LLAMA4, "intermediate_size", ".experts.down_proj", 1},
        {RS_PARAMS_LLAMA4, "intermediate_size_mlp", ".feed_forward.gate_proj.weight", 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t size = find_size(m, rows[i].end, rows[i].dim);
        if ((rows[i].models & m->model) != 0 && size > 0)
            write_number(m, rows[i].key, size);
    }
}

/* The constants of Llama 3.1, which Meta's code has in its text. */
static reshard_status write_scaling(making *m)
{
    if (find_number(m, "use_scaled_rope") == 0)
        return RESHARD_OK;
    write_json(m, "rope_scaling",
               "{\"rope_type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1.0, "
               "\"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 8192}");
    return rs_target_warn(m->target,
                          "config.json: rope_scaling has the factor 8.0 of Llama 3.1, because "
                          "params.json only says that there is one; Llama 3.2 has 32.0");
}

static reshard_status write_text_config(making *m)
{
    char number[24];
    const reshard_checkpoint *made = &m->target->mapped->made;
    for (const rs_params_key *row = rs_params_keys; row->params != NULL; row++) {
        bool is_width = strcmp(row->config, "intermediate_size") == 0;
        const char *json = choose_json(m, row->config, "embed_tokens.weight", number);
        if ((row->models & m->model) == 0 || json == NULL || is_width ||
            strcmp(row->config, "tie_word_embeddings") == 0)
            continue;
        write_json(m, row->config, json);
    }
    write_widths(m);
    write_json(m, "hidden_act", "\"silu\"");
    write_json(m, "tie_word_embeddings",
               find_number(m, "tie_word_embeddings") != 0 ? "true" : "false");
    const char *dtype =
        made->tensor_count > 0 ? rs_dtype_torch_name(m->target->mapped->dtypes[0]) : NULL;
    if (dtype != NULL) {
        write_key(m, "torch_dtype");
        rs_json_writer_string(&m->writer, rs_slice_of(dtype));
    }
    return write_scaling(m);
}

static const char *architecture_of(unsigned model)
{
    switch (model) {
    case RS_PARAMS_LLAMA:
        return "[\"LlamaForCausalLM\"]";
    case RS_PARAMS_LLAMA4:
        return "[\"Llama4ForConditionalGeneration\"]";
    case RS_PARAMS_MISTRAL:
        return "[\"MistralForCausalLM\"]";
    default:
        return "[\"MixtralForCausalLM\"]";
    }
}

static reshard_status make_config(making *m)
{
    bool is_nested = m->model == RS_PARAMS_LLAMA4;
    begin_object(m, "  ");
    write_json(m, "architectures", architecture_of(m->model));
    write_key(m, "model_type");
    rs_json_writer_string(&m->writer, rs_slice_of(m->config->model_type));
    if (is_nested) {
        write_key(m, "text_config");
        begin_object(m, "    ");
        write_json(m, "model_type", "\"llama4_text\"");
    }
    reshard_status status = write_text_config(m);
    if (is_nested)
        rs_json_writer_text(&m->writer, "\n  }");
    if (status == RESHARD_OK)
        status = keep(m, "config.json");
    return status == RESHARD_OK ? rs_target_say(m->target,
                                                "config.json is made from params.json%s; it says "
                                                "nothing about special tokens and context lengths",
                                                is_nested ? ", without vision_config" : "")
                                : status;
}

/* ---- both ------------------------------------------------------------------------------------ */

static unsigned find_model(const char *type)
{
    static const struct {
        const char *type;
        unsigned model;
    } rows[] = {{"llama", RS_PARAMS_LLAMA},
                {"llama4", RS_PARAMS_LLAMA4},
                {"llama4_text", RS_PARAMS_LLAMA4},
                {"mistral", RS_PARAMS_MISTRAL},
                {"mixtral", RS_PARAMS_MIXTRAL}};
    for (size_t i = 0; type != NULL && i < sizeof rows / sizeof *rows; i++) {
        if (strcmp(rows[i].type, type) == 0)
            return rows[i].model;
    }
    return 0;
}

reshard_status rs_params_file_make(rs_target *target, const rs_naming *naming,
                                   const rs_config *config)
{
    making m = {.target = target, .config = config, .model = find_model(config->model_type)};
    bool has_params = config->dialect != NULL;
    reshard_status status = RESHARD_OK;
    /* The source's own goes along if it is what the naming wants. */
    if (naming->has_params) {
        target->left_name = "config.json";
        if (has_params && strcmp(config->dialect, naming->name) == 0)
            return RESHARD_OK;
    } else if (!has_params || config->has_file) {
        return RESHARD_OK;
    } else {
        target->left_name = "params.json";
    }
    if (m.model == 0)
        return rs_target_warn(target, "%s is not written: nothing describes the model",
                              naming->has_params ? "params.json" : "config.json");
    rs_json_writer_init(&m.writer, target->context);
    status = naming->has_params ? make_params(&m) : make_config(&m);
    rs_json_writer_release(&m.writer);
    return status;
}
