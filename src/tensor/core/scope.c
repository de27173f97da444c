/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scope.c - scopes: who owns the results of computations, and which error came first. The list of
 * owned tensors grows before a tensor is added, so no reference is ever lost.
 */
#include "tensor/core/scope.h"
#include "base/context.h"
#include "base/error.h"
#include "tensor/core/failure.h"

#include <reshard/group.h>

#include <assert.h>
#include <stddef.h>
#include <string.h>

/* ---- the stack of hooks ---------------------------------------------------------------------- */

static void pop(void)
{
    assert(rs_thread_state_get()->hooks != NULL);
    rs_thread_state *state = rs_thread_state_get();
    rs_hook_pair *entry = state->hooks;
    state->hooks = entry->outer;
    rs_release(entry->context, entry);
}

static bool is_on_stack(const rs_hook_pair *entry)
{
    const rs_hook_pair *at = rs_thread_state_get()->hooks;
    while (at != NULL && at != entry)
        at = at->outer;
    return at == entry;
}

void rs_hook_pairs_unwind(rs_hook_pair *until)
{
    /* The pair that was innermost when the scope opened may have been popped since. */
    if (until != NULL && !is_on_stack(until))
        return;
    while (rs_thread_state_get()->hooks != until)
        pop();
}

reshard_status reshard_saved_tensor_hooks_push(reshard_context *context,
                                               const reshard_saved_tensor_hooks *hooks)
{
    if (hooks->pack == NULL || hooks->unpack == NULL)
        return rs_fail(RESHARD_ERR_INVALID, "saved tensor hooks: %s is NULL",
                       hooks->pack == NULL ? "pack" : "unpack");
    rs_hook_pair *entry = rs_allocate(context, sizeof *entry);
    if (entry == NULL)
        return rs_allocation_status();
    rs_thread_state *state = rs_thread_state_get();
    *entry = (rs_hook_pair){.context = context, .hooks = *hooks, .outer = state->hooks};
    state->hooks = entry;
    return RESHARD_OK;
}

reshard_status reshard_saved_tensor_hooks_pop(void)
{
    if (rs_thread_state_get()->hooks == NULL)
        return rs_fail(RESHARD_ERR_INVALID, "saved tensor hooks: none are on the stack to pop");
    pop();
    return RESHARD_OK;
}

/* ---- scopes ---------------------------------------------------------------------------------- */

void rs_scope_enter(reshard_scope *scope, reshard_context *context)
{
    rs_thread_state *state = rs_thread_state_get();
    memset(scope, 0, offsetof(reshard_scope, error));
    scope->context = context;
    scope->outer = state->scope;
    scope->gradients_off = state->gradients_off;
    scope->hooks = state->hooks;
    state->scope = scope;
}

static void free_tensors(reshard_scope *scope)
{
    for (int64_t i = scope->count - 1; i >= 0; i--)
        reshard_tensor_release(scope->tensors[i]);
    rs_release(scope->context, scope->tensors);
    reshard_group_release(scope->group);
    scope->tensors = NULL;
    scope->group = NULL;
    scope->count = scope->capacity = 0;
}

reshard_status reshard_scope_status(const reshard_scope *scope)
{
    return scope->status == RESHARD_OK ? RESHARD_OK : rs_fail_again(&scope->error);
}

reshard_status rs_scope_failed(void)
{
    assert(rs_thread_state_get()->scope != NULL);
    return reshard_scope_status(rs_thread_state_get()->scope);
}

reshard_status rs_scope_leave(reshard_scope *scope)
{
    assert(rs_thread_state_get()->scope == scope);
    rs_thread_state *state = rs_thread_state_get();
    state->scope = scope->outer;
    if (scope->group != NULL)
        rs_scope_use_group(scope->group);
    if (scope->status != RESHARD_OK)
        rs_scope_hand_on_failure(scope);
    state->gradients_off = scope->gradients_off;
    rs_hook_pairs_unwind(scope->hooks);
    free_tensors(scope);
    return reshard_scope_status(scope);
}

reshard_status reshard_scope_open(reshard_context *context, reshard_scope **out_scope)
{
    reshard_scope *scope = rs_allocate(context, sizeof *scope);
    if (scope == NULL)
        return rs_allocation_status();
    rs_scope_enter(scope, context);
    *out_scope = scope;
    return RESHARD_OK;
}

static bool is_open(const reshard_scope *scope)
{
    const reshard_scope *open = rs_thread_state_get()->scope;
    while (open != NULL && open != scope)
        open = open->outer;
    return open != NULL;
}

reshard_status reshard_scope_close(reshard_scope *scope)
{
    if (scope == NULL || !is_open(scope))
        return rs_fail(RESHARD_ERR_INVALID, "close: the scope is not open on this thread");
    for (bool last = false; !last;) {
        reshard_scope *inner = rs_thread_state_get()->scope;
        last = inner == scope;
        reshard_status status = rs_scope_leave(inner);
        if (status != RESHARD_OK && !last)
            (void)rs_scope_fail(status); /* the enclosing scope reports it */
        rs_release(inner->context, inner);
        if (last)
            return status;
    }
    return RESHARD_OK;
}

int reshard_scope_failed(void)
{
    const reshard_scope *scope = rs_thread_state_get()->scope;
    return scope == NULL || scope->status != RESHARD_OK;
}

reshard_status reshard_scope_note(reshard_status status)
{
    if (status != RESHARD_OK)
        (void)rs_scope_fail(status);
    return status;
}

reshard_tensor *rs_scope_fail(reshard_status status)
{
    assert(status != RESHARD_OK);
    reshard_scope *scope = rs_thread_state_get()->scope;
    if (scope != NULL && scope->status == RESHARD_OK) {
        scope->status = status;
        if (scope->failure == 0)
            scope->failure = ++rs_thread_state_get()->failure_count;
        scope->error = *rs_error_last();
        scope->error.status = status;
    }
    return NULL;
}

reshard_context *rs_scope_context(void)
{
    reshard_scope *scope = rs_thread_state_get()->scope;
    return scope != NULL ? scope->context : NULL;
}

static reshard_status own_in(reshard_scope *scope, reshard_tensor *tensor)
{
    assert(scope != NULL && scope->count <= scope->capacity);
    reshard_status status = rs_grow(scope->context, &scope->tensors, &scope->capacity,
                                    scope->count + 1, sizeof *scope->tensors);
    if (status != RESHARD_OK)
        return status;
    scope->tensors[scope->count++] = tensor;
    return RESHARD_OK;
}

reshard_tensor *rs_scope_own(reshard_tensor *tensor)
{
    if (tensor == NULL)
        return NULL;
    reshard_status status = own_in(rs_thread_state_get()->scope, tensor);
    if (status == RESHARD_OK)
        return tensor;
    reshard_tensor_release(tensor);
    return rs_scope_fail(status);
}

reshard_tensor *rs_scope_finish(reshard_status status, reshard_tensor *tensor)
{
    if (status == RESHARD_OK)
        return rs_scope_own(tensor);
    reshard_tensor_release(tensor);
    return rs_scope_fail(status);
}

reshard_tensor *reshard_scope_keep(reshard_tensor *tensor)
{
    reshard_scope *scope = rs_thread_state_get()->scope;
    if (tensor == NULL || scope == NULL)
        return tensor;
    reshard_status status =
        own_in(scope->outer != NULL ? scope->outer : scope, reshard_tensor_retain(tensor));
    if (status == RESHARD_OK)
        return tensor;
    reshard_tensor_release(tensor);
    return rs_scope_fail(status);
}
