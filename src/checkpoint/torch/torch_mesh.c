/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_mesh.c - reads a DeviceMesh as PyTorch 2.0 and later pickle it: by its attributes.
 *
 * Until PyTorch 2.9, `mesh` (in some nightlies `_mesh`) is an array of ranks in the shape of the
 * mesh; that of a part of a mesh is a view of the whole mesh's array. From 2.10 on, `_rank_map` is
 * the row of all ranks of the root mesh, and `_layout` says how the axes run through it. An axis is
 * made of parts, each a size and a stride in the row: one part, several if axes were flattened into
 * one, or none if its size is 1. There are two spellings of layouts:
 *   2.10 to 2.12  shape and stride, which are an int or nested tuples of ints, one for each axis;
 *                 the outermost shape may be a torch.Size
 *   since 2.13    axes, each of which has a shape and a stride, both tuples of ints
 *
 * Parts divide the row like the digits of a number: sorted by stride, each stride is a multiple of
 * the one before times its size. So the digits of a rank's index in the row are its coordinates, in
 * the whole mesh and in any part of it.
 */
#include "checkpoint/torch/torch_mesh.h"

#include "base/context.h"
#include "base/shape.h"
#include "text/text.h"

#include <string.h>

#define MESH_RANKS_MAX ((int64_t)1 << 24)
#define NESTING_MAX 4
#define PARTS_MAX 32

/* ---- ranks ----------------------------------------------------------------------------------- */

/* Where an element of a tensor lies, by its number in row-major order. */
static int64_t find_element(const rs_torch_tensor *tensor, int64_t number)
{
    int64_t at = 0;
    if (tensor->strides == NULL)
        return number;
    for (int32_t d = tensor->ndim - 1; d >= 0; d--) {
        at += number % tensor->shape[d] * tensor->strides[d];
        number /= tensor->shape[d];
    }
    return at;
}

/* Finds a rank among those of a tensor, whose storage is in memory from its first element on. */
static reshard_status search(const rs_torch_tensor *tensor, const char *memory, int64_t rank,
                             int64_t *out_number)
{
    int64_t count = rs_volume(tensor->ndim, tensor->shape), found = -1;
    size_t each = tensor->dtype == RESHARD_I64 ? 8 : 4;
    for (int64_t i = 0; i < count; i++) {
        int64_t wide = 0;
        int32_t narrow = 0;
        memcpy(each == 8 ? (void *)&wide : (void *)&narrow,
               memory + (size_t)find_element(tensor, i) * each, each);
        if ((each == 8 ? wide : narrow) != rank)
            continue;
        if (found >= 0)
            return rs_fail(RESHARD_ERR_CORRUPT, "its mesh holds rank %d twice", (int)rank);
        found = i;
    }
    if (found < 0)
        return rs_fail(RESHARD_ERR_CORRUPT, "its mesh does not hold rank %d, whose file this is",
                       (int)rank);
    *out_number = found;
    return RESHARD_OK;
}

/* Finds the owner's rank in a tensor of ranks; *out_number is in row-major order. */
static reshard_status find_rank(reshard_checkpoint *checkpoint, const rs_torch_rank *owner,
                                const rs_pickle_node *node, rs_torch_tensor *out_tensor,
                                int64_t *out_number)
{
    uint64_t at = 0;
    int32_t file = owner->file;
    reshard_status status = rs_torch_tensor_read(&checkpoint->arena, node, out_tensor);
    if (status != RESHARD_OK)
        return status;
    int64_t count = rs_volume(out_tensor->ndim, out_tensor->shape);
    bool is_row = (out_tensor->dtype == RESHARD_I64 || out_tensor->dtype == RESHARD_I32) &&
                  count > 0 && count <= MESH_RANKS_MAX;
    int64_t span = is_row ? find_element(out_tensor, count - 1) + 1 : 0;
    if (!is_row || span > MESH_RANKS_MAX)
        return rs_fail(RESHARD_ERR_CORRUPT, "its mesh is not an array of ranks");
    status = rs_torch_locate(checkpoint, file, out_tensor, &file, &at);
    if (status != RESHARD_OK)
        return status;
    size_t bytes = (size_t)span * (out_tensor->dtype == RESHARD_I64 ? 8 : 4);
    char *memory = rs_allocate(checkpoint->context, bytes);
    if (memory == NULL)
        return rs_allocation_status();
    status = rs_file_read(checkpoint->files[file].file, memory, bytes, at);
    if (status == RESHARD_OK)
        status = search(out_tensor, memory, owner->rank, out_number);
    rs_release(checkpoint->context, memory);
    return status;
}

/* ---- arrays of ranks ------------------------------------------------------------------------- */

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

/* ---- layouts --------------------------------------------------------------------------------- */

