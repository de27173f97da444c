/* SPDX-License-Identifier: Apache-2.0 */
/*
 * select_rules.c - asks the rules about the selected tensors: which rule cuts each, which name it
 * gives, and which tensors it leaves out. An optimizer's state follows its parameter.
 */
#include "checkpoint/select/select.h"

#include "base/context.h"
#include "checkpoint/rules/model.h"
#include "checkpoint/rules/name_groups.h"
#include "text/text.h"

#include <assert.h>
#include <string.h>

#define UNMATCHED_BYTES 3600 /* for the list of names in an error text */

static void count_dropped(rs_selection *selection, rs_slice name, int32_t line)
{
    if (selection->dropped_count++ != 0)
        return;
    selection->dropped = name;
    selection->dropped_line = line;
}

/* Reports all tensors without a rule. `unmatched` has their indices in the selection. */
static reshard_status fail_unmatched(const rs_selection *selection, rs_arena *arena,
                                     const rs_rulebook *book, int64_t count,
                                     const int64_t *unmatched)
{
    char buffer[UNMATCHED_BYTES];
    rs_text text;
    rs_name_group *groups = NULL;
    int64_t group_count = 0;
    rs_named_shape *items = rs_arena_allocate_array(arena, (size_t)count, sizeof *items);
    if (items == NULL)
        return rs_allocation_status();
    for (int64_t i = 0; i < count; i++) {
        const rs_selected *item = &selection->items[unmatched[i]];
        const rs_stored_tensor *stored = item->stored;
        items[i] = (rs_named_shape){item->matched, stored->ndim, stored->shape};
    }
    reshard_status status = rs_name_groups_make(arena, count, items, &groups, &group_count);
    if (status != RESHARD_OK)
        return status;
    rs_text_init(&text, buffer, sizeof buffer);
    rs_name_groups_text(groups, group_count, sizeof buffer, &text);
    return rs_fail(RESHARD_ERR_NOT_FOUND, "no rule of %s matches %lld of %lld tensors: %s",
                   book->rules->file_name, (long long)count, (long long)selection->count, buffer);
}

static reshard_status take_new_name(rs_arena *arena, const rs_rule_result *result,
                                    rs_selected *item)
{
    rs_slice name = {rs_arena_copy(arena, result->new_name, result->new_name_bytes + 1, 1),
                     result->new_name_bytes};
    if (name.bytes == NULL)
        return rs_allocation_status();
    if (item->followed != NULL && item->followed->follows)
        return rs_followed_name(arena, item->followed, name, &item->name);
    item->name = name;
    return RESHARD_OK;
}

/* Finds the rule that matches a tensor, and the name that rules give it. */
static reshard_status ask_rules(rs_arena *arena, const rs_stored_tensor *stored,
                                const rs_rulebook *book, rs_selected *item, bool *out_unmatched,
                                bool *out_drops)
{
    const rs_followed *followed = item->followed;
    const rs_stored_tensor *named = followed != NULL ? followed->parameter : stored;
    rs_slice name = followed != NULL ? followed->parameter_name : item->matched;
    rs_rule_result result = {0}, own = {0};
    reshard_status status = rs_rules_name(book->rules, book->mesh, &book->keys, name.bytes,
                                          name.count, named->ndim, named->shape, &result);
    if (status == RESHARD_OK && result.new_name != NULL)
        status = take_new_name(arena, &result, item);
    *out_unmatched = result.unmatched;
    *out_drops = result.drop;
    item->rule = (int32_t)result.rule;
    /* A state with a different shape than its parameter is cut by a rule of its own. */
    if (status == RESHARD_OK && !result.drop && name.bytes != item->matched.bytes) {
        status = rs_rules_name(book->rules, book->mesh, &book->keys, item->matched.bytes,
                               item->matched.count, stored->ndim, stored->shape, &own);
        *out_unmatched = own.unmatched;
        *out_drops = own.drop;
        item->rule = (int32_t)own.rule;
    }
    if (*out_unmatched && stored->ndim == 0) {
        item->rule = RS_RULE_NONE;
        *out_unmatched = false;
    }
    rs_rule_result_release(&own);
    rs_rule_result_release(&result);
    return status;
}

reshard_status rs_selection_apply(rs_selection *selection, rs_arena *arena, const rs_rulebook *book)
{
    int64_t kept = 0, unmatched_count = 0;
    int64_t *unmatched = rs_arena_allocate_array(arena, (size_t)selection->count, sizeof(int64_t));
    if (unmatched == NULL)
        return rs_allocation_status();
    assert(book->rules != NULL);
    for (int64_t i = 0; i < selection->count; i++) {
        rs_selected item = selection->items[i];
        bool is_unmatched = false, drops = false;
        reshard_status status = ask_rules(arena, item.stored, book, &item, &is_unmatched, &drops);
        if (status != RESHARD_OK)
            return status;
        if (is_unmatched)
            unmatched[unmatched_count++] = i;
        else if (drops)
            count_dropped(selection, item.matched, book->rules->rules[item.rule].line);
        else if (unmatched_count == 0)
            selection->items[kept++] = item;
    }
    if (unmatched_count != 0)
        return fail_unmatched(selection, arena, book, unmatched_count, unmatched);
    selection->count = kept;
    return RESHARD_OK;
}
