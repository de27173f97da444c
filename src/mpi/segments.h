/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segments.h - memory that the ranks of one node share. Each has a segment of it, at an address of
 * its own in every process, so an address that a peer speaks of is translated: its distance from
 * where the peer sees its segment, added to where this process sees it.
 */
#ifndef RS_MPI_SEGMENTS_H
#define RS_MPI_SEGMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct rs_segment {
    uint64_t owner_address; /* where its owner sees it */
    char *view;             /* where this process sees it */
    size_t bytes;
} rs_segment;

/* Where `address` of the segment's owner is seen here; NULL when the bytes are not all inside. */
void *rs_segment_translate(const rs_segment *segment, const void *address, size_t bytes);

/* The bytes to ask for, so that `bytes` from a page's begin are among them; 0 when that is too
 * much. */
size_t rs_segment_bytes_needed(size_t bytes);
/* The first page's begin at or behind an address. */
void *rs_segment_align(void *address);

/* Whether count segments of that size fit where systems keep shared memory. Where it is too small,
 * MPI may hand it out nevertheless, and the first touch then kills the process. */
bool rs_segments_have_room(int32_t count, size_t bytes);

#endif
