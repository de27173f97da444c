/* SPDX-License-Identifier: Apache-2.0 */
/*
 * number.h - numbers in rules: sums, differences, products and exact quotients of digits, $keys of
 * the model's configuration, @axes of the mesh and {n}, what a wildcard of the pattern stands for.
 *
 *   number := term { ("+" | "-") term }
 *   term   := factor { ("*" | "/") factor }
 *   factor := digits | "$" key [ "?" factor ] | "@" axis | "{" n "}" | "(" number ")"
 *           | ( "lcm" | "min" | "max" ) "(" number "," number ")"
 */
#ifndef RS_CHECKPOINT_RULES_NUMBER_H
#define RS_CHECKPOINT_RULES_NUMBER_H

#include "base/slice.h"
#include "checkpoint/rules/glob.h"
#include "checkpoint/rules/rules.h"

#define RS_KEY_BYTES 128 /* of a $key, its NUL included */

/* What a key is where the configuration does not say: a line `default key number` of rules. */
typedef struct rs_number_default {
    rs_slice key, number;
} rs_number_default;

/* What the parts of a number refer to. */
/* "i of n": the highest i so far, and n. */
typedef struct rs_number_dealt {
    int64_t highest, count;
} rs_number_dealt;

typedef struct rs_number_scope {
    /* Nothing has a value yet: only the form is checked, and every part counts as 1. */
    bool form_only;
    const rs_rules_keys *keys;
    const reshard_mesh *mesh;
    const char *name; /* of the tensor */
    int32_t span_count;
    const rs_glob_span *spans;
    int64_t default_count;
    const rs_number_default *defaults;
    rs_number_dealt *dealt; /* is told of what is dealt out; may be NULL */
} rs_number_scope;

/* A place in a text that ends at `end`. */
typedef struct rs_cursor {
    const char *at, *end;
} rs_cursor;

void rs_cursor_skip_spaces(rs_cursor *cursor);
/* Skips spaces and takes the byte behind them if it is `c`. */
bool rs_cursor_accept(rs_cursor *cursor, char c);
/* Skips spaces and takes the word behind them (letters, digits and _) if it is `word`. */
bool rs_cursor_accept_word(rs_cursor *cursor, const char *word);
/* Skips spaces; true when a number follows that the grammar of specs does not have. */
bool rs_cursor_at_variable(rs_cursor *cursor);

/* The text of a key, here or in text_config; NULL when it has none. */
const char *rs_key_text(const rs_rules_keys *keys, const char *key);

/* Reads a number and stops behind it. Errors: SYNTAX, NOT_FOUND (a key without value), INVALID (a
 * quotient that is not whole, a wildcard that stands for no number), RANGE. */
reshard_status rs_number_read(const rs_number_scope *scope, rs_cursor *cursor, int64_t *out_number);

#endif
