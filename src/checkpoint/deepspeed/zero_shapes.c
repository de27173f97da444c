/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zero_shapes.c - reads from a part's model file which parameters are trained, in which order and
 * of which shapes: the optimizer's files hold nothing but flat arrays of them.
 */
#include "checkpoint/deepspeed/zero.h"

#include "base/checked.h"
#include "base/context.h"
#include "base/shape.h"
#include "base/sort.h"

#include <string.h>

const rs_pickle_node *rs_zero_root(const rs_zero_reading *r, int32_t file)
{
    size_t bytes = 0;
    return rs_pickle_root(rs_torch_file_pickle(rs_torch_opened(r->checkpoint, file), &bytes));
}

static bool begins_with(rs_slice text, const char *word)
{
    size_t length = strlen(word);
    return text.count > length && memcmp(text.bytes, word, length) == 0;
}

rs_slice rs_zero_strip(const rs_zero_part *part, rs_slice told)
{
    const size_t length = sizeof "module." - 1;
    return part->strips_module && begins_with(told, "module.")
               ? (rs_slice){told.bytes + length, told.count - length}
               : told;
}

/* ---- shapes ---------------------------------------------------------------------------------- */

/* The lists of shapes: one for each group, or in old files a single dict. */
static size_t count_lists(const rs_pickle_node *shapes)
{
    return rs_pickle_dict(shapes) != NULL ? 1 : rs_pickle_count(shapes);
}

static const rs_pickle_node *list_at(const rs_pickle_node *shapes, size_t index)
{
    const rs_pickle_node *dict = rs_pickle_dict(shapes);
    return dict != NULL ? dict : rs_pickle_dict(rs_pickle_item(shapes, index));
}

static bool all_begin_with_module(const rs_zero_part *part, const rs_pickle_node *frozen)
{
    bool all = true;
    const rs_pickle_node *dict = rs_pickle_dict(frozen);
    for (int64_t i = 0; all && i < part->parameter_count; i++)
        all = begins_with(part->parameters[i].told, "module.");
    for (size_t i = 0; all && i < rs_pickle_count(dict); i++) {
        rs_slice name;
        all = rs_pickle_text(dict->items.nodes[2 * i], &name) && begins_with(name, "module.");
    }
    return all;
}

reshard_status rs_zero_read_parameter(rs_zero_reading *r, int32_t file, const rs_pickle_node *key,
                                      const rs_pickle_node *shape, rs_zero_parameter *out_parameter)
{
    const char *name = r->checkpoint->files[file].name;
    rs_zero_parameter *parameter = out_parameter;
    if (!rs_pickle_text(key, &parameter->told) || parameter->told.count == 0)
        return rs_fail_about(RESHARD_ERR_CORRUPT, name, "param_shapes has %s for a name",
                             rs_pickle_kind_text(key));
    reshard_status status =
        rs_torch_numbers(&r->checkpoint->arena, shape, &parameter->ndim, &parameter->shape);
    if (status == RESHARD_OK && !rs_shape_fits(parameter->ndim, parameter->shape))
        status = rs_fail(RESHARD_ERR_RANGE, "its size goes beyond 63 bits");
    if (status != RESHARD_OK)
        return rs_fail_within(status, "%s: parameter \"%.*s\"", name, RS_SHOWN(parameter->told));
    parameter->count = rs_volume(parameter->ndim, parameter->shape);
    return RESHARD_OK;
}

/* Experts that AutoEP cuts over groups of their own would come out incomplete. */
static reshard_status refuse_autoep(const rs_zero_reading *r, int32_t file)
{
    const rs_pickle_node *root = rs_zero_root(r, file);
    const rs_pickle_node *layers = rs_pickle_get(root, "ds_autoep_layers");
    if (layers == NULL)
        layers = rs_pickle_get(root, "autoep_layers");
    for (size_t i = 0; i < rs_pickle_count(layers); i++) {
        rs_slice format;
        if (rs_pickle_text(rs_pickle_get(rs_pickle_item(layers, i), "checkpoint_format"),
                           &format) &&
            rs_slice_equals(format, "zero3_partitioned"))
            return rs_fail_about(RESHARD_ERR_UNSUPPORTED, r->checkpoint->files[file].name,
                                 "holds experts of AutoEP (zero3_partitioned), which are cut over "
                                 "groups of their own; convert them with DeepSpeed's "
                                 "ds_to_universal.py");
    }
    return RESHARD_OK;
}

