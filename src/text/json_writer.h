/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json_writer.h - writes JSON into a growing buffer. The first failure is kept and makes all later
 * calls do nothing, so the caller checks the status once, at the end.
 */
#ifndef RS_TEXT_JSON_WRITER_H
#define RS_TEXT_JSON_WRITER_H

#include "base/error.h"
#include "base/slice.h"

#include <stdbool.h>

typedef struct rs_json_writer {
    reshard_context *context;
    char *bytes;
    int64_t count, capacity;
    reshard_status status;
    bool counts_only; /* set by the caller after init: only count is updated, nothing is stored */
    bool quotes;      /* set between begin_quoted and end_quoted */
} rs_json_writer;

void rs_json_writer_init(rs_json_writer *writer, reshard_context *context);
void rs_json_writer_release(rs_json_writer *writer);
void rs_json_writer_add(rs_json_writer *writer, const char *bytes, size_t count);
void rs_json_writer_text(rs_json_writer *writer, const char *text);
void rs_json_writer_unsigned(rs_json_writer *writer, uint64_t number);
/* Writes a string with quotes and escapes. The bytes must be UTF-8. */
void rs_json_writer_string(rs_json_writer *writer, rs_slice string);
/* Whether a string needs no escapes, and a faster call for strings that are known to need none. */
bool rs_json_is_plain(rs_slice string);
void rs_json_writer_plain(rs_json_writer *writer, rs_slice string);
/* Everything written between these two calls becomes the content of one string: JSON inside
 * JSON. */
void rs_json_writer_begin_quoted(rs_json_writer *writer);
void rs_json_writer_end_quoted(rs_json_writer *writer);
/* Writes a list such as [1,2,3]. The numbers must not be negative. */
void rs_json_writer_integers(rs_json_writer *writer, int32_t count, const int64_t *numbers);

#endif
