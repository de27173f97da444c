/* SPDX-License-Identifier: Apache-2.0 */
#include "base/sort.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>

void rs_sort(void *items, size_t count, size_t item_bytes, rs_compare_fn *compare)
{
    assert(items != NULL || count == 0);
    if (count > 1)
        qsort(items, count, item_bytes, compare);
}

int rs_compare_i32(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

int rs_compare_i64(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

int rs_compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}
