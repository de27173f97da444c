/* SPDX-License-Identifier: Apache-2.0 */
/* dcp_objects.c - the objects of a `.metadata`: their classes, fields, texts and numbers. */
#include "base/context.h"
#include "checkpoint/dcp/dcp_reading.h"
#include "checkpoint/torch/torch_values.h"

#include <string.h>

/* Longer rows of numbers are not shared with equal ones read before. */
#define ROW_MAX 32

reshard_status rs_dcp_spend(rs_dcp_reading *r, uint64_t amount)
{
    if (amount > r->left)
        return rs_fail(RESHARD_ERR_RANGE, "its values are shared so often that they would take "
                                          "much more room than the file");
    r->left -= amount;
    return RESHARD_OK;
}

/* The class of an object; NULL if it is not an object of the two projects that write such files. */
static const rs_pickle_global *class_of(const rs_pickle_node *node)
{
    if (!rs_pickle_is(node, RS_PICKLE_OBJECT) && !rs_pickle_is(node, RS_PICKLE_REDUCE))
        return NULL;
    const rs_pickle_node *callable = node->call->callable;
    if (!rs_pickle_is(callable, RS_PICKLE_GLOBAL))
        return NULL;
    rs_slice module = callable->global->module;
    return rs_slice_begins(module, "torch.distributed.") || rs_slice_begins(module, "megatron.")
               ? callable->global
               : NULL;
}

bool rs_dcp_is_of(const rs_pickle_node *node, const char *name)
{
    const rs_pickle_global *class = class_of(node);
    return class != NULL && rs_slice_equals(class->name, name);
}

bool rs_dcp_is_again(const rs_pickle_node *node, const char *name, const rs_pickle_node **known)
{
    if (rs_pickle_is(node, RS_PICKLE_OBJECT) && node->call->callable == *known)
        return true;
    if (!rs_dcp_is_of(node, name))
        return false;
    *known = node->call->callable;
    return true;
}

const rs_pickle_node *rs_dcp_field(const rs_pickle_node *object, const char *name)
{
    return rs_pickle_get(object->call->state, name);
}

reshard_status rs_dcp_fail_kind(const rs_pickle_node *node, const char *wanted)
{
    const rs_pickle_global *class = class_of(node);
    if (class != NULL)
        return rs_fail(RESHARD_ERR_UNSUPPORTED, "an object of class %.*s where %s should be",
                       RS_SHOWN(class->name), wanted);
    return rs_fail(RESHARD_ERR_CORRUPT, "%s where %s should be", rs_pickle_kind_text(node), wanted);
}

reshard_status rs_dcp_copy_text(rs_dcp_reading *r, rs_slice text, rs_slice *out_copy)
{
    reshard_status status = rs_dcp_spend(r, text.count);
    char *bytes = status == RESHARD_OK ? rs_arena_allocate(r->arena, text.count + 1) : NULL;
    if (bytes == NULL)
        return status != RESHARD_OK ? status : rs_allocation_status();
    memcpy(bytes, text.bytes, text.count);
    bytes[text.count] = '\0';
    *out_copy = (rs_slice){bytes, text.count};
    return RESHARD_OK;
}

/* False unless it is a tuple or list of at most ROW_MAX sizes. */
static bool read_row(const rs_pickle_node *row, int64_t numbers[ROW_MAX])
{
    size_t count = rs_pickle_count(row);
    if ((!rs_pickle_is(row, RS_PICKLE_TUPLE) && !rs_pickle_is(row, RS_PICKLE_LIST)) ||
        count > ROW_MAX)
        return false;
    for (size_t i = 0; i < count; i++) {
        if (!rs_pickle_int(rs_pickle_item(row, i), &numbers[i]) || numbers[i] < 0)
            return false;
    }
    return true;
}

/* Is it a torch.Size? There are three for every chunk, so the class is remembered. */
static bool is_size(rs_dcp_reading *r, const rs_pickle_node *node)
{
    bool is_known = rs_pickle_is(node, RS_PICKLE_REDUCE) && node->call->callable == r->size_class;
    if (!is_known && !rs_pickle_is_call(node, "torch", "Size"))
        return false;
    r->size_class = node->call->callable;
    return true;
}

reshard_status rs_dcp_copy_numbers(rs_dcp_reading *r, const rs_pickle_node *node,
                                   int32_t *out_count, const int64_t **out_numbers)
{
    const rs_pickle_node *row = is_size(r, node) ? rs_pickle_item(node->call->arguments, 0) : node;
    size_t count = rs_pickle_count(row);
    int64_t numbers[ROW_MAX], number = 0;
    reshard_status status = rs_dcp_spend(r, count + 1);
    if (status == RESHARD_OK && !read_row(row, numbers))
        return rs_torch_numbers(r->arena, node, out_count, out_numbers);
    if (status == RESHARD_OK)
        status =
            rs_intern_add(&r->rows, (rs_slice){(char *)numbers, count * sizeof *numbers}, &number);
    if (status != RESHARD_OK)
        return status;
    *out_count = (int32_t)count;
    *out_numbers = (const void *)r->rows.items[number].bytes;
    return RESHARD_OK;
}
