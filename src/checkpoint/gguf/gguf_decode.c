/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gguf_decode.c - a read of any range of bytes finds the tensors it touches, reads their blocks in
 * batches, and decodes the wanted part of them. A tensor's values follow each other like its
 * blocks, because rows consist of whole blocks.
 */
#include "checkpoint/gguf/gguf_decode.h"

#include "base/context.h"
#include "base/error.h"
#include "base/search.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define CODE_BYTES ((size_t)128 << 10) /* blocks that are read at once, at most */

typedef struct span {
    uint64_t begin, end; /* of the values, in the made file */
    uint64_t at;         /* of the blocks, in the GGUF file */
    const rs_block_type *type;
} span;

typedef struct decoding {
    reshard_context *context;
    const rs_file *file;
    int64_t count;
    span spans[]; /* by begin, without gaps */
} decoding;

static size_t decoding_bytes(int64_t count)
{
    return sizeof(decoding) + (size_t)count * sizeof(span);
}

static void destroy(void *user)
{
    decoding *made = user;
    rs_release(made->context, made);
}

/* Writes bytes begin .. end-1 of the values of blocks that were read. Whole blocks are decoded
 * where they belong, others aside. */
static void decode_part(const rs_block_type *type, const uint8_t *blocks, uint64_t begin,
                        uint64_t end, char *bytes)
{
    const uint64_t each = (uint64_t)type->elements * sizeof(float);
    for (uint64_t at = begin, next; at < end; at = next) {
        const uint64_t block = at / each, first = block * each, whole = (end - first) / each;
        const uint8_t *codes = blocks + block * (uint64_t)type->bytes;
        char *to = bytes + (at - begin);
        if (at == first && whole != 0 && (uintptr_t)to % _Alignof(float) == 0) {
            type->decode(codes, (int64_t)whole, (float *)(void *)to);
            next = first + whole * each;
            continue;
        }
        float aside[RS_BLOCK_ELEMENTS_MAX];
        type->decode(codes, 1, aside);
        next = end < first + each ? end : first + each;
        memcpy(to, (const char *)aside + (at - first), (size_t)(next - at));
    }
}

/* Reads bytes begin .. end-1 of a tensor's values. */
static reshard_status read_span(const decoding *made, const span *of, uint64_t begin, uint64_t end,
                                uint8_t *codes, char *bytes)
{
    const uint64_t each = (uint64_t)of->type->elements * sizeof(float);
    const uint64_t block_bytes = (uint64_t)of->type->bytes, most = CODE_BYTES / block_bytes;
    while (begin < end) {
        uint64_t first = begin / each, last = (end + each - 1) / each;
        uint64_t count = last - first < most ? last - first : most;
        reshard_status status = rs_file_read(made->file, codes, (size_t)(count * block_bytes),
                                             of->at + first * block_bytes);
        if (status != RESHARD_OK)
            return status;
        uint64_t stop = end < (first + count) * each ? end : (first + count) * each;
        decode_part(of->type, codes, begin - first * each, stop - first * each, bytes);
        bytes += stop - begin;
        begin = stop;
    }
    return RESHARD_OK;
}

static int64_t find_span(const decoding *made, uint64_t at)
{
    int64_t next;
    RS_FIND_FIRST(next, made->count, made->spans[next].begin > at);
    return next - 1;
}

static reshard_status read_values(void *user, void *bytes, size_t count, uint64_t at)
{
    const decoding *made = user;
    char *to = bytes;
    reshard_status status = RESHARD_OK;
    uint8_t *codes = rs_allocate(made->context, CODE_BYTES);
    if (codes == NULL)
        return rs_allocation_status();
    for (int64_t i = find_span(made, at); status == RESHARD_OK && count != 0; i++) {
        const span *of = &made->spans[i];
        assert(i < made->count && at >= of->begin);
        uint64_t left = of->end - at;
        size_t part = count < left ? count : (size_t)left;
        status = read_span(made, of, at - of->begin, at - of->begin + part, codes, to);
        to += part;
        at += part;
        count -= part;
    }
    rs_release(made->context, codes);
    return status;
}

static const rs_file_maker maker = {read_values, destroy};

static bool is_decoded(const rs_gguf_tensor *tensor)
{
    return tensor->block_type != NULL && tensor->block_type->decode != NULL;
}

reshard_status rs_gguf_decode(reshard_context *context, const rs_file *file, const rs_gguf *gguf,
                              uint64_t *places, rs_file **out_file)
{
    int64_t count = 0;
    uint64_t bytes = 0;
    char path[512];
    *out_file = NULL;
    for (int64_t i = 0; i < gguf->tensor_count; i++)
        count += is_decoded(&gguf->tensors[i]) && gguf->tensors[i].bytes != 0;
    decoding *made = rs_allocate_zeroed(context, decoding_bytes(count));
    if (made == NULL)
        return rs_allocation_status();
    made->context = context;
    made->file = file;
    made->count = count;
    count = 0;
    for (int64_t i = 0; i < gguf->tensor_count; i++) {
        const rs_gguf_tensor *tensor = &gguf->tensors[i];
        const rs_block_type *type = tensor->block_type;
        places[i] = is_decoded(tensor) ? bytes : UINT64_MAX;
        if (!is_decoded(tensor) || tensor->bytes == 0)
            continue;
        span *of = &made->spans[count++];
        *of = (span){.begin = bytes, .at = tensor->at, .type = type};
        bytes += tensor->bytes / (uint64_t)type->bytes * (uint64_t)type->elements * sizeof(float);
        of->end = bytes;
    }
    if (count == 0) {
        destroy(made);
        return RESHARD_OK;
    }
    (void)snprintf(path, sizeof path, "%s: dequantised", rs_file_path(file));
    return rs_file_create_made(file, path, bytes, &maker, made, out_file);
}
