/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fingerprint.h - the digest of a tensor that does not depend on how it is split (docs/digest.md).
 *
 * The row-major bytes of the whole tensor are the coefficients of a polynomial over GF(2); the
 * digest is its remainder modulo two primitive polynomials of degree 64. A remainder is linear, so
 * runs of bytes may be added in any order, by several threads or ranks, and their sums merged. A
 * second sum over the ends of the runs proves that the runs tile the tensor: a run that is missing
 * or added twice makes final fail; it never gives a digest.
 */
#ifndef RS_CHECKPOINT_FINGERPRINT_FINGERPRINT_H
#define RS_CHECKPOINT_FINGERPRINT_FINGERPRINT_H

#include <reshard/base.h>

/* The tables of the code. Immutable: one serves all threads. Making it takes about ten
 * microseconds. */
typedef struct rs_fingerprint_code rs_fingerprint_code;
reshard_status rs_fingerprint_code_create(reshard_context *context, rs_fingerprint_code **out_code);
void rs_fingerprint_code_destroy(rs_fingerprint_code *code);

/* The sum over the runs so far. A plain value: copy it, send it, merge it. */
typedef struct rs_fingerprint {
    uint64_t remainder[2];
    uint64_t bytes;    /* in all runs, modulo 2^64 */
    uint64_t coverage; /* sum over the runs of g(end) - g(first), g being a fixed mixing function */
} rs_fingerprint;

/* Adds runs to a sum. Remembers powers between runs, so that runs at constant steps are cheap: keep
 * one for each tensor and thread. */
typedef struct rs_fingerprint_writer {
    const rs_fingerprint_code *code;
    rs_fingerprint sum;
    uint64_t place, step; /* of the last run, and how far it was from the one before */
    uint64_t place_power[2], step_power[2];
} rs_fingerprint_writer;

void rs_fingerprint_begin(rs_fingerprint_writer *writer, const rs_fingerprint_code *code);
/* `count` bytes that lie at byte `first` of the row-major tensor. */
void rs_fingerprint_add_run(rs_fingerprint_writer *writer, uint64_t first, const void *bytes,
                            size_t count);

/* Adds a sum of other runs of the same tensor. Start from {0}. */
void rs_fingerprint_merge(rs_fingerprint *sum, const rs_fingerprint *other);

#define RS_FINGERPRINT_TEXT 33
/* The digest as 32 hexadecimal digits and NUL. Errors: CHECK when the runs do not tile the tensor:
 * something is missing or was added twice. */
reshard_status rs_fingerprint_final(const rs_fingerprint_code *code, const rs_fingerprint *sum,
                                    reshard_dtype dtype, int32_t ndim, const int64_t *shape,
                                    char out_text[RS_FINGERPRINT_TEXT]);

/* The digest of a checkpoint, made from the digests and names of its tensors. entry hands over the
 * tensors in the order of their names (as bytes; a name comes before longer ones that begin with
 * it); each stays valid until the next one has been handed over. Errors: INVALID when the names are
 * not in order. */
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
