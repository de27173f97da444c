/* SPDX-License-Identifier: Apache-2.0 */
/*
 * escape.c - turns untrusted bytes into text that is safe to show. Names of tensors and files,
 * paths and arguments may contain anything: newlines that forge lines, terminal control sequences,
 * characters that change the direction of writing or are invisible. Every message passes through
 * here.
 */
#include "base/utf8.h"

#include <reshard/base.h>

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Code points that are invisible, or that change how other characters are shown. */
static bool is_hidden(uint32_t code)
{
    static const struct {
        uint32_t first, last;
    } ranges[] = {
        {0x00, 0x1f},       /* controls */
        {0x7f, 0x9f},       /* delete, C1 controls */
        {0xad, 0xad},       /* soft hyphen */
        {0x61c, 0x61c},     /* Arabic letter mark */
        {0x200b, 0x200f},   /* zero width, direction marks */
        {0x2028, 0x202e},   /* line and paragraph separators, direction changes */
        {0x2060, 0x206f},   /* invisible operators, isolates */
        {0xfeff, 0xfeff},   /* byte order mark */
        {0xfff9, 0xfffb},   /* annotations */
        {0xe0000, 0xe0fff}, /* tags */
    };
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        if (code >= ranges[i].first && code <= ranges[i].last)
            return true;
    }
    return false;
}

/* Writes the escape of one hidden character, or of one byte that is not UTF-8. */
static size_t spell(const char *bytes, size_t length, uint32_t code, char escape[16])
{
    int written =
        length <= 1 ? snprintf(escape, 16, "\\x%02x", (unsigned char)bytes[0])
                    : snprintf(escape, 16, code < 0x10000 ? "\\u%04x" : "\\U%08x", (unsigned)code);
    return (size_t)written;
}

size_t reshard_text_escape(const char *bytes, size_t count, char *buffer, size_t capacity)
{
    size_t total = 0;
    bool is_full = capacity == 0;
    if (!is_full)
        buffer[0] = '\0';
    for (size_t at = 0; at < count;) {
        char escape[16];
        size_t length = rs_utf8_measure(bytes + at, count - at), part_length = length;
        uint32_t code = length != 0 ? rs_utf8_decode(bytes + at, length) : 0;
        const char *part = bytes + at;
        if (length == 0 || is_hidden(code)) {
            part_length = spell(bytes + at, length, code, escape);
            part = escape;
        }
        /* A part is added whole or not at all, so that no escape is cut in two. */
        is_full = is_full || total + part_length >= capacity;
        if (!is_full) {
            memcpy(buffer + total, part, part_length);
            buffer[total + part_length] = '\0';
        }
        total += part_length;
        at += length == 0 ? 1 : length;
    }
    return total;
}
