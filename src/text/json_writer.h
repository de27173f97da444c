/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json_writer.h - JSON into memory that grows. The first failure is kept and makes all later calls
 * do nothing, so that a caller looks once, at the end.
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
    bool counts_only; /* set behind init: nothing is kept, count alone goes up */
    bool quotes;      /* between begin_quoted and end_quoted */
} rs_json_writer;

void rs_json_writer_init(rs_json_writer *writer, reshard_context *context);
void rs_json_writer_release(rs_json_writer *writer);
void rs_json_writer_add(rs_json_writer *writer, const char *bytes, size_t count);
void rs_json_writer_text(rs_json_writer *writer, const char *text);
void rs_json_writer_unsigned(rs_json_writer *writer, uint64_t number);
/* In quotes and escaped. The bytes are UTF-8. */
void rs_json_writer_string(rs_json_writer *writer, rs_slice string);
/* Whether a string is written without escapes; and the same for one that is known to be. */
bool rs_json_is_plain(rs_slice string);
void rs_json_writer_plain(rs_json_writer *writer, rs_slice string);
/* What is written between these two is the text of one string: JSON inside JSON. */
void rs_json_writer_begin_quoted(rs_json_writer *writer);
void rs_json_writer_end_quoted(rs_json_writer *writer);
/* [1,2,3] */
void rs_json_writer_integers(rs_json_writer *writer, int32_t count, const int64_t *numbers);

#endif
