/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parse_words.c - the words after the glob of a rule:
 *
 *   word  := "R" | ( "R" | "S.." | "A(..)" | "refuse(" text ")" ) "@" axis
 *          | "pad(" dim "," number [ "," number ] ")" | "name(" text ")" | "drop" | "uneven" |
 *          "even" | "size(" dim "," number ")"
 *          | "like(" name { "," ( dim [ "/n" ] | "-" ) } ")"
 *          | "when(" ( number | "$" key "=" text { "|" text } ) ")" | "without(" glob ")"
 *
 * The syntax of placements is checked with an axis longer than any that a rule is likely to mean.
 */
#include "base/context.h"
#include "base/error.h"
#include "checkpoint/rules/parse.h"
#include "text/nearest.h"
#include "text/text.h"

#include <inttypes.h>
#include <string.h>

#define AXES_MAX 64 /* distinct axes in a set */
#define AXIS_BYTES_MAX 64
#define PROBE_AXIS_SIZE 1000000

/* A word after the glob, such as S(0). */
typedef struct rule_word {
    rs_slice letters; /* "S" */
    rs_slice whole;   /* "S(0)" */
    rs_slice inside;  /* "0" */
    bool has_parentheses;
} rule_word;

/* The scope for checking the syntax of numbers: every key exists. */
static rs_number_scope form_scope(const rs_rules_parser *parser)
{
    return (rs_number_scope){.form_only = true, .span_count = parser->rule.glob.wildcard_count};
}

/* ---- axes ------------------------------------------------------------------------------------ */

static reshard_status remember_axis(rs_rules *rules, const char *start, size_t length,
                                    const char **out_axis)
{
    for (int64_t i = 0; i < rules->axis_count; i++) {
        if (strlen(rules->axes[i]) == length && memcmp(rules->axes[i], start, length) == 0) {
            *out_axis = rules->axes[i];
            return RESHARD_OK;
        }
    }
    if (rules->axis_count == AXES_MAX || length > AXIS_BYTES_MAX)
        return rs_fail(RESHARD_ERR_RANGE,
                       "there are more than %d axes, or the name of one has more than %d bytes",
                       AXES_MAX, AXIS_BYTES_MAX);
    void *axes = (void *)rules->axes;
    reshard_status status = rs_grow(rules->context, &axes, &rules->axis_capacity,
                                    rules->axis_count + 1, sizeof *rules->axes);
    rules->axes = axes;
    char *name = status == RESHARD_OK ? rs_arena_allocate(&rules->arena, length + 1) : NULL;
    if (name == NULL)
        return rs_allocation_status();
    memcpy(name, start, length);
    name[length] = '\0';
    rules->axes[rules->axis_count++] = name;
    *out_axis = name;
    return RESHARD_OK;
}

static reshard_status parse_axis(rs_rules_parser *parser, const char **out_axis)
{
    const char *start = ++parser->cursor.at; /* skips the @ */
    while (parser->cursor.at < parser->cursor.end &&
           (rs_is_letter(*parser->cursor.at) ||
            (rs_is_digit(*parser->cursor.at) && parser->cursor.at > start)))
        parser->cursor.at++;
    size_t length = (size_t)(parser->cursor.at - start);
    if (length == 0)
        return rs_fail(RESHARD_ERR_SYNTAX, "expected the name of an axis after @");
    return remember_axis(parser->rules, start, length, out_axis);
}

/* ---- words ----------------------------------------------------------------------------------- */

