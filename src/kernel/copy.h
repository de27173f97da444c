/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy.h - strided n-d copies. A copy is prepared once: its loops are brought to the fewest and a
 * kernel is chosen for the innermost two. It is then run as often as wanted, by any thread, and
 * running allocates nothing.
 *
 * Source and target do not overlap, and no two iterations write the same place. A kernel may read
 * the gaps between the source's elements (never before the first or past the last one), and writes
 * no gap of the target.
 */
#ifndef RS_KERNEL_COPY_H
#define RS_KERNEL_COPY_H

#include "base/export.h"
#include "kernel/nest.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A copy of this size or more may go around the caches (streaming stores): its end would push its
 * beginning out of small ones anyway, and the target's lines need not be read first. Of copies of
 * long runs it is measured which way is faster (choice.h); others stream. */
#define RS_STREAM_BYTES ((size_t)8 << 20)
/* The same of one of many copies that together are of that size. */
#define RS_STREAM_PART_BYTES ((size_t)64 << 10)
/* How much source several copies take in turn in rs_copy_run_together. */
#define RS_TOGETHER_BYTES ((size_t)32 << 10)

/* Which instructions kernels may use. */
typedef enum rs_cpu {
    RS_CPU_PORTABLE, /* C alone; on x86-64 that includes SSE2 */
    RS_CPU_AVX2,     /* AVX2 and F16C */
} rs_cpu;

RS_EXPORT rs_cpu rs_cpu_detect(void);

typedef struct rs_copy_tuning {
    rs_cpu cpu;
    size_t stream_bytes; /* streams from this size on; SIZE_MAX: never */
    bool measures;       /* of these, long runs stream where that is measured to be faster */
} rs_copy_tuning;

typedef struct rs_copy_kernel rs_copy_kernel;

/* What a kernel does: rows x columns units of `unit` bytes. Steps are in bytes. */
typedef struct rs_plane {
    int64_t rows, columns;
    int64_t source_row, source_column;
    int64_t target_row, target_column;
    int64_t unit;
    rs_cpu cpu;
    bool streams;
    const rs_copy_kernel *tile; /* of a tiled plane: what does one tile */
} rs_plane;

struct rs_copy_kernel {
    const char *name;
    void (*run)(const rs_plane *plane, const unsigned char *source, unsigned char *target);
};

typedef enum rs_copy_outer {
    RS_OUTER_LOOP, /* the first loop of the nest */
    RS_OUTER_ROWS,
    RS_OUTER_COLUMNS,
} rs_copy_outer;

typedef struct rs_copy {
    rs_nest nest; /* the loops around the plane */
    rs_plane plane;
    const rs_copy_kernel *kernel; /* NULL: nothing to copy */
    rs_copy_outer outer;
    bool measures; /* what rs_copy_run takes, and whether it streams */
    size_t bytes;
    int64_t source_run, target_run;
} rs_copy;

/* Strides are in elements and may be negative; the source's may be 0. At most RS_NEST_MAX dims, in
 * any order; sizes of 0 and 1 are welcome. */
RS_EXPORT void rs_copy_prepare(rs_copy *copy, int32_t element_bytes, int32_t ndim,
                               const int64_t *size, const int64_t *source_strides,
                               const int64_t *target_strides);
/* The same, with the choices that prepare would make given by the caller: for tests, and for
 * callers that know that many small copies add up to a large one. */
void rs_copy_prepare_tuned(rs_copy *copy, const rs_copy_tuning *tuning, int32_t element_bytes,
                           int32_t ndim, const int64_t *size, const int64_t *source_strides,
                           const int64_t *target_strides);
/* To, or from, memory that holds the elements densely in row-major order of the dims. */
void rs_pack_prepare(rs_copy *copy, int32_t element_bytes, int32_t ndim, const int64_t *size,
                     const int64_t *source_strides);
void rs_unpack_prepare(rs_copy *copy, int32_t element_bytes, int32_t ndim, const int64_t *size,
                       const int64_t *target_strides);

RS_EXPORT void rs_copy_run(const rs_copy *copy, const void *source, void *target);

/* Iterations first .. first+count-1 of the outermost loop, so that a caller can go tile by tile
 * through several copies; source and target are those of the whole copy. What a part has written is
 * seen by other threads only after rs_copy_fence: fencing every part would cost more than copying
 * it. */
int64_t rs_copy_outer_count(const rs_copy *copy);
void rs_copy_run_part(const rs_copy *copy, const void *source, void *target, int64_t first,
                      int64_t count);
/* Orders streaming stores of this thread before its later stores. */
RS_EXPORT void rs_copy_fence(void);

/* Several copies in turn, a tile of each at a time, so that what they share of a source (or of a
 * target) is in the cache when the next one comes. Fences. */
void rs_copy_run_together(int32_t count, const rs_copy *const *copies, const void *const *sources,
                          void *const *targets);

size_t rs_copy_bytes(const rs_copy *copy);
/* Bytes that follow each other without a gap on one side, whatever the other side does. */
int64_t rs_copy_source_run(const rs_copy *copy);
int64_t rs_copy_target_run(const rs_copy *copy);
/* "rows", "transpose 4" and so on; "none" for an empty copy. Static. */
const char *rs_copy_kernel_name(const rs_copy *copy);

/* The obvious loop, which every kernel is held to. */
void rs_copy_reference(int32_t element_bytes, int32_t ndim, const int64_t *size,
                       const int64_t *source_strides, const int64_t *target_strides,
                       const void *source, void *target);

#endif
