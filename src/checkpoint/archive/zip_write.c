/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zip_write.c - computes all offsets first and writes the records last. CRCs are linear: a member's
 * CRC is the xor of its blocks' CRCs, each advanced by the number of bytes that follow the block.
 * So blocks may come in any order.
 */
#include "checkpoint/archive/zip_write.h"

#include "base/arena.h"
#include "base/context.h"
#include "base/error.h"
#include "base/sort.h"
#include "checkpoint/archive/crc.h"
#include "checkpoint/archive/zip.h"
#include "checkpoint/archive/zip_records.h"
#include "text/json.h"

#include <assert.h>
#include <string.h>
#include <zlib.h>

#define ARCHIVE_BYTES_MAX ((uint64_t)INT64_MAX / 2)

static_assert(sizeof(z_off_t) == 8, "members of 2 GiB and more need zlib with large files");

enum {
    VERSION_PLAIN = 20,
    VERSION_64 = 45,
    DATE_FIRST = 0x0021,  /* 1980-01-01, always, so that equal content gives equal bytes */
    EXTRA_HEAD_BYTES = 4, /* id and length */
    SIZES_BYTES = 16,     /* of the zip64 extra field in a local header */
    ENTRY_EXTRA_MAX = 28  /* the longest extra field in the directory */
};

typedef struct drafted {
    rs_slice name;
    uint64_t bytes;
    uint64_t header_at, data_at;
} drafted;

struct rs_zip_draft {
    reshard_context *context;
    rs_arena arena; /* holds the names */
    size_t count;
    drafted *items;
    uint64_t directory_at, directory_bytes, bytes;
};

/* ---- places ---------------------------------------------------------------------------------- */

static bool is_64(uint64_t number)
{
    return number >= UINT32_MAX;
}

/* Size of the zip64 extra field in the directory; 0 if there is none. */
static size_t entry_extra_bytes(const drafted *item)
{
    size_t bytes = (is_64(item->bytes) ? SIZES_BYTES : 0U) + (is_64(item->header_at) ? 8U : 0U);
    return bytes != 0 ? EXTRA_HEAD_BYTES + bytes : 0;
}

static size_t local_extra_bytes(const drafted *item)
{
    return (is_64(item->bytes) ? (size_t)EXTRA_HEAD_BYTES + SIZES_BYTES : 0) + EXTRA_HEAD_BYTES;
}

static bool needs_end64(const rs_zip_draft *draft)
{
    return draft->count >= UINT16_MAX || is_64(draft->directory_bytes) ||
           is_64(draft->directory_at);
}

static reshard_status check_names(reshard_context *context, const rs_zip_entry *entries,
                                  size_t count)
{
    rs_slice *names = rs_allocate_array(context, count, sizeof *names);
    if (names == NULL)
        return rs_allocation_status();
    const char *wrong = NULL;
    size_t i;
    for (i = 0; i < count && wrong == NULL; i++) {
        names[i] = entries[i].name;
        wrong = names[i].count > UINT16_MAX                        ? "its name is too long"
                : !rs_json_is_text(names[i].bytes, names[i].count) ? "its name is not UTF-8"
                                                                   : rs_zip_name_fault(names[i]);
    }
    if (wrong == NULL)
        rs_sort(names, count, sizeof *names, rs_compare_slices);
    for (size_t k = 1; k < count && wrong == NULL; k++) {
        i = k + 1;
        if (rs_slice_compare(names[k - 1], names[k]) == 0)
            wrong = "two members have this name";
    }
    reshard_status status = wrong == NULL ? RESHARD_OK
                                          : rs_fail(RESHARD_ERR_INVALID, "zip member \"%.*s\": %s",
                                                    RS_SHOWN(names[i - 1]), wrong);
    rs_release(context, names);
    return status;
}

/* Places a member at *at and moves *at to its end. False if the archive gets too large. */
static bool place(drafted *item, size_t alignment, uint64_t *at)
{
    uint64_t head = RS_ZIP_LOCAL_BYTES + item->name.count + local_extra_bytes(item);
    uint64_t data = *at + head + alignment - 1;
    item->header_at = *at;
    item->data_at = data - data % alignment;
    if (item->data_at > ARCHIVE_BYTES_MAX || item->bytes > ARCHIVE_BYTES_MAX - item->data_at)
        return false;
    *at = item->data_at + item->bytes;
    return true;
}

static reshard_status place_all(rs_zip_draft *draft, const rs_zip_entry *entries, size_t alignment)
{
    uint64_t at = 0, directory = 0;
    for (size_t i = 0; i < draft->count; i++) {
        drafted *item = &draft->items[i];
        char *name = rs_arena_copy(&draft->arena, entries[i].name.bytes, entries[i].name.count, 1);
        if (name == NULL)
            return rs_allocation_status();
        *item = (drafted){.name = {name, entries[i].name.count}, .bytes = entries[i].bytes};
        if (!place(item, alignment, &at))
            return rs_fail(RESHARD_ERR_RANGE,
                           "zip member \"%.*s\": it is larger than a file can be",
                           RS_SHOWN(item->name));
        directory += RS_ZIP_ENTRY_BYTES + item->name.count + entry_extra_bytes(item);
    }
    draft->directory_at = at;
    draft->directory_bytes = directory;
    draft->bytes = at + directory + RS_ZIP_END_BYTES;
    if (needs_end64(draft))
        draft->bytes += RS_ZIP_END64_BYTES + RS_ZIP_LOCATOR_BYTES;
    return RESHARD_OK;
}

