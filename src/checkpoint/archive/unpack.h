/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unpack.h - compressed content as a file (rs_file_create_made), so that code that reads arrays
 * need not know that they are compressed.
 *
 * Compressed data can only be read from its beginning. A decoder is therefore kept after a read,
 * because the next read mostly continues where it stopped; a read of an earlier place starts over.
 * All files share a few idle decoders, so memory stays bounded however many files there are:
 * RS_UNPACK_IDLE_MAX decoders and one for each thread, of about 110 KiB for deflate and 2 to 16 MiB
 * for zstd.
 */
#ifndef RS_CHECKPOINT_ARCHIVE_UNPACK_H
#define RS_CHECKPOINT_ARCHIVE_UNPACK_H

#include "checkpoint/archive/zip.h"

#define RS_UNPACK_IDLE_MAX 4

typedef struct rs_unpacking rs_unpacking;

/* Local. Holds the idle decoders of the files made below. These files retain it. */
reshard_status rs_unpacking_create(reshard_context *context, rs_unpacking **out_unpacking);
void rs_unpacking_release(rs_unpacking *unpacking);

/* Local. Makes a file of a member's content. `file` and `zip` must outlive it. Length and CRC are
 * checked when the last byte is read. */
reshard_status rs_unpack_member(rs_unpacking *unpacking, const rs_file *file, const rs_zip *zip,
                                const rs_zip_member *member, rs_file **out_file);
/* Local. Makes a file of the content of a zstd stream, `count` bytes of the file from `at` on.
 * Decodes all of it once, because nothing else tells how long it is. Errors: CORRUPT, also if the
 * content is longer than bytes_max; IO; CANCELLED. */
reshard_status rs_unpack_zstd(rs_unpacking *unpacking, const rs_file *file, uint64_t at,
                              uint64_t count, uint64_t bytes_max, rs_file **out_file);

#endif
