/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state.c - lists of a module's tensors by path, and loading values into them. Loading checks all
 * names, shapes and dtypes, brings all values into the module's layouts, and only then writes, so
 * that a failure leaves the module as it was.
 */
#include "nn/state.h"

#include "base/context.h"
#include "base/error.h"
#include "base/options.h"
#include "nn/module.h"
#include "tensor/core/move.h"
#include "tensor/dist/lift.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

/* ---- lists ----------------------------------------------------------------------------------- */

typedef enum wanted { PARAMETERS, BUFFERS, STATE } wanted;

void reshard_named_tensors_destroy(reshard_named_tensors *shown)
{
    rs_named_list *l = (rs_named_list *)shown;
    if (l == NULL)
        return;
    for (int64_t i = 0; i < l->shown.count; i++)
        reshard_tensor_release(l->items[i].tensor);
    rs_release(l->context, l->items);
    rs_arena_release(&l->arena);
    rs_release(l->context, l);
}

reshard_status rs_named_list_create(reshard_context *context, rs_named_list **out_list)
{
    rs_named_list *l = rs_allocate_zeroed(context, sizeof *l);
    if (l == NULL)
        return rs_allocation_status();
    l->context = context;
    rs_arena_init(&l->arena, context);
    *out_list = l;
    return RESHARD_OK;
}

static char *join_path(rs_named_list *l, const char *prefix, const char *name)
{
    size_t before = strlen(prefix), length = strlen(name);
    char *path = rs_arena_allocate(&l->arena, before + length + 2);
    if (path == NULL)
        return NULL;
    memcpy(path, prefix, before);
    if (before > 0)
        path[before++] = '.';
    memcpy(path + before, name, length + 1);
    return path;
}

static bool is_wanted(const rs_named_list *l, const rs_holding *holding, wanted what)
{
    bool kind = holding->kind == RS_HOLDING_PARAMETER
                    ? what != BUFFERS
                    : holding->kind == RS_HOLDING_BUFFER &&
                          (what == BUFFERS || (what == STATE && !holding->transient));
    if (!kind || holding->tensor == NULL)
        return false;
    for (int64_t i = 0; what != STATE && i < l->shown.count; i++) {
        if (l->items[i].tensor == holding->tensor)
            return false; /* tied, and already listed under its first name */
    }
    return true;
}

reshard_status rs_named_list_add(rs_named_list *l, const char *prefix, const char *name,
                                 reshard_tensor *tensor)
{
    reshard_status status =
        rs_grow(l->context, &l->items, &l->capacity, l->shown.count + 1, sizeof *l->items);
    l->shown.items = l->items;
    if (status != RESHARD_OK)
        return status;
    char *path = join_path(l, prefix, name);
    if (path == NULL)
        return rs_allocation_status();
    l->items[l->shown.count++] = (reshard_named_tensor){path, reshard_tensor_retain(tensor)};
    return RESHARD_OK;
}

static reshard_status add_all(rs_named_list *l, const reshard_named_tensors *list)
{
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; i < list->count && status == RESHARD_OK; i++)
        status = rs_named_list_add(l, "", list->items[i].name, list->items[i].tensor);
    return status;
}

reshard_status reshard_named_tensors_join(const reshard_named_tensors *first,
                                          const reshard_named_tensors *second,
                                          reshard_named_tensors **out_list)
{
    rs_named_list *l = NULL;
    reshard_status status = rs_named_list_create(((const rs_named_list *)first)->context, &l);
    if (status == RESHARD_OK)
        status = add_all(l, first);
    if (status == RESHARD_OK)
        status = add_all(l, second);
    if (status == RESHARD_OK)
        *out_list = &l->shown;
    else if (l != NULL)
        reshard_named_tensors_destroy(&l->shown);
    return status;
}

static reshard_status add_own(rs_named_list *l, const reshard_module *module, const char *prefix,
                              wanted what, rs_holding_kind kind)
{
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; i < module->holding_count && status == RESHARD_OK; i++) {
        const rs_holding *holding = &module->holdings[i];
        if (holding->kind == kind && is_wanted(l, holding, what))
            status = rs_named_list_add(l, prefix, holding->name, holding->tensor);
    }
    return status;
}

