/* SPDX-License-Identifier: Apache-2.0 */
/* pickle_write.c - one function for each kind of value. Only `add` touches the buffer. */
#include "checkpoint/archive/pickle_write.h"

#include "base/context.h"
#include "base/error.h"
#include "checkpoint/archive/pickle_text.h"

#include <assert.h>
#include <string.h>

void rs_pickle_writer_init(rs_pickle_writer *writer, reshard_context *context)
{
    *writer = (rs_pickle_writer){.context = context};
}

void rs_pickle_writer_release(rs_pickle_writer *writer)
{
    rs_release(writer->context, writer->bytes);
    *writer = (rs_pickle_writer){.context = writer->context};
}

static void add(rs_pickle_writer *writer, const char *bytes, size_t count)
{
    if (writer->status == RESHARD_OK)
        writer->status = rs_grow(writer->context, &writer->bytes, &writer->capacity,
                                 writer->count + (int64_t)count, 1);
    if (writer->status != RESHARD_OK || count == 0)
        return;
    memcpy(writer->bytes + writer->count, bytes, count);
    writer->count += (int64_t)count;
}

static void add_opcode(rs_pickle_writer *writer, int opcode)
{
    add(writer, &(char){(char)opcode}, 1);
}

/* Adds an opcode and a little-endian number of `bytes` bytes. */
static void add_number(rs_pickle_writer *writer, int opcode, uint64_t number, size_t bytes)
{
    char digits[8];
    assert(bytes <= sizeof digits);
    for (size_t i = 0; i < bytes; i++)
        digits[i] = (char)(unsigned char)(number >> (8 * i));
    add_opcode(writer, opcode);
    add(writer, digits, bytes);
}

/* Records that the caller's values cannot be written, unless there is an earlier failure. */
static void fail(rs_pickle_writer *writer, reshard_status status, const char *words)
{
    if (writer->status == RESHARD_OK)
        writer->status = rs_fail(status, "cannot write the pickle: %s", words);
}

void rs_pickle_writer_begin(rs_pickle_writer *writer)
{
    assert(writer->open == 0);
    writer->put_count = 0;
    add_number(writer, 0x80, 2, 1);
}

reshard_status rs_pickle_writer_finish(rs_pickle_writer *writer, rs_slice *out_bytes)
{
    assert(writer->open == 0);
    add_opcode(writer, '.');
    if (writer->status == RESHARD_OK)
        *out_bytes = (rs_slice){writer->bytes, (size_t)writer->count};
    return writer->status;
}

void rs_pickle_write_none(rs_pickle_writer *writer)
{
    add_opcode(writer, 'N');
}

void rs_pickle_write_bool(rs_pickle_writer *writer, bool truth)
{
    add_opcode(writer, truth ? 0x88 : 0x89);
}

void rs_pickle_write_int(rs_pickle_writer *writer, int64_t integer)
{
    uint64_t bits = (uint64_t)integer;
    if (integer >= 0 && integer <= UINT8_MAX) {
        add_number(writer, 'K', bits, 1);
    } else if (integer >= 0 && integer <= UINT16_MAX) {
        add_number(writer, 'M', bits, 2);
    } else if (integer >= INT32_MIN && integer <= INT32_MAX) {
        add_number(writer, 'J', bits, 4);
    } else {
        char bytes[8];
        for (int i = 0; i < 8; i++)
            bytes[i] = (char)(unsigned char)(bits >> (8 * i));
        size_t count = rs_pickle_trim(bytes, sizeof bytes);
        add_number(writer, 0x8a, count, 1);
        add(writer, bytes, count);
    }
}

void rs_pickle_write_float(rs_pickle_writer *writer, double real)
{
    uint64_t bits, turned = 0;
    memcpy(&bits, &real, sizeof bits);
    for (int i = 0; i < 8; i++) /* doubles are big-endian in pickles */
        turned = turned << 8 | (bits >> (8 * i) & 0xff);
    add_number(writer, 'G', turned, 8);
}

