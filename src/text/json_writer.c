/* SPDX-License-Identifier: Apache-2.0 */
/* json_writer.c - appends to a growing array of bytes. */
#include "text/json_writer.h"

#include "base/context.h"

#include <assert.h>
#include <string.h>

void rs_json_writer_init(rs_json_writer *writer, reshard_context *context)
{
    *writer = (rs_json_writer){.context = context};
}

void rs_json_writer_release(rs_json_writer *writer)
{
    rs_release(writer->context, writer->bytes);
    *writer = (rs_json_writer){.context = writer->context};
}

/* Appends bytes unchanged. */
static void put(rs_json_writer *writer, const char *bytes, size_t count)
{
    if (writer->status != RESHARD_OK || count == 0)
        return;
    if (!writer->counts_only) {
        if (writer->capacity - writer->count < (int64_t)count) {
            writer->status = rs_grow(writer->context, &writer->bytes, &writer->capacity,
                                     writer->count + (int64_t)count, 1);
            if (writer->status != RESHARD_OK)
                return;
        }
        memcpy(writer->bytes + writer->count, bytes, count);
    }
    writer->count += (int64_t)count;
}

/* ---- escapes --------------------------------------------------------------------------------- */

#define EACH_BYTE(c) ((uint64_t)(c)*UINT64_C(0x0101010101010101))

/* Whether any of the eight bytes is below `limit`, which is at most 128. */
static bool has_below(uint64_t word, unsigned char limit)
{
    return ((word - EACH_BYTE(limit)) & ~word & EACH_BYTE(0x80)) != 0;
}

/* How many bytes at the start need no escape. Works eight at a time, because names hardly ever need
 * one. */
static size_t count_plain(const char *bytes, size_t count)
{
    size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        uint64_t word;
        memcpy(&word, bytes + i, sizeof word);
        if (has_below(word, 0x20) || has_below(word ^ EACH_BYTE('"'), 1) ||
            has_below(word ^ EACH_BYTE('\\'), 1))
            break;
    }
    while (i < count && (unsigned char)bytes[i] >= 0x20 && bytes[i] != '"' && bytes[i] != '\\')
        i++;
    return i;
}

static void put_escaped(rs_json_writer *writer, const char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        static const char hex[] = "0123456789abcdef";
        size_t plain = count_plain(bytes + i, count - i);
        put(writer, bytes + i, plain);
        i += plain;
        if (i == count)
            return;
        unsigned char c = (unsigned char)bytes[i];
        const char letter[2] = {'\\', (char)c};
        const char code[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
        put(writer, c < 0x20 ? code : letter, c < 0x20 ? 6 : 2);
    }
}

/* ---- writing --------------------------------------------------------------------------------- */

void rs_json_writer_add(rs_json_writer *writer, const char *bytes, size_t count)
{
    if (writer->quotes)
        put_escaped(writer, bytes, count);
    else
        put(writer, bytes, count);
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
    /* digits need no escape, so this is right inside quotes too */
    put(writer, digits + first, sizeof digits - first);
}

void rs_json_writer_string(rs_json_writer *writer, rs_slice string)
{
    rs_json_writer_add(writer, "\"", 1);
    if (!writer->quotes) {
        put_escaped(writer, string.bytes, string.count);
    } else if (rs_json_is_plain(string)) {
        put(writer, string.bytes, string.count);
    } else {
        rs_json_writer inner; /* a string inside a string: its escapes are escaped again */
        rs_json_writer_init(&inner, writer->context);
        put_escaped(&inner, string.bytes, string.count);
        put_escaped(writer, inner.bytes, (size_t)inner.count);
        if (writer->status == RESHARD_OK)
            writer->status = inner.status;
        rs_json_writer_release(&inner);
    }
    rs_json_writer_add(writer, "\"", 1);
}

bool rs_json_is_plain(rs_slice string)
{
    return count_plain(string.bytes, string.count) == string.count;
}

void rs_json_writer_plain(rs_json_writer *writer, rs_slice string)
{
    const char *quote = writer->quotes ? "\\\"" : "\"";
    size_t quote_bytes = writer->quotes ? 2 : 1;
    put(writer, quote, quote_bytes);
    put(writer, string.bytes, string.count);
    put(writer, quote, quote_bytes);
}

void rs_json_writer_begin_quoted(rs_json_writer *writer)
{
    assert(!writer->quotes);
    put(writer, "\"", 1);
    writer->quotes = true;
}

void rs_json_writer_end_quoted(rs_json_writer *writer)
{
    assert(writer->quotes);
    writer->quotes = false;
    put(writer, "\"", 1);
}

void rs_json_writer_integers(rs_json_writer *writer, int32_t count, const int64_t *numbers)
{
    put(writer, "[", 1);
    for (int32_t i = 0; i < count; i++) {
        if (i != 0)
            put(writer, ",", 1);
        rs_json_writer_unsigned(writer, (uint64_t)numbers[i]);
    }
    put(writer, "]", 1);
}
