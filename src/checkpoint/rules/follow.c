/* SPDX-License-Identifier: Apache-2.0 */
/*
 * follow.c - like(): a tensor that belongs to another one, as scales belong to a weight, is cut in
 * the same way, whether the other one is in the checkpoint or not.
 *
 * like(x.weight, 1/n, 0) says that our dimension 0 goes with dimension 1 of the weight, where n
 * elements of the weight share one of ours, and our dimension 1 with dimension 0. A shared
 * dimension does not count in elements of the weight, so the weight's unit is dropped. It must
 * divide evenly instead, so that both tensors are cut at the same places.
 */
#include "base/checked.h"
#include "base/context.h"
#include "base/error.h"
#include "checkpoint/rules/find.h"
#include "spec/spec.h"
#include "text/text.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

/* Our dimension that goes with dimension `dim` of the followed tensor; -1: none. */
static int32_t find_own(const rs_rule *rule, int32_t dim)
{
    for (int32_t d = 0; d < rule->follow_count; d++) {
        if (rule->follows[d].dim == dim)
            return d;
    }
    return -1;
}

/* Makes the cut of a packed dimension whose parts are all shorter by the same factor as the
 * whole. */
static reshard_status shrink_packed(const rs_rule_finding *found, int32_t own,
                                    const reshard_placement *placement, int32_t axis,
                                    reshard_spec **out_spec)
{
    char buffer[RS_PLACEMENT_BYTES];
    rs_text text;
    int64_t whole = 0;
    for (int32_t i = 0; i < placement->count; i++)
        whole += placement->values[i];
    if (found->shape == NULL)
        return rs_fail(RESHARD_ERR_UNSUPPORTED,
                       "packed blocks cannot be read from files that do not give full shapes");
    int64_t length = found->shape[own];
    int64_t share = length > 0 && whole % length == 0 ? whole / length : 0;
    rs_text_init(&text, buffer, sizeof buffer);
    rs_text_add(&text, "S(%" PRId32 ";", own);
    for (int32_t i = 0; i < placement->count; i++) {
        int64_t part = placement->values[i];
        int64_t limit = placement->part_max != NULL ? placement->part_max[i] : 0;
        if (share == 0 || part % share != 0)
            return rs_fail(RESHARD_ERR_INVALID,
                           "part %" PRId32 " of %" PRId64 " is not whole in %" PRId64
                           " of %" PRId64,
                           i, part, length, whole);
        rs_text_add(&text, "%s%" PRId64, i == 0 ? "" : ",", part / share);
        if (limit > 0)
            rs_text_add(&text, "|%" PRId64, limit);
    }
    rs_text_add(&text, ")");
    const char *name = found->mesh->names[axis];
    rs_rule_cut cut = {.placement = {buffer, strlen(buffer)}, .axis = name};
    rs_number_scope scope = {.keys = found->keys, .mesh = found->mesh};
    return rs_rule_placement_parse(found->rules->context, &scope, &cut, found->mesh->sizes[axis],
                                   out_spec);
}

static reshard_status follow_cut(rs_rule_finding *found, const rs_rule_finding *other,
                                 const rs_rule_cut *cut)
{
    const rs_rule *rule = found->rule;
    rs_number_scope scope = rs_rule_scope(other, other->rule, other->spans);
    reshard_spec *spec = NULL, *shrunk = NULL;
    int32_t axis = -1;
    reshard_status status = rs_rule_read_cut(other, other->rule, &scope, cut, &axis, &spec);
    if (status != RESHARD_OK || spec == NULL)
        return status;
    reshard_placement placement = spec->cuts[0].placement;
    bool shares = false;
    if (placement.kind == RESHARD_SHARD) {
        int32_t own = placement.dim >= 0 ? find_own(rule, placement.dim) : -1;
        if (placement.dim < 0)
            status = rs_fail(RESHARD_ERR_UNSUPPORTED,
                             RS_RULE_PLACE ": like() cannot follow %s of " RS_RULE_PLACE
                                           ", which counts from the end",
                             RS_RULE_PLACE_OF(rule), rs_rule_cut_words(cut).text,
                             RS_RULE_PLACE_OF(other->rule));
        if (own < 0) {
            reshard_spec_release(spec);
            return status;
        }
        shares = rule->follows[own].shares;
        placement.dim = own;
        if (shares && placement.rule == RESHARD_PACKED) {
            status = shrink_packed(found, own, &placement, axis, &shrunk);
            found->is_single = true;
            reshard_spec_release(spec);
            spec = shrunk;
            if (status != RESHARD_OK)
                return rs_fail_within(status, RS_RULE_PLACE ": %s", RS_RULE_PLACE_OF(other->rule),
                                      rs_rule_cut_words(cut).text);
            placement = spec->cuts[0].placement;
        } else if (shares) {
            placement.unit = 0;
        }
    }
    rs_rule_add_placement(found, other->rule, cut, axis, &placement, shares, spec);
    return RESHARD_OK;
}

