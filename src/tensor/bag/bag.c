/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bag.c - embedding_bag: the calls, and what local bags compute. For a maximum, the rows that win
 * are found first (bag_max.c); what is recorded only picks them, so its gradient goes where
 * PyTorch's does, to the first of equals in the order of the bag.
 */
#ifndef REAL
#include "tensor/bag/bag.h"

#include "base/error.h"
#include "base/options.h"
#include "tensor/dist/spread.h"
#include "tensor/ops/op.h"

#include <string.h>

/* What kernels see of the bags. */
typedef struct bags {
    int64_t count, width;
    const int64_t *sizes; /* NULL: all have `size` */
    int64_t size;
    const int64_t *places;
    bool mean;
} bags;

static int64_t size_of(const bags *b, int64_t bag)
{
    return b->sizes != NULL ? b->sizes[bag] : b->size;
}

/* How many entries of a bag count. */
static int64_t count_in(const int64_t *places, int64_t size)
{
    int64_t count = 0;
    for (int64_t i = 0; i < size; i++)
        count += places[i] != RS_PLACE_PADDING;
    return count;
}

#define RS_REAL_FILE "tensor/bag/bag.c"
#include "tensor/core/real.h"

/* ---- sums and means -------------------------------------------------------------------------- */

typedef struct sum_facts {
    int64_t rows, width, bags;
    bool mean;
} sum_facts;

static bags describe(const sum_facts *f, const reshard_tensor *places, const reshard_tensor *sizes)
{
    return (bags){.count = f->bags,
                  .width = f->width,
                  .sizes = sizes != NULL ? (const void *)sizes->data : NULL,
                  .size = places->ndim == 2 ? places->shape[1] : 0,
                  .places = (const void *)places->data,
                  .mean = f->mean};
}

enum { SAVED_PLACES, SAVED_SIZES, SAVED_SAMPLES, SAVED_WEIGHT, SAVED_COUNT };

static void backward_sum(rs_node *node, reshard_tensor *const *gradients,
                         reshard_tensor **out_gradients)
{
    const sum_facts *facts = rs_node_facts(node);
    const reshard_scope *scope = rs_thread_state_get()->scope;
    reshard_tensor *saved[SAVED_COUNT], *dense[SAVED_COUNT] = {NULL}, *made[2] = {NULL};
    reshard_tensor *gradient = NULL;
    for (int i = 0; i < SAVED_COUNT; i++)
        saved[i] = rs_node_saved(node, i);
    reshard_status status = scope->status != RESHARD_OK ? rs_scope_failed() : RESHARD_OK;
    for (int i = 0; i < SAVED_COUNT && status == RESHARD_OK; i++) {
        if (saved[i] != NULL)
            status = rs_tensor_densify(rs_scope_context(), saved[i], &dense[i]);
    }
    if (status == RESHARD_OK)
        status = rs_real(gradients[0], &gradient);
    if (status == RESHARD_OK && rs_node_wants(node, 0)) {
        int64_t shape[] = {facts->rows, facts->width};
        status = rs_result_zeros(gradient->dtype, 2, shape, &made[0]);
    }
    if (status == RESHARD_OK && dense[SAVED_WEIGHT] != NULL)
        status = rs_result(gradient->dtype, dense[SAVED_PLACES]->ndim, dense[SAVED_PLACES]->shape,
                           &made[1]);
    if (status == RESHARD_OK) {
        bags b = describe(facts, dense[SAVED_PLACES], dense[SAVED_SIZES]);
        const void *samples = dense[SAVED_SAMPLES] != NULL ? dense[SAVED_SAMPLES]->data : NULL;
        if (made[0] != NULL)
            RS_CALL(gradient->dtype, sum_back, &b, samples, gradient->data, made[0]->data);
        if (made[1] != NULL)
            RS_CALL(gradient->dtype, samples_back, &b, dense[SAVED_WEIGHT]->data, gradient->data,
                    made[1]->data);
    }
    for (int i = 0; i < SAVED_COUNT; i++)
        reshard_tensor_release(dense[i]);
    reshard_tensor_release(gradient);
    for (int i = 0; i < 2; i++)
        out_gradients[i] = made[i] != NULL || i == 0 ? rs_scope_finish(status, made[i]) : NULL;
}

/* Whether the gradient of sample weights will be wanted, which needs the weight. */
static bool wants_samples(reshard_tensor *samples)
{
    return samples != NULL && rs_op_records(1, &samples);
}

