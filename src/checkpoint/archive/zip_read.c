/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zip_read.c - reads the content of one member in order. The output never exceeds the size in the
 * directory: a stream that holds more is refused, and so is one that ends early or leaves input
 * unread.
 */
#include "base/context.h"
#include "base/error.h"
#include "checkpoint/archive/crc.h"
#include "checkpoint/archive/zip_archive.h"

#include <assert.h>
#include <limits.h>
#include <string.h>
#include <zlib.h>

#define INPUT_BYTES ((size_t)64 << 10)
#define VERIFY_BYTES ((size_t)256 << 10)

struct rs_zip_reader {
    const rs_zip *zip;
    const rs_zip_member *member;
    uint64_t taken; /* bytes read from the file */
    uint64_t given; /* bytes of content returned */
    uint32_t crc;   /* of the content returned so far */
    bool inflating; /* zlib's stream was set up */
    bool stream_ended;
    bool ended; /* the content has ended and was checked */
    z_stream stream;
    unsigned char *input; /* for deflated members */
};

/* ---- zlib's memory --------------------------------------------------------------------------- */

static void *allocate_for_zlib(void *user, unsigned count, unsigned item_bytes)
{
    return rs_allocate_array(user, count, item_bytes);
}

static void release_for_zlib(void *user, void *memory)
{
    rs_release(user, memory);
}

/* ---- streams --------------------------------------------------------------------------------- */

static reshard_status fail(const rs_zip_reader *reader, const char *words)
{
    return rs_zip_fail(reader->zip, RESHARD_ERR_CORRUPT, reader->member->name, words);
}

reshard_status rs_zip_reader_create(const rs_zip *zip, const rs_zip_member *member,
                                    rs_zip_reader **out_reader)
{
    rs_zip_reader *reader = rs_allocate_zeroed(zip->context, sizeof *reader);
    if (reader == NULL)
        return rs_allocation_status();
    reader->zip = zip;
    reader->member = member;
    reshard_status status = RESHARD_OK;
    if (member->deflated) {
        reader->input = rs_allocate(zip->context, INPUT_BYTES);
        reader->stream.zalloc = allocate_for_zlib;
        reader->stream.zfree = release_for_zlib;
        reader->stream.opaque = zip->context;
        /* A negative number of window bits means a raw stream without zlib's header. */
        reader->inflating =
            reader->input != NULL && inflateInit2(&reader->stream, -MAX_WBITS) == Z_OK;
        status = reader->inflating ? RESHARD_OK : rs_allocation_status();
    }
    if (status == RESHARD_OK) {
        *out_reader = reader;
        reader = NULL;
    }
    rs_zip_reader_destroy(reader);
    return status;
}

void rs_zip_reader_destroy(rs_zip_reader *reader)
{
    if (reader == NULL)
        return;
    if (reader->inflating)
        (void)inflateEnd(&reader->stream);
    rs_release(reader->zip->context, reader->input);
    rs_release(reader->zip->context, reader);
}

static reshard_status read_stored(rs_zip_reader *reader, void *bytes, size_t count)
{
    reshard_status status =
        rs_file_read(reader->zip->file, bytes, count, reader->member->at + reader->taken);
    if (status == RESHARD_OK)
        reader->taken += count;
    return status;
}

/* Reads the next bytes of the stream. Fails if there are none, because the stream has not ended
 * yet. */
static reshard_status refill(rs_zip_reader *reader)
{
    uint64_t left = reader->member->stored_bytes - reader->taken;
    size_t count = left < INPUT_BYTES ? (size_t)left : INPUT_BYTES;
    if (count == 0)
        return fail(reader, "its deflated stream is cut off");
    reader->stream.next_in = reader->input;
    reader->stream.avail_in = (unsigned)count;
    return read_stored(reader, reader->input, count);
}

/* Inflates until there are `count` bytes or the stream ends. */
static reshard_status inflate_some(rs_zip_reader *reader, unsigned char *bytes, unsigned count,
                                   unsigned *out_done)
{
    reader->stream.next_out = bytes;
    reader->stream.avail_out = count;
    while (reader->stream.avail_out != 0 && !reader->stream_ended) {
        if (reader->stream.avail_in == 0) {
            reshard_status status = refill(reader);
            if (status != RESHARD_OK)
                return status;
        }
        int result = inflate(&reader->stream, Z_NO_FLUSH);
        if (result == Z_MEM_ERROR)
            return rs_allocation_status();
        if (result != Z_OK && result != Z_STREAM_END)
            return fail(reader, "its deflated stream is damaged");
        reader->stream_ended = result == Z_STREAM_END;
    }
    *out_done = count - reader->stream.avail_out;
    return RESHARD_OK;
}

