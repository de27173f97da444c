/* SPDX-License-Identifier: Apache-2.0 */
/* zstd_read.c - streams zstd frames out of a file. */
#define ZSTD_STATIC_LINKING_ONLY /* for our own allocator */

#include "checkpoint/archive/zstd_read.h"

#include "base/context.h"
#include "base/error.h"

#include <stddef.h>
#include <zstd.h>
#include <zstd_errors.h>

#define INPUT_BYTES ((size_t)128 << 10)
#define WINDOW_BITS_MAX 24

struct rs_zstd_reader {
    reshard_context *context;
    const rs_file *file;
    uint64_t at, left; /* the part of the file that is still to be read */
    bool in_frame;     /* the current frame has not ended */
    ZSTD_DStream *stream;
    ZSTD_inBuffer input;
    unsigned char *memory; /* of the input buffer */
};

static void *allocate_for_zstd(void *user, size_t count)
{
    return rs_allocate(user, count);
}

static void release_for_zstd(void *user, void *memory)
{
    rs_release(user, memory);
}

reshard_status rs_zstd_reader_create(reshard_context *context, const rs_file *file, uint64_t at,
                                     uint64_t count, rs_zstd_reader **out_reader)
{
    const ZSTD_customMem memory = {allocate_for_zstd, release_for_zstd, context};
    rs_zstd_reader *reader = rs_allocate_zeroed(context, sizeof *reader);
    if (reader == NULL)
        return rs_allocation_status();
    reader->context = context;
    reader->file = file;
    reader->at = at;
    reader->left = count;
    reader->memory = rs_allocate(context, INPUT_BYTES);
    if (reader->memory != NULL)
        reader->stream = ZSTD_createDStream_advanced(memory);
    if (reader->stream == NULL || ZSTD_isError(ZSTD_DCtx_setParameter(
                                      reader->stream, ZSTD_d_windowLogMax, WINDOW_BITS_MAX))) {
        rs_zstd_reader_destroy(reader);
        return rs_allocation_status();
    }
    reader->input.src = reader->memory;
    *out_reader = reader;
    return RESHARD_OK;
}

void rs_zstd_reader_destroy(rs_zstd_reader *reader)
{
    if (reader == NULL)
        return;
    (void)ZSTD_freeDStream(reader->stream);
    rs_release(reader->context, reader->memory);
    rs_release(reader->context, reader);
}

static reshard_status refill(rs_zstd_reader *reader)
{
    size_t count = reader->left < INPUT_BYTES ? (size_t)reader->left : INPUT_BYTES;
    reshard_status status = rs_file_read(reader->file, reader->memory, count, reader->at);
    if (status != RESHARD_OK)
        return status;
    reader->at += count;
    reader->left -= count;
    reader->input.size = count;
    reader->input.pos = 0;
    return RESHARD_OK;
}

reshard_status rs_zstd_reader_read(rs_zstd_reader *reader, void *bytes, size_t count,
                                   size_t *out_done)
{
    ZSTD_outBuffer output = {bytes, count, 0};
    while (output.pos < count) {
        bool is_empty = reader->input.pos == reader->input.size;
        if (is_empty && reader->left != 0) {
            reshard_status status = refill(reader);
            if (status != RESHARD_OK)
                return status;
        } else if (is_empty && !reader->in_frame) {
            break; /* the last frame has ended */
        }
        size_t before = output.pos, input_before = reader->input.pos;
        size_t result = ZSTD_decompressStream(reader->stream, &output, &reader->input);
        if (ZSTD_getErrorCode(result) == ZSTD_error_memory_allocation)
            return rs_allocation_status();
        if (ZSTD_isError(result))
            return rs_fail_about(RESHARD_ERR_CORRUPT, rs_file_path(reader->file),
                                 "its zstd stream is damaged before byte %llu: %s",
                                 (unsigned long long)reader->at, ZSTD_getErrorName(result));
        reader->in_frame = result != 0;
        if (reader->in_frame && reader->left == 0 && output.pos == before &&
            reader->input.pos == input_before)
            return rs_fail_about(RESHARD_ERR_CORRUPT, rs_file_path(reader->file),
                                 "its zstd stream is cut off at byte %llu",
                                 (unsigned long long)reader->at);
    }
    *out_done = output.pos;
    return RESHARD_OK;
}