/* Reports something that is no word of the language, suggesting a similar word if there is one. */
static reshard_status fail_word(rs_slice found)
{
    static const char *const words[] = {"pad",     "size",   "name", "when",  "drop",  "like",
                                        "without", "uneven", "even", "zeros", "refuse"};
    size_t letters = 0;
    if (found.count >= 3 && memcmp(found.bytes, "???", 3) == 0)
        return rs_fail(RESHARD_ERR_SYNTAX, "fill in this line: it still says ???");
    while (letters < found.count && rs_is_letter(found.bytes[letters]))
        letters++;
    const char *nearest = rs_nearest(found.bytes, letters, words, sizeof words / sizeof *words);
    if (letters == 1 && strchr("sra", found.bytes[0]) != NULL)
        return rs_fail(RESHARD_ERR_SYNTAX, "\"%s\": cuts are written in capitals, %c",
                       rs_excerpt_of(found.bytes, found.count).text, found.bytes[0] - 'a' + 'A');
    return rs_fail(
        RESHARD_ERR_SYNTAX,
        "expected a cut, pad(), size(), name(), like(), when(), without(), even, uneven, zeros or "
        "drop, found \"%s\"%s%s%s",
        rs_excerpt_of(found.bytes, found.count).text, nearest != NULL ? "; did you mean " : "",
        nearest != NULL ? nearest : "", nearest != NULL ? "?" : "");
}

/* Consumes letters, then either digits as in S0 and S-1, or parentheses with everything inside. */
static reshard_status parse_word(rs_rules_parser *parser, rule_word *out_word)
{
    rs_cursor *cursor = &parser->cursor;
    const char *start = cursor->at;
    rule_word word = {.has_parentheses = false};
    while (cursor->at < cursor->end && rs_is_letter(*cursor->at))
        cursor->at++;
    word.letters = (rs_slice){start, (size_t)(cursor->at - start)};
    if (word.letters.count == 0)
        return fail_word((rs_slice){start, (size_t)(cursor->end - start)});
    while (cursor->at < cursor->end && (rs_is_digit(*cursor->at) || *cursor->at == '-'))
        cursor->at++;
    if (cursor->at < cursor->end && *cursor->at == '(') {
        const char *inside = cursor->at + 1;
        int64_t depth = 0;
        do {
            if (cursor->at == cursor->end)
                return rs_fail(RESHARD_ERR_SYNTAX, "( without )");
            depth += (*cursor->at == '(') - (*cursor->at == ')');
            cursor->at++;
        } while (depth != 0);
        word.has_parentheses = true;
        word.inside = rs_rules_between(inside, cursor->at - 1);
    }
    word.whole = (rs_slice){start, (size_t)(cursor->at - start)};
    *out_word = word;
    return RESHARD_OK;
}

static reshard_status check_placement(rs_rules_parser *parser, const rs_rule_cut *cut)
{
    reshard_spec *spec = NULL;
    rs_number_scope scope = form_scope(parser);
    reshard_status status =
        rs_rule_placement_parse(parser->rules->context, &scope, cut, PROBE_AXIS_SIZE, &spec);
    reshard_spec_release(spec);
    /* INVALID may only be due to every key counting as 1, so it is checked again with real
     * values. */
    return status == RESHARD_ERR_INVALID ? RESHARD_OK : status;
}

/* The set of {n} in a text, as in rs_rule_cut. */
static uint64_t find_wildcards(rs_slice text)
{
    uint64_t found = 0;
    for (size_t i = 0; i < text.count; i++) {
        int32_t n = 0;
        if (text.bytes[i] != '{')
            continue;
        while (i + 1 < text.count && rs_is_digit(text.bytes[i + 1]) && n <= RS_GLOB_ELEMENTS_MAX)
            n = n * 10 + (text.bytes[++i] - '0');
        if (n >= 1 && n <= RS_GLOB_ELEMENTS_MAX)
            found |= (uint64_t)1 << (n - 1);
    }
    return found;
}

static reshard_status add_cut(rs_rules_parser *parser, const rule_word *word)
{
    rs_rule *rule = &parser->rule;
    rs_rule_cut cut = {.placement = word->whole,
                       .wildcards = find_wildcards(word->whole),
                       .refuses = rs_slice_equals(word->letters, "refuse")};
    bool replicates = rs_slice_equals(word->whole, "R");
    if (parser->cursor.at == parser->cursor.end || *parser->cursor.at != '@') {
        if (!replicates)
            return rs_fail(RESHARD_ERR_SYNTAX, "%s needs the axis that cuts: %s@axis",
                           rs_excerpt_of(word->whole.bytes, word->whole.count).text,
                           rs_excerpt_of(word->whole.bytes, word->whole.count).text);
        parser->says_R = true;
        return RESHARD_OK;
    }
    reshard_status status = parse_axis(parser, &cut.axis);
    if (status != RESHARD_OK)
        return status;
    for (int32_t i = 0; i < rule->cut_count; i++) {
        if (rule->cuts[i].axis == cut.axis)
            return rs_fail(RESHARD_ERR_INVALID, "axis %s cuts twice", cut.axis);
    }
    if (rule->cut_count == RESHARD_AXES_MAX)
        return rs_fail(RESHARD_ERR_RANGE, "there are more than %d cuts", RESHARD_AXES_MAX);
    if (cut.refuses)
        cut.placement = word->inside;
    else
        status = check_placement(parser, &cut);
    if (status == RESHARD_OK)
        rule->cuts[rule->cut_count++] = cut;
    return status;
}

