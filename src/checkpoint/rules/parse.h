/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parse.h - what parse.c, which reads lines of rules, shares with parse_words.c, which reads the
 * words of a line.
 */
#ifndef RS_CHECKPOINT_RULES_PARSE_H
#define RS_CHECKPOINT_RULES_PARSE_H

#include "checkpoint/rules/model.h"
#include "spec/scan.h"

typedef struct rs_rules_parser {
    rs_rules *rules;
    int depth;        /* of nested `use` */
    rs_rule rule;     /* the rule of this line */
    bool says_R;      /* this line has a bare R */
    rs_cursor cursor; /* over this line */
} rs_rules_parser;

bool rs_rules_is_space(char c);
/* The text from start to end, without the spaces around it. */
rs_slice rs_rules_between(const char *start, const char *end);
/* Skips spaces. Whether only a comment, or nothing, is left of the line. */
bool rs_rules_at_end(rs_rules_parser *parser);
/* Checks the syntax of a number, and returns its text. */
reshard_status rs_rules_take_number(rs_rules_parser *parser, rs_cursor *cursor, rs_slice *out_text);

/* Reads the next word after the glob, and adds it to the rule. */
reshard_status rs_rules_parse_word(rs_rules_parser *parser);

#endif
