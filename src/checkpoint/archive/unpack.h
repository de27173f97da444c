/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unpack.h - compressed content as a file (rs_file_create_made), so that whoever reads arrays does
 * not know that they are compressed.
 *
 * Compressed data can only be read from its beginning. A decoder that has come to some place is
 * therefore kept for the next read, which mostly wants what follows; one that wants an earlier
 * place begins again. Idle decoders are few, however many files there are, and belong to all of
 * them together: reading stays within a bound of memory (RS_UNPACK_IDLE_MAX decoders and one for
 * each thread, of about 110 KiB for deflate, 2 to 16 MiB for zstd).
 */
#ifndef RS_CHECKPOINT_ARCHIVE_UNPACK_H
#define RS_CHECKPOINT_ARCHIVE_UNPACK_H

#include "checkpoint/archive/zip.h"

#define RS_UNPACK_IDLE_MAX 4

typedef struct rs_unpacking rs_unpacking;

/* Local. The idle decoders of the files below, which retain it. */
reshard_status rs_unpacking_create(reshard_context *context, rs_unpacking **out_unpacking);
void rs_unpacking_release(rs_unpacking *unpacking);

/* Local. The content of a member. File and zip must outlive it. Its length and CRC are checked
 * when its last byte is read. */
reshard_status rs_unpack_member(rs_unpacking *unpacking, const rs_file *file, const rs_zip *zip,
                                const rs_zip_member *member, rs_file **out_file);
/* Local. The content of `count` bytes from `at` on, a zstd stream. Reads through all of it once,
 * because nothing else tells how long it is. Errors: CORRUPT, also beyond bytes_max of content; IO;
 * CANCELLED. */
reshard_status rs_unpack_zstd(rs_unpacking *unpacking, const rs_file *file, uint64_t at,
                              uint64_t count, uint64_t bytes_max, rs_file **out_file);

#endif
