/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cut_loss.c - cross-entropy with options, of local logits and of those whose classes or rows are
 * cut over ranks (cut_rows.h). The backward step exchanges nothing, as maximum and sum of each row
 * are kept.
 */
#ifndef REAL
#include "base/error.h"
#include "layout/layout.h"
#include "spec/spec.h"
#include "tensor/core/move.h"
#include "tensor/ops/cut_rows.h"
#include "tensor/ops/op.h"

#include <reshard/group.h>

#include <inttypes.h>
#include <math.h>

/* Places of labels that are not columns of this rank. */
enum { ELSEWHERE = -1, IGNORED = -2 };

#define RS_REAL_FILE "tensor/ops/cut_loss.c"
#include "tensor/core/real.h"

/* The column of this part that is column `label` of the whole rows. */
static int64_t place_label(const rs_columns *c, int32_t last, int64_t label)
{
    int64_t width = c->global->volume;
    if (c->shards == NULL)
        return label;
    for (int64_t i = 0; width > 0 && i < c->shards->items[0].piece_count; i++) {
        const reshard_piece *piece = &c->shards->items[0].pieces[i];
        int64_t inside = label - piece->box.offset[last];
        if (inside >= 0 && inside < piece->box.size[last])
            return piece->at % width + inside * piece->strides[last];
    }
    return ELSEWHERE;
}

typedef struct loss_facts {
    reshard_cross_entropy_options options;
    double count; /* of rows on all ranks that are not ignored */
} loss_facts;

/* Finds the columns of this rank's labels. */
static reshard_status place_labels(reshard_tensor *logits, reshard_tensor *labels,
                                   const reshard_cross_entropy_options *options,
                                   const rs_columns *c, reshard_tensor **out_places)
{
    reshard_tensor *dense = NULL, *places = NULL;
    if (rs_part_count(labels) == 0)
        return rs_result(RESHARD_I64, 1, &(int64_t){0}, out_places);
    reshard_status status = rs_tensor_densify(rs_scope_context(), rs_part_of(labels, 0), &dense);
    if (status == RESHARD_OK)
        status = rs_result(RESHARD_I64, 1, &dense->volume, &places);
    for (int64_t i = 0; status == RESHARD_OK && i < dense->volume; i++) {
        int64_t label = ((const int64_t *)(const void *)dense->data)[i],
                *place = (void *)places->data;
        if (options->ignores && label == options->ignore_index)
            place[i] = IGNORED;
        else if (label < 0 || label >= c->limit)
            status = rs_fail(RESHARD_ERR_RANGE,
                             "index %" PRId64 " is %" PRId64 "; it may be 0..%" PRId64, i, label,
                             c->limit - 1);
        else
            place[i] = place_label(c, logits->ndim - 1, label);
    }
    reshard_tensor_release(dense);
    return rs_tensor_hand_out(status, places, out_places);
}

/* The layout of one number to which ranks contribute that cut rows of logits. */
static reshard_status total_layout(const reshard_tensor *logits, reshard_layout **out_layout)
{
    rs_axes axes, total;
    reshard_status status =
        rs_rows_axes(logits, (reshard_placement){.kind = RESHARD_REPLICATE}, &axes);
    if (status != RESHARD_OK)
        return status;
    total = axes;
    for (int32_t i = 0; i < axes.count; i++)
        rs_axes_set(&total, axes.cuts[i].axis, rs_placement_partial());
    return rs_axes_layout(&total, 0, NULL, out_layout);
}

/* Collective, if rows may be ignored. Counts the rows of all ranks that are not. */
static reshard_status count_rows(reshard_tensor *logits, const reshard_tensor *labels,
                                 const reshard_tensor *places, bool ignores, double *out_count)
{
    double here = 0;
    reshard_layout *layout = NULL;
    reshard_tensor *number = NULL;
    const int64_t *place = (const void *)places->data;
    for (int64_t i = 0; i < places->volume; i++)
        here += place[i] != IGNORED;
    *out_count = here;
    if (logits->distribution == NULL)
        return RESHARD_OK;
    if (!ignores) {
        *out_count = (double)labels->volume;
        return RESHARD_OK;
    }
    reshard_status status = total_layout(logits, &layout);
    if (status == RESHARD_OK)
        status = rs_distributed_make(rs_scope_context(), logits->distribution->cache, layout,
                                     RESHARD_F64, &number);
    if (status == RESHARD_OK && rs_part_count(number) > 0)
        *(double *)(void *)rs_part_of(number, 0)->data = here;
    if (status == RESHARD_OK)
        status = reshard_tensor_value(number, out_count);
    reshard_layout_release(layout);
    reshard_tensor_release(number);
    return status;
}

