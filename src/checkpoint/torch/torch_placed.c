/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_placed.c - reads meshes, placements and shards in the spellings of PyTorch 1.13 to 2.x.
 * Fields are found by name in the state of an object, or by position in its arguments.
 */
#include "checkpoint/torch/torch_placed.h"

#include "base/checked.h"
#include "base/context.h"
#include "base/shape.h"
#include "text/text.h"

#include <string.h>

#define MESH_RANKS_MAX ((int64_t)1 << 24)
#define NESTING_MAX 4

/* ---- objects --------------------------------------------------------------------------------- */

static bool is_call(const rs_pickle_node *node)
{
    return rs_pickle_is(node, RS_PICKLE_REDUCE) || rs_pickle_is(node, RS_PICKLE_OBJECT);
}

/* Finds a field of a state, which is a dict, or a tuple of dicts if the class has slots. */
static const rs_pickle_node *find_in_state(const rs_pickle_node *state, const char *name)
{
    const rs_pickle_node *found = rs_pickle_get(state, name);
    for (size_t i = 0;
         found == NULL && rs_pickle_is(state, RS_PICKLE_TUPLE) && i < rs_pickle_count(state); i++)
        found = rs_pickle_get(rs_pickle_item(state, i), name);
    return found;
}

/* Finds a field of an object by name, or else at this position of its arguments (-1: nowhere). */
static const rs_pickle_node *find_field(const rs_pickle_node *node, const char *name, int position)
{
    if (!is_call(node))
        return NULL;
    const rs_pickle_node *found = find_in_state(node->call->state, name);
    if (found == NULL && position >= 0)
        found = rs_pickle_item(node->call->arguments, (size_t)position);
    return found;
}

static rs_slice class_of(const rs_pickle_node *node)
{
    return is_call(node) && rs_pickle_is(node->call->callable, RS_PICKLE_GLOBAL)
               ? node->call->callable->global->name
               : (rs_slice){"", 0};
}

/* ---- meshes ---------------------------------------------------------------------------------- */

/* Reads and checks a tensor of ints that holds ranks, and finds where it lies. */
static reshard_status read_ranks(reshard_checkpoint *checkpoint, int32_t *file,
                                 const rs_pickle_node *node, rs_torch_tensor *out_tensor,
                                 uint64_t *out_at)
{
    reshard_status status = rs_torch_tensor_read(&checkpoint->arena, node, out_tensor);
    if (status != RESHARD_OK)
        return status;
    int64_t count = rs_volume(out_tensor->ndim, out_tensor->shape);
    if ((out_tensor->dtype != RESHARD_I64 && out_tensor->dtype != RESHARD_I32) ||
        out_tensor->strides != NULL || count > MESH_RANKS_MAX || count == 0)
        return rs_fail(RESHARD_ERR_CORRUPT, "its mesh is no array of ranks");
    return rs_torch_locate(checkpoint, *file, out_tensor, file, out_at);
}

/* Finds the index of the owner's rank among the ranks of a mesh, in row-major order. */
static reshard_status find_rank(reshard_checkpoint *checkpoint, const rs_torch_rank *owner,
                                const rs_pickle_node *node, rs_torch_tensor *out_tensor,
                                int64_t *out_at)
{
    uint64_t at = 0;
    int32_t file = owner->file;
    reshard_status status = read_ranks(checkpoint, &file, node, out_tensor, &at);
    if (status != RESHARD_OK)
        return status;
    int64_t count = rs_volume(out_tensor->ndim, out_tensor->shape), found = 0;
    size_t each = out_tensor->dtype == RESHARD_I64 ? 8 : 4, bytes = (size_t)count * each;
    char *memory = rs_allocate(checkpoint->context, bytes);
    if (memory == NULL)
        return rs_allocation_status();
    status = rs_file_read(checkpoint->files[file].file, memory, bytes, at);
    for (; status == RESHARD_OK && found < count; found++) {
        int64_t wide = 0;
        int32_t narrow = 0;
        memcpy(each == 8 ? (void *)&wide : (void *)&narrow, memory + (size_t)found * each, each);
        if ((each == 8 ? wide : narrow) == owner->rank)
            break;
    }
    rs_release(checkpoint->context, memory, bytes);
    if (status == RESHARD_OK && found == count)
        return rs_fail(RESHARD_ERR_CORRUPT, "its mesh does not hold rank %d, whose file this is",
                       (int)owner->rank);
    *out_at = found;
    return status;
}

