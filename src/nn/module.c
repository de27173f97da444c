/* SPDX-License-Identifier: Apache-2.0 */
/* module.c - making modules, and finding things in them by path. */
#include "nn/module.h"

#include "base/context.h"
#include "base/error.h"
#include "base/text.h"

#include <string.h>

/* ---- making ---------------------------------------------------------------------------------- */

reshard_status reshard_module_create(reshard_context *context, const reshard_module_kind *kind,
                                     reshard_module **out_module)
{
    if (kind == NULL || kind->name == NULL || kind->forward == NULL)
        return rs_fail(RESHARD_ERR_INVALID, "a module needs a kind with a name and a forward");
    reshard_module *module = rs_allocate_zeroed(context, sizeof *module);
    if (module == NULL)
        return rs_allocation_status();
    atomic_init(&module->references, 1);
    module->context = context;
    module->kind_name = rs_text_copy(context, kind->name);
    if (module->kind_name == NULL) {
        reshard_status status = rs_allocation_status();
        rs_release(context, module, sizeof *module);
        return status;
    }
    module->kind = *kind;
    module->kind.name = module->kind_name;
    *out_module = module;
    return RESHARD_OK;
}

reshard_module *reshard_module_retain(reshard_module *module)
{
    if (module != NULL)
        rs_reference_add(&module->references);
    return module;
}

static void free_slot(reshard_context *context, rs_slot *slot)
{
    rs_text_free(context, slot->name);
    reshard_module_release(slot->child);
    reshard_tensor_release(slot->tensor);
}

void reshard_module_release(reshard_module *module)
{
    if (module == NULL || !rs_reference_drop(&module->references))
        return;
    rs_hooks_destroy(module);
    if (module->kind.forget != NULL)
        module->kind.forget(module->kind.user);
    for (int64_t i = 0; i < module->slot_count; i++)
        free_slot(module->context, &module->slots[i]);
    rs_release(module->context, module->slots,
               (size_t)module->slot_capacity * sizeof *module->slots);
    rs_text_free(module->context, module->kind_name);
    rs_release(module->context, module, sizeof *module);
}

const char *reshard_module_kind_name(const reshard_module *module)
{
    return module->kind_name;
}

void *reshard_module_user(const reshard_module *module)
{
    return module->kind.user;
}

/* ---- slots ----------------------------------------------------------------------------------- */

rs_slot *rs_module_slot(const reshard_module *module, const char *name, size_t length)
{
    for (int64_t i = 0; i < module->slot_count; i++) {
        rs_slot *slot = &module->slots[i];
        if (strlen(slot->name) == length && memcmp(slot->name, name, length) == 0)
            return slot;
    }
    return NULL;
}

static reshard_status check_name(const reshard_module *module, const char *name)
{
    if (name == NULL || name[0] == 0)
        return rs_fail(RESHARD_ERR_INVALID, "a name in a module of kind %s is empty",
                       module->kind_name);
    if (strchr(name, '.') != NULL)
        return rs_fail(RESHARD_ERR_INVALID, "the name \"%s\" has a dot, which parts names in paths",
                       name);
    if (rs_module_slot(module, name, strlen(name)) != NULL)
        return rs_fail(RESHARD_ERR_INVALID, "the module of kind %s has a \"%s\" already",
                       module->kind_name, name);
    return RESHARD_OK;
}

/* Retains what the slot names. */
static reshard_status add_slot(reshard_module *module, const char *name, const rs_slot *given)
{
    reshard_status status = check_name(module, name);
    if (status != RESHARD_OK)
        return status;
    if (module->slot_count == module->slot_capacity) {
        void *slots = module->slots;
        status = rs_grow(module->context, &slots, &module->slot_capacity, module->slot_count + 1,
                         sizeof *module->slots);
        module->slots = slots;
        if (status != RESHARD_OK)
            return status;
    }
    rs_slot slot = *given;
    slot.name = rs_text_copy(module->context, name);
    if (slot.name == NULL)
        return rs_allocation_status();
    (void)reshard_module_retain(slot.child);
    (void)reshard_tensor_retain(slot.tensor);
    module->slots[module->slot_count++] = slot;
    return RESHARD_OK;
}