reshard_tensor *rs_bag_sum_at(reshard_tensor *weight, reshard_tensor *places, reshard_tensor *sizes,
                              reshard_tensor *samples, bool mean)
{
    if (rs_dtype_is_half(weight->dtype)) {
        reshard_tensor *y =
            rs_bag_sum_at(reshard_tensor_cast(weight, RESHARD_F32), places, sizes,
                          samples != NULL ? reshard_tensor_cast(samples, RESHARD_F32) : NULL, mean);
        return reshard_tensor_cast(y, weight->dtype);
    }
    reshard_tensor *inputs[] = {weight, samples}, *dense[2] = {NULL}, *output = NULL;
    if (!rs_op_begin("embedding_bag", 1, inputs))
        return NULL;
    sum_facts facts = {weight->shape[0], weight->shape[1], rs_bag_count(places, sizes), mean};
    int64_t shape[] = {facts.bags, facts.width};
    reshard_status status = rs_check_floats(1, inputs);
    for (int i = 0; i < 2 && status == RESHARD_OK; i++) {
        if (inputs[i] != NULL)
            status = rs_real(inputs[i], &dense[i]);
    }
    if (status == RESHARD_OK)
        status = rs_result_zeros(weight->dtype, 2, shape, &output);
    if (status == RESHARD_OK) {
        bags b = describe(&facts, places, sizes);
        RS_CALL(weight->dtype, sum_bags, &b, samples != NULL ? dense[1]->data : NULL,
                dense[0]->data, output->data);
        reshard_tensor *const all[] = {weight, places};
        output->sameness = rs_sameness_of(2, all);
        output->kin = rs_kin_of(2, all);
    }
    reshard_tensor_release(dense[0]);
    reshard_tensor_release(dense[1]);
    reshard_tensor *saved[SAVED_COUNT] = {places, sizes, samples,
                                          wants_samples(samples) ? weight : NULL};
    rs_recipe recipe = {.name = "embedding_bag",
                        .backward = backward_sum,
                        .input_count = 2,
                        .inputs = inputs,
                        .saved_count = SAVED_COUNT,
                        .saved = saved,
                        .facts = &facts,
                        .facts_bytes = sizeof facts};
    return rs_op_end(&recipe, status, output);
}

/* ---- maxima ---------------------------------------------------------------------------------- */

static void backward_pick(rs_node *node, reshard_tensor *const *gradients,
                          reshard_tensor **out_gradients)
{
    const rs_extents *input = rs_node_facts(node);
    reshard_tensor *winners = rs_node_saved(node, 0), *dense = NULL, *made = NULL, *gradient = NULL;
    if (winners == NULL)
        return;
    reshard_status status = rs_tensor_densify(rs_scope_context(), winners, &dense);
    if (status == RESHARD_OK)
        status = rs_real(gradients[0], &gradient);
    if (status == RESHARD_OK)
        status = rs_result_zeros(gradient->dtype, 2, input->shape, &made);
    if (status == RESHARD_OK)
        RS_CALL(gradient->dtype, pick_back, (const void *)dense->data, dense->shape[0],
                dense->shape[1], gradient->data, made->data);
    reshard_tensor_release(dense);
    reshard_tensor_release(gradient);
    out_gradients[0] = rs_scope_finish(status, made);
}

reshard_tensor *rs_bag_pick_at(reshard_tensor *weight, reshard_tensor *winners)
{
    if (rs_dtype_is_half(weight->dtype))
        return reshard_tensor_cast(
            rs_bag_pick_at(reshard_tensor_cast(weight, RESHARD_F32), winners), weight->dtype);
    if (!rs_op_begin("embedding_bag", 1, &weight))
        return NULL;
    reshard_tensor *dense = NULL, *output = NULL;
    rs_extents facts = rs_extents_of(weight);
    reshard_status status = rs_check_floats(1, &weight);
    if (status == RESHARD_OK)
        status = rs_real(weight, &dense);
    if (status == RESHARD_OK)
        status = rs_result(weight->dtype, 2, winners->shape, &output);
    if (status == RESHARD_OK) {
        RS_CALL(weight->dtype, pick, (const void *)winners->data, winners->shape[0],
                winners->shape[1], dense->data, output->data);
        reshard_tensor *const all[] = {weight, winners};
        output->sameness = rs_sameness_of(2, all);
        output->kin = rs_kin_of(2, all);
    }
    reshard_tensor_release(dense);
    rs_recipe recipe = {.name = "embedding_bag",
                        .backward = backward_pick,
                        .input_count = 1,
                        .inputs = &weight,
                        .saved_count = 1,
                        .saved = &winners,
                        .facts = &facts,
                        .facts_bytes = sizeof facts};
    return rs_op_end(&recipe, status, output);
}

