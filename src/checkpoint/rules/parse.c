/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parse.c - reads a set of rules, line by line:
 *
 *   line  := [ rule ] [ "#" comment ]
 *   rule  := glob [ shape ] words | "every:" words | "every" glob ":" words | "use" family
 *          | "default" key number | "same" axis axis | "types" { model_type } | "sign" glob
 *   shape := "[" [ ( number | "*" ) { "," ( number | "*" ) } ] "]"
 *   words := word { [","] word }                                                parse_words.c
 *
 * All syntax is checked here. A set that has been read can fail later only because of the mesh, the
 * configuration or a tensor.
 */
#include "checkpoint/rules/parse.h"

#include "base/context.h"
#include "base/error.h"
#include "checkpoint/rules/families.h"
#include "text/text.h"

#include <inttypes.h>
#include <string.h>

#define RULES_MAX 10000
#define USE_DEPTH_MAX 4

bool rs_rules_is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f';
}

rs_slice rs_rules_between(const char *start, const char *end)
{
    while (start < end && rs_rules_is_space(*start))
        start++;
    while (start < end && rs_rules_is_space(end[-1]))
        end--;
    return (rs_slice){start, (size_t)(end - start)};
}

bool rs_rules_at_end(rs_rules_parser *parser)
{
    while (parser->cursor.at < parser->cursor.end && rs_rules_is_space(*parser->cursor.at))
        parser->cursor.at++;
    return parser->cursor.at == parser->cursor.end || *parser->cursor.at == '#';
}

/* Consumes everything up to the next space that has no backslash before it. */
static rs_slice take_token(rs_rules_parser *parser)
{
    rs_cursor *cursor = &parser->cursor;
    const char *start = cursor->at;
    while (cursor->at < cursor->end && !rs_rules_is_space(*cursor->at))
        cursor->at += *cursor->at == '\\' && cursor->end - cursor->at > 1 ? 2 : 1;
    return (rs_slice){start, (size_t)(cursor->at - start)};
}

static reshard_status parse_subject(rs_rules_parser *parser)
{
    rs_rule *rule = &parser->rule;
    rs_slice token = take_token(parser);
    if (rs_slice_equals(token, "every:")) {
        rule->is_every = true;
        token = (rs_slice){"*", 1};
    } else if (rs_slice_equals(token, "every")) {
        rule->is_every = true;
        (void)rs_rules_at_end(parser);
        token = take_token(parser);
        if (token.count < 2 || token.bytes[token.count - 1] != ':')
            return rs_fail(RESHARD_ERR_SYNTAX, "expected every: or every pattern:");
        token.count--;
    }
    rule->glob_text = token;
    return rs_glob_compile(&parser->rules->arena, token.bytes, token.count, &rule->glob);
}

/* Reads the "[a, *, b]" after the pattern, if there is one. */
static reshard_status parse_shape(rs_rules_parser *parser)
{
    rs_rule *rule = &parser->rule;
    rs_cursor *cursor = &parser->cursor;
    if (rs_rules_at_end(parser) || *cursor->at != '[')
        return RESHARD_OK;
    if (rule->is_every)
        return rs_fail(RESHARD_ERR_SYNTAX, "every: takes no shape");
    cursor->at++;
    rule->has_shape = true;
    if (rs_cursor_accept(cursor, ']'))
        return RESHARD_OK;
    do {
        rs_slice item = {"*", 1};
        if (rule->shape_ndim == RESHARD_NDIM_MAX)
            return rs_fail(RESHARD_ERR_RANGE, "the shape has more than %d dimensions",
                           RESHARD_NDIM_MAX);
        reshard_status status = rs_cursor_accept(cursor, '*')
                                    ? RESHARD_OK
                                    : rs_rules_take_number(parser, cursor, &item);
        if (status != RESHARD_OK)
            return rs_fail_within(status, "shape");
        rule->shape[rule->shape_ndim++] = item;
    } while (rs_cursor_accept(cursor, ','));
    if (!rs_cursor_accept(cursor, ']'))
        return rs_fail(RESHARD_ERR_SYNTAX, "expected , or ] in a shape");
    return RESHARD_OK;
}

static bool has_at(const rs_rule *rule)
{
    bool has = false;
    for (int32_t i = 0; i < rule->cut_count; i++)
        has = has || (!rule->cuts[i].refuses && rule->cuts[i].placement.bytes[0] == 'A');
    return has;
}