typedef struct mesh_part {
    int64_t size, stride;
    int32_t axis;
} mesh_part;

/* The parts of a mesh's axes: those of the first axis from the outermost to the innermost, ... */
typedef struct mesh_layout {
    int32_t axis_count, part_count;
    mesh_part parts[PARTS_MAX];
} mesh_layout;

static reshard_status fail_layout(void)
{
    return rs_fail(RESHARD_ERR_CORRUPT, "the axes of its mesh cannot be read");
}

/* The tuple inside a torch.Size, or the node itself. */
static const rs_pickle_node *open_size(const rs_pickle_node *node)
{
    return rs_pickle_is_call(node, "torch", "Size") ? rs_pickle_item(node->call->arguments, 0)
                                                    : node;
}

/* Adds the parts of an axis: a size and a stride, or tuples of them. */
static reshard_status add_parts(const rs_pickle_node *size, const rs_pickle_node *stride, int depth,
                                mesh_layout *layout)
{
    mesh_part part = {.axis = layout->axis_count};
    size = open_size(size);
    stride = open_size(stride);
    if (rs_pickle_int(size, &part.size) && rs_pickle_int(stride, &part.stride)) {
        if (part.size == 1)
            return RESHARD_OK; /* PyTorch gives it any stride */
        if (layout->part_count == PARTS_MAX)
            return rs_fail(RESHARD_ERR_UNSUPPORTED, "its mesh has axes of more than %d parts",
                           PARTS_MAX);
        layout->parts[layout->part_count++] = part;
        return RESHARD_OK;
    }
    size_t count = rs_pickle_count(size);
    if (!rs_pickle_is(size, RS_PICKLE_TUPLE) || !rs_pickle_is(stride, RS_PICKLE_TUPLE) ||
        depth >= NESTING_MAX || rs_pickle_count(stride) != count)
        return fail_layout();
    reshard_status status = RESHARD_OK;
    for (size_t i = 0; status == RESHARD_OK && i < count; i++)
        status = add_parts(rs_pickle_item(size, i), rs_pickle_item(stride, i), depth + 1, layout);
    return status;
}

static reshard_status add_axis(const rs_pickle_node *size, const rs_pickle_node *stride,
                               mesh_layout *layout)
{
    if (layout->axis_count == RS_TORCH_AXES_MAX)
        return rs_fail(RESHARD_ERR_UNSUPPORTED, "its mesh has more than %d axes",
                       RS_TORCH_AXES_MAX);
    reshard_status status = add_parts(size, stride, 0, layout);
    layout->axis_count++;
    return status;
}

static reshard_status read_layout(const rs_pickle_node *node, mesh_layout *layout)
{
    const rs_pickle_node *axes = rs_torch_field(node, "axes", -1);
    const rs_pickle_node *sizes = open_size(rs_torch_field(node, "shape", -1));
    const rs_pickle_node *strides = open_size(rs_torch_field(node, "stride", -1));
    size_t count = rs_pickle_count(axes != NULL ? axes : sizes);
    reshard_status status = RESHARD_OK;
    if (axes == NULL && rs_pickle_is(sizes, RS_PICKLE_INT)) /* a single axis */
        return add_axis(sizes, strides, layout);
    if (axes == NULL && rs_pickle_count(strides) != count)
        return fail_layout();
    for (size_t i = 0; status == RESHARD_OK && i < count; i++) {
        const rs_pickle_node *axis = rs_pickle_item(axes, i);
        status = axes != NULL
                     ? add_axis(rs_torch_field(axis, "shape", -1),
                                rs_torch_field(axis, "stride", -1), layout)
                     : add_axis(rs_pickle_item(sizes, i), rs_pickle_item(strides, i), layout);
    }
    return status == RESHARD_OK && count == 0 ? fail_layout() : status;
}