/* ---- running --------------------------------------------------------------------------------- */

static reshard_status check_tensors(const rs_bag *bag)
{
    reshard_tensor *weight = bag->tensors[RS_BAG_WEIGHT], *indices = bag->tensors[RS_BAG_INDICES];
    reshard_tensor *sizes = bag->tensors[RS_BAG_SIZES], *samples = bag->tensors[RS_BAG_SAMPLES];
    reshard_status status = rs_check_indices(indices);
    if (status == RESHARD_OK)
        status = rs_check_floats(1, &weight);
    if (status == RESHARD_OK && (weight->ndim != 2 || indices->ndim < 1 || indices->ndim > 2))
        return rs_fail(RESHARD_ERR_INVALID,
                       "weight %s with indices %s; a weight has two dimensions, indices one or two",
                       rs_tensor_describe(weight).text, rs_tensor_describe(indices).text);
    if (status == RESHARD_OK && (indices->ndim == 1) != (sizes != NULL))
        return rs_fail(RESHARD_ERR_INVALID, "indices %s %s offsets",
                       rs_tensor_describe(indices).text, sizes != NULL ? "take no" : "need");
    if (status != RESHARD_OK || samples == NULL)
        return status;
    if (bag->reduction != RESHARD_SUM)
        return rs_fail(RESHARD_ERR_INVALID, "sample weights go with sums, not with \"%s\"",
                       reshard_reduction_name(bag->reduction));
    if (!rs_shape_equals(samples, indices) || samples->dtype != weight->dtype)
        return rs_fail(RESHARD_ERR_INVALID, "sample weights %s for indices %s and a weight of %s",
                       rs_tensor_describe(samples).text, rs_tensor_describe(indices).text,
                       reshard_dtype_name(weight->dtype));
    return RESHARD_OK;
}

static reshard_tensor *run_local(const rs_bag *bag, reshard_tensor *winners)
{
    rs_bag_part part;
    rs_bag_view view = {.rows = bag->rows, .padding = bag->padding};
    reshard_status status = rs_bag_open(bag->tensors, &view, &part);
    if (status != RESHARD_OK)
        return rs_scope_fail(rs_fail_within(status, "embedding_bag"));
    reshard_tensor *weight = bag->tensors[RS_BAG_WEIGHT];
    reshard_tensor *y = winners != NULL ? rs_bag_pick_at(weight, winners)
                                        : rs_bag_sum_at(weight, part.places, part.sizes,
                                                        bag->tensors[RS_BAG_SAMPLES],
                                                        bag->reduction == RESHARD_AVG);
    rs_bag_close(&part);
    return y;
}

reshard_tensor *rs_bag_run(const rs_bag *bag)
{
    reshard_tensor *winners = NULL;
    rs_bag_axes axes;
    bool spread = rs_any_distributed(RS_BAG_TENSORS, bag->tensors);
    reshard_status status = check_tensors(bag);
    if (status == RESHARD_OK)
        status = rs_bag_judge(bag, &axes); /* before anything is changed */
    if (status == RESHARD_OK && bag->max_norm > 0)
        status = rs_bag_renorm(bag, &axes);
    if (status == RESHARD_OK && bag->reduction == RESHARD_MAX) {
        status = rs_bag_winners(bag, &axes, &winners);
        if (status == RESHARD_OK && rs_scope_own(winners) == NULL)
            return NULL;
    }
    if (status != RESHARD_OK)
        return rs_scope_fail(rs_fail_within(status, "embedding_bag"));
    return spread ? rs_bag_spread(bag, winners) : run_local(bag, winners);
}

reshard_status rs_bag_read(const reshard_embedding_bag_options *given, int64_t rows,
                           reshard_embedding_bag_options *out_read, rs_bag *out_bag)
{
    reshard_embedding_bag_options o = {.size = 0};
    reshard_status status = rs_options_read("embedding_bag options", given, &o, sizeof o);
    if (status != RESHARD_OK)
        return status;
    int64_t padding = o.padding_index < 0 ? o.padding_index + rows : o.padding_index;
    if (o.reduction != RESHARD_SUM && o.reduction != RESHARD_AVG && o.reduction != RESHARD_MAX)
        return rs_fail(RESHARD_ERR_UNSUPPORTED, "the reduction \"%s\": it is sum, avg or max",
                       reshard_reduction_name(o.reduction));
    if (o.pads && (padding < 0 || padding >= rows))
        return rs_fail(RESHARD_ERR_RANGE, "the padding index is %lld; there are %lld rows",
                       (long long)o.padding_index, (long long)rows);
    if (!(o.max_norm >= 0) || !(o.norm_type >= 0))
        return rs_fail(RESHARD_ERR_INVALID, "max_norm %g of norm %g: they must not be negative",
                       o.max_norm, o.norm_type);
    *out_read = o;
    *out_bag = (rs_bag){.reduction = o.reduction,
                        .rows = rows,
                        .padding = o.pads ? padding : RS_PLACE_PADDING,
                        .max_norm = o.max_norm,
                        .norm_type = o.norm_type > 0 ? o.norm_type : 2};
    return RESHARD_OK;
}

