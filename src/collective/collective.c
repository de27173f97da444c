/* SPDX-License-Identifier: Apache-2.0 */
/*
 * collective.c - collectives as plans between two layouts of one dimension.
 *
 * Only what a layout cannot know is checked here: roots, reductions and counts. The rest is common
 * to all exchanges (collective_run.c).
 */
#include "collective/collective.h"

#include "base/checked.h"
#include "base/context.h"
#include "base/digest.h"
#include "base/error.h"
#include "collective/work.h"
#include "kernel/combine.h"

#include <inttypes.h>

/* ---- layouts of one dimension ---------------------------------------------------------------- */

static reshard_status sum_counts(const rs_collective *c, int64_t count, const int64_t *counts,
                                 int64_t *out_total, bool *out_equal)
{
    int32_t size = reshard_group_size(c->group);
    int64_t total = 0;
    *out_equal = true;
    for (int32_t i = 0; i < size; i++) {
        int64_t one = counts != NULL ? counts[i] : count;
        if (one < 0)
            return rs_fail(RESHARD_ERR_RANGE, "%s: the count of rank %d is %" PRId64, c->name, i,
                           one);
        if (!rs_add(total, one, &total))
            return rs_fail(RESHARD_ERR_RANGE, "%s: the counts add up to more than 2^63-1", c->name);
        *out_equal = *out_equal && (counts == NULL || one == counts[0]);
    }
    *out_total = total;
    return RESHARD_OK;
}

/* Makes a layout with one cut over a mesh of one axis: all ranks, or only the rank `only`. */
static reshard_status make_layout(const rs_collective *c, const int32_t *only,
                                  const reshard_placement *placement, int64_t total,
                                  reshard_layout **out_layout)
{
    int32_t size = only != NULL ? 1 : reshard_group_size(c->group);
    reshard_cut cut = {.axis = 0, .placement = *placement};
    reshard_mesh *mesh = NULL;
    reshard_spec *spec = NULL;
    reshard_status status = reshard_mesh_create(c->context, 1, NULL, &size, only, &mesh);
    if (status == RESHARD_OK)
        status = reshard_spec_create(c->context, mesh, 1, &cut, &spec);
    if (status == RESHARD_OK)
        status = reshard_layout_create(c->context, spec, 1, &total, out_layout);
    reshard_spec_release(spec);
    reshard_mesh_release(mesh);
    return rs_fail_within(status, "%s", c->name);
}

reshard_status rs_collective_split(const rs_collective *c, int64_t count, const int64_t *counts,
                                   reshard_layout **out_layout)
{
    int64_t total;
    bool equal;
    reshard_status status = sum_counts(c, count, counts, &total, &equal);
    if (status != RESHARD_OK)
        return status;
    /* Equal counts are kept as arithmetic, different ones as a list. */
    reshard_placement placement = {.kind = RESHARD_SHARD, .dim = 0, .rule = RESHARD_CHUNK};
    if (!equal) {
        placement.rule = RESHARD_RAGGED;
        placement.count = reshard_group_size(c->group);
        placement.values = counts;
    }
    return make_layout(c, NULL, &placement, total, out_layout);
}

/* ---- parts of bytes -------------------------------------------------------------------------- */

reshard_status rs_collective_whole_bytes(const rs_collective *c, reshard_dtype dtype, int64_t count,
                                         int64_t *out_count)
{
    int32_t bits = reshard_dtype_bits(dtype);
    int64_t all;
    if (bits % 8 == 0 || count < 0) { /* a negative count is refused later, with a better text */
        *out_count = count;
        return RESHARD_OK;
    }
    if (!rs_multiply(count, bits, &all))
        return rs_fail(RESHARD_ERR_RANGE, "%s: %" PRId64 " elements of %s are too many bytes",
                       c->name, count, reshard_dtype_name(dtype));
    if (all % 8 != 0)
        return rs_fail(RESHARD_ERR_UNSUPPORTED,
                       "%s: %" PRId64 " elements of %s are not a whole number of bytes", c->name,
                       count, reshard_dtype_name(dtype));
    *out_count = all / 8;
    return RESHARD_OK;
}

/* ---- collectives ----------------------------------------------------------------------------- */

