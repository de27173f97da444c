/* SPDX-License-Identifier: Apache-2.0 */
/*
 * oracle_text.c - the oracle's specs in the library's words: as text for its parser, and by its
 * constructors. Both must come to the same layout.
 */
#include "tests/support/oracle.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const axis_names[ORACLE_AXES_MAX] = {"dp", "tp", "pp", "ep"};

static void add(char *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void add(char *text, const char *format, ...)
{
    size_t length = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text + length, ORACLE_TEXT_MAX - length, format, arguments);
    va_end(arguments);
}

static void add_numbers(char *text, int32_t count, const int64_t *numbers)
{
    for (int32_t i = 0; i < count; i++)
        add(text, "%s%lld", i > 0 ? "," : "", (long long)numbers[i]);
}

/* ---- text ------------------------------------------------------------------------------------ */

static void add_rule(char *text, const oracle_cut *cut)
{
    switch (cut->rule) {
    case RESHARD_CHUNK:
        break;
    case RESHARD_BALANCED:
        add(text, "~");
        break;
    case RESHARD_PACKED:
        for (int32_t i = 0; i < cut->count; i++) {
            add(text, "%s%lld", i > 0 ? "," : ";", (long long)cut->values[i]);
            if (cut->part_max[i] > 0)
                add(text, "|%lld", (long long)cut->part_max[i]);
        }
        break;
    case RESHARD_STRIDED:
        add(text, "*%lld", (long long)cut->factor);
        break;
    case RESHARD_RAGGED:
        add(text, "=");
        add_numbers(text, cut->count, cut->values);
        break;
    case RESHARD_CYCLIC:
        add(text, "/%lld", (long long)cut->factor);
        break;
    }
}

static void add_placement(char *text, const oracle_cut *cut)
{
    switch (cut->kind) {
    case RESHARD_REPLICATE:
        add(text, "R");
        break;
    case RESHARD_PARTIAL:
        add(text, "P(%s)", reshard_reduction_name(cut->reduction));
        break;
    case RESHARD_AT:
        add(text, "A(");
        add_numbers(text, cut->count, cut->values);
        add(text, ")");
        break;
    case RESHARD_SHARD:
        if (cut->dim == RESHARD_DIM_FLAT)
            add(text, "S(flat");
        else
            add(text, "S(%d", (int)cut->dim);
        add_rule(text, cut);
        if (cut->unit > 0)
            add(text, ",unit=%lld", (long long)cut->unit);
        if (cut->max > 0)
            add(text, ",max=%lld", (long long)cut->max);
        add(text, ")");
        break;
    }
}

static void add_mesh(char *text, const oracle_spec *spec)
{
    int32_t size = oracle_mesh_size(spec);
    for (int32_t i = 0; i < spec->axis_count; i++) {
        add(text, "%s", i > 0 ? "," : "");
        if (spec->named)
            add(text, "%s=", axis_names[i]);
        add(text, "%d", (int)spec->sizes[i]);
    }
    if (spec->default_ranks)
        return;
    for (int32_t i = 0; i < size; i++)
        add(text, "%s%d", i > 0 ? "," : "[", (int)spec->ranks[i]);
    add(text, "]");
}

static void add_listed_text(char *text, const oracle_listed *listed, int32_t ndim)
{
    add(text, " %d", (int)listed->rank);
    for (int32_t i = 0; i < listed->piece_count; i++) {
        const oracle_piece *piece = &listed->pieces[i];
        add(text, i > 0 ? "+[" : "[");
        for (int32_t d = 0; d < ndim; d++)
            add(text, "%s%lld:%lld", d > 0 ? "," : "", (long long)piece->from[d],
                (long long)piece->to[d]);
        add(text, "]%s", piece->at_count > 0 ? "@" : "");
        add_numbers(text, piece->at_count, piece->at);
    }
}

void oracle_spec_text(const oracle_spec *spec, char text[ORACLE_TEXT_MAX])
{
    text[0] = '\0';
    if (spec->kind == RESHARD_SPEC_CUTS) {
        add_mesh(text, spec);
        for (int32_t i = 0; i < spec->cut_count; i++) {
            add(text, i > 0 ? ", " : ": ");
            add_placement(text, &spec->cuts[i]);
            if (spec->with_at)
                add(text, "@%s", axis_names[spec->cuts[i].axis]);
        }
        return;
    }
    add(text, spec->kind == RESHARD_SPEC_COVER ? "cover " : "boxes ");
    for (int32_t d = 0; d < spec->ndim; d++)
        add(text, "%s%lld", d > 0 ? "x" : "", (long long)spec->shape[d]);
    add(text, spec->ndim == 0 ? "scalar:" : ":");
    for (int32_t i = 0; i < spec->listed_count; i++)
        add_listed_text(text, &spec->listed[i], spec->ndim);
}

