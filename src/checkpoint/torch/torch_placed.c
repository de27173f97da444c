/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_placed.c - reads placements and shards in the spellings of PyTorch 1.13 to 2.x.
 * Fields are found by name in the state of an object, or by position in its arguments.
 */
#include "checkpoint/torch/torch_placed.h"

#include "base/checked.h"
#include "base/context.h"
#include "base/shape.h"
#include "text/text.h"

#include <string.h>

/* ---- objects --------------------------------------------------------------------------------- */

static rs_slice class_of(const rs_pickle_node *node)
{
    return rs_pickle_is_any_call(node) && rs_pickle_is(node->call->callable, RS_PICKLE_GLOBAL)
               ? node->call->callable->global->name
               : (rs_slice){"", 0};
}

/* ---- placements ------------------------------------------------------------------------------ */

static reshard_status read_placement(const rs_pickle_node *node, int32_t ndim,
                                     rs_torch_placement *out_placement)
{
    static const struct {
        const char *name;
        rs_torch_placement_kind kind;
    } rows[] = {
        {"Replicate", RS_TORCH_REPLICATE},   {"Shard", RS_TORCH_SHARD},
        {"_StridedShard", RS_TORCH_STRIDED}, {"StridedShard", RS_TORCH_STRIDED},
        {"Partial", RS_TORCH_PARTIAL},       {"_Partial", RS_TORCH_PARTIAL},
    };
    rs_slice name = class_of(node);
    int64_t dim = 0, factor = 0;
    size_t row = 0;
    while (row < sizeof rows / sizeof *rows && !rs_slice_equals(name, rows[row].name))
        row++;
    if (row == sizeof rows / sizeof *rows)
        return rs_fail(RESHARD_ERR_UNSUPPORTED, "its placement \"%.*s\" is unknown",
                       RS_SHOWN(name));
    bool cuts = rows[row].kind == RS_TORCH_SHARD || rows[row].kind == RS_TORCH_STRIDED;
    const rs_pickle_node *state = node->call->state;
    if (cuts && !rs_pickle_int(state, &dim) &&
        !rs_pickle_int(rs_torch_field(node, "dim", 0), &dim) &&
        !rs_pickle_int(rs_pickle_item(state, 0), &dim))
        return rs_fail(RESHARD_ERR_CORRUPT, "its placement does not say along which dimension");
    if (rows[row].kind == RS_TORCH_STRIDED &&
        !rs_pickle_int(rs_torch_field(node, "split_factor", 1), &factor) &&
        !rs_pickle_int(rs_pickle_item(state, 1), &factor))
        return rs_fail(RESHARD_ERR_CORRUPT, "its placement does not say its split factor");
    dim += dim < 0 ? ndim : 0;
    if (cuts && (dim < 0 || dim >= ndim))
        return rs_fail(RESHARD_ERR_CORRUPT, "it is cut along dimension %lld of %d", (long long)dim,
                       (int)ndim);
    *out_placement = (rs_torch_placement){rows[row].kind, (int32_t)dim, factor};
    return RESHARD_OK;
}

reshard_status rs_torch_cuts_order(const rs_torch_mesh *mesh, int32_t ndim, rs_torch_cuts *cuts)
{
    cuts->order_count = 0;
    for (int32_t axis = mesh->axis_count - 1; axis >= 0; axis--) {
        const rs_torch_placement *placement = &cuts->placements[axis];
        int64_t parts = 1;
        int32_t at = 0;
        if (placement->kind == RS_TORCH_PARTIAL)
            return rs_fail(RESHARD_ERR_UNSUPPORTED,
                           "it is Partial: each rank has one term of a sum, which has to be "
                           "reduced before it is saved");
        if (placement->kind == RS_TORCH_REPLICATE)
            continue;
        if (placement->dim < 0 || placement->dim >= ndim)
            return rs_fail(RESHARD_ERR_CORRUPT, "it is cut along dimension %d of %d",
                           (int)placement->dim, (int)ndim);
        /* It goes in front of all others or, if strided, after as many cuts of the dim as make up
         * the factor. */
        while (placement->kind == RS_TORCH_STRIDED && parts < placement->factor &&
               at < cuts->order_count) {
            int32_t other = cuts->order[at++];
            if (cuts->placements[other].dim == placement->dim &&
                !rs_multiply(parts, mesh->sizes[other], &parts))
                return rs_fail(RESHARD_ERR_CORRUPT, "its mesh has more ranks than can be counted");
        }
        if (placement->kind == RS_TORCH_STRIDED && parts != placement->factor)
            return rs_fail(RESHARD_ERR_UNSUPPORTED,
                           "it is cut with a split factor of %lld, but the axes behind that one "
                           "cut into %lld",
                           (long long)placement->factor, (long long)parts);
        memmove(&cuts->order[at + 1], &cuts->order[at],
                (size_t)(cuts->order_count - at) * sizeof cuts->order[0]);
        cuts->order[at] = axis;
        cuts->order_count++;
    }
    return RESHARD_OK;
}