/* In PyTorch's order: a module's own parameters, its own buffers, then its children's tensors. */
static reshard_status walk(rs_named_list *l, const reshard_module *module, const char *prefix,
                           wanted what)
{
    reshard_status status = add_own(l, module, prefix, what, RS_HOLDING_PARAMETER);
    if (status == RESHARD_OK)
        status = add_own(l, module, prefix, what, RS_HOLDING_BUFFER);
    for (int64_t i = 0; i < module->holding_count && status == RESHARD_OK; i++) {
        const rs_holding *holding = &module->holdings[i];
        if (holding->child == NULL)
            continue;
        char *path = join_path(l, prefix, holding->name);
        status = path != NULL ? walk(l, holding->child, path, what) : rs_allocation_status();
    }
    return status;
}

static reshard_status make_list(const reshard_module *module, wanted what,
                                reshard_named_tensors **out_list)
{
    rs_named_list *l = NULL;
    reshard_status status = rs_named_list_create(module->context, &l);
    if (status != RESHARD_OK)
        return status;
    status = walk(l, module, "", what);
    if (status == RESHARD_OK)
        *out_list = &l->shown;
    else
        reshard_named_tensors_destroy(&l->shown);
    return status;
}

reshard_status reshard_module_parameters(const reshard_module *module,
                                         reshard_named_tensors **out_list)
{
    return make_list(module, PARAMETERS, out_list);
}

reshard_status reshard_module_buffers(const reshard_module *module,
                                      reshard_named_tensors **out_list)
{
    return make_list(module, BUFFERS, out_list);
}

reshard_status reshard_module_state_dict(const reshard_module *module,
                                         reshard_named_tensors **out_list)
{
    return make_list(module, STATE, out_list);
}

/* ---- loading --------------------------------------------------------------------------------- */

static const reshard_named_tensor *find_item(int64_t count, const reshard_named_tensor *items,
                                             const char *name)
{
    for (int64_t i = 0; i < count; i++) {
        if (strcmp(items[i].name, name) == 0)
            return &items[i];
    }
    return NULL;
}

static reshard_status check_item(const reshard_named_tensor *mine,
                                 const reshard_named_tensor *given)
{
    if (given->tensor == NULL)
        return rs_fail(RESHARD_ERR_INVALID, "\"%s\" is NULL", given->name);
    if (mine->tensor->dtype != given->tensor->dtype ||
        !rs_shape_equals(mine->tensor, given->tensor))
        return rs_fail(RESHARD_ERR_INVALID, "\"%s\" is %s, and %s in what is loaded", mine->name,
                       rs_tensor_describe(mine->tensor).text,
                       rs_tensor_describe(given->tensor).text);
    if (mine->tensor->distribution != NULL && given->tensor->distribution != NULL &&
        rs_distributed_group(mine->tensor) != rs_distributed_group(given->tensor))
        return rs_fail(RESHARD_ERR_INVALID, "\"%s\" is distributed over another group", mine->name);
    return RESHARD_OK;
}

static reshard_status check_names(int64_t count, const reshard_named_tensor *items)
{
    if (count < 0)
        return rs_fail(RESHARD_ERR_RANGE, "a list of %" PRId64 " tensors", count);
    for (int64_t i = 0; i < count; i++) {
        if (items[i].name == NULL)
            return rs_fail(RESHARD_ERR_INVALID, "entry %" PRId64 " of what is loaded has no name",
                           i);
    }
    return RESHARD_OK;
}

static reshard_status check_all(const reshard_named_tensors *mine, int64_t count,
                                const reshard_named_tensor *items,
                                const reshard_load_options *options)
{
    reshard_status status = check_names(count, items);
    for (int64_t i = 0; i < mine->count && status == RESHARD_OK; i++) {
        const reshard_named_tensor *given = find_item(count, items, mine->items[i].name);
        if (given != NULL)
            status = check_item(&mine->items[i], given);
        else if (!options->allow_missing)
            status = rs_fail(RESHARD_ERR_NOT_FOUND, "\"%s\" is missing from what is loaded",
                             mine->items[i].name);
    }
    for (int64_t i = 0; i < count && status == RESHARD_OK; i++) {
        if (find_item(count, items, items[i].name) != &items[i])
            status = rs_fail(RESHARD_ERR_INVALID, "\"%s\" is there twice in what is loaded",
                             items[i].name);
    }
    for (int64_t i = 0; i < count && status == RESHARD_OK && !options->allow_unexpected; i++) {
        if (find_item(mine->count, mine->items, items[i].name) == NULL)
            status = rs_fail(RESHARD_ERR_NOT_FOUND, "\"%s\" is unexpected: no tensor has this name",
                             items[i].name);
    }
    return status;
}