reshard_status rs_rules_take_number(rs_rules_parser *parser, rs_cursor *cursor, rs_slice *out_text)
{
    const char *start = cursor->at;
    int64_t number;
    rs_number_scope scope = form_scope(parser);
    reshard_status status = rs_number_read(&scope, cursor, &number);
    if (status == RESHARD_OK)
        *out_text = rs_rules_between(start, cursor->at);
    return status;
}

/* Reads the dimension that pad() and size() begin with, and the comma after it. */
static reshard_status take_dim(rs_cursor *cursor, const char *word, int32_t *out_dim)
{
    int32_t dim = 0;
    bool negative = rs_cursor_accept(cursor, '-');
    if (cursor->at == cursor->end || !rs_is_digit(*cursor->at))
        return rs_fail(RESHARD_ERR_SYNTAX, "%s(dim, number) needs a dimension first", word);
    for (; cursor->at < cursor->end && rs_is_digit(*cursor->at); cursor->at++)
        dim = dim < 100 ? dim * 10 + (*cursor->at - '0') : dim;
    dim = negative ? -dim : dim;
    if (dim < -RESHARD_NDIM_MAX || dim >= RESHARD_NDIM_MAX)
        return rs_fail(RESHARD_ERR_RANGE, "%s: dimension %" PRId32 " is not between %d and %d",
                       word, dim, -RESHARD_NDIM_MAX, RESHARD_NDIM_MAX - 1);
    if (!rs_cursor_accept(cursor, ','))
        return rs_fail(RESHARD_ERR_SYNTAX, "%s(dim, number) needs a number", word);
    *out_dim = dim;
    return RESHARD_OK;
}

static reshard_status add_pad(rs_rules_parser *parser, const rule_word *word)
{
    rs_rule *rule = &parser->rule;
    rs_cursor cursor = {word->inside.bytes, word->inside.bytes + word->inside.count};
    rs_rule_pad pad = {.dim = 0};
    reshard_status status = take_dim(&cursor, "pad", &pad.dim);
    if (status == RESHARD_OK)
        status = rs_rules_take_number(parser, &cursor, &pad.multiple);
    if (status == RESHARD_OK && rs_cursor_accept(&cursor, ','))
        status = rs_rules_take_number(parser, &cursor, &pad.true_size);
    rs_cursor_skip_spaces(&cursor);
    if (status == RESHARD_OK && cursor.at != cursor.end)
        status =
            rs_fail(RESHARD_ERR_SYNTAX, "pad(dim, multiple, true size) takes no more than these");
    if (status == RESHARD_OK && rule->pad_count == RESHARD_NDIM_MAX)
        status = rs_fail(RESHARD_ERR_RANGE, "there are more than %d pads", RESHARD_NDIM_MAX);
    for (int32_t i = 0; status == RESHARD_OK && i < rule->pad_count; i++) {
        if (rule->pads[i].dim == pad.dim)
            status = rs_fail(RESHARD_ERR_INVALID, "pad: dimension %" PRId32 " twice", pad.dim);
    }
    if (status == RESHARD_OK)
        rule->pads[rule->pad_count++] = pad;
    return status;
}

