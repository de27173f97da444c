/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compare.h - the library's shards against the oracle's.
 */
#ifndef TESTS_SUPPORT_COMPARE_H
#define TESTS_SUPPORT_COMPARE_H

#include "tests/support/oracle.h"
#include "tests/support/words.h"

#include <reshard/layout.h>

/* What lies where in the shard's buffer, by its pieces: global element numbers in the order of
 * memory. To be freed; NULL, with words, when pieces are empty, out of bounds, lie over one another
 * or leave a hole. */
int64_t *compare_expand(const reshard_shard *shard, int32_t ndim, const int64_t *shape,
                        words *said);

/* Shards, pieces, shapes, offsets, contributors of every rank. */
bool compare_layout(const reshard_layout *layout, const oracle_layout *expected, words *said);

/* The two layouts hold the same elements in the same order in every non-empty shard of every
 * rank. */
bool compare_layouts(const reshard_layout *layout, const reshard_layout *other, words *said);

/* The layout of the spec's text, or of what the constructors make of it. */
reshard_status compare_create(const oracle_spec *spec, bool by_constructor, int32_t ndim,
                              const int64_t *shape, reshard_layout **out_layout);

#endif
