/* SPDX-License-Identifier: Apache-2.0 */
/*
 * call.c - values, and calls of modules. A call has a scope of its own, which frees everything but
 * the output; the graph holds what backward needs. A call may call its own module again, and hooks
 * may be added and removed while it runs. So the lists of hooks only grow during calls, and a call
 * skips hooks that were added after it began.
 */
#include "base/context.h"
#include "base/error.h"
#include "nn/module.h"
#include "tensor/core/dense.h"
#include "tensor/core/scope.h"

#include <string.h>

/* ---- values ---------------------------------------------------------------------------------- */

static const reshard_value failed = {.kind = RESHARD_VALUE_FAILED};

static reshard_value fail_value(reshard_status status)
{
    (void)rs_scope_fail(status);
    return failed;
}

reshard_value reshard_value_of(reshard_tensor *tensor)
{
    return tensor != NULL ? (reshard_value){.kind = RESHARD_VALUE_TENSOR, .tensor = tensor}
                          : failed;
}

/* The list lies in a tensor of bytes, which the scope owns like any other tensor. */
reshard_value reshard_value_list(int32_t count, const reshard_value *items)
{
    if (rs_thread_state_get()->scope == NULL || count < 0)
        return fail_value(rs_fail(RESHARD_ERR_INVALID, "a list of %d values: %s", count,
                                  count < 0 ? "the count is negative" : "no scope is open"));
    for (int32_t i = 0; i < count; i++) {
        if (items[i].kind == RESHARD_VALUE_FAILED)
            return failed;
    }
    reshard_tensor *memory = NULL;
    int64_t bytes = (int64_t)count * (int64_t)sizeof *items;
    reshard_status status = rs_result(RESHARD_U8, 1, &bytes, &memory);
    if (status != RESHARD_OK)
        return fail_value(status);
    memory = rs_scope_own(memory);
    if (memory == NULL)
        return failed;
    if (count > 0)
        memcpy(memory->data, items, (size_t)bytes);
    return (reshard_value){
        .kind = RESHARD_VALUE_LIST, .count = count, .items = (const void *)memory->data};
}

static const char *name_kind(reshard_value value)
{
    static const char *const names[] = {"nothing", "a tensor", "a list", "a failure"};
    return names[value.kind];
}

reshard_tensor *reshard_value_tensor(reshard_value value)
{
    if (value.kind == RESHARD_VALUE_TENSOR)
        return value.tensor;
    if (value.kind != RESHARD_VALUE_FAILED)
        (void)fail_value(
            rs_fail(RESHARD_ERR_INVALID, "expected a tensor, not %s", name_kind(value)));
    return NULL;
}

reshard_value reshard_value_item(reshard_value list, int32_t index)
{
    if (list.kind == RESHARD_VALUE_FAILED)
        return failed;
    if (list.kind != RESHARD_VALUE_LIST)
        return fail_value(rs_fail(RESHARD_ERR_INVALID, "expected a list, not %s", name_kind(list)));
    if (index < 0 || index >= list.count)
        return fail_value(
            rs_fail(RESHARD_ERR_RANGE, "item %d of a list of %d values", index, list.count));
    return list.items[index];
}

/* ---- calling --------------------------------------------------------------------------------- */

/* One call under way. */
typedef struct call {
    reshard_module *module;
    uint64_t serial;  /* of the newest hook that takes part */
    uint64_t reached; /* serial of the last forward hook called in its turn; 0: none */
    reshard_value input, output;
} call;

static bool takes_part(const call *c, const rs_hook_entry *entry)
{
    return !entry->removed && entry->serial <= c->serial;
}

static bool scope_failed(void)
{
    return rs_thread_state_get()->scope->status != RESHARD_OK;
}

static reshard_status run_pre_hooks(call *c)
{
    reshard_status status = RESHARD_OK;
    for (rs_hook_entry *entry = c->module->hooks[RS_HOOK_PRE];
         entry != NULL && status == RESHARD_OK; entry = entry->next) {
        if (!takes_part(c, entry))
            continue;
        status = entry->pre(entry->user, c->module, &c->input);
        status = rs_fail_within(status, "forward pre-hook of %s", c->module->kind_name);
    }
    return status;
}

static reshard_status run_forward(call *c)
{
    rs_hook_entry *around = c->module->hooks[RS_HOOK_AROUND];
    while (around != NULL && !takes_part(c, around))
        around = around->next;
    rs_around_frame frame = {NULL, NULL};
    if (around != NULL) {
        rs_reference_add(&around->references);
        reshard_status status = around->around.enter(around->user, c->module, &frame);
        if (status != RESHARD_OK) {
            rs_hook_entry_release(around);
            return status;
        }
    }
    c->output = c->module->kind.forward(c->module, c->module->kind.user, c->input);
    if (around != NULL) {
        around->around.leave(around->user, c->module, &frame);
        rs_hook_entry_release(around);
    }
    return RESHARD_OK;
}

