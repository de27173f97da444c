/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout_rules.h - rules for operations on distributed tensors whose output has another layout than
 * their inputs: which layouts fit together, and which one comes out. An operation calls its rule if
 * an input is distributed. All other operations use rs_spread_alike (dist/spread.h).
 */
#ifndef RS_TENSOR_OPS_LAYOUT_RULES_H
#define RS_TENSOR_OPS_LAYOUT_RULES_H

#include <reshard/ops.h>
#include <reshard/own_operation.h>

#include "tensor/dist/axes.h"

/* ---- rules (rules.c) ------------------------------------------------------------------------- */

enum { RS_LAYOUT_RULES_MOST = RESHARD_OPERATION_MAX }; /* inputs, outputs */

/* What an operation does to each axis of the mesh: the first row that fits the inputs says it. An
 * axis that replicates all inputs needs no row. The operation itself and the layers of nn read the
 * same rows: the one to judge the layouts it is given, the others to bring tensors into layouts
 * that fit. */
typedef struct rs_layout_rules {
    int32_t count;
    const reshard_operation_rule *rows;
    /* Words for inputs that no row fits. NULL: general ones. */
    reshard_status (*refuse)(reshard_tensor *const *inputs, int32_t axis);
} rs_layout_rules;

#define RS_LAYOUT_RULES(rows, refuse)                          \
    {                                                          \
        (int32_t)(sizeof(rows) / sizeof *(rows)), rows, refuse \
    }

/* The rules applied to one call. */
typedef struct rs_fit {
    const rs_layout_rules *rules;
    int32_t input_count, output_count;
    reshard_tensor *const *inputs; /* distributed; all but the first may be NULL */
    int32_t output_ndims[RS_LAYOUT_RULES_MOST];
    /* of the inputs; this and the rest are found by rs_layout_rules_judge */
    rs_axes now[RS_LAYOUT_RULES_MOST];
    rs_axes outputs[RS_LAYOUT_RULES_MOST], gradients[RS_LAYOUT_RULES_MOST];
} rs_fit;

/* Finds what the rules make of the inputs. Errors: INVALID (no row fits, a row that cannot be
 * read), and those of rs_axes_of. */
reshard_status rs_layout_rules_judge(rs_fit *fit);
/* The layout of an output, and that in which the gradient of an input comes. */
reshard_status rs_layout_rules_output(const rs_fit *fit, int32_t index, const int64_t *shape,
                                      reshard_layout **out_layout);
reshard_status rs_layout_rules_gradient(const rs_fit *fit, int32_t index,
                                        reshard_layout **out_layout);

/* Judges the inputs of `spread`, whose output has this shape, and sets its layouts. */
reshard_status rs_spread_prepare(rs_fit *fit, const rs_layout_rules *rules, int32_t ndim,
                                 const int64_t *shape, rs_spread *spread);
/* Prepares and runs it. */
reshard_tensor *rs_spread_by(const rs_layout_rules *rules, int32_t ndim, const int64_t *shape,
                             rs_spread *spread);

/* Chooses layouts that fit. now: those that the inputs have; wanted: over their mesh, replicated.
 * Axes that the input `first` is cut along decide first, then those of `second`, which may be -1:
 * the first row with that placement says what the other inputs should have. */
void rs_layout_rules_follow(const rs_layout_rules *rules, int32_t count,
                            reshard_tensor *const *inputs, const rs_axes *now, int32_t first,
                            int32_t second, rs_axes *wanted);

/* The tables of ops.h. */
extern const rs_layout_rules rs_linear_rules;    /* x, weight, bias */
extern const rs_layout_rules rs_embedding_rules; /* weight, indices */
extern const rs_layout_rules rs_norm_rules;      /* x, weight, bias */

/* ---- operations ------------------------------------------------------------------------------ */

/* A reduction along dims. */
typedef struct rs_reducing {
    const char *name;
    reshard_reduction reduction;
    bool keep;     /* reduced dims stay, with size 1 */
    uint64_t dims; /* a bit for each reduced one */
    int64_t count; /* of the elements that become one, on all ranks; for means */
} rs_reducing;

reshard_status rs_spread_transpose(reshard_tensor *tensor, int32_t a, int32_t b,
                                   reshard_tensor **out_tensor);
reshard_tensor *rs_spread_cat(int32_t count, reshard_tensor *const *tensors, int32_t dim);
reshard_tensor *rs_spread_sum(reshard_tensor *x);
reshard_tensor *rs_spread_mean(reshard_tensor *x);
/* For these, dims are counted from the front, and the caller has checked the arguments against the
 * global shape. */
reshard_tensor *rs_spread_reduce(reshard_tensor *x, const rs_reducing *reducing);
reshard_tensor *rs_spread_narrow(reshard_tensor *x, int32_t dim, int64_t start, int64_t length);
reshard_tensor *rs_spread_index_select(reshard_tensor *x, int32_t dim, reshard_tensor *indices);
reshard_tensor *rs_spread_reshape(reshard_tensor *x, int32_t ndim, const int64_t *shape);
reshard_tensor *rs_spread_matmul(reshard_tensor *a, reshard_tensor *b);
reshard_tensor *rs_spread_linear(reshard_tensor *x, reshard_tensor *weight, reshard_tensor *bias);
reshard_tensor *rs_spread_embedding(reshard_tensor *weight, reshard_tensor *indices);
reshard_tensor *rs_spread_norm(const char *name, reshard_tensor *x, reshard_tensor *weight,
                               reshard_tensor *bias, rs_local_fn fn, const void *user,
                               size_t user_bytes);
reshard_tensor *rs_spread_cross_entropy(reshard_tensor *logits, reshard_tensor *labels);
/* Collective if labels have to move. Brings them into the layout of logits without the
 * classes, unless that is partial, which the operation refuses. Returns false on failure, with the
 * error noted. */
bool rs_spread_labels(reshard_tensor **logits_and_labels);

/* The sum of a local tensor's elements, divided by `count`, the number of elements on all ranks. */
reshard_tensor *rs_mean_of(reshard_tensor *x, int64_t count);
/* Reduces a local tensor. */
reshard_tensor *rs_reduce_local(reshard_tensor *x, const rs_reducing *reducing);
/* The number that a row of the whole weight has in this rank's only shard of it; -1 if it is not
 * there. width: of the shard. */
int64_t rs_find_row(const reshard_shards *shards, int64_t row, int64_t width);
/* Embedding by row number in a local weight. A place of -1 gives a row of zeros. */
reshard_tensor *rs_embedding_at(reshard_tensor *weight, reshard_tensor *places);
/* Makes a mask with the shape or layout of x, in which each element is 0 or 1/(1-p), depending on
 * the seed and its global index. Local. */
reshard_tensor *rs_dropout_mask(reshard_tensor *x, double p, uint64_t seed);

#endif
