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

/* Returns NULL if there is none of that name; the error text then suggests one or lists them
 * all. */
const rs_rule_family *rs_rule_family_find(const char *name, size_t length);

#endif
