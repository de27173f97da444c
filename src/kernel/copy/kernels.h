/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels.h - the kernels of copies, and how to find them. Each copies an rs_plane: copy_runs.c
 * long runs, copy_units.c short ones, copy_gather.c single elements and copy_shuffle.c units of any
 * length that are dense in the target, copy_transpose.c planes that are dense along different dims
 * in source and target. copy_weave.c and copy_unweave.c run several copies at once (rs_strands),
 * and so do copy_weave_lines.c and copy_unweave_lines.c where processors can permute whole lines.
 */
#ifndef RS_KERNEL_COPY_KERNELS_H
#define RS_KERNEL_COPY_KERNELS_H

#include "kernel/copy/copy.h"

#include <string.h>

/* Define RS_PORTABLE to test, on x86-64, the code that other processors run. */
#if defined(__x86_64__) && !defined(RS_PORTABLE)
#define RS_X86 1
#define RS_AVX2 __attribute__((target("avx2,f16c")))
#define RS_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi")))
#else
#define RS_X86 0
#endif
#define RS_INLINE static inline __attribute__((always_inline))

#define RS_LINE_BYTES 64
/* Runs shorter than this are units of a plane; longer ones are its rows. */
#define RS_RUN_BYTES_MIN 512

/* Writes around the caches if possible. The caller has to fence. */
void rs_stream(rs_cpu cpu, unsigned char *target, const unsigned char *source, size_t bytes);
/* The same for rows of `bytes` bytes each. */
void rs_stream_rows(rs_cpu cpu, int64_t rows, int64_t bytes, const unsigned char *source,
                    int64_t source_step, unsigned char *target, int64_t target_step);
/* The two ways to do that. */
void rs_stream_by_pages(rs_cpu cpu, int64_t rows, int64_t bytes, const unsigned char *source,
                        int64_t source_step, unsigned char *target, int64_t target_step);
void rs_stream_in_order(rs_cpu cpu, int64_t rows, int64_t bytes, const unsigned char *source,
                        int64_t source_step, unsigned char *target, int64_t target_step);

/* Prefetches a line that is needed soon. The address may lie outside any object. */
RS_INLINE void rs_prefetch(uintptr_t address)
{
    __builtin_prefetch((const void *)address, 0, 3);
}

/* The number of bytes from `target` to the next line. */
RS_INLINE size_t rs_to_line(const unsigned char *target)
{
    return (size_t)(-(uintptr_t)target & (RS_LINE_BYTES - 1));
}

/* Collects bytes that follow one another in the target, and streams them in whole lines. The caller
 * provides the memory (RS_STAGING_MEMORY bytes from a line on) and the cpu, writes up to
 * rs_staging_room bytes at rs_staging_next, where RS_LINE_BYTES more may be spoilt, adds their
 * number to `fill`, and flushes. */
#define RS_STAGING_BYTES 4096
#define RS_STAGING_MEMORY(capacity) ((capacity) + 2 * RS_LINE_BYTES)
typedef struct rs_staging {
    unsigned char *bytes;
    size_t capacity;
    rs_cpu cpu;
    unsigned char *target; /* where `bytes` goes: the beginning of a line */
    size_t lead;           /* bytes of the first line that are not ours, or written already */
    size_t fill;
} rs_staging;

void rs_staging_begin(rs_staging *stage, unsigned char *target);
void rs_staging_flush(rs_staging *stage);
void rs_staging_end(rs_staging *stage); /* writes the rest; begin again before the next byte */

RS_INLINE unsigned char *rs_staging_next(rs_staging *stage)
{
    return stage->bytes + stage->fill;
}

RS_INLINE int64_t rs_staging_room(const rs_staging *stage)
{
    return (int64_t)(stage->capacity + RS_LINE_BYTES - stage->fill);
}

/* Copies each row as one run of plane.columns * plane.unit bytes. */
extern const rs_copy_kernel rs_kernel_rows;

const rs_copy_kernel *rs_kernel_units(const rs_plane *plane);
/* NULL if nothing is better than rs_kernel_units. */
const rs_copy_kernel *rs_kernel_gather(const rs_plane *plane);
/* Whether there is a kernel for just this unit and step. */
bool rs_gather_makes_lines(const rs_plane *plane);
/* NULL if the plane does not fit. The first is the best there is, the second better than
 * rs_kernel_units. */
const rs_copy_kernel *rs_kernel_shuffle_64(const rs_plane *plane);
const rs_copy_kernel *rs_kernel_shuffle(const rs_plane *plane);

/* Copies a plane in tiles that fit the cache. plane.tile must be a result of rs_kernel_tile. */
extern const rs_copy_kernel rs_kernel_tiled;
const rs_copy_kernel *rs_kernel_tile(const rs_plane *plane);

/* Copies that interleave their units in one memory: unit i, i + count, i + 2 * count and so on of
 * it belong to strand i. The other memories are dense along the columns. */
#define RS_STRANDS_MAX 16
typedef struct rs_strands {
    int32_t count;
    int64_t unit;
    int64_t columns; /* that all strands have; some may have more */
    /* by strand: its number among the given copies, its plane, its memories */
    int32_t indices[RS_STRANDS_MAX];
    rs_plane planes[RS_STRANDS_MAX];
    const unsigned char *sources[RS_STRANDS_MAX];
    unsigned char *targets[RS_STRANDS_MAX];
} rs_strands;

/* Finds such copies among the given ones, interleaved in one target or, if `apart`, in one source.
 * Returns false if there are none. */
bool rs_strands_find(rs_strands *strands, bool apart, int32_t count, const rs_copy *const *copies,
                     const void *const *sources, void *const *targets);
/* Run the strands, interleaved in one target or in one source, without a fence. Return false,
 * having done nothing, if they are better run otherwise. */
bool rs_weave(const rs_strands *strands);
bool rs_unweave(const rs_strands *strands);
bool rs_unweave_lines(const rs_strands *strands);
bool rs_weave_lines(const rs_strands *strands);

/* Copies what some strands have more than others in a row. */
void rs_strands_copy_rests(const rs_strands *strands, int64_t row);

/* For strands that take one source apart, with a stage for each target. The first goes on in a
 * stage if the row follows the last one in its target, and otherwise begins there anew; the second
 * copies the units of one strand's row from `column` up to `end` through its stage. */
void rs_strands_begin_row(const rs_strands *strands, int64_t row, rs_staging *stages);
void rs_strands_stage(const rs_strands *strands, int32_t strand, int64_t row, int64_t column,
                      int64_t end, rs_staging *stage);

/* Copies count units of `unit` bytes at the given steps. */
void rs_units_copy(const unsigned char *source, int64_t source_step, unsigned char *target,
                   int64_t target_step, int64_t unit, int64_t count);

#endif
