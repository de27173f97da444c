/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recover.c - finds the full shape of a tensor from its local shapes.
 *
 * However a dimension is cut, its full length is the sum of the lengths of its distinct pieces
 * along the axes that cut it. This guess is then checked: the layout of the shape found must give
 * every rank the shape that its file has. A cut of the row-major order (flat) says nothing about
 * lengths, so there the files must give the full shape, which is checked in the same way.
 */
#include "base/checked.h"
#include "base/error.h"
#include "checkpoint/rules/find.h"
#include "spec/spec.h"
#include "text/text.h"

#include <reshard/layout.h>

#include <inttypes.h>
#include <string.h>

/* ---- the sum --------------------------------------------------------------------------------- */

static bool cuts_dim(const reshard_cut *cut, int32_t dim, int32_t ndim)
{
    const reshard_placement *placement = &cut->placement;
    return placement->kind == RESHARD_SHARD &&
           (placement->dim < 0 ? placement->dim + ndim : placement->dim) == dim;
}

/* Coordinates at which the tensor must exist: 0, or the first one that A lists. */
static void set_home(const rs_rule_finding *found, int32_t coordinates[RESHARD_AXES_MAX])
{
    memset(coordinates, 0, RESHARD_AXES_MAX * sizeof *coordinates);
    for (int32_t i = 0; i < found->cut_count; i++) {
        if (found->cuts[i].placement.kind == RESHARD_AT)
            coordinates[found->cuts[i].axis] = (int32_t)found->cuts[i].placement.values[0];
    }
}

static int32_t find_position(const reshard_mesh *mesh, const int32_t coordinates[RESHARD_AXES_MAX])
{
    int32_t position = 0;
    for (int32_t i = 0; i < mesh->axis_count; i++)
        position = position * mesh->sizes[i] + coordinates[i];
    return position;
}

/* Steps to the next coordinates along the axes that cut the dimension, skipping copies. Returns
 * false after the last. */
static bool step(const rs_rule_finding *found, int32_t dim, int32_t coordinates[RESHARD_AXES_MAX])
{
    for (int32_t i = found->cut_count; i-- > 0;) {
        const reshard_cut *cut = &found->cuts[i];
        int64_t size = found->mesh->sizes[cut->axis];
        int64_t pieces = cut->placement.max > 0 ? rs_min(cut->placement.max, size) : size;
        if (!cuts_dim(cut, dim, found->ndim))
            continue;
        /* Coordinate c holds piece floor(c * pieces / size). */
        int64_t piece = rs_multiply_divide(coordinates[cut->axis], pieces, size) + 1;
        if (piece < pieces) {
            coordinates[cut->axis] = (int32_t)rs_divide_up(piece * size, pieces);
            return true;
        }
        coordinates[cut->axis] = 0;
    }
    return false;
}

static reshard_status read_local(const rs_local_shapes *locals, int32_t position,
                                 int64_t shape[RESHARD_NDIM_MAX])
{
    if (locals->find(locals->user, position, shape))
        return RESHARD_OK;
    return rs_fail(RESHARD_ERR_INVALID, "the rank at position %" PRId32 " does not have it",
                   position);
}

/* A packed dimension is as long as its parts together. The first cut of the dimension sees all of
 * it. */
static bool find_packed(const rs_rule_finding *found, int32_t dim, int64_t *out_length)
{
    for (int32_t i = 0; i < found->cut_count; i++) {
        const reshard_placement *placement = &found->cuts[i].placement;
        if (!cuts_dim(&found->cuts[i], dim, found->ndim))
            continue;
        *out_length = 0;
        for (int32_t k = 0; placement->rule == RESHARD_PACKED && k < placement->count; k++) {
            if (!rs_add(*out_length, placement->values[k], out_length))
                return false;
        }
        return placement->rule == RESHARD_PACKED;
    }
    return false;
}

