/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sha256.h - SHA-256 (FIPS 180-4) of data that arrives in parts. x86-64 processors with SHA
 * instructions use them, which is several times faster than the portable form.
 */
#ifndef RS_CHECKPOINT_ARCHIVE_SHA256_H
#define RS_CHECKPOINT_ARCHIVE_SHA256_H

#include <stddef.h>
#include <stdint.h>

enum { RS_SHA256_BYTES = 32, RS_SHA256_TEXT = 65 /* hexadecimal digits and NUL */ };

extern const uint32_t rs_sha256_constants[64];

/* Mixes whole blocks of 64 bytes into the state. */
typedef void rs_sha256_blocks_fn(uint32_t state[8], const unsigned char *bytes, size_t blocks);
void rs_sha256_blocks_plain(uint32_t state[8], const unsigned char *bytes, size_t blocks);
/* The fastest implementation that this processor can run. */
rs_sha256_blocks_fn *rs_sha256_blocks_best(void);

typedef struct rs_sha256 {
    rs_sha256_blocks_fn *blocks;
    uint32_t state[8];
    uint64_t count;         /* bytes added so far */
    unsigned char rest[64]; /* bytes that do not fill a block yet */
} rs_sha256;

/* Starts a hash. blocks NULL means rs_sha256_blocks_best(). */
void rs_sha256_init(rs_sha256 *hash, rs_sha256_blocks_fn *blocks);
void rs_sha256_add(rs_sha256 *hash, const void *bytes, size_t count);
/* Writes the result. The hash must be initialised before it is used again. */
void rs_sha256_finish(rs_sha256 *hash, unsigned char out[RS_SHA256_BYTES]);
void rs_sha256_text(const unsigned char hash[RS_SHA256_BYTES], char out_text[RS_SHA256_TEXT]);

#endif
