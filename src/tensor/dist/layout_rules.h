/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout_rules.h - rules for operations on distributed tensors whose output has another layout than
 * their inputs: which layouts fit together, and which one comes out. The rules are rows; rules.c
 * applies them axis by axis. Operations that keep the layout use rs_spread_alike (spread.h).
 */
#ifndef RS_TENSOR_DIST_LAYOUT_RULES_H
#define RS_TENSOR_DIST_LAYOUT_RULES_H

#include <reshard/own_operation.h>

#include "tensor/dist/axes.h"

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

#endif
