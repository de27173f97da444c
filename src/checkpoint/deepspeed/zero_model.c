/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zero_model.c - reads what a part's model file holds itself: buffers, frozen parameters that are
 * whole, which names share a parameter, and the 16-bit weights as far as they are whole.
 *
 * The 16-bit weights are the same model once more, so they are kept aside: under "module", which
 * has to be asked for.
 */
#include "checkpoint/deepspeed/zero.h"

#include "base/context.h"
#include "base/shape.h"
#include "base/sort.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- whole tensors of the model file --------------------------------------------------------- */

/* The model file while it is walked. */
typedef struct model_walk {
    rs_zero_reading *r;
    rs_zero_part *part;
    int32_t file;
    rs_pickle_index frozen, shared; /* by name: parts of frozen parameters, aliases */
    bool has_weights;               /* `module` holds trained parameters, whole */
    int64_t unlisted_count;         /* parameters that no list has, but that are whole */
    rs_slice unlisted;
} model_walk;

/* Describes a tensor that lies whole in a file. */
static reshard_status describe_whole(reshard_checkpoint *checkpoint, const rs_occurrence *found,
                                     rs_slice full, rs_stored_tensor *out_tensor)
{
    rs_stored_tensor tensor;
    reshard_status status = rs_store_describe(&tensor, &checkpoint->arena, full, found->dtype,
                                              found->ndim, found->shape);
    if (status != RESHARD_OK)
        return status;
    const rs_stored_piece piece = {.file = found->file,
                                   .at = found->at,
                                   .size = tensor.carried_shape,
                                   .strides = found->strides};
    if (tensor.opaque && found->strides != NULL)
        return rs_fail(RESHARD_ERR_UNSUPPORTED,
                       "tensor \"%.*s\" is not stored row by row, so it cannot be cut",
                       RS_SHOWN(full));
    tensor.pieces = rs_arena_copy(&checkpoint->arena, &piece, 1, sizeof piece);
    if (tensor.pieces == NULL)
        return rs_allocation_status();
    tensor.piece_count = 1;
    *out_tensor = tensor;
    return RESHARD_OK;
}

/* Adds a tensor of the file under a step, once more if it already has another name. */
static reshard_status add_whole(rs_zero_reading *r, const rs_zero_part *part,
                                const rs_occurrence *found, const rs_value_step *parent,
                                rs_slice name, bool is_aside)
{
    rs_stored_tensor tensor;
    const rs_value_step *step = rs_zero_step(r->checkpoint, parent, name);
    rs_slice full = step != NULL ? rs_zero_name(r->checkpoint, step) : (rs_slice){NULL, 0};
    if (full.bytes == NULL)
        return rs_allocation_status();
    reshard_status status = describe_whole(r->checkpoint, found, full, &tensor);
    if (status != RESHARD_OK)
        return status;
    tensor.step = step;
    tensor.is_aside = is_aside;
    tensor.is_fixed = !is_aside;
    return rs_zero_add_local(r, &tensor, name, part->mp);
}

reshard_status rs_zero_add_other(rs_zero_reading *r, const rs_occurrence *found)
{
    rs_stored_tensor tensor;
    reshard_status status = describe_whole(r->checkpoint, found, found->name, &tensor);
    if (status != RESHARD_OK)
        return status;
    tensor.step = found->place.step;
    tensor.is_fixed = true;
    return rs_zero_add_local(r, &tensor, (rs_slice){NULL, 0}, 0);
}

static bool is_buffer(const rs_zero_part *part, rs_slice told)
{
    return part->buffer_count != 0 && bsearch(&told, part->buffers, part->buffer_count, sizeof told,
                                              rs_compare_slices) != NULL;
}

/* A tensor of `module`. In stage 3, parameters are empty there. */
static reshard_status take_module(model_walk *w, const rs_torch_leaf *leaf, rs_slice told)
{
    rs_occurrence found;
    rs_slice name = rs_zero_strip(w->part, told);
    const rs_zero_parameter *parameter = rs_zero_find(w->part, told);
    bool is_frozen = rs_pickle_index_get(&w->frozen, told) != NULL;
    bool is_alias = rs_pickle_index_get(&w->shared, told) != NULL;
    reshard_status status = rs_torch_occurrence(w->r->checkpoint, w->file, leaf, &found);
    if (status != RESHARD_OK)
        return status;
    bool is_empty = rs_volume(found.ndim, found.shape) == 0;
    if (is_buffer(w->part, told)) {
        status = add_whole(w->r, w->part, &found, w->r->model, name, false);
    } else if (parameter == NULL && !is_frozen && !is_alias) {
        if (is_empty)
            return rs_fail_about(RESHARD_ERR_GAP, w->r->checkpoint->files[w->file].name,
                                 "parameter \"%.*s\" is empty here, and no other file holds it: it "
                                 "is neither among the trained parameters nor the frozen ones",
                                 RS_SHOWN(told));
        if (w->unlisted_count++ == 0)
            w->unlisted = told;
        status = add_whole(w->r, w->part, &found, w->r->model, name, false);
    } else if (is_empty && !(parameter != NULL && parameter->count == 0)) {
        return RESHARD_OK; /* a placeholder */
    }
    if (status == RESHARD_OK && w->has_weights)
        status = add_whole(w->r, w->part, &found, w->r->module, name, true);
    return status;
}

