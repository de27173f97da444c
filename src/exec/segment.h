/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segment.h - packs and unpacks the bytes of a stream (plan_inspect.h). In a stream, a move is its
 * elements in row-major order of its dims, in the narrower of the two dtypes. A segment may begin
 * and end anywhere, inside a move and even inside an element.
 */
#ifndef RS_EXEC_SEGMENT_H
#define RS_EXEC_SEGMENT_H

#include <reshard/plan_inspect.h>

#include <stddef.h>

/* One move of a stream, and its memory at this end. */
typedef struct rs_segment_move {
    const reshard_move *move;
    char *memory; /* address of the first element */
    const int64_t *strides;
    reshard_dtype dtype; /* of that memory */
    reshard_dtype wire;
} rs_segment_move;

/* Writes bytes from .. to - 1 of the move, as in the stream, to `out`. */
void rs_segment_pack(const rs_segment_move *move, uint64_t from, uint64_t to, char *out);
/* Reads the same bytes from `in`. If the last element is cut off, `cut_element` (16 bytes for each
 * stream) keeps its beginning until the rest arrives with the next segment. */
void rs_segment_unpack(const rs_segment_move *move, uint64_t from, uint64_t to, const char *in,
                       char *cut_element);

/* The address of the first element if the move's bytes lie in memory exactly as in the stream;
 * otherwise NULL. */
char *rs_segment_dense(const rs_segment_move *move);

#endif
