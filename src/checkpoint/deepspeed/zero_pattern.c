/* SPDX-License-Identifier: Apache-2.0 */
/* zero_pattern.c - matches by backtracking, in a bounded number of steps: patterns come with the
 * checkpoint and are not trusted. */
#include "checkpoint/deepspeed/zero.h"

#include "text/text.h"

#include <string.h>

#define STEPS_MAX 1000000
#define PATTERN_BYTES_MAX 4096

typedef struct matcher {
    rs_slice pattern, name;
    int64_t steps_left;
} matcher;

/* One character of a pattern: itself, an escape, a set. */
typedef struct atom {
    size_t begin, end; /* in the pattern */
} atom;

/* Finds the end of the atom that begins here; 0 if it is not understood. */
static size_t find_end(rs_slice pattern, size_t at)
{
    char c = pattern.bytes[at];
    if (c == '\\') {
        bool is_letter = at + 1 < pattern.count && rs_is_letter(pattern.bytes[at + 1]);
        bool is_known = at + 1 < pattern.count && strchr("dw_", pattern.bytes[at + 1]) != NULL;
        bool is_digit = at + 1 < pattern.count && rs_is_digit(pattern.bytes[at + 1]);
        return at + 1 < pattern.count && !is_digit && (!is_letter || is_known) ? at + 2 : 0;
    }
    if (c == '[') {
        size_t end = at + 1;
        while (end < pattern.count && (pattern.bytes[end] != ']' || end == at + 1))
            end += pattern.bytes[end] == '\\' ? 2 : 1;
        return end < pattern.count ? end + 1 : 0;
    }
    return strchr("()|{}*+?^$", c) == NULL && c != '\0' ? at + 1 : 0;
}

static bool is_escaped_by(char letter, char c)
{
    if (letter == 'd')
        return rs_is_digit(c);
    if (letter == 'w')
        return rs_is_digit(c) || rs_is_letter(c);
    return c == letter;
}

static bool set_contains(rs_slice pattern, atom set, char c)
{
    size_t at = set.begin + 1, last = set.end - 1;
    bool is_negated = at < last && pattern.bytes[at] == '^', is_in = false;
    at += is_negated;
    while (at < last) {
        const char *text = pattern.bytes + at;
        if (text[0] == '\\' && at + 1 < last) {
            is_in = is_in || is_escaped_by(text[1], c);
            at += 2;
        } else if (at + 2 < last && text[1] == '-') {
            is_in = is_in || (c >= text[0] && c <= text[2]);
            at += 3;
        } else {
            is_in = is_in || c == text[0];
            at++;
        }
    }
    return is_in != is_negated;
}

static bool accepts(rs_slice pattern, atom one, char c)
{
    char first = pattern.bytes[one.begin];
    if (first == '\\')
        return is_escaped_by(pattern.bytes[one.begin + 1], c);
    if (first == '[')
        return set_contains(pattern, one, c);
    return first == '.' ? c != '\n' : c == first;
}

/* Matches the pattern from `at` on with the name from `from` on. Its depth is bounded by the
 * pattern's length. */
static bool match_rest(matcher *m, size_t at, size_t from)
{
    for (;;) {
        if (at == m->pattern.count)
            return true;
        if (--m->steps_left < 0)
            return false;
        if (m->pattern.bytes[at] == '$' && at + 1 == m->pattern.count)
            return from == m->name.count;
        atom one = {at, find_end(m->pattern, at)};
        char how = one.end < m->pattern.count ? m->pattern.bytes[one.end] : '\0';
        bool repeats = how == '*' || how == '+';
        bool may_lack = how == '*' || how == '?';
        if (!repeats && !may_lack) {
            if (from >= m->name.count || !accepts(m->pattern, one, m->name.bytes[from]))
                return false;
            at = one.end;
            from++;
            continue;
        }
        size_t most = from;
        while (most < m->name.count && (repeats || most == from) &&
               accepts(m->pattern, one, m->name.bytes[most]))
            most++;
        for (size_t next = most + 1; next-- > from + (may_lack ? 0 : 1);) {
            if (match_rest(m, one.end + 1, next))
                return true;
        }
        return false;
    }
}

static bool is_understood(rs_slice pattern)
{
    size_t at = 0;
    while (at < pattern.count) {
        if (pattern.bytes[at] == '$' && at + 1 == pattern.count)
            return true;
        at = find_end(pattern, at);
        if (at == 0)
            return false;
        if (at < pattern.count && strchr("*+?", pattern.bytes[at]) != NULL)
            at++;
    }
    return true;
}

reshard_status rs_zero_pattern_match(rs_slice pattern, rs_slice name, bool *out_matches)
{
    rs_slice rest = pattern;
    if (rest.count != 0 && rest.bytes[0] == '^')
        rest = (rs_slice){rest.bytes + 1, rest.count - 1};
    if (rest.count > PATTERN_BYTES_MAX || !is_understood(rest))
        return rs_fail(RESHARD_ERR_UNSUPPORTED,
                       "universal_checkpoint_info has the pattern \"%.*s\", which uses parts of "
                       "Python's regular expressions that are not supported",
                       RS_SHOWN(pattern));
    matcher m = {rest, name, STEPS_MAX};
    bool matches = match_rest(&m, 0, 0);
    if (m.steps_left < 0)
        return rs_fail(
            RESHARD_ERR_RANGE,
            "universal_checkpoint_info has the pattern \"%.*s\", which takes too long to "
            "match",
            RS_SHOWN(pattern));
    *out_matches = matches;
    return RESHARD_OK;
}
