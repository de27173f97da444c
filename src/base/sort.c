/* SPDX-License-Identifier: Apache-2.0 */
#include "base/sort.h"

#include <assert.h>
#include <stdlib.h>

void rs_sort(void *items, size_t count, size_t item_bytes, rs_compare_fn *compare)
{
    assert(items != NULL || count == 0);
    /* Many inputs are in order already: files usually name their tensors in order. */
    for (size_t i = 1; i < count; i++) {
        const char *item = (const char *)items + i * item_bytes;
        if (compare(item - item_bytes, item) > 0) {
            qsort(items, count, item_bytes, compare);
            return;
        }
    }
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

/* ---- selection ------------------------------------------------------------------------------- */

static void swap(int64_t *a, int64_t *b)
{
    int64_t kept = *a;
    *a = *b;
    *b = kept;
}

static int64_t median_of_three(int64_t a, int64_t b, int64_t c)
{
    if (a > b)
        swap(&a, &b);
    return c < a ? a : c > b ? b : c;
}

/* The median of the medians of groups of five. At least about 3/10 of the values lie on either side
 * of it. */
static int64_t median_of_medians(int64_t *values, int64_t count)
{
    int64_t fives = count / 5;
    if (fives < 2)
        return values[count / 2];
    for (int64_t i = 0; i < fives; i++) {
        int64_t *five = values + 5 * i;
        for (int j = 1; j < 5; j++) {
            for (int k = j; k > 0 && five[k] < five[k - 1]; k--)
                swap(&five[k], &five[k - 1]);
        }
        swap(&values[i], &five[2]);
    }
    return rs_select(values, fives, fives / 2);
}

/* Hoare's quickselect. Once it has looked at many more values than good pivots would need, it
 * switches to pivots that are never bad. */
int64_t rs_select(int64_t *values, int64_t count, int64_t place)
{
    assert(0 <= place && place < count);
    int64_t low = 0, high = count - 1, patience = 6 * count;
    while (low < high) {
        int64_t *range = values + low, length = high - low + 1;
        int64_t pivot = patience < 0
                            ? median_of_medians(range, length)
                            : median_of_three(range[0], range[length / 2], range[length - 1]);
        patience -= length;
        int64_t i = low, j = high;
        while (i <= j) {
            while (values[i] < pivot)
                i++;
            while (values[j] > pivot)
                j--;
            if (i <= j)
                swap(&values[i++], &values[j--]);
        }
        if (place <= j)
            high = j;
        else if (place >= i)
            low = i;
        else
            break;
    }
    return values[place];
}
