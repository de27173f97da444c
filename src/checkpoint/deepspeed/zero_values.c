/* SPDX-License-Identifier: Apache-2.0 */
/* zero_values.c - values in the pickles of DeepSpeed, and names for what becomes of them. */
#include "base/search.h"
#include "checkpoint/deepspeed/zero.h"

#include "base/context.h"
#include "base/shape.h"

#include <stdio.h>
#include <string.h>

/* The names of ZeroStageEnum's members, by stage. */
static const char *const stages[] = {"disabled", "optimizer_states", "gradients", "weights"};
#define STAGE_COUNT ((int32_t)(sizeof stages / sizeof *stages))

const rs_pickle_node *rs_zero_at(const rs_pickle_node *dict, int64_t number)
{
    const rs_pickle_node *pairs = rs_pickle_dict(dict), *found = NULL;
    for (size_t i = 0; i < rs_pickle_count(pairs); i++) {
        int64_t key = 0;
        if (rs_pickle_int(pairs->items.nodes[2 * i], &key) && key == number)
            found = pairs->items.nodes[2 * i + 1];
    }
    return found;
}

/* ---- stages ---------------------------------------------------------------------------------- */

static bool is_stage_class(const rs_pickle_node *node)
{
    return rs_pickle_is(node, RS_PICKLE_GLOBAL) &&
           rs_slice_equals(node->global->name, "ZeroStageEnum");
}

/* ZeroStageEnum(2), or getattr(ZeroStageEnum, "gradients"), as Python 3.11 writes it. */
static bool read_member(const rs_pickle_node *node, int64_t *out_stage)
{
    if (!rs_pickle_is_any_call(node))
        return false;
    const rs_pickle_node *arguments = node->call->arguments;
    if (is_stage_class(node->call->callable))
        return rs_pickle_int(rs_pickle_item(arguments, 0), out_stage);
    rs_slice name;
    if (!rs_pickle_is_global(node->call->callable, "builtins", "getattr") ||
        !is_stage_class(rs_pickle_item(arguments, 0)) ||
        !rs_pickle_text(rs_pickle_item(arguments, 1), &name))
        return false;
    *out_stage = 0;
    while (*out_stage < STAGE_COUNT && !rs_slice_equals(name, stages[*out_stage]))
        (*out_stage)++;
    return *out_stage < STAGE_COUNT;
}

reshard_status rs_zero_stage_read(const char *file, const rs_pickle_node *node, int32_t *out_stage)
{
    int64_t stage = 0;
    char shown[160];
    if (!rs_pickle_int(node, &stage) && !read_member(node, &stage)) {
        rs_pickle_show(node, shown, sizeof shown);
        return rs_fail_about(RESHARD_ERR_UNSUPPORTED, file,
                             "its zero_stage is %s, which is neither a number nor a member of "
                             "ZeroStageEnum",
                             shown);
    }
    if (stage < 1 || stage > 3)
        return rs_fail_about(RESHARD_ERR_UNSUPPORTED, file,
                             "has ZeRO stage %lld; stages 1, 2 and 3 can be read",
                             (long long)stage);
    *out_stage = (int32_t)stage;
    return RESHARD_OK;
}

/* ---- flat tensors ---------------------------------------------------------------------------- */

reshard_status rs_zero_flat_read(reshard_checkpoint *checkpoint, int32_t file,
                                 const rs_pickle_node *node, const char *what,
                                 reshard_dtype *out_dtype, int32_t *out_ndim,
                                 rs_zero_flat *out_flat)
{
    rs_torch_tensor tensor;
    rs_zero_flat flat = {.file = file};
    const char *name = checkpoint->files[file].name;
    if (node == NULL)
        return rs_fail_about(RESHARD_ERR_CORRUPT, name, "%s is missing", what);
    if (rs_torch_kind_of(node) != RS_TORCH_TENSOR) {
        char shown[160];
        rs_pickle_show(node, shown, sizeof shown);
        return rs_fail_about(RESHARD_ERR_UNSUPPORTED, name, "%s is %s, where a tensor should be",
                             what, shown);
    }
    rs_arena_mark mark = rs_arena_mark_now(&checkpoint->arena);
    reshard_status status = rs_torch_tensor_read(&checkpoint->arena, node, &tensor);
    if (status == RESHARD_OK && tensor.strides != NULL)
        status = rs_fail(RESHARD_ERR_UNSUPPORTED, "is not stored contiguously");
    if (status == RESHARD_OK) {
        flat.count = rs_volume(tensor.ndim, tensor.shape);
        *out_dtype = tensor.dtype;
        *out_ndim = tensor.ndim;
    }
    rs_arena_return_to(&checkpoint->arena, mark);
    if (status == RESHARD_OK && reshard_dtype_bits(tensor.dtype) % 8 != 0)
        status = rs_fail(RESHARD_ERR_UNSUPPORTED, "has elements of less than a byte");
    if (status == RESHARD_OK && flat.count != 0)
        status = rs_torch_locate(checkpoint, file, &tensor, &flat.file, &flat.at);
    if (status != RESHARD_OK)
        return rs_fail_within(status, "%s: %s", name, what);
    *out_flat = flat;
    return RESHARD_OK;
}

