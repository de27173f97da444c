/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json.c - the scanner: one function for each kind of token, and a state that says what the grammar
 * allows next.
 */
#include "text/json.h"

#include "base/context.h"
#include "base/error.h"
#include "base/utf8.h"

#include <string.h>

enum {
    WANT_VALUE,
    WANT_VALUE_OR_END,
    WANT_KEY,
    WANT_KEY_OR_END,
    WANT_COMMA_OR_END,
    WANT_TEXT_END,
};

void rs_json_init(rs_json *json, const char *what, const char *bytes, size_t count)
{
    json->bytes = bytes;
    json->count = count;
    json->at = 0;
    json->what = what;
    json->is_python = false;
    json->state = WANT_VALUE;
    json->depth = 0;
}

static reshard_status fail_at(const rs_json *json, size_t at, const char *words)
{
    return rs_fail(RESHARD_ERR_SYNTAX, "%s, byte %zu: %s", json->what, at, words);
}

reshard_status rs_json_fail(const rs_json *json, const rs_json_token *token, const char *words)
{
    return fail_at(json, (size_t)(token->bytes - json->bytes), words);
}

static void skip_space(rs_json *json)
{
    while (json->at < json->count) {
        char c = json->bytes[json->at];
        if (c != ' ' && c != '\t' && c != '\n' && c != '\r')
            return;
        json->at++;
    }
}

/* Reads four hexadecimal digits, or returns -1. */
static int32_t read_hex(const char *bytes, const char *end)
{
    int32_t value = 0;
    if (end - bytes < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        char c = bytes[i];
        if (c >= '0' && c <= '9')
            value = value * 16 + (c - '0');
        else if (c >= 'a' && c <= 'f')
            value = value * 16 + (c - 'a' + 10);
        else if (c >= 'A' && c <= 'F')
            value = value * 16 + (c - 'A' + 10);
        else
            return -1;
    }
    return value;
}

bool rs_json_is_text(const char *bytes, size_t count)
{
    for (size_t at = 0, length; at < count; at += length) {
        length = rs_utf8_measure(bytes + at, count - at);
        if (length == 0)
            return false;
    }
    return true;
}

/* Skips an escape, whose backslash is at json->at. */
static reshard_status scan_escape(rs_json *json)
{
    const char *end = json->bytes + json->count;
    const char *at = json->bytes + json->at + 1;
    if (at == end)
        return fail_at(json, json->at, "the text ends inside a string");
    if (*at != 'u') {
        if (memchr("\"\\/bfnrt", *at, 8) == NULL)
            return fail_at(json, json->at, "an escape that JSON does not have");
        json->at += 2;
        return RESHARD_OK;
    }
    int32_t code = read_hex(at + 1, end);
    if (code < 0)
        return fail_at(json, json->at, "\\u needs four hexadecimal digits");
    if (code >= 0xdc00 && code <= 0xdfff)
        return fail_at(json, json->at, "the second half of a surrogate pair without the first");
    json->at += 6;
    if (code < 0xd800 || code > 0xdbff)
        return RESHARD_OK;
    at = json->bytes + json->at;
    int32_t low = end - at >= 6 && at[0] == '\\' && at[1] == 'u' ? read_hex(at + 2, end) : -1;
    if (low < 0xdc00 || low > 0xdfff)
        return fail_at(json, json->at - 6, "the first half of a surrogate pair without the second");
    json->at += 6;
    return RESHARD_OK;
}

/* Whether some byte of the word is no plain one: a quote, a backslash, a control character, or part
 * of a longer character. */
static bool has_special(uint64_t word)
{
    const uint64_t ones = 0x0101010101010101u, tops = 0x8080808080808080u;
    uint64_t quotes = word ^ (ones * '"'), backslashes = word ^ (ones * '\\');
    /* Subtracting borrows into the top bit of bytes that are too small; those that had it set
     * before are special as well. */
    return ((word | (word - ones * 0x20) | (quotes - ones) | (backslashes - ones)) & tops) != 0;
}

/* Skips plain characters, which strings mostly consist of, eight at a time. */
static void skip_plain(rs_json *json)
{
    uint64_t word;
    while (json->count - json->at >= sizeof word) {
        memcpy(&word, json->bytes + json->at, sizeof word);
        if (has_special(word))
            return;
        json->at += sizeof word;
    }
}

