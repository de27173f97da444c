/* SPDX-License-Identifier: Apache-2.0 */
/*
 * number.h - numbers in rules: sums, differences, products and exact quotients of digits, $keys of
 * the model's configuration, @axes of the mesh, and {n}, the value of the pattern's n-th wildcard.
 *
 *   number := term { ("+" | "-") term }
 *   term   := factor { ("*" | "/") factor }
 *   factor := digits | "$" key [ "?" factor ] | "@" axis | "{" n "}" | word | "(" number ")"
 *           | ( "lcm" | "min" | "max" ) "(" number "," number ")"
 *
 * Words are names that maps give to numbers (checkpoint/maps); rules have none.
 */
#ifndef RS_CHECKPOINT_RULES_NUMBER_H
#define RS_CHECKPOINT_RULES_NUMBER_H

#include "base/slice.h"
#include "checkpoint/rules/glob.h"
#include "checkpoint/rules/rules.h"

#define RS_KEY_BYTES 128 /* longest $key, including its NUL */
#define RS_KEY_NESTED_BYTES (RS_KEY_BYTES + 32)

/* The value of a key that the configuration does not have: a line `default key number` of the
 * rules. */
typedef struct rs_number_default {
    rs_slice key, number;
} rs_number_default;

/* An axis over the ranks of another one: in a mesh it is no further axis. */
typedef struct rs_same_axes {
    const char *name, *of;
    int32_t size; /* that the mesh gave it; 1 until then */
} rs_same_axes;

/* Of all "i of n" so far: the highest i, and n. */
typedef struct rs_number_dealt {
    int64_t highest, count;
} rs_number_dealt;

/* What the parts of a number refer to. */
typedef struct rs_number_scope {
    /* Only check the syntax: nothing has a value yet, and every part counts as 1. */
    bool form_only;
    const rs_rules_keys *keys;
    const reshard_mesh *mesh;
    const char *name; /* of the tensor */
    int32_t span_count;
    const rs_glob_span *spans;
    int64_t default_count;
    const rs_number_default *defaults;
    int32_t same_count;
    const rs_same_axes *same; /* axes that were taken out of the mesh */
    /* The value of a word; NULL: there are no words. Returns false if it has none. */
    bool (*find_word)(void *user, rs_slice word, int64_t *out_value);
    void *user;
    bool knows_words;       /* with form_only: ask for words nevertheless */
    rs_number_dealt *dealt; /* records "i of n" coordinates; may be NULL */
} rs_number_scope;

/* A position in a text that ends at `end`. */
typedef struct rs_cursor {
    const char *at, *end;
} rs_cursor;

void rs_cursor_skip_spaces(rs_cursor *cursor);
/* Skips spaces, and consumes the next byte if it is `c`. */
bool rs_cursor_accept(rs_cursor *cursor, char c);
/* Skips spaces, and consumes the next word (letters, digits and _) if it is `word`. */
bool rs_cursor_accept_word(rs_cursor *cursor, const char *word);
/* Skips spaces. Returns true if a number follows that the grammar of specs does not have. */
bool rs_cursor_at_variable(rs_cursor *cursor);

/* Where a key may be, one place after the other: at the top level, then in a part for the text
 * model. Returns false behind the last place. */
bool rs_key_nested(const char *key, int place, char out_key[RS_KEY_NESTED_BYTES]);
/* The text of a key, at the top level or in the part for the text model; NULL if it has none. */
const char *rs_key_text(const rs_rules_keys *keys, const char *key);

/* Reads a number and stops after it. Errors: SYNTAX, NOT_FOUND (a key without a value), INVALID (a
 * quotient that is not whole, a wildcard that is not a number), RANGE. */
reshard_status rs_number_read(const rs_number_scope *scope, rs_cursor *cursor, int64_t *out_number);

#endif
