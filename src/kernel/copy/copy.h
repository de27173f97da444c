/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy.h - strided n-d copies. A copy is prepared once: its loops are reduced to as few as
 * possible, and a kernel is chosen for the innermost two. It can then be run any number of times,
 * by any thread. Running allocates nothing.
 *
 * Source and target must not overlap, and no two iterations may write the same place. A kernel may
 * read the gaps between the source's elements (but nothing before the first or after the last), and
 * never writes the gaps of the target.
 */
#ifndef RS_KERNEL_COPY_COPY_H
#define RS_KERNEL_COPY_COPY_H

#include "base/export.h"
#include "kernel/copy/nest.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Copies of this size or more may go around the caches (streaming stores): their end would push
 * their beginning out of small caches anyway, and the target's lines need not be read first. For
 * copies of long runs, measurements decide which way is faster (choice.h); others always stream. */
#define RS_STREAM_BYTES ((size_t)8 << 20)
/* The same limit for one of many copies that together have that size. */
#define RS_STREAM_PART_BYTES ((size_t)64 << 10)
/* How many source bytes the copies of rs_copy_run_together take together in one turn. */
#define RS_TOGETHER_BYTES ((size_t)32 << 10)

/* Which instructions kernels may use. */
typedef enum rs_cpu {
    RS_CPU_PORTABLE, /* plain C; on x86-64 that includes SSE2 */
    RS_CPU_AVX2,     /* AVX2 and F16C */
    RS_CPU_AVX512,   /* AVX-512 with VBMI, which permutes bytes */
} rs_cpu;

RS_EXPORT rs_cpu rs_cpu_detect(void);

typedef struct rs_copy_tuning {
    rs_cpu cpu;
    size_t stream_bytes; /* stream from this size on; SIZE_MAX: never */
    bool measures;       /* among those, stream long runs only if measured to be faster */
} rs_copy_tuning;

typedef struct rs_copy_kernel rs_copy_kernel;

/* What a kernel copies: rows x columns units of `unit` bytes. Steps are in bytes. */
typedef struct rs_plane {
    int64_t rows, columns;
    int64_t source_row, source_column;
    int64_t target_row, target_column;
    int64_t unit;
    rs_cpu cpu;
    bool streams;
    const rs_copy_kernel *tile; /* for a tiled plane, the kernel for one tile */
} rs_plane;

struct rs_copy_kernel {
    const char *name;
    void (*run)(const rs_plane *plane, const unsigned char *source, unsigned char *target);
};

typedef enum rs_copy_outer {
    RS_OUTER_LOOP, /* the outermost loop of the nest */
    RS_OUTER_ROWS,
    RS_OUTER_COLUMNS,
} rs_copy_outer;

typedef struct rs_copy {
    rs_nest nest; /* the loops around the plane */
    rs_plane plane;
    const rs_copy_kernel *kernel; /* NULL if there is nothing to copy */
    rs_copy_outer outer;
    bool measures; /* rs_copy_run measures its time and decides whether to stream */
    size_t bytes;
    int64_t source_run, target_run;
} rs_copy;

/* Strides are in elements and may be negative; those of the source may also be 0. At most
 * RS_NEST_MAX dims, in any order; sizes of 0 and 1 are allowed. */
RS_EXPORT void rs_copy_prepare(rs_copy *copy, int32_t element_bytes, int32_t ndim,
                               const int64_t *size, const int64_t *source_strides,
                               const int64_t *target_strides);
/* The same with the caller's choices instead of the defaults: for tests, and for callers that know
 * that many small copies add up to a large one. */
void rs_copy_prepare_tuned(rs_copy *copy, const rs_copy_tuning *tuning, int32_t element_bytes,
                           int32_t ndim, const int64_t *size, const int64_t *source_strides,
                           const int64_t *target_strides);
/* Copies to, or from, memory that holds the elements densely in row-major order of the dims. */
void rs_pack_prepare(rs_copy *copy, int32_t element_bytes, int32_t ndim, const int64_t *size,
                     const int64_t *source_strides);
void rs_unpack_prepare(rs_copy *copy, int32_t element_bytes, int32_t ndim, const int64_t *size,
                       const int64_t *target_strides);

RS_EXPORT void rs_copy_run(const rs_copy *copy, const void *source, void *target);

/* Runs iterations first .. first+count-1 of the outermost loop, so that a caller can alternate
 * between several copies; source and target are those of the whole copy. Other threads see what a
 * part has written only after rs_copy_fence, because a fence after every part would cost more than
 * the copying. */
int64_t rs_copy_outer_count(const rs_copy *copy);
void rs_copy_run_part(const rs_copy *copy, const void *source, void *target, int64_t first,
                      int64_t count);
/* Orders this thread's streaming stores before its later stores. */
RS_EXPORT void rs_copy_fence(void);

/* Runs several copies in turn, a part of each at a time, so that source or target lines that they
 * share are still in the cache for the next one. Ends with a fence. */
void rs_copy_run_together(int32_t count, const rs_copy *const *copies, const void *const *sources,
                          void *const *targets);

size_t rs_copy_bytes(const rs_copy *copy);
/* The number of bytes that are contiguous on one side, whatever the other side does. */
int64_t rs_copy_source_run(const rs_copy *copy);
int64_t rs_copy_target_run(const rs_copy *copy);
/* "rows", "transpose 4" and so on; "none" for an empty copy. Static. */
const char *rs_copy_kernel_name(const rs_copy *copy);

/* The obvious loop; tests compare every kernel with it. */
void rs_copy_reference(int32_t element_bytes, int32_t ndim, const int64_t *size,
                       const int64_t *source_strides, const int64_t *target_strides,
                       const void *source, void *target);

#endif
