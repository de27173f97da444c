/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comparison.h - compares two checkpoints byte for byte, whatever their splits and formats: do they
 * hold the same tensors, or is one what a conversion makes of the other? And if not, how far apart
 * are their numbers?
 *
 *     reshard_checkpoint_compare(a, b, NULL, &comparison);
 *     reshard_comparison_get_stats(comparison, &stats);
 *     if (stats.difference_count != 0)
 *         reshard_comparison_get_difference(comparison, 0, &difference);
 *
 * docs/digest.md says what a comparison of bytes, of digests and of hashes each proves.
 */
#ifndef RESHARD_COMPARISON_H
#define RESHARD_COMPARISON_H

#include <reshard/conversion.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ==== simple =====================================================================================
 * Compare two checkpoints, and read the counts.
 */

typedef struct reshard_comparison reshard_comparison;

typedef struct reshard_comparison_options {
    size_t size; /* sizeof(reshard_comparison_options) */
    /* The options of the conversion that made B from A; A is compared as they change it. Only
     * rules, sets, dtypes, includes, excludes, renames, `only`, `as`, maps and, with one of
     * these two, `dequantize` count. For a
     * conversion to hf that took the model alone, `only` is the model's name ("model"). If there
     * are rules, A must have been opened with keep_names. If neither a naming nor a map is given,
     * and each side has names that the other lacks, A is seen through the maps from its naming to
     * B's, if both are known. */
    const reshard_conversion_options *conversion;
    int ignore_dropped; /* non-zero: tensors that only A has are counted, but not as differences */
    /* Non-zero: compare digests instead of bytes, reading A and B one after the other. Differences
     * then name no element, and the conversion must not change dtypes. */
    int by_digest;
    int32_t threads; /* at most 256; 0: one for each processor, up to 8; ranks divide them */
    /* Ranks that share the work; NULL: this one alone. */
    reshard_group *group;
    /* Non-zero: read tensors that differ in bytes, or in dtype alone, once more, and measure how
     * far their numbers are apart. Not with by_digest. */
    int measure;
    /* If above 0, a tensor that differs passes if no number is further than this from the other
     * side's, and if the relative L2 distance is at most that; it passes whatever its dtype is. It
     * never passes if a NaN or an infinity has no equal on the other side. Both imply `measure`. */
    double tolerance, tolerance_l2;
} reshard_comparison_options;

/*
 * Compares names, dtypes, shapes and all bytes; if A or B stores a box more than once, its copies
 * must be equal. Takes about 5 MiB of memory for each thread. Continues after a difference, so that
 * all are listed. options NULL: all zero. Both checkpoints must outlive the comparison. Reports
 * progress in bytes, and can be cancelled. Errors: IO; CORRUPT (also if copies differ within one
 * checkpoint); INVALID if A has tensors but none of them is compared; those of the conversion's
 * rules and patterns, and if digests are to be measured or a tolerance is not a number from 0 on;
 * UNSUPPORTED (digests of cast tensors, dequantising without a map, a view as B); CHECK if a
 * map leaves tensors of A out because of what they hold, and they hold something else; CANCELLED;
 * NO_MEMORY.
 *
 * Local, or with a group Collective over it: each rank has opened both checkpoints itself, each
 * byte is read by one rank, and all get the same result or the same status. Errors: also MISMATCH.
 */
RESHARD_API reshard_status reshard_checkpoint_compare(const reshard_checkpoint *a,
                                                      const reshard_checkpoint *b,
                                                      const reshard_comparison_options *options,
                                                      reshard_comparison **out_comparison);
RESHARD_API void reshard_comparison_destroy(reshard_comparison *comparison);

