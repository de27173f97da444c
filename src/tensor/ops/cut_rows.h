/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cut_rows.h - softmax, log_softmax and cross-entropy whose rows may be cut over ranks, without
 * gathering them. Ranks exchange one or two numbers for each row.
 *
 * A local tensor is a single part that holds all columns, so that cross-entropy with options is
 * written once. Numbers of rows are f64, whatever the dtype of x.
 */
#ifndef RS_TENSOR_OPS_CUT_ROWS_H
#define RS_TENSOR_OPS_CUT_ROWS_H

#include <reshard/ops.h>

#include "tensor/dist/axes.h"

/* ---- the operations -------------------------------------------------------------------------- */

/* Whether a distributed tensor is made of cuts, of which one is along the last dim. */
bool rs_rows_are_cut(const reshard_tensor *x);
/* Collective. Softmax over the last dim of a distributed tensor, or its logarithm. */
reshard_tensor *rs_cut_softmax(reshard_tensor *x, bool logarithm);
/* Cross-entropy of local tensors, or Collective of distributed ones, whose labels have the layout
 * of logits without the last dim. The caller has checked shapes, and that labels are i64. The sum
 * over rows is divided by `count`; 0: by the number of rows that are not ignored. */
reshard_tensor *rs_cut_cross_entropy(reshard_tensor *logits, reshard_tensor *labels,
                                     const reshard_cross_entropy_options *options, int64_t count);

/* ---- parts of rows --------------------------------------------------------------------------- */

/* This rank's parts: shards, or the local tensor itself. */
int64_t rs_part_count(const reshard_tensor *x);
reshard_tensor *rs_part_of(reshard_tensor *x, int64_t i);
/* The axes of x, of which those that cut the last dim become `placement`. Errors: INVALID for a
 * partial x, and those of rs_axes_of. */
reshard_status rs_rows_axes(const reshard_tensor *x, reshard_placement placement,
                            rs_axes *out_axes);

/* What a kernel sees of one part. */
typedef struct rs_part_rows {
    int64_t rows, width;
    const int64_t *global; /* the column of the whole rows, for each column here */
    int64_t limit;         /* columns from this one of the whole rows on do not count */
} rs_part_rows;

/* Columns of the whole rows, for each column of this rank's part. */
typedef struct rs_columns {
    reshard_shards *shards; /* NULL for a local tensor */
    reshard_tensor *global; /* i64 */
    int64_t limit;          /* columns from here on do not count */
} rs_columns;

reshard_status rs_columns_find(reshard_tensor *x, int64_t limit, rs_columns *out_columns);
void rs_columns_forget(rs_columns *columns);
rs_part_rows rs_columns_part(const reshard_tensor *part, const rs_columns *columns);

/* ---- numbers of rows ------------------------------------------------------------------------- */

/* Makes room for `count` numbers for each row of x, which ranks contribute to if rows are cut. */
reshard_status rs_rows_numbers(reshard_tensor *x, reshard_reduction reduction, int64_t count,
                               reshard_tensor **out_numbers);
/* Collective, if x is distributed. Takes over contributions and gives every rank the result. */
reshard_status rs_rows_reduce(const reshard_tensor *x, reshard_status status,
                              reshard_tensor *numbers, reshard_tensor **out_numbers);
/* Collective, if x is distributed. Finds the maximum of each row. */
reshard_status rs_rows_maxima(reshard_tensor *x, const rs_columns *columns,
                              reshard_tensor **out_maxima);
/* Collective, if x is distributed. Finds the sum of exp(x - maximum), and, if there are places of
 * labels, the label's x - maximum: two numbers for each row. */
reshard_status rs_rows_sums(reshard_tensor *x, const rs_columns *columns, reshard_tensor *maxima,
                            const reshard_tensor *places, reshard_tensor **out_sums);

#endif
