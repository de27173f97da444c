/* SPDX-License-Identifier: Apache-2.0 */
/* slice.h - a run of bytes that somebody else owns, such as a word of a text or a tensor's name. It
 * may contain NUL bytes and is not NUL-terminated. */
#ifndef RS_BASE_SLICE_H
#define RS_BASE_SLICE_H

#include <stdbool.h>
#include <stddef.h>

typedef struct rs_slice {
    const char *bytes;
    size_t count;
} rs_slice;

/* The whole of a NUL-terminated text. */
rs_slice rs_slice_of(const char *text);
bool rs_slice_equals(rs_slice slice, const char *text);
bool rs_slice_begins(rs_slice slice, const char *text);
bool rs_slice_ends(rs_slice slice, const char *text);
/* Orders like memcmp; a slice that is a prefix of another comes before it. */
int rs_slice_compare(rs_slice a, rs_slice b);
/* The same for rs_sort on arrays of rs_slice, or of structs that begin with one. */
int rs_compare_slices(const void *a, const void *b);
/* Whether a text begins with the mark of UTF-8 that some editors put in front; the text without it,
 * for a whole file. Lines that begin with one come of files that were joined, and nobody sees
 * it. */
bool rs_slice_is_marked(rs_slice slice);
rs_slice rs_slice_unmarked(const char *text, size_t bytes);
/* The precision for "%.*s" in error texts: the count, limited so that messages stay readable. */
int rs_slice_shown(rs_slice slice);
/* Both arguments of such a "%.*s". */
#define RS_SHOWN(slice) rs_slice_shown(slice), (slice).bytes

#endif
