/* SPDX-License-Identifier: Apache-2.0 */
/*
 * apply.c - applies the rules to one tensor of known shape on one mesh: finds its rule and cuts
 * (find.c), pads the shape, checks that heads and blocks stay whole, and makes the spec and the
 * layout.
 */
#include "base/checked.h"
#include "base/context.h"
#include "base/error.h"
#include "checkpoint/rules/find.h"
#include "spec/scan.h"
#include "spec/spec.h"
#include "text/text.h"

#include <assert.h>
#include <reshard/layout.h>

#include <inttypes.h>
#include <string.h>

#define NAME_SHOWN 200 /* bytes of a tensor's name in an error text */

/* ---- padding --------------------------------------------------------------------------------- */

reshard_status rs_rule_pad_shape(const rs_rule_finding *found, int32_t ndim, int64_t *shape)
{
    for (int32_t i = 0; i < found->pad_count; i++) {
        const rs_found_pad *pad = &found->pads[i];
        int64_t padded = 0;
        assert(pad->dim >= 0 && pad->dim < ndim && pad->multiple > 0);
        if (!rs_multiply(rs_divide_up(shape[pad->dim], pad->multiple), pad->multiple, &padded))
            return rs_fail(RESHARD_ERR_RANGE,
                           RS_RULE_PLACE ": pad: %" PRId64 " to a multiple of %" PRId64,
                           RS_RULE_PLACE_OF(found->rule), shape[pad->dim], pad->multiple);
        shape[pad->dim] = padded;
    }
    (void)ndim;
    return RESHARD_OK;
}

reshard_status rs_rule_unpad_shape(const rs_rule_finding *found, int32_t ndim, int64_t *shape,
                                   bool *out_unknown)
{
    int64_t padded[RESHARD_NDIM_MAX] = {0};
    for (int32_t i = 0; i < found->pad_count; i++)
        padded[found->pads[i].dim] = rs_max(found->pads[i].true_size, 0);
    reshard_status status = rs_rule_pad_shape(found, ndim, padded);
    for (int32_t i = 0; status == RESHARD_OK && i < found->pad_count; i++) {
        const rs_found_pad *pad = &found->pads[i];
        if (pad->true_size < 0) {
            *out_unknown = true;
            continue;
        }
        if (shape[pad->dim] != pad->true_size && shape[pad->dim] != padded[pad->dim])
            return rs_fail(RESHARD_ERR_INVALID,
                           RS_RULE_PLACE ": pad: the files hold %" PRId64 " in dimension %" PRId32
                                         ", but %" PRId64 " is padded to %" PRId64,
                           RS_RULE_PLACE_OF(found->rule), shape[pad->dim], pad->dim, pad->true_size,
                           padded[pad->dim]);
        shape[pad->dim] = pad->true_size;
    }
    return status;
}

/* ---- whole heads ----------------------------------------------------------------------------- */

/* Checks that n elements divide evenly, in whole units, into as many pieces as the axis has
 * coordinates, or into `max` if that is less. */
static reshard_status check_division(const reshard_cut *cut, int64_t n, int64_t max,
                                     const rs_rule_finding *found)
{
    int64_t unit = rs_max(cut->placement.unit, 1);
    int64_t axis_size = found->mesh->sizes[cut->axis];
    int64_t pieces = max > 0 ? rs_min(max, axis_size) : axis_size;
    const char *axis = found->mesh->names[cut->axis];
    if (n % unit != 0)
        return rs_fail(RESHARD_ERR_INVALID, "%" PRId64 " is not a multiple of unit=%" PRId64, n,
                       unit);
    if (max > 0 && unit > 1 && n / unit > max)
        return rs_fail(RESHARD_ERR_INVALID,
                       "%" PRId64 " units of %" PRId64 " are more than max=%" PRId64
                       ": the model's heads are not as the numbers say",
                       n / unit, unit, max);
    if (axis_size % pieces != 0)
        return rs_fail(RESHARD_ERR_INVALID,
                       "the %" PRId64 " pieces of max=%" PRId64
                       " cannot have equally many copies on %s=%" PRId64,
                       pieces, max, axis, axis_size);
    if (n / unit % pieces == 0)
        return RESHARD_OK;
    if (unit == 1)
        return rs_fail(RESHARD_ERR_INVALID,
                       "%" PRId64 " %s cannot be divided evenly by %s=%" PRId64, n,
                       found->rule->is_even ? "elements" : "blocks or groups", axis, axis_size);
    return rs_fail(RESHARD_ERR_INVALID,
                   "%" PRId64 " units of %" PRId64 " cannot be divided evenly by %s=%" PRId64,
                   n / unit, unit, axis, axis_size);
}

