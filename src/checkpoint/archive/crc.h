/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crc.h - the CRC-32 of zip files, at the speed of memory. zlib's own takes about a cycle per byte,
 * and everything that goes into an archive passes through it.
 */
#ifndef RS_CHECKPOINT_ARCHIVE_CRC_H
#define RS_CHECKPOINT_ARCHIVE_CRC_H

#include <stddef.h>
#include <stdint.h>

/* Like zlib's crc32: continues from `crc`, the CRC of the bytes before these; it starts at 0. */
uint32_t rs_crc32(uint32_t crc, const void *bytes, size_t count);

#endif
