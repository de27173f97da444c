/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zstd_read.h - reads a range of a file that is a zstd stream: any number of frames in a row. Takes
 * 128 KiB of memory plus zstd's own, which grows with the window of the frames; windows beyond 16
 * MiB are refused.
 */
#ifndef RS_CHECKPOINT_ARCHIVE_ZSTD_READ_H
#define RS_CHECKPOINT_ARCHIVE_ZSTD_READ_H

#include "system/file.h"

typedef struct rs_zstd_reader rs_zstd_reader;

/* Local. Reads `count` bytes of the file from `at` on. The file must outlive the reader. */
reshard_status rs_zstd_reader_create(reshard_context *context, const rs_file *file, uint64_t at,
                                     uint64_t count, rs_zstd_reader **out_reader);
void rs_zstd_reader_destroy(rs_zstd_reader *reader);
/* Local. Reads the next `count` bytes of content; *out_done is smaller only at its end. Errors:
 * CORRUPT if a frame is damaged or cut off; IO. After an error the reader can only be destroyed. */
reshard_status rs_zstd_reader_read(rs_zstd_reader *reader, void *bytes, size_t count,
                                   size_t *out_done);

#endif