/* How the values lie at one end of a collective. */
typedef enum form { COPIES, CONTRIBUTIONS, PARTS, AT_ROOT } form;

typedef struct request {
    rs_collective collective;
    reshard_reduction reduction;
    int32_t root;
    int64_t count;
    const int64_t *counts;
    form source, target;
} request;

static bool has_root(const request *r)
{
    return r->source == AT_ROOT || r->target == AT_ROOT;
}

static bool has_parts(const request *r)
{
    return r->source == PARTS || r->target == PARTS;
}

static reshard_status check_reduction(const request *r)
{
    const rs_collective *c = &r->collective;
    if ((int)r->reduction < 0 || r->reduction >= RESHARD_REDUCTION_COUNT)
        return rs_fail(RESHARD_ERR_INVALID, "%s: %d is no reduction", c->name, (int)r->reduction);
    if (!rs_combine_supports(r->reduction, c->dtype))
        return rs_fail(RESHARD_ERR_UNSUPPORTED, "%s: there is no %s of %s", c->name,
                       reshard_reduction_name(r->reduction), reshard_dtype_name(c->dtype));
    return RESHARD_OK;
}

static reshard_status check_request(const request *r)
{
    const rs_collective *c = &r->collective;
    int32_t size = reshard_group_size(c->group);
    if (reshard_dtype_bits(c->dtype) == 0)
        return rs_fail(RESHARD_ERR_INVALID, "%s: %d is no dtype", c->name, (int)c->dtype);
    if (has_root(r) && (r->root < 0 || r->root >= size))
        return rs_fail(RESHARD_ERR_RANGE, "%s: there is no rank %d in a group of %d", c->name,
                       r->root, size);
    if (r->count < 0 && r->counts == NULL)
        return rs_fail(RESHARD_ERR_RANGE, "%s: the count is %" PRId64, c->name, r->count);
    return r->source == CONTRIBUTIONS ? check_reduction(r) : RESHARD_OK;
}

/* Describes the request. Equal counts are described alike, whether given as one count or as a
 * list. */
static void ask(request *r, int64_t total)
{
    rs_collective *c = &r->collective;
    rs_digest digest;
    rs_collective_ask(c, (int32_t)c->dtype, has_root(r) ? r->root : -1,
                      r->source == CONTRIBUTIONS ? (int32_t)r->reduction : -1, total, &digest);
    for (int32_t i = 0; has_parts(r) && i < reshard_group_size(c->group); i++)
        rs_digest_u64(&digest, (uint64_t)(r->counts != NULL ? r->counts[i] : r->count));
    rs_digest_finish(&digest, c->asked.digest);
}

/* Turns counts of elements into counts of bytes; `scratch` has room for one count per rank. */
static reshard_status make_whole_bytes(request *r, int64_t *scratch)
{
    rs_collective *c = &r->collective;
    reshard_status status = rs_collective_whole_bytes(c, c->dtype, r->count, &r->count);
    for (int32_t i = 0; r->counts != NULL && i < reshard_group_size(c->group); i++) {
        if (status == RESHARD_OK)
            status = rs_collective_whole_bytes(c, c->dtype, r->counts[i], &scratch[i]);
    }
    if (r->counts != NULL)
        r->counts = scratch;
    c->dtype = RESHARD_U8;
    return status;
}

/* A rank's part begins where those of lower ranks end; copies and contributions begin at 0. */
static void find_place(request *r)
{
    rs_collective *c = &r->collective;
    int64_t offset = 0;
    for (int32_t i = 0; has_parts(r) && i < reshard_group_rank(c->group); i++)
        offset += r->counts != NULL ? r->counts[i] : r->count;
    c->may_be_in_place = true;
    c->in_place_elements = r->source == PARTS ? offset : -offset;
    c->reduces = r->source == CONTRIBUTIONS;
}

static reshard_status make_end(const request *r, form how, int64_t total,
                               reshard_layout **out_layout)
{
    reshard_placement placement = {.kind = RESHARD_REPLICATE};
    if (how == PARTS)
        return rs_collective_split(&r->collective, r->count, r->counts, out_layout);
    if (how == CONTRIBUTIONS) {
        placement.kind = RESHARD_PARTIAL;
        placement.reduction = r->reduction;
    }
    return make_layout(&r->collective, how == AT_ROOT ? &r->root : NULL, &placement, total,
                       out_layout);
}

