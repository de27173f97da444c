/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bag.h - embedding_bag: rows of a matrix, chosen by index and reduced bag by bag.
 *
 * Indices are a matrix, of which each row is a bag, or a list with the sizes of the bags. (Callers
 * give offsets. Sizes are what can be cut over ranks and gathered again, because they do not count
 * from the beginning of the list.)
 *
 * Where a row is, seen from one rank, is a place: its number in this rank's part of the weight, or
 * one of the two numbers below.
 */
#ifndef RS_TENSOR_BAG_BAG_H
#define RS_TENSOR_BAG_BAG_H

#include <reshard/ops.h>

#include "tensor/dist/axes.h"

#include <stdbool.h>

enum {
    RS_PLACE_PADDING = -1,  /* does not count */
    RS_PLACE_ELSEWHERE = -2 /* counts, but is on another rank */
};

/* The tensors of one call. Either all are local, or all are distributed over one mesh. */
enum { RS_BAG_WEIGHT, RS_BAG_INDICES, RS_BAG_SIZES, RS_BAG_SAMPLES, RS_BAG_TENSORS };

typedef struct rs_bag {
    reshard_tensor *tensors[RS_BAG_TENSORS]; /* sizes and samples may be NULL */
    reshard_reduction reduction;             /* SUM, AVG, MAX */
    int64_t rows;                            /* of the whole weight */
    int64_t padding;                         /* the index that does not count, or -1 */
    double max_norm, norm_type;              /* max_norm 0: none */
} rs_bag;

/* Reads options; their tensors are only in *out_read. Errors: INVALID, RANGE, UNSUPPORTED. */
reshard_status rs_bag_read(const reshard_embedding_bag_options *options, int64_t rows,
                           reshard_embedding_bag_options *out_read, rs_bag *out_bag);
/* Turns offsets into sizes, which the innermost scope owns. Distributed offsets count from the
 * beginning of this rank's own part of the indices, and sizes have their layout. NULL on failure,
 * with the error noted. */
reshard_tensor *rs_bag_sizes(reshard_tensor *indices, reshard_tensor *offsets, bool last);
/* Runs the operation. */
reshard_tensor *rs_bag_run(const rs_bag *bag);

/* ---- parts (bag_part.c) ---------------------------------------------------------------------- */

/* One rank's part of the bags, dense. */
typedef struct rs_bag_part {
    reshard_tensor *weight; /* f32 or f64 */
    reshard_tensor *places; /* i64, of the shape of the indices */
    reshard_tensor *sizes;  /* i64 or NULL */
    int64_t bags;
} rs_bag_part;

/* What places are found by, beside the tensors. */
typedef struct rs_bag_view {
    int64_t rows, padding;  /* as in rs_bag */
    reshard_shards *shards; /* this rank's, of the weight; NULL: all rows are here */
    bool mean;
} rs_bag_view;

int64_t rs_bag_count(const reshard_tensor *indices, const reshard_tensor *sizes);
/* Gives this rank's view of the bags, whose shards the caller destroys. */
reshard_status rs_bag_look(const rs_bag *bag, rs_bag_view *out_view);
/* Opens local tensors, which are in the order of rs_bag: checks indices and sizes, and finds
 * places. Errors: RANGE, INVALID. */
reshard_status rs_bag_open(reshard_tensor *const *tensors, const rs_bag_view *view,
                           rs_bag_part *out_part);
/* The same for part `i` of a bag's tensors. */
reshard_status rs_bag_open_part(const rs_bag *bag, const rs_bag_view *view, int64_t i,
                                rs_bag_part *out_part);
void rs_bag_close(rs_bag_part *part);

/* ---- layouts (bag_rules.c) ------------------------------------------------------------------- */

/* Layouts for distributed tensors: of the output, of gradients, and of vectors of the weight's
 * rows, which ranks contribute to: whether a row is used, and its norm. Partial axes are sums. */
typedef struct rs_bag_axes {
    rs_axes output, weight, samples, used, norms;
} rs_bag_axes;

/* Errors: INVALID. For local tensors, gives no axes. */
reshard_status rs_bag_judge(const rs_bag *bag, rs_bag_axes *out_axes);
/* Runs the operation on shards. winners: for MAX. */
reshard_tensor *rs_bag_spread(const rs_bag *bag, reshard_tensor *winners);

/* Numbers that ranks contribute to, along partial axes by this reduction; local ones for local
 * tensors. */
reshard_status rs_bag_numbers(const rs_bag *bag, const rs_axes *axes, reshard_reduction reduction,
                              int32_t ndim, const int64_t *shape, reshard_tensor **out_numbers);
/* Collective if an axis is partial. Gives every rank the result, or all of them the error of one;
 * `status` is the result of contributing. The numbers are released on failure. */
reshard_status rs_bag_settle(const rs_bag *bag, const rs_axes *axes, reshard_status status,
                             reshard_tensor **numbers);

/* ---- steps ----------------------------------------------------------------------------------- */

/* Collective if rows of the weight are cut. Finds, for each element of the output of MAX, the row
 * that it comes from: i64 [bags, width] with the layout of the output, except that partial axes are
 * replicated; RS_PLACE_PADDING where a bag is empty. The caller releases it. */
reshard_status rs_bag_winners(const rs_bag *bag, const rs_bag_axes *axes,
                              reshard_tensor **out_winners);
/* Collective if columns of the weight, or the indices, are cut. Scales used rows down to max_norm,
 * in place. */
reshard_status rs_bag_renorm(const rs_bag *bag, const rs_bag_axes *axes);
/* The sums or means of local bags. */
reshard_tensor *rs_bag_sum_at(reshard_tensor *weight, reshard_tensor *places, reshard_tensor *sizes,
                              reshard_tensor *samples, bool mean);
/* y[b, k] = weight[winners[b, k], k], or 0 where that is negative. */
reshard_tensor *rs_bag_pick_at(reshard_tensor *weight, reshard_tensor *winners);

#endif