/* ---- names ----------------------------------------------------------------------------------- */

const rs_value_step *rs_zero_step(reshard_checkpoint *checkpoint, const rs_value_step *parent,
                                  rs_slice key)
{
    const rs_value_step step = {.parent = parent, .key = key};
    return rs_arena_copy(&checkpoint->arena, &step, 1, sizeof step);
}

bool rs_zero_make_steps(rs_zero_reading *r)
{
    reshard_checkpoint *checkpoint = r->checkpoint;
    r->model = rs_zero_step(checkpoint, NULL, rs_slice_of("model"));
    r->module = rs_zero_step(checkpoint, NULL, rs_slice_of("module"));
    r->state = rs_zero_step(checkpoint, NULL, rs_slice_of("optimizer"));
    if (r->state != NULL)
        r->state = rs_zero_step(checkpoint, r->state, rs_slice_of("state"));
    return r->model != NULL && r->module != NULL && r->state != NULL;
}

rs_slice rs_zero_name(reshard_checkpoint *checkpoint, const rs_value_step *step)
{
    size_t count = 0;
    for (const rs_value_step *s = step; s != NULL; s = s->parent)
        count += s->key.count + (s->parent != NULL);
    char *bytes = rs_arena_allocate(&checkpoint->arena, count + 1);
    if (bytes == NULL)
        return (rs_slice){NULL, 0};
    bytes[count] = '\0';
    size_t end = count;
    for (const rs_value_step *s = step; s != NULL; s = s->parent) {
        end -= s->key.count;
        memcpy(bytes + end, s->key.bytes, s->key.count);
        if (s->parent != NULL)
            bytes[--end] = '.';
    }
    return (rs_slice){bytes, count};
}

reshard_status rs_zero_keep_value(reshard_checkpoint *checkpoint, int32_t file,
                                  const rs_value_step *step, const rs_pickle_node *node)
{
    const rs_torch_leaf leaf = {.name = rs_zero_name(checkpoint, step),
                                .place = {step, checkpoint->value_count},
                                .kind = RS_TORCH_VALUE,
                                .node = node};
    return leaf.name.bytes != NULL ? rs_torch_keep_value(checkpoint, file, &leaf)
                                   : rs_allocation_status();
}

/* ---- locals ---------------------------------------------------------------------------------- */

reshard_status rs_zero_add_local(rs_zero_reading *r, const rs_stored_tensor *tensor,
                                 rs_slice parameter, int32_t mp)
{
    reshard_status status = rs_grow(r->checkpoint->context, &r->locals, &r->local_capacity,
                                    r->local_count + 1, sizeof *r->locals);
    if (status == RESHARD_OK)
        r->locals[r->local_count++] = (rs_zero_local){*tensor, parameter, mp};
    return status;
}

const rs_zero_parameter *rs_zero_find(const rs_zero_part *part, rs_slice told)
{
    int64_t at, count = part->parameter_count;
    RS_FIND_FIRST(at, count, rs_slice_compare(part->parameters[part->by_name[at]].told, told) >= 0);
    if (at == count)
        return NULL;
    const rs_zero_parameter *parameter = &part->parameters[part->by_name[at]];
    return rs_slice_compare(parameter->told, told) == 0 ? parameter : NULL;
}
