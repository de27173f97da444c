/* SPDX-License-Identifier: Apache-2.0 */
/* module.c - makes modules, and finds what they hold by path. */
#include "nn/module.h"

#include "base/context.h"
#include "base/error.h"
#include "text/text.h"

#include <string.h>

/* ---- creating and releasing ------------------------------------------------------------------ */

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
        rs_release(context, module);
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

static void free_holding(reshard_context *context, rs_holding *holding)
{
    rs_text_free(context, holding->name);
    reshard_module_release(holding->child);
    reshard_tensor_release(holding->tensor);
}

void reshard_module_release(reshard_module *module)
{
    if (module == NULL || !rs_reference_drop(&module->references))
        return;
    rs_hooks_destroy(module);
    if (module->kind.forget != NULL)
        module->kind.forget(module->kind.user);
    for (int64_t i = 0; i < module->holding_count; i++)
        free_holding(module->context, &module->holdings[i]);
    rs_release(module->context, module->holdings);
    rs_text_free(module->context, module->kind_name);
    rs_release(module->context, module);
}

const char *reshard_module_kind_name(const reshard_module *module)
{
    return module->kind_name;
}

/* ---- holdings -------------------------------------------------------------------------------- */

rs_holding *rs_module_holding(const reshard_module *module, const char *name, size_t length)
{
    for (int64_t i = 0; i < module->holding_count; i++) {
        rs_holding *holding = &module->holdings[i];
        if (strlen(holding->name) == length && memcmp(holding->name, name, length) == 0)
            return holding;
    }
    return NULL;
}

static reshard_status check_name(const reshard_module *module, const char *name)
{
    if (name == NULL || name[0] == 0)
        return rs_fail(RESHARD_ERR_INVALID, "a name in a module of kind %s is empty",
                       module->kind_name);
    if (strchr(name, '.') != NULL)
        return rs_fail(RESHARD_ERR_INVALID,
                       "the name \"%s\" has a dot, which separates names in paths", name);
    if (rs_module_holding(module, name, strlen(name)) != NULL)
        return rs_fail(RESHARD_ERR_INVALID, "the module of kind %s has a \"%s\" already",
                       module->kind_name, name);
    return RESHARD_OK;
}

/* Adds a holding, and retains its tensor or child. */
static reshard_status add_holding(reshard_module *module, const char *name, const rs_holding *given)
{
    reshard_status status = check_name(module, name);
    if (status != RESHARD_OK)
        return status;
    status = rs_grow(module->context, &module->holdings, &module->holding_capacity,
                     module->holding_count + 1, sizeof *module->holdings);
    if (status != RESHARD_OK)
        return status;
    rs_holding holding = *given;
    holding.name = rs_text_copy(module->context, name);
    if (holding.name == NULL)
        return rs_allocation_status();
    (void)reshard_module_retain(holding.child);
    (void)reshard_tensor_retain(holding.tensor);
    module->holdings[module->holding_count++] = holding;
    return RESHARD_OK;
}

bool rs_module_contains(const reshard_module *module, const reshard_module *other)
{
    bool found = module == other;
    for (int64_t i = 0; i < module->holding_count && !found; i++)
        found = module->holdings[i].child != NULL &&
                rs_module_contains(module->holdings[i].child, other);
    return found;
}

bool rs_module_has_holding(const reshard_module *module, const rs_holding *holding)
{
    bool found = false;
    for (int64_t i = 0; i < module->holding_count && !found; i++) {
        const rs_holding *own = &module->holdings[i];
        found =
            own == holding || (own->child != NULL && rs_module_has_holding(own->child, holding));
    }
    return found;
}

static reshard_status refuse_cycle(const char *name, const reshard_module *child)
{
    return rs_fail(RESHARD_ERR_INVALID,
                   "with the child \"%s\" a module of kind %s would contain itself", name,
                   child->kind_name);
}

static reshard_status check_child(const char *name, const reshard_module *child)
{
    if (child == NULL)
        return rs_fail(RESHARD_ERR_INVALID, "the child \"%s\" is NULL", name);
    return RESHARD_OK;
}

reshard_status reshard_module_add_child(reshard_module *module, const char *name,
                                        reshard_module *child)
{
    reshard_status status = check_name(module, name);
    if (status == RESHARD_OK)
        status = check_child(name, child);
    if (status == RESHARD_OK && rs_module_contains(child, module))
        status = refuse_cycle(name, child);
    if (status != RESHARD_OK)
        return status;
    return add_holding(module, name, &(rs_holding){.kind = RS_HOLDING_CHILD, .child = child});
}

reshard_status reshard_module_add_parameter(reshard_module *module, const char *name,
                                            reshard_tensor *tensor)
{
    return add_holding(module, name, &(rs_holding){.kind = RS_HOLDING_PARAMETER, .tensor = tensor});
}

reshard_status reshard_module_add_buffer(reshard_module *module, const char *name,
                                         reshard_tensor *tensor, int transient)
{
    return add_holding(
        module, name,
        &(rs_holding){.kind = RS_HOLDING_BUFFER, .tensor = tensor, .transient = transient != 0});
}

/* ---- finding --------------------------------------------------------------------------------- */