static reshard_group *find_group(int64_t count, const reshard_named_tensor *items)
{
    for (int64_t i = 0; i < count; i++) {
        if (items[i].tensor != NULL && items[i].tensor->distribution != NULL)
            return rs_distributed_group(items[i].tensor);
    }
    return NULL;
}

/* Finds the group of the module's distributed tensors, without a list, for which memory may be
 * missing. */
static reshard_group *find_module_group(const reshard_module *module)
{
    reshard_group *group = NULL;
    for (int64_t i = 0; i < module->holding_count && group == NULL; i++) {
        const rs_holding *holding = &module->holdings[i];
        if (holding->tensor != NULL && holding->tensor->distribution != NULL)
            group = rs_distributed_group(holding->tensor);
        else if (holding->child != NULL)
            group = find_module_group(holding->child);
    }
    return group;
}

static void write_shards(reshard_tensor *source, reshard_tensor *target)
{
    if (source->storage != NULL) {
        if (source->data == target->data)
            return; /* the module is loaded from itself */
        (void)reshard_tensor_write(target);
        rs_tensor_copy(source, target);
        return;
    }
    for (int64_t i = 0; i < target->distribution->shard_count; i++)
        write_shards(source->distribution->shards[i], target->distribution->shards[i]);
}

/* Checks and allocates everything. This is the last step that can fail on one rank alone. */
static reshard_status prepare(reshard_context *context, const reshard_named_tensors *mine,
                              int64_t count, const reshard_named_tensor *items,
                              const reshard_load_options *options, reshard_tensor ***out_moved)
{
    reshard_load_options read;
    reshard_status status = rs_options_read("options", options, &read, sizeof read);
    if (status == RESHARD_OK)
        status = check_all(mine, count, items, &read);
    if (status != RESHARD_OK)
        return status;
    *out_moved = rs_allocate_zeroed(context, (size_t)mine->count * sizeof **out_moved);
    return *out_moved != NULL ? RESHARD_OK : rs_allocation_status();
}

reshard_status rs_named_load(reshard_context *context, reshard_status status, reshard_group *group,
                             const reshard_named_tensors *mine, int64_t count,
                             const reshard_named_tensor *items, const reshard_load_options *options)
{
    assert(mine != NULL || status != RESHARD_OK);
    assert(count == 0 || items != NULL);
    reshard_tensor **moved = NULL;
    if (status == RESHARD_OK)
        status = prepare(context, mine, count, items, options, &moved);
    status = rs_fail_within(status, "load");
    group = group != NULL ? group : find_group(count, items);
    if (group != NULL)
        status = rs_agree(group, status, "load");
    for (int64_t i = 0; status == RESHARD_OK && i < mine->count; i++) {
        const reshard_named_tensor *given = find_item(count, items, mine->items[i].name);
        if (given != NULL)
            status = rs_tensor_bring(context, given->tensor, mine->items[i].tensor, &moved[i]);
    }
    for (int64_t i = 0; status == RESHARD_OK && i < mine->count; i++) {
        if (moved[i] != NULL)
            write_shards(moved[i], mine->items[i].tensor);
    }
    for (int64_t i = 0; moved != NULL && i < mine->count; i++)
        reshard_tensor_release(moved[i]);
    rs_release(context, moved);
    return status;
}

reshard_status reshard_module_load_state_dict(reshard_module *module, int64_t count,
                                              const reshard_named_tensor *items,
                                              const reshard_load_options *options)
{
    reshard_named_tensors *mine = NULL;
    reshard_status status = reshard_module_state_dict(module, &mine);
    status = rs_named_load(module->context, status, find_module_group(module), mine, count, items,
                           options);
    reshard_named_tensors_destroy(mine);
    return status;
}

reshard_status reshard_module_set_parameter(reshard_module *module, const char *path,
                                            reshard_tensor *tensor)
{
    reshard_named_tensor own = {.name = path}, given = {path, tensor};
    reshard_named_tensors mine = {1, &own};
    reshard_status status = path != NULL ? rs_module_find_parameter(module, path, &own.tensor)
                                         : rs_fail(RESHARD_ERR_INVALID, "the path is NULL");
    if (status == RESHARD_OK && own.tensor == NULL)
        status =
            rs_fail(RESHARD_ERR_INVALID, "the parameter \"%s\" has no tensor; set one first", path);
    return rs_named_load(module->context, status, find_module_group(module), &mine, 1, &given,
                         NULL);
}
