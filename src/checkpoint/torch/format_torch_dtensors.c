/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format_torch_dtensors.c - rank files whose tensors are DTensors of the mesh, as an FSDP job of
 * PyTorch 2.5 to 2.8 leaves them. They are written if a conversion to torch.save files asks for
 * DTensors, and read like other rank files.
 *
 * A DTensor can express less than our rules. Whether it can express how a tensor is cut is found by
 * trying: the closest placements are chosen, and must give every rank exactly the box that it has.
 */
#include "base/context.h"
#include "base/shape.h"
#include "checkpoint/format/rank_join.h"
#include "checkpoint/torch/torch_formats.h"
#include "checkpoint/torch/torch_placed.h"
#include "checkpoint/torch/torch_ranks.h"
#include "checkpoint/torch/torch_save.h"
#include "layout/layout.h"
#include "spec/spec.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define TENSOR_MODULE "torch.distributed.tensor"
#define SPEC_MODULE "torch.distributed.tensor._dtensor_spec"
#define PLACEMENT_MODULE "torch.distributed.tensor.placement_types"
/* Key of the storage that holds the ranks of the mesh. */
#define MESH_KEY "mesh"

/* State that is kept from lay_out to finish. */
typedef struct dtensor_notes {
    int32_t axis_count;
    int64_t sizes[RS_TORCH_AXES_MAX];
    const char *names[RS_TORCH_AXES_MAX]; /* names[0] NULL: not all axes have names */
    int32_t rank_count;
    int32_t *ranks;       /* by position in the mesh */
    int32_t *positions;   /* by file */
    rs_torch_cuts *cuts;  /* by tensor */
    int32_t pickled_file; /* the file whose pickle already has the mesh; -1: none */
    uint32_t pickled_mesh;
} dtensor_notes;

/* ---- laying out ------------------------------------------------------------------------------ */

static void find_coordinate(const dtensor_notes *notes, int64_t position, rs_torch_mesh *out_mesh)
{
    out_mesh->axis_count = notes->axis_count;
    for (int32_t i = notes->axis_count - 1; i >= 0; i--) {
        out_mesh->sizes[i] = notes->sizes[i];
        out_mesh->coordinate[i] = position % notes->sizes[i];
        position /= notes->sizes[i];
    }
}

/* The split factor of a cut: more than 1 if axes to its right have cut the dim before it, which
 * makes it a strided shard. */
static int64_t find_factor(const dtensor_notes *notes, const reshard_spec *spec, int32_t index,
                           int32_t dim, int32_t ndim)
{
    int64_t factor = 1;
    for (int32_t i = 0; i < index; i++) {
        const reshard_cut *earlier = &spec->cuts[i];
        int32_t other = earlier->placement.dim + (earlier->placement.dim < 0 ? ndim : 0);
        if (earlier->placement.kind == RESHARD_SHARD && other == dim &&
            earlier->axis > spec->cuts[index].axis)
            factor *= notes->sizes[earlier->axis];
    }
    return factor;
}

/* Chooses the placements that come closest to a spec. */
static void choose_placements(const dtensor_notes *notes, const reshard_spec *spec, int32_t ndim,
                              rs_torch_cuts *cuts)
{
    *cuts = (rs_torch_cuts){.order_count = 0};
    for (int32_t i = 0; i < spec->cut_count; i++) {
        const reshard_cut *cut = &spec->cuts[i];
        int32_t dim = cut->placement.dim + (cut->placement.dim < 0 ? ndim : 0);
        if (cut->placement.kind != RESHARD_SHARD || dim < 0 || dim >= ndim)
            continue;
        int64_t factor = find_factor(notes, spec, i, dim, ndim);
        cuts->placements[cut->axis] = (rs_torch_placement){
            factor > 1 ? RS_TORCH_STRIDED : RS_TORCH_SHARD, dim, factor > 1 ? factor : 0};
    }
}

