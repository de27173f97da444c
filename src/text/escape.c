/* SPDX-License-Identifier: Apache-2.0 */
/*
 * escape.c - turns untrusted bytes into text that is safe to show. Names of tensors and files,
 * paths and arguments may contain anything: newlines that forge lines, terminal control sequences,
 * characters that change the direction of writing or are invisible. Every message passes through
 * here.
 */
#include "text/text.h"
#include "text/utf8.h"

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

/* Adds the whole part or nothing, so that no escape is cut in two. The length counts it either
 * way. */
static void add_part(rs_text *text, const char *part, size_t count, bool *is_full)
{
    *is_full = *is_full || text->length + count >= text->capacity;
    if (!*is_full) {
        memcpy(text->buffer + text->length, part, count);
        text->buffer[text->length + count] = '\0';
    }
    text->length += count;
}

void rs_text_add_escaped(rs_text *text, const char *bytes, size_t count)
{
    bool is_full = text->length >= text->capacity;
    for (size_t at = 0, length; at < count; at += length) {
        char escape[16];
        rs_text made;
        length = rs_utf8_measure(bytes + at, count - at);
        uint32_t code = length != 0 ? rs_utf8_decode(bytes + at, length) : 0;
        if (length != 0 && !is_hidden(code)) {
            add_part(text, bytes + at, length, &is_full);
            continue;
        }
        rs_text_init(&made, escape, sizeof escape);
        if (length <= 1)
            rs_text_add(&made, "\\x%02x", (unsigned char)bytes[at]);
        else
            rs_text_add(&made, code < 0x10000 ? "\\u%04x" : "\\U%08x", (unsigned)code);
        add_part(text, escape, made.length, &is_full);
        length = length == 0 ? 1 : length;
    }
}

size_t reshard_text_escape(const char *bytes, size_t count, char *buffer, size_t capacity)
{
    rs_text text;
    rs_text_init(&text, buffer, capacity);
    rs_text_add_escaped(&text, bytes, count);
    return text.length;
}

void rs_text_add_quoted(rs_text *text, const char *bytes, size_t count)
{
    static const char shorts[] = "\"\"\\\\\bb\ff\nn\rr\tt";
    rs_text_add(text, "\"");
    for (size_t at = 0, length; at < count; at += length) {
        length = rs_utf8_measure(bytes + at, count - at);
        uint32_t code = length != 0 ? rs_utf8_decode(bytes + at, length) : 0xfffd;
        const char *found = NULL;
        for (const char *i = shorts; code < 0x80 && *i != '\0' && found == NULL; i += 2)
            found = (uint32_t)*i == code ? i + 1 : NULL;
        if (found != NULL)
            rs_text_add(text, "\\%c", *found);
        else if (code >= 0x10000)
            rs_text_add(text, "\\u%04x\\u%04x", (unsigned)(0xd800 + ((code - 0x10000) >> 10)),
                        (unsigned)(0xdc00 + ((code - 0x10000) & 0x3ff)));
        else if (code < 0x20 || code >= 0x7f)
            rs_text_add(text, "\\u%04x", (unsigned)code);
        else
            rs_text_add(text, "%c", (int)code);
        length = length == 0 ? 1 : length;
    }
    rs_text_add(text, "\"");
}
