/* SPDX-License-Identifier: Apache-2.0 */
/*
 * number.h - numbers in rules: products and exact quotients of digits, $keys of the model's
 * configuration, @axes of the mesh and {n}, what a wildcard of the pattern stands for.
 *
 *   number := factor { ("*" | "/") factor }
 *   factor := digits | "$" key [ "?" factor ] | "@" axis | "{" n "}" | "(" number ")"
 *           | "lcm(" number "," number ")"
 */
#ifndef RS_CHECKPOINT_RULES_NUMBER_H
#define RS_CHECKPOINT_RULES_NUMBER_H

#include "checkpoint/rules/glob.h"
#include "checkpoint/rules/rules.h"

/* What the parts of a number stand for. */
typedef struct rs_number_scope {
    /* Nothing has a value yet: only the form is looked at, and all is 1. */
    bool form_only;
    const rs_rules_keys *keys;
    const reshard_mesh *mesh;
    const char *name; /* of the tensor */
    int32_t span_count;
    const rs_glob_span *spans;
} rs_number_scope;

/* Text that is being read; ends at `end`. */
typedef struct rs_cursor {
    const char *at, *end;
} rs_cursor;

void rs_cursor_skip_spaces(rs_cursor *cursor);
/* Skips spaces and takes the byte behind them if it is `c`. */
bool rs_cursor_accept(rs_cursor *cursor, char c);
/* Skips spaces; letters, digits and _ from a letter or _ on. Takes them if they are `word`. */
bool rs_cursor_accept_word(rs_cursor *cursor, const char *word);
/* Skips spaces; true when what is there is a number that the grammar of specs does not know. */
bool rs_cursor_at_variable(rs_cursor *cursor);

/* Reads as far as the number goes. Errors: SYNTAX, NOT_FOUND (a key without value), INVALID (a
 * quotient that is not whole, a wildcard that stands for no number), RANGE. */
reshard_status rs_number_read(const rs_number_scope *scope, rs_cursor *cursor, int64_t *out_number);

#endif
