/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sort.h - qsort for arrays that may be empty, and comparisons of plain numbers for it and for
 * bsearch. Everything a comparison needs has to be in the items, because qsort_r is not portable.
 * The C libraries we build on (glibc, musl) sort in O(n log n) steps at worst.
 */
#ifndef RS_BASE_SORT_H
#define RS_BASE_SORT_H

#include <stddef.h>
#include <stdint.h>

typedef int rs_compare_fn(const void *a, const void *b);

/* Unlike qsort, allows items to be NULL if count is 0. */
void rs_sort(void *items, size_t count, size_t item_bytes, rs_compare_fn *compare);

int rs_compare_i32(const void *a, const void *b);
int rs_compare_i64(const void *a, const void *b);
int rs_compare_u64(const void *a, const void *b);

/* The value that sorting would put at index `place`, 0 <= place < count. Reorders the values. Takes
 * O(count) steps for any input. */
int64_t rs_select(int64_t *values, int64_t count, int64_t place);

#endif
