/* SPDX-License-Identifier: Apache-2.0 */
/*
 * print.c - the canonical text of meshes and specs. It depends on what a spec means, not on how it
 * was written: equal specs print alike, and the text parses back to an equal spec.
 */
#include "spec/build.h"

#include <inttypes.h>

/* ---- mesh ------------------------------------------------------------------------------------ */

static void add_run(rs_text *text, int32_t first, int32_t last, int32_t step)
{
    rs_text_add(text, "%" PRId32 "..%" PRId32, first, last);
    if (step != 1)
        rs_text_add(text, "/%" PRId32, step);
}

/* The length of the run of ranks, rising by equal steps, that begins at a position; 1 if the next
 * rank is not larger. */
static int32_t run_length(const reshard_mesh *mesh, int32_t position)
{
    if (mesh->listed == NULL)
        return mesh->size - position;
    const int32_t *ranks = mesh->listed + position;
    int32_t left = mesh->size - position;
    int32_t length = 1;
    while (length < left && ranks[length] > ranks[length - 1] &&
           (int64_t)ranks[length] - ranks[length - 1] == (int64_t)ranks[1] - ranks[0])
        length++;
    return length;
}

static void add_ranks(const reshard_mesh *mesh, rs_text *text)
{
    for (int32_t i = 0; i < mesh->size;) {
        int32_t length = run_length(mesh, i);
        int32_t first = reshard_mesh_rank_at(mesh, i);
        rs_text_add(text, i == 0 ? "[" : ",");
        if (length < 3) {
            rs_text_add(text, "%" PRId32, first);
            i++;
        } else {
            add_run(text, first, reshard_mesh_rank_at(mesh, i + length - 1),
                    reshard_mesh_rank_at(mesh, i + 1) - first);
            i += length;
        }
    }
    rs_text_add(text, "]");
}

void rs_mesh_text(const reshard_mesh *mesh, rs_text *text)
{
    for (int32_t i = 0; i < mesh->axis_count; i++) {
        rs_text_add(text, i == 0 ? "%s" : ",%s", mesh->names[i]);
        rs_text_add(text, mesh->names[i][0] != '\0' ? "=%" PRId32 : "%" PRId32, mesh->sizes[i]);
    }
    if (mesh->listed != NULL || mesh->first != 0 || mesh->step != 1)
        add_ranks(mesh, text);
}

/* ---- cuts ------------------------------------------------------------------------------------ */

static void add_values(const reshard_placement *placement, rs_text *text)
{
    for (int32_t i = 0; i < placement->count; i++) {
        rs_text_add(text, i == 0 ? "%" PRId64 : ",%" PRId64, placement->values[i]);
        if (placement->part_max != NULL && placement->part_max[i] != 0)
            rs_text_add(text, "|%" PRId64, placement->part_max[i]);
    }
}

static void add_shard_placement(const reshard_placement *placement, rs_text *text)
{
    if (placement->dim == RESHARD_DIM_FLAT)
        rs_text_add(text, "S(flat");
    else
        rs_text_add(text, "S(%" PRId32, placement->dim);
    switch (placement->rule) {
    case RESHARD_CHUNK:
        break;
    case RESHARD_BALANCED:
        rs_text_add(text, "~");
        break;
    case RESHARD_PACKED:
        rs_text_add(text, ";");
        break;
    case RESHARD_STRIDED:
        rs_text_add(text, "*%" PRId64, placement->factor);
        break;
    case RESHARD_RAGGED:
        rs_text_add(text, "=");
        break;
    case RESHARD_CYCLIC:
        rs_text_add(text, "/%" PRId64, placement->factor);
        break;
    }
    add_values(placement, text);
    if (placement->unit != 0)
        rs_text_add(text, ", unit=%" PRId64, placement->unit);
    if (placement->max != 0)
        rs_text_add(text, ", max=%" PRId64, placement->max);
    rs_text_add(text, ")");
}

static void add_placement(const reshard_placement *placement, rs_text *text)
{
    switch (placement->kind) {
    case RESHARD_REPLICATE:
        rs_text_add(text, "R");
        break;
    case RESHARD_PARTIAL:
        rs_text_add(text, "P(%s)", reshard_reduction_name(placement->reduction));
        break;
    case RESHARD_AT:
        rs_text_add(text, "A(");
        add_values(placement, text);
        rs_text_add(text, ")");
        break;
    case RESHARD_SHARD:
        add_shard_placement(placement, text);
        break;
    }
}

