/* SPDX-License-Identifier: Apache-2.0 */
/* nearest.c - edit distances by dynamic programming, with one row in memory. */
#include "text/nearest.h"

#include <string.h>

enum { LENGTH_MAX = 64, DISTANCE_MAX = 2 };

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t measure(const char *a, size_t a_length, const char *b, size_t b_length)
{
    size_t row[LENGTH_MAX + 1];
    for (size_t j = 0; j <= b_length; j++)
        row[j] = j;
    for (size_t i = 1; i <= a_length; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            size_t above = row[j];
            row[j] = least(least(row[j], row[j - 1]) + 1, diagonal + (a[i - 1] != b[j - 1]));
            diagonal = above;
        }
    }
    return row[b_length];
}

const char *rs_nearest(const char *word, size_t length, const char *const *candidates, size_t count)
{
    const char *nearest = NULL;
    size_t nearest_distance = DISTANCE_MAX + 1;
    for (size_t i = 0; length <= LENGTH_MAX && i < count; i++) {
        size_t candidate_length = strlen(candidates[i]);
        if (candidate_length > LENGTH_MAX)
            continue;
        size_t distance = measure(word, length, candidates[i], candidate_length);
        if (distance < nearest_distance && distance * 2 < length) {
            nearest_distance = distance;
            nearest = candidates[i];
        }
    }
    return nearest;
}