/* Does everything that comes before the exchange itself. Local. */
static reshard_status prepare(request *r, int64_t **scratch, size_t scratch_bytes,
                              reshard_layout **out_source, reshard_layout **out_target)
{
    int64_t total = r->count;
    bool equal;
    reshard_status status = check_request(r);
    if (status == RESHARD_OK && has_parts(r))
        status = sum_counts(&r->collective, r->count, r->counts, &total, &equal);
    ask(r, total);
    if (status == RESHARD_OK && reshard_dtype_bits(r->collective.dtype) % 8 != 0) {
        *scratch = rs_allocate(r->collective.context, scratch_bytes);
        status = *scratch == NULL ? rs_allocation_status() : make_whole_bytes(r, *scratch);
        total = r->count;
        if (status == RESHARD_OK && has_parts(r))
            status = sum_counts(&r->collective, r->count, r->counts, &total, &equal);
    }
    if (status != RESHARD_OK)
        return status;
    find_place(r);
    status = make_end(r, r->source, total, out_source);
    return status == RESHARD_OK ? make_end(r, r->target, total, out_target) : status;
}

static reshard_status start(request *r, const void *source, void *target, reshard_work **out_work)
{
    reshard_layout *source_layout = NULL, *target_layout = NULL;
    int64_t *scratch = NULL;
    reshard_status chosen = rs_collective_choose(&r->collective);
    if (chosen != RESHARD_OK)
        return chosen;
    size_t scratch_bytes = (size_t)reshard_group_size(r->collective.group) * sizeof *scratch;
    reshard_status status = prepare(r, &scratch, scratch_bytes, &source_layout, &target_layout);
    status = rs_collective_start(&r->collective, status, source_layout, target_layout, &source,
                                 &target, out_work);
    reshard_layout_release(target_layout);
    reshard_layout_release(source_layout);
    rs_release(r->collective.context, scratch, scratch_bytes);
    return status;
}

reshard_status reshard_all_gather_start(reshard_context *context, reshard_group *group,
                                        reshard_dtype dtype, int64_t count, const int64_t *counts,
                                        const void *source, void *target, reshard_work **out_work)
{
    request r = {
        .collective = {.name = "all_gather", .context = context, .group = group, .dtype = dtype},
        .count = count,
        .counts = counts,
        .source = PARTS,
        .target = COPIES};
    return start(&r, source, target, out_work);
}

reshard_status reshard_all_gather(reshard_context *context, reshard_group *group,
                                  reshard_dtype dtype, int64_t count, const int64_t *counts,
                                  const void *source, void *target)
{
    reshard_work *work = NULL;
    reshard_status status =
        reshard_all_gather_start(context, group, dtype, count, counts, source, target, &work);
    return rs_work_complete(status, work);
}

reshard_status reshard_reduce_scatter_start(reshard_context *context, reshard_group *group,
                                            reshard_dtype dtype, reshard_reduction reduction,
                                            int64_t count, const int64_t *counts,
                                            const void *source, void *target,
                                            reshard_work **out_work)
{
    request r = {.collective = {.name = "reduce_scatter",
                                .context = context,
                                .group = group,
                                .dtype = dtype},
                 .reduction = reduction,
                 .count = count,
                 .counts = counts,
                 .source = CONTRIBUTIONS,
                 .target = PARTS};
    return start(&r, source, target, out_work);
}

reshard_status reshard_reduce_scatter(reshard_context *context, reshard_group *group,
                                      reshard_dtype dtype, reshard_reduction reduction,
                                      int64_t count, const int64_t *counts, const void *source,
                                      void *target)
{
    reshard_work *work = NULL;
    reshard_status status = reshard_reduce_scatter_start(context, group, dtype, reduction, count,
                                                         counts, source, target, &work);
    return rs_work_complete(status, work);
}

