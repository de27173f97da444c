/* SPDX-License-Identifier: Apache-2.0 */
/* unpack.c - made files whose reads run a decoder. Decoders that stopped midway are kept for later
 * reads. */
#include "checkpoint/archive/unpack.h"

#include "base/context.h"
#include "base/error.h"
#include "base/references.h"
#include "checkpoint/archive/zstd_read.h"
#include "system/thread.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define SKIP_BYTES ((size_t)64 << 10)
/* Bytes kept of each end of a zstd stream's content while its length is measured. The records of an
 * archive are there, so opening it needs no second pass. */
#define EDGE_BYTES ((size_t)4 << 10)

/* One compressed content. */
typedef struct packed {
    rs_unpacking *unpacking;
    const rs_file *file;
    const rs_zip *zip; /* NULL: zstd */
    const rs_zip_member *member;
    uint64_t at, count; /* zstd only: its bytes in the file */
    uint64_t bytes;     /* length of the content */
    size_t head_bytes, tail_bytes;
    /* zstd only: the first bytes of the content, then from EDGE_BYTES on its last ones */
    char edges[];
} packed;

typedef struct decoder {
    const packed *of; /* NULL: no decoder here */
    uint64_t given;
    rs_zip_reader *zip;
    rs_zstd_reader *zstd;
} decoder;

struct rs_unpacking {
    reshard_context *context;
    rs_references references;
    rs_mutex mutex; /* guards the fields below */
    int32_t idle_count;
    decoder idle[RS_UNPACK_IDLE_MAX]; /* least recently used first */
};

/* ---- decoders -------------------------------------------------------------------------------- */

static void destroy_decoder(const decoder *made)
{
    rs_zip_reader_destroy(made->zip);
    rs_zstd_reader_destroy(made->zstd);
}

static reshard_status create_decoder(const packed *content, decoder *out_decoder)
{
    *out_decoder = (decoder){.of = content};
    if (content->zip != NULL)
        return rs_zip_reader_create(content->zip, content->member, &out_decoder->zip);
    return rs_zstd_reader_create(content->unpacking->context, content->file, content->at,
                                 content->count, &out_decoder->zstd);
}

static reshard_status decode(decoder *from, void *bytes, size_t count, size_t *out_done)
{
    reshard_status status = from->zip != NULL
                                ? rs_zip_reader_read(from->zip, bytes, count, out_done)
                                : rs_zstd_reader_read(from->zstd, bytes, count, out_done);
    if (status == RESHARD_OK)
        from->given += *out_done;
    return status;
}

/* Takes idle decoder i out of the list. The caller holds the mutex. */
static decoder take_idle(rs_unpacking *unpacking, int32_t i)
{
    decoder taken = unpacking->idle[i];
    unpacking->idle_count--;
    memmove(&unpacking->idle[i], &unpacking->idle[i + 1],
            (size_t)(unpacking->idle_count - i) * sizeof taken);
    return taken;
}

/* Takes the idle decoder that is closest before `at`, or makes a new one. */
static reshard_status find_decoder(const packed *content, uint64_t at, decoder *out_decoder)
{
    rs_unpacking *unpacking = content->unpacking;
    decoder found = {0};
    int32_t best = -1;
    rs_mutex_lock(&unpacking->mutex);
    for (int32_t i = 0; i < unpacking->idle_count; i++) {
        const decoder *item = &unpacking->idle[i];
        if (item->of == content && item->given <= at &&
            (best < 0 || item->given > unpacking->idle[best].given))
            best = i;
    }
    if (best >= 0)
        found = take_idle(unpacking, best);
    rs_mutex_unlock(&unpacking->mutex);
    if (best < 0)
        return create_decoder(content, out_decoder);
    *out_decoder = found;
    return RESHARD_OK;
}

/* Keeps a decoder for the next read. If the list is full, the least recently used one is
 * destroyed. */
static void keep_decoder(rs_unpacking *unpacking, const decoder *used)
{
    decoder oldest = {0};
    rs_mutex_lock(&unpacking->mutex);
    if (unpacking->idle_count == RS_UNPACK_IDLE_MAX)
        oldest = take_idle(unpacking, 0);
    unpacking->idle[unpacking->idle_count++] = *used;
    rs_mutex_unlock(&unpacking->mutex);
    destroy_decoder(&oldest);
}