static reshard_status check_cut(const reshard_cut *cut, bool is_even, int64_t n,
                                const rs_rule_finding *found)
{
    const reshard_placement *placement = &cut->placement;
    if ((placement->unit <= 1 && !is_even) || placement->rule == RESHARD_RAGGED ||
        placement->rule == RESHARD_CYCLIC)
        return RESHARD_OK;
    if (placement->rule == RESHARD_STRIDED) {
        if (n % placement->factor != 0)
            return rs_fail(RESHARD_ERR_INVALID,
                           "%" PRId64 " is not a multiple of %" PRId64 " chunks", n,
                           placement->factor);
        return check_division(cut, n / placement->factor, placement->max, found);
    }
    if (placement->rule != RESHARD_PACKED)
        return check_division(cut, n, placement->max, found);
    for (int32_t i = 0; i < placement->count; i++) {
        int64_t max = placement->part_max != NULL ? placement->part_max[i] : 0;
        reshard_status status =
            check_division(cut, placement->values[i], max > 0 ? max : placement->max, found);
        if (status != RESHARD_OK)
            return rs_fail_within(status, "part %" PRId32, i);
    }
    return RESHARD_OK;
}

/* A unit is a head, or a block that shares a scale. The spec language allows an uneven number of
 * units per rank, but no model runs that way, so here it is an error. */
static reshard_status check_units(const rs_rule_finding *found, int32_t ndim, const int64_t *shape)
{
    int64_t left[RESHARD_NDIM_MAX];
    memcpy(left, shape, (size_t)ndim * sizeof *shape);
    for (int32_t i = 0; i < found->cut_count; i++) {
        const reshard_cut *cut = &found->cuts[i];
        int32_t dim = rs_placement_dim(&cut->placement, ndim);
        if (dim < 0)
            continue;
        reshard_status status = RESHARD_OK;
        if (!found->origins[i]->is_uneven)
            status =
                check_cut(cut, found->is_even[i] || found->origins[i]->is_even, left[dim], found);
        if (status != RESHARD_OK)
            return rs_fail_within(status, RS_RULE_PLACE ": %s: dimension %" PRId32,
                                  RS_RULE_PLACE_OF(found->origins[i]),
                                  rs_rule_cut_words(found->sources[i]).text, dim);
        int64_t axis_size = found->mesh->sizes[cut->axis];
        int64_t max = cut->placement.max;
        left[dim] = rs_divide_up(left[dim], max > 0 ? rs_min(max, axis_size) : axis_size);
    }
    return RESHARD_OK;
}

/* ---- results --------------------------------------------------------------------------------- */

static reshard_status set_new_name(const rs_rule_finding *found, rs_rule_result *result)
{
    rs_number_scope scope = rs_rule_scope(found, found->rule, found->spans);
    size_t length = 0;
    if (found->rule->new_name.count == 0)
        return RESHARD_OK;
    reshard_status status = rs_rule_new_name(&scope, found->rule->new_name, NULL, 0, &length);
    if (status != RESHARD_OK)
        return status;
    result->new_name = rs_allocate(result->context, length + 1);
    if (result->new_name == NULL)
        return rs_allocation_status();
    result->new_name_bytes = length;
    result->new_name[length] = '\0';
    return rs_rule_new_name(&scope, found->rule->new_name, result->new_name, length, &length);
}

