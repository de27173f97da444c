/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zip_write.h - zip files whose names and sizes are known beforehand. A draft says where the data
 * of each member goes; threads or ranks can then write it in any order. At the end one rank writes
 * all headers, with CRCs that are combined from those of the blocks.
 *
 * Members are stored, not compressed. Data begins at a multiple of the alignment, counted from the
 * beginning of the archive (which need not be that of the file); the gap is an extra field "FB", as
 * torch writes it. zip64 is used only where it is needed.
 */
#ifndef RS_CHECKPOINT_ARCHIVE_ZIP_WRITE_H
#define RS_CHECKPOINT_ARCHIVE_ZIP_WRITE_H

#include "base/slice.h"
#include "system/file.h"

#define RS_ZIP_ALIGNMENT 64 /* torch's */
#define RS_ZIP_ALIGNMENT_MAX 4096

typedef struct rs_zip_entry {
    rs_slice name; /* UTF-8; copied */
    uint64_t bytes;
} rs_zip_entry;

typedef struct rs_zip_draft rs_zip_draft;

/* Local. alignment: a power of two up to RS_ZIP_ALIGNMENT_MAX. Errors: INVALID for names that are
 * too long, not UTF-8, given twice or refused by rs_zip_name_fault; RANGE when the file would be
 * larger than any file. */
reshard_status rs_zip_draft_create(reshard_context *context, const rs_zip_entry *entries,
                                   size_t count, size_t alignment, rs_zip_draft **out_draft);
void rs_zip_draft_destroy(rs_zip_draft *draft);
/* Where the data of a member begins, and the size of the archive; both from its beginning. */
uint64_t rs_zip_draft_data_at(const rs_zip_draft *draft, size_t index);
uint64_t rs_zip_draft_bytes(const rs_zip_draft *draft);

/* The CRC of a member, built from blocks in any order. Starts as {0}. */
typedef struct rs_zip_sum {
    uint64_t bytes; /* of the blocks so far */
    uint32_t crc;
} rs_zip_sum;

/* Local. Adds a block that stands at `offset` of a member of `member_bytes`. No byte may be added
 * twice. */
void rs_zip_sum_add(rs_zip_sum *sum, uint64_t member_bytes, uint64_t offset, const void *block,
                    size_t count);
/* Adds the blocks that another thread or rank has summed for the same member. */
void rs_zip_sum_merge(rs_zip_sum *sum, const rs_zip_sum *other);

/* Local. Writes the headers and the directory of an archive that begins at `begin` of the file.
 * sums: one for each member. Errors: CHECK when a sum does not cover its member; IO. Does not
 * sync. */
reshard_status rs_zip_draft_finish(const rs_zip_draft *draft, rs_file *file, uint64_t begin,
                                   const rs_zip_sum *sums);

#endif