bool rs_module_contains(const reshard_module *module, const reshard_module *other)
{
    bool found = module == other;
    for (int64_t i = 0; i < module->slot_count && !found; i++)
        found = module->slots[i].child != NULL && rs_module_contains(module->slots[i].child, other);
    return found;
}

static reshard_status check_child(const reshard_module *module, const char *name,
                                  const reshard_module *child)
{
    if (child == NULL)
        return rs_fail(RESHARD_ERR_INVALID, "the child \"%s\" is NULL", name);
    if (rs_module_contains(child, module))
        return rs_fail(RESHARD_ERR_INVALID,
                       "with the child \"%s\" a module of kind %s would contain itself", name,
                       module->kind_name);
    return RESHARD_OK;
}

reshard_status reshard_module_add_child(reshard_module *module, const char *name,
                                        reshard_module *child)
{
    reshard_status status = check_name(module, name);
    if (status == RESHARD_OK)
        status = check_child(module, name, child);
    if (status != RESHARD_OK)
        return status;
    return add_slot(module, name, &(rs_slot){.kind = RS_SLOT_CHILD, .child = child});
}

reshard_status reshard_module_add_parameter(reshard_module *module, const char *name,
                                            reshard_tensor *tensor)
{
    return add_slot(module, name, &(rs_slot){.kind = RS_SLOT_PARAMETER, .tensor = tensor});
}

reshard_status reshard_module_add_buffer(reshard_module *module, const char *name,
                                         reshard_tensor *tensor, int transient)
{
    return add_slot(
        module, name,
        &(rs_slot){.kind = RS_SLOT_BUFFER, .tensor = tensor, .transient = transient != 0});
}

/* ---- finding --------------------------------------------------------------------------------- */

reshard_status rs_module_find_slot(const reshard_module *module, const char *path,
                                   rs_slot **out_slot)
{
    const char *at = path;
    for (const reshard_module *here = module;;) {
        size_t length = strcspn(at, ".");
        rs_slot *slot = rs_module_slot(here, at, length);
        if (slot == NULL)
            return rs_fail(RESHARD_ERR_NOT_FOUND,
                           "path \"%s\": there is no \"%.*s\" in the module of kind %s", path,
                           (int)length, at, here->kind_name);
        if (at[length] == 0) {
            *out_slot = slot;
            return RESHARD_OK;
        }
        if (slot->child == NULL)
            return rs_fail(RESHARD_ERR_NOT_FOUND,
                           "path \"%s\": \"%.*s\" in the module of kind %s is no module", path,
                           (int)length, at, here->kind_name);
        here = slot->child;
        at += length + 1;
    }
}

reshard_status reshard_module_find(reshard_module *module, const char *path,
                                   reshard_module **out_module)
{
    if (path[0] == 0) {
        *out_module = module;
        return RESHARD_OK;
    }
    rs_slot *slot = NULL;
    reshard_status status = rs_module_find_slot(module, path, &slot);
    if (status != RESHARD_OK)
        return status;
    if (slot->child == NULL)
        return rs_fail(RESHARD_ERR_NOT_FOUND, "path \"%s\" leads to a tensor, not to a module",
                       path);
    *out_module = slot->child;
    return RESHARD_OK;
}

static reshard_status find_tensor(const reshard_module *module, const char *path, rs_slot_kind kind,
                                  reshard_tensor **out_tensor)
{
    static const char *const words[] = {"a module", "a parameter", "a buffer"};
    rs_slot *slot = NULL;
    reshard_status status = rs_module_find_slot(module, path, &slot);
    if (status != RESHARD_OK)
        return status;
    if (slot->kind != kind)
        return rs_fail(RESHARD_ERR_NOT_FOUND, "path \"%s\" leads to %s, not to %s", path,
                       words[slot->kind], words[kind]);
    *out_tensor = slot->tensor;
    return RESHARD_OK;
}

