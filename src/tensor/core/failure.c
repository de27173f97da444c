/* SPDX-License-Identifier: Apache-2.0 */
/* failure.c - see failure.h, which has the diagram. */
#include "tensor/core/failure.h"

#include "transport/agree.h"
#include "transport/group.h"

#include <reshard/group.h>

#include <assert.h>
#include <stdio.h>
#include <string.h>

void rs_scope_use_group(reshard_group *group)
{
    reshard_scope *scope = rs_thread_state_get()->scope;
    if (scope == NULL || scope->group == group)
        return;
    reshard_group_release(scope->group);
    scope->group = reshard_group_retain(group);
}

void rs_scope_note_told(reshard_group *group)
{
    rs_thread_state *state = rs_thread_state_get();
    if (state->scope == NULL)
        return;
    if (state->scope->failure == 0)
        state->scope->failure = ++state->failure_count;
    group->failure_told = state->scope->failure;
}

bool rs_scope_has_told(const reshard_scope *scope, const reshard_group *group)
{
    return scope->failure != 0 && group->failure_told == scope->failure;
}

void rs_scope_hand_on_failure(const reshard_scope *scope)
{
    if (scope->outer != NULL && scope->outer->failure == 0)
        scope->outer->failure = scope->failure;
}

reshard_status rs_agree_on(reshard_group *group, reshard_status status, const uint64_t digest[2],
                           const char *what, uint64_t number, bool *out_all_same)
{
    assert(group != NULL && what != NULL);
    char request[96];
    (void)snprintf(request, sizeof request, "%s: the request", what);
    rs_claim claim = {.what = request};
    uint64_t numbers[RS_AGREE_NUMBERS] = {number, ~number}; /* of which the largest come back */
    if (digest != NULL)
        memcpy(claim.digest, digest, sizeof claim.digest);
    rs_scope_use_group(group);
    status = rs_group_agree_on(group, status, digest != NULL ? &claim : NULL, numbers);
    if (status != RESHARD_OK) {
        rs_scope_note_told(group);
        return status;
    }
    group->failure_told = 0;
    if (out_all_same != NULL)
        *out_all_same = number != 0 && numbers[0] == number && numbers[1] == ~number;
    return RESHARD_OK;
}

reshard_status rs_agree(reshard_group *group, reshard_status status, const char *what)
{
    return rs_agree_on(group, status, NULL, what, 0, NULL);
}

void rs_agree_on_failure(void)
{
    const reshard_scope *scope = rs_thread_state_get()->scope;
    if (scope == NULL || scope->status == RESHARD_OK || scope->group == NULL ||
        rs_scope_has_told(scope, scope->group))
        return;
    (void)rs_agree(scope->group, reshard_scope_status(scope), "");
}