void rs_torch_cuts_box(const rs_torch_mesh *mesh, const rs_torch_cuts *cuts, int32_t ndim,
                       const int64_t *shape, int64_t *out_offset, int64_t *out_size)
{
    for (int32_t d = 0; d < ndim; d++) {
        out_offset[d] = 0;
        out_size[d] = shape[d];
    }
    for (int32_t i = 0; i < cuts->order_count; i++) {
        int32_t axis = cuts->order[i], d = cuts->placements[axis].dim;
        int64_t each = rs_divide_up(out_size[d], mesh->sizes[axis]);
        int64_t from = rs_min(mesh->coordinate[axis] * each, out_size[d]);
        out_offset[d] += from;
        out_size[d] = rs_min(each, out_size[d] - from);
    }
}

/* ---- the order of cuts ----------------------------------------------------------------------- */

static bool is_strided(const rs_torch_cuts *cuts)
{
    bool any = false;
    for (int32_t i = 0; i < cuts->order_count; i++)
        any = any || cuts->placements[cuts->order[i]].kind == RS_TORCH_STRIDED;
    return any;
}

static int32_t find_cut(const rs_torch_cuts *cuts, int32_t axis)
{
    int32_t at = 0;
    while (at < cuts->order_count && cuts->order[at] != axis)
        at++;
    return at;
}

/* Do axes of the same dim cut it in the same order? Both have the same axes. */
static bool cut_alike(const rs_torch_cuts *a, const rs_torch_cuts *b)
{
    for (int32_t i = 0; i < a->order_count; i++) {
        for (int32_t j = i + 1; j < a->order_count; j++) {
            if (a->placements[a->order[i]].dim == a->placements[a->order[j]].dim &&
                find_cut(b, a->order[i]) > find_cut(b, a->order[j]))
                return false;
        }
    }
    return true;
}

/* Do axes of the same dim cut it from left to right? */
static bool cuts_rightwards(const rs_torch_cuts *cuts)
{
    for (int32_t i = 0; i < cuts->order_count; i++) {
        for (int32_t j = i + 1; j < cuts->order_count; j++) {
            if (cuts->placements[cuts->order[i]].dim == cuts->placements[cuts->order[j]].dim &&
                cuts->order[i] > cuts->order[j])
                return false;
        }
    }
    return true;
}

static void show_order(const rs_torch_cuts *cuts, char *out_text, size_t room)
{
    rs_text text;
    rs_text_init(&text, out_text, room);
    for (int32_t i = 0; i < cuts->order_count; i++)
        rs_text_add(&text, "%s%d", i == 0 ? "" : ", ", (int)cuts->order[i]);
}

/* Reads ((dim, (axis, ..)), ..). */
static reshard_status read_told(const rs_pickle_node *node, const rs_torch_mesh *mesh,
                                rs_torch_cuts *told)
{
    for (size_t i = 0; i < rs_pickle_count(node); i++) {
        const rs_pickle_node *entry = rs_pickle_item(node, i);
        const rs_pickle_node *axes = rs_pickle_is_any_call(entry)
                                         ? rs_torch_field(entry, "mesh_dims", 1)
                                         : rs_pickle_item(entry, 1);
        for (size_t j = 0; j < rs_pickle_count(axes); j++) {
            int64_t axis = -1;
            if (!rs_pickle_int(rs_pickle_item(axes, j), &axis) || axis < 0 ||
                axis >= mesh->axis_count || told->order_count >= mesh->axis_count)
                return rs_fail(RESHARD_ERR_CORRUPT, "its order of cuts names no axis of the mesh");
            told->order[told->order_count++] = (int32_t)axis;
        }
    }
    return RESHARD_OK;
}

