/* SPDX-License-Identifier: Apache-2.0 */
/*
 * families.h - the built-in sets of rules as text. They are files, families/NAME.rules, which the
 * build puts into the library.
 */
#ifndef RS_CHECKPOINT_RULES_FAMILIES_H
#define RS_CHECKPOINT_RULES_FAMILIES_H

#include <reshard/base.h>

typedef struct rs_rule_family {
    const char *name, *text;
} rs_rule_family;

/* Ends with an entry of NULL. */
extern const rs_rule_family rs_rule_families[];

/* NULL, with an error text that lists them all, when there is none of that name. */
const rs_rule_family *rs_rule_family_find(const char *name, size_t length);

#endif
