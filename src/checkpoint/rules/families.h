/* SPDX-License-Identifier: Apache-2.0 */
/*
 * families.h - the built-in sets of rules as text: the files families/NAME.rules, which the build
 * embeds in the library.
 */
#ifndef RS_CHECKPOINT_RULES_FAMILIES_H
#define RS_CHECKPOINT_RULES_FAMILIES_H

#include <reshard/base.h>

typedef struct rs_rule_family {
    const char *name, *text;
} rs_rule_family;

/* Ends with an entry whose name is NULL. */
extern const rs_rule_family rs_rule_families[];

/* By its own name. Returns NULL if there is none. */
const rs_rule_family *rs_rule_family_named(const char *name, size_t length);
/* By its own name, or by a model_type that it is for ("qwen3" is llama's). Returns NULL if there is
 * none; the error then suggests one, or that rules are given. */
const rs_rule_family *rs_rule_family_find(const char *name, size_t length);

#endif
