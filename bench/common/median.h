/* SPDX-License-Identifier: Apache-2.0 */
/* median.h - the median of measurements. */
#ifndef BENCH_MEDIAN_H
#define BENCH_MEDIAN_H

#include <stdint.h>

/* The median of at least one number; sorts them. For an even count, the upper of the two in the
 * middle. */
double bench_median(double *numbers, int32_t count);

#endif