static bool in_axis_order(const reshard_spec *spec)
{
    int32_t axis = -1;
    for (int32_t i = 0; i < spec->cut_count; i++) {
        if (spec->cuts[i].placement.kind == RESHARD_REPLICATE)
            continue;
        if (spec->cuts[i].axis < axis)
            return false;
        axis = spec->cuts[i].axis;
    }
    return true;
}

static void add_bare_cuts(const reshard_spec *spec, rs_text *text)
{
    static const reshard_placement replicate = {.kind = RESHARD_REPLICATE};
    const reshard_placement *placements[RESHARD_AXES_MAX];
    for (int32_t axis = 0; axis < spec->mesh->axis_count; axis++)
        placements[axis] = &replicate;
    for (int32_t i = 0; i < spec->cut_count; i++)
        placements[spec->cuts[i].axis] = &spec->cuts[i].placement;
    for (int32_t axis = 0; axis < spec->mesh->axis_count; axis++) {
        rs_text_add(text, axis == 0 ? ": " : ", ");
        add_placement(placements[axis], text);
    }
}

static void add_cuts_with_axes(const reshard_spec *spec, rs_text *text)
{
    const char *separator = ": ";
    for (int32_t i = 0; i < spec->cut_count; i++) {
        const reshard_cut *cut = &spec->cuts[i];
        if (cut->placement.kind == RESHARD_REPLICATE)
            continue;
        rs_text_add(text, "%s", separator);
        separator = ", ";
        add_placement(&cut->placement, text);
        if (spec->mesh->names[cut->axis][0] != '\0')
            rs_text_add(text, "@%s", spec->mesh->names[cut->axis]);
        else
            rs_text_add(text, "@%" PRId32, cut->axis);
    }
}

/* ---- boxes ----------------------------------------------------------------------------------- */

static void add_empty_shard(int32_t ndim, const reshard_shard *shard, rs_text *text)
{
    static const int64_t point[RESHARD_NDIM_MAX] = {0};
    bool flat = shard->ndim != ndim;
    rs_text_add_box(text, ndim, shard->offset, flat ? point : shard->shape);
    if (flat)
        rs_text_add(text, "@0");
}

static void add_shard(int32_t ndim, const reshard_shard *shard, rs_text *text)
{
    rs_text_add(text, " %" PRId32, shard->rank);
    if (shard->piece_count == 0)
        add_empty_shard(ndim, shard, text);
    for (int64_t i = 0; i < shard->piece_count; i++) {
        const reshard_piece *piece = &shard->pieces[i];
        if (i > 0)
            rs_text_add(text, "+");
        rs_text_add_box(text, ndim, piece->box.offset, piece->box.size);
        /* A single piece in a shard with the tensor's number of dimensions is the whole shard. */
        if (shard->piece_count == 1 && shard->ndim == ndim)
            continue;
        reshard_box memory;
        rs_piece_memory_box(ndim, shard, piece, &memory);
        for (int32_t d = 0; d < shard->ndim; d++)
            rs_text_add(text, d == 0 ? "@%" PRId64 : ",%" PRId64, memory.offset[d]);
    }
}

static void add_shards(const reshard_spec *spec, rs_text *text)
{
    rs_text_add(text, spec->kind == RESHARD_SPEC_COVER ? "cover " : "boxes ");
    rs_text_add_shape(text, spec->ndim, spec->shape);
    rs_text_add(text, ":");
    for (int64_t i = 0; i < spec->shard_count; i++)
        add_shard(spec->ndim, &spec->shards[i], text);
}

/* ---- spec ------------------------------------------------------------------------------------ */

reshard_status reshard_spec_text(const reshard_spec *spec, char *buffer, size_t capacity,
                                 size_t *out_length)
{
    if (spec->kind == RESHARD_SPEC_CALLBACK)
        return rs_fail(RESHARD_ERR_UNSUPPORTED, "a spec by callback has no text");
    rs_text text;
    rs_text_init(&text, buffer, capacity);
    if (spec->kind != RESHARD_SPEC_CUTS) {
        add_shards(spec, &text);
    } else {
        rs_mesh_text(spec->mesh, &text);
        if (in_axis_order(spec))
            add_bare_cuts(spec, &text);
        else
            add_cuts_with_axes(spec, &text);
    }
    if (out_length != NULL)
        *out_length = text.length;
    return RESHARD_OK;
}