/* A frozen parameter of stages 1 and 2, which is whole. */
static reshard_status take_frozen(model_walk *w, const rs_torch_leaf *leaf, rs_slice told)
{
    rs_occurrence found;
    if (w->part->stage == 3)
        return RESHARD_OK; /* joined from all ranks */
    reshard_status status = rs_torch_occurrence(w->r->checkpoint, w->file, leaf, &found);
    return status == RESHARD_OK
               ? add_whole(w->r, w->part, &found, w->r->model, rs_zero_strip(w->part, told), false)
               : status;
}

static rs_slice first_key(const rs_torch_leaf *leaf)
{
    const rs_value_step *step = leaf->place.step;
    while (step != NULL && step->parent != NULL)
        step = step->parent;
    return step != NULL && step->key.bytes != NULL ? step->key : (rs_slice){"", 0};
}

/* What says how the files are split, or is read in another way. */
static bool is_consumed(rs_slice key)
{
    static const char *const keys[] = {
        "param_shapes",  "frozen_param_shapes",       "buffer_names", "frozen_param_fragments",
        "shared_params", "universal_checkpoint_info", "optimizer",    "module"};
    bool is = false;
    for (size_t i = 0; !is && i < sizeof keys / sizeof *keys; i++)
        is = rs_slice_equals(key, keys[i]);
    return is;
}

static reshard_status take(void *user, const rs_torch_leaf *leaf)
{
    model_walk *w = user;
    rs_slice key = first_key(leaf), inner = leaf->name;
    if (inner.count > key.count)
        inner = (rs_slice){inner.bytes + key.count + 1, inner.count - key.count - 1};
    if (leaf->kind == RS_TORCH_VALUE && is_consumed(key))
        return RESHARD_OK;
    if (leaf->kind == RS_TORCH_VALUE)
        return rs_torch_keep_common(w->r->checkpoint, &w->r->common, w->file, w->part->mp == 0,
                                    leaf);
    if (leaf->kind != RS_TORCH_TENSOR)
        return rs_fail_about(
            RESHARD_ERR_UNSUPPORTED, w->r->checkpoint->files[w->file].name,
            "tensor \"%.*s\" is a DTensor or ShardedTensor, which does not belong in ZeRO's files",
            RS_SHOWN(leaf->name));
    if (rs_slice_equals(key, "module"))
        return take_module(w, leaf, inner);
    if (rs_slice_equals(key, "frozen_param_fragments"))
        return take_frozen(w, leaf, inner);
    if (w->part->mp != 0)
        return RESHARD_OK; /* as of values, the first part's are kept */
    return rs_torch_add(w->r->checkpoint, w->file, leaf, &w->r->others);
}

static reshard_status list_buffers(const rs_zero_reading *r, rs_zero_part *part, int32_t file)
{
    const rs_pickle_node *names = rs_pickle_get(rs_zero_root(r, file), "buffer_names");
    size_t count = rs_pickle_count(names);
    part->buffers = rs_arena_allocate_array(&r->checkpoint->arena, count, sizeof *part->buffers);
    if (part->buffers == NULL)
        return rs_allocation_status();
    for (size_t i = 0; i < count; i++) {
        if (rs_pickle_text(rs_pickle_item(names, i), &part->buffers[part->buffer_count]))
            part->buffer_count++;
    }
    rs_sort(part->buffers, part->buffer_count, sizeof *part->buffers, rs_compare_slices);
    return RESHARD_OK;
}

/* In stage 3 they are empty, and our own universal checkpoints leave them out. */
static bool has_whole_weights(const rs_zero_part *part, const rs_pickle_node *module)
{
    const rs_pickle_node *dict = rs_pickle_dict(module);
    bool has = false;
    for (size_t i = 0; part->stage != 3 && !has && i < rs_pickle_count(dict); i++) {
        rs_slice told;
        has = rs_pickle_text(dict->items.nodes[2 * i], &told) && rs_zero_find(part, told) != NULL;
    }
    return has;
}

/* ---- all of a model file --------------------------------------------------------------------- */