static reshard_status read_deflated(rs_zip_reader *reader, unsigned char *bytes, size_t count)
{
    while (count != 0) {
        unsigned part = count < UINT_MAX ? (unsigned)count : UINT_MAX, done = 0;
        reshard_status status = inflate_some(reader, bytes, part, &done);
        if (status != RESHARD_OK)
            return status;
        if (done < part)
            return fail(reader, "it holds less than it announced");
        bytes += part;
        count -= part;
    }
    return RESHARD_OK;
}

/* Called after the last byte of content: nothing may follow it, and the CRC must match. */
static reshard_status finish(rs_zip_reader *reader)
{
    if (reader->member->deflated) {
        unsigned char more;
        unsigned done = 0;
        reshard_status status = inflate_some(reader, &more, 1, &done);
        if (status != RESHARD_OK)
            return status;
        if (done != 0)
            return fail(reader, "it holds more than it announced");
        if (reader->stream.avail_in != 0 || reader->taken != reader->member->stored_bytes)
            return fail(reader, "bytes are left over behind its deflated stream");
    }
    if (reader->member->crc != 0 && reader->crc != reader->member->crc)
        return fail(reader, "its CRC is wrong: the data is damaged");
    reader->ended = true;
    return RESHARD_OK;
}

reshard_status rs_zip_reader_read(rs_zip_reader *reader, void *bytes, size_t count,
                                  size_t *out_done)
{
    const rs_zip_member *member = reader->member;
    assert(reader->given <= member->bytes);
    uint64_t left = member->bytes - reader->given;
    size_t asked = count < left ? count : (size_t)left;
    reshard_status status =
        member->deflated ? read_deflated(reader, bytes, asked) : read_stored(reader, bytes, asked);
    if (status != RESHARD_OK)
        return status;
    reader->given += asked;
    if (member->crc != 0 && asked != 0)
        reader->crc = rs_crc32(reader->crc, bytes, asked);
    if (reader->given == member->bytes && !reader->ended)
        status = finish(reader);
    if (status == RESHARD_OK)
        *out_done = asked;
    return status;
}

/* ---- whole members --------------------------------------------------------------------------- */

reshard_status rs_zip_read_all(const rs_zip *zip, const rs_zip_member *member, size_t bytes_max,
                               char **out_bytes, size_t *out_count)
{
    rs_zip_reader *reader = NULL;
    size_t done = 0;
    if (member->bytes > bytes_max)
        return rs_zip_fail(zip, RESHARD_ERR_RANGE, member->name, "it is larger than allowed");
    size_t count = (size_t)member->bytes;
    char *bytes = rs_allocate(zip->context, count + 1);
    reshard_status status =
        bytes != NULL ? rs_zip_reader_create(zip, member, &reader) : rs_allocation_status();
    if (status == RESHARD_OK)
        status = rs_zip_reader_read(reader, bytes, count, &done);
    if (status == RESHARD_OK) {
        assert(done == count);
        bytes[count] = '\0';
        *out_bytes = bytes;
        *out_count = count;
        bytes = NULL;
    }
    rs_release(zip->context, bytes);
    rs_zip_reader_destroy(reader);
    return status;
}

reshard_status rs_zip_verify(const rs_zip *zip, const rs_zip_member *member)
{
    rs_zip_reader *reader = NULL;
    size_t done = VERIFY_BYTES;
    unsigned char *bytes = rs_allocate(zip->context, VERIFY_BYTES);
    reshard_status status =
        bytes != NULL ? rs_zip_reader_create(zip, member, &reader) : rs_allocation_status();
    while (status == RESHARD_OK && done == VERIFY_BYTES) {
        status = rs_context_cancelled(zip->context)
                     ? rs_fail(RESHARD_ERR_CANCELLED, "cancelled while reading %s",
                               rs_file_path(zip->file))
                     : rs_zip_reader_read(reader, bytes, VERIFY_BYTES, &done);
    }
    rs_zip_reader_destroy(reader);
    rs_release(zip->context, bytes);
    return status;
}
