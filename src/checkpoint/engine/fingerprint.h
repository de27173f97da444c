/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fingerprint.h - a digest of a tensor that does not depend on how it is split (docs/digest.md).
 *
 * The row-major bytes of the whole tensor are the coefficients of a polynomial over GF(2); the
 * digest is its remainder modulo two primitive polynomials of degree 64. A remainder is linear, so
 * runs of bytes may be added in any order, by several threads or ranks, and their sums merged. A
 * second sum, over the ends of the runs, proves that the runs tile the tensor: if one is missing or
 * was added twice, rs_fingerprint_final fails instead of returning a digest.
 */
#ifndef RS_CHECKPOINT_ENGINE_FINGERPRINT_H
#define RS_CHECKPOINT_ENGINE_FINGERPRINT_H

#include <reshard/base.h>

/* The tables of the code, which do not change: all threads can share one. Making it takes about ten
 * microseconds. */
typedef struct rs_fingerprint_code rs_fingerprint_code;
reshard_status rs_fingerprint_code_create(reshard_context *context, rs_fingerprint_code **out_code);
void rs_fingerprint_code_destroy(rs_fingerprint_code *code);

/* The sum over the runs so far. A plain value: it can be copied, sent and merged. */
typedef struct rs_fingerprint {
    uint64_t remainder[2];
    uint64_t bytes; /* of all runs, modulo 2^64 */
    /* sum of g(end) - g(first) over the runs, where g is a fixed mixing function */
    uint64_t coverage;
} rs_fingerprint;

/* Adds runs to a sum. It remembers powers between runs, which makes runs at constant steps cheap,
 * so keep one for each tensor and thread. */
typedef struct rs_fingerprint_writer {
    const rs_fingerprint_code *code;
    rs_fingerprint sum;
    uint64_t place, step; /* position of the last run, and its distance from the one before */
    uint64_t place_power[2], step_power[2];
} rs_fingerprint_writer;

void rs_fingerprint_begin(rs_fingerprint_writer *writer, const rs_fingerprint_code *code);
/* Adds `count` bytes that begin at byte `first` of the row-major tensor. */
void rs_fingerprint_add_run(rs_fingerprint_writer *writer, uint64_t first, const void *bytes,
                            size_t count);

/* Adds a sum of other runs of the same tensor. Start with {0}. */
void rs_fingerprint_merge(rs_fingerprint *sum, const rs_fingerprint *other);

#define RS_FINGERPRINT_TEXT 33
/* Writes the digest as 32 hexadecimal digits and NUL. Errors: CHECK if the runs do not tile the
 * tensor: something is missing or was added twice. */
reshard_status rs_fingerprint_final(const rs_fingerprint_code *code, const rs_fingerprint *sum,
                                    reshard_dtype dtype, int32_t ndim, const int64_t *shape,
                                    char out_text[RS_FINGERPRINT_TEXT]);

/* Computes the digest of a checkpoint from the digests and names of its tensors. `entry` returns
 * the tensors in the order of their names (as bytes; a name comes before longer ones that begin
 * with it); each must stay valid until the next one has been returned. Errors: INVALID if the names
 * are not in order. */
typedef struct rs_fingerprint_entry {
    const char *name;
    size_t name_bytes;
    const char *digest; /* 32 digits */
} rs_fingerprint_entry;
typedef void (*rs_fingerprint_entry_fn)(void *user, int64_t index, rs_fingerprint_entry *out_entry);
reshard_status rs_fingerprint_checkpoint(const rs_fingerprint_code *code, int64_t count,
                                         rs_fingerprint_entry_fn entry, void *user,
                                         char out_text[RS_FINGERPRINT_TEXT]);

#endif