reshard_status rs_rule_finish(const rs_rule_finding *found, int32_t ndim, const int64_t *shape,
                              const int64_t *padded_shape, rs_rule_result *out_result)
{
    assert(found->rule != NULL && !found->is_drop);
    assert(ndim >= 0 && ndim <= RESHARD_NDIM_MAX);
    rs_rule_result result = {.ndim = ndim,
                             .rule = found->rule - found->rules->rules,
                             .line = found->rule->line,
                             .file_name = found->rule->file_name,
                             .context = found->rules->context};
    memcpy(result.shape, shape, (size_t)ndim * sizeof *shape);
    memcpy(result.padded_shape, padded_shape, (size_t)ndim * sizeof *shape);
    result.padded = memcmp(shape, padded_shape, (size_t)ndim * sizeof *shape) != 0;
    result.zeros = found->rule->is_zeros;
    reshard_status status = check_units(found, ndim, padded_shape);
    if (status == RESHARD_OK && found->memo == NULL)
        status = set_new_name(found, &result);
    if (status == RESHARD_OK)
        status = reshard_spec_create(result.context, found->mesh, found->cut_count, found->cuts,
                                     &result.spec);
    if (status == RESHARD_OK) {
        status =
            reshard_layout_create(result.context, result.spec, ndim, padded_shape, &result.layout);
        status = rs_fail_within(status, RS_RULE_PLACE, RS_RULE_PLACE_OF(found->rule));
    }
    if (status == RESHARD_OK)
        *out_result = result;
    else
        rs_rule_result_release(&result);
    return status;
}

void rs_rule_result_release(rs_rule_result *result)
{
    if (result == NULL)
        return;
    rs_release(result->context, result->new_name);
    reshard_layout_release(result->layout);
    reshard_spec_release(result->spec);
    *result = (rs_rule_result){.drop = false};
}

static bool lists(const reshard_placement *placement, int32_t coordinate)
{
    for (int32_t i = 0; i < placement->count; i++) {
        if (placement->values[i] == coordinate)
            return true;
    }
    return false;
}

bool rs_spec_zeros_at(const reshard_spec *spec, int32_t position, int32_t *out_like)
{
    const reshard_mesh *mesh = spec->mesh;
    int32_t like = position;
    for (int32_t i = 0; i < spec->cut_count; i++) {
        const reshard_cut *cut = &spec->cuts[i];
        int32_t stride = 1, size = mesh->sizes[cut->axis];
        for (int32_t k = cut->axis + 1; k < mesh->axis_count; k++)
            stride *= mesh->sizes[k];
        int32_t coordinate = position / stride % size;
        if (cut->placement.kind == RESHARD_AT && !lists(&cut->placement, coordinate))
            like += ((int32_t)cut->placement.values[0] - coordinate) * stride;
    }
    *out_like = like;
    return like != position;
}

/* Tensors with more dimensions than layouts support are kept whole. */
static reshard_status finish_large(const rs_rule_finding *found, rs_rule_result *out_result)
{
    const int64_t none[1] = {0};
    for (int32_t i = 0; i < found->cut_count; i++) {
        if (found->cuts[i].placement.kind == RESHARD_SHARD)
            return rs_fail(RESHARD_ERR_UNSUPPORTED,
                           RS_RULE_PLACE ": a tensor of more than %d dimensions cannot be cut",
                           RS_RULE_PLACE_OF(found->origins[i]), RESHARD_NDIM_MAX);
    }
    if (found->rule->pad_count != 0)
        return rs_fail(RESHARD_ERR_UNSUPPORTED,
                       RS_RULE_PLACE ": a tensor of more than %d dimensions cannot be padded",
                       RS_RULE_PLACE_OF(found->rule), RESHARD_NDIM_MAX);
    return rs_rule_finish(found, 0, none, none, out_result);
}

reshard_status rs_rule_result_make(const rs_rule_finding *found, rs_rule_result *out_result)
{
    int64_t padded[RESHARD_NDIM_MAX] = {0};
    if (found->ndim == 0)
        return found->is_large ? finish_large(found, out_result)
                               : rs_rule_finish(found, 0, padded, padded, out_result);
    memcpy(padded, found->shape, (size_t)found->ndim * sizeof *padded);
    reshard_status status = rs_rule_pad_shape(found, found->ndim, padded);
    if (status == RESHARD_OK)
        status = rs_rule_finish(found, found->ndim, found->shape, padded, out_result);
    return status;
}

rs_rule_result rs_rule_result_drop(const rs_rule_finding *found)
{
    assert(found->is_drop);
    return (rs_rule_result){.drop = true,
                            .rule = found->rule - found->rules->rules,
                            .line = found->rule->line,
                            .file_name = found->rule->file_name};
}

static reshard_status apply(rs_rule_finding *found, rs_rule_result *out_result)
{
    reshard_status status = rs_rule_find(found);
    if (status != RESHARD_OK)
        return status;
    if (!found->is_drop)
        return rs_rule_result_make(found, out_result);
    *out_result = rs_rule_result_drop(found);
    return RESHARD_OK;
}

