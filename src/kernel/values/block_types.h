/* SPDX-License-Identifier: Apache-2.0 */
/*
 * block_types.h - the quantised types of ggml, which store a row in blocks: a few scales and small
 * codes for 32 to 256 elements. Values are computed in f32, each product rounded in the order of
 * ggml's own functions, so that every bit is the same. So are the bytes of blocks that are encoded.
 */
#ifndef RS_KERNEL_VALUES_BLOCK_TYPES_H
#define RS_KERNEL_VALUES_BLOCK_TYPES_H

#include "kernel/copy/copy.h"

#include <stdint.h>

#define RS_BLOCK_ELEMENTS_MAX 256

/* Decodes contiguous blocks. Neither pointer needs to be aligned beyond its type. */
typedef void rs_block_decode_fn(const uint8_t *blocks, int64_t count, float *values);

/* Encodes contiguous blocks. Returns -1, or the index of the first block that cannot be encoded: it
 * has a value that is not finite, or needs a scale beyond f16. Those after it are not written. */
typedef int64_t rs_block_encode_fn(const float *values, int64_t count, uint8_t *blocks);

typedef struct rs_block_type {
    const char *name;           /* "Q4_K" */
    int32_t elements, bytes;    /* of a block */
    rs_block_decode_fn *decode; /* NULL: its size is known, and no more */
    rs_block_encode_fn *encode; /* NULL: it is only read */
} rs_block_type;

#define RS_BLOCK_Q8_0 8 /* ggml's number */

/* The type with ggml's number; NULL for plain types, and numbers that ggml does not use (any
 * more). */
const rs_block_type *rs_block_type_find(rs_cpu cpu, uint32_t number);

#endif
