/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json.h - a strict pull scanner for JSON (RFC 8259) over bytes in memory.
 *
 * The caller asks for one token after another. Nothing is allocated, and nothing is copied until a
 * string is decoded. Strict means: UTF-8 only, no lone surrogates, no raw control characters, no
 * leading zeros, no trailing commas, no comments, nothing after the value, and at most
 * RS_JSON_DEPTH_MAX nested containers. Repeated keys are legal JSON, so finding them is up to the
 * caller. Every error gives its place as a byte offset from the start.
 */
#ifndef RS_TEXT_JSON_H
#define RS_TEXT_JSON_H

#include <reshard/base.h>

#include "base/arena.h"
#include "base/slice.h"

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
    RS_JSON_END /* the end of the text */
} rs_json_kind;

typedef struct rs_json_token {
    rs_json_kind kind;
    /* strings and keys: what is between the quotes, undecoded; otherwise the token */
    const char *bytes;
    size_t count;
    bool escaped; /* strings and keys: contains a backslash and has to be decoded */
} rs_json_token;

typedef struct rs_json {
    const char *bytes;
    size_t count, at;
    const char *what; /* the name of the text in error messages */
    bool is_python;   /* accept NaN, Infinity and -Infinity, as Python's json module writes them */
    int state;
    int depth;
    unsigned char is_object[RS_JSON_DEPTH_MAX + 1]; /* for each open container */
} rs_json;

/* The bytes and `what` must outlive the scanner. */
void rs_json_init(rs_json *json, const char *what, const char *bytes, size_t count);

/* Reads the next token. Errors: SYNTAX. Must not be called again after an error or after
 * RS_JSON_END. */
reshard_status rs_json_next(rs_json *json, rs_json_token *out_token);
/* Reads the next key of an object, or the next item of a list, that has begun. Returns false at its
 * end, after a failure, and if *status is one already. */
bool rs_json_next_member(rs_json *json, rs_json_token *out_token, reshard_status *status);
/* The same as rs_json_next, but fails if the token is of another kind; `wanted` is the error text
 * for that. */
reshard_status rs_json_expect(rs_json *json, rs_json_kind kind, const char *wanted,
                              rs_json_token *out_token);
/* Skips one whole value, including everything inside it. */
reshard_status rs_json_skip(rs_json *json);
/* Skips the rest of a value whose first token has been read. */
reshard_status rs_json_skip_rest(rs_json *json, const rs_json_token *first);

/* Writes the decoded string, at most token->count bytes and without a terminating NUL (the string
 * itself may contain NUL), and returns its length. The token must come from rs_json_next, so its
 * escapes are valid. */
size_t rs_json_decode(const rs_json_token *token, char *out_bytes);
/* The same into an arena, with a NUL behind it. */
reshard_status rs_json_copy(const rs_json_token *token, rs_arena *arena, rs_slice *out_text);
/* Whether the decoded string equals `text`. */
bool rs_json_token_is(const rs_json_token *token, const char *text);

/* Parses a whole number without sign, point or exponent. Errors: SYNTAX; RANGE if it is 2^64 or
 * more. */
reshard_status rs_json_unsigned(const rs_json *json, const rs_json_token *token,
                                uint64_t *out_number);

/* Whether the bytes can be written as a JSON string, that is, whether they are well-formed
 * UTF-8. */
bool rs_json_is_text(const char *bytes, size_t count);

/* Fails with SYNTAX and the place of the token. */
reshard_status rs_json_fail(const rs_json *json, const rs_json_token *token, const char *words);

#endif