reshard_status rs_rule_fail_for_tensor(reshard_status status, const char *name, size_t name_bytes,
                                       int32_t ndim, const int64_t *shape)
{
    char buffer[128] = "";
    rs_text text;
    rs_text_init(&text, buffer, sizeof buffer);
    if (shape != NULL)
        rs_text_add_shape(&text, ndim, shape);
    return rs_fail_within(status, shape != NULL ? "tensor \"%.*s\" (%s)" : "tensor \"%.*s\"%s",
                          (int)rs_min((int64_t)name_bytes, NAME_SHOWN), name, buffer);
}

rs_rule_finding rs_rule_finding_of(const rs_rules *rules, reshard_mesh *mesh,
                                   const rs_rules_keys *keys, const char *name, size_t name_bytes,
                                   int32_t ndim, const int64_t *shape)
{
    bool is_large = ndim > RESHARD_NDIM_MAX;
    return (rs_rule_finding){.rules = rules,
                             .mesh = mesh,
                             .keys = keys,
                             .name = name,
                             .name_bytes = name_bytes,
                             .is_large = is_large,
                             .ndim = is_large ? 0 : ndim,
                             .shape = is_large ? NULL : shape};
}

reshard_status rs_rules_apply(const rs_rules *rules, reshard_mesh *mesh, const rs_rules_keys *keys,
                              const char *name, size_t name_bytes, int32_t ndim,
                              const int64_t *shape, rs_rule_result *out_result)
{
    rs_rule_finding found = rs_rule_finding_of(rules, mesh, keys, name, name_bytes, ndim, shape);
    reshard_status status = apply(&found, out_result);
    rs_rule_finding_release(&found);
    return status == RESHARD_OK
               ? RESHARD_OK
               : rs_rule_fail_for_tensor(status, name, name_bytes, ndim, found.shape);
}

reshard_status rs_rules_scalar(const rs_rules *rules, reshard_mesh *mesh,
                               rs_rule_result *out_result)
{
    rs_rule_result result = {.file_name = rules->file_name, .context = rules->context};
    reshard_status status = reshard_spec_create(result.context, mesh, 0, NULL, &result.spec);
    if (status == RESHARD_OK)
        status =
            reshard_layout_create(result.context, result.spec, 0, result.shape, &result.layout);
    if (status == RESHARD_OK)
        *out_result = result;
    else
        rs_rule_result_release(&result);
    return status;
}

/* A refusal says why the whole model cannot be cut, so it is reported before errors in single
 * cuts. */
static reshard_status check_refusal(const rs_rule_finding *found)
{
    rs_number_scope scope = rs_rule_scope(found, found->rule, found->spans);
    reshard_status status = RESHARD_OK;
    for (int32_t i = 0; status == RESHARD_OK && i < found->rule->cut_count; i++) {
        int32_t axis = -1;
        reshard_spec *none = NULL;
        if (found->rule->cuts[i].refuses)
            status =
                rs_rule_read_cut(found, found->rule, &scope, &found->rule->cuts[i], &axis, &none);
    }
    return status;
}

reshard_status rs_rules_name(const rs_rules *rules, reshard_mesh *mesh, const rs_rules_keys *keys,
                             const char *name, size_t name_bytes, int32_t ndim,
                             const int64_t *shape, rs_rule_result *out_result)
{
    rs_rule_finding found = rs_rule_finding_of(rules, mesh, keys, name, name_bytes, ndim, shape);
    rs_rule_result result = {.context = rules->context};
    reshard_status status = rs_rule_match(&found);
    if (status == RESHARD_ERR_NOT_FOUND && found.is_unmatched) {
        *out_result = (rs_rule_result){.unmatched = true};
        return RESHARD_OK;
    }
    if (status == RESHARD_OK)
        status = check_refusal(&found);
    if (status == RESHARD_OK) {
        result.drop = found.is_drop;
        result.rule = found.rule - rules->rules;
        result.line = found.rule->line;
        result.file_name = found.rule->file_name;
        status = result.drop ? RESHARD_OK : set_new_name(&found, &result);
    }
    if (status == RESHARD_OK) {
        *out_result = result;
        return RESHARD_OK;
    }
    rs_rule_result_release(&result);
    return rs_rule_fail_for_tensor(status, name, name_bytes, ndim,
                                   ndim > RESHARD_NDIM_MAX ? NULL : shape);
}
