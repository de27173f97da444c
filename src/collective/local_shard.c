/* SPDX-License-Identifier: Apache-2.0 */
/*
 * local_shard.c - PyTorch's reshuffle_local_shard and reshard_local_shard, as plans between two
 * chunk layouts. PyTorch exchanges in two different ways for them, of which the first is right only
 * for some orders of ranks. Here both are the same plan.
 */
#include "base/digest.h"
#include "base/error.h"
#include "collective/collective.h"
#include "collective/work.h"
#include "layout/derive.h"
#include "layout/layout.h"
#include "spec/spec.h"

#include <reshard/pytorch.h>

/* Counts the dim from the front, so that ranks that write the same dim differently agree. */
static reshard_status normalize_dim(int32_t ndim, int32_t dim, int32_t *out_dim)
{
    if (ndim < 1 || ndim > RESHARD_NDIM_MAX)
        return rs_fail(RESHARD_ERR_RANGE, "chunks of a tensor of %d dimensions; there may be 1..%d",
                       ndim, RESHARD_NDIM_MAX);
    if (dim < -ndim || dim >= ndim)
        return rs_fail(RESHARD_ERR_RANGE, "dimension %d does not exist in a tensor of %d", dim,
                       ndim);
    *out_dim = dim < 0 ? dim + ndim : dim;
    return RESHARD_OK;
}

static reshard_status make_layout(reshard_context *context, int32_t ndim, const int64_t *shape,
                                  const reshard_chunks *chunks, reshard_layout **out_layout)
{
    if (chunks == NULL || shape == NULL)
        return rs_fail(RESHARD_ERR_INVALID, "the %s is NULL",
                       chunks == NULL ? "description of chunks" : "shape");
    reshard_spec *spec = NULL;
    int32_t dim = 0;
    reshard_status status = normalize_dim(ndim, chunks->dim, &dim);
    if (status == RESHARD_OK)
        status = reshard_spec_chunk(context, dim, chunks->count, chunks->ranks, &spec);
    if (status == RESHARD_OK) /* each rank passes one buffer */
        status = rs_mesh_check_distinct(spec->mesh);
    return rs_layout_take(context, status, spec, ndim, shape, out_layout);
}

reshard_status reshard_local_shard_volume(reshard_context *context, int32_t ndim,
                                          const int64_t *shape, const reshard_chunks *chunks,
                                          int32_t rank, int64_t *out_volume)
{
    reshard_layout *layout = NULL;
    reshard_status status = make_layout(context, ndim, shape, chunks, &layout);
    if (status == RESHARD_OK)
        *out_volume = rs_layout_shard_volume(layout, rank);
    reshard_layout_release(layout);
    return status;
}

/* The two layouts describe the request. */
static void ask(rs_collective *c, const reshard_layout *source_layout,
                const reshard_layout *target_layout)
{
    rs_digest digest;
    rs_collective_ask(c, (int32_t)c->dtype, -1, -1, source_layout->volume, &digest);
    rs_digest_bytes(&digest, source_layout->digest, sizeof source_layout->digest);
    rs_digest_bytes(&digest, target_layout->digest, sizeof target_layout->digest);
    rs_digest_finish(&digest, c->asked.digest);
}

reshard_status reshard_reshard_local_shard(reshard_context *context, reshard_group *group,
                                           int32_t ndim, const int64_t *shape, reshard_dtype dtype,
                                           const reshard_chunks *from, const reshard_chunks *to,
                                           const void *source, void *target)
{
    rs_collective c = {
        .name = "reshard_local_shard", .context = context, .group = group, .dtype = dtype};
    reshard_layout *source_layout = NULL, *target_layout = NULL;
    reshard_status status = rs_collective_choose(&c);
    if (status != RESHARD_OK)
        return status;
    status = make_layout(context, ndim, shape, from, &source_layout);
    if (status == RESHARD_OK)
        status = make_layout(context, ndim, shape, to, &target_layout);
    status = rs_fail_within(status, "%s", c.name);
    if (status == RESHARD_OK)
        ask(&c, source_layout, target_layout);
    reshard_work *work = NULL;
    status = rs_collective_start(&c, status, source_layout, target_layout, &source, &target, &work);
    status = rs_work_complete(status, work);
    reshard_layout_release(target_layout);
    reshard_layout_release(source_layout);
    return status;
}
