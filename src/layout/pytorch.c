/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pytorch.c - the functions of torch/distributed/_shard that compute chunks. They mean the same as
 * in PyTorch but avoid its defects: the number of chunks is that of the placements, not of the
 * world; offsets of empty chunks are clamped; a rank that occurs twice or is not among the
 * placements is an error.
 */
#include "base/checked.h"
#include "base/error.h"
#include "layout/layout.h"
#include "spec/spec.h"

#include <reshard/pytorch.h>

#include <inttypes.h>

reshard_status reshard_split_size(int64_t n, int64_t chunks, int64_t *out_size)
{
    if (n < 0)
        return rs_fail(RESHARD_ERR_RANGE, "a length of %" PRId64 " is negative", n);
    if (chunks < 1)
        return rs_fail(RESHARD_ERR_RANGE, "%" PRId64 " chunks: at least 1 is needed", chunks);
    *out_size = rs_divide_up(n, chunks);
    return RESHARD_OK;
}

reshard_status reshard_chunk_size(int64_t n, int64_t split_size, int64_t index, int64_t *out_size)
{
    if (n < 0 || split_size < 0 || index < 0)
        return rs_fail(RESHARD_ERR_RANGE,
                       "length %" PRId64 ", split size %" PRId64 ", index %" PRId64
                       ": none may be negative",
                       n, split_size, index);
    int64_t start;
    if (!rs_multiply(split_size, index, &start) || start > n)
        start = n;
    *out_size = rs_min(n - start, split_size);
    return RESHARD_OK;
}

reshard_status reshard_placement_index(const int32_t *ranks, int32_t count, int32_t rank,
                                       int32_t *out_index)
{
    for (int32_t i = 0; i < count; i++) {
        if (ranks[i] == rank) {
            *out_index = i;
            return RESHARD_OK;
        }
    }
    return rs_fail(RESHARD_ERR_NOT_FOUND, "rank %d is not among the %d placements", rank, count);
}

reshard_status reshard_build_metadata(reshard_context *context, int32_t ndim, const int64_t *shape,
                                      int32_t dim, const int32_t *ranks, int32_t count,
                                      int32_t *out_order, reshard_shards **out_shards)
{
    reshard_spec *spec = NULL;
    reshard_layout *layout = NULL;
    reshard_shards *shards = NULL;
    reshard_status status = reshard_spec_chunk(context, dim, count, ranks, &spec);
    if (status == RESHARD_OK) /* a rank has only one entry */
        status = rs_mesh_check_distinct(spec->mesh);
    if (status == RESHARD_OK)
        status = reshard_layout_create(context, spec, ndim, shape, &layout);
    if (status == RESHARD_OK)
        status = reshard_layout_shards(layout, RESHARD_ALL_RANKS, &shards);
    if (status == RESHARD_OK) {
        for (int32_t i = 0; i < count; i++)
            out_order[i] = ranks != NULL ? ranks[i] : i;
        *out_shards = shards;
    }
    reshard_layout_release(layout);
    reshard_spec_release(spec);
    return status;
}
