/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels.h - the kernels of copies, and how to find them. Each copies an rs_plane: copy_runs.c
 * long runs, copy_units.c short ones, copy_gather.c single elements that are dense in the target,
 * copy_weave.c several copies whose elements are dense in the source, copy_transpose.c planes that
 * are dense along different dims in source and target.
 */
#ifndef RS_KERNEL_KERNELS_H
#define RS_KERNEL_KERNELS_H

#include "kernel/copy.h"

#include <string.h>

/* Define RS_PORTABLE to test, on x86-64, the code that other processors run. */
#if defined(__x86_64__) && !defined(RS_PORTABLE)
#define RS_X86 1
#define RS_AVX2 __attribute__((target("avx2,f16c")))
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

/* Copies each row as one run of plane.columns * plane.unit bytes. */
extern const rs_copy_kernel rs_kernel_rows;

const rs_copy_kernel *rs_kernel_units(const rs_plane *plane);
/* NULL if nothing is better than rs_kernel_units. */
const rs_copy_kernel *rs_kernel_gather(const rs_plane *plane);

/* Copies a plane in tiles that fit the cache. plane.tile must be a result of rs_kernel_tile. */
extern const rs_copy_kernel rs_kernel_tiled;
const rs_copy_kernel *rs_kernel_tile(const rs_plane *plane);

/* Runs copies that interleave their elements in one target, all at once. Returns false, having done
 * nothing, if the copies are not of this kind. */
bool rs_weave(int32_t count, const rs_copy *const *copies, const void *const *sources,
              void *const *targets);

/* Copies count units of `unit` bytes at the given steps. */
void rs_units_copy(const unsigned char *source, int64_t source_step, unsigned char *target,
                   int64_t target_step, int64_t unit, int64_t count);

#endif
