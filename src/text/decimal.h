/* SPDX-License-Identifier: Apache-2.0 */
/*
 * decimal.h - numbers with "." as the decimal point, whatever the program's locale. The library
 * runs in programs that call setlocale, and what it reads and writes (files, JSON, SVG, the texts
 * of options) must not depend on that.
 */
#ifndef RS_TEXT_DECIMAL_H
#define RS_TEXT_DECIMAL_H

#include "base/error.h"

#include <stdarg.h>
#include <stddef.h>

/* Like strtod. */
double rs_parse_double(const char *text, char **out_end);
/* Like vsnprintf. */
int rs_format_numbers(char *buffer, size_t capacity, const char *format, va_list arguments)
    RS_PRINTF(3, 0);

#endif
