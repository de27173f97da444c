/* SPDX-License-Identifier: Apache-2.0 */
/*
 * find.c - finds a tensor's rule and cuts.
 *
 * The first rule whose pattern matches and whose shape fits decides. After its own cuts come those
 * of the defaults (`every`), in the order of the lines, on axes that are not cut yet. A cut of an
 * axis that the mesh does not have is ignored, and its keys need no values.
 *
 * Invariants:
 *  1. Once a name has matched a pattern with a shape, no rule without a shape can take it.
 *  2. If a shape fits two rules with the same pattern and neither is a special case of the other,
 *     as with a square matrix, nothing tells which one is meant. This is an error, unless the first
 *     rule has a condition on a text, such as the model_type.
 */
#include "checkpoint/rules/find.h"
#include "base/checked.h"
#include "base/error.h"
#include "spec/spec.h"
#include "text/text.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

rs_number_scope rs_rule_scope(const rs_rule_finding *found, const rs_rule *rule,
                              const rs_glob_span *spans)
{
    return (rs_number_scope){.keys = found->keys,
                             .mesh = found->mesh,
                             .name = found->name,
                             .span_count = rule->glob.wildcard_count,
                             .spans = spans,
                             .default_count = found->rules->default_count,
                             .defaults = found->rules->defaults,
                             .same_count = found->rules->same_count,
                             .same = found->rules->same};
}

static reshard_status evaluate(const rs_number_scope *scope, rs_slice text, int64_t *out_number)
{
    rs_cursor cursor = {text.bytes, text.bytes + text.count};
    return rs_number_read(scope, &cursor, out_number);
}

/* ---- conditions ------------------------------------------------------------------------------ */

/* Whether the key's text is one of "a|b". */
static bool text_is_one_of(const rs_rules_keys *keys, rs_slice key, rs_slice words)
{
    char name[RS_KEY_BYTES];
    assert(key.count < sizeof name);
    memcpy(name, key.bytes, key.count);
    name[key.count] = '\0';
    const char *text = rs_key_text(keys, name);
    size_t length = text != NULL ? strlen(text) : 0;
    const char *at = words.bytes, *end = words.bytes + words.count;
    while (text != NULL && at <= end) {
        const char *bar = at < end ? memchr(at, '|', (size_t)(end - at)) : NULL;
        const char *stop = bar != NULL ? bar : end;
        if ((size_t)(stop - at) == length && memcmp(at, text, length) == 0)
            return true;
        at = stop + 1;
    }
    return false;
}

/* Whether the pattern matches and the conditions hold. A condition on a key without a value does
 * not. */
static reshard_status matches_rule(const rs_rule_finding *found, const rs_rule *rule,
                                   rs_glob_span *spans, bool *out_matches)
{
    int64_t condition = 1;
    *out_matches = false;
    if (rule->is_void)
        return RESHARD_OK;
    reshard_status status = rs_glob_try(found->rules->context, &rule->glob, found->name,
                                        found->name_bytes, spans, out_matches);
    if (status != RESHARD_OK || !*out_matches)
        return status;
    if (rule->when_key.count != 0)
        *out_matches = text_is_one_of(found->keys, rule->when_key, rule->when_words);
    if (rule->when.count == 0)
        return RESHARD_OK;
    rs_number_scope scope = rs_rule_scope(found, rule, spans);
    status = evaluate(&scope, rule->when, &condition);
    *out_matches = status == RESHARD_OK && condition != 0;
    return status == RESHARD_ERR_NOT_FOUND ? RESHARD_OK : status;
}

void rs_rules_forget_pads(rs_rules *rules)
{
    for (int64_t i = 0; i < rules->rule_count; i++)
        rules->rules[i].pad_count = 0;
}

reshard_status rs_rules_bind(rs_rules *rules, rs_tensor_name_fn names, void *user)
{
    for (int64_t i = 0; names != NULL && i < rules->rule_count; i++) {
        rs_rule *rule = &rules->rules[i];
        const char *name;
        size_t bytes = 0;
        if (rule->without_text.count == 0)
            continue;
        for (int64_t k = 0; !rule->is_void && (name = names(user, k, &bytes)) != NULL; k++) {
            reshard_status status = RESHARD_OK;
            if (bytes <= RS_GLOB_NAME_MAX)
                status =
                    rs_glob_try(rules->context, &rule->without, name, bytes, NULL, &rule->is_void);
            if (status != RESHARD_OK)
                return status;
        }
    }
    return RESHARD_OK;
}

