/* SPDX-License-Identifier: Apache-2.0 */
/* pickle_text.h - numbers and texts written out in characters, as protocol 0 does. Functions that
 * return const char * return NULL on success, else words about what is wrong. */
#ifndef RS_CHECKPOINT_ARCHIVE_PICKLE_TEXT_H
#define RS_CHECKPOINT_ARCHIVE_PICKLE_TEXT_H

#include "checkpoint/archive/pickle.h"

/* Room for a number of RS_PICKLE_DIGITS_MAX decimal digits in two's complement. */
#define RS_PICKLE_LARGE_BYTES_MAX 1792

/* Returns how many of these bytes, two's complement with the lowest first, suffice for the same
 * number. Zero needs none. */
size_t rs_pickle_trim(const char *bytes, size_t count);
/* The value of at most 8 bytes of two's complement, the lowest first. */
int64_t rs_pickle_small(const char *bytes, size_t count);

/* Converts a decimal number to trimmed two's complement. */
const char *rs_pickle_parse_integer(rs_slice text, char out_bytes[RS_PICKLE_LARGE_BYTES_MAX],
                                    size_t *out_count);
const char *rs_pickle_parse_float(rs_slice text, double *out_real);

/* Is it UTF-8? Lone surrogates pass, as in Python's pickles. */
bool rs_pickle_is_utf8(rs_slice text);
/* Decodes \uXXXX and \UXXXXXXXX; other bytes are Latin-1. out_bytes has room for 2 * text.count. */
const char *rs_pickle_decode_unicode(rs_slice text, char *out_bytes, size_t *out_count);
/* Decodes a quoted str of Python 2. out_bytes has room for text.count. */
const char *rs_pickle_decode_string(rs_slice text, char *out_bytes, size_t *out_count);

/* Writes the UTF-8 of a code point, 1 to 4 bytes, and returns their number. */
size_t rs_pickle_encode_utf8(uint32_t code, char *out_bytes);

#endif