void rs_pickle_write_text(rs_pickle_writer *writer, rs_slice text)
{
    if (text.count > UINT32_MAX)
        fail(writer, RESHARD_ERR_RANGE, "a text has 4 GiB or more");
    if (!rs_pickle_is_utf8(text))
        fail(writer, RESHARD_ERR_INVALID, "a text is not UTF-8");
    add_number(writer, 'X', text.count, 4);
    add(writer, text.bytes, text.count);
}

/* Writes _codecs.encode(text, "latin1") with a text of one character for each byte. */
void rs_pickle_write_bytes(rs_pickle_writer *writer, rs_slice bytes)
{
    size_t count = bytes.count;
    for (size_t i = 0; i < bytes.count; i++)
        count += (unsigned char)bytes.bytes[i] >= 0x80;
    if (count > UINT32_MAX)
        fail(writer, RESHARD_ERR_RANGE, "a bytes object has 2 GiB or more");
    rs_pickle_write_global(writer, "_codecs", "encode");
    rs_pickle_write_tuple_begin(writer);
    add_number(writer, 'X', count, 4);
    for (size_t i = 0; i < bytes.count && writer->status == RESHARD_OK; i++) {
        char encoded[4];
        add(writer, encoded, rs_pickle_encode_utf8((unsigned char)bytes.bytes[i], encoded));
    }
    rs_pickle_write_text(writer, rs_slice_of("latin1"));
    rs_pickle_write_tuple_end(writer);
    rs_pickle_write_reduce(writer);
}

void rs_pickle_write_global(rs_pickle_writer *writer, const char *module, const char *name)
{
    const char *names[] = {module, name};
    add_opcode(writer, 'c');
    for (int i = 0; i < 2; i++) {
        rs_slice slice = rs_slice_of(names[i]);
        if (slice.count == 0 || strchr(names[i], '\n') != NULL || !rs_pickle_is_utf8(slice))
            fail(writer, RESHARD_ERR_INVALID,
                 "the name of a module or class is empty, holds a newline or is not UTF-8");
        add(writer, slice.bytes, slice.count);
        add(writer, "\n", 1);
    }
}

static void open_container(rs_pickle_writer *writer)
{
    writer->open++;
    add_opcode(writer, '(');
}

static void close_container(rs_pickle_writer *writer, char opcode)
{
    assert(writer->open > 0);
    writer->open--;
    add_opcode(writer, opcode);
}

void rs_pickle_write_tuple_begin(rs_pickle_writer *writer)
{
    open_container(writer);
}

void rs_pickle_write_tuple_end(rs_pickle_writer *writer)
{
    close_container(writer, 't');
}

void rs_pickle_write_list_begin(rs_pickle_writer *writer)
{
    add_opcode(writer, ']');
    open_container(writer);
}

void rs_pickle_write_list_end(rs_pickle_writer *writer)
{
    close_container(writer, 'e');
}

void rs_pickle_write_dict_begin(rs_pickle_writer *writer)
{
    add_opcode(writer, '}');
    open_container(writer);
}

void rs_pickle_write_items_begin(rs_pickle_writer *writer)
{
    open_container(writer);
}

void rs_pickle_write_dict_end(rs_pickle_writer *writer)
{
    close_container(writer, 'u');
}

void rs_pickle_write_reduce(rs_pickle_writer *writer)
{
    add_opcode(writer, 'R');
}

void rs_pickle_write_object(rs_pickle_writer *writer)
{
    add_opcode(writer, 0x81);
}

void rs_pickle_write_build(rs_pickle_writer *writer)
{
    add_opcode(writer, 'b');
}

void rs_pickle_write_persistent(rs_pickle_writer *writer)
{
    add_opcode(writer, 'Q');
}

uint32_t rs_pickle_write_put(rs_pickle_writer *writer)
{
    uint32_t index = writer->put_count++;
    if (index <= UINT8_MAX)
        add_number(writer, 'q', index, 1);
    else
        add_number(writer, 'r', index, 4);
    return index;
}

void rs_pickle_write_get(rs_pickle_writer *writer, uint32_t index)
{
    assert(index < writer->put_count);
    if (index <= UINT8_MAX)
        add_number(writer, 'h', index, 1);
    else
        add_number(writer, 'j', index, 4);
}
