/* SPDX-License-Identifier: Apache-2.0 */
/*
 * error.h - no error without words. Whoever finds the cause calls rs_fail once. Callers pass the
 * status on, and may put a prefix in front of the error text (rs_fail_within).
 */
#ifndef RS_BASE_ERROR_H
#define RS_BASE_ERROR_H

#include <reshard/base.h>

#include "base/export.h"

#if defined(__GNUC__)
#define RS_PRINTF(format_index, first) __attribute__((format(printf, format_index, first)))
#else
#define RS_PRINTF(format_index, first)
#endif

/* The longest error text, with its NUL; longer ones are truncated. */
#define RS_ERROR_TEXT_BYTES 4096

/* Sets this thread's error text and returns `status`. The text is escaped (reshard_text_escape), so
 * it is always a single line that is safe to show, whatever names it contains. */
RS_EXPORT reshard_status rs_fail(reshard_status status, const char *format, ...) RS_PRINTF(2, 3);

/* Puts "prefix: " in front of this thread's error text, unless it is there already, and returns
 * `status`. Does nothing for RESHARD_OK. */
RS_EXPORT reshard_status rs_fail_within(reshard_status status, const char *format, ...)
    RS_PRINTF(2, 3);

#endif
