/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parse.h - what reading lines of rules (parse.c) and the words in them (parse_words.c) share.
 */
#ifndef RS_CHECKPOINT_RULES_PARSE_H
#define RS_CHECKPOINT_RULES_PARSE_H

#include "checkpoint/rules/model.h"
#include "spec/scan.h"

typedef struct rs_rules_parser {
    rs_rules *rules;
    int depth;        /* of `use` */
    rs_rule rule;     /* of this line */
    bool says_R;      /* the line has a bare R */
    rs_cursor cursor; /* over this line */
} rs_rules_parser;

bool rs_rules_is_space(char c);
/* A text without the spaces around it. */
rs_slice rs_rules_between(const char *start, const char *end);
/* Passes over spaces. Is nothing left of the line but a comment? */
bool rs_rules_at_end(rs_rules_parser *parser);
/* Checks the form of a number and gives its text. */
reshard_status rs_rules_take_number(rs_rules_parser *parser, rs_cursor *cursor, rs_slice *out_text);

/* Reads the next word behind the glob, and adds what it says to the rule. */
reshard_status rs_rules_parse_word(rs_rules_parser *parser);

#endif
