/* SPDX-License-Identifier: Apache-2.0 */
/*
 * follow.c - see follow.h. A tensor is always redistributed if rs_axes cannot describe its layout
 * (boxes, flat cuts, copies of pieces), or if it is over another mesh than the layer's leading
 * tensor.
 */
#include "nn/follow.h"

#include "base/error.h"
#include "layout/layout.h"
#include "spec/spec.h"
#include "tensor/bag/bag.h"
#include "tensor/core/scope.h"
#include "tensor/dist/lift.h"
#include "tensor/ops/spread_ops.h"

#include <reshard/distributed.h>

#include <assert.h>

enum { TENSORS = RS_BAG_TENSORS };

/* One layer's tensors, the layouts they have, and those they should have. */
typedef struct joint {
    const char *what; /* the operation, for errors */
    int32_t row_slot; /* as in rs_lift */
    int32_t count;
    reshard_tensor **tensors;
    bool told[TENSORS]; /* `now` is the layout, over the leading tensor's mesh */
    rs_axes now[TENSORS], wanted[TENSORS];
} joint;

/* The mesh of a tensor; NULL if it has none, or one that names a rank twice. */
static const reshard_mesh *mesh_of(const reshard_tensor *tensor)
{
    const reshard_mesh *mesh = tensor->distribution->layout->spec->mesh;
    return mesh != NULL && !mesh->repeated ? mesh : NULL;
}

static reshard_tensor *bring(reshard_tensor *tensor, const rs_axes *axes)
{
    reshard_layout *layout = NULL;
    reshard_status status = rs_axes_layout(axes, tensor->ndim, tensor->shape, &layout);
    if (status != RESHARD_OK)
        return rs_scope_fail(status);
    reshard_tensor *made = reshard_tensor_redistribute(tensor, layout->spec, NULL);
    reshard_layout_release(layout);
    return made;
}

/* Replicates a tensor over its mesh, or over its group if it has none. */
static reshard_tensor *replicate(reshard_tensor *tensor)
{
    reshard_layout *layout = NULL;
    reshard_status status =
        rs_layout_replicated(rs_scope_context(), tensor, tensor->ndim, tensor->shape, &layout);
    if (status != RESHARD_OK)
        return rs_scope_fail(status);
    reshard_tensor *made = reshard_tensor_redistribute(tensor, layout->spec, NULL);
    reshard_layout_release(layout);
    return made;
}

/* Lifts local tensors and reads the layouts, over the mesh of the leading tensor. */
static bool join(joint *j, int32_t leading)
{
    reshard_tensor **t = j->tensors;
    if (!rs_lift(j->what, j->row_slot, j->count, t))
        return false;
    if (t[leading] == NULL || t[leading]->distribution == NULL)
        return true;
    if (mesh_of(t[leading]) == NULL && (t[leading] = replicate(t[leading])) == NULL)
        return false;
    const reshard_mesh *mesh = mesh_of(t[leading]);
    for (int32_t i = 0; i < j->count; i++) {
        j->wanted[i] = (rs_axes){.mesh = mesh};
        if (t[i] == NULL)
            continue;
        j->told[i] =
            rs_axes_of(t[i], &j->now[i]) == RESHARD_OK && rs_mesh_same(mesh, mesh_of(t[i]));
        if (!j->told[i])
            j->now[i] = (rs_axes){.mesh = mesh};
    }
    return true;
}

/* Brings the tensors into the wanted layouts. */
static bool settle(joint *j)
{
    for (int32_t i = 0; i < j->count; i++) {
        reshard_tensor **t = &j->tensors[i];
        if (*t == NULL || (j->told[i] && rs_axes_equal(&j->now[i], &j->wanted[i])))
            continue;
        *t = bring(*t, &j->wanted[i]);
        if (*t == NULL)
            return false;
    }
    return true;
}

static bool is_cut(const rs_axes *axes, int32_t axis)
{
    return rs_axes_at(axes, axis).kind == RESHARD_SHARD;
}

/* Appends the cuts of `from` along `dim`, as cuts along `as`. Axes that `unless` cuts are left out;
 * it may be NULL. */
static void append_cuts(rs_axes *axes, const rs_axes *from, int32_t dim, int32_t as,
                        const rs_axes *unless)
{
    for (int32_t i = 0; i < from->count; i++) {
        reshard_cut cut = from->cuts[i];
        if (!rs_axes_is_cut(&cut.placement, dim) || (unless != NULL && is_cut(unless, cut.axis)))
            continue;
        cut.placement.dim = as;
        rs_axes_set(axes, cut.axis, cut.placement);
    }
}

/* ---- layers whose operation has a table of rules --------------------------------------------- */

/* Chooses a row of the table for each axis: by what the tensor `first` has, then `second`. */
static bool follow(joint *j, const rs_layout_rules *rules, int32_t first, int32_t second)
{
    if (!join(j, first))
        return false;
    if (j->tensors[first]->distribution == NULL)
        return true;
    rs_layout_rules_follow(rules, j->count, j->tensors, j->now, first, second, j->wanted);
    return settle(j);
}

/* If an axis cuts the weight, x and bias follow. Otherwise, if x is cut along its last dim, the
 * matching slices of the weight are used. */
bool rs_follow_linear(reshard_tensor **tensors)
{
    joint j = {.what = "linear", .row_slot = 0, .count = 3, .tensors = tensors};
    if (tensors[0]->ndim < 1 || tensors[1]->ndim != 2) /* the operation reports it */
        return rs_lift(j.what, j.row_slot, j.count, tensors);
    return follow(&j, &rs_linear_rules, 1, 0);
}

