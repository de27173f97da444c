/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cut.c - checks one cut and brings it to its canonical form.
 *
 * In the canonical form, fields that the kind does not use are zero; a strided cut with factor 1 is
 * a chunk cut; a unit of 1 is stored as 0; part limits that limit nothing are NULL; the coordinates
 * of A are increasing; and A of all coordinates is R, except that an axis of size 1 keeps what was
 * written. Checks that depend on the shape are made by the layout.
 */
#include "base/context.h"
#include "base/sort.h"
#include "spec/build.h"

#include <assert.h>
#include <inttypes.h>

reshard_status rs_dim_check(int64_t dim)
{
    if (dim >= -RESHARD_NDIM_MAX && dim < RESHARD_NDIM_MAX)
        return RESHARD_OK;
    return rs_fail(RESHARD_ERR_RANGE, "dimension %" PRId64 " is not between %d and %d", dim,
                   -RESHARD_NDIM_MAX, RESHARD_NDIM_MAX - 1);
}

static reshard_status check_list(const reshard_placement *placement, const char *items)
{
    if (placement->count < 1 || placement->values == NULL)
        return rs_fail(RESHARD_ERR_INVALID, "no %s are given", items);
    for (int32_t i = 0; i < placement->count; i++) {
        if (placement->values[i] < 0)
            return rs_fail(RESHARD_ERR_RANGE, "%" PRId64 " among the %s is negative",
                           placement->values[i], items);
    }
    return RESHARD_OK;
}

static reshard_status copy_values(rs_arena *arena, const reshard_placement *placement,
                                  reshard_placement *out)
{
    const int64_t *values = placement->values;
    assert(placement->count >= 1 && values != NULL);
    out->values = rs_arena_copy(arena, values, (size_t)placement->count, sizeof *values);
    out->count = placement->count;
    return out->values != NULL ? RESHARD_OK : rs_allocation_status();
}

/* ---- A: whole, at some coordinates ----------------------------------------------------------- */

static reshard_status copy_at(rs_arena *arena, int32_t axis_size,
                              const reshard_placement *placement, reshard_placement *out)
{
    reshard_status status = check_list(placement, "coordinates");
    if (status != RESHARD_OK)
        return status;
    for (int32_t i = 0; i < placement->count; i++) {
        if (placement->values[i] >= axis_size)
            return rs_fail(RESHARD_ERR_RANGE,
                           "coordinate %" PRId64 " is not on an axis of size %" PRId32,
                           placement->values[i], axis_size);
    }
    /* If there are more coordinates than the axis has, the first axis_size + 1 must contain a
     * repeat, so there is no need to sort the rest. */
    int32_t count = placement->count > axis_size ? axis_size + 1 : placement->count;
    int64_t *sorted = rs_arena_copy(arena, placement->values, (size_t)count, sizeof *sorted);
    if (sorted == NULL)
        return rs_allocation_status();
    rs_sort(sorted, (size_t)count, sizeof *sorted, rs_compare_i64);
    for (int32_t i = 1; i < count; i++) {
        if (sorted[i] == sorted[i - 1])
            return rs_fail(RESHARD_ERR_INVALID, "coordinate %" PRId64 " occurs twice", sorted[i]);
    }
    if (count == axis_size && axis_size > 1)
        return RESHARD_OK; /* held everywhere, which is R */
    assert(sorted[0] >= 0 && sorted[count - 1] < axis_size);
    out->kind = RESHARD_AT;
    out->values = sorted;
    out->count = count;
    return RESHARD_OK;
}

/* ---- S: sharded ------------------------------------------------------------------------------ */

static reshard_status copy_parts(rs_arena *arena, const reshard_placement *placement,
                                 reshard_placement *out)
{
    reshard_status status = check_list(placement, "parts");
    bool limited = false;
    for (int32_t i = 0; status == RESHARD_OK && placement->part_max != NULL && i < placement->count;
         i++) {
        limited = limited || placement->part_max[i] != 0;
        if (placement->part_max[i] < 0)
            status = rs_fail(RESHARD_ERR_RANGE, "part %" PRId32 " has the negative limit %" PRId64,
                             i, placement->part_max[i]);
    }
    if (status == RESHARD_OK)
        status = copy_values(arena, placement, out);
    if (status != RESHARD_OK || !limited)
        return status;
    out->part_max = rs_arena_copy(arena, placement->part_max, (size_t)placement->count,
                                  sizeof *placement->part_max);
    return out->part_max != NULL ? RESHARD_OK : rs_allocation_status();
}

