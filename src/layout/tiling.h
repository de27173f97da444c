/* SPDX-License-Identifier: Apache-2.0 */
/* tiling.h - checks of lists of shards whose pieces are known to have `ndim` dims and to lie inside
 * the shape. */
#ifndef RS_LAYOUT_TILING_H
#define RS_LAYOUT_TILING_H

#include "layout/layout.h"

/* Finds two pieces that share an element, if there are any. The earlier one is the first. */
reshard_status rs_tiling_find_overlap(reshard_context *context, int32_t ndim, int64_t count,
                                      const reshard_shard *shards, bool *out_found,
                                      rs_cell_holder out_pair[2]);
/* Errors: OVERLAP, naming two shards by their index in the list. */
reshard_status rs_tiling_check_overlap(reshard_context *context, int32_t ndim, int64_t count,
                                       const reshard_shard *shards);
/* The number of elements of all pieces. */
int64_t rs_tiling_volume(int32_t ndim, int64_t count, const reshard_shard *shards);

#endif
