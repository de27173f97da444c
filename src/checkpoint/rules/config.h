/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.h - the numbers and texts that rules refer to by name: those that the user set, then those
 * of config.json. Members and items are joined by dots: "text_config.head_dim".
 */
#ifndef RS_CHECKPOINT_RULES_CONFIG_H
#define RS_CHECKPOINT_RULES_CONFIG_H

#include "base/arena.h"
#include "checkpoint/rules/rules.h"

typedef struct rs_config {
    rs_arena arena;
    int64_t count, capacity;
    int64_t set_count; /* the first items, which the user set */
    /* in the order they were read; the first one with a name counts */
    struct rs_config_item *items;
    const char *model_type; /* NULL: there is no config.json, or it has none */
} rs_config;

/* sets: "key=value" each. folder: where config.json may be. Release in any case, even after an
 * error. Errors: SYNTAX (a set that is not key=number, malformed JSON), INVALID (a key set
 * twice). */
reshard_status rs_config_init(rs_config *config, reshard_context *context, const char *folder,
                              int32_t set_count, const char *const *sets);
void rs_config_release(rs_config *config);
/* Functions for rs_rules_keys; user is the config. */
bool rs_config_find(void *user, const char *key, int64_t *out_value);
const char *rs_config_find_text(void *user, const char *key);
/* A key that the user set and that nothing has asked for; NULL: there is none. */
const char *rs_config_idle_set(const rs_config *config);

#endif