static reshard_status add_size(rs_rules_parser *parser, const rule_word *word)
{
    rs_rule *rule = &parser->rule;
    rs_cursor cursor = {word->inside.bytes, word->inside.bytes + word->inside.count};
    rs_rule_size size = {.dim = 0};
    reshard_status status = take_dim(&cursor, "size", &size.dim);
    if (status == RESHARD_OK)
        status = rs_rules_take_number(parser, &cursor, &size.number);
    rs_cursor_skip_spaces(&cursor);
    if (status == RESHARD_OK && cursor.at != cursor.end)
        status = rs_fail(RESHARD_ERR_SYNTAX, "size(dim, number) takes no more than these");
    for (int32_t i = 0; status == RESHARD_OK && i < rule->size_count; i++) {
        if (rule->sizes[i].dim == size.dim)
            status = rs_fail(RESHARD_ERR_INVALID, "size: dimension %" PRId32 " twice", size.dim);
    }
    if (status == RESHARD_OK && rule->size_count == RESHARD_NDIM_MAX)
        status = rs_fail(RESHARD_ERR_RANGE, "there are more than %d sizes", RESHARD_NDIM_MAX);
    if (status == RESHARD_OK)
        rule->sizes[rule->size_count++] = size;
    return status;
}

static reshard_status set_name(rs_rules_parser *parser, const rule_word *word)
{
    rs_number_scope scope = form_scope(parser);
    size_t length = 0;
    if (word->inside.count == 0)
        return rs_fail(RESHARD_ERR_SYNTAX, "name() needs a name");
    if (parser->rule.new_name.count != 0)
        return rs_fail(RESHARD_ERR_INVALID, "name() is given twice");
    parser->rule.new_name = word->inside;
    return rs_rule_new_name(&scope, word->inside, NULL, 0, &length);
}

/* Splits "$key=text|text". Returns false if it is a number. */
static bool split_comparison(rs_slice inside, rs_slice *out_key, rs_slice *out_words)
{
    const char *equals = inside.count != 0 ? memchr(inside.bytes, '=', inside.count) : NULL;
    if (equals == NULL || inside.bytes[0] != '$')
        return false;
    *out_key = rs_rules_between(inside.bytes + 1, equals);
    *out_words = rs_rules_between(equals + 1, inside.bytes + inside.count);
    return true;
}

static reshard_status set_when(rs_rules_parser *parser, const rule_word *word)
{
    rs_cursor cursor = {word->inside.bytes, word->inside.bytes + word->inside.count};
    rs_rule *rule = &parser->rule;
    if (rule->when.count != 0 || rule->when_key.count != 0)
        return rs_fail(RESHARD_ERR_INVALID, "when() is given twice");
    if (split_comparison(word->inside, &rule->when_key, &rule->when_words)) {
        if (rule->when_key.count == 0 || rule->when_key.count >= RS_KEY_BYTES ||
            rule->when_words.count == 0)
            return rs_fail(RESHARD_ERR_SYNTAX, "expected when($key=text) or when($key=text|text)");
        return RESHARD_OK;
    }
    reshard_status status = rs_rules_take_number(parser, &cursor, &rule->when);
    if (status == RESHARD_OK && cursor.at != cursor.end)
        status =
            rs_fail(RESHARD_ERR_SYNTAX, "when() takes one number, which is not 0 when it holds");
    return status;
}

static reshard_status set_without(rs_rules_parser *parser, const rule_word *word)
{
    rs_rule *rule = &parser->rule;
    if (word->inside.count == 0)
        return rs_fail(RESHARD_ERR_SYNTAX, "without() needs a pattern");
    if (rule->without_text.count != 0)
        return rs_fail(RESHARD_ERR_INVALID, "without() is given twice");
    rule->without_text = word->inside;
    return rs_glob_compile(&parser->rules->arena, word->inside.bytes, word->inside.count,
                           &rule->without);
}

/* Reads "1", "1/n" or "-". */
static bool read_follow(rs_slice text, rs_rule_follow *out_follow)
{
    if (rs_slice_equals(text, "-")) {
        *out_follow = (rs_rule_follow){.dim = -1};
        return true;
    }
    if (text.count == 0 || text.bytes[0] < '0' || text.bytes[0] >= '0' + RESHARD_NDIM_MAX)
        return false;
    out_follow->dim = text.bytes[0] - '0';
    rs_slice rest = rs_rules_between(text.bytes + 1, text.bytes + text.count);
    out_follow->shares = rs_slice_equals(rest, "/n");
    return out_follow->shares || rest.count == 0;
}