reshard_status reshard_all_reduce_start(reshard_context *context, reshard_group *group,
                                        reshard_dtype dtype, reshard_reduction reduction,
                                        int64_t count, const void *source, void *target,
                                        reshard_work **out_work)
{
    request r = {
        .collective = {.name = "all_reduce", .context = context, .group = group, .dtype = dtype},
        .reduction = reduction,
        .count = count,
        .source = CONTRIBUTIONS,
        .target = COPIES};
    return start(&r, source, target, out_work);
}

reshard_status reshard_all_reduce(reshard_context *context, reshard_group *group,
                                  reshard_dtype dtype, reshard_reduction reduction, int64_t count,
                                  const void *source, void *target)
{
    reshard_work *work = NULL;
    reshard_status status =
        reshard_all_reduce_start(context, group, dtype, reduction, count, source, target, &work);
    return rs_work_complete(status, work);
}

reshard_status reshard_broadcast_start(reshard_context *context, reshard_group *group,
                                       reshard_dtype dtype, int32_t root, int64_t count,
                                       const void *source, void *target, reshard_work **out_work)
{
    request r = {
        .collective = {.name = "broadcast", .context = context, .group = group, .dtype = dtype},
        .root = root,
        .count = count,
        .source = AT_ROOT,
        .target = COPIES};
    return start(&r, source, target, out_work);
}

reshard_status reshard_broadcast(reshard_context *context, reshard_group *group,
                                 reshard_dtype dtype, int32_t root, int64_t count,
                                 const void *source, void *target)
{
    reshard_work *work = NULL;
    reshard_status status =
        reshard_broadcast_start(context, group, dtype, root, count, source, target, &work);
    return rs_work_complete(status, work);
}

reshard_status reshard_scatter_start(reshard_context *context, reshard_group *group,
                                     reshard_dtype dtype, int32_t root, int64_t count,
                                     const int64_t *counts, const void *source, void *target,
                                     reshard_work **out_work)
{
    request r = {
        .collective = {.name = "scatter", .context = context, .group = group, .dtype = dtype},
        .root = root,
        .count = count,
        .counts = counts,
        .source = AT_ROOT,
        .target = PARTS};
    return start(&r, source, target, out_work);
}

reshard_status reshard_scatter(reshard_context *context, reshard_group *group, reshard_dtype dtype,
                               int32_t root, int64_t count, const int64_t *counts,
                               const void *source, void *target)
{
    reshard_work *work = NULL;
    reshard_status status =
        reshard_scatter_start(context, group, dtype, root, count, counts, source, target, &work);
    return rs_work_complete(status, work);
}

reshard_status reshard_gather_start(reshard_context *context, reshard_group *group,
                                    reshard_dtype dtype, int32_t root, int64_t count,
                                    const int64_t *counts, const void *source, void *target,
                                    reshard_work **out_work)
{
    request r = {
        .collective = {.name = "gather", .context = context, .group = group, .dtype = dtype},
        .root = root,
        .count = count,
        .counts = counts,
        .source = PARTS,
        .target = AT_ROOT};
    return start(&r, source, target, out_work);
}

reshard_status reshard_gather(reshard_context *context, reshard_group *group, reshard_dtype dtype,
                              int32_t root, int64_t count, const int64_t *counts,
                              const void *source, void *target)
{
    reshard_work *work = NULL;
    reshard_status status =
        reshard_gather_start(context, group, dtype, root, count, counts, source, target, &work);
    return rs_work_complete(status, work);
}

reshard_status reshard_reduce_start(reshard_context *context, reshard_group *group,
                                    reshard_dtype dtype, reshard_reduction reduction, int32_t root,
                                    int64_t count, const void *source, void *target,
                                    reshard_work **out_work)
{
    request r = {
        .collective = {.name = "reduce", .context = context, .group = group, .dtype = dtype},
        .reduction = reduction,
        .root = root,
        .count = count,
        .source = CONTRIBUTIONS,
        .target = AT_ROOT};
    return start(&r, source, target, out_work);
}

reshard_status reshard_reduce(reshard_context *context, reshard_group *group, reshard_dtype dtype,
                              reshard_reduction reduction, int32_t root, int64_t count,
                              const void *source, void *target)
{
    reshard_work *work = NULL;
    reshard_status status =
        reshard_reduce_start(context, group, dtype, reduction, root, count, source, target, &work);
    return rs_work_complete(status, work);
}