/* Writes this rank's part of the loss. */
static reshard_status make_loss(reshard_tensor *logits, const reshard_tensor *places,
                                reshard_tensor *sums, double count, reshard_tensor **out_loss)
{
    reshard_layout *layout = NULL;
    reshard_tensor *loss = NULL;
    double total = 0;
    reshard_status status = RESHARD_OK;
    if (logits->distribution == NULL) {
        status = rs_result(logits->dtype, 0, NULL, &loss);
    } else {
        status = total_layout(logits, &layout);
        if (status == RESHARD_OK)
            status = rs_distributed_make(rs_scope_context(), logits->distribution->cache, layout,
                                         logits->dtype, &loss);
        reshard_layout_release(layout);
    }
    if (status != RESHARD_OK)
        return status;
    for (int64_t i = 0; i < places->volume; i++) {
        const double *row = (const double *)(const void *)rs_part_of(sums, 0)->data + 2 * i;
        if (((const int64_t *)(const void *)places->data)[i] != IGNORED)
            total += log(row[0]) - row[1];
    }
    if (rs_part_count(loss) > 0)
        status = reshard_tensor_fill(rs_part_of(loss, 0), total / count);
    return rs_tensor_hand_out(status, loss, out_loss);
}

/* The gradient of the part: softmax, less 1 at the label, times the gradient of the loss. */
static reshard_status make_gradient(reshard_tensor *logits, const rs_columns *c,
                                    const reshard_tensor *places, reshard_tensor *maxima,
                                    reshard_tensor *sums, double factor, reshard_tensor **out_part)
{
    reshard_tensor *dense = NULL, *made = NULL;
    reshard_tensor *x = rs_part_of(logits, 0);
    reshard_status status = rs_real(x, &dense);
    if (status == RESHARD_OK)
        status = rs_result(dense->dtype, x->ndim, x->shape, &made);
    if (status == RESHARD_OK) {
        rs_part_rows part = rs_columns_part(dense, c);
        RS_CALL(dense->dtype, loss_part_back, &part, dense->data,
                (const void *)rs_part_of(maxima, 0)->data, (const void *)rs_part_of(sums, 0)->data,
                (const void *)places->data, factor, made->data);
        status = rs_unreal(made, x->dtype, out_part);
    }
    reshard_tensor_release(dense);
    return status;
}

static reshard_status find_factor(reshard_tensor *gradient, double count, double *out_factor)
{
    reshard_tensor *whole = NULL;
    reshard_layout *layout = NULL;
    reshard_status status = RESHARD_OK;
    if (gradient->distribution == NULL) {
        status = rs_tensor_item(gradient, out_factor);
    } else {
        rs_axes none = {.mesh = gradient->distribution->layout->spec->mesh};
        status = rs_axes_layout(&none, 0, NULL, &layout);
        if (status == RESHARD_OK)
            status = rs_redistribute(rs_scope_context(), gradient, layout, gradient->dtype, &whole);
        if (status == RESHARD_OK && rs_part_count(whole) > 0)
            status = rs_tensor_item(rs_part_of(whole, 0), out_factor);
        reshard_tensor_release(whole);
        reshard_layout_release(layout);
    }
    *out_factor /= count;
    return status;
}

static void backward_loss(rs_node *node, reshard_tensor *const *gradients,
                          reshard_tensor **out_gradients)
{
    const loss_facts *facts = rs_node_facts(node);
    reshard_tensor *logits = rs_node_saved(node, 0), *labels = rs_node_saved(node, 1);
    reshard_tensor *maxima = rs_node_saved(node, 2), *sums = rs_node_saved(node, 3);
    reshard_tensor *places = NULL, *part = NULL, *output = NULL;
    rs_columns c = {0};
    double factor = 0;
    if (logits == NULL || labels == NULL || maxima == NULL || sums == NULL)
        return;
    reshard_status status = find_factor(gradients[0], facts->count, &factor);
    if (status == RESHARD_OK)
        status = rs_columns_find(logits, facts->options.classes, &c);
    if (status == RESHARD_OK)
        status = place_labels(logits, labels, &facts->options, &c, &places);
    if (status == RESHARD_OK && rs_part_count(logits) > 0)
        status = make_gradient(logits, &c, places, maxima, sums, factor, &part);
    if (status == RESHARD_OK && logits->distribution != NULL) {
        status = rs_distributed_wrap(rs_scope_context(), logits->distribution->cache,
                                     logits->distribution->layout, logits->dtype, &part, &output);
        reshard_tensor_release(part);
    } else {
        output = part;
    }
    reshard_tensor_release(places);
    rs_columns_forget(&c);
    out_gradients[0] = rs_scope_finish(status, output);
}

