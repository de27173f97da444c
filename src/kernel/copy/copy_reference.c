/* SPDX-License-Identifier: Apache-2.0 */
/* copy_reference.c - the obviously correct copy: one element at a time, in the given order of
 * dims. */
#include "kernel/copy/copy.h"

#include <string.h>

static void copy_dims(int32_t element_bytes, int32_t ndim, const int64_t *size,
                      const int64_t *source_strides, const int64_t *target_strides,
                      const unsigned char *source, unsigned char *target)
{
    if (ndim == 0) {
        memcpy(target, source, (size_t)element_bytes);
        return;
    }
    for (int64_t i = 0; i < size[0]; i++)
        copy_dims(element_bytes, ndim - 1, size + 1, source_strides + 1, target_strides + 1,
                  source + i * source_strides[0] * element_bytes,
                  target + i * target_strides[0] * element_bytes);
}

void rs_copy_reference(int32_t element_bytes, int32_t ndim, const int64_t *size,
                       const int64_t *source_strides, const int64_t *target_strides,
                       const void *source, void *target)
{
    copy_dims(element_bytes, ndim, size, source_strides, target_strides, source, target);
}