static reshard_status check_whole(const rs_rules_parser *parser)
{
    const rs_rule *rule = &parser->rule;
    bool follows = rule->like.count != 0;
    bool cuts = rule->cut_count != 0 || rule->pad_count != 0;
    bool says = cuts || rule->new_name.count != 0 || follows;
    if (follows && (cuts || parser->says_R))
        return rs_fail(RESHARD_ERR_INVALID, "a line with like() cannot have a cut, R or pad()");
    if (rule->is_drop && (says || parser->says_R))
        return rs_fail(RESHARD_ERR_INVALID,
                       "a line with drop cannot have a cut, R, pad(), like() or name()");
    if (!says && !rule->is_drop && !parser->says_R)
        return rs_fail(RESHARD_ERR_SYNTAX, "no cut follows the pattern; R keeps a tensor whole");
    if (rule->is_even && rule->is_uneven)
        return rs_fail(RESHARD_ERR_INVALID, "even and uneven exclude each other");
    if (rule->is_zeros && !has_at(rule))
        return rs_fail(RESHARD_ERR_INVALID, "zeros needs an A(), which leaves ranks out");
    if (rule->is_every && rule->cut_count == 0)
        return rs_fail(RESHARD_ERR_SYNTAX, "every: needs a cut");
    return RESHARD_OK;
}

static reshard_status keep_rule(rs_rules *rules, const rs_rule *rule)
{
    if (rules->rule_count == RULES_MAX)
        return rs_fail(RESHARD_ERR_RANGE, "there are more than %d rules", RULES_MAX);
    reshard_status status = rs_grow(rules->context, &rules->rules, &rules->rule_capacity,
                                    rules->rule_count + 1, sizeof *rule);
    if (status == RESHARD_OK)
        rules->rules[rules->rule_count++] = *rule;
    return status;
}

static reshard_status parse_lines(rs_rules *rules, const char *file_name, int depth,
                                  const char *text, size_t bytes);

/* Reads the rules of a built-in family as if they were written here. */
static reshard_status parse_use(rs_rules_parser *parser)
{
    (void)rs_rules_at_end(parser);
    rs_slice name = take_token(parser);
    const rs_rule_family *family = rs_rule_family_find(name.bytes, name.count);
    if (family == NULL)
        return RESHARD_ERR_NOT_FOUND;
    if (!rs_rules_at_end(parser))
        return rs_fail(RESHARD_ERR_SYNTAX, "use takes the name of one family");
    if (parser->depth == USE_DEPTH_MAX)
        return rs_fail(RESHARD_ERR_SYNTAX, "families use each other in a circle");
    return parse_lines(parser->rules, family->name, parser->depth + 1, family->text,
                       strlen(family->text));
}

/* Reads `default key number`. */
static reshard_status parse_default(rs_rules_parser *parser)
{
    rs_rules *rules = parser->rules;
    rs_number_default made = {.key = {NULL, 0}};
    (void)rs_rules_at_end(parser);
    made.key = take_token(parser);
    if (made.key.count == 0 || made.key.bytes[0] == '$')
        return rs_fail(RESHARD_ERR_SYNTAX, "expected default KEY NUMBER, the key without $");
    reshard_status status = rs_rules_take_number(parser, &parser->cursor, &made.number);
    if (status == RESHARD_OK && !rs_rules_at_end(parser))
        status = rs_fail(RESHARD_ERR_SYNTAX, "default takes a key and a number, and nothing else");
    if (status == RESHARD_OK)
        status = rs_grow(rules->context, &rules->defaults, &rules->default_capacity,
                         rules->default_count + 1, sizeof made);
    if (status == RESHARD_OK)
        rules->defaults[rules->default_count++] = made;
    return status;
}

/* Copies the next token, the name of an axis. */
static reshard_status take_axis(rs_rules_parser *parser, const char **out_name)
{
    (void)rs_rules_at_end(parser);
    rs_slice token = take_token(parser);
    char *name = rs_arena_allocate(&parser->rules->arena, token.count + 1);
    if (name == NULL)
        return rs_allocation_status();
    memcpy(name, token.bytes, token.count);
    name[token.count] = '\0';
    *out_name = name;
    return RESHARD_OK;
}

/* Reads `same axis axis`. */
static reshard_status parse_same(rs_rules_parser *parser)
{
    rs_rules *rules = parser->rules;
    rs_same_axes made = {.size = 1};
    reshard_status status = take_axis(parser, &made.name);
    if (status == RESHARD_OK)
        status = take_axis(parser, &made.of);
    if (status != RESHARD_OK)
        return status;
    if (made.of[0] == '\0' || strcmp(made.name, made.of) == 0 || !rs_rules_at_end(parser))
        return rs_fail(RESHARD_ERR_SYNTAX, "expected same AXIS AXIS, two different axes");
    if (rules->same_count == RS_SAME_AXES_MAX)
        return rs_fail(RESHARD_ERR_RANGE, "there are more than %d lines with same",
                       RS_SAME_AXES_MAX);
    rules->same[rules->same_count++] = made;
    return RESHARD_OK;
}