/* Checks that labels are cut as the rows of logits are. */
static reshard_status check_layouts(reshard_tensor *const *inputs)
{
    rs_axes rows, labels;
    if (inputs[0]->distribution == NULL && inputs[1]->distribution == NULL)
        return RESHARD_OK;
    reshard_status status = rs_check_together(2, inputs);
    if (status == RESHARD_OK)
        status = rs_axes_check_mesh(inputs[0], inputs[1]);
    if (status == RESHARD_OK)
        status = rs_rows_axes(inputs[0], (reshard_placement){.kind = RESHARD_REPLICATE}, &rows);
    if (status == RESHARD_OK)
        status = rs_axes_of(inputs[1], &labels);
    if (status == RESHARD_OK && !rs_axes_equal(&labels, &rows))
        status = rs_fail(RESHARD_ERR_INVALID, "logits with \"%s\" and labels with \"%s\"",
                         rs_tensor_describe_layout(inputs[0]).text,
                         rs_tensor_describe_layout(inputs[1]).text);
    return status;
}

/* Collective, if logits are distributed. Finds this rank's rs_columns and the places of its labels.
 * A label that is out of range on one rank fails on all. */
static reshard_status prepare(reshard_tensor *const *inputs,
                              const reshard_cross_entropy_options *options, rs_columns *out_columns,
                              reshard_tensor **out_places)
{
    reshard_status status = rs_check_floats(1, inputs);
    if (status == RESHARD_OK)
        status = check_layouts(inputs);
    if (status != RESHARD_OK)
        return status; /* on all ranks alike */
    status = rs_columns_find(inputs[0], options->classes, out_columns);
    if (status == RESHARD_OK)
        status = place_labels(inputs[0], inputs[1], options, out_columns, out_places);
    if (inputs[0]->distribution == NULL)
        return status;
    return rs_agree(rs_distributed_group(inputs[0]), status, "cross_entropy");
}

reshard_tensor *rs_cut_cross_entropy(reshard_tensor *logits, reshard_tensor *labels,
                                     const reshard_cross_entropy_options *options, int64_t count)
{
    reshard_tensor *inputs[] = {logits, labels}, *places = NULL, *output = NULL;
    reshard_tensor *saved[] = {logits, labels, NULL, NULL};
    rs_columns c = {0};
    loss_facts facts = {.options = *options, .count = (double)count};
    if (options->classes == 0)
        facts.options.classes = logits->shape[logits->ndim - 1];
    reshard_status status = prepare(inputs, &facts.options, &c, &places);
    if (status == RESHARD_OK && count == 0)
        status = count_rows(logits, labels, places, options->ignores != 0, &facts.count);
    if (status == RESHARD_OK)
        status = rs_rows_maxima(logits, &c, &saved[2]);
    if (status == RESHARD_OK)
        status = rs_rows_sums(logits, &c, saved[2], places, &saved[3]);
    if (status == RESHARD_OK)
        status = make_loss(logits, places, saved[3], facts.count, &output);
    rs_columns_forget(&c);
    reshard_tensor_release(places);
    rs_recipe recipe = {.name = "cross_entropy",
                        .backward = backward_loss,
                        .input_count = 2,
                        .inputs = inputs,
                        .saved_count = 4,
                        .saved = saved,
                        .facts = &facts,
                        .facts_bytes = sizeof facts,
                        .group =
                            logits->distribution != NULL ? rs_distributed_group(logits) : NULL};
    reshard_tensor *loss = rs_op_end(&recipe, status, output);
    reshard_tensor_release(saved[2]);
    reshard_tensor_release(saved[3]);
    return loss;
}

#else

static void OF(loss_part_back)(const rs_part_rows *part, const void *x, const double *maxima,
                               const double *sums, const int64_t *places, double factor, void *out)
{
    for (int64_t r = 0; r < part->rows; r++) {
        const REAL *row = (const REAL *)x + r * part->width;
        REAL *to = (REAL *)out + r * part->width;
        for (int64_t i = 0; i < part->width; i++) {
            bool counts = places[r] != IGNORED && part->global[i] < part->limit;
            double p = counts ? exp((double)row[i] - maxima[r]) / sums[2 * r] : 0;
            to[i] = counts ? (REAL)((p - (places[r] == i)) * factor) : 0;
        }
    }
}

#endif