static reshard_status scan_string(rs_json *json, rs_json_kind kind, rs_json_token *token)
{
    size_t begin = ++json->at;
    token->kind = kind;
    token->escaped = false;
    skip_plain(json);
    while (json->at < json->count) {
        unsigned char c = (unsigned char)json->bytes[json->at];
        if (c == '"') {
            token->bytes = json->bytes + begin;
            token->count = json->at - begin;
            json->at++;
            return RESHARD_OK;
        }
        if (c < 0x20)
            return fail_at(json, json->at, "a control character inside a string");
        if (c == '\\') {
            reshard_status status = scan_escape(json);
            if (status != RESHARD_OK)
                return status;
            token->escaped = true;
            continue;
        }
        size_t length =
            c < 0x80 ? 1 : rs_utf8_measure(json->bytes + json->at, json->count - json->at);
        if (length == 0)
            return fail_at(json, json->at, "bytes that are not UTF-8");
        json->at += length;
    }
    return fail_at(json, begin - 1, "a string that does not end");
}

static size_t scan_digits(rs_json *json)
{
    size_t begin = json->at;
    while (json->at < json->count && json->bytes[json->at] >= '0' && json->bytes[json->at] <= '9')
        json->at++;
    return json->at - begin;
}

static bool take(rs_json *json, char wanted)
{
    if (json->at >= json->count || json->bytes[json->at] != wanted)
        return false;
    json->at++;
    return true;
}

static reshard_status scan_number(rs_json *json, rs_json_token *token)
{
    size_t begin = json->at;
    (void)take(json, '-');
    if (take(json, '0')) {
        if (scan_digits(json) != 0)
            return fail_at(json, begin, "a number with leading zeros");
    } else if (scan_digits(json) == 0) {
        return fail_at(json, begin, "a number without digits");
    }
    if (take(json, '.') && scan_digits(json) == 0)
        return fail_at(json, begin, "a number without digits behind the point");
    if (take(json, 'e') || take(json, 'E')) {
        if (!take(json, '+'))
            (void)take(json, '-');
        if (scan_digits(json) == 0)
            return fail_at(json, begin, "a number without digits in its exponent");
    }
    *token = (rs_json_token){RS_JSON_NUMBER, json->bytes + begin, json->at - begin, false};
    return RESHARD_OK;
}

static reshard_status scan_word(rs_json *json, const char *word, rs_json_kind kind,
                                rs_json_token *token)
{
    size_t length = strlen(word);
    if (json->count - json->at < length || memcmp(json->bytes + json->at, word, length) != 0)
        return fail_at(json, json->at, "neither a value nor a word that JSON has");
    *token = (rs_json_token){kind, json->bytes + json->at, length, false};
    json->at += length;
    return RESHARD_OK;
}

/* Numbers that Python's json module writes but JSON does not have. */
static bool scan_python(rs_json *json, rs_json_token *token)
{
    static const char *const words[] = {"NaN", "Infinity", "-Infinity"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t length = strlen(words[i]);
        if (json->count - json->at < length ||
            memcmp(json->bytes + json->at, words[i], length) != 0)
            continue;
        *token = (rs_json_token){RS_JSON_NUMBER, json->bytes + json->at, length, false};
        json->at += length;
        return true;
    }
    return false;
}

static void settle_value(rs_json *json)
{
    json->state = json->depth == 0 ? WANT_TEXT_END : WANT_COMMA_OR_END;
}

static reshard_status open_container(rs_json *json, bool is_object, rs_json_token *token)
{
    if (json->depth == RS_JSON_DEPTH_MAX)
        return fail_at(json, json->at, "more than 127 containers inside each other");
    json->is_object[json->depth++] = is_object;
    *token = (rs_json_token){is_object ? RS_JSON_OBJECT_BEGIN : RS_JSON_LIST_BEGIN,
                             json->bytes + json->at, 1, false};
    json->at++;
    json->state = is_object ? WANT_KEY_OR_END : WANT_VALUE_OR_END;
    return RESHARD_OK;
}

