/* SPDX-License-Identifier: Apache-2.0 */
/* hooks.c - hooks of modules and their handles; see invariant 2 of module.h. */
#include "base/context.h"
#include "base/error.h"
#include "base/options.h"
#include "nn/module.h"

#include <assert.h>

void rs_hook_entry_release(rs_hook_entry *entry)
{
    if (entry == NULL || !rs_reference_drop(&entry->references))
        return;
    if (entry->forget != NULL)
        entry->forget(entry->user);
    rs_release(entry->context, entry);
}

void rs_hooks_purge(reshard_module *module)
{
    for (int kind = 0; kind < RS_HOOK_KINDS && module->running == 0; kind++) {
        for (rs_hook_entry **place = &module->hooks[kind]; *place != NULL;) {
            rs_hook_entry *entry = *place;
            if (!entry->removed) {
                place = &entry->next;
                continue;
            }
            *place = entry->next;
            rs_hook_entry_release(entry);
        }
    }
}

void rs_hooks_destroy(reshard_module *module)
{
    for (int kind = 0; kind < RS_HOOK_KINDS; kind++) {
        while (module->hooks[kind] != NULL) {
            rs_hook_entry *entry = module->hooks[kind];
            module->hooks[kind] = entry->next;
            entry->module = NULL;
            rs_hook_entry_release(entry);
        }
    }
}

static void link_entry(rs_hook_entry **place, rs_hook_entry *entry, bool prepend)
{
    while (!prepend && *place != NULL)
        place = &(*place)->next;
    entry->next = *place;
    *place = entry;
}

reshard_status rs_hook_add(reshard_module *module, const rs_hook_entry *given, bool prepend,
                           reshard_hook **out_hook)
{
    assert(given->kind < RS_HOOK_KINDS);
    reshard_context *context = module->context;
    rs_hook_entry *entry = rs_allocate(context, sizeof *entry);
    reshard_hook *hook = entry != NULL ? rs_allocate(context, sizeof *hook) : NULL;
    if (hook == NULL) {
        reshard_status status = rs_allocation_status();
        rs_release(context, entry);
        return status;
    }
    *entry = *given;
    atomic_init(&entry->references, out_hook != NULL ? 2 : 1);
    entry->context = context;
    entry->module = module;
    entry->removed = false;
    entry->serial = ++module->hook_serial;
    link_entry(&module->hooks[entry->kind], entry, prepend);
    if (out_hook == NULL) {
        rs_release(context, hook);
        return RESHARD_OK;
    }
    *hook = (reshard_hook){.context = context, .entry = entry};
    *out_hook = hook;
    return RESHARD_OK;
}

reshard_status reshard_module_add_forward_pre_hook(reshard_module *module,
                                                   reshard_forward_pre_hook_fn fn, void *user,
                                                   const reshard_hook_options *options,
                                                   reshard_hook **out_hook)
{
    reshard_hook_options read;
    reshard_status status = rs_options_read("hook options", options, &read, sizeof read);
    if (status == RESHARD_OK && (fn == NULL || read.always))
        status = rs_fail(RESHARD_ERR_INVALID, "forward pre-hook: %s",
                         fn == NULL ? "the function is NULL" : "only forward hooks always run");
    if (status != RESHARD_OK)
        return status;
    rs_hook_entry entry = {.kind = RS_HOOK_PRE, .pre = fn, .user = user, .forget = read.forget};
    return rs_hook_add(module, &entry, read.prepend != 0, out_hook);
}

reshard_status reshard_module_add_forward_hook(reshard_module *module, reshard_forward_hook_fn fn,
                                               void *user, const reshard_hook_options *options,
                                               reshard_hook **out_hook)
{
    reshard_hook_options read;
    reshard_status status = rs_options_read("hook options", options, &read, sizeof read);
    if (status == RESHARD_OK && fn == NULL)
        status = rs_fail(RESHARD_ERR_INVALID, "forward hook: the function is NULL");
    if (status != RESHARD_OK)
        return status;
    rs_hook_entry entry = {.kind = RS_HOOK_POST,
                           .post = fn,
                           .user = user,
                           .forget = read.forget,
                           .always = read.always != 0};
    return rs_hook_add(module, &entry, read.prepend != 0, out_hook);
}

reshard_hook *rs_hook_join(reshard_hook *first, reshard_hook *second)
{
    reshard_hook **place = &first;
    while (*place != NULL)
        place = &(*place)->next;
    *place = second;
    return first;
}

static void free_handle(reshard_hook *hook, bool remove)
{
    while (hook != NULL) {
        reshard_hook *next = hook->next;
        rs_hook_entry *entry = hook->entry;
        entry->removed = entry->removed || remove;
        if (remove && entry->module != NULL)
            rs_hooks_purge(entry->module);
        rs_hook_entry_release(entry);
        rs_release(hook->context, hook);
        hook = next;
    }
}

void reshard_hook_remove(reshard_hook *hook)
{
    free_handle(hook, true);
}

void rs_hook_release(reshard_hook *hook)
{
    free_handle(hook, false);
}