/* From PyTorch 2.9 on, a spec can give the order itself. That of a spec with strided shards is
 * either the one which these stand for, or the default from left to right, which PyTorch 2.11 and
 * later note down where they do not look at it (use_strided_shard_as_shard_order is False): there,
 * the strided shards alone say what a rank holds. */
static reshard_status read_order(const rs_pickle_node *node, const rs_torch_mesh *mesh,
                                 rs_torch_cuts *cuts)
{
    rs_torch_cuts told = *cuts;
    char by_placements[80], by_order[80];
    told.order_count = 0;
    reshard_status status = read_told(node, mesh, &told);
    if (status != RESHARD_OK)
        return status;
    bool same_axes = told.order_count == cuts->order_count;
    for (int32_t i = 0; same_axes && i < cuts->order_count; i++)
        same_axes = find_cut(&told, cuts->order[i]) < told.order_count;
    if (!same_axes)
        return rs_fail(RESHARD_ERR_CORRUPT, "its order of cuts does not match its placements");
    if (!is_strided(cuts)) {
        *cuts = told;
        return RESHARD_OK;
    }
    if (cut_alike(cuts, &told) || cuts_rightwards(&told))
        return RESHARD_OK;
    show_order(cuts, by_placements, sizeof by_placements);
    show_order(&told, by_order, sizeof by_order);
    return rs_fail(RESHARD_ERR_UNSUPPORTED,
                   "its strided placements mean that axes cut it in the order %s, but its "
                   "shard_order says %s",
                   by_placements, by_order);
}

/* ---- DTensor --------------------------------------------------------------------------------- */

static reshard_status read_spec(reshard_checkpoint *checkpoint, rs_torch_rank *owner,
                                const rs_pickle_node *spec, int32_t ndim, rs_torch_cuts *cuts)
{
    const rs_torch_mesh *mesh = &owner->mesh;
    const rs_pickle_node *placements = rs_torch_field(spec, "placements", 1);
    const rs_pickle_node *order = rs_torch_field(spec, "shard_order", -1);
    reshard_status status = rs_torch_mesh_read(checkpoint, owner, rs_torch_field(spec, "mesh", 0));
    if (status == RESHARD_OK && rs_pickle_count(placements) != (size_t)mesh->axis_count)
        status = rs_fail(RESHARD_ERR_CORRUPT, "its mesh has %d axes, but there are %zu placements",
                         (int)mesh->axis_count, rs_pickle_count(placements));
    for (int32_t i = 0; status == RESHARD_OK && i < mesh->axis_count; i++)
        status = read_placement(rs_pickle_item(placements, (size_t)i), ndim, &cuts->placements[i]);
    if (status == RESHARD_OK)
        status = rs_torch_cuts_order(mesh, ndim, cuts);
    if (status == RESHARD_OK && rs_pickle_count(order) != 0)
        status = read_order(order, mesh, cuts);
    return status;
}

/* Does the local tensor have the shape that the placements give it? */
static reshard_status check_local(const rs_occurrence *local, int32_t ndim, const int64_t *size)
{
    char said[256], found[256];
    rs_text text;
    if (local->ndim == ndim && memcmp(local->shape, size, (size_t)ndim * sizeof(int64_t)) == 0)
        return RESHARD_OK;
    /* A rank that holds nothing may have stored any empty tensor. */
    if (rs_volume(local->ndim, local->shape) == 0 && rs_volume(ndim, size) == 0)
        return RESHARD_OK;
    rs_text_init(&text, said, sizeof said);
    rs_text_add_shape(&text, ndim, size);
    rs_text_init(&text, found, sizeof found);
    rs_text_add_shape(&text, local->ndim, local->shape);
    return rs_fail(RESHARD_ERR_CORRUPT,
                   "its placements give this rank %s of it, but the file holds %s", said, found);
}

