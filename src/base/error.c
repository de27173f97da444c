/* SPDX-License-Identifier: Apache-2.0 */
/*
 * error.c - each thread's last error: its text, and beside it the fields that programs decide by.
 * Nothing outside this file looks into the text (scripts/check-words).
 */
#include "base/error.h"

#include "base/options.h"

#include <assert.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static _Thread_local rs_error last;

/* Text that is already escaped is left unchanged. */
static void keep_escaped(const char *text)
{
    (void)reshard_text_escape(text, strlen(text), last.text, sizeof last.text);
}

/* Half a name would be a wrong one, so one that is too long is left out. */
static void keep_subject(const char *bytes, size_t count)
{
    if (count >= sizeof last.subject)
        count = 0;
    memmove(last.subject, bytes, count); /* it may be the old subject */
    last.subject[count] = '\0';
}

static reshard_status fail(reshard_status status, reshard_hint hint, const char *subject,
                           bool leads, const char *format, va_list arguments)
{
    /* The arguments may point into the old text, so format the new text in a separate buffer
     * first. */
    char text[RS_ERROR_TEXT_BYTES];
    int used = leads ? snprintf(text, sizeof text, "%s: ", subject) : 0;
    if (used < (int)sizeof text)
        (void)vsnprintf(text + used, sizeof text - (size_t)used, format, arguments);
    keep_subject(subject, strlen(subject));
    keep_escaped(text);
    last.status = status;
    last.hint = hint;
    last.has_rank = false;
    last.rank = 0;
    return status;
}

reshard_status rs_fail(reshard_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)fail(status, RESHARD_HINT_NONE, "", false, format, arguments);
    va_end(arguments);
    return status;
}

reshard_status rs_fail_about(reshard_status status, const char *subject, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)fail(status, RESHARD_HINT_NONE, subject, true, format, arguments);
    va_end(arguments);
    return status;
}

reshard_status rs_fail_hint(reshard_status status, reshard_hint hint, const char *subject,
                            const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)fail(status, hint, subject, false, format, arguments);
    va_end(arguments);
    return status;
}

reshard_status rs_fail_of_rank(int32_t rank, reshard_status status, reshard_hint hint,
                               const char *subject, const char *text)
{
    (void)rs_fail_hint(status, hint, subject, "rank %d: %s", (int)rank, text);
    last.has_rank = true;
    last.rank = rank;
    return status;
}

/* Whether the text begins with this prefix, after any "rank N: " in front of it. */
static bool has_prefix(const char *prefix)
{
    const char *text = last.text;
    size_t length = strlen(prefix);
    while (strncmp(text, "rank ", 5) == 0) {
        const char *end = text + 5 + strspn(text + 5, "0123456789");
        if (end == text + 5 || strncmp(end, ": ", 2) != 0)
            break;
        text = end + 2;
    }
    return strncmp(text, prefix, length) == 0 && strncmp(text + length, ": ", 2) == 0;
}

reshard_status rs_fail_within(reshard_status status, const char *format, ...)
{
    if (status == RESHARD_OK)
        return status;
    char prefix[RS_ERROR_TEXT_BYTES / 2];
    char text[RS_ERROR_TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(prefix, sizeof prefix, format, arguments);
    va_end(arguments);
    last.status = status;
    if (has_prefix(prefix))
        return status;
    int used = snprintf(text, sizeof text, "%s: ", prefix);
    size_t room = sizeof text - (size_t)used - 1;
    size_t length = strlen(last.text);
    if (length > room)
        length = room;
    memcpy(text + used, last.text, length);
    text[(size_t)used + length] = '\0';
    keep_escaped(text);
    return status;
}

reshard_status rs_fail_within_tensor(reshard_status status, rs_slice name)
{
    if (status != RESHARD_OK)
        rs_error_add_subject(name.bytes, name.count);
    return rs_fail_within(status, "tensor \"%.*s\"", rs_slice_shown(name), name.bytes);
}

reshard_status rs_fail_as(reshard_status status)
{
    last.status = status;
    return status;
}

reshard_status rs_fail_again(const rs_error *error)
{
    assert(error != &last);
    last = *error;
    return error->status;
}

const rs_error *rs_error_last(void)
{
    return &last;
}

void rs_error_add_subject(const char *bytes, size_t count)
{
    if (last.subject[0] == '\0')
        keep_subject(bytes, count);
}

bool rs_error_is_within(const char *path)
{
    size_t length = strlen(path);
    const char *rest = last.subject + length;
    return length != 0 && strncmp(last.subject, path, length) == 0 &&
           (*rest == '\0' || *rest == '/' || path[length - 1] == '/');
}

const char *reshard_error_text(void)
{
    return last.text;
}

reshard_status reshard_error_get(reshard_error *out_error)
{
    const reshard_error error = {.size = sizeof error,
                                 .status = last.status,
                                 .hint = last.hint,
                                 .has_rank = last.has_rank,
                                 .rank = last.rank,
                                 .subject = last.subject,
                                 .text = last.text};
    return rs_report_write("reshard_error", &error, sizeof error, out_error);
}

reshard_status reshard_error_put(const reshard_error *error)
{
    reshard_error given;
    reshard_status status = rs_options_read("reshard_error", error, &given, sizeof given);
    if (status != RESHARD_OK)
        return status;
    const char *subject = given.subject != NULL ? given.subject : "";
    keep_subject(subject, strlen(subject));
    char text[RS_ERROR_TEXT_BYTES]; /* given.text may be the old one */
    (void)snprintf(text, sizeof text, "%s", given.text != NULL ? given.text : "");
    keep_escaped(text);
    last.status = given.status;
    last.hint = given.hint;
    last.has_rank = given.has_rank != 0;
    last.rank = given.rank;
    return given.status;
}

reshard_status reshard_error_set(reshard_status status, const char *text)
{
    return rs_fail(status, "%s", text);
}
