/* SPDX-License-Identifier: Apache-2.0 */
/* infinite.h - counts values that are not finite. */
#ifndef RS_KERNEL_VALUES_INFINITE_H
#define RS_KERNEL_VALUES_INFINITE_H

#include <reshard/base.h>

/* Counts the infinities and NaNs among `count` contiguous values of a type that casts support. Fast
 * if there are none. */
int64_t rs_count_infinite(reshard_dtype dtype, const void *values, int64_t count);

#endif
