/* SPDX-License-Identifier: Apache-2.0 */
/* slice.h - a run of bytes that somebody else owns: a word of a text, a tensor's name. It may hold
 * NUL, and none follows it. */
#ifndef RS_BASE_SLICE_H
#define RS_BASE_SLICE_H

#include <stdbool.h>
#include <stddef.h>

typedef struct rs_slice {
    const char *bytes;
    size_t count;
} rs_slice;

/* All of a NUL-terminated text. */
rs_slice rs_slice_of(const char *text);
bool rs_slice_equals(rs_slice slice, const char *text);
/* Orders like memcmp; a slice that is the beginning of another comes first. */
int rs_slice_compare(rs_slice a, rs_slice b);
/* The same for rs_sort, of two rs_slice. */
int rs_compare_slices(const void *a, const void *b);
/* For rs_fail's "%.*s": the count, cut so that messages stay readable. */
int rs_slice_shown(rs_slice slice);

#endif