static reshard_status sum_dim(const rs_rule_finding *found, const rs_local_shapes *locals,
                              int32_t dim, int64_t *out_length)
{
    int32_t coordinates[RESHARD_AXES_MAX];
    int64_t local[RESHARD_NDIM_MAX] = {0}, length = 0;
    if (find_packed(found, dim, out_length))
        return RESHARD_OK;
    set_home(found, coordinates);
    do {
        reshard_status status = read_local(locals, find_position(found->mesh, coordinates), local);
        if (status != RESHARD_OK)
            return status;
        if (local[dim] < 0 || !rs_add(length, local[dim], &length))
            return rs_fail(RESHARD_ERR_RANGE, "dimension %" PRId32 " is beyond 2^63-1", dim);
    } while (step(found, dim, coordinates));
    *out_length = length;
    return RESHARD_OK;
}

/* ---- the proof ------------------------------------------------------------------------------- */

static reshard_status fail_local(int32_t position, int32_t ndim, const int64_t *has,
                                 const reshard_shard *wanted)
{
    char found_text[128], wanted_text[128] = "nothing";
    rs_text text;
    rs_text_init(&text, found_text, sizeof found_text);
    rs_text_add_shape(&text, ndim, has);
    if (wanted != NULL) {
        rs_text_init(&text, wanted_text, sizeof wanted_text);
        rs_text_add_shape(&text, wanted->ndim, wanted->shape);
    }
    return rs_fail(RESHARD_ERR_INVALID,
                   "the rank at position %" PRId32 " has %s, where the rules give it %s", position,
                   found_text, wanted_text);
}

static reshard_status check_rank(const reshard_mesh *mesh, const rs_local_shapes *locals,
                                 const rs_rule_result *result, int32_t position)
{
    reshard_shards *shards = NULL;
    int64_t local[RESHARD_NDIM_MAX] = {0};
    int32_t like = position;
    if (result->zeros)
        (void)rs_spec_zeros_at(result->spec, position, &like);
    reshard_status status =
        reshard_layout_shards(result->layout, reshard_mesh_rank_at(mesh, like), &shards);
    if (status != RESHARD_OK)
        return status;
    const reshard_shard *shard = shards->count != 0 ? &shards->items[0] : NULL;
    bool present = locals->find(locals->user, position, local);
    bool wanted = shard != NULL && shard->piece_count != 0;
    size_t bytes = (size_t)locals->ndim * sizeof *local;
    if (!present && wanted)
        status = read_local(locals, position, local);
    /* An empty shard may be stored or left out. */
    else if (present && (shard == NULL || shard->ndim != locals->ndim ||
                         memcmp(shard->shape, local, bytes) != 0))
        status = fail_local(position, locals->ndim, local, shard);
    reshard_shards_destroy(shards);
    return status;
}

reshard_status rs_rules_check_locals(const reshard_mesh *mesh, const rs_local_shapes *locals,
                                     const rs_rule_result *result)
{
    reshard_status status = RESHARD_OK;
    for (int32_t i = 0; status == RESHARD_OK && i < mesh->size; i++)
        status = check_rank(mesh, locals, result, i);
    return status;
}

/* ---- all ------------------------------------------------------------------------------------- */

/* The lengths of flat shards do not determine the full shape. */
static reshard_status check_not_flat(const rs_rule_finding *found)
{
    for (int32_t i = 0; i < found->cut_count; i++) {
        if (found->cuts[i].placement.kind == RESHARD_SHARD &&
            found->cuts[i].placement.dim == RESHARD_DIM_FLAT)
            return rs_fail(RESHARD_ERR_UNSUPPORTED,
                           RS_RULE_PLACE ": S(flat) does not leave the shape to be found, and the "
                                         "files do not tell it",
                           RS_RULE_PLACE_OF(found->origins[i]));
    }
    return RESHARD_OK;
}

/* Sums up the local lengths, and removes the padding. */
static reshard_status sum_locals(const rs_rule_finding *found, const rs_local_shapes *locals,
                                 int64_t *shape, int64_t *padded, bool *out_unknown)
{
    for (int32_t d = 0; d < found->ndim; d++) {
        reshard_status status = sum_dim(found, locals, d, &padded[d]);
        if (status != RESHARD_OK)
            return status;
    }
    memcpy(shape, padded, (size_t)found->ndim * sizeof *shape);
    return rs_rule_unpad_shape(found, found->ndim, shape, out_unknown);
}

