/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.h - the numbers and texts that rules refer to by name: those that the user set, then those
 * of config.json. Members and items are joined by dots: "text_config.head_dim". If there is only a
 * params.json, as Meta and Mistral write it, its values are found under the keys of config.json.
 */
#ifndef RS_CHECKPOINT_RULES_CONFIG_H
#define RS_CHECKPOINT_RULES_CONFIG_H

#include "base/arena.h"
#include "checkpoint/rules/rules.h"
#include "checkpoint/store/store.h"
#include "text/json_writer.h"

typedef struct rs_config {
    rs_arena arena;
    int64_t count, capacity;
    int64_t set_count; /* the first items, which the user set */
    /* in the order they were read; the first one with a name counts */
    struct rs_config_item *items;
    const char *model_type; /* NULL: there is no config.json, or it has none */
    bool has_file;          /* there is a config.json */
    /* The naming whose files a params.json in the folder describes, "meta" or "mistral"; NULL:
     * there is none. */
    const char *dialect;
} rs_config;

/* sets: "key=value" each. folder: where config.json may be; NULL: nowhere. Release in any case,
 * even after an error. Errors: SYNTAX (a set that is not key=number, malformed JSON), INVALID (a
 * key set twice). */
reshard_status rs_config_init(rs_config *config, reshard_context *context, const char *folder,
                              int32_t set_count, const char *const *sets);
/* The same for a model: its config.json or, if it has none, what its files say. */
reshard_status rs_config_init_for(rs_config *config, const reshard_checkpoint *model,
                                  int32_t set_count, const char *const *sets);
/* What the model's own files say, whatever a config.json says: key-values, arguments, params.json,
 * or what reshard noted when it wrote them. Release in any case. */
reshard_status rs_config_init_own(rs_config *config, const reshard_checkpoint *model);
void rs_config_release(rs_config *config);
/* Forgets how the model is quantised, for rules that cut what it is dequantised to. What the user
 * set stays. */
void rs_config_forget_quantisation(rs_config *config);
/* Functions for rs_rules_keys; user is the config. */
bool rs_config_find(void *user, const char *key, int64_t *out_value);
const char *rs_config_find_text(void *user, const char *key);
/* A value as JSON, also if it is no whole number: "1e-05", "true", "\"silu\"". NULL: there is none,
 * or it is null, or longer than rules take. */
const char *rs_config_find_json(const rs_config *config, const char *key);
/* The same, also of what the user set, and of the part for the text model: see rs_key_nested. */
const char *rs_config_find_nested(const rs_config *config, const char *key);
bool rs_config_is_set(const rs_config *config, const char *key);
/* The key at an index of config.json or params.json, in their order; NULL behind the last. */
const char *rs_config_key_at(const rs_config *config, int64_t index);
/* A key that the user set and that nothing has asked for, neither of this config nor of another one
 * with the same sets (which may be NULL); NULL: there is none. */
const char *rs_config_idle_set(const rs_config *config, const rs_config *other);

/* ---- numbers that no shape shows (config_compare.c) ------------------------------------------ */

enum {
    RS_CONFIG_ORDER = 1,  /* rows of tensors are ordered by it */
    RS_CONFIG_VALUES = 2, /* says how the model computes */
    RS_CONFIG_ALL = 3
};

typedef struct rs_config_clash {
    const char *key;
    unsigned kind;
    const char *one, *other; /* the two values, as JSON */
} rs_config_clash;

/* Finds the first such number that two configurations of one model do not agree on. What the user
 * set in `other` is not compared. */
bool rs_config_contradicts(const rs_config *one, const rs_config *other, unsigned kinds,
                           rs_config_clash *out_clash);
/* Writes these numbers and the model's type as an object, for rs_config_init_own to find. */
void rs_config_record(const rs_config *config, rs_json_writer *writer);

/* ---- params.json (params.c) ------------------------------------------------------------------ */

/* A key of params.json, and of config.json for the same. */
typedef struct rs_params_key {
    const char *params, *config;
    /* the params.json that have it: model types "llama", "llama4", "mistral" and "mixtral" */
    unsigned models;
} rs_params_key;

enum {
    RS_PARAMS_LLAMA = 1,
    RS_PARAMS_LLAMA4 = 2,
    RS_PARAMS_MISTRAL = 4,
    RS_PARAMS_MIXTRAL = 8,
    RS_PARAMS_ALL = 15
};

/* Ends with an entry without names. Keys of one object of params.json follow each other. */
extern const rs_params_key rs_params_keys[];

/* What a params.json describes: the naming, and the model type of the same in config.json. Both
 * stay NULL if it is another program's file of that name. */
void rs_params_recognise(const rs_config *params, const char **out_dialect,
                         const char **out_model_type);
/* The key of config.json for one of params.json; the key itself if it has no other name. */
const char *rs_params_config_key(const char *key);

#endif
