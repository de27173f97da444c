/* SPDX-License-Identifier: Apache-2.0 */
/*
 * apply.c - what the rules say of one tensor on one mesh.
 *
 * The first rule that matches the name decides, except for the defaults (`every`): their cuts come
 * after its own, in the order of the lines, on axes that are not cut yet. A cut of an axis that the
 * mesh does not have is ignored, and its keys need no values.
 */
#include "base/checked.h"
#include "base/context.h"
#include "base/error.h"
#include "base/text.h"
#include "checkpoint/rules/find.h"
#include "spec/scan.h"

#include <assert.h>
#include <reshard/layout.h>

#include <inttypes.h>
#include <string.h>

#define NAME_SHOWN 200 /* bytes of a tensor's name in an error */

/* ---- which rule ------------------------------------------------------------------------------ */

static rs_number_scope scope_of(const rs_rule_finding *found, const rs_rule *rule,
                                const rs_glob_span *spans)
{
    return (rs_number_scope){.keys = found->keys,
                             .mesh = found->mesh,
                             .name = found->name,
                             .span_count = rule->glob.wildcard_count,
                             .spans = spans};
}

static reshard_status evaluate(const rs_number_scope *scope, rs_slice text, int64_t *out_number)
{
    rs_cursor cursor = {text.bytes, text.bytes + text.count};
    return rs_number_read(scope, &cursor, out_number);
}

/* True when the pattern matches and the condition holds. A condition without a value does not. */
static reshard_status matches_rule(const rs_rule_finding *found, const rs_rule *rule,
                                   rs_glob_span *spans, bool *out_matches)
{
    int64_t condition = 1;
    reshard_status status = rs_glob_try(found->rules->context, &rule->glob, found->name,
                                        found->name_bytes, spans, out_matches);
    if (status != RESHARD_OK || !*out_matches || rule->when.count == 0)
        return status;
    rs_number_scope scope = scope_of(found, rule, spans);
    status = evaluate(&scope, rule->when, &condition);
    *out_matches = status == RESHARD_OK && condition != 0;
    return status == RESHARD_ERR_NOT_FOUND ? RESHARD_OK : status;
}

static reshard_status find_rule(rs_rule_finding *found)
{
    const rs_rules *rules = found->rules;
    for (int64_t i = 0; i < rules->rule_count; i++) {
        const rs_rule *rule = &rules->rules[i];
        bool matches = false;
        if (rule->is_every)
            continue;
        reshard_status status = matches_rule(found, rule, found->spans, &matches);
        if (status != RESHARD_OK)
            return rs_fail_within(status, RS_RULE_PLACE, RS_RULE_PLACE_OF(rule));
        if (matches) {
            found->rule = rule;
            return RESHARD_OK;
        }
    }
    return rs_fail(RESHARD_ERR_NOT_FOUND, "no rule of %s matches its name", rules->file_name);
}

/* ---- its cuts -------------------------------------------------------------------------------- */

static bool is_cut(const rs_rule_finding *found, int32_t axis)
{
    for (int32_t i = 0; i < found->cut_count; i++) {
        if (found->cuts[i].axis == axis)
            return true;
    }
    return false;
}

/* The dimension that a cut concerns, counted from 0; -1 when the tensor does not have it, or when
 * the cut is flat. */
static int32_t dim_of(const reshard_placement *placement, int32_t ndim)
{
    int32_t dim = placement->dim;
    if (placement->kind != RESHARD_SHARD || dim == RESHARD_DIM_FLAT)
        return -1;
    dim = dim < 0 ? dim + ndim : dim;
    return dim >= 0 && dim < ndim ? dim : -1;
}