bool rs_follow_embedding(reshard_tensor **tensors)
{
    joint j = {.what = "embedding", .row_slot = -1, .count = 2, .tensors = tensors};
    return follow(&j, &rs_embedding_rules, 0, 1);
}

bool rs_follow_norm(reshard_tensor **tensors)
{
    joint j = {.what = "norm", .row_slot = 0, .count = 3, .tensors = tensors};
    return follow(&j, &rs_norm_rules, 0, -1);
}

bool rs_follow_activation(reshard_tensor **tensor)
{
    static const reshard_operation_rule rows[] = {{"S(*)", "S(*)", NULL}};
    static const rs_layout_rules rules = RS_LAYOUT_RULES(rows, NULL);
    joint j = {.what = "activation", .row_slot = -1, .count = 1, .tensors = tensor};
    if ((*tensor)->distribution == NULL || !(*tensor)->distribution->layout->partial)
        return true;
    return follow(&j, &rules, 0, -1);
}

/* Both get the layout of the first that is not partial. If both are partial, they get the cuts of
 * the first, and no partial axes. */
bool rs_follow_add(reshard_tensor **tensors)
{
    static const reshard_operation_rule rows[] = {{"S(*), S(*)", "S(*)", NULL}};
    static const rs_layout_rules rules = RS_LAYOUT_RULES(rows, NULL);
    joint j = {.what = "add", .row_slot = -1, .count = 2, .tensors = tensors};
    if (!rs_lift("add", -1, 2, tensors))
        return false;
    if (tensors[0]->distribution == NULL || rs_distributed_same(tensors[0], tensors[1]))
        return true;
    int32_t leading =
        tensors[0]->distribution->layout->partial && !tensors[1]->distribution->layout->partial;
    return follow(&j, &rules, leading, -1);
}

/* ---- bags ------------------------------------------------------------------------------------ */

/* Axes that cut between bags stay, unless they cut the weight too, or do not cut indices and sizes
 * alike. */
bool rs_follow_bag(reshard_tensor **tensors)
{
    joint j = {
        .what = "embedding_bag", .row_slot = -1, .count = RS_BAG_TENSORS, .tensors = tensors};
    if (!join(&j, RS_BAG_WEIGHT))
        return false;
    if (tensors[RS_BAG_WEIGHT]->distribution == NULL)
        return true;
    const rs_axes *weight = &j.now[RS_BAG_WEIGHT], *indices = &j.now[RS_BAG_INDICES];
    for (int32_t d = 0; d < tensors[RS_BAG_WEIGHT]->ndim; d++)
        append_cuts(&j.wanted[RS_BAG_WEIGHT], weight, d, d, NULL);
    append_cuts(&j.wanted[RS_BAG_INDICES], indices, 0, 0, weight);
    append_cuts(&j.wanted[RS_BAG_SIZES], &j.now[RS_BAG_SIZES], 0, 0, weight);
    for (int32_t axis = 0; tensors[RS_BAG_SIZES] != NULL && axis < weight->mesh->axis_count;
         axis++) {
        if (is_cut(&j.wanted[RS_BAG_INDICES], axis) == is_cut(&j.wanted[RS_BAG_SIZES], axis))
            continue;
        rs_axes_set(&j.wanted[RS_BAG_INDICES], axis,
                    (reshard_placement){.kind = RESHARD_REPLICATE});
        rs_axes_set(&j.wanted[RS_BAG_SIZES], axis, (reshard_placement){.kind = RESHARD_REPLICATE});
    }
    j.wanted[RS_BAG_SAMPLES] = j.wanted[RS_BAG_INDICES];
    return settle(&j);
}

/* ---- attention ------------------------------------------------------------------------------- */

/* Tells whether every shard has whole heads at all positions. Every rank looks at the shards of all
 * ranks, so all come to the same verdict. */
static reshard_status find_whole_heads(const reshard_tensor *q, int64_t head, bool *out_whole)
{
    reshard_shards *shards = NULL;
    bool whole = !q->distribution->layout->partial;
    reshard_status status =
        reshard_layout_shards(q->distribution->layout, RESHARD_ALL_RANKS, &shards);
    for (int64_t i = 0; status == RESHARD_OK && i < shards->count; i++) {
        for (int64_t k = 0; k < shards->items[i].piece_count && whole; k++) {
            const reshard_box *box = &shards->items[i].pieces[k].box;
            whole = box->size[1] == q->shape[1] && box->offset[2] % head == 0 &&
                    box->size[2] % head == 0;
        }
    }
    reshard_shards_destroy(shards);
    *out_whole = whole;
    return status;
}

bool rs_follow_attention(reshard_tensor **tensors, int64_t head)
{
    joint j = {.what = "attention", .row_slot = -1, .count = 3, .tensors = tensors};
    if (!join(&j, 0))
        return false;
    if (tensors[0]->distribution == NULL)
        return true;
    assert(tensors[0]->ndim == 3 && tensors[0]->shape[2] % head == 0);
    bool whole = false;
    for (int32_t i = 0; i < 3 && !whole; i++) {
        reshard_status status = j.told[i] ? find_whole_heads(tensors[i], head, &whole) : RESHARD_OK;
        if (status != RESHARD_OK)
            return rs_scope_fail(rs_fail_within(status, "attention")) != NULL;
        for (int32_t k = 0; k < 3 && whole; k++)
            j.wanted[k] = j.now[i];
    }
    for (int32_t k = 0; k < 3 && !whole; k++) /* at least keep cuts between sequences */
        append_cuts(&j.wanted[k], &j.now[0], 0, 0, NULL);
    return settle(&j);
}