/* ---- constructors ---------------------------------------------------------------------------- */

static reshard_status build_cuts(const oracle_spec *spec, reshard_context *context,
                                 reshard_spec **out_spec)
{
    reshard_mesh *mesh = NULL;
    reshard_cut cuts[ORACLE_AXES_MAX];
    reshard_status status =
        reshard_mesh_create(context, spec->axis_count, spec->named ? axis_names : NULL, spec->sizes,
                            spec->default_ranks ? NULL : spec->ranks, &mesh);
    if (status != RESHARD_OK)
        return status;
    memset(cuts, 0, sizeof cuts);
    for (int32_t i = 0; i < spec->cut_count; i++) {
        const oracle_cut *cut = &spec->cuts[i];
        reshard_placement *placement = &cuts[i].placement;
        cuts[i].axis = cut->axis;
        placement->kind = cut->kind;
        placement->reduction = cut->reduction;
        placement->dim = cut->dim;
        placement->rule = cut->rule;
        placement->factor = cut->factor;
        placement->unit = cut->unit;
        placement->max = cut->max;
        placement->count = cut->count;
        placement->values = cut->count > 0 ? cut->values : NULL;
        for (int32_t j = 0; j < cut->count; j++) {
            if (cut->rule == RESHARD_PACKED && cut->part_max[j] > 0)
                placement->part_max = cut->part_max;
        }
    }
    status = reshard_spec_create(context, mesh, spec->cut_count, cuts, out_spec);
    reshard_mesh_release(mesh);
    return status;
}

static void set_strides(int32_t ndim, const int64_t *sizes, int64_t *strides)
{
    int64_t stride = 1;
    for (int32_t d = ndim - 1; d >= 0; d--) {
        strides[d] = stride;
        stride *= sizes[d];
    }
}

static void build_piece(const oracle_piece *from, int32_t ndim, const reshard_shard *shard,
                        bool flat, int64_t packed, reshard_piece *piece)
{
    piece->box.ndim = ndim;
    for (int32_t d = 0; d < ndim; d++) {
        piece->box.offset[d] = from->from[d];
        piece->box.size[d] = from->to[d] - from->from[d];
    }
    if (flat) {
        piece->at = from->at_count > 0 ? from->at[0] : packed;
        set_strides(ndim, piece->box.size, piece->strides);
        return;
    }
    set_strides(ndim, shard->shape, piece->strides);
    for (int32_t d = 0; d < from->at_count; d++)
        piece->at += from->at[d] * piece->strides[d];
}

static void build_listed(const oracle_listed *listed, int32_t ndim, reshard_piece *pieces,
                         reshard_shard *shard)
{
    const oracle_piece *first = &listed->pieces[0];
    bool flat = first->at_count == 0 ? listed->piece_count > 1 : first->at_count != ndim;
    int64_t packed = 0;
    shard->rank = listed->rank;
    shard->ndim = flat ? 1 : ndim;
    shard->piece_count = listed->piece_count;
    shard->pieces = pieces;
    for (int32_t i = 0; i < listed->piece_count; i++) {
        const oracle_piece *piece = &listed->pieces[i];
        int64_t volume = 1;
        for (int32_t d = 0; d < ndim; d++) {
            int64_t size = piece->to[d] - piece->from[d];
            int64_t end = size + (piece->at_count == ndim ? piece->at[d] : 0);
            volume *= size;
            if (!flat && end > shard->shape[d])
                shard->shape[d] = end;
        }
        packed += volume;
    }
    if (flat)
        shard->shape[0] = packed;
    packed = 0;
    for (int32_t i = 0; i < listed->piece_count; i++) {
        build_piece(&listed->pieces[i], ndim, shard, flat, packed, &pieces[i]);
        packed += oracle_volume(ndim, pieces[i].box.size);
    }
}

reshard_status oracle_spec_build(const oracle_spec *spec, reshard_context *context,
                                 reshard_spec **out_spec)
{
    if (spec->kind == RESHARD_SPEC_CUTS)
        return build_cuts(spec, context, out_spec);
    size_t count = (size_t)spec->listed_count;
    reshard_shard *shards = calloc(count + 1, sizeof *shards);
    reshard_piece *pieces = calloc(count * ORACLE_PIECES_MAX + 1, sizeof *pieces);
    if (shards == NULL || pieces == NULL)
        abort();
    for (int32_t i = 0; i < spec->listed_count; i++)
        build_listed(&spec->listed[i], spec->ndim, pieces + i * ORACLE_PIECES_MAX, &shards[i]);
    reshard_status status =
        reshard_spec_boxes(context, spec->kind == RESHARD_SPEC_COVER, spec->ndim, spec->shape,
                           spec->listed_count, shards, out_spec);
    free(shards);
    free(pieces);
    return status;
}
