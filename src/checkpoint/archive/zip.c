/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zip.c - opens an archive: searches backwards for the end record, follows it to the directory, and
 * each entry of the directory to a local header, after which the data begins. The two headers of a
 * member must agree, because a file that shows different readers different things is refused.
 */
#include "checkpoint/archive/zip.h"

#include "base/context.h"
#include "base/error.h"
#include "base/search.h"
#include "base/sort.h"
#include "checkpoint/archive/zip_archive.h"
#include "checkpoint/archive/zip_records.h"

#include <assert.h>
#include <string.h>

#define COMMENT_BYTES_MAX 65535
/* The end records of both kinds, and the comment. */
#define TAIL_BYTES_MAX \
    (RS_ZIP_END_BYTES + COMMENT_BYTES_MAX + RS_ZIP_LOCATOR_BYTES + RS_ZIP_END64_BYTES)

/* Where a member's local header begins; its data ends at member->at + member->stored_bytes. */
typedef struct extent {
    uint64_t header_at;
    rs_zip_member *member;
} extent;

/* The contents of the end records. Offsets count from the beginning of the range. */
typedef struct ending {
    uint64_t entries, directory_bytes, directory_offset;
    uint64_t directory_end;
} ending;

static reshard_status fail(const rs_zip *zip, reshard_status status, const char *words)
{
    return rs_fail_about(status, rs_file_path(zip->file), "zip file at byte %llu: %s",
                         (unsigned long long)zip->begin, words);
}