reshard_status reshard_module_find_parameter(const reshard_module *module, const char *path,
                                             reshard_tensor **out_tensor)
{
    return find_tensor(module, path, RS_SLOT_PARAMETER, out_tensor);
}

reshard_status reshard_module_find_buffer(const reshard_module *module, const char *path,
                                          reshard_tensor **out_tensor)
{
    return find_tensor(module, path, RS_SLOT_BUFFER, out_tensor);
}

static reshard_tensor *tensor_of(const reshard_module *module, const char *name, rs_slot_kind kind)
{
    const rs_slot *slot = rs_module_slot(module, name, strlen(name));
    return slot != NULL && slot->kind == kind ? slot->tensor : NULL;
}

reshard_tensor *reshard_module_parameter(const reshard_module *module, const char *name)
{
    return tensor_of(module, name, RS_SLOT_PARAMETER);
}

reshard_tensor *reshard_module_buffer(const reshard_module *module, const char *name)
{
    return tensor_of(module, name, RS_SLOT_BUFFER);
}

static const rs_slot *child_slot(const reshard_module *module, int32_t index)
{
    for (int64_t i = 0; i < module->slot_count; i++) {
        if (module->slots[i].child != NULL && index-- == 0)
            return &module->slots[i];
    }
    return NULL;
}

int32_t reshard_module_child_count(const reshard_module *module)
{
    int32_t count = 0;
    for (int64_t i = 0; i < module->slot_count; i++)
        count += module->slots[i].child != NULL;
    return count;
}

reshard_module *reshard_module_child(const reshard_module *module, int32_t index)
{
    const rs_slot *slot = child_slot(module, index);
    return slot != NULL ? slot->child : NULL;
}

const char *reshard_module_child_name(const reshard_module *module, int32_t index)
{
    const rs_slot *slot = child_slot(module, index);
    return slot != NULL ? slot->name : NULL;
}

/* ---- replacing ------------------------------------------------------------------------------- */

reshard_status reshard_module_replace_child(reshard_module *module, const char *path,
                                            reshard_module *child)
{
    rs_slot *slot = NULL;
    if (path[0] == 0)
        return rs_fail(RESHARD_ERR_INVALID, "the path \"\" is the module itself, not a child");
    reshard_status status = rs_module_find_slot(module, path, &slot);
    if (status == RESHARD_OK && slot->child == NULL)
        status =
            rs_fail(RESHARD_ERR_NOT_FOUND, "path \"%s\" leads to a tensor, not to a module", path);
    if (status == RESHARD_OK)
        status = check_child(module, path, child);
    if (status != RESHARD_OK)
        return status;
    (void)reshard_module_retain(child);
    reshard_module_release(slot->child);
    slot->child = child;
    return RESHARD_OK;
}

void rs_module_swap_tensor(reshard_module *module, const reshard_tensor *old,
                           reshard_tensor *tensor)
{
    for (int64_t i = 0; i < module->slot_count; i++) {
        rs_slot *slot = &module->slots[i];
        if (slot->child != NULL)
            rs_module_swap_tensor(slot->child, old, tensor);
        if (slot->kind != RS_SLOT_PARAMETER || slot->tensor != old)
            continue;
        (void)reshard_tensor_retain(tensor);
        slot->tensor = tensor;
        reshard_tensor_release((reshard_tensor *)old);
    }
}

reshard_status reshard_module_replace_parameter(reshard_module *module, const char *path,
                                                reshard_tensor *tensor)
{
    reshard_tensor *old = NULL;
    rs_slot *slot = NULL;
    reshard_status status = reshard_module_find_parameter(module, path, &old);
    if (status == RESHARD_OK)
        status = rs_module_find_slot(module, path, &slot);
    if (status != RESHARD_OK)
        return status;
    if (old == NULL) { /* nothing is not tied to other nothings */
        slot->tensor = reshard_tensor_retain(tensor);
        return RESHARD_OK;
    }
    /* Compared by address until all slots have been seen. */
    (void)reshard_tensor_retain(old);
    rs_module_swap_tensor(module, old, tensor);
    reshard_tensor_release(old);
    return RESHARD_OK;
}
