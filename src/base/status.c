/* SPDX-License-Identifier: Apache-2.0 */
/*
 * status.c - the text of each thread's last error, and the names and texts of statuses, dtypes and
 * reductions.
 */
#include "base/dtype.h"
#include "base/error.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char error_text[RS_ERROR_TEXT_BYTES];

/* Text that is already escaped is left unchanged. */
static void keep_escaped(const char *text)
{
    (void)reshard_text_escape(text, strlen(text), error_text, sizeof error_text);
}

reshard_status rs_fail(reshard_status status, const char *format, ...)
{
    /* The arguments may point into the old text, so format the new text in a separate buffer
     * first. */
    char text[RS_ERROR_TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    keep_escaped(text);
    return status;
}

/* Whether the error text begins with this prefix, after any "rank N: " in front of it. */
static bool has_prefix(const char *prefix)
{
    const char *text = error_text;
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
    if (has_prefix(prefix))
        return status;
    int used = snprintf(text, sizeof text, "%s: ", prefix);
    size_t room = sizeof text - (size_t)used - 1;
    size_t length = strlen(error_text);
    if (length > room)
        length = room;
    memcpy(text + used, error_text, length);
    text[(size_t)used + length] = '\0';
    keep_escaped(text);
    return status;
}

const char *reshard_error_text(void)
{
    return error_text;
}

int32_t reshard_abi_version(void)
{
    return RESHARD_ABI_VERSION;
}

const char *reshard_version(void)
{
#define QUOTE(x) #x
#define QUOTE_VALUE(x) QUOTE(x)
    return QUOTE_VALUE(RESHARD_VERSION_MAJOR) "." QUOTE_VALUE(
        RESHARD_VERSION_MINOR) "." QUOTE_VALUE(RESHARD_VERSION_PATCH);
#undef QUOTE_VALUE
#undef QUOTE
}

const char *reshard_status_name(reshard_status status)
{
    switch (status) {
#define CASE(name, number, text) \
    case number:                 \
        return "RESHARD_" #name;
        RESHARD_STATUS_LIST(CASE)
#undef CASE
    default:
        return "unknown status";
    }
}

const char *reshard_status_text(reshard_status status)
{
    switch (status) {
#define CASE(name, number, text) \
    case number:                 \
        return text;
        RESHARD_STATUS_LIST(CASE)
#undef CASE
    default:
        return "unknown status";
    }
}

static const struct {
    const char *name;
    const char *safetensors_name;
    int32_t bits;
} dtypes[RESHARD_DTYPE_COUNT] = {
#define ROW(name, text, bits) [RESHARD_##name] = {text, #name, bits},
    RESHARD_DTYPE_LIST(ROW)
#undef ROW
};

static int is_dtype(reshard_dtype dtype)
{
    return (int)dtype > 0 && (int)dtype < (int)RESHARD_DTYPE_COUNT;
}

const char *reshard_dtype_name(reshard_dtype dtype)
{
    return is_dtype(dtype) ? dtypes[dtype].name : "?";
}

const char *rs_dtype_safetensors_name(reshard_dtype dtype)
{
    return is_dtype(dtype) ? dtypes[dtype].safetensors_name : "?";
}

int32_t reshard_dtype_bits(reshard_dtype dtype)
{
    return is_dtype(dtype) ? dtypes[dtype].bits : 0;
}

const char *reshard_reduction_name(reshard_reduction reduction)
{
    static const char *const names[RESHARD_REDUCTION_COUNT] = {
#define ROW(name, text) text,
        RESHARD_REDUCTION_LIST(ROW)
#undef ROW
    };
    int known = (int)reduction >= 0 && (int)reduction < (int)RESHARD_REDUCTION_COUNT;
    return known ? names[reduction] : "?";
}