reshard_status rs_zip_fail(const rs_zip *zip, reshard_status status, rs_slice name,
                           const char *words)
{
    return rs_fail_about(status, rs_file_path(zip->file), "member \"%.*s\": %s", RS_SHOWN(name),
                         words);
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Finds the last end record whose comment fits into the range. Bytes after it are ignored, as torch
 * does. */
static const unsigned char *find_end(const unsigned char *tail, size_t count)
{
    for (size_t at = count; at-- > 0;) {
        if (count - at >= RS_ZIP_END_BYTES && rs_zip_u32(tail + at) == RS_ZIP_END_SIGNATURE &&
            count - at - RS_ZIP_END_BYTES >= rs_zip_u16(tail + at + 20))
            return tail + at;
    }
    return NULL;
}

/* Reads the end record of zip64, which precedes its locator. Its values replace those of the other
 * end record. */
static reshard_status read_end64(const rs_zip *zip, const unsigned char *locator, ending *end)
{
    const unsigned char *record = locator - RS_ZIP_END64_BYTES;
    if (rs_zip_u32(record) != RS_ZIP_END64_SIGNATURE ||
        rs_zip_u64(record + 4) != RS_ZIP_END64_BYTES - 12)
        return fail(zip, RESHARD_ERR_CORRUPT, "the end record of zip64 is not where it should be");
    if (rs_zip_u32(locator + 4) != 0 || rs_zip_u32(locator + 16) > 1 ||
        rs_zip_u32(record + 16) != 0 || rs_zip_u32(record + 20) != 0 ||
        rs_zip_u64(record + 24) != rs_zip_u64(record + 32))
        return fail(zip, RESHARD_ERR_UNSUPPORTED, "it is split over several disks");
    uint64_t entries = rs_zip_u64(record + 32), bytes = rs_zip_u64(record + 40);
    uint64_t offset = rs_zip_u64(record + 48);
    if ((end->entries != UINT16_MAX && end->entries != entries) ||
        (end->directory_bytes != UINT32_MAX && end->directory_bytes != bytes) ||
        (end->directory_offset != UINT32_MAX && end->directory_offset != offset))
        return fail(zip, RESHARD_ERR_CORRUPT, "its two end records contradict each other");
    *end = (ending){entries, bytes, offset,
                    end->directory_end - RS_ZIP_LOCATOR_BYTES - RS_ZIP_END64_BYTES};
    return RESHARD_OK;
}

/* tail: the last `count` bytes of the range, which is `range` bytes long. */
static reshard_status read_end(const rs_zip *zip, const unsigned char *tail, size_t count,
                               uint64_t range, ending *out)
{
    const unsigned char *record = find_end(tail, count);
    if (record == NULL)
        return fail(zip, RESHARD_ERR_CORRUPT, "there is no end record: cut off, or not a zip file");
    ending end = {rs_zip_u16(record + 10), rs_zip_u32(record + 12), rs_zip_u32(record + 16),
                  range - (uint64_t)(tail + count - record)};
    const size_t before = RS_ZIP_LOCATOR_BYTES + RS_ZIP_END64_BYTES;
    const unsigned char *locator =
        record - tail >= (ptrdiff_t)before ? record - RS_ZIP_LOCATOR_BYTES : NULL;
    bool is_64 = locator != NULL && rs_zip_u32(locator) == RS_ZIP_LOCATOR_SIGNATURE;
    if (!is_64 && (rs_zip_u16(record + 4) != 0 || rs_zip_u16(record + 6) != 0 ||
                   rs_zip_u16(record + 8) != rs_zip_u16(record + 10)))
        return fail(zip, RESHARD_ERR_UNSUPPORTED, "it is split over several disks");
    reshard_status status = is_64 ? read_end64(zip, locator, &end) : RESHARD_OK;
    if (status != RESHARD_OK)
        return status;
    if (end.directory_bytes > end.directory_end ||
        end.directory_offset > end.directory_end - end.directory_bytes)
        return fail(zip, RESHARD_ERR_CORRUPT, "its directory is larger than the file");
    if (end.entries > end.directory_bytes / RS_ZIP_ENTRY_BYTES)
        return fail(zip, RESHARD_ERR_CORRUPT, "its directory is too small for its members");
    if (end.directory_bytes > RS_ZIP_DIRECTORY_BYTES_MAX)
        return fail(zip, RESHARD_ERR_RANGE, "its directory is larger than 256 MiB");
    *out = end;
    return RESHARD_OK;
}

/* Finds and reads the directory, and allocates the members. Bytes in front of the archive shift all
 * offsets in it, so zip->begin moves past them. */
static reshard_status read_directory(rs_zip *zip, uint64_t range)
{
    size_t count = range < TAIL_BYTES_MAX ? (size_t)range : TAIL_BYTES_MAX;
    ending end = {0};
    unsigned char *tail = rs_allocate(zip->context, count);
    reshard_status status = tail != NULL
                                ? rs_file_read(zip->file, tail, count, zip->begin + range - count)
                                : rs_allocation_status();
    if (status == RESHARD_OK)
        status = read_end(zip, tail, count, range, &end);
    rs_release(zip->context, tail);
    if (status != RESHARD_OK)
        return status;
    zip->begin += end.directory_end - end.directory_bytes - end.directory_offset;
    zip->directory_at = end.directory_offset;
    zip->directory_bytes = (size_t)end.directory_bytes;
    zip->count = (size_t)end.entries;
    zip->directory = rs_allocate(zip->context, zip->directory_bytes);
    zip->members = rs_allocate_array(zip->context, zip->count, sizeof *zip->members);
    zip->by_name = rs_allocate_array(zip->context, zip->count, sizeof *zip->by_name);
    if (zip->directory == NULL || zip->members == NULL || zip->by_name == NULL)
        return rs_allocation_status();
    return rs_file_read(zip->file, zip->directory, zip->directory_bytes,
                        zip->begin + zip->directory_at);
}

/* ---- entries --------------------------------------------------------------------------------- */

const char *rs_zip_name_fault(rs_slice name)
{
    if (name.count == 0)
        return "a member has no name";
    if (memchr(name.bytes, '\0', name.count) != NULL)
        return "its name has a NUL in it";
    if (name.bytes[0] == '/' || name.bytes[0] == '\\')
        return "its name is an absolute path";
    for (size_t begin = 0, end; begin < name.count; begin = end + 1) {
        for (end = begin; end < name.count && name.bytes[end] != '/' && name.bytes[end] != '\\';)
            end++;
        if (end - begin == 2 && memcmp(name.bytes + begin, "..", 2) == 0)
            return "its name leads outside its folder";
    }
    return NULL;
}

/* Reads the sizes and the header's offset if they did not fit into the entry's own fields. */
static const char *read_extra(const unsigned char *extra, size_t count, rs_zip_member *member,
                              uint64_t *header_at)
{
    while (count >= 4) {
        size_t id = rs_zip_u16(extra), length = rs_zip_u16(extra + 2);
        if (length > count - 4)
            return "an extra field is cut off";
        const unsigned char *at = extra + 4, *end = at + length;
        uint64_t *fields[] = {&member->bytes, &member->stored_bytes, header_at};
        for (int i = 0; i < 3 && id == RS_ZIP_EXTRA_SIZES; i++) {
            if (*fields[i] != UINT32_MAX)
                continue;
            if (end - at < 8)
                return "its extra field of zip64 is cut off";
            *fields[i] = rs_zip_u64(at);
            at += 8;
        }
        extra = end;
        count -= 4 + length;
    }
    return NULL; /* some writers leave up to 3 bytes of padding */
}

static reshard_status check_method(const rs_zip *zip, const rs_zip_member *member, unsigned flags,
                                   unsigned method)
{
    if ((flags & (RS_ZIP_FLAG_ENCRYPTED | RS_ZIP_FLAG_STRONG | RS_ZIP_FLAG_MASKED)) != 0)
        return rs_zip_fail(zip, RESHARD_ERR_UNSUPPORTED, member->name, "it is encrypted");
    if ((flags & RS_ZIP_FLAG_PATCH) != 0)
        return rs_zip_fail(zip, RESHARD_ERR_UNSUPPORTED, member->name, "it is a patch");
    if (method != RS_ZIP_STORED && method != RS_ZIP_DEFLATED)
        return rs_zip_fail(zip, RESHARD_ERR_UNSUPPORTED, member->name,
                           "it is compressed by another method than deflate");
    if (method == RS_ZIP_STORED && member->stored_bytes != member->bytes)
        return rs_zip_fail(zip, RESHARD_ERR_CORRUPT, member->name,
                           "it is stored without compression, but its two sizes differ");
    if (method == RS_ZIP_DEFLATED && member->bytes / RS_ZIP_EXPANSION_MAX > member->stored_bytes)
        return rs_zip_fail(zip, RESHARD_ERR_CORRUPT, member->name,
                           "it claims more bytes than its compressed data can make");
    return RESHARD_OK;
}

/* Reads the directory entry at *at, and moves *at past it. */
static reshard_status read_entry(const rs_zip *zip, size_t *at, extent *out)
{
    const unsigned char *entry = zip->directory + *at;
    size_t rest = zip->directory_bytes - *at;
    if (rest < RS_ZIP_ENTRY_BYTES || rs_zip_u32(entry) != RS_ZIP_ENTRY_SIGNATURE)
        return fail(zip, RESHARD_ERR_CORRUPT,
                    "an entry of its directory is cut off or lacks its signature");
    size_t name = rs_zip_u16(entry + 28), extra = rs_zip_u16(entry + 30);
    size_t length = RS_ZIP_ENTRY_BYTES + name + extra + rs_zip_u16(entry + 32);
    if (length > rest)
        return fail(zip, RESHARD_ERR_CORRUPT, "an entry of its directory is cut off");
    *at += length;
    rs_zip_member *member = out->member;
    *member = (rs_zip_member){.name = {(const char *)entry + RS_ZIP_ENTRY_BYTES, name},
                              .stored_bytes = rs_zip_u32(entry + 20),
                              .bytes = rs_zip_u32(entry + 24),
                              .crc = rs_zip_u32(entry + 16),
                              .deflated = rs_zip_u16(entry + 10) == RS_ZIP_DEFLATED};
    out->header_at = rs_zip_u32(entry + 42);
    const char *wrong = rs_zip_name_fault(member->name);
    if (wrong == NULL)
        wrong = read_extra(entry + RS_ZIP_ENTRY_BYTES + name, extra, member, &out->header_at);
    if (wrong != NULL)
        return rs_zip_fail(zip, RESHARD_ERR_CORRUPT, member->name, wrong);
    if (rs_zip_u16(entry + 34) != 0 && rs_zip_u16(entry + 34) != UINT16_MAX)
        return rs_zip_fail(zip, RESHARD_ERR_UNSUPPORTED, member->name, "it is on another disk");
    return check_method(zip, member, rs_zip_u16(entry + 8), rs_zip_u16(entry + 10));
}

/* In a local header, sizes and the CRC are 0 if they follow the data, and all ones if they are in
 * an extra field; otherwise they must equal those in the directory. */
static bool agrees(uint32_t field, uint64_t value)
{
    return field == 0 || field == UINT32_MAX || field == value;
}

/* Reads the local header, which says where the data begins. `header` has room for the longest
 * name. */
static reshard_status read_local(const rs_zip *zip, extent *one, unsigned char *header)
{
    rs_zip_member *member = one->member;
    uint64_t end = zip->directory_at;
    size_t length = RS_ZIP_LOCAL_BYTES + member->name.count;
    if (one->header_at > end || end - one->header_at < length)
        return rs_zip_fail(zip, RESHARD_ERR_CORRUPT, member->name, "it lies outside the archive");
    reshard_status status = rs_file_read(zip->file, header, length, zip->begin + one->header_at);
    if (status != RESHARD_OK)
        return status;
    if (rs_zip_u32(header) != RS_ZIP_LOCAL_SIGNATURE)
        return rs_zip_fail(zip, RESHARD_ERR_CORRUPT, member->name,
                           "its local header does not begin with the signature of one");
    unsigned method = member->deflated ? RS_ZIP_DEFLATED : RS_ZIP_STORED;
    if (rs_zip_u16(header + 26) != member->name.count ||
        memcmp(header + RS_ZIP_LOCAL_BYTES, member->name.bytes, member->name.count) != 0 ||
        rs_zip_u16(header + 8) != method || !agrees(rs_zip_u32(header + 14), member->crc) ||
        !agrees(rs_zip_u32(header + 18), member->stored_bytes) ||
        !agrees(rs_zip_u32(header + 22), member->bytes))
        return rs_zip_fail(zip, RESHARD_ERR_CORRUPT, member->name,
                           "its local header contradicts the directory");
    status = check_method(zip, member, rs_zip_u16(header + 6), method);
    if (status != RESHARD_OK)
        return status;
    uint64_t at = one->header_at + length + rs_zip_u16(header + 28);
    if (at > end || member->stored_bytes > end - at)
        return rs_zip_fail(zip, RESHARD_ERR_CORRUPT, member->name, "it lies outside the archive");
    member->at = zip->begin + at;
    return RESHARD_OK;
}

static int compare_extents(const void *a, const void *b)
{
    uint64_t left = ((const extent *)a)->header_at, right = ((const extent *)b)->header_at;
    return (left > right) - (left < right);
}

/* Reads the headers in file order, which is fastest, and finds overlaps on the way. */
static reshard_status read_locals(const rs_zip *zip, extent *extents)
{
    size_t room = RS_ZIP_LOCAL_BYTES + UINT16_MAX;
    unsigned char *header = rs_allocate(zip->context, room);
    reshard_status status = header != NULL ? RESHARD_OK : rs_allocation_status();
    rs_sort(extents, zip->count, sizeof *extents, compare_extents);
    for (size_t i = 0; i < zip->count && status == RESHARD_OK; i++) {
        uint64_t before =
            i == 0 ? 0 : extents[i - 1].member->at + extents[i - 1].member->stored_bytes;
        status = read_local(zip, &extents[i], header);
        if (status == RESHARD_OK && i != 0 && zip->begin + extents[i].header_at < before)
            status = rs_zip_fail(zip, RESHARD_ERR_CORRUPT, extents[i].member->name,
                                 "it overlaps another member");
    }
    rs_release(zip->context, header);
    return status;
}

static reshard_status read_members(rs_zip *zip)
{
    size_t at = 0;
    extent *extents = rs_allocate_array(zip->context, zip->count, sizeof *extents);
    if (extents == NULL)
        return rs_allocation_status();
    reshard_status status = RESHARD_OK;
    for (size_t i = 0; i < zip->count && status == RESHARD_OK; i++) {
        extents[i].member = &zip->members[i];
        status = read_entry(zip, &at, &extents[i]);
    }
    if (status == RESHARD_OK && at != zip->directory_bytes)
        status = fail(zip, RESHARD_ERR_CORRUPT, "its directory holds more than its members");
    if (status == RESHARD_OK)
        status = read_locals(zip, extents);
    rs_release(zip->context, extents);
    return status;
}

/* ---- names ----------------------------------------------------------------------------------- */

static int compare_names(const void *a, const void *b)
{
    return rs_slice_compare((*(const rs_zip_member *const *)a)->name,
                            (*(const rs_zip_member *const *)b)->name);
}

static reshard_status sort_names(rs_zip *zip)
{
    for (size_t i = 0; i < zip->count; i++)
        zip->by_name[i] = &zip->members[i];
    rs_sort(zip->by_name, zip->count, sizeof *zip->by_name, compare_names);
    for (size_t i = 1; i < zip->count; i++) {
        if (compare_names(&zip->by_name[i - 1], &zip->by_name[i]) == 0)
            return rs_zip_fail(zip, RESHARD_ERR_CORRUPT, zip->by_name[i]->name,
                               "two members have this name");
    }
    return RESHARD_OK;
}

const rs_zip_member *rs_zip_find(const rs_zip *zip, rs_slice name)
{
    int64_t at, count = (int64_t)zip->count;
    RS_FIND_FIRST(at, count, rs_slice_compare(zip->by_name[at]->name, name) >= 0);
    return at < count && rs_slice_compare(zip->by_name[at]->name, name) == 0 ? zip->by_name[at]
                                                                             : NULL;
}

/* ---- the whole ------------------------------------------------------------------------------- */

reshard_status rs_zip_open(reshard_context *context, const rs_file *file, uint64_t begin,
                           uint64_t count, rs_zip **out_zip)
{
    assert(file != NULL);
    if (begin > INT64_MAX || count > INT64_MAX - begin)
        return rs_fail_about(RESHARD_ERR_RANGE, rs_file_path(file),
                             "%llu bytes from byte %llu on reach beyond what a file can hold",
                             (unsigned long long)count, (unsigned long long)begin);
    rs_zip *zip = rs_allocate(context, sizeof *zip);
    if (zip == NULL)
        return rs_allocation_status();
    *zip = (rs_zip){.context = context, .file = file, .begin = begin};
    reshard_status status = read_directory(zip, count);
    if (status == RESHARD_OK)
        status = read_members(zip);
    if (status == RESHARD_OK)
        status = sort_names(zip);
    if (status == RESHARD_OK) {
        *out_zip = zip;
        zip = NULL;
    }
    rs_zip_destroy(zip);
    return status;
}

void rs_zip_destroy(rs_zip *zip)
{
    if (zip == NULL)
        return;
    rs_release(zip->context, zip->directory);
    rs_release(zip->context, zip->members);
    rs_release(zip->context, zip->by_name);
    rs_release(zip->context, zip);
}

const rs_zip_member *rs_zip_members(const rs_zip *zip, size_t *out_count)
{
    *out_count = zip->count;
    return zip->members;
}