static void forget_decoders(const packed *content)
{
    rs_unpacking *unpacking = content->unpacking;
    rs_mutex_lock(&unpacking->mutex);
    for (int32_t i = unpacking->idle_count; i-- > 0;) {
        if (unpacking->idle[i].of == content) {
            decoder last = take_idle(unpacking, i);
            destroy_decoder(&last);
        }
    }
    rs_mutex_unlock(&unpacking->mutex);
}

/* ---- reading --------------------------------------------------------------------------------- */

static reshard_status fail_short(const packed *content)
{
    return rs_fail_about(RESHARD_ERR_CORRUPT, rs_file_path(content->file),
                         "its compressed data ends too early");
}

static reshard_status skip(decoder *from, uint64_t at)
{
    reshard_context *context = from->of->unpacking->context;
    reshard_status status = RESHARD_OK;
    if (from->given == at)
        return RESHARD_OK;
    char *scratch = rs_allocate(context, SKIP_BYTES);
    if (scratch == NULL)
        return rs_allocation_status();
    while (status == RESHARD_OK && from->given < at) {
        uint64_t left = at - from->given;
        size_t part = left < SKIP_BYTES ? (size_t)left : SKIP_BYTES, done = 0;
        status = decode(from, scratch, part, &done);
        if (status == RESHARD_OK && done < part)
            status = fail_short(from->of);
        if (status == RESHARD_OK && rs_context_cancelled(context))
            status = rs_fail(RESHARD_ERR_CANCELLED, "cancelled while reading %s",
                             rs_file_path(from->of->file));
    }
    rs_release(context, scratch);
    return status;
}

/* Serves a read from the ends that were kept; false if it needs other bytes too. */
static bool read_edges(const packed *content, void *bytes, size_t count, uint64_t at)
{
    uint64_t tail = content->bytes - content->tail_bytes;
    const char *from = at + count <= content->head_bytes ? content->edges + at
                       : at >= tail                      ? content->edges + EDGE_BYTES + (at - tail)
                                                         : NULL;
    if (content->zip != NULL || from == NULL)
        return false;
    memcpy(bytes, from, count);
    return true;
}

static reshard_status read_content(void *user, void *bytes, size_t count, uint64_t at)
{
    const packed *content = user;
    decoder from = {0};
    size_t done = 0;
    if (read_edges(content, bytes, count, at))
        return RESHARD_OK;
    reshard_status status = find_decoder(content, at, &from);
    if (status == RESHARD_OK)
        status = skip(&from, at);
    if (status == RESHARD_OK)
        status = decode(&from, bytes, count, &done);
    if (status == RESHARD_OK && done < count)
        status = fail_short(content);
    if (status == RESHARD_OK && from.given < content->bytes)
        keep_decoder(content->unpacking, &from);
    else
        destroy_decoder(&from);
    return status;
}

static size_t packed_bytes(bool has_edges)
{
    return sizeof(packed) + (has_edges ? 2 * EDGE_BYTES : 0);
}

static void destroy_content(void *user)
{
    packed *content = user;
    rs_unpacking *unpacking = content->unpacking;
    forget_decoders(content);
    rs_release(unpacking->context, content);
    rs_unpacking_release(unpacking);
}

static const rs_file_maker maker = {read_content, destroy_content};

/* ---- files ----------------------------------------------------------------------------------- */

static packed *make_content(rs_unpacking *unpacking, const rs_file *file, const rs_zip *zip)
{
    packed *content = rs_allocate_zeroed(unpacking->context, packed_bytes(zip == NULL));
    if (content == NULL)
        return NULL;
    rs_reference_add(&unpacking->references);
    content->unpacking = unpacking;
    content->file = file;
    content->zip = zip;
    return content;
}

static reshard_status make_file(packed *content, rs_slice name, rs_file **out_file)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s: %.*s", rs_file_path(content->file), RS_SHOWN(name));
    return rs_file_create_made(content->file, path, content->bytes, &maker, content, out_file);
}