/* Do the placements give every rank exactly what it has? */
static bool fits(const dtensor_notes *notes, const rs_laying *laying, const rs_cut_tensor *cut,
                 rs_torch_cuts *cuts)
{
    const rs_stored_tensor *tensor = cut->tensor;
    rs_torch_mesh mesh = {.axis_count = 0};
    bool is_same = cut->holding->shards->count == notes->rank_count;
    for (int64_t i = 0; is_same && i < cut->holding->shards->count; i++) {
        const reshard_shard *shard = &cut->holding->shards->items[i];
        int64_t offset[RESHARD_NDIM_MAX], size[RESHARD_NDIM_MAX];
        find_coordinate(notes, notes->positions[rs_laying_file(laying, shard->rank)], &mesh);
        if (i == 0 && rs_torch_cuts_order(&mesh, tensor->ndim, cuts) != RESHARD_OK)
            return false;
        rs_torch_cuts_box(&mesh, cuts, tensor->ndim, tensor->shape, offset, size);
        if (rs_volume(tensor->ndim, size) == 0) {
            is_same = shard->piece_count == 0 || rs_volume(shard->ndim, shard->shape) == 0;
            continue;
        }
        size_t bytes = (size_t)tensor->ndim * sizeof(int64_t);
        is_same = shard->piece_count == 1 && shard->ndim == tensor->ndim &&
                  memcmp(shard->shape, size, bytes) == 0 &&
                  memcmp(shard->pieces[0].box.offset, offset, bytes) == 0 &&
                  memcmp(shard->pieces[0].box.size, size, bytes) == 0;
    }
    return is_same;
}

static reshard_status fail_cut(const rs_cut_tensor *cut)
{
    const rs_stored_tensor *tensor = cut->tensor;
    char text[400];
    size_t length = 0;
    if (reshard_spec_text(cut->holding->layout->spec, text, sizeof text, &length) != RESHARD_OK)
        (void)snprintf(text, sizeof text, "its rule");
    bool is_padded = memcmp(tensor->shape, cut->holding->layout->shape,
                            (size_t)tensor->ndim * sizeof(int64_t)) != 0;
    return rs_fail(RESHARD_ERR_UNSUPPORTED,
                   "tensor \"%.*s\": placements of a DTensor cannot express how %s cuts it%s",
                   RS_SHOWN(tensor->name), text, is_padded ? ", with padding" : "");
}

static reshard_status place_tensor(const rs_laying *laying, const rs_cut_tensor *cut)
{
    const dtensor_notes *notes = laying->target->notes;
    const rs_stored_tensor *tensor = cut->tensor;
    rs_torch_cuts *cuts = &notes->cuts[laying->target->tensor_count];
    reshard_status status = rs_torch_check_dtype(tensor->name, tensor->dtype);
    if (status != RESHARD_OK)
        return status;
    if (!tensor->opaque) {
        choose_placements(notes, cut->holding->layout->spec, tensor->ndim, cuts);
        if (!fits(notes, laying, cut, cuts))
            return fail_cut(cut);
    }
    return rs_target_place_local(laying, cut);
}

static reshard_status keep_mesh(const rs_laying *laying, dtensor_notes *notes)
{
    const reshard_mesh *mesh = laying->cuts->book.mesh;
    rs_arena *arena = &laying->target->arena;
    size_t count = (size_t)mesh->size;
    bool has_names = true;
    if (mesh->axis_count > RS_TORCH_AXES_MAX)
        return rs_fail(RESHARD_ERR_UNSUPPORTED, "DTensors cannot be written over a mesh of %d axes",
                       (int)mesh->axis_count);
    notes->axis_count = mesh->axis_count;
    notes->rank_count = (int32_t)count;
    notes->ranks = rs_arena_allocate_array(arena, count, sizeof(int32_t));
    notes->positions = rs_arena_allocate_array(arena, count, sizeof(int32_t));
    notes->cuts = rs_arena_allocate_array(arena, (size_t)laying->cuts->selection.count + 1,
                                          sizeof *notes->cuts);
    if (notes->ranks == NULL || notes->positions == NULL || notes->cuts == NULL)
        return rs_allocation_status();
    for (int32_t i = 0; i < mesh->axis_count; i++) {
        notes->sizes[i] = mesh->sizes[i];
        notes->names[i] = rs_arena_copy(arena, mesh->names[i], strlen(mesh->names[i]) + 1, 1);
        if (notes->names[i] == NULL)
            return rs_allocation_status();
        has_names = has_names && mesh->names[i][0] != '\0';
    }
    if (!has_names)
        notes->names[0] = NULL;
    for (int32_t i = 0; i < notes->rank_count; i++) {
        notes->ranks[i] = reshard_mesh_rank_at(mesh, i);
        notes->positions[laying->file_of[i]] = i;
    }
    return RESHARD_OK;
}

static reshard_status lay_out(rs_laying *laying)
{
    rs_target *target = laying->target;
    dtensor_notes *notes = rs_arena_allocate(&target->arena, sizeof *notes);
    if (notes == NULL)
        return rs_allocation_status();
    *notes = (dtensor_notes){.pickled_file = -1};
    target->notes = notes;
    reshard_status status = rs_rank_mesh_check(laying->cuts->book.mesh);
    if (status == RESHARD_OK)
        status = keep_mesh(laying, notes);
    return status == RESHARD_OK ? rs_target_cut(laying, place_tensor) : status;
}

