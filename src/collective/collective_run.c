/* SPDX-License-Identifier: Apache-2.0 */
/*
 * collective_run.c - what all collectives share: checks of buffers, a plan, an exec, and the work
 * that holds them.
 *
 * Nothing here moves data: an exec does. A rank that finds something wrong does not return before
 * the others know it (rs_collective_agree).
 *
 * In place: peers read a source that lies in place while this rank would copy it onto itself, so
 * operations leave such copies out. A reduction in one stage would overwrite its own contribution,
 * so it writes to other memory, which is copied to the target when the run is over. In two stages,
 * all sources have been read before the first target is written.
 */
#include "base/checked.h"
#include "base/context.h"
#include "base/error.h"
#include "collective/collective.h"
#include "collective/work.h"
#include "layout/layout.h"
#include "plan/plan.h"

#include <inttypes.h>
#include <string.h>

/* ---- buffers --------------------------------------------------------------------------------- */

static bool overlaps(const void *a, int64_t a_bytes, const void *b, int64_t b_bytes)
{
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return x < y ? y - x < (uint64_t)a_bytes : x - y < (uint64_t)b_bytes;
}

/* The bytes of one of this rank's shards. Layouts limit the elements, but not the bytes. */
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

static bool is_in_place(const rs_collective *c, const void *source, const void *target)
{
    uintptr_t shift =
        (uintptr_t)c->in_place_elements * (uintptr_t)(reshard_dtype_bits(c->dtype) / 8);
    return c->may_be_in_place && (uintptr_t)source == (uintptr_t)target + shift;
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
                overlaps(sources[i], source_bytes, targets[k], target_bytes) &&
                !is_in_place(c, sources[i], targets[k]))
                status =
                    rs_fail(RESHARD_ERR_INVALID,
                            "%s: source %" PRId64 " and target %" PRId64 " overlap", c->name, i, k);
        }
        if (status != RESHARD_OK)
            return status;
    }
    return RESHARD_OK;
}

static reshard_status check_buffers(const rs_collective *c, const reshard_layout *source_layout,
                                    const reshard_layout *target_layout, const void *const *sources,
                                    void *const *targets)
{
    reshard_status status = check_present(c, source_layout, sources, "source");
    if (status == RESHARD_OK)
        status = check_present(c, target_layout, (const void *const *)targets, "target");
    if (status == RESHARD_OK)
        status = check_apart(c, source_layout, target_layout, sources, targets);
    return status;
}

/* ---- starting -------------------------------------------------------------------------------- */

/* Replaces the target by other memory if the head of this file says so. Collectives in place have
 * one source and one target. */
static reshard_status put_aside(const rs_collective *c, const reshard_plan *plan,
                                const reshard_layout *source_layout,
                                const reshard_layout *target_layout, reshard_work *work)
{
    int64_t source_bytes, target_bytes;
    int32_t rank = reshard_group_rank(c->group);
    if (!c->may_be_in_place || !c->reduces || rs_plan_forward(plan)->stage_count != 1 ||
        rs_layout_shard_count(source_layout, rank) != 1 ||
        rs_layout_shard_count(target_layout, rank) != 1 ||
        !is_in_place(c, work->buffers[0], work->buffers[1]))
        return RESHARD_OK;
    reshard_status status = shard_bytes(c, source_layout, 0, &source_bytes);
    if (status == RESHARD_OK)
        status = shard_bytes(c, target_layout, 0, &target_bytes);
    if (status != RESHARD_OK || source_bytes == 0 || target_bytes == 0)
        return status;
    work->aside = rs_allocate(c->context, (size_t)target_bytes);
    if (work->aside == NULL)
        return rs_allocation_status();
    work->aside_bytes = (size_t)target_bytes;
    work->place = work->buffers[1];
    work->buffers[1] = work->aside;
    return RESHARD_OK;
}

static reshard_status make_work(const rs_collective *c, const reshard_plan *plan,
                                const reshard_layout *source_layout,
                                const reshard_layout *target_layout, const void *const *sources,
                                void *const *targets, reshard_work **out_work)
{
    int32_t rank = reshard_group_rank(c->group);
    int64_t source_count = rs_layout_shard_count(source_layout, rank);
    int64_t target_count = rs_layout_shard_count(target_layout, rank);
    reshard_status status =
        rs_work_create(c->context, c->group, source_count, target_count, out_work);
    if (status != RESHARD_OK)
        return status;
    reshard_work *work = *out_work;
    for (int64_t i = 0; i < source_count; i++)
        work->buffers[i] = (void *)(uintptr_t)sources[i];
    for (int64_t i = 0; i < target_count; i++)
        work->buffers[source_count + i] = targets[i];
    return put_aside(c, plan, source_layout, target_layout, work);
}

reshard_status rs_collective_start(const rs_collective *c, reshard_status status,
                                   reshard_layout *source_layout, reshard_layout *target_layout,
                                   const void *const *sources, void *const *targets,
                                   reshard_work **out_work)
{
    reshard_plan *plan = NULL;
    reshard_work *work = NULL;
    if (status == RESHARD_OK)
        status = rs_fail_within(reshard_plan_create_simple(c->context, source_layout, target_layout,
                                                           c->dtype, NULL, &plan),
                                "%s", c->name);
    if (status == RESHARD_OK)
        status = check_buffers(c, source_layout, target_layout, sources, targets);
    if (status == RESHARD_OK)
        status = make_work(c, plan, source_layout, target_layout, sources, targets, &work);
    status = rs_collective_agree(c, status);
    if (status == RESHARD_OK)
        status = reshard_exec_create(c->context, plan, c->group, NULL, &work->exec);
    if (status == RESHARD_OK)
        status = rs_work_begin(work);
    reshard_plan_release(plan);
    if (status != RESHARD_OK) {
        reshard_work_destroy(work);
        return status;
    }
    *out_work = work;
    return RESHARD_OK;
}