static reshard_status copy_sizes(rs_arena *arena, int32_t axis_size,
                                 const reshard_placement *placement, reshard_placement *out)
{
    reshard_status status = check_list(placement, "sizes");
    if (status != RESHARD_OK)
        return status;
    /* With max= there is one size for each distinct piece, not for each coordinate. */
    int64_t wanted = placement->max > 0 && placement->max < axis_size ? placement->max : axis_size;
    if (placement->count != wanted)
        return rs_fail(RESHARD_ERR_INVALID, "%" PRId32 " sizes for an axis of size %" PRId64,
                       placement->count, wanted);
    return copy_values(arena, placement, out);
}

static reshard_status copy_factor(const reshard_placement *placement, reshard_placement *out)
{
    bool strided = placement->rule == RESHARD_STRIDED;
    if (placement->factor < 1)
        return rs_fail(RESHARD_ERR_RANGE, "%s of %" PRId64 ", not 1 or more",
                       strided ? "a split factor" : "a block", placement->factor);
    if (strided && placement->factor == 1)
        out->rule = RESHARD_CHUNK;
    else
        out->factor = placement->factor;
    assert(out->rule == RESHARD_CHUNK || out->factor >= 1);
    return RESHARD_OK;
}

static reshard_status copy_shard(rs_arena *arena, int32_t axis_size,
                                 const reshard_placement *placement, reshard_placement *out)
{
    reshard_status status = RESHARD_OK;
    if (placement->dim != RESHARD_DIM_FLAT)
        status = rs_dim_check(placement->dim);
    if (status != RESHARD_OK)
        return status;
    if (placement->unit < 0)
        return rs_fail(RESHARD_ERR_RANGE, "a unit of %" PRId64 ", not 1 or more", placement->unit);
    if (placement->max < 0)
        return rs_fail(RESHARD_ERR_RANGE, "at most %" PRId64 " pieces, not 1 or more",
                       placement->max);
    out->kind = RESHARD_SHARD;
    out->dim = placement->dim;
    out->rule = placement->rule;
    out->unit = placement->unit > 1 ? placement->unit : 0;
    out->max = placement->max;
    switch (placement->rule) {
    case RESHARD_CHUNK:
    case RESHARD_BALANCED:
        return RESHARD_OK;
    case RESHARD_PACKED:
        return copy_parts(arena, placement, out);
    case RESHARD_RAGGED:
        return copy_sizes(arena, axis_size, placement, out);
    case RESHARD_STRIDED:
    case RESHARD_CYCLIC:
        return copy_factor(placement, out);
    }
    return rs_fail(RESHARD_ERR_INVALID, "unknown shard rule %d", (int)placement->rule);
}

/* ---- any placement --------------------------------------------------------------------------- */

reshard_status rs_cut_copy_checked(rs_arena *arena, const reshard_mesh *mesh,
                                   const reshard_cut *cut, reshard_cut *out_cut)
{
    const reshard_placement *placement = &cut->placement;
    assert(cut->axis >= 0 && cut->axis < mesh->axis_count);
    int32_t axis_size = mesh->sizes[cut->axis];
    *out_cut = (reshard_cut){.axis = cut->axis, .placement.kind = RESHARD_REPLICATE};
    switch (placement->kind) {
    case RESHARD_REPLICATE:
        return RESHARD_OK;
    case RESHARD_PARTIAL:
        if ((int)placement->reduction < 0 ||
            (int)placement->reduction >= (int)RESHARD_REDUCTION_COUNT)
            return rs_fail(RESHARD_ERR_INVALID, "unknown reduction %d", (int)placement->reduction);
        out_cut->placement.kind = RESHARD_PARTIAL;
        out_cut->placement.reduction = placement->reduction;
        return RESHARD_OK;
    case RESHARD_AT:
        return copy_at(arena, axis_size, placement, &out_cut->placement);
    case RESHARD_SHARD:
        return copy_shard(arena, axis_size, placement, &out_cut->placement);
    }
    return rs_fail(RESHARD_ERR_INVALID, "unknown placement kind %d", (int)placement->kind);
}
