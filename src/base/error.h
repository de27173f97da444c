/* SPDX-License-Identifier: Apache-2.0 */
/*
 * error.h - no error without words. Whoever finds the cause calls rs_fail once; callers pass the
 * status on, or put a prefix in front of the words (rs_fail_within).
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

/* Sets this thread's error text and returns `status`. The text is escaped (reshard_text_escape), so
 * that it is always one line and safe to show, whatever names are in it. */
RS_EXPORT reshard_status rs_fail(reshard_status status, const char *format, ...) RS_PRINTF(2, 3);

/* Puts "prefix: " in front of this thread's error text and returns `status`; does nothing for
 * RESHARD_OK. */
RS_EXPORT reshard_status rs_fail_within(reshard_status status, const char *format, ...)
    RS_PRINTF(2, 3);

#endif