reshard_status rs_torch_cuts_take(reshard_checkpoint *checkpoint, const rs_torch_mesh *mesh,
                                  const rs_torch_cuts *cuts, int32_t ndim, const int64_t *full,
                                  rs_occurrence *local)
{
    int64_t *box = rs_arena_allocate_array(&checkpoint->arena, 2 * (size_t)ndim, sizeof(int64_t));
    if (box == NULL)
        return rs_allocation_status();
    rs_torch_cuts_box(mesh, cuts, ndim, full, box, box + ndim);
    reshard_status status = check_local(local, ndim, box + ndim);
    if (status != RESHARD_OK)
        return rs_fail_within(status, "%s: tensor \"%.*s\"", checkpoint->files[local->file].name,
                              RS_SHOWN(local->name));
    local->ndim = ndim;
    local->shape = box + ndim;
    local->offset = box;
    local->full = full;
    return RESHARD_OK;
}

static reshard_status add_dtensor(reshard_checkpoint *checkpoint, rs_torch_rank *owner,
                                  const rs_torch_leaf *leaf, rs_occurrences *list)
{
    const rs_pickle_node *arguments = leaf->node->call->arguments;
    const rs_pickle_node *state = rs_pickle_item(arguments, 3);
    rs_torch_leaf local = *leaf;
    rs_torch_cuts cuts = {0};
    rs_occurrence found = {0};
    int32_t ndim = 0, file = owner->file;
    const int64_t *full = NULL;
    local.node = rs_torch_state_field(state, "_local_tensor");
    reshard_status status = rs_torch_numbers(
        &checkpoint->arena, rs_pickle_item(rs_pickle_item(arguments, 2), 2), &ndim, &full);
    if (status == RESHARD_OK && (!rs_shape_fits(ndim, full) || ndim > RESHARD_NDIM_MAX))
        status = rs_fail(RESHARD_ERR_RANGE, "its size goes beyond 63 bits or 8 dimensions");
    if (status == RESHARD_OK && rs_torch_kind_of(local.node) != RS_TORCH_TENSOR)
        status = rs_fail(RESHARD_ERR_CORRUPT, "the DTensor has %s in place of its local tensor",
                         rs_pickle_kind_text(local.node));
    if (status == RESHARD_OK)
        status = read_spec(checkpoint, owner, rs_torch_state_field(state, "_spec"), ndim, &cuts);
    if (status != RESHARD_OK)
        return rs_fail_within(status, "%s: tensor \"%.*s\"", checkpoint->files[file].name,
                              RS_SHOWN(leaf->name));
    status = rs_torch_occurrence(checkpoint, file, &local, &found);
    if (status == RESHARD_OK)
        status = rs_torch_cuts_take(checkpoint, &owner->mesh, &cuts, ndim, full, &found);
    return status == RESHARD_OK ? rs_occurrences_add(checkpoint->context, list, &found) : status;
}

/* ---- ShardedTensor --------------------------------------------------------------------------- */

/* The state is (local shards, metadata, process group, sharding spec, ..). */
static const rs_pickle_node *find_sharded_state(const rs_pickle_node *node)
{
    const rs_pickle_node *state = node->call->state;
    return state != NULL ? state : rs_pickle_item(node->call->arguments, 3);
}

static reshard_status add_shard(reshard_checkpoint *checkpoint, int32_t file,
                                const rs_torch_leaf *leaf, const rs_pickle_node *shard,
                                int32_t ndim, const int64_t *full, rs_occurrences *list)
{
    const rs_pickle_node *metadata = rs_torch_field(shard, "metadata", 1);
    rs_torch_leaf local = *leaf;
    rs_occurrence found = {0};
    int32_t offsets = 0, sizes = 0;
    const int64_t *offset = NULL, *size = NULL;
    local.node = rs_torch_field(shard, "tensor", 0);
    reshard_status status = rs_torch_numbers(
        &checkpoint->arena, rs_torch_field(metadata, "shard_offsets", 0), &offsets, &offset);
    if (status == RESHARD_OK)
        status = rs_torch_numbers(&checkpoint->arena, rs_torch_field(metadata, "shard_sizes", 1),
                                  &sizes, &size);
    if (status == RESHARD_OK && rs_torch_kind_of(local.node) != RS_TORCH_TENSOR)
        status = rs_fail(RESHARD_ERR_CORRUPT, "the shard has %s in place of its tensor",
                         rs_pickle_kind_text(local.node));
    if (status == RESHARD_OK && (offsets != ndim || sizes != ndim))
        status = rs_fail(RESHARD_ERR_CORRUPT, "a shard has %d dimensions, but the tensor has %d",
                         (int)sizes, (int)ndim);
    if (status == RESHARD_OK)
        status = rs_torch_occurrence(checkpoint, file, &local, &found);
    if (status == RESHARD_OK &&
        (found.ndim != ndim || memcmp(found.shape, size, (size_t)ndim * sizeof(int64_t)) != 0))
        status =
            rs_fail(RESHARD_ERR_CORRUPT, "a shard does not have the size that its metadata gives");
    found.offset = offset;
    found.full = full;
    return status == RESHARD_OK ? rs_occurrences_add(checkpoint->context, list, &found) : status;
}