static bool cuts_own(const rs_rule_finding *found, int32_t own)
{
    for (int32_t i = 0; i < found->cut_count; i++) {
        if (rs_placement_dim(&found->cuts[i].placement, found->ndim) == own)
            return true;
    }
    return false;
}

/* If several rows of the followed tensor share one of ours, rows added by padding have none to
 * share. */
static reshard_status follow_pad(rs_rule_finding *found, const rs_rule_finding *other,
                                 const rs_rule_pad *pad)
{
    rs_number_scope scope = rs_rule_scope(other, other->rule, other->spans);
    rs_found_pad made = {.dim = pad->dim >= 0 ? find_own(found->rule, pad->dim) : -1};
    if (made.dim < 0)
        return RESHARD_OK;
    reshard_status status = rs_rule_read_pad(&scope, pad, &made.multiple, &made.true_size);
    if (status != RESHARD_OK)
        return rs_fail_within(status, RS_RULE_PLACE, RS_RULE_PLACE_OF(other->rule));
    if (!found->rule->follows[made.dim].shares) {
        found->pads[found->pad_count++] = made;
        return RESHARD_OK;
    }
    if (made.true_size >= 0 && made.true_size % made.multiple == 0)
        return RESHARD_OK;
    if (!cuts_own(found, made.dim))
        return RESHARD_OK;
    return rs_fail(RESHARD_ERR_UNSUPPORTED,
                   RS_RULE_PLACE ": pad to a multiple of %" PRId64
                                 ", of which packed or grouped rows cannot have a part",
                   RS_RULE_PLACE_OF(other->rule), made.multiple);
}

static reshard_status follow(rs_rule_finding *found, rs_rule_finding *other)
{
    other->ndim = RESHARD_NDIM_MAX; /* the followed tensor's shape is not known */
    reshard_status status = rs_rule_match(other);
    if (status != RESHARD_OK)
        return rs_fail_within(status, RS_RULE_PLACE ": like \"%.*s\"",
                              RS_RULE_PLACE_OF(found->rule),
                              (int)rs_min((int64_t)other->name_bytes, 200), other->name);
    const rs_rule *rule = other->rule;
    if (rule->like.count != 0 || rule->has_shape || rule->new_name.count != 0 || rule->is_drop)
        return rs_fail(RESHARD_ERR_UNSUPPORTED,
                       RS_RULE_PLACE ": like() cannot follow " RS_RULE_PLACE
                                     ", which has like(), name(), drop or a shape itself",
                       RS_RULE_PLACE_OF(found->rule), RS_RULE_PLACE_OF(rule));
    for (int32_t i = 0; status == RESHARD_OK && i < rule->cut_count; i++)
        status = follow_cut(found, other, &rule->cuts[i]);
    for (int32_t i = 0; status == RESHARD_OK && i < rule->pad_count; i++)
        status = follow_pad(found, other, &rule->pads[i]);
    return status;
}

reshard_status rs_rule_follow_other(rs_rule_finding *found)
{
    reshard_context *context = found->rules->context;
    rs_number_scope scope = rs_rule_scope(found, found->rule, found->spans);
    size_t length = 0;
    if (found->ndim != found->rule->follow_count)
        return rs_fail(RESHARD_ERR_INVALID,
                       RS_RULE_PLACE ": like() has %" PRId32
                                     " dimensions, but the tensor has %" PRId32,
                       RS_RULE_PLACE_OF(found->rule), found->rule->follow_count, found->ndim);
    reshard_status status = rs_rule_new_name(&scope, found->rule->like, NULL, 0, &length);
    char *name = status == RESHARD_OK ? rs_allocate(context, length + 1) : NULL;
    if (name == NULL)
        return status == RESHARD_OK ? rs_allocation_status() : status;
    status = rs_rule_new_name(&scope, found->rule->like, name, length, &length);
    rs_rule_finding other = {.rules = found->rules,
                             .mesh = found->mesh,
                             .keys = found->keys,
                             .name = name,
                             .name_bytes = length,
                             .memo = found->memo};
    if (status == RESHARD_OK)
        status = follow(found, &other);
    rs_release(context, name);
    return status;
}
