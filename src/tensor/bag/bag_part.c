/* SPDX-License-Identifier: Apache-2.0 */
/* bag_part.c - one rank's part of bags: where the rows are, and how long the bags are. */
#include "base/error.h"
#include "tensor/bag/bag.h"
#include "tensor/ops/cut_rows.h"
#include "tensor/ops/op.h"
#include "tensor/ops/spread_ops.h"

#include <reshard/group.h>

#include <string.h>

int64_t rs_bag_count(const reshard_tensor *indices, const reshard_tensor *sizes)
{
    return sizes != NULL ? sizes->shape[0] : indices->shape[0];
}

/* ---- parts ----------------------------------------------------------------------------------- */

reshard_status rs_bag_look(const rs_bag *bag, rs_bag_view *out_view)
{
    reshard_tensor *weight = bag->tensors[RS_BAG_WEIGHT];
    *out_view = (rs_bag_view){
        .rows = bag->rows, .padding = bag->padding, .mean = bag->reduction == RESHARD_AVG};
    if (weight->distribution == NULL)
        return RESHARD_OK;
    return reshard_layout_shards(weight->distribution->layout,
                                 reshard_group_rank(rs_distributed_group(weight)),
                                 &out_view->shards);
}

static reshard_status check_sizes(const reshard_tensor *sizes, int64_t entries)
{
    const int64_t *numbers = (const void *)sizes->data;
    int64_t sum = 0;
    for (int64_t i = 0; i < sizes->volume; i++)
        sum += numbers[i];
    return sum == entries ? RESHARD_OK
                          : rs_fail(RESHARD_ERR_INVALID,
                                    "bags of %lld entries together, for %lld indices: offsets must "
                                    "be cut where indices are",
                                    (long long)sum, (long long)entries);
}

static void find_places(const reshard_tensor *indices, const rs_bag_view *view, int64_t width,
                        int64_t *places)
{
    const int64_t *rows = (const void *)indices->data;
    for (int64_t i = 0; i < indices->volume; i++) {
        int64_t row = view->shards != NULL ? rs_find_row(view->shards, rows[i], width) : rows[i];
        places[i] = rows[i] == view->padding ? RS_PLACE_PADDING
                    : row < 0                ? RS_PLACE_ELSEWHERE
                                             : row;
    }
}

reshard_status rs_bag_open(reshard_tensor *const *tensors, const rs_bag_view *view,
                           rs_bag_part *out_part)
{
    reshard_context *context = rs_scope_context();
    reshard_tensor *indices = NULL;
    rs_bag_part part = {.weight = NULL};
    reshard_status status = rs_tensor_densify(context, tensors[RS_BAG_INDICES], &indices);
    if (status == RESHARD_OK)
        status = rs_check_index_range(indices, view->rows);
    if (status == RESHARD_OK && tensors[RS_BAG_SIZES] != NULL) {
        status = rs_tensor_densify(context, tensors[RS_BAG_SIZES], &part.sizes);
        if (status == RESHARD_OK)
            status = check_sizes(part.sizes, indices->volume);
    }
    if (status == RESHARD_OK)
        status = rs_real(tensors[RS_BAG_WEIGHT], &part.weight);
    if (status == RESHARD_OK)
        status = rs_result(RESHARD_I64, indices->ndim, indices->shape, &part.places);
    if (status == RESHARD_OK) {
        find_places(indices, view, part.weight->shape[1], (void *)part.places->data);
        /* Places stand for the indices where it matters whether ranks have the same ones. */
        part.places->sameness = tensors[RS_BAG_INDICES]->sameness;
        part.places->kin = tensors[RS_BAG_INDICES]->kin;
        part.bags = rs_bag_count(indices, part.sizes);
        *out_part = part;
    } else {
        rs_bag_close(&part);
    }
    reshard_tensor_release(indices);
    return status;
}

reshard_status rs_bag_open_part(const rs_bag *bag, const rs_bag_view *view, int64_t i,
                                rs_bag_part *out_part)
{
    reshard_tensor *parts[RS_BAG_TENSORS] = {NULL};
    for (int k = 0; k < RS_BAG_TENSORS; k++) {
        if (bag->tensors[k] != NULL)
            parts[k] = rs_part_of(bag->tensors[k], i);
    }
    return rs_bag_open(parts, view, out_part);
}

void rs_bag_close(rs_bag_part *part)
{
    reshard_tensor_release(part->weight);
    reshard_tensor_release(part->places);
    reshard_tensor_release(part->sizes);
    *part = (rs_bag_part){.weight = NULL};
}

/* ---- offsets --------------------------------------------------------------------------------- */

