/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comparison.h - do two checkpoints hold the same tensors, or is one what a conversion makes of the
 * other? Byte for byte, whatever their splits and formats are:
 *
 *     reshard_checkpoint_compare(a, b, NULL, &comparison);
 *     reshard_comparison_get_stats(comparison, &stats);
 *     if (stats.difference_count != 0)
 *         reshard_comparison_get_difference(comparison, 0, &difference);
 *
 * docs/digest.md tells what comparing bytes, digests and hashes each prove.
 */
#ifndef RESHARD_COMPARISON_H
#define RESHARD_COMPARISON_H

#include <reshard/conversion.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct reshard_comparison reshard_comparison;

typedef struct reshard_comparison_options {
    size_t size; /* sizeof(reshard_comparison_options) */
    /* What a conversion from A to B did to names, dtypes and the choice of tensors: of its options
     * only rules, sets, dtypes, includes, excludes, renames and `only` count, and A is compared as
     * they leave it. Of a conversion to hf that took the model alone, `only` is its name ("model").
     * If rules are given, A was opened with keep_names. NULL: nothing was done. */
    const reshard_conversion_options *conversion;
    int ignore_dropped; /* non-zero: tensors that only A has are counted, but are no difference */
    /* Non-zero: compares digests instead of bytes, reading A and B one after the other. No element
     * is named then, and dtypes must not change on the way. */
    int by_digest;
    int32_t threads; /* 0: as many as there are processors, up to 8; ranks divide them */
    /* Ranks that share the work; NULL: this one alone. */
    reshard_group *group;
} reshard_comparison_options;

/*
 * Compares names, dtypes, shapes and all bytes; boxes that are stored more than once must be equal
 * within A and within B. Memory: about 5 MiB for each thread. Goes on after a difference, so that
 * all are listed. options NULL: all zero. Both checkpoints must outlive the comparison. Reports
 * progress in bytes, and can be cancelled. Errors: IO; CORRUPT (also copies that differ within one
 * checkpoint); INVALID when A has tensors and none of them is compared; those of rules and patterns
 * of the conversion; UNSUPPORTED (digests of what was cast); CANCELLED; NO_MEMORY.
 *
 * Local, or with a group Collective over it: each rank has opened both checkpoints itself, each
 * byte is read by one rank, and all get the same result or the same status. Errors: also MISMATCH.
 */
RESHARD_API reshard_status reshard_checkpoint_compare(const reshard_checkpoint *a,
                                                      const reshard_checkpoint *b,
                                                      const reshard_comparison_options *options,
                                                      reshard_comparison **out_comparison);
/* Takes NULL. */
RESHARD_API void reshard_comparison_destroy(reshard_comparison *comparison);

typedef struct reshard_comparison_stats {
    size_t size;              /* sizeof(reshard_comparison_stats), set by the caller */
    int64_t tensors_compared; /* that both have, of the same dtype and shape */
    uint64_t bytes_compared;  /* of B */
    int64_t tensors_left_out; /* of A, by the options of the conversion */
    int64_t tensors_dropped;  /* only in A, and ignored */
    int64_t difference_count;
    /* Of A and of B as they are, when digests were compared; else "". */
    char digest_a[RESHARD_DIGEST_TEXT], digest_b[RESHARD_DIGEST_TEXT];
} reshard_comparison_stats;
RESHARD_API reshard_status reshard_comparison_get_stats(const reshard_comparison *comparison,
                                                        reshard_comparison_stats *out_stats);

typedef enum reshard_difference_kind {
    RESHARD_DIFFERENCE_ONLY_IN_A = 1,
    RESHARD_DIFFERENCE_ONLY_IN_B,
    RESHARD_DIFFERENCE_DTYPE,
    RESHARD_DIFFERENCE_SHAPE,
    RESHARD_DIFFERENCE_BYTES
} reshard_difference_kind;

#define RESHARD_VALUE_TEXT 64

/* Pointers live as long as the comparison. */
typedef struct reshard_difference {
    size_t size; /* sizeof(reshard_difference), set by the caller */
    reshard_difference_kind kind;
    const char *name; /* in B, or that it should have there: name_bytes bytes; a NUL follows */
    size_t name_bytes;
    int64_t a, b;        /* which tensor of A and of B, by index; -1: none */
    reshard_dtype dtype; /* of A's, after the conversion */
    /* Of kind BYTES, unless digests were compared: the first element in row-major order that
     * differs, and what A, converted, and B have there ("0.5", "-3", or "0x3f" where a dtype has no
     * simple numbers, or two numbers look alike). The element of a tensor that cannot be cut is a
     * byte. ndim -1: not known. */
    int32_t ndim;
    int64_t element[RESHARD_NDIM_MAX];
    char value_a[RESHARD_VALUE_TEXT], value_b[RESHARD_VALUE_TEXT];
} reshard_difference;
/* By name, as bytes: 0 <= index < difference_count. Errors: RANGE. */
RESHARD_API reshard_status reshard_comparison_get_difference(const reshard_comparison *comparison,
                                                             int64_t index,
                                                             reshard_difference *out_difference);

#ifdef __cplusplus
}
#endif
#endif