reshard_tensor *reshard_embedding_bag(reshard_tensor *weight, reshard_tensor *indices,
                                      const reshard_embedding_bag_options *options)
{
    rs_bag bag;
    reshard_embedding_bag_options read;
    reshard_tensor *inputs[] = {weight, indices}, *sizes = NULL;
    if (!rs_op_begin("embedding_bag", 2, inputs))
        return NULL;
    int64_t rows = weight->ndim == 2 ? weight->shape[0] : 0;
    reshard_status status = rs_bag_read(options, rows, &read, &bag);
    if (status != RESHARD_OK)
        return rs_scope_fail(rs_fail_within(status, "embedding_bag"));
    if (read.offsets != NULL &&
        (sizes = rs_bag_sizes(indices, read.offsets, read.last_offset != 0)) == NULL)
        return NULL;
    bag.tensors[RS_BAG_WEIGHT] = weight;
    bag.tensors[RS_BAG_INDICES] = indices;
    bag.tensors[RS_BAG_SIZES] = sizes;
    bag.tensors[RS_BAG_SAMPLES] = read.sample_weights;
    return rs_bag_run(&bag);
}

#else

static void OF(sum_bags)(const bags *b, const void *samples, const void *weight, void *y)
{
    const REAL *from = weight, *factors = samples;
    const int64_t *places = b->places;
    for (int64_t bag = 0, at = 0; bag < b->count; at += size_of(b, bag++)) {
        REAL *row = (REAL *)y + bag * b->width;
        int64_t size = size_of(b, bag), counted = b->mean ? count_in(places + at, size) : 0;
        for (int64_t i = at; i < at + size; i++) {
            REAL factor = factors != NULL ? factors[i] : 1;
            for (int64_t k = 0; k < b->width && places[i] >= 0; k++)
                row[k] += factor * from[places[i] * b->width + k];
        }
        for (int64_t k = 0; k < b->width && counted > 1; k++)
            row[k] /= (REAL)counted;
    }
}

static void OF(sum_back)(const bags *b, const void *samples, const void *g, void *y)
{
    const REAL *factors = samples;
    REAL *to = y;
    const int64_t *places = b->places;
    for (int64_t bag = 0, at = 0; bag < b->count; at += size_of(b, bag++)) {
        const REAL *row = (const REAL *)g + bag * b->width;
        int64_t size = size_of(b, bag), counted = b->mean ? count_in(places + at, size) : 1;
        for (int64_t i = at; i < at + size; i++) {
            REAL factor = (factors != NULL ? factors[i] : 1) / (REAL)(counted > 1 ? counted : 1);
            for (int64_t k = 0; k < b->width && places[i] >= 0; k++)
                to[places[i] * b->width + k] += factor * row[k];
        }
    }
}

/* The gradient of a sample's weight is the product of its row with the bag's gradient. */
static void OF(samples_back)(const bags *b, const void *weight, const void *g, void *y)
{
    const REAL *from = weight;
    REAL *to = y;
    const int64_t *places = b->places;
    for (int64_t bag = 0, at = 0; bag < b->count; at += size_of(b, bag++)) {
        const REAL *row = (const REAL *)g + bag * b->width;
        for (int64_t i = at; i < at + size_of(b, bag); i++) {
            REAL sum = 0;
            for (int64_t k = 0; k < b->width && places[i] >= 0; k++)
                sum += row[k] * from[places[i] * b->width + k];
            to[i] = sum;
        }
    }
}

static void OF(pick)(const int64_t *winners, int64_t count, int64_t width, const void *weight,
                     void *y)
{
    const REAL *from = weight;
    REAL *to = y;
    for (int64_t i = 0; i < count * width; i++)
        to[i] = winners[i] < 0 ? 0 : from[winners[i] * width + i % width];
}

static void OF(pick_back)(const int64_t *winners, int64_t count, int64_t width, const void *g,
                          void *y)
{
    const REAL *from = g;
    REAL *to = y;
    for (int64_t i = 0; i < count * width; i++) {
        if (winners[i] >= 0)
            to[winners[i] * width + i % width] += from[i];
    }
}

#endif