/* ---- shapes ---------------------------------------------------------------------------------- */

static bool is_any(rs_slice item)
{
    return item.count == 1 && item.bytes[0] == '*';
}

static reshard_status shape_fits(const rs_rule_finding *found, const rs_rule *rule,
                                 const rs_glob_span *spans, const int64_t *shape, bool *out_fits)
{
    rs_number_scope scope = rs_rule_scope(found, rule, spans);
    *out_fits = !rule->has_shape || (rule->shape_ndim == found->ndim && !found->is_large);
    for (int32_t d = 0; *out_fits && shape != NULL && d < rule->shape_ndim; d++) {
        int64_t wanted = shape[d];
        reshard_status status = RESHARD_OK;
        if (!is_any(rule->shape[d]))
            status = evaluate(&scope, rule->shape[d], &wanted);
        if (status != RESHARD_OK)
            return rs_fail_within(status, RS_RULE_PLACE ": shape", RS_RULE_PLACE_OF(rule));
        *out_fits = wanted == shape[d];
    }
    return RESHARD_OK;
}

reshard_status rs_rule_fits(const rs_rule_finding *found, const int64_t *shape, bool *out_fits)
{
    return shape_fits(found, found->rule, found->spans, shape, out_fits);
}

static reshard_status fail_misfit(const rs_rule_finding *found)
{
    const rs_rule *rule = found->misfit;
    rs_glob_span spans[RS_GLOB_ELEMENTS_MAX];
    char buffer[160];
    bool matches = false;
    rs_text text;
    (void)matches_rule(found, rule, spans, &matches); /* called for the spans */
    rs_number_scope scope = rs_rule_scope(found, rule, spans);
    rs_text_init(&text, buffer, sizeof buffer);
    for (int32_t d = 0; d < rule->shape_ndim; d++) {
        int64_t wanted = 0;
        rs_text_add(&text, d == 0 ? "" : ", ");
        if (is_any(rule->shape[d]) || evaluate(&scope, rule->shape[d], &wanted) != RESHARD_OK)
            rs_text_add(&text, "%.*s", (int)rule->shape[d].count, rule->shape[d].bytes);
        else
            rs_text_add(&text, "%" PRId64, wanted);
    }
    return rs_fail(RESHARD_ERR_INVALID,
                   "its shape fits no rule of its name: " RS_RULE_PLACE ": %s is for [%s]",
                   RS_RULE_PLACE_OF(rule),
                   rs_excerpt_of(rule->glob_text.bytes, rule->glob_text.count).text, buffer);
}

/* Whether, going by the texts, every shape that fits `special` also fits `general`. */
static bool is_special_case(const rs_rule *special, const rs_rule *general)
{
    for (int32_t d = 0; d < special->shape_ndim; d++) {
        if (!is_any(general->shape[d]) &&
            rs_slice_compare(general->shape[d], special->shape[d]) != 0)
            return false;
    }
    return true;
}

/* Fails if the shape also fits another rule with the same pattern in the same file. */
static reshard_status check_clear(const rs_rule_finding *found)
{
    const rs_rule *rule = found->rule;
    const rs_rule *end = found->rules->rules + found->rules->rule_count;
    for (const rs_rule *other = rule + 1; other < end; other++) {
        rs_glob_span spans[RS_GLOB_ELEMENTS_MAX];
        bool fits = false;
        if (other->is_every || !other->has_shape || other->file_name != rule->file_name ||
            other->shape_ndim != rule->shape_ndim ||
            rs_slice_compare(other->glob_text, rule->glob_text) != 0 ||
            is_special_case(rule, other))
            continue;
        reshard_status status = matches_rule(found, other, spans, &fits);
        if (status == RESHARD_OK && fits)
            status = shape_fits(found, other, spans, found->shape, &fits);
        if (status != RESHARD_OK)
            return status;
        if (fits)
            return rs_fail(RESHARD_ERR_INVALID,
                           "its shape fits " RS_RULE_PLACE " and " RS_RULE_PLACE
                           " equally well, and model_type in config.json does not say how it is "
                           "stored; give rules of your own",
                           RS_RULE_PLACE_OF(rule), RS_RULE_PLACE_OF(other));
    }
    return RESHARD_OK;
}

/* ---- which rule ------------------------------------------------------------------------------ */