/* ---- pickles --------------------------------------------------------------------------------- */

static void write_key(rs_pickle_writer *writer, const char *key)
{
    rs_pickle_write_text(writer, rs_slice_of(key));
}

/* Writes class.__new__(class); a state may follow. */
static void write_new(rs_pickle_writer *writer, const char *module, const char *class)
{
    rs_pickle_write_global(writer, module, class);
    rs_pickle_write_tuple_begin(writer);
    rs_pickle_write_tuple_end(writer);
    rs_pickle_write_object(writer);
}

/* Writes function(text). */
static void write_call(rs_pickle_writer *writer, const char *module, const char *function,
                       const char *text)
{
    rs_pickle_write_global(writer, module, function);
    rs_pickle_write_tuple_begin(writer);
    rs_pickle_write_text(writer, rs_slice_of(text));
    rs_pickle_write_tuple_end(writer);
    rs_pickle_write_reduce(writer);
}

static void write_names(rs_pickle_writer *writer, const dtensor_notes *notes)
{
    if (notes->names[0] == NULL) {
        rs_pickle_write_none(writer);
        return;
    }
    rs_pickle_write_tuple_begin(writer);
    for (int32_t i = 0; i < notes->axis_count; i++)
        write_key(writer, notes->names[i]);
    rs_pickle_write_tuple_end(writer);
}

/* Writes the mesh as the rank of a file sees it, once in each pickle. */
static void write_mesh(rs_pickle_writer *writer, dtensor_notes *notes, int32_t file)
{
    rs_torch_mesh mesh;
    if (notes->pickled_file == file) {
        rs_pickle_write_get(writer, notes->pickled_mesh);
        return;
    }
    find_coordinate(notes, notes->positions[file], &mesh);
    write_new(writer, "torch.distributed.device_mesh", "DeviceMesh");
    rs_pickle_write_dict_begin(writer);
    write_key(writer, "device_type");
    write_key(writer, "cpu");
    write_key(writer, "mesh");
    rs_torch_write_tensor(writer, rs_slice_of(MESH_KEY), RESHARD_I32, notes->axis_count,
                          notes->sizes);
    write_key(writer, "mesh_dim_names");
    write_names(writer, notes);
    write_key(writer, "_flatten_mesh_list");
    rs_pickle_write_tuple_begin(writer);
    for (int32_t i = 0; i < notes->rank_count; i++)
        rs_pickle_write_int(writer, notes->ranks[i]);
    rs_pickle_write_tuple_end(writer);
    write_key(writer, "_thread_id");
    rs_pickle_write_none(writer);
    write_key(writer, "_coordinate_on_dim");
    rs_pickle_write_list_begin(writer);
    for (int32_t i = 0; i < notes->axis_count; i++)
        rs_pickle_write_int(writer, mesh.coordinate[i]);
    rs_pickle_write_list_end(writer);
    rs_pickle_write_dict_end(writer);
    rs_pickle_write_build(writer);
    notes->pickled_mesh = rs_pickle_write_put(writer);
    notes->pickled_file = file;
}

static void write_placement(rs_pickle_writer *writer, const rs_torch_placement *placement)
{
    static const char *const classes[] = {[RS_TORCH_REPLICATE] = "Replicate",
                                          [RS_TORCH_SHARD] = "Shard",
                                          [RS_TORCH_STRIDED] = "_StridedShard"};
    assert(placement->kind != RS_TORCH_PARTIAL);
    write_new(writer, PLACEMENT_MODULE, classes[placement->kind]);
    if (placement->kind == RS_TORCH_REPLICATE)
        return;
    rs_pickle_write_dict_begin(writer);
    write_key(writer, "dim");
    rs_pickle_write_int(writer, placement->dim);
    if (placement->kind == RS_TORCH_STRIDED) {
        write_key(writer, "split_factor");
        rs_pickle_write_int(writer, placement->factor);
    }
    rs_pickle_write_dict_end(writer);
    rs_pickle_write_build(writer);
}

