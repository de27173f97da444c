/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zero_model.c - reads a part's model file: the shapes of what the optimizer's files hold, and what
 * is in no other file: buffers, frozen parameters, which names share a parameter, and the 16-bit
 * weights as far as they are whole.
 *
 * The 16-bit weights are the same model once more, so they are kept aside: under "module", which
 * has to be asked for.
 */
#include "checkpoint/deepspeed/zero.h"
#include "checkpoint/deepspeed/zero_boxes.h"

#include "base/checked.h"
#include "base/context.h"
#include "base/shape.h"
#include "base/sort.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const rs_pickle_node *root_of(const rs_zero_reading *r, int32_t file)
{
    size_t bytes = 0;
    return rs_pickle_root(rs_torch_file_pickle(rs_torch_opened(r->checkpoint, file), &bytes));
}

static bool begins_with(rs_slice text, const char *word)
{
    size_t length = strlen(word);
    return text.count > length && memcmp(text.bytes, word, length) == 0;
}

static rs_slice strip(const rs_zero_part *part, rs_slice told)
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

static reshard_status read_parameter(rs_zero_reading *r, int32_t file, const rs_pickle_node *key,
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
        return rs_fail_within(status, "%s: parameter \"%.*s\"", name,
                              rs_slice_shown(parameter->told), parameter->told.bytes);
    parameter->count = rs_volume(parameter->ndim, parameter->shape);
    return RESHARD_OK;
}

/* Experts that AutoEP cuts over groups of their own would come out incomplete. */
static reshard_status refuse_autoep(const rs_zero_reading *r, int32_t file)
{
    const rs_pickle_node *root = root_of(r, file);
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

static int compare_named(const void *a, const void *b)
{
    return rs_slice_compare(((const named_index *)a)->told, ((const named_index *)b)->told);
}

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
        rs_sort(names, count, sizeof *names, compare_named);
    for (size_t i = 0; status == RESHARD_OK && i < count; i++) {
        part->by_name[i] = names[i].index;
        if (i > 0 && compare_named(&names[i - 1], &names[i]) == 0)
            status = rs_fail_about(RESHARD_ERR_CORRUPT, r->checkpoint->files[file].name,
                                   "param_shapes names parameter \"%.*s\" twice",
                                   rs_slice_shown(names[i].told), names[i].told.bytes);
    }
    if (names != NULL)
        rs_release(r->checkpoint->context, names, count * sizeof *names);
    return status;
}

reshard_status rs_zero_read_shapes(rs_zero_reading *r, rs_zero_part *part, int32_t file)
{
    const rs_pickle_node *root = root_of(r, file), *shapes = rs_pickle_get(root, "param_shapes");
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
            status = read_parameter(r, file, dict->items.nodes[2 * j], dict->items.nodes[2 * j + 1],
                                    parameter);
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
        part->parameters[i].name = strip(part, part->parameters[i].told);
    return sort_by_name(r, part, file);
}

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
                       "tensor \"%.*s\": is not stored row by row, and cannot be cut",
                       rs_slice_shown(full), full.bytes);
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
    rs_slice name = strip(w->part, told);
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
                                 rs_slice_shown(told), told.bytes);
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
               ? add_whole(w->r, w->part, &found, w->r->model, strip(w->part, told), false)
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
    rs_occurrence found;
    if (inner.count > key.count)
        inner = (rs_slice){inner.bytes + key.count + 1, inner.count - key.count - 1};
    if (leaf->kind == RS_TORCH_VALUE && is_consumed(key))
        return RESHARD_OK;
    if (leaf->kind == RS_TORCH_VALUE)
        return rs_torch_keep_common(w->r->checkpoint, &w->r->common, w->file, w->part->mp == 0,
                                    leaf);
    if (leaf->kind != RS_TORCH_TENSOR)
        return rs_fail_about(RESHARD_ERR_UNSUPPORTED, w->r->checkpoint->files[w->file].name,
                             "tensor \"%.*s\" is a DTensor or ShardedTensor, which ZeRO's files do "
                             "not hold",
                             rs_slice_shown(leaf->name), leaf->name.bytes);
    if (rs_slice_equals(key, "module"))
        return take_module(w, leaf, inner);
    if (rs_slice_equals(key, "frozen_param_fragments"))
        return take_frozen(w, leaf, inner);
    if (w->part->mp != 0)
        return RESHARD_OK; /* as of values, the first part's are kept */
    reshard_status status = rs_torch_occurrence(w->r->checkpoint, w->file, leaf, &found);
    return status == RESHARD_OK
               ? rs_occurrences_add(w->r->checkpoint->context, &w->r->others, &found)
               : status;
}

