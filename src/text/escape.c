/* SPDX-License-Identifier: Apache-2.0 */
/* escape.c - untrusted bytes as part of a text: escaped for people (base/escape.c), or quoted as
 * JSON. */
#include "base/utf8.h"
#include "text/text.h"

void rs_text_add_escaped(rs_text *text, const char *bytes, size_t count)
{
    size_t room = text->length < text->capacity ? text->capacity - text->length : 0;
    char *end = room != 0 ? text->buffer + text->length : NULL;
    text->length += reshard_text_escape(bytes, count, end, room);
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