static void close_container(rs_json *json, rs_json_token *token)
{
    bool is_object = json->is_object[--json->depth];
    *token = (rs_json_token){is_object ? RS_JSON_OBJECT_END : RS_JSON_LIST_END,
                             json->bytes + json->at, 1, false};
    json->at++;
    settle_value(json);
}

static reshard_status scan_value(rs_json *json, rs_json_token *token)
{
    reshard_status status;
    char c = json->bytes[json->at];
    switch (c) {
    case '{':
        return open_container(json, true, token);
    case '[':
        return open_container(json, false, token);
    case '"':
        status = scan_string(json, RS_JSON_STRING, token);
        break;
    case 't':
        status = scan_word(json, "true", RS_JSON_TRUE, token);
        break;
    case 'f':
        status = scan_word(json, "false", RS_JSON_FALSE, token);
        break;
    case 'n':
        status = scan_word(json, "null", RS_JSON_NULL, token);
        break;
    default:
        if (json->is_python && scan_python(json, token)) {
            status = RESHARD_OK;
            break;
        }
        if (c != '-' && (c < '0' || c > '9'))
            return fail_at(json, json->at, "no JSON value begins like this");
        status = scan_number(json, token);
    }
    if (status == RESHARD_OK)
        settle_value(json);
    return status;
}

static reshard_status scan_key(rs_json *json, rs_json_token *token)
{
    if (json->bytes[json->at] != '"')
        return fail_at(json, json->at, "a key in quotes is missing");
    reshard_status status = scan_string(json, RS_JSON_KEY, token);
    if (status != RESHARD_OK)
        return status;
    skip_space(json);
    if (!take(json, ':'))
        return fail_at(json, json->at, "a colon is missing");
    json->state = WANT_VALUE;
    return RESHARD_OK;
}

reshard_status rs_json_next(rs_json *json, rs_json_token *out_token)
{
    skip_space(json);
    if (json->state == WANT_COMMA_OR_END && take(json, ',')) {
        json->state = json->is_object[json->depth - 1] ? WANT_KEY : WANT_VALUE;
        skip_space(json);
    }
    if (json->state == WANT_TEXT_END) {
        if (json->at < json->count)
            return fail_at(json, json->at, "text behind the end");
        *out_token = (rs_json_token){RS_JSON_END, json->bytes + json->at, 0, false};
        return RESHARD_OK;
    }
    if (json->at == json->count)
        return fail_at(json, json->at, "the text ends too early");
    bool may_end = json->state == WANT_COMMA_OR_END || json->state == WANT_KEY_OR_END ||
                   json->state == WANT_VALUE_OR_END;
    if (may_end && json->bytes[json->at] == (json->is_object[json->depth - 1] ? '}' : ']')) {
        close_container(json, out_token);
        return RESHARD_OK;
    }
    if (json->state == WANT_COMMA_OR_END)
        return fail_at(json, json->at, "a comma is missing");
    if (json->state == WANT_KEY || json->state == WANT_KEY_OR_END)
        return scan_key(json, out_token);
    return scan_value(json, out_token);
}

bool rs_json_next_member(rs_json *json, rs_json_token *out_token, reshard_status *status)
{
    if (*status == RESHARD_OK)
        *status = rs_json_next(json, out_token);
    return *status == RESHARD_OK && out_token->kind != RS_JSON_OBJECT_END &&
           out_token->kind != RS_JSON_LIST_END;
}

reshard_status rs_json_expect(rs_json *json, rs_json_kind kind, const char *wanted,
                              rs_json_token *out_token)
{
    rs_json_token token;
    reshard_status status = rs_json_next(json, &token);
    if (status != RESHARD_OK)
        return status;
    if (token.kind != kind)
        return rs_json_fail(json, &token, wanted);
    *out_token = token;
    return RESHARD_OK;
}

reshard_status rs_json_skip_rest(rs_json *json, const rs_json_token *first)
{
    if (first->kind != RS_JSON_OBJECT_BEGIN && first->kind != RS_JSON_LIST_BEGIN)
        return RESHARD_OK;
    for (int depth = json->depth; json->depth >= depth;) {
        rs_json_token token;
        reshard_status status = rs_json_next(json, &token);
        if (status != RESHARD_OK)
            return status;
    }
    return RESHARD_OK;
}

