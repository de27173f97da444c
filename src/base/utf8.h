/* SPDX-License-Identifier: Apache-2.0 */
/* utf8.h - strict decoding of UTF-8, one code point at a time. */
#ifndef RS_BASE_UTF8_H
#define RS_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* The length of the well-formed sequence that begins here (Unicode, table 3-7), or 0 if there is
 * none. room must be at least 1. */
size_t rs_utf8_measure(const char *bytes, size_t room);
/* The code point of a well-formed sequence of this length. */
uint32_t rs_utf8_decode(const char *bytes, size_t length);

#endif