reshard_status rs_zero_read_model(rs_zero_reading *r, rs_zero_part *part, int32_t file)
{
    const rs_pickle_node *root = rs_zero_root(r, file);
    reshard_context *context = r->checkpoint->context;
    model_walk w = {.r = r,
                    .part = part,
                    .file = file,
                    .has_weights = has_whole_weights(part, rs_pickle_get(root, "module"))};
    reshard_status status =
        rs_pickle_index_init(&w.frozen, context, rs_pickle_get(root, "frozen_param_fragments"));
    if (status == RESHARD_OK)
        status = rs_pickle_index_init(&w.shared, context, rs_pickle_get(root, "shared_params"));
    if (status == RESHARD_OK)
        status = list_buffers(r, part, file);
    if (status == RESHARD_OK)
        status = rs_torch_walk_file(r->checkpoint, file, NULL, take, &w);
    if (status == RESHARD_OK)
        status = rs_zero_read_frozen(r, part, file);
    if (status == RESHARD_OK)
        status = rs_zero_check_frozen(r, part, file, &w.frozen);
    if (status == RESHARD_OK && w.unlisted_count != 0)
        status = rs_store_note(r->checkpoint,
                               "parameters neither trained nor listed as frozen: %lld (\"%.*s\"); "
                               "%s holds them whole, in its own dtype",
                               (long long)w.unlisted_count, RS_SHOWN(w.unlisted),
                               r->checkpoint->files[file].name);
    if (status == RESHARD_OK && r->info == NULL)
        r->info = rs_pickle_get(root, "universal_checkpoint_info");
    rs_pickle_index_release(&w.frozen);
    rs_pickle_index_release(&w.shared);
    return status;
}

/* ---- files of layers and experts ------------------------------------------------------------- */

/* A file of 16-bit weights that lie under a name, or under none. */
typedef struct plain_walk {
    rs_zero_reading *r;
    int32_t file, mp;
    rs_slice front; /* "3." of layer 3 */
} plain_walk;

static bool is_any_buffer(const rs_zero_reading *r, rs_slice told)
{
    bool is = false;
    for (int32_t i = 0; !is && i < r->files.mp_count; i++)
        is = is_buffer(&r->parts[i], told);
    return is;
}

static reshard_status take_plain(void *user, const rs_torch_leaf *leaf)
{
    const plain_walk *w = user;
    rs_occurrence found;
    const rs_zero_part part = {.mp = w->mp};
    if (leaf->kind == RS_TORCH_VALUE)
        return RESHARD_OK;
    if (leaf->kind != RS_TORCH_TENSOR)
        return rs_fail_about(RESHARD_ERR_UNSUPPORTED, w->r->checkpoint->files[w->file].name,
                             "tensor \"%.*s\" is a DTensor or ShardedTensor, which does not belong "
                             "in DeepSpeed's files",
                             RS_SHOWN(leaf->name));
    reshard_status status = rs_torch_occurrence(w->r->checkpoint, w->file, leaf, &found);
    if (status != RESHARD_OK)
        return status;
    size_t count = w->front.count + leaf->name.count;
    char *bytes = rs_arena_allocate(&w->r->checkpoint->arena, count + 1);
    if (bytes == NULL)
        return rs_allocation_status();
    memcpy(bytes, w->front.bytes, w->front.count);
    memcpy(bytes + w->front.count, leaf->name.bytes, leaf->name.count);
    bytes[count] = '\0';
    rs_slice name = rs_zero_strip(&w->r->parts[0], (rs_slice){bytes, count});
    if (is_any_buffer(w->r, (rs_slice){bytes, count}))
        status = add_whole(w->r, &part, &found, w->r->model, name, false);
    return status == RESHARD_OK ? add_whole(w->r, &part, &found, w->r->module, name, true) : status;
}

reshard_status rs_zero_read_plain(rs_zero_reading *r, const rs_ds_file *named, int32_t file)
{
    char front[24] = "";
    if (named->kind == RS_DS_LAYER)
        (void)snprintf(front, sizeof front, "%d.", (int)named->number);
    plain_walk w = {.r = r, .file = file, .mp = named->mp, .front = rs_slice_of(front)};
    return rs_torch_walk_file(r->checkpoint, file, NULL, take_plain, &w);
}

/* ---- shared parameters ----------------------------------------------------------------------- */

reshard_status rs_zero_add_aliases(rs_zero_reading *r, const rs_zero_part *part, int32_t file)
{
    const rs_pickle_node *dict =
        rs_pickle_dict(rs_pickle_get(rs_zero_root(r, file), "shared_params"));
    for (size_t i = 0; i < rs_pickle_count(dict); i++) {
        rs_slice alias, kept;
        if (!rs_pickle_text(dict->items.nodes[2 * i], &alias) ||
            !rs_pickle_text(dict->items.nodes[2 * i + 1], &kept))
            return rs_fail_about(RESHARD_ERR_CORRUPT, r->checkpoint->files[file].name,
                                 "shared_params has a name that is not a text");
        const rs_zero_local *local = rs_zero_find_local(r, part->mp, rs_zero_strip(part, kept));
        if (local == NULL)
            continue; /* as DeepSpeed does: of a parameter that is not in the checkpoint */
        rs_stored_tensor tensor = local->tensor;
        rs_slice parameter = local->parameter;
        tensor.step = rs_zero_step(r->checkpoint, r->model, rs_zero_strip(part, alias));
        if (tensor.step == NULL)
            return rs_allocation_status();
        tensor.name = rs_zero_name(r->checkpoint, tensor.step);
        if (tensor.name.bytes == NULL)
            return rs_allocation_status();
        reshard_status status = rs_zero_add_local(r, &tensor, parameter, part->mp);
        if (status != RESHARD_OK)
            return status;
    }
    return RESHARD_OK;
}
