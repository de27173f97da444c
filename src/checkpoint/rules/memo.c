/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memo.c - looks up cuts and results, and makes those that are not there yet.
 *
 * The memo has one spec for each axis and text, so comparing the addresses of specs tells whether
 * two lists of cuts are the same. A spec that is not from the memo (found->is_single) might have
 * the address of an earlier one, so its result is not shared.
 */
#include "checkpoint/rules/memo.h"

#include "base/context.h"
#include "base/error.h"
#include "checkpoint/rules/find.h"

#include <assert.h>
#include <string.h>

#define KEY_BYTES 256 /* a longer key is not kept, and its cut is evaluated for each tensor */

struct rs_memo_spec {
    reshard_spec *spec;
    struct rs_memo_spec *next;
};

struct rs_memo_result {
    rs_rule_result result;
    struct rs_memo_result *next;
};

void rs_rule_memo_init(rs_rule_memo *memo, reshard_context *context)
{
    *memo = (rs_rule_memo){.kept_specs = NULL};
    rs_arena_init(&memo->arena, context);
    rs_table_init(&memo->cuts, context);
    rs_table_init(&memo->texts, context);
    rs_table_init(&memo->results, context);
}

void rs_rule_memo_release(rs_rule_memo *memo)
{
    for (struct rs_memo_spec *kept = memo->kept_specs; kept != NULL; kept = kept->next)
        reshard_spec_release(kept->spec);
    for (struct rs_memo_result *kept = memo->kept_results; kept != NULL; kept = kept->next)
        rs_rule_result_release(&kept->result);
    rs_table_release(&memo->cuts);
    rs_table_release(&memo->texts);
    rs_table_release(&memo->results);
    rs_arena_release(&memo->arena);
    *memo = (rs_rule_memo){.kept_specs = NULL};
}

/* ---- cuts ------------------------------------------------------------------------------------ */

/* The address of the cut, and the values of the wildcards that it uses. Returns false if that is
 * too long. */
static bool write_cut_key(const rs_number_scope *scope, const rs_rule_cut *cut, char key[KEY_BYTES],
                          size_t *out_bytes)
{
    size_t used = sizeof cut;
    memcpy(key, &cut, sizeof cut);
    for (int32_t i = 0; i < scope->span_count; i++) {
        if ((cut->wildcards >> i & 1) == 0)
            continue;
        size_t length = scope->spans[i].end - scope->spans[i].start;
        if (length > KEY_BYTES - used - 1)
            return false;
        memcpy(key + used, scope->name + scope->spans[i].start, length);
        key[used + length] = '}'; /* a separator, because wildcards in numbers are digits */
        used += length + 1;
    }
    *out_bytes = used;
    return true;
}

static reshard_status keep_spec(rs_rule_memo *memo, reshard_spec *spec)
{
    struct rs_memo_spec *kept = rs_arena_allocate(&memo->arena, sizeof *kept);
    if (kept == NULL) {
        reshard_spec_release(spec);
        return rs_allocation_status();
    }
    *kept = (struct rs_memo_spec){spec, memo->kept_specs};
    memo->kept_specs = kept;
    return RESHARD_OK;
}

/* Finds or makes the one spec for this text on this axis. */
static reshard_status find_by_text(rs_rule_memo *memo, const rs_number_scope *scope,
                                   const rs_rule_cut *cut, int64_t axis_size,
                                   reshard_spec **out_spec)
{
    char key[sizeof cut->axis + RS_PLACEMENT_BYTES];
    char *text = key + sizeof cut->axis;
    reshard_spec *spec = NULL;
    /* a set has each axis name once, so its address will do */
    memcpy(key, &cut->axis, sizeof cut->axis);
    reshard_status status = rs_rule_placement_text(scope, cut->placement, axis_size, text);
    if (status != RESHARD_OK)
        return status;
    void **place = rs_table_at(&memo->texts, key, sizeof cut->axis + strlen(text));
    if (place == NULL)
        return rs_allocation_status();
    if (*place == NULL) {
        status = rs_rule_placement_read(memo->arena.context, text, cut->axis, axis_size, &spec);
        if (status == RESHARD_OK)
            status = keep_spec(memo, spec);
        if (status != RESHARD_OK)
            return status;
        *place = spec;
    }
    *out_spec = *place;
    return RESHARD_OK;
}

/* What A(i of n) has dealt to the axis so far. Few axes exist, and each name has one address. */
static rs_number_dealt *find_dealt(rs_rule_memo *memo, const char *axis)
{
    int32_t i = 0;
    while (i < memo->dealt_count && memo->dealt[i].axis != axis)
        i++;
    if (i == memo->dealt_count) {
        assert(i < RESHARD_AXES_MAX);
        memo->dealt[memo->dealt_count++] = (rs_memo_dealt){axis, {-1, 0}};
    }
    return &memo->dealt[i].items;
}

