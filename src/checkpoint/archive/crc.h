/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crc.h - the CRC of zip files, at the speed of memory: zlib's own takes a byte for about a cycle,
 * and everything that goes into an archive passes through it.
 */
#ifndef RS_CHECKPOINT_ARCHIVE_CRC_H
#define RS_CHECKPOINT_ARCHIVE_CRC_H

#include <stddef.h>
#include <stdint.h>

/* As zlib's crc32: goes on from the CRC of what came before, which is 0 at the beginning. */
uint32_t rs_crc32(uint32_t crc, const void *bytes, size_t count);

#endif