typedef struct named_index {
    rs_slice told;
    int64_t index;
} named_index;

static reshard_status sort_by_name(rs_zero_reading *r, rs_zero_part *part, int32_t file)
{
    size_t count = (size_t)part->parameter_count;
    reshard_status status = RESHARD_OK;
    named_index *names = rs_allocate_array(r->checkpoint->context, count, sizeof *names);
    part->by_name = rs_arena_allocate_array(&r->checkpoint->arena, count, sizeof(int64_t));
    if (names == NULL || part->by_name == NULL)
        status = rs_allocation_status();
    for (size_t i = 0; status == RESHARD_OK && i < count; i++)
        names[i] = (named_index){part->parameters[i].told, (int64_t)i};
    if (status == RESHARD_OK)
        rs_sort(names, count, sizeof *names, rs_compare_slices);
    for (size_t i = 0; status == RESHARD_OK && i < count; i++) {
        part->by_name[i] = names[i].index;
        if (i > 0 && rs_compare_slices(&names[i - 1], &names[i]) == 0)
            status = rs_fail_about(RESHARD_ERR_CORRUPT, r->checkpoint->files[file].name,
                                   "param_shapes names parameter \"%.*s\" twice",
                                   RS_SHOWN(names[i].told));
    }
    rs_release(r->checkpoint->context, names);
    return status;
}

reshard_status rs_zero_read_shapes(rs_zero_reading *r, rs_zero_part *part, int32_t file)
{
    const rs_pickle_node *root = rs_zero_root(r, file),
                         *shapes = rs_pickle_get(root, "param_shapes");
    size_t count = 0, lists = count_lists(shapes);
    reshard_status status = refuse_autoep(r, file);
    if (status == RESHARD_OK && lists == 0)
        status = rs_fail_about(RESHARD_ERR_UNSUPPORTED, r->checkpoint->files[file].name,
                               "has no param_shapes, so nothing says which parameters the "
                               "optimizer's files hold; DeepSpeed writes them since 0.3.16");
    if (status != RESHARD_OK)
        return status;
    for (size_t i = 0; i < lists; i++)
        count += rs_pickle_count(list_at(shapes, i));
    part->shape_group_count = (int32_t)lists;
    part->parameters =
        rs_arena_allocate_array(&r->checkpoint->arena, count, sizeof *part->parameters);
    if (part->parameters == NULL)
        return rs_allocation_status();
    for (size_t i = 0; status == RESHARD_OK && i < lists; i++) {
        const rs_pickle_node *dict = list_at(shapes, i);
        int64_t at = 0;
        for (size_t j = 0; status == RESHARD_OK && j < rs_pickle_count(dict); j++) {
            rs_zero_parameter *parameter = &part->parameters[part->parameter_count];
            *parameter = (rs_zero_parameter){.group = (int32_t)i, .at = at};
            status = rs_zero_read_parameter(r, file, dict->items.nodes[2 * j],
                                            dict->items.nodes[2 * j + 1], parameter);
            if (status == RESHARD_OK && !rs_add(at, parameter->count, &at))
                status =
                    rs_fail_about(RESHARD_ERR_RANGE, r->checkpoint->files[file].name,
                                  "the parameters of group %zu have more than 2^63 elements", i);
            part->parameter_count += status == RESHARD_OK;
        }
    }
    if (status != RESHARD_OK)
        return status;
    part->strips_module = part->parameter_count != 0 &&
                          all_begin_with_module(part, rs_pickle_get(root, "frozen_param_shapes"));
    for (int64_t i = 0; i < part->parameter_count; i++)
        part->parameters[i].name = rs_zero_strip(part, part->parameters[i].told);
    return sort_by_name(r, part, file);
}