static reshard_status run_hooks(call *c)
{
    reshard_status status = RESHARD_OK;
    for (rs_hook_entry *entry = c->module->hooks[RS_HOOK_POST];
         entry != NULL && status == RESHARD_OK && !scope_failed(); entry = entry->next) {
        if (!takes_part(c, entry))
            continue;
        c->reached = entry->serial;
        status = entry->post(entry->user, c->module, c->input, &c->output);
        status = rs_fail_within(status, "forward hook of %s", c->module->kind_name);
    }
    return status;
}

/* Runs hooks that are marked `always` and have not had their turn. They cannot undo the failure. */
static void run_always(call *c)
{
    bool behind = c->reached == 0;
    for (rs_hook_entry *entry = c->module->hooks[RS_HOOK_POST]; entry != NULL;
         entry = entry->next) {
        reshard_value output = failed;
        if (behind && entry->always && takes_part(c, entry))
            (void)entry->post(entry->user, c->module, c->input, &output);
        behind = behind || entry->serial == c->reached;
    }
}

/* Hands the value to the innermost scope, which the caller has set to the one around the call's
 * own. */
static reshard_value hand_out(reshard_value value)
{
    if (value.kind == RESHARD_VALUE_TENSOR)
        return reshard_value_of(rs_scope_own(reshard_tensor_retain(value.tensor)));
    if (value.kind != RESHARD_VALUE_LIST)
        return value;
    reshard_value list = reshard_value_list(value.count, value.items);
    reshard_value *items = (reshard_value *)list.items;
    for (int32_t i = 0; i < list.count; i++) {
        items[i] = hand_out(value.items[i]);
        if (items[i].kind == RESHARD_VALUE_FAILED)
            return failed;
    }
    return list;
}

/* Runs the hooks and forward. True if the call has an output. */
static bool run(call *c)
{
    reshard_status status = run_pre_hooks(c);
    if (status == RESHARD_OK && !scope_failed() && c->input.kind != RESHARD_VALUE_FAILED) {
        status = run_forward(c);
        if (status == RESHARD_OK && !scope_failed() && c->output.kind != RESHARD_VALUE_FAILED)
            status = run_hooks(c);
    }
    if (status != RESHARD_OK)
        (void)rs_scope_fail(status);
    else if (c->output.kind == RESHARD_VALUE_FAILED && !scope_failed())
        (void)rs_scope_fail(rs_fail(RESHARD_ERR_INVALID,
                                    "a module of kind %s failed without setting an error text",
                                    c->module->kind_name));
    return !scope_failed();
}

reshard_value reshard_module_call(reshard_module *module, reshard_value input)
{
    rs_thread_state *state = rs_thread_state_get();
    if (state->scope == NULL) {
        (void)rs_fail(RESHARD_ERR_INVALID, "a module of kind %s: no scope is open on this thread",
                      module != NULL ? module->kind_name : "NULL");
        return failed;
    }
    if (module == NULL) { /* the call that was to make it has failed, or was skipped after that */
        if (state->scope->status == RESHARD_OK)
            (void)rs_scope_fail(rs_fail(RESHARD_ERR_INVALID, "the module is NULL"));
        return failed;
    }
    reshard_scope scope;
    call c = {.module = reshard_module_retain(module),
              .serial = module->hook_serial,
              .input = input,
              .output = failed};
    if (state->scope->status != RESHARD_OK || input.kind == RESHARD_VALUE_FAILED) {
        reshard_module_release(module);
        return failed; /* as operations do in this case */
    }
    rs_scope_enter(&scope, rs_scope_context());
    module->running++;
    bool good = run(&c);
    if (!good)
        run_always(&c);
    module->running--;
    rs_hooks_purge(module);
    reshard_module_release(module);
    state->scope = scope.outer;
    reshard_value output = good ? hand_out(c.output) : failed;
    state->scope = &scope;
    reshard_status status = rs_scope_leave(&scope);
    if (status != RESHARD_OK)
        (void)rs_scope_fail(status);
    return output;
}

reshard_tensor *reshard_module_forward(reshard_module *module, reshard_tensor *x)
{
    reshard_value output = reshard_module_call(module, reshard_value_of(x));
    return output.kind == RESHARD_VALUE_FAILED ? NULL : reshard_value_tensor(output);
}
