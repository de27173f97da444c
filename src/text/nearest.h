/* SPDX-License-Identifier: Apache-2.0 */
/* nearest.h - "did you mean ..?": finds the candidate closest to a mistyped word. */
#ifndef RS_TEXT_NEAREST_H
#define RS_TEXT_NEAREST_H

#include <stddef.h>

/* A search among candidates that come one by one. The one found has the smallest edit distance of
 * all, if that is at most two and less than half of the word's length; otherwise it is NULL. */
typedef struct rs_nearest_search {
    const char *word;
    size_t length;
    const char *found; /* found_length bytes of a candidate */
    size_t found_length;
    size_t distance; /* of the one found */
} rs_nearest_search;

/* Begin with only the word set. */
void rs_nearest_try(rs_nearest_search *search, const char *candidate, size_t length);

/* The same among candidates that end in NUL. */
const char *rs_nearest(const char *word, size_t length, const char *const *candidates,
                       size_t count);

#endif