/* Before PyTorch 2.9, a mesh is an array of ranks in the shape of the mesh. */
static reshard_status find_in_array(const rs_torch_tensor *array, int64_t at, rs_torch_mesh *mesh)
{
    if (array->ndim > RS_TORCH_AXES_MAX)
        return rs_fail(RESHARD_ERR_UNSUPPORTED, "its mesh has %d axes", (int)array->ndim);
    mesh->axis_count = array->ndim;
    for (int32_t i = array->ndim - 1; i >= 0; i--) {
        mesh->sizes[i] = array->shape[i];
        mesh->coordinate[i] = at % array->shape[i];
        at /= array->shape[i];
    }
    return RESHARD_OK;
}

/* Reads an axis: a size and a stride, or tuples of them if axes were flattened into one. */
static reshard_status add_axis(const rs_pickle_node *size, const rs_pickle_node *stride, int64_t at,
                               int depth, int64_t *total, int64_t *coordinate)
{
    int64_t n = 0, step = 0, product = 0;
    if (rs_pickle_int(size, &n) && rs_pickle_int(stride, &step)) {
        if (n < 1 || step < 0 || n > MESH_RANKS_MAX || !rs_multiply(*total, n, &product) ||
            product > MESH_RANKS_MAX)
            return rs_fail(RESHARD_ERR_CORRUPT, "its mesh has an axis of %lld ranks", (long long)n);
        *total = product;
        *coordinate = *coordinate * n + (step != 0 ? at / step % n : 0);
        return RESHARD_OK;
    }
    if (depth >= NESTING_MAX || rs_pickle_count(size) != rs_pickle_count(stride) ||
        rs_pickle_count(size) == 0)
        return rs_fail(RESHARD_ERR_CORRUPT, "the axes of its mesh cannot be read");
    reshard_status status = RESHARD_OK;
    for (size_t i = 0; status == RESHARD_OK && i < rs_pickle_count(size); i++)
        status = add_axis(rs_pickle_item(size, i), rs_pickle_item(stride, i), at, depth + 1, total,
                          coordinate);
    return status;
}

/* From PyTorch 2.9 on, a mesh is a row of all ranks of the root mesh, with sizes and strides of the
 * axes in that row. A rank's index in the row gives its coordinates, also in a part of the mesh. */
static reshard_status find_in_layout(const rs_pickle_node *layout, int64_t at, rs_torch_mesh *mesh)
{
    const rs_pickle_node *sizes = find_field(layout, "shape", 0);
    const rs_pickle_node *strides = find_field(layout, "stride", 1);
    reshard_status status = RESHARD_OK;
    if (rs_pickle_is(sizes, RS_PICKLE_INT)) { /* a single axis */
        mesh->axis_count = 1;
        mesh->sizes[0] = 1;
        mesh->coordinate[0] = 0;
        return add_axis(sizes, strides, at, 0, &mesh->sizes[0], &mesh->coordinate[0]);
    }
    size_t axes = rs_pickle_count(sizes);
    if (axes == 0 || axes > RS_TORCH_AXES_MAX || rs_pickle_count(strides) != axes)
        return rs_fail(RESHARD_ERR_CORRUPT, "the axes of its mesh cannot be read");
    mesh->axis_count = (int32_t)axes;
    for (size_t i = 0; status == RESHARD_OK && i < axes; i++) {
        mesh->sizes[i] = 1;
        mesh->coordinate[i] = 0;
        status = add_axis(rs_pickle_item(sizes, i), rs_pickle_item(strides, i), at, 0,
                          &mesh->sizes[i], &mesh->coordinate[i]);
    }
    return status;
}

