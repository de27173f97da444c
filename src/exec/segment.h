/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segment.h - bytes of a stream (plan.h) to and from memory. On its way a move is its elements in
 * row-major order of its dims, in the narrower of the two types. A segment may begin and end
 * anywhere, inside a move and even inside an element.
 */
#ifndef RS_EXEC_SEGMENT_H
#define RS_EXEC_SEGMENT_H

#include <reshard/plan_inspect.h>

#include <stddef.h>

/* One move of a stream, and the memory of this end. */
typedef struct rs_segment_move {
    const reshard_move *move;
    char *memory; /* of the first element */
    const int64_t *strides;
    reshard_dtype dtype; /* of that memory */
    reshard_dtype wire;
} rs_segment_move;

/* Writes bytes from .. to-1 of the move, as it travels, to `out`. */
void rs_segment_pack(const rs_segment_move *move, uint64_t from, uint64_t to, char *out);
/* Reads the same bytes from `in`. An element that is cut off is kept in `carry` (16 bytes for each
 * stream) until its rest comes with the next segment. */
void rs_segment_unpack(const rs_segment_move *move, uint64_t from, uint64_t to, const char *in,
                       char *carry);

/* Where the move begins if its bytes lie in memory exactly as they travel; otherwise NULL. */
char *rs_segment_dense(const rs_segment_move *move);

#endif
