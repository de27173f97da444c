/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json.h - writes one JSON value to a stream, on one line. The writer adds the commas; the caller
 * must match begins and ends. A key of NULL means a value inside a list, or the outermost one.
 */
#ifndef CLI_JSON_H
#define CLI_JSON_H

#include <stdint.h>
#include <stdio.h>

typedef struct cli_json {
    FILE *stream;
    int needs_comma;
    int in_html; /* also escape <, > and & */
} cli_json;

void cli_json_begin_object(cli_json *json, const char *key);
/* Whether an object was begun on standard output, which has room for one. */
int cli_json_has_begun(void);
void cli_json_end_object(cli_json *json);
void cli_json_begin_list(cli_json *json, const char *key);
void cli_json_end_list(cli_json *json);
void cli_json_integer(cli_json *json, const char *key, int64_t value);
void cli_json_unsigned(cli_json *json, const char *key, uint64_t value);
void cli_json_seconds(cli_json *json, const char *key, double value);
/* With all digits; null if it is not finite, because JSON has no such numbers. */
void cli_json_number(cli_json *json, const char *key, double value);
void cli_json_true(cli_json *json, const char *key);
void cli_json_text(cli_json *json, const char *key, const char *value);
void cli_json_text_part(cli_json *json, const char *key, const char *value, size_t length);
/* A text whose key may hold any bytes. */
void cli_json_named_text(cli_json *json, const char *key, size_t key_length, const char *value);
/* A value that is JSON already. */
void cli_json_raw(cli_json *json, const char *key, const char *value);
void cli_json_bool(cli_json *json, const char *key, int value);
/* A list of `count` integers. */
void cli_json_integers(cli_json *json, const char *key, int64_t count, const int64_t *values);

#endif