static reshard_status read_mesh(reshard_checkpoint *checkpoint, rs_torch_rank *owner,
                                const rs_pickle_node *node)
{
    rs_torch_tensor array;
    int64_t at = 0;
    const rs_pickle_node *old = find_field(node, "mesh", -1);
    const rs_pickle_node *row = find_field(node, "_rank_map", -1);
    const rs_pickle_node *layout = find_field(node, "_layout", -1);
    if (node != NULL && node == owner->mesh_node)
        return RESHARD_OK;
    if (old == NULL)
        old = find_field(node, "_mesh", -1);
    bool is_old = layout == NULL || row == NULL;
    if (is_old && old == NULL)
        return rs_fail(RESHARD_ERR_UNSUPPORTED, "its mesh is written in a way that is not known");
    owner->mesh_node = NULL;
    reshard_status status = find_rank(checkpoint, owner, is_old ? old : row, &array, &at);
    if (status == RESHARD_OK)
        status = is_old ? find_in_array(&array, at, &owner->mesh)
                        : find_in_layout(layout, at, &owner->mesh);
    if (status == RESHARD_OK)
        owner->mesh_node = node;
    return status;
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
        return rs_fail(RESHARD_ERR_UNSUPPORTED, "its placement \"%.*s\" is not known",
                       rs_slice_shown(name), name.bytes);
    bool cuts = rows[row].kind == RS_TORCH_SHARD || rows[row].kind == RS_TORCH_STRIDED;
    const rs_pickle_node *state = node->call->state;
    if (cuts && !rs_pickle_int(state, &dim) && !rs_pickle_int(find_field(node, "dim", 0), &dim) &&
        !rs_pickle_int(rs_pickle_item(state, 0), &dim))
        return rs_fail(RESHARD_ERR_CORRUPT, "its placement does not say along which dimension");
    if (rows[row].kind == RS_TORCH_STRIDED &&
        !rs_pickle_int(find_field(node, "split_factor", 1), &factor) &&
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

/* From PyTorch 2.9 on, a spec can give the order itself: ((dim, (axis, ..)), ..). */
static reshard_status read_order(const rs_pickle_node *node, const rs_torch_mesh *mesh,
                                 rs_torch_cuts *cuts)
{
    rs_torch_cuts told = *cuts;
    told.order_count = 0;
    for (size_t i = 0; i < rs_pickle_count(node); i++) {
        const rs_pickle_node *entry = rs_pickle_item(node, i);
        const rs_pickle_node *axes =
            is_call(entry) ? find_field(entry, "mesh_dims", 1) : rs_pickle_item(entry, 1);
        for (size_t j = 0; j < rs_pickle_count(axes); j++) {
            int64_t axis = -1;
            if (!rs_pickle_int(rs_pickle_item(axes, j), &axis) || axis < 0 ||
                axis >= mesh->axis_count || told.order_count >= mesh->axis_count)
                return rs_fail(RESHARD_ERR_CORRUPT, "its order of cuts names no axis of the mesh");
            told.order[told.order_count++] = (int32_t)axis;
        }
    }
    for (int32_t i = 0; i < cuts->order_count; i++) {
        bool found = false;
        for (int32_t j = 0; j < told.order_count; j++)
            found = found || told.order[j] == cuts->order[i];
        if (!found || told.order_count != cuts->order_count)
            return rs_fail(RESHARD_ERR_CORRUPT, "its order of cuts is not that of its placements");
    }
    *cuts = told;
    return RESHARD_OK;
}

/* ---- DTensor --------------------------------------------------------------------------------- */

static reshard_status read_spec(reshard_checkpoint *checkpoint, rs_torch_rank *owner,
                                const rs_pickle_node *spec, int32_t ndim, rs_torch_cuts *cuts)
{
    const rs_torch_mesh *mesh = &owner->mesh;
    const rs_pickle_node *placements = find_field(spec, "placements", 1);
    const rs_pickle_node *order = find_field(spec, "shard_order", -1);
    reshard_status status = read_mesh(checkpoint, owner, find_field(spec, "mesh", 0));
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
                              rs_slice_shown(local->name), local->name.bytes);
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
    local.node = find_in_state(state, "_local_tensor");
    reshard_status status = rs_torch_numbers(
        &checkpoint->arena, rs_pickle_item(rs_pickle_item(arguments, 2), 2), &ndim, &full);
    if (status == RESHARD_OK && (!rs_shape_fits(ndim, full) || ndim > RESHARD_NDIM_MAX))
        status = rs_fail(RESHARD_ERR_RANGE, "its size goes beyond 63 bits or 8 dimensions");
    if (status == RESHARD_OK && rs_torch_kind_of(local.node) != RS_TORCH_TENSOR)
        status = rs_fail(RESHARD_ERR_CORRUPT, "a DTensor with %s as its local tensor",
                         rs_pickle_kind_text(local.node));
    if (status == RESHARD_OK)
        status = read_spec(checkpoint, owner, find_in_state(state, "_spec"), ndim, &cuts);
    if (status != RESHARD_OK)
        return rs_fail_within(status, "%s: tensor \"%.*s\"", checkpoint->files[file].name,
                              rs_slice_shown(leaf->name), leaf->name.bytes);
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
    const rs_pickle_node *metadata = find_field(shard, "metadata", 1);
    rs_torch_leaf local = *leaf;
    rs_occurrence found = {0};
    int32_t offsets = 0, sizes = 0;
    const int64_t *offset = NULL, *size = NULL;
    local.node = find_field(shard, "tensor", 0);
    reshard_status status = rs_torch_numbers(
        &checkpoint->arena, find_field(metadata, "shard_offsets", 0), &offsets, &offset);
    if (status == RESHARD_OK)
        status = rs_torch_numbers(&checkpoint->arena, find_field(metadata, "shard_sizes", 1),
                                  &sizes, &size);
    if (status == RESHARD_OK && rs_torch_kind_of(local.node) != RS_TORCH_TENSOR)
        status = rs_fail(RESHARD_ERR_CORRUPT, "a shard with %s as its tensor",
                         rs_pickle_kind_text(local.node));
    if (status == RESHARD_OK && (offsets != ndim || sizes != ndim))
        status = rs_fail(RESHARD_ERR_CORRUPT, "a shard of %d dimensions in a tensor of %d",
                         (int)sizes, (int)ndim);
    if (status == RESHARD_OK)
        status = rs_torch_occurrence(checkpoint, file, &local, &found);
    if (status == RESHARD_OK &&
        (found.ndim != ndim || memcmp(found.shape, size, (size_t)ndim * sizeof(int64_t)) != 0))
        status = rs_fail(RESHARD_ERR_CORRUPT, "a shard that does not have the size it is said to");
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
    const rs_pickle_node *dtype = find_field(properties, "dtype", 0);
    if (dtype == NULL && is_call(properties))
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
        rs_torch_numbers(&checkpoint->arena, find_field(metadata, "size", 1), &ndim, &full);
    if (status == RESHARD_OK && (!rs_shape_fits(ndim, full) || ndim > RESHARD_NDIM_MAX))
        status = rs_fail(RESHARD_ERR_RANGE, "its size goes beyond 63 bits or 8 dimensions");
    if (status == RESHARD_OK && !rs_pickle_is(shards, RS_PICKLE_LIST))
        status = rs_fail(RESHARD_ERR_CORRUPT, "a ShardedTensor with %s as its shards",
                         rs_pickle_kind_text(shards));
    for (size_t i = 0; status == RESHARD_OK && i < rs_pickle_count(shards); i++)
        status = add_shard(checkpoint, file, leaf, rs_pickle_item(shards, i), ndim, full, list);
    if (status == RESHARD_OK && rs_pickle_count(shards) == 0)
        status = add_nothing(checkpoint, file, leaf, find_field(metadata, "tensor_properties", 2),
                             ndim, full, list);
    return rs_fail_within(status, "%s: tensor \"%.*s\"", checkpoint->files[file].name,
                          rs_slice_shown(leaf->name), leaf->name.bytes);
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
