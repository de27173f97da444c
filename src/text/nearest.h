/* SPDX-License-Identifier: Apache-2.0 */
/* nearest.h - "did you mean ..?": finds the candidate closest to a mistyped word. */
#ifndef RS_TEXT_NEAREST_H
#define RS_TEXT_NEAREST_H

#include <stddef.h>

/* Returns the candidate with the smallest edit distance, if that is at most two and less than half
 * of the word's length; otherwise NULL. */
const char *rs_nearest(const char *word, size_t length, const char *const *candidates,
                       size_t count);

#endif