reshard_status rs_rule_match(rs_rule_finding *found)
{
    const rs_rules *rules = found->rules;
    for (int64_t i = found->first; i < rules->rule_count; i++) {
        const rs_rule *rule = &rules->rules[i];
        bool matches = false, fits = false;
        if (rule->is_every)
            continue;
        reshard_status status = matches_rule(found, rule, found->spans, &matches);
        if (status != RESHARD_OK)
            return rs_fail_within(status, RS_RULE_PLACE, RS_RULE_PLACE_OF(rule));
        if (!matches)
            continue;
        if (found->misfit != NULL && !rule->has_shape)
            break;
        status = shape_fits(found, rule, found->spans, found->shape, &fits);
        if (status != RESHARD_OK)
            return status;
        if (fits) {
            found->rule = rule;
            found->is_drop = rule->is_drop;
            bool may_be_square = rule->has_shape && found->shape != NULL;
            return may_be_square && rule->when_key.count == 0 ? check_clear(found) : RESHARD_OK;
        }
        if (found->misfit == NULL)
            found->misfit = rule;
    }
    if (found->misfit != NULL)
        return fail_misfit(found);
    found->is_unmatched = true;
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

int32_t rs_placement_dim(const reshard_placement *placement, int32_t ndim)
{
    int32_t dim = placement->dim;
    if (placement->kind != RESHARD_SHARD || dim == RESHARD_DIM_FLAT)
        return -1;
    dim = dim < 0 ? dim + ndim : dim;
    return dim >= 0 && dim < ndim ? dim : -1;
}

rs_excerpt rs_rule_cut_words(const rs_rule_cut *cut)
{
    char words[RS_EXCERPT_BYTES + 80];
    rs_text text;
    rs_text_init(&text, words, sizeof words);
    rs_text_add(&text, "%.*s@%s", (int)rs_min((int64_t)cut->placement.count, RS_EXCERPT_BYTES),
                cut->placement.bytes, cut->axis);
    return rs_excerpt_of(words, strlen(words));
}

reshard_status rs_rule_read_cut(const rs_rule_finding *found, const rs_rule *rule,
                                const rs_number_scope *scope, const rs_rule_cut *cut,
                                int32_t *out_axis, reshard_spec **out_spec)
{
    int32_t axis = rs_mesh_find_axis(found->mesh, cut->axis);
    if (axis < 0)
        return RESHARD_OK;
    int32_t axis_size = found->mesh->sizes[axis];
    if (axis_size == 1 && (cut->refuses || cut->placement.bytes[0] != 'A'))
        return RESHARD_OK; /* nothing is cut, so no key is needed */
    if (cut->refuses)
        return rs_fail(RESHARD_ERR_UNSUPPORTED, RS_RULE_PLACE ": %s=%" PRId32 ": %.*s",
                       RS_RULE_PLACE_OF(rule), cut->axis, axis_size, RS_SHOWN(cut->placement));
    *out_axis = axis;
    reshard_status status =
        found->memo != NULL
            ? rs_rule_memo_cut(found->memo, scope, cut, axis_size, out_spec)
            : rs_rule_placement_parse(found->rules->context, scope, cut, axis_size, out_spec);
    if (status == RESHARD_OK)
        return RESHARD_OK;
    return rs_fail_within(status, RS_RULE_PLACE ": %s", RS_RULE_PLACE_OF(rule),
                          rs_rule_cut_words(cut).text);
}

void rs_rule_add_placement(rs_rule_finding *found, const rs_rule *rule, const rs_rule_cut *source,
                           int32_t axis, const reshard_placement *placement, bool is_even,
                           reshard_spec *spec)
{
    int32_t index = found->cut_count++;
    assert(index < RESHARD_AXES_MAX);
    found->cuts[index] = (reshard_cut){.axis = axis, .placement = *placement};
    found->placements[index] = spec;
    found->origins[index] = rule;
    found->sources[index] = source;
    found->is_even[index] = is_even;
}

static reshard_status add_cuts(rs_rule_finding *found, const rs_rule *rule,
                               const rs_glob_span *spans)
{
    rs_number_scope scope = rs_rule_scope(found, rule, spans);
    for (int32_t i = 0; i < rule->cut_count; i++) {
        int32_t axis = rs_mesh_find_axis(found->mesh, rule->cuts[i].axis);
        reshard_spec *spec = NULL;
        if (axis >= 0 && is_cut(found, axis))
            continue;
        reshard_status status = rs_rule_read_cut(found, rule, &scope, &rule->cuts[i], &axis, &spec);
        if (status != RESHARD_OK)
            return status;
        if (spec == NULL)
            continue;
        const reshard_placement *placement = &spec->cuts[0].placement;
        if (rule->is_every && placement->kind == RESHARD_SHARD &&
            placement->dim != RESHARD_DIM_FLAT && rs_placement_dim(placement, found->ndim) < 0)
            reshard_spec_release(spec); /* a default applies only where it fits */
        else
            rs_rule_add_placement(found, rule, &rule->cuts[i], axis, placement, false, spec);
    }
    return RESHARD_OK;
}

/* Whether the rule cuts an axis of the mesh that is not cut yet. */
static bool can_add(const rs_rule_finding *found, const rs_rule *rule)
{
    for (int32_t i = 0; i < rule->cut_count; i++) {
        int32_t axis = rs_mesh_find_axis(found->mesh, rule->cuts[i].axis);
        if (axis >= 0 && !is_cut(found, axis))
            return true;
    }
    return false;
}

/* Checks first what a match could add, which is usually nothing: matching the name takes longer. */
static reshard_status add_defaults(rs_rule_finding *found)
{
    rs_glob_span spans[RS_GLOB_ELEMENTS_MAX];
    for (int64_t i = 0; i < found->rules->rule_count; i++) {
        const rs_rule *rule = &found->rules->rules[i];
        bool matches = false;
        if (!rule->is_every || !can_add(found, rule))
            continue;
        reshard_status status = matches_rule(found, rule, spans, &matches);
        if (status == RESHARD_OK && matches)
            status = add_cuts(found, rule, spans);
        if (status != RESHARD_OK)
            return status;
    }
    return RESHARD_OK;
}

reshard_status rs_rule_read_pad(const rs_number_scope *scope, const rs_rule_pad *pad,
                                int64_t *out_multiple, int64_t *out_true_size)
{
    reshard_status status = evaluate(scope, pad->multiple, out_multiple);
    if (status == RESHARD_OK && *out_multiple < 1)
        status = rs_fail(RESHARD_ERR_RANGE, "pad: a multiple of %" PRId64, *out_multiple);
    *out_true_size = -1;
    if (status != RESHARD_OK || pad->true_size.count == 0)
        return status;
    status = evaluate(scope, pad->true_size, out_true_size);
    if (status == RESHARD_ERR_NOT_FOUND) {
        *out_true_size = -1;
        return RESHARD_OK;
    }
    return status;
}

static reshard_status add_pads(rs_rule_finding *found)
{
    const rs_rule *rule = found->rule;
    rs_number_scope scope = rs_rule_scope(found, rule, found->spans);
    for (int32_t i = 0; i < rule->pad_count && !found->is_large; i++) {
        const rs_rule_pad *pad = &rule->pads[i];
        rs_found_pad made = {.dim = pad->dim < 0 ? pad->dim + found->ndim : pad->dim};
        reshard_status status = rs_rule_read_pad(&scope, pad, &made.multiple, &made.true_size);
        if (status == RESHARD_OK && (made.dim < 0 || made.dim >= found->ndim))
            status = rs_fail(RESHARD_ERR_INVALID, "pad: there is no dimension %" PRId32, pad->dim);
        /* The parser cannot know that -1 and 1 are the same dimension. */
        for (int32_t k = 0; status == RESHARD_OK && k < found->pad_count; k++) {
            if (found->pads[k].dim == made.dim)
                status = rs_fail(RESHARD_ERR_INVALID, "pad: dimension %" PRId32 " twice", made.dim);
        }
        if (status != RESHARD_OK)
            return rs_fail_within(status, RS_RULE_PLACE, RS_RULE_PLACE_OF(rule));
        found->pads[found->pad_count++] = made;
    }
    return RESHARD_OK;
}

reshard_status rs_rule_find(rs_rule_finding *found)
{
    assert(found->mesh != NULL && found->ndim >= 0 && found->cut_count == 0);
    reshard_status status = rs_rule_match(found);
    if (status != RESHARD_OK || found->is_drop)
        return status;
    if (found->rule->like.count != 0) {
        status = rs_rule_follow_other(found);
    } else {
        status = add_cuts(found, found->rule, found->spans);
        if (status == RESHARD_OK)
            status = add_pads(found);
    }
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
