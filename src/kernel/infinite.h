/* SPDX-License-Identifier: Apache-2.0 */
/* infinite.h - counts values that are not finite. */
#ifndef RS_KERNEL_INFINITE_H
#define RS_KERNEL_INFINITE_H

#include <reshard/base.h>

/* How many of so many values, one behind the other, are infinities or NaNs. For the types that
 * casts know. Fast where there are none. */
int64_t rs_count_infinite(reshard_dtype dtype, const void *values, int64_t count);

#endif
