/* SPDX-License-Identifier: Apache-2.0 */
/*
 * block_types.h - the quantised types of ggml, which store a row in blocks: a few scales and small
 * codes for 32 to 256 elements. Values are computed in f32, each product rounded in the order of
 * ggml's own functions, so that every bit is the same.
 */
#ifndef RS_KERNEL_BLOCK_TYPES_H
#define RS_KERNEL_BLOCK_TYPES_H

#include "kernel/copy.h"

#include <stdint.h>

#define RS_BLOCK_ELEMENTS_MAX 256

/* Decodes contiguous blocks. Neither pointer needs to be aligned beyond its type. */
typedef void rs_block_decode_fn(const uint8_t *blocks, int64_t count, float *values);

typedef struct rs_block_type {
    const char *name;           /* "Q4_K" */
    int32_t elements, bytes;    /* of a block */
    rs_block_decode_fn *decode; /* NULL: its size is known, and no more */
} rs_block_type;

/* The type with ggml's number; NULL for plain types, and numbers that ggml does not use (any
 * more). */
const rs_block_type *rs_block_type_find(rs_cpu cpu, uint32_t number);

#endif
