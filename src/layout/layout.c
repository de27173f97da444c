/* SPDX-License-Identifier: Apache-2.0 */
/* layout.c - creates layouts from specs and answers simple questions about them. */
#include "layout/layout.h"

#include "base/checked.h"
#include "base/context.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/options.h"
#include "base/shape.h"
#include "base/sort.h"
#include "text/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- creation -------------------------------------------------------------------------------- */

struct reshard_shard_sink {
    reshard_layout *layout;
    reshard_shard *items;
    int64_t count, capacity;
};

reshard_status reshard_shard_sink_add(reshard_shard_sink *sink, const reshard_shard *shard)
{
    reshard_layout *layout = sink->layout;
    reshard_status status = rs_grow(layout->context, &sink->items, &sink->capacity, sink->count + 1,
                                    sizeof *sink->items);
    if (status == RESHARD_OK)
        status = rs_shard_copy_checked(&layout->arena, layout->ndim, layout->shape, shard,
                                       &sink->items[sink->count]);
    if (status == RESHARD_OK)
        sink->count++;
    return rs_fail_within(status, "shard %" PRId64, sink->count);
}

static reshard_status init_from_sink(reshard_layout *layout, const reshard_shard_sink *sink,
                                     bool cover)
{
    reshard_shard *shards =
        rs_arena_copy(&layout->arena, sink->items, (size_t)sink->count, sizeof *shards);
    if (shards == NULL)
        return rs_allocation_status();
    return rs_listed_init(layout, sink->count, shards, cover);
}

static reshard_status init_callback(reshard_layout *layout)
{
    const reshard_spec *spec = layout->spec;
    reshard_shard_sink sink = {.layout = layout};
    reshard_status status = spec->fn(spec->user, layout->ndim, layout->shape, &sink);
    if (status == RESHARD_OK)
        status = init_from_sink(layout, &sink, spec->cover != 0);
    rs_release(layout->context, sink.items);
    return status;
}

static reshard_status init_boxes(reshard_layout *layout)
{
    const reshard_spec *spec = layout->spec;
    bool same = spec->ndim == layout->ndim;
    for (int32_t d = 0; same && d < layout->ndim; d++)
        same = spec->shape[d] == layout->shape[d];
    if (!same) {
        char given[256], wanted[256];
        rs_text text;
        rs_text_init(&text, given, sizeof given);
        rs_text_add_shape(&text, spec->ndim, spec->shape);
        rs_text_init(&text, wanted, sizeof wanted);
        rs_text_add_shape(&text, layout->ndim, layout->shape);
        return rs_fail(RESHARD_ERR_INVALID, "the boxes describe a tensor of %s, not one of %s",
                       given, wanted);
    }
    reshard_shard *shards = rs_arena_copy(&layout->arena, spec->shards, (size_t)spec->shard_count,
                                          sizeof *shards); /* the pieces still belong to the spec */
    if (shards == NULL)
        return rs_allocation_status();
    return rs_listed_init(layout, spec->shard_count, shards, spec->kind == RESHARD_SPEC_COVER);
}

/* The index-th position of the mesh, in increasing order, among those that A does not leave out. */
static int32_t position_at(const reshard_layout *layout, int32_t index)
{
    int32_t position = 0;
    for (int32_t a = layout->axis_count - 1; a >= 0; a--) {
        const rs_axis *axis = &layout->axes[a];
        int32_t count = axis->role == RS_AXIS_AT ? axis->at_count : axis->size;
        int32_t digit = index % count;
        index /= count;
        position += (axis->role == RS_AXIS_AT ? (int32_t)axis->at[digit] : digit) * axis->stride;
    }
    return position;
}

/* Counts the ranks that own a shard, and lists them unless the mesh is evenly spaced: there, ranks
 * increase with the position and are computed. */
