/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text.h - builds text in a buffer of fixed capacity, like snprintf: text that does not fit is
 * dropped but counted, so a caller can ask for the length first.
 */
#ifndef RS_TEXT_TEXT_H
#define RS_TEXT_TEXT_H

#include "base/error.h"
#include "base/export.h"

#include <stdbool.h>

/* ASCII only, whatever the locale. The underscore counts as a letter. */
static inline bool rs_is_digit(int c)
{
    return c >= '0' && c <= '9';
}

static inline bool rs_is_letter(int c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

typedef struct rs_text {
    char *buffer; /* may be NULL if capacity is 0 */
    size_t capacity;
    size_t length; /* of the whole text, including what was dropped, without NUL */
} rs_text;

/* Starts an empty text: writes its NUL if there is room. */
RS_EXPORT void rs_text_init(rs_text *text, char *buffer, size_t capacity);
/* Like printf, but with "." as the decimal point in every locale. */
RS_EXPORT void rs_text_add(rs_text *text, const char *format, ...) RS_PRINTF(2, 3);
/* Adds "10x7", or "scalar" if there are no dimensions. */
RS_EXPORT void rs_text_add_shape(rs_text *text, int32_t ndim, const int64_t *shape);
/* Adds "[0:2,4:8]": where the box begins and ends in each dimension. */
void rs_text_add_box(rs_text *text, int32_t ndim, const int64_t *offset, const int64_t *size);

/* Compares as people sort names: numbers inside the texts by value, so "rank-2" is before
 * "rank-10". */
int rs_compare_naturally(const char *a, const char *b);
/* Adds untrusted bytes, escaped by reshard_text_escape. No escape is cut off at the end. */
void rs_text_add_escaped(rs_text *text, const char *bytes, size_t count);
/* Adds a JSON string in pure ASCII, as Python's json.dumps writes it. Bytes that are not UTF-8
 * become U+FFFD. */
void rs_text_add_quoted(rs_text *text, const char *bytes, size_t count);

/* Copies a text; returns NULL with the error text set on failure. Free the copy with
 * rs_text_free. */
RS_EXPORT char *rs_text_copy(reshard_context *context, const char *text);
RS_EXPORT void rs_text_free(reshard_context *context, char *text);

#endif
