/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text.h - building text into a buffer of fixed capacity, in the manner of snprintf: what does not
 * fit is dropped but counted, so that a caller can ask for the length first.
 */
#ifndef RS_TEXT_TEXT_H
#define RS_TEXT_TEXT_H

#include "base/error.h"
#include "base/export.h"

#include <stdbool.h>

/* ASCII, whatever the locale. The underscore counts as a letter. */
static inline bool rs_is_digit(int c)
{
    return c >= '0' && c <= '9';
}

static inline bool rs_is_letter(int c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

typedef struct rs_text {
    char *buffer; /* may be NULL when capacity is 0 */
    size_t capacity;
    size_t length; /* of the whole text, without NUL */
} rs_text;

/* Writes the NUL of an empty text when there is room. */
RS_EXPORT void rs_text_init(rs_text *text, char *buffer, size_t capacity);
RS_EXPORT void rs_text_add(rs_text *text, const char *format, ...) RS_PRINTF(2, 3);
/* "10x7", or "scalar" for no dimensions. */
RS_EXPORT void rs_text_add_shape(rs_text *text, int32_t ndim, const int64_t *shape);
/* "[0:2,4:8]": where the box begins and ends in each dimension. */
void rs_text_add_box(rs_text *text, int32_t ndim, const int64_t *offset, const int64_t *size);

/* Orders texts as people do: numbers in them as numbers, "rank-2" before "rank-10". */
int rs_compare_naturally(const char *a, const char *b);
/* Bytes from strangers as part of a line (reshard_text_escape). No escape is cut at the end. */
void rs_text_add_escaped(rs_text *text, const char *bytes, size_t count);
/* A string of JSON in ASCII alone, as Python's json.dumps writes it. What is not UTF-8 becomes
 * U+FFFD. */
void rs_text_add_quoted(rs_text *text, const char *bytes, size_t count);

/* A copy of a text; NULL with the error text set on failure. To be freed by rs_text_free. */
RS_EXPORT char *rs_text_copy(reshard_context *context, const char *text);
RS_EXPORT void rs_text_free(reshard_context *context, char *text);

#endif
