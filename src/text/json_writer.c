/* SPDX-License-Identifier: Apache-2.0 */
/* json_writer.c - appends to a growing array of bytes. */
#include "text/json_writer.h"

#include "base/context.h"

#include <string.h>

void rs_json_writer_init(rs_json_writer *writer, reshard_context *context)
{
    *writer = (rs_json_writer){.context = context};
}

void rs_json_writer_release(rs_json_writer *writer)
{
    if (writer->bytes != NULL)
        rs_release(writer->context, writer->bytes, (size_t)writer->capacity);
    *writer = (rs_json_writer){.context = writer->context};
}

void rs_json_writer_add(rs_json_writer *writer, const char *bytes, size_t count)
{
    void *items = writer->bytes;
    if (writer->status != RESHARD_OK || count == 0)
        return;
    if (writer->capacity - writer->count < (int64_t)count) {
        writer->status =
            rs_grow(writer->context, &items, &writer->capacity, writer->count + (int64_t)count, 1);
        writer->bytes = items;
        if (writer->status != RESHARD_OK)
            return;
    }
    memcpy(writer->bytes + writer->count, bytes, count);
    writer->count += (int64_t)count;
}

void rs_json_writer_text(rs_json_writer *writer, const char *text)
{
    rs_json_writer_add(writer, text, strlen(text));
}

void rs_json_writer_unsigned(rs_json_writer *writer, uint64_t number)
{
    char digits[24];
    size_t first = sizeof digits;
    do {
        digits[--first] = (char)('0' + number % 10);
        number /= 10;
    } while (number != 0);
    rs_json_writer_add(writer, digits + first, sizeof digits - first);
}

void rs_json_writer_string(rs_json_writer *writer, rs_slice string)
{
    size_t plain = 0;
    rs_json_writer_add(writer, "\"", 1);
    for (size_t i = 0; i < string.count; i++) {
        unsigned char c = (unsigned char)string.bytes[i];
        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        static const char hex[] = "0123456789abcdef";
        const char letter[2] = {'\\', (char)c};
        const char code[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
        rs_json_writer_add(writer, string.bytes + plain, i - plain);
        rs_json_writer_add(writer, c < 0x20 ? code : letter, c < 0x20 ? 6 : 2);
        plain = i + 1;
    }
    rs_json_writer_add(writer, string.bytes + plain, string.count - plain);
    rs_json_writer_add(writer, "\"", 1);
}

void rs_json_writer_integers(rs_json_writer *writer, int32_t count, const int64_t *numbers)
{
    rs_json_writer_add(writer, "[", 1);
    for (int32_t i = 0; i < count; i++) {
        if (i != 0)
            rs_json_writer_add(writer, ",", 1);
        rs_json_writer_unsigned(writer, (uint64_t)numbers[i]);
    }
    rs_json_writer_add(writer, "]", 1);
}
