/* SPDX-License-Identifier: Apache-2.0 */
/*
 * collective.c - collectives as plans between two layouts of one dimension.
 *
 * Nothing here moves data: an exec does. What is checked here is what a layout cannot know: roots,
 * reductions, counts and buffers. A rank that finds something wrong does not return before the
 * others know it: reshard_exec_create begins with an agreement, and a rank that cannot get there
 * joins that agreement by itself.
 */
#include "exec/collective.h"

#include "base/checked.h"
#include "base/error.h"
#include "layout/layout.h"

#include <reshard/collective.h>

#include <inttypes.h>
#include <stdbool.h>

/* ---- running --------------------------------------------------------------------------------- */

static bool overlaps(const void *a, int64_t a_bytes, const void *b, int64_t b_bytes)
{
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return x < y ? y - x < (uint64_t)a_bytes : x - y < (uint64_t)b_bytes;
}

/* The bytes of one of this rank's shards. Layouts bound the elements, but not the bytes. */
static reshard_status shard_bytes(const rs_collective *c, const reshard_layout *layout, int64_t i,
                                  int64_t *out_bytes)
{
    int32_t rank = reshard_group_rank(c->group);
    int64_t volume = rs_layout_one_shard_volume(layout, rank, (int32_t)i);
    if (!rs_multiply(volume, reshard_dtype_bits(c->dtype) / 8, out_bytes))
        return rs_fail(RESHARD_ERR_RANGE, "%s: %" PRId64 " elements of %s are too many bytes",
                       c->name, volume, reshard_dtype_name(c->dtype));
    return RESHARD_OK;
}

static reshard_status check_present(const rs_collective *c, const reshard_layout *layout,
                                    const void *const *buffers, const char *what)
{
    int64_t count = rs_layout_shard_count(layout, reshard_group_rank(c->group));
    for (int64_t i = 0; i < count; i++) {
        int64_t bytes;
        reshard_status status = shard_bytes(c, layout, i, &bytes);
        if (status != RESHARD_OK)
            return status;
        if (bytes != 0 && buffers[i] == NULL)
            return rs_fail(RESHARD_ERR_INVALID, "%s: %s %" PRId64 " is NULL, not %" PRId64 " bytes",
                           c->name, what, i, bytes);
    }
    return RESHARD_OK;
}

static reshard_status check_apart(const rs_collective *c, const reshard_layout *source_layout,
                                  const reshard_layout *target_layout, const void *const *sources,
                                  void *const *targets)
{
    int32_t rank = reshard_group_rank(c->group);
    int64_t source_count = rs_layout_shard_count(source_layout, rank);
    int64_t target_count = rs_layout_shard_count(target_layout, rank);
    for (int64_t i = 0; i < source_count; i++) {
        int64_t source_bytes, target_bytes;
        reshard_status status = shard_bytes(c, source_layout, i, &source_bytes);
        for (int64_t k = 0; status == RESHARD_OK && source_bytes != 0 && k < target_count; k++) {
            status = shard_bytes(c, target_layout, k, &target_bytes);
            if (status == RESHARD_OK && target_bytes != 0 &&
                overlaps(sources[i], source_bytes, targets[k], target_bytes))
                status =
                    rs_fail(RESHARD_ERR_INVALID,
                            "%s: source %" PRId64 " and target %" PRId64 " overlap", c->name, i, k);
        }
        if (status != RESHARD_OK)
            return status;
    }
    return RESHARD_OK;
}

reshard_status rs_collective_run(const rs_collective *c, reshard_status status,
                                 reshard_layout *source_layout, reshard_layout *target_layout,
                                 const void *const *sources, void *const *targets)
{
    reshard_plan *plan = NULL;
    reshard_exec *exec = NULL;
    if (status == RESHARD_OK)
        status = rs_fail_within(reshard_plan_create_simple(c->context, source_layout, target_layout,
                                                           c->dtype, NULL, &plan),
                                "%s", c->name);
    if (status == RESHARD_OK)
        status = check_present(c, source_layout, sources, "source");
    if (status == RESHARD_OK)
        status = check_present(c, target_layout, (const void *const *)targets, "target");
    if (status == RESHARD_OK)
        status = check_apart(c, source_layout, target_layout, sources, targets);
    if (status == RESHARD_OK)
        status = reshard_exec_create(c->context, plan, c->group, NULL, &exec);
    else
        status = reshard_group_agree(c->group, status);
    if (status == RESHARD_OK)
        status = reshard_exec_start(exec, sources, targets);
    if (status == RESHARD_OK)
        status = reshard_exec_wait(exec);
    reshard_exec_destroy(exec);
    reshard_plan_release(plan);
    return status;
}

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

