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

void rs_nearest_try(rs_nearest_search *search, const char *candidate, size_t length)
{
    if (search->length > LENGTH_MAX || length > LENGTH_MAX)
        return;
    size_t distance = measure(search->word, search->length, candidate, length);
    if (distance > DISTANCE_MAX || distance * 2 >= search->length ||
        (search->found != NULL && distance >= search->distance))
        return;
    search->found = candidate;
    search->found_length = length;
    search->distance = distance;
}

const char *rs_nearest(const char *word, size_t length, const char *const *candidates, size_t count)
{
    rs_nearest_search search = {.word = word, .length = length};
    for (size_t i = 0; i < count; i++)
        rs_nearest_try(&search, candidates[i], strlen(candidates[i]));
    return search.found;
}