reshard_status rs_zip_draft_create(reshard_context *context, const rs_zip_entry *entries,
                                   size_t count, size_t alignment, rs_zip_draft **out_draft)
{
    assert(alignment != 0 && alignment <= RS_ZIP_ALIGNMENT_MAX &&
           (alignment & (alignment - 1)) == 0);
    reshard_status status = check_names(context, entries, count);
    if (status != RESHARD_OK)
        return status;
    rs_zip_draft *draft = rs_allocate_zeroed(context, sizeof *draft);
    if (draft == NULL)
        return rs_allocation_status();
    draft->context = context;
    draft->count = count;
    rs_arena_init(&draft->arena, context);
    draft->items = rs_allocate_array(context, count, sizeof *draft->items);
    status = draft->items != NULL ? place_all(draft, entries, alignment) : rs_allocation_status();
    if (status == RESHARD_OK) {
        *out_draft = draft;
        draft = NULL;
    }
    rs_zip_draft_destroy(draft);
    return status;
}

void rs_zip_draft_destroy(rs_zip_draft *draft)
{
    if (draft == NULL)
        return;
    rs_arena_release(&draft->arena);
    rs_release(draft->context, draft->items);
    rs_release(draft->context, draft);
}

uint64_t rs_zip_draft_data_at(const rs_zip_draft *draft, size_t index)
{
    assert(index < draft->count);
    return draft->items[index].data_at;
}

uint64_t rs_zip_draft_bytes(const rs_zip_draft *draft)
{
    return draft->bytes;
}

/* ---- CRCs ------------------------------------------------------------------------------------ */

void rs_zip_sum_add(rs_zip_sum *sum, uint64_t member_bytes, uint64_t offset, const void *block,
                    size_t count)
{
    assert(offset <= member_bytes && count <= member_bytes - offset);
    if (count == 0)
        return; /* block may be NULL, which zlib would take as a request to start over */
    uint64_t behind = member_bytes - offset - count;
    uLong crc = rs_crc32(0, block, count);
    sum->crc ^= (uint32_t)crc32_combine(crc, 0, (z_off_t)behind);
    sum->bytes += count;
}

void rs_zip_sum_merge(rs_zip_sum *sum, const rs_zip_sum *other)
{
    sum->crc ^= other->crc;
    sum->bytes += other->bytes;
}

/* ---- records --------------------------------------------------------------------------------- */

static uint32_t cap(uint64_t number)
{
    return is_64(number) ? UINT32_MAX : (uint32_t)number;
}

/* Writes the fields that local headers and directory entries share, from the version on. */
static unsigned char *put_common(unsigned char *at, const drafted *item, uint32_t crc,
                                 bool is_large)
{
    at = rs_zip_put(at, is_large ? VERSION_64 : VERSION_PLAIN, 2);
    at = rs_zip_put(at, RS_ZIP_FLAG_UTF8, 2);
    at = rs_zip_put(at, RS_ZIP_STORED, 2);
    at = rs_zip_put(at, 0, 2); /* midnight */
    at = rs_zip_put(at, DATE_FIRST, 2);
    at = rs_zip_put(at, crc, 4);
    at = rs_zip_put(at, cap(item->bytes), 4);
    at = rs_zip_put(at, cap(item->bytes), 4);
    return rs_zip_put(at, item->name.count, 2);
}

/* Writes the size of the content and that in the file, which are equal because members are
 * stored. */
static unsigned char *put_sizes(unsigned char *at, const drafted *item)
{
    at = rs_zip_put(at, item->bytes, 8);
    return rs_zip_put(at, item->bytes, 8);
}

static unsigned char *put_name(unsigned char *at, rs_slice name)
{
    memcpy(at, name.bytes, name.count);
    return at + name.count;
}

/* Writes all bytes from header_at to data_at. */
static reshard_status write_local(const drafted *item, rs_file *file, uint64_t begin, uint32_t crc,
                                  unsigned char *header)
{
    size_t length = (size_t)(item->data_at - item->header_at);
    size_t extra = length - RS_ZIP_LOCAL_BYTES - item->name.count;
    size_t padding = extra - local_extra_bytes(item);
    unsigned char *at = rs_zip_put(header, RS_ZIP_LOCAL_SIGNATURE, 4);
    at = put_common(at, item, crc, is_64(item->bytes));
    at = rs_zip_put(at, extra, 2);
    at = put_name(at, item->name);
    if (is_64(item->bytes)) {
        at = rs_zip_put(at, RS_ZIP_EXTRA_SIZES, 2);
        at = rs_zip_put(at, SIZES_BYTES, 2);
        at = put_sizes(at, item);
    }
    at = rs_zip_put(at, RS_ZIP_EXTRA_PADDING, 2);
    at = rs_zip_put(at, padding, 2);
    memset(at, 'Z', padding);
    assert(at + padding == header + length);
    return rs_file_write(file, header, length, begin + item->header_at);
}

