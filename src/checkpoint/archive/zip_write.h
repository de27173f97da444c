/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zip_write.h - writes zip files whose names and sizes are known beforehand. A draft says where the
 * data of each member goes; threads or ranks can then write it in any order. At the end one rank
 * writes all headers, with CRCs combined from those of the blocks.
 *
 * Members are stored, not compressed. Data begins at multiples of the alignment, counted from the
 * beginning of the archive (which need not be that of the file); as in torch's files, an extra
 * field "FB" fills the gap. zip64 is used only where it is needed.
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

/* Local. alignment: a power of two up to RS_ZIP_ALIGNMENT_MAX. Errors: INVALID for a name that is
 * too long, not UTF-8, given twice or refused by rs_zip_name_fault; RANGE if the archive would be
 * larger than a file can be. */
reshard_status rs_zip_draft_create(reshard_context *context, const rs_zip_entry *entries,
                                   size_t count, size_t alignment, rs_zip_draft **out_draft);
void rs_zip_draft_destroy(rs_zip_draft *draft);
/* Where the data of a member begins, and the size of the archive, both counted from its
 * beginning. */
uint64_t rs_zip_draft_data_at(const rs_zip_draft *draft, size_t index);
uint64_t rs_zip_draft_bytes(const rs_zip_draft *draft);

/* The CRC of a member, built from blocks in any order. Starts as {0}. */
typedef struct rs_zip_sum {
    uint64_t bytes; /* size of the blocks so far */
    uint32_t crc;
} rs_zip_sum;

/* Local. Adds a block at `offset` of a member of `member_bytes`. No byte may be added twice. */
void rs_zip_sum_add(rs_zip_sum *sum, uint64_t member_bytes, uint64_t offset, const void *block,
                    size_t count);
/* Adds the blocks that another thread or rank has summed for the same member. */
void rs_zip_sum_merge(rs_zip_sum *sum, const rs_zip_sum *other);

/* Local. Writes the headers and the directory of an archive that begins at `begin` of the file.
 * sums: one for each member. Does not sync. Errors: CHECK if a sum does not cover its member;
 * IO. */
reshard_status rs_zip_draft_finish(const rs_zip_draft *draft, rs_file *file, uint64_t begin,
                                   const rs_zip_sum *sums);

#endif