static reshard_status recover_by_rule(rs_rule_finding *found, const rs_local_shapes *locals,
                                      rs_rule_result *out_result)
{
    int64_t padded[RESHARD_NDIM_MAX] = {0}, shape[RESHARD_NDIM_MAX] = {0};
    bool unknown = false;
    reshard_status status = check_not_flat(found);
    if (status == RESHARD_OK)
        status = sum_locals(found, locals, shape, padded, &unknown);
    if (status == RESHARD_OK)
        status = rs_rule_finish(found, found->ndim, shape, padded, out_result);
    if (status == RESHARD_OK) {
        out_result->padding_unknown = unknown;
        status = rs_rules_check_locals(found->mesh, locals, out_result);
        if (status != RESHARD_OK)
            rs_rule_result_release(out_result);
    }
    return status;
}

/* Checks that the full shape leads back to the rule by which it was found. */
static reshard_status confirm(const rs_rule_finding *found, const rs_rule_result *result)
{
    rs_rule_finding again = {.rules = found->rules,
                             .mesh = found->mesh,
                             .keys = found->keys,
                             .name = found->name,
                             .name_bytes = found->name_bytes,
                             .ndim = found->ndim,
                             .shape = result->shape};
    reshard_status status = found->rule->has_shape ? rs_rule_match(&again) : RESHARD_OK;
    if (status == RESHARD_OK && found->rule->has_shape && again.rule != found->rule)
        status = rs_fail(RESHARD_ERR_INVALID, RS_RULE_PLACE " would be the rule of what it gives",
                         RS_RULE_PLACE_OF(again.rule));
    return status;
}

/* Rules with a shape are tried one after the other: each one recovers a different full shape, which
 * must be the one that the rule asks for. */
static reshard_status recover(rs_rule_finding *found, const rs_local_shapes *locals,
                              rs_rule_result *out_result)
{
    for (;;) {
        rs_rule_result result = {.drop = false};
        reshard_status status = rs_rule_find(found);
        if (status != RESHARD_OK)
            return status;
        if (found->is_drop) {
            *out_result = rs_rule_result_drop(found);
            return RESHARD_OK;
        }
        status = recover_by_rule(found, locals, &result);
        if (status == RESHARD_OK) {
            status = confirm(found, &result);
            if (status == RESHARD_OK) {
                *out_result = result;
                return RESHARD_OK;
            }
            rs_rule_result_release(&result);
        }
        if (!found->rule->has_shape || status != RESHARD_ERR_INVALID)
            return status;
        rs_rule_finding_release(found);
        found->misfit = found->misfit != NULL ? found->misfit : found->rule;
        found->first = found->rule - found->rules->rules + 1;
        found->pad_count = 0;
    }
}

reshard_status rs_rules_recover(const rs_rules *rules, reshard_mesh *mesh,
                                const rs_rules_keys *keys, const char *name, size_t name_bytes,
                                const rs_local_shapes *locals, rs_rule_result *out_result)
{
    int32_t ndim = locals->ndim;
    rs_rule_finding found = {.rules = rules,
                             .mesh = mesh,
                             .keys = keys,
                             .name = name,
                             .name_bytes = name_bytes,
                             .ndim = ndim};
    reshard_status status;
    if (ndim < 0 || ndim > RESHARD_NDIM_MAX)
        status = rs_fail(RESHARD_ERR_UNSUPPORTED, "%" PRId32 " dimensions; at most %d are allowed",
                         ndim, RESHARD_NDIM_MAX);
    else
        status = recover(&found, locals, out_result);
    rs_rule_finding_release(&found);
    return status == RESHARD_OK ? RESHARD_OK
                                : rs_rule_fail_for_tensor(status, name, name_bytes, ndim, NULL);
}