static reshard_status add_cut(rs_rule_finding *found, const rs_rule *rule,
                              const rs_number_scope *scope, const rs_rule_cut *cut)
{
    int32_t axis = reshard_mesh_find_axis(found->mesh, cut->axis);
    reshard_spec *spec = NULL;
    if (axis < 0 || is_cut(found, axis))
        return RESHARD_OK;
    int32_t axis_size = reshard_mesh_axis_size(found->mesh, axis);
    if (axis_size == 1 && cut->placement.bytes[0] != 'A')
        return RESHARD_OK; /* nothing is cut, so no key is needed */
    reshard_status status =
        rs_rule_placement_parse(found->rules->context, scope, cut, axis_size, &spec);
    if (status != RESHARD_OK)
        return rs_fail_within(status, RS_RULE_PLACE ": %s@%s", RS_RULE_PLACE_OF(rule),
                              rs_excerpt_of(cut->placement.bytes, cut->placement.count).text,
                              cut->axis);
    const reshard_placement *placement = &reshard_spec_cut(spec, 0)->placement;
    if (rule->is_every && placement->kind == RESHARD_SHARD && placement->dim != RESHARD_DIM_FLAT &&
        dim_of(placement, found->ndim) < 0) {
        reshard_spec_release(spec); /* a default applies only where it fits */
        return RESHARD_OK;
    }
    int32_t index = found->cut_count++;
    found->cuts[index] = (reshard_cut){.axis = axis, .placement = *placement};
    found->placements[index] = spec;
    found->origins[index] = rule;
    return RESHARD_OK;
}

static reshard_status add_cuts(rs_rule_finding *found, const rs_rule *rule,
                               const rs_glob_span *spans)
{
    rs_number_scope scope = scope_of(found, rule, spans);
    for (int32_t i = 0; i < rule->cut_count; i++) {
        reshard_status status = add_cut(found, rule, &scope, &rule->cuts[i]);
        if (status != RESHARD_OK)
            return status;
    }
    return RESHARD_OK;
}

static reshard_status add_defaults(rs_rule_finding *found)
{
    rs_glob_span spans[RS_GLOB_ELEMENTS_MAX];
    for (int64_t i = 0; i < found->rules->rule_count; i++) {
        const rs_rule *rule = &found->rules->rules[i];
        bool matches = false;
        if (!rule->is_every)
            continue;
        reshard_status status = matches_rule(found, rule, spans, &matches);
        if (status == RESHARD_OK && matches)
            status = add_cuts(found, rule, spans);
        if (status != RESHARD_OK)
            return status;
    }
    return RESHARD_OK;
}

reshard_status rs_rule_find(rs_rule_finding *found)
{
    assert(found->mesh != NULL && found->ndim >= 0 && found->cut_count == 0);
    reshard_status status = find_rule(found);
    if (status != RESHARD_OK || found->rule->is_drop)
        return status;
    status = add_cuts(found, found->rule, found->spans);
    if (status == RESHARD_OK)
        status = add_defaults(found);
    return status;
}

void rs_rule_finding_release(rs_rule_finding *found)
{
    for (int32_t i = 0; i < found->cut_count; i++)
        reshard_spec_release(found->placements[i]);
    found->cut_count = 0;
}

/* ---- padding --------------------------------------------------------------------------------- */

static reshard_status pad_one(const rs_number_scope *scope, const rs_rule_pad *pad, int32_t ndim,
                              int64_t *shape)
{
    int32_t dim = pad->dim < 0 ? pad->dim + ndim : pad->dim;
    int64_t multiple = 0, padded = 0;
    reshard_status status = evaluate(scope, pad->multiple, &multiple);
    if (status != RESHARD_OK)
        return status;
    if (dim < 0 || dim >= ndim)
        return rs_fail(RESHARD_ERR_INVALID, "pad: there is no dimension %" PRId32, pad->dim);
    if (multiple < 1)
        return rs_fail(RESHARD_ERR_RANGE, "pad: a multiple of %" PRId64, multiple);
    if (!rs_multiply(rs_divide_up(shape[dim], multiple), multiple, &padded))
        return rs_fail(RESHARD_ERR_RANGE, "pad: %" PRId64 " to a multiple of %" PRId64, shape[dim],
                       multiple);
    shape[dim] = padded;
    return RESHARD_OK;
}

reshard_status rs_rule_pad_shape(const rs_rule_finding *found, int32_t ndim, int64_t *shape)
{
    rs_number_scope scope = scope_of(found, found->rule, found->spans);
    for (int32_t i = 0; i < found->rule->pad_count; i++) {
        reshard_status status = pad_one(&scope, &found->rule->pads[i], ndim, shape);
        if (status != RESHARD_OK)
            return rs_fail_within(status, RS_RULE_PLACE, RS_RULE_PLACE_OF(found->rule));
    }
    return RESHARD_OK;
}