static unsigned char *put_entry(unsigned char *at, const drafted *item, uint32_t crc)
{
    size_t extra = entry_extra_bytes(item);
    at = rs_zip_put(at, RS_ZIP_ENTRY_SIGNATURE, 4);
    at = rs_zip_put(at, extra != 0 ? VERSION_64 : VERSION_PLAIN, 2);
    at = put_common(at, item, crc, extra != 0);
    at = rs_zip_put(at, extra, 2);
    at = rs_zip_put(at, 0, 4); /* comment, disk */
    at = rs_zip_put(at, 0, 6); /* attributes */
    at = rs_zip_put(at, cap(item->header_at), 4);
    at = put_name(at, item->name);
    if (extra == 0)
        return at;
    at = rs_zip_put(at, RS_ZIP_EXTRA_SIZES, 2);
    at = rs_zip_put(at, extra - EXTRA_HEAD_BYTES, 2);
    if (is_64(item->bytes))
        at = put_sizes(at, item);
    return is_64(item->header_at) ? rs_zip_put(at, item->header_at, 8) : at;
}

static unsigned char *put_end64(unsigned char *at, const rs_zip_draft *draft)
{
    uint64_t end64_at = draft->directory_at + draft->directory_bytes;
    at = rs_zip_put(at, RS_ZIP_END64_SIGNATURE, 4);
    at = rs_zip_put(at, RS_ZIP_END64_BYTES - 12, 8);
    at = rs_zip_put(at, VERSION_64, 2);
    at = rs_zip_put(at, VERSION_64, 2);
    at = rs_zip_put(at, 0, 8); /* disks */
    at = rs_zip_put(at, draft->count, 8);
    at = rs_zip_put(at, draft->count, 8);
    at = rs_zip_put(at, draft->directory_bytes, 8);
    at = rs_zip_put(at, draft->directory_at, 8);
    at = rs_zip_put(at, RS_ZIP_LOCATOR_SIGNATURE, 4);
    at = rs_zip_put(at, 0, 4);
    at = rs_zip_put(at, end64_at, 8);
    return rs_zip_put(at, 1, 4);
}

static unsigned char *put_end(unsigned char *at, const rs_zip_draft *draft)
{
    uint64_t count = draft->count < UINT16_MAX ? draft->count : UINT16_MAX;
    at = rs_zip_put(at, RS_ZIP_END_SIGNATURE, 4);
    at = rs_zip_put(at, 0, 4); /* disks */
    at = rs_zip_put(at, count, 2);
    at = rs_zip_put(at, count, 2);
    at = rs_zip_put(at, cap(draft->directory_bytes), 4);
    at = rs_zip_put(at, cap(draft->directory_at), 4);
    return rs_zip_put(at, 0, 2);
}

static reshard_status write_directory(const rs_zip_draft *draft, rs_file *file, uint64_t begin,
                                      const rs_zip_sum *sums)
{
    size_t count = (size_t)(draft->bytes - draft->directory_at);
    unsigned char *bytes = rs_allocate(draft->context, count), *at = bytes;
    if (bytes == NULL)
        return rs_allocation_status();
    for (size_t i = 0; i < draft->count; i++)
        at = put_entry(at, &draft->items[i], sums[i].crc);
    if (needs_end64(draft))
        at = put_end64(at, draft);
    at = put_end(at, draft);
    assert(at == bytes + count);
    reshard_status status = rs_file_write(file, bytes, count, begin + draft->directory_at);
    rs_release(draft->context, bytes);
    return status;
}

reshard_status rs_zip_draft_finish(const rs_zip_draft *draft, rs_file *file, uint64_t begin,
                                   const rs_zip_sum *sums)
{
    size_t room = RS_ZIP_LOCAL_BYTES + UINT16_MAX + RS_ZIP_ALIGNMENT_MAX + ENTRY_EXTRA_MAX;
    for (size_t i = 0; i < draft->count; i++) {
        const drafted *item = &draft->items[i];
        if (sums[i].bytes != item->bytes)
            return rs_fail_about(RESHARD_ERR_CHECK, rs_file_path(file),
                                 "member \"%.*s\": %llu of its %llu bytes written",
                                 RS_SHOWN(item->name), (unsigned long long)sums[i].bytes,
                                 (unsigned long long)item->bytes);
    }
    unsigned char *header = rs_allocate(draft->context, room);
    reshard_status status = header != NULL ? RESHARD_OK : rs_allocation_status();
    for (size_t i = 0; i < draft->count && status == RESHARD_OK; i++)
        status = write_local(&draft->items[i], file, begin, sums[i].crc, header);
    if (status == RESHARD_OK)
        status = write_directory(draft, file, begin, sums);
    rs_release(draft->context, header);
    return status;
}