reshard_status rs_module_find_holding(const reshard_module *module, const char *path,
                                      rs_holding **out_holding)
{
    const char *at = path;
    for (const reshard_module *here = module;;) {
        size_t length = strcspn(at, ".");
        rs_holding *holding = rs_module_holding(here, at, length);
        if (holding == NULL)
            return rs_fail(RESHARD_ERR_NOT_FOUND,
                           "path \"%s\": there is no \"%.*s\" in the module of kind %s", path,
                           (int)length, at, here->kind_name);
        if (at[length] == 0) {
            *out_holding = holding;
            return RESHARD_OK;
        }
        if (holding->child == NULL)
            return rs_fail(RESHARD_ERR_NOT_FOUND,
                           "path \"%s\": \"%.*s\" in the module of kind %s is not a module", path,
                           (int)length, at, here->kind_name);
        here = holding->child;
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
    rs_holding *holding = NULL;
    reshard_status status = rs_module_find_holding(module, path, &holding);
    if (status != RESHARD_OK)
        return status;
    if (holding->child == NULL)
        return rs_fail(RESHARD_ERR_NOT_FOUND, "path \"%s\" leads to a tensor, not to a module",
                       path);
    *out_module = holding->child;
    return RESHARD_OK;
}

/* Finds a parameter or, if only_parameters is not set, a buffer. */
static reshard_status find_tensor(const reshard_module *module, const char *path,
                                  bool only_parameters, reshard_tensor **out_tensor)
{
    rs_holding *holding = NULL;
    reshard_status status = rs_module_find_holding(module, path, &holding);
    if (status != RESHARD_OK)
        return status;
    if (holding->child != NULL || (only_parameters && holding->kind == RS_HOLDING_BUFFER))
        return rs_fail(RESHARD_ERR_NOT_FOUND, "path \"%s\" leads to %s, not to a %s", path,
                       holding->child != NULL ? "a module" : "a buffer",
                       only_parameters ? "parameter" : "tensor");
    *out_tensor = holding->tensor;
    return RESHARD_OK;
}

reshard_status rs_module_find_parameter(const reshard_module *module, const char *path,
                                        reshard_tensor **out_tensor)
{
    return find_tensor(module, path, true, out_tensor);
}

reshard_status reshard_module_find_tensor(const reshard_module *module, const char *path,
                                          reshard_tensor **out_tensor)
{
    return find_tensor(module, path, false, out_tensor);
}

reshard_tensor *reshard_module_tensor(const reshard_module *module, const char *name)
{
    const rs_holding *holding = rs_module_holding(module, name, strlen(name));
    return holding != NULL ? holding->tensor : NULL;
}

reshard_module *reshard_module_child(const reshard_module *module, int32_t index,
                                     const char **out_name)
{
    for (int64_t i = 0; i < module->holding_count; i++) {
        const rs_holding *holding = &module->holdings[i];
        if (holding->child != NULL && index-- == 0) {
            if (out_name != NULL)
                *out_name = holding->name;
            return holding->child;
        }
    }
    return NULL;
}

/* ---- replacing ------------------------------------------------------------------------------- */

reshard_status reshard_module_replace_child(reshard_module *module, const char *path,
                                            reshard_module *child)
{
    rs_holding *holding = NULL;
    if (path[0] == 0)
        return rs_fail(RESHARD_ERR_INVALID, "the path \"\" is the module itself, not a child");
    reshard_status status = rs_module_find_holding(module, path, &holding);
    if (status == RESHARD_OK && holding->child == NULL)
        status =
            rs_fail(RESHARD_ERR_NOT_FOUND, "path \"%s\" leads to a tensor, not to a module", path);
    if (status == RESHARD_OK)
        status = check_child(path, child);
    if (status == RESHARD_OK && rs_module_has_holding(child, holding))
        status = refuse_cycle(path, child);
    if (status != RESHARD_OK)
        return status;
    (void)reshard_module_retain(child);
    reshard_module_release(holding->child);
    holding->child = child;
    return RESHARD_OK;
}

void rs_module_swap_tensor(reshard_module *module, const reshard_tensor *old,
                           reshard_tensor *tensor)
{
    for (int64_t i = 0; i < module->holding_count; i++) {
        rs_holding *holding = &module->holdings[i];
        if (holding->child != NULL)
            rs_module_swap_tensor(holding->child, old, tensor);
        if (holding->kind != RS_HOLDING_PARAMETER || holding->tensor != old)
            continue;
        (void)reshard_tensor_retain(tensor);
        holding->tensor = tensor;
        reshard_tensor_release((reshard_tensor *)old);
    }
}

reshard_status reshard_module_replace_parameter(reshard_module *module, const char *path,
                                                reshard_tensor *tensor)
{
    reshard_tensor *old = NULL;
    rs_holding *holding = NULL;
    reshard_status status = rs_module_find_parameter(module, path, &old);
    if (status == RESHARD_OK)
        status = rs_module_find_holding(module, path, &holding);
    if (status != RESHARD_OK)
        return status;
    if (old == NULL) { /* empty parameters are not tied to each other */
        holding->tensor = reshard_tensor_retain(tensor);
        return RESHARD_OK;
    }
    /* Keep the old tensor until all holdings have been compared with its address. */
    (void)reshard_tensor_retain(old);
    rs_module_swap_tensor(module, old, tensor);
    reshard_tensor_release(old);
    return RESHARD_OK;
}