static reshard_status count_ranks(reshard_layout *layout)
{
    layout->rank_count = 1;
    for (int32_t a = 0; a < layout->axis_count; a++) {
        const rs_axis *axis = &layout->axes[a];
        layout->rank_count *= axis->role == RS_AXIS_AT ? axis->at_count : axis->size;
    }
    if (layout->mesh->listed == NULL)
        return RESHARD_OK;
    size_t count = (size_t)layout->rank_count;
    int32_t *ranks = rs_arena_allocate_array(&layout->arena, count, sizeof *ranks);
    if (ranks == NULL)
        return rs_allocation_status();
    for (int32_t i = 0; i < layout->rank_count; i++)
        ranks[i] = reshard_mesh_rank_at(layout->mesh, position_at(layout, i));
    rs_sort(ranks, count, sizeof *ranks, rs_compare_i32);
    layout->ranks = ranks;
    return RESHARD_OK;
}

/* Whether no cut gives the same element to several coordinates, as max= and part limits do. */
static bool cuts_share_nothing(const reshard_layout *layout)
{
    for (int32_t d = 0; d <= layout->ndim; d++) {
        const rs_chain *chain = d < layout->ndim ? &layout->dims[d] : &layout->flat;
        for (int32_t i = 0; i < chain->count; i++) {
            if (chain->cuts[i].piece_count != chain->cuts[i].coordinate_count ||
                chain->cuts[i].part_max != NULL)
                return false;
        }
    }
    return true;
}