reshard_status rs_rule_memo_cut(rs_rule_memo *memo, const rs_number_scope *scope,
                                const rs_rule_cut *cut, int64_t axis_size, reshard_spec **out_spec)
{
    char key[KEY_BYTES];
    size_t bytes = 0;
    reshard_spec *spec = NULL;
    bool is_short = write_cut_key(scope, cut, key, &bytes);
    void **place = is_short ? rs_table_at(&memo->cuts, key, bytes) : NULL;
    if (is_short && place == NULL)
        return rs_allocation_status();
    if (place != NULL && *place != NULL) {
        *out_spec = reshard_spec_retain(*place);
        return RESHARD_OK;
    }
    rs_number_scope counting = *scope;
    counting.dealt = find_dealt(memo, cut->axis);
    reshard_status status = find_by_text(memo, &counting, cut, axis_size, &spec);
    if (status != RESHARD_OK)
        return status;
    if (place != NULL)
        *place = spec;
    *out_spec = reshard_spec_retain(spec);
    return RESHARD_OK;
}

/* ---- results --------------------------------------------------------------------------------- */

#define WORDS_MAX (3 + RESHARD_NDIM_MAX + 6 * RESHARD_AXES_MAX + 3 * RESHARD_NDIM_MAX)

/* Everything that rs_rule_finish depends on. */
static size_t write_result_key(const rs_rule_finding *found, int64_t words[WORDS_MAX])
{
    const rs_rule *first = found->rules->rules;
    size_t used = 0;
    words[used++] = found->rule - first;
    words[used++] = found->ndim;
    for (int32_t d = 0; d < found->ndim; d++)
        words[used++] = found->shape[d];
    words[used++] = found->cut_count;
    for (int32_t i = 0; i < found->cut_count; i++) {
        const reshard_cut *cut = &found->cuts[i];
        words[used++] = cut->axis;
        words[used++] = (int64_t)(intptr_t)found->placements[i];
        words[used++] = cut->placement.dim;
        words[used++] = cut->placement.unit;
        words[used++] = found->is_even[i];
        words[used++] = found->origins[i] - first;
    }
    for (int32_t i = 0; i < found->pad_count; i++) {
        words[used++] = found->pads[i].dim;
        words[used++] = found->pads[i].multiple;
        words[used++] = found->pads[i].true_size;
    }
    assert(used <= WORDS_MAX);
    return used * sizeof *words;
}

static reshard_status keep_result(rs_rule_memo *memo, rs_rule_result *result,
                                  const rs_rule_result **out_result)
{
    struct rs_memo_result *kept = rs_arena_allocate(&memo->arena, sizeof *kept);
    if (kept == NULL) {
        rs_rule_result_release(result);
        return rs_allocation_status();
    }
    *kept = (struct rs_memo_result){*result, memo->kept_results};
    memo->kept_results = kept;
    *out_result = &kept->result;
    return RESHARD_OK;
}

static reshard_status find_result(rs_rule_memo *memo, rs_rule_finding *found,
                                  const rs_rule_result **out_result)
{
    int64_t words[WORDS_MAX];
    rs_rule_result result = {.drop = false};
    void *none = NULL, **place = &none;
    reshard_status status = rs_rule_find(found);
    if (status != RESHARD_OK)
        return status;
    assert(!found->is_drop); /* rs_rules_name has sorted these out */
    if (!found->is_single && !found->is_large) {
        place = rs_table_at(&memo->results, words, write_result_key(found, words));
        if (place == NULL)
            return rs_allocation_status();
    }
    if (*place != NULL) {
        *out_result = *place;
        return RESHARD_OK;
    }
    status = rs_rule_result_make(found, &result);
    if (status == RESHARD_OK)
        status = keep_result(memo, &result, out_result);
    if (status == RESHARD_OK)
        *place = (void *)*out_result;
    return status;
}

reshard_status rs_rules_apply_found(rs_rule_memo *memo, const rs_rules *rules, reshard_mesh *mesh,
                                    const rs_rules_keys *keys, int64_t rule, const char *name,
                                    size_t name_bytes, int32_t ndim, const int64_t *shape,
                                    const rs_rule_result **out_result)
{
    rs_rule_finding found = rs_rule_finding_of(rules, mesh, keys, name, name_bytes, ndim, shape);
    found.first = rule;
    found.memo = memo;
    reshard_status status = find_result(memo, &found, out_result);
    rs_rule_finding_release(&found);
    return status == RESHARD_OK
               ? RESHARD_OK
               : rs_rule_fail_for_tensor(status, name, name_bytes, ndim, found.shape);
}

reshard_status rs_rules_apply_none(rs_rule_memo *memo, const rs_rules *rules, reshard_mesh *mesh,
                                   const rs_rule_result **out_result)
{
    rs_rule_result result = {.drop = false};
    void **place = rs_table_at(&memo->results, "", 0);
    if (place == NULL)
        return rs_allocation_status();
    if (*place != NULL) {
        *out_result = *place;
        return RESHARD_OK;
    }
    reshard_status status = rs_rules_scalar(rules, mesh, &result);
    if (status == RESHARD_OK)
        status = keep_result(memo, &result, out_result);
    if (status == RESHARD_OK)
        *place = (void *)*out_result;
    return status;
}