static bool accept_word(rs_rules_parser *parser, const char *word)
{
    rs_cursor start = parser->cursor;
    if (rs_slice_equals(take_token(parser), word))
        return true;
    parser->cursor = start;
    return false;
}

static reshard_status parse_line(rs_rules_parser *parser)
{
    if (rs_rules_at_end(parser))
        return RESHARD_OK;
    if (accept_word(parser, "use"))
        return parse_use(parser);
    if (accept_word(parser, "default"))
        return parse_default(parser);
    if (accept_word(parser, "same"))
        return parse_same(parser);
    if (accept_word(parser, "types") || accept_word(parser, "sign"))
        return RESHARD_OK; /* these say which models a family is for (families.c) */
    reshard_status status = parse_subject(parser);
    if (status == RESHARD_OK)
        status = parse_shape(parser);
    while (status == RESHARD_OK && !rs_rules_at_end(parser)) {
        status = rs_rules_parse_word(parser);
        if (!rs_rules_at_end(parser) && *parser->cursor.at == ',')
            parser->cursor.at++;
    }
    if (status == RESHARD_OK)
        status = check_whole(parser);
    if (status == RESHARD_OK)
        status = keep_rule(parser->rules, &parser->rule);
    return status;
}

static reshard_status parse_lines(rs_rules *rules, const char *file_name, int depth,
                                  const char *text, size_t bytes)
{
    const char *end = text + bytes;
    int32_t line = 1;
    for (const char *start = text; start < end; line++) {
        const char *newline = memchr(start, '\n', (size_t)(end - start));
        const char *stop = newline != NULL ? newline : end;
        rs_rules_parser parser = {.rules = rules,
                                  .depth = depth,
                                  .rule = {.file_name = file_name, .line = line},
                                  .cursor = {start, stop}};
        reshard_status status;
        if (memchr(start, '\0', (size_t)(stop - start)) != NULL)
            status = rs_fail(RESHARD_ERR_SYNTAX, "there is a NUL byte");
        else if (rs_slice_is_marked((rs_slice){start, (size_t)(stop - start)}))
            status = rs_fail(RESHARD_ERR_SYNTAX,
                             "the line begins with a mark of UTF-8 (U+FEFF); remove it");
        else
            status = parse_line(&parser);
        if (status != RESHARD_OK) {
            rs_slice said = rs_rules_between(start, stop);
            return rs_fail_within(status, RS_RULE_PLACE ": \"%s\"", file_name, line,
                                  rs_excerpt_of(said.bytes, said.count).text);
        }
        start = newline != NULL ? newline + 1 : end;
    }
    return RESHARD_OK;
}

reshard_status rs_rules_parse(reshard_context *context, const char *text, size_t bytes,
                              const char *file_name, rs_rules **out_rules)
{
    reshard_status status = RESHARD_OK;
    if (bytes > INT32_MAX)
        return rs_fail_about(RESHARD_ERR_RANGE, file_name, "the rules have more than 2^31-1 bytes");
    rs_rules *rules = rs_allocate_zeroed(context, sizeof *rules);
    if (rules == NULL)
        return rs_allocation_status();
    rules->context = context;
    rs_arena_init(&rules->arena, context);
    rs_slice whole = rs_slice_unmarked(text, bytes);
    char *copy = rs_arena_copy(&rules->arena, whole.bytes, whole.count, 1);
    rules->file_name =
        copy != NULL ? rs_arena_copy(&rules->arena, file_name, strlen(file_name) + 1, 1) : NULL;
    if (rules->file_name == NULL)
        status = rs_allocation_status();
    else
        status = parse_lines(rules, rules->file_name, 0, copy, whole.count);
    if (status == RESHARD_OK && rules->rule_count == 0)
        status = rs_fail_about(RESHARD_ERR_SYNTAX, rules->file_name, "there are no rules");
    if (status != RESHARD_OK)
        rs_rules_destroy(rules);
    else
        *out_rules = rules;
    return status;
}

void rs_rules_destroy(rs_rules *rules)
{
    if (rules == NULL)
        return;
    rs_release(rules->context, rules->rules);
    rs_release(rules->context, rules->defaults);
    rs_release(rules->context, (void *)rules->axes);
    rs_arena_release(&rules->arena);
    rs_release(rules->context, rules);
}