/* Checks that the parts divide a row of `count` ranks like the digits of a number. */
static reshard_status check_parts(const mesh_layout *layout, int64_t count)
{
    mesh_part sorted[PARTS_MAX];
    int64_t unit = 1; /* what the next stride has to be a multiple of */
    for (int32_t i = 0; i < layout->part_count; i++) {
        int32_t at = i;
        for (; at > 0 && sorted[at - 1].stride > layout->parts[i].stride; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = layout->parts[i];
    }
    for (int32_t i = 0; i < layout->part_count; i++) {
        const mesh_part *part = &sorted[i];
        if (part->size < 1 || part->size > count || part->stride < 1 || part->stride > count ||
            part->stride * part->size > count || part->stride % unit != 0)
            return rs_fail(RESHARD_ERR_CORRUPT,
                           "its mesh has an axis of %lld ranks with stride %lld, which does not "
                           "fit into its %lld ranks",
                           (long long)part->size, (long long)part->stride, (long long)count);
        unit = part->stride * part->size;
    }
    return RESHARD_OK;
}

static reshard_status find_in_layout(const rs_pickle_node *node, int64_t count, int64_t at,
                                     rs_torch_mesh *mesh)
{
    mesh_layout layout = {.axis_count = 0};
    reshard_status status = read_layout(node, &layout);
    if (status == RESHARD_OK)
        status = check_parts(&layout, count);
    if (status != RESHARD_OK)
        return status;
    mesh->axis_count = layout.axis_count;
    for (int32_t i = 0; i < layout.axis_count; i++) {
        mesh->sizes[i] = 1;
        mesh->coordinate[i] = 0;
    }
    for (int32_t i = 0; i < layout.part_count; i++) {
        const mesh_part *part = &layout.parts[i];
        mesh->sizes[part->axis] *= part->size;
        mesh->coordinate[part->axis] =
            mesh->coordinate[part->axis] * part->size + at / part->stride % part->size;
    }
    return RESHARD_OK;
}

/* ---- the rank that saved it ------------------------------------------------------------------ */

/* Reads the coordinates that the mesh has kept of the rank that saved it. False if it has none. */
static bool read_saved(const rs_pickle_node *node, int32_t axis_count,
                       int64_t out_coordinate[RS_TORCH_AXES_MAX])
{
    const rs_pickle_node *list = rs_torch_field(node, "_coordinate_on_dim", -1);
    bool is_told = rs_pickle_count(list) == (size_t)axis_count;
    for (int32_t i = 0; is_told && i < axis_count; i++)
        is_told = rs_pickle_int(rs_pickle_item(list, (size_t)i), &out_coordinate[i]);
    return is_told;
}

static void show_place(int32_t count, const int64_t *coordinate, char *out_text, size_t room)
{
    rs_text text;
    rs_text_init(&text, out_text, room);
    for (int32_t i = 0; i < count; i++)
        rs_text_add(&text, "%s%lld", i == 0 ? "" : ", ", (long long)coordinate[i]);
}

/* Files whose names were mixed up would be joined in the wrong order. */
static reshard_status check_saved(const rs_torch_rank *owner, const rs_pickle_node *node)
{
    const rs_torch_mesh *mesh = &owner->mesh;
    int64_t rank = 0, saved[RS_TORCH_AXES_MAX];
    char here[200], there[200];
    if (rs_pickle_int(rs_torch_field(node, "_rank", -1), &rank) && rank != owner->rank)
        return rs_fail(RESHARD_ERR_CORRUPT,
                       "this is the file of rank %d by its name, but rank %lld saved it; have "
                       "files been renamed?",
                       (int)owner->rank, (long long)rank);
    if (!read_saved(node, mesh->axis_count, saved) ||
        memcmp(saved, mesh->coordinate, (size_t)mesh->axis_count * sizeof *saved) == 0)
        return RESHARD_OK;
    show_place(mesh->axis_count, mesh->coordinate, here, sizeof here);
    show_place(mesh->axis_count, saved, there, sizeof there);
    return rs_fail(RESHARD_ERR_CORRUPT,
                   "this is the file of rank %d by its name, which is at (%s) of the mesh, but the "
                   "rank at (%s) saved it; have files been renamed?",
                   (int)owner->rank, here, there);
}

reshard_status rs_torch_mesh_read(reshard_checkpoint *checkpoint, rs_torch_rank *owner,
                                  const rs_pickle_node *node)
{
    rs_torch_tensor array;
    int64_t at = 0;
    const rs_pickle_node *ranks = rs_torch_field(node, "mesh", -1);
    const rs_pickle_node *row = rs_torch_field(node, "_rank_map", -1);
    const rs_pickle_node *layout = rs_torch_field(node, "_layout", -1);
    if (node != NULL && node == owner->mesh_node)
        return RESHARD_OK;
    if (ranks == NULL)
        ranks = rs_torch_field(node, "_mesh", -1);
    bool is_row = layout != NULL && row != NULL;
    if (!is_row && ranks == NULL)
        return rs_fail(RESHARD_ERR_UNSUPPORTED, "its mesh is written in an unknown way");
    owner->mesh_node = NULL;
    reshard_status status = find_rank(checkpoint, owner, is_row ? row : ranks, &array, &at);
    if (status == RESHARD_OK)
        status = is_row
                     ? find_in_layout(layout, rs_volume(array.ndim, array.shape), at, &owner->mesh)
                     : find_in_array(&array, at, &owner->mesh);
    if (status == RESHARD_OK)
        status = check_saved(owner, node);
    if (status == RESHARD_OK)
        owner->mesh_node = node;
    return status;
}
