/* SPDX-License-Identifier: Apache-2.0 */
/* tiling.h - checks over lists of shards whose pieces are known to have `ndim` dims and to lie in
 * the shape. */
#ifndef RS_LAYOUT_TILING_H
#define RS_LAYOUT_TILING_H

#include "layout/layout.h"

/* Two pieces that share an element, if there are any: the earlier one first. */
reshard_status rs_tiling_find_overlap(reshard_context *context, int32_t ndim, int64_t count,
                                      const reshard_shard *shards, bool *out_found,
                                      rs_cell_holder out_pair[2]);
/* Errors: OVERLAP, naming two shards by their place in the list. */
reshard_status rs_tiling_check_overlap(reshard_context *context, int32_t ndim, int64_t count,
                                       const reshard_shard *shards);
/* Elements of all pieces. */
int64_t rs_tiling_volume(int32_t ndim, int64_t count, const reshard_shard *shards);

#endif