static reshard_status measure(const int64_t *offsets, int64_t bags, int64_t entries, bool last,
                              int64_t *sizes)
{
    if (bags > 0 && offsets[0] != 0)
        return rs_fail(RESHARD_ERR_INVALID, "the first offset is %lld, not 0",
                       (long long)offsets[0]);
    if (bags == 0 && entries > 0)
        return rs_fail(RESHARD_ERR_INVALID, "%lld indices and no bag", (long long)entries);
    if (last && offsets[bags] != entries)
        return rs_fail(RESHARD_ERR_INVALID, "the last offset is %lld, for %lld indices",
                       (long long)offsets[bags], (long long)entries);
    for (int64_t i = 0; i < bags; i++) {
        int64_t end = i + 1 < bags ? offsets[i + 1] : entries;
        if (end < offsets[i] || end > entries)
            return rs_fail(RESHARD_ERR_INVALID,
                           "offset %lld is %lld, behind which comes %lld; there are %lld indices",
                           (long long)i, (long long)offsets[i], (long long)end, (long long)entries);
        sizes[i] = end - offsets[i];
    }
    return RESHARD_OK;
}

/* Sizes from local offsets. */
static reshard_status measure_part(reshard_tensor *indices, reshard_tensor *offsets, bool last,
                                   reshard_tensor **out_sizes)
{
    reshard_tensor *dense = NULL, *sizes = NULL;
    reshard_status status = rs_tensor_densify(rs_scope_context(), offsets, &dense);
    int64_t bags = offsets->volume - last;
    if (status == RESHARD_OK && bags < 0)
        status = rs_fail(RESHARD_ERR_INVALID,
                         "offsets are empty, but the last one has to be the number of indices");
    if (status == RESHARD_OK)
        status = rs_result(RESHARD_I64, 1, &bags, &sizes);
    if (status == RESHARD_OK)
        status =
            measure((const void *)dense->data, bags, indices->volume, last, (void *)sizes->data);
    reshard_tensor_release(dense);
    if (status == RESHARD_OK) {
        reshard_tensor *const both[] = {indices, offsets};
        sizes->sameness = rs_sameness_of(2, both);
        sizes->kin = rs_kin_of(2, both);
        *out_sizes = sizes;
    } else {
        reshard_tensor_release(sizes);
    }
    return status;
}

static reshard_status measure_shards(reshard_tensor *indices, reshard_tensor *offsets,
                                     reshard_tensor **out_sizes)
{
    const rs_distribution *d = offsets->distribution;
    reshard_tensor *sizes = NULL;
    reshard_status status =
        rs_distributed_make(rs_scope_context(), d->cache, d->layout, RESHARD_I64, &sizes);
    for (int64_t i = 0; i < d->shard_count && status == RESHARD_OK; i++) {
        reshard_tensor *part = NULL;
        status = measure_part(rs_part_of(indices, i), d->shards[i], false, &part);
        if (status == RESHARD_OK)
            rs_tensor_copy(part, sizes->distribution->shards[i]);
        reshard_tensor_release(part);
    }
    return rs_tensor_hand_out(status, sizes, out_sizes);
}

reshard_tensor *rs_bag_sizes(reshard_tensor *indices, reshard_tensor *offsets, bool last)
{
    reshard_tensor *inputs[] = {indices, offsets}, *sizes = NULL;
    if (!rs_op_begin("embedding_bag", 2, inputs))
        return NULL;
    bool spread = rs_any_distributed(2, inputs);
    reshard_status status = spread ? rs_check_together(2, inputs) : RESHARD_OK;
    if (status == RESHARD_OK && spread)
        status = rs_axes_check_mesh(indices, offsets);
    if (status == RESHARD_OK && (offsets->ndim != 1 || offsets->dtype != RESHARD_I64))
        status = rs_fail(RESHARD_ERR_INVALID, "offsets are %s, not i64 of one dimension",
                         rs_tensor_describe(offsets).text);
    if (status == RESHARD_OK && indices->ndim != 1)
        status = rs_fail(RESHARD_ERR_INVALID, "offsets go with indices of one dimension, not %s",
                         rs_tensor_describe(indices).text);
    if (status == RESHARD_OK && spread && last)
        status = rs_fail(RESHARD_ERR_UNSUPPORTED, "a last offset in distributed offsets");
    if (status == RESHARD_OK)
        status = spread ? measure_shards(indices, offsets, &sizes)
                        : measure_part(indices, offsets, last, &sizes);
    return rs_scope_finish(rs_fail_within(status, "embedding_bag"), sizes);
}
