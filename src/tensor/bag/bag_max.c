/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bag_max.c - which row each element of a bag's maximum comes from. Ranks exchange two numbers for
 * each element, and no rows: the maximum, and the first entry of the bag that has it. A NaN counts
 * only as the first entry, as in PyTorch, where nothing is greater than it.
 */
#ifndef REAL
#include "base/error.h"
#include "tensor/bag/bag.h"
#include "tensor/core/scope.h"
#include "tensor/ops/cut_rows.h"
#include "tensor/ops/op.h"

#include <math.h>

/* The bags as kernels see them. */
typedef struct entries {
    const int64_t *places, *sizes; /* sizes NULL: all have `size` */
    int64_t size, bags, width;
} entries;

static entries describe(const rs_bag_part *part)
{
    return (entries){.places = (const void *)part->places->data,
                     .sizes = part->sizes != NULL ? (const void *)part->sizes->data : NULL,
                     .size = part->places->ndim == 2 ? part->places->shape[1] : 0,
                     .bags = part->bags,
                     .width = part->weight->shape[1]};
}

/* The first entry of a bag that counts, or the end of the bag. */
static int64_t first_of(const entries *e, int64_t at, int64_t end)
{
    while (at < end && e->places[at] == RS_PLACE_PADDING)
        at++;
    return at;
}

#define RS_REAL_FILE "tensor/bag/bag_max.c"
#include "tensor/core/real.h"

/* Fills numbers of [bags, width] from each part, by one of the kernels. maxima NULL: finds them;
 * otherwise finds the entries that have them. */
static reshard_status contribute(const rs_bag *bag, const rs_bag_view *view, reshard_tensor *maxima,
                                 reshard_tensor *numbers)
{
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; i < rs_part_count(numbers) && status == RESHARD_OK; i++) {
        rs_bag_part part;
        status = rs_bag_open_part(bag, view, i, &part);
        if (status != RESHARD_OK)
            break;
        entries e = describe(&part);
        double *out = (void *)rs_part_of(numbers, i)->data;
        if (maxima == NULL)
            RS_CALL(part.weight->dtype, find_maxima, &e, part.weight->data, out);
        else
            RS_CALL(part.weight->dtype, find_entries, &e, part.weight->data,
                    (const void *)rs_part_of(maxima, i)->data, out);
        rs_bag_close(&part);
    }
    return status;
}

/* The rows that indices name at these entries. */
static reshard_status name_rows(const rs_bag *bag, reshard_tensor *found, reshard_tensor *winners)
{
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; i < rs_part_count(winners) && status == RESHARD_OK; i++) {
        reshard_tensor *indices = NULL, *part = rs_part_of(found, i), *to = rs_part_of(winners, i);
        status = rs_tensor_densify(rs_scope_context(), rs_part_of(bag->tensors[RS_BAG_INDICES], i),
                                   &indices);
        for (int64_t k = 0; status == RESHARD_OK && k < to->volume; k++) {
            double entry = ((const double *)(const void *)part->data)[k];
            ((int64_t *)(void *)to->data)[k] =
                entry < (double)indices->volume
                    ? ((const int64_t *)(const void *)indices->data)[(int64_t)entry]
                    : RS_PLACE_PADDING;
        }
        reshard_tensor_release(indices);
    }
    return status;
}

/* Tensors of i64 with the parts of `like`. */
static reshard_status make_like(reshard_tensor *like, reshard_tensor **out_made)
{
    return like->distribution == NULL
               ? rs_result(RESHARD_I64, 2, like->shape, out_made)
               : rs_distributed_make(rs_scope_context(), like->distribution->cache,
                                     like->distribution->layout, RESHARD_I64, out_made);
}

reshard_status rs_bag_winners(const rs_bag *bag, const rs_bag_axes *axes,
                              reshard_tensor **out_winners)
{
    reshard_tensor *const *t = bag->tensors;
    int64_t shape[] = {rs_bag_count(t[RS_BAG_INDICES], t[RS_BAG_SIZES]),
                       t[RS_BAG_WEIGHT]->shape[1]};
    reshard_tensor *maxima = NULL, *found = NULL, *winners = NULL;
    rs_bag_view view;
    reshard_status status = rs_bag_look(bag, &view);
    if (status == RESHARD_OK)
        status = rs_bag_numbers(bag, &axes->output, RESHARD_MAX, 2, shape, &maxima);
    if (status == RESHARD_OK)
        status = contribute(bag, &view, NULL, maxima);
    status = rs_bag_settle(bag, &axes->output, status, &maxima);
    if (status != RESHARD_OK)
        goto out; /* all ranks do */
    status = rs_bag_numbers(bag, &axes->output, RESHARD_MIN, 2, shape, &found);
    if (status == RESHARD_OK)
        status = contribute(bag, &view, maxima, found);
    status = rs_bag_settle(bag, &axes->output, status, &found);
    if (status == RESHARD_OK)
        status = make_like(found, &winners);
    if (status == RESHARD_OK)
        status = name_rows(bag, found, winners);
out:
    if (status == RESHARD_OK)
        *out_winners = winners;
    else
        reshard_tensor_release(winners);
    reshard_tensor_release(maxima);
    reshard_tensor_release(found);
    reshard_shards_destroy(view.shards);
    return status;
}

#else

/* Of entries on this rank; -inf where there are none. */
static void OF(find_maxima)(const entries *e, const void *weight, double *out)
{
    const REAL *from = weight;
    for (int64_t bag = 0, at = 0, end = 0; bag < e->bags; bag++, at = end) {
        double *row = out + bag * e->width;
        end = at + (e->sizes != NULL ? e->sizes[bag] : e->size);
        int64_t first = first_of(e, at, end);
        for (int64_t k = 0; k < e->width; k++)
            row[k] = -INFINITY;
        for (int64_t i = first; i < end; i++) {
            for (int64_t k = 0; k < e->width && e->places[i] >= 0; k++) {
                double value = (double)from[e->places[i] * e->width + k];
                if (i == first || value > row[k])
                    row[k] = value;
            }
        }
    }
}

/* The first entry on this rank that has the maximum; inf where there is none. */
static void OF(find_entries)(const entries *e, const void *weight, const double *maxima,
                             double *out)
{
    const REAL *from = weight;
    for (int64_t bag = 0, at = 0, end = 0; bag < e->bags; bag++, at = end) {
        end = at + (e->sizes != NULL ? e->sizes[bag] : e->size);
        int64_t first = first_of(e, at, end);
        for (int64_t k = 0; k < e->width; k++) {
            double maximum = maxima[bag * e->width + k], *entry = &out[bag * e->width + k];
            *entry = INFINITY;
            for (int64_t i = first; i < end && *entry == INFINITY; i++) {
                if (e->places[i] < 0)
                    continue;
                double value = (double)from[e->places[i] * e->width + k];
                if (value == maximum || (isnan(maximum) && i == first))
                    *entry = (double)i;
            }
        }
    }
}

#endif