static int compare_shard_ranks(const void *a, const void *b)
{
    const reshard_shard *x = a, *y = b;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

/* All shards are the whole tensor. Keeps one for each rank, and returns their number. */
static int64_t drop_copies(reshard_shard *shards, int64_t count)
{
    int64_t kept = 0;
    rs_sort(shards, (size_t)count, sizeof *shards, compare_shard_ranks);
    for (int64_t i = 0; i < count; i++) {
        if (kept == 0 || shards[kept - 1].rank != shards[i].rank)
            shards[kept++] = shards[i];
    }
    return kept;
}

/* Some rank has several positions in the mesh. Computes the shards as if every position were a rank
 * of its own, then gives them their real ranks and makes a listed layout of them. */
static reshard_status init_repeated(reshard_layout *layout)
{
    reshard_mesh *line = NULL;
    const reshard_mesh *mesh = layout->mesh;
    reshard_shard *shards = NULL;
    int64_t count = 0;
    reshard_status status = reshard_mesh_create(layout->context, 1, NULL, mesh->sizes, NULL, &line);
    if (status != RESHARD_OK)
        return status;
    layout->mesh = line;
    status = count_ranks(layout);
    if (status == RESHARD_OK)
        status = rs_regular_shards(layout, &layout->arena, &shards, &count);
    layout->mesh = mesh;
    reshard_mesh_release(line);
    if (status != RESHARD_OK)
        return status;
    for (int64_t i = 0; i < count; i++)
        shards[i].rank = reshard_mesh_rank_at(mesh, shards[i].rank);
    bool whole = layout->axes[0].role != RS_AXIS_CUT;
    if (whole)
        count = drop_copies(shards, count);
    return rs_listed_init(layout, count, shards, whole || !cuts_share_nothing(layout));
}

static reshard_status init_cuts(reshard_layout *layout)
{
    reshard_status status = rs_regular_init(layout);
    if (status == RESHARD_OK && layout->mesh->repeated)
        return init_repeated(layout);
    if (status == RESHARD_OK)
        status = count_ranks(layout);
    if (status != RESHARD_OK || !rs_regular_is_tangled(layout))
        return status;
    if (layout->partial)
        return rs_fail(RESHARD_ERR_UNSUPPORTED,
                       "parts with |m that another axis cuts again cannot be partial as well");
    reshard_shard *shards = NULL;
    int64_t count = 0;
    status = rs_regular_shards(layout, &layout->arena, &shards, &count);
    return status == RESHARD_OK ? rs_listed_init(layout, count, shards, true) : status;
}

/* The spec with all dims counted from the front, so that S(1) and S(-1) of a matrix are the
 * same. */
static reshard_status normalize_dims(const reshard_layout *layout, reshard_spec **out_spec)
{
    reshard_spec *spec = layout->spec;
    reshard_cut cuts[RESHARD_AXES_MAX];
    bool changed = false;
    for (int32_t i = 0; i < spec->cut_count; i++) {
        reshard_placement *placement = &cuts[i].placement;
        cuts[i] = spec->cuts[i];
        if (placement->kind == RESHARD_SHARD && placement->dim != RESHARD_DIM_FLAT &&
            placement->dim < 0) {
            placement->dim += layout->ndim;
            changed = true;
        }
    }
    if (changed)
        return reshard_spec_create(layout->context, spec->mesh, spec->cut_count, cuts, out_spec);
    *out_spec = reshard_spec_retain(spec);
    return RESHARD_OK;
}

/* Adds the canonical text of the cuts to the digest. */
static reshard_status digest_cuts(const reshard_layout *layout, rs_digest *digest)
{
    reshard_spec *spec = NULL;
    size_t length = 0;
    char *text = NULL;
    reshard_status status = normalize_dims(layout, &spec);
    if (status == RESHARD_OK)
        status = reshard_spec_text(spec, NULL, 0, &length);
    if (status == RESHARD_OK) {
        text = rs_allocate(layout->context, length + 1);
        status = text != NULL ? RESHARD_OK : rs_allocation_status();
    }
    if (status == RESHARD_OK) {
        (void)reshard_spec_text(spec, text, length + 1, &length);
        rs_digest_bytes(digest, text, length);
        rs_release(layout->context, text);
    }
    reshard_spec_release(spec);
    return status;
}

static reshard_status digest_layout(reshard_layout *layout)
{
    reshard_status status = RESHARD_OK;
    rs_digest digest;
    rs_digest_init(&digest);
    rs_digest_u64(&digest, (uint64_t)layout->ndim);
    rs_digest_i64s(&digest, layout->shape, layout->ndim);
    rs_digest_u64(&digest, (uint64_t)layout->spec->kind);
    if (layout->spec->kind == RESHARD_SPEC_CUTS)
        status = digest_cuts(layout, &digest);
    for (int64_t i = 0; layout->spec->kind != RESHARD_SPEC_CUTS && i < layout->shard_count; i++) {
        const reshard_shard *shard = &layout->shards[i];
        rs_digest_u64(&digest, (uint64_t)shard->rank);
        rs_digest_u64(&digest, (uint64_t)shard->ndim);
        rs_digest_i64s(&digest, shard->shape, shard->ndim);
        rs_digest_u64(&digest, (uint64_t)shard->piece_count);
        for (int64_t p = 0; p < shard->piece_count; p++) {
            const reshard_piece *piece = &shard->pieces[p];
            rs_digest_i64s(&digest, piece->box.offset, layout->ndim);
            rs_digest_i64s(&digest, piece->box.size, layout->ndim);
            rs_digest_i64s(&digest, &piece->at, 1);
            rs_digest_i64s(&digest, piece->strides, layout->ndim);
        }
    }
    rs_digest_finish(&digest, layout->digest);
    return status;
}

static reshard_status init_by_kind(reshard_layout *layout)
{
    switch (layout->spec->kind) {
    case RESHARD_SPEC_CUTS:
        return init_cuts(layout);
    case RESHARD_SPEC_BOXES:
    case RESHARD_SPEC_COVER:
        return init_boxes(layout);
    case RESHARD_SPEC_CALLBACK:
        return init_callback(layout);
    }
    return rs_fail(RESHARD_ERR_INVALID, "spec kind %d is not known", (int)layout->spec->kind);
}

/* Puts the spec and the shape in front of the error text. */
static reshard_status fail_with_spec(reshard_status status, const reshard_spec *spec, int32_t ndim,
                                     const int64_t *shape)
{
    char name[96], size[160];
    size_t length = 0;
    rs_text text;
    if (spec->kind == RESHARD_SPEC_CALLBACK)
        (void)strcpy(name, "of a callback");
    else
        (void)reshard_spec_text(spec, name, sizeof name, &length);
    if (length >= sizeof name)
        (void)strcpy(name + sizeof name - 4, "...");
    rs_text_init(&text, size, sizeof size);
    rs_text_add_shape(&text, ndim, shape);
    return rs_fail_within(status, "spec \"%s\", shape %s", name, size);
}

reshard_status reshard_layout_create(reshard_context *context, reshard_spec *spec, int32_t ndim,
                                     const int64_t *shape, reshard_layout **out_layout)
{
    reshard_status status = rs_shape_check(ndim, shape);
    if (status != RESHARD_OK)
        return status;
    reshard_layout *layout = rs_allocate_zeroed(context, sizeof *layout);
    if (layout == NULL)
        return rs_allocation_status();
    layout->context = context;
    atomic_init(&layout->references, 1);
    rs_arena_init(&layout->arena, context);
    layout->spec = reshard_spec_retain(spec);
    layout->ndim = ndim;
    if (ndim != 0)
        memcpy(layout->shape, shape, (size_t)ndim * sizeof *shape);
    layout->volume = rs_volume(ndim, shape);
    status = init_by_kind(layout);
    if (status == RESHARD_OK)
        status = digest_layout(layout);
    else if (status != RESHARD_ERR_NO_MEMORY && status != RESHARD_ERR_MEMORY_LIMIT)
        status = fail_with_spec(status, spec, ndim, shape);
    if (status != RESHARD_OK) {
        reshard_layout_release(layout);
        return status;
    }
    *out_layout = layout;
    return RESHARD_OK;
}

reshard_status reshard_layout_parse(reshard_context *context, const char *spec_text, int32_t ndim,
                                    const int64_t *shape, reshard_layout **out_layout)
{
    reshard_spec *spec = NULL;
    reshard_status status = reshard_spec_parse(context, spec_text, &spec);
    if (status == RESHARD_OK)
        status = reshard_layout_create(context, spec, ndim, shape, out_layout);
    reshard_spec_release(spec);
    return status;
}

reshard_layout *reshard_layout_retain(reshard_layout *layout)
{
    if (layout != NULL)
        rs_reference_add(&layout->references);
    return layout;
}

void reshard_layout_release(reshard_layout *layout)
{
    if (layout == NULL || !rs_reference_drop(&layout->references))
        return;
    reshard_spec_release(layout->spec);
    rs_arena_release(&layout->arena);
    rs_release(layout->context, layout);
}

/* ---- queries --------------------------------------------------------------------------------- */

reshard_status reshard_layout_get_info(const reshard_layout *layout, reshard_layout_info *out_info)
{
    reshard_layout_info info = {.ndim = layout->ndim,
                                .shape = layout->shape,
                                .spec = layout->spec,
                                .rank_count = layout->rank_count};
    return rs_report_write("layout info", &info, sizeof info, out_info);
}

int32_t reshard_layout_rank_at(const reshard_layout *layout, int32_t index)
{
    if (index < 0 || index >= layout->rank_count)
        return -1;
    if (layout->ranks != NULL)
        return layout->ranks[index];
    return reshard_mesh_rank_at(layout->mesh, position_at(layout, index));
}

int32_t rs_layout_rank_max(const reshard_layout *layout)
{
    return reshard_layout_rank_at(layout, layout->rank_count - 1);
}

bool rs_layout_same(const reshard_layout *a, const reshard_layout *b)
{
    return a == b || (a->digest[0] == b->digest[0] && a->digest[1] == b->digest[1]);
}

int reshard_layout_equals(const reshard_layout *a, const reshard_layout *b)
{
    return rs_layout_same(a, b);
}

int64_t rs_layout_shard_volume_max(const reshard_layout *layout)
{
    int64_t largest = 0;
    for (int64_t i = 0; layout->listed && i < layout->shard_count; i++)
        largest = rs_max(largest, rs_volume(layout->shards[i].ndim, layout->shards[i].shape));
    if (layout->listed)
        return largest;
    int64_t volume = 1;
    for (int32_t d = 0; d < layout->ndim; d++)
        volume *= rs_chain_length_max(&layout->dims[d], layout->shape[d]);
    return rs_chain_length_max(&layout->flat, volume);
}

int64_t rs_layout_shard_count(const reshard_layout *layout, int32_t rank)
{
    int32_t coordinates[RESHARD_AXES_MAX];
    if (!layout->listed)
        return rs_layout_coordinates(layout, rank, coordinates);
    int64_t end = rank < INT32_MAX ? rs_listed_first_shard(layout, rank + 1) : layout->shard_count;
    return end - rs_listed_first_shard(layout, rank);
}

int64_t rs_layout_one_shard_volume(const reshard_layout *layout, int32_t rank, int32_t index)
{
    int32_t coordinates[RESHARD_AXES_MAX], by_level[RESHARD_AXES_MAX];
    if (layout->listed) {
        const reshard_shard *shard = &layout->shards[rs_listed_first_shard(layout, rank) + index];
        return rs_volume(shard->ndim, shard->shape);
    }
    if (!rs_layout_coordinates(layout, rank, coordinates))
        return 0;
    int64_t volume = 1;
    for (int32_t d = 0; d < layout->ndim; d++) {
        rs_chain_coordinates(&layout->dims[d], coordinates, by_level);
        volume *= rs_chain_length(&layout->dims[d], layout->shape[d], by_level);
    }
    rs_chain_coordinates(&layout->flat, coordinates, by_level);
    return rs_chain_length(&layout->flat, volume, by_level);
}

int64_t rs_layout_shard_volume(const reshard_layout *layout, int32_t rank)
{
    int64_t sum = 0;
    int64_t count = rs_layout_shard_count(layout, rank);
    for (int32_t i = 0; i < count; i++)
        sum = rs_add_up(sum, rs_layout_one_shard_volume(layout, rank, i));
    return sum;
}

int64_t rs_layout_shard_volume_sum(const reshard_layout *layout)
{
    int64_t sum = layout->volume;
    if (!layout->listed && cuts_share_nothing(layout)) {
        for (int32_t a = 0; a < layout->axis_count; a++) {
            const rs_axis *axis = &layout->axes[a];
            if (axis->role != RS_AXIS_CUT)
                sum = rs_multiply_up(sum, axis->role == RS_AXIS_AT ? axis->at_count : axis->size);
        }
        return sum;
    }
    sum = 0;
    for (int32_t i = 0; i < layout->rank_count; i++)
        sum = rs_add_up(sum, rs_layout_shard_volume(layout, reshard_layout_rank_at(layout, i)));
    return sum;
}

static int32_t map_rank(const rs_rank_map *map, int32_t rank)
{
    const int32_t *found =
        bsearch(&rank, map->from, (size_t)map->count, sizeof rank, rs_compare_i32);
    return found != NULL ? map->to[found - map->from] : rank;
}

static reshard_status map_boxes(const reshard_layout *layout, const rs_rank_map *map,
                                reshard_spec **out_spec)
{
    size_t bytes = (size_t)layout->shard_count * sizeof(reshard_shard);
    reshard_shard *shards = rs_allocate(layout->context, bytes);
    if (shards == NULL)
        return rs_allocation_status();
    for (int64_t i = 0; i < layout->shard_count; i++) {
        shards[i] = layout->shards[i];
        shards[i].rank = map_rank(map, shards[i].rank);
    }
    bool cover = layout->spec->kind == RESHARD_SPEC_COVER || layout->spec->cover;
    reshard_status status = reshard_spec_boxes(layout->context, cover, layout->ndim, layout->shape,
                                               layout->shard_count, shards, out_spec);
    rs_release(layout->context, shards);
    return status;
}

static reshard_status map_cuts(const reshard_layout *layout, const rs_rank_map *map,
                               reshard_spec **out_spec)
{
    const reshard_mesh *old = layout->spec->mesh;
    size_t bytes = (size_t)old->size * sizeof(int32_t);
    int32_t *ranks = rs_allocate(layout->context, bytes);
    if (ranks == NULL)
        return rs_allocation_status();
    for (int32_t p = 0; p < old->size; p++)
        ranks[p] = map_rank(map, reshard_mesh_rank_at(old, p));
    reshard_mesh *mesh = NULL;
    reshard_status status = rs_mesh_with_ranks(old, ranks, &mesh);
    if (status == RESHARD_OK)
        status = reshard_spec_create(layout->context, mesh, layout->spec->cut_count,
                                     layout->spec->cuts, out_spec);
    reshard_mesh_release(mesh);
    rs_release(layout->context, ranks);
    return status;
}

reshard_status rs_layout_map_ranks(const reshard_layout *layout, const rs_rank_map *map,
                                   reshard_layout **out_layout)
{
    reshard_spec *spec = NULL;
    reshard_status status = layout->spec->kind == RESHARD_SPEC_CUTS ? map_cuts(layout, map, &spec)
                                                                    : map_boxes(layout, map, &spec);
    if (status == RESHARD_OK)
        status =
            reshard_layout_create(layout->context, spec, layout->ndim, layout->shape, out_layout);
    reshard_spec_release(spec);
    return status;
}