reshard_status rs_rule_unpad_shape(const rs_rule_finding *found, int32_t ndim, int64_t *shape,
                                   bool *out_unknown)
{
    rs_number_scope scope = scope_of(found, found->rule, found->spans);
    for (int32_t i = 0; i < found->rule->pad_count; i++) {
        const rs_rule_pad *pad = &found->rule->pads[i];
        int32_t dim = pad->dim < 0 ? pad->dim + ndim : pad->dim;
        int64_t true_size = 0;
        if (dim < 0 || dim >= ndim)
            continue;
        reshard_status status = RESHARD_ERR_NOT_FOUND;
        if (pad->true_size.count != 0)
            status = evaluate(&scope, pad->true_size, &true_size);
        if (status == RESHARD_ERR_NOT_FOUND) {
            *out_unknown = true;
            continue;
        }
        int64_t padded[RESHARD_NDIM_MAX] = {0};
        padded[dim] = true_size;
        if (status == RESHARD_OK)
            status = pad_one(&scope, pad, ndim, padded);
        if (status == RESHARD_OK && shape[dim] != true_size && shape[dim] != padded[dim])
            status = rs_fail(RESHARD_ERR_INVALID,
                             "pad: the files hold %" PRId64 " in dimension %" PRId32
                             ", but %" PRId64 " is padded to %" PRId64,
                             shape[dim], dim, true_size, padded[dim]);
        if (status != RESHARD_OK)
            return rs_fail_within(status, RS_RULE_PLACE, RS_RULE_PLACE_OF(found->rule));
        shape[dim] = true_size;
    }
    return RESHARD_OK;
}

/* ---- whole heads ----------------------------------------------------------------------------- */

/* Splits n elements into `pieces` distinct pieces of whole units; all must be of the same size. */
static reshard_status check_division(const reshard_cut *cut, int64_t n, int64_t max,
                                     const rs_rule_finding *found)
{
    int64_t unit = cut->placement.unit;
    int64_t axis_size = reshard_mesh_axis_size(found->mesh, cut->axis);
    int64_t pieces = max > 0 ? rs_min(max, axis_size) : axis_size;
    const char *axis = reshard_mesh_axis_name(found->mesh, cut->axis);
    if (n % unit != 0)
        return rs_fail(RESHARD_ERR_INVALID, "%" PRId64 " is no multiple of unit=%" PRId64, n, unit);
    if (axis_size % pieces != 0)
        return rs_fail(RESHARD_ERR_INVALID,
                       "max=%" PRId64 " pieces do not fill %s=%" PRId64 " evenly", pieces, axis,
                       axis_size);
    if (n / unit % pieces != 0)
        return rs_fail(RESHARD_ERR_INVALID,
                       "%" PRId64 " units of %" PRId64 " do not divide by %s=%" PRId64, n / unit,
                       unit, axis, axis_size);
    return RESHARD_OK;
}