/* One cut over a mesh of one axis: all ranks, or those of `only`. */
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
    /* Chunks of equal sizes are arithmetic, given sizes a list. */
    reshard_placement placement = {.kind = RESHARD_SHARD, .dim = 0, .rule = RESHARD_CHUNK};
    if (!equal) {
        placement.rule = RESHARD_RAGGED;
        placement.count = reshard_group_size(c->group);
        placement.values = counts;
    }
    return make_layout(c, NULL, &placement, total, out_layout);
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

static reshard_status check_request(const request *r)
{
    const rs_collective *c = &r->collective;
    int32_t size = reshard_group_size(c->group);
    if ((r->source == AT_ROOT || r->target == AT_ROOT) && (r->root < 0 || r->root >= size))
        return rs_fail(RESHARD_ERR_RANGE, "%s: there is no rank %d in a group of %d", c->name,
                       r->root, size);
    if (r->source == CONTRIBUTIONS &&
        ((int)r->reduction < 0 || r->reduction >= RESHARD_REDUCTION_COUNT))
        return rs_fail(RESHARD_ERR_INVALID, "%s: %d is no reduction", c->name, (int)r->reduction);
    if (r->count < 0 && r->counts == NULL)
        return rs_fail(RESHARD_ERR_RANGE, "%s: the count is %" PRId64, c->name, r->count);
    return RESHARD_OK;
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

static reshard_status carry_out(const request *r, const void *source, void *target)
{
    reshard_layout *source_layout = NULL, *target_layout = NULL;
    int64_t total = r->count;
    bool equal;
    reshard_status status = check_request(r);
    if (status == RESHARD_OK && (r->source == PARTS || r->target == PARTS))
        status = sum_counts(&r->collective, r->count, r->counts, &total, &equal);
    if (status == RESHARD_OK)
        status = make_end(r, r->source, total, &source_layout);
    if (status == RESHARD_OK)
        status = make_end(r, r->target, total, &target_layout);
    status =
        rs_collective_run(&r->collective, status, source_layout, target_layout, &source, &target);
    reshard_layout_release(target_layout);
    reshard_layout_release(source_layout);
    return status;
}

reshard_status reshard_all_gather(reshard_context *context, reshard_group *group,
                                  reshard_dtype dtype, int64_t count, const int64_t *counts,
                                  const void *source, void *target)
{
    request r = {.collective = {"all_gather", context, group, dtype},
                 .count = count,
                 .counts = counts,
                 .source = PARTS,
                 .target = COPIES};
    return carry_out(&r, source, target);
}

reshard_status reshard_reduce_scatter(reshard_context *context, reshard_group *group,
                                      reshard_dtype dtype, reshard_reduction reduction,
                                      int64_t count, const int64_t *counts, const void *source,
                                      void *target)
{
    request r = {.collective = {"reduce_scatter", context, group, dtype},
                 .reduction = reduction,
                 .count = count,
                 .counts = counts,
                 .source = CONTRIBUTIONS,
                 .target = PARTS};
    return carry_out(&r, source, target);
}

reshard_status reshard_all_reduce(reshard_context *context, reshard_group *group,
                                  reshard_dtype dtype, reshard_reduction reduction, int64_t count,
                                  const void *source, void *target)
{
    request r = {.collective = {"all_reduce", context, group, dtype},
                 .reduction = reduction,
                 .count = count,
                 .source = CONTRIBUTIONS,
                 .target = COPIES};
    return carry_out(&r, source, target);
}

reshard_status reshard_broadcast(reshard_context *context, reshard_group *group,
                                 reshard_dtype dtype, int32_t root, int64_t count,
                                 const void *source, void *target)
{
    request r = {.collective = {"broadcast", context, group, dtype},
                 .root = root,
                 .count = count,
                 .source = AT_ROOT,
                 .target = COPIES};
    return carry_out(&r, source, target);
}

reshard_status reshard_scatter(reshard_context *context, reshard_group *group, reshard_dtype dtype,
                               int32_t root, int64_t count, const int64_t *counts,
                               const void *source, void *target)
{
    request r = {.collective = {"scatter", context, group, dtype},
                 .root = root,
                 .count = count,
                 .counts = counts,
                 .source = AT_ROOT,
                 .target = PARTS};
    return carry_out(&r, source, target);
}

reshard_status reshard_gather(reshard_context *context, reshard_group *group, reshard_dtype dtype,
                              int32_t root, int64_t count, const int64_t *counts,
                              const void *source, void *target)
{
    request r = {.collective = {"gather", context, group, dtype},
                 .root = root,
                 .count = count,
                 .counts = counts,
                 .source = PARTS,
                 .target = AT_ROOT};
    return carry_out(&r, source, target);
}

reshard_status reshard_reduce(reshard_context *context, reshard_group *group, reshard_dtype dtype,
                              reshard_reduction reduction, int32_t root, int64_t count,
                              const void *source, void *target)
{
    request r = {.collective = {"reduce", context, group, dtype},
                 .reduction = reduction,
                 .root = root,
                 .count = count,
                 .source = CONTRIBUTIONS,
                 .target = AT_ROOT};
    return carry_out(&r, source, target);
}