static reshard_status list_buffers(const rs_zero_reading *r, rs_zero_part *part, int32_t file)
{
    const rs_pickle_node *names = rs_pickle_get(root_of(r, file), "buffer_names");
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

/* ---- frozen parameters of stage 3 ------------------------------------------------------------ */

static reshard_status read_fragment(rs_zero_reading *r, int32_t file, rs_slice told,
                                    const rs_pickle_node *node, reshard_dtype *dtype, bool is_first,
                                    rs_zero_flat *out_flat)
{
    reshard_dtype found = RESHARD_DTYPE_NONE;
    int32_t ndim = 0;
    char what[200];
    rs_slice shown = {told.bytes, (size_t)rs_slice_shown(told)};
    size_t length = shown.count < 150 ? shown.count : 150;
    memcpy(what, "frozen parameter \"", 18);
    memcpy(what + 18, shown.bytes, length);
    memcpy(what + 18 + length, "\"", 2);
    reshard_status status =
        rs_zero_flat_read(r->checkpoint, file, node, what, &found, &ndim, out_flat);
    if (status == RESHARD_OK && is_first)
        *dtype = found;
    if (status == RESHARD_OK && found != *dtype)
        status = rs_fail_about(RESHARD_ERR_CORRUPT, r->checkpoint->files[file].name,
                               "%s is of another dtype than in the first rank's file", what);
    return status;
}

/* Adds a frozen parameter: the ranks' parts one after the other, cut to its size. */
static reshard_status add_frozen(rs_zero_reading *r, const rs_zero_part *part,
                                 const rs_zero_parameter *parameter, reshard_dtype dtype,
                                 const rs_zero_flat *flats, rs_zero_boxes *boxes)
{
    reshard_checkpoint *checkpoint = r->checkpoint;
    rs_stored_tensor tensor;
    reshard_status status = RESHARD_OK;
    const rs_value_step *step = rs_zero_step(checkpoint, r->model, strip(part, parameter->told));
    rs_slice name = step != NULL ? rs_zero_name(checkpoint, step) : (rs_slice){NULL, 0};
    if (name.bytes == NULL)
        return rs_allocation_status();
    rs_zero_boxes_begin(boxes, parameter->ndim, parameter->shape);
    for (int32_t rank = 0; status == RESHARD_OK && rank < part->rank_count; rank++)
        status = rs_zero_boxes_add(boxes, rank, 0,
                                   rs_min(flats[rank].count, parameter->count - boxes->next));
    if (status == RESHARD_OK && boxes->next != parameter->count)
        status =
            rs_fail(RESHARD_ERR_CORRUPT,
                    "frozen parameter \"%.*s\" has %lld elements, but the files of %d ranks "
                    "hold %lld",
                    rs_slice_shown(parameter->told), parameter->told.bytes,
                    (long long)parameter->count, (int)part->rank_count, (long long)boxes->next);
    if (status == RESHARD_OK)
        status = rs_zero_boxes_tensor(boxes, name, dtype, flats, 1, &tensor);
    if (status != RESHARD_OK)
        return status;
    tensor.step = step;
    tensor.is_fixed = true;
    return rs_zero_add_local(r, &tensor, strip(part, parameter->told), part->mp);
}

/* Reads the parts of all frozen parameters that the ranks' model files hold: by parameter, then by
 * rank. */
static reshard_status read_fragments(rs_zero_reading *r, const rs_zero_part *part,
                                     const rs_zero_parameter *parameters, size_t count,
                                     reshard_dtype *dtypes, rs_zero_flat *flats)
{
    reshard_status status = RESHARD_OK;
    for (int32_t rank = 0; status == RESHARD_OK && rank < part->rank_count; rank++) {
        rs_pickle_index index = {0};
        int64_t at = rs_ds_files_at(&r->files, RS_DS_RANK_MODEL, 0, part->mp, rank);
        int32_t file = r->opened[at];
        status = rs_pickle_index_init(&index, r->checkpoint->context,
                                      rs_pickle_get(root_of(r, file), "frozen_param_fragments"));
        for (size_t i = 0; status == RESHARD_OK && i < count; i++)
            status = read_fragment(r, file, parameters[i].told,
                                   rs_pickle_index_get(&index, parameters[i].told), &dtypes[i],
                                   rank == 0, &flats[i * (size_t)part->rank_count + (size_t)rank]);
        rs_pickle_index_release(&index);
    }
    return status;
}

static reshard_status read_frozen(rs_zero_reading *r, const rs_zero_part *part, int32_t file)
{
    const rs_pickle_node *dict =
        rs_pickle_dict(rs_pickle_get(root_of(r, file), "frozen_param_shapes"));
    size_t count = rs_pickle_count(dict);
    rs_arena *arena = &r->checkpoint->arena;
    rs_zero_boxes boxes = {.arena = arena};
    reshard_status status = RESHARD_OK;
    if (count == 0 || part->stage != 3)
        return RESHARD_OK;
    rs_zero_parameter *parameters = rs_arena_allocate_array(arena, count, sizeof *parameters);
    reshard_dtype *dtypes = rs_arena_allocate_array(arena, count, sizeof *dtypes);
    rs_zero_flat *flats =
        rs_arena_allocate_array(arena, count * (size_t)part->rank_count, sizeof *flats);
    if (parameters == NULL || dtypes == NULL || flats == NULL)
        return rs_allocation_status();
    for (size_t i = 0; status == RESHARD_OK && i < count; i++) {
        parameters[i] = (rs_zero_parameter){0};
        status = read_parameter(r, file, dict->items.nodes[2 * i], dict->items.nodes[2 * i + 1],
                                &parameters[i]);
    }
    if (status == RESHARD_OK)
        status = read_fragments(r, part, parameters, count, dtypes, flats);
    for (size_t i = 0; status == RESHARD_OK && i < count; i++)
        status = add_frozen(r, part, &parameters[i], dtypes[i],
                            flats + i * (size_t)part->rank_count, &boxes);
    rs_zero_boxes_release(&boxes);
    return status;
}

static const rs_zero_local *find_local(const rs_zero_reading *r, int32_t mp, rs_slice name)
{
    for (int64_t i = 0; i < r->local_count; i++) {
        const rs_zero_local *local = &r->locals[i];
        if (local->mp == mp && !local->tensor.is_aside &&
            rs_slice_compare(local->parameter, name) == 0 && local->tensor.step->parent == r->model)
            return local;
    }
    return NULL;
}

/* Stages 1 and 2: whatever is listed as frozen has to be somewhere. */
static reshard_status check_frozen(const rs_zero_reading *r, const rs_zero_part *part, int32_t file,
                                   const rs_pickle_index *held)
{
    const rs_pickle_node *dict =
        rs_pickle_dict(rs_pickle_get(root_of(r, file), "frozen_param_shapes"));
    for (size_t i = 0; part->stage != 3 && i < rs_pickle_count(dict); i++) {
        rs_slice told;
        if (rs_pickle_text(dict->items.nodes[2 * i], &told) &&
            rs_pickle_index_get(held, told) == NULL &&
            find_local(r, part->mp, strip(part, told)) == NULL)
            return rs_fail_about(RESHARD_ERR_GAP, r->checkpoint->files[file].name,
                                 "lists the frozen parameter \"%.*s\", but does not hold it",
                                 rs_slice_shown(told), told.bytes);
    }
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
    const rs_pickle_node *root = root_of(r, file);
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
        status = read_frozen(r, part, file);
    if (status == RESHARD_OK)
        status = check_frozen(r, part, file, &w.frozen);
    if (status == RESHARD_OK && w.unlisted_count != 0)
        status =
            rs_store_note(r->checkpoint,
                          "%lld parameters are neither trained nor listed as frozen (\"%.*s\"); "
                          "%s holds them whole, in its own dtype",
                          (long long)w.unlisted_count, rs_slice_shown(w.unlisted), w.unlisted.bytes,
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
                             "tensor \"%.*s\" is a DTensor or ShardedTensor, which DeepSpeed's "
                             "files do not hold",
                             rs_slice_shown(leaf->name), leaf->name.bytes);
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
    rs_slice name = strip(&w->r->parts[0], (rs_slice){bytes, count});
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
    const rs_pickle_node *dict = rs_pickle_dict(rs_pickle_get(root_of(r, file), "shared_params"));
    for (size_t i = 0; i < rs_pickle_count(dict); i++) {
        rs_slice alias, kept;
        if (!rs_pickle_text(dict->items.nodes[2 * i], &alias) ||
            !rs_pickle_text(dict->items.nodes[2 * i + 1], &kept))
            return rs_fail_about(RESHARD_ERR_CORRUPT, r->checkpoint->files[file].name,
                                 "shared_params has a name that is not a text");
        const rs_zero_local *local = find_local(r, part->mp, strip(part, kept));
        if (local == NULL)
            continue; /* as DeepSpeed does: of a parameter that is not in the checkpoint */
        rs_stored_tensor tensor = local->tensor;
        rs_slice parameter = local->parameter;
        tensor.step = rs_zero_step(r->checkpoint, r->model, strip(part, alias));
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
