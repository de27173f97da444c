/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json.h - a strict pull scanner for JSON (RFC 8259) over bytes in memory.
 *
 * The caller asks for one token after the other; nothing is allocated and nothing is copied until a
 * string is decoded. Strict means: UTF-8 only, no lone surrogates, no raw control characters, no
 * leading zeros, no trailing commas, comments or text, and at most RS_JSON_DEPTH_MAX containers
 * inside each other. Repeated keys are legal JSON, so the caller looks for them. Every error gives
 * the place, in bytes from the start.
 */
#ifndef RS_TEXT_JSON_H
#define RS_TEXT_JSON_H

#include <reshard/base.h>

#include <stdbool.h>

#define RS_JSON_DEPTH_MAX 127

typedef enum rs_json_kind {
    RS_JSON_OBJECT_BEGIN,
    RS_JSON_OBJECT_END,
    RS_JSON_LIST_BEGIN,
    RS_JSON_LIST_END,
    RS_JSON_KEY,
    RS_JSON_STRING,
    RS_JSON_NUMBER,
    RS_JSON_TRUE,
    RS_JSON_FALSE,
    RS_JSON_NULL,
    RS_JSON_END /* of the text */
} rs_json_kind;

typedef struct rs_json_token {
    rs_json_kind kind;
    const char *bytes; /* strings and keys: between the quotes, as written; else the token */
    size_t count;
    bool escaped; /* strings and keys: has a backslash, so that decoding changes it */
} rs_json_token;

typedef struct rs_json {
    const char *bytes;
    size_t count, at;
    const char *what; /* what errors call the text */
    bool is_python;   /* NaN, Infinity and -Infinity are numbers, as Python's json writes them */
    int state;
    int depth;
    unsigned char is_object[RS_JSON_DEPTH_MAX + 1]; /* of the containers that are open */
} rs_json;

/* The bytes must outlive the scanner; `what` too. */
void rs_json_init(rs_json *json, const char *what, const char *bytes, size_t count);

/* Errors: SYNTAX. Do not call it again after an error or after RS_JSON_END. */
reshard_status rs_json_next(rs_json *json, rs_json_token *out_token);
/* The same, with an error when the token is of another kind; `wanted` says in words what was
 * wanted. */
reshard_status rs_json_expect(rs_json *json, rs_json_kind kind, const char *wanted,
                              rs_json_token *out_token);
/* Skips one whole value, whatever it holds. */
reshard_status rs_json_skip(rs_json *json);
/* Skips the rest of a value whose first token has been read. */
reshard_status rs_json_skip_rest(rs_json *json, const rs_json_token *first);

/* Writes the decoded string, at most token->count bytes and without NUL, and returns its length;
 * a name may hold NUL. The token came from rs_json_next, so it cannot be wrong. */
size_t rs_json_decode(const rs_json_token *token, char *out_bytes);
/* Whether the decoded string is exactly this one. */
bool rs_json_token_is(const rs_json_token *token, const char *text);

/* A whole number without sign, point or exponent. Errors: SYNTAX; RANGE from 2^64 on. */
reshard_status rs_json_unsigned(const rs_json *json, const rs_json_token *token,
                                uint64_t *out_number);

/* Whether the bytes can be a string of JSON: well-formed UTF-8. */
bool rs_json_is_text(const char *bytes, size_t count);

/* SYNTAX, with the place of the token. */
reshard_status rs_json_fail(const rs_json *json, const rs_json_token *token, const char *words);

#endif
