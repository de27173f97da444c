/* SPDX-License-Identifier: Apache-2.0 */
/* nearest.h - "did you mean ..?": the candidate that a mistyped word comes nearest to. */
#ifndef RS_TEXT_NEAREST_H
#define RS_TEXT_NEAREST_H

#include <stddef.h>

/* At most two letters added, left out or changed, and less than half of the word; NULL when no
 * candidate is as near. */
const char *rs_nearest(const char *word, size_t length, const char *const *candidates,
                       size_t count);

#endif
