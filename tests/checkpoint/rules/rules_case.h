/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules_case.h - rules applied as text: mesh, keys, name and shape in, "spec; shape" out, so that a
 * case is one line.
 */
#ifndef TESTS_CHECKPOINT_RULES_RULES_CASE_H
#define TESTS_CHECKPOINT_RULES_RULES_CASE_H

#include "checkpoint/rules/rules.h"

#include <stddef.h>

typedef struct rules_case {
    const char *mesh;  /* "dp=2,tp=4" */
    const char *keys;  /* "head_dim=64 vocab_size=100" */
    const char *name;  /* of the tensor */
    const char *shape; /* "10x7" */
} rules_case;

/* keys->user must be a rules_case. */
bool rules_case_find(void *user, const char *key, int64_t *out_value);
const char *rules_case_find_text(void *user, const char *key);
/* NULL, with words on stderr, for a text that is no mesh. */
reshard_mesh *rules_case_mesh(const char *text);
/* What a result says: "tp=2: S(0)", " padded 10x7" and " name NEW" behind it where they are,
 * "drop"; or the error text. */
void rules_case_text(const rs_rules *rules, const rules_case *given, char *buffer, size_t capacity);

#endif
