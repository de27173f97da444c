/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zip.h - reads zip files by their directory: stored and deflated members, zip64, sizes after the
 * data, other bytes before and after the archive. A stored member can be read in place.
 *
 * The whole archive is checked when it is opened: every member lies inside it, no two members
 * overlap, none reaches into the directory, and names are unique and stay below their folder.
 * Callers need no further checks. Refused: damaged or contradictory records (CORRUPT); encrypted,
 * split or patched archives, and compression other than deflate (UNSUPPORTED); a directory larger
 * than RS_ZIP_DIRECTORY_BYTES_MAX (RANGE).
 *
 * Several threads may use a zip at once; a reader belongs to one thread.
 */
#ifndef RS_CHECKPOINT_ARCHIVE_ZIP_H
#define RS_CHECKPOINT_ARCHIVE_ZIP_H

#include "base/slice.h"
#include "system/file.h"

#define RS_ZIP_DIRECTORY_BYTES_MAX ((size_t)1 << 28)
/* Deflate cannot expand a byte into more than this. */
#define RS_ZIP_EXPANSION_MAX 1032

typedef struct rs_zip_member {
    rs_slice name;         /* as in the file: UTF-8 if written by torch or Python */
    uint64_t at;           /* where its data begins in the file */
    uint64_t stored_bytes; /* size of the data in the file */
    uint64_t bytes;        /* size of the content; the same unless deflated */
    uint32_t crc;          /* of the content; 0 can also mean that the writer did not compute it */
    bool deflated;
} rs_zip_member;

typedef struct rs_zip rs_zip;

/* Local. Opens the archive in `count` bytes of the file from `begin` on. The file must outlive it.
 * Errors: as above; RANGE for a range that no file can have; IO. */
reshard_status rs_zip_open(reshard_context *context, const rs_file *file, uint64_t begin,
                           uint64_t count, rs_zip **out_zip);
void rs_zip_destroy(rs_zip *zip);
/* All members, in the order of the directory. Owned by the zip. */
const rs_zip_member *rs_zip_members(const rs_zip *zip, size_t *out_count);
/* NULL if there is no such member. */
const rs_zip_member *rs_zip_find(const rs_zip *zip, rs_slice name);

/* Streams the content of one member. Takes 64 KiB of memory plus what zlib needs (about 40 KiB),
 * however large the member is. */
typedef struct rs_zip_reader rs_zip_reader;

/* Local. The zip must outlive the reader. */
reshard_status rs_zip_reader_create(const rs_zip *zip, const rs_zip_member *member,
                                    rs_zip_reader **out_reader);
void rs_zip_reader_destroy(rs_zip_reader *reader);
/* Local. Reads the next `count` bytes; *out_done is smaller only at the end of the content. By the
 * time the last byte is returned, length and CRC have been checked. Errors: CORRUPT if they are
 * wrong; IO. After an error the reader can only be destroyed. */
reshard_status rs_zip_reader_read(rs_zip_reader *reader, void *bytes, size_t count,
                                  size_t *out_done);

/* Local. Reads the whole content of a small member. The caller releases *out_count + 1 bytes: a NUL
 * follows the content. Errors: as the reader's; RANGE if it is larger than bytes_max. */
reshard_status rs_zip_read_all(const rs_zip *zip, const rs_zip_member *member, size_t bytes_max,
                               char **out_bytes, size_t *out_count);
/* Local. Reads the whole content to check its length and CRC. Errors: as the reader's;
 * CANCELLED. */
reshard_status rs_zip_verify(const rs_zip *zip, const rs_zip_member *member);

/* What is wrong with a member's name, in words, or NULL: it is empty or absolute, or contains NUL
 * or "..". */
const char *rs_zip_name_fault(rs_slice name);

#endif
