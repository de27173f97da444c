/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_json.c - any bytes as JSON, for libFuzzer. Tokens stay inside the text and come in order,
 * depths match, strings decode to no more bytes than were written, errors have words.
 */
#include "text/json.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_string(const rs_json_token *token)
{
    char *decoded = malloc(token->count + 1);
    if (decoded == NULL)
        abort();
    size_t length = rs_json_decode(token, decoded);
    decoded[length] = '\0';
    if (length > token->count || (!token->escaped && length != token->count))
        abort();
    /* A string without NUL is equal to itself, one with NUL to no C string. */
    if (rs_json_token_is(token, decoded) != (strlen(decoded) == length))
        abort();
    free(decoded);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    size_t last = 0;
    rs_json json;
    rs_json_token token;
    rs_json_init(&json, "input", text, size);
    for (;;) {
        reshard_status status = rs_json_next(&json, &token);
        if (status != RESHARD_OK) {
            if (reshard_error_text()[0] == '\0')
                abort();
            return 0;
        }
        size_t begin = (size_t)(token.bytes - text);
        if (begin < last || begin + token.count > size || json.depth > RS_JSON_DEPTH_MAX)
            abort();
        last = begin + token.count;
        if (token.kind == RS_JSON_END)
            break;
        if (token.kind == RS_JSON_KEY || token.kind == RS_JSON_STRING)
            check_string(&token);
    }
    if (json.depth != 0)
        abort();
    rs_json_init(&json, "input", text, size);
    if (rs_json_skip(&json) != RESHARD_OK || rs_json_next(&json, &token) != RESHARD_OK ||
        token.kind != RS_JSON_END)
        abort();
    return 0;
}