typedef struct reshard_comparison_stats {
    size_t size; /* sizeof(reshard_comparison_stats), set by the caller */
    /* those that both have, with the same dtype and shape, or with the same shape and measured */
    int64_t tensors_compared;
    uint64_t bytes_compared;  /* of B */
    int64_t tensors_left_out; /* of A, left out by the conversion's options */
    int64_t tensors_dropped;  /* only in A, and ignored */
    int64_t difference_count; /* without tensors_within */
    /* The digests of A and B as they are stored, A's as a map makes it, if digests were compared;
     * otherwise "". */
    char digest_a[RESHARD_DIGEST_TEXT], digest_b[RESHARD_DIGEST_TEXT];
    int64_t tensors_within;       /* differ, and pass because they are within the tolerance */
    int64_t tensors_within_dtype; /* of these: have another dtype in B */
} reshard_comparison_stats;
RESHARD_API reshard_status reshard_comparison_get_stats(const reshard_comparison *comparison,
                                                        reshard_comparison_stats *out_stats);

/* ==== explicit ===================================================================================
 * Each difference: which tensor, which element, how far apart.
 */

/* A line about how names were matched: the namings and maps, what a map leaves out, or why none was
 * used. Lines are numbered from 0; NULL beyond the last. Lives as long as the comparison. */
RESHARD_API const char *reshard_comparison_note(const reshard_comparison *comparison,
                                                int64_t index);

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
    /* the name in B, or the one expected there: name_bytes bytes; a NUL follows */
    const char *name;
    size_t name_bytes;
    /* Indices of the tensors in A and in B; -1: none. If a map made the tensor, a is the first of
     * those it is made of. */
    int64_t a, b;
    reshard_dtype dtype; /* of A's tensor, after the conversion */
    /* BYTES only, unless digests were compared: the first element in row-major order that differs,
     * and its values in A, after the conversion, and in B ("0.5", "-3"; or "0x3f" if the dtype has
     * no simple numbers or the two would look alike). In a tensor that cannot be cut, elements are
     * bytes. ndim -1: not known. */
    int32_t ndim;
    int64_t element[RESHARD_NDIM_MAX];
    char value_a[RESHARD_VALUE_TEXT], value_b[RESHARD_VALUE_TEXT];
    /* The rest is zero unless the tensor was measured, which takes the same shape in A and B and
     * dtypes with numbers: floats of 8 bits and more (but not e8m0 and fnuz), integers, bool;
     * complex numbers count as two. A's numbers are those after the conversion. */
    int measured;
    int is_within;             /* within the tolerance */
    int64_t number_count;      /* all numbers of the tensor */
    int64_t numbers_differing; /* in their bits; if dtypes differ, in their values */
    int64_t nan_count[2];      /* in A and in B */
    int64_t infinite_count[2]; /* in A and in B */
    int64_t unlike_count;      /* NaNs and infinities without an equal on the other side */
    /* Of numbers that are finite on both sides: the largest and the mean of |a - b|, |a - b| / |a|
     * and the cosine between a and b as vectors. NaN: not defined, because there are no such
     * numbers, a side is zero, or the sums leave the range of a double. */
    double largest, mean, relative_l2, cosine;
    /* The shape of A's tensor after the conversion; NULL: there is none. */
    int32_t ndim_a;
    const int64_t *shape_a;
    /* If a map made A's tensor: how many tensors of A it is made of, the name of the one that holds
     * the first element that differs (of the first one, if no element is known), and where it is in
     * that. origin NULL: the element is a constant of the map, or there was no map. origin_ndim -1:
     * no element is known. */
    int64_t origin_count;
    const char *origin;
    size_t origin_bytes;
    int32_t origin_ndim;
    int64_t origin_element[RESHARD_NDIM_MAX];
} reshard_difference;
/* First the differences, then the tensors within the tolerance, both sorted by name, compared as
 * bytes: 0 <= index < difference_count + tensors_within. Errors: RANGE. */
RESHARD_API reshard_status reshard_comparison_get_difference(const reshard_comparison *comparison,
                                                             int64_t index,
                                                             reshard_difference *out_difference);

#ifdef __cplusplus
}
#endif
#endif
