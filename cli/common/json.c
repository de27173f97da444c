/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json.c - the JSON writer.
 *
 * Invariant: needs_comma says whether the next key or value of the open list or object follows
 * another one. Closing a bracket always sets it, because the list or object that it closes is
 * itself a value.
 */
#include "cli/common/json.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* The code point of the UTF-8 sequence that begins here, and its length. JSON must be UTF-8, but
 * arguments need not be: a byte that begins no valid sequence counts as a character of Latin-1. */
static unsigned read_code(const char *text, size_t room, size_t *out_length)
{
    const unsigned char *bytes = (const unsigned char *)text;
    static const unsigned least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t length = bytes[0] >= 0xf0 ? 4 : bytes[0] >= 0xe0 ? 3 : bytes[0] >= 0xc0 ? 2 : 1;
    unsigned code = bytes[0] & (0xffu >> (length + 1));
    *out_length = 1;
    if (length == 1 || length > room || bytes[0] >= 0xf8)
        return bytes[0];
    for (size_t i = 1; i < length; i++) {
        if ((bytes[i] & 0xc0) != 0x80)
            return bytes[0];
        code = code << 6 | (bytes[i] & 0x3fu);
    }
    if (code < least[length] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
        return bytes[0];
    *out_length = length;
    return code;
}

/* Writes only ASCII, which every terminal and program accepts. */
static void write_string(const cli_json *json, const char *text, size_t length)
{
    FILE *stream = json->stream;
    fputc('"', stream);
    for (size_t i = 0, step; i < length; i += step) {
        unsigned code = read_code(text + i, length - i, &step);
        if (code == '"' || code == '\\')
            fprintf(stream, "\\%c", (int)code);
        else if (code >= 0x10000)
            fprintf(stream, "\\u%04x\\u%04x", 0xd800 + ((code - 0x10000) >> 10),
                    0xdc00 + ((code - 0x10000) & 0x3ff));
        else if (code < 0x20 || code >= 0x7f ||
                 (json->in_html && (code == '<' || code == '>' || code == '&')))
            fprintf(stream, "\\u%04x", code);
        else
            fputc((int)code, stream);
    }
    fputc('"', stream);
}

static void begin_value(cli_json *json, const char *key)
{
    if (json->needs_comma)
        fputc(',', json->stream);
    if (key != NULL) {
        write_string(json, key, strlen(key));
        fputc(':', json->stream);
    }
    json->needs_comma = 1;
}

static void open_bracket(cli_json *json, const char *key, char bracket)
{
    begin_value(json, key);
    fputc(bracket, json->stream);
    json->needs_comma = 0;
}

static void close_bracket(cli_json *json, char bracket)
{
    fputc(bracket, json->stream);
    json->needs_comma = 1;
}

static int has_begun;

int cli_json_has_begun(void)
{
    return has_begun;
}

void cli_json_begin_object(cli_json *json, const char *key)
{
    has_begun = has_begun || json->stream == stdout;
    open_bracket(json, key, '{');
}

void cli_json_end_object(cli_json *json)
{
    close_bracket(json, '}');
}

void cli_json_begin_list(cli_json *json, const char *key)
{
    open_bracket(json, key, '[');
}

void cli_json_end_list(cli_json *json)
{
    close_bracket(json, ']');
}

void cli_json_integer(cli_json *json, const char *key, int64_t value)
{
    begin_value(json, key);
    fprintf(json->stream, "%" PRId64, value);
}

void cli_json_unsigned(cli_json *json, const char *key, uint64_t value)
{
    begin_value(json, key);
    fprintf(json->stream, "%" PRIu64, value);
}

void cli_json_seconds(cli_json *json, const char *key, double value)
{
    begin_value(json, key);
    fprintf(json->stream, "%.9f", value);
}

void cli_json_number(cli_json *json, const char *key, double value)
{
    begin_value(json, key);
    if (isfinite(value))
        fprintf(json->stream, "%.17g", value);
    else
        fputs("null", json->stream);
}

void cli_json_raw(cli_json *json, const char *key, const char *value)
{
    begin_value(json, key);
    fputs(value, json->stream);
}

void cli_json_true(cli_json *json, const char *key)
{
    begin_value(json, key);
    fputs("true", json->stream);
}

void cli_json_text(cli_json *json, const char *key, const char *value)
{
    cli_json_text_part(json, key, value, strlen(value));
}

void cli_json_text_part(cli_json *json, const char *key, const char *value, size_t length)
{
    begin_value(json, key);
    write_string(json, value, length);
}

void cli_json_named_text(cli_json *json, const char *key, size_t key_length, const char *value)
{
    begin_value(json, NULL);
    write_string(json, key, key_length);
    fputc(':', json->stream);
    write_string(json, value, strlen(value));
}

void cli_json_bool(cli_json *json, const char *key, int value)
{
    begin_value(json, key);
    fputs(value ? "true" : "false", json->stream);
}

void cli_json_integers(cli_json *json, const char *key, int64_t count, const int64_t *values)
{
    cli_json_begin_list(json, key);
    for (int64_t i = 0; i < count; i++)
        cli_json_integer(json, NULL, values[i]);
    cli_json_end_list(json);
}
