/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json.c - the JSON writer.
 *
 * Invariant: needs_comma says whether the next key or value of the open list or object follows
 * another. An end always leaves it set, because what ended was itself a value.
 */
#include "json.h"

#include <inttypes.h>
#include <string.h>

/* Bytes beyond ASCII are written as if they were Latin-1: arguments need not be UTF-8, JSON must
 * be. */
static void write_string(FILE *stream, const char *text, size_t length)
{
    fputc('"', stream);
    for (size_t i = 0; i < length; i++) {
        unsigned char byte = (unsigned char)text[i];
        if (byte == '"' || byte == '\\')
            fprintf(stream, "\\%c", byte);
        else if (byte < 0x20 || byte >= 0x7f)
            fprintf(stream, "\\u%04x", byte);
        else
            fputc(byte, stream);
    }
    fputc('"', stream);
}

static void begin_value(cli_json *json, const char *key)
{
    if (json->needs_comma)
        fputc(',', json->stream);
    if (key != NULL) {
        write_string(json->stream, key, strlen(key));
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

void cli_json_begin_object(cli_json *json, const char *key)
{
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
    write_string(json->stream, value, length);
}

void cli_json_integers(cli_json *json, const char *key, int64_t count, const int64_t *values)
{
    cli_json_begin_list(json, key);
    for (int64_t i = 0; i < count; i++)
        cli_json_integer(json, NULL, values[i]);
    cli_json_end_list(json);
}