static void write_spec(rs_pickle_writer *writer, dtensor_notes *notes, const rs_target *target,
                       const rs_target_entry *entry)
{
    const rs_stored_tensor *tensor = &target->tensors[entry->tensor];
    write_new(writer, SPEC_MODULE, "DTensorSpec");
    rs_pickle_write_dict_begin(writer);
    write_key(writer, "mesh");
    write_mesh(writer, notes, entry->file);
    write_key(writer, "placements");
    rs_pickle_write_tuple_begin(writer);
    for (int32_t i = 0; i < notes->axis_count; i++)
        write_placement(writer, &notes->cuts[entry->tensor].placements[i]);
    rs_pickle_write_tuple_end(writer);
    write_key(writer, "tensor_meta");
    rs_pickle_write_global(writer, SPEC_MODULE, "TensorMeta");
    rs_pickle_write_tuple_begin(writer);
    rs_pickle_write_global(writer, "torch", "Size");
    rs_pickle_write_tuple_begin(writer);
    rs_torch_write_numbers(writer, tensor->ndim, tensor->shape);
    rs_pickle_write_tuple_end(writer);
    rs_pickle_write_reduce(writer);
    rs_torch_write_strides(writer, tensor->ndim, tensor->shape);
    rs_pickle_write_global(writer, "torch", rs_torch_dtype_name(tensor->dtype));
    rs_pickle_write_tuple_end(writer);
    rs_pickle_write_object(writer);
    write_key(writer, "_hash");
    rs_pickle_write_none(writer);
    rs_pickle_write_dict_end(writer);
    rs_pickle_write_build(writer);
}

/* Writes (class, dtype, size, strides, offset, layout, device, requires_grad). */
static void write_wrapper(rs_pickle_writer *writer, const rs_stored_tensor *tensor)
{
    rs_pickle_write_tuple_begin(writer);
    rs_pickle_write_global(writer, TENSOR_MODULE, "DTensor");
    rs_pickle_write_global(writer, "torch", rs_torch_dtype_name(tensor->dtype));
    rs_torch_write_numbers(writer, tensor->ndim, tensor->shape);
    rs_torch_write_strides(writer, tensor->ndim, tensor->shape);
    rs_pickle_write_int(writer, 0);
    write_call(writer, "torch.serialization", "_get_layout", "torch.strided");
    write_call(writer, "torch", "device", "cpu");
    rs_pickle_write_bool(writer, false);
    rs_pickle_write_tuple_end(writer);
}

static void write_dtensor(rs_pickle_writer *writer, const rs_target *target,
                          const rs_target_entry *entry, rs_slice key)
{
    const rs_stored_tensor *tensor = &target->tensors[entry->tensor];
    if (tensor->opaque) { /* it is whole on every rank */
        rs_torch_save_plain(writer, target, entry, key);
        return;
    }
    rs_pickle_write_global(writer, "torch._tensor", "_rebuild_from_type_v2");
    rs_pickle_write_tuple_begin(writer);
    rs_pickle_write_global(writer, "torch._utils", "_rebuild_wrapper_subclass");
    rs_pickle_write_global(writer, TENSOR_MODULE, "DTensor");
    write_wrapper(writer, tensor);
    rs_pickle_write_tuple_begin(writer); /* the state of a class with slots */
    rs_pickle_write_none(writer);
    rs_pickle_write_dict_begin(writer);
    write_key(writer, "_local_tensor");
    rs_torch_save_plain(writer, target, entry, key);
    write_key(writer, "_spec");
    write_spec(writer, target->notes, target, entry);
    rs_pickle_write_dict_end(writer);
    rs_pickle_write_tuple_end(writer);
    rs_pickle_write_tuple_end(writer);
    rs_pickle_write_reduce(writer);
}

/* Writes the storage of the mesh: ranks as little-endian 32-bit numbers. */
static void write_ranks(rs_json_writer *writer, const rs_target *target, int32_t file)
{
    const dtensor_notes *notes = target->notes;
    (void)file;
    for (int32_t i = 0; i < notes->rank_count; i++) {
        uint32_t rank = (uint32_t)notes->ranks[i];
        const char bytes[4] = {(char)(rank & 255), (char)(rank >> 8 & 255),
                               (char)(rank >> 16 & 255), (char)(rank >> 24)};
        rs_json_writer_add(writer, bytes, sizeof bytes);
    }
}

/* ---- the format ------------------------------------------------------------------------------ */

static const rs_torch_style style = {
    .write = write_dtensor, .record_name = "data/" MESH_KEY, .write_record = write_ranks};

static reshard_status place(rs_target *target, int32_t file)
{
    ((dtensor_notes *)target->notes)->pickled_file = -1;
    return rs_torch_save_place(target, file);
}

static reshard_status finish(const rs_target *target, const rs_finishing *finishing)
{
    ((dtensor_notes *)target->notes)->pickled_file = -1;
    return rs_torch_save_finish(target, finishing);
}

const rs_format rs_format_torch_dtensors = {
    .name = "torch-ranks",
    .description = "one torch.save file for each rank, with DTensors",
    .is_split = true,
    .has_crcs = true,
    .holds_value = rs_torch_nest_holds,
    .lay_out = lay_out,
    .name_file = rs_torch_ranks_name_file,
    .place = place,
    .write_head = rs_torch_save_head,
    .finish = finish,
    .torch_style = &style,
};