/* Adds an empty box, so that a tensor of which no file holds anything is found missing. */
static reshard_status add_nothing(reshard_checkpoint *checkpoint, int32_t file,
                                  const rs_torch_leaf *leaf, const rs_pickle_node *properties,
                                  int32_t ndim, const int64_t *full, rs_occurrences *list)
{
    rs_occurrence nothing = {
        .name = leaf->name, .file = file, .ndim = ndim, .full = full, .place = leaf->place};
    const rs_pickle_node *dtype = rs_torch_field(properties, "dtype", 0);
    if (dtype == NULL && rs_pickle_is_any_call(properties))
        dtype = rs_pickle_item(properties->call->state, 0);
    reshard_status status = rs_torch_dtype_read(dtype, &nothing.dtype);
    int64_t *zeros = rs_arena_allocate_array(&checkpoint->arena, (size_t)ndim, sizeof(int64_t));
    if (status == RESHARD_OK && zeros == NULL)
        status = rs_allocation_status();
    if (status != RESHARD_OK)
        return status;
    memset(zeros, 0, (size_t)ndim * sizeof(int64_t));
    nothing.shape = nothing.offset = zeros;
    return rs_occurrences_add(checkpoint->context, list, &nothing);
}

static reshard_status add_sharded(reshard_checkpoint *checkpoint, int32_t file,
                                  const rs_torch_leaf *leaf, rs_occurrences *list)
{
    const rs_pickle_node *state = find_sharded_state(leaf->node);
    const rs_pickle_node *shards = rs_pickle_item(state, 0), *metadata = rs_pickle_item(state, 1);
    int32_t ndim = 0;
    const int64_t *full = NULL;
    reshard_status status =
        rs_torch_numbers(&checkpoint->arena, rs_torch_field(metadata, "size", 1), &ndim, &full);
    if (status == RESHARD_OK && (!rs_shape_fits(ndim, full) || ndim > RESHARD_NDIM_MAX))
        status = rs_fail(RESHARD_ERR_RANGE, "its size goes beyond 63 bits or 8 dimensions");
    if (status == RESHARD_OK && !rs_pickle_is(shards, RS_PICKLE_LIST))
        status = rs_fail(RESHARD_ERR_CORRUPT, "the ShardedTensor has %s in place of its shards",
                         rs_pickle_kind_text(shards));
    for (size_t i = 0; status == RESHARD_OK && i < rs_pickle_count(shards); i++)
        status = add_shard(checkpoint, file, leaf, rs_pickle_item(shards, i), ndim, full, list);
    if (status == RESHARD_OK && rs_pickle_count(shards) == 0)
        status = add_nothing(checkpoint, file, leaf,
                             rs_torch_field(metadata, "tensor_properties", 2), ndim, full, list);
    return rs_fail_within(status, "%s: tensor \"%.*s\"", checkpoint->files[file].name,
                          RS_SHOWN(leaf->name));
}

reshard_status rs_torch_placed_add(reshard_checkpoint *checkpoint, rs_torch_rank *owner,
                                   const rs_torch_leaf *leaf, rs_occurrences *list)
{
    return leaf->kind == RS_TORCH_DTENSOR ? add_dtensor(checkpoint, owner, leaf, list)
                                          : add_sharded(checkpoint, owner->file, leaf, list);
}

bool rs_torch_names_placed(const rs_pickle *pickle)
{
    size_t count = 0;
    const rs_pickle_node *const *globals = rs_pickle_globals(pickle, &count);
    for (size_t i = 0; i < count; i++) {
        rs_slice name = globals[i]->global->name;
        if (rs_slice_equals(name, "DTensor") || rs_slice_equals(name, "ShardedTensor"))
            return true;
    }
    return false;
}