reshard_status rs_unpack_member(rs_unpacking *unpacking, const rs_file *file, const rs_zip *zip,
                                const rs_zip_member *member, rs_file **out_file)
{
    packed *content = make_content(unpacking, file, zip);
    if (content == NULL)
        return rs_allocation_status();
    content->member = member;
    content->bytes = member->bytes;
    return make_file(content, member->name, out_file);
}

/* Appends decoded bytes to the tail, which keeps the last EDGE_BYTES of them. */
static void keep_tail(packed *content, const char *bytes, size_t count)
{
    char *tail = content->edges + EDGE_BYTES;
    size_t part = count < EDGE_BYTES ? count : EDGE_BYTES;
    size_t old = content->tail_bytes < EDGE_BYTES - part ? content->tail_bytes : EDGE_BYTES - part;
    memmove(tail, tail + content->tail_bytes - old, old);
    memcpy(tail + old, bytes + count - part, part);
    content->tail_bytes = old + part;
}

/* Decodes everything once, to find the length and keep both ends. */
static reshard_status measure(packed *content, uint64_t bytes_max)
{
    reshard_context *context = content->unpacking->context;
    decoder from = {0};
    size_t done = SKIP_BYTES;
    char *scratch = rs_allocate(context, SKIP_BYTES);
    reshard_status status =
        scratch != NULL ? create_decoder(content, &from) : rs_allocation_status();
    while (status == RESHARD_OK && done == SKIP_BYTES) {
        status = decode(&from, scratch, SKIP_BYTES, &done);
        if (status == RESHARD_OK && from.given == done) {
            content->head_bytes = done < EDGE_BYTES ? done : EDGE_BYTES;
            memcpy(content->edges, scratch, content->head_bytes);
        }
        if (status == RESHARD_OK)
            keep_tail(content, scratch, done);
        if (status == RESHARD_OK && from.given > bytes_max)
            status = rs_fail_about(RESHARD_ERR_CORRUPT, rs_file_path(content->file),
                                   "the zstd stream at byte %llu holds more than the %llu bytes "
                                   "that can belong to it",
                                   (unsigned long long)content->at, (unsigned long long)bytes_max);
        if (status == RESHARD_OK && rs_context_cancelled(context))
            status = rs_fail(RESHARD_ERR_CANCELLED, "cancelled while reading %s",
                             rs_file_path(content->file));
    }
    content->bytes = from.given;
    destroy_decoder(&from);
    rs_release(context, scratch);
    return status;
}

reshard_status rs_unpack_zstd(rs_unpacking *unpacking, const rs_file *file, uint64_t at,
                              uint64_t count, uint64_t bytes_max, rs_file **out_file)
{
    char name[64];
    packed *content = make_content(unpacking, file, NULL);
    if (content == NULL)
        return rs_allocation_status();
    content->at = at;
    content->count = count;
    reshard_status status = measure(content, bytes_max);
    if (status != RESHARD_OK) {
        destroy_content(content);
        return status;
    }
    (void)snprintf(name, sizeof name, "the zstd stream at byte %llu", (unsigned long long)at);
    return make_file(content, rs_slice_of(name), out_file);
}

reshard_status rs_unpacking_create(reshard_context *context, rs_unpacking **out_unpacking)
{
    rs_unpacking *unpacking = rs_allocate_zeroed(context, sizeof *unpacking);
    if (unpacking == NULL)
        return rs_allocation_status();
    unpacking->context = context;
    reshard_status status = rs_mutex_init(&unpacking->mutex);
    if (status != RESHARD_OK) {
        rs_release(context, unpacking);
        return status;
    }
    atomic_init(&unpacking->references, 1);
    *out_unpacking = unpacking;
    return RESHARD_OK;
}

void rs_unpacking_release(rs_unpacking *unpacking)
{
    if (unpacking == NULL || !rs_reference_drop(&unpacking->references))
        return;
    assert(unpacking->idle_count == 0);
    rs_mutex_release(&unpacking->mutex);
    rs_release(unpacking->context, unpacking);
}
