/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zip_records.h - the records of a zip file (APPNOTE 6.3, chapter 4), by the offsets of their
 * fields. All numbers are little-endian. A file consists of a local header and data for each
 * member, the directory with one entry for each, and the end record. In zip64, a field that is all
 * ones is continued in an extra field, and a second end record precedes the first.
 */
#ifndef RS_CHECKPOINT_ARCHIVE_ZIP_RECORDS_H
#define RS_CHECKPOINT_ARCHIVE_ZIP_RECORDS_H

#include <stddef.h>
#include <stdint.h>

#define RS_ZIP_LOCAL_SIGNATURE 0x04034b50U
#define RS_ZIP_ENTRY_SIGNATURE 0x02014b50U
#define RS_ZIP_END_SIGNATURE 0x06054b50U
#define RS_ZIP_END64_SIGNATURE 0x06064b50U
#define RS_ZIP_LOCATOR_SIGNATURE 0x07064b50U

/* Sizes without names, extra fields and comments. */
enum {
    RS_ZIP_LOCAL_BYTES = 30,
    RS_ZIP_ENTRY_BYTES = 46,
    RS_ZIP_END_BYTES = 22,
    RS_ZIP_END64_BYTES = 56,
    RS_ZIP_LOCATOR_BYTES = 20
};

enum {
    RS_ZIP_FLAG_ENCRYPTED = 1,
    RS_ZIP_FLAG_SIZES_BEHIND = 1 << 3, /* sizes and CRC follow the data */
    RS_ZIP_FLAG_PATCH = 1 << 5,
    RS_ZIP_FLAG_STRONG = 1 << 6,
    RS_ZIP_FLAG_UTF8 = 1 << 11,
    RS_ZIP_FLAG_MASKED = 1 << 13
};

enum { RS_ZIP_STORED = 0, RS_ZIP_DEFLATED = 8 };

enum {
    RS_ZIP_EXTRA_SIZES = 0x0001,  /* of zip64: fields that need 64 bits */
    RS_ZIP_EXTRA_PADDING = 0x4246 /* "FB", as torch pads, to align the data */
};

static inline uint16_t rs_zip_u16(const unsigned char *at)
{
    return (uint16_t)(at[0] | at[1] << 8);
}

static inline uint32_t rs_zip_u32(const unsigned char *at)
{
    return rs_zip_u16(at) | (uint32_t)rs_zip_u16(at + 2) << 16;
}

static inline uint64_t rs_zip_u64(const unsigned char *at)
{
    return rs_zip_u32(at) | (uint64_t)rs_zip_u32(at + 4) << 32;
}

/* Writes the number's low bytes and returns the address after them. */
static inline unsigned char *rs_zip_put(unsigned char *at, uint64_t number, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        at[i] = (unsigned char)(number >> (8 * i));
    return at + bytes;
}

#endif