static reshard_status check_cut(const reshard_cut *cut, int64_t n, const rs_rule_finding *found)
{
    const reshard_placement *placement = &cut->placement;
    if (placement->unit <= 1 || placement->rule == RESHARD_RAGGED ||
        placement->rule == RESHARD_CYCLIC)
        return RESHARD_OK;
    if (placement->rule == RESHARD_STRIDED) {
        if (n % placement->factor != 0)
            return rs_fail(RESHARD_ERR_INVALID, "%" PRId64 " is no multiple of %" PRId64 " chunks",
                           n, placement->factor);
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

/* A unit is a head, or a block that shares a scale. The spec language may deal out units unevenly,
 * but no model runs that way, so here it is an error. */
static reshard_status check_units(const rs_rule_finding *found, int32_t ndim, const int64_t *shape)
{
    int64_t left[RESHARD_NDIM_MAX];
    memcpy(left, shape, (size_t)ndim * sizeof *shape);
    for (int32_t i = 0; i < found->cut_count; i++) {
        const reshard_cut *cut = &found->cuts[i];
        int32_t dim = dim_of(&cut->placement, ndim);
        if (dim < 0)
            continue;
        reshard_status status = check_cut(cut, left[dim], found);
        if (status != RESHARD_OK)
            return rs_fail_within(status, RS_RULE_PLACE ": dimension %" PRId32,
                                  RS_RULE_PLACE_OF(found->origins[i]), dim);
        int64_t axis_size = reshard_mesh_axis_size(found->mesh, cut->axis);
        int64_t max = cut->placement.max;
        left[dim] = rs_divide_up(left[dim], max > 0 ? rs_min(max, axis_size) : axis_size);
    }
    return RESHARD_OK;
}

/* ---- results --------------------------------------------------------------------------------- */

static reshard_status set_new_name(const rs_rule_finding *found, rs_rule_result *result)
{
    rs_number_scope scope = scope_of(found, found->rule, found->spans);
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
    assert(found->rule != NULL && !found->rule->is_drop);
    assert(ndim >= 0 && ndim <= RESHARD_NDIM_MAX);
    rs_rule_result result = {.ndim = ndim,
                             .line = found->rule->line,
                             .file_name = found->rule->file_name,
                             .context = found->rules->context};
    memcpy(result.shape, shape, (size_t)ndim * sizeof *shape);
    memcpy(result.padded_shape, padded_shape, (size_t)ndim * sizeof *shape);
    result.padded = memcmp(shape, padded_shape, (size_t)ndim * sizeof *shape) != 0;
    reshard_status status = check_units(found, ndim, padded_shape);
    if (status == RESHARD_OK)
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
    if (result->new_name != NULL)
        rs_release(result->context, result->new_name, result->new_name_bytes + 1);
    reshard_layout_release(result->layout);
    reshard_spec_release(result->spec);
    *result = (rs_rule_result){.drop = false};
}

/* Tensors with more dimensions than layouts support are carried whole. */
static reshard_status finish_large(rs_rule_finding *found, rs_rule_result *out_result)
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

static reshard_status apply(rs_rule_finding *found, const int64_t *shape,
                            rs_rule_result *out_result)
{
    int64_t padded[RESHARD_NDIM_MAX] = {0};
    reshard_status status = rs_rule_find(found);
    if (status != RESHARD_OK)
        return status;
    if (found->rule->is_drop) {
        *out_result = (rs_rule_result){.drop = true, .line = found->rule->line};
        return RESHARD_OK;
    }
    if (found->ndim == 0)
        return found->is_large ? finish_large(found, out_result)
                               : rs_rule_finish(found, 0, padded, padded, out_result);
    memcpy(padded, shape, (size_t)found->ndim * sizeof *shape);
    status = rs_rule_pad_shape(found, found->ndim, padded);
    if (status == RESHARD_OK)
        status = rs_rule_finish(found, found->ndim, shape, padded, out_result);
    return status;
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

reshard_status rs_rules_apply(const rs_rules *rules, reshard_mesh *mesh, const rs_rules_keys *keys,
                              const char *name, size_t name_bytes, int32_t ndim,
                              const int64_t *shape, rs_rule_result *out_result)
{
    bool is_large = ndim > RESHARD_NDIM_MAX;
    rs_rule_finding found = {.rules = rules,
                             .mesh = mesh,
                             .keys = keys,
                             .name = name,
                             .name_bytes = name_bytes,
                             .is_large = is_large,
                             .ndim = is_large ? 0 : ndim};
    reshard_status status = apply(&found, shape, out_result);
    rs_rule_finding_release(&found);
    return status == RESHARD_OK
               ? RESHARD_OK
               : rs_rule_fail_for_tensor(status, name, name_bytes, ndim, is_large ? NULL : shape);
}

reshard_status rs_rules_name(const rs_rules *rules, reshard_mesh *mesh, const rs_rules_keys *keys,
                             const char *name, size_t name_bytes, int32_t ndim,
                             const int64_t *shape, rs_rule_result *out_result)
{
    rs_rule_finding found = {
        .rules = rules, .mesh = mesh, .keys = keys, .name = name, .name_bytes = name_bytes};
    rs_rule_result result = {.context = rules->context};
    reshard_status status = find_rule(&found);
    if (status == RESHARD_OK) {
        result.drop = found.rule->is_drop;
        result.line = found.rule->line;
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
