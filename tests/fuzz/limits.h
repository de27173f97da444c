/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limits.h - what fuzz targets of whole flows count as findings beside crashes: an input that takes
 * too much processor time or memory, memory that is not given back, a refusal without words.
 */
#ifndef TESTS_FUZZ_LIMITS_H
#define TESTS_FUZZ_LIMITS_H

#include <reshard/base.h>

#include <time.h>

typedef struct fuzz_limits {
    reshard_context *context; /* for everything that the input leads to */
    size_t bytes_max;
    double seconds_max;
    clock_t began;
} fuzz_limits;

/* cancelled: as in reshard_context_options; may be NULL. */
void fuzz_limits_begin(fuzz_limits *limits, size_t bytes_max, double seconds_max,
                       int (*cancelled)(void *user), void *user);
/* Ends the process when something was beyond its limit. */
void fuzz_limits_end(fuzz_limits *limits);

/* Ends the process with words. */
void fuzz_find(const char *words, const char *more);
/* Is the status a success? A failure without words is a finding. */
int fuzz_passes(reshard_status status);

#endif
