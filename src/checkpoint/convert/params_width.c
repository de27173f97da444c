/* SPDX-License-Identifier: Apache-2.0 */
/* params_width.c - the width of a layer as params.json says it: round numbers if some give it, as
 * in Meta's releases, and otherwise a multiplier with all digits. */
#include "checkpoint/convert/target_make.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#define TENTHS_MAX 80

int64_t rs_params_width_of(int64_t dim, int64_t multiple_of, double multiplier)
{
    int64_t width = (int64_t)(multiplier * (double)(8 * dim / 3));
    return (width + multiple_of - 1) / multiple_of * multiple_of;
}

static bool try_numbers(int64_t dim, int64_t width, const char *multiplier, rs_params_width *out)
{
    static const int64_t multiples[] = {256, 1024, 4096, 512, 128, 64, 32};
    double factor = multiplier[0] != '\0' ? strtod(multiplier, NULL) : 1.0;
    for (size_t i = 0; i < sizeof multiples / sizeof *multiples; i++) {
        if (rs_params_width_of(dim, multiples[i], factor) != width)
            continue;
        out->multiple_of = multiples[i];
        (void)snprintf(out->multiplier, sizeof out->multiplier, "%s", multiplier);
        return true;
    }
    return false;
}

rs_params_width rs_params_width_find(int64_t dim, int64_t width)
{
    rs_params_width found = {.multiple_of = 1};
    char multiplier[32];
    if (try_numbers(dim, width, "", &found))
        return found;
    for (int tenths = 1; tenths <= TENTHS_MAX; tenths++) {
        (void)snprintf(multiplier, sizeof multiplier, "%d.%d", tenths / 10, tenths % 10);
        if (try_numbers(dim, width, multiplier, &found))
            return found;
    }
    /* A quarter more than the width, so that rounding cannot fall below it. */
    double exact = ((double)width + 0.25) / (double)(8 * dim / 3);
    (void)snprintf(found.multiplier, sizeof found.multiplier, "%.17g", exact);
    assert(rs_params_width_of(dim, 1, exact) == width);
    return found;
}