static reshard_status set_like(rs_rules_parser *parser, const rule_word *word)
{
    rs_rule *rule = &parser->rule;
    rs_number_scope scope = form_scope(parser);
    const char *at = word->inside.bytes, *end = at + word->inside.count;
    size_t length = 0;
    if (rule->like.count != 0)
        return rs_fail(RESHARD_ERR_INVALID, "like() is given twice");
    for (bool is_name = true; at <= end; is_name = false) {
        const char *comma = at < end ? memchr(at, ',', (size_t)(end - at)) : NULL;
        rs_slice item = rs_rules_between(at, comma != NULL ? comma : end);
        at = comma != NULL ? comma + 1 : end + 1;
        if (is_name)
            rule->like = item;
        else if (rule->follow_count == RESHARD_NDIM_MAX ||
                 !read_follow(item, &rule->follows[rule->follow_count++]))
            return rs_fail(
                RESHARD_ERR_SYNTAX,
                "like(name, ..): \"%s\" is not a dimension; give 0, 1, .., 0/n, or - for none",
                rs_excerpt_of(item.bytes, item.count).text);
    }
    if (rule->like.count == 0 || rule->follow_count == 0)
        return rs_fail(RESHARD_ERR_SYNTAX, "expected like(name, dimension, ..)");
    return rs_rule_new_name(&scope, rule->like, NULL, 0, &length);
}

/* The flag that a word without parentheses sets; NULL: there is none. */
static bool *find_flag(rs_rule *rule, rs_slice letters)
{
    if (rs_slice_equals(letters, "drop"))
        return &rule->is_drop;
    if (rs_slice_equals(letters, "even"))
        return &rule->is_even;
    if (rs_slice_equals(letters, "uneven"))
        return &rule->is_uneven;
    return rs_slice_equals(letters, "zeros") ? &rule->is_zeros : NULL;
}

static reshard_status add_word(rs_rules_parser *parser, const rule_word *word)
{
    bool bare = !word->has_parentheses && word->whole.count == word->letters.count;
    if (rs_slice_equals(word->letters, "S") || rs_slice_equals(word->letters, "A") ||
        (rs_slice_equals(word->letters, "refuse") && word->has_parentheses) ||
        (rs_slice_equals(word->letters, "R") && bare))
        return add_cut(parser, word);
    if (rs_slice_equals(word->letters, "P"))
        return rs_fail(RESHARD_ERR_UNSUPPORTED,
                       "P has no meaning here: files hold values, not contributions to sums");
    if (rs_slice_equals(word->letters, "when") && word->has_parentheses)
        return set_when(parser, word);
    if (rs_slice_equals(word->letters, "without") && word->has_parentheses)
        return set_without(parser, word);
    if (parser->rule.is_every)
        return rs_fail(RESHARD_ERR_SYNTAX, "every: takes cuts, when() and without(), not \"%s\"",
                       rs_excerpt_of(word->whole.bytes, word->whole.count).text);
    if (rs_slice_equals(word->letters, "pad") && word->has_parentheses)
        return add_pad(parser, word);
    if (rs_slice_equals(word->letters, "size") && word->has_parentheses)
        return add_size(parser, word);
    if (rs_slice_equals(word->letters, "name") && word->has_parentheses)
        return set_name(parser, word);
    if (rs_slice_equals(word->letters, "like") && word->has_parentheses)
        return set_like(parser, word);
    bool *flag = bare ? find_flag(&parser->rule, word->letters) : NULL;
    if (flag != NULL) {
        *flag = true;
        return RESHARD_OK;
    }
    return fail_word(word->whole);
}

reshard_status rs_rules_parse_word(rs_rules_parser *parser)
{
    rule_word word = {.has_parentheses = false};
    reshard_status status = parse_word(parser, &word);
    return status == RESHARD_OK ? add_word(parser, &word) : status;
}
