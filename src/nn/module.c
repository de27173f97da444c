/* SPDX-License-Identifier: Apache-2.0 */
/* module.c - making modules, and finding their parts by path. */
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

static void free_part(reshard_context *context, rs_part *part)
{
    rs_text_free(context, part->name);
    reshard_module_release(part->child);
    reshard_tensor_release(part->tensor);
}

void reshard_module_release(reshard_module *module)
{
    if (module == NULL || !rs_reference_drop(&module->references))
        return;
    rs_hooks_destroy(module);
    if (module->kind.forget != NULL)
        module->kind.forget(module->kind.user);
    for (int64_t i = 0; i < module->part_count; i++)
        free_part(module->context, &module->parts[i]);
    rs_release(module->context, module->parts,
               (size_t)module->part_capacity * sizeof *module->parts);
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

/* ---- parts ----------------------------------------------------------------------------------- */

rs_part *rs_module_part(const reshard_module *module, const char *name, size_t length)
{
    for (int64_t i = 0; i < module->part_count; i++) {
        rs_part *part = &module->parts[i];
        if (strlen(part->name) == length && memcmp(part->name, name, length) == 0)
            return part;
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
    if (rs_module_part(module, name, strlen(name)) != NULL)
        return rs_fail(RESHARD_ERR_INVALID, "the module of kind %s has a \"%s\" already",
                       module->kind_name, name);
    return RESHARD_OK;
}

/* Retains the tensor or child of the part. */
static reshard_status add_part(reshard_module *module, const char *name, const rs_part *given)
{
    reshard_status status = check_name(module, name);
    if (status != RESHARD_OK)
        return status;
    if (module->part_count == module->part_capacity) {
        void *parts = module->parts;
        status = rs_grow(module->context, &parts, &module->part_capacity, module->part_count + 1,
                         sizeof *module->parts);
        module->parts = parts;
        if (status != RESHARD_OK)
            return status;
    }
    rs_part part = *given;
    part.name = rs_text_copy(module->context, name);
    if (part.name == NULL)
        return rs_allocation_status();
    (void)reshard_module_retain(part.child);
    (void)reshard_tensor_retain(part.tensor);
    module->parts[module->part_count++] = part;
    return RESHARD_OK;
}

bool rs_module_contains(const reshard_module *module, const reshard_module *other)
{
    bool found = module == other;
    for (int64_t i = 0; i < module->part_count && !found; i++)
        found = module->parts[i].child != NULL && rs_module_contains(module->parts[i].child, other);
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
    return add_part(module, name, &(rs_part){.kind = RS_PART_CHILD, .child = child});
}

reshard_status reshard_module_add_parameter(reshard_module *module, const char *name,
                                            reshard_tensor *tensor)
{
    return add_part(module, name, &(rs_part){.kind = RS_PART_PARAMETER, .tensor = tensor});
}

reshard_status reshard_module_add_buffer(reshard_module *module, const char *name,
                                         reshard_tensor *tensor, int transient)
{
    return add_part(
        module, name,
        &(rs_part){.kind = RS_PART_BUFFER, .tensor = tensor, .transient = transient != 0});
}

/* ---- finding --------------------------------------------------------------------------------- */

reshard_status rs_module_find_part(const reshard_module *module, const char *path,
                                   rs_part **out_part)
{
    const char *at = path;
    for (const reshard_module *here = module;;) {
        size_t length = strcspn(at, ".");
        rs_part *part = rs_module_part(here, at, length);
        if (part == NULL)
            return rs_fail(RESHARD_ERR_NOT_FOUND,
                           "path \"%s\": there is no \"%.*s\" in the module of kind %s", path,
                           (int)length, at, here->kind_name);
        if (at[length] == 0) {
            *out_part = part;
            return RESHARD_OK;
        }
        if (part->child == NULL)
            return rs_fail(RESHARD_ERR_NOT_FOUND,
                           "path \"%s\": \"%.*s\" in the module of kind %s is no module", path,
                           (int)length, at, here->kind_name);
        here = part->child;
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
    rs_part *part = NULL;
    reshard_status status = rs_module_find_part(module, path, &part);
    if (status != RESHARD_OK)
        return status;
    if (part->child == NULL)
        return rs_fail(RESHARD_ERR_NOT_FOUND, "path \"%s\" leads to a tensor, not to a module",
                       path);
    *out_module = part->child;
    return RESHARD_OK;
}

static reshard_status find_tensor(const reshard_module *module, const char *path, rs_part_kind kind,
                                  reshard_tensor **out_tensor)
{
    static const char *const words[] = {"a module", "a parameter", "a buffer"};
    rs_part *part = NULL;
    reshard_status status = rs_module_find_part(module, path, &part);
    if (status != RESHARD_OK)
        return status;
    if (part->kind != kind)
        return rs_fail(RESHARD_ERR_NOT_FOUND, "path \"%s\" leads to %s, not to %s", path,
                       words[part->kind], words[kind]);
    *out_tensor = part->tensor;
    return RESHARD_OK;
}

reshard_status reshard_module_find_parameter(const reshard_module *module, const char *path,
                                             reshard_tensor **out_tensor)
{
    return find_tensor(module, path, RS_PART_PARAMETER, out_tensor);
}

reshard_status reshard_module_find_buffer(const reshard_module *module, const char *path,
                                          reshard_tensor **out_tensor)
{
    return find_tensor(module, path, RS_PART_BUFFER, out_tensor);
}

static reshard_tensor *tensor_of(const reshard_module *module, const char *name, rs_part_kind kind)
{
    const rs_part *part = rs_module_part(module, name, strlen(name));
    return part != NULL && part->kind == kind ? part->tensor : NULL;
}

reshard_tensor *reshard_module_parameter(const reshard_module *module, const char *name)
{
    return tensor_of(module, name, RS_PART_PARAMETER);
}

reshard_tensor *reshard_module_buffer(const reshard_module *module, const char *name)
{
    return tensor_of(module, name, RS_PART_BUFFER);
}

static const rs_part *child_part(const reshard_module *module, int32_t index)
{
    for (int64_t i = 0; i < module->part_count; i++) {
        if (module->parts[i].child != NULL && index-- == 0)
            return &module->parts[i];
    }
    return NULL;
}

int32_t reshard_module_child_count(const reshard_module *module)
{
    int32_t count = 0;
    for (int64_t i = 0; i < module->part_count; i++)
        count += module->parts[i].child != NULL;
    return count;
}

reshard_module *reshard_module_child(const reshard_module *module, int32_t index)
{
    const rs_part *part = child_part(module, index);
    return part != NULL ? part->child : NULL;
}

const char *reshard_module_child_name(const reshard_module *module, int32_t index)
{
    const rs_part *part = child_part(module, index);
    return part != NULL ? part->name : NULL;
}

/* ---- replacing ------------------------------------------------------------------------------- */

reshard_status reshard_module_replace_child(reshard_module *module, const char *path,
                                            reshard_module *child)
{
    rs_part *part = NULL;
    if (path[0] == 0)
        return rs_fail(RESHARD_ERR_INVALID, "the path \"\" is the module itself, not a child");
    reshard_status status = rs_module_find_part(module, path, &part);
    if (status == RESHARD_OK && part->child == NULL)
        status =
            rs_fail(RESHARD_ERR_NOT_FOUND, "path \"%s\" leads to a tensor, not to a module", path);
    if (status == RESHARD_OK)
        status = check_child(module, path, child);
    if (status != RESHARD_OK)
        return status;
    (void)reshard_module_retain(child);
    reshard_module_release(part->child);
    part->child = child;
    return RESHARD_OK;
}

void rs_module_swap_tensor(reshard_module *module, const reshard_tensor *old,
                           reshard_tensor *tensor)
{
    for (int64_t i = 0; i < module->part_count; i++) {
        rs_part *part = &module->parts[i];
        if (part->child != NULL)
            rs_module_swap_tensor(part->child, old, tensor);
        if (part->kind != RS_PART_PARAMETER || part->tensor != old)
            continue;
        (void)reshard_tensor_retain(tensor);
        part->tensor = tensor;
        reshard_tensor_release((reshard_tensor *)old);
    }
}

reshard_status reshard_module_replace_parameter(reshard_module *module, const char *path,
                                                reshard_tensor *tensor)
{
    reshard_tensor *old = NULL;
    rs_part *part = NULL;
    reshard_status status = reshard_module_find_parameter(module, path, &old);
    if (status == RESHARD_OK)
        status = rs_module_find_part(module, path, &part);
    if (status != RESHARD_OK)
        return status;
    if (old == NULL) { /* empty parameters are not tied to each other */
        part->tensor = reshard_tensor_retain(tensor);
        return RESHARD_OK;
    }
    /* Kept until all parts have been compared with it by address. */
    (void)reshard_tensor_retain(old);
    rs_module_swap_tensor(module, old, tensor);
    reshard_tensor_release(old);
    return RESHARD_OK;
}