reshard_status rs_json_skip(rs_json *json)
{
    rs_json_token token;
    reshard_status status = rs_json_next(json, &token);
    return status == RESHARD_OK ? rs_json_skip_rest(json, &token) : status;
}

static char *put_utf8(char *out, uint32_t code)
{
    if (code < 0x80) {
        *out++ = (char)code;
    } else if (code < 0x800) {
        *out++ = (char)(0xc0 | code >> 6);
        *out++ = (char)(0x80 | (code & 0x3f));
    } else if (code < 0x10000) {
        *out++ = (char)(0xe0 | code >> 12);
        *out++ = (char)(0x80 | (code >> 6 & 0x3f));
        *out++ = (char)(0x80 | (code & 0x3f));
    } else {
        *out++ = (char)(0xf0 | code >> 18);
        *out++ = (char)(0x80 | (code >> 12 & 0x3f));
        *out++ = (char)(0x80 | (code >> 6 & 0x3f));
        *out++ = (char)(0x80 | (code & 0x3f));
    }
    return out;
}

/* Decodes the escape whose backslash is at `at`, and returns the place after it. */
static const char *decode_escape(const char *at, const char *end, char **out)
{
    static const char letters[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    if (at[1] != 'u') {
        *(*out)++ = meant[strchr(letters, at[1]) - letters];
        return at + 2;
    }
    uint32_t code = (uint32_t)read_hex(at + 2, end);
    at += 6;
    if (code >= 0xd800 && code <= 0xdbff) {
        uint32_t low = (uint32_t)read_hex(at + 2, end);
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        at += 6;
    }
    *out = put_utf8(*out, code);
    return at;
}

size_t rs_json_decode(const rs_json_token *token, char *out_bytes)
{
    const char *at = token->bytes, *end = token->bytes + token->count;
    char *out = out_bytes;
    if (!token->escaped) {
        if (token->count != 0)
            memcpy(out_bytes, token->bytes, token->count);
        return token->count;
    }
    while (at < end) {
        if (*at == '\\')
            at = decode_escape(at, end, &out);
        else
            *out++ = *at++;
    }
    return (size_t)(out - out_bytes);
}

reshard_status rs_json_copy(const rs_json_token *token, rs_arena *arena, rs_slice *out_text)
{
    char *bytes = rs_arena_allocate(arena, token->count + 1);
    if (bytes == NULL)
        return rs_allocation_status();
    *out_text = (rs_slice){bytes, rs_json_decode(token, bytes)};
    bytes[out_text->count] = '\0';
    return RESHARD_OK;
}

bool rs_json_token_is(const rs_json_token *token, const char *text)
{
    const char *at = token->bytes, *end = token->bytes + token->count;
    size_t length = strlen(text), matched = 0;
    if (!token->escaped)
        return token->count == length && memcmp(token->bytes, text, length) == 0;
    while (at < end) {
        char decoded[4] = {0};
        char *out = decoded;
        if (*at == '\\')
            at = decode_escape(at, end, &out);
        else
            *out++ = *at++;
        size_t count = (size_t)(out - decoded);
        if (count > length - matched || memcmp(text + matched, decoded, count) != 0)
            return false;
        matched += count;
    }
    return matched == length;
}

reshard_status rs_json_unsigned(const rs_json *json, const rs_json_token *token,
                                uint64_t *out_number)
{
    uint64_t number = 0;
    if (token->kind != RS_JSON_NUMBER)
        return rs_json_fail(json, token, "expected a whole number");
    for (size_t i = 0; i < token->count; i++) {
        uint64_t digit = (uint64_t)(unsigned char)token->bytes[i] - '0';
        if (digit > 9)
            return rs_json_fail(json, token,
                                "expected a whole number without sign, point or exponent");
        if (number > (UINT64_MAX - digit) / 10)
            return rs_fail(RESHARD_ERR_RANGE, "%s, byte %zu: a number beyond 2^64-1", json->what,
                           (size_t)(token->bytes - json->bytes));
        number = number * 10 + digit;
    }
    *out_number = number;
    return RESHARD_OK;
}
