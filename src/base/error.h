/* SPDX-License-Identifier: Apache-2.0 */
/*
 * error.h - no error without words. Whoever finds the cause calls rs_fail once, or one of the two
 * that also tell programs what the error is about and what would help. Callers pass the status on,
 * and may put a prefix in front of the error text (rs_fail_within). Texts name no option of the
 * command and no argument of Python: a hint stands for it (reshard_hint).
 */
#ifndef RS_BASE_ERROR_H
#define RS_BASE_ERROR_H

#include <reshard/base.h>

#include "base/export.h"
#include "base/slice.h"

#include <stdbool.h>

#if defined(__GNUC__)
#define RS_PRINTF(format_index, first) __attribute__((format(printf, format_index, first)))
#else
#define RS_PRINTF(format_index, first)
#endif

/* The longest error text, with its NUL; longer ones are truncated. */
#define RS_ERROR_TEXT_BYTES 4096

/* The longest subject, with its NUL; longer ones are left out. */
#define RS_ERROR_SUBJECT_BYTES 1024

/* A thread's error, as it is kept for another thread or for later. Its fields are those of
 * reshard_error. */
typedef struct rs_error {
    reshard_status status;
    reshard_hint hint;
    bool has_rank;
    int32_t rank;
    char subject[RS_ERROR_SUBJECT_BYTES];
    char text[RS_ERROR_TEXT_BYTES];
} rs_error;

/* Sets this thread's error, without hint and subject, and returns `status`. The text is escaped
 * (reshard_text_escape), so it is always a single line that is safe to show, whatever names it
 * contains. */
RS_EXPORT reshard_status rs_fail(reshard_status status, const char *format, ...) RS_PRINTF(2, 3);
/* The same with a subject; the text begins with "subject: ". */
RS_EXPORT reshard_status rs_fail_about(reshard_status status, const char *subject,
                                       const char *format, ...) RS_PRINTF(3, 4);
/* The same with a hint and a subject, which may be "". Both are apart from the text. */
reshard_status rs_fail_hint(reshard_status status, reshard_hint hint, const char *subject,
                            const char *format, ...) RS_PRINTF(4, 5);

/* Sets the error of a rank of a group: the text begins with "rank r: ". */
reshard_status rs_fail_of_rank(int32_t rank, reshard_status status, reshard_hint hint,
                               const char *subject, const char *text);

/* Puts "prefix: " in front of this thread's error text, unless it is there already, and returns
 * `status`. The hint and the subject stay. Does nothing for RESHARD_OK. */
RS_EXPORT reshard_status rs_fail_within(reshard_status status, const char *format, ...)
    RS_PRINTF(2, 3);
/* The same with the prefix "tensor "name""; the tensor becomes the subject if there is none. */
reshard_status rs_fail_within_tensor(reshard_status status, rs_slice name);
/* Gives this thread's error another status, which is returned. */
reshard_status rs_fail_as(reshard_status status);
/* Makes a kept error this thread's, and returns its status. */
RS_EXPORT reshard_status rs_fail_again(const rs_error *error);

/* This thread's error; copy it to keep it. */
RS_EXPORT const rs_error *rs_error_last(void);
/* Gives this thread's error a subject if it has none. */
void rs_error_add_subject(const char *bytes, size_t count);
/* Whether this thread's error is about this file or folder, or about a path inside of it. */
bool rs_error_is_within(const char *path);

#endif
