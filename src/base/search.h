/* SPDX-License-Identifier: Apache-2.0 */
/*
 * search.h - binary search, once. A macro, so that the condition can be any expression, over any
 * kind of array, and costs no call.
 */
#ifndef RS_BASE_SEARCH_H
#define RS_BASE_SEARCH_H

#include <stdint.h>

/* Sets `at`, an int64_t, to the first of 0 .. count - 1 for which `holds`, an expression in `at`,
 * is true, or to `count` if there is none. `holds` must not become false again after that. */
#define RS_FIND_FIRST(at, count, holds)                         \
    do {                                                        \
        int64_t search_low = 0, search_high = (count);          \
        while (search_low < search_high) {                      \
            (at) = search_low + (search_high - search_low) / 2; \
            if (holds)                                          \
                search_high = (at);                             \
            else                                                \
                search_low = (at) + 1;                          \
        }                                                       \
        (at) = search_low;                                      \
    } while (0)

#endif
